//! What polling in vain does: at first nothing, then it gives the processor away, then, if that was asked for, it sleeps. With
//! more runnable processes than cores, a process that spins keeps the one from running that it waits for; and one that gives the
//! processor away comes back when the others' time is up, not when its message has come. Where giving way takes long, waiting
//! therefore means sleeping almost at once; and at once where the caller gives way himself after each round in vain, as Open MPI does
//! where there are more ranks than cores, since nothing can be done between his giving way and what it costs. Who gave way, and who computed,
//! the kernel knows ([`Clock::delay`]).
//!
//! Who computes between two rounds in vain (`MPI_Test` in a loop with other work) does not wait: nothing is taken from him. From who waits he
//! differs by the time that passes between them.
//!
//! Sleeping ends with the first message, and after some milliseconds at the latest. It is asked for (`POLYRAIL_SLEEP_AFTER`)
//! where all of a program's messages come this way, as `polyrail run` arranges it: nobody else could wake the sleeper.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::between::Between;
use super::clock::{Clock, Delay, Machine};

/// Empty rounds before it is found out what the caller does between them, and, if that is nothing, the processor is given away.
const SPIN: u64 = 140;
/// The same where it is crowded.
const SPIN_CROWDED: u64 = 30;
/// Empty rounds after which it is looked at the clock: callers may have given the processor away between them.
const LOOK: u64 = 8;
/// Times that the processor was given away, after which it is time to see whether peers live: each may have taken many milliseconds
/// where the processor is wanted by others, so that the rail's own count of empty rounds says little.
const YIELDS: u32 = 32;
/// Empty rounds after which who waits for the rest of something long is about to sleep, and how long at most.
const SPIN_IN_BULK: u64 = 4;
const NAP_IN_BULK: Duration = Duration::from_millis(1);
/// Longest sleep: at first, and after others in vain. A program that waits for something else as well is not kept from it for
/// long.
const NAP: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(10));
/// Longest sleep of who asks, and does not wait.
const NAP_BETWEEN: Duration = Duration::from_micros(100);
/// Rounds in vain that do nothing, after one another, where the caller completes what he has done to himself.
const SPIN_AT_HOME: u32 = 1024;
/// A pause between two rounds after which the caller may have been without a processor, and what he does himself for less than this, if he gave it
/// away.
const PAUSE: Duration = Duration::from_micros(50);
const OWN: Duration = Duration::from_micros(250);
/// Who gave the processor away for so long gave it to somebody who computes: one that polls gives it back sooner.
const CROWDED: Duration = Duration::from_millis(1);
/// Empty rounds until it is found out again whether it is crowded, and as how many of them a sleep counts.
const CROWDED_FOR: u32 = 32_000;
const SLEEP_COUNTS: u32 = 16;
/// Times after one another that a caller waited for a processor between two rounds, after which he is thought to give way himself, and not to
/// have been without it by chance; for so many sleeps, as many of which each counts that was in vain and that he came back from soon.
const GIVES_WAY_AFTER: u32 = 3;
const GIVES_WAY_FOR: u32 = 100;
const IN_VAIN: u32 = 50;

/// How many wait for something else than messages, and only look in here.
static LOOKING_IN: AtomicU32 = AtomicU32::new(0);

/// How many of these sleep between their looks, and on which words some of them do.
static ASLEEP: AtomicU32 = AtomicU32::new(0);
static SLEEPERS: [Sleeper; 8] = [const { Sleeper::new() }; 8];

/// Somebody who sleeps on a word (futex(2)), which may be shared.
struct Sleeper {
    taken: AtomicBool,
    /// Null before and after.
    word: AtomicPtr<u32>,
    /// Whatever comes may be what he waits for, not only what the application is told of.
    any: AtomicBool,
    woken: AtomicBool,
}

impl Sleeper {
    const fn new() -> Self {
        Self {
            taken: AtomicBool::new(false),
            word: AtomicPtr::new(ptr::null_mut()),
            any: AtomicBool::new(false),
            woken: AtomicBool::new(false),
        }
    }
}

