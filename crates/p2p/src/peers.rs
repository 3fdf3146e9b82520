//! The calls.

use crate::board::Board;
use crate::error::{Error, breach, other_length};
use crate::exchange::{Changed, Exchange, PIECE, SLEEP};
use crate::link::{Class, HEAD, Link, TAGS, TOLD, number_of, write_message};
use crate::pause::Pause;
use crate::rounds::{Rounds, Verdict};
use crate::seat::Way;
use crate::view::{Stamp, View};
use crate::wire::{Endpoint, Wire};
use crate::words::Heard;
use polyrail_rails::Config;
use polyrail_rails::mailbox::{Mailbox, PutError, Taken};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bits of a value's number that are its iteration's; the others are the view's.
const ITERATION: u32 = 40;

/// What a receive found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// Something new, of this iteration of the one who sent it.
    New {
        /// Which.
        iteration: u64,
    },
    /// Nothing that was not received before; the buffer is as it was.
    Unchanged {
        /// What was received last.
        iteration: u64,
        /// How long ago it came.
        age: Duration,
    },
    /// Nothing has come yet; the buffer is as it was.
    Nothing,
}

/// What is this process's alone.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Of its endpoint.
    pub rails: Config,
    /// At which of the sites it is; 0: at one that has no number.
    pub site: u32,
    /// How much of the work it is given, as a share; 0: it looks on.
    pub weight: u16,
    /// How long to wait for somebody who is connected and says nothing; none: as long as it is connected.
    pub patience: Option<Duration>,
    /// What is asked while calls wait: whether to go on. None: they do.
    pub pause: Option<Pause>,
}

impl Settings {
    /// Those of the environment; a share of 1. Its site is what `POLYRAIL_SITE` calls it.
    ///
    /// # Errors
    /// A setting has a value that it cannot have.
    pub fn from_env() -> Result<Self, Error> {
        let rails = Config::from_env()?;
        let site = rails.site_number().map_or(0, |number| (number as u32 ^ (number >> 32) as u32).max(1));
        Ok(Self { rails, site, weight: 1, patience: None, pause: None })
    }
}

/// What has changed for this member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The iteration that is gone on with.
    pub iteration: u64,
    /// Parts that are not held here any more.
    pub lost: Vec<u32>,
    /// Parts that are to be set, and to what: bytes that were given to [`Peers::keep`]; none: as at the beginning. All that are not named go on as they are.
    pub set: Vec<Set>,
}

/// A part, and the state that it is set to.
pub type Set = (u32, Option<Vec<u8>>);

/// One process of a run.
pub struct Peers<W = Endpoint> {
    exchange: Exchange<W>,
    board: Option<Board>,
    /// Whether this iteration has ended here, and a call of [`Peers::converged`] has not said so.
    ended: bool,
}

impl Peers {
    /// A member of a view.
    pub(crate) fn new(
        settings: Settings,
        mailbox: Mailbox,
        heard: Heard,
        view: View,
        epoch: u32,
    ) -> Result<Self, Error> {
        let wire = Endpoint::new(mailbox, heard);
        let exchange = Exchange::new(wire, view, epoch, settings.patience, settings.pause)?;
        Ok(Self::of(exchange))
    }

    /// Its address is told at a place that others know, as long as it takes part.
    pub(crate) fn is_asked(&mut self, board: Option<Board>) {
        self.board = board;
    }
}

impl<W: Wire> Peers<W> {
    fn of(exchange: Exchange<W>) -> Self {
        Self { exchange, board: None, ended: false }
    }

    /// A member of the first view of a run, over another wire than an endpoint of this process: all members have the same view, and it names this one's
    /// address.
    ///
    /// # Errors
    /// It does not.
    pub fn over(wire: W, view: View) -> Result<Self, Error> {
        Ok(Self::of(Exchange::new(wire, view, 1, None, None)?))
    }

    /// The time, since this member began: where the network is simulated, the simulation's.
    pub fn now(&self) -> Duration {
        self.exchange.wire.now()
    }

    /// What it reaches others by.
    pub fn wire(&mut self) -> &mut W {
        &mut self.exchange.wire
    }

    pub(crate) fn send_message(&mut self, to: usize, tag: u64, bytes: &Arc<[u8]>) -> Result<(), Error> {
        self.exchange.send_message(to, tag, bytes)
    }

