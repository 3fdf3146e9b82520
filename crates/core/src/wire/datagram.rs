//! Datagrams of the UDP transport: their header, and the chunks in them (`docs/wire-datagrams.md`).
//!
//! A header is in the clear, and authenticated with the rest by the tag at the datagram's end, which is the rail's matter. Chunks follow
//! each other to the end of what the tag covers; the stream's bytes are the last part of their chunk, so that whoever sends can leave them
//! where they are.

use super::codec::{Reader, Short, Writer as Fields};
use super::key::Key;
use super::repair::Code;
use core::fmt;

pub use super::codec::Writer;

/// Bytes of a header.
pub const HEADER: usize = 12;
/// Bytes of the tag at a datagram's end.
pub const TAG: usize = 16;
/// The version of these datagrams.
pub const VERSION: u8 = 1;
/// Bytes in front of a stream's.
pub const STREAM_HEAD: usize = 12;
/// Bytes in front of a value's.
pub const VALUE_HEAD: usize = 28;
/// Most bytes of a value.
pub const VALUE_MOST: u32 = 64 << 20;
/// Bytes of an acknowledgement without ranges beyond the first, and of each range.
pub const ACK_HEAD: usize = 12;
/// Bytes of each range beyond the first.
pub const ACK_RANGE: usize = 4;
/// Most ranges beyond the first.
pub const ACK_RANGES: usize = 32;
/// The unit in which an acknowledgement says how long it waited, in nanoseconds.
pub const DELAY_UNIT: u64 = 8_000;

/// What a datagram is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Of a connection that stands; its chunks are in the clear.
    Plain,
    /// The same, encrypted.
    Sealed,
    /// It opens a connection.
    Open,
    /// It answers that.
    Answer,
}

/// A datagram's first bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What it is.
    pub kind: Kind,
    /// Which of the connection's keys it is authenticated by.
    pub generation: u8,
    /// Of which composition it is.
    pub epoch: u8,
    /// What its receiver calls the connection; 0 in a datagram that opens one.
    pub connection: u32,
    /// The lowest bits of its number.
    pub number: u32,
}

/// Why bytes are no datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramError {
    /// They end too early.
    Short,
    /// They are of another version.
    Version,
    /// Kind, or a chunk's, is not one of those that there are.
    Kind,
    /// A byte that is to be zero is not.
    Reserved,
    /// A field is out of its range.
    Range,
}

impl fmt::Display for DatagramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "a datagram ends too early",
            Self::Version => "a datagram is of another version",
            Self::Kind => "a datagram, or a chunk, is of no known kind",
            Self::Reserved => "a byte of a datagram that is to be zero is not",
            Self::Range => "a field of a datagram is out of its range",
        })
    }
}

impl core::error::Error for DatagramError {}

impl From<Short> for DatagramError {
    fn from(_: Short) -> Self {
        Self::Short
    }
}

impl Header {
    /// As bytes.
    pub fn to_bytes(&self) -> [u8; HEADER] {
        let kind = match self.kind {
            Kind::Plain => 0,
            Kind::Sealed => 1,
            Kind::Open => 2,
            Kind::Answer => 3,
        };
        let mut bytes = [0; HEADER];
        bytes[0] = VERSION << 4 | kind;
        bytes[1] = self.generation;
        bytes[2] = self.epoch;
        bytes[4..8].copy_from_slice(&self.connection.to_le_bytes());
        bytes[8..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    /// Reads the front of a datagram.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(bytes: &[u8]) -> Result<Self, DatagramError> {
        let &[first, generation, epoch, zero, c0, c1, c2, c3, n0, n1, n2, n3] =
            bytes.first_chunk::<HEADER>().ok_or(DatagramError::Short)?;
        if first >> 4 != VERSION {
            return Err(DatagramError::Version);
        }
        let kind = match first & 15 {
            0 => Kind::Plain,
            1 => Kind::Sealed,
            2 => Kind::Open,
            3 => Kind::Answer,
            _ => return Err(DatagramError::Kind),
        };
        if zero != 0 {
            return Err(DatagramError::Reserved);
        }
        let (connection, number) =
            (u32::from_le_bytes([c0, c1, c2, c3]), u32::from_le_bytes([n0, n1, n2, n3]));
        Ok(Self { kind, generation, epoch, connection, number })
    }
}

/// Which datagrams of the same epoch came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ack<'a> {
    /// How long after the one with the highest number this was said, in units of [`DELAY_UNIT`].
    pub delay: u16,
    /// The lowest bits of the highest number.
    pub largest: u32,
    /// How many just below that came, too.
    pub below: u16,
    /// How many datagrams came with a mark of a router, altogether, modulo 2^16.
    pub marked: u16,
    /// For each range below, the highest first: how many are missing before it, and how many it has; four bytes.
    ranges: &'a [u8],
}

