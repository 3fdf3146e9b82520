//! Short messages beside long ones.
//!
//! A short message waits for what its lane holds already, which is meant to last until somebody looks again: some milliseconds. Where
//! short messages are sent beside long ones, lanes hold less: what lasts for nearly all gaps between two looks, so that little time is
//! lost. Who waits for his messages looks all the time, and has short ones delivered in a fraction of a millisecond. Where it costs too
//! much ([`Price`]), because gaps are long or others fill the same queues, lanes hold what is usual.

use super::Time;
use super::price::{Look, Price};
use crate::lanes::MS;

/// So long after a short message another one is expected.
const LASTS: Time = 100 * MS;
/// Lanes hold what lasts so long at least: looks that are nearer to each other cost more than they bring.
const LEAST: Time = MS / 14;
/// And so long at most: who needs more does not wait for short messages, and they hold what is usual. An attempt begins with half as much
/// at most.
const MOST: Time = MS;
/// One gap counts as no more than this: an interruption is no habit. It is one if a fourth of so long is lost.
const GAP: Time = 4 * MS;
const HABIT: Time = 20 * MS;
/// What is held grows by one part in so many of the time that it did not last for, and shrinks by one in so many of all time: the quotient
/// is the part of all time that is lost.
const GROWS: Time = 64;
const SHRINKS: Time = 200;

#[derive(Debug)]
pub(super) struct Brisk {
    /// When the last short message counts no more, if it still does.
    until: Option<Time>,
    /// When the last look at lanes began and ended, if more waited than they took.
    looked: Option<(Time, Time)>,
    /// What is held should last so long.
    ahead: Time,
    gaps: Gaps,
    price: Price,
}

/// Looks one after the other: how many, how long they took, and for how much of that time what was held did not last.
#[derive(Debug, Default)]
struct Gaps {
    looks: u64,
    time: Time,
    lost: Time,
}

impl Default for Brisk {
    fn default() -> Self {
        Self { until: None, looked: None, ahead: LEAST, gaps: Gaps::default(), price: Price::default() }
    }
}

impl Brisk {
    /// A short message was sent.
    pub fn sent(&mut self, now: Time) {
        self.until = Some(now + LASTS);
    }

    /// Whether lanes hold little where something long waits.
    pub fn is_on(&self) -> bool {
        self.until.is_some() && self.price.is_paid()
    }

    /// Time passes.
    pub fn tick(&mut self, now: Time) {
        self.until = self.until.filter(|until| now < *until);
    }

    /// What lanes get through, after [`Brisk::tick`]: bytes that were delivered up to now; whether something is under way; when something
    /// long was sent first since this was last called. True: too little for that they held little.
    pub fn weigh(&mut self, now: Time, delivered: u64, busy: bool, long: Option<Time>) -> bool {
        let failed = self.price.look(Look { now, delivered, busy, long, little: self.is_on() });
        if !self.price.is_paid() {
            self.ahead = self.ahead.min(MOST / 2);
        }
        failed
    }

    /// A look at what lanes can be given. The least that one is given at a time lasts it for `least`, and comes on top of what it is to
    /// hold.
    pub fn look(&mut self, now: Time, least: Time) {
        let Some((began, ended)) = self.looked.take() else { return };
        let lost = now.saturating_sub(ended + least + self.ahead).min(GAP);
        let gap = now.saturating_sub(began);
        self.ahead = (self.ahead.saturating_sub(gap / SHRINKS) + lost / GROWS).max(LEAST);
        let gaps = &mut self.gaps;
        (gaps.looks, gaps.time, gaps.lost) =
            (gaps.looks + 1, gaps.time.saturating_add(gap), gaps.lost + lost);
        if gaps.time >= HABIT {
            let Gaps { looks, time, lost } = core::mem::take(gaps);
            if lost > time / 4 {
                self.ahead = (2 * self.ahead).max(time / looks);
            }
        }
        if self.ahead > MOST {
            self.ahead = MOST / 2;
            self.price.fail();
        }
    }

    /// Lanes hold what is usual: no look is expected.
    pub fn rests(&mut self) {
        self.looked = None;
    }