    /// Who takes part, and in what.
    pub fn view(&self) -> &View {
        &self.exchange.view
    }

    /// This member's number.
    pub fn me(&self) -> usize {
        self.exchange.seat.me
    }

    /// The parts that this process holds.
    pub fn parts(&self) -> &[u32] {
        &self.exchange.seat.mine
    }

    /// The iteration that is computed, from 0 on.
    pub fn iteration(&self) -> u64 {
        self.exchange.iteration()
    }

    fn owner(&self, part: u32) -> Result<usize, Error> {
        let owners = &self.exchange.view.owners;
        owners
            .get(part as usize)
            .map(|owner| usize::from(*owner))
            .ok_or_else(|| Error::Use(format!("there is no part {part}: there are {} of them", owners.len())))
    }

    fn check(&self, link: Link, here: u32) -> Result<(), Error> {
        if self.exchange.changed.is_some() {
            return Err(Error::Changed);
        }
        if link.tag >= TAGS {
            return Err(Error::Use(format!("a link's tag is {}: less than {TAGS} is possible", link.tag)));
        }
        if !self.parts().contains(&here) {
            return Err(Error::Use(format!("part {here} is not held here: {:?} are", self.parts())));
        }
        Ok(())
    }

    /// Whether what is sent in this iteration may be what all stop with: who goes on from it keeps it until [`Peers::converged`] has returned, and has
    /// its norm exactly.
    pub fn judged(&self) -> bool {
        self.marked().is_some()
    }

    fn marked(&self) -> Option<u64> {
        self.exchange.rounds.as_ref()?.marked()
    }

    /// The number of a value: later views' are higher.
    fn stamp(&self, iteration: u64) -> u64 {
        u64::from(self.exchange.epoch) << ITERATION | iteration & ((1 << ITERATION) - 1)
    }

    /// `P2Psend`: what a part of this process has for another in this iteration; once for each link and iteration. The bytes may be changed
    /// when it returns. It waits only where the other is in step and has not taken what was sent before.
    ///
    /// # Errors
    /// Parts that there are not, or not here; a member is gone; [`Error::Changed`].
    pub fn send(&mut self, link: Link, bytes: &[u8]) -> Result<(), Error> {
        self.check(link, link.from)?;
        let (to, iteration) = (self.owner(link.to)?, self.iteration());
        match self.exchange.seat.ways[to] {
            Way::Here => {
                let message = self.message(Class::InStep, link, iteration, bytes);
                self.exchange.inbound.entry(link).or_default().ready.push_back(message);
            }
            Way::InStep => self.send_data(to, Class::InStep, link, iteration, bytes)?,
            Way::Newest(_) => {
                // first what can be waited for: a call that was interrupted in it has done nothing yet
                if let Some(round) = self.marked() {
                    self.send_data(to, Class::Marked, link, round, bytes)?;
                }
                let (peer, number) = (self.exchange.peers[to], self.stamp(iteration));
                match self.exchange.wire.put(peer, link.name(), number, bytes) {
                    Ok(()) => {}
                    Err(PutError::Gone) => self.exchange.miss(to)?,
                    Err(why) => {
                        let to = link.to;
                        return Err(Error::Use(format!("for part {to} in iteration {iteration}: {why}")));
                    }
                }
            }
        }
        Ok(())
    }

    fn message(&mut self, class: Class, link: Link, number: u64, bytes: &[u8]) -> Vec<u8> {
        let mut message = self.exchange.spare.pop().unwrap_or_default();
        write_message(&mut message, class, link, self.exchange.epoch, number, &[bytes]);
        message
    }

    fn send_data(
        &mut self,
        to: usize,
        class: Class,
        link: Link,
        number: u64,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let message = self.message(class, link, number, bytes);
        let shared: Arc<[u8]> = message.as_slice().into();
        self.exchange.spare.push(message);
        self.exchange.send_message(to, class.tag(link.name()), &shared)
    }

