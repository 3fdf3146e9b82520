//! How fast a user who only sends may do so.
//!
//! What is sent eagerly is paid by credit; what is announced is not, as holding it back could stop a correct program: a receive may wait for a
//! message behind those that it does not want yet. But who injects has done so at once, and may never make progress: it would not hear of
//! credit, nor that announced messages are wanted, and the receiver would take that for an attack, and cut it off, however well it keeps up.
//! So who injects without credit is told to make progress first ([`Pace::may_copy`]), as long as the peer takes messages, or for a while: what leaves eagerly costs both sides least;
//! and where very much waits for a peer, it waits until the peer has taken some, or has taken nothing for so long that it must be
//! waiting for something else ([`Pace::has_room`]).

use std::time::{Duration, Instant};

/// For how long credit is waited for while the peer takes nothing.
const CREDIT: Duration = Duration::from_millis(5);
/// Copies of injected messages between two rounds of progress.
const COPIES: u32 = 64;
/// Operations under way to one peer from which on they wait for one another. Far from [`Bounds::announced`](polyrail_core::proto::Bounds),
/// and more than requests and what is queued come to.
const MANY: u32 = 64 << 10;
/// For how long none of them ends until more are let through.
const PATIENCE: Duration = Duration::from_millis(100);
/// How many are then, in a millisecond.
const EACH_MS: u64 = 256;

/// What one peer was sent of late. See the module.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// The round of progress in which copies were made last, and how many.
    copies: (u64, u32),
    /// What the peer had taken when credit was lacking, and since when.
    lacking: Option<(u32, Instant)>,
    /// While too many are under way.
    full: Option<Full>,
}

#[derive(Clone, Copy, Debug)]
struct Full {
    /// No fewer were under way since.
    under_way: u32,
    since: Instant,
    let_through: u64,
}

impl Pace {
    /// Whether an injected message that cannot leave eagerly may be copied in this round of progress. `lacks`: it has no credit, and the
    /// peer has taken so much.
    pub fn may_copy(&mut self, round: u64, lacks: Option<u32>, now: impl FnOnce() -> Instant) -> bool {
        if let Some(taken) = lacks {
            let now = now();
            let since = match self.lacking {
                Some((before, since)) if before == taken => since,
                _ => self.lacking.insert((taken, now)).1,
            };
            if now.saturating_duration_since(since) < CREDIT {
                return false;
            }
        }
        if self.copies.0 != round {
            self.copies = (round, 0);
        }
        self.copies.1 += 1;
        self.copies.1 <= COPIES
    }

    /// Whether another operation may be begun while so many are under way.
    pub fn has_room(&mut self, under_way: u32, now: impl FnOnce() -> Instant) -> bool {
        if under_way < MANY {
            self.full = None;
            return true;
        }
        let now = now();
        match &mut self.full {
            Some(full) if full.under_way <= under_way => {
                let waited = now.saturating_duration_since(full.since).saturating_sub(PATIENCE);
                let passes = full.let_through < waited.as_millis() as u64 * EACH_MS;
                if passes {
                    full.let_through += 1;
                    full.under_way = under_way + 1;
                }
                passes
            }
            // it is the first, or the peer has taken some
            full => {
                *full = Some(Full { under_way, since: now, let_through: 0 });
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many begin at once, of so many under way.
    fn begin(pace: &mut Pace, under_way: &mut u32, now: Instant) -> u32 {
        let before = *under_way;
        while pace.has_room(*under_way, || now) {
            *under_way += 1;
        }
        *under_way - before
    }

    #[test]
    fn copies_wait_for_a_round_of_progress() {
        let mut pace = Pace::default();
        for round in [0, 1, 7] {
            let may =
                |_: &u32| pace.may_copy(round, None, || unreachable!("credit is not what it waits for"));
            assert_eq!((0..1000).filter(may).count(), COPIES as usize);
        }
    }

    #[test]
    fn credit_is_waited_for_but_not_for_long() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let mut may = |ms: u64, taken| {
            let now = start + Duration::from_millis(ms);
            (0..1000).filter(|_| pace.may_copy(ms, Some(taken), || now)).count() as u32
        };
        assert_eq!([0, 4, 5, 6].map(|ms| may(ms, 0)), [0, 0, COPIES, COPIES]);
        // the peer takes some
        assert_eq!([7, 10, 12, 13].map(|ms| may(ms, 16)), [0, 0, COPIES, COPIES]);
    }

    #[test]
    fn who_takes_messages_slowly_is_sent_as_many_as_it_takes() {
        let (mut pace, mut under_way, start) = (Pace::default(), 0, Instant::now());
        assert_eq!(begin(&mut pace, &mut under_way, start), MANY);
        for step in 1..1000 {
            under_way -= 3;
            assert_eq!(begin(&mut pace, &mut under_way, start + PATIENCE / 2 * step), 3);
        }
    }

    #[test]
    fn who_takes_none_may_wait_for_what_comes_behind_them() {
        let (mut pace, mut under_way, start) = (Pace::default(), 0, Instant::now());
        begin(&mut pace, &mut under_way, start);
        assert_eq!(begin(&mut pace, &mut under_way, start + PATIENCE), 0);
        for ms in 1..1000 {
            let now = start + PATIENCE + Duration::from_millis(ms);
            assert_eq!(u64::from(begin(&mut pace, &mut under_way, now)), EACH_MS, "{ms}");
        }
        // it takes one after all: it does not wait for others
        let soon = start + PATIENCE + Duration::from_millis(1000);
        under_way -= 1;
        assert_eq!(begin(&mut pace, &mut under_way, soon), 0);
        assert_eq!(begin(&mut pace, &mut under_way, soon + PATIENCE), 0);
        assert!(begin(&mut pace, &mut under_way, soon + PATIENCE * 2) > 0);
    }

    /// Others' operations come and go meanwhile: that is not the peer's taking the messages that wait for ever.
    #[test]
    fn what_others_begin_and_end_holds_nobody_up_for_ever() {
        let (mut pace, mut under_way, start) = (Pace::default(), 0, Instant::now());
        begin(&mut pace, &mut under_way, start);
        let before = under_way;
        for step in 1..100 {
            let now = start + PATIENCE / 4 * step;
            begin(&mut pace, &mut under_way, now);
            assert!(!pace.has_room(under_way + 5, || now));
        }
        assert!(under_way > before);
    }
}
