//! Waiting for other threads of this process.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::time::Instant;

use crate::{icv, mapping, sys};

/// Whether waiting threads may spin: while there are as many processors as threads.
static SPIN: AtomicBool = AtomicBool::new(false);

/// Says how many threads there are from now on.
pub fn threads(count: usize) {
    SPIN.store(mapping::may_spin().unwrap_or(count <= icv::processors()), Relaxed);
}

/// A number that threads of this process wait to see changed.
pub struct Word {
    value: AtomicU32,
    sleepers: AtomicU32,
}

impl Word {
    /// With a value.
    pub const fn new(value: u32) -> Self {
        Self { value: AtomicU32::new(value), sleepers: AtomicU32::new(0) }
    }
    /// The value.
    pub fn load(&self) -> u32 {
        self.value.load(Acquire)
    }
    /// Changes it without waking anybody.
    pub fn reset(&self, value: u32) {
        self.value.store(value, Relaxed);
    }
    /// Changes it.
    pub fn set(&self, value: u32) {
        self.value.store(value, SeqCst);
        self.changed();
    }
    /// Adds to it, wrapping.
    pub fn add(&self, value: u32) {
        self.value.fetch_add(value, SeqCst);
        self.changed();
    }
    fn changed(&self) {
        if self.sleepers.load(SeqCst) > 0 {
            sys::wake(&self.value, u32::MAX);
        }
    }
    /// Waits until it is no longer `value`.
    pub fn until_not(&self, value: u32) {
        let spins = SPIN.load(Relaxed);
        let mut begun = None;
        let mut rounds = 0_u32;
        while self.load() == value {
            rounds += 1;
            if spins && (rounds < 1000 || !rounds.is_multiple_of(64)) {
                spin_loop();
            } else if spins && begun.get_or_insert_with(Instant::now).elapsed() < mapping::SPIN {
                sys::pause(0);
            } else {
                self.sleepers.fetch_add(1, SeqCst);
                sys::wait(&self.value, value);
                self.sleepers.fetch_sub(1, SeqCst);
            }
        }
    }
}

/// A barrier within the process, whose last thread does something before all go on.
pub struct Gate {
    arrived: AtomicU32,
    phase: Word,
}

impl Gate {
    /// Nobody has arrived.
    pub const fn new() -> Self {
        Self { arrived: AtomicU32::new(0), phase: Word::new(0) }
    }
    /// Waits for `threads` in all; the last to come calls `last`.
    pub fn pass(&self, threads: usize, last: impl FnOnce()) {
        let phase = self.phase.load();
        if self.arrived.fetch_add(1, AcqRel) as usize + 1 == threads {
            last();
            self.arrived.store(0, Relaxed);
            self.phase.set(phase.wrapping_add(1));
        } else {
            self.phase.until_not(phase);
        }
    }
}

/// A futex's states: free, held, held and waited for.
pub struct Mutex(AtomicU32);

impl Mutex {
    /// Free.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }
    /// Waits until it is this thread's.
    pub fn lock(&self) {
        if self.try_lock() {
            return;
        }
        for _ in 0..if SPIN.load(Relaxed) { 200 } else { 0 } {
            spin_loop();
            if self.0.load(Relaxed) == 0 && self.try_lock() {
                return;
            }
        }
        while self.0.swap(2, Acquire) != 0 {
            sys::wait(&self.0, 2);
        }
    }
    /// Whether it is this thread's now.
    pub fn try_lock(&self) -> bool {
        self.0.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }
    /// Whether a thread has it.
    pub fn is_held(&self) -> bool {
        self.0.load(Relaxed) != 0
    }
    /// Gives it back; any thread may.
    pub fn unlock(&self) {
        if self.0.swap(0, Release) == 2 {
            sys::wake(&self.0, 1);
        }
    }
}
