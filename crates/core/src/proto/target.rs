//! Put, get and atomic operations: the target's side.

use super::Engine;
use super::bounds::Settles;
use super::region::{Access, Regions};
use super::streams::{Stream, StreamKind};
use super::types::{
    Action, After, Completion, Directive, Job, Operation, Out, PeerIdx, Place, Receiver, Region, Span,
};
use crate::frame::{AtomicKind, Frame, MAX_PAYLOAD, OpId, RemoteAddr, Status};

/// A put on its way in. Its bytes may come by several rails at once, or be fetched.
#[derive(Debug)]
pub(super) struct PutIn {
    peer: PeerIdx,
    op: OpId,
    key: u64,
    /// Which registration of the key its bytes go to, once some have come.
    generation: Option<u32>,
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

    /// A frame of it has come, whose bytes (if any) may go to this registration of a key, or may not. All of a put goes to one.
    fn go_on(&mut self, key: u64, checked: Result<Option<u32>, Status>) {
        if self.status != Status::Ok {
            return;
        }
        match checked {
            Err(status) => self.status = status,
            Ok(None) => {}
            Ok(generation) if self.generation.is_none() => (self.key, self.generation) = (key, generation),
            Ok(generation) if (self.key, self.generation) == (key, generation) => {}
            Ok(_) => self.status = Status::Access,
        }
    }

    /// Whether its region was closed since it began: what came later went nowhere.
    fn has_lost_region(&self, regions: &Regions) -> bool {
        self.generation.is_some_and(|generation| !regions.is_registered(self.key, generation))
    }
}

const READ: Access = Access { read: true, write: false };
const WRITE: Access = Access { read: false, write: true };

impl<R: Receiver> Engine<R> {
    fn ack(&mut self, peer: PeerIdx, op: OpId, status: Status) {
        self.answer(peer, Frame::Ack { op, status }, Out::Nothing, Settles::Request);
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
            0 => Ok(None),
            _ => self.regions.check(to.key, to.addr, len as u64, WRITE).map(|at| Some(at.generation)),
        };
        let name = match self.peers[peer.0 as usize].put_open.take() {
            Some(open) => open,
            None => self.new_put(peer, op, to.key, 0),
        };
        let Some(put) = self.puts.get_mut(name).filter(|put| put.op == op) else {
            return Directive::Broken("it began a put before the one before it had ended");
        };
        put.go_on(to.key, checked);
        (put.data, put.whole) = (data, last);
        put.len += len as u64;
        put.placing += 1;
        let place = match (put.status, put.generation) {
            (Status::Ok, Some(generation)) => Place::Region(put.key, generation),
            _ => Place::Discard,
        };
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
        let put = PutIn {
            peer,
            op,
            key,
            generation: None,
            status: Status::Ok,
            data: None,
            len,
            placing: 0,
            whole: false,
        };
        let name = self.puts.insert(put);
        self.peers[peer.0 as usize].puts.push_back(name);
        name
    }

    pub(super) fn put_placed(&mut self, name: OpId) {
        let Some(put) = self.puts.get_mut(name) else { return };
        put.placing -= 1;
        if put.has_lost_region(&self.regions) {
            put.status = Status::Access;
        }
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
        let generation = match self.regions.check(to.key, to.addr, len, WRITE) {
            Ok(at) => at.generation,
            Err(status) => {
                self.ack(peer, op, status);
                return Directive::Done;
            }
        };
        let name = self.new_put(peer, op, to.key, len);
        if let Some(put) = self.puts.get_mut(name) {
            (put.placing, put.whole, put.generation) = (1, true, Some(generation));
        }
        let to = Span { place: Place::Region(to.key, generation), offset: to.addr, len: len as usize };
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
        let generation = match self.regions.check(from.key, from.addr, len, READ) {
            Ok(at) if len > 0 => at.generation,
            nothing => {
                self.ack(peer, op, nothing.err().unwrap_or(Status::Ok));
                return Directive::Done;
            }
        };
        match region {
            Some(r) if r.len().is_none_or(|have| have < len) => {
                return Directive::Broken("it asked for more bytes than it has room for");
            }
            Some(to) => {
                let place = Place::Region(from.key, generation);
                let span = Span { place, offset: from.addr, len: len as usize };
                let job = Job::Get { op, key: from.key, len };
                self.actions.push_back(Action::Write { peer, from: span, to, job });
            }
            None => {
                let RemoteAddr { key, addr } = from;
                let kind = StreamKind::GetData { op, key, generation, addr };
                self.peers[peer.0 as usize].streams.push(Stream { kind, next: 0, end: len });
                self.name(peer);
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

    /// Whether the region is still there that the next piece of an answer comes from. If not, the requester is told.
    pub(super) fn may_still_read(&mut self, peer: PeerIdx, op: OpId, key: u64, generation: u32) -> bool {
        let there = self.regions.is_registered(key, generation);
        if !there {
            self.ack(peer, op, Status::Access);
        }
        there
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
                self.peers[peer.0 as usize].owed.keep(len);
                self.answer(peer, Frame::AtomicData { op: operation.op }, bytes, Settles::Request);
                return Some(stash);
            }
        }
        None
    }
}
