//! Receives: matching, eager messages, and those that came too early.
//!
//! A receive that is posted is one record in its queue, with what the driver gave along. A whole eager message ends it there
//! ([`Engine::try_deliver`]). Whatever else a message needs (a rendezvous, an acknowledgement, bytes that are still to come) makes an
//! operation of it, which lasts as long as that.

use super::bounds::Settles;
use super::peer::units;
use super::phase::{RECV, RecvEvent, RecvPhase};
use super::types::{
    Action, After, Completion, Directive, Envelope, Failure, Filter, Out, PeerIdx, Place, Receiver, Region,
    Span,
};
use super::{Engine, Match};
use crate::frame::{Frame, Matching, OpId, PlainEager, Status};
use crate::matching::{Handle, Receive, Source};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A receive that is posted.
#[derive(Debug)]
pub(super) enum Waiting<R> {
    /// For one message.
    One(R),
    /// For several: an operation of its own as long as it takes any.
    Several(OpId),
}

#[derive(Debug)]
pub(super) struct RecvOp<R> {
    /// What the driver gave along; of a message in a multi-receive buffer that buffer has it, and of one that is thrown away nobody.
    receiver: Option<R>,
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
    multi: Option<Box<Multi>>,
    pub(super) envelope: Option<Envelope>,
    /// The sender's operation: of a rendezvous, or of an eager send that waits for delivery.
    pub(super) sender: Option<OpId>,
    /// All has come, and is being copied from this stash: whatever becomes of the sender.
    landing: Option<OpId>,
    /// It fills this stash: no receive wants the message yet (`pull`).
    pub(super) pulls: Option<OpId>,
}

impl<R: Receiver> RecvOp<R> {
    #[inline]
    fn new(receiver: Option<R>) -> Self {
        Self {
            buffer: OpId::default(),
            base: 0,
            room: receiver.as_ref().map_or(0, R::room),
            receiver,
            want: 0,
            coming: 0,
            got: 0,
            phase: RecvPhase::Posted,
            multi: None,
            envelope: None,
            sender: None,
            landing: None,
            pulls: None,
        }
    }

    /// One that fills a stash, whatever receive that is for.
    pub(super) fn pulling(stash: OpId, envelope: Envelope, sender: OpId) -> Self {
        let (want, room) = (envelope.len, envelope.len);
        let (envelope, sender, pulls) = (Some(envelope), Some(sender), Some(stash));
        Self { want, room, envelope, sender, pulls, ..Self::new(None) }
    }

    fn is_of(&self, peer: PeerIdx) -> bool {
        let directed = self.multi.as_ref().is_some_and(|multi| multi.source == Some(peer));
        directed || self.envelope.is_some_and(|e| e.from == peer)
    }
}

/// A buffer that takes several messages, one behind the other.
#[derive(Debug)]
struct Multi {
    /// It takes no more when less room than this is left.
    least: u64,
    used: u64,
    under_way: u32,
    /// Where it waits in the queue of untagged receives.
    posted: Option<Handle>,
    /// The only peer that it receives from.
    source: Option<PeerIdx>,
}

/// An unexpected message, or the result of an atomic on its way.
#[derive(Debug)]
pub(super) struct Stash {
    from: PeerIdx,
    pub(super) kind: StashKind,
}

impl Stash {
    /// It was announced, and nobody has asked for it.
    pub(super) fn is_announced(&self) -> bool {
        matches!(self.kind, StashKind::Rts { .. })
    }
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
        /// It was announced, and asked for early: the sender's operation, which ends with a receive (`pull`).
        pulled: Option<OpId>,
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

impl<R: Receiver> Engine<R> {
    fn queues(&mut self, tagged: bool) -> &mut Match<R> {
        if tagged { &mut self.tagged } else { &mut self.messages }
    }

    /// A receive that is an operation from its beginning.
    fn new_recv(&mut self, receiver: Option<R>) -> OpId {
        let op = self.recvs.insert(RecvOp::new(receiver));
        if let Some(r) = self.recvs.get_mut(op) {
            r.buffer = op;
        }
        op
    }

    /// What the driver gave along with the receive that a [`Place::Recv`] names.
    #[inline]
    pub fn receiver(&self, op: OpId) -> Option<&R> {
        self.recvs.get(op)?.receiver.as_ref()
    }

