//! What the users of the processes do. Each command takes effect at once, at the present time.

use super::memory::Bytes;
use super::node::{Trace, What};
use super::world::World;
use crate::frame::{AtomicCode, AtomicKind, Frame, OpId, RemoteAddr};
use crate::proto::{Access, Envelope, Filter, Message, PartSpec, PeerIdx, Place, RmaKind};
use alloc::vec::Vec;

impl World {
    /// Sends a message, whose length becomes that of `bytes`.
    pub fn send(&mut self, from: usize, to: usize, message: Message, bytes: Bytes) -> OpId {
        self.send_in_pieces(from, to, message, bytes, 1)
    }

    /// As [`World::send`], from memory in so many pieces.
    pub fn send_in_pieces(
        &mut self,
        from: usize,
        to: usize,
        message: Message,
        bytes: Bytes,
        pieces: u64,
    ) -> OpId {
        let node = &mut self.nodes[from];
        let op = node.engine.send(PeerIdx(to as u32), Message { len: bytes.len(), ..message });
        node.memory.put(Place::Send(op), bytes, 0, pieces);
        self.settle(from);
        op
    }

    /// Sends a message if it can leave at once, with nothing to remember; whether it did.
    pub fn send_now(&mut self, from: usize, to: usize, message: Message, bytes: &Bytes) -> bool {
        let message = Message { len: bytes.len(), ..message };
        let peer = PeerIdx(to as u32);
        let (len, delivery) = (message.len, message.delivery);
        let going = self.nodes[from].engine.try_eager(peer, len, delivery);
        let Some(order) = going.map(|going| going.order()) else { return false };
        let frame = Frame::Eager { order, matching: message.matching, data: message.data, ack: None };
        let taken = self.inject(from, to, &frame, bytes.clone());
        if taken && let Some(going) = self.nodes[from].engine.try_eager(peer, len, delivery) {
            going.sent();
        }
        taken
    }

    /// Sends an active message if it can leave at once; whether it did.
    pub fn send_active(&mut self, from: usize, to: usize, id: u16, header: &[u8], payload: &[u8]) -> bool {
        let (peer, len) = (PeerIdx(to as u32), header.len() + payload.len());
        let Some(frame) = self.nodes[from].engine.try_active(peer, id, header.len() as u16, len) else {
            return false;
        };
        let taken = self.inject(from, to, &frame, Bytes::Real([header, payload].concat()));
        if taken {
            self.nodes[from].engine.active_sent(peer);
        }
        taken
    }

    /// Posts a receive for `room` bytes.
    pub fn recv(&mut self, node: usize, filter: Filter, room: u64) -> OpId {
        self.recv_in_pieces(node, filter, room, 1)
    }

    /// As [`World::recv`], into memory in so many pieces.
    pub fn recv_in_pieces(&mut self, at: usize, filter: Filter, room: u64, pieces: u64) -> OpId {
        let node = &mut self.nodes[at];
        let ticket = node.ticket(room, pieces);
        node.engine.post(filter, ticket);
        node.trace(Trace::Posted(ticket.op, filter));
        self.settle(at);
        ticket.op
    }

    /// Posts a buffer for any number of untagged messages, until less than `least` bytes are left.
    pub fn recv_multi(&mut self, at: usize, source: Option<usize>, room: u64, least: u64) -> OpId {
        let source = source.map(|peer| PeerIdx(peer as u32));
        let node = &mut self.nodes[at];
        let ticket = node.ticket(room, 1);
        node.trace(Trace::PostedMulti(ticket.op, source, room, least));
        node.engine.post_multi(source, least, ticket);
        self.settle(at);
        ticket.op
    }

    /// Takes a receive back; whether it had no message yet.
    pub fn cancel(&mut self, at: usize, op: OpId) -> bool {
        let node = &mut self.nodes[at];
        let cancelled = node.engine.cancel(|ticket| ticket.op == op);
        if cancelled {
            node.trace(Trace::Cancelled(op));
        }
        self.settle(at);
        cancelled
    }

