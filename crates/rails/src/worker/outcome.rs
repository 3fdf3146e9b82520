//! What a worker says of operations: how they began, how they ended.

use super::User;
use polyrail_core::frame::{Matching, OpId};
use polyrail_core::proto::{Failure, PeerIdx};

/// How an operation was begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Issued {
    /// It is complete; no event follows.
    Done,
    /// An event will end it.
    Pending(OpId),
}

/// Why an operation was not begun. Nothing has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// No room, or not connected yet: make progress, then try again.
    Again,
    /// The peer cannot be reached; [`super::Worker::why`] says why.
    Gone,
}

/// What kind of operation an event ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// A send.
    Send,
    /// A receive.
    Recv,
    /// A put.
    Put,
    /// A get.
    Get,
    /// An atomic.
    Atomic,
    /// A peer wrote to a region of this process; `data` is there if it sent some.
    RemoteWrite,
    /// A peer read from a region of this process.
    RemoteRead,
}

/// The end of an operation.
#[derive(Clone, Debug)]
pub struct Event {
    /// Of which kind.
    pub kind: EventKind,
    /// What the caller gave along.
    pub user: User,
    /// Who was at the other end.
    pub peer: Option<PeerIdx>,
    /// The message's tag, of a receive.
    pub matching: Matching,
    /// Immediate data that came with it.
    pub data: Option<u64>,
    /// Bytes that were sent.
    pub len: u64,
    /// Bytes that were placed: fewer than `len` when the message was truncated.
    pub got: u64,
    /// Where in a multi-receive buffer.
    pub offset: u64,
    /// Whether the buffer is the caller's again.
    pub released: bool,
    /// Why it failed, if it did.
    pub error: Option<Failure>,
    /// The region, of remote events.
    pub key: u64,
}

impl Event {
    pub(super) fn of(kind: EventKind, user: User) -> Self {
        let matching = Matching::Message;
        Self {
            kind,
            user,
            peer: None,
            matching,
            data: None,
            len: 0,
            got: 0,
            offset: 0,
            released: true,
            error: None,
            key: 0,
        }
    }
}

/// Who hears of messages while they come, instead of by [`Event`]s afterwards.
pub trait Listener {
    /// A tagged message has come, all of it, into a buffer of its own: its receive's words, its sender, its tag, what came along, its length in
    /// bytes. False: an event is to tell.
    fn received(&mut self, user: User, from: PeerIdx, tag: u64, data: Option<u64>, len: u64) -> bool;
}

/// Nobody: events tell.
pub struct Nobody;

impl Listener for Nobody {
    #[inline]
    fn received(&mut self, _: User, _: PeerIdx, _: u64, _: Option<u64>, _: u64) -> bool {
        false
    }
}

/// Counts of what was done; for reports and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Looks at the control channel, each a system call.
    pub looks: u64,
    /// Sends whose bytes were copied because somebody waited for them, after they had been lent to a lane.
    pub copied: u64,
    /// Room in the table of peers: for those that are known, and those whose numbers are free.
    pub peers: usize,
}