    /// `P2Preceive`: what another part has for one of this process, as long as `into`. In step it is what that sent in this iteration, and waited for; else
    /// the newest that has come, and not waited for unless it is too old for the scheme.
    ///
    /// # Errors
    /// Parts that there are not, or not here; what comes has another length; a member is gone; [`Error::Changed`].
    pub fn receive(&mut self, link: Link, into: &mut [u8]) -> Result<Received, Error> {
        self.check(link, link.to)?;
        let from = self.owner(link.from)?;
        let iteration = self.iteration();
        match self.exchange.seat.ways[from] {
            Way::Here => {
                let inbound = self.exchange.inbound.entry(link).or_default();
                let message = inbound.ready.pop_front().ok_or_else(|| {
                    let Link { from, to, .. } = link;
                    Error::Use(format!("part {from} has sent nothing to part {to} in iteration {iteration}"))
                })?;
                self.take(link, from, message, iteration, into)?;
                Ok(Received::New { iteration })
            }
            Way::InStep => {
                let mut waited = self.exchange.waited();
                loop {
                    self.exchange.post(link, from, into.len(), Class::InStep);
                    if let Some(message) = self.exchange.next_of(link, Class::InStep) {
                        self.take(link, from, message, iteration, into)?;
                        return Ok(Received::New { iteration });
                    }
                    self.exchange.turn(&mut waited, from)?;
                }
            }
            Way::Newest(most) => {
                if let Some(round) = self.marked()
                    && let Some(received) = self.receive_marked(link, from, round, into)?
                {
                    return Ok(received);
                }
                let mut waited = self.exchange.waited();
                loop {
                    let received = self.newest(link, from, into)?;
                    // iterations of the view before are not compared with
                    let last = self.exchange.inbound.get(&link).and_then(|inbound| inbound.last);
                    let behind = |most: u64| match last {
                        Some(last) => last.saturating_add(most) < iteration,
                        None => most <= iteration,
                    };
                    // who is behind may wait, in its iteration of a round, for what is sent in this one's, which is still to come
                    let is_asked = self.exchange.rounds.as_ref().is_some_and(Rounds::is_asked);
                    if is_asked || !most.is_some_and(behind) {
                        return Ok(received);
                    }
                    self.exchange.turn(&mut waited, from)?;
                }
            }
        }
    }

    fn newest(&mut self, link: Link, from: usize, into: &mut [u8]) -> Result<Received, Error> {
        let iteration_of = |number: u64| number & ((1 << ITERATION) - 1);
        let epoch = u64::from(self.exchange.epoch);
        let exchange = &mut self.exchange;
        let inbound = exchange.inbound.entry(link).or_default();
        match exchange.wire.take(exchange.peers[from], link.name()) {
            Taken::New { iteration, bytes, .. } => {
                if bytes.len() != into.len() {
                    return Err(breach(from, other_length(link, bytes.len(), into.len())));
                }
                into.copy_from_slice(bytes);
                inbound.last = (iteration >> ITERATION == epoch).then(|| iteration_of(iteration));
                inbound.fresh = true;
                Ok(Received::New { iteration: iteration_of(iteration) })
            }
            Taken::Unchanged { iteration, age } => {
                Ok(Received::Unchanged { iteration: iteration_of(iteration), age: Duration::from_nanos(age) })
            }
            Taken::Nothing => Ok(Received::Nothing),
        }
    }

    /// What the other sent in the iteration that it marked; none once the round is over.
    fn receive_marked(
        &mut self,
        link: Link,
        from: usize,
        round: u64,
        into: &mut [u8],
    ) -> Result<Option<Received>, Error> {
        let mut waited = self.exchange.waited();
        loop {
            self.exchange.post(link, from, into.len(), Class::Marked);
            if let Some(message) = self.exchange.next_of(link, Class::Marked) {
                if number_of(&message) < round {
                    // of a round that was over before it was received
                    self.exchange.spare.push(message);
                    continue;
                }
                self.take(link, from, message, round, into)?;
                let inbound = self.exchange.inbound.entry(link).or_default();
                inbound.fresh = true;
                return Ok(Some(Received::New { iteration: inbound.last.unwrap_or(0) }));
            }
            if self.exchange.rounds.as_ref().is_none_or(|rounds| rounds.is_over(round)) {
                return Ok(None);
            }
            self.exchange.turn(&mut waited, from)?;
        }
    }