    /// The first unexpected message that a receive would take.
    pub fn peek(&mut self, node: usize, filter: &Filter) -> Option<Envelope> {
        self.nodes[node].engine.peek(filter).map(|(_, envelope)| envelope)
    }

    /// Looks for an unexpected message and reserves it.
    pub fn claim(&mut self, at: usize, filter: Filter) -> Option<(OpId, Envelope)> {
        let node = &mut self.nodes[at];
        let (stash, envelope) = node.engine.peek(&filter)?;
        node.engine.claim(stash);
        node.trace(Trace::Claimed(filter, stash));
        Some((stash, envelope))
    }

    /// Receives a claimed message.
    pub fn recv_claimed(&mut self, at: usize, stash: OpId, room: u64) -> OpId {
        let node = &mut self.nodes[at];
        let ticket = node.ticket(room, 1);
        node.engine.recv_claimed(stash, ticket);
        self.settle(at);
        ticket.op
    }

    /// Throws a claimed message away.
    pub fn discard(&mut self, at: usize, stash: OpId) {
        self.nodes[at].engine.discard(stash);
        self.settle(at);
    }

    /// Lets peers reach memory.
    pub fn register(&mut self, node: usize, key: u64, base: u64, bytes: Bytes, access: Access) {
        self.nodes[node].register(key, base, bytes, access);
    }

    /// Ends that; what the memory holds.
    pub fn deregister(&mut self, node: usize, key: u64) -> Option<Bytes> {
        self.nodes[node].deregister(key)
    }

    /// Writes `bytes` to the remote ranges, one behind the other.
    pub fn put(&mut self, from: usize, to: usize, at: &[PartSpec], bytes: Bytes, data: Option<u64>) -> OpId {
        self.rma(from, to, RmaKind::Put(data), at, bytes, 1)
    }

    /// Reads the remote ranges, one behind the other.
    pub fn get(&mut self, from: usize, to: usize, at: &[PartSpec]) -> OpId {
        let room = self.nodes[from].room(at.iter().map(|part| part.len).sum());
        self.rma(from, to, RmaKind::Get, at, room, 1)
    }

    /// An atomic operation on 64-bit words (see [`Node`](super::Node)): of [`AtomicKind::Compare`] the second half of
    /// `operands` are the comparands.
    pub fn atomic(
        &mut self,
        from: usize,
        to: usize,
        at: RemoteAddr,
        kind: AtomicKind,
        operands: &[u64],
    ) -> OpId {
        let sent: Vec<u8> = operands.iter().flat_map(|word| word.to_le_bytes()).collect();
        let count = if kind == AtomicKind::Compare { operands.len() / 2 } else { operands.len() } as u32;
        let back = if kind == AtomicKind::Update { 0 } else { 8 * u64::from(count) };
        let code = AtomicCode { datatype: 7, op: 2, kind, count };
        let kind = RmaKind::Atomic { code, operands: sent.len() as u32 };
        let mut local = sent;
        local.resize(local.len() + back as usize, 0);
        self.rma(from, to, kind, &[PartSpec { at, len: back }], Bytes::Real(local), 1)
    }

    /// Starts a one-sided operation on local memory in so many pieces.
    pub fn rma(
        &mut self,
        from: usize,
        to: usize,
        kind: RmaKind,
        at: &[PartSpec],
        local: Bytes,
        pieces: u64,
    ) -> OpId {
        let node = &mut self.nodes[from];
        let op = node.engine.rma(PeerIdx(to as u32), kind, at);
        node.memory.put(Place::Rma(op), local, 0, pieces);
        self.settle(from);
        op
    }

    /// The messages that a node has received in full, in that order.
    pub fn received(&self, node: usize) -> Vec<&Bytes> {
        let received = |what| match what {
            &What::Received { ref bytes, result: Ok(()), .. } => Some(bytes),
            _ => None,
        };
        self.nodes[node].events.iter().filter_map(|event| received(&event.what)).collect()
    }
}
