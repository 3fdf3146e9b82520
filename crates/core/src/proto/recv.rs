//! Receives: matching, eager messages, and those that came too early.

use super::bounds::Settles;
use super::peer::units;
use super::phase::{RECV, RecvEvent, RecvPhase};
use super::types::{
    Action, After, Completion, Delivered, Directive, Envelope, Failure, Filter, Out, PeerIdx, Place, Region,
    Span,
};
use super::{Engine, Match};
use crate::frame::{Frame, Matching, OpId, Status};
use crate::matching::{Handle, Receive, Source};
use alloc::boxed::Box;
use alloc::vec::Vec;

#[derive(Debug)]
pub(super) struct RecvOp {
    /// The receive whose buffer is filled: itself, or the multi-receive buffer that this message lies in.
    pub(super) buffer: OpId,
    /// Where in that buffer this message begins.
    pub(super) base: u64,
    /// Bytes of room from there.
    pub(super) room: u64,
    /// Bytes of the message that fit.
    pub(super) want: u64,
    /// Bytes of fragments whose headers have come; payloads of several rails arrive at once.
    pub(super) coming: u64,
    /// Bytes placed.
    pub(super) got: u64,
    pub(super) phase: RecvPhase,
    /// Where it waits in a posted queue; whether that is the tagged one.
    pub(super) posted: Option<(Handle, bool)>,
    /// The only peer that it receives from.
    pub(super) source: Option<PeerIdx>,
    pub(super) multi: Option<Box<Multi>>,
    pub(super) envelope: Option<Envelope>,
    /// The sender's operation: of a rendezvous, or of an eager send that waits for delivery.
    pub(super) sender: Option<OpId>,
}

impl RecvOp {
    #[inline]
    fn new(room: u64) -> Self {
        Self {
            buffer: OpId::default(),
            base: 0,
            room,
            want: 0,
            coming: 0,
            got: 0,
            phase: RecvPhase::Posted,
            posted: None,
            source: None,
            multi: None,
            envelope: None,
            sender: None,
        }
    }

    fn is_of(&self, peer: PeerIdx) -> bool {
        self.source == Some(peer) || self.envelope.is_some_and(|e| e.from == peer)
    }
}

/// A buffer that takes several messages, one behind the other.
#[derive(Debug)]
pub(super) struct Multi {
    /// It takes no more when less room than this is left.
    least: u64,
    used: u64,
    under_way: u32,
}

/// An unexpected message, or the result of an atomic on its way.
#[derive(Debug)]
pub(super) struct Stash {
    from: PeerIdx,
    kind: StashKind,
}

#[derive(Debug)]
pub(super) enum StashKind {
    Eager {
        envelope: Envelope,
        /// Whose credit it has.
        session: u32,
        handle: Option<Handle>,
        whole: bool,
        ack: Option<OpId>,
        /// The receive that waits until all bytes are here.
        waiting: Option<OpId>,
    },
    Rts {
        envelope: Envelope,
        handle: Option<Handle>,
        sender: OpId,
        region: Option<Region>,
    },
    Result,
}

fn receive_of(filter: &Filter) -> Receive {
    let source = filter.source.map(|p| Source(p.0));
    match filter.matching {
        Matching::Tag(tag) => Receive { source, tag, ignore: filter.ignore },
        Matching::Message => Receive { source, tag: 0, ignore: 0 },
    }
}

impl Engine {
    fn queues(&mut self, tagged: bool) -> &mut Match {
        if tagged { &mut self.tagged } else { &mut self.messages }
    }

    /// A receive for a buffer of `room` bytes that is posted by [`Engine::post_multi`] or [`Engine::recv_claimed`].
    pub fn new_recv(&mut self, room: u64) -> OpId {
        let op = self.recvs.insert(RecvOp::new(room));
        if let Some(r) = self.recvs.get_mut(op) {
            r.buffer = op;
        }
        op
    }

