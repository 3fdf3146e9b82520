//! What all lanes of a session get through, slice by slice.

use super::lane::{Lane, Stand};
use super::{Links, Time};
use crate::lanes::S;
use alloc::collections::VecDeque;

/// A window has so many slices; after a change so many pass before one counts, in which connections find their speed.
pub(super) const WINDOW: usize = 6;
pub(super) const SETTLE: u32 = 4;
/// A lane has to bring one part in so many of what lanes bring on average.
const WORTH: u64 = 4;
/// A lane that has moved nothing for so long is not looked at until it is given something.
const IDLE: Time = 2 * S;

/// What got through in one slice, in bytes per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    pub sent: u64,
    pub received: u64,
    /// Of both, what went by lanes on trial; and of what was sent.
    pub on_trial: u64,
    pub sent_on_trial: u64,
    /// There was always more to send.
    pub fed: bool,
}

/// A window's mean, and how much its slices differ from that on average, in bytes per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mean {
    pub rate: u64,
    pub varies: u64,
}

impl Mean {
    fn of(rates: impl Iterator<Item = u64> + Clone) -> Self {
        let count = rates.clone().count().max(1) as u64;
        let rate = rates.clone().sum::<u64>() / count;
        Self { rate, varies: rates.map(|one| one.abs_diff(rate)).sum::<u64>() / count }
    }

    /// What one of so many lanes has to bring.
    pub fn worth(&self, lanes: usize) -> u64 {
        self.rate / (WORTH * lanes.max(1) as u64)
    }
}

/// Pauses that grow, in slices.
#[derive(Debug)]
pub(super) struct Pause {
    pub next: Time,
    pub pause: u64,
}

impl Pause {
    pub fn new(pause: u64) -> Self {
        Self::after(0, pause)
    }

    pub fn after(next: Time, pause: u64) -> Self {
        Self { next, pause }
    }

    pub fn grow(&mut self, now: Time, slice: Time, most: u64) {
        self.next = now + self.pause * slice;
        self.pause = (2 * self.pause).min(most);
    }
}

/// What is being measured.
#[derive(Debug)]
pub(super) struct Gauge {
    window: VecDeque<Slice>,
    /// So many slices pass before one counts.
    skip: u32,
    /// When this slice began; looks since, and those that found too little to send.
    began: Time,
    looks: u32,
    hungry: u32,
}

impl Default for Gauge {
    fn default() -> Self {
        Self { window: VecDeque::new(), skip: SETTLE, began: 0, looks: 0, hungry: 0 }
    }
}

impl Gauge {
    /// What was measured so far says nothing of what is now.
    pub fn settle(&mut self) {
        self.window.clear();
        self.skip = SETTLE;
    }

    pub fn total(&self) -> Mean {
        Mean::of(self.window.iter().map(|one| one.sent + one.received))
    }

    pub fn on_trial(&self) -> Mean {
        Mean::of(self.window.iter().map(|one| one.on_trial))
    }

    pub fn sent_on_trial(&self) -> Mean {
        Mean::of(self.window.iter().map(|one| one.sent_on_trial))
    }

    /// What the lanes got through that are not on trial.
    pub fn others(&self) -> Mean {
        Mean::of(self.window.iter().map(|one| (one.sent + one.received).saturating_sub(one.on_trial)))
    }

    pub fn sent(&self) -> Mean {
        Mean::of(self.window.iter().map(|one| one.sent))
    }

    /// A look, between slices, in which the lanes held so much that they were fed, or not; since when this slice lasts.
    pub fn look(&mut self, fed: bool) -> Time {
        self.looks += 1;
        self.hungry += u32::from(!fed);
        self.began
    }

    /// Ends a slice that took so long.
    pub fn end_slice<L: Copy>(
        &mut self,
        now: Time,
        took: Time,
        lanes: &mut [Lane<L>],
        links: &impl Links<L>,
    ) -> Slice {
        let (mut sent, mut received, mut on_trial, mut sent_on_trial) = (0, 0, 0, 0);
        for lane in lanes {
            // to look at all connections of a process that stand still would be a waste; who receives much says something at least
            // at its beginning
            let given = links.given(lane.link);
            if given != lane.counted.2 || lane.queued > 0 {
                lane.moved = now;
            } else if now > lane.moved + IDLE {
                continue;
            }
            let Some(seen) = links.look(lane.link) else { continue };
            let before = core::mem::replace(&mut lane.counted, (seen.delivered, seen.received, given));
            let gained = (seen.delivered.saturating_sub(before.0), seen.received.saturating_sub(before.1));
            if gained.1 > 0 {
                lane.moved = now;
            }
            sent += gained.0;
            received += gained.1;
            if lane.stand == Stand::Trial {
                on_trial += gained.0 + gained.1;
                sent_on_trial += gained.0;
            }
        }
        let rate = |bytes: u64| (u128::from(bytes) * u128::from(S) / u128::from(took.max(1))) as u64;
        let fed = 2 * self.hungry <= self.looks;
        (self.began, self.looks, self.hungry) = (now, 0, 0);
        Slice {
            sent: rate(sent),
            received: rate(received),
            on_trial: rate(on_trial),
            sent_on_trial: rate(sent_on_trial),
            fed,
        }
    }

    /// Takes a slice in which much was moved. True: that completes a window.
    pub fn take(&mut self, slice: Slice) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.window.push_back(slice);
        if self.window.len() > WINDOW {
            self.window.pop_front();
        }
        self.window.len() == WINDOW
    }

    /// Whether there was always more to send.
    pub fn is_fed(&self) -> bool {
        self.window.iter().all(|one| one.fed)
    }
}
