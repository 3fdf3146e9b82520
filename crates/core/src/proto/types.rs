//! The words in which the engine and its driver speak.

use crate::frame::{AtomicCode, Frame, Matching, OpId, Status};

pub use crate::frame::Region;

/// A peer, as the driver numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct PeerIdx(pub u32);

/// What a driver gives along with a receive: where its bytes go, and what its user is told by.
pub trait Receiver {
    /// What the user is told by.
    type User: Copy + PartialEq + Eq + core::fmt::Debug;

    /// That of this receive.
    fn user(&self) -> Self::User;

    /// Bytes of its buffer.
    fn room(&self) -> u64;
}

/// Whose bytes a [`Span`] means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A send's buffer.
    Send(OpId),
    /// A receive's buffer: that of [`Engine::receiver`](crate::proto::Engine::receiver).
    Recv(OpId),
    /// The local side of a put, get or atomic.
    Rma(OpId),
    /// A registered region, by its key and the generation of its registration; the span's offset is the remote address in
    /// that region.
    Region(u64, u32),
    /// An unexpected message's own buffer.
    Stash(OpId),
    /// A value that is being sent to a peer: that of [`Engine::value_bytes`](crate::proto::Engine::value_bytes).
    Value(PeerIdx, u32),
    /// Nothing: what arrives is read and forgotten.
    Discard,
}

/// A range of an operation's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Whose.
    pub place: Place,
    /// From which byte.
    pub offset: u64,
    /// How many.
    pub len: usize,
}

/// What a frame that is to leave carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Out {
    /// Nothing.
    Nothing,
    /// These bytes; they stay where they are until the driver says that they left.
    Bytes(Span),
    /// The addresses of this span, for the peer to read or write (a [`Region`]).
    Addresses(Span),
}

/// The next frame for a peer. [`crate::proto::Engine::transmitted`] takes it off the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Next {
    /// Its header.
    pub frame: Frame,
    /// Its payload.
    pub payload: Out,
    pub(super) from: Queue,
}

impl Next {
    /// How many bytes of an operation's memory follow the header.
    #[inline]
    pub fn payload_len(&self) -> usize {
        match self.payload {
            Out::Bytes(span) => span.len,
            _ => 0,
        }
    }

    /// Its payload's bytes, if their operation lives until the peer has answered for them: a rail need not copy those. What
    /// completes when it was sent, and results and values that are forgotten then, a rail copies if it may have to send them again; the former may
    /// be lent to it instead ([`Engine::may_lend`](crate::proto::Engine::may_lend)).
    #[inline]
    pub fn lasting(&self) -> Option<Span> {
        match (self.payload, self.frame) {
            (_, Frame::Eager { ack: None, .. })
            | (Out::Bytes(Span { place: Place::Stash(_) | Place::Value(..), .. }), _) => None,
            (Out::Bytes(span), _) => Some(span),
            _ => None,
        }
    }
}

/// Which queue a [`Next`] stands in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Queue {
    Notes,
    Control,
    Told,
    Ordered,
    Values,
    Stream,
}

/// What the driver does with a frame's payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Directive {
    /// Nothing: there is none, or it has been understood.
    Done,
    /// Put it there, then call [`crate::proto::Engine::placed`].
    Place(Span, After),
    /// It came before its turn: keep frame and payload under this number, and feed them again when
    /// [`Action::Redeliver`] says so.
    Hold(u32),
    /// An atomic operation: take the operands, do it, then call [`crate::proto::Engine::operated`].
    Operate(Operation),
    /// An active message.
    Active {
        /// Handler.
        id: u16,
        /// Header bytes at the payload's beginning.
        header_len: u16,
    },
    /// A part of a value: [`crate::proto::Engine::take_in_value`] takes it.
    Value,
    /// A word about a lane (GOT, RETIRE, LANE_OPEN, LANE_ANSWER): frame and payload are for the session.
    Lane,
    /// The peer broke the protocol; cut the link and say why.
    Broken(&'static str),
}

/// An atomic operation to be done on this process's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Which region, by key.
    pub key: u64,
    /// Where in it.
    pub addr: u64,
    /// What.
    pub code: AtomicCode,
    /// The requester's operation.
    pub op: OpId,
}

/// What happens once a payload is in its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum After {
    /// Nothing.
    Nothing,
    /// A whole eager message is in its receive buffer.
    Received(OpId),
    /// An unexpected message is in its stash.
    Stashed(OpId),
    /// So many bytes of a large message are in the receive buffer.
    Fragment(OpId, usize),
    /// One payload of a put is in the region.
    Put(OpId),
    /// So many bytes of a get, or the result of an atomic, are here.
    Fetched(OpId, usize),
}