    /// Posts a receive for a buffer of `room` bytes: it takes the first unexpected message that fits, or waits. The driver
    /// stores the buffer under the name returned before it asks for actions.
    #[inline]
    pub fn post(&mut self, room: u64, filter: Filter) -> OpId {
        let receive = receive_of(&filter);
        let tagged = matches!(filter.matching, Matching::Tag(_));
        let queue = if tagged { &mut self.tagged } else { &mut self.messages };
        if let Some((_, stash)) = queue.unexpected.take_match(&receive) {
            let op = self.new_recv(room);
            self.take_stash(op, stash);
            return op;
        }
        let op = self.recvs.insert(RecvOp::new(room));
        let handle = queue.posted.post(receive, op);
        if let Some(r) = self.recvs.get_mut(op) {
            (r.buffer, r.posted, r.source) = (op, Some((handle, tagged)), filter.source);
        }
        op
    }

    /// Posts a buffer for any number of untagged messages, one behind the other, until less than `least` bytes are free.
    pub fn post_multi(&mut self, op: OpId, source: Option<PeerIdx>, least: u64) {
        let receive = receive_of(&Filter { source, matching: Matching::Message, ignore: 0 });
        if let Some(r) = self.recvs.get_mut(op) {
            r.multi = Some(Box::new(Multi { least: least.max(1), used: 0, under_way: 0 }));
            r.source = source;
        }
        let handle = self.messages.posted.post(receive, op);
        if let Some(r) = self.recvs.get_mut(op) {
            r.posted = Some((handle, false));
        }
        while self.recvs.get(op).is_some_and(|r| r.posted.is_some()) {
            let Some((_, stash)) = self.messages.unexpected.take_match(&receive) else { return };
            self.take_stash(op, stash);
        }
    }

    /// The first unexpected message that a receive would take.
    pub fn peek(&mut self, filter: &Filter) -> Option<(OpId, Envelope)> {
        let queue = self.queues(matches!(filter.matching, Matching::Tag(_)));
        let stash = *queue.unexpected.peek(&receive_of(filter))?.1;
        match &self.stashes.get(stash)?.kind {
            StashKind::Eager { envelope, .. } | StashKind::Rts { envelope, .. } => Some((stash, *envelope)),
            StashKind::Result => None,
        }
    }

    /// Takes the message that [`Engine::peek`] showed out of matching, for a later [`Engine::recv_claimed`].
    pub fn claim(&mut self, stash: OpId) {
        let Some(s) = self.stashes.get_mut(stash) else { return };
        if let StashKind::Eager { envelope, handle, .. } | StashKind::Rts { envelope, handle, .. } =
            &mut s.kind
            && let Some(taken) = handle.take()
        {
            let tagged = matches!(envelope.matching, Matching::Tag(_));
            self.queues(tagged).unexpected.remove(taken);
        }
    }

    /// Receives a claimed message. False when it is no longer there: its sender died meanwhile.
    pub fn recv_claimed(&mut self, op: OpId, stash: OpId) -> bool {
        let there = self.stashes.get(stash).is_some();
        if there {
            self.take_stash(op, stash);
        } else {
            self.end_unmatched(op, Failure::PeerGone);
        }
        there
    }

    /// Throws a claimed message away.
    pub fn discard(&mut self, stash: OpId) {
        let op = self.new_recv(0);
        self.recv_claimed(op, stash);
    }

    /// Takes a posted receive back: it ends with [`Failure::Cancelled`]. False when a message has matched it already.
    pub fn cancel(&mut self, op: OpId) -> bool {
        let Some((handle, tagged)) = self.recvs.get(op).and_then(|r| r.posted) else { return false };
        self.queues(tagged).posted.cancel(handle);
        self.end_unmatched(op, Failure::Cancelled);
        true
    }

    /// Ends a receive that is no longer in a posted queue. A multi-receive buffer with messages under way is released by the
    /// last of them.
    fn end_unmatched(&mut self, op: OpId, failure: Failure) {
        let Some(r) = self.recvs.get_mut(op) else { return };
        r.posted = None;
        if r.multi.as_ref().is_none_or(|m| m.under_way == 0) {
            let peer = r.source;
            self.recvs.remove(op);
            let result = Err(failure);
            self.complete(Completion::Recv {
                op,
                peer,
                envelope: None,
                got: 0,
                offset: 0,
                released: true,
                result,
            });
        }
    }