    /// That look ended; whether anything still waits.
    pub fn end_look(&mut self, now: Time, waits: bool) {
        self.looked = waits.then_some((now, now));
    }

    /// It ended only now: sending takes time, too.
    pub fn looked_until(&mut self, now: Time) {
        self.looked = self.looked.map(|(began, _)| (began, now));
    }

    /// For how long lanes should be kept busy beyond what is on its way, if not as long as usual.
    pub fn ahead(&self) -> Option<Time> {
        // half more, so that a lane that is thought too slow is seen to be faster
        self.is_on().then(|| self.ahead / 2 * 3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORTEST: Option<Time> = Some(LEAST / 2 * 3);

    /// One that is known to cost nothing, at that time.
    fn paid(now: &mut Time) -> Brisk {
        let mut brisk = Brisk::default();
        while !brisk.price.is_paid() {
            *now += MS;
            brisk.weigh(*now, 0, true, Some(*now));
        }
        brisk
    }

    /// Looks for `time`, so far apart.
    fn look(brisk: &mut Brisk, now: &mut Time, time: Time, apart: Time) {
        for _ in 0..time / apart {
            *now += apart;
            brisk.look(*now, 0);
            brisk.end_look(*now, true);
        }
    }

    #[test]
    fn lanes_hold_less_while_short_messages_are_sent() {
        let mut now = 0;
        let mut brisk = Brisk::default();
        brisk.sent(now);
        assert_eq!(brisk.ahead(), None, "it is not known what that costs");
        brisk = paid(&mut now);
        assert_eq!(brisk.ahead(), None);
        brisk.sent(now);
        assert_eq!(brisk.ahead(), SHORTEST);
        brisk.tick(now + LASTS - MS);
        assert!(brisk.is_on());
        brisk.tick(now + LASTS);
        assert!(!brisk.is_on());
    }

    #[test]
    fn who_looks_seldom_keeps_lanes_busy_for_as_long() {
        let mut now = 0;
        let mut brisk = paid(&mut now);
        brisk.sent(10 * 1000 * MS);
        look(&mut brisk, &mut now, 100 * MS, MS / 100);
        assert_eq!(brisk.ahead(), SHORTEST);
        brisk.look(now + MS, MS - MS / 10);
        assert_eq!(brisk.ahead(), SHORTEST, "what it was given lasted");
        brisk.end_look(now + MS, true);
        brisk.looked_until(now + 2 * MS);
        brisk.look(now + 2 * MS, 0);
        assert_eq!(brisk.ahead(), SHORTEST, "it was being given more");
        now += 2 * MS;
        look(&mut brisk, &mut now, 500 * MS, MS / 2);
        assert!(brisk.ahead() > Some(MS / 5 * 2), "{brisk:?}");
        look(&mut brisk, &mut now, 500 * MS, MS / 20);
        assert_eq!(brisk.ahead(), SHORTEST);
        // an interruption is no habit
        look(&mut brisk, &mut now, 3 * MS, 3 * MS);
        assert!(brisk.ahead() < Some(6 * MS / 10), "{brisk:?}");
        look(&mut brisk, &mut now, 60 * MS, 60 * MS);
        assert!(brisk.ahead() < Some(6 * MS / 10), "{brisk:?}");
        look(&mut brisk, &mut now, 30 * MS, MS / 2);
        assert!(brisk.ahead() > Some(6 * MS / 10), "a habit is found at once: {brisk:?}");
        look(&mut brisk, &mut now, 30 * MS, 2 * MS);
        assert_eq!(brisk.ahead(), None, "nobody waits for short messages");
    }

    #[test]
    fn a_pause_in_which_nothing_waited_is_no_gap() {
        let mut now = 0;
        let mut brisk = paid(&mut now);
        brisk.sent(now);
        for waits in [false, true] {
            brisk.look(now + MS, 0);
            brisk.end_look(now + MS, waits);
            brisk.rests();
            brisk.look(now + 1000 * MS, 0);
            assert_eq!(brisk.ahead(), SHORTEST);
        }
    }
}
