//! TCPNewRenoCongestionAvoidance: the window of TCP NewReno.

use super::congestion::{Events, first_window, least_window};
use super::{MicroProtocol, Settled, Shared};

/// Slow start, congestion avoidance and one halving for each round trip with losses (RFC 5681, RFC 6582; as RFC 9002, 7, has it).
#[derive(Debug, Default)]
pub struct TCPNewRenoCongestionAvoidance {
    threshold: u64,
    events: Events,
    grown: u64,
    before: Option<(u64, u64)>,
}

impl TCPNewRenoCongestionAvoidance {
    fn grow(&mut self, shared: &mut Shared, acked: u64) {
        if shared.window < self.threshold {
            shared.window += acked;
            return;
        }
        self.grown += acked;
        if self.grown >= shared.window {
            self.grown -= shared.window;
            shared.window += u64::from(shared.size);
        }
    }
}

impl MicroProtocol for TCPNewRenoCongestionAvoidance {
    const NAME: &'static str = "TCPNewRenoCongestionAvoidance";

    fn open(&mut self, shared: &mut Shared) {
        self.threshold = u64::MAX;
        shared.window = first_window(shared);
        shared.starting = true;
    }

    fn settled(&mut self, shared: &mut Shared, settled: &Settled) {
        let least = least_window(shared);
        if settled.undone
            && let Some((window, threshold)) = self.before.take()
        {
            (shared.window, self.threshold) = (window.max(shared.window), threshold);
        }
        if self.events.begins(shared, settled) {
            self.before = Some((shared.window, self.threshold));
            shared.window = (shared.window / 2).max(least);
            (self.threshold, self.grown) = (shared.window, 0);
        }
        if settled.persistent {
            shared.window = least;
            self.events.forget();
        } else if self.events.grows(shared, settled) {
            self.grow(shared, settled.acked);
        }
        shared.starting = shared.window < self.threshold;
    }
}
