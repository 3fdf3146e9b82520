//! Where TCP listens and connects; and from an agreed connection to a link: it is the link.

use super::{TcpRail, sys};
use crate::config::Config;
use crate::discover::{self, Device, Interface, Kind};
use crate::error::Error;
use crate::rail::LinkStats;
use crate::rail::channel::{Channel, Destination};
use crate::rail::connect::{Agreed, Connector, Discovered, Joined, Listening, Opening, Sought, Ways};
use crate::relay::{self, Relayed};
use crate::sockets::ip;
use crate::sockets::listen::Listeners;
use polyrail_core::cost::RailCosts;
use polyrail_core::frame::MAX_PAYLOAD;
use polyrail_core::session::Over;
use polyrail_core::wire::{Key, offer};
use std::io;
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

impl Connector for TcpRail {
    fn discover(settings: &Config) -> Result<Discovered, Error> {
        let device = |interface: Interface| Device {
            name: interface.name.clone(),
            stays: interface.kind == Kind::Loopback,
            obstacle: interface.obstacle.clone(),
            interface: Some(interface),
        };
        let devices = discover::interfaces(&settings.interfaces)?.into_iter().map(device).collect();
        Ok(Discovered { devices, direct: None })
    }

    fn listen(&mut self, endpoint: &Opening<'_>) -> Result<Listening, Error> {
        let (listeners, port) = Listeners::open(endpoint)?;
        let descriptors = listeners.descriptors();
        let ways = endpoint.settings.gateway.as_deref().map(relay::Ways::ask).transpose();
        let (ways, unled) = ways.map_or_else(|why| (None, Some(why)), |ways| (ways, None));
        let used = endpoint.interfaces.iter().filter(|one| one.obstacle.is_none() || one.dormant);
        self.side = Side { listeners, interfaces: used.cloned().collect(), ways };
        Ok(Listening { descriptors, port: Some(port), unled, ..Listening::default() })
    }

    fn accept(&mut self) -> io::Result<Box<dyn Channel>> {
        Ok(Box::new(self.side.listeners.accept()?))
    }

    fn destinations(&self, peer: &Sought<'_>) -> Vec<Destination> {
        let mut all = ip::destinations(peer);
        if peer.address.host() != peer.here {
            let direct: Vec<Destination> = all
                .iter()
                .filter(|one| self.side.way(one).is_some_and(|way| way.or_direct))
                .cloned()
                .collect();
            all.iter_mut().for_each(|one| self.side.relay(one));
            all.extend(direct);
            // what has a gateway is of another site, whose other addresses lead nowhere from here, or to somebody else
            all.sort_by_key(|one| !matches!(one, Destination::Relayed { .. }));
        }
        all
    }

    fn ways(&self, _theirs: &[u8]) -> Ways {
        Ways::Interfaces
    }

    fn leads_alone(&self, theirs: &[offer::Interface]) -> bool {
        let own = |ip: IpAddr| !ip.is_loopback() && self.side.is_own(ip);
        let near = theirs.iter().flat_map(|one| &one.nets).any(|net| own(net.ip()));
        !near && self.side.beyond(theirs).is_some_and(|(_, way)| !way.or_direct)
    }

    fn destination(&self, over: &Over, peer: &Sought<'_>, _theirs: &[u8]) -> Option<Destination> {
        let Over::Pair(pair) = over else { return None };
        let device = self.side.interfaces.iter().find(|one| one.index == pair.near.0);
        let mut found =
            ip::destination_between(pair, device.map(|one| one.name.clone()), peer.address.port());
        if peer.address.host() != peer.here {
            self.side.relay(&mut found);
            let is_relayed = |one: &Destination| matches!(one, Destination::Relayed { .. });
            // beside what has a gateway, what seems to be near is somebody else's
            if !is_relayed(&found) && self.destinations(peer).first().is_some_and(is_relayed) {
                return None;
            }
        }
        Some(found)
    }

    fn dial(&mut self, destination: &Destination, _key: &Key) -> io::Result<Box<dyn Channel>> {
        let socket = ip::connect(destination)?;
        match destination {
            Destination::Relayed { to, .. } => Ok(Box::new(Relayed::new(socket, *to))),
            _ => Ok(Box::new(socket)),
        }
    }

