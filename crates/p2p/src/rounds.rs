//! When all may stop: a machine that every member has one of.
//!
//! A **round** asks one question of all members: how far is the vector that all of them hold together from a solution? For an answer that
//! cannot be wrong it has to be one vector. So in a round each member *marks* one of its iterations; what it sends in that is what its
//! neighbours compute with in the iteration that they marked, and the norm that each finds then is that of the vector of all marked
//! iterations, exactly. Norms go up a tree of the members, the largest counts, and the verdict comes down.
//!
//! Where all are in step, iterations that are multiples of a number are marked by all, without a word: what they compute with is what
//! neighbours sent in the same iteration anyway. Norms go up while the iterations go on. Only where the round before came close to the
//! tolerance does a member hold, so as not to go beyond the vector that is judged; all hold by the same rule, so that all stop at the same
//! iteration, whatever the network does.
//!
//! Otherwise members say up the tree when their norm has been small for a while, with fresh values of their neighbours, and the root asks for a round
//! when all have. A member that is in step with others marks no iteration by itself: the first of those (its *leader*) names one that is
//! ahead of all, and who was past it when it heard has the round repeated with more room. Members that are in step but wait for none of the others' data, having no edge in
//! common, would run away from them, and such an iteration might never be reached: who is far ahead of the last of its group holds, by what members tell the leader now and then of
//! where they are, and that tells them of the last.
//!
//! A verdict need not be the end: all may go on with another problem that follows from the vector that was judged ([`Rounds::go_on`]). Members stop by the same round or none does; who
//! has not heard of that round's verdict holds, so that nobody computes with what others have of the next problem; and the next round is asked for, or marked by a number, when all have
//! gone on. So all marked iterations of a round are of one problem.
//!
//! No clock, no memory of a past round, no trust in words: what does not fit is a [`Breach`].

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Children of a member in the tree.
const ARITY: usize = 4;
/// Iterations in which a norm has to be small before that is told.
const PERSISTENT: u32 = 3;
/// A round that came as close as this, times the tolerance, has the members hold in the next.
const CLOSE: f64 = 10.0;
/// Iterations between a leader's word and what it marks, at first and at most.
const ROOM: Range<u64> = 4..1 << 16;
/// Where some are in step: iterations between two in which a member tells where it is, but one for each member of its group where those are more.
const PACE: u64 = 16;
/// So many times that, and a member is too far ahead of the last of its group. More than two: what is known of the last is that much old.
const PACES: u64 = 4;
/// Rounds that a member's children may be ahead of it: each is an iteration apart, and those along a line of members add up.
const AHEAD: u64 = 1 << 16;

/// What members say to each other about rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Word {
    /// To the parent: whether the norms of all of a subtree have been small, since the verdict of round `after`.
    Status {
        /// The last round whose verdict was heard; 0 before the first.
        after: u64,
        /// Whether all have.
        below: bool,
    },
    /// To children: this round is asked for.
    Ask {
        /// Its number.
        round: u64,
    },
    /// To those who are in step with the one that says it: which iteration this round marks.
    Mark {
        /// Its number.
        round: u64,
        /// The iteration.
        at: u64,
    },
    /// To who leads those who are in step: the iteration that is computed. From there: that of the last of them.
    Pace {
        /// It.
        iteration: u64,
    },
    /// To the parent: the largest norm of a subtree; infinite where one could not mark the iteration that it was to.
    Share {
        /// Its number.
        round: u64,
        /// The norm.
        norm: f64,
    },
    /// To children: the largest norm of all. All stop when it is no more than their tolerance.
    Verdict {
        /// Its number.
        round: u64,
        /// The norm.
        norm: f64,
        /// Whether states are kept of what the next stage begins with, if one follows.
        keep: bool,
    },
}

/// What a round found, when all may stop.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verdict {
    /// The number of the round.
    pub round: u64,
    /// The iteration of this member whose vector was judged: what it sent in it, together with what the others sent in theirs.
    pub iteration: u64,
    /// The largest norm that a member had for that vector.
    pub norm: f64,
}