thread_local! {
    static ASKS: Cell<bool> = const { Cell::new(false) };
    static AT_HOME: Cell<bool> = const { Cell::new(false) };
}

/// From now on the calling thread asks whether something has come, or no more. It does not wait for it: it may have something else to look after,
/// and sleeps only where others want the processor, for a short time.
pub fn asking(asks: bool) {
    ASKS.set(asks);
}

/// From now on the calling thread completes what it has done to itself, or no more. As far as nobody here knows of it, it does that between two rounds in vain, and waits only if
/// there are very many of these.
pub fn at_home(is: bool) {
    AT_HOME.set(is);
}

/// Whoever calls this process's workers until [`look_in_no_more`] waits for something else, and rests by himself: rounds in vain return at
/// once. Counted, for threads that do so at the same time.
pub fn look_in() {
    LOOKING_IN.fetch_add(1, Ordering::Relaxed);
}

/// The end of [`look_in`].
pub fn look_in_no_more() {
    LOOKING_IN.fetch_sub(1, Ordering::Relaxed);
}

/// Whether rounds in vain are to return at once.
#[inline]
pub fn is_looked_in() -> bool {
    LOOKING_IN.load(Ordering::Relaxed) > 0
}

/// Whoever looks in here until [`sleep_no_more`] sleeps meanwhile, on a word: he does not see soon what comes, so that others go on with it, and
/// [wake](wake_sleepers) him if it is for him. `any`: whatever comes is. His place, of which there are a few; others are not woken.
pub fn sleep_between(word: *mut u32, any: bool) -> usize {
    ASLEEP.fetch_add(1, Ordering::SeqCst);
    let Some(place) = SLEEPERS.iter().position(|sleeper| !sleeper.taken.swap(true, Ordering::SeqCst)) else {
        return SLEEPERS.len();
    };
    let sleeper = &SLEEPERS[place];
    sleeper.any.store(any, Ordering::Relaxed);
    sleeper.woken.store(false, Ordering::Relaxed);
    sleeper.word.store(word, Ordering::SeqCst);
    place
}

/// The end of [`sleep_between`]; whether somebody woke him.
pub fn sleep_no_more(place: usize) -> bool {
    ASLEEP.fetch_sub(1, Ordering::SeqCst);
    SLEEPERS.get(place).is_some_and(|sleeper| {
        sleeper.word.store(ptr::null_mut(), Ordering::SeqCst);
        let woken = sleeper.woken.load(Ordering::Relaxed);
        sleeper.taken.store(false, Ordering::SeqCst);
        woken
    })
}

/// Something came, and perhaps the application has to be told of it.
pub fn wake_sleepers(is_told: bool) {
    for sleeper in &SLEEPERS {
        let word = sleeper.word.load(Ordering::SeqCst);
        if !word.is_null() && (is_told || sleeper.any.load(Ordering::Relaxed)) {
            sleeper.woken.store(true, Ordering::Relaxed);
            // SAFETY: an address of which nothing is read; that of one who has just gone is nobody's, or wakes somebody too early
            unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, i32::MAX) };
        }
    }
}

/// Whether somebody sleeps elsewhere, so that others had better go on with what comes.
pub fn is_asleep_elsewhere() -> bool {
    ASLEEP.load(Ordering::Relaxed) > 0
}

/// How long the calling thread sleeps that would sleep for so long.
fn at_most(nap: Duration) -> Duration {
    if ASKS.get() { nap.min(NAP_BETWEEN) } else { nap }
}

