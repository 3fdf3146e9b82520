//! Sending and receiving messages, tagged or not.

use std::ffi::{c_int, c_void};

use libc::iovec;
use polyrail_core::frame::Matching;
use polyrail_core::proto::{Delivery, Envelope, Filter, PeerIdx};
use polyrail_rails::rail::RawIov;
use polyrail_rails::{AT_ONCE_MAX, Issued, Refused, User, Worker};

use super::{EpMember, is_busy};
use crate::domain::Domain;
use crate::error;
use crate::ffi::*;
use crate::limits::{IOV_LIMIT, LONG};
use crate::log::log;
use crate::state::Sinks;
use crate::state::completion::{Class, Entry, Fault, mark};
use crate::state::cq::Cq;
use crate::state::endpoint::{Endpoint, Extra};

/// Flags that none of our operations knows.
const STRANGE: u64 = FI_FENCE | FI_TRIGGER | FI_COMMIT_COMPLETE | SOON;

/// A message to be sent.
#[derive(Clone, Copy)]
pub(super) struct Send<'a> {
    pub to: fi_addr_t,
    pub matching: Matching,
    pub data: Option<u64>,
    pub iov: &'a [RawIov],
    pub flags: u64,
    pub context: *mut c_void,
}

/// A receive to be posted.
#[derive(Clone, Copy)]
pub(super) struct Recv<'a> {
    pub from: fi_addr_t,
    pub matching: Matching,
    pub ignore: u64,
    pub iov: &'a [RawIov],
    pub flags: u64,
    pub context: *mut c_void,
}

/// One piece of memory.
pub(super) fn piece(buf: *const c_void, len: usize) -> [RawIov; 1] {
    [RawIov { base: buf.cast_mut().cast(), len }]
}

const _: () = {
    assert!(size_of::<RawIov>() == size_of::<iovec>());
    assert!(std::mem::offset_of!(RawIov, len) == std::mem::offset_of!(iovec, iov_len));
};

/// C's pieces of memory, as ours.
///
/// # Errors
/// -FI_EINVAL if there are too many.
///
/// # Safety
/// `iov` has `count` entries, if any.
#[inline]
pub(super) unsafe fn pieces<'a>(iov: *const iovec, count: usize) -> Result<&'a [RawIov], c_int> {
    match count {
        0 => Ok(&[]),
        // SAFETY: by the caller's promise; the types have the same layout.
        1..=IOV_LIMIT if !iov.is_null() => Ok(unsafe { std::slice::from_raw_parts(iov.cast(), count) }),
        _ => Err(-FI_EINVAL),
    }
}

/// Bytes in all pieces.
#[inline]
pub(super) fn total(iov: &[RawIov]) -> usize {
    iov.iter().map(|piece| piece.len).sum()
}

/// The application's context as a number, which is what comes back.
#[inline]
pub(super) fn number(context: *mut c_void) -> u64 {
    context.expose_provenance() as u64
}

/// Refuses flags that change what an operation means and that we do not know.
#[inline]
pub(super) fn check(flags: u64) -> Result<(), c_int> {
    if flags & STRANGE == 0 { Ok(()) } else { Err(-FI_EBADFLAGS) }
}

/// Flags of operations that complete later than when their bytes are on their way.
const LATE: u64 = FI_MATCH_COMPLETE | FI_DELIVERY_COMPLETE | FI_TRANSMIT_COMPLETE | SOON;
/// No flag of libfabric's: the endpoint wants late completions of all that it does, and of messages that is not taken at its word.
const SOON: u64 = 1 << 63;

/// What an endpoint's flags are for its messages.
pub(super) fn of_all(flags: u64, domain: &Domain) -> u64 {
    const ASKED: u64 = FI_DELIVERY_COMPLETE | FI_TRANSMIT_COMPLETE;
    if flags & ASKED == 0 || domain.is.config.delivery { flags } else { flags & !ASKED | SOON }
}

fn delivery(flags: u64) -> Delivery {
    match flags & LATE {
        0 => Delivery::Sent,
        SOON => Delivery::Soon,
        late if late & FI_MATCH_COMPLETE != 0 => Delivery::Matched,
        _ => Delivery::Delivered,
    }
}

