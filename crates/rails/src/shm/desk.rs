//! A long read that both ends work at.
//!
//! The receiver of a long message reads its sender's memory, while the sender, where its program has nothing better to do, waits for word that
//! this is done. So the reader lays the task on a *desk*, and tells the sender's [board](super::board); the sender, when it comes by,
//! writes parts of the message into the receiver's memory. Each part is copied once, by one of the two: the reader takes parts from the
//! front, its helper from the back. Who does not come by has nothing to do, and the reader does it all.
//!
//! **Claims.** What nobody has taken yet is a range of units, which stands in one word with the task's number. Either side takes a part by
//! exchanging the word, and a helper thereby learns that what it read of the task before is this task's: the reader changes a task only while
//! nothing of it can be taken, and its number with it.
//!
//! There are a few desks, so that either side has a whole task where many wait. A part costs a system call: of one task alone the reader takes
//! a half first, its helper what it finds.
//!
//! **Completion.** The helper counts what it has copied, and publishes the count with Release: once nothing is left to be taken, and all
//! that was taken from the back is counted, the reader has it all. If the helper could not copy, it says so, and the reader reads
//! what was the helper's itself.
//!
//! **Withdrawal.** Before memory is given back that a helper may write to, [`Reader::withdraw`] takes what is left, and says whether the helper is
//! still at what it has taken: for microseconds, unless its process stands still.
//!
//! **Trust.** The peer may write anything at any time. A helper names its memory by the send that it announced, and copies what is within
//! it, to the process that the kernel says is its peer: no more than the peer could read. Of claims that cannot be, the reader believes nothing any more, and copies by itself.

use crate::primitive::{AtomicU64, Line, Ordering::*};
use polyrail_core::frame::OpId;
use std::any::Any;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::Arc;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

/// Shortest transfer that is laid on a desk, in bytes.
pub const LEAST: usize = 40 << 10;
/// Bytes of a part: so many at least, and at most. A call costs as much as twenty-odd KiB.
const PART: (usize, usize) = if cfg!(loom) { (UNIT, UNIT) } else { (32 << 10, 256 << 10) };
/// Bytes of a part at most where no helper comes.
const ALONE: usize = if cfg!(loom) { UNIT } else { 1 << 20 };
/// A helper takes all where no more than this is left.
const REST: usize = if cfg!(loom) { UNIT } else { 128 << 10 };
/// Bytes of a unit, where they are few enough: a power of two.
const UNIT: usize = 4 << 10;
/// A longer one no helper takes: enough for terabytes.
const LONGEST_UNIT: usize = 64 << 20;
/// Most tasks in a row that are not laid on a desk because nobody came by.
const LONGEST_PAUSE: u32 = 31;
/// So often a helper tries to take a part that the reader is faster to take.
const ATTEMPTS: u32 = 8;
/// The helper's word: it could not copy.
const FAILED: u32 = 1 << 31;

/// Desks of one direction.
pub const DESKS: usize = 4;

/// A desk, as both processes map it. All zero: nothing is on it.
#[repr(C)]
pub struct DeskMemory {
    /// By both: what nobody has taken.
    claims: Line<AtomicU64>,
    /// By the reader: the send's name, where its bytes go, how many they are, and how many a unit is.
    task: Line<[AtomicU64; 4]>,
    /// By the helper: the task's number (high half), and how many units it has copied.
    done: Line<AtomicU64>,
}

/// What of a task nobody has taken: units from `front` up to `back`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Claims {
    task: u32,
    front: u16,
    back: u16,
}

impl From<u64> for Claims {
    fn from(word: u64) -> Self {
        Self { task: (word >> 32) as u32, front: (word >> 16) as u16, back: word as u16 }
    }
}

impl From<Claims> for u64 {
    fn from(Claims { task, front, back }: Claims) -> Self {
        u64::from(task) << 32 | u64::from(front) << 16 | u64::from(back)
    }
}

impl Claims {
    fn left(self) -> u16 {
        self.back.saturating_sub(self.front)
    }
}