impl<'a> Ack<'a> {
    /// For each range below the first, the highest first: how many are missing before it, and how many it has.
    pub fn ranges(&self) -> impl Iterator<Item = (u16, u16)> + 'a {
        self.ranges
            .as_chunks::<ACK_RANGE>()
            .0
            .iter()
            .map(|&[g0, g1, l0, l1]| (u16::from_le_bytes([g0, g1]), u16::from_le_bytes([l0, l1])))
    }
}

/// How a connection ends, as the side says that ends it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// It is given up: what it did not bring may come by another.
    GivenUp,
    /// In good order: nothing was left to be sent.
    Orderly,
    /// The side that says so is gone.
    Gone,
}

/// A part of a value, of which only the latest of its tag counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Value<'a> {
    /// Whose value it is.
    pub tag: u64,
    /// Which of its values: a later one has more.
    pub iteration: u64,
    /// Bytes of the whole value, at most [`VALUE_MOST`].
    pub total: u32,
    /// What of it this is.
    pub part: Part,
    /// Its bytes; none only of a value that has none.
    pub bytes: &'a [u8],
}

/// What of a value a chunk brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Its bytes from here on.
    At(u32),
    /// The repair of this number, which makes up for any part of its length that did not come ([`Code`]).
    Repair(u16),
}

