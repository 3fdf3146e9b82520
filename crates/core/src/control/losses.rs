//! How much a path loses by itself.
//!
//! A queue that is full loses, too, and whoever fills it has to slow down for that. So what is lost counts only where no queue stands:
//! while round trips are hardly longer than the shortest.

use super::Time;

/// So many packets tell something of loss, where so many of them were lost; without losses more have to.
const ENOUGH: (u64, u64, u64) = (500, 3, 20_000);
/// What lies further back than so many packets counts half.
const MEMORY: u64 = 400_000;
/// No queue stands while round trips are no longer than the shortest by so many hundredths, and so many nanoseconds.
const QUEUE: (u64, Time) = (15, 500_000);

/// What was sent by one path, and what of it the path lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    sent: u64,
    lost: u64,
}

impl Losses {
    /// So many packets were sent, and so many found to be lost, since this was said last; with the round trip now, and the shortest, in
    /// nanoseconds.
    pub fn add(&mut self, sent: u64, lost: u64, rtt: Time, min_rtt: Time) {
        self.sent += sent;
        if rtt <= min_rtt + min_rtt * QUEUE.0 / 100 + QUEUE.1 {
            self.lost += lost;
        }
        if self.sent > MEMORY {
            (self.sent, self.lost) = (self.sent / 2, self.lost / 2);
        }
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

    #[test]
    fn few_packets_tell_nothing_but_of_losses() {
        let mut losses = Losses::default();
        losses.add(400, 2, 20 * MS, 20 * MS);
        assert_eq!(losses.per_million(), None);
        losses.add(600, 1, 20 * MS, 20 * MS);
        assert_eq!(losses.per_million(), Some(3000));
        let mut clean = Losses::default();
        clean.add(19_999, 0, 20 * MS, 20 * MS);
        assert_eq!(clean.per_million(), None);
        clean.add(1, 0, 20 * MS, 20 * MS);
        assert_eq!(clean.per_million(), Some(0));
    }

    #[test]
    fn what_a_full_queue_loses_does_not_count() {
        let mut losses = Losses::default();
        losses.add(30_000, 300, 40 * MS, 20 * MS);
        assert_eq!(losses.per_million(), Some(0));
    }

    #[test]
    fn a_path_that_begins_to_lose_is_known_soon_after_a_long_time_without() {
        let mut losses = Losses::default();
        for _ in 0..1000 {
            losses.add(10_000, 0, 20 * MS, 20 * MS);
        }
        losses.add(10_000, 10, 20 * MS, 20 * MS);
        assert!(losses.per_million().is_some_and(|loss| loss >= 20), "{losses:?}");
    }
}