/// Who polls in vain, and for how long. Nothing happens here but counting; the caller does as [`Idle::rest`] says.
#[derive(Debug, Default)]
pub struct Idle<C = Machine> {
    clock: C,
    yielding: bool,
    sleep_after: Option<Duration>,
    /// Empty rounds of all time; when the last that was not empty was; up to which nothing need be thought.
    rounds: u64,
    began: u64,
    next: u64,
    yields: u32,
    /// The first empty round that was timed, and the end of the last.
    since: Option<(Instant, Instant)>,
    /// Sleeps in vain in a row.
    naps: u32,
    /// Rounds for which it still counts as crowded, and sleeps for which the caller is thought to give way after each round.
    crowded: u32,
    gives_way: u32,
    /// How often he has waited for a processor lately, and whether the last round slept.
    waits: u32,
    slept: bool,
    between: Between,
    /// When the round began that is to be timed.
    start: Option<Instant>,
    /// When it was last looked at the clock, and how long this thread had waited for a processor at an earlier such moment.
    looked: Option<Instant>,
    delayed: Option<(Instant, Delay)>,
    /// What was found out then.
    waited: (Duration, Duration),
    /// It slept for the rest of something long, which says nothing of others.
    in_bulk: bool,
    /// Rounds that did nothing for a caller who is [at home](at_home).
    at_home: u32,
}

/// Whose a pause between two rounds was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pause {
    /// There was none worth mentioning.
    None,
    /// The caller worked.
    Own,
    /// He waited for a processor, which he had given away, or which was taken from him.
    Waited,
    Unknown,
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

impl<C: Clock + Default> Idle<C> {
    /// Give the processor away at all? Sleep, and after how long in vain?
    pub fn new(yielding: bool, sleep_after: Option<Duration>) -> Self {
        let next = if yielding { 0 } else { u64::MAX };
        Self { yielding, sleep_after, next, ..Self::default() }
    }

    /// Something moved, or was asked for.
    #[inline]
    pub fn busy(&mut self) {
        self.began = self.rounds;
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
        self.rounds - self.began >= SPIN_IN_BULK && self.sleep_after.is_some() && !AT_HOME.get()
    }

    /// A round was empty, and the rest of something long is waited for: it takes its time, and whoever it comes from does not wait for
    /// this process.
    pub fn nap_in_bulk(&mut self) -> Rest {
        self.rounds += 1;
        self.next = self.rounds;
        self.time(self.clock.now());
        if self.between.works(self.began) != Some(false) {
            return Rest::Spin;
        }
        self.in_bulk = true;
        Rest::Sleep(at_most(NAP_IN_BULK))
    }

    /// A round begins: what it takes is not what the caller takes.
    #[inline(always)]
    pub fn begins(&mut self) {
        if self.rounds >= self.next && self.rounds > self.began && self.sleep_after.is_some() {
            self.start = Some(self.clock.now());
        }
    }

    /// Times a round in vain that ends now, and finds out what the caller does between them.
    fn time(&mut self, now: Instant) -> Pause {
        let start = self.start.take().unwrap_or(now);
        let gap = self.between.gap(start, self.began).unwrap_or_default();
        let pause = if self.crowded == 0 || gap < PAUSE { Pause::None } else { self.whose(now, gap) };
        let counts = matches!(pause, Pause::None | Pause::Own);
        if self.between.round(start, now, self.rounds, self.began, counts) {
            let mut between = std::mem::take(&mut self.between);
            between.judge(|| self.delay(now).1);
            self.between = between;
        }
        pause
    }

    fn whose(&mut self, now: Instant, gap: Duration) -> Pause {
        let (since, delay) = self.delay(now);
        // what was before the pause may have been waiting, too
        let least = delay.saturating_sub(since.saturating_sub(gap));
        if least >= gap / 2 {
            if gap.saturating_sub(least) < OWN { Pause::Waited } else { Pause::Own }
        } else if delay < gap / 2 {
            Pause::Own
        } else {
            Pause::Unknown
        }
    }

    /// A round was empty, and nothing is done. False, and nothing is counted: [`Idle::rest`] knows.
    #[inline(always)]
    pub fn spins(&mut self) -> bool {
        let spins = self.rounds < self.next;
        self.rounds += u64::from(spins);
        spins
    }

