//! The cold path of a rail: what it finds on this machine, where it listens, where peers may be reached by it, and how a link comes
//! of a connection on which both sides agree. None of this is on the way of a frame, so it is called by an address.
//!
//! A rail whose connections are streams gives [`Channel`]s to shake hands on: [`Connector::listen`], [`Connector::accept`],
//! [`Connector::dial`], then [`Connector::adopt`]. One without streams (datagrams, queue pairs) can still carry further lanes of a
//! session that another rail began: both sides agree by frames on a lane that there is, [`Connector::propose`],
//! [`Connector::answer`], [`Connector::conclude`].

use super::LinkId;
use super::channel::{Channel, Destination};
use super::control::Control;
use crate::config::Config;
use crate::discover::{Access, Device, Interface};
use crate::error::Error;
use crate::keys::LinkKeys;
use polyrail_core::cost::RailCosts;
use polyrail_core::proto::Route;
use polyrail_core::session::Over;
use polyrail_core::wire::offer::{self, MemoryProbe};
use polyrail_core::wire::{Address, HostId, Key, Offer, PeerId};
use std::any::Any;
use std::io;
use std::os::fd::{OwnedFd, RawFd};

/// What a rail would use on this machine.
pub struct Discovered {
    /// Its devices, the best first.
    pub devices: Vec<Device>,
    /// Whether peers' memory can be reached directly, where the rail would try to.
    pub direct: Option<Access>,
}

/// An endpoint that is being opened.
pub struct Opening<'a> {
    /// Its identity.
    pub id: PeerId,
    /// What connections to it prove.
    pub key: &'a Key,
    /// The port that peers will know, if a rail before this one has it.
    pub port: Option<u16>,
    /// This host's network interfaces.
    pub interfaces: &'a [Interface],
    /// Its settings.
    pub settings: &'a Config,
}

/// Where a rail listens.
#[derive(Default)]
pub struct Listening {
    /// Become readable when [`Connector::accept`] has a connection.
    pub descriptors: Vec<RawFd>,
    /// The port to be told to peers.
    pub port: Option<u16>,
    /// Peers of this host find it by its identity.
    pub local: bool,
    /// Why peers of this host do not find it, where they would: a sentence.
    pub hindered: Option<String>,
    /// Why peers of other sites are not reached, where they would be: a sentence.
    pub unled: Option<String>,
}

/// Whom to look for.
pub struct Sought<'a> {
    /// The peer's address.
    pub address: &'a Address,
    /// Where this process runs.
    pub here: HostId,
    /// This side's settings.
    pub settings: &'a Config,
}

/// Where lanes of a rail may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ways {
    /// Between any two interfaces of both sides.
    Interfaces,
    /// So many places that only the rail knows, at this speed in Mb/s (0: unknown).
    Places(u16, u32),
}

/// What the side that accepts has made for a link, before it says so.
#[derive(Default)]
pub struct Prepared {
    /// Descriptors that go along with its word.
    pub descriptors: Vec<OwnedFd>,
    /// What it keeps, and gets back in [`Agreed`].
    pub kept: Option<Box<dyn Any + Send>>,
}

/// A connection on which both sides agree.
pub struct Agreed<'a> {
    /// The connection.
    pub connection: OwnedFd,
    /// Bytes that were read from it past the handshake.
    pub leftover: &'a [u8],
    /// Descriptors that the peer sent along.
    pub descriptors: Vec<OwnedFd>,
    /// What this side had prepared.
    pub kept: Option<Box<dyn Any + Send>>,
    /// What the peer says of itself.
    pub offer: &'a Offer,
    /// The keys by which the link is to be encrypted; none: it is not.
    pub keys: Option<LinkKeys>,
    /// The peer opened it as one more lane of a session: it goes on by the interface by which it came.
    pub let_in: bool,
    /// This side's settings.
    pub settings: &'a Config,
}

/// A new link, and what it is like.
pub struct Joined {
    /// Its number.
    pub link: LinkId,
    /// What it costs towards this peer.
    pub costs: RailCosts,
    /// Longest message that goes eagerly, in bytes.
    pub eager_max: usize,
    /// Longest fragment, in bytes.
    pub fragment: usize,
    /// Why the peer's memory cannot be reached, where that was tried.
    pub direct_refused: Option<String>,
}

