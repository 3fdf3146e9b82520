//! From the engine to the rails: frames that leave, memory that is read and written directly, events for the user.

use super::buffers::{Buf, Buffers, IoVec, Owned, User};
use super::inbound::RailId;
use super::lanes::LaneLink;
use super::{Core, Event, EventKind, Worker};
use crate::loopback::Loopback;
use crate::rail::{LinkId, Memory, Payload, Place, Rail, RawIov, Span};
use crate::shm::{ShmRail, cma};
use crate::tcp::TcpRail;
use polyrail_core::frame::Matching;
use polyrail_core::proto::{Action, Completion, Delivered, Job, Next, Out, PeerIdx, Region};
use polyrail_core::session::{Carrier, Links, Retired, Seen, Sent, UnackedFrame};
use std::collections::VecDeque;

impl Worker {
    pub(super) fn rail(&mut self, rail: RailId) -> &mut dyn Rail {
        match rail {
            RailId::Loopback => &mut self.loopback,
            RailId::Shm => &mut self.shm,
            RailId::Tcp => &mut self.tcp,
        }
    }

    /// Does all that the engine asks for until it asks for nothing more.
    pub(super) fn settle(&mut self) {
        loop {
            while let Some(action) = self.core.engine.poll_action() {
                self.core.act(action);
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
        let info = &self.core.peers[peer.0 as usize];
        if info.lanes.as_ref().is_some_and(|lanes| lanes.session.is_wide()) {
            return self.schedule(peer);
        }
        let Some((rail, link)) = info.lane else { return };
        loop {
            let bulk = match rail {
                RailId::Loopback => self.loopback.wants_more(link),
                RailId::Shm => self.shm.wants_more(link),
                RailId::Tcp => self.tcp.wants_more(link),
            };
            let Some(next) = self.core.engine.poll_transmit(peer, if bulk { usize::MAX } else { 0 }) else {
                if self.core.engine.queued(peer) > 0 {
                    self.wait_for_room(peer);
                }
                return;
            };
            match self.transmit(rail, link, &next) {
                Sent::Away => {
                    self.core.engine.transmitted(peer, &next);
                    if let Out::Bytes(Span { len: LONG.., .. }) = next.payload {
                        self.core.carried_long(rail, link);
                    }
                }
                Sent::Full => return self.wait_for_room(peer),
                Sent::Unlisted => self.core.engine.unlisted(peer, &next),
            }
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
    pub(super) fn transmit(&mut self, rail: RailId, link: LinkId, next: &Next) -> Sent {
        self.outlet().transmit(rail, link, next)
    }

    fn outlet(&mut self) -> Outlet<'_> {
        Outlet {
            loopback: &mut self.loopback,
            shm: &mut self.shm,
            tcp: &mut self.tcp,
            bufs: &self.core.bufs,
            cut: &mut self.core.cut,
            reads_told: self.core.reads_told,
            iov: &mut self.iov,
            zeros: &self.zeros,
        }
    }
}

/// What frames leave by: the rails, and the memory that payloads are in.
pub(super) struct Outlet<'a> {
    pub loopback: &'a mut Loopback,
    pub shm: &'a mut ShmRail,
    pub tcp: &'a mut TcpRail,
    pub bufs: &'a Buffers,
    pub cut: &'a mut Vec<(RailId, LinkId, &'static str)>,
    pub reads_told: bool,
    pub iov: &'a mut Vec<RawIov>,
    pub zeros: &'a [u8],
}

impl Outlet<'_> {
    fn rail(&mut self, rail: RailId) -> &mut dyn Rail {
        match rail {
            RailId::Loopback => self.loopback,
            RailId::Shm => self.shm,
            RailId::Tcp => self.tcp,
        }
    }

