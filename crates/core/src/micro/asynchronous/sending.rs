//! The sending side of a tag: how far its value is sent, and when the next one begins.

use super::super::{NEVER, Time};
use super::losses::Losses;
use crate::ranges::Ranges;
use crate::values;
use crate::wire::repair::Code;
use core::ops::Range;

/// Bytes of a datagram that parts of values with repairs, which are not cut, leave to what else it has: an acknowledgement, as a rule.
const BESIDE: u64 = 144;

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
    repairs: Option<Repairs>,
}

/// The repairs of a value.
#[derive(Debug)]
struct Repairs {
    code: Code,
    /// So many are to be sent, ...
    wanted: usize,
    /// ... were sent, ...
    sent: usize,
    /// ... and are known to have come.
    had: usize,
    /// So many parts and repairs were lost.
    lost: usize,
}

/// What is to leave of a value.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    /// Some of its bytes.
    Bytes(Range<u64>),
    /// The repair of this number.
    Repair(usize),
}

/// How values travel by the channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    /// Bytes of a value that go into a datagram.
    pub part: u64,
    /// The other side says what came.
    pub acknowledged: bool,
    /// Values are so few and short that a receiver has room for their repairs, too: one that it has none for it drops, though it
    /// acknowledges it.
    pub may_repair: bool,
    pub losses: Losses,
}

impl Path {
    /// The repairs of a value of so many bytes, if there are to be any.
    fn repairs(&self, len: usize) -> Option<Repairs> {
        let size = self.part.saturating_sub(BESIDE) & !1;
        let code = Code::of(len, size as usize).filter(|_| self.acknowledged && self.may_repair)?;
        let wanted = self.losses.repairs(code.parts(), code.repairs());
        let new = || Repairs { code, wanted, sent: 0, had: 0, lost: 0 };
        (wanted > 0).then(new)
    }
}

impl Progress {
    fn begin(values: &values::Register, path: &Path) -> Self {
        Self { span: values.span(), repairs: path.repairs(values.bytes.len()), ..Self::default() }
    }

    pub fn span(&self) -> u64 {
        self.span
    }

    /// What is yet to be sent of it, besides repairs.
    pub fn lacks(&self) -> u64 {
        self.span() - self.fresh + self.again.count()
    }

    fn repairs_lack(&self) -> u64 {
        let lacks = |one: &Repairs| (one.wanted - one.sent) as u64 * one.code.size() as u64;
        self.repairs.as_ref().map_or(0, lacks)
    }

    /// Whether repairs make up for what is lost of it.
    pub fn is_repaired(&self) -> bool {
        self.repairs.is_some()
    }

    /// Whether it comes almost surely with the repairs that have left, or are to leave.
    fn comes_surely(&self, losses: &Losses) -> bool {
        let wants_fewer = |repairs: &Repairs| repairs.wanted < repairs.code.repairs();
        self.repairs.as_ref().is_some_and(|repairs| wants_fewer(repairs) || losses.bear_repairs())
    }

    /// Whether a repair is what leaves next of it.
    pub fn repairs_next(&self) -> bool {
        self.again.is_empty() && self.is_sent() && self.repairs_lack() > 0
    }

    /// Whether all of it was sent once.
    pub fn is_sent(&self) -> bool {
        self.fresh == self.span()
    }

    /// Whether something of it is to be sent.
    pub fn wants(&self) -> bool {
        self.fresh < self.span() || !self.again.is_empty() || self.repairs_lack() > 0
    }

    /// What is not known to have come.
    pub fn unknown(&self) -> u64 {
        self.span() - self.known
    }

    /// The next piece of it, of at most so many bytes, which is room for a repair if it is one's turn: what is sent again first.
    pub fn take(&mut self, most: u64) -> Piece {
        if !self.again.is_empty() {
            return Piece::Bytes(self.again.take_first(most));
        }
        if self.fresh == self.span()
            && let Some(repairs) = &mut self.repairs
        {
            repairs.sent += 1;
            return Piece::Repair(repairs.sent - 1);
        }
        let from = self.fresh;
        self.fresh = self.span().min(from + most).min(self.part_end(from));
        Piece::Bytes(from..self.fresh)
    }

    /// Where the part ends that has this byte: of values with repairs each comes or is lost as one.
    fn part_end(&self, from: u64) -> u64 {
        let size = self.repairs.as_ref().map_or(u64::MAX, |one| one.code.size() as u64);
        (from / size).saturating_add(1).saturating_mul(size).min(self.span)
    }