    #[inline]
    pub(super) fn complete(&mut self, completion: Completion) {
        self.actions.push_back(Action::Complete(completion));
    }

    /// The receive for an arriving message, if one is posted; it leaves the queue unless it can take more.
    #[inline]
    pub(super) fn take_posted(&mut self, envelope: Envelope) -> Option<OpId> {
        let source = Source(envelope.from.0);
        let op = match envelope.matching {
            Matching::Tag(tag) => self.tagged.posted.take_match(source, tag)?,
            Matching::Message => {
                let (handle, &mut op) = self.messages.posted.find_match(source, 0)?;
                if self.recvs.get(op).is_none_or(|r| r.multi.is_none()) {
                    self.messages.posted.cancel(handle);
                }
                op
            }
        };
        Some(self.match_with(op, envelope))
    }

    /// A message and a receive have met; returns the operation that receives this message.
    #[inline]
    fn match_with(&mut self, op: OpId, envelope: Envelope) -> OpId {
        let Some(r) = self.recvs.get_mut(op) else { return op };
        let Some(multi) = &mut r.multi else {
            r.posted = None;
            r.want = envelope.len.min(r.room);
            r.envelope = Some(envelope);
            return op;
        };
        let base = multi.used;
        let want = envelope.len.min(r.room - base);
        multi.used += want;
        multi.under_way += 1;
        if r.room - multi.used < multi.least
            && let Some((handle, _)) = r.posted.take()
        {
            self.messages.posted.cancel(handle);
        }
        self.recvs.insert(RecvOp { buffer: op, base, want, envelope: Some(envelope), ..RecvOp::new(want) })
    }

    /// Where the first `len` bytes from `offset` of the message that `op` receives go.
    #[inline]
    pub(super) fn span(&self, op: OpId, offset: u64, len: u64) -> Span {
        match self.recvs.get(op) {
            Some(r) => Span { place: Place::Recv(r.buffer), offset: r.base + offset, len: len as usize },
            None => Span { place: Place::Discard, offset: 0, len: len as usize },
        }
    }

    /// The shortest way of the commonest frame: a whole tagged eager message, in its turn, whose receive is posted. The receive
    /// has ended with that: the driver copies the bytes and tells the user. Nothing has happened otherwise, and
    /// [`Engine::on_frame`] decides.
    #[inline]
    pub fn try_deliver(&mut self, peer: PeerIdx, frame: &Frame, payload: usize) -> Option<Delivered> {
        let Frame::Eager { order, matching: matching @ Matching::Tag(tag), data, ack: None } = *frame else {
            return None;
        };
        let len = payload as u64;
        let p = &mut self.peers[peer.0 as usize];
        if order.seq != p.expect_seq || !p.held.is_empty() || !p.take_credit(order.credit) {
            return None;
        }
        let op = self.tagged.posted.take_match(Source(peer.0), tag)?;
        p.expect_seq = order.seq.wrapping_add(1);
        p.take(len, self.config.window);
        if let Some(credit) = p.consume(len, self.config.window) {
            self.say(peer, Frame::Credit { credit });
        }
        let got = self.recvs.end(op, |r| r.room.min(len)).unwrap_or(0);
        Some(Delivered { op, envelope: Envelope { from: peer, matching, data, len }, got })
    }

