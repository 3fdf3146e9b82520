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
        if self.events.begins(shared, settled) {
            self.before = Some((self.window, self.threshold));
            self.window = (self.window / 2).max(1);
            (self.threshold, self.grown) = (self.window.max(2), 0);
        }
        if settled.persistent {
            self.window = 1;
            self.events.forget();
        } else if self.events.grows(shared, settled) {
            self.grow(acked);
        }
        shared.window = self.window * u64::from(shared.size);
        shared.starting = self.window < self.threshold;
    }
}
