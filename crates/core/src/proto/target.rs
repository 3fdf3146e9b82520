//! Put, get and atomic operations: the target's side.

use super::Engine;
use super::peer::{Stream, StreamKind};
use super::region::Access;
use super::types::{Action, After, Completion, Directive, Job, Operation, Out, PeerIdx, Place, Region, Span};
use crate::frame::{AtomicCode, AtomicKind, Frame, OpId, RemoteAddr, Status};

impl Engine {
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
