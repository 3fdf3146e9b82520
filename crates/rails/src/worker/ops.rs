//! What users ask of a worker.

use super::buffers::{RegionMemory, User, total};
use super::outbound::{copied, kept, posted};
use super::{Core, EventKind, Issued, Nobody, Refused, Worker};
use crate::rail::RawIov;
use polyrail_core::frame::{AtomicCode, AtomicKind, Frame, Matching, OpId, PlainEager, RemoteAddr};
use polyrail_core::proto::{
    Access, Delivery, Envelope, Filter, KeyTaken, Message, PartSpec, PeerIdx, Registered, RmaKind,
};
use std::time::Instant;

/// Longest payload that is sent without an operation to remember, because the rail copies what it cannot send at once.
const SHORT: u64 = 8 << 10;
/// Longest message of which [`Worker::try_inject`] may be compiled into its caller: a slot of shared memory and its annex have room for it. Longer ones are
/// copied by a call of its own, for which callers would save what they need afterwards, for all.
pub const AT_ONCE_MAX: usize = crate::primitive::SHORT;
/// Longest message that [`Worker::inject`] takes, in bytes.
pub const INJECT_MAX: usize = 16 << 10;
/// Most bytes of operands and comparands together, and of results, that an atomic operation may have.
pub const ATOMIC_MAX: usize = 16 << 10;
/// Longest message that waits for credit before it goes another way, in bytes.
const PATIENT: u64 = 2 << 10;
/// How many operations may wait for one peer before the caller is told to come again.
const QUEUE_MAX: usize = 4096;

impl Worker {
    /// [`Worker::inject`] of a tagged message from one piece of memory if that takes no more than a few words, as it mostly does in shared
    /// memory. False: nothing has happened.
    ///
    /// # Safety
    /// The memory of `piece` is readable.
    #[inline(always)]
    pub unsafe fn try_inject(&mut self, to: PeerIdx, tag: u64, data: Option<u64>, piece: RawIov) -> bool {
        let Self { core: Core { engine, peers, .. }, rails, .. } = self;
        let len = piece.len as u64;
        let short = &peers[to.0 as usize].short;
        // where somebody counts, or there is a choice, it takes more
        let (u32::MAX, Some(lane)) = (short.budget, short.lane) else { return false };
        let Some(going) = engine.try_eager(to, len, Delivery::Sent) else { return false };
        let eager = PlainEager { order: going.order(), tag, data };
        // SAFETY: readable, by our caller's word; the rail keeps no address.
        let sent = unsafe { rails.try_eager(lane, eager, piece) };
        if sent {
            going.sent();
        }
        sent
    }

    /// [`Worker::inject`] of a tagged message from one piece of memory, if a rail takes it now, by whichever way. False: nothing has happened.
    ///
    /// # Safety
    /// The memory of `piece` is readable.
    #[inline(never)]
    pub unsafe fn inject_now(&mut self, to: PeerIdx, tag: u64, data: Option<u64>, piece: RawIov) -> bool {
        let (matching, len) = (Matching::Tag(tag), piece.len as u64);
        let message = Message { matching, data, len, delivery: Delivery::Sent };
        // SAFETY: our caller's word.
        unsafe {
            let copied = piece.len > AT_ONCE_MAX && self.try_inject(to, tag, data, piece);
            copied || (len <= SHORT && self.send_now(to, &message, &[piece]))
        }
    }

    /// Sends a message if it can leave at once, leaving nothing to remember; its lane is thought over if it is time.
    ///
    /// # Safety
    /// As [`Worker::send`].
    unsafe fn send_now(&mut self, to: PeerIdx, message: &Message, iov: &[RawIov]) -> bool {
        let &Message { matching, data, len, delivery } = message;
        if self.core.engine.try_eager(to, len, delivery).is_none() {
            return false;
        }
        let Some(lane) = self.lane_for(to, len) else { return false };
        let Some(going) = self.core.engine.try_eager(to, len, delivery) else { return false };
        let frame = Frame::Eager { order: going.order(), matching, data, ack: None };
        // SAFETY: readable, by our caller's word; without a span the rail keeps no address.
        let sent = unsafe { self.rails.send(lane, &frame.encode(len as usize), iov, None) }.is_ok();
        if sent {
            going.sent();
        }
        sent
    }