/// A part of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chunk<'a> {
    /// Which datagrams came.
    Ack(Ack<'a>),
    /// A part of the stream.
    Stream {
        /// Of an epoch before the datagram's: it is sent again for that.
        rescued: bool,
        /// Where it begins.
        pos: u64,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// A part of a value.
    Value(Value<'a>),
    /// Nothing: it wants to be acknowledged.
    Ping,
    /// The connection ends.
    Close(Ending),
    /// A word of the control channel, of which some may be lost.
    Word {
        /// Its place in their order.
        order: u16,
        /// The word.
        bytes: &'a [u8],
    },
    /// Words of the control channel came: all before this place.
    WordsHad {
        /// The place of the next.
        order: u16,
    },
    /// Asks whether the other side is where it is written to.
    Challenge([u8; 8]),
    /// The same bytes, from there.
    Response([u8; 8]),
    /// The beginning of a connection, from the side that opens it.
    Hello {
        /// What this side calls the connection.
        connection: u32,
        /// Random.
        salt: [u8; 16],
        /// Bytes of the stream that this side takes before they have their turn.
        window: u32,
    },
}

const PAD: u8 = 0;
const ACK: u8 = 1;
const STREAM: u8 = 2;
const PING: u8 = 3;
const CLOSE: u8 = 4;
const WORD: u8 = 5;
const WORDS_HAD: u8 = 6;
const CHALLENGE: u8 = 7;
const RESPONSE: u8 = 8;
const HELLO: u8 = 9;
const RESCUED: u8 = 10;
const VALUE: u8 = 11;
const REPAIR: u8 = 12;

/// Takes the chunks off the front of a datagram's content. After an error there are no more.
#[derive(Clone, Debug)]
pub struct Chunks<'a>(Reader<'a>);

impl<'a> Chunks<'a> {
    /// The chunks in these bytes.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(Reader::new(bytes))
    }

    fn ack(&mut self) -> Result<Chunk<'a>, DatagramError> {
        let from = &mut self.0;
        let (count, delay) = (from.u8()?, from.u16()?);
        if usize::from(count) > ACK_RANGES {
            return Err(DatagramError::Range);
        }
        let (largest, below, marked) = (from.u32()?, from.u16()?, from.u16()?);
        let ranges = from.bytes(usize::from(count) * ACK_RANGE)?;
        let ack = Ack { delay, largest, below, marked, ranges };
        match ack.ranges().any(|(gap, len)| gap == 0 || len == 0) {
            true => Err(DatagramError::Range),
            false => Ok(Chunk::Ack(ack)),
        }
    }

    fn value(&mut self, repair: bool) -> Result<Chunk<'a>, DatagramError> {
        let from = &mut self.0;
        let (zero, len) = (from.u8()?, from.u16()?);
        let (tag, iteration) = (from.u64()?, from.u64()?);
        let (total, offset) = (from.u32()?, from.u32()?);
        if zero != 0 {
            return Err(DatagramError::Reserved);
        }
        let part = match repair {
            false => {
                let ends = offset.checked_add(u32::from(len)).is_some_and(|end| end <= total);
                let is_whole = total <= VALUE_MOST && (len == 0) == (total == 0);
                (ends && is_whole).then_some(Part::At(offset))
            }
            true => {
                let code = Code::of(total as usize, usize::from(len));
                let number = code.filter(|code| (offset as usize) < code.repairs());
                number.and_then(|_| u16::try_from(offset).ok()).map(Part::Repair)
            }
        };
        let part = part.ok_or(DatagramError::Range)?;
        Ok(Chunk::Value(Value { tag, iteration, total, part, bytes: from.bytes(usize::from(len))? }))
    }

    fn chunk(&mut self, kind: u8) -> Result<Chunk<'a>, DatagramError> {
        let from = &mut self.0;
        Ok(match kind {
            ACK => return self.ack(),
            STREAM | RESCUED => {
                let (zero, len, pos) = (from.u8()?, from.u16()?, from.u64()?);
                if zero != 0 {
                    return Err(DatagramError::Reserved);
                }
                if pos.checked_add(u64::from(len)).is_none() {
                    return Err(DatagramError::Range);
                }
                Chunk::Stream { rescued: kind == RESCUED, pos, bytes: from.bytes(usize::from(len))? }
            }
            VALUE | REPAIR => return self.value(kind == REPAIR),
            PING => Chunk::Ping,
            CLOSE => Chunk::Close(match from.u8()? {
                0 => Ending::GivenUp,
                1 => Ending::Orderly,
                2 => Ending::Gone,
                _ => return Err(DatagramError::Range),
            }),
            WORD => {
                let (len, order) = (from.u8()?, from.u16()?);
                Chunk::Word { order, bytes: from.bytes(usize::from(len))? }
            }
            WORDS_HAD => Chunk::WordsHad { order: from.u16()? },
            CHALLENGE => Chunk::Challenge(from.array()?),
            RESPONSE => Chunk::Response(from.array()?),
            HELLO => Chunk::Hello { connection: from.u32()?, salt: from.array()?, window: from.u32()? },
            _ => return Err(DatagramError::Kind),
        })
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Result<Chunk<'a>, DatagramError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let kind = self.0.u8().ok()?;
            if kind != PAD {
                let chunk = self.chunk(kind);
                if chunk.is_err() {
                    self.0.rest();
                }
                return Some(chunk);
            }
        }
    }
}

/// What says which datagrams came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckHead {
    /// As in [`Ack`].
    pub delay: u16,
    /// As in [`Ack`].
    pub largest: u32,
    /// As in [`Ack`].
    pub below: u16,
    /// As in [`Ack`].
    pub marked: u16,
}

