//! Waiting for other threads of this process.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

use crate::{icv, sys};

/// Whether waiting threads may spin: while there are as many processors as threads.
static SPIN: AtomicBool = AtomicBool::new(false);

/// Says how many threads there are from now on.
pub fn threads(count: usize) {
    SPIN.store(count <= icv::processors(), Relaxed);
}

/// Waits until `word` is no longer `value`.
pub fn until_not(word: &AtomicU32, value: u32) {
    let spins = if SPIN.load(Relaxed) { 2000 } else { 0 };
    for _ in 0..spins {
        if word.load(Acquire) != value {
            return;
        }
        spin_loop();
    }
    while word.load(Acquire) == value {
        sys::wait(word, value);
    }
}

/// A barrier within the process, whose last thread does something before all go on.
pub struct Gate {
    arrived: AtomicU32,
    phase: AtomicU32,
}

impl Gate {
    /// Nobody has arrived.
    pub const fn new() -> Self {
        Self { arrived: AtomicU32::new(0), phase: AtomicU32::new(0) }
    }
    /// Waits for `threads` in all; the last to come calls `last`.
    pub fn pass(&self, threads: usize, last: impl FnOnce()) {
        let phase = self.phase.load(Acquire);
        if self.arrived.fetch_add(1, AcqRel) as usize + 1 == threads {
            last();
            self.arrived.store(0, Relaxed);
            self.phase.store(phase.wrapping_add(1), Release);
            if threads > 1 {
                sys::wake(&self.phase, u32::MAX);
            }
        } else {
            until_not(&self.phase, phase);
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
    /// Gives it back; any thread may.
    pub fn unlock(&self) {
        if self.0.swap(0, Release) == 2 {
            sys::wake(&self.0, 1);
        }
    }
}
