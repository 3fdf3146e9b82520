//! When to look at what is under way, and its deadlines.

use super::Wireup;
use crate::set::Rails;
use crate::sys::Timer;
use std::io;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// While something is under way it is looked at as soon as something came of the last look, else after this.
const LOOK: Duration = Duration::from_micros(50);
/// How late a deadline may be seen.
const LATE: Duration = Duration::from_millis(5);
/// Rounds of progress after which all is looked at, whatever the clock says; and after which the clock is, where rounds are busy.
const ROUNDS: u64 = 256;
const CLOCK_ROUNDS: u64 = 16;
/// Where whoever uses all this looks in now and then only, so that rounds say nothing of time, it is looked at after this.
const SELDOM: Duration = Duration::from_millis(5);
/// Between two looks that are further apart than this the program did something else.
const PAUSE: Duration = Duration::from_millis(100);

/// What is known of time.
pub(super) struct Clock {
    timer: Timer,
    /// When all this was looked at last.
    looked: Instant,
    /// The same, whether something was under way or not; and whether it has been long.
    seen: Instant,
    seldom: bool,
    /// When it is to be looked at again, while something is under way.
    next_look: Instant,
    /// When deadlines were compared with the clock last.
    walked: Instant,
    /// Who uses all this slept since then, to be woken by the next of them.
    dozed: bool,
    /// A deadline of something that is watched along.
    other: Option<Instant>,
    /// Since no descriptor is left, nothing is accepted until then.
    pub paused_until: Option<Instant>,
}

impl Clock {
    pub fn new() -> io::Result<Self> {
        let now = Instant::now();
        Ok(Self {
            timer: Timer::new()?,
            looked: now,
            seen: now,
            seldom: false,
            next_look: now,
            walked: now,
            dozed: false,
            other: None,
            paused_until: None,
        })
    }

    pub fn fd(&self) -> RawFd {
        self.timer.fd()
    }

    pub fn rang(&mut self) {
        self.timer.rang();
    }

    /// Whether it is time to look which deadlines have passed: that is a walk through all that is under way.
    fn is_late(&mut self, now: Instant, woken: bool) -> bool {
        let late = woken || self.walked + LATE <= now;
        if late {
            self.walked = now;
        }
        late
    }
}

impl Wireup {
    /// Whether to look in this round of progress; an idle one has time for the clock.
    #[inline]
    pub fn due(&self, round: u64, idle: bool) -> bool {
        if self.clock.dozed || self.clock.seldom || round.is_multiple_of(ROUNDS) {
            return true;
        }
        (idle || round.is_multiple_of(CLOCK_ROUNDS)) && self.waits() && self.clock.next_look <= Instant::now()
    }

    /// The next round to look in while nothing is under way.
    pub fn next_round(&self, round: u64) -> u64 {
        (round / ROUNDS + 1) * ROUNDS
    }

    /// Whether there is something to look at by the clock.
    pub fn busy(&self) -> bool {
        self.clock.dozed || self.waits()
    }

    /// Whoever uses all this looks in now and then. Whether it is time to look, which the next round then does.
    pub fn looked_in(&mut self) -> bool {
        self.clock.seldom = self.clock.seen.elapsed() >= SELDOM;
        self.clock.seldom
    }

    /// Whether something is under way that has a deadline.
    fn waits(&self) -> bool {
        !self.handshakes.is_empty()
            || !self.attempts.is_empty()
            || self.clock.paused_until.is_some()
            || self.clock.other.is_some()
    }

    fn deadline(&self) -> Option<Instant> {
        let handshakes = self.handshakes.values().map(|h| h.deadline);
        let attempts = self.attempts.values().filter_map(|a| a.resume);
        handshakes.chain(attempts).chain(self.clock.paused_until).chain(self.clock.other).min()
    }

    /// When something that is watched along is to be looked at again, if it is.
    pub fn look_for(&mut self, deadline: Option<Instant>) {
        if deadline.is_some() {
            self.begin();
        }
        self.clock.other = deadline;
    }

    /// The user will sleep: the descriptor wakes it in time for the next deadline, here or of the rails.
    pub fn doze(&mut self, rails: Option<Instant>) {
        self.clock.dozed = true;
        if let Some(at) = self.deadline().into_iter().chain(rails).min() {
            self.clock.timer.wake_at(at);
        }
    }

    /// What waits from now on was not waited for before.
    pub(super) fn begin(&mut self) {
        if !self.waits() {
            self.clock.looked = Instant::now();
        }
    }

    /// The end of a look: deadlines.
    pub(super) fn look_at_clock(&mut self, rails: &mut Rails) {
        (self.clock.seen, self.clock.seldom) = (Instant::now(), false);
        if !self.busy() {
            return;
        }
        let (now, woken) = (Instant::now(), self.clock.dozed);
        self.catch_up(now);
        self.clock.next_look = if self.happened > 0 { now } else { now + LOOK };
        if self.clock.is_late(now, woken) {
            self.resume_accept(now);
            self.expire_handshakes(now, rails);
            self.resume_attempts(now, rails);
        }
    }

    /// Time in which nobody looked, nor slept to be woken, is no peer's fault: all deadlines move with it.
    fn catch_up(&mut self, now: Instant) {
        let unseen = now - std::mem::replace(&mut self.clock.looked, now);
        if std::mem::take(&mut self.clock.dozed) || unseen < PAUSE {
            return;
        }
        self.handshakes.values_mut().for_each(|h| h.deadline += unseen);
        self.attempts.values_mut().for_each(|attempt| attempt.move_on(unseen));
    }
}
