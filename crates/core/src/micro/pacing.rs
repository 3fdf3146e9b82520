//! Pacing: datagrams leave at the path's rate rather than at once.

use super::{Fate, MicroProtocol, NEVER, Sent, Shared, Time};

/// So long, in nanoseconds, may be made up for when nobody asked in time: programs compute, and processors have other work.
const SLEEP: u64 = 2_000_000;
/// So many datagrams may always leave at once.
const BURST: u64 = 16;
/// Who is behind in so many is asked again only when that many may leave: each time costs a system call.
const QUANTUM: u64 = 8;

/// A bucket of bytes that fills at the pace: the controller's, or where it has none a little more than a window in a round trip
/// (RFC 9002, 7.7).
#[derive(Debug, Default)]
pub struct Pacing {
    /// Bytes that may leave.
    room: u64,
    filled: Time,
}

impl Pacing {
    fn rate(shared: &Shared) -> u64 {
        match (shared.pace, shared.rtt.smoothed) {
            (0, 0) => 0,
            (0, rtt) => {
                let gain = if shared.starting { 200 } else { 125 };
                (u128::from(shared.window) * gain * 10_000_000 / u128::from(rtt)).min(u128::from(u64::MAX))
                    as u64
            }
            (pace, _) => pace,
        }
    }

    fn room(&self, shared: &Shared, rate: u64) -> u64 {
        let since = shared.now.saturating_sub(self.filled);
        let fresh = u128::from(rate) * u128::from(since) / 1_000_000_000;
        let most = (u128::from(rate) * u128::from(SLEEP) / 1_000_000_000)
            .max(u128::from(BURST * u64::from(shared.size)));
        (u128::from(self.room) + fresh).min(most) as u64
    }
}

impl MicroProtocol for Pacing {
    const NAME: &'static str = "Pacing";

    fn open(&mut self, shared: &mut Shared) {
        (self.room, self.filled) = (BURST * u64::from(shared.size), shared.now);
    }

    fn allows(&self, shared: &Shared, size: u32) -> bool {
        match Self::rate(shared) {
            0 => true,
            rate => self.room(shared, rate) >= u64::from(size),
        }
    }

    fn sent(&mut self, shared: &mut Shared, sent: &Sent) {
        let rate = Self::rate(shared);
        if rate > 0 && sent.fate == Fate::Flying {
            self.room = self.room(shared, rate).saturating_sub(u64::from(sent.size));
            self.filled = shared.now;
        }
    }

    fn due(&self, shared: &Shared) -> Time {
        let rate = Self::rate(shared);
        let size = u64::from(shared.size);
        if rate == 0 || !shared.has_data() || shared.flight.bytes() + size > shared.window {
            return NEVER;
        }
        let missing = (QUANTUM * size).saturating_sub(self.room);
        self.filled + (u128::from(missing) * 1_000_000_000 / u128::from(rate)) as u64
    }
}
