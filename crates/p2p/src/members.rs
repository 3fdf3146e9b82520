//! Who takes part: a machine that every member has one of.
//!
//! A **view** is who takes part and who holds which part; views have numbers, one after the other. What the next view is, the members of the one
//! before agree on: one of them proposes, and what a quorum has accepted is decided, whoever proposes after it (Lamport's single-decree Paxos, a
//! decision for each view). A quorum is more than half of the view's members, or half of them with the first: two parts of a network that are cut apart
//! never go on both. No member is special: the first that is not suspected proposes, and when it is, the next one does.
//!
//! A member is **suspected** when its session has ended, or when it says nothing for long; each is listened to by the three that come after it. Who computes for
//! long between two calls says so, and is given more time. Who is suspected is left out of the next view, and who wants to join is in it.
//!
//! Parts of who is left out go to members that have kept their state. All go on in the last stage of which a state of every part is kept; within it those who are in step go on
//! from the last iteration of which all states are kept, and out of step everyone goes on as it is, but who was ahead, in the stage that follows.
//!
//! No clock, no randomness, no trust in words: time is given, and what does not fit is left aside.

use crate::view::{Member, NOBODY, Stamp, View};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Time in nanoseconds.
pub type Time = u64;

const MILLISECOND: Time = 1_000_000;
/// Between two beats.
const BEAT: Time = 500 * MILLISECOND;
/// Who is not heard for so long is suspected.
const SILENCE: Time = 5_000 * MILLISECOND;
/// ... or for so many times the longest that it was busy.
const PATIENCE: Time = 8;
/// Those before a member whom it listens to.
const WATCHED: usize = 3;
/// How long a proposer waits before it begins anew, and those who do not propose before they tell of suspicions again.
const AGAIN: Time = 1_000 * MILLISECOND;
/// Those who want to join and wait for it, at most.
const JOINING: usize = 64;
/// States of a part that are listed, at most: as many as are kept of it.
const STATES: usize = 16;
/// States that are listed, at most: half of the longest word.
pub(crate) const LISTED: usize = 1 << 15;

/// What members say to each other about who takes part.
#[derive(Debug, Clone, PartialEq)]
pub enum Word {
    /// I am here; this is the longest that I was busy, in milliseconds.
    Beat {
        /// Milliseconds.
        busy: u32,
    },
    /// These are suspected, and these want to join.
    Want {
        /// By number.
        suspects: Vec<u16>,
        /// New ones.
        joining: Vec<Member>,
    },
    /// Proposes to propose.
    Prepare {
        /// Higher than any before.
        ballot: u64,
    },
    /// Will accept nothing of a lower ballot.
    Promise {
        /// The ballot.
        ballot: u64,
        /// What was accepted before, and in which.
        accepted: Option<(u64, Box<View>)>,
        /// States that are kept: of which part, and which.
        kept: Vec<(u32, Stamp)>,
    },
    /// This is to be the next view.
    Propose {
        /// The ballot.
        ballot: u64,
        /// The view.
        view: Box<View>,
    },
    /// Accepts it.
    Accept {
        /// The ballot.
        ballot: u64,
    },
}

#[derive(Debug)]
enum Role {
    Follows,
    Prepares { ballot: u64, since: Time, asked: Time, promises: BTreeMap<u16, Promise> },
    Proposes { ballot: u64, since: Time, asked: Time, view: Box<View>, accepts: BTreeSet<u16> },
}

#[derive(Debug)]
struct Promise {
    accepted: Option<(u64, Box<View>)>,
    kept: Vec<(u32, Stamp)>,
}

