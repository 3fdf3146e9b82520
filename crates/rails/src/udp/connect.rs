//! Where UDP listens and connects; and from an agreed connection to a link.

use super::link::Link;
use super::pipe::Pipe;
use super::receive::NoSink;
use super::socket::Socket;
use super::{Slot, UdpRail};
use crate::config::Config;
use crate::discover::{self, Device, Interface, Kind};
use crate::error::Error;
use crate::keys::LinkKeys;
use crate::rail::LinkId;
use crate::rail::channel::{Channel, Destination};
use crate::rail::connect::{Agreed, Connector, Discovered, Joined, Listening, Opening, Sought, Ways};
use crate::rail::control::Control;
use crate::sockets::ip;
use crate::sys::{Epoll, event, signal};
use polyrail_core::connection::{Connection, Settings};
use polyrail_core::cost::RailCosts;
use polyrail_core::frame::MAX_PAYLOAD;
use polyrail_core::session::Over;
use polyrail_core::wire::Key;
use polyrail_core::wire::datagram::Ending;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};

/// Most bytes of a packet where an interface does not say, and of any: more in one costs the same per byte.
const MTU: (u32, u32) = (1500, 9000);
/// Bytes of the headers of IPv4 and IPv6 with UDP.
const HEADERS: (u32, u32) = (28, 48);
/// Ports that are tried for all addresses together.
const TRIES: usize = 8;

/// What the rail is towards peers that connect.
pub(super) struct Side {
    /// By which connections to this endpoint are opened.
    pub(super) key: Option<Key>,
    port: u16,
    interfaces: Vec<Interface>,
    /// Connections that nobody has taken yet.
    pub(super) calls: VecDeque<Box<dyn Channel>>,
    /// Readable while there are any.
    pub(super) called: OwnedFd,
    /// Readable while something has come and there is no connection: where there is one, progress is made by it, and strangers are heard, too.
    strangers: Epoll,
    /// Connections that have become links, whose first frames may be there.
    pub(super) adopted: Vec<u32>,
    pub(super) is_closed: bool,
}

impl Side {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            key: None,
            port: 0,
            interfaces: Vec::new(),
            calls: VecDeque::new(),
            called: event()?,
            strangers: Epoll::new()?,
            adopted: Vec::new(),
            is_closed: false,
        })
    }
}

/// The addresses that are listened on.
fn addresses(endpoint: &Opening<'_>) -> Vec<SocketAddr> {
    let named = endpoint.settings.named.map(|at| at.ip()).filter(|ip| !ip.is_unspecified());
    if let Some(ip) = named {
        return vec![SocketAddr::new(ip, 0)];
    }
    let chosen = &endpoint.settings.interfaces;
    let meant = |one: &&Interface| one.kind == Kind::Loopback || chosen.is_empty() || chosen.has(&one.name);
    let ips = endpoint.interfaces.iter().filter(meant).flat_map(Interface::ips);
    let address = |ip: polyrail_core::wire::Ip| match ip.addr() {
        IpAddr::V6(v6) => SocketAddrV6::new(v6, 0, 0, ip.scope()).into(),
        v4 => SocketAddr::new(v4, 0),
    };
    ips.map(address).collect()
}

/// A socket at each address, all with one port; addresses that are not there (yet, or any more) are passed over.
fn sockets(at: &[SocketAddr], mut port: u16) -> io::Result<Vec<Socket>> {
    let mut all: Vec<Socket> = Vec::new();
    for address in at {
        match Socket::open(SocketAddr::new(address.ip(), port).scoped_as(address)) {
            Ok(socket) => {
                port = socket.at().port();
                all.push(socket);
            }
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {}
            Err(error) => return Err(error),
        }
    }
    if all.is_empty() { Err(io::ErrorKind::AddrNotAvailable.into()) } else { Ok(all) }
}

trait Scoped {
    fn scoped_as(self, other: &SocketAddr) -> SocketAddr;
}