    #[inline]
    pub(super) fn on_eager(
        &mut self,
        peer: PeerIdx,
        matching: Matching,
        data: Option<u64>,
        ack: Option<OpId>,
        payload: usize,
    ) -> Directive {
        let envelope = Envelope { from: peer, matching, data, len: payload as u64 };
        let Some(op) = self.take_posted(envelope) else {
            return self.stash_eager(envelope, ack);
        };
        self.consume(peer, self.peers[peer.0 as usize].session, envelope.len);
        self.step_recv(op, RecvEvent::MatchEager);
        let mut want = 0;
        if let Some(r) = self.recvs.get_mut(op) {
            r.sender = ack;
            want = r.want;
        }
        if payload == 0 {
            self.received(op);
            return Directive::Done;
        }
        // without room for any of it, it is received once it is all here, and has left its sender
        let nowhere = Span { place: Place::Discard, offset: 0, len: payload };
        let span = if want == 0 { nowhere } else { self.span(op, 0, want) };
        Directive::Place(span, After::Received(op))
    }

    fn stash_eager(&mut self, envelope: Envelope, ack: Option<OpId>) -> Directive {
        let whole = envelope.len == 0;
        let session = self.peers[envelope.from.0 as usize].session;
        let kind = StashKind::Eager { envelope, session, handle: None, whole, ack, waiting: None };
        let stash = self.unexpected(envelope, kind);
        if whole {
            self.stashed(stash);
            return Directive::Done;
        }
        let span = Span { place: Place::Stash(stash), offset: 0, len: envelope.len as usize };
        Directive::Place(span, After::Stashed(stash))
    }

    /// Enters a message that no receive waits for.
    pub(super) fn unexpected(&mut self, envelope: Envelope, kind: StashKind) -> OpId {
        let stash = self.stashes.insert(Stash { from: envelope.from, kind });
        let source = Source(envelope.from.0);
        let entered = match envelope.matching {
            Matching::Tag(tag) => self.tagged.unexpected.push(source, tag, stash),
            Matching::Message => self.messages.unexpected.push(source, 0, stash),
        };
        if let Some(Stash { kind: StashKind::Eager { handle, .. } | StashKind::Rts { handle, .. }, .. }) =
            self.stashes.get_mut(stash)
        {
            *handle = Some(entered);
        }
        stash
    }

    /// All bytes of an eager message are in the receive buffer.
    #[inline]
    pub(super) fn received(&mut self, op: OpId) {
        if let Some(r) = self.recvs.get_mut(op) {
            r.got = r.want;
            if let (Some(sender), Some(envelope)) = (r.sender, r.envelope) {
                let ats = Frame::Ats { op: sender, status: Status::Ok };
                self.answer(envelope.from, ats, Out::Nothing, Settles::Request);
            }
        }
        self.step_recv(op, RecvEvent::Placed);
    }

    /// All bytes of an unexpected message are in its stash; with that it is delivered.
    pub(super) fn stashed(&mut self, stash: OpId) {
        let Some(Stash { kind: StashKind::Eager { whole, waiting, ack, envelope, .. }, .. }) =
            self.stashes.get_mut(stash)
        else {
            return;
        };
        *whole = true;
        let (ack, from, waiting) = (*ack, envelope.from, *waiting);
        if let Some(op) = ack {
            self.answer(from, Frame::Ats { op, status: Status::Ok }, Out::Nothing, Settles::Request);
        }
        if let Some(op) = waiting {
            self.unstash(op, stash);
        }
    }

    fn unstash(&mut self, op: OpId, stash: OpId) {
        self.stashes.remove(stash);
        let want = self.recvs.get(op).map_or(0, |r| r.want);
        self.actions.push_back(Action::Unstash { stash, to: self.span(op, 0, want) });
        self.received(op);
    }

    /// A receive takes an unexpected message.
    fn take_stash(&mut self, op: OpId, stash: OpId) {
        let Some(s) = self.stashes.get_mut(stash) else { return };
        match &mut s.kind {
            StashKind::Eager { envelope, session, whole, handle, .. } => {
                let (envelope, session, whole) = (*envelope, *session, *whole);
                *handle = None;
                self.consume(envelope.from, session, envelope.len);
                let op = self.match_with(op, envelope);
                self.step_recv(op, RecvEvent::MatchEager);
                if whole {
                    self.unstash(op, stash);
                    return;
                }
                // matched, but its last bytes are still arriving
                if let Some(Stash { kind: StashKind::Eager { waiting, .. }, .. }) =
                    self.stashes.get_mut(stash)
                {
                    *waiting = Some(op);
                }
            }
            StashKind::Rts { envelope, sender, region, .. } => {
                let (envelope, sender, region) = (*envelope, *sender, region.take());
                self.stashes.remove(stash);
                let op = self.match_with(op, envelope);
                self.begin_rendezvous(op, sender, region);
            }
            StashKind::Result => {}
        }
    }

