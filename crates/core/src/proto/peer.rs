//! What the engine knows of one peer: sequence numbers, credit, and what waits to leave.

use super::bounds::{Asked, Owed, Settles};
use super::pull::Pulls;
use super::streams::Streams;
use super::types::{Out, PeerIdx};
use super::values::Values;
use crate::frame::{Frame, OpId, Order};
use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;

/// How frames reach a peer: the outcome of wireup and of the cost model ([`crate::cost`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// Longest message that goes eagerly, in bytes; at most [`crate::frame::MAX_PAYLOAD`].
    pub eager_max: usize,
    /// Longest payload of one fragment, in bytes; at most [`crate::frame::MAX_PAYLOAD`].
    pub fragment: usize,
    /// How large messages travel.
    pub scheme: Scheme,
    /// Eager bytes that the peer takes without a matching receive, in credit units of 64 bytes.
    pub window: u32,
    /// Whether what a rail took is at the peer (shared memory): then delivery needs no acknowledgement.
    pub immediate: bool,
}

/// The three ways of a large message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheme {
    /// RGET: the receiver reads the sender's memory.
    Get,
    /// RPUT: the sender writes the receiver's memory.
    Put,
    /// Neither can: fragments.
    Fragments,
}

impl Default for Route {
    fn default() -> Self {
        Self { eager_max: 0, fragment: 16 << 10, scheme: Scheme::Fragments, window: 0, immediate: false }
    }
}

/// An entry of the ordered queue.
#[derive(Clone, Copy, Debug)]
pub(super) enum Item {
    Send(OpId),
    Rma(OpId),
}

/// How many frames may arrive ahead of their turn. Beyond that the peer is broken, not reordered.
pub const REORDER_WINDOW: u32 = 4096;

/// How many bytes of the parts of long puts may arrive ahead of their turn: what senders keep to. Messages have credit.
pub const REORDER_BYTES: u64 = 32 << 20;

/// One credit unit, in bytes.
pub const CREDIT_UNIT: u64 = 64;

/// What a message of `len` bytes costs: its bytes, and one unit for its existence.
#[inline]
pub(super) fn units(len: u64) -> u32 {
    (len.div_ceil(CREDIT_UNIT) + 1) as u32
}

/// A frame that need not wait for its turn, and what it settles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub frame: Frame,
    pub payload: Out,
    pub settles: Settles,
}

#[derive(Debug, Default)]
pub(super) struct Peer {
    pub connected: bool,
    pub route: Route,
    /// Longest message that goes eagerly while plenty of credit is left, in bytes ([`crate::cost::Explanation::far_eager`]).
    pub far_eager: u64,
    /// A round trip takes long.
    pub far: bool,
    pub next_seq: u32,
    pub spent: u32,
    pub returned: u32,
    /// Totals that the peer is to be told: of each kind the latest only, so that they are few however long nothing leaves.
    pub notes: Vec<Frame>,
    pub control: VecDeque<Answer>,
    pub ordered: VecDeque<Item>,
    pub streams: Streams,
    /// What it has not answered, and what it is owed.
    pub asked: Asked,
    pub owed: Owed,
    /// Sends and one-sided operations with it that have not ended.
    pub under_way: u32,
    /// Whether the engine has named it as ready since it was asked.
    pub named: bool,
    /// Its values, where either side has any, or this side's scheme was set.
    pub values: Option<Box<Values>>,

