//! Data frames: what peers say to each other once wireup is done.
//!
//! A frame is a header of 16 to 48 bytes (always a multiple of 8) and a payload. The header's first 8 bytes are the same for
//! all kinds; on a byte stream frames follow each other without padding, in shared memory a slot carries one.
//! `docs/wire.md` has the tables; the golden bytes are pinned in `tests/frame.rs`.
//!
//! Invariants: [`Frame`] can only hold valid values; [`Frame::parse`] never panics and never reads outside its input;
//! `parse(encode(f)) == f` for every frame.

/// Most bytes that a header takes.
pub const MAX_HEADER: usize = 48;
/// Least bytes that a header takes; enough to know a frame's whole length (see [`peek_lengths`]).
pub const PREFIX: usize = 8;
/// Most payload bytes that one frame may carry, on any rail. A peer that announces more is cut off.
pub const MAX_PAYLOAD: usize = 1 << 20;

/// The name of an operation, given by the process that started it and returned by its peer: a slot index and that slot's
/// generation, so that a late or invented answer never reaches another operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
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

const EAGER: u8 = 1;
const RTS: u8 = 2;
const RTR: u8 = 3;
const FRAG: u8 = 4;
const ATS: u8 = 5;
const ATP: u8 = 6;
const ACK: u8 = 7;
const PUT: u8 = 8;
const PUT_RTS: u8 = 9;
const GET: u8 = 10;
const GET_DATA: u8 = 11;
const ATOMIC: u8 = 12;
const ATOMIC_DATA: u8 = 13;
const CREDIT: u8 = 14;
const AM: u8 = 15;
const BYE: u8 = 16;

const F_TAGGED: u8 = 1;
const F_DATA: u8 = 2;
const F_ACK: u8 = 4;
const F_LAST: u8 = 8;
const F_REGION: u8 = 16;

/// Header and payload length of the frame that begins with `prefix`.
///
/// # Errors
/// When the lengths are impossible; nothing after such a prefix on a stream can be trusted.
pub fn peek_lengths(prefix: &[u8; PREFIX]) -> Result<(usize, usize), FrameError> {
    let header = prefix[2];
    let payload = u32::from_le_bytes([prefix[4], prefix[5], prefix[6], prefix[7]]);
    if !(16..=MAX_HEADER as u8).contains(&header) || !header.is_multiple_of(8) || prefix[3] != 0 {
        return Err(FrameError::Length(header));
    }
    if payload as usize > MAX_PAYLOAD {
        return Err(FrameError::Payload(payload));
    }
    Ok((header as usize, payload as usize))
}

/// An encoded header.
#[derive(Clone, Copy)]
pub struct Encoded {
    bytes: [u8; MAX_HEADER],
    len: u8,
}

impl core::ops::Deref for Encoded {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }
}

impl Encoded {
    #[inline]
    fn new(kind: u8, flags: u8, payload: usize) -> Self {
        debug_assert!(payload <= MAX_PAYLOAD);
        let mut bytes = [0; MAX_HEADER];
        let prefix = u64::from(kind) | u64::from(flags) << 8 | (payload as u64) << 32;
        bytes[..8].copy_from_slice(&prefix.to_le_bytes());
        Self { bytes, len: 8 }
    }
    #[inline]
    fn u64(mut self, v: u64) -> Self {
        let at = self.len as usize;
        self.bytes[at..at + 8].copy_from_slice(&v.to_le_bytes());
        self.len += 8;
        self
    }
    #[inline]
    fn pair(self, low: u32, high: u32) -> Self {
        self.u64(u64::from(low) | u64::from(high) << 32)
    }
    #[inline]
    fn order(self, o: Order) -> Self {
        self.pair(o.seq, o.credit)
    }
    #[inline]
    fn optional(self, v: Option<u64>) -> Self {
        match v {
            Some(v) => self.u64(v),
            None => self,
        }
    }
    #[inline]
    fn done(mut self) -> Self {
        self.bytes[2] = self.len;
        self
    }
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    #[inline]
    fn u64(&mut self) -> Result<u64, FrameError> {
        let (head, rest) = self.0.split_first_chunk::<8>().ok_or(FrameError::Short)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*head))
    }
    #[inline]
    fn op(&mut self) -> Result<OpId, FrameError> {
        self.u64().map(OpId::from_u64)
    }
    #[inline]
    fn pair(&mut self) -> Result<(u32, u32), FrameError> {
        self.u64().map(|v| (v as u32, (v >> 32) as u32))
    }
    #[inline]
    fn order(&mut self) -> Result<Order, FrameError> {
        self.pair().map(|(seq, credit)| Order { seq, credit })
    }
    #[inline]
    fn optional(&mut self, present: bool) -> Result<Option<u64>, FrameError> {
        if present { self.u64().map(Some) } else { Ok(None) }
    }
    fn remote(&mut self) -> Result<RemoteAddr, FrameError> {
        Ok(RemoteAddr { key: self.u64()?, addr: self.u64()? })
    }
    fn status(&mut self) -> Result<Status, FrameError> {
        let (status, zero) = self.pair()?;
        if zero != 0 { Err(FrameError::Field("status")) } else { Status::from_u32(status) }
    }
}

