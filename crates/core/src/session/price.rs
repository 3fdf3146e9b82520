//! What it costs that lanes hold little.
//!
//! A lane that holds little gives way to whoever holds more in the same queue, has nothing to do while nobody looks, and is not seen to
//! be faster than it was thought. Which of that happens cannot be seen, but what gets through can. So that is measured first as lanes
//! hold what is usual; then they may hold little, until less gets through, for a time that grows with each attempt in vain; and what the
//! usual brings is measured again now and then.

use super::Time;
use crate::lanes::{MS, S};

/// What gets through is measured over so long.
const WINDOW: Time = 50 * MS;
/// What is usual is measured for so long at first, and when it is measured again.
const FIRST: Time = 2 * WINDOW;
const AGAIN: Time = WINDOW;
/// After an attempt in vain lanes hold what is usual for so long, at first and at most; an attempt of so long was not in vain.
const PAUSE: (Time, Time) = (S / 4, 32 * S);
const PROVEN: Time = 2 * S;
/// What is usual counts for so long, at first and at most.
const TRUSTED: (Time, Time) = (2 * S, 64 * S);
/// Looks that are further apart tell nothing of what was between.
const APART: Time = S;

/// What is seen of all lanes at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub now: Time,
    /// Bytes that they delivered up to now.
    pub delivered: u64,
    /// Something is under way.
    pub busy: bool,
    /// When something long was sent first since the last look, if that is so.
    pub long: Option<Time>,
    /// They are to hold little.
    pub little: bool,
}

/// All times are such in which something long is under way.
#[derive(Debug)]
pub(super) struct Price {
    /// Lanes may hold little.
    little: bool,
    /// What got through while they held what is usual, in bytes per second.
    usual: u64,
    last: Option<Look>,
    /// Whether lanes hold little in this window; how long it has lasted, and bytes in it.
    held: bool,
    window: (Time, u64),
    /// For how long they are still to hold what is usual, or have held little.
    rest: Time,
    lasted: Time,
    /// How much of two bad windows in a row has passed.
    bad: u8,
    pause: Time,
    trusted: Time,
}

impl Default for Price {
    fn default() -> Self {
        Self {
            little: false,
            usual: 0,
            last: None,
            held: false,
            window: (0, 0),
            rest: FIRST,
            lasted: 0,
            bad: 0,
            pause: PAUSE.0,
            trusted: TRUSTED.0,
        }
    }
}

impl Price {
    /// Whether lanes may hold little.
    pub fn is_paid(&self) -> bool {
        self.little
    }

    /// A look, which is due every few milliseconds. True: that lanes hold little costs too much, and ends.
    pub fn look(&mut self, look: Look) -> bool {
        let last = self.last.replace(look);
        if look.little != self.held {
            (self.held, self.window) = (look.little, (0, 0));
            return false;
        }
        let (Some(last), Some(long), true) = (last, look.long, look.busy) else { return false };
        let took = look.now.saturating_sub(if last.busy { last.now } else { long.max(last.now) });
        // of lanes that ended it is not known any more
        if took > APART || look.delivered < last.delivered {
            self.window = (0, 0);
            return false;
        }
        self.window.0 += took;
        self.window.1 += look.delivered - last.delivered;
        let (time, bytes) = self.window;
        if time < WINDOW {
            return false;
        }
        self.window = (0, 0);
        let rate = u64::try_from(u128::from(bytes) * u128::from(S) / u128::from(time)).unwrap_or(u64::MAX);
        match look.little {
            true => !self.is_worth_it(rate, time),
            false => {
                // connections find their speed, or lanes are opened
                let grows = rate > self.usual / 8 * 9 && self.usual > 0;
                self.usual = rate.max(self.usual - self.usual / 16);
                self.rest = self.rest.saturating_sub(time);
                self.little = self.rest == 0 && !grows;
                false
            }
        }
    }

    /// So much got through in a window in which lanes held little.
    fn is_worth_it(&mut self, rate: u64, time: Time) -> bool {
        self.lasted += time;
        if rate < self.usual / 8 * 7 {
            self.bad += if rate < self.usual / 2 { 2 } else { 1 };
            if self.bad >= 2 {
                self.fail();
            }
            return self.little;
        }
        (self.bad, self.usual) = (0, self.usual.max(rate));
        if self.lasted >= PROVEN {
            self.pause = PAUSE.0;
        }
        if self.lasted >= self.trusted {
            self.trusted = (2 * self.trusted).min(TRUSTED.1);
            self.begin_usual(AGAIN);
        }
        true
    }