/// What the driver is asked to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action<U> {
    /// Copy what is stashed to its receive buffer, then call [`crate::proto::Engine::unstashed`]; the stash ends with that.
    Unstash {
        /// Which stash.
        stash: OpId,
        /// Where to (may be shorter than the stash).
        to: Span,
        /// The receive.
        op: OpId,
    },
    /// Forget a stash.
    DropStash(OpId),
    /// Feed the frame held under this number again.
    Redeliver(PeerIdx, u32),
    /// Forget the frame held under this number: its peer is gone.
    DropHeld(PeerIdx, u32),
    /// Read the peer's memory into `to`, then call [`crate::proto::Engine::job_done`].
    Read {
        /// Whose.
        peer: PeerIdx,
        /// From where.
        from: Region,
        /// Where to; its length is how much.
        to: Span,
        /// To be returned.
        job: Job,
    },
    /// Write `from` into the peer's memory, then call [`crate::proto::Engine::job_done`].
    Write {
        /// Whose.
        peer: PeerIdx,
        /// From where; its length is how much.
        from: Span,
        /// Where to.
        to: Region,
        /// To be returned.
        job: Job,
    },
    /// Tell the user.
    Complete(Completion<U>),
}

/// A direct read or write under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Job {
    /// RGET: a receive reads its sender's buffer.
    Rget(OpId),
    /// RPUT: a send writes its receiver's buffer.
    Rput(OpId),
    /// The target of a put reads the requester's memory.
    PutRts(OpId),
    /// The target of a get writes the requester's memory.
    Get {
        /// The requester's operation.
        op: OpId,
        /// The region read.
        key: u64,
        /// Bytes.
        len: u64,
    },
}

/// Why an operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The peer is gone: it died, closed, or cannot be reached.
    PeerGone,
    /// Cancelled by the user.
    Cancelled,
    /// The peer refused.
    Refused(Status),
}

/// What a message carried besides its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// Who sent it.
    pub from: PeerIdx,
    /// Its tag, if any.
    pub matching: Matching,
    /// Immediate data.
    pub data: Option<u64>,
    /// Bytes sent.
    pub len: u64,
}

/// An operation's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completion<U> {
    /// A receive.
    Recv {
        /// What the driver gave along with it (for a multi-receive buffer: with the buffer).
        user: U,
        /// Who sent it; of a failure, whose fault it is, if anyone's.
        peer: Option<PeerIdx>,
        /// What was received; nothing when the receive ended without a message.
        envelope: Option<Envelope>,
        /// Bytes in the buffer; fewer than `envelope.len` when truncated.
        got: u64,
        /// Where in the buffer (multi-receive; otherwise 0).
        offset: u64,
        /// Whether the buffer is the user's again.
        released: bool,
        /// How it went.
        result: Result<(), Failure>,
    },
    /// A send.
    Send {
        /// The send.
        op: OpId,
        /// To whom.
        peer: PeerIdx,
        /// How it went.
        result: Result<(), Failure>,
    },
    /// A put, get or atomic.
    Rma {
        /// The operation.
        op: OpId,
        /// With whom.
        peer: PeerIdx,
        /// How it went.
        result: Result<(), Failure>,
    },
    /// The peer wrote to, or read from, a region of this process.
    Remote {
        /// Who.
        from: PeerIdx,
        /// The region.
        key: u64,
        /// Immediate data.
        data: Option<u64>,
        /// Bytes.
        len: u64,
        /// Whether it was written (or read).
        write: bool,
    },
}

/// Which messages a receive takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Filter {
    /// From one peer only (directed receive).
    pub source: Option<PeerIdx>,
    /// Untagged messages, or those whose tag equals this in all bits that `ignore` has not set.
    pub matching: Matching,
    /// Tag bits that do not matter.
    pub ignore: u64,
}

/// A message to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// What it matches.
    pub matching: Matching,
    /// Immediate data.
    pub data: Option<u64>,
    /// Bytes.
    pub len: u64,
    /// When the send is complete.
    pub delivery: Delivery,
}

/// What a send's completion promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Delivery {
    /// The bytes are on their way; the buffer may be reused.
    Sent,
    /// The same where a round trip takes long ([`Engine::set_far`](crate::proto::Engine::set_far)), as [`Delivery::Delivered`] elsewhere.
    Soon,
    /// The message is at the peer: in a receive buffer, or kept by the peer's worker until one is posted.
    Delivered,
    /// A receive has matched it.
    Matched,
}
