//! From a rail to the engine: frames, and where their payloads go.

use super::buffers::{Owned, User, scratch_place};
use super::lanes::LaneNews;
use super::ops::ATOMIC_MAX;
use super::{Core, Event, EventKind, Listener, Nobody};
use crate::atomic;
use crate::list::RailId;
use crate::rail::{Down, LinkId, Memory, Payload, Place, RawIov, Sink, Span};
use crate::set::NO_LINK;
use polyrail_core::frame::{AtomicKind, Frame, Matching, OpId, PlainEager, Status};
use polyrail_core::proto::{Access, After, Directive, Operation, PeerIdx, Region};
use polyrail_core::session::Told;
use polyrail_core::wire::datagram::Value;

/// A payload that is on its way in pieces.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// Straight to its place.
    Direct(After),
    /// Collected first, because it is looked at whole.
    Whole(Frame),
    /// Collected first, because the receive buffer is shorter.
    Cut(Span, After),
    /// Collected first, because it is not its turn.
    Held(u32, Frame),
}

/// What the worker knows of a link.
#[derive(Debug)]
pub(crate) struct LinkInfo {
    pub peer: PeerIdx,
    /// What is coming in pieces, its frame and payload's length, and where it goes.
    pub incoming: Option<(Incoming, Frame, usize, Span)>,
    /// It has carried a long message, or many: more lanes are of use.
    pub much: bool,
}

/// A [`Sink`] for one rail.
pub(crate) struct Inbound<'a, L> {
    pub core: &'a mut Core,
    pub rail: RailId,
    pub listener: &'a mut L,
}

impl<L> Memory for Inbound<'_, L> {
    fn resolve(&self, span: Span, out: &mut Vec<RawIov>) -> bool {
        self.core.memory().resolve(span, out)
    }
}

/// The memory that a frame's payload lists, if it lists memory. `Err` when it should and does not.
fn region_of(frame: &Frame, payload: Payload) -> Result<Option<Region>, ()> {
    let listed = match frame {
        Frame::Rts { readable: true, .. }
        | Frame::Rtr { writable: true, .. }
        | Frame::PutRts { .. }
        | Frame::Get { writable: true, .. } => true,
        Frame::Rts { .. } | Frame::Rtr { .. } | Frame::Get { .. } => false,
        _ => return Ok(None),
    };
    if !listed {
        return if payload.is_empty() { Ok(None) } else { Err(()) };
    }
    let mut bytes = [0; Region::MAX_BYTES];
    if payload.len() > bytes.len() {
        return Err(());
    }
    // SAFETY: the array has room for the whole payload.
    let len = unsafe { payload.copy_to(0, bytes.as_mut_ptr(), bytes.len()) };
    Region::parse(&bytes[..len]).map(Some).ok_or(())
}

/// An event is to tell of a message that was received whole.
#[cold]
#[inline(never)]
fn tell_by_event(core: &mut Core, user: User, from: PeerIdx, tag: u64, data: Option<u64>, len: u64) {
    core.asks = true;
    let event = Event::of(EventKind::Recv, user);
    let matching = Matching::Tag(tag);
    core.events.push_back(Event { peer: Some(from), matching, data, len, got: len, ..event });
}

