//! DelayPace: a rate that lets no queue grow, whatever is lost.

use super::congestion::{first_window, least_window};
use super::{MicroProtocol, NEVER, Sent, Settled, Shared, Time};

/// A queue of this part of a round trip, and of so many nanoseconds, is none yet.
const EIGHTH: u64 = 8;
const SLACK: Time = 1_000_000;
/// Of the rate, or of what the other side gets if that is less, what is left when a queue grows.
const LESS: f64 = 0.85;
/// Of it, what is added in a round trip where it is used and no queue grows: at first, and later.
const MORE: (f64, f64) = (1.0, 0.125);
/// It is never more than so many times what the other side gets and what is added.
const SPARE: f64 = 1.1;
/// Losses are counted over at least so many datagrams.
const SAMPLE: u32 = 64;
/// More is lost than the path loses by itself if it is more by half, and by this part.
const EXCESS: f64 = 0.1;
/// If at half the rate at least this part of such losses is left, they are the path's own.
const LEFT: f64 = 0.6;
/// Round trips after which losses are those of the new rate.
const SETTLES: u32 = 2;
/// What is not answered for in so many round trips is lost, and such a round trip before any was measured, in nanoseconds.
const TRIPS: u64 = 4;
const UNKNOWN: Time = 50_000_000;
/// The shortest round trip is one of this and the last such time, in nanoseconds.
const SHORTEST: Time = 10_000_000_000;

/// A rate by delay, in rounds, as LEDBAT (RFC 6817) has a window: it grows while the shortest round trip of a round is nearly the
/// shortest of all, and shrinks when it is not, or when a router marked something. Values that wait in a queue are stale, so that nothing is
/// gained by more.
///
/// Losses count only beyond those that the path has by itself. When more is lost than those, the rate is halved, and it is seen what that
/// changes: if little, the path has more of its own than was known, and the rate is as before; else it stays so, since some queue
/// is too short to be seen by delay.
///
/// A window full of what nobody answers for would let nothing leave but probes, ever less often, while values grow old. So that counts
/// as lost after a few round trips, or later, the longer nothing is heard: into a path that is dead ever less is sent.
///
/// Beside flows that fill queues it falls to the least, four datagrams in a round trip: enough for small values and for copies of them.
#[derive(Debug, Default)]
pub struct DelayPace {
    /// Bytes per second; 0 before the first round trip.
    rate: f64,
    started: bool,
    /// When the round ends.
    ends: Time,
    /// The shortest round trip in it; 0: none.
    rtt: Time,
    marked: bool,
    /// The most that the other side got in it, in bytes per second.
    peak: u64,
    /// Datagrams since the losses were looked at last.
    lost: u32,
    came: u32,
    /// What the path loses by itself, and what that was at most by the last trial.
    own: f64,
    confirmed: f64,
    /// The rate before it was halved, and what was lost then; and in how many rounds what is lost says what that changed.
    trial: Option<(f64, f64)>,
    settles: u32,
    /// The shortest round trip of this time and of the last, and until when this one is.
    shortest: [Time; 2],
    until: Time,
    /// When something was acknowledged last.
    heard: Time,
}

/// The lesser of two that are not 0.
fn lesser(a: Time, b: Time) -> Time {
    match (a, b) {
        (0, other) | (other, 0) => other,
        (a, b) => a.min(b),
    }
}

/// How long an answer takes at most where nothing is lost.
fn answer(shared: &Shared) -> Time {
    shared.ack_delay + if shared.rtt.smoothed > 0 { shared.rtt.smoothed } else { UNKNOWN }
}

/// When a datagram counts as lost that left then, if answers take so long and one was heard last at that time.
fn expires(answer: Time, heard: Time, at: Time) -> Time {
    // then it left in the first half of the time in which nothing was heard
    (at + TRIPS * answer).max((2 * at).saturating_sub(heard))
}

impl DelayPace {
    fn measure(&mut self, shared: &Shared, rtt: Time) {
        if rtt == 0 {
            return;
        }
        if shared.now >= self.until {
            (self.shortest, self.until) = ([0, self.shortest[0]], shared.now + SHORTEST);
        }
        self.shortest[0] = lesser(self.shortest[0], rtt);
        self.rtt = lesser(self.rtt, rtt);
    }

    fn base(&self) -> Time {
        lesser(self.shortest[0], self.shortest[1]).max(1)
    }

    fn least(&self, shared: &Shared) -> f64 {
        2.0 * least_window(shared) as f64 * 1e9 / shared.rtt.smoothed.max(SLACK) as f64
    }

    /// Looks at what was lost.
    fn weigh_losses(&mut self) {
        if self.settles > 0 {
            self.settles -= 1;
            (self.lost, self.came) = (0, 0);
        }
        let all = self.lost + self.came;
        if all < SAMPLE {
            return;
        }
        let part = f64::from(self.lost) / f64::from(all);
        (self.lost, self.came) = (0, 0);
        if let Some((rate, before)) = self.trial.take() {
            if part > LEFT * before {
                self.confirmed = (part + before) / 2.0;
                (self.own, self.rate) = (self.confirmed, rate);
            } else {
                self.started = true;
            }
        } else if part > 1.5 * self.own + EXCESS {
            (self.trial, self.settles) = (Some((self.rate, part)), SETTLES);
            self.rate /= 2.0;
        } else {
            self.own = (self.own + (part - self.own) / 8.0).min(self.confirmed);
        }
    }