/// The mark of an operation of so many bytes.
#[inline(always)]
pub(super) fn long(bytes: usize) -> u64 {
    if bytes > LONG { mark::LONG } else { 0 }
}

/// An entry with what is known of a message that has not been received.
fn described(mut entry: Entry, ep: usize, envelope: &Envelope) -> Entry {
    entry.len = envelope.len;
    entry.source = Entry::source(ep, envelope.from);
    if let Matching::Tag(tag) = envelope.matching {
        entry.tag = tag;
    }
    if let Some(data) = envelope.data {
        entry.data = data;
        entry.flags |= FI_REMOTE_CQ_DATA;
    }
    entry
}

impl Endpoint {
    /// The worker of an endpoint that is enabled, as it is in all data calls.
    #[inline(always)]
    pub(super) fn at_work(&mut self) -> &mut Worker {
        debug_assert!(self.enabled && self.worker.is_some());
        // SAFETY: `enable` opens it first, and it is there as long as the endpoint.
        unsafe { self.worker.as_mut().unwrap_unchecked() }
    }

    /// What a refusal is for C.
    #[cold]
    pub(super) fn refused(&mut self, why: Refused, to: PeerIdx) -> c_int {
        match why {
            Refused::Again => -FI_EAGAIN,
            Refused::Gone => {
                let reason = self.why_gone(to).unwrap_or("the peer is gone");
                log!(FI_LOG_WARN, FI_LOG_EP_DATA, "{reason}");
                -FI_ENOTCONN
            }
        }
    }

    /// Sends a message. With `FI_INJECT` in its flags the memory may be reused at once.
    ///
    /// # Safety
    /// The memory stays readable and unchanged until the completion, or during the call with `FI_INJECT`.
    #[inline(always)]
    unsafe fn send(&mut self, s: Send<'_>, sinks: &mut Sinks<'_>) -> Result<(), c_int> {
        let peer = self.peer(s.to, sinks.avs)?;
        let (kind, most) = match s.matching {
            Matching::Tag(_) => (FI_SEND | FI_TAGGED, self.limits.tagged),
            Matching::Message => (FI_SEND | FI_MSG, self.limits.msg),
        };
        let marks = kind | s.flags & mark::WANTED;
        let delivery = delivery(s.flags);
        if s.flags & FI_INJECT != 0 {
            if marks & mark::WANTED != 0 && delivery > Delivery::Sent {
                // SAFETY: by the caller's promise.
                return unsafe { self.send_copy(peer, &s, marks, delivery) };
            }
            // SAFETY: by the caller's promise.
            return unsafe { self.inject(peer, s, marks, sinks) };
        }
        let bytes = total(s.iov);
        if bytes > most {
            return Err(-FI_EMSGSIZE);
        }
        let user = User { context: number(s.context), flags: marks | long(bytes) };
        // SAFETY: by the caller's promise.
        match unsafe { self.at_work().send(peer, s.matching, s.data, delivery, s.iov, user) } {
            Ok(Issued::Done) => self.done(Class::Send, user.context, marks, sinks),
            Ok(Issued::Pending(_)) => self.begins(bytes),
            Err(why) => return Err(self.refused(why, peer)),
        }
        Ok(())
    }

    /// # Safety
    /// The memory is readable during the call.
    #[inline(always)]
    unsafe fn inject(
        &mut self,
        peer: PeerIdx,
        s: Send<'_>,
        marks: u64,
        sinks: &mut Sinks<'_>,
    ) -> Result<(), c_int> {
        self.may_inject(&s)?;
        // SAFETY: by the caller's promise.
        match unsafe { self.at_work().inject(peer, s.matching, s.data, s.iov) } {
            Ok(()) => self.done(Class::Send, number(s.context), marks, sinks),
            Err(why) => return Err(self.refused(why, peer)),
        }
        Ok(())
    }

    /// Whether a message is short enough for that.
    #[inline(always)]
    fn may_inject(&self, s: &Send<'_>) -> Result<(), c_int> {
        let most = match s.matching {
            Matching::Tag(_) => self.limits.inject_tagged,
            Matching::Message => self.limits.inject_msg,
        };
        if total(s.iov) > most { Err(-FI_EMSGSIZE) } else { Ok(()) }
    }

