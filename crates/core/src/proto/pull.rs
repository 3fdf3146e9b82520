//! Short messages that were announced are asked for before a receive wants them, as far as there is room.
//!
//! Who has no credit announces also what is short. Were such messages asked for only as receives match them, whoever receives one after
//! the other would wait a round trip for each. So they are fetched into stashes meanwhile, the oldest first, besides the window that the
//! sender knows of: half as much. To the sender they are messages that are asked for, and end when a receive has them, as a send may
//! wait for just that.

use super::Engine;
use super::peer::units;
use super::phase::RecvEvent;
use super::recv::{RecvOp, Stash, StashKind};
use super::types::{Envelope, Out, PeerIdx, Receiver};
use crate::frame::{Frame, OpId, Status};
use alloc::collections::VecDeque;

/// Longest message that is asked for early, in bytes.
const SHORT: u64 = 8 << 10;
/// So many names of messages are kept before it is looked which still wait.
const FEW: usize = 1 << 10;

/// Whether there is room for a message of so many bytes, if there is nothing else.
pub(super) fn is_short(len: u64, window: u32) -> bool {
    (1..=SHORT).contains(&len) && units(len) <= window / 2
}

/// What is fetched of one peer's.
#[derive(Debug, Default)]
pub(super) struct Pulls {
    /// Units that are being fetched, or lie in stashes.
    units: u32,
    /// Messages that had no room, oldest first; receives may have taken some meanwhile.
    waiting: VecDeque<OpId>,
    /// So many that it is looked which of them still wait.
    look_at: usize,
}

impl<R: Receiver> Engine<R> {
    /// A short message was announced that no receive waits for.
    pub(super) fn may_pull(&mut self, peer: PeerIdx, stash: OpId) {
        let Pulls { waiting, look_at, .. } = &mut self.peers[peer.0 as usize].pulls;
        if waiting.len() >= FEW.max(*look_at) {
            let stashes = &self.stashes;
            waiting.retain(|stash| matches!(stashes.get(*stash), Some(s) if s.is_announced()));
            *look_at = 2 * waiting.len();
        }
        waiting.push_back(stash);
        self.pull(peer);
    }

    /// Asks for as many as there is room for.
    pub(super) fn pull(&mut self, peer: PeerIdx) {
        loop {
            let p = &mut self.peers[peer.0 as usize];
            let Some(&stash) = p.pulls.waiting.front() else { return };
            if let Some(Stash { kind, .. }) = self.stashes.get_mut(stash)
                && let StashKind::Rts { envelope, handle, sender, .. } = kind
            {
                let (envelope, handle, sender) = (*envelope, *handle, *sender);
                let units = p.pulls.units + units(envelope.len);
                if units > self.config.window / 2 {
                    return;
                }
                p.pulls.units = units;
                let (session, pulled) = (p.session, Some(sender));
                let (whole, ack, waiting) = (false, None, None);
                *kind = StashKind::Eager { envelope, session, handle, whole, ack, waiting, pulled };
                let op = self.recvs.insert(RecvOp::pulling(stash, envelope, sender));
                self.step_recv(op, RecvEvent::MatchRtr);
                self.ready_to_receive(peer, op, sender, envelope.len, false);
            }
            self.peers[peer.0 as usize].pulls.waiting.pop_front();
        }
    }

    /// A receive takes one that was asked for early, of which all is here or not.
    pub(super) fn take_pulled(&mut self, envelope: Envelope, session: u32, sender: OpId, whole: bool) {
        let p = &mut self.peers[envelope.from.0 as usize];
        if p.session == session {
            p.pulls.units = p.pulls.units.saturating_sub(units(envelope.len));
            if whole {
                self.end_pulled(envelope.from, sender);
            }
            self.pull(envelope.from);
        }
    }

    /// A receive has it.
    pub(super) fn end_pulled(&mut self, peer: PeerIdx, sender: OpId) {
        self.control(peer, Frame::Ats { op: sender, status: Status::Ok }, Out::Nothing);
    }

    /// How many bytes a stash is to hold.
    pub fn stash_len(&self, stash: OpId) -> Option<u64> {
        match self.stashes.get(stash)?.kind {
            StashKind::Eager { envelope, .. } => Some(envelope.len),
            _ => None,
        }
    }
}