impl Scoped for SocketAddr {
    fn scoped_as(mut self, other: &SocketAddr) -> SocketAddr {
        if let (SocketAddr::V6(this), SocketAddr::V6(other)) = (&mut self, other) {
            this.set_scope_id(other.scope_id());
        }
        self
    }
}

impl UdpRail {
    /// Opens the sockets: with the port that peers know, or any.
    fn open_sockets(&mut self, endpoint: &Opening<'_>) -> io::Result<()> {
        let settings = endpoint.settings;
        let own = endpoint.port.unwrap_or(settings.named.map_or(settings.port, |at| at.port()));
        // what several listen on is TCP's
        let wanted = if settings.shared_port.is_some() { 0 } else { own };
        let at = addresses(endpoint);
        let first = sockets(&at, wanted);
        // that some other program has a port that the first got at another address, or that TCP got, is chance
        let again = |error| (0..TRIES).find_map(|_| sockets(&at, 0).ok()).ok_or(error);
        self.sockets = first.or_else(again)?;
        self.side.port = self.sockets[0].at().port();
        for (token, socket) in (0..).zip(&self.sockets) {
            self.epoll.add(socket.fd(), libc::EPOLLIN, token)?;
            self.side.strangers.add(socket.fd(), libc::EPOLLIN, 0)?;
        }
        Ok(())
    }

    /// There is a connection now that there was none, or none any more.
    pub(super) fn heed_strangers(&self) {
        let events = if self.up == 0 { libc::EPOLLIN } else { 0 };
        for socket in &self.sockets {
            // who is woken in vain finds that out
            let _ = self.side.strangers.change(socket.fd(), events, 0);
        }
    }

    /// The socket from which a place is reached.
    fn socket_to(&self, to: SocketAddr, from: Option<IpAddr>) -> io::Result<usize> {
        let from = match from {
            Some(from) => from,
            None => {
                // the kernel's routes say
                let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
                let probe = UdpSocket::bind(SocketAddr::new(any, 0))?;
                probe.connect(to)?;
                probe.local_addr()?.ip()
            }
        };
        let its = |socket: &Socket| socket.at().ip() == from;
        self.sockets.iter().position(its).ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// How a connection from a socket behaves: its datagrams are as long as the interface's packets, if the path takes them.
    pub(super) fn settings_of(&self, socket: usize) -> Settings {
        let at = self.sockets[socket].at();
        let its = |one: &&Interface| one.nets.iter().any(|net| net.ip() == at.ip());
        let mtu = self.side.interfaces.iter().find(its).map_or(0, |one| one.mtu);
        let mtu = if mtu == 0 { MTU.0 } else { mtu.min(MTU.1) };
        let size = mtu - if at.is_ipv4() { HEADERS.0 } else { HEADERS.1 };
        Settings { size, ..self.settings }
    }

    fn begin(&mut self, to: SocketAddr, from: Option<IpAddr>, key: Key) -> io::Result<Box<dyn Channel>> {
        let socket = self.socket_to(to, from)?;
        let mut salt = [0; 16];
        getrandom::fill(&mut salt).map_err(io::Error::other)?;
        let (pipe, far) = Pipe::new(self.stirred.clone(), to)?;
        let (place, number) = self.take_place().ok_or(io::ErrorKind::OutOfMemory)?;
        let connection = Connection::open(self.now(), number, salt, self.settings_of(socket));
        self.opening.insert(salt, place);
        let (_, cause) = self.begins();
        self.enter(place, Link::new(connection, key, (socket, to), pipe, cause));
        Ok(Box::new(far))
    }
}

impl UdpRail {
    /// The handshake is over: what its connection carries from now on are frames.
    fn make_link(&mut self, place: u32, leftover: &[u8], keys: Option<LinkKeys>) -> Result<(), String> {
        let Some(Slot::Up(link)) = self.slots.get_mut(place as usize) else {
            return Err("the connection has ended".into());
        };
        let mut behind = !leftover.is_empty() || link.connection.shared().held > 0;
        if let Some(pipe) = link.pipe.take() {
            let mut bytes = pipe.lock();
            link.preface.append(&mut bytes.leave);
            behind |= !bytes.came.is_empty();
        }
        if behind {
            // in its turn or before
            return Err("something came by the keys of the handshake that is no part of it".into());
        }
        if !link.begin(keys) {
            return Err("no keys can be made".into());
        }
        if link.connection.is_opened() {
            // that it was let in says that its part of the handshake came; its own first word under the new keys says the same to the other side
            link.connection.assume_had(link.preface.len() as u64);
            link.connection.ask();
        }
        link.extend();
        Ok(())
    }
}

impl Connector for UdpRail {
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
        self.side.key = Some(*endpoint.key);
        self.side.interfaces = endpoint.interfaces.to_vec();
        self.open_sockets(endpoint).map_err(|error| Error::system("listening on UDP".to_owned(), error))?;
        let descriptors = vec![self.side.called.as_raw_fd(), self.side.strangers.as_raw_fd()];
        Ok(Listening { descriptors, port: Some(self.side.port), ..Listening::default() })
    }

