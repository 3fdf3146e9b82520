//! What a caller does between polling in vain and polling again: nothing, then he waits; or something else, then he works, and looks now and then
//! whether something came.

use std::time::{Duration, Instant};

/// Who takes so long from one round in vain to the next, in the mean of so many, does something else between them. MPIs that wait take 0.1 to
/// 0.3 us, and up to 1 us where they give way themselves and nobody else runs. A mean, as who works may ask for several messages after one another.
pub const OTHERWISE: Duration = Duration::from_nanos(1500);
pub const WINDOW: u32 = 8;

/// What the rounds in vain tell that were since the last message and the last sleep.
#[derive(Debug, Default)]
pub struct Between {
    /// When a round was timed last, its number, and that of the last that was not in vain.
    last: Option<(Instant, u64, u64)>,
    /// It slept since then: what is done first takes longer than else.
    slept: bool,
    /// Times between rounds: how many, the rounds that they go over, as some are not timed, and their sum.
    count: u32,
    rounds: u64,
    sum: Duration,
    works: Option<bool>,
}

impl Between {
    /// Whether the caller works between them, if that is known.
    pub fn works(&self) -> Option<bool> {
        self.works
    }

    /// How long ago the last one was timed, or its sleep ended, if there was one since that which was not in vain.
    pub fn gap(&self, now: Instant, began: u64) -> Option<Duration> {
        self.last.filter(|(.., since)| *since == began).map(|(then, ..)| now - then)
    }

    /// A round in vain; the last that was not, was that one. `counts`: the time since the last one was the caller's own.
    #[inline]
    pub fn round(&mut self, now: Instant, round: u64, began: u64, counts: bool) {
        match self.last.replace((now, round, began)) {
            Some((then, at, since)) if since == began => {
                if counts && !std::mem::take(&mut self.slept) {
                    self.sum += now - then;
                    self.rounds += round.saturating_sub(at);
                    self.count += 1;
                }
            }
            _ => *self = Self { last: self.last, ..Self::default() },
        }
        if self.count >= WINDOW {
            let rounds = u32::try_from(self.rounds).unwrap_or(u32::MAX);
            self.works = Some(self.sum >= OTHERWISE.saturating_mul(rounds));
            (self.count, self.rounds, self.sum) = (0, 0, Duration::ZERO);
        }
    }

    /// After a sleep.
    pub fn slept(&mut self, now: Instant) {
        let last = self.last.map(|(_, round, began)| (now, round, began));
        *self = Self { last, slept: true, ..Self::default() };
    }
}