/// A word that the one who said it had no reason to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Breach(&'static str);

/// What the machine has to know of the members.
#[derive(Debug, Clone)]
pub struct Setting {
    /// This member's number.
    pub me: usize,
    /// How many there are.
    pub members: usize,
    /// The norm at which all may stop.
    pub tolerance: f64,
    /// Those who are in step with this member, by number, in order, itself among them.
    pub in_step: Vec<usize>,
    /// Where all members are in step: how many iterations lie between those that are marked.
    pub every: u64,
    /// How many iterations lie between those of which states are kept; 0: none are.
    pub keep: u64,
}

/// When states are kept.
#[derive(Debug)]
struct Keeping {
    /// The iteration in which they were last, or the first.
    last: u64,
    /// The first iteration of the last stage that all began with it.
    begun: u64,
    /// Whether they are in the one that is computed, whatever its number.
    due: bool,
    /// Whether they are in this stage. Where not all are in step, those who go on after a loss need states of one stage: they are kept in stages that all begin with it, and in no other.
    here: bool,
    /// Whether all begin the next stage with it, by the last verdict.
    next: bool,
}

#[derive(Debug, Default, Clone)]
struct Round {
    /// The iteration that this member marks.
    at: Option<u64>,
    own: Option<f64>,
    /// By child.
    shares: Vec<Option<f64>>,
    told: bool,
}

/// Where some are in step: how far those are.
#[derive(Debug)]
struct Pace {
    /// Of the leader: by member of the group.
    reached: Vec<u64>,
    /// The iteration of the last of the group, as far as is known.
    last: u64,
    /// What was told last.
    told: u64,
}

/// One member's share of finding out when all may stop.
#[derive(Debug)]
pub struct Rounds {
    setting: Setting,
    children: Range<usize>,
    /// The iteration that is computed.
    iteration: u64,
    open: BTreeMap<u64, Round>,
    /// The last round with a verdict, and its norm.
    last: (u64, f64),
    /// The highest round that was asked for, or that iterations have come to.
    newest: u64,
    small_for: u32,
    refreshed: bool,
    below: bool,
    children_below: Vec<bool>,
    told_below: bool,
    room: u64,
    holds_for: Option<u64>,
    pace: Option<Pace>,
    keeping: Keeping,
    stop: Option<Verdict>,
    out: VecDeque<(usize, Word)>,
}

impl Rounds {
    /// The machine of a member that begins with this iteration.
    ///
    /// # Panics
    /// A setting that contradicts itself.
    pub fn new(setting: Setting, iteration: u64) -> Self {
        assert!(setting.me < setting.members && setting.in_step.contains(&setting.me) && setting.every > 0);
        let first = (setting.me * ARITY + 1).min(setting.members);
        let children = first..(first + ARITY).min(setting.members);
        // where all are in step, rounds are counted by iterations
        let in_step = setting.in_step.len() == setting.members;
        let before = if in_step { iteration.saturating_sub(1) / setting.every } else { 0 };
        let mut one = Self {
            children_below: vec![false; children.len()],
            children,
            iteration,
            open: BTreeMap::new(),
            last: (before, f64::INFINITY),
            newest: before,
            small_for: 0,
            refreshed: false,
            below: false,
            told_below: false,
            room: ROOM.start,
            holds_for: None,
            pace: (!in_step && setting.in_step.len() > 1).then(|| Pace {
                reached: vec![iteration; setting.in_step.len()],
                last: iteration,
                told: iteration,
            }),
            keeping: Keeping { last: iteration, begun: iteration, due: false, here: true, next: false },
            stop: None,
            out: VecDeque::new(),
            setting,
        };
        one.mark_by_number();
        one
    }

    /// Whether all members are in step, so that iterations are marked by their number.
    pub fn all_in_step(&self) -> bool {
        self.setting.in_step.len() == self.setting.members
    }

    /// The iteration that is computed.
    pub fn iteration(&self) -> u64 {
        self.iteration
    }

