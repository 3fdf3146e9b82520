//! The sending side of a tag: how far its value is sent, and when the next one begins.

use super::super::{NEVER, Time};
use super::losses::Losses;
use crate::ranges::Ranges;
use crate::values;
use core::ops::Range;

/// What of the value that is being sent was sent, and came.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Its length, of at least one.
    span: u64,
    /// The first place that was never sent.
    fresh: u64,
    /// What is to be sent again.
    again: Ranges,
    /// What is known to have come.
    had: Ranges,
    known: u64,
}

impl Progress {
    fn begin(span: u64) -> Self {
        Self { span, ..Self::default() }
    }

    pub fn span(&self) -> u64 {
        self.span
    }

    /// What is yet to be sent of it.
    pub fn lacks(&self) -> u64 {
        self.span() - self.fresh + self.again.count()
    }

    /// Whether all of it was sent once.
    pub fn is_sent(&self) -> bool {
        self.fresh == self.span()
    }

    /// Whether something of it is to be sent.
    pub fn wants(&self) -> bool {
        self.fresh < self.span() || !self.again.is_empty()
    }

    /// What is not known to have come.
    pub fn unknown(&self) -> u64 {
        self.span() - self.known
    }

    /// The next part of it, of at most so many bytes: what is sent again first.
    pub fn take(&mut self, most: u64) -> Range<u64> {
        if !self.again.is_empty() {
            return self.again.take_first(most);
        }
        let from = self.fresh;
        self.fresh = self.span().min(from + most);
        from..self.fresh
    }

    /// How much the next part has, if it is whole.
    pub fn next_part(&self) -> u64 {
        self.again.first().map_or(self.span() - self.fresh, |first| first.end - first.start)
    }

    pub fn came(&mut self, range: Range<u64>) {
        self.known += self.had.gaps(range.clone()).map(|gap| gap.end - gap.start).sum::<u64>();
        self.had.add(range.clone());
        self.again.remove(range);
    }

    /// Whether something of this range is not known to have come.
    pub fn misses(&self, range: &Range<u64>) -> bool {
        self.had.gaps(range.clone()).next().is_some()
    }

    /// What of this range was sent and is not known to have come is sent again, up to so many bytes.
    pub fn repeat(&mut self, range: Range<u64>, most: u64) {
        let mut left = most;
        for gap in self.had.gaps(range.start..range.end.min(self.fresh)) {
            let len = (gap.end - gap.start).min(left);
            self.again.add(gap.start..gap.start + len);
            left -= len;
        }
    }
}

/// All of it.
#[derive(Debug)]
pub(super) struct Sending {
    pub values: values::Register,
    pub value: Progress,
    /// It is in the queue of those that have something to send which was never sent, or is lost ...
    pub ready: bool,
    /// ... and in that of those that have copies to send.
    pub copied: bool,
    /// When what is not known to have come is sent again.
    pub timer: Time,
    /// When the value began.
    pub began: Time,
    /// How often the value was repeated without any word of it.
    pub repeats: u32,
}

impl Sending {
    /// For the first value.
    pub fn new(began: Time, tag: u64, iteration: u64, bytes: &[u8]) -> Self {
        let values = values::Register::new(tag, iteration, bytes);
        Self {
            value: Progress::begin(values.span()),
            values,
            ready: false,
            copied: false,
            timer: NEVER,
            began,
            repeats: 0,
        }
    }

    /// A newer value; true if one is replaced of which nothing was sent.
    pub fn put(&mut self, iteration: u64, bytes: &[u8]) -> bool {
        let untouched = self.value.fresh == 0;
        self.values.put(iteration, bytes) || untouched
    }

    /// Whether the value gives way to the one behind it, which has so many bytes: nothing was sent of it, or all of it is known to have
    /// come, or nothing more is to be gained by it (the file's head of `asynchronous.rs` says why).
    fn gives_way(&self, len: u64, losses: &Losses, part: u64) -> bool {
        let value = &self.value;
        let lacks = value.lacks();
        match lacks {
            0 => value.span() <= part || losses.spares(value.unknown().div_ceil(part)),
            all if all == value.span() => true,
            some => some >= len.max(1),
        }
    }

    /// Begins with the newer value if the one before gives way; true if so. `acknowledged`: the other side says what came. `part`: what
    /// goes into a datagram.
    pub fn advance(&mut self, acknowledged: bool, losses: &Losses, part: u64) -> bool {
        let Some(len) = self.values.waiting() else { return false };
        let finished = !acknowledged && self.value.is_sent();
        if !finished && !self.gives_way(len, losses, part) {
            return false;
        }
        self.values.advance();
        (self.value, self.repeats) = (Progress::begin(self.values.span()), 0);
        true
    }
}
