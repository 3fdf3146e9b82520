//! How fast a user who only sends may do so.
//!
//! What is sent eagerly is paid by credit; what is announced is not, as holding it back could stop a correct program: a receive may wait for a
//! message behind those that it does not want yet. But an injected message counts as sent at once, and whoever injects may never make progress: he
//! would not hear of credit, nor that announced messages are wanted, and the receiver would take that for an attack, and cut it off,
//! however well it keeps up. So who injects without credit is told to make progress first ([`Pace::may_copy`]): for a while, as what leaves
//! eagerly costs both sides least; then now and then; and with many copies waiting, until the receiver has taken some, or none for so
//! long that it must be waiting for something else.

use std::time::{Duration, Instant};

/// For how long credit is waited for, besides two round trips.
const CREDIT: Duration = Duration::from_millis(5);
/// Copies between two rounds of progress.
const EACH_ROUND: u32 = 64;
/// Copies that may wait for a peer from the first.
const FEW: u32 = 1 << 10;
/// For how long it takes none of them until more may wait, and how many more in each millisecond from then on; fewer where very many do:
/// [`Bounds::announced`](polyrail_core::proto::Bounds) is reached in a minute.
const PATIENCE: Duration = Duration::from_millis(20);
const EACH_MS: u32 = 256;
const MANY: u32 = 128 << 10;
const EACH_MS_OF_MANY: u32 = 16;

/// What one peer was sent of late. See the module.
#[derive(Debug)]
pub(super) struct Pace {
    /// Copies of injected messages that wait for it.
    copies: u32,
    /// How many may.
    limit: u32,
    /// Since when there are so many, and by how many more may wait since.
    full: Option<(Instant, u64)>,
    /// The round of progress in which copies were made last, and how many.
    of_round: (u64, u32),
    /// While credit is lacking.
    lacking: Option<Lacking>,
    /// How long a round trip takes, as far as that is known.
    rtt: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Lacking {
    /// What the peer had returned of it, and since when.
    returned: u32,
    since: Instant,
    /// Since when some came, and others took it, perhaps, and how many went another way all the same.
    first: Instant,
    passed: u32,
}

impl Default for Pace {
    fn default() -> Self {
        let (full, lacking) = (None, None);
        Self { copies: 0, limit: FEW, full, of_round: (0, 0), lacking, rtt: Duration::ZERO }
    }
}

impl Pace {
    /// A round trip to it takes so long.
    pub fn set_rtt(&mut self, rtt: Duration) {
        self.rtt = rtt;
    }

    /// How many copies wait for it.
    pub fn copies(&self) -> u32 {
        self.copies
    }

    /// One of them has ended.
    pub fn ended(&mut self) {
        self.copies = self.copies.saturating_sub(1);
        if self.copies < FEW / 2 {
            self.limit = FEW;
        }
    }

    /// Whether an injected message that cannot leave eagerly may be copied in this round of progress, and then it is. `lacks`: because it has
    /// no credit, of which so much was returned until now.
    pub fn may_copy(&mut self, round: u64, lacks: Option<u32>, now: Instant) -> bool {
        if lacks.is_some_and(|returned| self.waits_for_credit(returned, now)) {
            return false;
        }
        if self.of_round.0 != round {
            self.of_round = (round, 0);
        }
        let may = self.of_round.1 < EACH_ROUND && self.has_room(now);
        if may {
            self.of_round.1 += 1;
            self.copies += 1;
        }
        may
    }

    fn waits_for_credit(&mut self, returned: u32, now: Instant) -> bool {
        let new = Lacking { returned, since: now, first: now, passed: 0 };
        let lacking = self.lacking.get_or_insert(new);
        if lacking.returned != returned {
            (lacking.returned, lacking.since) = (returned, now);
        }
        let wait = CREDIT + 2 * self.rtt;
        if now.saturating_duration_since(lacking.since) >= wait {
            return false;
        }
        if now.saturating_duration_since(lacking.first) < 4 * wait {
            return true;
        }
        lacking.passed += 1;
        if lacking.passed >= EACH_ROUND {
            (lacking.first, lacking.passed) = (now, 0);
        }
        false
    }

