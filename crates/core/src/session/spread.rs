//! Several lanes over one pair of interfaces, where that gets more through.
//!
//! Networks with ways of equal cost choose one for each connection, by a hash of its addresses and ports: a new port is a new draw.
//! How many ways there are, and which a connection took, nobody tells. So it is tried out while much is moved, by one law both ways:
//! **a lane has to bring at least a fourth of what lanes bring on average.**
//!
//! - A *trial*, by the side that opens lanes: what all lanes get through is measured, one lane more is opened, and it is measured
//!   again. It stays if the sum grew by so much, by more than it varies, and not at the cost of the others: that would be a share
//!   taken from whoever else is on their way. Else it ends, and trials in vain are further and further apart.
//! - A *rest*, by the side that sends: a lane beside others of its pair is given nothing for a while. If the sum does not fall by so
//!   much, it ends: it shares its way with another, or its way is bad.
//!
//! Where it was said how many lanes there are to be at least ([`super::Config::least`]), so many are opened without a trial, and none of them rests.
//!
//! So lanes that share a way become one, those on bad ways make room for new draws, and where there is one way there is one lane. A
//! lane that is to end is given nothing more, and ends when what it holds is through.

use super::gauge::{Gauge, Mean, Pause, SETTLE, WINDOW};
use super::lane::{Lane, Stand};
use super::path::{Path, Way};
use super::{Links, Session, Time, Traffic};
use crate::lanes::MS;

/// A slice is at least so many round trips.
const ROUNDS: u64 = 4;
/// Who receives less than this knows too little, in bytes per second.
const TRICKLE: u64 = 500_000;
/// The others may lose one part in so many to a lane on trial.
const LOSS: u64 = 16;
/// Before the next trial as much gets through as before the last, but for one part in so many.
const RECOVERED: u64 = 16;
/// Over longer round trips connections need seconds for what a trial takes from them, in nanoseconds.
const NEAR: Time = 2 * MS;
/// With so many other peers nothing is tried.
const CROWD: usize = 2;
/// Interfaces that carry so much of what they claim, in eighths, are full: nothing is to be gained.
const FULL: u64 = 7;
/// So many slices lie between trials in vain, at first and at most; so many such trials for each pair, and one for each lane, come
/// before pauses grow: where many ways were found there may be more, and the last is seldom drawn.
const TRIALS: (u64, u64) = (10, 3200);
const DRAWS: usize = 2;
/// So many between rests of lanes that were needed.
const RESTS: (u64, u64) = (200, 3200);
/// So many, at least, between sums that fell so far that all is thought over.
const FALLS: u64 = 500;
/// Between lanes that are opened because so many are to be there at least: at first, and at most where that is in vain, in nanoseconds.
const LEAST: (Time, Time) = (20 * MS, 60_000 * MS);
/// A lane that is to end does so after so many slices, whatever it holds.
const LEAVES: u64 = 25;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// What there is, is measured.
    Watch,
    /// Lanes are on trial; before that so many others got this through.
    Trial(Mean, usize),
    /// A lane rests; before that this got through, and that lane's part of it was so much. Whether it has just been on trial.
    Rest(Mean, u64, bool),
}

/// What is known of how many lanes help, and what is being tried.
#[derive(Debug)]
pub(super) struct Spread {
    stage: Stage,
    gauge: Gauge,
    trials: Pause,
    rests: Pause,
    /// Trials in vain since one was not.
    vain: u32,
    /// Which pair's turn it is.
    turn: usize,
    /// When a lane came or went last.
    changed: Time,
    /// Most that got through lately, and since when that counts.
    settled: (u64, Time),
    /// What got through before the last trial in vain.
    owed: u64,
    /// Much was moved in the last slice.
    busy: bool,
    /// With how many other peers this side moves much.
    others: usize,
    /// How often lanes that are to be there at least were opened of late, and when that may be again.
    least: (u32, Time),
}

