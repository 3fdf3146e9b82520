//! What a caller does between polling in vain and polling again: nothing, then he waits; or something else, then he works, and looks now and then
//! whether something came.

use std::time::{Duration, Instant};

/// Who takes so long from one round in vain to the next, in the mean, does something else between them. MPIs that wait take 0.1 to 0.3 us, and
/// up to 1 us where they give way themselves and nobody else runs. A mean, as who works may ask for many messages after one another; older
/// rounds count half with each so many.
pub const OTHERWISE: Duration = Duration::from_nanos(1500);
pub const WINDOW: u32 = 8;

/// What the rounds in vain tell that were since the last message and the last sleep.
#[derive(Debug, Default)]
pub struct Between {
    /// When a round ended last, its number, and that of the last that was not in vain.
    last: Option<(Instant, u64, u64)>,
    /// It slept since then: what is done first takes longer than else.
    slept: bool,
    /// Times between rounds, and their sum; those of late, which are as many.
    rounds: u32,
    sum: Duration,
    late: (u32, Duration),
    /// For how long the caller had no processor is known from the beginning of these.
    based: bool,
    works: Option<bool>,
}

impl Between {
    /// Whether the caller works between them, if that is known; the last that was not in vain, was that one.
    pub fn works(&self, began: u64) -> Option<bool> {
        self.works.filter(|_| self.last.is_some_and(|(.., since)| since == began))
    }

    /// How long ago the last one ended, or its sleep, if there was one since that which was not in vain.
    pub fn gap(&self, start: Instant, began: u64) -> Option<Duration> {
        self.last.filter(|(.., since)| *since == began).map(|(end, ..)| start.saturating_duration_since(end))
    }

    /// A round in vain, with its beginning and end; the last that was not, was that one. `counts`: the time since the last one was the caller's
    /// own. True: [`Between::judge`] is due.
    pub fn round(&mut self, start: Instant, end: Instant, round: u64, began: u64, counts: bool) -> bool {
        let gap = self.gap(start, began);
        let follows = self.last.replace((end, round, began)).is_some_and(|(_, at, _)| at + 1 == round);
        match gap {
            None => *self = Self { last: self.last, ..Self::default() },
            Some(gap) if counts && follows && !std::mem::take(&mut self.slept) => {
                self.late = (self.late.0 + 1, self.late.1 + gap);
            }
            Some(_) => {}
        }
        self.late.0 >= WINDOW
    }

    /// Finds out what the caller does; `delay`: for how long he could have run and had no processor, since that was asked last.
    pub fn judge(&mut self, delay: impl FnOnce() -> Duration) {
        let (rounds, sum) = std::mem::take(&mut self.late);
        let mean = |this: &Self| this.sum / this.rounds.max(1);
        (self.rounds, self.sum) = (self.rounds / 2 + rounds, self.sum / 2 + sum);
        if mean(self) < OTHERWISE {
            (self.works, self.based) = (Some(false), false);
            return;
        }
        // or he gives way, and others take the time
        let delay = delay();
        if std::mem::replace(&mut self.based, true) {
            self.sum -= delay.min(sum);
            self.works = Some(mean(self) >= OTHERWISE);
        } else {
            self.works = self.works.filter(|works| *works);
        }
    }

    /// What was known counts no longer.
    pub fn forget(&mut self) {
        *self = Self { last: self.last, ..Self::default() };
    }

    /// The same, after a round in vain for which he was away for so long.
    pub fn begin_anew(&mut self, end: Instant, round: u64, began: u64, away: Duration) {
        *self = Self { last: Some((end, round, began)), late: (1, away), ..Self::default() };
    }

    /// After a sleep.
    pub fn slept(&mut self, now: Instant) {
        self.forget();
        self.slept = true;
        if let Some((end, ..)) = &mut self.last {
            *end = now;
        }
    }
}
