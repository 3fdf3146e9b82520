//! Sends: the choice between eager and rendezvous, and the queues towards a peer.

use super::bounds::Settles;
use super::peer::{Answer, Item, Peer, units};
use super::phase::{SEND, SendEvent, SendPhase};
use super::streams::{Stream, StreamKind};
use super::types::{
    Action, Completion, Delivery, Directive, Failure, Job, Message, Next, Out, PeerIdx, Place, Queue,
    Receiver, Region, Span,
};
use super::{Engine, Scheme};
use crate::frame::{Frame, OpId, Order, Status};

#[derive(Debug)]
pub(super) struct SendOp {
    pub peer: PeerIdx,
    pub message: Message,
    pub phase: SendPhase,
    /// The receiver's operation and how much it wants, once it said RTR.
    pub target: Option<(OpId, u64)>,
    /// Its memory is in too many pieces to be listed.
    pub unlisted: bool,
}

impl Peer {
    /// Whether an eager message needs the peer's word before it is complete.
    #[inline]
    fn acknowledged(&self, m: &Message) -> bool {
        !self.route.immediate
            && match m.delivery {
                Delivery::Soon => !self.far,
                delivery => delivery == Delivery::Delivered,
            }
    }

    /// Whether a message may go eagerly now.
    #[inline]
    fn may_go_eagerly(&self, m: &Message) -> bool {
        let usual = m.len <= self.route.eager_max as u64;
        // what is left of the credit afterwards is for short ones, which need it more
        let far =
            || m.len <= self.far_eager && self.has_units(units(m.len).saturating_add(self.route.window / 4));
        m.delivery != Delivery::Matched && if usual { self.has_credit(m.len) } else { far() }
    }
}

/// An eager message that may leave at once, with nothing waiting before it and no operation to remember. Nothing has happened unless a rail
/// has taken its EAGER, which wants no acknowledgement, and [`Going::sent`] says so.
pub struct Going<'a> {
    peer: &'a mut Peer,
    units: u32,
}

impl Going<'_> {
    /// The order of its EAGER.
    #[inline(always)]
    pub fn order(&self) -> Order {
        self.peer.order()
    }

    /// A rail has taken that.
    #[inline(always)]
    pub fn sent(self) {
        self.peer.sequenced();
        self.peer.spent = self.peer.spent.wrapping_add(self.units);
    }
}

