//! HyStart++ (RFC 9406): slow start ends when round trips grow, before the queue overflows.

use super::{Settled, Shared, Time};

/// Round trips have grown when they have by an eighth, but by no less and no more than this, in nanoseconds (RFC 9406, 4.3).
const LEAST: Time = 4_000_000;
const MOST: Time = 16_000_000;
/// So many round trips have to be measured in a round.
const SAMPLES: u32 = 8;
/// Growth slows to this part, for so many rounds, in which it may turn out that they had not grown.
const DIVISOR: u64 = 4;
const ROUNDS: u32 = 5;

/// What is measured in slow start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HyStart {
    /// The round ends with the acknowledgement of this number.
    end: u64,
    shortest: Time,
    shortest_before: Time,
    samples: u32,
    /// The shortest round trip when growth was slowed; 0: it is not.
    slowed: Time,
    rounds: u32,
}

impl HyStart {
    /// By how much the window grows; nothing when slow start is over.
    pub fn grow(&mut self, shared: &Shared, settled: &Settled) -> Option<u64> {
        if shared.largest_acked.is_some_and(|largest| largest >= self.end) {
            (self.shortest_before, self.shortest, self.samples) = (self.shortest, 0, 0);
            self.end = shared.flight.next();
            self.rounds += u32::from(self.slowed > 0);
        }
        if settled.rtt > 0 {
            self.shortest = if self.shortest == 0 { settled.rtt } else { self.shortest.min(settled.rtt) };
            self.samples += 1;
        }
        if self.slowed == 0 {
            if self.has_grown() {
                (self.slowed, self.rounds) = (self.shortest, 0);
            }
            return Some(settled.acked);
        }
        if self.samples >= SAMPLES && self.shortest < self.slowed {
            self.slowed = 0;
        } else if self.rounds >= ROUNDS {
            return None;
        }
        Some(settled.acked / DIVISOR)
    }

    fn has_grown(&self) -> bool {
        let more = (self.shortest_before / 8).clamp(LEAST, MOST);
        self.samples >= SAMPLES && self.shortest_before > 0 && self.shortest >= self.shortest_before + more
    }
}