    #[inline(never)]
    fn rest_long(&mut self) -> Rest {
        self.rounds = self.rounds.saturating_add(1);
        let empty = self.rounds - self.began;
        if !self.yielding {
            return Rest::Spin;
        }
        if AT_HOME.get() {
            return self.rest_at_home();
        }
        let Some(sleep_after) = self.sleep_after else {
            self.next = self.rounds + (SPIN - 1).saturating_sub(empty);
            return if empty < SPIN { Rest::Spin } else { Rest::Yield };
        };
        let now = self.clock.now();
        let in_vain = std::mem::take(&mut self.slept);
        if self.crowded == 0 {
            self.look(now);
        }
        if self.crowded > 0 {
            return self.rest_crowded(empty, now, in_vain);
        }
        if empty < SPIN {
            self.next = self.rounds + (SPIN - 1 - empty).min(LOOK);
            (self.since, self.naps) = (None, 0);
            return Rest::Spin;
        }
        self.next = self.rounds;
        if self.between.works(self.began) != Some(false) {
            self.time(now);
        }
        match self.between.works(self.began) {
            None => {
                if let Some((_, last)) = &mut self.since {
                    *last = now;
                }
                return Rest::Spin;
            }
            Some(true) => {
                (self.since, self.naps) = (None, 0);
                return Rest::Spin;
            }
            Some(false) => {}
        }
        let first = match self.since {
            Some((first, last)) if now - last < PAUSE => first,
            since => {
                if let Some((_, last)) = since {
                    self.between.begin_anew(now, self.rounds, self.began, now - last);
                }
                self.since = Some((now, now));
                return Rest::Yield;
            }
        };
        self.since = Some((first, now));
        // who asks has his reasons not to wait, and nobody wants his processor
        if now - first < sleep_after || ASKS.get() { Rest::Yield } else { self.sleep() }
    }

    /// [`Idle::rest`] of a caller who is [at home](at_home): once in so many rounds, and nothing is learnt of him.
    fn rest_at_home(&mut self) -> Rest {
        self.next = self.rounds;
        self.at_home += 1;
        if self.at_home < SPIN_AT_HOME {
            return Rest::Spin;
        }
        (self.at_home, self.since) = (0, None);
        if self.sleep_after.is_none() {
            return Rest::Yield;
        }
        if self.crowded == 0 {
            self.look(self.clock.now());
        }
        if self.crowded == 0 {
            return Rest::Yield;
        }
        self.crowded = self.crowded.saturating_sub(SLEEP_COUNTS);
        self.slept = true;
        Rest::Sleep(NAP.0)
    }

    /// [`Idle::rest`] where it is crowded, after a sleep in vain or not.
    fn rest_crowded(&mut self, empty: u64, now: Instant, in_vain: bool) -> Rest {
        let pause = self.time(now);
        self.next = self.rounds;
        self.crowded -= 1;
        if empty <= 1 || self.since.is_none() {
            (self.since, self.naps) = (Some((now, now)), 0);
            return if self.gives_way > 0 { self.sleep() } else { Rest::Spin };
        }
        let works = self.between.works(self.began);
        match pause {
            Pause::Waited => {
                self.waits += 1;
                if self.waits >= GIVES_WAY_AFTER {
                    // whatever he did before
                    self.between.forget();
                    self.gives_way = GIVES_WAY_FOR;
                    return self.sleep();
                }
            }
            Pause::Own => self.waits = 0,
            Pause::None | Pause::Unknown => {}
        }
        if works == Some(true) || pause == Pause::Own {
            if pause == Pause::None {
                self.waits = 0;
            }
            self.gives_way = 0;
            return Rest::Spin;
        }
        if in_vain && pause == Pause::None {
            self.gives_way = self.gives_way.saturating_sub(IN_VAIN);
        }
        let long = empty > SPIN_CROWDED && works == Some(false);
        if long || self.gives_way > 0 { self.sleep() } else { Rest::Spin }
    }