impl<L: Listener> Inbound<'_, L> {
    #[inline]
    fn peer(&mut self, link: LinkId) -> Option<PeerIdx> {
        self.core.link((self.rail, link)).map(|info| info.peer)
    }

    fn broken(&mut self, link: LinkId, why: &'static str) {
        self.core.asks = true;
        self.core.cut.push(((self.rail, link), why));
    }

    fn hold(&mut self, peer: PeerIdx, link: LinkId, seq: u32, frame: Frame, bytes: Owned) {
        if !self.core.hold(peer, seq, frame, bytes) {
            self.broken(link, "too much of what it sent came before its turn");
        }
    }

    #[inline(never)]
    fn direct(&mut self, peer: PeerIdx, link: LinkId, frame: &Frame, payload: Payload) {
        self.core.asks = true;
        let Ok(region) = region_of(frame, payload) else {
            return self.broken(link, "a list of memory is malformed");
        };
        match self.core.engine.on_frame(peer, frame, payload.len(), region) {
            Directive::Done => {}
            Directive::Place(span, after) => {
                self.core.fill(span, payload);
                self.core.engine.placed(peer, after);
            }
            Directive::Hold(seq) => self.hold(peer, link, seq, *frame, payload.to_vec().into()),
            Directive::Operate(operation) => self.operate(peer, &operation, payload),
            Directive::Active { id, header_len } => self.core.active(peer, id, header_len, payload),
            Directive::Value => self.value_frame(peer, link, frame, payload),
            Directive::Lane => self.lane_word(peer, link, frame, payload),
            Directive::Broken(why) => self.broken(link, why),
        }
    }

    /// A part of a value.
    fn value_frame(&mut self, peer: PeerIdx, link: LinkId, frame: &Frame, payload: Payload) {
        let now = self.core.clock();
        // a copy, since the peer may still write to where it lies
        if let Err(why) = self.core.engine.take_in_value(peer, now, frame, &payload.to_vec()) {
            self.broken(link, why);
        }
    }

    /// What a peer says of a lane.
    fn lane_word(&mut self, peer: PeerIdx, link: LinkId, frame: &Frame, payload: Payload) {
        if let Frame::LaneOpen { .. } | Frame::LaneAnswer { .. } = frame {
            return self.core.lane_news.push((peer, LaneNews::Word(*frame, payload.to_vec())));
        }
        match Told::read(frame, &payload.to_vec()) {
            Some(told) => self.core.lane_news.push((peer, LaneNews::Had(told))),
            None => self.broken(link, "a list of what a lane brought is malformed"),
        }
    }

    /// Gives a message to a receive that waits for it, with a buffer in one piece; false, and nothing happened, where there is none.
    #[inline(always)]
    fn deliver(&mut self, peer: PeerIdx, eager: &PlainEager, payload: Payload) -> bool {
        let Core { engine, asks, .. } = &mut *self.core;
        let len = payload.len();
        let Some((to, user)) = engine.try_deliver(peer, eager, len, asks, |posted| posted.plain(len)) else {
            return false;
        };
        // SAFETY: the user's buffer, which has so much room and is valid until the receive is told of; a payload never lies in it.
        unsafe { payload.copy_whole(to) };
        let &PlainEager { tag, data, .. } = eager;
        // not past an event that waits to be told
        if !self.core.events.is_empty() || !self.listener.received(user, peer, tag, data, len as u64) {
            tell_by_event(self.core, user, peer, tag, data, len as u64);
        }
        true
    }

    /// The same of a frame that was held, or of which it was not seen at once what it is.
    #[inline(never)]
    fn deliver_any(&mut self, peer: PeerIdx, eager: &PlainEager, payload: Payload) -> bool {
        self.deliver(peer, eager, payload)
    }

    /// A frame of a peer's, by whichever link it came.
    #[inline(never)]
    pub(super) fn accept(&mut self, peer: PeerIdx, link: LinkId, frame: Frame, payload: Payload) {
        let delivered = frame.plain().is_some_and(|eager| self.deliver_any(peer, &eager, payload));
        if !delivered {
            self.direct(peer, link, &frame, payload);
        }
    }

    /// Frames that were held and have their turn now take effect before the next one of this link does: it may be far ahead of
    /// them.
    #[inline]
    fn catch_up(&mut self) {
        if !self.core.held.is_empty() {
            self.core.redeliver();
        }
    }

    /// What was said of a payload when it came in part.
    fn resumed(&mut self, peer: PeerIdx, frame: &Frame, len: usize) -> Option<(Incoming, Span)> {
        self.core.peers[peer.0 as usize].partial.take(frame, len)
    }

    /// A payload that was collected is complete.
    fn finish(&mut self, peer: PeerIdx, link: LinkId, incoming: Incoming, bytes: Owned) {
        // SAFETY: `bytes` lives to the end of this function, or is moved where the payload is not used.
        let payload = unsafe { bytes.payload() };
        match incoming {
            Incoming::Direct(_) => {}
            Incoming::Whole(frame) => self.direct(peer, link, &frame, payload),
            Incoming::Cut(span, after) => {
                self.core.fill(span, payload);
                self.core.engine.placed(peer, after);
            }
            Incoming::Held(seq, frame) => {
                self.hold(peer, link, seq, frame, bytes);
                self.core.redeliver_if_due(peer, seq);
            }
        }
    }

    /// What is to become of a payload that begins now: what was said when it came in part by a lane that ended, or what the
    /// engine says.
    fn incoming(&mut self, peer: PeerIdx, link: LinkId, frame: Frame, len: usize) -> (Incoming, Span) {
        let discard = Span { place: Place::Discard, offset: 0, len };
        if let Some(resumed) = self.resumed(peer, &frame, len) {
            return resumed;
        }
        match frame {
            Frame::Eager { .. } | Frame::Frag { .. } | Frame::Put { .. } | Frame::GetData { .. } => {
                match self.core.engine.on_frame(peer, &frame, len, None) {
                    Directive::Place(span @ Span { place: Place::Stash(stash), .. }, after) => {
                        self.core.make_stash(stash, len);
                        (Incoming::Direct(after), span)
                    }
                    Directive::Place(span, after) if span.len == len => (Incoming::Direct(after), span),
                    Directive::Place(span, after) => (Incoming::Cut(span, after), discard),
                    Directive::Hold(seq) => (Incoming::Held(seq, frame), discard),
                    Directive::Broken(why) => {
                        self.broken(link, why);
                        (Incoming::Direct(After::Nothing), discard)
                    }
                    _ => (Incoming::Direct(After::Nothing), discard),
                }
            }
            other => (Incoming::Whole(other), discard),
        }
    }

    fn operate(&mut self, peer: PeerIdx, operation: &Operation, payload: Payload) {
        let (result, values) = match self.core.atomic_target(operation) {
            Err(status) => (Err(status), Vec::new()),
            Ok(target) => {
                let mut values = Vec::new();
                // SAFETY: `atomic_target` checked that the whole range lies in a region that was registered for this.
                let done = unsafe { atomic::apply(operation.code, target, &payload.to_vec(), &mut values) };
                (done.map(|()| values.len()), values)
            }
        };
        if result.is_ok() {
            let kind = match operation.code.kind {
                AtomicKind::Update => EventKind::RemoteWrite,
                AtomicKind::Fetch | AtomicKind::Compare => EventKind::RemoteRead,
            };
            let event = Event::of(kind, User::default());
            self.core.events.push_back(Event { peer: Some(peer), key: operation.key, ..event });
        }
        if let Some(stash) = self.core.engine.operated(peer, operation, result) {
            self.core.bufs.stashes.put(stash, values.into());
        }
    }
}