    fn has_room(&mut self, now: Instant) -> bool {
        if self.copies < self.limit {
            self.full = None;
            return true;
        }
        let each = if self.limit < MANY { EACH_MS } else { EACH_MS_OF_MANY };
        let (since, more) = self.full.get_or_insert((now, 0));
        let waited = now.saturating_duration_since(*since).saturating_sub(PATIENCE + 2 * self.rtt);
        let grows = *more < waited.as_millis() as u64 * u64::from(each);
        if grows {
            *more += 1;
            self.limit += 1;
            if self.limit == MANY {
                // from now on at another pace, without being patient anew
                (*since, *more) = (now.checked_sub(PATIENCE + 2 * self.rtt).unwrap_or(now), 0);
            }
        }
        grows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// How many may be copied now, in as many rounds as that takes.
    fn copy(pace: &mut Pace, now: Instant) -> u32 {
        let next = pace.of_round.0 + 1;
        (next..).take_while(|round| (0..EACH_ROUND).all(|_| pace.may_copy(*round, None, now))).last();
        pace.copies()
    }

    fn take(pace: &mut Pace, count: u32) {
        (0..count).for_each(|_| pace.ended());
    }

    #[test]
    fn copies_wait_for_a_round_of_progress() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        for round in [0, 1, 7] {
            let may = |_: &u32| pace.may_copy(round, None, now);
            assert_eq!((0..1000).filter(may).count(), EACH_ROUND as usize);
        }
        assert_eq!(pace.copies(), 3 * EACH_ROUND);
    }

    #[test]
    fn credit_is_waited_for_but_not_for_long() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let mut may = |ms: u32, returned| {
            (0..1000).filter(|_| pace.may_copy(ms.into(), Some(returned), start + ms * MS)).count() as u32
        };
        assert_eq!([0, 4, 5, 6].map(|ms| may(ms, 0)), [0, 0, EACH_ROUND, EACH_ROUND]);
        // some came, and was spent
        assert_eq!([7, 11, 12].map(|ms| may(ms, 16)), [0, 0, EACH_ROUND]);
        // once none comes, every message need not wait for it anew
        assert_eq!([13, 100, 1000].map(|ms| may(ms, 16)), [EACH_ROUND; 3]);
        let mut far = Pace::default();
        far.set_rtt(10 * MS);
        assert!([0, 24].iter().all(|ms| !far.may_copy(0, Some(0), start + *ms * MS)));
        assert!(far.may_copy(0, Some(0), start + 25 * MS));
    }

    /// What comes is too little for this one, or others take it.
    #[test]
    fn credit_that_others_take_is_not_waited_for_for_ever() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let passed = (0..1000).map(|ms| pace.may_copy(ms.into(), Some(ms), start + ms * MS));
        let passed: Vec<_> = passed.enumerate().filter(|(_, may)| *may).map(|(ms, _)| ms).collect();
        assert_eq!(passed[..2], [20, 21]);
        assert!(passed.len() > 500 && passed.len() < 990, "{}", passed.len());
    }

    #[test]
    fn who_takes_messages_slowly_is_sent_as_many_as_it_takes() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        assert_eq!(copy(&mut pace, start), FEW);
        for step in 1..1000 {
            take(&mut pace, 3);
            assert_eq!(copy(&mut pace, start + PATIENCE * step), FEW);
        }
    }

    #[test]
    fn who_takes_none_may_wait_for_what_comes_behind_them() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        copy(&mut pace, start);
        for ms in 0..400 {
            assert_eq!(copy(&mut pace, start + PATIENCE + ms * MS), FEW + ms * EACH_MS, "{ms}");
        }
        // one after the other is taken now: none waits
        let (before, now) = (pace.copies(), start + PATIENCE + 400 * MS);
        for _ in 0..1000 {
            take(&mut pace, 1);
            assert_eq!(copy(&mut pace, now), before);
        }
        // most are taken: few wait from then on
        take(&mut pace, before - 10);
        assert_eq!(copy(&mut pace, now), FEW);
    }

    #[test]
    fn very_many_become_more_slowly() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let at = [0, 1, 2, 10, 55].map(|s| copy(&mut pace, start + s * 1000 * MS));
        let (soon, each) = (MANY + 1000 * EACH_MS_OF_MANY, EACH_MS_OF_MANY * 1000);
        assert_eq!(at, [FEW, MANY, soon, soon + 8 * each, soon + 53 * each]);
        assert!(at[4] <= 1 << 20);
    }
}