/// One member's share of agreeing on who takes part.
#[derive(Debug)]
pub struct Members {
    me: u16,
    epoch: u32,
    view: View,
    role: Role,
    /// The ballot below which nothing is accepted.
    promised: u64,
    accepted: Option<(u64, Box<View>)>,
    /// By number; those whose session has ended.
    lost: BTreeSet<u16>,
    silent: BTreeSet<u16>,
    /// Others' word for it.
    told: BTreeSet<u16>,
    joining: Vec<Member>,
    /// Whether it has asked for promises twice, as by the first all would begin anew.
    twice: bool,
    /// When each was heard last, and how long it is busy at most.
    heard: Vec<(Time, Time)>,
    kept: BTreeSet<(u32, Stamp)>,
    /// Those that this member has promised to keep.
    counted_on: BTreeSet<(u32, Stamp)>,
    /// How long this one was busy between two calls, at most.
    busy: Time,
    last: Time,
    beat: Time,
    wanted: Time,
    out: VecDeque<(u16, Word)>,
    decided: Option<View>,
}

impl Members {
    /// The machine of a member of this view, which has this number; none if it is not in it.
    pub fn new(view: View, epoch: u32, me: usize, now: Time) -> Self {
        let members = view.members.len();
        assert!(me < members, "it is a member of the view");
        Self {
            me: me as u16,
            epoch,
            view,
            role: Role::Follows,
            promised: 0,
            accepted: None,
            lost: BTreeSet::new(),
            silent: BTreeSet::new(),
            told: BTreeSet::new(),
            joining: Vec::new(),
            twice: false,
            heard: vec![(now, 0); members],
            kept: BTreeSet::new(),
            counted_on: BTreeSet::new(),
            busy: 0,
            last: now,
            beat: now,
            wanted: now,
            out: VecDeque::new(),
            decided: None,
        }
    }

    /// The number of the view.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The view that follows, once it is decided: who is in it begins a new machine.
    pub fn decided(&mut self) -> Option<View> {
        self.decided.take()
    }

    /// The next word to say, and to whom.
    pub fn say(&mut self) -> Option<(usize, Word)> {
        self.out.pop_front().map(|(to, word)| (usize::from(to), word))
    }

    /// A state of a part is kept here.
    pub fn keeps(&mut self, part: u32, stamp: Stamp) {
        self.kept.insert((part, stamp));
    }

    /// A state is not kept any more.
    pub fn forgets(&mut self, part: u32, stamp: Stamp) {
        self.kept.remove(&(part, stamp));
    }

    /// Whether a view may be decided that counts on this state, which this member said that it keeps.
    pub fn counts_on(&self, part: u32, stamp: Stamp) -> bool {
        self.counted_on.contains(&(part, stamp))
    }

    /// Whether this member has promised in this view: others' promises may come later, and lists are of some time ago when a view is decided.
    pub fn has_promised(&self) -> bool {
        self.promised > 0
    }

    /// The session with a member has ended, or it cannot be reached.
    pub fn lost(&mut self, member: usize, now: Time) {
        if self.lost.insert(member as u16) {
            self.wanted = now.saturating_sub(AGAIN);
            self.propose_if_all_answered(now);
        }
    }