impl<L: Listener> Sink for Inbound<'_, L> {
    #[inline]
    fn frame(&mut self, link: LinkId, frame: Frame, payload: Payload) {
        let Some(peer) = self.peer(link) else { return };
        if !self.core.peers[peer.0 as usize].partial.is_empty()
            && let Some((incoming, span)) = self.resumed(peer, &frame, payload.len())
        {
            self.core.asks = true;
            if let Incoming::Direct(after) = incoming {
                self.core.fill(span, payload);
                return self.core.engine.placed(peer, after);
            }
            return self.finish(peer, link, incoming, payload.to_vec().into());
        }
        self.accept(peer, link, frame, payload);
        self.catch_up();
    }

    /// A frame of which a part came before has had its turn, or is held until then: the engine refuses it. None that is held has its turn
    /// with one that found its receive waiting.
    #[inline(always)]
    fn eager(&mut self, link: LinkId, eager: &PlainEager, payload: Payload) -> bool {
        self.peer(link).is_none_or(|peer| self.deliver(peer, eager, payload))
    }

    fn is_read(&mut self, link: LinkId, send: OpId) -> bool {
        self.peer(link).is_some_and(|peer| self.core.engine.is_read_by(peer, send))
    }

    fn begin(&mut self, link: LinkId, frame: Frame, len: usize) -> Span {
        self.core.asks = true;
        let discard = Span { place: Place::Discard, offset: 0, len };
        let Some(peer) = self.peer(link) else { return discard };
        let scratch = scratch_place((self.rail, link));
        let (incoming, place) = self.incoming(peer, link, frame, len);
        let span = if let Incoming::Direct(_) = incoming {
            place
        } else {
            self.core.bufs.scratch.insert(scratch, Owned::zeros(len));
            Span { place: Place::Stash(scratch), offset: 0, len }
        };
        if let Some(info) = self.core.link((self.rail, link)) {
            info.incoming = Some((incoming, frame, len, place));
            info.much = true;
        }
        span
    }

    fn end(&mut self, link: LinkId) {
        self.core.asks = true;
        let Some(info) = self.core.link((self.rail, link)) else { return };
        let peer = info.peer;
        let Some((incoming, ..)) = info.incoming.take() else { return };
        if let Incoming::Direct(after) = incoming {
            self.core.engine.placed(peer, after);
            return self.catch_up();
        }
        let bytes = self.core.bufs.scratch.remove(&scratch_place((self.rail, link))).unwrap_or_default();
        self.finish(peer, link, incoming, bytes);
        self.catch_up();
    }

    fn value(&mut self, link: LinkId, value: &Value<'_>) {
        let Some(peer) = self.peer(link) else { return };
        let now = self.core.clock();
        if let Err(why) = self.core.engine.hear_value(peer, now, value) {
            self.broken(link, why);
        }
    }

    fn down(&mut self, link: LinkId, why: Down) {
        self.core.asks = true;
        self.core.downs.push(((self.rail, link), why));
    }
}