    #[inline]
    pub(super) fn step_recv(&mut self, op: OpId, event: RecvEvent) -> bool {
        let Some(r) = self.recvs.get_mut(op) else { return false };
        match RECV.next(r.phase, event) {
            None => return false,
            Some(RecvPhase::Done) => self.end_recv(op, Ok(())),
            Some(phase) => r.phase = phase,
        }
        true
    }

    /// Ends the reception of a message.
    #[inline]
    pub(super) fn end_recv(&mut self, op: OpId, result: Result<(), Failure>) {
        let Some(r) = self.recvs.remove(op) else { return };
        let mut released = true;
        if r.buffer != op
            && let Some(parent) = self.recvs.get_mut(r.buffer)
            && let Some(multi) = &mut parent.multi
        {
            multi.under_way -= 1;
            released = multi.under_way == 0 && parent.posted.is_none();
            if released {
                self.recvs.remove(r.buffer);
            }
        }
        self.complete(Completion::Recv {
            op: r.buffer,
            peer: r.envelope.map(|e| e.from),
            envelope: r.envelope,
            got: r.got,
            offset: r.base,
            released,
            result,
        });
    }

    /// A stash that holds `Result`: the values that an atomic returns, on their way to the requester.
    pub(super) fn result_stash(&mut self, peer: PeerIdx) -> OpId {
        self.stashes.insert(Stash { from: peer, kind: StashKind::Result })
    }

    pub(super) fn fail_recvs(&mut self, peer: PeerIdx) {
        let gone: Vec<_> = self.recvs.iter().filter(|(_, r)| r.is_of(peer)).map(|(op, _)| op).collect();
        for op in gone {
            match self.recvs.get(op) {
                Some(r) if r.envelope.is_some() => self.end_recv(op, Err(Failure::PeerGone)),
                Some(RecvOp { posted: Some((handle, tagged)), .. }) => {
                    let (handle, tagged) = (*handle, *tagged);
                    self.queues(tagged).posted.cancel(handle);
                    self.end_unmatched(op, Failure::PeerGone);
                }
                _ => {}
            }
        }
        for stash in self.lost_stashes(peer) {
            self.claim(stash);
            self.stashes.remove(stash);
            self.actions.push_back(Action::DropStash(stash));
        }
    }

    /// Whether a receive, or a message that waits for one, has to do with this peer.
    pub(super) fn is_named_by_receives(&self, peer: PeerIdx) -> bool {
        self.recvs.iter().any(|(_, r)| r.is_of(peer)) || self.stashes.iter().any(|(_, s)| s.from == peer)
    }

    /// What is dropped with its peer: all that is no whole message, and of the others what exceeds one window, the youngest
    /// first. So a peer that comes and goes fills no more memory than two that stay.
    fn lost_stashes(&self, peer: PeerIdx) -> Vec<OpId> {
        let (mut whole, mut lost) = (Vec::new(), Vec::new());
        for (stash, s) in self.stashes.iter().filter(|(_, s)| s.from == peer) {
            match &s.kind {
                StashKind::Eager { whole: true, handle: Some(handle), session, envelope, .. } => {
                    whole.push((*session, *handle, envelope.len, stash));
                }
                // claimed: somebody is about to receive it
                StashKind::Eager { whole: true, .. } => {}
                _ => lost.push(stash),
            }
        }
        whole.sort_unstable_by_key(|&(session, handle, ..)| (session, handle));
        let mut room = Some(self.config.window);
        for (.., len, stash) in whole {
            room = room.and_then(|room| room.checked_sub(units(len)));
            if room.is_none() {
                lost.push(stash);
            }
        }
        lost
    }
}