    /// Counts the lives of the link; what belongs to an earlier one returns no credit to this one.
    pub session: u32,
    pub expect_seq: u32,
    /// Up to where the peer has seen our sequenced frames, and up to where it was told that we have seen its own.
    pub seen: u32,
    pub told: u32,
    /// Long sequenced frames that the peer is not known to have seen, by number and length, and their bytes.
    pub long: VecDeque<(u32, u64)>,
    pub long_bytes: u64,
    /// Bytes of sequenced frames that were seen since the peer was told.
    pub came: u64,
    /// Frames that came before their turn and have not been fed again.
    pub held: BTreeSet<u32>,
    /// Credit units of messages that came and are not matched, and those that are free again.
    pub unmatched: u32,
    pub consumed: u32,
    pub reported: u32,
    /// Short messages that it has announced and that were asked for before a receive wanted them (`pull`).
    pub pulls: Pulls,
    /// Puts that are coming in, in their sender's order.
    pub puts: VecDeque<OpId>,
    /// The one whose next frame is still to come.
    pub put_open: Option<OpId>,
}

/// Where a sequenced frame stands in its peer's order.
pub(super) enum Turn {
    /// Its turn; whether it is seen for the first time.
    Now(bool),
    Later,
    Again,
    Outside,
}

impl Peer {
    #[inline]
    pub fn order(&self) -> Order {
        Order { seq: self.next_seq, credit: self.consumed }
    }

    /// A sequenced frame left: its order is used up, and the credit in it is reported.
    #[inline]
    pub fn sequenced(&mut self) {
        self.next_seq = self.next_seq.wrapping_add(1);
        self.reported = self.consumed;
    }

    /// The sequenced frame that left last was one of so many bytes. Of these no more are counted than the reorder window holds: while
    /// one lane is enough nobody says that they were seen.
    pub fn sequenced_long(&mut self, len: u64) {
        if self.long.len() >= REORDER_WINDOW as usize
            && let Some((_, len)) = self.long.pop_front()
        {
            self.long_bytes -= len;
        }
        self.long.push_back((self.next_seq.wrapping_sub(1), len));
        self.long_bytes += len;
    }

    #[inline]
    pub fn has_credit(&self, len: u64) -> bool {
        self.has_units(units(len))
    }

    /// The same of what is counted in units.
    #[inline(always)]
    pub fn has_units(&self, units: u32) -> bool {
        self.spent.wrapping_sub(self.returned).saturating_add(units) <= self.route.window
    }

    /// Takes returned credit; false when the peer returns what was never spent.
    #[inline(always)]
    pub fn take_credit(&mut self, credit: u32) -> bool {
        // as a rule nothing new; or an older figure, that was overtaken on another rail
        let fresh = credit.wrapping_sub(self.returned);
        if fresh as i32 <= 0 {
            return true;
        }
        if fresh > self.spent.wrapping_sub(self.returned) {
            return false;
        }
        self.returned = credit;
        true
    }

    /// Takes word of what the peer has seen; false when that was never sent.
    pub fn take_seen(&mut self, seq: u32) -> bool {
        let fresh = seq.wrapping_sub(self.seen);
        // nothing may have been said for half of all numbers, where one lane was enough
        if fresh <= self.next_seq.wrapping_sub(self.seen) {
            self.seen = seq;
            while let Some(&(first, len)) = self.long.front()
                && seq.wrapping_sub(first).wrapping_sub(1) < u32::MAX / 2
            {
                self.long.pop_front();
                self.long_bytes -= len;
            }
            return true;
        }
        fresh > u32::MAX / 2 // overtaken on another rail
    }

    /// An eager message of `len` bytes has come; false when the peer had no credit for it.
    #[inline]
    pub fn take(&mut self, len: u64, window: u32) -> bool {
        self.unmatched = self.unmatched.wrapping_add(units(len));
        self.unmatched <= window
    }

    /// An eager message is matched, not by the shortest way: its room is free again. The credit to return, when a quarter of the window has gathered, or
    /// some and the peer has little left.
    #[inline]
    pub fn consume(&mut self, len: u64, window: u32) -> Option<u32> {
        self.unmatched = self.unmatched.wrapping_sub(units(len));
        let credit = self.pass(len, window);
        let untold = self.consumed.wrapping_sub(self.reported);
        let starves = untold > window / 256 && untold.wrapping_add(self.unmatched) > window / 4 * 3;
        if credit.is_none() && starves {
            self.reported = self.consumed;
            return Some(self.consumed);
        }
        credit
    }

