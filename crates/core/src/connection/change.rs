//! A connection's part in changes of its composition: it has the channels, [`Changeover`] decides.

use super::stage::Stage;
use super::{Connection, News};
use crate::control::{self, Action, Epoch, Word, word};
use crate::micro::{Composition, Limits, Shared, Time, User};
use crate::wire::datagram::Value;

/// A channel by which so often nothing was heard, while another is, is dead.
const DEAD: u32 = 4;

/// Nobody is given anything where nothing can come.
pub(super) struct NoUser;

impl User for NoUser {
    fn deliver(&mut self, _bytes: &[u8]) {
        debug_assert!(false, "nothing has its turn here");
    }
    fn takes_values(&self) -> bool {
        false
    }
    fn value(&mut self, _value: &Value<'_>) {}
}

impl Connection {
    /// This side wants another composition. [`News::Changed`] or [`News::Refused`] follows.
    ///
    /// # Errors
    /// Why it cannot be had now, as a sentence.
    pub fn propose(&mut self, now: Time, composition: Composition) -> Result<(), control::Refusal> {
        self.changeover.propose(now, composition)?;
        self.follow(now, &mut NoUser);
        Ok(())
    }

    /// Proposes to begin the composition that is in force anew.
    ///
    /// # Errors
    /// As of [`Connection::propose`].
    pub fn renew(&mut self, now: Time) -> Result<(), control::Refusal> {
        self.changeover.renew(now)?;
        self.follow(now, &mut NoUser);
        Ok(())
    }

    /// How far a change has come, in a word.
    pub fn change_state(&self) -> control::phase::State {
        self.changeover.state()
    }

    /// Whether a change is under way.
    pub fn is_changing(&self) -> bool {
        self.next.is_some()
    }

    /// What has become of changes.
    pub fn poll_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// Words came, or what they wait for.
    pub(super) fn look_at_changes<U: User>(&mut self, now: Time, user: &mut U) -> Result<(), &'static str> {
        while let Some(bytes) = self.courier.poll_word() {
            let word = word::parse(&bytes).map_err(|_| "it said what is no word of the control channel")?;
            self.changeover.handle_word(now, word).map_err(|_| "it broke the protocol of changes")?;
            self.follow(now, user);
        }
        if self.next.is_some() {
            self.changeover.handle_acked(self.had_upto());
            self.changeover.handle_received(self.received_upto());
            self.follow(now, user);
        }
        Ok(())
    }

    /// Does what the change asks for.
    pub(super) fn follow<U: User>(&mut self, now: Time, user: &mut U) {
        while let Some(action) = self.changeover.poll_action() {
            match action {
                Action::Say(word) => self.say(&word),
                Action::Build { epoch, spec } => self.build(now, epoch, spec),
                Action::Flip { .. } => self.flip(now),
                Action::Resume { .. } => self.resume(user),
                Action::Rescue { .. } => self.rescue(),
                Action::Destroy { epoch } => self.destroy(epoch),
                Action::Changed { .. } => {
                    let to = self.current.channel.composition();
                    self.news.push_back(News::Changed(to));
                }
                Action::Refused { spec, reason } => self.news.push_back(News::Refused(spec, reason)),
                Action::CloseControl => self.courier.close(),
                Action::Remake { .. } => {
                    self.broken = Some("the two sides cannot agree on what it is made of")
                }
            }
        }
    }

    fn say(&mut self, word: &Word) {
        // where it is not taken the courier has failed, and says so
        let _ = self.courier.say(word.to_bytes());
    }

    fn build(&mut self, now: Time, epoch: Epoch, composition: Composition) {
        if self.settings.fixed || composition.needs_reliable_network() {
            return self.changeover.handle_unable(now, epoch);
        }
        let shared = self.current.channel.shared();
        let limits = Limits {
            size: shared.most,
            start: shared.end,
            window: shared.takes,
            holds: shared.holds,
            receives_from: shared.delivered,
            rtt: shared.rtt.smoothed,
            in_flight: may_fly(shared),
            path: shared.known(),
            lost: shared.lost_of(),
        };
        let mut stage = Stage::new(now, epoch, self.current.count.wrapping_add(1), composition, &limits);
        stage.channel.wait();
        self.next = Some(stage);
        self.flipped = false;
        self.changeover.handle_built(now, epoch);
    }

    /// New bytes go by the new channel.
    fn flip(&mut self, now: Time) {
        let given = self.current.channel.shared().end;
        let last = self.current.channel.cut();
        if let Some(next) = &mut self.next {
            next.channel.begin_at(last);
            next.channel.extend(given);
            self.flipped = true;
        }
        self.move_values(now);
        self.changeover.handle_flipped(last);
    }

    fn resume<U: User>(&mut self, user: &mut U) {
        let from = self.current.channel.shared().delivered;
        if let Some(next) = &mut self.next {
            next.channel.resume(from, user);
        }
        self.changeover.handle_received(self.received_upto());
    }

    fn rescue(&mut self) {
        if let Some(next) = &mut self.next {
            let lacking = self.current.channel.hand_over();
            lacking.into_iter().for_each(|range| next.channel.rescue(range));
            self.rescued = true;
        }
    }

    fn destroy(&mut self, epoch: Epoch) {
        if self.current.epoch != epoch {
            // what came to nothing
            self.next = None;
        } else if let Some(next) = self.next.take() {
            self.values_before += self.current.channel.shared().values_sent;
            self.current = next;
        }
        (self.flipped, self.rescued) = (false, false);
    }

    /// Whether the old channel brings nothing any more while the new one is heard.
    pub(super) fn look_for_the_dead<U: User>(&mut self, now: Time, user: &mut U) {
        let dead = self.flipped && self.current.channel.shared().timeouts >= DEAD;
        let lives = self.next.as_ref().is_some_and(|next| next.channel.shared().largest_acked.is_some());
        if dead && lives {
            self.changeover.handle_dead(self.current.epoch);
            self.follow(now, user);
        }
    }

    /// The position up to which the other side has all of this side's stream.
    pub fn had_upto(&self) -> u64 {
        let old = self.current.channel.shared();
        match &self.next {
            Some(next) if self.flipped && (self.rescued || old.is_delivered()) => {
                next.channel.shared().base()
            }
            _ => old.base(),
        }
    }

    /// The position up to which the user has the other side's stream.
    pub fn received_upto(&self) -> u64 {
        let of = |stage: &Stage| {
            Some(stage.channel.shared()).filter(|shared| !shared.waits).map(|shared| shared.delivered)
        };
        self.current.channel.shared().delivered.max(self.next.as_ref().and_then(of).unwrap_or(0))
    }
}

/// What may be on the way of a channel that takes another's place.
fn may_fly(shared: &Shared) -> u64 {
    let flies = shared.flight.bytes();
    match shared.rate {
        // who has no model has a window, if it has been of use
        0 if shared.window < u64::MAX => flies.max(shared.window.min(2 * flies)),
        0 => flies,
        rate => {
            let held = u128::from(rate) * u128::from(shared.shortest()) / 1_000_000_000;
            flies.max(u64::try_from(held).unwrap_or(u64::MAX))
        }
    }
}