/// Units of a part, of so many that are left: a half, or all of it, and `most` bytes.
fn part(left: u16, unit: usize, all: bool, most: usize) -> u16 {
    let bytes = usize::from(left).saturating_mul(unit);
    let bytes = (if all { bytes } else { bytes / 2 }).clamp(PART.0, most);
    u16::try_from(bytes.div_ceil(unit.max(1))).unwrap_or(left).min(left)
}

impl DeskMemory {
    fn claims(&self) -> Claims {
        self.claims.0.load(Acquire).into()
    }

    /// Exchanges claims that were seen for others; false if they are not these any more.
    fn exchange(&self, seen: Claims, for_these: Claims) -> bool {
        self.claims.0.compare_exchange(seen.into(), for_these.into(), AcqRel, Relaxed).is_ok()
    }

    /// How many units the helper has copied of this task, or that it could not.
    fn copied(&self, task: u32) -> Result<u16, ()> {
        let done = self.done.0.load(Acquire);
        if (done >> 32) as u32 != task {
            return Ok(0);
        }
        if done as u32 & FAILED == 0 { Ok(done as u16) } else { Err(()) }
    }
}

/// A desk's memory, and whatever keeps it mapped.
struct Desk {
    at: NonNull<DeskMemory>,
    _keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the pointer is to shared memory made of atomics, which `_keep` keeps mapped.
unsafe impl Send for Desk {}

impl Deref for Desk {
    type Target = DeskMemory;

    fn deref(&self) -> &DeskMemory {
        // SAFETY: valid while `_keep` lives (contract of `reader` and `helper`).
        unsafe { self.at.as_ref() }
    }
}

/// A task that is on the desk.
struct Task {
    /// Bytes of all, and of a unit.
    len: usize,
    unit: usize,
    units: u16,
    /// What was last seen.
    front: u16,
    back: u16,
    /// The reader copies these by itself, and asks nobody any more.
    alone: Option<Range<u16>>,
}

impl Task {
    /// Whether an honest peer may have left these claims.
    fn allows(&self, claims: Claims, number: u32) -> bool {
        (claims.task, claims.front) == (number, self.front) && (self.front..=self.back).contains(&claims.back)
    }

    fn bytes(&self, units: Range<u16>) -> Range<usize> {
        let at = |unit: u16| (usize::from(unit) * self.unit).min(self.len);
        at(units.start)..at(units.end)
    }
}

/// What a reader does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// To read these bytes.
    Read(Range<usize>),
    /// To look again: the helper is at it.
    Wait,
    /// Nothing: all is here.
    Over,
    /// Nothing, and it is not here: no task is on the desk, for it was withdrawn.
    Gone,
}

/// The end of who reads.
pub struct Reader {
    desk: Desk,
    number: u32,
    task: Option<Task>,
    /// What the peer writes makes no sense.
    damaged: bool,
}

impl Reader {
    /// Whether a task can be laid on the desk now.
    pub fn takes(&self) -> bool {
        self.task.is_none() && !self.damaged
    }

    /// Whether a helper has taken something of the task that is on it, and could copy it.
    fn is_helped(&self) -> bool {
        let taken = |task: &Task| task.back < task.units || self.desk.claims().back < task.units;
        self.task.as_ref().is_some_and(taken) && self.desk.copied(self.number).is_ok()
    }

    /// Lays a task on the desk: the bytes of a send of the peer's, which go to `to` in this process. [`Reader::next`] says what is the
    /// reader's part.
    pub fn lay(&mut self, send: OpId, to: *mut u8, len: usize) {
        let mut unit = UNIT;
        while len.div_ceil(unit) > usize::from(u16::MAX) {
            unit *= 2;
        }
        let units = len.div_ceil(unit) as u16;
        self.number = self.number.wrapping_add(1);
        let name = u64::from(send.slot) << 32 | u64::from(send.generation);
        // nothing can be taken yet: nothing was left of the last task, and this number is not the last one's
        let mut claims = Claims { task: self.number, front: units, back: units };
        self.desk.claims.0.store(claims.into(), Release);
        for (word, value) in self.desk.task.0.iter().zip([name, to as u64, len as u64, unit as u64]) {
            word.store(value, Release);
        }
        claims.front = 0;
        self.desk.claims.0.store(claims.into(), Release);
        self.task = Some(Task { len, unit, units, front: 0, back: units, alone: None });
    }