impl Default for Spread {
    fn default() -> Self {
        Self {
            stage: Stage::Watch,
            gauge: Gauge::default(),
            trials: Pause::new(TRIALS.0),
            rests: Pause::new(RESTS.0),
            vain: 0,
            turn: 0,
            changed: 0,
            settled: (0, 0),
            owed: 0,
            busy: false,
            others: 0,
            least: (0, 0),
        }
    }
}

impl Spread {
    /// The next trial may be soon.
    fn hope(&mut self, now: Time) {
        let pause = (self.trials.pause / 2).max(TRIALS.0);
        (self.trials, self.vain) = (Pause::after(now, pause), 0);
    }
}

impl<L: Copy + Eq + core::fmt::Debug> Session<L> {
    /// Whether something was begun that has to come to its end even if nothing else happens.
    pub(super) fn is_trying(&self) -> bool {
        self.spread.stage != Stage::Watch || self.lanes.iter().any(|lane| lane.is_leaving())
    }

    /// Whether much is being moved.
    pub fn moves_much(&self) -> bool {
        self.spread.busy
    }

    /// With so many other peers this side moves much, too. They are spread over what ways there are by being several.
    pub fn set_others(&mut self, others: usize) {
        self.spread.others = others;
    }

    /// A lane came or went: what was being measured is another thing now.
    pub(super) fn lanes_changed(&mut self, now: Time) {
        self.spread.changed = now;
        self.spread.gauge.settle();
        match self.spread.stage {
            Stage::Rest(..) => self.end_rest(Stand::Unproven),
            Stage::Trial(..) | Stage::Watch => {}
        }
    }

    /// A lane that was of use has failed: another draw may be worth it.
    pub(super) fn lane_missed(&mut self, now: Time, stand: Stand) {
        if matches!(stand, Stand::Unproven | Stand::Proven) {
            self.spread.hope(now);
        }
    }

    /// The other side gives a lane up. Beside others that is because it brings nothing.
    pub(super) fn lane_refuted(&mut self, now: Time, at: usize) {
        if self.beside(&self.lanes[at]) > 1 {
            self.lanes[at].stand = Stand::Leaving(now);
        }
    }

    /// How long a slice is now.
    fn slice(&self) -> Time {
        let far = self.lanes.iter().map(|lane| lane.estimate.min_rtt()).max().unwrap_or(0);
        self.config.slice.max(ROUNDS * far)
    }

    /// A look at what all lanes get through, and what follows from that.
    pub(super) fn spread_out(&mut self, now: Time, traffic: &mut impl Traffic, links: &mut impl Links<L>) {
        self.end_leaving(now, traffic, links);
        self.open_least(now);
        if self.config.connections < 2 {
            return;
        }
        let held: u64 = self.lanes.iter().filter(|lane| !lane.is_shut()).map(|lane| lane.queued).sum();
        let began = self.spread.gauge.look(held >= self.config.fed);
        let (slice, took) = (self.slice(), now.saturating_sub(began));
        if took < slice {
            return;
        }
        let seen = self.spread.gauge.end_slice(now, took, &mut self.lanes, links);
        let much = seen.fed || seen.received >= TRICKLE;
        // who did not look for long knows nothing of what was meanwhile
        self.spread.busy = much && took <= 4 * slice;
        if !self.spread.busy {
            return self.stop_trying(now);
        }
        if self.paths.iter().any(|path| path.is_further() && path.is_opening()) {
            self.spread.gauge.settle();
        }
        if self.spread.gauge.take(seen) {
            self.judge(now);
        }
    }

    /// Little is moved, or nobody looked: what is being tried comes to nothing.
    fn stop_trying(&mut self, now: Time) {
        self.spread.gauge.settle();
        match self.spread.stage {
            Stage::Watch => {}
            Stage::Trial(..) | Stage::Rest(.., true) => self.end_trial(now, false),
            Stage::Rest(.., false) => self.end_rest(Stand::Unproven),
        }
    }

