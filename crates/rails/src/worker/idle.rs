//! What polling in vain does: at first nothing, then it gives the processor away, then, if that was asked for, it sleeps. With
//! more runnable processes than cores, a process that spins keeps the one from running that it waits for.
//!
//! Sleeping ends with the first message, and after [`NAP`] at the latest. It is asked for (`POLYRAIL_SLEEP_AFTER`) where all of a
//! program's messages come this way, as `polyrail run` arranges it: nobody else could wake the sleeper.

use std::time::{Duration, Instant};

/// Empty rounds before the processor is given away.
const SPIN: u32 = 200;
/// Rounds with shared-memory traffic alone between two looks at TCP.
const TCP_SELDOM: u32 = 64;
/// Empty looks at TCP after which it counts as quiet.
const TCP_QUIET: u32 = 256;
/// Rounds that gave the processor away, after which it is time to see whether peers live: each may have taken many milliseconds
/// where the processor is wanted by others, so that the rail's own count of empty rounds says little.
const YIELDS: u32 = 32;
/// Longest sleep, in milliseconds: a program that waits for something else as well is not kept from it for long.
pub(super) const NAP: i32 = 1;
/// A pause between two rounds after which the caller is not polling, but computing and looking in now and then.
const PAUSE: Duration = Duration::from_micros(50);

#[derive(Debug)]
pub(super) struct Idle {
    yielding: bool,
    sleep_after: Option<Duration>,
    empty: u32,
    yields: u32,
    since: Option<(Instant, Instant)>,
    tcp_empty: u32,
    tcp_skipped: u32,
}

/// What an empty round does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rest {
    Spin,
    Yield,
    Sleep,
}

impl Idle {
    pub fn new(yielding: bool, sleep_after: Option<Duration>) -> Self {
        Self { yielding, sleep_after, empty: 0, yields: 0, since: None, tcp_empty: 0, tcp_skipped: 0 }
    }

    /// Something moved.
    #[inline]
    pub fn busy(&mut self) {
        self.empty = 0;
        self.since = None;
    }

    /// A round was empty.
    #[inline]
    pub fn rest(&mut self) -> Rest {
        self.empty = self.empty.saturating_add(1);
        if self.empty < SPIN || !self.yielding {
            return Rest::Spin;
        }
        let Some(sleep_after) = self.sleep_after else { return Rest::Yield };
        let now = Instant::now();
        match self.since {
            Some((first, last)) if now - last < PAUSE.max(sleep_after) => {
                self.since = Some((first, now));
                if now - first >= sleep_after { Rest::Sleep } else { Rest::Yield }
            }
            _ => {
                self.since = Some((now, now));
                Rest::Yield
            }
        }
    }

    /// The processor was given away; true now and then, when time may have passed unseen.
    pub fn yielded(&mut self) -> bool {
        self.yields = (self.yields + 1) % YIELDS;
        self.yields == 0
    }

    /// TCP was looked at.
    #[inline]
    pub fn tcp(&mut self, busy: bool) {
        self.tcp_empty = if busy { 0 } else { self.tcp_empty.saturating_add(1) };
        self.tcp_skipped = 0;
    }

    /// The program sleeps until something happens, which may be on TCP.
    pub fn sleeps(&mut self) {
        self.tcp_empty = 0;
    }

    /// Whether TCP is to be looked at.
    #[inline]
    pub fn tcp_due(&mut self) -> bool {
        self.tcp_skipped += 1;
        self.tcp_empty < TCP_QUIET || self.tcp_skipped >= TCP_SELDOM
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spins_then_yields_then_sleeps_and_wakes_up_spinning() {
        let mut idle = Idle::new(true, Some(Duration::ZERO));
        assert!((1..SPIN).all(|_| idle.rest() == Rest::Spin));
        assert_eq!(idle.rest(), Rest::Yield);
        // a preemption between two rounds looks like a pause, so this may take a few
        assert!((0..1000).any(|_| idle.rest() == Rest::Sleep));
        idle.busy();
        assert_eq!(idle.rest(), Rest::Spin);
        let mut never = Idle::new(true, None);
        assert!((0..10 * SPIN).all(|_| never.rest() != Rest::Sleep));
        let mut spinner = Idle::new(false, Some(Duration::ZERO));
        assert!((0..10 * SPIN).all(|_| spinner.rest() == Rest::Spin));
    }
}
