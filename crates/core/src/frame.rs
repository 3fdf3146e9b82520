//! Data frames: what peers say to each other once wireup is done.
//!
//! A frame is a header of 16 to 48 bytes (always a multiple of 8) and a payload. The header's first 8 bytes are the same for
//! all kinds; on a byte stream frames follow each other without padding, in shared memory a slot carries one.
//! `docs/wire-frames.md` has the tables; the golden bytes are pinned in `tests/frame.rs`.
//!
//! Invariants: [`Frame`] can only hold valid values; [`Frame::parse`] never panics and never reads outside its input;
//! `parse(encode(f)) == f` for every frame, and every byte string that parses is what its frame encodes to.
//!
//! | file | holds |
//! |---|---|
//! | `codec.rs` | headers as bytes |
//! | `region.rs` | payloads that list memory |
//! | `acked.rs` | payloads that say which frames a lane has brought |

mod acked;
mod codec;
mod region;

pub use acked::Acked;
pub use codec::{Encoded, PlainEager, peek_lengths};
pub use region::{Column, Region};

use crate::wire::{Reject, Transport};

/// Most bytes that a header takes.
pub const MAX_HEADER: usize = 48;
/// Least bytes that a header takes; enough to know a frame's whole length (see [`peek_lengths`]).
pub const PREFIX: usize = 8;
/// Most payload bytes that one frame may carry, on any rail. A peer that announces more is cut off.
pub const MAX_PAYLOAD: usize = 1 << 20;
/// Bytes with which a payload that lists memory begins.
pub const REGION_HEAD: usize = 8;
/// Bytes of one range in such a payload, without its keys: its address and its length.
pub const RANGE: usize = 16;
/// Bytes that such a payload has for each column of keys, and for each key.
pub const COLUMN: usize = 8;
/// Bytes of one key.
pub const KEY: usize = 8;
/// Most ranges in such a payload. A buffer in more pieces travels another way.
pub const MAX_RANGES: usize = 8;
/// Most columns.
pub const MAX_COLUMNS: usize = 4;
/// Most bytes of a payload that lists memory.
pub const MAX_REGION: usize = REGION_HEAD + MAX_COLUMNS * COLUMN + MAX_RANGES * (RANGE + MAX_COLUMNS * KEY);
/// Bytes of one range of frames in the payload of GOT or RETIRE: its first frame and how many.
pub const ACKED_RANGE: usize = 16;
/// Most ranges of frames. Rails that deliver out of order bound their windows so that these say all of it.
pub const MAX_ACKED: usize = 4096;
/// Most bytes that a rail says to another in LANE_OPEN or LANE_ANSWER.
pub const MAX_LANE_WORD: usize = 512;

/// The name of an operation, given by the process that started it and returned by its peer: a slot index and that slot's
/// generation, so that a late or invented answer never reaches another operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct OpId {
    /// Slot in the starter's table.
    pub slot: u32,
    /// How often the slot has been reused.
    pub generation: u32,
}

impl OpId {
    fn to_u64(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }
    fn from_u64(v: u64) -> Self {
        Self { slot: v as u32, generation: (v >> 32) as u32 }
    }
}

/// How a peer answers a request. The numbers are on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// The key names no memory region, or the region does not allow this.
    Access = 1,
    /// The range lies outside the region.
    Range = 2,
    /// The operation is not supported by the target (an atomic on this datatype).
    Unsupported = 3,
    /// The peer could not read or write the other's memory, and gave up.
    Fault = 4,
    /// Cancelled by the peer.
    Cancelled = 5,
}

impl Status {
    fn from_u32(v: u32) -> Result<Self, FrameError> {
        Ok(match v {
            0 => Self::Ok,
            1 => Self::Access,
            2 => Self::Range,
            3 => Self::Unsupported,
            4 => Self::Fault,
            5 => Self::Cancelled,
            _ => return Err(FrameError::Field("status")),
        })
    }
}

