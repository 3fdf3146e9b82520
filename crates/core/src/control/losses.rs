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

/// A look at one link, which has a queue of its own: under way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// What was sent and lost in it, since when, and the shortest round trip.
    counts: (u64, u64),
    began: Time,
    shortest: Time,
    /// When what a queue lost is known.
    known: Time,
}

impl Look {
    /// So many packets were sent, and so many found to be lost, since this was said last; with the round trip now, and the shortest, in
    /// nanoseconds. What counts, if the look is over and something does.
    pub fn add(
        &mut self,
        now: Time,
        (sent, lost): (u64, u64),
        rtt: Time,
        min_rtt: Time,
    ) -> Option<(u64, u64)> {
        if self.counts == (0, 0) {
            (self.began, self.shortest) = (now, Time::MAX);
        }
        self.counts = (self.counts.0 + sent, self.counts.1 + lost);
        self.shortest = self.shortest.min(rtt);
        let least = LOOK.1.max(LOOK.0 * min_rtt);
        if self.counts == (0, 0) || now < self.began + least {
            return None;
        }
        let counts = core::mem::take(&mut self.counts);
        if self.shortest > min_rtt + min_rtt * QUEUE.0 / 100 + QUEUE.1 {
            self.known = now + AFTER * least;
        }
        (now >= self.known).then_some(counts)
    }
}

/// What was sent by one path, by all links that take it, and what of it the path lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    sent: u64,
    lost: u64,
    /// How many times it lost some, and when last: what several links lose at once was lost once.
    times: u64,
    last: Option<Time>,
}

impl Losses {
    /// What [counts](Look::add) of a look that is over.
    pub fn count(&mut self, now: Time, (sent, lost): (u64, u64)) {
        (self.sent, self.lost) = (self.sent + sent, self.lost + lost);
        if lost > 0 && self.last.is_none_or(|last| now >= last + LOOK.1) {
            (self.times, self.last) = (self.times + 1, Some(now));
        }
        if self.sent > MEMORY {
            (self.sent, self.lost, self.times) = (self.sent / 2, self.lost / 2, self.times / 2);
        }
    }

    /// Packets that were sent, and those of them that were lost.
    pub fn counts(&self) -> (u64, u64) {
        (self.sent, self.lost)
    }

    /// How many times some were lost.
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

    #[derive(Debug, Default)]
    struct Path(Look, Losses);

    impl core::ops::Deref for Path {
        type Target = Losses;

        fn deref(&self) -> &Losses {
            &self.1
        }
    }

    /// Looks, one after the other, of so many packets each, of which so many were lost.
    fn looks(losses: &mut Path, count: u64, each: (u64, u64), rtt: Time) {
        let Path(look, losses) = losses;
        for _ in 0..count {
            let now = look.began + 26 * MS;
            assert_eq!(look.add(now, each, rtt, 20 * MS), None);
            if let Some(counts) = look.add(now + 25 * MS, (0, 0), 2 * rtt, 20 * MS) {
                losses.count(now + 25 * MS, counts);
            }
        }
    }

    #[test]
    fn few_packets_tell_nothing_but_of_losses() {
        let mut losses = Path::default();
        looks(&mut losses, 1, (400, 2), 20 * MS);
        assert_eq!(losses.per_million(), None);
        looks(&mut losses, 1, (600, 1), 20 * MS);
        assert_eq!(losses.per_million(), Some(3000));
        let mut many = Path::default();
        looks(&mut many, 1, (19, 3), 20 * MS);
        assert_eq!(many.per_million(), None);
        looks(&mut many, 1, (1, 0), 20 * MS);
        assert_eq!(many.per_million(), Some(150_000));
        let mut clean = Path::default();
        looks(&mut clean, 1, (19_999, 0), 20 * MS);
        assert_eq!(clean.per_million(), None);
        looks(&mut clean, 1, (1, 0), 20 * MS);
        assert_eq!(clean.per_million(), Some(0));
    }

    #[test]
    fn what_a_full_queue_loses_does_not_count() {
        let mut losses = Path::default();
        looks(&mut losses, 100, (3000, 30), 40 * MS);
        assert_eq!(losses.per_million(), None);
    }

    #[test]
    fn what_a_full_queue_lost_is_found_out_when_it_is_empty_and_does_not_count() {
        let mut losses = Path::default();
        looks(&mut losses, 10, (1000, 0), 30 * MS);
        looks(&mut losses, 3, (1000, 300), 20 * MS);
        assert_eq!(losses.per_million(), None);
        looks(&mut losses, 30, (1000, 0), 20 * MS);
        assert_eq!(losses.per_million(), Some(0));
    }

    #[test]
    fn what_is_lost_at_once_was_lost_once() {
        let mut losses = Path::default();
        looks(&mut losses, 1, (500, 100), MS);
        looks(&mut losses, 9, (100, 0), MS);
        assert_eq!(losses.times(), 1);
        looks(&mut losses, 2, (1, 1), MS);
        assert_eq!(losses.times(), 3);
    }

    #[test]
    fn what_several_links_lose_at_once_was_lost_once() {
        let mut losses = Losses::default();
        for lost in 1..=3 {
            for link in 0..4 {
                losses.count(lost * 30 * MS + link * MS, (100, 5));
            }
            assert_eq!(losses.times(), lost);
        }
        assert_eq!(losses.counts(), (1200, 60));
    }

    #[test]
    fn a_queue_is_of_its_link() {
        // one link has an empty queue, and the other loses what its own has no room for
        let (mut links, mut losses) = ([Look::default(); 2], Losses::default());
        for look in 0..100 {
            for step in [0, 25] {
                let now = (look * 30 + step) * MS;
                for (link, (counts, rtt)) in links.iter_mut().zip([((100, 0), 20 * MS), ((100, 10), 40 * MS)])
                {
                    if let Some(counts) = link.add(now, counts, rtt, 20 * MS) {
                        losses.count(now, counts);
                    }
                }
            }
        }
        assert_eq!((losses.counts().1, losses.times()), (0, 0), "{losses:?}");
    }

    #[test]
    fn a_path_that_begins_to_lose_is_known_soon_after_a_long_time_without() {
        let mut losses = Path::default();
        looks(&mut losses, 1000, (10_000, 0), 20 * MS);
        looks(&mut losses, 1, (10_000, 10), 20 * MS);
        assert!(losses.per_million().is_some_and(|loss| loss >= 20), "{losses:?}");
    }
}