    /// What is to be done next; `all` of what is left, where that is not too much, since the helper has other tasks. The task ends with
    /// [`Next::Over`].
    pub fn next(&mut self, all: bool) -> Next {
        let Some(task) = &mut self.task else { return Next::Gone };
        loop {
            if let Some(alone) = &mut task.alone {
                let taken = part(alone.len() as u16, task.unit, true, ALONE);
                if taken == 0 {
                    self.task = None;
                    return Next::Over;
                }
                let start = alone.start;
                alone.start += taken;
                return Next::Read(task.bytes(start..start + taken));
            }
            let claims = self.desk.claims();
            let front = task.front;
            if !task.allows(claims, self.number) {
                self.damaged = true;
                task.alone = Some(front..task.units);
                continue;
            }
            task.back = claims.back;
            // who has not come during the first part is not waited for
            let alone = front > 0 && claims.back == task.units;
            let most = if alone { ALONE } else { PART.1 };
            let taken = part(claims.left(), task.unit, all || alone, most);
            if taken > 0 {
                let ours = Claims { front: front + taken, ..claims };
                if self.desk.exchange(claims, ours) {
                    task.front = ours.front;
                    return Next::Read(task.bytes(front..ours.front));
                }
                continue;
            }
            let helped = task.units - task.back;
            match if helped > 0 { self.desk.copied(self.number) } else { Ok(0) } {
                Ok(copied) if copied == helped => {
                    self.task = None;
                    return Next::Over;
                }
                Ok(copied) if copied < helped => return Next::Wait,
                counted => {
                    self.damaged |= counted.is_ok();
                    task.alone = Some(task.back..task.units);
                }
            }
        }
    }

    /// Whether [`Reader::next`] would say that the helper is at it.
    pub fn waits(&self) -> bool {
        let Some(task) = &self.task else { return false };
        let claims = self.desk.claims();
        task.alone.is_none()
            && task.allows(claims, self.number)
            && claims.left() == 0
            && self.desk.copied(self.number).is_ok_and(|copied| copied < task.units - claims.back)
    }

    /// Whether nobody has taken anything.
    pub fn is_whole(&self) -> bool {
        self.task.as_ref().is_some_and(|task| task.front == 0 && self.desk.claims().back == task.units)
    }

    /// Takes the task back, if one is on the desk. False: the helper may still be writing, and it is to be asked again.
    pub fn withdraw(&mut self) -> bool {
        while let Some(task) = self.task.as_mut().filter(|task| task.alone.is_none()) {
            let claims = self.desk.claims();
            if !task.allows(claims, self.number) {
                self.damaged = true;
                break;
            }
            task.back = claims.back;
            let none = Claims { front: claims.back, ..claims };
            if !self.desk.exchange(claims, none) {
                continue;
            }
            task.front = claims.back;
            let helped = task.units - task.back;
            if helped > 0 && self.desk.copied(self.number).is_ok_and(|copied| copied < helped) {
                return false;
            }
            break;
        }
        self.task = None;
        true
    }
}

/// The desks at which a link's peer may help to read.
pub struct Readers {
    desks: [Reader; DESKS],
    /// So many tasks are not laid on any after one with which nobody helped, and so many more.
    pause: u32,
    paused: u32,
}

impl Readers {
    /// From all of a direction.
    pub fn new(desks: [Reader; DESKS]) -> Self {
        Self { desks, pause: 0, paused: 0 }
    }

    /// Whether a task can be laid on one now.
    pub fn take(&self) -> bool {
        self.desks.iter().any(|desk| desk.takes())
    }

    /// Lays a task on one of them, as [`Reader::lay`] does: which. None: it is done without help, since it is short, or nobody has come by lately.
    pub fn lay(&mut self, send: OpId, to: *mut u8, len: usize) -> Option<usize> {
        let at = self.desks.iter().position(Reader::takes)?;
        if len < LEAST || self.paused > 0 {
            self.paused = self.paused.saturating_sub(1);
            return None;
        }
        self.desks[at].lay(send, to, len);
        Some(at)
    }

