//! What controllers that go by losses have in common.

use super::{Settled, Shared, Time};

/// Datagrams that may be on their way at first (RFC 6928), and at least.
pub(super) const FIRST: u64 = 10;
pub(super) const LEAST: u64 = 2;

/// Not less than so many bytes at first, though datagrams may still be shorter than they will be (RFC 6928).
const ROUGHLY: u64 = 14_600;

/// The window of a channel that begins.
pub(super) fn first_window(shared: &Shared) -> u64 {
    (FIRST * u64::from(shared.size)).max(ROUGHLY).max(shared.known_flight)
}

/// The least window.
pub(super) fn least_window(shared: &Shared) -> u64 {
    LEAST * u64::from(shared.size)
}

/// Tells congestion events apart: there is one for each round trip with losses or marks (RFC 6582; RFC 9002, 7.3.2; RFC 3168, 6.1.2).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Events {
    /// Losses and marks of what left up to this are of the last one.
    recovering: Time,
    some: bool,
}

impl Events {
    fn later(&self, at: Time) -> bool {
        at > self.recovering || !self.some
    }

    /// Whether another one is met.
    pub fn begins(&mut self, shared: &Shared, settled: &Settled) -> bool {
        let lost = settled.lost > 0 && self.later(settled.newest_lost_at);
        let marked = settled.marked > 0 && self.later(settled.newest_acked_at);
        if lost || marked {
            *self = Self { recovering: shared.now, some: true };
        }
        lost || marked
    }

    /// Whether something was acknowledged that left after the last event.
    pub fn over(&self, settled: &Settled) -> bool {
        settled.acked > 0 && self.later(settled.newest_acked_at)
    }

    /// Whether the window may grow by what was acknowledged: it left after the last event, and the window was in use.
    pub fn grows(&self, shared: &Shared, settled: &Settled) -> bool {
        self.over(settled) && settled.in_flight * 2 > shared.window
    }

    /// Whatever comes next is news.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}
