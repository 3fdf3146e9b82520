//! One side of a change of composition: make before break, agreed by both, without a pause.
//!
//! ```text
//!   one side                                         the other
//!   Building: builds e'
//!   Proposed  --PREPARE{e'}-->                       Answering: builds e', can receive by it
//!             <--PREPARED{e'}--                      Ready (or NACK{e'}: back to Run)
//!   Switching: sends by e'
//!             --SWITCH{e', e, last}-->               Switching: sends by e'
//!             <--SWITCH{e', e, last}--
//!   each side, on its own: delivers what comes by e up to the peer's `last`, keeps what comes by e'; then
//!   Resumed: delivers what comes by e'
//!             --DRAINED{e}-->   <--DRAINED{e}--      who has said and heard it: Run, e is destroyed
//! ```
//!
//! **Old path dead**: what the peer lacks of e is sent again *within* e', still as data of e ([`Action::Rescue`]).
//! **Crossing proposals** never share a number ([`Epoch::after`]); the accepter withdraws its own. **A control channel that fails**
//! leaves the composition in force, for good; only where SWITCH may or may not have been heard, nobody can know what the peer
//! does, and the link is made anew ([`Action::Remake`]). **A link that is made anew**, for that or because a peer died, begins at
//! [`Epoch::FIRST`] with a new `Changeover`, and another incarnation: its connection and key are new, so no datagram of the one
//! before gets here. What the sender has no confirmation of it sends again, and [`Stream`](super::Stream) knows what came twice.
//!
//! The driver calls `handle_*` with what happened, then carries out what [`Changeover::poll_action`] names, in order.

use super::Time;
use super::action::{Action, Admit, Breach, Config, Lost, Proposable};
use super::epoch::{Epoch, Side};
use super::phase::{CHANGEOVER, Event, State};
use super::refusal::{HoldDown, Refusal};
use super::word::{NackReason, Word};
use alloc::collections::VecDeque;

/// The composition to which the link changes.
#[derive(Debug)]
pub(super) struct Pending<S> {
    pub(super) epoch: Epoch,
    spec: S,
    /// The peer is waited for so long.
    until: Option<Time>,
    /// Where this side's old half ends, and the peer's.
    last: Option<u64>,
    pub(super) peer_last: Option<u64>,
    rescued: bool,
}

/// One side's part in the changes of a link (see the module's documentation).
#[derive(Debug)]
pub struct Changeover<S> {
    pub(super) side: Side,
    config: Config,
    pub(super) state: State,
    /// What is in force, and the one whose data is delivered.
    pub(super) epoch: Epoch,
    spec: S,
    pub(super) pending: Option<Pending<S>>,
    /// The number that this side proposed last, whatever became of it: a number that was withdrawn is burnt, since the peer may yet
    /// speak of it.
    burnt: Epoch,
    pub(super) held: HoldDown<S>,
    /// How much of this side's stream the peer has, and this side of the peer's.
    acked: u64,
    received: u64,
    /// Those by which nothing gets through.
    dead: [Option<Epoch>; 2],
    actions: VecDeque<Action<S>>,
}

impl<S: Proposable> Changeover<S> {
    /// A link that begins, by `spec`, at [`Epoch::FIRST`].
    pub const fn new(side: Side, config: Config, spec: S) -> Self {
        Self {
            side,
            config,
            state: State::Run,
            epoch: Epoch::FIRST,
            spec,
            pending: None,
            burnt: Epoch::FIRST,
            held: HoldDown::new(),
            acked: 0,
            received: 0,
            dead: [None; 2],
            actions: VecDeque::new(),
        }
    }

    /// How far a change has come.
    pub const fn state(&self) -> State {
        self.state
    }

    /// What is in force; while it changes, the old one.
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// What that is.
    pub const fn composition(&self) -> &S {
        &self.spec
    }

    /// What to do next, if anything.
    pub fn poll_action(&mut self) -> Option<Action<S>> {
        self.actions.pop_front()
    }

    /// When [`Changeover::handle_timeout`] wants to be called.
    pub fn due(&self) -> Option<Time> {
        self.pending.as_ref()?.until
    }

    /// What to do with data that arrives by a composition, or is marked with its number.
    pub fn admit(&self, epoch: Epoch) -> Admit {
        use State::{Ended, Finishing, Flipping, Heard, InDoubt, Ready, Resumed, Switching};
        let new = self.pending.as_ref().is_some_and(|pending| pending.epoch == epoch);
        match self.state {
            Ended => Admit::Drop,
            Resumed if new => Admit::Deliver,
            Resumed => Admit::Drop,
            Ready | InDoubt | Flipping | Switching | Heard | Finishing if new => Admit::Hold,
            _ if self.epoch == epoch => Admit::Deliver,
            _ => Admit::Drop,
        }
    }

