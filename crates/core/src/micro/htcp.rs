//! Htcp: the longer no loss was, the faster the window grows (H-TCP, draft-leith-tcp-htcp-06).

use super::congestion::{Events, first_window, least_window};
use super::hystart::HyStart;
use super::{MicroProtocol, Settled, Shared, Time};

/// So long after an event, in nanoseconds, it grows as Reno does (2.2 there: one second).
const RENO_FOR: Time = 1_000_000_000;
/// What is left after a loss lies between these (2.3).
const BETA: (f64, f64) = (0.5, 0.8);
/// Half is left where the rate has changed by more than this part since the event before (2.3).
const CHANGED: f64 = 0.2;

/// What is known of the path since the last event.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    began: Time,
    /// Bytes that were acknowledged.
    acked: u64,
    longest: Time,
}

/// Growth by the time since the last event, reduction by how much of a round trip is queue.
#[derive(Debug, Default)]
pub struct Htcp {
    interval: Interval,
    /// The shortest round trip.
    shortest: Time,
    /// Bytes per second before the last event; 0: unknown.
    rate: f64,
    /// What is left after a loss.
    beta: f64,
    threshold: u64,
    grown: f64,
    events: Events,
    start: HyStart,
    before: Option<(u64, u64)>,
}

/// Datagrams more in a round trip, so many nanoseconds after the last event, if so much is left after one (2.2).
fn alpha(since: Time, beta: f64) -> f64 {
    let over = since.saturating_sub(RENO_FOR) as f64 / 1e9;
    (2.0 * (1.0 - beta) * (1.0 + 10.0 * over + over * over / 4.0)).max(1.0)
}

impl Htcp {
    /// What is left after a loss (2.3).
    fn beta(&self, rate: f64) -> f64 {
        let steady = (rate - self.rate).abs() <= CHANGED * self.rate;
        if !steady || self.interval.longest == 0 {
            return BETA.0;
        }
        (self.shortest as f64 / self.interval.longest as f64).clamp(BETA.0, BETA.1)
    }

    fn reduce(&mut self, shared: &mut Shared) {
        let took = shared.now.saturating_sub(self.interval.began).max(1);
        let rate = self.interval.acked as f64 * 1e9 / took as f64;
        self.beta = self.beta(rate);
        self.rate = rate;
        self.before = Some((shared.window, self.threshold));
        shared.window = ((shared.window as f64 * self.beta) as u64).max(least_window(shared));
        (self.threshold, self.grown) = (shared.window, 0.0);
        self.interval = Interval { began: shared.now, ..Interval::default() };
    }

    fn grow(&mut self, shared: &mut Shared, settled: &Settled) {
        if shared.window < self.threshold {
            match self.start.grow(shared, settled) {
                Some(more) => shared.window += more,
                None => self.threshold = shared.window,
            }
            return;
        }
        let alpha = alpha(shared.now.saturating_sub(self.interval.began), self.beta);
        self.grown += alpha * settled.acked as f64 * f64::from(shared.size) / shared.window as f64;
        let whole = self.grown as u64;
        shared.window += whole;
        self.grown -= whole as f64;
    }
}

impl MicroProtocol for Htcp {
    const NAME: &'static str = "Htcp";

    fn open(&mut self, shared: &mut Shared) {
        (self.threshold, self.beta) = (u64::MAX, BETA.0);
        self.interval.began = shared.now;
        shared.window = first_window(shared);
        shared.starting = true;
    }

    fn settled(&mut self, shared: &mut Shared, settled: &Settled) {
        if settled.rtt > 0 {
            self.shortest = if self.shortest == 0 { settled.rtt } else { self.shortest.min(settled.rtt) };
            self.interval.longest = self.interval.longest.max(settled.rtt);
        }
        self.interval.acked += settled.acked;
        if settled.undone
            && let Some((window, threshold)) = self.before.take()
        {
            (shared.window, self.threshold) = (window.max(shared.window), threshold);
        }
        if self.events.begins(shared, settled) {
            self.reduce(shared);
        }
        if settled.persistent {
            shared.window = least_window(shared);
            (self.start, self.beta) = (HyStart::default(), BETA.0);
            self.events.forget();
        } else if self.events.grows(shared, settled) {
            self.grow(shared, settled);
        } else if settled.acked > 0 && settled.in_flight * 2 <= shared.window {
            // time in which the window was not in use is none without losses
            self.interval = Interval { began: shared.now, ..Interval::default() };
        }
        shared.starting = shared.window < self.threshold;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_reno_for_a_second_and_then_grows_faster() {
        assert_eq!(alpha(RENO_FOR, 0.5), 1.0);
        assert_eq!(alpha(3 * RENO_FOR, 0.5), 22.0);
        // who falls by less grows by less
        assert!(alpha(3 * RENO_FOR, 0.8) < 9.0);
    }
}