    fn take(
        &mut self,
        link: Link,
        from: usize,
        message: Vec<u8>,
        number: u64,
        into: &mut [u8],
    ) -> Result<(), Error> {
        if number_of(&message) != number {
            let (had, Link { from: part, to, .. }) = (number_of(&message), link);
            return Err(breach(
                from,
                format!(
                    "part {part} has iteration or round {had} for part {to}, which is at {number}; does it send once in each iteration?"
                ),
            ));
        }
        let bytes = &message[HEAD..];
        if bytes.len() != into.len() {
            return Err(breach(from, other_length(link, bytes.len(), into.len())));
        }
        into.copy_from_slice(bytes);
        self.exchange.spare.push(message);
        Ok(())
    }

    /// `P2Pwait`: until each of these links (of none: until `most` has passed) has what a receive would take at once: in step, this iteration's; else something that is new. False: `most` has
    /// passed first. Meanwhile whatever there is to be moved is moved; with no time at all too, which is what to call now and then in long computations.
    ///
    /// # Errors
    /// As [`Peers::receive`].
    pub fn wait(&mut self, links: &[Link], most: Duration) -> Result<bool, Error> {
        let until = self.exchange.wire.now() + most;
        let (mut spins, mut asked) = (0, Instant::now());
        loop {
            self.exchange.ask(&mut asked)?;
            let moved = self.exchange.step()?;
            if self.exchange.changed.is_some() {
                return Err(Error::Changed);
            }
            let mut there = !links.is_empty();
            for link in links {
                self.check(*link, link.to)?;
                let from = self.owner(link.from)?;
                there &= match self.exchange.seat.ways[from] {
                    Way::Here => true,
                    Way::InStep => self.exchange.has_next(*link),
                    Way::Newest(_) => self.exchange.wire.has_value(self.exchange.peers[from], link.name()),
                };
            }
            let left = until.saturating_sub(self.exchange.wire.now());
            if there || left.is_zero() {
                return Ok(there);
            }
            spins = if moved { 0 } else { spins + 1 };
            if spins > W::SPINS {
                self.exchange.wire.sleep(left.min(SLEEP));
            }
        }
    }

    /// Ends the iteration. `norm` is how far the vector is from a solution that this member's parts and what they received make, before they were computed anew: the
    /// largest of all counts. With a verdict all stop, or go on with [`Peers::next_stage`], with what they sent in the iteration that it names; the norm is that of this, whatever
    /// came late or not at all.
    ///
    /// # Errors
    /// A member is gone, or breaks the rules; [`Error::Changed`].
    pub fn converged(&mut self, norm: f64) -> Result<Option<Verdict>, Error> {
        if self.exchange.changed.is_some() {
            return Err(Error::Changed);
        }
        // what a stage begins with is there when it ends, whoever is lost
        if self.judged() && norm <= self.exchange.view.job.tolerance {
            self.wait_until_kept(None)?;
        }
        let exchange = &mut self.exchange;
        let Some(rounds) = &mut exchange.rounds else {
            return Err(Error::Use(
                "this member holds no part of the run, so that it has no iterations".into(),
            ));
        };
        if norm > exchange.view.job.tolerance {
            exchange.inbound.values_mut().for_each(|inbound| inbound.fresh = false);
        }
        let owner =
            |part: u32| exchange.view.owners.get(part as usize).map_or(0, |owner| usize::from(*owner));
        let fresh = exchange.inbound.iter().all(|(link, inbound)| {
            let is_received = exchange.seat.mine.contains(&link.to);
            inbound.fresh || !is_received || !matches!(exchange.seat.ways[owner(link.from)], Way::Newest(_))
        });
        if let (false, Some(verdict)) = (self.ended, rounds.stopped()) {
            return Ok(Some(verdict));
        }
        // a wait that was ended by an error is gone on with, and what it waited for may have come since
        if !self.ended {
            rounds.end(norm, fresh);
            self.ended = true;
        }
        exchange.step()?;
        let (mut waited, mut signs) = (exchange.waited(), None);
        loop {
            if exchange.changed.is_some() {
                self.ended = false;
                return Err(Error::Changed);
            }
            let stopped = exchange.rounds.as_ref().and_then(Rounds::stopped);
            if stopped.is_some() || !exchange.rounds.as_ref().is_some_and(Rounds::holds) {
                self.ended = false;
                return Ok(stopped);
            }
            let now = exchange.rounds.as_ref().map(Rounds::signs);
            if now != signs {
                (waited, signs) = (exchange.waited(), now);
            }
            let by = exchange.rounds.as_ref().map_or(0, Rounds::held_by);
            exchange.turn(&mut waited, exchange.seat.workers[by])?;
        }
    }

