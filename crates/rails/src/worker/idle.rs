//! What polling in vain does: at first nothing, then it gives the processor away, then, if that was asked for, it sleeps. With
//! more runnable processes than cores, a process that spins keeps the one from running that it waits for; and one that gives the
//! processor away comes back when the others' time is up, not when its message has come. Where giving way takes long, waiting
//! therefore means sleeping almost at once.
//!
//! Sleeping ends with the first message, and after some milliseconds at the latest. It is asked for (`POLYRAIL_SLEEP_AFTER`)
//! where all of a program's messages come this way, as `polyrail run` arranges it: nobody else could wake the sleeper.

use std::time::{Duration, Instant};

/// Empty rounds before the processor is given away.
const SPIN: u32 = 200;
/// The same where it is crowded.
const SPIN_CROWDED: u32 = 30;
/// Times that the processor was given away, after which it is time to see whether peers live: each may have taken many milliseconds
/// where the processor is wanted by others, so that the rail's own count of empty rounds says little.
const YIELDS: u32 = 32;
/// Empty rounds after which who waits for the rest of something long sleeps, and how long at most.
const SPIN_IN_BULK: u32 = 8;
const NAP_IN_BULK: Duration = Duration::from_millis(1);
/// Longest sleep: at first, and after others in vain. A program that waits for something else as well is not kept from it for
/// long.
const NAP: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(10));
/// A pause between two rounds after which the caller is not polling, but computing and looking in now and then.
const PAUSE: Duration = Duration::from_micros(50);
/// Who gave the processor away for so long gave it to somebody who computes: one that polls gives it back sooner.
const CROWDED: Duration = Duration::from_millis(1);
/// Sleeps until it is found out again whether it is crowded.
const CROWDED_FOR: u32 = 1000;

/// Who polls in vain, and for how long. Nothing happens here but counting; the caller does as [`Idle::rest`] says.
#[derive(Debug, Default)]
pub struct Idle {
    yielding: bool,
    sleep_after: Option<Duration>,
    empty: u32,
    /// Empty rounds of which nothing need be thought.
    spins: u32,
    yields: u32,
    /// The first empty round that was timed, and the end of the last.
    since: Option<(Instant, Instant)>,
    /// Sleeps in vain in a row.
    naps: u32,
    /// Sleeps for which it still counts as crowded.
    crowded: u32,
    /// It slept for the rest of something long, which says nothing of others.
    in_bulk: bool,
}

/// What an empty round does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// Nothing.
    Spin,
    /// Gives the processor away, then calls [`Idle::resumed`].
    Yield,
    /// Sleeps until a message comes, for so long at most, then calls [`Idle::resumed`].
    Sleep(Duration),
}

impl Idle {
    /// Give the processor away at all? Sleep, and after how long in vain?
    pub fn new(yielding: bool, sleep_after: Option<Duration>) -> Self {
        let spins = if yielding { SPIN - 1 } else { u32::MAX };
        Self { yielding, sleep_after, spins, ..Self::default() }
    }

    /// Something moved, or was asked for.
    #[inline]
    pub fn busy(&mut self) {
        self.empty = 0;
    }

    /// A round was empty.
    #[inline]
    pub fn rest(&mut self) -> Rest {
        if self.spins() { Rest::Spin } else { self.rest_long() }
    }

    /// Whether so many rounds were empty that [`Idle::nap_in_bulk`] is better than [`Idle::rest`] where something long is under way
    /// ([`Worker::in_bulk`](super::Worker::in_bulk)).
    #[inline]
    pub fn naps_in_bulk(&self) -> bool {
        self.empty >= SPIN_IN_BULK && self.sleep_after.is_some()
    }

    /// A round was empty, and the rest of something long is waited for: it takes its time, and whoever it comes from does not wait for
    /// this process.
    pub fn nap_in_bulk(&mut self) -> Rest {
        self.in_bulk = true;
        Rest::Sleep(NAP_IN_BULK)
    }

    /// A round was empty, and nothing is done. False, and nothing is counted: [`Idle::rest`] knows.
    #[inline(always)]
    pub fn spins(&mut self) -> bool {
        let spins = self.empty < self.spins;
        self.empty += u32::from(spins);
        spins
    }