    /// Gives one frame to a rail.
    pub fn transmit(&mut self, rail: RailId, link: LinkId, next: &Next) -> Sent {
        let mut iov = std::mem::take(self.iov);
        iov.clear();
        let mut listed = [0; Region::MAX_BYTES];
        match next.payload {
            Out::Nothing => {}
            Out::Bytes(bytes) => {
                if !self.bufs.resolve(bytes, &mut iov) {
                    // the region was closed, or the operation has ended, in the middle: the peer is told at the end
                    iov.push(RawIov { base: self.zeros.as_ptr().cast_mut(), len: bytes.len });
                    debug_assert!(bytes.len <= self.zeros.len());
                }
            }
            Out::Addresses(memory) => {
                let Some(len) = list(self.bufs, memory, &mut iov, &mut listed) else {
                    *self.iov = iov;
                    return Sent::Unlisted;
                };
                iov.clear();
                iov.push(RawIov { base: listed.as_mut_ptr(), len });
            }
        }
        let may_change = |span: &Span| self.reads_told && matches!(span.place, Place::Region(..));
        let lasting = next.lasting().filter(|span| !may_change(span));
        let header = next.frame.encode(iov.iter().map(|piece| piece.len).sum());
        // SAFETY: the pieces are the memory of live operations, or of this function and its worker.
        let sent = unsafe { self.rail(rail).send(link, &header, &iov, lasting) };
        *self.iov = iov;
        if rail == RailId::Tcp && self.tcp.copied(link) > UNTOLD {
            self.cut.push((rail, link, "it does not say what it has had"));
        }
        if sent.is_ok() { Sent::Away } else { Sent::Full }
    }
}

impl Links<LaneLink> for Outlet<'_> {
    fn look(&self, (_, link): LaneLink) -> Option<Seen> {
        let info = self.tcp.info(link)?;
        // what the peer's program does not take is not owed by its kernel; what cannot even be sent, for want of a route, is. No
        // packet is sent into less room than a whole one needs.
        let takes = info.unacked > 0 || info.peer_window > 0 && info.peer_window >= info.packet;
        let (rtt, min_rtt) = (u64::from(info.rtt) * 1000, u64::from(info.min_rtt) * 1000);
        let shut = info.queued > 0 && !takes;
        Some(Seen { delivered: info.delivered, queued: info.queued, rtt, min_rtt, shut })
    }
    fn queued(&self, (_, link): LaneLink) -> u64 {
        self.tcp.queued(link) as u64
    }
    fn given(&self, (_, link): LaneLink) -> u64 {
        self.tcp.given(link)
    }
    fn wants_more(&self, (_, link): LaneLink) -> bool {
        self.tcp.wants_more(link)
    }
    fn confirm(&mut self, (_, link): LaneLink, frames: u64) -> bool {
        self.tcp.release(link, frames)
    }
    fn retire(&mut self, (_, link): LaneLink) -> Retired {
        let received = self.tcp.retire(link);
        Retired { received, said: self.tcp.kept(link).collect() }
    }
    fn reclaim(&mut self, (_, link): LaneLink, frames: u64) -> Option<VecDeque<UnackedFrame>> {
        self.tcp.reclaim(link, frames)
    }
    fn close(&mut self, (rail, link): LaneLink) {
        self.rail(rail).close(link);
    }
}

impl Carrier<LaneLink, Next> for Outlet<'_> {
    fn send(&mut self, (rail, link): LaneLink, next: &Next) -> Sent {
        self.transmit(rail, link, next)
    }

    fn send_again(&mut self, (rail, link): LaneLink, frame: &UnackedFrame) -> bool {
        let (header, copied) = frame.bytes.split_at(frame.header);
        let mut iov = std::mem::take(self.iov);
        iov.clear();
        match frame.span {
            // of an operation that has ended nobody reads this
            Some(span) if !self.bufs.resolve(span, &mut iov) => {
                iov.push(RawIov { base: self.zeros.as_ptr().cast_mut(), len: span.len });
            }
            Some(_) => {}
            None => iov.push(RawIov { base: copied.as_ptr().cast_mut(), len: copied.len() }),
        }
        // SAFETY: the frame's own bytes, memory of a live operation, or the worker's zeros.
        let sent = unsafe { self.rail(rail).send(link, header, &iov, frame.span) };
        *self.iov = iov;
        sent.is_ok()
    }
}

/// Lists the addresses of a span as bytes for the peer; how many. None when they are too many, or gone.
fn list(
    bufs: &Buffers,
    span: Span,
    iov: &mut Vec<RawIov>,
    out: &mut [u8; Region::MAX_BYTES],
) -> Option<usize> {
    let mut region = Region::default();
    let all = bufs.resolve(span, iov) && iov.iter().all(|p| region.push(p.base as u64, p.len as u64));
    all.then(|| region.encode(out))
}