    /// The round that marks the iteration that is computed, if one does and it has no verdict yet.
    pub fn marked(&self) -> Option<u64> {
        self.open.iter().find(|(_, round)| round.at == Some(self.iteration)).map(|(number, _)| *number)
    }

    /// Whether an iteration that is to come is marked: others may be in theirs of that round, and wait for what is sent in this one.
    pub fn is_asked(&self) -> bool {
        self.open.values().any(|round| round.at.is_some_and(|at| at > self.iteration))
    }

    /// The iteration is over, with this norm of the vector that was sent in it and received. `fresh`: since the last call something new
    /// has come from each neighbour. The next iteration begins, unless [`Rounds::holds`]; then it begins when that has ended.
    pub fn end(&mut self, norm: f64, fresh: bool) {
        // infinity is for who was late
        let norm = if norm.is_nan() { f64::MAX } else { norm.min(f64::MAX) };
        let small = norm <= self.setting.tolerance;
        if let Some(number) = self.marked() {
            // in step, whether all hold is known with the verdict of the round before, which may have come
            let known = self.all_in_step() && self.last.0 + 1 == number;
            if small && !(known && self.last.1 > CLOSE * self.setting.tolerance) {
                self.holds_for = Some(number);
            }
            self.contribute(number, norm);
        }
        if !self.all_in_step() {
            (self.small_for, self.refreshed) =
                if small { (self.small_for.saturating_add(1), self.refreshed || fresh) } else { (0, false) };
            self.below = self.small_for >= PERSISTENT && self.refreshed;
            self.tell_status();
        }
        if self.keeps() {
            (self.keeping.last, self.keeping.due) = (self.iteration, false);
        }
        self.iteration += 1;
        self.mark_by_number();
        self.keep_pace(0, self.iteration);
    }

    /// Whether the member must not go on yet: what it has may be what is judged, or it is far ahead of others that it is in step with.
    pub fn holds(&self) -> bool {
        let is_ahead = |pace: &Pace| self.iteration > pace.last + PACES * self.every_pace();
        self.holds_for.is_some() || self.pace.as_ref().is_some_and(is_ahead)
    }

    /// Who is waited for while this one holds: who tells of the last of its group, or of the verdict.
    pub fn held_by(&self) -> usize {
        if self.holds_for.is_some() { 0 } else { self.setting.in_step[0] }
    }

    /// What changes where all are well: the last verdict, and the iteration of the last of this one's group.
    pub fn signs(&self) -> (u64, u64) {
        (self.last.0, self.pace.as_ref().map_or(0, |pace| pace.last))
    }

    fn leads(&self) -> bool {
        self.setting.in_step[0] == self.setting.me
    }

    fn every_pace(&self) -> u64 {
        PACE.max(self.setting.in_step.len() as u64)
    }

    /// A member of the group, by its place in it, is at this iteration: this one itself, or, where it leads, another.
    fn keep_pace(&mut self, place: usize, iteration: u64) {
        let (leads, every) = (self.leads(), self.every_pace());
        let Some(pace) = &mut self.pace else { return };
        let is_due = |at: u64, told: u64| at >= told + every;
        if leads {
            pace.reached[place] = iteration;
            pace.last = pace.reached.iter().copied().min().unwrap_or(iteration);
            if is_due(pace.last, pace.told) {
                pace.told = pace.last;
                let word = Word::Pace { iteration: pace.last };
                self.out.extend(self.setting.in_step[1..].iter().map(|other| (*other, word)));
            }
        } else if is_due(iteration, pace.told) {
            pace.told = iteration;
            self.out.push_back((self.setting.in_step[0], Word::Pace { iteration }));
        }
    }

