//! What a lane can do, learnt from what it does: from bytes that were acknowledged while there were always more to send, and from
//! the round trips that the kernel measures. Nothing is sent in order to measure.

use super::share::{Load, bytes, time};
use super::{MS, S};

/// What was seen of a lane at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sample {
    /// When, in nanoseconds of any clock that does not jump.
    pub now: u64,
    /// Bytes that the peer's side has acknowledged, altogether.
    pub delivered: u64,
    /// Bytes that were given to the lane and have not been acknowledged.
    pub queued: u64,
    /// Round trip, smoothed, in nanoseconds; 0: unknown.
    pub rtt: u64,
    /// The shortest round trip lately, in nanoseconds; 0: unknown.
    pub min_rtt: u64,
}

/// Rates are smoothed over so long, and a round trip.
const SMOOTH: u64 = 20 * MS;
/// Between two samples that are nearer than this no rate is read: acknowledgements come in lumps.
const LEAST: u64 = 2 * MS;
/// Samples that are further apart tell nothing of what was between.
const MOST: u64 = 200 * MS;
/// What a lane may hold beyond what is on its way: so long it goes on while nobody looks.
const AHEAD: u64 = 5 * MS;
/// A queue of so many nanoseconds is let grow no longer; of a lane that has been faster, one of so many: it may be that of others.
const QUEUE: (u64, u64) = (20 * MS, 100 * MS);
/// Least and most that a lane may hold, in bytes.
const LEAST_WINDOW: u64 = 64 << 10;
const MOST_WINDOW: u64 = 64 << 20;
/// What gets through so much per second is held up by processors rather than by the network, and they work in larger pieces: a lane that
/// is to hold little may hold as many times as much as it is faster than this, up to so many times.
const FAST: u64 = 1_000_000_000;
const FAST_MOST: u64 = 4;
/// What is usual, in eighths, and the most that a lane holds that ran dry.
const USUAL_DEPTH: u64 = 8;
const MOST_DEPTH: u64 = 64 * USUAL_DEPTH;
/// A slow lane holds less than the least of others: what it is through with in so long.
const SLOW: u64 = 50 * MS;
/// Rates are smoothed over no fewer bytes than this: few packets tell little.
const FEW: u64 = 32 << 10;
/// Fragments are at least so long, in bytes, unless less is left.
pub(super) const LEAST_SLICE: u64 = 16 << 10;
/// A lane that holds less than this, and less than travels on it at a time, may have nothing to do.
const TRICKLE: u64 = 256 << 10;
/// In so long a lane that is not in use is thought to become twice as fast.
const RECOVER: u64 = S;
/// In so long it is forgotten that a lane that is in use was faster.
const FORGET: u64 = 5 * S;
/// Bytes by which a lane is thought to get through at least, per second: else it would never be tried again.
const LEAST_RATE: u64 = 10_000;

/// What a lane can do, as far as is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Estimate {
    rate: u64,
    /// What it was thought to do at first, or the best that it did.
    hoped: u64,
    measured: bool,
    /// Since when it always had something to send, in nanoseconds.
    busy_since: u64,
    /// Of what it held at the last look, what had left it, as far as its rate tells.
    left: u64,
    rtt: u64,
    min_rtt: u64,
    last: Sample,
    /// It ran dry while nobody looked: it is to hold so many eighths of what is usual. And what it had been given when it did last.
    depth: u64,
    dry: u64,
    /// For how many nanoseconds it is to be kept busy beyond what is on its way, if not for as many as usual.
    ahead: Option<u64>,
}

impl Estimate {
    /// Of a lane of which nothing was seen: `rate` is what its interfaces claim, in bytes per second; `rtt` what opening it took,
    /// in nanoseconds.
    pub fn new(rate: u64, rtt: u64) -> Self {
        let rate = rate.max(LEAST_RATE);
        Self {
            rate,
            hoped: rate,
            measured: false,
            busy_since: 0,
            left: 0,
            rtt,
            min_rtt: rtt,
            last: Sample::default(),
            depth: USUAL_DEPTH,
            dry: 0,
            ahead: None,
        }
    }

    /// The lane is to hold what keeps it busy for so many nanoseconds beyond what is on its way, and no more; `None`: as is usual.
    pub fn hold(&mut self, ahead: Option<u64>) {
        self.ahead = ahead;
    }