/// Writes an acknowledgement with these ranges, as many as fit and are allowed.
pub fn write_ack(to: &mut Fields<'_>, head: &AckHead, ranges: impl Iterator<Item = (u16, u16)> + Clone) {
    let most = (to.room().saturating_sub(ACK_HEAD) / ACK_RANGE).min(ACK_RANGES);
    let count = ranges.clone().take(most).count() as u8;
    to.u8(ACK).u8(count).u16(head.delay).u32(head.largest).u16(head.below).u16(head.marked);
    ranges.take(most).for_each(|(gap, len)| {
        to.u16(gap).u16(len);
    });
}

/// Writes what stands before a part of the stream.
pub fn write_stream(to: &mut Fields<'_>, rescued: bool, pos: u64, len: u16) {
    to.u8(if rescued { RESCUED } else { STREAM }).u8(0).u16(len).u64(pos);
}

/// Writes a part of a value, of which no more than `u16::MAX` bytes go into a chunk. Its bytes are the chunk's last.
pub fn write_value(to: &mut Fields<'_>, value: &Value<'_>) {
    let (kind, at) = match value.part {
        Part::At(offset) => (VALUE, offset),
        Part::Repair(number) => (REPAIR, u32::from(number)),
    };
    to.u8(kind).u8(0).u16(value.bytes.len() as u16).u64(value.tag).u64(value.iteration);
    to.u32(value.total).u32(at).bytes(value.bytes);
}

/// Writes a chunk that has no part of the stream or of a value and is no acknowledgement.
///
/// # Panics
/// Of those, which have functions of their own.
pub fn write(to: &mut Fields<'_>, chunk: &Chunk<'_>) {
    match *chunk {
        Chunk::Ack(_) | Chunk::Stream { .. } | Chunk::Value(_) => {
            unreachable!("it has a function of its own")
        }
        Chunk::Ping => to.u8(PING),
        Chunk::Close(ending) => to.u8(CLOSE).u8(ending as u8),
        Chunk::Word { order, bytes } => to.u8(WORD).u8(bytes.len() as u8).u16(order).bytes(bytes),
        Chunk::WordsHad { order } => to.u8(WORDS_HAD).u16(order),
        Chunk::Challenge(bytes) => to.u8(CHALLENGE).bytes(&bytes),
        Chunk::Response(bytes) => to.u8(RESPONSE).bytes(&bytes),
        Chunk::Hello { connection, salt, window } => to.u8(HELLO).u32(connection).bytes(&salt).u32(window),
    };
}

/// Bytes of a salt: what each side adds to the keys of a connection.
pub const SALT: usize = 16;
/// Where in a datagram that opens a connection, or answers that, its HELLO begins: first of all.
pub const HELLO_AT: usize = HEADER;

/// The tag of a datagram that opens a connection (`client` empty), or answers that (`client` the salt of who opened it), over all of it
/// before the tag, by the key of the endpoint that is called.
pub fn opening_tag(key: &Key, client: &[u8], bytes: &[u8]) -> [u8; TAG] {
    let label: &'static [u8] = if client.is_empty() { b"polyrail udp open" } else { b"polyrail udp answer" };
    let tag = key.tag(label).and(client).and(bytes).bytes();
    core::array::from_fn(|at| tag[at])
}

/// Whether that is the tag, found out in a time that does not depend on where it differs.
pub fn is_opening_tag(key: &Key, client: &[u8], bytes: &[u8], tag: &[u8]) -> bool {
    let right = opening_tag(key, client, bytes);
    tag.len() == TAG && right.iter().zip(tag).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// From which the keys of a connection follow: of what the side sends that opened it, and of what the other does.
pub fn first_chains(key: &Key, client: &[u8; SALT], server: &[u8; SALT]) -> ([u8; 32], [u8; 32]) {
    let of = |label: &'static [u8]| key.tag(label).and(client).and(server).bytes();
    (of(b"polyrail udp from client"), of(b"polyrail udp from server"))
}