    #[inline(never)]
    fn rest_long(&mut self) -> Rest {
        self.empty = self.empty.saturating_add(1);
        if !self.yielding || (self.crowded > 0 && (2..=SPIN_CROWDED).contains(&self.empty)) {
            return Rest::Spin;
        }
        if self.empty == 1 {
            (self.since, self.naps) = (Some(now_twice()), 0);
            return Rest::Spin;
        }
        let Some(sleep_after) = self.sleep_after else { return Rest::Yield };
        if self.empty == SPIN && self.crowded == 0 {
            (self.since, self.naps) = (None, 0);
        }
        let now = Instant::now();
        let pause = if self.empty == SPIN_CROWDED + 1 { SPIN_CROWDED * PAUSE } else { PAUSE };
        let first = match self.since {
            Some((first, last)) if now - last < pause => first,
            _ => {
                self.since = Some((now, now));
                return Rest::Yield;
            }
        };
        self.since = Some((first, now));
        if self.crowded == 0 && now - first < sleep_after {
            return Rest::Yield;
        }
        self.crowd(self.crowded.saturating_sub(1));
        self.naps += 1;
        Rest::Sleep((NAP.0 * self.naps).min(NAP.1))
    }

    /// After the processor was given away, or a sleep. True now and then: time may have passed in which peers died unseen, and
    /// [`Worker::look_around`](super::Worker::look_around) is due.
    pub fn resumed(&mut self) -> bool {
        if std::mem::take(&mut self.in_bulk) {
            self.since = None;
        }
        if let Some((_, last)) = &mut self.since {
            let now = Instant::now();
            let gave_long = self.naps == 0 && now - *last >= CROWDED;
            *last = now;
            if gave_long {
                self.crowd(CROWDED_FOR);
            }
        }
        self.yields = (self.yields + 1) % YIELDS;
        self.yields == 0
    }
}

impl Idle {
    /// It counts as crowded for so many sleeps: each round is thought of then.
    fn crowd(&mut self, sleeps: u32) {
        self.crowded = sleeps;
        self.spins = if sleeps == 0 { SPIN - 1 } else { 0 };
    }
}

fn now_twice() -> (Instant, Instant) {
    let now = Instant::now();
    (now, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spins_then_yields_then_sleeps_and_wakes_up_spinning() {
        let mut idle = Idle::new(true, Some(Duration::ZERO));
        assert!((1..SPIN).all(|_| idle.rest() == Rest::Spin));
        assert_eq!(idle.rest(), Rest::Yield);
        // a preemption between two rounds looks like a pause, so this may take a few
        assert!((0..1000).any(|_| matches!(idle.rest(), Rest::Sleep(_))));
        idle.busy();
        assert_eq!(idle.rest(), Rest::Spin);
        let mut never = Idle::new(true, None);
        assert!((0..10 * SPIN).all(|_| matches!(never.rest(), Rest::Spin | Rest::Yield)));
        let mut spinner = Idle::new(false, Some(Duration::ZERO));
        assert!((0..10 * SPIN).all(|_| spinner.rest() == Rest::Spin));
    }

    #[test]
    fn naps_for_the_rest_of_something_long_and_learns_nothing_from_it() {
        let mut idle = Idle::new(true, Some(Duration::from_secs(3600)));
        assert!((0..SPIN_IN_BULK).all(|_| !idle.naps_in_bulk() && idle.rest() == Rest::Spin));
        assert!(idle.naps_in_bulk());
        while idle.rest() != Rest::Yield {}
        assert_eq!(idle.nap_in_bulk(), Rest::Sleep(NAP_IN_BULK));
        std::thread::sleep(2 * CROWDED);
        idle.resumed();
        assert_eq!(idle.crowded, 0, "that was its own sleep");
        idle.busy();
        assert!(!idle.naps_in_bulk());
        let mut never = Idle::new(true, None);
        assert!((0..10 * SPIN).all(|_| !never.naps_in_bulk() && never.rest() != Rest::Sleep(NAP_IN_BULK)));
    }

    #[test]
    fn sleeps_soon_where_giving_way_took_long_and_longer_each_time() {
        let mut idle = Idle::new(true, Some(Duration::from_secs(3600)));
        while idle.rest() != Rest::Yield {}
        std::thread::sleep(2 * CROWDED);
        idle.resumed();
        idle.busy();
        let naps = |idle: &mut Idle, rounds| {
            let sleep = |rest| if let Rest::Sleep(most) = rest { Some(most) } else { None };
            (0..rounds).filter_map(|_| sleep(idle.rest())).collect::<Vec<_>>()
        };
        assert!(naps(&mut idle, SPIN_CROWDED).is_empty());
        let all = naps(&mut idle, 200);
        assert!(all.len() > 10 && all.is_sorted() && all[0] == NAP.0, "{all:?}");
        assert_eq!(all.last(), Some(&NAP.1));
        idle.busy();
        let after = naps(&mut idle, 200);
        assert_eq!(after[0], NAP.0, "a message came");
    }
}