    /// Someone wants to join.
    pub fn joins(&mut self, member: Member, now: Time) {
        let known = |one: &Member| one.address == member.address;
        if !self.view.members.iter().any(known)
            && !self.joining.iter().any(known)
            && self.joining.len() < JOINING
        {
            self.joining.push(member);
            self.wanted = now.saturating_sub(AGAIN);
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Time) {
        let idle = now.saturating_sub(self.last);
        self.last = now;
        // what was not looked at may say more than silence does: a round of listening comes first
        if idle > BEAT {
            self.busy = self.busy.max(idle);
            for (heard, _) in &mut self.heard {
                *heard = (*heard).max(now.saturating_sub(SILENCE / 2));
            }
        }
        let members = self.view.members.len();
        if now.saturating_sub(self.beat) >= BEAT {
            self.beat = now;
            let busy = (self.busy / MILLISECOND) as u32;
            // what was once is forgotten slowly
            self.busy -= self.busy / 8;
            for after in (1..members).take(WATCHED) {
                self.out
                    .push_back(((usize::from(self.me) + after) as u16 % members as u16, Word::Beat { busy }));
            }
            for before in (1..members).take(WATCHED) {
                let watched = (usize::from(self.me) + members - before) % members;
                if now.saturating_sub(self.heard[watched].0) > self.patience_with(watched) {
                    self.silent.insert(watched as u16);
                }
            }
        }
        let suspects = !(self.lost.is_empty() && self.silent.is_empty() && self.told.is_empty());
        let wants = !self.joining.is_empty() || suspects;
        if wants && now.saturating_sub(self.wanted) >= AGAIN {
            self.wanted = now;
            match self.role {
                _ if !self.leads() => self.tell_wants(),
                Role::Follows => self.prepare(now),
                Role::Prepares { .. } | Role::Proposes { .. } => {}
            }
        }
        self.go_on(now);
    }

    fn patience_with(&self, member: usize) -> Time {
        SILENCE.max(self.heard[member].1.saturating_mul(PATIENCE))
    }

    /// What a proposer does while it waits: it asks those again who have not answered, and goes on without them at last.
    fn go_on(&mut self, now: Time) {
        let (since, asked, word, answered): (_, _, _, BTreeSet<u16>) = match &self.role {
            Role::Follows => return,
            Role::Prepares { ballot, since, asked, promises } => {
                (*since, *asked, Word::Prepare { ballot: *ballot }, promises.keys().copied().collect())
            }
            Role::Proposes { ballot, since, asked, view, accepts } => {
                let word = Word::Propose { ballot: *ballot, view: view.clone() };
                (*since, *asked, word, accepts.clone())
            }
        };
        if now.saturating_sub(asked) < AGAIN {
            return;
        }
        let missing: Vec<u16> =
            (0..self.view.members.len() as u16).filter(|one| !answered.contains(one)).collect();
        let waited = now.saturating_sub(since);
        // one that was heard lately has another's word, or is busy
        let late = |one: &u16| {
            let patience = self.patience_with(usize::from(*one));
            let silent = now.saturating_sub(self.heard[usize::from(*one)].0);
            self.is_suspect(*one) || waited > patience && silent > patience
        };
        if missing.iter().all(late) {
            match self.role {
                Role::Prepares { .. } => self.propose(now, true),
                // another may have begun meanwhile
                _ => self.role = Role::Follows,
            }
            return;
        }
        if let Role::Prepares { asked, .. } | Role::Proposes { asked, .. } = &mut self.role {
            *asked = now;
        }
        self.out.extend(missing.into_iter().map(|to| (to, word.clone())));
    }

    fn suspects(&self) -> impl Iterator<Item = u16> {
        let all: BTreeSet<u16> = self.lost.iter().chain(&self.silent).chain(&self.told).copied().collect();
        all.into_iter().filter(|one| *one != self.me)
    }

    fn is_suspect(&self, member: u16) -> bool {
        member != self.me
            && (self.lost.contains(&member) || self.silent.contains(&member) || self.told.contains(&member))
    }

    /// Whether the sessions with all others who compute have ended: nothing can be decided then.
    pub fn is_alone(&self) -> bool {
        let computes = |one: &u16| self.view.members[usize::from(*one)].weight > 0;
        (0..self.view.members.len() as u16)
            .filter(|one| *one != self.me && computes(one))
            .all(|one| self.lost.contains(&one))
    }

    fn leads(&self) -> bool {
        (0..self.me).all(|member| self.is_suspect(member))
    }

    fn tell_wants(&mut self) {
        let suspects: Vec<u16> = self.suspects().collect();
        let joining = self.joining.clone();
        let firsts =
            (0..self.view.members.len() as u16).filter(|one| *one != self.me && !self.is_suspect(*one));
        for to in firsts.take(WATCHED).collect::<Vec<_>>() {
            self.out.push_back((to, Word::Want { suspects: suspects.clone(), joining: joining.clone() }));
        }
    }

    fn quorum(&self, count: usize, has_first: bool) -> bool {
        let members = self.view.members.len();
        2 * count > members || 2 * count == members && has_first
    }

    fn prepare(&mut self, now: Time) {
        let ballot = ((self.promised >> 16) + 1) << 16 | u64::from(self.me);
        self.role = Role::Prepares { ballot, since: now, asked: now, promises: BTreeMap::new() };
        for to in 0..self.view.members.len() as u16 {
            if to != self.me {
                self.out.push_back((to, Word::Prepare { ballot }));
            }
        }
        let own = self.promise(ballot);
        self.promised_by(self.me, ballot, own, now);
    }

    fn promise(&mut self, ballot: u64) -> Promise {
        self.promised = ballot;
        let mut all: BTreeMap<u32, Vec<Stamp>> = BTreeMap::new();
        self.kept.iter().rev().for_each(|(part, stamp)| all.entry(*part).or_default().push(*stamp));
        // the newest of each first: a word is not longer than it may be
        let of_rank = |rank: usize| all.iter().filter_map(move |(part, of)| Some((*part, *of.get(rank)?)));
        let kept: Vec<(u32, Stamp)> = (0..STATES).flat_map(of_rank).take(LISTED).collect();
        self.counted_on.extend(kept.iter().copied());
        Promise { accepted: self.accepted.clone(), kept }
    }

    fn promised_by(&mut self, from: u16, ballot: u64, promise: Promise, now: Time) {
        let Role::Prepares { ballot: own, promises, .. } = &mut self.role else { return };
        if *own != ballot {
            return;
        }
        promises.insert(from, promise);
        self.propose_if_all_answered(now);
    }

    fn propose_if_all_answered(&mut self, now: Time) {
        let Role::Prepares { promises, .. } = &self.role else { return };
        let answered: BTreeSet<u16> = promises.keys().copied().collect();
        let all =
            (0..self.view.members.len() as u16).all(|one| answered.contains(&one) || self.is_suspect(one));
        if all {
            self.propose(now, false);
        }
    }

    fn propose(&mut self, now: Time, late: bool) {
        let Role::Prepares { ballot, promises, .. } = &mut self.role else { return };
        let (ballot, promises) = (*ballot, std::mem::take(promises));
        if ballot != self.promised {
            // another was promised more meanwhile
            self.role = Role::Follows;
            return;
        }
        let has_first = promises.contains_key(&0);
        if !self.quorum(promises.len(), has_first) {
            // nothing can be decided now: it begins anew when it is time again
            self.role = Role::Follows;
            return;
        }
        if late {
            let missing = (0..self.view.members.len() as u16).filter(|one| !promises.contains_key(one));
            self.silent.extend(missing);
        }
        let before =
            promises.values().filter_map(|promise| promise.accepted.as_ref()).max_by_key(|(of, _)| *of);
        let view = match before {
            // it may have been decided
            Some((_, view)) => view.clone(),
            None => match self.next(&promises) {
                // the lists may be of different times: what was listed is kept, and is in the next lists
                Some(view) if !self.twice && begins_anew(&view, &promises) => {
                    self.twice = true;
                    return self.prepare(now);
                }
                Some(view) => Box::new(view),
                None => {
                    self.role = Role::Follows;
                    return;
                }
            },
        };
        for to in promises.keys().filter(|to| **to != self.me) {
            self.out.push_back((*to, Word::Propose { ballot, view: view.clone() }));
        }
        self.accepted = Some((ballot, view.clone()));
        self.role = Role::Proposes { ballot, since: now, asked: now, view, accepts: BTreeSet::new() };
        self.accepted_by(self.me, ballot);
    }

    fn accepted_by(&mut self, from: u16, ballot: u64) {
        let Role::Proposes { ballot: own, accepts, view, .. } = &mut self.role else { return };
        if *own != ballot {
            return;
        }
        accepts.insert(from);
        let (count, has_first) = (accepts.len(), accepts.contains(&0));
        let view = view.clone();
        if self.quorum(count, has_first) {
            self.role = Role::Follows;
            self.decided = Some(*view);
        }
    }

    /// A member said this, in this view.
    pub fn hear(&mut self, from: usize, word: Word, now: Time) {
        let from = from as u16;
        if usize::from(from) >= self.view.members.len() {
            return;
        }
        self.heard[usize::from(from)].0 = now;
        for of in [&mut self.lost, &mut self.silent, &mut self.told] {
            of.remove(&from);
        }
        match word {
            Word::Beat { busy } => self.heard[usize::from(from)].1 = Time::from(busy) * MILLISECOND,
            Word::Want { suspects, joining } => {
                // who was heard lately is not suspected by hearsay
                let recent = |one: &u16| {
                    self.heard
                        .get(usize::from(*one))
                        .is_none_or(|(heard, _)| now.saturating_sub(*heard) < BEAT * 2)
                };
                let new: Vec<u16> =
                    suspects.into_iter().filter(|one| !recent(one) && *one != self.me).collect();
                let more = new.iter().any(|one| !self.is_suspect(*one));
                self.told.extend(new);
                if more {
                    self.wanted = now.saturating_sub(AGAIN);
                }
                for member in joining.into_iter().take(JOINING) {
                    self.joins(member, now);
                }
            }
            Word::Prepare { ballot } => {
                if ballot >= self.promised {
                    self.role = Role::Follows;
                    let Promise { accepted, kept } = self.promise(ballot);
                    self.out.push_back((from, Word::Promise { ballot, accepted, kept }));
                    // it has the word now
                    self.wanted = now;
                }
            }
            Word::Promise { ballot, accepted, kept } => {
                self.promised_by(from, ballot, Promise { accepted, kept }, now);
            }
            Word::Propose { ballot, view } => {
                if ballot >= self.promised {
                    // what this one prepares is of a lower ballot
                    if ballot > self.promised {
                        self.role = Role::Follows;
                    }
                    self.promised = ballot;
                    self.accepted = Some((ballot, view));
                    self.out.push_back((from, Word::Accept { ballot }));
                }
            }
            Word::Accept { ballot } => self.accepted_by(from, ballot),
        }
    }

    /// The view that this one proposes; none if it would be the same, or nobody would compute.
    fn next(&self, promises: &BTreeMap<u16, Promise>) -> Option<View> {
        let stays: Vec<u16> =
            (0..self.view.members.len() as u16).filter(|one| !self.is_suspect(*one)).collect();
        let mut members: Vec<Member> =
            stays.iter().map(|one| self.view.members[usize::from(*one)].clone()).collect();
        members.extend(self.joining.iter().cloned());
        if members == self.view.members || members.iter().all(|member| member.weight == 0) {
            return None;
        }
        let number = |old: u16| stays.iter().position(|one| *one == old).map(|new| new as u16);
        // who has which states, by the new numbers
        let mut states = States::new();
        for (old, promise) in promises {
            let Some(new) = number(*old) else { continue };
            for (part, stamp) in &promise.kept {
                states.entry(*part).or_default().entry(*stamp).or_default().push(new);
            }
        }
        let scheme = self.view.job.scheme;
        // those who are in step go on from the same iteration: all, or those of a site
        let mut in_step: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for part in 0..self.view.job.parts {
            let owner = &self.view.members[usize::from(self.view.owners[part as usize])];
            let group = scheme.in_step_at(owner.site);
            group.into_iter().for_each(|group| in_step.entry(group).or_default().push(part));
        }
        let stage = last_stage(self.view.job.parts, &in_step, &states);
        // where states are missing, all begin anew
        let last = |parts: &Vec<u32>| last_of_all(parts, stage, &states).unwrap_or(0);
        let from: BTreeMap<u32, u64> = in_step.iter().map(|(group, parts)| (*group, last(parts))).collect();
        let from_of = |part: u32| {
            let owner = &self.view.members[usize::from(self.view.owners[part as usize])];
            from.get(&scheme.in_step_at(owner.site)?).copied()
        };
        let mut owners = Vec::new();
        let mut holders = Vec::new();
        for part in 0..self.view.job.parts {
            let old = number(self.view.owners[part as usize]);
            let has = states.get(&part).and_then(|of| match from_of(part) {
                Some(number) => of.get_key_value(&Stamp { stage, number }),
                None => of_stage(of, stage).next_back(),
            });
            let works = |one: &u16| members[usize::from(*one)].weight > 0;
            owners.push(old.or(has.and_then(|(_, has)| has.iter().copied().find(works))));
            holders.push(has.map_or((NOBODY, 0), |(stamp, has)| {
                (old.filter(|old| has.contains(old)).unwrap_or(has[0]), stamp.number)
            }));
        }
        let owners = balance(owners, &members);
        Some(View { job: self.view.job.clone(), members, owners, stage, holders, from })
    }
}

/// Who has which states, by part.
type States = BTreeMap<u32, BTreeMap<Stamp, Vec<u16>>>;

/// Those of a part that are of this stage.
fn of_stage(
    of: &BTreeMap<Stamp, Vec<u16>>,
    stage: u32,
) -> impl DoubleEndedIterator<Item = (&Stamp, &Vec<u16>)> {
    of.range(Stamp { stage, number: 0 }..=Stamp { stage, number: u64::MAX })
}

/// Whether all begin anew in a view, though there are states.
fn begins_anew(view: &View, promises: &BTreeMap<u16, Promise>) -> bool {
    let is_later = |(_, stamp): &(u32, Stamp)| stamp.stage > 0 || stamp.number > 0;
    view.stage == 0
        && view.holders.iter().all(|(_, number)| *number == 0)
        && promises.values().any(|promise| promise.kept.iter().any(is_later))
}

/// The last stage of which somebody keeps a state of every part, and of those who are in step one of the same iteration; 0, which all can begin with, if there is none.
fn last_stage(parts: u32, in_step: &BTreeMap<u32, Vec<u32>>, states: &States) -> u32 {
    let Some(first) = states.get(&0) else { return 0 };
    let all = |stage: &u32| {
        let has = |part: u32| states.get(&part).is_some_and(|of| of_stage(of, *stage).next().is_some());
        (0..parts).all(has) && in_step.values().all(|parts| last_of_all(parts, *stage, states).is_some())
    };
    first.keys().rev().map(|stamp| stamp.stage).find(all).unwrap_or(0)
}

/// The last iteration of a stage of which the states of all these parts are kept by somebody.
fn last_of_all(parts: &[u32], stage: u32, states: &States) -> Option<u64> {
    let all =
        |stamp: &&Stamp| parts.iter().all(|part| states.get(part).is_some_and(|of| of.contains_key(*stamp)));
    let first = states.get(parts.first()?)?;
    of_stage(first, stage).rev().map(|(stamp, _)| stamp).find(all).map(|stamp| stamp.number)
}

/// Gives parts of nobody to somebody, and moves parts while the most loaded has more than its share.
fn balance(owners: Vec<Option<u16>>, members: &[Member]) -> Vec<u16> {
    let mut load = vec![0_u64; members.len()];
    owners.iter().flatten().for_each(|owner| load[usize::from(*owner)] += 1);
    let after = |load: &[u64], one: usize| (load[one] + 1) as f64 / f64::from(members[one].weight);
    let least = |load: &[u64]| {
        let works = (0..members.len()).filter(|one| members[*one].weight > 0);
        works.min_by(|a, b| after(load, *a).total_cmp(&after(load, *b))).expect("somebody works")
    };
    let mut given: Vec<u16> = Vec::new();
    for owner in owners {
        let owner = owner.filter(|one| members[usize::from(*one)].weight > 0).unwrap_or_else(|| {
            let to = least(&load);
            load[to] += 1;
            to as u16
        });
        given.push(owner);
    }
    for _ in 0..given.len() {
        let now = |one: &usize| load[*one] as f64 / f64::from(members[*one].weight).max(1e-9);
        let most = (0..members.len()).max_by(|a, b| now(a).total_cmp(&now(b))).expect("there are members");
        let to = least(&load);
        if after(&load, to) >= now(&most) {
            break;
        }
        // the last of its parts: those in a row stay so
        let Some(part) = given.iter().rposition(|owner| usize::from(*owner) == most) else { break };
        given[part] = to as u16;
        load[most] -= 1;
        load[to] += 1;
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scheme;
    use crate::view::{ADDRESS, Job};

    /// The view that member 0 of three proposes when the last is lost, of which part 2 is; states that it and member 1 say they keep, each of a part, a stage and a number.
    fn next(scheme: Scheme, own: &[(u32, u32, u64)], others: &[(u32, u32, u64)]) -> View {
        let job = Job { parts: 3, scheme, tolerance: 1.0, every: 1, keep: 1, task: Vec::new() };
        let member = |name| Member { address: [name; ADDRESS], site: u32::from(name > 1), weight: 1 };
        let mut one = Members::new(View::first(job, (0..3).map(member).collect()).expect("a view"), 1, 0, 1);
        let named =
            |(part, stage, number): &(u32, u32, u64)| (*part, Stamp { stage: *stage, number: *number });
        own.iter().map(named).for_each(|(part, stamp)| one.keeps(part, stamp));
        one.lost(2, 1);
        one.tick(AGAIN);
        let kept: Vec<(u32, Stamp)> = others.iter().map(named).collect();
        let mut asked = 0;
        while let Role::Prepares { ballot, .. } = one.role {
            asked += 1;
            one.hear(1, Word::Promise { ballot, accepted: None, kept: kept.clone() }, AGAIN);
            one.hear(1, Word::Accept { ballot }, AGAIN);
        }
        let view = one.decided().expect("both have accepted");
        // that all begin anew is asked for twice
        let is_anew = view.stage == 0 && view.holders.iter().all(|(_, number)| *number == 0);
        assert_eq!(asked, 1 + u32::from(is_anew));
        view
    }

    #[test]
    fn all_go_on_in_the_last_stage_of_which_every_state_is_kept() {
        let view = next(
            Scheme::Synchronous,
            &[(0, 1, 30), (0, 1, 40), (0, 2, 41), (2, 1, 30), (2, 1, 40)],
            &[(1, 1, 30), (1, 1, 40), (1, 2, 41)],
        );
        assert_eq!((view.stage, view.from.get(&0)), (1, Some(&40)));
        assert_eq!(view.holders, [(0, 40), (1, 40), (0, 40)]);
        // of the last no state of the same iteration is kept by all
        let view = next(
            Scheme::Synchronous,
            &[(0, 1, 30), (0, 2, 41), (0, 2, 50), (2, 1, 30), (2, 2, 50)],
            &[(1, 1, 30), (1, 2, 41)],
        );
        assert_eq!((view.stage, view.from.get(&0)), (1, Some(&30)));
        // of none all states: all begin anew, what there is of the first stage or not
        let view = next(Scheme::Synchronous, &[(0, 1, 30), (0, 2, 41)], &[(1, 1, 30), (1, 0, 7)]);
        assert_eq!((view.stage, view.from.get(&0)), (0, Some(&0)));
        assert_eq!(view.holders, [(NOBODY, 0); 3]);
    }

    #[test]
    fn out_of_step_any_state_of_the_stage_will_do() {
        let view = next(
            Scheme::Asynchronous,
            &[(0, 1, 30), (0, 2, 41), (2, 1, 20)],
            &[(1, 1, 35), (1, 2, 44), (2, 1, 25), (2, 2, 46)],
        );
        assert_eq!((view.stage, view.from.len()), (2, 0));
        assert_eq!(view.holders, [(0, 41), (1, 44), (1, 46)]);
        let view =
            next(Scheme::Asynchronous, &[(0, 1, 30), (0, 2, 41), (2, 1, 20)], &[(1, 1, 35), (2, 1, 25)]);
        assert_eq!((view.stage, view.holders), (1, vec![(0, 30), (1, 35), (1, 25)]));
    }

    #[test]
    fn groups_of_a_hybrid_run_choose_one_stage_together() {
        // members 0 and 1 are at a site of their own, and so was 2
        let view = next(Scheme::Hybrid, &[(0, 1, 30), (0, 2, 41), (2, 1, 25)], &[(1, 1, 30), (1, 2, 41)]);
        assert_eq!((view.stage, view.holders), (1, vec![(0, 30), (1, 30), (0, 25)]));
        assert_eq!(view.from, BTreeMap::from([(0, 30), (1, 25)]));
    }
}
