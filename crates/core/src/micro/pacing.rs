//! Pacing: datagrams leave at the path's rate rather than at once.

use super::{Fate, MicroProtocol, NEVER, Sent, Shared, Time};

/// So long, in seconds, is made up for when nobody asked in time: programs compute, and processors have other work.
const SLEEP: f64 = 8e-3;
/// So many datagrams leave at once after there was nothing to send (RFC 9002, 7.7), and may always.
const BURST: u64 = 10;
/// Who has to wait is asked again when what leaves in so long, in seconds, or in such a part of a round trip up to so long, may leave,
/// since each time costs a system call and mostly waking up, too; but neither less than so many datagrams, nor more than so many bytes (send_quantum:
/// draft-ietf-ccwg-bbr, 5.6.3).
const QUANTUM: (f64, f64, f64) = (250e-6, 0.03, 1e-3);
const LEAST: u64 = 2;
const MOST: f64 = 65_536.0;

/// A bucket of bytes that fills at the pace: the controller's, or where it has none a little more than a window in a round trip
/// (RFC 9002, 7.7).
#[derive(Debug, Default)]
pub struct Pacing {
    /// Bytes that may leave.
    room: f64,
    filled: Time,
}

/// Bytes per second; 0: as fast as it goes.
fn rate(shared: &Shared) -> f64 {
    match (shared.pace, shared.rtt.smoothed) {
        (0, 0) => 0.0,
        (0, rtt) => {
            let gain = if shared.starting { 2e9 } else { 1.25e9 };
            shared.window as f64 * gain / rtt as f64
        }
        (pace, _) => pace as f64,
    }
}

fn quantum(shared: &Shared, rate: f64) -> f64 {
    let time = (shared.shortest() as f64 * 1e-9 * QUANTUM.1).clamp(QUANTUM.0, QUANTUM.2);
    (rate * time).min(MOST).max((LEAST * u64::from(shared.size)) as f64)
}

impl Pacing {
    /// Bytes that may leave now, if none were too many.
    fn filled(&self, shared: &Shared, rate: f64) -> f64 {
        self.room + rate * shared.now.saturating_sub(self.filled) as f64 * 1e-9
    }

    /// Most that may leave at once.
    fn most(&self, shared: &Shared, rate: f64) -> f64 {
        // time in which there was nothing to send is not made up for
        let slept = if shared.dry_at >= self.filled { 0.0 } else { rate * SLEEP };
        slept.max((BURST * u64::from(shared.size)) as f64).max(quantum(shared, rate))
    }
}

impl MicroProtocol for Pacing {
    const NAME: &'static str = "Pacing";

    fn open(&mut self, shared: &mut Shared) {
        (self.room, self.filled) = ((BURST * u64::from(shared.size)) as f64, shared.now);
    }

    fn allows(&self, shared: &Shared, size: u32) -> bool {
        // a burst is more than a datagram: what is most that may leave does not matter
        let size = f64::from(size);
        if self.room >= size {
            return true;
        }
        let rate = rate(shared);
        rate == 0.0 || self.filled(shared, rate) >= size
    }

    fn sent(&mut self, shared: &mut Shared, sent: &Sent) {
        let rate = rate(shared);
        if rate > 0.0 && sent.fate == Fate::Flying && !sent.probes_path {
            let room = self.filled(shared, rate).min(self.most(shared, rate));
            self.room = (room - f64::from(sent.size)).max(0.0);
            self.filled = shared.now;
        }
    }

    fn due(&self, shared: &Shared) -> Time {
        let rate = rate(shared);
        if rate == 0.0 || !shared.has_data() || shared.flight.bytes() + u64::from(shared.size) > shared.window
        {
            return NEVER;
        }
        let missing = (quantum(shared, rate) - self.room).max(0.0);
        // rounded up, so that it does leave then
        self.filled + (missing * 1e9 / rate) as Time + 1
    }
}