    /// The lane had nothing to do, though something waited: it is to hold more, once for each window that it was given. So many bytes it was
    /// altogether.
    pub fn ran_dry(&mut self, given: u64) {
        if self.ahead.is_none() && given >= self.dry.saturating_add(self.window() / 2) {
            (self.dry, self.depth) = (given, (2 * self.depth).min(MOST_DEPTH));
        }
    }

    /// Of a lane beside one of the same pair of hosts that was measured: it is thought to do as much until it is seen to do less
    /// with always more to send.
    pub fn beside(&self, claimed: u64, rtt: u64) -> Self {
        let measured = self.rate <= claimed;
        Self { measured, ..Self::new(self.rate.min(claimed), rtt) }
    }

    /// Of the connection that takes this one's place, `rtt` nanoseconds long. What was learnt is not forgotten: who ended because
    /// hardly anything got through begins slowly.
    pub fn again(&self, rtt: u64) -> Self {
        Self { rtt, min_rtt: rtt, busy_since: 0, left: 0, last: Sample::default(), dry: 0, ..*self }
    }

    /// The lane begins at `now`, in nanoseconds, when so many bytes count as delivered: what was before says nothing of its speed.
    #[must_use]
    pub fn from(self, now: u64, delivered: u64) -> Self {
        Self { last: Sample { now, delivered, ..self.last }, busy_since: now, ..self }
    }

    /// Bytes per second.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// Whether the rate was measured, not only claimed.
    pub fn is_measured(&self) -> bool {
        self.measured
    }

    /// Bytes that the peer's side had acknowledged when it was looked at last.
    pub fn delivered(&self) -> u64 {
        self.last.delivered
    }

    /// It held too little to show what it can: it is thought to do what it did before, or nearly.
    pub fn recover(&mut self) {
        self.rate = self.rate.max(self.hoped / 4 * 3);
    }

    /// Smoothed round trip, in nanoseconds.
    pub fn rtt(&self) -> u64 {
        self.rtt
    }

    /// The shortest round trip lately, in nanoseconds.
    pub fn min_rtt(&self) -> u64 {
        self.min_rtt
    }

    /// Takes in what is seen now.
    pub fn sample(&mut self, sample: Sample) {
        let last = self.last;
        if sample.rtt > 0 {
            self.rtt = sample.rtt;
        }
        if sample.min_rtt > 0 {
            self.min_rtt = sample.min_rtt;
        }
        let took = sample.now.saturating_sub(last.now);
        if took < LEAST {
            return;
        }
        self.last = sample;
        let delivered = sample.delivered.saturating_sub(last.delivered);
        // who has little to send shows nothing of what could be sent
        let full = self.window() / 2;
        if sample.queued >= full {
            self.depth = (self.depth - self.depth / USUAL_DEPTH).max(USUAL_DEPTH);
        }
        let always = last.queued > delivered + self.travels() || last.queued.min(sample.queued) >= full;
        let busy = took <= MOST && always;
        if !busy {
            self.busy_since = sample.now;
        }
        // nor can anything have been acknowledged before a round trip is over
        let tells = busy && last.now + took / 8 >= self.busy_since + self.min_rtt;
        let given = (sample.delivered + sample.queued).saturating_sub(last.delivered + last.queued);
        let waited = (last.queued.saturating_sub(self.left) + given).saturating_sub(bytes(took, self.rate));
        let left = if tells { sample.queued } else { sample.queued.saturating_sub(waited) };
        self.left = if self.measured { left.min(bytes(self.min_rtt, self.rate)) } else { 0 };
        if took > MOST {
            return;
        }
        let seen =
            u64::try_from(u128::from(delivered) * u128::from(S) / u128::from(took)).unwrap_or(u64::MAX);
        if tells && self.measured {
            self.blend(seen, took);
            self.hoped -= bytes(took, self.hoped.saturating_sub(self.rate)) / (FORGET / S);
        } else if !self.measured && (tells && delivered > 0 || delivered >= full) {
            (self.rate, self.measured) = (seen.max(LEAST_RATE), true);
            self.hoped = self.rate;
        } else if self.measured && seen > self.rate {
            // it is at least so fast
            self.blend(seen, took);
        } else if !busy && self.rate < self.hoped {
            // whoever was slow may have recovered, and is tried again in time
            let more = u128::from(self.rate) * u128::from(took) / u128::from(RECOVER);
            self.rate = self.rate.saturating_add(more as u64).min(self.hoped);
        }
        self.hoped = self.hoped.max(self.rate);
    }

