//! Put, get and atomic operations: the requester's side.
//!
//! An operation is a set of parts, one for each contiguous remote range. Each part has a name of its own on the wire. The
//! operation ends when all parts have been answered; the first failure is its result.

use super::bounds::values;
use super::peer::Item;
use super::types::{After, Completion, Directive, Failure, Next, Out, PeerIdx, Place, Queue, Receiver, Span};
use super::{Engine, Scheme};
use crate::frame::{AtomicCode, AtomicKind, Frame, OpId, RemoteAddr, Status};
use alloc::vec::Vec;

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RmaKind {
    /// Write, perhaps with immediate data for the target's completion.
    Put(Option<u64>),
    /// Read.
    Get,
    /// Atomic. The local bytes begin with the operands (then comparands), which are sent; results are written behind
    /// `operands` bytes.
    Atomic {
        /// What.
        code: AtomicCode,
        /// Bytes of operands and comparands.
        operands: u32,
    },
}

/// One contiguous remote range of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartSpec {
    /// Where at the target.
    pub at: RemoteAddr,
    /// Bytes (of a put or get; of an atomic: bytes that come back).
    pub len: u64,
}

#[derive(Debug)]
pub(super) struct RmaOp {
    pub peer: PeerIdx,
    kind: RmaKind,
    pending: u32,
    failed: Option<Status>,
}

#[derive(Debug)]
pub(super) struct Part {
    op: OpId,
    at: RemoteAddr,
    /// Where in the operation's local bytes.
    base: u64,
    len: u64,
    /// Sent (put) or received (get).
    moved: u64,
    /// Of a get: bytes whose headers have come. Payloads of several rails arrive at once.
    coming: u64,
    last: bool,
    stage: Stage,
    /// Not by direct access: this process's memory cannot be listed.
    unlisted: bool,
    /// Since it is asked for, and not answered: bytes of values that the answer brings.
    asked: Option<u32>,
}

impl Part {
    /// Bytes of values that the answer brings, which the target keeps until it has left.
    fn values(&self, kind: RmaKind) -> u32 {
        if let RmaKind::Atomic { .. } = kind { values(self.len) } else { 0 }
    }
}

/// What the target has been asked so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Nothing, or not for all of it.
    Queued,
    /// To read or write this process's memory.
    Direct,
    /// Everything, with or for frames that carry the bytes.
    Carried,
}

impl<R: Receiver> Engine<R> {
    /// Starts an operation over the given remote ranges, in order. The driver keeps the local bytes under the name returned.
    pub fn rma(&mut self, peer: PeerIdx, kind: RmaKind, specs: &[PartSpec]) -> OpId {
        let pending = specs.len() as u32;
        let op = self.rmas.insert(RmaOp { peer, kind, pending, failed: None });
        self.peers[peer.0 as usize].under_way += 1;
        let mut base = 0;
        for (i, spec) in specs.iter().enumerate() {
            let last = i + 1 == specs.len();
            let (at, len, stage) = (spec.at, spec.len, Stage::Queued);
            let part =
                Part { op, at, base, len, moved: 0, coming: 0, last, stage, unlisted: false, asked: None };
            let part = self.parts.insert(part);
            base += spec.len;
            self.enqueue(peer, Item::Rma(part));
        }
        if specs.is_empty() {
            self.end_rma(op);
        }
        op
    }

    pub(super) fn next_rma(&mut self, peer: PeerIdx, id: OpId, bulk: usize) -> Option<Next> {
        let part = self.parts.get(id)?;
        let kind = self.rmas.get(part.op)?.kind;
        let p = &mut self.peers[peer.0 as usize];
        if part.asked.is_none() && !p.asked.has_room(part.values(kind), &self.config.bounds) {
            return None;
        }
        let (order, route) = (p.order(), &p.route);
        let (op, at) = (id, part.at);
        let left = part.len - part.moved;
        let local = |offset: u64, len: u64| Span { place: Place::Rma(part.op), offset, len: len as usize };
        let direct = route.scheme != Scheme::Fragments && part.len > route.eager_max as u64 && !part.unlisted;
        let (frame, payload) = match kind {
            RmaKind::Put(None) if direct => {
                let frame = Frame::PutRts { order, op, to: at, len: left };
                (frame, Out::Addresses(local(part.base, left)))
            }
            RmaKind::Put(data) => {
                let mut size = left.min(route.fragment as u64);
                if left > size || left > route.eager_max as u64 {
                    if bulk == 0 {
                        return None;
                    }
                    size = size.min(bulk as u64);
                }
                let last = size == left;
                let data = if last && part.last { data } else { None };
                let to = RemoteAddr { key: at.key, addr: at.addr.wrapping_add(part.moved) };
                let bytes = Out::Bytes(local(part.base + part.moved, size));
                (Frame::Put { order, op, to, data, last }, if size == 0 { Out::Nothing } else { bytes })
            }
            RmaKind::Get => {
                let frame = Frame::Get { order, op, from: at, len: left, writable: direct };
                (frame, if direct { Out::Addresses(local(part.base, left)) } else { Out::Nothing })
            }
            RmaKind::Atomic { code, operands } => {
                let frame = Frame::Atomic { order, op, at, code };
                (frame, Out::Bytes(local(0, u64::from(operands))))
            }
        };
        Some(Next { frame, payload, from: Queue::Ordered })
    }

    pub(super) fn rma_unlisted(&mut self, id: OpId) {
        if let Some(part) = self.parts.get_mut(id) {
            part.unlisted = true;
        }
    }