    /// Injects without a completion.
    ///
    /// # Safety
    /// The memory is readable during the call.
    #[inline(always)]
    unsafe fn inject_silently(&mut self, s: Send<'_>, sinks: &mut Sinks<'_>) -> Result<(), c_int> {
        let peer = self.peer(s.to, sinks.avs)?;
        // SAFETY: by the caller's promise.
        unsafe { self.inject(peer, s, 0, sinks) }
    }

    /// Injects, but tells when the message has arrived: a copy waits for that.
    ///
    /// # Safety
    /// The memory is readable during the call.
    #[cold]
    unsafe fn send_copy(
        &mut self,
        to: PeerIdx,
        s: &Send<'_>,
        marks: u64,
        delivery: Delivery,
    ) -> Result<(), c_int> {
        self.may_inject(s)?;
        let &Send { matching, data, iov, context, .. } = s;
        let mut copy = Vec::with_capacity(total(iov));
        for piece in iov.iter().filter(|piece| piece.len > 0) {
            // SAFETY: by the caller's promise.
            copy.extend_from_slice(unsafe { std::slice::from_raw_parts(piece.base, piece.len) });
        }
        let mut copy = copy.into_boxed_slice();
        let iov = [RawIov { base: copy.as_mut_ptr(), len: copy.len() }];
        let extra = self.extras.insert(Extra { context: number(context), base: 0, _copy: Some(copy) }).number;
        let user = User { context: extra as u64, flags: marks | mark::EXTRA };
        // SAFETY: the copy lives until the event takes it away.
        let issued = unsafe { self.at_work().send(to, matching, data, delivery, &iov, user) };
        issued.map(|_| ()).map_err(|why| {
            self.extras.remove(extra);
            self.refused(why, to)
        })
    }

    /// Posts a receive.
    ///
    /// # Safety
    /// The memory stays writable, and nobody else's, until the completion.
    #[inline(always)]
    unsafe fn recv(&mut self, r: Recv<'_>, sinks: &mut Sinks<'_>) -> Result<(), c_int> {
        let (kind, directed) = match r.matching {
            Matching::Tag(_) => (FI_RECV | FI_TAGGED, self.directed_tagged),
            Matching::Message => (FI_RECV | FI_MSG, self.directed),
        };
        let source = match directed && r.from != FI_ADDR_UNSPEC {
            true => Some(self.peer(r.from, sinks.avs)?),
            false => None,
        };
        let mut user = User { context: number(r.context), flags: kind | r.flags & mark::WANTED };
        // it says nothing of tagged ones
        if r.matching == Matching::Message && r.flags & FI_MULTI_RECV != 0 {
            let [buffer] = r.iov else { return Err(-FI_EINVAL) };
            let base = buffer.base.expose_provenance() as u64;
            let extra = self.extras.insert(Extra { context: user.context, base, _copy: None }).number;
            user = User { context: extra as u64, flags: user.flags | mark::EXTRA };
            let least = self.least_multi;
            // SAFETY: by the caller's promise.
            unsafe { self.at_work().recv_multi(source, *buffer, least, user) }
        } else {
            let filter = Filter { source, matching: r.matching, ignore: r.ignore };
            let bytes = total(r.iov);
            user.flags |= long(bytes);
            self.begins(bytes);
            // SAFETY: by the caller's promise.
            unsafe { self.at_work().recv(filter, r.iov, user) }
        }
        Ok(())
    }