    fn accept(&mut self) -> io::Result<Box<dyn Channel>> {
        if self.side.calls.is_empty() && self.up == 0 {
            self.receive_strangers::<NoSink>();
        }
        let call = self.side.calls.pop_front();
        if self.side.calls.is_empty() {
            signal(&self.side.called, false);
        }
        call.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    fn destinations(&self, peer: &Sought<'_>) -> Vec<Destination> {
        ip::destinations(peer)
    }

    fn begins_by(&self) -> Option<Control> {
        let (composition, cause) = self.begins();
        Some(Control::Composition(composition, cause))
    }

    fn ways(&self, _theirs: &[u8]) -> Ways {
        Ways::Interfaces
    }

    fn destination(&self, over: &Over, _peer: &Sought<'_>, theirs: &[u8]) -> Option<Destination> {
        let Over::Pair(pair) = over else { return None };
        let port = u16::from_le_bytes(*theirs.first_chunk()?);
        let device = self.side.interfaces.iter().find(|one| one.index == pair.near.0);
        Some(ip::destination_between(pair, device.map(|one| one.name.clone()), port))
    }

    fn dial(&mut self, destination: &Destination, key: &Key) -> io::Result<Box<dyn Channel>> {
        let Destination::Socket { to, from } = destination else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        self.begin(*to, from.as_ref().map(|(from, _)| from.ip()), *key)
    }

    fn reached_by(&self) -> Vec<u8> {
        self.side.port.to_le_bytes().into()
    }

    fn agrees(&self, theirs: &[u8]) -> Result<(), String> {
        match theirs.first_chunk() {
            Some([0, 0]) | None => Err("it does not say at which port UDP reaches it".into()),
            Some(_) => Ok(()),
        }
    }

    fn adopt(&mut self, agreed: Agreed<'_>) -> Result<Joined, String> {
        let fd = agreed.connection.as_raw_fd();
        let its = |slot: &Slot| matches!(slot, Slot::Up(link) if link.pipe.as_ref().is_some_and(|pipe| pipe.fd == fd));
        let place = self.slots.iter().position(its).ok_or("the connection has ended")? as u32;
        if let Err(why) = self.make_link(place, agreed.leftover, agreed.keys) {
            self.end(place, Ending::GivenUp);
            self.release(place);
            return Err(why);
        }
        let opening = self.link(place).map(|link| link.connection.salts().0).unwrap_or_default();
        if self.opening.get(&opening) == Some(&place) {
            self.opening.remove(&opening);
        }
        self.side.adopted.push(place);
        self.mark_dirty(place);
        let (eager_max, fragment) = (agreed.settings.net_eager(), MAX_PAYLOAD);
        Ok(Joined { link: LinkId(place), costs: RailCosts::TCP, eager_max, fragment, direct_refused: None })
    }
}
