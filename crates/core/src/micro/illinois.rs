//! Illinois: losses say whether the window grows or shrinks, and the delay in queues by how much (Liu, Basar, Srikant: TCP-Illinois,
//! Performance Evaluation 65, 2008).

use super::congestion::{Events, first_window, least_window};
use super::hystart::HyStart;
use super::{MicroProtocol, Settled, Shared, Time};

/// Datagrams more in a round trip: where there is no queue, and where it is as long as it gets.
const ALPHA: (f64, f64) = (10.0, 0.3);
/// The part that a loss takes: where there is no queue, and where it is long.
const BETA: (f64, f64) = (0.125, 0.5);
/// The same of Reno, for windows of less than so many datagrams.
const RENO: (f64, f64) = (1.0, 0.5);
const SMALL: u64 = 15;
/// Rounds without a queue after which it counts as gone.
const THETA: u32 = 5;
/// Parts of the longest delay in queues: below the first there is none, from the second on a loss takes more, from the third on most.
const PARTS: (f64, f64, f64) = (0.01, 0.1, 0.8);

/// Delays, by rounds.
#[derive(Clone, Copy, Debug, Default)]
struct Delays {
    /// The shortest and the longest round trip.
    shortest: Time,
    longest: Time,
    sum: Time,
    samples: u64,
    /// The round ends with the acknowledgement of this number.
    end: u64,
}

impl Delays {
    fn note(&mut self, rtt: Time) {
        if rtt == 0 {
            return;
        }
        self.shortest = if self.shortest == 0 { rtt } else { self.shortest.min(rtt) };
        self.longest = self.longest.max(rtt);
        (self.sum, self.samples) = (self.sum + rtt, self.samples + 1);
    }

    /// At the end of a round: how long its datagrams waited in queues on average, and how long the longest did ever.
    fn at_end(&mut self, shared: &Shared) -> Option<(f64, f64)> {
        if self.samples == 0 || shared.largest_acked.is_none_or(|largest| largest < self.end) {
            return None;
        }
        let waited = self.sum / self.samples - self.shortest;
        (self.sum, self.samples, self.end) = (0, 0, shared.flight.next());
        Some((waited as f64, (self.longest - self.shortest) as f64))
    }
}

/// Additive increase and multiplicative decrease, with factors by the delay: it fills long fat paths fast, and gives way before it
/// overflows them.
#[derive(Debug)]
pub struct Illinois {
    alpha: f64,
    beta: f64,
    delays: Delays,
    /// There was a queue, and rounds since in which there was none.
    queued: bool,
    empty: u32,
    threshold: u64,
    grown: f64,
    events: Events,
    start: HyStart,
    before: Option<(u64, u64)>,
}

impl Default for Illinois {
    fn default() -> Self {
        Self {
            alpha: RENO.0,
            beta: RENO.1,
            delays: Delays::default(),
            queued: false,
            empty: 0,
            threshold: u64::MAX,
            grown: 0.0,
            events: Events::default(),
            start: HyStart::default(),
            before: None,
        }
    }
}

/// The part that a loss takes at this delay.
fn beta(waited: f64, most: f64) -> f64 {
    let (from, to) = (PARTS.1 * most, PARTS.2 * most);
    if waited <= from {
        BETA.0
    } else if waited >= to {
        BETA.1
    } else {
        BETA.0 + (BETA.1 - BETA.0) * (waited - from) / (to - from)
    }
}

impl Illinois {
    fn alpha(&mut self, waited: f64, most: f64) -> f64 {
        let none = PARTS.0 * most;
        if waited <= none {
            self.empty += 1;
            if self.queued && self.empty < THETA {
                return self.alpha;
            }
            (self.queued, self.empty) = (false, 0);
            return ALPHA.0;
        }
        (self.queued, self.empty) = (true, 0);
        let (waited, most) = (waited - none, most - none);
        most * ALPHA.0 / (most + waited * (ALPHA.0 - ALPHA.1) / ALPHA.1)
    }

    fn adapt(&mut self, shared: &Shared) {
        let Some((waited, most)) = self.delays.at_end(shared) else { return };
        (self.alpha, self.beta) = if shared.window < SMALL * u64::from(shared.size) {
            RENO
        } else {
            (self.alpha(waited, most), beta(waited, most))
        };
    }

    fn grow(&mut self, shared: &mut Shared, settled: &Settled) {
        if shared.window < self.threshold {
            match self.start.grow(shared, settled) {
                Some(more) => shared.window += more,
                None => self.threshold = shared.window,
            }
            return;
        }
        self.grown += self.alpha * settled.acked as f64 * f64::from(shared.size) / shared.window as f64;
        let whole = self.grown as u64;
        shared.window += whole;
        self.grown -= whole as f64;
    }
}

impl MicroProtocol for Illinois {
    const NAME: &'static str = "Illinois";

    fn open(&mut self, shared: &mut Shared) {
        shared.window = first_window(shared);
        shared.starting = true;
    }

    fn settled(&mut self, shared: &mut Shared, settled: &Settled) {
        self.delays.note(settled.rtt);
        if settled.undone
            && let Some((window, threshold)) = self.before.take()
        {
            (shared.window, self.threshold) = (window.max(shared.window), threshold);
        }
        if self.events.begins(shared, settled) {
            self.before = Some((shared.window, self.threshold));
            let left = (shared.window as f64 * (1.0 - self.beta)) as u64;
            shared.window = left.max(least_window(shared));
            (self.threshold, self.grown) = (shared.window, 0.0);
        }
        if settled.persistent {
            shared.window = least_window(shared);
            *self = Self { threshold: self.threshold, ..Self::default() };
        } else if self.events.grows(shared, settled) {
            self.grow(shared, settled);
        }
        self.adapt(shared);
        shared.starting = shared.window < self.threshold;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_queue_makes_growth_slow_and_losses_count() {
        let mut one = Illinois::default();
        assert_eq!((one.alpha(0.0, 100.0), beta(0.0, 100.0)), ALPHA_BETA_EMPTY);
        let (alpha, beta_full) = (one.alpha(100.0, 100.0), beta(100.0, 100.0));
        assert!((alpha - ALPHA.1).abs() < 1e-9, "{alpha}");
        assert_eq!(beta_full, BETA.1);
        assert!((beta(45.0, 100.0) - 0.3125).abs() < 1e-9);
        // a queue that is just gone may come back
        one.alpha = alpha;
        assert_eq!(one.alpha(0.0, 100.0), alpha);
        (0..3).for_each(|_| assert_eq!(one.alpha(0.0, 100.0), alpha));
        assert_eq!(one.alpha(0.0, 100.0), ALPHA.0);
    }

    const ALPHA_BETA_EMPTY: (f64, f64) = (ALPHA.0, BETA.0);
}