    /// Whether confirmations by this composition count: it exists on this side.
    pub fn is_alive(&self, epoch: Epoch) -> bool {
        self.epoch == epoch || self.pending.as_ref().is_some_and(|pending| pending.epoch == epoch)
    }

    /// This side wants another composition. The answer is [`Action::Changed`] or [`Action::Refused`], unless it is refused at once.
    pub fn propose(&mut self, now: Time, spec: S) -> Result<Epoch, Refusal> {
        match spec == self.spec && self.state == State::Run {
            true => Err(Refusal::InForce),
            false => self.begin_proposal(now, spec),
        }
    }

    /// Proposes what is in force once more, to begin it anew.
    ///
    /// # Errors
    /// As of [`Changeover::propose`].
    pub fn renew(&mut self, now: Time) -> Result<Epoch, Refusal> {
        self.begin_proposal(now, self.spec.clone())
    }

    fn begin_proposal(&mut self, now: Time, spec: S) -> Result<Epoch, Refusal> {
        match self.state {
            State::Run => {}
            State::Alone | State::InDoubt | State::Finishing | State::Ended => {
                return Err(Refusal::NoControl);
            }
            _ => return Err(Refusal::Busy),
        }
        if self.held.holds(now, &spec) {
            return Err(Refusal::HoldDown);
        }
        self.step(Event::Propose);
        let epoch = self.unused();
        self.burnt = epoch;
        self.begin(epoch, spec, Some(now + self.config.prepare));
        Ok(epoch)
    }

    /// The next number of this side's that is not in force.
    fn unused(&self) -> Epoch {
        let next = self.burnt.after(self.side);
        if next == self.epoch { next.after(self.side) } else { next }
    }

    pub(super) fn begin(&mut self, epoch: Epoch, spec: S, until: Option<Time>) {
        self.push(Action::Build { epoch, spec: spec.clone() });
        self.pending = Some(Pending { epoch, spec, until, last: None, peer_last: None, rescued: false });
    }

    /// What was to be built can receive.
    pub fn handle_built(&mut self, now: Time, epoch: Epoch) {
        let Some(pending) = self.pending.as_ref().filter(|pending| pending.epoch == epoch) else { return };
        let spec = pending.spec.to_spec();
        match self.step(Event::Built) {
            Some(State::Proposed) => self.say(Word::Prepare { epoch, spec }),
            Some(_) => {
                self.wait(now + self.config.finish);
                self.say(Word::Prepared { epoch });
            }
            None => {}
        }
    }

    /// What was to be built cannot be.
    pub fn handle_unable(&mut self, now: Time, epoch: Epoch) {
        if !self.is_pending(epoch) {
            return;
        }
        let own = self.state == State::Building;
        if self.step(Event::Unable).is_none() {
            return;
        }
        self.hold_down(now);
        if own {
            return self.withdraw(Some(Refusal::Cannot));
        }
        self.say(Word::Nack { epoch, reason: NackReason::Cannot });
        self.withdraw(None);
    }

    pub(super) fn flip(&mut self, now: Time, event: Event) -> Result<(), Breach> {
        CHANGEOVER.step(&mut self.state, event)?;
        self.wait(now + self.config.finish);
        if let Some(Pending { epoch, .. }) = self.pending {
            self.push(Action::Flip { epoch });
        }
        Ok(())
    }

    fn wait(&mut self, until: Time) {
        if let Some(pending) = &mut self.pending {
            pending.until = Some(until);
        }
    }

    /// New sends go by the new composition. `last`: the position in this side's stream at which it took over.
    pub fn handle_flipped(&mut self, last: u64) {
        if self.step(Event::Flipped).is_none() {
            return;
        }
        let old = self.epoch;
        if let Some(pending) = &mut self.pending {
            pending.last = Some(last);
            let epoch = pending.epoch;
            self.say(Word::Switch { epoch, old, last });
        }
        self.resume();
        self.look_after_the_old();
    }

    /// The peer has confirmed this side's stream up to this position.
    pub fn handle_acked(&mut self, upto: u64) {
        self.acked = self.acked.max(upto);
    }

    /// The peer's stream is here, in order, up to this position.
    pub fn handle_received(&mut self, upto: u64) {
        self.received = self.received.max(upto);
        self.resume();
    }

