//! What wire-up tells who uses it.

use super::accept::agree;
use super::handshake::{Handshake, Role};
use crate::config::Config;
use crate::keys::LinkKeys;
use crate::list::RailId;
use crate::rail::connect::{Agreed, Connector, Joined};
use polyrail_core::proto::PeerIdx;
use polyrail_core::wire::Kind;
use polyrail_core::wireup::Session;
use std::any::Any;
use std::os::fd::OwnedFd;

/// Which connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub(crate) struct Token(pub(super) u64);

/// What has happened.
pub(crate) enum News {
    /// A peer has proved the key on a connection of its own: it is to be let in or refused.
    Proven(Token, Session),
    /// Both sides agree: the connection is to become a link.
    Agreed(Box<Agreement>),
    /// There is no way to a peer, or the connection to it ended while it was made.
    Lost(PeerIdx, String),
    /// A connection on which a peer had proved the key was cut off while it was made: the peer is there, and worth a call of this side's own.
    Cut(PeerIdx, String),
    /// An attempt at one more lane has come to nothing.
    LaneRefused {
        peer: PeerIdx,
        /// Which path.
        path: usize,
        why: String,
        /// Somebody was there.
        reached: bool,
        /// The peer has forgotten the session.
        forgotten: bool,
    },
    /// Something that was to be watched along with all this is ready.
    Ready(u64),
}

/// A connection on which both sides agree.
pub(crate) struct Agreement {
    pub met: Met,
    connection: OwnedFd,
    leftover: Vec<u8>,
    descriptors: Vec<OwnedFd>,
    kept: Option<Box<dyn Any + Send>>,
    keys: Result<Option<LinkKeys>, String>,
}

impl Agreement {
    pub(super) fn new(handshake: Handshake, session: Session, leftover: Vec<u8>) -> Self {
        let keys = handshake.keys(&session);
        let Handshake { rail, channel, role, incoming: descriptors, kept, .. } = handshake;
        let (opened, path) = match role {
            Role::First(..) => (true, None),
            Role::Lane(.., path) => (true, Some(path)),
            Role::Accepting(..) => (false, None),
        };
        let (met, connection) = (Met { session, rail, opened, path }, channel.into_fd());
        Self { met, connection, leftover, descriptors, kept, keys }
    }

    /// Makes the link; also what was agreed.
    pub fn join(self, rail: &mut dyn Connector, settings: &Config) -> (Met, Result<Joined, String>) {
        let Self { met, connection, leftover, descriptors, kept, keys } = self;
        let let_in = !met.opened && met.session.kind != Kind::Session;
        let (leftover, offer) = (&leftover[..], &met.session.offer);
        let joined = agree(rail, met.rail, &met.session).and(keys).and_then(|keys| {
            rail.adopt(Agreed { connection, leftover, descriptors, kept, offer, keys, let_in, settings })
        });
        (met, joined)
    }
}

/// With whom, and how, a connection was agreed on.
pub(crate) struct Met {
    pub session: Session,
    pub rail: RailId,
    /// This side opened it.
    pub opened: bool,
    /// Which path to the peer it takes, where this side opened it as one more lane.
    pub path: Option<usize>,
}
