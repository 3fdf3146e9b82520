//! Figures of the path over some time: the highest rate, the longest burst of acknowledgements, the shortest round trip, rounds.

use super::super::{Settled, Shared, Time};

/// The highest of two intervals: this one and the one before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peak {
    new: u64,
    old: u64,
}

impl Peak {
    pub fn get(&self) -> u64 {
        self.new.max(self.old)
    }

    pub fn note(&mut self, value: u64) {
        self.new = self.new.max(value);
    }

    /// Another interval begins. One without anything does not push out what was.
    pub fn advance(&mut self) {
        if self.new > 0 {
            (self.old, self.new) = (self.new, 0);
        }
    }
}

/// Round trips, by what was delivered (BBR.round: draft, 5.5.1).
#[derive(Clone, Copy, Debug, Default)]
pub struct Rounds {
    end: u64,
    /// How many there were.
    pub count: u64,
    /// One began with this acknowledgement.
    pub begins: bool,
}

impl Rounds {
    /// One begins now.
    pub fn begin(&mut self, shared: &Shared) {
        self.end = shared.delivery.delivered;
    }

    pub fn note(&mut self, shared: &Shared, settled: &Settled) {
        self.begins = settled.sample.prior_delivered >= self.end;
        if self.begins {
            self.begin(shared);
            self.count += 1;
        }
    }
}

/// Nanoseconds for which a shortest round trip is believed (MinRTTFilterLen), and after which it is measured anew
/// (ProbeRTTInterval: draft, 2.13.1).
const BELIEVED: Time = 10_000_000_000;
const FRESH: Time = 5_000_000_000;

/// A round trip that is longer by so small a part is as short.
const SAME: Time = 200;

/// The shortest round trip (draft, 5.3.4.3 and 5.5.7).
#[derive(Clone, Copy, Debug, Default)]
pub struct MinRtt {
    /// In nanoseconds; 0: none is known.
    pub min: Time,
    at: Time,
    recent: Time,
    recent_at: Time,
    /// It is time to measure it with empty queues.
    pub stale: bool,
}

impl MinRtt {
    pub fn note(&mut self, now: Time, rtt: Time) {
        self.stale = self.recent > 0 && now > self.recent_at + FRESH;
        if rtt == 0 {
            return;
        }
        if self.recent == 0 || rtt < self.recent || self.stale {
            (self.recent, self.recent_at) = (rtt, now);
        } else if rtt <= self.recent + self.recent / SAME {
            // the queue is empty again, which is as good as a probe
            self.recent_at = now;
        }
        if self.min == 0 || self.recent < self.min || now > self.at + BELIEVED {
            (self.min, self.at) = (self.recent, self.recent_at);
        }
    }

    /// It was measured.
    pub fn measured(&mut self, now: Time) {
        self.recent_at = now;
    }
}

/// Rounds after which the longest burst of half the filter's time is forgotten (BBR.ExtraAckedFilterLen is 10: draft, 2.10).
const HALF: u64 = 5;

/// How much more is acknowledged at once than the rate explains (BBR.extra_acked: draft, 5.5.9).
#[derive(Clone, Copy, Debug, Default)]
pub struct ExtraAcked {
    since: Time,
    acked: u64,
    most: Peak,
    advanced: u64,
}

impl ExtraAcked {
    /// In bytes.
    pub fn get(&self) -> u64 {
        self.most.get()
    }

    pub fn restart(&mut self, now: Time) {
        (self.since, self.acked) = (now, 0);
    }

    /// So much was acknowledged, at this rate, and no more than the window is believed. In startup, only the last round counts.
    pub fn note(&mut self, now: Time, acked: u64, rate: u64, window: u64, rounds: &Rounds, starting: bool) {
        let mut expected = (now.saturating_sub(self.since) as f64 * rate as f64 / 1e9) as u64;
        if self.acked <= expected {
            self.restart(now);
            expected = 0;
        }
        self.acked += acked;
        let half = if starting { 1 } else { HALF };
        if rounds.count >= self.advanced + half {
            self.advanced = rounds.count;
            self.most.advance();
        }
        self.most.note((self.acked - expected).min(window));
    }
}

/// Whether there is no more bandwidth to find: it has not grown by a quarter in three rounds (draft, 5.3.1.2).
#[derive(Clone, Copy, Debug, Default)]
pub struct FullPipe {
    rate: u64,
    /// In so many it has not grown.
    pub rounds: u32,
    /// It seems so now.
    pub now: bool,
    /// It was so once: startup is over.
    pub reached: bool,
}

impl FullPipe {
    /// It is asked anew, from this rate on.
    pub fn reset(&mut self, rate: u64) {
        (self.rate, self.rounds, self.now) = (rate, 0, false);
    }

    pub fn note(&mut self, rounds: &Rounds, settled: &Settled) {
        let sample = settled.sample;
        if self.now || !rounds.begins || sample.limited || sample.rate == 0 {
            return;
        }
        if sample.rate >= self.rate + self.rate / 4 {
            return self.reset(sample.rate);
        }
        self.rounds += 1;
        self.now = self.rounds >= 3;
        self.reached |= self.now;
    }
}