    /// [`Reader::next`] at one of them.
    pub fn next(&mut self, at: usize, all: bool) -> Next {
        let helped = self.desks[at].is_helped();
        let next = self.desks[at].next(all);
        if next == Next::Over {
            if helped {
                self.pause = 0;
            } else if !self.desks.iter().any(Reader::is_helped) {
                self.pause = (2 * self.pause + 1).min(LONGEST_PAUSE);
                self.paused = self.pause;
            }
        }
        next
    }

    /// One of them.
    pub fn at(&mut self, desk: usize) -> &mut Reader {
        &mut self.desks[desk]
    }

    /// [`Reader::withdraw`] of some. False: it is to be asked again.
    pub fn withdraw(&mut self, desks: Range<usize>) -> bool {
        self.desks[desks].iter_mut().fold(true, |over, desk| desk.withdraw() & over)
    }
}

/// A part of a task, for its helper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Of which of its sends.
    pub send: OpId,
    /// From which byte.
    pub offset: u64,
    /// Where that byte goes, in the reader's process.
    pub to: u64,
    /// How many.
    pub len: usize,
}

/// The end of who helps.
pub struct Helper {
    desk: Desk,
    /// The task of the last part, how much of it was copied, and whether it is given up.
    number: u32,
    copied: u16,
    given_up: bool,
}

impl Helper {
    /// Whether there is something to take, of which the reader has taken nothing.
    pub fn is_whole(&self) -> bool {
        self.is_asked() && self.desk.claims().front == 0
    }

    /// Whether there is something to take.
    pub fn is_asked(&self) -> bool {
        let claims = self.desk.claims();
        claims.left() > 0 && !(self.given_up && claims.task == self.number)
    }

    /// Takes a part, has it copied, and says so. How many bytes; none if there is nothing to take. False of `copy`: that it cannot be.
    pub fn help(&mut self, copy: impl FnOnce(Part) -> bool) -> Option<usize> {
        for _ in 0..ATTEMPTS {
            if !self.is_asked() {
                return None;
            }
            let claims = self.desk.claims();
            let [name, to, len, unit] = [0, 1, 2, 3].map(|at| self.desk.task.0[at].load(Acquire));
            let (left, unit_len) = (claims.left(), unit as usize);
            if unit_len > LONGEST_UNIT {
                return None;
            }
            let taken = part(left, unit_len, usize::from(left).saturating_mul(unit_len) <= REST, PART.1);
            let rest = Claims { back: claims.back - taken, ..claims };
            if taken == 0 || !self.desk.exchange(claims, rest) {
                continue;
            }
            if claims.task != self.number {
                (self.number, self.copied, self.given_up) = (claims.task, 0, false);
            }
            let send = OpId { slot: (name >> 32) as u32, generation: name as u32 };
            let offset = u64::from(rest.back).saturating_mul(unit);
            let bytes = u64::from(taken).saturating_mul(unit).min(len.saturating_sub(offset));
            let part = Part { send, offset, to: to.wrapping_add(offset), len: bytes as usize };
            self.given_up = !copy(part);
            self.copied = self.copied.wrapping_add(taken);
            let said = if self.given_up { FAILED } else { self.copied.into() };
            self.desk.done.0.store(u64::from(self.number) << 32 | u64::from(said), Release);
            return (!self.given_up).then_some(part.len);
        }
        None
    }
}

/// The reader's end of a desk.
///
/// # Safety
/// `desk` was all zero when its first end was made, stays mapped, for reading and writing, while `keep` lives, and in no process has another
/// reader's end.
pub unsafe fn reader(desk: NonNull<DeskMemory>, keep: Arc<dyn Any + Send + Sync>) -> Reader {
    Reader { desk: Desk { at: desk, _keep: keep }, number: 0, task: None, damaged: false }
}

/// The helper's end of a desk.
///
/// # Safety
/// As for [`reader`].
pub unsafe fn helper(desk: NonNull<DeskMemory>, keep: Arc<dyn Any + Send + Sync>) -> Helper {
    Helper { desk: Desk { at: desk, _keep: keep }, number: 0, copied: 0, given_up: false }
}
