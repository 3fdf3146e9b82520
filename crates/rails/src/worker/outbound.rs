//! From the engine to the rails: frames that leave, memory that is read and written directly, events for the user.

use super::buffers::{Buf, IoVec, Owned, Posted, User};
use super::outlet::Outlet;
use super::{Core, Event, EventKind, Worker};
use crate::rail::direct::Transfer;
use crate::rail::{RawIov, Span};
use crate::set::{NO_LINK, RailLink};
use polyrail_core::frame::Matching;
use polyrail_core::proto::{Action, Completion, Job, Next, Out, PeerIdx, Region};
use polyrail_core::session::Sent;

impl Worker {
    /// Does all that the engine asks for until it asks for nothing more.
    pub(super) fn settle(&mut self) {
        self.core.asks = true;
        loop {
            while let Some(action) = self.core.engine.poll_action() {
                self.core.act(action);
            }
            if !self.core.starting.is_empty() {
                self.start_transfers();
            }
            match self.core.engine.poll_ready() {
                Some(peer) => self.pump(peer),
                None if self.core.engine.has_work() => {}
                None => return,
            }
        }
    }

    /// Gives a peer's rail as many waiting frames as it takes; none once goodbye was said.
    pub(super) fn pump(&mut self, peer: PeerIdx) {
        if self.wireup.closing {
            return;
        }
        if self.session(peer, |session, traffic, _| session.schedules(traffic)) == Some(true) {
            return self.schedule(peer);
        }
        let Some(lane) = self.core.peers[peer.0 as usize].short.lane else { return };
        loop {
            let most = if self.rails.wants_more(lane) { usize::MAX } else { 0 };
            let Some(next) = self.core.engine.poll_transmit(peer, most) else {
                if self.core.engine.queued(peer) > 0 {
                    self.wait_for_room(peer);
                }
                return;
            };
            match self.transmit(lane, &next) {
                Sent::Taken => self.core.engine.value_taken(peer),
                sent @ (Sent::Away | Sent::Lent) => {
                    match sent {
                        Sent::Lent => self.core.engine.lent(peer, &next),
                        _ => self.core.engine.transmitted(peer, &next),
                    }
                    if let Out::Bytes(Span { len: LONG.., .. }) = next.payload {
                        self.core.carried_long(lane);
                        self.sent_long(peer);
                    }
                }
                Sent::Full => return self.wait_for_room(peer),
                Sent::Unlisted => self.core.engine.unlisted(peer, &next),
            }
        }
    }

    /// Ends sends whose bytes are not lent any more.
    pub(super) fn take_back(&mut self) {
        while let Some(send) = self.rails.take_returned() {
            self.core.asks = true;
            self.core.engine.returned(send);
        }
        self.take_back_values();
    }

    /// Has values leave again that a link took and does not bring.
    pub(super) fn take_back_values(&mut self) {
        while let Some((peer, tag, iteration)) = self.rails.take_returned_value() {
            self.core.asks = true;
            self.core.engine.value_returned(peer, tag, iteration);
        }
    }

    /// Copies what was lent and somebody waits for, in a round of progress or before the caller `sleeps`; how many sends.
    pub(super) fn copy_lent(&mut self, sleeps: bool) -> usize {
        let mut copied = 0;
        self.core.engine.wait(sleeps);
        while let Some((peer, send)) = self.core.engine.poll_copy() {
            let lanes = &self.core.peers[peer.0 as usize].lanes;
            for link in lanes.iter().flat_map(|lanes| lanes.session.links()) {
                self.rails.copy_lent(link, Some(send), &self.core.bufs);
            }
            self.core.engine.returned(send);
            copied += 1;
        }
        self.take_back();
        self.settle();
        self.core.counts.copied += copied as u64;
        copied
    }

    /// A long part left by the only lane.
    fn sent_long(&mut self, peer: PeerIdx) {
        if self.core.peers[peer.0 as usize].lanes.is_some() {
            let now = self.clock();
            self.session(peer, |session, _, _| session.sent_long(now));
        }
    }

    pub(super) fn wait_for_room(&mut self, peer: PeerIdx) {
        if !self.blocked.contains(&peer) {
            self.blocked.push(peer);
        }
    }

    /// Tries the peers again that had no room.
    pub(super) fn retry_blocked(&mut self) {
        for peer in std::mem::take(&mut self.blocked) {
            self.pump(peer);
        }
    }

    /// Gives one frame to a rail.
    fn transmit(&mut self, lane: RailLink, next: &Next) -> Sent {
        let mut outlet = Outlet {
            rails: &mut self.rails,
            bufs: &self.core.bufs,
            cut: &mut self.core.cut,
            reads_told: self.core.reads_told,
            iov: &mut self.iov,
            zeros: &self.zeros,
        };
        outlet.give(lane, next, &self.core.engine)
    }
}

