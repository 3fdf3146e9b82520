//! TCPNewRenoCongestionAvoidance: the window of TCP NewReno.

use super::{MicroProtocol, Settled, Shared, Time};

/// Datagrams that may be on their way at first (RFC 6928), and at least.
pub(super) const FIRST: u64 = 10;
pub(super) const LEAST: u64 = 2;

/// Slow start, congestion avoidance and one halving for each round trip with losses (RFC 5681, RFC 6582; as RFC 9002, 7, has it).
#[derive(Debug, Default)]
pub struct TCPNewRenoCongestionAvoidance {
    threshold: u64,
    /// Losses of what left before this are of the same congestion.
    recovering: Time,
    grown: u64,
    before: Option<(u64, u64)>,
}

impl MicroProtocol for TCPNewRenoCongestionAvoidance {
    const NAME: &'static str = "TCPNewRenoCongestionAvoidance";

    fn open(&mut self, shared: &mut Shared) {
        self.threshold = u64::MAX;
        shared.window = (FIRST * u64::from(shared.size)).max(shared.known_flight);
        shared.starting = true;
    }

    fn settled(&mut self, shared: &mut Shared, settled: &Settled) {
        let least = LEAST * u64::from(shared.size);
        if settled.undone
            && let Some((window, threshold)) = self.before.take()
        {
            (shared.window, self.threshold) = (window.max(shared.window), threshold);
        }
        let news = settled.lost > 0 && settled.newest_lost_at > self.recovering;
        if news || settled.marked > 0 && settled.newest_acked_at > self.recovering {
            self.before = Some((shared.window, self.threshold));
            shared.window = (shared.window / 2).max(least);
            (self.threshold, self.recovering, self.grown) = (shared.window, shared.now, 0);
        }
        if settled.persistent {
            (shared.window, self.recovering) = (least, 0);
        } else if settled.newest_acked_at > self.recovering && settled.in_flight * 2 > shared.window {
            if shared.window < self.threshold {
                shared.window += settled.acked;
            } else {
                self.grown += settled.acked;
                if self.grown >= shared.window {
                    self.grown -= shared.window;
                    shared.window += u64::from(shared.size);
                }
            }
        }
        shared.starting = shared.window < self.threshold;
    }
}