    /// It costs too much.
    pub fn fail(&mut self) {
        self.begin_usual(self.pause);
        self.pause = (2 * self.pause).min(PAUSE.1);
        self.trusted = TRUSTED.0;
    }

    fn begin_usual(&mut self, rest: Time) {
        (self.little, self.usual, self.rest) = (false, 0, rest);
        (self.lasted, self.bad) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: u64 = 125_000_000;

    /// Looks each 2 ms for `time`: so much got through per second with lanes that held what is usual, or little where they may. How long they held little.
    fn run(price: &mut Price, at: &mut (Time, u64), time: Time, usual: u64, little: u64) -> Time {
        let mut held = 0;
        for _ in 0..time / (2 * MS) {
            let holds = price.is_paid();
            held += if holds { 2 * MS } else { 0 };
            at.0 += 2 * MS;
            at.1 += if holds { little } else { usual } / 500;
            price.look(look(*at, holds));
        }
        held
    }

    /// One at which something long waits.
    fn look((now, delivered): (Time, u64), little: bool) -> Look {
        Look { now, delivered, busy: true, long: Some(now), little }
    }

    #[test]
    fn what_costs_nothing_lasts() {
        let (mut price, mut at) = (Price::default(), (0, 0));
        assert_eq!(run(&mut price, &mut at, FIRST, GIGABIT, GIGABIT), 0, "it is not known yet");
        let held = run(&mut price, &mut at, 100 * S, GIGABIT, GIGABIT / 100 * 95);
        assert!(held > 99 * S, "{} of 100 s", held / S);
        // two windows are one bad moment more than it takes
        run(&mut price, &mut at, WINDOW, GIGABIT, GIGABIT / 100 * 80);
        assert!(price.is_paid());
        run(&mut price, &mut at, 2 * WINDOW, GIGABIT, GIGABIT);
        assert!(price.is_paid());
    }

    #[test]
    fn what_costs_much_is_tried_seldom_until_it_costs_nothing() {
        let (mut price, mut at) = (Price::default(), (0, 0));
        let held = run(&mut price, &mut at, 100 * S, GIGABIT, GIGABIT / 10);
        assert!((1..2 * S).contains(&held), "{} ms of 100 s", held / MS);
        let held = run(&mut price, &mut at, 100 * S, GIGABIT, GIGABIT / 100 * 80);
        assert!(held < 2 * S, "{} ms of 100 s", held / MS);
        run(&mut price, &mut at, 40 * S, GIGABIT, GIGABIT);
        let held = run(&mut price, &mut at, 100 * S, GIGABIT, GIGABIT);
        assert!(held > 99 * S, "{} of 100 s", held / S);
        // another shares what there is, and goes again
        let held = run(&mut price, &mut at, 10 * S, GIGABIT / 2, GIGABIT / 20);
        assert!(held < S, "{} ms of 10 s", held / MS);
    }

    #[test]
    fn what_comes_to_less_for_both_is_no_price() {
        let (mut price, mut at) = (Price::default(), (0, 0));
        run(&mut price, &mut at, S, GIGABIT, GIGABIT);
        let held = run(&mut price, &mut at, 10 * S, GIGABIT / 2, GIGABIT / 2);
        assert!(held > 9 * S, "{} ms of 10 s", held / MS);
    }

    #[test]
    fn only_time_in_which_something_long_is_under_way_counts() {
        let (mut price, mut at) = (Price::default(), (0, 0));
        for _ in 0..1000 {
            at = (at.0 + MS, at.1 + 1000);
            price.look(Look { busy: false, ..look(at, false) });
            price.look(Look { long: None, ..look(at, false) });
        }
        assert!(!price.is_paid());
        // bursts with pauses
        for _ in 0..100 {
            price.look(Look { busy: false, ..look(at, false) });
            at = (at.0 + 10 * MS, at.1 + GIGABIT / 1000);
            price.look(Look { long: Some(at.0 - MS), ..look(at, false) });
        }
        assert!(price.is_paid() && price.usual == GIGABIT, "{price:?}");
        run(&mut price, &mut at, 2 * FIRST, GIGABIT, GIGABIT);
        for _ in 0..1000 {
            at.0 += 2 * MS;
            assert!(!price.look(Look { long: None, ..look(at, true) }), "short messages");
        }
        // long silence, lanes that end, clocks that stand still
        price.look(look(at, true));
        for at in [(at.0 + 10 * S, 0), (at.0 + 10 * S, u64::MAX), (0, u64::MAX), (u64::MAX, u64::MAX)] {
            price.look(look(at, true));
        }
        assert!(price.is_paid());
    }
}