    /// Sends a message. `Done`: the memory may be reused and no event follows; else an event of kind `Send` follows.
    ///
    /// # Errors
    /// [`Refused::Again`] when too much waits for this peer.
    ///
    /// # Safety
    /// The memory at `iov` stays readable and unchanged until the event.
    #[inline(always)]
    pub unsafe fn send(
        &mut self,
        to: PeerIdx,
        matching: Matching,
        data: Option<u64>,
        delivery: Delivery,
        iov: &[RawIov],
        user: User,
    ) -> Result<Issued, Refused> {
        // SAFETY: our caller's word.
        unsafe {
            if delivery == Delivery::Sent && self.goes_at_once(to, matching, data, iov) {
                return Ok(Issued::Done);
            }
            self.send_any(to, Message { matching, data, len: total(iov), delivery }, iov, user)
        }
    }

    /// [`Worker::try_inject`] of what may be for it.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn goes_at_once(
        &mut self,
        to: PeerIdx,
        matching: Matching,
        data: Option<u64>,
        iov: &[RawIov],
    ) -> bool {
        match (matching, iov) {
            // SAFETY: our caller's word.
            (Matching::Tag(tag), &[piece]) => unsafe { self.try_inject(to, tag, data, piece) },
            _ => false,
        }
    }

    /// # Safety
    /// As [`Worker::send`].
    #[inline(never)]
    unsafe fn send_any(
        &mut self,
        to: PeerIdx,
        message: Message,
        iov: &[RawIov],
        user: User,
    ) -> Result<Issued, Refused> {
        // SAFETY: our caller's word.
        if message.len <= SHORT && unsafe { self.send_or_hear(to, &message, iov) } {
            return Ok(Issued::Done);
        }
        self.room_for(to)?;
        let op = self.core.engine.send(to, message);
        self.core.bufs.sends.put(op, kept(iov, user));
        self.start(to);
        Ok(Issued::Pending(op))
    }

    /// Sends a message if it can leave at once, or can once what came is heard.
    ///
    /// # Safety
    /// As [`Worker::send`].
    unsafe fn send_or_hear(&mut self, to: PeerIdx, message: &Message, iov: &[RawIov]) -> bool {
        // SAFETY: our caller's word.
        unsafe {
            self.send_now(to, message, iov)
                || (self.hears_of_credit(to, message.len) && self.send_now(to, message, iov))
        }
    }

    /// Sends a message of at most [`INJECT_MAX`] bytes; the memory may be reused on return and no event follows.
    ///
    /// # Errors
    /// [`Refused::Again`] when there is no room, or no connection yet, or when the peer keeps up no longer: make progress and try again. [`Refused::Gone`] when
    /// the peer cannot be reached.
    ///
    /// # Safety
    /// The memory at `iov` is readable.
    #[inline(always)]
    pub unsafe fn inject(
        &mut self,
        to: PeerIdx,
        matching: Matching,
        data: Option<u64>,
        iov: &[RawIov],
    ) -> Result<(), Refused> {
        // SAFETY: our caller's word.
        unsafe {
            if self.goes_at_once(to, matching, data, iov) {
                return Ok(());
            }
            self.inject_any(to, matching, data, iov)
        }
    }

    /// # Safety
    /// The memory at `iov` is readable.
    #[inline(never)]
    unsafe fn inject_any(
        &mut self,
        to: PeerIdx,
        matching: Matching,
        data: Option<u64>,
        iov: &[RawIov],
    ) -> Result<(), Refused> {
        if !self.core.engine.is_connected(to) {
            self.connect(to)?;
            return Err(Refused::Again);
        }
        let message = Message { matching, data, len: total(iov), delivery: Delivery::Sent };
        // SAFETY: our caller's word.
        if unsafe { self.send_or_hear(to, &message, iov) } {
            return Ok(());
        }
        self.room_for(to)?;
        self.may_copy(to, message.len)?;
        // no credit, or something waits before it: a copy waits too, so that order and the caller's time are kept
        let op = self.core.engine.send(to, message);
        // SAFETY: our caller's word.
        let buf = unsafe { self.core.bufs.copied(iov, User { context: 0, flags: Self::SILENT }) };
        self.core.bufs.sends.put(op, buf);
        self.settle();
        Ok(())
    }

    /// Posts a receive; an event of kind `Recv` ends it.
    ///
    /// # Safety
    /// The memory at `iov` stays writable, and nobody else's, until the event.
    #[inline(always)]
    pub unsafe fn recv(&mut self, filter: Filter, iov: &[RawIov], user: User) {
        let at_once = match iov {
            // SAFETY: our caller's word.
            &[piece] => unsafe { self.try_recv(filter, piece, user) },
            _ => false,
        };
        if at_once {
            return;
        }
        if self.core.engine.post_with(filter, || posted(iov, user)) {
            self.settle();
        }
    }

    /// [`Worker::recv`] into one piece of memory if that takes no more than a few words, which it mostly does. False: nothing has happened.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub unsafe fn try_recv(&mut self, filter: Filter, piece: RawIov, user: User) -> bool {
        self.core.engine.try_post(filter, || posted(&[piece], user))
    }

    /// Posts a buffer for any number of untagged messages; each gives an event with its offset, the last of them is marked
    /// `released`: less than `least` bytes were left.
    ///
    /// # Safety
    /// As [`Worker::recv`].
    pub unsafe fn recv_multi(&mut self, source: Option<PeerIdx>, buffer: RawIov, least: u64, user: User) {
        self.core.engine.post_multi(source, least, posted(&[buffer], user));
        self.settle();
    }

    /// Takes the earliest posted receive back of which `is` says so, of tagged ones before untagged; true: an event with
    /// [`Failure::Cancelled`](polyrail_core::proto::Failure) follows. Looks at every receive that is posted.
    pub fn cancel(&mut self, is: impl Fn(&User) -> bool) -> bool {
        let cancelled = self.core.engine.cancel(|posted| is(&posted.user));
        self.settle();
        cancelled
    }

    /// The first unexpected message that a receive would take, and its name for [`Worker::claim`].
    pub fn peek(&mut self, filter: &Filter) -> Option<(OpId, Envelope)> {
        self.core.engine.peek(filter)
    }

    /// Reserves a message that [`Worker::peek`] showed: no receive matches it any more.
    pub fn claim(&mut self, message: OpId) {
        self.core.engine.claim(message);
    }

    /// Receives a claimed message.
    ///
    /// # Safety
    /// As [`Worker::recv`].
    pub unsafe fn recv_claimed(&mut self, message: OpId, iov: &[RawIov], user: User) {
        self.core.engine.recv_claimed(message, posted(iov, user));
        self.settle();
    }

    /// Throws a claimed message away.
    pub fn discard(&mut self, message: OpId) {
        self.core.engine.discard(message);
        self.settle();
    }

    /// Writes to a peer's registered memory. An event of kind `Put` follows once the bytes are there. With `inject` the
    /// memory at `iov` may be reused on return.
    ///
    /// # Errors
    /// [`Refused::Again`] when too much waits for this peer.
    ///
    /// # Safety
    /// The memory at `iov` stays readable and unchanged until the event (without `inject`).
    pub unsafe fn put(
        &mut self,
        to: PeerIdx,
        iov: &[RawIov],
        at: &[PartSpec],
        data: Option<u64>,
        inject: bool,
        user: User,
    ) -> Result<Issued, Refused> {
        self.room_for(to)?;
        // SAFETY: our caller's word.
        let buf = if inject { unsafe { copied(iov, &[], user) } } else { kept(iov, user) };
        Ok(self.begin_rma(to, RmaKind::Put(data), at, EventKind::Put, buf))
    }

    /// Reads a peer's registered memory. An event of kind `Get` follows once the bytes are here.
    ///
    /// # Errors
    /// [`Refused::Again`] when too much waits for this peer.
    ///
    /// # Safety
    /// The memory at `iov` stays writable, and nobody else's, until the event.
    pub unsafe fn get(
        &mut self,
        to: PeerIdx,
        iov: &[RawIov],
        at: &[PartSpec],
        user: User,
    ) -> Result<Issued, Refused> {
        self.room_for(to)?;
        Ok(self.begin_rma(to, RmaKind::Get, at, EventKind::Get, kept(iov, user)))
    }

    /// An atomic operation on a peer's registered memory. An event of kind `Atomic` follows.
    ///
    /// # Errors
    /// [`Refused::Again`] when too much waits for this peer.
    ///
    /// # Panics
    /// When operands and comparands are more than [`ATOMIC_MAX`] bytes.
    ///
    /// # Safety
    /// `operands` and `compare` are readable now; `result` stays writable, and nobody else's, until the event.
    #[allow(clippy::too_many_arguments, reason = "the operands of fi_atomic(3), no more")]
    pub unsafe fn atomic(
        &mut self,
        to: PeerIdx,
        code: AtomicCode,
        at: RemoteAddr,
        operands: &[RawIov],
        compare: &[RawIov],
        result: &[RawIov],
        user: User,
    ) -> Result<Issued, Refused> {
        self.room_for(to)?;
        let sent: Vec<_> = operands.iter().chain(compare).copied().collect();
        assert!(total(&sent) <= ATOMIC_MAX as u64, "an atomic operation with {} bytes", total(&sent));
        let kind = RmaKind::Atomic { code, operands: total(&sent) as u32 };
        let len = if code.kind == AtomicKind::Update { 0 } else { total(result) };
        // SAFETY: our caller's word.
        let buf = unsafe { copied(&sent, result, user) };
        Ok(self.begin_rma(to, kind, &[PartSpec { at, len }], EventKind::Atomic, buf))
    }

    fn begin_rma(
        &mut self,
        to: PeerIdx,
        kind: RmaKind,
        at: &[PartSpec],
        event: EventKind,
        buf: super::buffers::Buf,
    ) -> Issued {
        let op = self.core.engine.rma(to, kind, at);
        self.core.bufs.rmas.put(op, (buf, event));
        self.start(to);
        Issued::Pending(op)
    }

    /// Lets peers reach memory under a key: they name bytes by offset (`base` 0) or by address (`base` the address).
    ///
    /// # Errors
    /// [`KeyTaken`].
    ///
    /// # Safety
    /// The memory stays valid until [`Worker::deregister`]; peers change it at any time during progress.
    pub unsafe fn register(
        &mut self,
        key: u64,
        memory: RawIov,
        base: u64,
        access: Access,
    ) -> Result<(), KeyTaken> {
        let registered = Registered { base, len: memory.len as u64, access };
        let generation = self.core.engine.regions.insert(key, registered)?;
        self.core.bufs.regions.insert(key, RegionMemory { generation, memory, base });
        Ok(())
    }

    /// Ends a registration: what peers ask of it from now on is refused, and what they are in the middle of comes to
    /// nothing.
    pub fn deregister(&mut self, key: u64) {
        self.core.engine.regions.remove(key);
        self.core.bufs.regions.remove(&key);
    }

    /// Looks whether memory has word of credit, where that is what a message lacks; whether anything came. Who only sends would never hear
    /// of any, and send all else the long way. While messages wait, most do not look: the peer is slow.
    fn hears_of_credit(&mut self, to: PeerIdx, len: u64) -> bool {
        const SELDOM: usize = 64;
        let engine = &self.core.engine;
        let looks = engine.queued(to).is_multiple_of(SELDOM) && engine.lacks_credit(to, len);
        let came = looks && self.look_in_memory(&mut Nobody) > 0;
        if came {
            // an operation that has ended is still named by its memory: the next one might get its place
            self.settle();
        }
        came
    }

    fn room_for(&mut self, to: PeerIdx) -> Result<(), Refused> {
        if self.core.engine.queued(to) >= QUEUE_MAX { Err(Refused::Again) } else { Ok(()) }
    }

    /// Whether a message that cannot leave at once may be copied, and then it is.
    fn may_copy(&mut self, to: PeerIdx, len: u64) -> Result<(), Refused> {
        let Core { engine, peers, .. } = &mut self.core;
        // credit for longer ones may come in smaller pieces, which others take
        let lacks = (len <= PATIENT && engine.lacks_credit(to, len)).then(|| engine.credit_returned(to));
        let now = Instant::now();
        if peers[to.0 as usize].pace.may_copy(self.rounds, lacks, now) {
            return Ok(());
        }
        self.refused = Some(now);
        Err(Refused::Again)
    }

    /// After an operation was queued: connects on first use, and sends what can be sent.
    fn start(&mut self, to: PeerIdx) {
        if !self.core.engine.is_connected(to) && self.connect(to).is_err() {
            // unreachable, and known to be: the operation ends with an error event
            self.core.engine.peer_down(to);
        }
        self.settle();
    }
}