    pub(super) fn rma_left(&mut self, peer: PeerIdx, id: OpId, next: &Next) {
        let Some(part) = self.parts.get_mut(id) else { return };
        if part.asked.is_none()
            && let Some(op) = self.rmas.get(part.op)
        {
            let values = part.values(op.kind);
            part.asked = Some(values);
            self.peers[peer.0 as usize].asked.left(values);
        }
        match (&next.frame, next.payload) {
            (Frame::Put { last: false, .. }, Out::Bytes(span)) => {
                part.moved += span.len as u64;
                return;
            }
            (_, Out::Addresses(_)) => part.stage = Stage::Direct,
            _ => part.stage = Stage::Carried,
        }
        self.peers[peer.0 as usize].ordered.pop_front();
    }

    /// The part that a peer's answer names and what its operation does, if the answer may be for it.
    fn part_of(&mut self, peer: PeerIdx, id: OpId) -> Option<(&mut Part, RmaKind)> {
        let part = self.parts.get_mut(id)?;
        let op = self.rmas.get(part.op)?;
        (op.peer == peer).then_some((part, op.kind))
    }

    fn part_done(&mut self, id: OpId, status: Status) {
        let Some(part) = self.parts.remove(id) else { return };
        let Some(op) = self.rmas.get_mut(part.op) else { return };
        op.pending -= 1;
        if status != Status::Ok {
            op.failed.get_or_insert(status);
        }
        let (peer, ended) = (op.peer, op.pending == 0);
        if let Some(values) = part.asked {
            self.answered(peer, values);
        }
        if ended {
            self.end_rma(part.op);
        }
    }

    fn end_rma(&mut self, op: OpId) {
        let Some(ended) = self.rmas.remove(op) else { return };
        self.peers[ended.peer.0 as usize].under_way -= 1;
        let result = ended.failed.map_or(Ok(()), |status| Err(Failure::Refused(status)));
        self.complete(Completion::Rma { op, peer: ended.peer, result });
    }

    pub(super) fn fail_rmas(&mut self, peer: PeerIdx) {
        let of_peer = |op| self.rmas.get(op).is_some_and(|r| r.peer == peer);
        let parts: Vec<_> =
            self.parts.iter().filter(|(_, part)| of_peer(part.op)).map(|(id, _)| id).collect();
        for part in parts {
            self.parts.remove(part);
        }
        let gone: Vec<_> = self.rmas.iter().filter(|(_, r)| r.peer == peer).map(|(op, _)| op).collect();
        for op in gone {
            self.rmas.remove(op);
            self.peers[peer.0 as usize].under_way -= 1;
            self.complete(Completion::Rma { op, peer, result: Err(Failure::PeerGone) });
        }
    }

    pub(super) fn on_ack(&mut self, peer: PeerIdx, id: OpId, status: Status) -> Directive {
        let Some((part, kind)) = self.part_of(peer, id) else { return Directive::Done };
        let returns = match kind {
            RmaKind::Put(_) => false,
            RmaKind::Get => part.len > 0 && part.stage != Stage::Direct,
            RmaKind::Atomic { code, .. } => code.kind != AtomicKind::Update,
        };
        match (part.stage, status) {
            (Stage::Queued, _) => return Directive::Broken("it answered before it was asked"),
            (_, Status::Ok) if returns => {
                return Directive::Broken("it ended a request without what was wanted");
            }
            (Stage::Direct, Status::Fault) => {
                // the target cannot reach this process's memory after all: everything is carried from now on
                part.stage = Stage::Queued;
                let values = part.asked.take();
                self.answered(peer, values.unwrap_or(0));
                self.peers[peer.0 as usize].route.scheme = Scheme::Fragments;
                self.enqueue(peer, Item::Rma(id));
            }
            _ => self.part_done(id, status),
        }
        Directive::Done
    }

    pub(super) fn on_get_data(&mut self, peer: PeerIdx, id: OpId, offset: u64, len: usize) -> Directive {
        let Some((part, kind)) = self.part_of(peer, id) else { return Self::unwanted(len) };
        if !matches!(kind, RmaKind::Get) || part.stage == Stage::Queued {
            return Directive::Broken("it answered what was not asked");
        }
        let fits = |from: u64| from.checked_add(len as u64).is_some_and(|end| end <= part.len);
        if !fits(offset) || !fits(part.coming) {
            return Directive::Broken("it answered with more than was asked for");
        }
        part.coming += len as u64;
        let to = Span { place: Place::Rma(part.op), offset: part.base + offset, len };
        Directive::Place(to, After::Fetched(id, len))
    }

    /// The values that an atomic returns come in one frame.
    pub(super) fn on_atomic_data(&mut self, peer: PeerIdx, id: OpId, len: usize) -> Directive {
        let Some((part, kind)) = self.part_of(peer, id) else { return Self::unwanted(len) };
        let RmaKind::Atomic { code, operands } = kind else {
            return Directive::Broken("it answered what was not asked");
        };
        if code.kind == AtomicKind::Update || part.stage == Stage::Queued || part.coming > 0 {
            return Directive::Broken("it answered what was not asked");
        }
        if len as u64 > part.len {
            return Directive::Broken("it answered with more than was asked for");
        }
        if len == 0 {
            self.part_done(id, Status::Ok);
            return Directive::Done;
        }
        (part.len, part.coming) = (len as u64, len as u64);
        let to = Span { place: Place::Rma(part.op), offset: u64::from(operands), len };
        Directive::Place(to, After::Fetched(id, len))
    }

    /// An answer to an operation that has ended.
    fn unwanted(len: usize) -> Directive {
        Directive::Place(Span { place: Place::Discard, offset: 0, len }, After::Nothing)
    }

    pub(super) fn fetched(&mut self, id: OpId, len: usize) {
        let Some(part) = self.parts.get_mut(id) else { return };
        part.moved += len as u64;
        if part.moved == part.len {
            self.part_done(id, Status::Ok);
        }
    }
}