/// A payload of so many bytes is one for which more lanes are of use.
const LONG: usize = 8 << 10;

impl Core {
    fn carried_long(&mut self, lane: RailLink) {
        if let Some(info) = self.link(lane) {
            info.much = true;
        }
    }

    pub(super) fn act(&mut self, action: Action<User>) {
        match action {
            Action::Complete(completion) => self.complete(completion),
            Action::Unstash { stash, to, op } => {
                let bytes = self.bufs.stashes.take(stash).unwrap_or_default();
                // SAFETY: `bytes` lives to the end of this block.
                self.fill(to, unsafe { bytes.payload() });
                self.bufs.spare.keep(bytes);
                self.engine.unstashed(op);
            }
            Action::DropStash(stash) => {
                self.bufs.stashes.take(stash);
            }
            Action::Redeliver(peer, seq) => self.due.push((peer, seq)),
            Action::DropHeld(peer, seq) => {
                self.release(peer, seq);
            }
            Action::Read { peer, from, to, job } => self.begin_transfer(peer, false, to, from, job),
            Action::Write { peer, from, to, job } => self.begin_transfer(peer, true, from, to, job),
        }
    }

    /// Notes a transfer that is to begin.
    fn begin_transfer(&mut self, peer: PeerIdx, write: bool, ours: Span, theirs: Region, job: Job) {
        let (rail, link) = self.lane(peer).unwrap_or(NO_LINK);
        let send = if let Job::Rget(op) = job { self.engine.announced(op) } else { None };
        self.starting.push((rail, Transfer { link, write, ours, theirs, peer, job, send }));
    }

    fn complete(&mut self, completion: Completion<User>) {
        match completion {
            Completion::Send { op, peer, result } => {
                let Some(buf) = self.bufs.sends.take(op) else { return };
                if let Some(copy) = buf.owned {
                    self.bufs.spare.keep(copy);
                }
                if buf.user.flags == Worker::SILENT {
                    return self.peers[peer.0 as usize].pace.ended();
                }
                let event = Event::of(EventKind::Send, buf.user);
                self.events.push_back(Event { peer: Some(peer), error: result.err(), ..event });
            }
            Completion::Rma { op, peer, result } => {
                let Some((buf, kind)) = self.bufs.rmas.take(op) else { return };
                if buf.user.flags == Worker::SILENT {
                    self.peers[peer.0 as usize].ending = result.is_ok();
                    return;
                }
                let event = Event::of(kind, buf.user);
                self.events.push_back(Event { peer: Some(peer), error: result.err(), ..event });
            }
            Completion::Remote { write: false, .. } if !self.reads_told => {}
            Completion::Remote { from, key, data, len, write } => {
                let kind = if write { EventKind::RemoteWrite } else { EventKind::RemoteRead };
                let user = User::default();
                self.events.push_back(Event {
                    peer: Some(from),
                    key,
                    data,
                    len,
                    got: len,
                    ..Event::of(kind, user)
                });
            }
            Completion::Recv { user, peer, envelope, got, offset, released, result } => {
                self.events.push_back(Event {
                    kind: EventKind::Recv,
                    user,
                    peer,
                    matching: envelope.map_or(Matching::Message, |e| e.matching),
                    data: envelope.and_then(|e| e.data),
                    len: envelope.map_or(0, |e| e.len),
                    got,
                    offset,
                    released,
                    error: result.err(),
                    key: 0,
                });
            }
        }
    }
}

/// Memory of a receive.
#[inline]
pub(super) fn posted(iov: &[RawIov], user: User) -> Posted {
    Posted { iov: IoVec::new(iov), user }
}

/// Memory of an operation that the caller keeps until the event.
#[inline]
pub(super) fn kept(iov: &[RawIov], user: User) -> Buf {
    Buf { iov: IoVec::new(iov), user, owned: None }
}

/// A copy of the caller's bytes, followed by memory of the caller's (of an atomic: where results go).
///
/// # Safety
/// `bytes` is readable.
pub(super) unsafe fn copied(bytes: &[RawIov], behind: &[RawIov], user: User) -> Buf {
    let len = bytes.iter().map(|piece| piece.len).sum();
    let mut owned = Vec::with_capacity(len);
    for piece in bytes.iter().filter(|piece| piece.len > 0) {
        // SAFETY: readable, by our caller's word.
        owned.extend_from_slice(unsafe { std::slice::from_raw_parts(piece.base, piece.len) });
    }
    let owned = Owned::from(owned);
    let mut pieces = vec![owned.memory()];
    pieces.extend_from_slice(behind);
    Buf { iov: IoVec::new(&pieces), user, owned: Some(owned) }
}
