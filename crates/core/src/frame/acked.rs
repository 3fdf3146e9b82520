//! Which frames a lane has brought: what GOT and RETIRE say.

use super::{ACKED_RANGE, MAX_ACKED};
use crate::wire::codec::Reader;
use alloc::vec::Vec;
use core::ops::Range;

/// Which of a lane's frames are all there, counted from 0 in the order in which they were given to it: all before a number, and ranges
/// beyond that where frames overtook others. A lane in order never has ranges, and costs no memory.
///
/// Invariants: at most [`MAX_ACKED`] ranges, none empty, ascending; before each is a frame that is missing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Acked {
    upto: u64,
    ranges: Vec<Range<u64>>,
}

impl Acked {
    /// All frames before this number, and none beyond.
    pub const fn before(upto: u64) -> Self {
        Self { upto, ranges: Vec::new() }
    }

    /// All frames before this number are there, and it is not.
    #[inline]
    pub const fn upto(&self) -> u64 {
        self.upto
    }

    /// The ranges beyond.
    #[inline]
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// Whether a lane that delivers in order may have brought these.
    #[inline]
    pub fn is_in_order(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The number after that of the last frame.
    #[inline]
    pub fn end(&self) -> u64 {
        self.ranges.last().map_or(self.upto, |range| range.end)
    }

    /// Where the first range is that does not end before this frame.
    fn at(&self, frame: u64) -> usize {
        self.ranges.partition_point(|range| range.end < frame)
    }

    /// Whether a frame is among them.
    pub fn has(&self, frame: u64) -> bool {
        frame < self.upto || self.ranges.get(self.at(frame)).is_some_and(|range| range.contains(&frame))
    }

    /// Whether all of `other` are among these.
    pub fn covers(&self, other: &Self) -> bool {
        let within = |range: &Range<u64>| {
            let holds = |of: &Range<u64>| of.start <= range.start && range.end <= of.end;
            range.end <= self.upto || self.ranges.get(self.at(range.end)).is_some_and(holds)
        };
        other.upto <= self.upto && other.ranges.iter().all(within)
    }

    /// Without the last `frames` of a lane that delivers in order.
    #[must_use]
    pub fn without_last(&self, frames: u64) -> Self {
        debug_assert!(self.is_in_order(), "out of order, the last are not those with the highest numbers");
        Self::before(self.upto.saturating_sub(frames))
    }

    /// A frame is there. False when it was already, and when that would take more than [`MAX_ACKED`] ranges: whoever takes
    /// frames out of order bounds how far they may be ahead, so that it never does.
    #[must_use]
    pub fn add(&mut self, frame: u64) -> bool {
        let Some(after) = frame.checked_add(1) else { return false };
        if frame == self.upto {
            let joins = self.ranges.first().filter(|range| range.start == after).map(|range| range.end);
            self.upto = joins.unwrap_or(after);
            if joins.is_some() {
                self.ranges.remove(0);
            }
            return true;
        }
        let at = self.at(frame);
        match self.ranges.get(at) {
            _ if frame < self.upto => false,
            Some(range) if range.contains(&frame) => false,
            Some(range) if range.end == frame => {
                self.grow(at, after);
                true
            }
            Some(range) if range.start == after => {
                self.ranges[at].start = frame;
                true
            }
            _ if self.ranges.len() >= MAX_ACKED => false,
            _ => {
                self.ranges.insert(at, frame..after);
                true
            }
        }
    }

    /// A range takes in the frame after it, and the range that then follows without a gap.
    fn grow(&mut self, at: usize, end: u64) {
        self.ranges[at].end = end;
        if self.ranges.get(at + 1).is_some_and(|next| next.start == end) {
            let next = self.ranges.remove(at + 1);
            self.ranges[at].end = next.end;
        }
    }

    /// The ranges as the payload of GOT or RETIRE; no bytes, and no memory, when there are none.
    pub fn payload(&self) -> Vec<u8> {
        let pair = |range: &Range<u64>| [range.start, range.end - range.start];
        self.ranges.iter().flat_map(pair).flat_map(u64::to_le_bytes).collect()
    }

    /// What a GOT or RETIRE says that has this number and payload; none when it is malformed.
    pub fn parse(upto: u64, payload: &[u8]) -> Option<Self> {
        if !payload.len().is_multiple_of(ACKED_RANGE) || payload.len() > MAX_ACKED * ACKED_RANGE {
            return None;
        }
        let mut acked = Self { upto, ranges: Vec::with_capacity(payload.len() / ACKED_RANGE) };
        let mut r = Reader::new(payload);
        while !r.is_empty() {
            let (start, count) = (r.u64().ok()?, r.u64().ok()?);
            let end = start.checked_add(count)?;
            if start <= acked.end() || count == 0 {
                return None;
            }
            acked.ranges.push(start..end);
        }
        Some(acked)
    }
}