    /// An eager message came, and was matched at once. The credit to return, when a quarter of the window has gathered: it is the commonest
    /// case by far, and looks at no more.
    #[inline(always)]
    pub fn pass(&mut self, len: u64, window: u32) -> Option<u32> {
        self.consumed = self.consumed.wrapping_add(units(len));
        if self.consumed.wrapping_sub(self.reported) < window / 4 {
            return None;
        }
        self.reported = self.consumed;
        Some(self.consumed)
    }

    /// Has credit returned to this peer.
    #[cold]
    pub fn return_credit(&mut self, me: PeerIdx, credit: u32, ready: &mut VecDeque<PeerIdx>) {
        if self.connected {
            self.note(Frame::Credit { credit });
            self.name(me, ready);
        }
    }

    /// Has it be named as one that has something to send.
    #[inline]
    pub fn name(&mut self, me: PeerIdx, ready: &mut VecDeque<PeerIdx>) {
        if !core::mem::replace(&mut self.named, true) {
            ready.push_back(me);
        }
    }

    #[inline]
    pub fn turn(&mut self, seq: u32) -> Turn {
        if seq == self.expect_seq {
            self.expect_seq = seq.wrapping_add(1);
            return Turn::Now(self.held.is_empty() || !self.held.remove(&seq));
        }
        let ahead = seq.wrapping_sub(self.expect_seq);
        match ahead {
            _ if ahead > u32::MAX / 2 => Turn::Again,
            _ if ahead >= REORDER_WINDOW => Turn::Outside,
            _ if self.held.insert(seq) => Turn::Later,
            _ => Turn::Again,
        }
    }

    /// Everything that waits is forgotten and sequence numbers begin anew; returns what there was.
    pub fn reset(&mut self) -> Self {
        let session = self.session.wrapping_add(1);
        let (under_way, named) = (self.under_way, self.named);
        let mut values = self.values.take();
        values.iter_mut().for_each(|values| values.end_session());
        core::mem::replace(self, Self { session, under_way, named, values, ..Self::default() })
    }

    #[inline]
    pub fn idle(&self) -> bool {
        self.queued() == 0
    }

    #[inline]
    pub fn queued(&self) -> usize {
        let values = self.values.as_ref().map_or(0, |values| values.queued());
        self.ordered.len() + self.control.len() + self.streams.len() + self.notes.len() + values
    }

    /// Adds a note; what it is about is forgotten where an earlier one spoke of it.
    pub fn note(&mut self, frame: Frame) {
        let same = |note: &Frame| match (note, &frame) {
            (Frame::Got { lane, .. }, Frame::Got { lane: of, .. }) => lane == of,
            (Frame::Credit { .. }, Frame::Credit { .. }) | (Frame::Seen { .. }, Frame::Seen { .. }) => true,
            _ => false,
        };
        match self.notes.iter_mut().find(|note| same(note)) {
            Some(note) => *note = frame,
            None => self.notes.push(frame),
        }
    }
}

impl core::fmt::Display for PeerIdx {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "peer {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_counts_however_long_nothing_was_said() {
        for sent in [1, 5000, (1 << 31) + 5, u32::MAX - 9] {
            let mut peer = Peer { next_seq: sent, ..Peer::default() };
            assert!(peer.take_seen(sent - 1) && peer.seen == sent - 1, "{sent}");
            assert!(peer.take_seen(sent) && peer.seen == sent, "{sent}");
            assert!(peer.take_seen(sent - 1) && peer.seen == sent, "{sent}: overtaken");
            peer.next_seq = sent.wrapping_add(100);
            assert!(peer.take_seen(sent.wrapping_add(99)), "{sent}");
            assert!(!peer.take_seen(sent.wrapping_add(101)), "{sent}: it was not sent");
        }
    }
}
