//! Who sleeps says so in a word; who sends looks at it. See the ring's page on sleep.

use crate::primitive::{AtomicU32, Ordering::Relaxed, light_barrier, membarrier_registered as registered};

// A sleep word: whether heavy barriers of its owner reach others, whether the owner sleeps (or is about to), and above
// these the number of sleeps.
const REMOTE: u32 = 1;
const ARMED: u32 = 2;

/// The owner of a sleep word.
pub(super) struct Sleeper(u32);

impl Sleeper {
    pub(super) fn new(word: &AtomicU32) -> Sleeper {
        let state = if registered() { REMOTE } else { 0 };
        word.store(state, Relaxed);
        Sleeper(state)
    }

    pub(super) fn set(&mut self, word: &AtomicU32, armed: bool) {
        if (self.0 & ARMED != 0) != armed {
            // Disarming carries into the count above.
            self.0 = self.0.wrapping_add(ARMED);
            word.store(self.0, Relaxed);
        }
    }
}

/// The other side of a sleep word.
pub(super) struct Waker {
    /// Both sides take part in membarrier, so that the sleeper's barrier is ours too.
    pub(super) remote: bool,
    /// The sleep that was rung for.
    rung: u32,
}

impl Waker {
    pub(super) fn new() -> Waker {
        Waker { remote: false, rung: 0 }
    }

    #[inline]
    pub(super) fn must_ring(&mut self, word: &AtomicU32) -> bool {
        light_barrier(self.remote);
        let state = word.load(Relaxed);
        if state == self.rung || state & ARMED == 0 {
            return self.awake(state);
        }
        self.rung = state;
        true
    }

    #[inline]
    fn awake(&mut self, state: u32) -> bool {
        // The owner sets its flag before its first sleep, so that every sleep from now on comes with its barrier.
        self.remote = state & REMOTE != 0 && (self.remote || registered());
        false
    }
}