    fn hear_pace(&mut self, from: usize, iteration: u64) -> Result<(), Breach> {
        let place = self.setting.in_step.iter().position(|other| *other == from);
        let leads = self.leads();
        // who holds is one ahead
        let farthest = PACES * self.every_pace() + 1;
        match (&mut self.pace, place) {
            (Some(pace), Some(place @ 1..))
                if leads && iteration > pace.reached[place] && iteration <= pace.told + farthest =>
            {
                self.keep_pace(place, iteration);
                Ok(())
            }
            (Some(pace), Some(0)) if !leads && iteration > pace.last && iteration <= self.iteration => {
                pace.last = iteration;
                Ok(())
            }
            _ => Err(Breach("a pace is told by one who has none to tell, or it goes back")),
        }
    }

    /// The verdict by which all stop.
    pub fn stopped(&self) -> Option<Verdict> {
        self.stop
    }

    /// The verdict was not the last: iterations go on, and rounds.
    pub fn go_on(&mut self) -> Option<Verdict> {
        let verdict = self.stop.take()?;
        self.keeping.here = self.all_in_step();
        if self.keeping.next {
            self.keep_now();
        }
        Some(verdict)
    }

    /// Whether states are kept in the iteration that is computed.
    pub fn keeps(&self) -> bool {
        let Keeping { last, due, here, .. } = self.keeping;
        self.setting.keep > 0 && (due || here && self.iteration >= last.saturating_add(self.setting.keep))
    }

    /// Whether states are kept in it of which there have to be some before the stage ends.
    pub fn must_keep(&self) -> bool {
        self.setting.keep > 0 && self.keeping.due
    }

    /// States of all are kept in this iteration.
    pub fn keep_now(&mut self) {
        (self.keeping.due, self.keeping.here, self.keeping.begun) = (true, true, self.iteration);
    }

    /// Whether a round has its verdict, so that nothing is waited for that is of it alone.
    pub fn is_over(&self, round: u64) -> bool {
        round <= self.last.0
    }

    /// The next word to say, and to whom.
    pub fn say(&mut self) -> Option<(usize, Word)> {
        self.out.pop_front()
    }

    /// A member said this.
    ///
    /// # Errors
    /// It had no reason to.
    pub fn hear(&mut self, from: usize, word: Word) -> Result<(), Breach> {
        let child = self.children.clone().position(|child| child == from);
        let parent = self.parent() == Some(from);
        match word {
            Word::Status { after, below } => {
                let child = child.ok_or(Breach("a status comes from no child"))?;
                if after == self.last.0 {
                    self.children_below[child] = below;
                    self.tell_status();
                }
            }
            Word::Ask { round } => {
                if !parent || self.all_in_step() || round <= self.newest {
                    return Err(Breach("a round is asked for by one who may not, or again"));
                }
                self.ask(round);
            }
            Word::Mark { round, at } => {
                if self.setting.in_step[0] != from || self.setting.in_step.len() < 2 || self.all_in_step() {
                    return Err(Breach("an iteration is marked by one who does not lead"));
                }
                self.mark(round, at);
            }
            Word::Pace { iteration } => self.hear_pace(from, iteration)?,
            Word::Share { round, norm } => {
                let child = child.ok_or(Breach("a share comes from no child"))?;
                if round <= self.last.0 {
                    return Ok(()); // of a round that one's lateness has ended
                }
                if round > self.newest + if self.all_in_step() { AHEAD } else { 0 } || norm.is_nan() {
                    return Err(Breach("a share is of a round that nobody asked for"));
                }
                self.round(round).shares[child] = Some(norm);
                self.pass_on(round);
            }
            Word::Verdict { round, norm, keep } => {
                let due = self.open.get(&round).is_some_and(|open| open.told || norm.is_infinite());
                if !parent || round <= self.last.0 || !due {
                    return Err(Breach("a verdict comes of a round that has none"));
                }
                self.conclude(round, norm, keep);
            }
        }
        Ok(())
    }

    fn parent(&self) -> Option<usize> {
        self.setting.me.checked_sub(1).map(|before| before / ARITY)
    }

    fn round(&mut self, number: u64) -> &mut Round {
        let children = self.children.len();
        let round = self.open.entry(number).or_default();
        round.shares.resize(children, None);
        round
    }

