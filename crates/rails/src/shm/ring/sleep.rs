//! Who sleeps says so in a word; who sends looks at it. See the ring's page on sleep.

use super::memory::Sleep;
use crate::primitive::{Ordering::*, fence, light_barrier, membarrier_registered as registered};

// A sleep word: whether heavy barriers of its owner reach others, whether the owner sleeps (or is about to), and above
// these the number of sleeps.
const REMOTE: u32 = 1;
const ARMED: u32 = 2;

/// The owner of a sleep word.
pub(super) struct Sleeper(u32);

impl Sleeper {
    pub(super) fn new(word: &Sleep) -> Sleeper {
        let state = if registered() { REMOTE } else { 0 };
        word.state.store(state, Relaxed);
        Sleeper(state)
    }

    pub(super) fn set(&mut self, word: &Sleep, armed: bool) {
        if (self.0 & ARMED != 0) != armed {
            // Disarming carries into the count above.
            self.0 = self.0.wrapping_add(ARMED);
            word.state.store(self.0, Release);
        }
    }
}

/// The other side of a sleep word.
pub(super) struct Waker {
    /// Both sides take part in membarrier, so that the sleeper's barrier is ours too.
    pub(super) remote: bool,
    /// The sleep that was rung for.
    rung: u32,
    /// What the word said when it was last looked into and asked for nothing; more than a word holds before that.
    calm: u64,
}

impl Waker {
    pub(super) fn new() -> Waker {
        Waker { remote: false, rung: 0, calm: u64::MAX }
    }

    /// The place that is to be marked on the owner's board, if it is: once per sleep.
    #[inline(always)]
    pub(super) fn must_ring(&mut self, word: &Sleep) -> Option<u32> {
        light_barrier(self.remote);
        let state = word.state.load(Relaxed);
        if u64::from(state) == self.calm { None } else { self.hear(word, state) }
    }

    #[cold]
    fn hear(&mut self, word: &Sleep, state: u32) -> Option<u32> {
        if state & ARMED == 0 {
            // the owner sets its flag before its first sleep, so that every sleep from now on comes with its barrier
            self.remote = state & REMOTE != 0 && registered();
            self.calm = state.into();
            return None;
        }
        if state == self.rung {
            return None;
        }
        self.rung = state;
        fence(Acquire);
        Some(word.place.load(Relaxed))
    }
}