    fn sleep(&mut self) -> Rest {
        self.crowded = self.crowded.saturating_sub(SLEEP_COUNTS);
        self.gives_way = self.gives_way.saturating_sub(1);
        (self.naps, self.slept) = (self.naps + 1, true);
        // nobody is kept from anything by this who would else give the processor away for as long
        Rest::Sleep(at_most(if self.gives_way > 0 { NAP.1 } else { (NAP.0 * self.naps).min(NAP.1) }))
    }

    /// Since when it was asked last, and for how much of that time this thread has waited for a processor.
    fn delay(&mut self, now: Instant) -> (Duration, Duration) {
        if self.delayed.is_some_and(|(at, _)| at == now) {
            return self.waited;
        }
        let Some(delay) = self.clock.delay() else { return Default::default() };
        let before = self.delayed.replace((now, delay)).filter(|(_, before)| before.thread == delay.thread);
        let (at, before) = before.unwrap_or((now, delay));
        self.waited = (now - at, delay.time.saturating_sub(before.time));
        self.waited
    }

    /// Whether this thread waits for a processor for long between its rounds: then it is crowded.
    fn look(&mut self, now: Instant) {
        let passed = self.looked.replace(now).map_or(Duration::ZERO, |last| now - last);
        if passed < CROWDED {
            return;
        }
        let (since, delay) = self.delay(now);
        // of long ago it says nothing
        if since < 4 * passed && delay >= CROWDED.max(passed / 8) {
            self.crowded = CROWDED_FOR;
        }
    }

