//! The memory of a simulated process: buffers by operation, with addresses that other processes may use.

use crate::frame::OpId;
use crate::proto::{Place, Region, Span};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// Contents, or only their number where that is all that matters (lengths beyond what a test can hold).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Bytes {
    /// These bytes.
    Real(Vec<u8>),
    /// So many bytes.
    Counted(u64),
}

impl Bytes {
    /// How many.
    pub fn len(&self) -> u64 {
        match self {
            Self::Real(bytes) => bytes.len() as u64,
            Self::Counted(len) => *len,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `len` bytes from `offset`; None when that is not all inside.
    pub fn slice(&self, offset: u64, len: u64) -> Option<Self> {
        let end = offset.checked_add(len).filter(|end| *end <= self.len())?;
        Some(match self {
            Self::Real(bytes) => Self::Real(bytes[offset as usize..end as usize].to_vec()),
            Self::Counted(_) => Self::Counted(len),
        })
    }

    /// The bytes themselves; empty where they are only counted.
    pub fn real(&self) -> &[u8] {
        match self {
            Self::Real(bytes) => bytes,
            Self::Counted(_) => &[],
        }
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        Self::Real(bytes.to_vec())
    }
}

/// Which parts of a buffer were written, as begin and end of what has no gap.
#[derive(Clone, Debug, Default)]
struct Extents(BTreeMap<u64, u64>);

impl Extents {
    /// Adds a range; false when part of it was there.
    fn add(&mut self, mut begin: u64, mut end: u64) -> bool {
        if begin == end {
            return true;
        }
        if self.0.range(..end).next_back().is_some_and(|(_, there)| *there > begin) {
            return false;
        }
        if let Some((&before, _)) = self.0.range(..begin).next_back().filter(|(_, there)| **there == begin) {
            begin = before;
        }
        if let Some(after) = self.0.remove(&end) {
            end = after;
        }
        self.0.insert(begin, end);
        true
    }

    fn has(&self, begin: u64, end: u64) -> bool {
        begin == end || self.0.range(..=begin).next_back().is_some_and(|(_, there)| *there >= end)
    }
}

/// One buffer.
#[derive(Clone, Debug)]
struct Buffer {
    bytes: Bytes,
    /// Its address.
    addr: u64,
    /// What a span's offset begins with (regions that are addressed by address).
    base: u64,
    /// In how many pieces its addresses are listed.
    pieces: u64,
    written: Extents,
}

/// What a process holds.
#[derive(Debug, Default)]
pub struct Memory {
    buffers: BTreeMap<Key, Buffer>,
    next_addr: u64,
    /// Bytes of receive buffers that were written twice: an error of the protocol.
    pub overwritten: u64,
}

/// Addresses begin here, so that none is a plausible offset.
const FIRST_ADDR: u64 = 1 << 44;
/// Between buffers nothing is readable.
const GUARD: u64 = 1 << 12;

const RECV: u8 = 1;

/// Which kind of place, which of them, and which registration of a region.
type Key = (u8, u64, u32);

fn key(place: Place) -> Option<Key> {
    let name = |op: OpId| u64::from(op.generation) << 32 | u64::from(op.slot);
    Some(match place {
        Place::Send(op) => (0, name(op), 0),
        Place::Recv(op) => (RECV, name(op), 0),
        Place::Rma(op) => (2, name(op), 0),
        Place::Region(key, generation) => (3, key, generation),
        Place::Stash(op) => (4, name(op), 0),
        // the engine's own
        Place::Value(..) | Place::Discard => return None,
    })
}

impl Memory {
    /// Gives an operation, or a region, its bytes. Their addresses are listed in `pieces` ranges.
    pub fn put(&mut self, place: Place, bytes: Bytes, base: u64, pieces: u64) {
        let Some(key) = key(place) else { return };
        let addr = self.next_addr.max(FIRST_ADDR);
        self.next_addr = addr + bytes.len() + GUARD;
        self.buffers
            .insert(key, Buffer { bytes, addr, base, pieces: pieces.max(1), written: Extents::default() });
    }

    /// Takes an operation's bytes back.
    pub fn take(&mut self, place: Place) -> Option<Bytes> {
        self.buffers.remove(&key(place)?).map(|buffer| buffer.bytes)
    }

    /// How many buffers of the kind of `place` there are.
    pub fn count(&self, place: Place) -> usize {
        key(place)
            .map_or(0, |(kind, ..)| self.buffers.range((kind, 0, 0)..=(kind, u64::MAX, u32::MAX)).count())
    }

    /// The bytes of a span; None when the operation is gone or the span is not all inside.
    pub fn read(&self, span: Span) -> Option<Bytes> {
        let buffer = self.buffers.get(&key(span.place)?)?;
        buffer.bytes.slice(span.offset.checked_sub(buffer.base)?, span.len as u64)
    }

    /// Writes the first `span.len` bytes of `bytes`; false when the operation is gone or the span is not all inside.
    pub fn write(&mut self, span: Span, bytes: &Bytes) -> bool {
        let Some(key) = key(span.place) else { return true };
        let Some(buffer) = self.buffers.get_mut(&key) else { return false };
        let Some(begin) = span.offset.checked_sub(buffer.base) else { return false };
        let len = (span.len as u64).min(bytes.len());
        let Some(end) = begin.checked_add(len).filter(|end| *end <= buffer.bytes.len()) else { return false };
        if key.0 == RECV && !buffer.written.add(begin, end) {
            self.overwritten += len;
        }
        if let (Bytes::Real(to), Bytes::Real(from)) = (&mut buffer.bytes, bytes) {
            to[begin as usize..end as usize].copy_from_slice(&from[..len as usize]);
        }
        true
    }

    /// Whether all of `begin..end` of a receive buffer has been written.
    pub fn is_written(&self, place: Place, begin: u64, end: u64) -> bool {
        key(place).and_then(|key| self.buffers.get(&key)).is_some_and(|buffer| buffer.written.has(begin, end))
    }

    /// The addresses of a span; None when they are more ranges than a [`Region`] holds.
    pub fn list(&self, span: Span) -> Option<Region> {
        let buffer = self.buffers.get(&key(span.place)?)?;
        let (mut addr, mut left) = (buffer.addr + span.offset.checked_sub(buffer.base)?, span.len as u64);
        let step = left.div_ceil(buffer.pieces).max(1);
        let mut region = Region::default();
        while left > 0 {
            let len = step.min(left);
            if !region.push(addr, len) {
                return None;
            }
            (addr, left) = (addr + len, left - len);
        }
        Some(region)
    }

    fn at(&self, addr: u64, len: u64) -> Option<Span> {
        let (&(kind, name, generation), buffer) = self.buffers.iter().find(|(_, buffer)| {
            addr.checked_sub(buffer.addr).is_some_and(|offset| offset < buffer.bytes.len().max(1))
        })?;
        let op = OpId { slot: name as u32, generation: (name >> 32) as u32 };
        let place = match kind {
            0 => Place::Send(op),
            RECV => Place::Recv(op),
            2 => Place::Rma(op),
            3 => Place::Region(name, generation),
            _ => Place::Stash(op),
        };
        Some(Span { place, offset: addr - buffer.addr + buffer.base, len: len as usize })
    }

    /// The first `len` bytes of a list of addresses, as another process reads them.
    pub fn read_listed(&self, region: &Region, len: u64) -> Option<Bytes> {
        let mut out = vec![];
        let (mut left, mut counted) = (len, false);
        for &(addr, have) in region.ranges() {
            let take = have.min(left);
            left -= take;
            match self.read(self.at(addr, take)?)? {
                Bytes::Real(bytes) => out.extend(bytes),
                Bytes::Counted(_) => counted = true,
            }
        }
        (left == 0).then_some(if counted { Bytes::Counted(len) } else { Bytes::Real(out) })
    }

    /// Writes `bytes` to a list of addresses, as another process does; false when not all of it is there.
    pub fn write_listed(&mut self, region: &Region, bytes: &Bytes) -> bool {
        if region.len().is_none_or(|room| room < bytes.len()) {
            return false;
        }
        let mut from = 0;
        for &(addr, room) in region.ranges() {
            let len = room.min(bytes.len() - from);
            let (Some(to), Some(part)) = (self.at(addr, len), bytes.slice(from, len)) else { return false };
            if !self.write(to, &part) {
                return false;
            }
            from += len;
        }
        from == bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEND: Place = Place::Send(OpId { slot: 1, generation: 2 });
    const RECV: Place = Place::Recv(OpId { slot: 1, generation: 2 });

    fn span(place: Place, offset: u64, len: usize) -> Span {
        Span { place, offset, len }
    }

    #[test]
    fn extents_grow_together_and_refuse_what_is_there() {
        let mut e = Extents::default();
        assert!(e.add(10, 20) && e.add(30, 40) && e.add(20, 30) && e.add(5, 5));
        assert!(e.has(10, 40) && !e.has(9, 11) && !e.has(39, 41));
        for (begin, end) in [(10, 11), (39, 50), (0, 11), (0, 100), (15, 25)] {
            assert!(!e.add(begin, end), "{begin}..{end}");
        }
        assert!(e.add(40, 41) && e.add(9, 10) && e.has(9, 41));
    }

    #[test]
    fn another_process_reads_and_writes_what_is_listed_and_nothing_else() {
        let mut memory = Memory::default();
        memory.put(SEND, Bytes::from(&b"abcdefgh"[..]), 0, 3);
        memory.put(RECV, Bytes::from(&[0; 5][..]), 0, 2);
        let listed = memory.list(span(SEND, 1, 7)).unwrap();
        assert_eq!(listed.ranges().len(), 3);
        let read = memory.read_listed(&listed, 6).unwrap();
        assert_eq!(read.real(), b"bcdefg");
        assert_eq!(memory.read_listed(&listed, 8), None);
        let to = memory.list(span(RECV, 0, 5)).unwrap();
        assert!(memory.write_listed(&to, &Bytes::from(&b"xyz"[..])));
        assert!(!memory.write_listed(&to, &read), "there is less room than that");
        assert_eq!(memory.take(RECV).unwrap().real(), b"xyz\0\0");
        assert!(!memory.write(span(RECV, 0, 1), &read));
    }

    #[test]
    fn what_has_many_pieces_cannot_be_listed() {
        let mut memory = Memory::default();
        memory.put(RECV, Bytes::Counted(1 << 40), 0, 9);
        assert_eq!(memory.list(span(RECV, 0, 1 << 40)), None);
        assert!(memory.write(span(RECV, 1 << 39, 10), &Bytes::Counted(10)));
        assert!(memory.is_written(RECV, 1 << 39, (1 << 39) + 10) && memory.overwritten == 0);
        assert!(memory.write(span(RECV, 1 << 39, 1), &Bytes::Counted(10)));
        assert_eq!(memory.overwritten, 1);
        assert_eq!(memory.read(span(RECV, 1, 1 << 40)), None);
    }
}
