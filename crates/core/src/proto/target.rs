//! Put, get and atomic operations: the target's side.

use super::Engine;
use super::peer::{Stream, StreamKind};
use super::region::Access;
use super::types::{Action, After, Completion, Directive, Job, Operation, Out, PeerIdx, Place, Region, Span};
use crate::frame::{AtomicKind, Frame, MAX_PAYLOAD, OpId, RemoteAddr, Status};

/// A put on its way in. Its bytes may come by several rails at once, or be fetched.
#[derive(Debug)]
pub(super) struct PutIn {
    peer: PeerIdx,
    op: OpId,
    key: u64,
    status: Status,
    data: Option<u64>,
    len: u64,
    /// Payloads that have begun and are not all there.
    placing: u32,
    /// Whether the last frame has come.
    whole: bool,
}

impl PutIn {
    fn is_there(&self) -> bool {
        self.whole && self.placing == 0
    }
}

impl Engine {
    fn ack(&mut self, peer: PeerIdx, op: OpId, status: Status) {
        self.control(peer, Frame::Ack { op, status }, Out::Nothing);
    }

    /// The frames of one put follow each other in its sender's order.
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
        let name = match self.peers[peer.0 as usize].put_open.take() {
            Some(open) => open,
            None => self.new_put(peer, op, to.key, 0),
        };
        let Some(put) = self.puts.get_mut(name).filter(|put| put.op == op) else {
            return Directive::Broken("it began a put before the one before it had ended");
        };
        if put.status == Status::Ok {
            put.status = checked.err().unwrap_or(Status::Ok);
        }
        (put.key, put.data, put.whole) = (to.key, data, last);
        put.len += len as u64;
        put.placing += 1;
        let place = if put.status == Status::Ok { Place::Region(to.key) } else { Place::Discard };
        if !last {
            self.peers[peer.0 as usize].put_open = Some(name);
        }
        if len == 0 {
            self.put_placed(name);
            return Directive::Done;
        }
        Directive::Place(Span { place, offset: to.addr, len }, After::Put(name))
    }

    fn new_put(&mut self, peer: PeerIdx, op: OpId, key: u64, len: u64) -> OpId {
        let (status, data) = (Status::Ok, None);
        let name = self.puts.insert(PutIn { peer, op, key, status, data, len, placing: 0, whole: false });
        self.peers[peer.0 as usize].puts.push_back(name);
        name
    }

    pub(super) fn put_placed(&mut self, name: OpId) {
        let Some(put) = self.puts.get_mut(name) else { return };
        put.placing -= 1;
        if !put.is_there() {
            return;
        }
        let peer = put.peer;
        if put.data.is_none() {
            self.end_put(name);
        }
        // immediate data says that all is there that was written before it, by whichever rail
        while let Some(&first) = self.peers[peer.0 as usize].puts.front() {
            match self.puts.get(first) {
                Some(put) if !put.is_there() => break,
                _ => self.end_put(first),
            }
            self.peers[peer.0 as usize].puts.pop_front();
        }
    }

    fn end_put(&mut self, name: OpId) {
        let Some(PutIn { peer, op, key, status, data, len, .. }) = self.puts.remove(name) else { return };
        self.ack(peer, op, status);
        if status == Status::Ok {
            self.complete(Completion::Remote { from: peer, key, data, len, write: true });
        }
    }

    /// The peer is gone: what it was writing stays half written.
    pub(super) fn fail_puts(&mut self, puts: impl IntoIterator<Item = OpId>) {
        puts.into_iter().for_each(|name| {
            self.puts.remove(name);
        });
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
        let name = self.new_put(peer, op, to.key, len);
        if let Some(put) = self.puts.get_mut(name) {
            (put.placing, put.whole) = (1, true);
        }
        let to = Span { place: Place::Region(to.key), offset: to.addr, len: len as usize };
        self.actions.push_back(Action::Read { peer, from, to, job: Job::PutRts(name) });
        Directive::Done
    }

    pub(super) fn put_rts_done(&mut self, name: OpId, ok: bool) {
        if let Some(put) = self.puts.get_mut(name)
            && !ok
        {
            put.status = Status::Fault;
        }
        self.put_placed(name);
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
                let job = Job::Get { op, key: from.key, len };
                self.actions.push_back(Action::Write { peer, from: span, to, job });
            }
            None => {
                let kind = StreamKind::GetData { op, key: from.key, addr: from.addr };
                self.peers[peer.0 as usize].streams.push_back(Stream { kind, next: 0, end: len });
                self.ready.push_back(peer);
            }
        }
        Directive::Done
    }

    pub(super) fn get_done(&mut self, peer: PeerIdx, op: OpId, key: u64, len: u64, ok: bool) {
        self.ack(peer, op, if ok { Status::Ok } else { Status::Fault });
        if ok {
            self.was_read(peer, key, len);
        }
    }

    /// A get was answered, all of it.
    pub(super) fn was_read(&mut self, from: PeerIdx, key: u64, len: u64) {
        self.complete(Completion::Remote { from, key, data: None, len, write: false });
    }

    /// Whether the region may still be read that the next piece of an answer comes from. If not, the requester is told.
    pub(super) fn may_still_read(&mut self, peer: PeerIdx, op: OpId, key: u64, addr: u64, len: u64) -> bool {
        let checked = self.regions.check(key, addr, len, Access { read: true, write: false });
        if let Err(status) = checked {
            self.ack(peer, op, status);
        }
        checked.is_ok()
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
            // more values than a frame holds: whoever asks for so many is told that this is too many
            (Ok(len), _) if len > MAX_PAYLOAD => self.ack(peer, operation.op, Status::Unsupported),
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
