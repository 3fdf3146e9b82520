//! What a lane can do, learnt from what it does: from bytes that were acknowledged while there were always more to send, and from
//! the round trips that the kernel measures. Nothing is sent in order to measure.

use super::share::Load;
use super::{MS, S};

/// What was seen of a lane at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sample {
    /// When, in nanoseconds of any clock that does not jump.
    pub now: u64,
    /// Bytes that the peer's side has acknowledged, altogether.
    pub delivered: u64,
    /// Bytes that were given to the lane and have not been acknowledged.
    pub queued: u64,
    /// Round trip, smoothed, in nanoseconds; 0: unknown.
    pub rtt: u64,
    /// The shortest round trip lately, in nanoseconds; 0: unknown.
    pub min_rtt: u64,
}

/// Rates are smoothed over so long, and a round trip.
const SMOOTH: u64 = 20 * MS;
/// Between two samples that are nearer than this no rate is read: acknowledgements come in lumps.
const LEAST: u64 = 2 * MS;
/// Samples that are further apart tell nothing of what was between.
const MOST: u64 = 200 * MS;
/// What a lane may hold beyond what is on its way: so long it goes on while nobody looks.
const AHEAD: u64 = 5 * MS;
/// Least and most that a lane may hold, in bytes.
const LEAST_WINDOW: u64 = 256 << 10;
const MOST_WINDOW: u64 = 4 << 20;
/// A lane that holds less than this, in bytes, may have nothing to do.
const BUSY: u64 = 32 << 10;
/// In so long a lane that is not in use is thought to become twice as fast.
const RECOVER: u64 = S;
/// Bytes by which a lane is thought to get through at least, per second: else it would never be tried again.
const LEAST_RATE: u64 = 10_000;

/// What a lane can do, as far as is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Estimate {
    rate: u64,
    /// What it was thought to do at first, or the best that it did.
    hoped: u64,
    measured: bool,
    rtt: u64,
    min_rtt: u64,
    last: Sample,
}

impl Estimate {
    /// Of a lane of which nothing was seen: `rate` is what its interfaces claim, in bytes per second; `rtt` what opening it took,
    /// in nanoseconds.
    pub fn new(rate: u64, rtt: u64) -> Self {
        let rate = rate.max(LEAST_RATE);
        Self { rate, hoped: rate, measured: false, rtt, min_rtt: rtt, last: Sample::default() }
    }

    /// Bytes per second.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// Whether the rate was measured, not only claimed.
    pub fn is_measured(&self) -> bool {
        self.measured
    }

    /// Smoothed round trip, in nanoseconds.
    pub fn rtt(&self) -> u64 {
        self.rtt
    }

    /// Takes in what is seen now.
    pub fn sample(&mut self, sample: Sample) {
        let last = self.last;
        if sample.rtt > 0 {
            self.rtt = sample.rtt;
        }
        if sample.min_rtt > 0 {
            self.min_rtt = sample.min_rtt;
        }
        let took = sample.now.saturating_sub(last.now);
        if took < LEAST {
            return;
        }
        self.last = sample;
        let delivered = sample.delivered.saturating_sub(last.delivered);
        if took > MOST {
            return;
        }
        let seen =
            u64::try_from(u128::from(delivered) * u128::from(S) / u128::from(took)).unwrap_or(u64::MAX);
        // who has little to send shows nothing of what could be sent
        let busy = last.queued >= BUSY && sample.queued >= BUSY;
        if !busy {
            if self.measured && seen > self.rate {
                // it is at least so fast
                self.blend(seen, took);
            } else if self.rate < self.hoped {
                // whoever was slow may have recovered, and is tried again in time
                let more = u128::from(self.rate) * u128::from(took) / u128::from(RECOVER);
                self.rate = self.rate.saturating_add(more as u64).min(self.hoped);
            }
            return;
        }
        if self.measured {
            self.blend(seen, took);
        } else if delivered > 0 {
            (self.rate, self.measured) = (seen.max(LEAST_RATE), true);
        }
        self.hoped = self.hoped.max(self.rate);
    }

    fn blend(&mut self, seen: u64, took: u64) {
        let (rate, over) = (u128::from(self.rate), u128::from(SMOOTH + self.rtt.min(100 * MS) + took));
        let mixed = (rate * (over - u128::from(took)) + u128::from(seen) * u128::from(took)) / over;
        self.rate = u64::try_from(mixed).unwrap_or(u64::MAX).max(LEAST_RATE);
    }

    /// The lane as [`super::share()`] sees it, with so much in it.
    pub fn load(&self, queued: u64) -> Load {
        Load { rate: self.rate, latency: self.min_rtt / 2, queued }
    }

    /// Most bytes that the lane should hold: enough to be busy until somebody looks again, and no more, because what it holds
    /// cannot go another way.
    pub fn window(&self) -> u64 {
        if !self.measured {
            return LEAST_WINDOW;
        }
        let time = self.rtt.saturating_add(AHEAD);
        let bytes = u128::from(self.rate) * u128::from(time) / u128::from(S);
        u64::try_from(bytes).unwrap_or(u64::MAX).clamp(LEAST_WINDOW, MOST_WINDOW)
    }

    /// How many bytes the lane should be given now, if it holds so many already.
    pub fn room(&self, queued: u64) -> u64 {
        if queued < self.window() { self.slice() } else { 0 }
    }

    /// How long a fragment should be, in bytes: about a millisecond of the lane.
    pub fn slice(&self) -> u64 {
        (self.rate / 1000).clamp(16 << 10, 1 << 20)
    }
}
