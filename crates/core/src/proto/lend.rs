//! Eager sends of whose bytes a lane keeps only the place, in case that it ends and they must be sent again: the user's memory is lent
//! to it. Such a send is complete when the peer has said that it has the message, or when the lane has made a copy after all.
//!
//! A copy is for whoever waits. Nobody says so, but who waits polls: a send that was lent for as many rounds of progress as would have
//! sufficed to copy all that is lent is copied. So nobody waits more than twice as long as if it had been copied at once, and bytes
//! that the peer confirms in time are never copied.

use super::phase::{SendEvent, SendPhase};
use super::types::{Next, Out, PeerIdx, Place, Receiver, Span};
use super::{Engine, Frame};
use crate::frame::OpId;
use alloc::collections::VecDeque;

/// So much is lent at most: what else leaves is copied at once, as it would be for who waits.
const LENT_MAX: u64 = 8 << 20;
/// About so many bytes are copied in the time of a round of progress that finds nothing.
const ROUND: u64 = 8 << 10;
/// So much is copied in a round, and one send more: messages that come do not wait for longer.
const SLICE: u64 = 256 << 10;

/// What is lent.
#[derive(Debug, Default)]
pub(super) struct Lent {
    /// The sends, oldest first, and the round in which each was lent; some of them may have been returned.
    sends: VecDeque<(OpId, u64)>,
    /// Bytes of those that were not.
    bytes: u64,
    round: u64,
    /// Bytes that may still be copied in this round.
    budget: u64,
    /// The caller is going to sleep.
    all: bool,
}

impl<R: Receiver> Engine<R> {
    /// The payload of a frame that may be lent to a lane, if that is worth its while: from so many bytes on. When the lane has taken it
    /// as that, [`Engine::lent`] follows in place of [`Engine::transmitted`].
    pub fn may_lend(&self, next: &Next, least: usize) -> Option<Span> {
        match (next.frame, next.payload) {
            (Frame::Eager { ack: None, .. }, Out::Bytes(span)) if span.len >= least => {
                (self.lent.bytes + span.len as u64 <= LENT_MAX).then_some(span)
            }
            _ => None,
        }
    }

    /// A lane has taken the frame that [`Engine::poll_transmit`] named, and keeps the place of its payload until
    /// [`Engine::returned`].
    pub fn lent(&mut self, peer: PeerIdx, next: &Next) {
        self.left(peer, next, true);
        if let Out::Bytes(Span { place: Place::Send(op), len, .. }) = next.payload {
            self.lent.sends.push_back((op, self.lent.round));
            self.lent.bytes += len as u64;
        }
    }

    /// No lane keeps the place of this send's bytes any more: the peer has them, or they were copied. Of others it means nothing.
    pub fn returned(&mut self, op: OpId) {
        self.step_send(op, SendEvent::Returned);
    }

    /// Whether any bytes are lent: then [`Engine::wait`] is to be called in each round of progress.
    #[inline]
    pub fn has_lent(&self) -> bool {
        self.lent.bytes > 0
    }

    /// A round of progress, or its caller is going to sleep: [`Engine::poll_copy`] names what is to be copied.
    pub fn wait(&mut self, sleeps: bool) {
        let lent = &mut self.lent;
        (lent.round, lent.budget, lent.all) = (lent.round + 1, SLICE, sleeps);
    }

    /// A send whose bytes its lane is to copy now, for [`Engine::returned`].
    pub fn poll_copy(&mut self) -> Option<(PeerIdx, OpId)> {
        let &(op, since) = self.lent.sends.front()?;
        let send = self.sends.get(op)?;
        let Lent { bytes, round, budget, all, .. } = self.lent;
        let waits = budget > 0 && (round - since) * ROUND >= bytes;
        if !waits && !all {
            return None;
        }
        self.lent.budget = budget.saturating_sub(send.message.len);
        Some((send.peer, op))
    }

    /// A send that was lent has ended, and is forgotten.
    pub(super) fn end_loan(&mut self, len: u64) {
        self.lent.bytes -= len;
        // one that stands has this name
        let stands = |op| self.sends.get(op).is_some_and(|send| send.phase == SendPhase::Lent);
        while self.lent.sends.front().is_some_and(|(first, _)| !stands(*first)) {
            self.lent.sends.pop_front();
        }
    }
}