/// So many copied bytes a peer may have without saying so: what both kernels may hold, and what it says nothing of yet, is less.
const UNTOLD: usize = 96 << 20;

/// A payload of so many bytes is one for which more lanes are of use.
const LONG: usize = 8 << 10;

impl Core {
    fn carried_long(&mut self, rail: RailId, link: LinkId) {
        if let Some(info) = self.link(rail, link) {
            info.much = true;
        }
    }

    pub(super) fn act(&mut self, action: Action) {
        match action {
            Action::Complete(completion) => self.complete(completion),
            Action::Unstash { stash, to } => {
                let bytes = self.bufs.stashes.take(stash).unwrap_or_default();
                // SAFETY: `bytes` lives to the end of this block.
                self.bufs.fill(to, unsafe { bytes.payload() });
            }
            Action::DropStash(stash) => {
                self.bufs.stashes.take(stash);
            }
            Action::Redeliver(peer, seq) => self.due.push((peer, seq)),
            Action::DropHeld(peer, seq) => {
                self.release(peer, seq);
            }
            Action::Read { peer, from, to, job } => {
                let ok = self.direct(peer, &from, to, true);
                self.engine.job_done(peer, job, ok);
            }
            Action::Write { peer, from, to, job } => {
                let ok = self.direct(peer, &to, from, false);
                if let Job::Get { .. } | Job::Rput(_) = job {
                    self.counts.direct_writes += u64::from(ok);
                }
                self.engine.job_done(peer, job, ok);
            }
        }
    }

    /// Copies between a span of this process and memory of a peer's.
    fn direct(&mut self, peer: PeerIdx, theirs: &Region, ours: Span, read: bool) -> bool {
        let mut local = Vec::new();
        if !self.bufs.resolve(ours, &mut local) {
            return false;
        }
        let mut left = ours.len as u64;
        let mut remote = Vec::with_capacity(theirs.ranges().len());
        for &(addr, len) in theirs.ranges() {
            let len = len.min(left);
            left -= len;
            remote.push(cma::RemoteIov { base: addr, len: len as usize });
        }
        let Some(pid) = self.peers[peer.0 as usize].pid else { return false };
        // SAFETY: the local memory belongs to a live operation; the kernel checks the remote addresses.
        let done =
            unsafe { if read { cma::read(pid, &local, &remote) } else { cma::write(pid, &local, &remote) } };
        match done {
            Ok(()) => {
                let (got, given) = &mut self.peers[peer.0 as usize].direct;
                *(if read { got } else { given }) += ours.len as u64;
                true
            }
            Err(why) => {
                self.peers[peer.0 as usize].direct_refused = Some(why.to_string());
                false
            }
        }
    }

    /// A whole message for a posted receive: copies its bytes and tells the user.
    #[inline]
    pub(super) fn deliver(&mut self, delivered: &Delivered, payload: Payload) {
        let &Delivered { op, envelope, got } = delivered;
        let user = match self.bufs.recvs.finish(op, payload, got as usize) {
            Some(user) => user,
            None => {
                let span = Span { place: Place::Recv(op), offset: 0, len: got as usize };
                self.bufs.fill(span, payload);
                let Some(buf) = self.bufs.recvs.take(op) else { return };
                buf.user
            }
        };
        self.events.push_back(Event {
            peer: Some(envelope.from),
            matching: envelope.matching,
            data: envelope.data,
            len: envelope.len,
            got,
            ..Event::of(EventKind::Recv, user)
        });
    }

    fn complete(&mut self, completion: Completion) {
        match completion {
            Completion::Send { op, peer, result } => {
                let Some(buf) = self.bufs.sends.take(op) else { return };
                let event = Event::of(EventKind::Send, buf.user);
                self.events.push_back(Event { peer: Some(peer), error: result.err(), ..event });
            }
            Completion::Rma { op, peer, result } => {
                let Some((buf, kind)) = self.bufs.rmas.take(op) else { return };
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
            Completion::Recv { op, peer, envelope, got, offset, released, result } => {
                let taken = if released { self.bufs.recvs.take(op) } else { None };
                let user = match (&taken, self.bufs.recvs.get(op)) {
                    (Some(buf), _) | (None, Some(buf)) => buf.user,
                    _ => return,
                };
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
