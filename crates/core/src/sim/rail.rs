//! What a simulated rail does with frames: they queue, they take time, and they overtake each other only where the rail is told to let
//! them.

use super::rng::Rng;

/// Nanoseconds since the simulation began.
pub type Time = u64;
/// A microsecond.
pub const US: Time = 1_000;
/// A millisecond.
pub const MS: Time = 1_000_000;
/// A second.
pub const S: Time = 1_000_000_000;

/// How long `bytes` take at `rate` bytes per second, in nanoseconds.
pub fn duration(bytes: u64, rate: u64) -> Time {
    (u128::from(bytes) * u128::from(S)).div_ceil(u128::from(rate.max(1))) as Time
}

/// One rail between two peers; both directions are alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RailSpec {
    /// From the first bit's departure to its arrival.
    pub latency: Time,
    /// Most additional delay, drawn anew for each frame. Frames of one rail keep their order all the same.
    pub jitter: Time,
    /// Bytes per second.
    pub bandwidth: u64,
    /// Bytes that may wait for departure; beyond that the rail is full. An empty rail takes any one frame.
    pub queue: usize,
    /// Whether payloads that outlast their frame are read from the sender's memory when they depart, rather than copied when they
    /// are accepted.
    pub keeps: bool,
    /// A payload of at least so many bytes is announced by its header before it is all there.
    pub split: usize,
    /// Where the rail carries lanes ([`LaneSpec`](super::LaneSpec)): frames overtake each other, and are then whole. None: they keep their
    /// order.
    pub overtaking: Option<Overtaking>,
}

/// How frames come out of order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overtaking {
    /// Of a hundred frames so many are lost on their way, and arrive when they have been sent again.
    pub lost: u8,
    /// How long that takes.
    pub again: Time,
}

impl RailSpec {
    /// Ethernet, roughly: 10 us, 10 Gb/s.
    pub const ETHERNET: Self = Self {
        latency: 10 * US,
        jitter: 0,
        bandwidth: 1_250_000_000,
        queue: 1 << 20,
        keeps: true,
        split: 1 << 14,
        overtaking: None,
    };
    /// Shared memory, roughly: 200 ns, 8 GB/s, a ring of 256 KiB that what is sent is copied into.
    pub const SHM: Self = Self {
        latency: 200,
        jitter: 0,
        bandwidth: 8_000_000_000,
        queue: 256 << 10,
        keeps: false,
        split: usize::MAX,
        overtaking: None,
    };
}

/// When a frame departs and arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub left: Time,
    pub begins: Time,
    pub ends: Time,
}

/// One direction of a rail.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    pub spec: RailSpec,
    /// Bytes accepted that have not departed.
    pub waiting: usize,
    /// Bytes that have been accepted altogether.
    pub carried: u64,
    free_at: Time,
    last_arrival: Time,
}

impl Wire {
    pub fn new(spec: RailSpec) -> Self {
        Self { spec, waiting: 0, carried: 0, free_at: 0, last_arrival: 0 }
    }

    /// Whether another large frame would soon be on its way.
    pub fn wants_more(&self) -> bool {
        self.waiting <= self.spec.queue / 2
    }

    /// Accepts a frame of `size` bytes; None when the queue is full.
    pub fn accept(&mut self, now: Time, size: usize, rng: &mut Rng) -> Option<Times> {
        if self.waiting > 0 && self.waiting + size > self.spec.queue {
            return None;
        }
        self.waiting += size;
        self.carried += size as u64;
        let departs = self.free_at.max(now);
        let left = departs + duration(size as u64, self.spec.bandwidth);
        let flight = self.spec.latency + rng.below(self.spec.jitter + 1);
        if let Some(overtaking) = self.spec.overtaking {
            self.free_at = left;
            let mut ends = left + flight;
            while rng.chance(overtaking.lost) {
                ends += overtaking.again;
            }
            return Some(Times { left, begins: ends, ends });
        }
        let begins = (departs + flight).max(self.last_arrival);
        let ends = (left + flight).max(begins);
        (self.free_at, self.last_arrival) = (left, ends);
        Some(Times { left, begins, ends })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_queue_take_time_and_keep_their_order() {
        let spec = RailSpec { latency: 100, jitter: 50, bandwidth: S, queue: 30, ..RailSpec::SHM };
        let (mut wire, mut rng) = (Wire::new(spec), Rng::new(1));
        let first = wire.accept(1000, 40, &mut rng).unwrap();
        assert_eq!(first.left, 1040);
        assert!((1100..=1150).contains(&first.begins) && first.ends == first.begins + 40);
        assert!(wire.accept(1000, 1, &mut rng).is_none() && !wire.wants_more());
        wire.waiting -= 40;
        for _ in 0..3 {
            let before = wire.last_arrival;
            let next = wire.accept(1040, 10, &mut rng).unwrap();
            assert!(next.begins >= before && next.ends >= next.begins);
        }
        assert!(wire.accept(1040, 1, &mut rng).is_none());
        assert_eq!((wire.waiting, wire.carried, wire.free_at), (30, 70, 1070));
    }
}