    /// A window is complete.
    fn judge(&mut self, now: Time) {
        let (total, sent) = (self.spread.gauge.total(), self.spread.gauge.sent());
        match self.spread.stage {
            Stage::Watch => {
                self.notice_fall(now, total);
                if !(self.spread.gauge.is_fed() && self.begin_rest(now, sent)) {
                    self.begin_trial(now, total);
                }
            }
            Stage::Trial(before, lanes) => {
                let part = self.spread.gauge.on_trial().rate;
                let least = before.worth(lanes).max(part / 4 * 3).max(before.varies + total.varies);
                let grew = total.rate > before.rate + least;
                // where others share a way, one more connection gets more through at their cost, and at that of those beside it
                let taken = self.spread.gauge.others().rate + before.rate / LOSS < before.rate;
                match grew && !taken {
                    true => self.confirm(now, sent, self.spread.gauge.sent_on_trial().rate),
                    false => self.end_trial(now, false),
                }
            }
            Stage::Rest(before, part, fresh) => {
                let worth = before.worth(self.lanes.len()).max(part / 2);
                let needed = sent.rate + worth <= before.rate;
                let clear = before.varies + sent.varies < worth;
                match fresh {
                    true => self.end_trial(now, needed && clear),
                    // where it varies more than that, nothing was learnt
                    false => {
                        self.end_rest(if needed || !clear { Stand::Proven } else { Stand::Leaving(now) })
                    }
                }
            }
        }
    }

    /// More gets through with the lane on trial. That may have been chance: this side sees whether it is less again while that rests.
    fn confirm(&mut self, now: Time, sent: Mean, part: u64) {
        if !self.spread.gauge.is_fed() {
            return self.end_trial(now, true);
        }
        let on_trial = self.lanes.iter_mut().filter(|lane| lane.stand == Stand::Trial);
        on_trial.for_each(|lane| lane.stand = Stand::Resting);
        self.spread.stage = Stage::Rest(sent, part, true);
        self.spread.gauge.settle();
    }

    /// Ways become bad, or are given to others: then lanes are looked at anew.
    fn notice_fall(&mut self, now: Time, total: Mean) {
        let (best, since) = self.spread.settled;
        if total.rate >= best / 4 * 3 {
            self.spread.settled.0 = best.max(total.rate);
        } else if now >= since + FALLS * self.slice() {
            (self.spread.settled, self.spread.owed) = ((total.rate, now), 0);
            self.spread.hope(now);
            let proven = self.lanes.iter_mut().filter(|lane| lane.stand == Stand::Proven);
            proven.for_each(|lane| lane.stand = Stand::Unproven);
        }
    }

    /// How many lanes go between the same addresses as this one.
    fn beside(&self, lane: &Lane<L>) -> usize {
        let like = |other: &&Lane<L>| {
            other.transport == lane.transport && other.ips().is_some_and(|its| Some(its) == lane.ips())
        };
        let like = |other: &&Lane<L>| like(other) && !other.is_leaving();
        self.lanes.iter().filter(like).count()
    }

    /// Lets the weakest rest of those of which it is not known that they are needed, and from time to time one that is. False: none.
    fn begin_rest(&mut self, now: Time, sent: Mean) -> bool {
        let slice = self.slice();
        // while the other side tries, it is not disturbed
        let calm = u64::from(SETTLE + WINDOW as u32) * 4 * slice;
        if self.planner.is_none() && now < self.spread.changed + calm {
            return false;
        }
        let again = now >= self.spread.rests.next;
        let due = |lane: &Lane<L>| match lane.stand {
            Stand::Unproven => self.beside(lane) > self.config.least,
            Stand::Proven => again && self.beside(lane) > self.config.least,
            _ => false,
        };
        let weakest = self.lanes.iter().enumerate().filter(|(_, lane)| due(lane));
        let weakest = weakest.min_by_key(|(_, lane)| (lane.stand == Stand::Proven, lane.estimate.rate()));
        let Some((at, _)) = weakest else { return false };
        if self.lanes[at].stand == Stand::Proven {
            self.spread.rests.grow(now, slice, RESTS.1);
        }
        self.lanes[at].stand = Stand::Resting;
        self.spread.stage = Stage::Rest(sent, self.lanes[at].estimate.rate(), false);
        self.spread.gauge.settle();
        true
    }

