//! TCPCongestionAvoidance: the window grows by addition and shrinks by a factor, and that is all.

use super::congestion::{Events, first_window, least_window};
use super::{MicroProtocol, Settled, Shared};

/// Congestion avoidance as P2PSAP's table names it: a datagram more in each round trip, half of it all after a loss (RFC 5681, 3.1),
/// without slow start.
#[derive(Debug, Default)]
pub struct TCPCongestionAvoidance {
    events: Events,
    grown: u64,
    before: Option<u64>,
}

impl MicroProtocol for TCPCongestionAvoidance {
    const NAME: &'static str = "TCPCongestionAvoidance";

    fn open(&mut self, shared: &mut Shared) {
        shared.window = first_window(shared);
        shared.starting = false;
    }

    fn settled(&mut self, shared: &mut Shared, settled: &Settled) {
        if settled.undone
            && let Some(before) = self.before.take()
        {
            shared.window = shared.window.max(before);
        }
        if self.events.begins(shared, settled) {
            self.before = Some(shared.window);
            shared.window = (shared.window / 2).max(least_window(shared));
            self.grown = 0;
        } else if self.events.grows(shared, settled) {
            self.grown += settled.acked;
            if self.grown >= shared.window {
                self.grown -= shared.window;
                shared.window += u64::from(shared.size);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_adds_one_each_round_and_halves() {
        let mut shared = Shared::new(0, 2000, 0, 1 << 30, 0);
        let mut one = TCPCongestionAvoidance::default();
        one.open(&mut shared);
        assert_eq!(shared.window, 20_000);
        let round = |one: &mut TCPCongestionAvoidance, shared: &mut Shared| {
            shared.now += 10;
            let (acked, newest_acked_at) = (shared.window, shared.now);
            let settled = Settled { acked, in_flight: acked, newest_acked_at, ..Settled::default() };
            one.settled(shared, &settled);
        };
        (0..3).for_each(|_| round(&mut one, &mut shared));
        assert_eq!(shared.window, 26_000);
        one.settled(&mut shared, &Settled { lost: 2000, newest_lost_at: 30, ..Settled::default() });
        assert_eq!(shared.window, 13_000);
        // it was only late
        one.settled(&mut shared, &Settled { undone: true, ..Settled::default() });
        assert_eq!(shared.window, 26_000);
    }
}
