//! LossByTime: what should have come by now, since what left later has, is lost.

use super::{MicroProtocol, NEVER, Sent, Shared, Time};

/// No timer is finer, in nanoseconds.
const GRAIN: Time = 1_000_000;
/// Eighths of a round trip that later datagrams may be ahead, at first (RFC 9002, 6.1.2) and at most.
const EIGHTHS: (u64, u64) = (1, 8);

/// A datagram counts as lost when one that left later has come and so much time has passed, a round trip and some (RACK, RFC 8985; RFC
/// 9002, 6.1.2). Where datagrams were found to be only late it waits longer.
#[derive(Debug)]
pub struct LossByTime {
    eighths: u64,
}

impl Default for LossByTime {
    fn default() -> Self {
        Self { eighths: EIGHTHS.0 }
    }
}

impl LossByTime {
    fn patience(&self, shared: &Shared) -> Time {
        let rtt = shared.rtt.smoothed.max(shared.rtt.latest);
        rtt + (rtt * self.eighths / 8).max(GRAIN)
    }

    fn lose(&self, shared: &mut Shared) {
        let Some(largest) = shared.largest_acked else { return };
        let (now, patience) = (shared.now, self.patience(shared));
        shared.lose(|sent| sent.number < largest && sent.at + patience <= now);
    }
}

impl MicroProtocol for LossByTime {
    const NAME: &'static str = "LossByTime";

    fn detect(&mut self, shared: &mut Shared) {
        self.lose(shared);
    }

    fn timeout(&mut self, shared: &mut Shared) {
        self.lose(shared);
    }

    fn spurious(&mut self, _shared: &mut Shared, _sent: &Sent) {
        self.eighths = (self.eighths + 1).min(EIGHTHS.1);
    }

    fn due(&self, shared: &Shared) -> Time {
        let late = |sent: &&Sent| shared.largest_acked.is_some_and(|largest| sent.number < largest);
        shared.flight.oldest().filter(late).map_or(NEVER, |sent| sent.at + self.patience(shared))
    }
}
