//! What a link's figures say of the path: what the rules need to know.

use super::Time;
use super::losses::{Look, Losses};
use super::rules::{Context, LOSS};
use crate::micro::{Scheme, Shared};

/// Counts are looked at so often at most, in nanoseconds.
const LOOK: Time = 5_000_000;

/// The counts of one link, which outlive its compositions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watcher {
    looked: Time,
    /// What the channel had counted at the last look.
    seen: (u64, u64),
    look: Look,
    losses: Losses,
    min_rtt: Time,
    /// When the composition changed last; none: it is the first.
    changed: Option<Time>,
}

impl Watcher {
    /// The composition has changed: its channel counts from 0.
    pub fn handle_change(&mut self, now: Time) {
        (self.seen, self.changed) = ((0, 0), Some(now));
    }

    /// Of the next link by the same path: what was lost is known, and nothing else.
    pub fn again(&self) -> Self {
        Self { losses: self.losses, ..Self::default() }
    }

    /// The path loses so much, as others found who know more.
    pub fn tell(&mut self, losses: &Losses) {
        if self.losses.counts().0 < losses.counts().0 {
            self.losses = *losses;
        }
    }

    /// For how long what is in force has been, in nanoseconds; what a link began with was chosen without figures, and may be left at once.
    pub fn age(&self, now: Time) -> Time {
        self.changed.map_or(Time::MAX, |changed| now.saturating_sub(changed))
    }

    /// Looks at a channel's counts, if it is time; then, and where they suffice, what they say.
    pub fn look(&mut self, now: Time, shared: &Shared, same_site: bool) -> Option<Context> {
        if now < self.looked + LOOK {
            return None;
        }
        self.looked = now;
        let rtt = shared.rtt;
        if rtt.min > 0 && (self.min_rtt == 0 || rtt.min < self.min_rtt) {
            self.min_rtt = rtt.min;
        }
        let counted = (shared.counters.asking, shared.counters.lost.saturating_sub(shared.counters.spurious));
        let (sent, lost) = (counted.0.saturating_sub(self.seen.0), counted.1.saturating_sub(self.seen.1));
        // a datagram that turns out not to have been lost is not lost again
        self.seen = (counted.0, counted.1.max(self.seen.1));
        if let Some(counts) = self.look.add(now, (sent, lost), rtt.latest, self.min_rtt) {
            self.losses.count(now, counts);
        }
        self.losses.per_million().map(|loss| self.context(shared, loss, same_site))
    }

    /// What the counts say so far, however few they are.
    pub fn context_so_far(&self, shared: &Shared, same_site: bool) -> Context {
        self.context(shared, self.losses.per_million().unwrap_or(0), same_site)
    }

    fn context(&self, shared: &Shared, loss: u32, same_site: bool) -> Context {
        Context {
            scheme: Scheme::Synchronous,
            same_site,
            infiniband: false,
            // what gets through says nothing of what could, where loss keeps it down
            rate: if u64::from(loss) < LOSS.leave { delivery_rate(shared) } else { 0 },
            loss,
            reordering: u32::try_from(shared.counters.spurious).unwrap_or(u32::MAX),
            rtt: self.min_rtt,
            mtu: shared.size,
        }
    }
}

/// What is on its way, in a round trip: bytes per second.
fn delivery_rate(shared: &Shared) -> u64 {
    let rtt = u128::from(shared.rtt.smoothed.max(1));
    u64::try_from(u128::from(shared.flight.bytes()) * 1_000_000_000 / rtt).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Time = 1_000_000;

    fn shared(sent: u64, lost: u64, latest: Time) -> Shared {
        let mut shared = Shared::new(0, 1472, 0, 1 << 20, MS);
        (shared.counters.asking, shared.counters.lost) = (sent, lost);
        (shared.rtt.min, shared.rtt.latest, shared.rtt.smoothed) = (20 * MS, latest, latest);
        shared
    }

    #[test]
    fn loss_without_a_queue_is_the_paths() {
        let mut watcher = Watcher::default();
        assert_eq!(watcher.look(10 * MS, &shared(400, 1, 20 * MS), false), None, "too little");
        let _ = watcher.look(20 * MS, &shared(4000, 4, 20 * MS), false);
        let context = watcher.look(40 * MS, &shared(4000, 4, 20 * MS), false).expect("enough");
        assert_eq!((context.loss, context.rtt, context.rate), (1000, 20 * MS, 0));
    }

    #[test]
    fn loss_from_a_full_queue_is_not() {
        let mut watcher = Watcher::default();
        let _ = watcher.look(10 * MS, &shared(100, 0, 20 * MS), false);
        let _ = watcher.look(40 * MS, &shared(100, 0, 20 * MS), false);
        let _ = watcher.look(50 * MS, &shared(4000, 300, 40 * MS), false);
        assert_eq!(watcher.look(80 * MS, &shared(4000, 300, 40 * MS), false), None);
        // what is found out soon after that may be of that queue
        let _ = watcher.look(90 * MS, &shared(8000, 500, 20 * MS), false);
        assert_eq!(watcher.look(120 * MS, &shared(8000, 500, 20 * MS), false), None);
        let _ = watcher.look(200 * MS, &shared(31_000, 500, 20 * MS), false);
        let context = watcher.look(230 * MS, &shared(31_000, 500, 20 * MS), false).expect("enough");
        assert_eq!(context.loss, 0);
    }

    #[test]
    fn the_next_link_knows_what_was_lost_and_begins_anew() {
        let mut watcher = Watcher::default();
        let _ = watcher.look(20 * MS, &shared(4000, 4, 20 * MS), false);
        let _ = watcher.look(50 * MS, &shared(4000, 4, 20 * MS), false);
        watcher.handle_change(60 * MS);
        let mut next = watcher.again();
        assert_eq!(next.age(5), Time::MAX);
        let context = next.look(5 * MS, &shared(0, 0, 20 * MS), false).expect("known");
        assert_eq!((context.loss, context.rtt), (1000, 20 * MS));
    }

    #[test]
    fn others_know_more_or_less() {
        let mut knows = Watcher::default();
        let _ = knows.look(20 * MS, &shared(4000, 4, 20 * MS), false);
        let _ = knows.look(50 * MS, &shared(4000, 4, 20 * MS), false);
        let mut watcher = Watcher::default();
        watcher.tell(&knows.losses);
        assert_eq!(watcher.context_so_far(&shared(0, 0, 20 * MS), false).loss, 1000);
        let little = Losses::default();
        watcher.tell(&little);
        assert_eq!(watcher.context_so_far(&shared(0, 0, 20 * MS), false).loss, 1000);
    }

    #[test]
    fn what_a_link_began_with_has_been_in_force_for_ever() {
        let mut watcher = Watcher::default();
        assert_eq!(watcher.age(5), Time::MAX);
        watcher.handle_change(7);
        assert_eq!(watcher.age(10), 3);
    }
}
