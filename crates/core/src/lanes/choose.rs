//! Which lane takes what is next.

use super::share::{Load, fastest, share};

/// A lane whose part is less than this leaves it to the others, in bytes.
const LEAST_PART: u64 = 8 << 10;
/// Another lane is chosen if it delivers earlier by this much: one part in so many, and nanoseconds.
const BETTER: (u64, u64) = (8, 20_000);

/// The lane that delivers `len` bytes first; the one in use, `stays`, unless another is clearly better and may be taken (`free`).
pub fn preferred(loads: &[Load], stays: Option<usize>, free: bool, len: u64) -> Option<usize> {
    let best = fastest(loads, len)?;
    let Some(at) = stays.filter(|at| *at != best) else { return Some(best) };
    let (now, then) = (loads[at].arrival(len), loads[best].arrival(len));
    let better = now.saturating_sub(then) > then / BETTER.0 + BETTER.1;
    Some(if free && better { best } else { at })
}

/// Which lane takes the next fragment of a long message of which `left` bytes have not been given to any, and how many bytes it
/// takes. `room` says how many a lane takes at most now ([`Estimate::room`](super::Estimate::room)). None: better wait.
pub fn next_part(loads: &[Load], left: u64, room: impl Fn(usize) -> u64) -> Option<(usize, u64)> {
    let rooms = (0..loads.len()).map(|at| (at, room(at))).filter(|(_, room)| *room > 0);
    rooms
        .map(|(at, room)| (at, share(loads, at, left), room))
        .filter(|(_, part, _)| *part >= LEAST_PART)
        .min_by_key(|(at, ..)| loads[*at].arrival(0))
        .map(|(at, part, room)| (at, part.min(room)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::MS;

    const GIGABIT: u64 = 125_000_000;

    fn lane(rate: u64, latency: u64, queued: u64) -> Load {
        Load { rate, latency, queued }
    }

    #[test]
    fn the_lane_in_use_stays_unless_another_is_clearly_better() {
        let loads = [lane(GIGABIT, MS, 0), lane(GIGABIT, MS / 2, 0)];
        assert_eq!(preferred(&loads, None, true, 0), Some(1));
        assert_eq!(preferred(&loads, Some(0), true, 0), Some(1));
        assert_eq!(preferred(&loads, Some(0), false, 0), Some(0), "it may not be left");
        assert_eq!(
            preferred(&[lane(GIGABIT, MS, 0), lane(GIGABIT, MS - MS / 20, 0)], Some(0), true, 0),
            Some(0)
        );
        assert_eq!(preferred(&[], Some(0), true, 0), None);
    }

    #[test]
    fn the_emptiest_lane_with_room_takes_a_slice_of_its_part() {
        let loads = [lane(GIGABIT, 0, 100_000), lane(GIGABIT, 0, 50_000), lane(GIGABIT, 0, 0)];
        let room = |at| [125_000, 125_000, 0][at];
        assert_eq!(next_part(&loads, 1 << 30, room), Some((1, 125_000)));
        assert_eq!(next_part(&loads, 1 << 30, |_| 0), None);
        assert_eq!(next_part(&[], 1 << 30, |_| 1), None);
    }

    #[test]
    fn a_lane_that_would_end_later_is_not_asked_though_it_has_room() {
        let loads = [lane(GIGABIT, 0, 1 << 20), lane(GIGABIT / 100, 0, 100_000)];
        assert_eq!(next_part(&loads, 1 << 20, |at| [0, 16 << 10][at]), None);
        assert_eq!(next_part(&loads, 1 << 20, |_| 16 << 10), Some((0, 16 << 10)));
    }
}