    fn mark_by_number(&mut self) {
        if self.all_in_step() && self.iteration > 0 && self.iteration.is_multiple_of(self.setting.every) {
            let (number, at) = (self.iteration / self.setting.every, self.iteration);
            self.newest = number;
            self.round(number).at = Some(at);
        }
    }

    fn ask(&mut self, number: u64) {
        self.newest = number;
        for child in self.children.clone() {
            self.out.push_back((child, Word::Ask { round: number }));
        }
        self.round(number);
        if self.leads() {
            let alone = self.setting.in_step.len() == 1;
            // the iteration that is computed may have sent something already
            let at = self.iteration + if alone { 1 } else { self.room };
            for &other in &self.setting.in_step[1..] {
                self.out.push_back((other, Word::Mark { round: number, at }));
            }
            self.mark(number, at);
        }
        // a mark may have come before, and what it marks be over
        self.pass_on(number);
    }

    fn mark(&mut self, number: u64, at: u64) {
        if number <= self.last.0 {
            return; // it is over: one was late
        }
        let late = at <= self.iteration && !self.leads();
        let round = self.round(number);
        if round.own.is_some() || round.at.is_some() {
            return;
        }
        if late {
            self.contribute(number, f64::INFINITY);
        } else {
            round.at = Some(at);
        }
    }

    fn contribute(&mut self, number: u64, norm: f64) {
        self.round(number).own = Some(norm);
        self.pass_on(number);
    }

    fn pass_on(&mut self, number: u64) {
        let parent = self.parent();
        let asked = self.newest >= number;
        let round = self.round(number);
        let all: Vec<_> = round.shares.iter().chain([&round.own]).copied().collect();
        // who was late sends nothing that others could compute with: it ends the round at once
        let late = all.contains(&Some(f64::INFINITY));
        // a mark may come before the question; the share after it, so that who hears it knows of the round
        if round.told || !asked || !late && all.contains(&None) {
            return;
        }
        let norm = all.into_iter().flatten().fold(0.0_f64, f64::max);
        round.told = true;
        match parent {
            Some(parent) => self.out.push_back((parent, Word::Share { round: number, norm })),
            None => {
                let Setting { keep, .. } = self.setting;
                let is_due = self.iteration >= self.keeping.begun.saturating_add(keep);
                let keep = keep > 0 && !self.all_in_step() && is_due;
                self.conclude(number, norm, keep);
            }
        }
    }

    fn conclude(&mut self, number: u64, norm: f64, keep: bool) {
        for child in self.children.clone() {
            self.out.push_back((child, Word::Verdict { round: number, norm, keep }));
        }
        self.keeping.next = keep;
        let at = self.open.get(&number).and_then(|round| round.at);
        if norm <= self.setting.tolerance
            && let Some(iteration) = at
            && self.holds_for == Some(number)
        {
            self.stop = Some(Verdict { round: number, iteration, norm });
        }
        if norm.is_infinite() && !self.all_in_step() {
            self.room = (self.room * 2).min(ROOM.end);
        }
        self.last = (number, norm);
        // in step: all hold in the next round, or nobody does
        let far = self.all_in_step() && norm > CLOSE * self.setting.tolerance;
        if self.holds_for.is_some_and(|held| held <= number || far && held == number + 1) {
            self.holds_for = None;
        }
        self.open.retain(|other, _| *other > number);
        // all begin anew: a round follows when all have been small again for a while
        (self.small_for, self.refreshed, self.below, self.told_below) = (0, false, false, false);
        self.children_below.fill(false);
    }

    fn tell_status(&mut self) {
        let all = self.below && self.children_below.iter().all(|below| *below);
        if all == self.told_below || !self.open.is_empty() {
            return;
        }
        self.told_below = all;
        let after = self.last.0;
        match self.parent() {
            Some(parent) => self.out.push_back((parent, Word::Status { after, below: all })),
            None if all => self.ask(self.newest + 1),
            None => {}
        }
    }
}
