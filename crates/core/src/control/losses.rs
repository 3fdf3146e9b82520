//! How much a path loses by itself.
//!
//! A queue that is full loses, too, and whoever fills it has to slow down for that. So only times count in which no queue stands:
//! while round trips are hardly longer than the shortest. Where one always stands nothing more is learnt, and what was known stays. Queues of near
//! networks may be too short for that to show; what they lose, they lose at once, and [`Losses::times`] tells how often something was.

use super::Time;

/// So many packets tell something of loss, where so many of them were lost; without losses more have to.
const ENOUGH: (u64, u64, u64) = (20, 3, 20_000);
/// What lies further back than so many packets counts half.
const MEMORY: u64 = 400_000;
/// No queue stands while round trips are no longer than the shortest by so many hundredths, and so many nanoseconds.
const QUEUE: (u64, Time) = (15, 500_000);

/// A look at the queue takes so many of the shortest round trips, and so many nanoseconds, at least: in that time a queue that does not stand
/// is empty once, and what is found to be lost was lost by the same queue.
const LOOK: (u64, Time) = (1, 25_000_000);

/// So many looks' time after a queue stood counts as little: what a queue lost is found out, and sent again, in some round trips.
const AFTER: u64 = 4;

/// What was sent by one path, and what of it the path lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    sent: u64,
    lost: u64,
    /// In how many looks it lost some.
    times: u64,
    /// The same of a look that is under way: since when, and the shortest round trip in it.
    look: (u64, u64),
    began: Time,
    shortest: Time,
    /// When what a queue lost is known.
    known: Time,
}

impl Losses {
    /// So many packets were sent, and so many found to be lost, since this was said last; with the round trip now, and the shortest, in
    /// nanoseconds.
    pub fn add(&mut self, now: Time, (sent, lost): (u64, u64), rtt: Time, min_rtt: Time) {
        if self.look == (0, 0) {
            (self.began, self.shortest) = (now, Time::MAX);
        }
        self.look = (self.look.0 + sent, self.look.1 + lost);
        self.shortest = self.shortest.min(rtt);
        let least = LOOK.1.max(LOOK.0 * min_rtt);
        if self.look == (0, 0) || now < self.began + least {
            return;
        }
        let (sent, lost) = core::mem::take(&mut self.look);
        if self.shortest > min_rtt + min_rtt * QUEUE.0 / 100 + QUEUE.1 {
            self.known = now + AFTER * least;
        }
        if now < self.known {
            return;
        }
        (self.sent, self.lost) = (self.sent + sent, self.lost + lost);
        self.times += u64::from(lost > 0);
        if self.sent > MEMORY {
            (self.sent, self.lost, self.times) = (self.sent / 2, self.lost / 2, self.times / 2);
        }
    }

    /// Without what is under way.
    #[must_use]
    pub fn settled(&self) -> Self {
        Self { sent: self.sent, lost: self.lost, times: self.times, ..Self::default() }
    }

    /// Packets that were sent, and those of them that were lost.
    pub fn counts(&self) -> (u64, u64) {
        (self.sent, self.lost)
    }

    /// In how many looks some were lost.
    pub fn times(&self) -> u64 {
        self.times
    }

    /// Packets that are lost, of a million; none while too few were sent to tell.
    pub fn per_million(&self) -> Option<u32> {
        let tells = self.lost >= ENOUGH.1 && self.sent >= ENOUGH.0 || self.sent >= ENOUGH.2;
        tells.then(|| u32::try_from(self.lost * 1_000_000 / self.sent.max(1)).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Time = 1_000_000;

    /// Looks, one after the other, of so many packets each, of which so many were lost.
    fn looks(losses: &mut Losses, count: u64, each: (u64, u64), rtt: Time) {
        for _ in 0..count {
            let now = losses.began + 26 * MS;
            losses.add(now, each, rtt, 20 * MS);
            losses.add(losses.began + 25 * MS, (0, 0), 2 * rtt, 20 * MS);
        }
    }

    #[test]
    fn few_packets_tell_nothing_but_of_losses() {
        let mut losses = Losses::default();
        looks(&mut losses, 1, (400, 2), 20 * MS);
        assert_eq!(losses.per_million(), None);
        looks(&mut losses, 1, (600, 1), 20 * MS);
        assert_eq!(losses.per_million(), Some(3000));
        let mut many = Losses::default();
        looks(&mut many, 1, (19, 3), 20 * MS);
        assert_eq!(many.per_million(), None);
        looks(&mut many, 1, (1, 0), 20 * MS);
        assert_eq!(many.per_million(), Some(150_000));
        let mut clean = Losses::default();
        looks(&mut clean, 1, (19_999, 0), 20 * MS);
        assert_eq!(clean.per_million(), None);
        looks(&mut clean, 1, (1, 0), 20 * MS);
        assert_eq!(clean.per_million(), Some(0));
    }

    #[test]
    fn what_a_full_queue_loses_does_not_count() {
        let mut losses = Losses::default();
        looks(&mut losses, 100, (3000, 30), 40 * MS);
        assert_eq!(losses.per_million(), None);
    }

    #[test]
    fn what_a_full_queue_lost_is_found_out_when_it_is_empty_and_does_not_count() {
        let mut losses = Losses::default();
        looks(&mut losses, 10, (1000, 0), 30 * MS);
        looks(&mut losses, 3, (1000, 300), 20 * MS);
        assert_eq!(losses.per_million(), None);
        looks(&mut losses, 30, (1000, 0), 20 * MS);
        assert_eq!(losses.per_million(), Some(0));
    }

    #[test]
    fn what_is_lost_at_once_was_lost_once() {
        let mut losses = Losses::default();
        looks(&mut losses, 1, (500, 100), MS);
        looks(&mut losses, 9, (100, 0), MS);
        assert_eq!(losses.times(), 1);
        looks(&mut losses, 2, (1, 1), MS);
        assert_eq!(losses.times(), 3);
    }

    #[test]
    fn a_path_that_begins_to_lose_is_known_soon_after_a_long_time_without() {
        let mut losses = Losses::default();
        looks(&mut losses, 1000, (10_000, 0), 20 * MS);
        looks(&mut losses, 1, (10_000, 10), 20 * MS);
        assert!(losses.per_million().is_some_and(|loss| loss >= 20), "{losses:?}");
    }
}