    /// Bytes that may be on their way while the lane has nothing to do.
    fn travels(&self) -> u64 {
        if self.measured { bytes(self.min_rtt, self.rate).min(TRICKLE) } else { FEW }
    }

    fn blend(&mut self, seen: u64, took: u64) {
        let few = time(FEW, self.rate).min(10 * SMOOTH);
        let over = u128::from(SMOOTH.max(few) + self.rtt.min(self.min_rtt + SMOOTH).min(100 * MS) + took);
        let mixed =
            (u128::from(self.rate) * (over - u128::from(took)) + u128::from(seen) * u128::from(took)) / over;
        self.rate = u64::try_from(mixed).unwrap_or(u64::MAX).max(LEAST_RATE);
    }

    /// The lane as [`super::share`] sees it, with so much in it. What has left and is only not acknowledged yet is nothing that
    /// the next byte has to wait for.
    pub fn load(&self, queued: u64) -> Load {
        Load { rate: self.rate, latency: self.min_rtt / 2, queued: queued.saturating_sub(self.left) }
    }

    /// Most bytes that the lane should hold: enough to be busy until somebody looks again, and no more, because what it holds
    /// cannot go another way.
    pub fn window(&self) -> u64 {
        if !self.measured {
            return LEAST_WINDOW * self.depth / USUAL_DEPTH;
        }
        if let Some(ahead) = self.ahead {
            // so little may be through before the next look: then the lane is faster than it seems, and is not to hold less for that
            let rate = self.rate.max(self.hoped / 4 * 3);
            let time = 2 * self.min_rtt + ahead * (rate / FAST).clamp(1, FAST_MOST);
            return bytes(time, rate).clamp(LEAST_SLICE, MOST_WINDOW);
        }
        // who may hold twice what travels finds out soon how fast the lane is; what is held beyond makes round trips longer, and
        // they let more be held
        let waits = self.rtt.saturating_sub(self.min_rtt);
        let most = if self.rate < self.hoped / 4 * 3 { QUEUE.1 } else { QUEUE.0 };
        let time = self.rtt.max(2 * self.min_rtt) + if waits < most { AHEAD } else { 0 };
        let least = LEAST_WINDOW.min(bytes(SLOW, self.rate)).max(LEAST_SLICE);
        (bytes(time, self.rate).max(least) * self.depth / USUAL_DEPTH).min(MOST_WINDOW)
    }

    /// How many bytes the lane should be given now, if so many wait in it as [`Estimate::load`] says.
    pub fn room(&self, waiting: u64) -> u64 {
        match self.window().saturating_sub(waiting.saturating_add(self.left)) {
            0 => 0,
            free => self.slice().min(free.max(LEAST_SLICE)),
        }
    }

    /// How long the lane is busy with the least that it is given at a time, in nanoseconds.
    pub fn lasts(&self) -> u64 {
        time(LEAST_SLICE, self.rate)
    }