    /// `FI_PEEK`: whether a message is there; with `FI_CLAIM` it is kept for later, with `FI_DISCARD` thrown away. The answer
    /// is a completion, of one kind or the other. There was progress before.
    fn peek(&mut self, ep: usize, r: &Recv<'_>, sinks: &mut Sinks<'_>) -> Result<(), c_int> {
        let (kind, directed) = match r.matching {
            Matching::Tag(_) => (FI_RECV | FI_TAGGED, self.directed_tagged),
            Matching::Message => (FI_RECV | FI_MSG, self.directed),
        };
        let source = match directed && r.from != FI_ADDR_UNSPEC {
            true => Some(self.peer(r.from, sinks.avs)?),
            false => None,
        };
        let filter = Filter { source, matching: r.matching, ignore: r.ignore };
        let mut entry = Entry { context: number(r.context), flags: kind, ..Entry::default() };
        let worker = self.worker()?;
        let Some((message, envelope)) = worker.peek(&filter) else {
            if let Matching::Tag(tag) = r.matching {
                entry.tag = tag;
            }
            let fault = Fault { entry, ..Fault::new(error::no_message()) };
            if let Some(cq) = self.rx_cq {
                sinks.cqs[cq].push_fault(fault);
            }
            return Ok(());
        };
        if r.flags & (FI_CLAIM | FI_DISCARD) != 0 {
            worker.claim(message);
        }
        if r.flags & FI_DISCARD != 0 {
            worker.discard(message);
        } else if r.flags & FI_CLAIM != 0 {
            self.claims.insert(entry.context, (message, envelope));
        }
        self.push(Class::Recv, described(entry, ep, &envelope), sinks);
        Ok(())
    }

    /// `FI_CLAIM` without `FI_PEEK`: receives, or throws away, what was claimed under this context.
    ///
    /// # Safety
    /// As for [`Endpoint::recv`].
    unsafe fn claimed(&mut self, ep: usize, r: &Recv<'_>, sinks: &mut Sinks<'_>) -> Result<(), c_int> {
        let context = number(r.context);
        let (message, envelope) = self.claims.remove(&context).ok_or(-FI_EINVAL)?;
        let kind = if r.matching == Matching::Message { FI_MSG } else { FI_TAGGED };
        if r.flags & FI_DISCARD != 0 {
            self.worker()?.discard(message);
            let entry = Entry { context, flags: FI_RECV | kind, ..Entry::default() };
            self.push(Class::Recv, described(entry, ep, &envelope), sinks);
            return Ok(());
        }
        let bytes = total(r.iov);
        let user = User { context, flags: FI_RECV | kind | r.flags & mark::WANTED | long(bytes) };
        // SAFETY: by the caller's promise.
        unsafe { self.worker()?.recv_claimed(message, r.iov, user) };
        self.begins(bytes);
        Ok(())
    }
}

/// What is inlined here is what small messages cost: the plain calls know at compile time most of what is asked below.
impl EpMember {
    /// # Safety
    /// As for [`Endpoint::send`].
    #[inline(always)]
    pub(super) unsafe fn send(&self, mut s: Send<'_>) -> isize {
        let mut state = self.member.lock();
        let (endpoint, mut sinks) = match self.enter(&mut state) {
            Ok(both) => both,
            Err(code) => return code,
        };
        s.flags |= endpoint.tx_always;
        // SAFETY: by the caller's promise.
        let result = unsafe { endpoint.send(s, &mut sinks) };
        let busy = is_busy(endpoint, &sinks);
        self.leave(state, result, busy)
    }

    /// Sends a tagged message, with the flags of the endpoint and a completion, or injects it, without, if that takes no more than a few words
    /// of memory, as it mostly does in shared memory. False: nothing has happened.
    ///
    /// # Safety
    /// As for [`Endpoint::send`].
    #[inline(always)]
    unsafe fn send_at_once(
        &self,
        to: fi_addr_t,
        tag: u64,
        data: Option<u64>,
        [piece]: [RawIov; 1],
        told: Option<*mut c_void>,
    ) -> bool {
        if piece.len > AT_ONCE_MAX {
            return false;
        }
        let Some(mut state) = self.member.domain.at_once() else { return false };
        let Ok((endpoint, mut sinks)) = self.enter(&mut state) else { return false };
        let Some((peer, cq)) = self.plain_send(endpoint, &mut sinks, to, piece.len, told) else {
            return false;
        };
        // SAFETY: by the caller's promise.
        let sent = unsafe { endpoint.at_work().try_inject(peer, tag, data, piece) };
        if sent && let (Some(cq), Some(context)) = (cq, told) {
            // SAFETY: it was asked above, and nothing has come to it since.
            unsafe { cq.push_sent(number(context), FI_SEND | FI_TAGGED) };
        }
        sent
    }