    /// After the processor was given away, or a sleep. True now and then: time may have passed in which peers died unseen, and
    /// [`Worker::look_around`](super::Worker::look_around) is due.
    pub fn resumed(&mut self) -> bool {
        let in_bulk = std::mem::take(&mut self.in_bulk);
        if in_bulk {
            self.since = None;
        }
        let now = self.clock.now();
        if in_bulk || self.slept {
            self.between.slept(now);
        }
        if let Some((_, last)) = &mut self.since {
            let gave_long = self.naps == 0 && now - *last >= CROWDED;
            *last = now;
            if gave_long {
                self.crowded = CROWDED_FOR;
                self.next = self.rounds;
            }
            if self.crowded > 0 {
                self.delay(now);
            }
        }
        self.yields = (self.yields + 1) % YIELDS;
        self.yields == 0
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::worker::between::{OTHERWISE, WINDOW};

    /// Time passes where the test says so, a microsecond with each look.
    #[derive(Debug)]
    struct Script(Instant, Cell<(Duration, Duration)>, usize);

    impl Default for Script {
        fn default() -> Self {
            Self(Instant::now(), Cell::default(), 0)
        }
    }

    impl Script {
        /// So much time passes, in so much of which the thread waits for a processor.
        fn pass(&self, time: Duration, delay: Duration) {
            let (now, delayed) = self.1.get();
            self.1.set((now + time, delayed + delay));
        }
    }

    impl Clock for Script {
        fn now(&self) -> Instant {
            self.pass(Duration::from_micros(1), Duration::ZERO);
            self.0 + self.1.get().0
        }

        fn delay(&self) -> Option<Delay> {
            Some(Delay { thread: self.2, time: self.1.get().1 })
        }
    }

    type Idle = super::Idle<Script>;

    const HOUR: Duration = Duration::from_secs(3600);

    fn naps(idle: &mut Idle, rounds: u64) -> Vec<Duration> {
        let sleep = |rest| if let Rest::Sleep(most) = rest { Some(most) } else { None };
        (0..rounds).filter_map(|_| sleep(idle.rest())).collect()
    }

    #[test]
    fn spins_then_yields_then_sleeps_and_wakes_up_spinning() {
        let mut idle = Idle::new(true, Some(Duration::ZERO));
        for _ in 0..3 {
            assert!((1..SPIN + u64::from(WINDOW)).all(|_| idle.rest() == Rest::Spin));
            assert_eq!(idle.rest(), Rest::Yield);
            assert!(matches!(idle.rest(), Rest::Sleep(_)));
            idle.busy();
        }
        let mut never = Idle::new(true, None);
        assert!((1..SPIN).all(|_| never.rest() == Rest::Spin));
        assert!((0..10 * SPIN).all(|_| never.rest() == Rest::Yield));
        let mut spinner = Idle::new(false, Some(Duration::ZERO));
        assert!((0..10 * SPIN).all(|_| spinner.rest() == Rest::Spin));
    }

    #[test]
    fn who_is_at_home_waits_after_many_rounds_alone() {
        at_home(true);
        let mut idle = Idle::new(true, Some(Duration::ZERO));
        let spun = |idle: &mut Idle| {
            let spun = (1..SPIN_AT_HOME).take_while(|_| !idle.naps_in_bulk() && idle.rest() == Rest::Spin);
            assert_eq!(spun.count() as u32, SPIN_AT_HOME - 1);
        };
        for _ in 0..3 {
            spun(&mut idle);
            assert_eq!(idle.rest(), Rest::Yield);
            idle.resumed();
            assert_eq!(idle.crowded, 0);
        }
        // giving way took long, which is seen the second time
        for rest in [Rest::Yield, Rest::Sleep(NAP.0)] {
            idle.clock.pass(Duration::from_millis(4), Duration::from_millis(4));
            spun(&mut idle);
            assert_eq!(idle.rest(), rest);
        }
        idle.resumed();
        at_home(false);
        idle.crowded = 0;
        idle.busy();
        assert!((0..).take_while(|_| idle.rest() == Rest::Spin).count() < 300);
    }

    #[test]
    fn naps_for_the_rest_of_something_long_and_learns_nothing_from_it() {
        let mut idle = Idle::new(true, Some(HOUR));
        assert!((0..SPIN_IN_BULK).all(|_| !idle.naps_in_bulk() && idle.rest() == Rest::Spin));
        let spun = (0..20).take_while(|_| idle.naps_in_bulk() && idle.nap_in_bulk() == Rest::Spin).count();
        assert!(spun > 0 && spun <= WINDOW as usize, "{spun}");
        while idle.rest() != Rest::Yield {}
        assert_eq!(idle.nap_in_bulk(), Rest::Sleep(NAP_IN_BULK));
        idle.clock.pass(2 * CROWDED, 2 * CROWDED);
        idle.resumed();
        assert_eq!(idle.crowded, 0, "that was its own sleep");
        idle.busy();
        assert!(!idle.naps_in_bulk());
        let mut never = Idle::new(true, None);
        assert!((0..10 * SPIN).all(|_| !never.naps_in_bulk() && never.rest() != Rest::Sleep(NAP_IN_BULK)));
    }

    #[test]
    fn sleeps_soon_where_giving_way_took_long_and_longer_each_time() {
        let mut idle = Idle::new(true, Some(HOUR));
        while idle.rest() != Rest::Yield {}
        idle.clock.pass(2 * CROWDED, Duration::ZERO);
        idle.resumed();
        idle.busy();
        assert!(naps(&mut idle, SPIN_CROWDED).is_empty());
        let all = naps(&mut idle, 200);
        assert!(all.len() == 200 && all.is_sorted() && all[0] == NAP.0, "{all:?}");
        assert_eq!(all.last(), Some(&NAP.1));
        idle.busy();
        assert_eq!(naps(&mut idle, 200)[0], NAP.0, "a message came");
        let waits = |idle: &mut Idle| {
            idle.busy();
            naps(idle, SPIN_CROWDED + 1).len()
        };
        assert!(
            (0..10_000).any(|_| waits(&mut idle) == 0),
            "some time later it is found out whether it still is"
        );
    }

    /// What is done by somebody who works for so long after each so many rounds in vain, and what after the first.
    fn works(idle: &mut Idle, times: usize, work: Duration, rounds: usize) -> (Vec<Rest>, Vec<Rest>) {
        idle.busy();
        let mut all = Vec::new();
        for _ in 0..times {
            idle.clock.pass(work, Duration::ZERO);
            all.extend((0..rounds).map(|_| idle.rest()));
        }
        let later = all.split_off(300);
        (all, later)
    }

    #[test]
    fn nothing_is_taken_from_who_works_between_rounds() {
        let micros = Duration::from_micros;
        for crowded in [0, CROWDED_FOR] {
            for (work, rounds) in [
                (micros(2), 1),
                (micros(10), 1),
                (micros(10), 3),
                (2 * PAUSE, 1),
                (micros(900), 4),
                (micros(900), 40),
            ] {
                let mut idle = Idle::new(true, Some(micros(100)));
                idle.crowded = crowded;
                let (first, later) = works(&mut idle, 2000, work, rounds);
                // as long as he has done nothing but ask he seems to wait
                let rested = first.iter().filter(|rest| **rest != Rest::Spin).count();
                assert!(rested < rounds, "{crowded} {work:?} {rounds} {first:?}");
                assert!(later.iter().all(|rest| *rest == Rest::Spin), "{crowded} {work:?} {rounds}");
                // nor as a processor is taken from him now and then
                idle.clock.pass(4 * CROWDED, 4 * CROWDED);
                let (_, later) = works(&mut idle, 2000, work, rounds);
                assert!(later.iter().all(|rest| *rest == Rest::Spin), "{crowded} {work:?} {rounds}");
                for _ in 0..100 {
                    idle.clock.pass(4 * CROWDED, 4 * CROWDED);
                    assert_eq!(idle.rest(), Rest::Spin, "{crowded} {work:?} {rounds}");
                    for _ in 0..100 {
                        idle.clock.pass(work, Duration::ZERO);
                        assert_eq!(idle.rest(), Rest::Spin, "{crowded} {work:?} {rounds}");
                    }
                }
                // from now on he waits
                assert!(naps(&mut idle, 2000).len() > 50, "{crowded} {work:?} {rounds} {idle:?}");
            }
        }
    }

    #[test]
    fn who_asks_and_does_not_wait_sleeps_for_a_short_time_only() {
        for (crowded, gives_way) in [(0, 0), (CROWDED_FOR, 0), (CROWDED_FOR, GIVES_WAY_FOR)] {
            let mut idle = Idle::new(true, Some(Duration::ZERO));
            (idle.crowded, idle.gives_way) = (crowded, gives_way);
            asking(true);
            let slept = naps(&mut idle, 500);
            // where nobody wants the processor he need not sleep
            assert_eq!(slept.is_empty(), crowded == 0);
            assert!(slept.iter().all(|nap| *nap == NAP_BETWEEN), "{slept:?}");
            asking(false);
            assert!(naps(&mut idle, 500).iter().all(|nap| *nap >= NAP.0));
        }
    }

    #[test]
    fn nothing_is_taken_from_who_has_a_processor_for_a_part_of_the_time() {
        let mut idle = Idle::new(true, Some(HOUR));
        idle.crowded = CROWDED_FOR;
        for _ in 0..1000 {
            // longer than a turn of the scheduler: he is without it in each pause
            idle.clock.pass(30 * CROWDED, 20 * CROWDED);
            assert_eq!(idle.rest(), Rest::Spin);
        }
    }

    /// What long rounds in vain, of so many nanoseconds each, are answered with, by who takes so many between them, in some of which he waits.
    fn long_rounds(idle: &mut Idle, rounds: u64, each: u64, (between, waits): (u64, u64)) -> Vec<Rest> {
        let nanos = Duration::from_nanos;
        let round = |_| {
            idle.clock.pass(nanos(between), nanos(waits));
            idle.begins();
            idle.clock.pass(nanos(each), Duration::ZERO);
            let rest = idle.rest();
            if rest != Rest::Spin {
                idle.resumed();
            }
            rest
        };
        (0..rounds).map(round).collect()
    }

    #[test]
    fn who_waits_sleeps_however_long_a_round_takes_or_giving_way_to_others_who_do() {
        for crowded in [0, CROWDED_FOR] {
            for (each, between) in [(20, (200, 0)), (7000, (300, 0)), (50, (3000, 2800)), (50, (450, 0))] {
                let mut idle = Idle::new(true, Some(Duration::from_micros(100)));
                idle.crowded = crowded;
                let slept = long_rounds(&mut idle, 3000, each, between);
                let slept = slept.iter().filter(|rest| matches!(rest, Rest::Sleep(_))).count();
                assert!(slept > 30, "{crowded} {each} {between:?}: {slept} {idle:?}");
            }
        }
    }

    #[test]
    fn who_worked_and_waits_now_for_a_processor_sleeps_soon() {
        let mut idle = Idle::new(true, Some(HOUR));
        idle.crowded = CROWDED_FOR;
        assert!(long_rounds(&mut idle, 1000, 50, (10_000, 0)).iter().all(|rest| *rest == Rest::Spin));
        let rests = long_rounds(&mut idle, 10, 50, (4_000_000, 3_990_000));
        let spun = rests.iter().take_while(|rest| **rest == Rest::Spin).count();
        assert!(
            spun < GIVES_WAY_AFTER as usize && rests[spun..].iter().all(|rest| *rest == Rest::Sleep(NAP.1)),
            "{rests:?}"
        );
    }

    #[test]
    fn nothing_is_taken_from_who_works_while_something_long_comes() {
        let mut idle = Idle::new(true, Some(HOUR));
        for _ in 0..100 {
            idle.busy();
            for round in 0..100 {
                idle.clock.pass(OTHERWISE, Duration::ZERO);
                let rest = if idle.naps_in_bulk() { idle.nap_in_bulk() } else { idle.rest() };
                assert_eq!(rest, Rest::Spin, "{round}");
            }
        }
    }

    #[test]
    fn what_another_thread_waited_for_says_nothing() {
        let mut idle = Idle::new(true, Some(HOUR));
        for round in 0..100 {
            // two threads in turn, of which one has waited for a processor for long
            let before = idle.clock.1.get();
            idle.clock.2 = round % 2;
            idle.clock.1.set((before.0 + 4 * CROWDED, HOUR * (round % 2) as u32));
            assert!((0..=LOOK).all(|_| idle.rest() == Rest::Spin));
            idle.busy();
            assert_eq!(idle.crowded, 0, "{round}");
        }
    }

    #[test]
    fn who_waits_between_rounds_for_a_processor_that_he_gave_away_sleeps_at_once() {
        let yields = |idle: &mut Idle, delay| {
            for _ in 0..8 * LOOK {
                idle.clock.pass(4 * CROWDED, delay);
                let rest = idle.rest();
                if rest != Rest::Spin {
                    return Some(rest);
                }
                idle.busy();
                if idle.rest() == Rest::Sleep(NAP.1) {
                    return Some(Rest::Sleep(NAP.1));
                }
            }
            None
        };
        // he computes, and looks in now and then
        let mut idle = Idle::new(true, Some(HOUR));
        assert_eq!(yields(&mut idle, Duration::ZERO), None);
        assert_eq!(idle.crowded, 0);
        // he gives the processor away after each round in vain
        assert_eq!(yields(&mut idle, 4 * CROWDED), Some(Rest::Sleep(NAP.1)));
        idle.resumed();
        for _ in 0..10 {
            idle.busy();
            assert_eq!(idle.rest(), Rest::Sleep(NAP.1), "and does not get that far again");
        }
        assert!(naps(&mut idle, SPIN_CROWDED).len() < 3, "nobody wants the processor any more");
        // he computes from now on
        let slept = (0..100).filter(|_| {
            idle.clock.pass(4 * CROWDED, Duration::ZERO);
            matches!(idle.rest(), Rest::Sleep(_))
        });
        assert_eq!(slept.count(), 0);
        idle.busy();
        assert!(idle.crowded > 0 && naps(&mut idle, SPIN_CROWDED).is_empty(), "{idle:?}");
    }
}