    /// How long a fragment should be, in bytes: about a millisecond of the lane.
    pub fn slice(&self) -> u64 {
        (self.rate / 1000).clamp(LEAST_SLICE, 1 << 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: u64 = 125_000_000;

    /// A lane of `rate`, sampled every 2 ms for `time`, that always holds `queued` bytes.
    fn run(estimate: &mut Estimate, rate: u64, rtt: u64, queued: u64, time: u64) {
        let Sample { now, delivered, .. } = estimate.last;
        for step in 1..=time / (2 * MS) {
            let after = step * 2 * MS;
            estimate.sample(Sample {
                now: now + after,
                delivered: delivered + bytes(after, rate),
                queued,
                rtt,
                min_rtt: rtt,
            });
        }
    }

    fn near(rate: u64, to: u64) -> bool {
        rate.abs_diff(to) < to / 20
    }

    #[test]
    fn a_lane_that_comes_late_is_not_slow_for_that() {
        let mut lane = Estimate::new(GIGABIT, MS).from(60 * MS, 500);
        lane.sample(Sample { now: 61 * MS, delivered: 65_500, queued: 0, rtt: MS, min_rtt: MS });
        assert!(lane.rate() > GIGABIT / 4, "{}", lane.rate());
    }

    #[test]
    fn a_lane_that_runs_dry_is_to_hold_more_until_it_is_full() {
        let mut lane = Estimate::new(GIGABIT, MS / 10);
        lane.ran_dry(100);
        assert_eq!(lane.window(), LEAST_WINDOW, "it was given less than it may hold");
        lane.ran_dry(LEAST_WINDOW);
        lane.ran_dry(LEAST_WINDOW + 100);
        assert_eq!(lane.window(), 2 * LEAST_WINDOW, "once for each window");
        run(&mut lane, GIGABIT, MS / 10, 1 << 20, 100 * MS);
        let usual = lane.window();
        assert!(near(usual, bytes(AHEAD + MS / 5, GIGABIT)), "{usual}");
        lane.hold(Some(MS / 10));
        lane.ran_dry(u64::MAX);
        lane.hold(None);
        assert_eq!(lane.window(), usual, "it is to hold little, and runs dry for that");
        (0..100).for_each(|times| lane.ran_dry((times + 1) << 40));
        assert_eq!(lane.window(), usual * MOST_DEPTH / USUAL_DEPTH);
        run(&mut lane, GIGABIT, MS / 10, 64 << 20, S);
        assert_eq!(lane.window(), usual);
    }

    #[test]
    fn a_claim_is_believed_until_something_was_seen() {
        let mut lane = Estimate::new(10 * GIGABIT, MS / 10);
        assert!(!lane.is_measured() && lane.window() == LEAST_WINDOW);
        run(&mut lane, GIGABIT, MS / 10, 0, 20 * MS);
        assert!(lane.is_measured(), "much got through, though it was never busy");
        run(&mut lane, GIGABIT / 10, MS / 10, 1 << 20, 200 * MS);
        assert!(near(lane.rate(), GIGABIT / 10), "{}", lane.rate());
    }

    #[test]
    fn a_lane_that_has_little_to_do_is_not_thought_slow_and_a_slow_one_is_tried_again() {
        let mut lane = Estimate::new(GIGABIT, 10 * MS);
        run(&mut lane, GIGABIT, 10 * MS, 4 << 20, 200 * MS);
        assert!(near(lane.rate(), GIGABIT));
        run(&mut lane, GIGABIT / 100, 10 * MS, 20_000, S);
        assert!(near(lane.rate(), GIGABIT), "a trickle: {}", lane.rate());
        run(&mut lane, GIGABIT / 100, 10 * MS, 4 << 20, 300 * MS);
        assert!(near(lane.rate(), GIGABIT / 100), "{}", lane.rate());
        run(&mut lane, 0, 10 * MS, 0, S);
        assert!((GIGABIT / 60..GIGABIT / 30).contains(&lane.rate()), "twice in a second: {}", lane.rate());
        run(&mut lane, 0, 10 * MS, 0, 20 * S);
        assert!(lane.rate() > GIGABIT / 2 && lane.rate() <= GIGABIT + GIGABIT / 20, "{}", lane.rate());
    }

    #[test]
    fn nothing_is_concluded_before_an_answer_can_have_come() {
        let mut lane = Estimate::new(GIGABIT, 40 * MS);
        run(&mut lane, GIGABIT, 40 * MS, 12 << 20, 400 * MS);
        run(&mut lane, 0, 40 * MS, 0, 20 * MS);
        let before = lane.rate();
        run(&mut lane, 0, 40 * MS, 8 << 20, 36 * MS);
        assert!(near(lane.rate(), before), "{} {before}", lane.rate());
        run(&mut lane, 0, 40 * MS, 8 << 20, 40 * MS);
        assert!(lane.rate() < before / 4 * 3, "now it can: {}", lane.rate());
    }

    #[test]
    fn what_a_lane_may_hold_does_not_feed_on_the_queue_that_it_makes() {
        let mut lane = Estimate::new(GIGABIT, MS / 10);
        for _ in 0..1000 {
            let (rtt, now) = (time(lane.window(), GIGABIT), lane.last.now + 2 * MS);
            let delivered = lane.last.delivered + bytes(2 * MS, GIGABIT);
            lane.sample(Sample { now, delivered, queued: lane.window(), rtt, min_rtt: MS / 10 });
        }
        assert!(lane.window() <= bytes(QUEUE.0 + 2 * AHEAD, GIGABIT), "{}", lane.window());
    }

    #[test]
    fn what_is_on_its_way_is_not_waited_for() {
        let mut lane = Estimate::new(GIGABIT, 20 * MS);
        run(&mut lane, GIGABIT, 20 * MS, 4 << 20, 400 * MS);
        let waits = lane.load(4 << 20).queued;
        assert!(near(waits, (4 << 20) - bytes(20 * MS, GIGABIT)), "{waits}");
        assert_eq!(lane.again(MS).load(1000), Load { rate: lane.rate(), latency: MS / 2, queued: 1000 });
    }
}
