//! What polling in vain does: first nothing, then it gives the processor away. With more runnable processes than cores, a
//! process that spins keeps the one from running that it waits for.

/// Empty rounds before the processor is given away.
const SPIN: u32 = 200;
/// Rounds with shared-memory traffic alone between two looks at TCP.
const TCP_SELDOM: u32 = 64;
/// Empty looks at TCP after which it counts as quiet.
const TCP_QUIET: u32 = 256;

#[derive(Debug)]
pub(super) struct Idle {
    yielding: bool,
    empty: u32,
    tcp_empty: u32,
    tcp_skipped: u32,
}

impl Idle {
    pub fn new(yielding: bool) -> Self {
        Self { yielding, empty: 0, tcp_empty: 0, tcp_skipped: 0 }
    }

    /// A round is over in which so much moved.
    #[inline]
    pub fn round(&mut self, moved: usize) {
        if moved > 0 {
            self.empty = 0;
            return;
        }
        self.empty += 1;
        if self.empty >= SPIN && self.yielding {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }

    /// TCP was looked at.
    #[inline]
    pub fn tcp(&mut self, busy: bool) {
        self.tcp_empty = if busy { 0 } else { self.tcp_empty.saturating_add(1) };
        self.tcp_skipped = 0;
    }

    /// Whether TCP is to be looked at.
    #[inline]
    pub fn tcp_due(&mut self, _moved: usize) -> bool {
        self.tcp_skipped += 1;
        self.tcp_empty < TCP_QUIET || self.tcp_skipped >= TCP_SELDOM
    }
}
