//! DCCPWindowCongestionControl: the window of DCCP's CCID 2, counted in datagrams.

use super::congestion::Events;
use super::{Fate, MicroProtocol, Sent, Settled, Shared};

/// The first window in bytes, of at least 2 and at most 4 datagrams (RFC 4341, 5, by RFC 3390).
const FIRST: u64 = 4380;

/// CCID 2 (RFC 4341): TCP's control without its reliability. It counts datagrams, not bytes, since a value that is overtaken is not
/// sent again; what is on their way is the *pipe*, and it holds the gate itself.
#[derive(Debug, Default)]
pub struct DCCPWindowCongestionControl {
    /// Datagrams that may be on their way.
    window: u64,
    threshold: u64,
    /// Datagrams that are.
    pipe: u64,
    /// The most that were since the last acknowledgement: it grows only if it is in use, whatever bytes that were.
    most: u64,
    events: Events,
    acked: u64,
    grown: u64,
    before: Option<(u64, u64)>,
}

impl DCCPWindowCongestionControl {
    fn grow(&mut self, acked: u64) {
        if self.window < self.threshold {
            self.window += acked;
            return;
        }
        self.grown += acked;
        if self.grown >= self.window {
            self.grown -= self.window;
            self.window += 1;
        }
    }
}

impl MicroProtocol for DCCPWindowCongestionControl {
    const NAME: &'static str = "DCCPWindowCongestionControl";

    fn open(&mut self, shared: &mut Shared) {
        let size = u64::from(shared.size);
        self.window = (FIRST / size).clamp(2, 4).max(shared.known_flight / size);
        self.threshold = u64::MAX;
        (shared.window, shared.starting) = (self.window * size, true);
    }

    fn allows(&self, _shared: &Shared, _size: u32) -> bool {
        self.pipe < self.window
    }

    fn sent(&mut self, _shared: &mut Shared, sent: &Sent) {
        self.pipe += u64::from(sent.fate == Fate::Flying && !sent.probes_path);
        self.most = self.most.max(self.pipe);
    }

    fn acked(&mut self, _shared: &mut Shared, sent: &Sent) {
        if sent.fate == Fate::Flying && !sent.probes_path {
            self.pipe -= 1;
            self.acked += 1;
        }
    }

    fn lost(&mut self, _shared: &mut Shared, sent: &Sent) {
        self.pipe -= u64::from(!sent.probes_path);
    }

    fn settled(&mut self, shared: &mut Shared, settled: &Settled) {
        if settled.undone
            && let Some((window, threshold)) = self.before.take()
        {
            (self.window, self.threshold) = (window.max(self.window), threshold);
        }
        let acked = core::mem::take(&mut self.acked);
        let most = core::mem::replace(&mut self.most, self.pipe);
        if self.events.begins(shared, settled) {
            self.before = Some((self.window, self.threshold));
            self.window = (self.window / 2).max(1);
            (self.threshold, self.grown) = (self.window.max(2), 0);
        }
        if settled.persistent {
            self.window = 1;
            self.events.forget();
        } else if self.events.over(settled) && 2 * most > self.window {
            self.grow(acked);
        }
        shared.window = self.window * u64::from(shared.size);
        shared.starting = self.window < self.threshold;
    }
}

#[cfg(test)]
mod tests {
    use super::super::delivery::Mark;
    use super::super::{Segment, Time};
    use super::*;

    fn sent(number: u64, at: Time, fate: Fate) -> Sent {
        let (segment, mark) = (Segment::default(), Mark::default());
        Sent { number, at, size: 1000, segment, probes_path: false, fate, mark }
    }

    /// A window's datagrams leave, and all of them come.
    fn round(one: &mut DCCPWindowCongestionControl, shared: &mut Shared) {
        shared.now += 10;
        let datagrams = one.window;
        (0..datagrams).for_each(|n| one.sent(shared, &sent(n, shared.now, Fate::Flying)));
        assert!(!one.allows(shared, 1000), "the pipe is full");
        (0..datagrams).for_each(|n| one.acked(shared, &sent(n, shared.now, Fate::Flying)));
        let in_flight = datagrams * 1000;
        let settled =
            Settled { acked: in_flight, in_flight, newest_acked_at: shared.now, ..Settled::default() };
        one.settled(shared, &settled);
        assert_eq!(one.pipe, 0);
    }

    #[test]
    fn it_doubles_then_halves_once_and_then_adds_one_each_round() {
        let mut shared = Shared::new(0, 1000, 0, 1 << 30, 0);
        let mut one = DCCPWindowCongestionControl::default();
        one.open(&mut shared);
        assert_eq!(one.window, 4);
        (0..3).for_each(|_| round(&mut one, &mut shared));
        assert_eq!(one.window, 32);
        // two losses of one round, told one after the other
        shared.now = 40;
        for _ in 0..2 {
            one.sent(&mut shared, &sent(0, 35, Fate::Flying));
            one.lost(&mut shared, &sent(0, 35, Fate::Lost));
            one.settled(&mut shared, &Settled { lost: 1000, newest_lost_at: 35, ..Settled::default() });
        }
        assert_eq!((one.window, one.pipe, shared.window), (16, 0, 16_000));
        (0..2).for_each(|_| round(&mut one, &mut shared));
        assert_eq!(one.window, 18);
    }
}
