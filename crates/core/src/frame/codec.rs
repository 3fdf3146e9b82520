//! Frames as bytes.

use super::{
    ACKED_RANGE, AtomicCode, AtomicKind, Frame, FrameError, MAX_ACKED, MAX_HEADER, MAX_LANE_WORD,
    MAX_PAYLOAD, MAX_REGION, Matching, OpId, Order, PREFIX, RANGE, REGION_HEAD, RemoteAddr, Status,
};
use crate::wire::datagram::VALUE_MOST;
use crate::wire::{Reject, Transport};

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
const GOT: u8 = 17;
const RETIRE: u8 = 18;
const SEEN: u8 = 19;
const LANE_OPEN: u8 = 20;
const LANE_ANSWER: u8 = 21;
const VALUE: u8 = 22;
const VALUE_HAD: u8 = 23;

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

/// The commonest frame: an eager message with a tag that wants no acknowledgement. It is what [`Frame::Eager`] is too, without being
/// put into words in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlainEager {
    /// Its place.
    pub order: Order,
    /// Its tag.
    pub tag: u64,
    /// Immediate data.
    pub data: Option<u64>,
}

impl PlainEager {
    /// Most words of its header.
    pub const WORDS: usize = 4;
    // its first four bytes, without immediate data and with
    const PLAIN: u32 = u32::from_le_bytes([EAGER, F_TAGGED, 24, 0]);
    const WITH_DATA: u32 = u32::from_le_bytes([EAGER, F_TAGGED | F_DATA, 32, 0]);

    /// The header in words of little endian, for a frame with `payload` bytes after it (at most [`MAX_PAYLOAD`]), and how many bytes of
    /// them it has.
    #[inline(always)]
    pub fn encode(&self, payload: usize) -> ([u64; Self::WORDS], usize) {
        debug_assert!(payload <= MAX_PAYLOAD);
        let (first, len) = match self.data {
            None => (Self::PLAIN, 24),
            Some(_) => (Self::WITH_DATA, 32),
        };
        let prefix = u64::from(first) | (payload as u64) << 32;
        let order = u64::from(self.order.seq) | u64::from(self.order.credit) << 32;
        ([prefix, order, self.tag, self.data.unwrap_or_default()].map(u64::to_le), len)
    }

    /// The frame whose header these bytes are, if it is such a one, and its payload's length.
    #[inline(always)]
    pub fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let word = |at: usize| {
            bytes.get(8 * at..).and_then(|rest| rest.first_chunk()).map(|word| u64::from_le_bytes(*word))
        };
        let prefix = word(0)?;
        let plain = Self::from_words(bytes.len(), prefix, |at| word(at).unwrap_or_default())?;
        let payload = (prefix >> 32) as usize;
        (payload <= MAX_PAYLOAD).then_some((plain, payload))
    }

    /// The same of a header of `len` bytes whose first word is given, and of whose others `word` gives each when it is asked for. The payload's length
    /// is the upper half of the first.
    #[inline(always)]
    pub fn from_words(len: usize, prefix: u64, word: impl Fn(usize) -> u64) -> Option<Self> {
        let data = match (prefix as u32, len) {
            (Self::PLAIN, 24) => None,
            (Self::WITH_DATA, 32) => Some(word(3)),
            _ => return None,
        };
        let order = word(1);
        let order = Order { seq: order as u32, credit: (order >> 32) as u32 };
        Some(Self { order, tag: word(2), data })
    }
}

impl Frame {
    /// This frame, if it is of the commonest.
    #[inline]
    pub fn plain(&self) -> Option<PlainEager> {
        match *self {
            Self::Eager { order, matching: Matching::Tag(tag), data, ack: None } => {
                Some(PlainEager { order, tag, data })
            }
            _ => None,
        }
    }
}

impl From<PlainEager> for Frame {
    #[inline]
    fn from(PlainEager { order, tag, data }: PlainEager) -> Self {
        Self::Eager { order, matching: Matching::Tag(tag), data, ack: None }
    }
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
    fn lane(&mut self) -> Result<u16, FrameError> {
        u16::try_from(self.u64()?).map_err(|_| FrameError::Field("lane"))
    }
    /// A lane, a transport and a code, then zeros.
    fn lane_word(&mut self) -> Result<(u16, Transport, u8), FrameError> {
        let [low, high, transport, code, zeros @ ..] = self.u64()?.to_le_bytes();
        let transport = Transport::from_wire(transport).filter(|_| zeros == [0; 4]);
        Ok((u16::from_le_bytes([low, high]), transport.ok_or(FrameError::Field("transport"))?, code))
    }
    fn status(&mut self) -> Result<Status, FrameError> {
        let (status, zero) = self.pair()?;
        if zero != 0 { Err(FrameError::Field("status")) } else { Status::from_u32(status) }
    }
}