impl<R: Receiver> Engine<R> {
    /// The shortest way of a message of `len` bytes, if it is open.
    #[inline(always)]
    pub fn try_eager(&mut self, peer: PeerIdx, len: u64, delivery: Delivery) -> Option<Going<'_>> {
        let p = &mut self.peers[peer.0 as usize];
        let units = units(len);
        let open = p.connected && p.ordered.is_empty() && len <= p.route.eager_max as u64;
        let told = delivery == Delivery::Sent || (delivery < Delivery::Matched && p.route.immediate);
        (open && told && p.has_units(units)).then_some(Going { peer: p, units })
    }

    /// Whether a message of so many bytes might go eagerly, if there were credit.
    pub fn lacks_credit(&self, peer: PeerIdx, len: u64) -> bool {
        let p = &self.peers[peer.0 as usize];
        p.connected && len <= p.route.eager_max as u64 && !p.has_credit(len)
    }

    /// How much credit the peer has returned, in units, modulo 2^32.
    pub fn credit_returned(&self, peer: PeerIdx) -> u32 {
        self.peers[peer.0 as usize].returned
    }

    /// Sends a message; its bytes are in the driver's hands under the name returned, until [`Completion::Send`].
    pub fn send(&mut self, peer: PeerIdx, message: Message) -> OpId {
        let op = self.sends.insert(SendOp {
            peer,
            message,
            phase: SendPhase::Queued,
            target: None,
            unlisted: false,
        });
        self.peers[peer.0 as usize].under_way += 1;
        self.enqueue(peer, Item::Send(op));
        op
    }

    pub(super) fn enqueue(&mut self, peer: PeerIdx, item: Item) {
        let p = &mut self.peers[peer.0 as usize];
        p.ordered.push_back(item);
        if p.connected {
            self.name(peer);
        }
    }

    /// A rail has taken the frame of [`Engine::try_active`].
    pub fn active_sent(&mut self, peer: PeerIdx) {
        self.peers[peer.0 as usize].sequenced();
    }

    /// An active message of `len` bytes may leave now: its frame. [`Engine::active_sent`] follows.
    pub fn try_active(&self, peer: PeerIdx, id: u16, header_len: u16, len: usize) -> Option<Frame> {
        let p = &self.peers[peer.0 as usize];
        let fits = len <= p.route.eager_max.min(p.route.fragment);
        (p.connected && p.ordered.is_empty() && fits).then(|| Frame::Am { order: p.order(), id, header_len })
    }

    /// The next frame for a peer. `bulk`: how long a large fragment the rail wants, in bytes; 0: none.
    pub fn poll_transmit(&mut self, peer: PeerIdx, bulk: usize) -> Option<Next> {
        let p = &self.peers[peer.0 as usize];
        if !p.connected {
            return None;
        }
        if let Some(&frame) = p.notes.first() {
            return Some(Next { frame, payload: Out::Nothing, from: Queue::Notes });
        }
        if let Some(&Answer { frame, payload, .. }) = p.control.front() {
            return Some(Next { frame, payload, from: Queue::Control });
        }
        let item = p.ordered.front().copied();
        if p.values.is_some()
            && let Some(next) = self.next_told(peer).or_else(|| self.next_value(peer, bulk, true))
        {
            return Some(next);
        }
        if let Some(item) = item {
            let next = match item {
                Item::Send(op) => self.next_send(peer, op),
                Item::Rma(part) => self.next_rma(peer, part, bulk),
            };
            if next.is_some() {
                return next;
            }
        }
        if let Some(next) = self.next_value(peer, bulk, false) {
            return Some(next);
        }
        if bulk == 0 {
            return None;
        }
        let Stream { kind, next, end } = self.front_stream(peer)?;
        let p = &mut self.peers[peer.0 as usize];
        let len = (end - next).min(p.route.fragment.min(bulk) as u64);
        let (frame, place, offset) = match kind {
            StreamKind::Fragments { send, to } => (Frame::Frag { to, offset: next }, Place::Send(send), next),
            StreamKind::GetData { op, key, generation, addr } => {
                if !self.may_still_read(peer, op, key, generation) {
                    self.peers[peer.0 as usize].streams.drop_first();
                    return self.poll_transmit(peer, bulk);
                }
                (Frame::GetData { op, offset: next }, Place::Region(key, generation), addr + next)
            }
        };
        let payload = Out::Bytes(Span { place, offset, len: len as usize });
        Some(Next { frame, payload, from: Queue::Stream })
    }

    /// The stream whose turn it is; those whose send has ended are dropped.
    fn front_stream(&mut self, peer: PeerIdx) -> Option<Stream> {
        let p = &mut self.peers[peer.0 as usize];
        while let Some(stream) = p.streams.first() {
            match stream.kind {
                StreamKind::Fragments { send, .. } if self.sends.get(send).is_none() => {
                    p.streams.drop_first()
                }
                _ => return Some(*stream),
            }
        }
        None
    }

    fn next_send(&mut self, peer: PeerIdx, op: OpId) -> Option<Next> {
        let p = &mut self.peers[peer.0 as usize];
        let SendOp { message: m, unlisted, .. } = *self.sends.get(op)?;
        let span = Span { place: Place::Send(op), offset: 0, len: m.len as usize };
        let ack = p.acknowledged(&m).then_some(op);
        let (frame, payload) = match p.may_go_eagerly(&m) {
            true if ack.is_some() && !p.asked.has_room(0, &self.config.bounds) => return None,
            true => {
                let frame = Frame::Eager { order: p.order(), matching: m.matching, data: m.data, ack };
                (frame, if m.len == 0 { Out::Nothing } else { Out::Bytes(span) })
            }
            false => {
                let readable = p.route.scheme == Scheme::Get && m.len > 0 && !unlisted;
                let (order, len) = (p.order(), m.len);
                let frame = Frame::Rts { order, matching: m.matching, data: m.data, len, op, readable };
                (frame, if readable { Out::Addresses(span) } else { Out::Nothing })
            }
        };
        Some(Next { frame, payload, from: Queue::Ordered })
    }

    /// The addresses that a frame was to carry cannot be listed ([`Region`] holds few ranges). [`Engine::poll_transmit`] then
    /// names a frame that does without.
    pub fn unlisted(&mut self, peer: PeerIdx, next: &Next) {
        match (next.frame, self.peers[peer.0 as usize].control.front_mut()) {
            (Frame::Rtr { .. }, Some(Answer { frame: Frame::Rtr { writable, .. }, payload, .. })) => {
                (*writable, *payload) = (false, Out::Nothing);
            }
            (Frame::Rts { op, .. }, _) => {
                if let Some(s) = self.sends.get_mut(op) {
                    s.unlisted = true;
                }
            }
            (Frame::PutRts { op, .. } | Frame::Get { op, .. }, _) => self.rma_unlisted(op),
            _ => {}
        }
    }

    /// A rail has taken the frame that [`Engine::poll_transmit`] named.
    pub fn transmitted(&mut self, peer: PeerIdx, next: &Next) {
        self.left(peer, next, false);
    }

    /// The same; of a message, whether its bytes are lent.
    pub(super) fn left(&mut self, peer: PeerIdx, next: &Next, lent: bool) {
        let p = &mut self.peers[peer.0 as usize];
        match next.from {
            // unless there is a later total meanwhile
            Queue::Notes => p.notes.retain(|note| *note != next.frame),
            Queue::Control => {
                if let Some(Answer { settles, .. }) = p.control.pop_front() {
                    p.owed.settle(settles, next.payload_len());
                }
                if let Out::Bytes(Span { place: Place::Stash(stash), .. }) = next.payload {
                    self.stashes.remove(stash);
                    self.actions.push_back(Action::DropStash(stash));
                }
            }
            Queue::Stream => {
                let Some(stream) = p.streams.left(next.payload_len() as u64) else { return };
                match stream.kind {
                    _ if stream.next < stream.end => {}
                    StreamKind::GetData { key, .. } => {
                        p.owed.settle(Settles::Request, 0);
                        self.was_read(peer, key, stream.end);
                    }
                    StreamKind::Fragments { .. } => {}
                }
            }
            Queue::Told => self.value_told(peer, &next.frame),
            Queue::Values => self.value_left(peer, next.payload_len()),
            Queue::Ordered => {
                p.sequenced();
                p.message_left();
                match p.ordered.front().copied() {
                    Some(Item::Send(op)) => {
                        p.ordered.pop_front();
                        self.send_left(op, &next.frame, lent);
                    }
                    Some(Item::Rma(part)) => {
                        if let Out::Bytes(span) = next.payload {
                            p.sequenced_long(span.len as u64);
                        }
                        self.rma_left(peer, part, next);
                    }
                    None => {}
                }
            }
        }
    }

    fn send_left(&mut self, op: OpId, frame: &Frame, lent: bool) {
        let Some(s) = self.sends.get(op) else { return };
        let event = match frame {
            Frame::Eager { ack, .. } => {
                let p = &mut self.peers[s.peer.0 as usize];
                p.spent = p.spent.wrapping_add(units(s.message.len));
                if ack.is_some() {
                    p.asked.left(0);
                    SendEvent::EagerWait
                } else if lent {
                    SendEvent::EagerLent
                } else {
                    SendEvent::EagerDone
                }
            }
            _ => SendEvent::RtsSent,
        };
        self.step_send(op, event);
    }

    /// Applies an event; false when it cannot happen in this phase.
    pub(super) fn step_send(&mut self, op: OpId, event: SendEvent) -> bool {
        let Some(s) = self.sends.get_mut(op) else { return false };
        match SEND.next(s.phase, event) {
            None => return false,
            Some(SendPhase::Done) => self.end_send(op, Ok(())),
            Some(phase) => s.phase = phase,
        }
        true
    }

    fn end_send(&mut self, op: OpId, result: Result<(), Failure>) {
        if let Some(SendOp { peer, phase, message, .. }) = self.sends.remove(op) {
            if phase == SendPhase::Lent {
                self.end_loan(message.len);
            }
            self.peers[peer.0 as usize].under_way -= 1;
            self.actions.push_back(Action::Complete(Completion::Send { op, peer, result }));
        }
    }

    /// Whether this peer was told of a send, and has neither asked for it nor said that it has it: it may be reading it.
    pub fn is_read_by(&self, peer: PeerIdx, send: OpId) -> bool {
        self.sends.get(send).is_some_and(|s| s.peer == peer && s.phase == SendPhase::AwaitRtr)
    }

    pub(super) fn on_rtr(
        &mut self,
        peer: PeerIdx,
        op: OpId,
        to: OpId,
        len: u64,
        region: Option<Region>,
    ) -> Directive {
        let Some(s) = self.sends.get(op) else { return Directive::Done };
        if s.peer != peer || len > s.message.len || len == 0 {
            return Directive::Broken("it asked for bytes of a message that it was not sent");
        }
        let writable = region.filter(|r| r.len().is_some_and(|have| have >= len));
        let event = if writable.is_some() { SendEvent::RtrWritable } else { SendEvent::Rtr };
        if !self.step_send(op, event) {
            return Directive::Broken("it was ready to receive what was not announced");
        }
        match writable {
            Some(region) => {
                let from = Span { place: Place::Send(op), offset: 0, len: len as usize };
                if let Some(s) = self.sends.get_mut(op) {
                    s.target = Some((to, len));
                }
                self.actions.push_back(Action::Write { peer, from, to: region, job: Job::Rput(op) });
            }
            None => self.stream_send(peer, op, to, len),
        }
        Directive::Done
    }

    fn stream_send(&mut self, peer: PeerIdx, send: OpId, to: OpId, len: u64) {
        let kind = StreamKind::Fragments { send, to };
        self.peers[peer.0 as usize].streams.push(Stream { kind, next: 0, end: len });
        self.name(peer);
    }

    pub(super) fn rput_done(&mut self, peer: PeerIdx, op: OpId, ok: bool) {
        let Some((to, len)) = self.sends.get(op).and_then(|s| s.target) else { return };
        if ok {
            self.step_send(op, SendEvent::Written);
            self.control(peer, Frame::Atp { to, status: Status::Ok }, Out::Nothing);
        } else if self.step_send(op, SendEvent::WriteRefused) {
            self.stream_send(peer, op, to, len);
        }
    }

    /// The peer has answered a request that brings so many bytes of values: what was held back may leave.
    pub(super) fn answered(&mut self, peer: PeerIdx, values: u32) {
        if self.peers[peer.0 as usize].asked.answered(values) {
            self.name(peer);
        }
    }

    pub(super) fn on_ats(&mut self, peer: PeerIdx, op: OpId, status: Status) -> Directive {
        let Some(s) = self.sends.get(op) else { return Directive::Done };
        if s.peer != peer {
            return Directive::Broken("it ended a message that it was not sent");
        }
        let (event, result) = match status {
            Status::Ok => (SendEvent::Ats, Ok(())),
            why => (SendEvent::AtsFailed, Err(Failure::Refused(why))),
        };
        if SEND.next(s.phase, event).is_none() {
            return Directive::Broken("it ended a message before it was sent");
        }
        if s.phase == SendPhase::AwaitAts {
            self.answered(peer, 0);
        }
        self.end_send(op, result);
        Directive::Done
    }

    pub(super) fn fail_sends(&mut self, peer: PeerIdx) {
        let its = self.sends.iter().filter(|(_, s)| s.peer == peer);
        let gone: alloc::vec::Vec<_> = its.map(|(op, s)| (op, s.phase)).collect();
        for (op, phase) in gone {
            // what a lane has taken is sent, as if it had been copied: more was not promised
            let sent = phase == SendPhase::Lent;
            self.end_send(op, if sent { Ok(()) } else { Err(Failure::PeerGone) });
        }
    }
}