    /// How many receives are posted or under way.
    pub(super) fn receives(&self) -> usize {
        let also_posted = |r: &RecvOp<R>| r.multi.as_ref().is_some_and(|multi| multi.posted.is_some());
        let under_way = self.recvs.iter().filter(|(_, r)| !also_posted(r)).count();
        under_way + self.tagged.posted.len() + self.messages.posted.len()
    }

    /// Posts a receive: it takes the first unexpected message that fits, or waits.
    pub fn post(&mut self, filter: Filter, receiver: R) {
        self.post_with(filter, || receiver);
    }

    /// The same of a receiver that is made where it is kept. True: it has a message, and there is something to do.
    #[inline(always)]
    pub fn post_with(&mut self, filter: Filter, make: impl FnOnce() -> R) -> bool {
        let receive = receive_of(&filter);
        let queue = self.queues(matches!(filter.matching, Matching::Tag(_)));
        if let Some((_, stash)) = queue.unexpected.take_match(&receive) {
            self.post_to(stash, make());
            return true;
        }
        queue.posted.post_with(receive, || Waiting::One(make()));
        false
    }

    /// The same if it takes no more than a few words, and no message waits for it: mostly. False, and nothing has happened.
    #[inline(always)]
    pub fn try_post(&mut self, filter: Filter, make: impl FnOnce() -> R) -> bool {
        let queue = self.queues(matches!(filter.matching, Matching::Tag(_)));
        queue.unexpected.is_empty() && queue.posted.try_post(receive_of(&filter), || Waiting::One(make()))
    }

    /// A receive is posted for which a message waits.
    #[cold]
    fn post_to(&mut self, stash: OpId, receiver: R) {
        let op = self.new_recv(Some(receiver));
        self.take_stash(op, stash);
    }