    /// After a verdict, in place of stopping: all go on with the next stage of the run, whose problem follows from the vector that was judged. All members do so, or none. Which stage it
    /// is. Iterations go on counting, and what is received first where nobody is in step may still be of the stage before: as good a beginning as any.
    ///
    /// Where members may be lost, a state holds what the stage is besides the vector; and it may be gone back to an earlier stage, the first one even, when somebody is lost: then
    /// those end anew, with other verdicts.
    ///
    /// # Errors
    /// There is no verdict; [`Error::Changed`].
    pub fn next_stage(&mut self) -> Result<u32, Error> {
        if self.exchange.changed.is_some() {
            return Err(Error::Changed);
        }
        if self.exchange.rounds.as_mut().and_then(Rounds::go_on).is_none() {
            return Err(Error::Use("there is no verdict to go on from".into()));
        }
        // a norm is told of only when something of the new stage has come from each neighbour
        self.exchange.inbound.values_mut().for_each(|inbound| inbound.fresh = false);
        self.exchange.stage += 1;
        Ok(self.exchange.stage)
    }

    /// The stage that is computed, from 0 on: so many verdicts were gone on from. After [`Peers::change`] it may be an earlier one than before.
    pub fn stage(&self) -> u32 {
        self.exchange.stage
    }

    /// Whether the states of this member's parts are to be given to [`Peers::keep`] in this iteration, before anything is sent.
    pub fn keeps(&self) -> bool {
        self.exchange.rounds.as_ref().is_some_and(Rounds::keeps)
    }

    /// Keeps the state of a part, with which this iteration begins, here and at another member, so that the run can go on from it when this one is lost. It waits where those that
    /// were kept before are not there yet and this one has to be: where members are in step, and where all begin a stage with it. Where this norm may end a stage, [`Peers::converged`] waits until all are.
    ///
    /// # Errors
    /// As [`Peers::send`].
    pub fn keep(&mut self, part: u32, state: Vec<u8>) -> Result<(), Error> {
        self.check(Link::new(part, part), part)?;
        let iteration = self.iteration();
        let in_step = self.exchange.view.from_of(self.me()).is_some();
        let number = if in_step { iteration } else { self.stamp(iteration) };
        let stamp = Stamp { stage: self.stage(), number };
        if in_step || self.exchange.rounds.as_ref().is_some_and(Rounds::must_keep) {
            self.wait_until_kept(Some(stamp))?;
        } else if self.exchange.unconfirmed.first().is_some_and(|(before, _)| *before < stamp) {
            return Ok(()); // those before are still under way
        }
        self.exchange.keep(part, stamp, state);
        Ok(())
    }

    /// Waits until all states of this member before this one, or all, are kept elsewhere, too.
    fn wait_until_kept(&mut self, before: Option<Stamp>) -> Result<(), Error> {
        let mut waited = self.exchange.waited();
        while let (Some(backup), Some((first, _))) =
            (self.exchange.seat.backup, self.exchange.unconfirmed.first())
            && before.is_none_or(|before| *first < before)
        {
            let backlog = self.exchange.backlog();
            self.exchange.turn(&mut waited, backup)?;
            // a long state takes its time
            if self.exchange.backlog() != backlog {
                waited = self.exchange.waited();
            }
        }
        Ok(())
    }

    /// After [`Error::Changed`]: what has changed for this member. It waits for states that come from others.
    ///
    /// # Errors
    /// Those states do not come; [`Error::Changed`], again.
    pub fn change(&mut self) -> Result<Change, Error> {
        self.ended = false;
        let Some(changed) = self.exchange.changed.take() else {
            return Ok(Change { iteration: self.iteration(), lost: Vec::new(), set: Vec::new() });
        };
        match self.states_of(&changed) {
            Ok(set) => {
                self.exchange.known = self.parts().to_vec();
                (self.exchange.stage, self.exchange.went_back) = (self.exchange.view.stage, false);
                self.exchange.rounds.iter_mut().for_each(Rounds::keep_now);
                Ok(Change { iteration: self.iteration(), lost: changed.lost, set })
            }
            Err(why) => {
                // what was not told is told with what has followed
                self.exchange.changed.get_or_insert(changed);
                Err(why)
            }
        }
    }