impl Core {
    /// Gives the engine the frames again that were held and have their turn.
    #[cold]
    pub(super) fn redeliver(&mut self) {
        self.asks = true;
        loop {
            while let Some(action) = self.engine.poll_action() {
                self.act(action);
            }
            let Some((peer, seq)) = self.due.pop() else { return };
            if let Some((frame, bytes)) = self.release(peer, seq) {
                // SAFETY: `bytes` outlives the call.
                let payload = unsafe { bytes.payload() };
                // by whichever link it came, that may be gone
                let (rail, link) = self.lane(peer).unwrap_or(NO_LINK);
                Inbound { core: self, rail, listener: &mut Nobody }.accept(peer, link, frame, payload);
                self.redelivered = true;
            }
        }
    }

    /// The address that an atomic works on.
    fn atomic_target(&self, operation: &Operation) -> Result<*mut u8, Status> {
        if !atomic::supported(operation.code) {
            return Err(Status::Unsupported);
        }
        let size = atomic::element_size(operation.code.datatype).ok_or(Status::Unsupported)?;
        let len = size as u64 * u64::from(operation.code.count);
        if operation.code.kind != AtomicKind::Update && len > ATOMIC_MAX as u64 {
            // the answer would not fit into a frame
            return Err(Status::Unsupported);
        }
        let (reads, changes) = (operation.code.kind != AtomicKind::Update, !atomic::is_read(operation.code));
        let wanted = Access { read: reads, write: changes };
        let at = self.engine.regions.check(operation.key, operation.addr, len, wanted)?;
        let region = self.bufs.regions.get(&operation.key).ok_or(Status::Access)?;
        Ok(region.memory.base.wrapping_add(at.offset as usize))
    }
}
