//! Where there may be a lane, and when it is worth another attempt.

use super::Time;
use crate::lanes::{MS, Pair, S};
use crate::wire::Transport;
use alloc::string::String;

/// Between what a lane goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    /// Two interfaces.
    Pair(Pair),
    /// Whatever its transport's rail calls by this number, at a speed in Mb/s; 0: unknown.
    Place(u16, u32),
}

/// Where a lane may be, and of which transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// Whose link it is.
    pub transport: Transport,
    /// Between what.
    pub over: Over,
}

impl Way {
    /// The interfaces, if it goes between two.
    pub fn pair(&self) -> Option<&Pair> {
        if let Over::Pair(pair) = &self.over { Some(pair) } else { None }
    }

    /// What it claims, in Mb/s; 0: unknown.
    pub fn speed(&self) -> u32 {
        match self.over {
            Over::Pair(pair) => pair.speed,
            Over::Place(_, speed) => speed,
        }
    }

    /// Whether the other goes between the same, by the same transport.
    pub fn is(&self, other: &Self) -> bool {
        let same = match (&self.over, &other.over) {
            (Over::Pair(a), Over::Pair(b)) => (a.near.0, a.far.0) == (b.near.0, b.far.0),
            (Over::Place(a, _), Over::Place(b, _)) => a == b,
            _ => false,
        };
        same && self.transport == other.transport
    }
}

/// How long to wait before the next attempt where there was a lane before, at first and at most; and where there never was.
const AGAIN: (Time, Time) = (100 * MS, 500 * MS);
const NEVER: (Time, Time) = (S, 60 * S);
/// ... at most, where an interface was down: it costs nothing to try.
const ASLEEP: Time = S;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Idle,
    /// A lane of this number is being opened.
    Opening(u16),
    Up(u16),
}

/// Where there is a lane, or may be one.
#[derive(Clone, Debug)]
pub struct Path {
    way: Way,
    state: State,
    /// It is one more between interfaces that have another, opened where that may get more through, and never for its own sake.
    further: bool,
    /// It is one of a stand-in's, and is wanted, or not.
    stands_in: Option<bool>,
    /// There was a lane before.
    worked: bool,
    /// Nobody was reached: the interfaces may not be of one network after all.
    vain: bool,
    retry: Time,
    pause: Time,
    why: Option<String>,
}

impl Path {
    pub(super) fn new(way: Way, now: Time) -> Self {
        let (worked, vain, why) = (false, false, None);
        let (state, further, stands_in) = (State::Idle, false, None);
        Self { way, state, further, stands_in, worked, vain, retry: now, pause: NEVER.0, why }
    }

    /// One more between the same interfaces.
    pub(super) fn further(way: Way, now: Time) -> Self {
        Self { further: true, worked: true, ..Self::new(way, now) }
    }

    /// One for a stand-in, which is wanted.
    pub(super) fn standing_in(way: Way, now: Time) -> Self {
        Self { stands_in: Some(true), ..Self::new(way, now) }
    }

    /// Whether it is for a stand-in.
    pub fn stands_in(&self) -> bool {
        self.stands_in.is_some()
    }

    /// A stand-in is wanted there, or not.
    pub(super) fn want(&mut self, wanted: bool) {
        self.stands_in = self.stands_in.map(|_| wanted);
    }

    /// Whether there is to be a lane for its own sake.
    pub(super) fn is_meant(&self) -> bool {
        !self.further && self.stands_in != Some(false)
    }

    /// Whether it is one more between interfaces that have another.
    pub fn is_further(&self) -> bool {
        self.further
    }

    pub(super) fn set_further(&mut self, further: bool) {
        self.further = further;
    }

    /// Whether it has a lane.
    pub fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    /// Between what it goes, and by which transport.
    pub fn way(&self) -> &Way {
        &self.way
    }

    /// Why there is no lane, if one was tried in vain.
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// Whether there is no lane, and none is being opened.
    pub fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    /// Whether a lane is being opened.
    pub fn is_opening(&self) -> bool {
        matches!(self.state, State::Opening(_))
    }

    /// The number of the lane that is being opened.
    pub(super) fn opening(&self) -> Option<u16> {
        if let State::Opening(number) = self.state { Some(number) } else { None }
    }

    pub(super) fn is_vain(&self) -> bool {
        self.is_idle() && self.vain
    }

    pub(super) fn begin(&mut self, number: u16) {
        self.state = State::Opening(number);
    }

    pub(super) fn opened(&mut self, number: u16) {
        (self.state, self.worked, self.pause, self.why) = (State::Up(number), true, AGAIN.0, None);
    }

    pub(super) fn ended(&mut self, now: Time) {
        if matches!(self.state, State::Up(_)) {
            (self.state, self.retry) = (State::Idle, now);
        }
    }

    /// An attempt came to nothing; whether the reason is another than before.
    pub(super) fn failed(&mut self, now: Time, why: String, reached: bool) -> bool {
        self.state = State::Idle;
        self.retry = now + self.pause;
        self.pause = (2 * self.pause).min(match self.worked {
            true => AGAIN.1,
            false if self.way.pair().is_some_and(|pair| pair.down) => ASLEEP,
            false => NEVER.1,
        });
        self.vain = !reached && !self.worked;
        let news = self.why.as_ref() != Some(&why);
        // where there is another lane, nobody misses this one
        self.why = (!self.further).then_some(why);
        news
    }

    /// When it is worth another attempt.
    pub(super) fn retry(&self) -> Option<Time> {
        (self.is_idle() && self.is_meant()).then_some(self.retry)
    }
}