    fn states_of(&mut self, changed: &Changed) -> Result<Vec<Set>, Error> {
        let mut set = Vec::new();
        let mut waited = self.exchange.waited();
        for &(part, stamp) in &changed.set {
            let Some(stamp) = stamp else {
                set.push((part, None));
                continue;
            };
            let state = loop {
                if let Some(state) = self.exchange.kept.get(part, stamp) {
                    break state.to_vec();
                }
                let holder = usize::from(self.exchange.view.holders[part as usize].0);
                if holder == self.me() {
                    return Err(Error::Use(format!(
                        "the state {} of part {part} in stage {} is not kept here any more",
                        stamp.number, stamp.stage
                    )));
                }
                self.exchange.turn(&mut waited, holder)?;
            };
            set.push((part, Some(state)));
        }
        Ok(set)
    }

    /// Gives another member the newest of something that is not of an iteration: how far this one is, say. Nothing is waited for.
    ///
    /// # Errors
    /// There is no such member.
    pub fn tell(&mut self, member: usize, bytes: &[u8]) -> Result<(), Error> {
        let exchange = &mut self.exchange;
        let Some(peer) = exchange.peers.get(member).copied() else {
            return Err(Error::Use(format!("there is no member {member}")));
        };
        if member != exchange.seat.me {
            exchange.wire.newest_counts(peer);
            exchange.told += 1;
            // what cannot be told is not
            let _ = exchange.wire.put(peer, TOLD, exchange.told, bytes);
        }
        Ok(())
    }

    /// The newest that another member told, if it was not had before.
    pub fn told(&mut self, member: usize) -> Option<Vec<u8>> {
        match self.exchange.wire.take(*self.exchange.peers.get(member)?, TOLD) {
            Taken::New { bytes, .. } => Some(bytes.to_vec()),
            _ => None,
        }
    }

    /// Sends bytes to another member, whole, after all that was posted to it before.
    ///
    /// # Errors
    /// It is gone, or there is none; [`Error::Changed`].
    pub fn post_to(&mut self, member: usize, bytes: &[u8]) -> Result<(), Error> {
        if self.exchange.changed.is_some() {
            return Err(Error::Changed);
        }
        if member >= self.exchange.peers.len() || member == self.me() {
            return Err(Error::Use(format!("there is no other member {member}")));
        }
        for piece in bytes.chunks(PIECE) {
            self.send_data(member, Class::Posted, Link::new(0, 0), 0, piece)?;
        }
        Ok(())
    }

    /// The next piece that was posted, and by whom; pieces are those of at most 1 MiB that [`Peers::post_to`] sends. Waits at most so long.
    ///
    /// # Errors
    /// As [`Peers::wait`]; what was posted before a change is gone.
    pub fn posted(&mut self, most: Duration) -> Result<Option<(usize, Vec<u8>)>, Error> {
        let until = self.exchange.wire.now() + most;
        let mut asked = Instant::now();
        loop {
            self.exchange.ask(&mut asked)?;
            self.exchange.step()?;
            if self.exchange.changed.is_some() {
                return Err(Error::Changed);
            }
            if let Some(posted) = self.exchange.next_posted() {
                return Ok(Some(posted));
            }
            let left = until.saturating_sub(self.exchange.wire.now());
            if left.is_zero() {
                return Ok(None);
            }
            self.exchange.wire.sleep(left.min(SLEEP));
        }
    }

    /// Whether a member is known to be gone, and why.
    pub fn is_gone(&self, member: usize) -> Option<String> {
        let peer = *self.exchange.peers.get(member)?;
        self.exchange.wire.why(peer).map(str::to_owned)
    }

    /// Whether all others who compute are gone, or say nothing: then the run cannot go on.
    pub fn is_alone(&self) -> bool {
        self.exchange.is_alone()
    }

    /// Leaves: what was sent is brought to its end, for at most so long.
    pub fn leave(mut self, most: Duration) {
        let until = self.exchange.wire.now() + most;
        // words that others wait for: verdicts
        while self.exchange.step().is_ok() && self.exchange.has_words() && self.exchange.wire.now() < until {
            self.exchange.wire.sleep(Duration::from_millis(1));
        }
        self.exchange.wire.close(until.saturating_sub(self.exchange.wire.now()));
    }
}