    /// The same if a rail takes it now, by whichever way.
    ///
    /// # Safety
    /// As for [`Endpoint::send`].
    #[inline(never)]
    unsafe fn send_now(
        &self,
        to: fi_addr_t,
        tag: u64,
        data: Option<u64>,
        [piece]: [RawIov; 1],
        told: Option<*mut c_void>,
    ) -> bool {
        let mut state = self.member.lock();
        let Ok((endpoint, mut sinks)) = self.enter(&mut state) else { return false };
        let Some((peer, cq)) = self.plain_send(endpoint, &mut sinks, to, piece.len, told) else {
            return false;
        };
        // SAFETY: by the caller's promise.
        let sent = unsafe { endpoint.at_work().inject_now(peer, tag, data, piece) };
        if sent && let (Some(cq), Some(context)) = (cq, told) {
            // SAFETY: it was asked above, and nothing has come to it since.
            unsafe { cq.push_sent(number(context), FI_SEND | FI_TAGGED) };
        }
        let busy = endpoint.at_work().holds_back();
        self.leave(state, Ok(()), busy);
        sent
    }

    /// Of a tagged message of `len` bytes, to be `told` of or not, if nobody has to hear of it but a queue that has room: whom it is for, and
    /// this queue, if it is to hear.
    #[inline(always)]
    fn plain_send<'a>(
        &self,
        endpoint: &Endpoint,
        sinks: &'a mut Sinks<'_>,
        to: fi_addr_t,
        len: usize,
        told: Option<*mut c_void>,
    ) -> Option<(PeerIdx, Option<&'a mut Cq>)> {
        let peer = endpoint.known_peer(to)?;
        if endpoint.counter[Class::Send as usize].is_some() || sinks.awaited.any() {
            return None;
        }
        let (flags, most) = match told {
            Some(_) => (self.message_flags() | endpoint.tx_always, endpoint.limits.tagged),
            None => (0, endpoint.limits.inject_tagged),
        };
        if flags & (FI_INJECT | LATE) != 0 || len > most {
            return None;
        }
        let wanted = flags & mark::WANTED != 0;
        let cq = endpoint.tx_cq.filter(|_| wanted).map(|cq| &mut sinks.cqs[cq]);
        match cq {
            Some(cq) if !cq.is_ready() => None,
            cq => Some((peer, cq)),
        }
    }

    /// The same whatever it takes.
    ///
    /// # Safety
    /// As for [`Endpoint::send`].
    #[inline(never)]
    pub(super) unsafe fn send_piece(
        &self,
        to: fi_addr_t,
        tag: u64,
        data: Option<u64>,
        piece: [RawIov; 1],
        told: Option<*mut c_void>,
    ) -> isize {
        let matching = Matching::Tag(tag);
        let iov = &piece;
        // SAFETY: by the caller's promise.
        unsafe {
            match told {
                Some(context) => {
                    self.send(Send { to, matching, data, iov, flags: self.message_flags(), context })
                }
                None => {
                    let context = std::ptr::null_mut();
                    self.inject(Send { to, matching, data, iov, flags: FI_INJECT, context })
                }
            }
        }
    }

    /// The same, by the shortest way that is open.
    ///
    /// # Safety
    /// As for [`Endpoint::send`].
    #[inline(always)]
    pub(super) unsafe fn send_plain(
        &self,
        to: fi_addr_t,
        tag: u64,
        data: Option<u64>,
        piece: [RawIov; 1],
        told: Option<*mut c_void>,
    ) -> isize {
        // SAFETY: by the caller's promise.
        unsafe {
            if self.send_at_once(to, tag, data, piece, told) || self.send_now(to, tag, data, piece, told) {
                return 0;
            }
            self.send_piece(to, tag, data, piece, told)
        }
    }

    /// [`EpMember::send`] for all but the plain calls.
    ///
    /// # Safety
    /// As for [`Endpoint::send`].
    #[inline(never)]
    pub(super) unsafe fn send_any(&self, s: Send<'_>) -> isize {
        // SAFETY: by the caller's promise.
        unsafe { self.send(s) }
    }

    /// Sends without a completion.
    ///
    /// # Safety
    /// The memory is readable during the call.
    #[inline(always)]
    pub(super) unsafe fn inject(&self, s: Send<'_>) -> isize {
        let mut state = self.member.lock();
        let (endpoint, mut sinks) = match self.enter(&mut state) {
            Ok(both) => both,
            Err(code) => return code,
        };
        // SAFETY: by the caller's promise.
        let result = unsafe { endpoint.inject_silently(s, &mut sinks) };
        let busy = is_busy(endpoint, &sinks);
        self.leave(state, result, busy)
    }

    /// Posts a receive of a tagged message with the flags of the endpoint if that takes no more than a few words, as it mostly does. False:
    /// nothing has happened. Nobody who sleeps need hear of it: nothing is to be done for a receive that no message waits for.
    ///
    /// # Safety
    /// As for [`Endpoint::recv`].
    #[inline(always)]
    pub(super) unsafe fn recv_at_once(
        &self,
        from: fi_addr_t,
        tag: u64,
        ignore: u64,
        [piece]: [RawIov; 1],
        context: *mut c_void,
    ) -> bool {
        let Some(mut state) = self.member.domain.at_once() else { return false };
        let Ok((endpoint, _)) = self.enter(&mut state) else { return false };
        if endpoint.rx_cq.is_none() || piece.len > LONG {
            return false;
        }
        let mut source = None;
        if endpoint.directed_tagged && from != FI_ADDR_UNSPEC {
            source = endpoint.known_peer(from);
            if source.is_none() {
                return false;
            }
        }
        let wanted = (self.rx_flags() | endpoint.rx_always) & mark::WANTED;
        let user = User { context: number(context), flags: FI_RECV | FI_TAGGED | wanted };
        let filter = Filter { source, matching: Matching::Tag(tag), ignore };
        // SAFETY: by the caller's promise.
        unsafe { endpoint.at_work().try_recv(filter, piece, user) }
    }

    /// The same whatever it takes.
    ///
    /// # Safety
    /// As for [`Endpoint::recv`].
    #[inline(never)]
    pub(super) unsafe fn recv_piece(
        &self,
        from: fi_addr_t,
        tag: u64,
        ignore: u64,
        piece: [RawIov; 1],
        context: *mut c_void,
    ) -> isize {
        let (matching, flags) = (Matching::Tag(tag), self.rx_flags());
        // SAFETY: by the caller's promise.
        unsafe { self.recv(Recv { from, matching, ignore, iov: &piece, flags, context }) }
    }

    /// # Safety
    /// As for [`Endpoint::recv`].
    #[inline(always)]
    pub(super) unsafe fn recv(&self, mut r: Recv<'_>) -> isize {
        let mut state = self.member.lock();
        let (endpoint, mut sinks) = match self.enter(&mut state) {
            Ok(both) => both,
            Err(code) => return code,
        };
        if endpoint.rx_cq.is_none() {
            return -(FI_ENOCQ as isize);
        }
        r.flags |= endpoint.rx_always;
        // SAFETY: by the caller's promise.
        let result = unsafe { endpoint.recv(r, &mut sinks) };
        let busy = is_busy(endpoint, &sinks);
        self.leave(state, result, busy)
    }

    /// [`EpMember::recv`] for all but the plain calls.
    ///
    /// # Safety
    /// As for [`Endpoint::recv`].
    #[inline(never)]
    pub(super) unsafe fn recv_any(&self, r: Recv<'_>) -> isize {
        // SAFETY: by the caller's promise.
        unsafe { if r.flags & (FI_PEEK | FI_CLAIM | FI_DISCARD) == 0 { self.recv(r) } else { self.look(r) } }
    }

    /// # Safety
    /// As for [`Endpoint::recv`].
    unsafe fn look(&self, mut r: Recv<'_>) -> isize {
        let mut state = self.member.lock();
        self.member.domain.polled();
        state.progress(self.member.key);
        self.call_in(state, |endpoint, sinks| {
            r.flags |= endpoint.rx_always;
            match r.flags & (FI_PEEK | FI_CLAIM) {
                // SAFETY: by the caller's promise.
                FI_CLAIM => unsafe { endpoint.claimed(self.member.key.number, &r, sinks) },
                0 => Err(-FI_EBADFLAGS),
                _ => endpoint.peek(self.member.key.number, &r, sinks),
            }
        })
    }
}