/// A rail's cold path. What is not said here of rails that do not have it is left out by defaults.
pub trait Connector {
    /// What it would use on this machine, and what keeps it from being used. Opens nothing.
    ///
    /// # Errors
    /// When the system does not tell.
    fn discover(settings: &Config) -> Result<Discovered, Error>
    where
        Self: Sized;

    /// Listens for peers.
    ///
    /// # Errors
    /// When it cannot, with advice.
    fn listen(&mut self, _endpoint: &Opening<'_>) -> Result<Listening, Error> {
        Ok(Listening::default())
    }

    /// The next connection; an error other than `EAGAIN` is of one connection, or of this process, and says nothing of the
    /// listeners.
    ///
    /// # Errors
    /// `EAGAIN` when none waits.
    fn accept(&mut self) -> io::Result<Box<dyn Channel>> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Where peers may try whether they reach this process's memory directly.
    fn probe(&self, _settings: &Config) -> Option<MemoryProbe> {
        None
    }

    /// Where a peer may be reached, the best first.
    fn destinations(&self, _peer: &Sought<'_>) -> Vec<Destination> {
        Vec::new()
    }

    /// Whether a peer with these interfaces is of another site, to which this rail alone leads.
    fn leads_alone(&self, _theirs: &[offer::Interface]) -> bool {
        false
    }

    /// How its links are reliable and fair at first, where that is this rail's to say.
    fn begins_by(&self) -> Option<Control> {
        None
    }

    /// Where further lanes may be, to a peer that says this of how it is reached.
    fn ways(&self, _theirs: &[u8]) -> Ways {
        Ways::Places(0, 0)
    }

    /// Where a further lane leads to.
    fn destination(&self, _over: &Over, _peer: &Sought<'_>, _theirs: &[u8]) -> Option<Destination> {
        None
    }

    /// Begins a connection to the endpoint that has this key; that it fails may only be known later.
    ///
    /// # Errors
    /// What the system says.
    fn dial(&mut self, _destination: &Destination, _key: &Key) -> io::Result<Box<dyn Channel>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// How this side is reached by this rail's transport, for the other side's rail: at most
    /// [`MAX_REACHED_BY`](polyrail_core::wire::offer::MAX_REACHED_BY) bytes of its offer.
    fn reached_by(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Whether links can be made with a side that says this of how it is reached.
    ///
    /// # Errors
    /// Why not, as a sentence about the peer; it then has to be reached by another rail.
    fn agrees(&self, _theirs: &[u8]) -> Result<(), String> {
        Ok(())
    }

    /// Makes what a link takes, before the peer is accepted: then nothing has to be taken back when it cannot be had.
    ///
    /// # Errors
    /// When it cannot be had: the peer then tries another rail.
    fn prepare(&mut self) -> io::Result<Prepared> {
        Ok(Prepared::default())
    }

    /// Descriptors that go along with the proof of the side that connects.
    ///
    /// # Errors
    /// When no descriptor is left.
    fn introduce(&self) -> io::Result<Vec<OwnedFd>> {
        Ok(Vec::new())
    }

    /// Makes a link.
    ///
    /// # Errors
    /// Why none came of it; the connection is closed then.
    fn adopt(&mut self, agreed: Agreed<'_>) -> Result<Joined, String>;

    /// Begins a lane without a stream: a number for it, and what the other side's rail has to know.
    ///
    /// # Errors
    /// Why it cannot.
    fn propose(&mut self, _over: &Over, _theirs: &[u8]) -> Result<(u32, Vec<u8>), String> {
        Err("it opens no lanes so".into())
    }

    /// Makes the link of what the other side's rail proposes; also what that has to know.
    ///
    /// # Errors
    /// Why none came of it.
    fn answer(&mut self, _word: &[u8]) -> Result<(Vec<u8>, LinkId), String> {
        Err("it opens no lanes so".into())
    }

    /// Makes the link of what was proposed and answered.
    ///
    /// # Errors
    /// Why none came of it; the proposal is forgotten.
    fn conclude(&mut self, _proposal: u32, _word: &[u8]) -> Result<LinkId, String> {
        Err("it opens no lanes so".into())
    }

    /// Forgets a proposal.
    fn withdraw(&mut self, _proposal: u32) {}

    /// The link of this process to itself, and how messages take it.
    fn own(&self, _settings: &Config) -> Option<(LinkId, Route)> {
        None
    }
}
