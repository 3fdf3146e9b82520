//! The control channel: how two endpoints come to trust each other and to have exactly one session. No I/O: the driver
//! moves bytes, keeps the deadlines, and draws the nonces.
//!
//! | machine | one for each | what it decides |
//! |---|---|---|
//! | [`Initiator`] | connection that this side opened | sends HELLO and PROOF, checks CHALLENGE and VERDICT |
//! | [`Responder`] | connection that the listener took | checks HELLO and PROOF; the driver decides the verdict |
//! | [`Peer`] | peer that there is anything to do with | which of several connections becomes the session, and how it ends |
//!
//! A driver's loop for a connection, the same for both machines: write what `poll_transmit` shows and say by `transmitted`
//! how much went; give what it read to `handle_bytes`; act on `poll_event`. What `handle_bytes` did not consume belongs to
//! the session that the handshake began. After an error: write what there still is, shut down the sending side, and read
//! until the other side closes or a deadline passes (closing a socket with unread bytes would destroy the last record on
//! its way). A connection on which nothing comes is the driver's to end: `phase` says what was waited for.

mod buffer;
mod initiator;
mod peer;
mod responder;

pub use initiator::{Initiate, Initiator, InitiatorEvent, InitiatorPhase};
pub use peer::{Incoming, Peer, PeerEvent, PeerState};
pub use responder::{Respond, Responder, ResponderEvent, ResponderPhase};

use crate::wire::{Features, Kind, Offer, PeerId, SessionId, Transport};

/// The state machines as data, for tests and tools that print them.
pub mod machines {
    pub use super::initiator::{INITIATOR, InitiatorStep};
    pub use super::peer::PEER;
    pub use super::responder::{RESPONDER, ResponderStep};
}

/// What two sides agreed on a connection whose key both proved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The other side.
    pub peer: PeerId,
    /// The same on both sides, and on no other connection.
    pub id: SessionId,
    /// What the connection is for.
    pub kind: Kind,
    /// The transport that the connection is to become a link of, as the side says that opened it.
    pub transport: Transport,
    /// The wire version spoken from here on.
    pub version: u16,
    /// What both sides can do.
    pub features: Features,
    /// What the other side offers.
    pub offer: Offer,
}
