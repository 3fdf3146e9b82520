//! What the peer's words do to a change.

use super::Time;
use super::action::{Breach, Proposable};
use super::changeover::Changeover;
use super::epoch::{Epoch, Side};
use super::phase::{CHANGEOVER, Event, State};
use super::refusal::Refusal;
use super::word::{NackReason, SpecBytes, Word};

impl<S: Proposable> Changeover<S> {
    /// The peer said something; once the control channel has failed, nothing is heard any more. An error is a breach of the
    /// protocol: the link is of no use.
    pub fn handle_word(&mut self, now: Time, word: Word) -> Result<(), Breach> {
        if matches!(self.state, State::Alone | State::InDoubt | State::Finishing | State::Ended) {
            return Ok(());
        }
        match word {
            Word::Prepare { epoch, spec } => self.prepare(now, epoch, &spec),
            Word::Prepared { epoch } => self.prepared(now, epoch),
            Word::Nack { epoch, reason } => self.nack(now, epoch, reason),
            Word::Switch { epoch, old, last } => self.switch(now, epoch, old, last),
            Word::Drained { old } => self.drained(old),
            Word::Abort { epoch } => self.abort(epoch),
        }
    }

    fn prepare(&mut self, now: Time, epoch: Epoch, spec: &SpecBytes) -> Result<(), Breach> {
        if epoch == self.epoch || !epoch.is_of(self.side.other()) {
            return Err(Breach::Number(epoch));
        }
        let event = if self.side == Side::Opener { Event::HigherPrepares } else { Event::LowerPrepares };
        if CHANGEOVER.next(self.state, event).is_none() {
            self.say(Word::Nack { epoch, reason: NackReason::Busy });
            return Ok(());
        }
        if CHANGEOVER.next(self.state, event) != Some(State::Answering) {
            return Ok(());
        }
        let own = self.pending.is_some();
        if self.state == State::Proposed {
            self.abort_own();
        }
        if own {
            self.withdraw(Some(Refusal::Crossed));
        }
        self.step(event);
        self.answer(now, epoch, S::from_spec(spec));
        Ok(())
    }

    /// Builds what the peer proposes, or says why not.
    fn answer(&mut self, now: Time, epoch: Epoch, spec: Option<S>) {
        let reason = match spec {
            Some(spec) if !self.held.holds(now, &spec) => return self.begin(epoch, spec, None),
            Some(_) => NackReason::HoldDown,
            None => NackReason::Cannot,
        };
        self.step(Event::Unable);
        self.say(Word::Nack { epoch, reason });
    }

    fn prepared(&mut self, now: Time, epoch: Epoch) -> Result<(), Breach> {
        if self.state == State::Proposed && self.is_pending(epoch) {
            return self.flip(now, Event::Prepared);
        }
        if !epoch.is_of(self.side) {
            return Err(Breach::Number(epoch));
        }
        // a proposal that was withdrawn
        self.say(Word::Abort { epoch });
        Ok(())
    }

    fn nack(&mut self, now: Time, epoch: Epoch, reason: NackReason) -> Result<(), Breach> {
        if self.state == State::Proposed && self.is_pending(epoch) {
            self.step(Event::Nack);
            if reason != NackReason::Busy {
                self.hold_down(now);
            }
            self.withdraw(Some(reason.into()));
        }
        Ok(())
    }

    fn abort(&mut self, epoch: Epoch) -> Result<(), Breach> {
        if !epoch.is_of(self.side.other()) {
            return Err(Breach::Number(epoch));
        }
        if self.is_pending(epoch) {
            CHANGEOVER.step(&mut self.state, Event::Abort)?;
            self.withdraw(None);
        }
        Ok(())
    }

    fn switch(&mut self, now: Time, epoch: Epoch, old: Epoch, last: u64) -> Result<(), Breach> {
        let Some(pending) = self.pending.as_mut().filter(|it| it.epoch == epoch && old == self.epoch) else {
            return Err(Breach::Number(epoch));
        };
        if pending.peer_last.replace(last).is_some() {
            return Err(Breach::Number(epoch));
        }
        match self.state {
            State::Ready => self.flip(now, Event::Switch),
            _ => {
                CHANGEOVER.step(&mut self.state, Event::Switch)?;
                self.resume();
                Ok(())
            }
        }
    }

    fn drained(&mut self, old: Epoch) -> Result<(), Breach> {
        if old != self.epoch {
            return Err(Breach::Number(old));
        }
        if CHANGEOVER.step(&mut self.state, Event::Drained)? == State::Run {
            self.change();
        }
        Ok(())
    }
}
