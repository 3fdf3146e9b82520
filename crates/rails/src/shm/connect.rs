//! Unix sockets named after endpoints' identities, and from an agreed one to a link: who accepts makes the segment and sends it
//! along, and each side sends its doorbell and its board.

use super::ShmRail;
use super::cma;
use super::discover::discover;
use super::doorbell::Bell;
use super::segment::{LAYOUT, Segment};
use crate::config::{Config, Rendezvous};
use crate::error::Error;
use crate::list::Reach;
use crate::rail::channel::{Channel, Destination};
use crate::rail::connect::{Agreed, Connector, Discovered, Joined, Listening, Opening, Prepared, Sought};
use crate::sockets::unix::{self, UnixChannel};
use polyrail_core::cost::{DirectCosts, RailCosts};
use polyrail_core::wire::offer::MemoryProbe;
use polyrail_core::wire::{Key, Offer, PeerId};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Fragments: what one slot's bulk payload takes.
pub const FRAGMENT: usize = 32 << 10;

/// Where an endpoint listens for peers on its host.
fn socket_name(id: PeerId) -> Vec<u8> {
    let hex: String = id.0.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("polyrail-{hex}").into_bytes()
}

impl Connector for ShmRail {
    fn discover(_settings: &Config) -> Result<Discovered, Error> {
        Ok(discover())
    }

    /// A named endpoint's name can be known, and taken, by anybody: then what leads over the network is left.
    fn listen(&mut self, endpoint: &Opening<'_>) -> Result<Listening, Error> {
        match unix::listen(&socket_name(endpoint.id)) {
            Ok(listener) => {
                let descriptors = vec![listener.as_raw_fd()];
                self.listener = Some(listener);
                Ok(Listening { descriptors, local: true, ..Listening::default() })
            }
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse
                    && endpoint.settings.rails.reaches(Reach::Network) =>
            {
                let why = "no shared memory: another process has taken this endpoint's Unix socket";
                Ok(Listening { hindered: Some(why.into()), ..Listening::default() })
            }
            Err(error) => Err(Error::system("listening on a Unix socket", error)),
        }
    }

    fn accept(&mut self) -> io::Result<Box<dyn Channel>> {
        let Some(listener) = &self.listener else { return Err(io::ErrorKind::WouldBlock.into()) };
        Ok(Box::new(UnixChannel(unix::accept(listener.as_fd())?)))
    }

    fn probe(&self, settings: &Config) -> Option<MemoryProbe> {
        let address = &raw const *self.probe as u64;
        let probe = MemoryProbe { address, nonce: *self.probe };
        (settings.rendezvous != Rendezvous::Fragments).then_some(probe)
    }

    fn destinations(&self, peer: &Sought<'_>) -> Vec<Destination> {
        let here = peer.address.is_local() && peer.address.host() == peer.here;
        let destination =
            || Destination::Named { called: "Unix socket", name: socket_name(peer.address.id()) };
        here.then(destination).into_iter().collect()
    }

    fn dial(&mut self, destination: &Destination, _key: &Key) -> io::Result<Box<dyn Channel>> {
        let Destination::Named { name, .. } = destination else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        Ok(Box::new(UnixChannel(unix::connect_to_own(name)?)))
    }

    /// The layout of the segments that this side makes and maps.
    fn reached_by(&self) -> Vec<u8> {
        LAYOUT.to_le_bytes().into()
    }

    fn agrees(&self, theirs: &[u8]) -> Result<(), String> {
        match <[u8; 2]>::try_from(theirs).map(u16::from_le_bytes) {
            Ok(LAYOUT) => Ok(()),
            Ok(layout) => Err(format!(
                "its shared memory has layout {layout}, this side's {LAYOUT}: use one version of Polyrail for both"
            )),
            Err(_) => Err("what it says of its shared memory cannot be read".into()),
        }
    }

    fn prepare(&mut self) -> io::Result<Prepared> {
        let (segment, memory) = Segment::create().map_err(io::Error::other)?;
        let mut descriptors = vec![memory];
        descriptors.append(&mut self.introduce()?);
        Ok(Prepared { descriptors, kept: Some(Box::new(segment)) })
    }

    fn introduce(&self) -> io::Result<Vec<OwnedFd>> {
        Ok(self.doorbell().introduce()?.into())
    }

    fn adopt(&mut self, agreed: Agreed<'_>) -> Result<Joined, String> {
        let mut descriptors = agreed.descriptors.into_iter();
        let missing = || "the descriptors of the shared memory did not come along".to_owned();
        let segment = match agreed.kept.and_then(|kept| kept.downcast().ok()) {
            Some(made_here) => *made_here,
            None => Segment::open(descriptors.next().ok_or_else(missing)?.as_fd()).map_err(text)?,
        };
        let bell = [descriptors.next(), descriptors.next()];
        let [Some(event), Some(board)] = bell else { return Err(missing()) };
        let bell = Bell::new([event, board]).map_err(text)?;
        let reached = reach(agreed.settings, agreed.offer, agreed.connection.as_fd());
        // SAFETY: a plain call.
        let own = unsafe { libc::geteuid() };
        let same_user = unix::peer_uid(agreed.connection.as_fd()).is_ok_and(|user| user == own);
        let link = ShmRail::adopt(self, segment.split(), bell, agreed.connection).map_err(text)?;
        let costs = match reached {
            Ok(pid) => {
                self.reach(link, pid, same_user);
                RailCosts::SHM.with(DirectCosts::CMA)
            }
            Err(_) => RailCosts::SHM,
        };
        let eager_max = agreed.settings.shm_eager.min(FRAGMENT);
        Ok(Joined { link, costs, eager_max, fragment: FRAGMENT, direct_refused: reached.err() })
    }
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

/// The peer's process, if its memory can be reached directly: that is found out by trying.
fn reach(settings: &Config, offer: &Offer, connection: BorrowedFd<'_>) -> Result<i32, String> {
    let (Some(probe), Rendezvous::Auto | Rendezvous::Put) = (offer.probe, settings.rendezvous) else {
        return Err("switched off".into());
    };
    let pid = unix::peer_pid(connection).map_err(text)?;
    cma::probe(pid, probe.address, probe.nonce).map_err(text)?;
    Ok(pid)
}