    fn adopt(&mut self, agreed: Agreed<'_>) -> Result<Joined, String> {
        if agreed.let_in {
            self.side.keep_to_its_interface(&agreed.connection);
        }
        let far = self.side.far(&agreed);
        let link = self.adopt_sealed(agreed.connection, agreed.leftover, agreed.keys);
        let link = link.map_err(|why| why.to_string())?;
        if let Some(far) = far {
            self.relayed(link, far);
        }
        // fragments as long as a frame may be: 1.3 times the bandwidth of 256 KiB where the link is not the limit
        let (eager_max, fragment) = (agreed.settings.net_eager(), MAX_PAYLOAD);
        Ok(Joined { link, costs: RailCosts::TCP, eager_max, fragment, direct_refused: None })
    }
}

/// What the rail is towards peers that connect.
#[derive(Default)]
pub(super) struct Side {
    listeners: Listeners,
    interfaces: Vec<Interface>,
    /// Where this site's gateway leads.
    ways: Option<relay::Ways>,
}

impl Side {
    /// How the gateway leads there, if it does. An address of a network that this host is in is none of another site's.
    fn way_to(&self, ip: IpAddr) -> Option<&relay::Way> {
        self.ways.as_ref()?.to(ip).filter(|_| !self.is_own(ip))
    }

    /// Whether an address is of a network that this host is in.
    fn is_own(&self, ip: IpAddr) -> bool {
        self.interfaces.iter().flat_map(|one| &one.nets).any(|net| net.contains(ip))
    }

    fn way(&self, destination: &Destination) -> Option<&relay::Way> {
        let Destination::Socket { to, .. } = destination else { return None };
        self.way_to(to.ip())
    }

    /// Another site's address is reached by the gateway.
    fn relay(&self, destination: &mut Destination) {
        if let (Destination::Socket { to, .. }, Some(_), Some(ways)) =
            (&*destination, self.way(destination), &self.ways)
        {
            *destination = Destination::Relayed { gateway: ways.gateway(), to: *to };
        }
    }

    /// The first of a peer's addresses to which the gateway leads.
    fn beyond(&self, theirs: &[offer::Interface]) -> Option<(IpAddr, &relay::Way)> {
        let nets = theirs.iter().flat_map(|one| &one.nets);
        nets.map(|net| net.ip()).find_map(|ip| Some((ip, self.way_to(ip)?)))
    }

    /// Where the peer is, if at another site, and how far: the connection itself only leads to a gateway.
    fn far(&self, agreed: &Agreed<'_>) -> Option<(IpAddr, u32)> {
        let (ip, way) = self.beyond(agreed.offer.interfaces())?;
        let near = sys::info(agreed.connection.as_raw_fd())?;
        comes_by_gateway(&near, way.round_trip_us).then_some((ip, way.round_trip_us))
    }

    /// A connection stays on the interface by which the peer called.
    fn keep_to_its_interface(&self, connection: &OwnedFd) {
        let Some(near) = local_ip(connection) else { return };
        let its = |one: &&Interface| one.nets.iter().any(|net| net.ip() == near);
        if let Some(one) = self.interfaces.iter().find(its) {
            ip::keep_to(connection, &one.name);
        }
    }
}

/// Whether a connection with a peer that is so many microseconds away, there and back, only leads to a gateway: its end is near. Who is called sees it
/// by this alone. Its smoothed round trip says nothing after a handshake: the gateway's kernel acknowledges late, by up to 40 ms, what is not
/// answered at once.
fn comes_by_gateway(near: &LinkStats, far: u32) -> bool {
    let shortest = [near.rtt, near.min_rtt].into_iter().filter(|known| *known > 0).min();
    shortest.unwrap_or(0) < far / 2
}

fn local_ip(connection: &OwnedFd) -> Option<IpAddr> {
    let stream = TcpStream::from(connection.try_clone().ok()?);
    Some(stream.local_addr().ok()?.ip().to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_acknowledged_late_comes_from_near_all_the_same() {
        let of = |rtt, min_rtt| LinkStats { rtt, min_rtt, ..LinkStats::default() };
        assert!(comes_by_gateway(&of(60, 40), 2_000));
        assert!(comes_by_gateway(&of(5_664, 10), 10_200), "one acknowledgement of eight came after 40 ms");
        assert!(!comes_by_gateway(&of(10_300, 10_100), 10_200), "the peer itself");
        assert!(!comes_by_gateway(&of(10_300, 0), 10_200), "a shortest that is not known");
    }
}