    /// A round trip is over.
    fn turn(&mut self, shared: &Shared) {
        self.weigh_losses();
        let base = self.base();
        let queue = self.rtt.saturating_sub(base) > base / EIGHTH + SLACK;
        // what it would get if nothing were lost that the path loses by itself
        let gets = self.peak as f64 / (1.0 - self.own).max(0.1);
        if queue || self.marked {
            (self.rate, self.started, self.trial) = (self.rate.min(gets) * LESS, true, None);
        } else if self.trial.is_none() {
            let more = 1.0 + if self.started { MORE.1 } else { MORE.0 };
            self.rate = self.rate.max((self.rate * more).min(gets * more * SPARE));
        }
        let least = self.least(shared);
        if self.rate <= least {
            // from there it begins anew, unless a queue stands
            (self.rate, self.started) = (least, queue);
        }
    }
}

impl MicroProtocol for DelayPace {
    const NAME: &'static str = "DelayPace";

    fn open(&mut self, shared: &mut Shared) {
        shared.window = first_window(shared);
        shared.starting = true;
    }

    fn timeout(&mut self, shared: &mut Shared) {
        let (now, answer, heard) = (shared.now, answer(shared), self.heard);
        shared.lose(|sent| expires(answer, heard, sent.at) <= now);
    }

    fn due(&self, shared: &Shared) -> Time {
        let oldest = shared.flight.oldest();
        oldest.map_or(NEVER, |sent| expires(answer(shared), self.heard, sent.at))
    }

    fn acked(&mut self, shared: &mut Shared, sent: &Sent) {
        self.heard = shared.now;
        self.came += u32::from(!sent.probes_path);
    }

    fn lost(&mut self, _shared: &mut Shared, sent: &Sent) {
        self.lost += u32::from(!sent.probes_path);
    }

    fn settled(&mut self, shared: &mut Shared, settled: &Settled) {
        self.marked |= settled.marked > 0;
        self.peak = self.peak.max(settled.sample.rate);
        self.measure(shared, settled.rtt);
        if self.rtt == 0 || shared.now < self.ends {
            return;
        }
        if self.rate == 0.0 {
            self.rate = shared.window as f64 * 1e9 / self.rtt as f64;
        } else {
            self.turn(shared);
        }
        self.ends = shared.now + shared.rtt.smoothed.max(self.base());
        (self.rtt, self.marked, self.peak) = (0, false, 0);
        let holds = self.rate * (3 * (self.base() + SLACK)) as f64 * 1e-9;
        shared.pace = self.rate as u64;
        shared.window = (holds as u64).max(8 * least_window(shared));
        shared.starting = !self.started;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Fate, Segment};
    use super::*;
    use crate::micro::delivery::{Mark, RateSample};

    const MS: Time = 1_000_000;

    struct Path {
        shared: Shared,
        one: DelayPace,
        /// Bytes per second that it takes, and the part of a hundred datagrams that it loses by itself.
        rate: u64,
        loss: u32,
    }

    fn path(rate: u64, loss: u32) -> Path {
        let mut shared = Shared::new(0, 1000, 0, 1 << 30, 0);
        shared.rtt.smoothed = 20 * MS;
        let mut one = DelayPace::default();
        one.open(&mut shared);
        Path { shared, one, rate, loss }
    }

    impl Path {
        /// A round trip of a hundred datagrams at its pace: above the path's rate a queue grows, or, if it has none, more is lost.
        fn round(&mut self, queues: bool) {
            let Self { shared, one, rate, loss } = self;
            shared.now += 21 * MS;
            let excess = (shared.pace as f64 / *rate as f64 - 1.0).max(0.0);
            let more = if queues { 0 } else { (100.0 * excess / (1.0 + excess)) as u32 };
            for n in 0..100 {
                let (segment, mark) = (Segment::default(), Mark::default());
                let fate = if n < *loss + more { Fate::Lost } else { Fate::Flying };
                let sent =
                    Sent { number: 0, at: shared.now, size: 1000, segment, probes_path: false, fate, mark };
                if fate == Fate::Lost { one.lost(shared, &sent) } else { one.acked(shared, &sent) }
            }
            let waits = if queues { (excess * 20e6) as Time } else { 0 };
            let gets = shared.pace.min(*rate) * u64::from(100 - *loss) / 100;
            let sample = RateSample { rate: gets, ..RateSample::default() };
            let settled = Settled { rtt: 20 * MS + waits, sample, ..Settled::default() };
            one.settled(shared, &settled);
        }

        /// The part of its rate that is used on an average of so many rounds, after as many.
        fn used(&mut self, rounds: u32, queues: bool) -> f64 {
            (0..rounds).for_each(|_| self.round(queues));
            let mut sum = 0;
            for _ in 0..rounds {
                self.round(queues);
                sum += self.shared.pace;
            }
            sum as f64 / f64::from(rounds) / self.rate as f64
        }
    }

    #[test]
    fn it_keeps_to_the_rate_whatever_is_lost() {
        for loss in [0, 10, 30, 50] {
            let used = path(10_000_000, loss).used(100, true);
            assert!((0.8..1.3).contains(&used), "{loss} %: {used}");
        }
    }

    #[test]
    fn it_does_not_take_losses_of_a_queue_without_room_for_the_paths_own() {
        for loss in [0, 10] {
            let used = path(10_000_000, loss).used(200, false);
            assert!((0.5..1.4).contains(&used), "{loss} %: {used}");
        }
    }
}
