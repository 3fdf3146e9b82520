//! The words in which the engine and its driver speak.

use crate::frame::{AtomicCode, Frame, MAX_REGION, Matching, OpId, RANGE, Status};
use alloc::vec::Vec;

/// A peer, as the driver numbers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct PeerIdx(pub u32);

/// Whose bytes a [`Span`] means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A send's buffer.
    Send(OpId),
    /// A receive's buffer.
    Recv(OpId),
    /// The local side of a put, get or atomic.
    Rma(OpId),
    /// A registered region, by its key and the generation of its registration; the span's offset is the remote address in
    /// that region.
    Region(u64, u32),
    /// An unexpected message's own buffer.
    Stash(OpId),
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

/// Memory of another process that this one may read or write directly: at most [`Region::MAX`] ranges. On the heap, so that
/// the actions that carry one stay small for those that do not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Region(Vec<(u64, u64)>);

impl Region {
    /// Most ranges; a buffer in more pieces travels as fragments.
    pub const MAX: usize = MAX_REGION / RANGE;
    /// Most bytes that an encoded region takes.
    pub const MAX_BYTES: usize = MAX_REGION;

    /// Adds a range; false when there is no room.
    pub fn push(&mut self, addr: u64, len: u64) -> bool {
        let room = self.0.len() < Self::MAX;
        if room {
            self.0.push((addr, len));
        }
        room
    }

    /// The ranges: address, bytes.
    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.0
    }

    /// Bytes in all ranges, or nothing when they are more than 2^64.
    pub fn len(&self) -> Option<u64> {
        self.0.iter().try_fold(0u64, |sum, (_, len)| sum.checked_add(*len))
    }

    /// Whether it has no range.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As bytes: address and length of each range, little-endian. Returns how many bytes were written.
    pub fn encode(&self, out: &mut [u8; Self::MAX_BYTES]) -> usize {
        for ((addr, len), bytes) in self.0.iter().zip(out.chunks_exact_mut(16)) {
            bytes[..8].copy_from_slice(&addr.to_le_bytes());
            bytes[8..].copy_from_slice(&len.to_le_bytes());
        }
        self.0.len() * 16
    }

    /// From bytes.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() || !bytes.len().is_multiple_of(16) || bytes.len() > Self::MAX_BYTES {
            return None;
        }
        let word = |bytes: &[u8]| bytes.first_chunk().map(|word| u64::from_le_bytes(*word));
        bytes
            .chunks_exact(16)
            .map(|range| Some((word(range)?, word(&range[8..])?)))
            .collect::<Option<_>>()
            .map(Self)
    }
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
    /// completes when it was sent, and results that are forgotten then, a rail copies if it may have to send them again.
    #[inline]
    pub fn lasting(&self) -> Option<Span> {
        match (self.payload, self.frame) {
            (_, Frame::Eager { ack: None, .. }) | (Out::Bytes(Span { place: Place::Stash(_), .. }), _) => {
                None
            }
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
    Ordered,
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
    /// What the peer has had from a lane.
    Lane {
        /// Which lane.
        lane: u16,
        /// Whole frames.
        received: u64,
        /// It takes nothing more from there: the others are to be sent again elsewhere.
        retired: bool,
    },
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
pub enum Action {
    /// Copy what is stashed to its receive buffer; the stash ends with that.
    Unstash {
        /// Which stash.
        stash: OpId,
        /// Where to (may be shorter than the stash).
        to: Span,
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
    Complete(Completion),
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

/// A message that met its receive, and ended it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivered {
    /// The receive.
    pub op: OpId,
    /// What came.
    pub envelope: Envelope,
    /// Bytes that fit into its buffer.
    pub got: u64,
}

/// An operation's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completion {
    /// A receive.
    Recv {
        /// The receive (for a multi-receive buffer: the buffer).
        op: OpId,
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
    /// The message is at the peer: in a receive buffer, or kept by the peer's worker until one is posted.
    Delivered,
    /// A receive has matched it.
    Matched,
}