fn flag(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

fn lane_word(lane: u16, transport: Transport, code: u8) -> u64 {
    let [low, high] = lane.to_le_bytes();
    u64::from_le_bytes([low, high, transport.number(), code, 0, 0, 0, 0])
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

/// Whether a frame of this kind may have so long a payload, so that nobody makes room for what no kind carries.
#[inline]
fn payload_fits(kind: u8, flags: u8, payload: usize) -> bool {
    match kind {
        EAGER | PUT | ATOMIC | ATOMIC_DATA | AM | VALUE => true,
        FRAG | GET_DATA => payload > 0,
        _ if flags & F_REGION != 0 => {
            (REGION_HEAD + RANGE..=MAX_REGION).contains(&payload) && payload.is_multiple_of(8)
        }
        GOT | RETIRE => payload <= MAX_ACKED * ACKED_RANGE && payload.is_multiple_of(ACKED_RANGE),
        LANE_OPEN | LANE_ANSWER => payload <= MAX_LANE_WORD,
        _ => payload == 0,
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
            Self::Got { lane, received } => Encoded::new(GOT, 0, payload).u64(u64::from(lane)).u64(received),
            Self::Retire { lane, received } => {
                Encoded::new(RETIRE, 0, payload).u64(u64::from(lane)).u64(received)
            }
            Self::Seen { seq } => Encoded::new(SEEN, 0, payload).pair(seq, 0),
            Self::LaneOpen { lane, transport } => {
                Encoded::new(LANE_OPEN, 0, payload).u64(lane_word(lane, transport, 0))
            }
            Self::LaneAnswer { lane, transport, verdict } => {
                let code = verdict.err().map_or(0, |reason| reason as u8);
                Encoded::new(LANE_ANSWER, 0, payload).u64(lane_word(lane, transport, code))
            }
            Self::Value { tag, iteration, total, offset } => {
                Encoded::new(VALUE, 0, payload).u64(tag).u64(iteration).pair(total, offset)
            }
            Self::ValueHad { tag, iteration } => Encoded::new(VALUE_HAD, 0, payload).u64(tag).u64(iteration),
        }
        .done()
    }

    /// The frame at the beginning of `bytes` (a whole header, see [`peek_lengths`]) and its payload's length.
    ///
    /// # Errors
    /// When the bytes are not exactly one valid header, or announce a payload that such a frame cannot have.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), FrameError> {
        match PlainEager::parse(bytes) {
            Some((eager, payload)) => Ok((eager.into(), payload)),
            None => Self::any(bytes),
        }
    }

    #[inline(never)]
    fn any(bytes: &[u8]) -> Result<(Self, usize), FrameError> {
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
        if !payload_fits(kind, flags, payload) {
            return Err(FrameError::Field("payload"));
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
            PUT_RTS if !region => return Err(FrameError::Field("flags")),
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
            GOT => (Self::Got { lane: f.lane()?, received: f.u64()? }, 0),
            RETIRE => (Self::Retire { lane: f.lane()?, received: f.u64()? }, 0),
            SEEN => match f.pair()? {
                (seq, 0) => (Self::Seen { seq }, 0),
                _ => return Err(FrameError::Field("seen")),
            },
            LANE_OPEN => match f.lane_word()? {
                (lane, transport, 0) => (Self::LaneOpen { lane, transport }, 0),
                _ => return Err(FrameError::Field("transport")),
            },
            LANE_ANSWER => {
                let (lane, transport, code) = f.lane_word()?;
                let reason = Reject::from_wire(code);
                let verdict = match (code, reason, payload) {
                    (0, ..) => Ok(()),
                    (_, Some(reason), 0) => Err(reason),
                    (_, Some(_), _) => return Err(FrameError::Field("payload")),
                    (_, None, _) => return Err(FrameError::Field("code")),
                };
                (Self::LaneAnswer { lane, transport, verdict }, 0)
            }
            VALUE => {
                let (tag, iteration, (total, offset)) = (f.u64()?, f.u64()?, f.pair()?);
                let ends = u64::from(offset) + payload as u64 <= u64::from(total);
                if !ends || total > VALUE_MOST || (payload == 0) != (total == 0) {
                    return Err(FrameError::Field("value"));
                }
                (Self::Value { tag, iteration, total, offset }, 0)
            }
            VALUE_HAD => (Self::ValueHad { tag: f.u64()?, iteration: f.u64()? }, 0),
            other => return Err(FrameError::Kind(other)),
        })
    }
}