fn flag(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

fn matching_fields(m: Matching) -> (u8, u64) {
    match m {
        Matching::Message => (0, 0),
        Matching::Tag(tag) => (F_TAGGED, tag),
    }
}

fn matching_of(flags: u8, tag: u64) -> Result<Matching, FrameError> {
    match (flags & F_TAGGED != 0, tag) {
        (true, tag) => Ok(Matching::Tag(tag)),
        (false, 0) => Ok(Matching::Message),
        (false, _) => Err(FrameError::Field("tag")),
    }
}

impl Frame {
    /// The header's bytes, for a frame with `payload` bytes after it (at most [`MAX_PAYLOAD`]).
    #[inline]
    pub fn encode(&self, payload: usize) -> Encoded {
        match *self {
            Self::Eager { order, matching, data, ack } => {
                let (tagged, tag) = matching_fields(matching);
                let flags = tagged | flag(data.is_some(), F_DATA) | flag(ack.is_some(), F_ACK);
                Encoded::new(EAGER, flags, payload)
                    .order(order)
                    .u64(tag)
                    .optional(data)
                    .optional(ack.map(OpId::to_u64))
            }
            Self::Rts { order, matching, data, len, op, readable } => {
                let (tagged, tag) = matching_fields(matching);
                let flags = tagged | flag(data.is_some(), F_DATA) | flag(readable, F_REGION);
                Encoded::new(RTS, flags, payload)
                    .order(order)
                    .u64(tag)
                    .u64(len)
                    .u64(op.to_u64())
                    .optional(data)
            }
            Self::Rtr { op, to, len, writable } => Encoded::new(RTR, flag(writable, F_REGION), payload)
                .u64(op.to_u64())
                .u64(to.to_u64())
                .u64(len),
            Self::Frag { to, offset } => Encoded::new(FRAG, 0, payload).u64(to.to_u64()).u64(offset),
            Self::Ats { op, status } => Encoded::new(ATS, 0, payload).u64(op.to_u64()).pair(status as u32, 0),
            Self::Atp { to, status } => Encoded::new(ATP, 0, payload).u64(to.to_u64()).pair(status as u32, 0),
            Self::Ack { op, status } => Encoded::new(ACK, 0, payload).u64(op.to_u64()).pair(status as u32, 0),
            Self::Put { order, op, to, data, last } => {
                Encoded::new(PUT, flag(data.is_some(), F_DATA) | flag(last, F_LAST), payload)
                    .order(order)
                    .u64(op.to_u64())
                    .u64(to.key)
                    .u64(to.addr)
                    .optional(data)
            }
            Self::PutRts { order, op, to, len } => Encoded::new(PUT_RTS, F_REGION, payload)
                .order(order)
                .u64(op.to_u64())
                .u64(to.key)
                .u64(to.addr)
                .u64(len),
            Self::Get { order, op, from, len, writable } => {
                Encoded::new(GET, flag(writable, F_REGION), payload)
                    .order(order)
                    .u64(op.to_u64())
                    .u64(from.key)
                    .u64(from.addr)
                    .u64(len)
            }
            Self::GetData { op, offset } => Encoded::new(GET_DATA, 0, payload).u64(op.to_u64()).u64(offset),
            Self::Atomic { order, op, at, code } => Encoded::new(ATOMIC, 0, payload)
                .order(order)
                .u64(op.to_u64())
                .u64(at.key)
                .u64(at.addr)
                .pair(u32::from_le_bytes([code.datatype, code.op, code.kind as u8, 0]), code.count),
            Self::AtomicData { op } => Encoded::new(ATOMIC_DATA, 0, payload).u64(op.to_u64()),
            Self::Credit { credit } => Encoded::new(CREDIT, 0, payload).pair(credit, 0),
            Self::Am { order, id, header_len } => {
                Encoded::new(AM, 0, payload).order(order).pair(u32::from(id) | u32::from(header_len) << 16, 0)
            }
            Self::Bye => Encoded::new(BYE, 0, payload).u64(0),
        }
        .done()
    }

    /// The frame at the beginning of `bytes` (a whole header, see [`peek_lengths`]) and its payload's length.
    ///
    /// # Errors
    /// When the bytes are not exactly one valid header.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), FrameError> {
        let prefix: &[u8; PREFIX] = bytes.first_chunk().ok_or(FrameError::Short)?;
        let (header, payload) = peek_lengths(prefix)?;
        let body = bytes.get(PREFIX..header).ok_or(FrameError::Short)?;
        let (kind, flags) = (prefix[0], prefix[1]);
        let mut f = Fields(body);
        let (frame, allowed) = Self::body(kind, flags, &mut f, payload)?;
        if !f.0.is_empty() {
            return Err(FrameError::Length(prefix[2]));
        }
        if flags & !allowed != 0 {
            return Err(FrameError::Field("flags"));
        }
        Ok((frame, payload))
    }

    #[inline]
    fn body(kind: u8, flags: u8, f: &mut Fields<'_>, payload: usize) -> Result<(Self, u8), FrameError> {
        let region = flags & F_REGION != 0;
        let has_data = flags & F_DATA != 0;
        Ok(match kind {
            EAGER => {
                let order = f.order()?;
                let matching = matching_of(flags, f.u64()?)?;
                let data = f.optional(has_data)?;
                let ack = f.optional(flags & F_ACK != 0)?.map(OpId::from_u64);
                (Self::Eager { order, matching, data, ack }, F_TAGGED | F_DATA | F_ACK)
            }
            RTS => {
                let order = f.order()?;
                let matching = matching_of(flags, f.u64()?)?;
                let (len, op) = (f.u64()?, f.op()?);
                let data = f.optional(has_data)?;
                (Self::Rts { order, matching, data, len, op, readable: region }, F_TAGGED | F_DATA | F_REGION)
            }
            RTR => (Self::Rtr { op: f.op()?, to: f.op()?, len: f.u64()?, writable: region }, F_REGION),
            FRAG => (Self::Frag { to: f.op()?, offset: f.u64()? }, 0),
            ATS => (Self::Ats { op: f.op()?, status: f.status()? }, 0),
            ATP => (Self::Atp { to: f.op()?, status: f.status()? }, 0),
            ACK => (Self::Ack { op: f.op()?, status: f.status()? }, 0),
            PUT => {
                let (order, op, to) = (f.order()?, f.op()?, f.remote()?);
                let data = f.optional(has_data)?;
                (Self::Put { order, op, to, data, last: flags & F_LAST != 0 }, F_DATA | F_LAST)
            }
            PUT_RTS => {
                let (order, op, to) = (f.order()?, f.op()?, f.remote()?);
                (Self::PutRts { order, op, to, len: f.u64()? }, F_REGION)
            }
            GET => {
                let (order, op, from) = (f.order()?, f.op()?, f.remote()?);
                (Self::Get { order, op, from, len: f.u64()?, writable: region }, F_REGION)
            }
            GET_DATA => (Self::GetData { op: f.op()?, offset: f.u64()? }, 0),
            ATOMIC => {
                let (order, op, at) = (f.order()?, f.op()?, f.remote()?);
                let (code, count) = f.pair()?;
                let [datatype, opcode, kind, zero] = code.to_le_bytes();
                let kind = match (kind, zero) {
                    (0, 0) => AtomicKind::Update,
                    (1, 0) => AtomicKind::Fetch,
                    (2, 0) => AtomicKind::Compare,
                    _ => return Err(FrameError::Field("atomic kind")),
                };
                (Self::Atomic { order, op, at, code: AtomicCode { datatype, op: opcode, kind, count } }, 0)
            }
            ATOMIC_DATA => (Self::AtomicData { op: f.op()? }, 0),
            CREDIT => match f.pair()? {
                (credit, 0) => (Self::Credit { credit }, 0),
                _ => return Err(FrameError::Field("credit")),
            },
            AM => {
                let order = f.order()?;
                let (word, zero) = f.pair()?;
                let header_len = (word >> 16) as u16;
                if zero != 0 || usize::from(header_len) > payload {
                    return Err(FrameError::Field("active message header"));
                }
                (Self::Am { order, id: word as u16, header_len }, 0)
            }
            BYE => match f.u64()? {
                0 => (Self::Bye, 0),
                _ => return Err(FrameError::Field("bye")),
            },
            other => return Err(FrameError::Kind(other)),
        })
    }

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