    fn end_rest(&mut self, stand: Stand) {
        let resting = self.lanes.iter_mut().filter(|lane| lane.stand == Stand::Resting);
        resting.for_each(|lane| lane.stand = stand);
        self.spread.stage = Stage::Watch;
        self.spread.gauge.settle();
    }

    /// The paths that are the first between their interfaces and have a lane.
    fn pairs(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        let up = self.lanes.iter().filter_map(|lane| lane.path);
        let own = |path: &Path| !path.is_further() && !path.stands_in() && path.way().pair().is_some();
        up.filter(move |at| own(&self.paths[*at]))
    }

    /// Whether all interfaces carry what they claim to be able to.
    fn is_full(&self, total: Mean) -> bool {
        let speeds = self.pairs().map(|at| u64::from(self.paths[at].way().speed()));
        let claimed = speeds.clone().sum::<u64>() * 125_000;
        speeds.min() > Some(0) && total.rate >= claimed / 8 * FULL
    }

    /// Whether there may be one more lane.
    fn has_room(&self, pairs: usize) -> bool {
        // a path of its own comes before one more lane of another
        let missing = |path: &&Path| !path.is_up() && path.is_meant() && !path.is_vain();
        let missing = self.paths.iter().filter(missing).count();
        let most = self.planner.as_ref().map_or(0, |planner| planner.most);
        pairs > 0 && !self.parting && self.lanes.len() + missing < most
    }

    /// Whether so much gets through that one more lane may help, and harms nobody.
    fn is_worth_trying(&self, before: Mean) -> bool {
        let recovered = before.rate >= self.spread.owed - self.spread.owed / RECOVERED;
        let near = self.lanes.iter().all(|lane| lane.estimate.min_rtt() <= NEAR);
        // where a stand-in serves, packets are lost: connections find no speed that lasts
        let calm = self.lanes.iter().all(|lane| !lane.yields || self.is_stand_in(lane.transport));
        recovered && near && calm && self.spread.others < CROWD && !self.is_full(before)
    }

    /// Opens a lane to see whether more gets through with it, if it is time.
    fn begin_trial(&mut self, now: Time, before: Mean) {
        let count = self.pairs().count();
        if now < self.spread.trials.next || !self.has_room(count) || !self.is_worth_trying(before) {
            return;
        }
        self.open_on_trial(now, before, count);
    }

    fn open_on_trial(&mut self, now: Time, before: Mean, pairs: usize) {
        self.spread.turn = (self.spread.turn + 1) % pairs;
        let Some(at) = self.pairs().nth(self.spread.turn) else { return };
        let way = *self.paths[at].way();
        let there = self.paths.iter().filter(|path| path.way().is(&way) && !path.is_idle()).count();
        // else the others have their turns
        if there < self.config.connections {
            self.spread.stage = Stage::Trial(before, self.lanes.len());
            self.spread.gauge.settle();
            self.open_further(now, way);
        }
    }

    /// Opens another lane where there are fewer than there are to be.
    fn open_least(&mut self, now: Time) {
        let opening = |path: &Path| path.is_further() && path.is_opening();
        if self.config.least < 2 || self.spread.stage != Stage::Watch || self.paths.iter().any(opening) {
            return;
        }
        let going = |at: usize| self.going(self.paths[at].way());
        let fewest = self.pairs().map(|at| (going(at), at)).min();
        let Some((_, at)) = fewest.filter(|(there, _)| *there < self.config.least && self.has_room(1)) else {
            if now >= self.spread.least.1 + LEAST.1 {
                self.spread.least.0 = 0;
            }
            return;
        };
        let (times, next) = self.spread.least;
        if now >= next {
            // those that fail, or that the other side does not want, are further and further apart
            let vain = times.saturating_sub((self.config.least * self.pairs().count()) as u32);
            let pause = LEAST.0.saturating_mul(1 << vain.min(16)).min(LEAST.1);
            self.spread.least = (times + 1, now + pause);
            let way = *self.paths[at].way();
            self.open_further(now, way);
        }
    }