/// The part of a sequenced frame that orders it and returns credit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Order {
    /// Position among this sender's sequenced frames to this peer, modulo 2^32.
    pub seq: u32,
    /// Eager credit returned so far, in units of 64 bytes, modulo 2^32 (see [`crate::proto`]).
    pub credit: u32,
}

/// Which receives a message may match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Matching {
    /// Untagged messages: matched in order alone.
    Message,
    /// Tagged messages.
    Tag(u64),
}

/// Where in a remote memory region something lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteAddr {
    /// The region's key at the target.
    pub key: u64,
    /// Offset in the region, or virtual address where the region is addressed so.
    pub addr: u64,
}

/// An atomic operation as it travels. The codes are libfabric's (`fi_atomic(3)`); core passes them through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicCode {
    /// `enum fi_datatype`.
    pub datatype: u8,
    /// `enum fi_op`.
    pub op: u8,
    /// What comes back.
    pub kind: AtomicKind,
    /// Elements.
    pub count: u32,
}

/// The three forms of an atomic operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum AtomicKind {
    /// Update only.
    Update = 0,
    /// Update and return the value before.
    Fetch = 1,
    /// Compare, swap on success, return the value before.
    Compare = 2,
}

/// One frame's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame {
    /// A whole message; its payload follows.
    Eager {
        /// Order and credit.
        order: Order,
        /// What it matches.
        matching: Matching,
        /// Immediate data for the receiver's completion.
        data: Option<u64>,
        /// Set when the sender waits for an [`Frame::Ack`] once the message is in the receiver's buffer.
        ack: Option<OpId>,
    },
    /// Ready to send: a large message is waiting. The payload lists the sender's memory, if it may be read.
    Rts {
        /// Order and credit.
        order: Order,
        /// What it matches.
        matching: Matching,
        /// Immediate data.
        data: Option<u64>,
        /// Bytes in the message.
        len: u64,
        /// The sender's operation.
        op: OpId,
        /// Whether the payload is a list of memory that the receiver may read.
        readable: bool,
    },
    /// Ready to receive: send `len` bytes. The payload lists the receiver's memory, if it may be written.
    Rtr {
        /// The sender's operation, from its RTS.
        op: OpId,
        /// The receiver's operation.
        to: OpId,
        /// Bytes wanted (less than announced where the receive buffer is shorter).
        len: u64,
        /// Whether the payload is a list of memory that the sender may write.
        writable: bool,
    },
    /// A piece of a large message, straight into its place.
    Frag {
        /// The receiver's operation, from its RTR.
        to: OpId,
        /// Where in the message.
        offset: u64,
    },
    /// The receiver has read all that it wanted (ends RGET; also the end of a fragmented transfer).
    Ats {
        /// The sender's operation.
        op: OpId,
        /// How it went.
        status: Status,
    },
    /// The sender has written all that was wanted (ends RPUT).
    Atp {
        /// The receiver's operation.
        to: OpId,
        /// How it went.
        status: Status,
    },
    /// A request is done.
    Ack {
        /// The requester's operation.
        op: OpId,
        /// How it went.
        status: Status,
    },
    /// Write the payload into remote memory.
    Put {
        /// Order and credit.
        order: Order,
        /// The operation to acknowledge.
        op: OpId,
        /// Where to.
        to: RemoteAddr,
        /// Immediate data, delivered with the last part.
        data: Option<u64>,
        /// Whether this ends the operation and wants an [`Frame::Ack`].
        last: bool,
    },
    /// Remote memory is to be filled from the requester's memory, listed in the payload.
    PutRts {
        /// Order and credit.
        order: Order,
        /// The operation to acknowledge.
        op: OpId,
        /// Where to.
        to: RemoteAddr,
        /// Bytes.
        len: u64,
    },
    /// Remote memory is wanted. The payload lists the requester's memory, if it may be written.
    Get {
        /// Order and credit.
        order: Order,
        /// The operation.
        op: OpId,
        /// Where from.
        from: RemoteAddr,
        /// Bytes.
        len: u64,
        /// Whether the payload is a list of memory that the target may write.
        writable: bool,
    },
    /// A piece of what a [`Frame::Get`] wanted.
    GetData {
        /// The requester's operation.
        op: OpId,
        /// Where in the request.
        offset: u64,
    },
    /// An atomic operation; operands follow (for compare: operands, then comparands).
    Atomic {
        /// Order and credit.
        order: Order,
        /// The operation.
        op: OpId,
        /// Where.
        at: RemoteAddr,
        /// What.
        code: AtomicCode,
    },
    /// The values before an atomic operation.
    AtomicData {
        /// The requester's operation.
        op: OpId,
    },
    /// Eager credit returned, where no sequenced frame was going anyway.
    Credit {
        /// As [`Order::credit`].
        credit: u32,
    },
    /// An active message: handler number, then `header_len` bytes of header and the rest in the payload.
    Am {
        /// Order and credit.
        order: Order,
        /// Which handler.
        id: u16,
        /// How many of the payload's bytes are header.
        header_len: u16,
    },
    /// What came by a lane so far; the peer need not keep it any longer. The payload has the ranges of an [`Acked`].
    Got {
        /// Which lane.
        lane: u16,
        /// All frames before this one are there: [`Acked::upto`].
        received: u64,
    },
    /// The sender takes nothing more from this lane: what it has not had by it has to come by another. The payload has the ranges of
    /// an [`Acked`].
    Retire {
        /// Which lane.
        lane: u16,
        /// All frames before this one are there: [`Acked::upto`].
        received: u64,
    },
    /// One more lane is wanted, of a transport without streams. The payload is its rail's, for the other side's.
    LaneOpen {
        /// Which lane it is to be.
        lane: u16,
        /// Of which transport.
        transport: Transport,
    },
    /// The answer to that; its payload is the other rail's, and empty when it refuses.
    LaneAnswer {
        /// Which lane was asked for.
        lane: u16,
        /// Of which transport.
        transport: Transport,
        /// Whether it is to be.
        verdict: Result<(), Reject>,
    },
    /// All sequenced frames before this one have come. Told to peers that several lanes lead to.
    Seen {
        /// As [`Order::seq`].
        seq: u32,
    },
    /// A part of the latest value of a tag; its bytes follow.
    Value {
        /// Of which tag.
        tag: u64,
        /// Which value: later ones have higher numbers.
        iteration: u64,
        /// Bytes of the whole value, at most [`VALUE_MOST`](crate::wire::datagram::VALUE_MOST).
        total: u32,
        /// Where in the value.
        offset: u32,
    },
    /// This value of a tag is here, or a later one.
    ValueHad {
        /// Of which tag.
        tag: u64,
        /// Which value.
        iteration: u64,
    },
    /// The sender closes in good order; nothing follows.
    Bye,
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameError {
    /// Fewer bytes than the header takes.
    Short,
    /// An unknown kind of frame.
    Kind(u8),
    /// A header length that this kind does not have.
    Length(u8),
    /// More payload than any frame may carry.
    Payload(u32),
    /// A field with a value that it cannot have.
    Field(&'static str),
}

impl core::fmt::Display for FrameError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Short => write!(f, "the frame's header is cut off"),
            Self::Kind(k) => write!(f, "unknown kind of frame {k:#04x}"),
            Self::Length(n) => write!(f, "a header of {n} bytes does not fit its kind"),
            Self::Payload(n) => write!(f, "a payload of {n} bytes is more than {MAX_PAYLOAD}"),
            Self::Field(name) => write!(f, "the field '{name}' has a value that it cannot have"),
        }
    }
}

impl core::error::Error for FrameError {}

impl Frame {
    /// The frame's order, where it has one: such frames are handled in the order in which they were sent.
    #[inline]
    pub fn order(&self) -> Option<Order> {
        match *self {
            Self::Eager { order, .. }
            | Self::Rts { order, .. }
            | Self::Put { order, .. }
            | Self::PutRts { order, .. }
            | Self::Get { order, .. }
            | Self::Atomic { order, .. }
            | Self::Am { order, .. } => Some(order),
            _ => None,
        }
    }
}
