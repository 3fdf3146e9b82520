//! Who carries what.
//!
//! Lane *i* delivers a byte given to it now after its latency, once what it holds already is through: a message of *n* bytes
//! arrives at `latency + (queued + n) / rate`. The lanes end together if each has got so much that this is the same time *T* for
//! all; lanes that would need longer than *T* for what they hold already get nothing. A rail that is too slow to help is thereby
//! left out, one that is far away gets its bytes early, and nobody needs to say how fast the rails are.

use super::S;

/// What is known of a lane when something is to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// Bytes per second; 0: nothing gets through.
    pub rate: u64,
    /// One way, for a byte when the lane is empty, in nanoseconds.
    pub latency: u64,
    /// Bytes given to it that have not arrived.
    pub queued: u64,
}

impl Load {
    /// When `len` more bytes would have arrived, in nanoseconds from now.
    pub fn arrival(&self, len: u64) -> u64 {
        self.latency.saturating_add(time(self.queued.saturating_add(len), self.rate))
    }

    /// How many more bytes can have arrived at `end`, in nanoseconds from now.
    pub fn share(&self, end: u64) -> u64 {
        bytes(end.saturating_sub(self.latency), self.rate).saturating_sub(self.queued)
    }
}

/// Nanoseconds for so many bytes.
pub(super) fn time(bytes: u64, rate: u64) -> u64 {
    match rate {
        0 => u64::MAX,
        _ => u64::try_from(u128::from(bytes) * u128::from(S) / u128::from(rate)).unwrap_or(u64::MAX),
    }
}

/// Bytes in so many nanoseconds.
pub(super) fn bytes(time: u64, rate: u64) -> u64 {
    u64::try_from(u128::from(time) * u128::from(rate) / u128::from(S)).unwrap_or(u64::MAX)
}

/// The lane that delivers `len` bytes first; the first of those that are equal. None when there is no lane.
pub fn fastest(loads: &[Load], len: u64) -> Option<usize> {
    (0..loads.len()).min_by_key(|&i| loads[i].arrival(len))
}

/// When all of `left` bytes can have arrived if the lanes share them as well as can be, in nanoseconds from now.
pub fn finish(loads: &[Load], left: u64) -> u64 {
    // lanes join in the order in which they would deliver a first byte; each that joins brings the end nearer
    let mut best = u64::MAX;
    for last in loads {
        let from = last.arrival(0);
        let joined = || loads.iter().filter(|lane| lane.rate > 0 && lane.arrival(0) <= from);
        let rate: u128 = joined().map(|lane| u128::from(lane.rate)).sum();
        if rate == 0 {
            continue;
        }
        // sum of rate * (T - latency) - queued = left
        let ahead: u128 = joined()
            .map(|lane| {
                u128::from(lane.rate) * u128::from(lane.latency) + u128::from(lane.queued) * u128::from(S)
            })
            .sum();
        let end = (u128::from(left) * u128::from(S) + ahead).div_ceil(rate);
        best = best.min(u64::try_from(end).unwrap_or(u64::MAX).max(from));
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::MS;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const GIGABIT: u64 = 125_000_000;

    fn lane(rate: u64, latency: u64, queued: u64) -> Load {
        Load { rate, latency, queued }
    }

    fn share(lanes: &[Load], which: usize, left: u64) -> u64 {
        lanes[which].share(finish(lanes, left)).min(left)
    }

    #[test]
    fn equal_lanes_share_equally_and_unequal_ones_by_speed() {
        let equal = [lane(GIGABIT, 0, 0); 4];
        assert_eq!(share(&equal, 2, 4 << 20), 1 << 20);
        let unequal = [lane(GIGABIT, 0, 0), lane(GIGABIT / 4, 0, 0)];
        let slow = share(&unequal, 1, 10 << 20);
        assert!((slow as i64 - (2 << 20)).abs() < 16, "{slow}");
    }

    #[test]
    fn a_lane_that_cannot_help_gets_nothing() {
        // what it holds takes longer than the other lane takes for all
        let lanes = [lane(GIGABIT, 0, 0), lane(GIGABIT / 100, 0, 1 << 20)];
        assert_eq!(share(&lanes, 1, 1 << 20), 0);
        assert_eq!(share(&lanes, 0, 1 << 20), 1 << 20);
        let far = [lane(GIGABIT, 0, 0), lane(GIGABIT, 10 * MS, 0)];
        assert_eq!(share(&far, 1, 1 << 20), 0, "it is through before a byte arrives by the far lane");
        assert!(share(&far, 1, 64 << 20) > 30 << 20);
        let dead = [lane(GIGABIT, 0, 0), lane(0, 0, 0)];
        assert_eq!((share(&dead, 1, 1 << 30), share(&dead, 0, 1 << 30)), (0, 1 << 30));
        assert_eq!(share(&[lane(0, 0, 0)], 0, 7), 0);
    }

    #[test]
    fn the_first_to_deliver_is_chosen_by_queue_and_latency() {
        let lanes = [lane(GIGABIT, 0, 1 << 20), lane(GIGABIT, 5 * MS, 0), lane(GIGABIT, 5 * MS, 0)];
        assert_eq!(fastest(&lanes, 8), Some(1));
        assert_eq!(fastest(&[lane(GIGABIT, 0, 0); 3], 8), Some(0));
        assert_eq!(fastest(&[], 8), None);
    }

    proptest! {
        #[test]
        fn shares_add_up_and_end_together(
            lanes in prop::collection::vec((1u64..5_000_000_000, 0u64..50_000_000, 0u64..8_000_000), 1..16),
            left in 1u64..1 << 34,
        ) {
            let lanes: Vec<Load> = lanes.into_iter().map(|(r, l, q)| lane(r, l, q)).collect();
            let shares: Vec<u64> = (0..lanes.len()).map(|i| share(&lanes, i, left)).collect();
            let sum: u64 = shares.iter().sum();
            // a byte of rounding for each lane, and a nanosecond of each lane's rate
            let slack = lanes.iter().map(|lane| 2 + lane.rate / S).sum::<u64>();
            prop_assert!(sum + slack >= left && sum <= left + slack, "{sum} of {left}");
            let end = finish(&lanes, left);
            for (lane, share) in lanes.iter().zip(&shares) {
                if *share > 0 {
                    prop_assert!(lane.arrival(*share) <= end + 1, "{lane:?} {share} {end}");
                }
            }
        }
    }
}