    /// How much the next piece has, if it is whole; and whether it goes as a whole only.
    pub fn next_piece(&self) -> (u64, bool) {
        match (self.again.first(), &self.repairs) {
            (Some(first), _) => (first.end - first.start, false),
            (None, Some(repairs)) if self.is_sent() => (repairs.code.size() as u64, true),
            (None, Some(_)) => (self.part_end(self.fresh) - self.fresh, true),
            (None, None) => (self.span() - self.fresh, false),
        }
    }

    pub fn came(&mut self, piece: &Piece) {
        match (piece, &mut self.repairs) {
            (Piece::Bytes(range), _) => {
                self.known += self.had.gaps(range.clone()).map(|gap| gap.end - gap.start).sum::<u64>();
                self.had.add(range.clone());
                self.again.remove(range.clone());
            }
            (Piece::Repair(_), Some(repairs)) => repairs.had += 1,
            (Piece::Repair(_), None) => {}
        }
        if self
            .repairs
            .as_ref()
            .is_some_and(|repairs| self.parts_had(&repairs.code) + repairs.had >= repairs.code.parts())
        {
            // the other side has made the rest of it
            self.had.add(0..self.span);
            (self.known, self.fresh, self.again) = (self.span, self.span, Ranges::default());
            self.repairs = None;
        }
    }

    /// How many parts of the code are known to have come whole.
    fn parts_had(&self, code: &Code) -> usize {
        let size = code.size() as u64;
        let whole = |range: &Range<u64>| {
            let end = if range.end == self.span { range.end.div_ceil(size) } else { range.end / size };
            end.saturating_sub(range.start.div_ceil(size)) as usize
        };
        self.had.iter().map(whole).sum()
    }

    /// A piece was lost. False: it is to be sent again; else there are repairs for it.
    pub fn was_lost(&mut self, losses: &Losses) -> bool {
        let Some(repairs) = &mut self.repairs else { return false };
        repairs.lost += 1;
        if repairs.lost > repairs.wanted {
            let most = repairs.code.repairs();
            repairs.wanted = most.min(repairs.lost + losses.repairs(1, most));
        }
        repairs.lost <= repairs.wanted
    }

    /// It lacks as much as is not known to have come: so many more repairs are to be sent. False: there are no more.
    pub fn want_repairs(&mut self, losses: &Losses) -> bool {
        let Some(code) = self.repairs.as_ref().map(|repairs| repairs.code) else { return false };
        let had = self.parts_had(&code);
        let Some(repairs) = &mut self.repairs else { return false };
        let lacking = code.parts() - had - repairs.had;
        let more = repairs.wanted + lacking + losses.repairs(lacking, code.repairs());
        let before = core::mem::replace(&mut repairs.wanted, more.min(code.repairs()));
        repairs.wanted > before
    }

    /// By which code its repairs are made, and how many are to be sent in all.
    pub fn code(&self) -> Option<(Code, usize)> {
        self.repairs.as_ref().map(|repairs| (repairs.code, repairs.wanted))
    }

    /// Datagrams have no room for repairs of this size any more.
    pub fn forget_repairs(&mut self) {
        self.repairs = None;
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
    pub fn new(began: Time, tag: u64, iteration: u64, bytes: &[u8], path: &Path) -> Self {
        let values = values::Register::new(tag, iteration, bytes);
        Self {
            value: Progress::begin(&values, path),
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
    fn gives_way(&self, len: u64, path: &Path) -> bool {
        let value = &self.value;
        let lacks = value.lacks();
        match lacks {
            0 if value.comes_surely(&path.losses) => !value.wants(),
            0 => value.span() <= path.part || path.losses.spares(value.unknown().div_ceil(path.part)),
            all if all == value.span() => true,
            some => some >= len.max(1),
        }
    }

    /// Begins with the newer value if the one before gives way; true if so.
    pub fn advance(&mut self, path: &Path) -> bool {
        let Some(len) = self.values.waiting() else { return false };
        let finished = !path.acknowledged && self.value.is_sent();
        if !finished && !self.gives_way(len, path) {
            return false;
        }
        self.values.advance();
        (self.value, self.repeats) = (Progress::begin(&self.values, path), 0);
        true
    }
}
