//! Put, get and atomic operations: the requester's side and the target's.
//!
//! An operation is a set of parts, one for each contiguous remote range. Each part has a name of its own on the wire. The
//! operation ends when all parts have been answered; the first failure is its result.

use super::peer::{Item, Stream, StreamKind};
use super::region::Access;
use super::types::{
    Action, After, Completion, Directive, Failure, Job, Next, Operation, Out, PeerIdx, Place, Queue, Region,
    Span,
};
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
    last: bool,
}

impl Engine {
    /// Starts an operation over the given remote ranges, in order. The driver keeps the local bytes under the name returned.
    pub fn rma(&mut self, peer: PeerIdx, kind: RmaKind, specs: &[PartSpec]) -> OpId {
        let pending = specs.len() as u32;
        let op = self.rmas.insert(RmaOp { peer, kind, pending, failed: None });
        let mut base = 0;
        for (i, spec) in specs.iter().enumerate() {
            let last = i + 1 == specs.len();
            let part = self.parts.insert(Part { op, at: spec.at, base, len: spec.len, moved: 0, last });
            base += spec.len;
            self.enqueue(peer, Item::Rma(part));
        }
        if specs.is_empty() {
            self.end_rma(op);
        }
        op
    }

    pub(super) fn next_rma(&mut self, peer: PeerIdx, id: OpId, bulk: bool) -> Option<Next> {
        let part = self.parts.get(id)?;
        let kind = self.rmas.get(part.op)?.kind;
        let p = &self.peers[peer.0 as usize];
        let (order, route) = (p.order(), &p.route);
        let (op, at) = (id, part.at);
        let left = part.len - part.moved;
        let local = |offset: u64, len: u64| Span { place: Place::Rma(part.op), offset, len: len as usize };
        let direct = route.scheme != Scheme::Fragments && part.len > route.eager_max as u64;
        let (frame, payload) = match kind {
            RmaKind::Put(None) if direct => {
                let frame = Frame::PutRts { order, op, to: at, len: left };
                (frame, Out::Addresses(local(part.base, left)))
            }
            RmaKind::Put(data) => {
                let size = left.min(route.fragment as u64);
                if left > size && !bulk {
                    return None;
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

    pub(super) fn rma_left(&mut self, peer: PeerIdx, id: OpId, next: &Next) {
        let whole = match (&next.frame, self.parts.get_mut(id)) {
            (Frame::Put { last: false, .. }, Some(part)) => {
                if let Out::Bytes(span) = next.payload {
                    part.moved += span.len as u64;
                }
                false
            }
            _ => true,
        };
        if whole {
            self.peers[peer.0 as usize].ordered.pop_front();
        }
    }

    /// The part that a peer's answer names, if the answer may be for it.
    fn part_of(&self, peer: PeerIdx, id: OpId) -> Option<&Part> {
        let part = self.parts.get(id)?;
        (self.rmas.get(part.op)?.peer == peer).then_some(part)
    }

    fn part_done(&mut self, id: OpId, status: Status) {
        let Some(part) = self.parts.remove(id) else { return };
        let Some(op) = self.rmas.get_mut(part.op) else { return };
        op.pending -= 1;
        if status != Status::Ok {
            op.failed.get_or_insert(status);
        }
        if op.pending == 0 {
            self.end_rma(part.op);
        }
    }

    fn end_rma(&mut self, op: OpId) {
        let Some(ended) = self.rmas.remove(op) else { return };
        let result = ended.failed.map_or(Ok(()), |status| Err(Failure::Refused(status)));
        self.complete(Completion::Rma { op, peer: ended.peer, result });
    }

    pub(super) fn fail_rmas(&mut self, peer: PeerIdx) {
        let gone: Vec<_> = self.rmas.iter().filter(|(_, r)| r.peer == peer).map(|(op, _)| op).collect();
        let parts: Vec<_> =
            self.parts.iter().filter(|(_, p)| gone.contains(&p.op)).map(|(id, _)| id).collect();
        for part in parts {
            self.parts.remove(part);
        }
        for op in gone {
            self.rmas.remove(op);
            self.complete(Completion::Rma { op, peer, result: Err(Failure::PeerGone) });
        }
    }

    pub(super) fn on_ack(&mut self, peer: PeerIdx, id: OpId, status: Status) -> Directive {
        let Some(part) = self.part_of(peer, id) else { return Directive::Done };
        let unmoved = part.moved == 0;
        let p = &mut self.peers[peer.0 as usize];
        if status == Status::Fault && unmoved && p.route.scheme != Scheme::Fragments {
            // the target cannot reach this process's memory after all: everything goes as fragments from now on
            p.route.scheme = Scheme::Fragments;
            self.enqueue(peer, Item::Rma(id));
        } else {
            self.part_done(id, status);
        }
        Directive::Done
    }

    pub(super) fn on_get_data(&mut self, peer: PeerIdx, id: OpId, offset: u64, len: usize) -> Directive {
        let discard = Span { place: Place::Discard, offset: 0, len };
        let Some(part) = self.part_of(peer, id) else { return Directive::Place(discard, After::Nothing) };
        let Some(RmaOp { kind, .. }) = self.rmas.get(part.op) else { return Directive::Done };
        let base = match kind {
            RmaKind::Put(_) => return Directive::Broken("it answered a put with data"),
            RmaKind::Get => part.base,
            RmaKind::Atomic { operands, .. } => u64::from(*operands),
        };
        let fits = offset.checked_add(len as u64).is_some_and(|end| end <= part.len)
            && part.moved + len as u64 <= part.len;
        if !fits || len == 0 {
            return Directive::Broken("it answered with more than was asked for");
        }
        let to = Span { place: Place::Rma(part.op), offset: base + offset, len };
        Directive::Place(to, After::Fetched(id, len))
    }

    pub(super) fn fetched(&mut self, id: OpId, len: usize) {
        let Some(part) = self.parts.get_mut(id) else { return };
        part.moved += len as u64;
        if part.moved == part.len {
            self.part_done(id, Status::Ok);
        }
    }

    // ---- the target's side -------------------------------------------------------------------------------------------

    fn ack(&mut self, peer: PeerIdx, op: OpId, status: Status) {
        self.control(peer, Frame::Ack { op, status }, Out::Nothing);
    }

    pub(super) fn on_put(
        &mut self,
        peer: PeerIdx,
        op: OpId,
        to: RemoteAddr,
        data: Option<u64>,
        last: bool,
        len: usize,
    ) -> Directive {
        let checked = match len {
            0 => Ok(0),
            _ => self.regions.check(to.key, to.addr, len as u64, Access { read: false, write: true }),
        };
        let p = &mut self.peers[peer.0 as usize];
        let status = p.put_status.take().unwrap_or(Status::Ok);
        let status = if status == Status::Ok { checked.err().unwrap_or(Status::Ok) } else { status };
        if !last {
            p.put_status = Some(status);
        }
        let after = After::Put { op, status, data, last, len, key: to.key };
        if len == 0 {
            self.placed(peer, after);
            return Directive::Done;
        }
        let place = if status == Status::Ok { Place::Region(to.key) } else { Place::Discard };
        Directive::Place(Span { place, offset: to.addr, len }, after)
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of After::Put, which is what calls it")]
    pub(super) fn put_placed(
        &mut self,
        peer: PeerIdx,
        op: OpId,
        status: Status,
        data: Option<u64>,
        last: bool,
        len: usize,
        key: u64,
    ) {
        if !last {
            return;
        }
        self.ack(peer, op, status);
        if status == Status::Ok {
            self.complete(Completion::Remote { from: peer, key, data, len: len as u64, write: true });
        }
    }

    pub(super) fn on_put_rts(
        &mut self,
        peer: PeerIdx,
        op: OpId,
        to: RemoteAddr,
        len: u64,
        region: Option<Region>,
    ) -> Directive {
        let Some(from) = region.filter(|r| r.len().is_some_and(|have| have >= len)) else {
            return Directive::Broken("it announced more bytes than it showed");
        };
        if let Err(status) = self.regions.check(to.key, to.addr, len, Access { read: false, write: true }) {
            self.ack(peer, op, status);
            return Directive::Done;
        }
        let to_span = Span { place: Place::Region(to.key), offset: to.addr, len: len as usize };
        let job = Job::PutRts { op, len, key: to.key };
        self.actions.push_back(Action::Read { peer, from, to: to_span, job });
        Directive::Done
    }

    pub(super) fn put_rts_done(&mut self, peer: PeerIdx, op: OpId, len: u64, key: u64, ok: bool) {
        self.ack(peer, op, if ok { Status::Ok } else { Status::Fault });
        if ok {
            self.complete(Completion::Remote { from: peer, key, data: None, len, write: true });
        }
    }

    pub(super) fn on_get(
        &mut self,
        peer: PeerIdx,
        op: OpId,
        from: RemoteAddr,
        len: u64,
        region: Option<Region>,
    ) -> Directive {
        let checked = self.regions.check(from.key, from.addr, len, Access { read: true, write: false });
        if let Err(status) = checked {
            self.ack(peer, op, status);
            return Directive::Done;
        }
        if len == 0 {
            self.ack(peer, op, Status::Ok);
            return Directive::Done;
        }
        match region {
            Some(r) if r.len().is_none_or(|have| have < len) => {
                return Directive::Broken("it asked for more bytes than it has room for");
            }
            Some(to) => {
                let span = Span { place: Place::Region(from.key), offset: from.addr, len: len as usize };
                let job = Job::Get { op, key: from.key };
                self.actions.push_back(Action::Write { peer, from: span, to, job });
            }
            None => {
                let kind = StreamKind::GetData { op, key: from.key, addr: from.addr };
                self.peers[peer.0 as usize].streams.push_back(Stream { kind, next: 0, end: len });
                self.ready.push_back(peer);
                let done = Completion::Remote { from: peer, key: from.key, data: None, len, write: false };
                self.complete(done);
            }
        }
        Directive::Done
    }

    pub(super) fn get_done(&mut self, peer: PeerIdx, op: OpId, key: u64, ok: bool) {
        self.ack(peer, op, if ok { Status::Ok } else { Status::Fault });
        if ok {
            self.complete(Completion::Remote { from: peer, key, data: None, len: 0, write: false });
        }
    }

    pub(super) fn on_atomic(
        &mut self,
        peer: PeerIdx,
        op: OpId,
        at: RemoteAddr,
        code: AtomicCode,
    ) -> Directive {
        let _ = peer;
        Directive::Operate(Operation { key: at.key, addr: at.addr, code, op })
    }

    /// An atomic operation is done, or refused. For those that return values, the name under which the driver stores them
    /// until they have left, and how many bytes they are.
    pub fn operated(
        &mut self,
        peer: PeerIdx,
        operation: &Operation,
        result: Result<usize, Status>,
    ) -> Option<OpId> {
        match (result, operation.code.kind) {
            (Err(status), _) => self.ack(peer, operation.op, status),
            (Ok(_), AtomicKind::Update) => self.ack(peer, operation.op, Status::Ok),
            (Ok(len), _) => {
                let stash = self.result_stash(peer);
                let bytes = Out::Bytes(Span { place: Place::Stash(stash), offset: 0, len });
                self.control(peer, Frame::AtomicData { op: operation.op }, bytes);
                return Some(stash);
            }
        }
        None
    }
}