    /// How many lanes go that way that are not to end.
    fn going(&self, way: &Way) -> usize {
        let its = |lane: &&Lane<L>| lane.path.is_some_and(|at| self.paths[at].way().is(way));
        self.lanes.iter().filter(its).filter(|lane| !lane.is_leaving()).count()
    }

    /// Begins a trial, whatever gets through: for simulations, in which it may happen at any time.
    pub(crate) fn try_another(&mut self, now: Time) {
        let pairs = self.pairs().count();
        if self.spread.stage == Stage::Watch && self.has_room(pairs) {
            self.open_on_trial(now, Mean { rate: 0, varies: 0 }, pairs);
        }
    }

    /// Lets a lane rest that is not the only one, or end, whatever it brings: for simulations.
    pub(crate) fn try_without(&mut self, now: Time, number: u16, for_good: bool) {
        if self.spread.stage != Stage::Watch || self.lanes.len() < 2 {
            return;
        }
        let Some(at) = self.lanes.iter().position(|lane| lane.number == number) else { return };
        if for_good {
            self.lanes[at].stand = Stand::Leaving(now);
        } else if !self.lanes[at].is_leaving() {
            self.lanes[at].stand = Stand::Resting;
            self.spread.stage = Stage::Rest(Mean { rate: 0, varies: 0 }, 0, false);
        }
    }

    /// The lane on trial stays, or ends.
    fn end_trial(&mut self, now: Time, kept: bool) {
        let tried = |lane: &Lane<L>| matches!(lane.stand, Stand::Trial | Stand::Resting);
        let kept = kept && self.lanes.iter().any(tried);
        self.spread.owed = match self.spread.stage {
            Stage::Trial(before, _) if !kept => before.rate,
            _ => 0,
        };
        let on_trial = self.lanes.iter_mut().filter(|lane| tried(lane));
        on_trial.for_each(|lane| lane.stand = if kept { Stand::Proven } else { Stand::Leaving(now) });
        self.spread.stage = Stage::Watch;
        self.spread.gauge.settle();
        if kept {
            return self.spread.hope(now);
        }
        self.spread.vain += 1;
        let (turns, slice) = ((DRAWS * self.pairs().count() + self.lanes.len()) as u32, self.slice());
        match self.spread.vain >= turns {
            true => {
                self.spread.vain = 0;
                self.spread.trials.grow(now, slice, TRIALS.1);
            }
            false => self.spread.trials.next = now + self.spread.trials.pause * slice,
        }
    }

    /// What a lane is that has just come to be by this path.
    pub(super) fn stand_of_new(&self, now: Time, path: Option<usize>) -> Stand {
        let further = path.and_then(|at| self.paths.get(at)).filter(|path| path.is_further());
        let wanted = further.is_some_and(|path| self.going(path.way()) < self.config.least);
        match (further.is_some() && !wanted, self.spread.stage) {
            (false, _) => Stand::Unproven,
            (true, Stage::Trial(..)) => Stand::Trial,
            (true, _) => Stand::Leaving(now),
        }
    }

    /// Lanes that are to end do so when nothing is on its way by them.
    fn end_leaving(&mut self, now: Time, traffic: &mut impl Traffic, links: &mut impl Links<L>) {
        if self.lanes.iter().all(Lane::is_leaving) {
            // the others have failed meanwhile
            self.lanes.iter_mut().for_each(|lane| lane.stand = Stand::Unproven);
        }
        let long = LEAVES * self.slice();
        let over = |lane: &Lane<L>| match lane.stand {
            Stand::Leaving(since) => links.queued(lane.link) == 0 || now >= since + long,
            _ => false,
        };
        if let Some(at) = self.lanes.iter().position(over)
            && self.lanes.len() > 1
        {
            self.retire(now, at, "no more gets through with it".into(), traffic, links);
        }
    }
}
