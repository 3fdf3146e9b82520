//! What wireup asks of a rail: what goes along with a handshake, and to make a link of a connection on which both sides agree.
//! None of this is on the way of a frame.

use super::LinkId;
use crate::config::Config;
use crate::keys::LinkKeys;
use polyrail_core::cost::RailCosts;
use polyrail_core::wire::Offer;
use std::any::Any;
use std::io;
use std::os::fd::OwnedFd;

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

/// A rail's part in wireup.
pub trait Connector {
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
}