    /// Posts a buffer for any number of untagged messages, one behind the other, until less than `least` bytes are free.
    pub fn post_multi(&mut self, source: Option<PeerIdx>, least: u64, receiver: R) {
        let receive = receive_of(&Filter { source, matching: Matching::Message, ignore: 0 });
        let op = self.new_recv(Some(receiver));
        let posted = Some(self.messages.posted.post(receive, Waiting::Several(op)));
        if let Some(r) = self.recvs.get_mut(op) {
            let least = least.max(1);
            r.multi = Some(Box::new(Multi { least, used: 0, under_way: 0, posted, source }));
        }
        let waits = |r: &RecvOp<R>| r.multi.as_ref().is_some_and(|multi| multi.posted.is_some());
        while self.recvs.get(op).is_some_and(waits) {
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
    pub fn recv_claimed(&mut self, stash: OpId, receiver: R) -> bool {
        let there = self.stashes.get(stash).is_some();
        if there {
            let op = self.new_recv(Some(receiver));
            self.take_stash(op, stash);
        } else {
            self.end_unmatched(receiver.user(), None, Failure::PeerGone);
        }
        there
    }

    /// Throws a claimed message away.
    pub fn discard(&mut self, stash: OpId) {
        if self.stashes.get(stash).is_some() {
            let op = self.new_recv(None);
            self.take_stash(op, stash);
        }
    }

    /// Takes the earliest posted receive back of which `is` says so, of tagged ones before untagged: it ends with [`Failure::Cancelled`]. False when there is none, or a
    /// message has matched it already.
    pub fn cancel(&mut self, is: impl Fn(&R) -> bool) -> bool {
        for tagged in [true, false] {
            let recvs = &self.recvs;
            let is = |waiting: &Waiting<R>| match waiting {
                Waiting::One(receiver) => is(receiver),
                Waiting::Several(op) => recvs.get(*op).and_then(|r| r.receiver.as_ref()).is_some_and(&is),
            };
            let queue = if tagged { &self.tagged } else { &self.messages };
            if let Some(handle) = queue.posted.find_where(is) {
                self.withdraw(tagged, handle, None, Failure::Cancelled);
                return true;
            }
        }
        false
    }

    /// Takes a posted receive back.
    fn withdraw(&mut self, tagged: bool, handle: Handle, peer: Option<PeerIdx>, failure: Failure) {
        match self.queues(tagged).posted.cancel(handle) {
            Some(Waiting::One(receiver)) => self.end_unmatched(receiver.user(), peer, failure),
            Some(Waiting::Several(op)) => self.end_multi(op, failure),
            None => {}
        }
    }

    /// Ends a multi-receive buffer that is no longer posted. One with messages under way is released by the last of them.
    fn end_multi(&mut self, op: OpId, failure: Failure) {
        let Some(multi) = self.recvs.get_mut(op).and_then(|r| r.multi.as_mut()) else { return };
        multi.posted = None;
        let (idle, peer) = (multi.under_way == 0, multi.source);
        if idle && let Some(receiver) = self.recvs.remove(op).and_then(|r| r.receiver) {
            self.end_unmatched(receiver.user(), peer, failure);
        }
    }

    /// A receive ends without a message.
    fn end_unmatched(&mut self, user: R::User, peer: Option<PeerIdx>, failure: Failure) {
        let (envelope, got, offset, released, result) = (None, 0, 0, true, Err(failure));
        self.complete(Completion::Recv { user, peer, envelope, got, offset, released, result });
    }

    #[inline]
    pub(super) fn complete(&mut self, completion: Completion<R::User>) {
        self.actions.push_back(Action::Complete(completion));
    }

    /// The receive for an arriving message, if one is posted; it leaves the queue unless it can take more.
    #[inline]
    pub(super) fn take_posted(&mut self, envelope: Envelope) -> Option<OpId> {
        let source = Source(envelope.from.0);
        let (queue, tag) = match envelope.matching {
            Matching::Tag(tag) => (&mut self.tagged, tag),
            Matching::Message => (&mut self.messages, 0),
        };
        let (handle, waiting) = queue.posted.find_match(source, tag)?;
        let op = match waiting {
            Waiting::Several(op) => *op,
            Waiting::One(_) => {
                let Some(Waiting::One(receiver)) = queue.posted.cancel(handle) else { return None };
                self.new_recv(Some(receiver))
            }
        };
        Some(self.match_with(op, envelope))
    }

    /// A message and a receive have met; returns the operation that receives this message.
    #[inline]
    fn match_with(&mut self, op: OpId, envelope: Envelope) -> OpId {
        let Some(r) = self.recvs.get_mut(op) else { return op };
        let Some(multi) = &mut r.multi else {
            r.want = envelope.len.min(r.room);
            r.envelope = Some(envelope);
            return op;
        };
        let base = multi.used;
        let want = envelope.len.min(r.room - base);
        multi.used += want;
        multi.under_way += 1;
        if r.room - multi.used < multi.least
            && let Some(handle) = multi.posted.take()
        {
            self.messages.posted.cancel(handle);
        }
        let message = RecvOp::new(None);
        self.recvs.insert(RecvOp { buffer: op, base, want, room: want, envelope: Some(envelope), ..message })
    }

    /// Where the first `len` bytes from `offset` of the message that `op` receives go.
    #[inline]
    pub(super) fn span(&self, op: OpId, offset: u64, len: u64) -> Span {
        match self.recvs.get(op) {
            Some(RecvOp { pulls: Some(stash), .. }) => {
                Span { place: Place::Stash(*stash), offset, len: len as usize }
            }
            Some(r) => Span { place: Place::Recv(r.buffer), offset: r.base + offset, len: len as usize },
            None => Span { place: Place::Discard, offset: 0, len: len as usize },
        }
    }

    /// The shortest way of the commonest frame: a whole tagged eager message, in its turn, whose receive is posted, and of which `read`
    /// makes what the driver needs to copy the bytes and to tell the user. The receive has ended with that, and is forgotten: it must own
    /// nothing. `work` is set where there is something to do now. None, and nothing has happened: [`Engine::on_frame`] decides.
    #[inline(always)]
    pub fn try_deliver<T>(
        &mut self,
        peer: PeerIdx,
        eager: &PlainEager,
        payload: usize,
        work: &mut bool,
        read: impl FnOnce(&R) -> Option<T>,
    ) -> Option<T> {
        let p = &mut self.peers[peer.0 as usize];
        if eager.order.seq != p.expect_seq || !p.held.is_empty() || !p.take_credit(eager.order.credit) {
            return None;
        }
        let made = self.tagged.posted.end_match(Source(peer.0), eager.tag, |waiting| match waiting {
            Waiting::One(receiver) => read(receiver),
            Waiting::Several(_) => None,
        })?;
        p.expect_seq = eager.order.seq.wrapping_add(1);
        if let Some(credit) = p.pass(payload as u64, self.config.window) {
            p.return_credit(peer, credit, &mut self.ready);
            *work = true;
        }
        Some(made)
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
        let kind =
            StashKind::Eager { envelope, session, handle: None, whole, ack, waiting: None, pulled: None };
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
        let Some(Stash { kind: StashKind::Eager { whole, waiting, ack, envelope, pulled, .. }, .. }) =
            self.stashes.get_mut(stash)
        else {
            return;
        };
        *whole = true;
        let (ack, from, waiting, pulled) = (*ack, envelope.from, *waiting, *pulled);
        if let (Some(sender), Some(_)) = (pulled, waiting) {
            self.end_pulled(from, sender);
        }
        if let Some(op) = ack {
            self.answer(from, Frame::Ats { op, status: Status::Ok }, Out::Nothing, Settles::Request);
        }
        if let Some(op) = waiting {
            self.unstash(op, stash);
        }
    }

    fn unstash(&mut self, op: OpId, stash: OpId) {
        let Some(r) = self.recvs.get_mut(op) else {
            self.stashes.remove(stash);
            self.actions.push_back(Action::DropStash(stash));
            return;
        };
        r.landing = Some(stash);
        let want = r.want;
        self.actions.push_back(Action::Unstash { stash, to: self.span(op, 0, want), op });
    }

    /// The peer's send that a rendezvous receives.
    pub fn announced(&self, op: OpId) -> Option<OpId> {
        self.recvs.get(op)?.sender
    }

    /// What [`Action::Unstash`] asked for is done.
    pub fn unstashed(&mut self, op: OpId) {
        // not before: its place is not another's as long as its bytes are in it
        if let Some(stash) = self.recvs.get_mut(op).and_then(|r| r.landing.take()) {
            self.stashes.remove(stash);
        }
        self.received(op);
    }

    /// A receive takes an unexpected message.
    fn take_stash(&mut self, op: OpId, stash: OpId) {
        let Some(s) = self.stashes.get_mut(stash) else { return };
        match &mut s.kind {
            StashKind::Eager { envelope, session, whole, handle, pulled, .. } => {
                let (envelope, session, whole, pulled) = (*envelope, *session, *whole, *pulled);
                *handle = None;
                match pulled {
                    Some(sender) => self.take_pulled(envelope, session, sender, whole),
                    None => self.consume(envelope.from, session, envelope.len),
                }
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
                self.pull(envelope.from);
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
        if let Some(stash) = r.pulls {
            // with its peer gone the stash is dropped, too
            return if result.is_ok() {
                self.stashed(stash)
            };
        }
        let mut released = true;
        let user = if r.buffer == op {
            r.receiver.as_ref().map(R::user)
        } else {
            self.recvs.get_mut(r.buffer).and_then(|parent| {
                let multi = parent.multi.as_mut()?;
                multi.under_way -= 1;
                released = multi.under_way == 0 && multi.posted.is_none();
                parent.receiver.as_ref().map(R::user)
            })
        };
        if released && r.buffer != op {
            self.recvs.remove(r.buffer);
        }
        let Some(user) = user else { return };
        self.complete(Completion::Recv {
            user,
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
        for tagged in [true, false] {
            for handle in self.queues(tagged).posted.directed(Source(peer.0)) {
                self.withdraw(tagged, handle, Some(peer), Failure::PeerGone);
            }
        }
        let of_it = |r: &RecvOp<R>| r.envelope.is_some_and(|e| e.from == peer) && r.landing.is_none();
        let gone: Vec<_> = self.recvs.iter().filter(|(_, r)| of_it(r)).map(|(op, _)| op).collect();
        for op in gone {
            self.end_recv(op, Err(Failure::PeerGone));
        }
        for stash in self.lost_stashes(peer) {
            self.claim(stash);
            self.stashes.remove(stash);
            self.actions.push_back(Action::DropStash(stash));
        }
    }

    /// Whether a receive, or a message that waits for one, has to do with this peer.
    pub(super) fn is_named_by_receives(&self, peer: PeerIdx) -> bool {
        let directed = |queue: &Match<R>| !queue.posted.directed(Source(peer.0)).is_empty();
        self.recvs.iter().any(|(_, r)| r.is_of(peer))
            || directed(&self.tagged)
            || directed(&self.messages)
            || self.stashes.iter().any(|(_, s)| s.from == peer)
    }

    /// What is dropped with its peer: all that is no whole message, and of the others what exceeds one window, the youngest
    /// first. So a peer that comes and goes fills no more memory than two that stay.
    fn lost_stashes(&self, peer: PeerIdx) -> Vec<OpId> {
        let (mut whole, mut lost) = (Vec::new(), Vec::new());
        for (stash, s) in self.stashes.iter().filter(|(_, s)| s.from == peer) {
            match &s.kind {
                // its sender was not told that it has arrived
                StashKind::Eager { pulled: Some(_), handle: Some(_), .. } => lost.push(stash),
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