    /// Begins to deliver what comes by the new composition when the old one has nothing more to bring.
    pub(super) fn resume(&mut self) {
        let Some(Pending { epoch, peer_last: Some(last), .. }) = self.pending else { return };
        if self.spec.delivers_all() && self.received < last {
            return;
        }
        let speaks = self.state != State::Finishing;
        let Some(next) = self.step(Event::Received) else { return };
        self.push(Action::Resume { epoch });
        if speaks {
            self.say(Word::Drained { old: self.epoch });
        }
        if next != State::Resumed {
            self.change();
        }
    }

    /// The new composition is in force.
    pub(super) fn change(&mut self) {
        let Some(pending) = self.pending.take() else { return };
        let from = core::mem::replace(&mut self.epoch, pending.epoch);
        self.spec = pending.spec;
        self.dead = self.dead.map(|dead| dead.filter(|epoch| *epoch != from));
        self.push(Action::Destroy { epoch: from });
        self.push(Action::Changed { from, to: pending.epoch });
    }

    /// Nothing gets through by this composition.
    pub fn handle_dead(&mut self, epoch: Epoch) {
        if !self.is_alive(epoch) || self.is_dead(epoch) {
            return;
        }
        if let Some(free) = self.dead.iter_mut().find(|dead| dead.is_none()) {
            *free = Some(epoch);
        }
        self.look_after_the_old();
    }

    /// Something gets through by it after all.
    pub fn handle_alive(&mut self, epoch: Epoch) {
        self.dead = self.dead.map(|dead| dead.filter(|other| *other != epoch));
    }

    /// What the peer lacks of an old composition that is dead travels within the new one.
    fn look_after_the_old(&mut self) {
        let lacks = self.spec.delivers_all() && matches!(self.state, State::Switching | State::Resumed);
        let Some(Pending { epoch, last: Some(last), rescued, .. }) = self.pending else { return };
        if !lacks || self.acked >= last || !self.is_dead(self.epoch) {
            return;
        }
        if self.is_dead(epoch) {
            self.step(Event::PathsDie);
            return self.lose(Lost::Paths);
        }
        if !rescued {
            self.push(Action::Rescue { old: self.epoch });
            if let Some(pending) = &mut self.pending {
                pending.rescued = true;
            }
        }
    }

    /// The courier has given up: nothing changes any more.
    pub fn handle_control_failed(&mut self) {
        let own = matches!(self.state, State::Building | State::Proposed);
        let Some(next) = self.step(Event::ControlFails) else { return };
        if let Some(pending) = &mut self.pending {
            pending.until = None;
        }
        self.push(Action::CloseControl);
        match next {
            State::Ended => self.lose(Lost::Control),
            State::Alone => self.withdraw(own.then_some(Refusal::NoControl)),
            _ => {}
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.due().is_none_or(|due| due > now) {
            return;
        }
        match self.state {
            State::Building => {}
            State::Proposed => self.abort_own(),
            _ => return self.handle_control_failed(),
        }
        self.step(Event::Timeout);
        self.withdraw(Some(Refusal::TimedOut));
    }

    pub(super) fn abort_own(&mut self) {
        if let Some(pending) = &self.pending {
            let epoch = pending.epoch;
            self.say(Word::Abort { epoch });
        }
    }

    /// What is pending comes to nothing; `reason`, where this side wanted it.
    pub(super) fn withdraw(&mut self, reason: Option<Refusal>) {
        let Some(Pending { epoch, spec, .. }) = self.pending.take() else { return };
        self.handle_alive(epoch);
        self.push(Action::Destroy { epoch });
        if let Some(reason) = reason {
            self.push(Action::Refused { spec, reason });
        }
    }

    pub(super) fn hold_down(&mut self, now: Time) {
        if let Some(pending) = &self.pending {
            self.held.add(pending.spec.clone(), now + self.config.hold_down);
        }
    }

    pub(super) fn lose(&mut self, why: Lost) {
        self.push(Action::Remake { why });
    }

    pub(super) fn is_pending(&self, epoch: Epoch) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.epoch == epoch)
    }

    fn is_dead(&self, epoch: Epoch) -> bool {
        self.dead.contains(&Some(epoch))
    }

    /// The next state, if there is one.
    pub(super) fn step(&mut self, event: Event) -> Option<State> {
        CHANGEOVER.step(&mut self.state, event).ok()
    }

    pub(super) fn say(&mut self, word: Word) {
        self.push(Action::Say(word));
    }

    fn push(&mut self, action: Action<S>) {
        self.actions.push_back(action);
    }
}
