//! Which lane takes what is next.

use super::MS;
use super::estimate::LEAST_SLICE;
use super::share::{Load, fastest, finish};

/// A lane whose part is less than this leaves it to the others, in bytes.
const LEAST_PART: u64 = 8 << 10;
/// A lane that holds at least so many bytes, and needs longer than so many nanoseconds for them, is late if another can do better.
const LATE: (u64, u64) = (2 * LEAST_SLICE, 250 * MS);
/// Another lane is chosen if it delivers earlier by this much: one part in so many, and nanoseconds.
const BETTER: (u64, u64) = (8, 20_000);
/// Nor does it count if the lane in use holds so much, in nanoseconds: a stream of small messages always leaves some behind, and
/// each that changes lanes is one for which the receiver has to restore the order.
pub const USUAL: u64 = 100_000;

/// The lane that delivers `len` bytes first; the one in use, `stays`, unless another is clearly better and may be taken. `leaves` says
/// that it may, and how many nanoseconds of what the lane in use holds do not count.
pub fn preferred(loads: &[Load], stays: Option<usize>, leaves: Option<u64>, len: u64) -> Option<usize> {
    let best = fastest(loads, len)?;
    let Some(at) = stays.filter(|at| *at != best) else { return Some(best) };
    let (now, then) = (loads[at].arrival(len), loads[best].arrival(len));
    let better = |usual: u64| {
        let usual = usual.min(now - loads[at].latency);
        now.saturating_sub(then) > then / BETTER.0 + BETTER.1 + usual
    };
    Some(if leaves.is_some_and(better) { best } else { at })
}

/// Which lane takes the next fragment of a long message of which `left` bytes have not been given to any, and how many bytes it
/// takes. `room` says how many a lane takes at most now ([`Estimate::room`](super::Estimate::room)). None: better wait.
pub fn next_part(loads: &[Load], left: u64, room: impl Fn(usize) -> u64) -> Option<(usize, u64)> {
    let end = finish(loads, left);
    let part = |at: usize| loads[at].share(end).min(left);
    if (0..loads.len()).all(|at| part(at) < LEAST_PART) {
        // the last bytes are hardly worth dividing
        let at = fastest(loads, LEAST_PART.min(left))?;
        let len = LEAST_PART.min(left).min(room(at));
        return (len > 0).then_some((at, len));
    }
    let rooms = (0..loads.len()).map(|at| (at, part(at).min(room(at))));
    rooms.filter(|(at, len)| *len > 0 && part(*at) >= LEAST_PART).min_by_key(|(at, _)| loads[*at].arrival(0))
}

/// Whether a lane has become so slow that what it holds should rather go by the others: it needs too long for that, and they, with
/// what they hold, would be through with it in a fourth of the time.
pub fn is_late(loads: &[Load], at: usize) -> bool {
    let lane = loads[at];
    let takes = lane.arrival(0);
    let others = loads.iter().enumerate().filter(|(i, _)| *i != at);
    lane.queued >= LATE.0
        && takes > LATE.1 + 8 * lane.latency
        && others.into_iter().any(|(_, other)| other.arrival(lane.queued) < takes / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: u64 = 125_000_000;

    fn lane(rate: u64, latency: u64, queued: u64) -> Load {
        Load { rate, latency, queued }
    }

    #[test]
    fn the_lane_in_use_stays_unless_another_is_clearly_better() {
        let loads = [lane(GIGABIT, MS, 0), lane(GIGABIT, MS / 2, 0)];
        assert_eq!(preferred(&loads, None, Some(USUAL), 0), Some(1));
        assert_eq!(preferred(&loads, Some(0), Some(USUAL), 0), Some(1));
        assert_eq!(preferred(&loads, Some(0), None, 0), Some(0), "it may not be left");
        assert_eq!(
            preferred(&[lane(GIGABIT, MS, 0), lane(GIGABIT, MS - MS / 20, 0)], Some(0), Some(USUAL), 0),
            Some(0)
        );
        let queued = |bytes| [lane(GIGABIT, MS / 10, bytes), lane(GIGABIT, MS / 10, 0)];
        assert_eq!(preferred(&queued(10_000), Some(0), Some(USUAL), 0), Some(0), "it is through at once");
        assert_eq!(preferred(&queued(30_000), Some(0), Some(USUAL), 0), Some(1));
        assert_eq!(preferred(&queued(10_000), Some(0), Some(0), 0), Some(1), "what it holds counts");
        assert_eq!(preferred(&[], Some(0), Some(USUAL), 0), None);
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
    fn the_last_bytes_go_by_the_lane_that_is_first_and_it_is_waited_for() {
        let loads = [lane(GIGABIT / 4, 0, 0), lane(GIGABIT, 0, 0), lane(GIGABIT, 0, 0)];
        assert_eq!(next_part(&loads, 10_000, |_| 16 << 10), Some((1, 8 << 10)));
        assert_eq!(next_part(&loads, 1, |_| 16 << 10), Some((1, 1)));
        assert_eq!(next_part(&loads, 1, |at| [16 << 10, 0, 16 << 10][at]), None);
    }

    #[test]
    fn a_lane_is_late_if_it_needs_long_and_another_does_not() {
        let slow = lane(GIGABIT / 100, 0, 1 << 20);
        assert!(is_late(&[lane(GIGABIT, 0, 1 << 20), slow], 1));
        assert!(!is_late(&[lane(GIGABIT, 0, 1 << 20), slow], 0));
        assert!(!is_late(&[slow, slow], 1), "the other is no better");
        assert!(!is_late(&[slow], 0), "there is no other");
        assert!(!is_late(&[lane(GIGABIT, 0, 0), lane(10_000, 0, 10_000)], 1), "it holds hardly anything");
        assert!(!is_late(&[lane(GIGABIT, 0, 0), lane(GIGABIT / 100, 0, 100 << 10)], 1), "it is soon through");
    }

    #[test]
    fn a_lane_that_would_end_later_is_not_asked_though_it_has_room() {
        let loads = [lane(GIGABIT, 0, 1 << 20), lane(GIGABIT / 100, 0, 100_000)];
        assert_eq!(next_part(&loads, 1 << 20, |at| [0, 16 << 10][at]), None);
        assert_eq!(next_part(&loads, 1 << 20, |_| 16 << 10), Some((0, 16 << 10)));
    }
}
