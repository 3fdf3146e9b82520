//! A lock-free ring from one process to another: one producer, one consumer, in memory that both map.
//!
//! **Slots.** A frame is a protocol header and a payload. It takes one slot, which is one cache line: a control word and
//! 56 bytes. The producer writes the bytes, then the word, with Release; the consumer polls the word with Acquire. So one
//! cache-line transfer carries flag and data. The word holds the lap number, which tells a fresh slot from last lap's: the
//! consumer never writes to a slot, and an idle ring costs no traffic.
//!
//! **Annexes.** A payload that has no room behind its header, but in one line, goes to a line that belongs to the slot. It comes and goes with it.
//!
//! **Bulk.** A longer one goes to the direction's bulk area, in one piece. Both sides compute its place from the lengths alone, by the
//! same rule (`Span`), so that no offset is ever read from the peer.
//!
//! **Progress.** The consumer publishes how far it is, on a line of its own, when a quarter of either area is
//! due, when [`Consumer::peek`] finds the ring empty, and on [`Consumer::flush`]. The producer looks only when it seems to be out of room.
//!
//! **Caches.** Where it pays (`evicting_pays`), the consumer drops the bulk it returns from all caches: only its memory then knows it,
//! and the producer's next write need not take it away from anybody. Who waits for an answer fetches what it will write next
//! ([`Producer::prepare`]). Long payloads are written past the caches.
//!
//! **Sleep.** A side that looks at this ring no more, be it that it sleeps or that it has others to look at, arms its word, calls
//! [`sleep_barrier`], and looks once more; the other side looks at the word after it published ([`Producer::peer_sleeps`],
//! [`Consumer::peer_waits`]) and marks the ring's place on the sleeper's [board](super::board). This needs a full barrier on both
//! sides. The sleeper makes it for both where membarrier(2) is to be had; each side says so in its word, so that nothing has to be
//! negotiated. The word counts the sleeps, so that one sleep is rung for once, however many frames follow before the sleeper wakes.
//!
//! **Trust.** The peer may write anything at any time. What is read from it is copied before it is looked at and checked
//! once; positions are our own counters; each place is computed modulo its area.

use std::{any::Any, fmt, marker::PhantomData, ptr::NonNull, sync::Arc};

pub use crate::primitive::heavy_barrier as sleep_barrier;
use crate::primitive::{AtomicU64, ByteCell, Ordering::*, evict, evicting_pays, prefetch};
pub use memory::{ANNEX, BULK, Corrupt, INLINE, MAX_HEADER, MAX_PAYLOAD, RingMemory, SLOTS};
use memory::{BULK_UNIT, LAZY, Memory, Span, lap, word};
use sleep::{Sleeper, Waker};

#[cfg(all(test, loom))]
mod loom_tests;
mod memory;
mod sleep;
#[cfg(all(test, not(loom)))]
mod tests;

/// Why a frame was not sent. Nothing of it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// No room now; the consumer makes some.
    Full,
    /// The consumer's progress makes no sense.
    Corrupt(Corrupt),
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::Full => f.write_str("the ring is full"),
            SendError::Corrupt(c) => c.fmt(f),
        }
    }
}

impl std::error::Error for SendError {}

/// Payloads longer than this are written past the caches where evicting pays: then there is nothing to evict, nor to prepare for.
const LONG: usize = 16 << 10;

/// The sending end.
pub struct Producer {
    memory: Memory,
    /// Frames sent, and the number that may be sent before progress is looked at.
    tail: u64,
    tail_limit: u64,
    /// Bulk positions taken, and the limit likewise.
    bulk_tail: u64,
    bulk_limit: u64,
    /// The last of which [`prepare`](Self::prepare) knows.
    prepared: u64,
    /// Whether the consumer evicts what it has read.
    evicts: bool,
    consumer: Waker,
    sleeper: Sleeper,
}

impl Producer {
    /// Sends `header` and the pieces of `payload`, one after the other, as one frame. Never blocks. Afterwards, once for
    /// any number of frames, ask [`peer_sleeps`](Self::peer_sleeps).
    ///
    /// # Panics
    /// If the header or the payload is longer than [`MAX_HEADER`] or [`MAX_PAYLOAD`].
    #[inline]
    pub fn try_send(&mut self, header: &[u8], payload: &[&[u8]]) -> Result<(), SendError> {
        let len = payload.iter().map(|piece| piece.len()).sum::<usize>();
        assert!(header.len() <= MAX_HEADER && len <= MAX_PAYLOAD, "frame of {} + {len} bytes", header.len());
        if self.tail == self.tail_limit {
            self.reload()?;
            if self.tail == self.tail_limit {
                return Err(SendError::Full);
            }
        }
        let inline = header.len() + len <= INLINE;
        let span = if inline || len <= ANNEX { None } else { Some(self.reserve(len)?) };
        let slot = self.memory.slot(self.tail);
        let body = slot.body.as_ptr();
        let rest = match &span {
            None if inline => body.wrapping_add(header.len()),
            None => self.memory.annex(self.tail),
            Some(span) => self.memory.bulk(span.start),
        };
        // SAFETY: the slot, its annex and the span are within the ring, and free: the consumer released what was there before. The
        // lengths were checked against both. The caller's slices cannot overlap memory that only this ring hands out.
        unsafe {
            ByteCell::copy_in_short(body, header.as_ptr(), header.len());
            let mut at = 0;
            for piece in payload {
                let to = rest.wrapping_add(at);
                if span.is_none() {
                    ByteCell::copy_in_short(to, piece.as_ptr(), piece.len());
                } else if self.evicts && len > LONG {
                    ByteCell::copy_in_past_caches(to, piece.as_ptr(), piece.len());
                } else {
                    ByteCell::copy_in(to, piece.as_ptr(), piece.len());
                }
                at += piece.len();
            }
        }
        slot.word.store(word(lap(self.tail), header.len(), len), Release);
        self.tail += 1;
        if let Some(span) = span {
            self.bulk_tail = span.end;
        }
        Ok(())
    }

    /// Sends a frame that fits into its slot and annex, whose header's `len` bytes come as words and whose payload is in one piece. False, and
    /// nothing was sent: it does not fit, or there is no room at first sight; [`try_send`](Self::try_send) knows.
    ///
    /// # Safety
    /// `payload` is readable for `size` bytes.
    ///
    /// # Panics
    /// If the words are fewer than `len` bytes.
    #[inline(always)]
    pub unsafe fn try_send_short<const N: usize>(
        &mut self,
        words: [u64; N],
        len: usize,
        payload: *const u8,
        size: usize,
    ) -> bool {
        const { assert!(cfg!(loom) || 8 * N <= INLINE) };
        assert!(len <= 8 * N, "a header of {len} bytes");
        if cfg!(loom) || self.tail == self.tail_limit || size > ANNEX {
            return false;
        }
        let slot = self.memory.slot(self.tail);
        let body = slot.body.as_ptr();
        // SAFETY: within the slot and its annex, which are free: the consumer released what was there before. Words beyond the header are
        // where the payload goes, or nobody looks.
        unsafe {
            ByteCell::copy_in(body, words.as_ptr().cast(), 8 * N);
            if size <= INLINE - len {
                ByteCell::copy_in_short(body.add(len), payload, size);
            } else {
                self.fill_annex(payload, size);
            }
        }
        slot.word.store(word(lap(self.tail), len, size), Release);
        self.tail += 1;
        true
    }

    /// Apart, so that messages of a few words have no part in it.
    ///
    /// # Safety
    /// `payload` is readable for `size` bytes, which are at most [`ANNEX`]; the slot is free.
    #[inline(never)]
    unsafe fn fill_annex(&self, payload: *const u8, size: usize) {
        // SAFETY: our caller's word.
        unsafe { ByteCell::copy_in_short(self.memory.annex(self.tail), payload, size) };
    }

    /// The place on the consumer's board that is to be marked for what was sent up to now, if the consumer does not look at this
    /// ring: once per sleep.
    #[inline]
    pub fn peer_sleeps(&mut self) -> Option<u32> {
        self.consumer.must_ring(&self.memory.consumer.0)
    }

    /// This ring's place on the consumer's board.
    pub fn peer_place(&self) -> u32 {
        self.memory.consumer.0.place.load(Relaxed)
    }

    /// Bytes of the ring that all frames up to now took.
    pub fn sent(&self) -> u64 {
        self.tail * size_of::<memory::Slot>() as u64 + self.bulk_tail
    }

    /// Frames without bulk that can be sent now.
    pub fn room(&mut self) -> Result<usize, Corrupt> {
        self.reload()?;
        Ok((self.tail_limit - self.tail) as usize)
    }

    /// Whether a frame with so many bytes of header and payload can be sent now.
    pub fn has_room(&mut self, header: usize, payload: usize) -> Result<bool, Corrupt> {
        let bulk = header + payload > INLINE && payload > ANNEX;
        self.reload()?;
        let fits = !bulk || Span::after(self.bulk_tail, payload).end <= self.bulk_limit;
        Ok(fits && self.tail < self.tail_limit)
    }

    /// Where this side is to be told, on its board.
    pub fn stand_at(&mut self, place: u32) {
        self.memory.producer.0.place.store(place, Relaxed);
    }

    /// Says that this side is about to sleep until there is room. Call [`sleep_barrier`], then try once more.
    pub fn arm(&mut self) {
        self.sleeper.set(&self.memory.producer.0, true);
    }

    /// Takes [`arm`](Self::arm) back.
    pub fn disarm(&mut self) {
        self.sleeper.set(&self.memory.producer.0, false);
    }

    /// Has this processor's caches ready for as many bulk bytes as were sent since this was last called. For who waits for an answer: the
    /// next message is likely to be as long.
    #[inline(always)]
    pub fn prepare(&mut self) {
        if self.bulk_tail != self.prepared {
            self.prepare_bulk();
        }
    }

    #[inline(never)]
    fn prepare_bulk(&mut self) {
        let sent = self.bulk_tail - std::mem::replace(&mut self.prepared, self.bulk_tail);
        if !self.evicts || sent > LONG as u64 {
            return;
        }
        let end = (self.bulk_tail + sent).min(self.bulk_limit);
        for position in (self.bulk_tail..end).step_by(BULK_UNIT) {
            prefetch(self.memory.bulk(position));
        }
    }

    fn reserve(&mut self, len: usize) -> Result<Span, SendError> {
        let span = Span::after(self.bulk_tail, len);
        if span.end > self.bulk_limit {
            self.reload()?;
            if span.end > self.bulk_limit {
                return Err(SendError::Full);
            }
        }
        Ok(span)
    }

    #[cold]
    fn reload(&mut self) -> Result<(), Corrupt> {
        let progress = self.memory.progress.0.load(Acquire);
        let advance = |tail: u64, limit: u64, size: usize, consumed: u32| {
            let before = tail + size as u64 - limit;
            let now = u64::from((tail as u32).wrapping_sub(consumed));
            // More in flight than before is progress backwards or past what was sent, as the difference wraps.
            (now <= before).then(|| tail - now + size as u64)
        };
        let (slots, bulk) = (progress as u32, (progress >> 32) as u32);
        let tail_limit = advance(self.tail, self.tail_limit, SLOTS, slots);
        let bulk_limit = advance(self.bulk_tail, self.bulk_limit, BULK, bulk);
        self.tail_limit = tail_limit.ok_or(Corrupt::SlotProgress(slots))?;
        self.bulk_limit = bulk_limit.ok_or(Corrupt::BulkProgress(bulk))?;
        Ok(())
    }
}

impl From<Corrupt> for SendError {
    fn from(c: Corrupt) -> SendError {
        SendError::Corrupt(c)
    }
}

/// No position.
const NOTHING: u64 = u64::MAX;

/// Where the next frame of a ring will be seen, as that was when [`Consumer::head`] said it: for who looks at many rings.
#[derive(Clone, Copy)]
pub struct Head {
    word: NonNull<AtomicU64>,
    /// The lap of the word as long as nothing is there.
    empty: u64,
}

// SAFETY: an address, of memory that any thread may read.
unsafe impl Send for Head {}

impl Head {
    /// The same, but always as if something were there.
    pub fn restless(self) -> Self {
        Self { empty: u64::MAX, ..self }
    }

    /// Whether a frame (or damage) is there.
    ///
    /// # Safety
    /// The [`Consumer`] that it came from is there.
    #[inline(always)]
    pub unsafe fn shows(&self) -> bool {
        // SAFETY: the consumer keeps the ring mapped, by our caller's word.
        unsafe { self.word.as_ref() }.load(Acquire) >> 32 != self.empty
    }
}

/// A slot's bytes, ours.
#[repr(align(64))]
struct Body([u8; INLINE]);

/// The receiving end.
pub struct Consumer {
    memory: Memory,
    /// Frames and bulk bytes released; of these, published.
    head: u64,
    bulk_head: u64,
    head_published: u64,
    bulk_published: u64,
    /// What to release next, once a frame was peeked; else [`NOTHING`].
    peeked: u64,
    body: Body,
    evicts: bool,
    /// Bulk bytes that are in no cache of ours, or need not be evicted.
    evicted: u64,
    producer: Waker,
    /// Progress was published since the producer's word was last looked at.
    news: bool,
    sleeper: Sleeper,
}

/// A frame at the head of the ring. Its header and a short payload are a copy; a long payload is still in the ring.
pub struct Frame<'a> {
    /// At most [`MAX_HEADER`] bytes, not yet looked at.
    pub header: &'a [u8],
    /// At most [`MAX_PAYLOAD`] bytes.
    pub payload: Payload<'a>,
}

/// The payload of a frame.
#[derive(Clone, Copy)]
pub struct Payload<'a> {
    place: Place<'a>,
}

#[derive(Clone, Copy)]
enum Place<'a> {
    Inline(&'a [u8]),
    Shared(*const ByteCell, usize, PhantomData<&'a ByteCell>),
}

impl<'a> Payload<'a> {
    /// Length in bytes.
    #[allow(clippy::len_without_is_empty)]
    #[inline]
    pub fn len(&self) -> usize {
        match self.place {
            Place::Inline(bytes) => bytes.len(),
            Place::Shared(_, len, _) => len,
        }
    }

    /// The bytes of a short payload. None if it is in shared memory, which the peer may still write to: copy it then.
    #[inline]
    pub fn inline(&self) -> Option<&'a [u8]> {
        match self.place {
            Place::Inline(bytes) => Some(bytes),
            Place::Shared(..) => None,
        }
    }

    /// Where the bytes are. Those of a long payload are shared memory, which the peer may still write to.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        match self.place {
            Place::Inline(bytes) => bytes.as_ptr(),
            Place::Shared(at, ..) => at.cast(),
        }
    }

    /// Copies the first bytes, as many as `dst` takes; says how many.
    #[inline]
    pub fn copy_to(&self, dst: &mut [u8]) -> usize {
        let n = dst.len().min(self.len());
        // SAFETY: `dst` is valid for n bytes, and so is the payload.
        unsafe { self.copy_to_raw(dst.as_mut_ptr(), 0, n) };
        n
    }

    /// Copies `len` bytes from `offset` on to `dst`.
    ///
    /// # Safety
    /// `dst` is valid for writing `len` bytes and is not within the ring.
    ///
    /// # Panics
    /// If the payload does not reach that far.
    #[inline]
    pub unsafe fn copy_to_raw(&self, dst: *mut u8, offset: usize, len: usize) {
        assert!(offset <= self.len() && len <= self.len() - offset, "beyond the payload");
        // SAFETY: the source was checked just now, the destination is the caller's word.
        unsafe {
            match self.place {
                Place::Inline(bytes) => bytes.as_ptr().add(offset).copy_to_nonoverlapping(dst, len),
                Place::Shared(at, ..) => ByteCell::copy_out(at.add(offset), dst, len),
            }
        }
    }
}

/// A frame where it lies, in shared memory, which the peer may still write to: who takes words of it reads each once.
#[derive(Clone, Copy)]
pub struct Glance<'a> {
    slot: &'a memory::Slot,
    /// Bytes of its header.
    pub header: usize,
    /// Bytes of its payload.
    pub len: usize,
    /// Where that lies.
    pub payload: *const u8,
    /// The position in the bulk area behind it.
    end: u64,
}

impl Glance<'_> {
    /// The header's word of this number.
    ///
    /// # Panics
    /// If a slot has not so many.
    #[inline(always)]
    pub fn word(&self, at: usize) -> u64 {
        self.slot.read(8 * at)
    }

    /// For [`Consumer::release_seen`].
    #[inline(always)]
    pub fn end(self) -> u64 {
        self.end
    }
}

impl Consumer {
    /// The frame at the head, where it lies; [`release_seen`](Self::release_seen) ends it. None where there is none, or what is there is
    /// impossible: [`peek`](Self::peek) knows.
    #[inline(always)]
    pub fn glance(&self) -> Option<Glance<'_>> {
        let slot = self.memory.slot(self.head);
        let word = slot.word.load(Acquire);
        if cfg!(loom) || (word >> 32) as u32 != lap(self.head) {
            return None;
        }
        let (header, len) = ((word >> 24 & 0xff) as usize, (word & 0xff_ffff) as usize);
        let (payload, end) = if header + len <= INLINE {
            (slot.body.as_ptr().wrapping_add(header), self.bulk_head)
        } else if header > MAX_HEADER {
            return None;
        } else if len <= ANNEX {
            (self.memory.annex(self.head), self.bulk_head)
        } else if len <= MAX_PAYLOAD {
            let span = Span::after(self.bulk_head, len);
            (self.memory.bulk(span.start), span.end)
        } else {
            return None;
        };
        Some(Glance { slot, header, len, payload: payload.cast(), end })
    }

    /// Frees the frame that [`glance`](Self::glance) showed and whose [`Glance::end`] this is.
    #[inline(always)]
    pub fn release_seen(&mut self, end: u64) {
        self.head += 1;
        let due = self.head - self.head_published >= (SLOTS / LAZY) as u64;
        if end == self.bulk_head {
            if due {
                self.publish();
            }
            return;
        }
        self.take_bulk(end);
        if due || end - self.bulk_published >= (BULK / LAZY) as u64 {
            self.publish();
        }
    }

    /// The frame at the head, again and again until it is released. None if the ring is empty.
    ///
    /// # Errors
    /// [`Corrupt`]: nothing can be received from this peer any more.
    #[inline]
    pub fn peek(&mut self) -> Option<Result<Frame<'_>, Corrupt>> {
        self.look::<true>()
    }

    /// The same, but that progress is not published where the ring is empty: what was released last is told at the latest by the
    /// next [`peek`](Self::peek).
    #[inline(always)]
    pub fn peek_on(&mut self) -> Option<Result<Frame<'_>, Corrupt>> {
        self.look::<false>()
    }

    #[inline(always)]
    fn look<const PUBLISHES: bool>(&mut self) -> Option<Result<Frame<'_>, Corrupt>> {
        let slot = self.memory.slot(self.head);
        let word = slot.word.load(Acquire);
        if (word >> 32) as u32 != lap(self.head) {
            if PUBLISHES {
                self.flush();
            }
            return self.none((word >> 32) as u32);
        }
        let (header, payload) = ((word >> 24 & 0xff) as usize, (word & 0xff_ffff) as usize);
        if header > MAX_HEADER {
            return Some(Err(Corrupt::HeaderLength(header)));
        }
        let inline = header + payload <= INLINE;
        if !inline && payload > MAX_PAYLOAD {
            return Some(Err(Corrupt::PayloadLength(payload)));
        }
        // A copy of constant length is a few moves; loom checks what is used only.
        let len = match (cfg!(loom), inline) {
            (false, _) => INLINE,
            (true, true) => header + payload,
            (true, false) => header,
        };
        // SAFETY: both are INLINE bytes long, and the producer leaves the slot alone until it is released.
        unsafe { ByteCell::copy_out(slot.body.as_ptr(), self.body.0.as_mut_ptr(), len) };
        let (place, end) = if inline {
            (Place::Inline(&self.body.0[header..header + payload]), self.bulk_head)
        } else if payload <= ANNEX {
            (Place::Shared(self.memory.annex(self.head), payload, PhantomData), self.bulk_head)
        } else {
            let span = Span::after(self.bulk_head, payload);
            (Place::Shared(self.memory.bulk(span.start), payload, PhantomData), span.end)
        };
        self.peeked = end;
        Some(Ok(Frame { header: &self.body.0[..header], payload: Payload { place } }))
    }

    /// Bytes of the ring that all frames released up to now took.
    pub fn received(&self) -> u64 {
        self.head * size_of::<memory::Slot>() as u64 + self.bulk_head
    }

    /// Frees the frame that was peeked last. Without one, does nothing.
    #[inline]
    pub fn release(&mut self) {
        let end = std::mem::replace(&mut self.peeked, NOTHING);
        if end == NOTHING {
            return;
        }
        self.head += 1;
        self.take_bulk(end);
        if self.head - self.head_published >= (SLOTS / LAZY) as u64
            || self.bulk_head - self.bulk_published >= (BULK / LAZY) as u64
        {
            self.publish();
        }
    }

    /// Publishes progress now. Needed only by who stops peeking before [`peek`](Self::peek) finds the ring empty.
    pub fn flush(&mut self) {
        if self.head != self.head_published {
            self.publish();
        }
    }

    /// Whether a frame (or damage) is there; nothing is published.
    #[inline]
    pub fn has_frame(&self) -> bool {
        // SAFETY: we are there.
        unsafe { self.head().shows() }
    }

    /// Where the next frame will be seen, until this one or another is released.
    #[inline(always)]
    pub fn head(&self) -> Head {
        let word = NonNull::from(&self.memory.slot(self.head).word);
        Head { word, empty: u64::from(lap(self.head).wrapping_sub(1)) }
    }

    /// The place on the producer's board that is to be marked for what was published up to now, if the producer waits: once per sleep.
    /// Ask when [`peek`](Self::peek) found nothing and after [`flush`](Self::flush); it costs nothing if nothing was published.
    #[inline]
    pub fn peer_waits(&mut self) -> Option<u32> {
        if std::mem::take(&mut self.news) { self.producer.must_ring(&self.memory.producer.0) } else { None }
    }

    /// Where this side is to be told, on its board.
    pub fn stand_at(&mut self, place: u32) {
        self.memory.consumer.0.place.store(place, Relaxed);
    }

    /// Says that this side looks at this ring no more. Call [`sleep_barrier`], once for any number of rings, then ask
    /// [`has_frame`](Self::has_frame) once more.
    pub fn arm(&mut self) {
        self.sleeper.set(&self.memory.consumer.0, true);
    }

    /// Takes [`arm`](Self::arm) back.
    pub fn disarm(&mut self) {
        self.sleeper.set(&self.memory.consumer.0, false);
    }

    #[inline]
    fn none(&self, found: u32) -> Option<Result<Frame<'_>, Corrupt>> {
        let expected = lap(self.head).wrapping_sub(1);
        (found != expected).then_some(Err(Corrupt::Lap { expected, found }))
    }

    /// The bulk bytes up to `end` are released.
    #[inline(always)]
    fn take_bulk(&mut self, end: u64) {
        if end - self.bulk_head > LONG as u64 {
            // written past the caches, and reading leaves no more than the producer can overwrite
            self.evict();
            self.evicted = end;
        }
        self.bulk_head = end;
    }

    #[inline]
    fn evict(&mut self) {
        if self.evicts {
            for position in (self.evicted..self.bulk_head).step_by(BULK_UNIT) {
                // SAFETY: the processor can, and the line is within the bulk area.
                unsafe { evict(self.memory.bulk(position)) };
            }
        }
        self.evicted = self.bulk_head;
    }

    #[inline]
    fn publish(&mut self) {
        // Here and not on release, so that an answer leaves first.
        self.evict();
        (self.head_published, self.bulk_published) = (self.head, self.bulk_head);
        let progress = u64::from(self.head as u32) | self.bulk_head << 32;
        self.memory.progress.0.store(progress, Release);
        self.news = true;
    }
}

/// The sending end of a ring.
///
/// # Safety
/// `ring` was all zero when its first end was made, stays mapped, for reading and writing, while `keep` lives, and in no
/// process has another sending end.
pub unsafe fn producer(ring: NonNull<RingMemory>, keep: Arc<dyn Any + Send + Sync>) -> Producer {
    let memory = Memory { ring, _keep: keep };
    Producer {
        tail: 0,
        tail_limit: SLOTS as u64,
        bulk_tail: 0,
        prepared: 0,
        evicts: evicting_pays(),
        bulk_limit: BULK as u64,
        consumer: Waker::new(),
        sleeper: Sleeper::new(&memory.producer.0),
        memory,
    }
}

/// The receiving end of a ring.
///
/// # Safety
/// As for [`producer`], with receiving for sending.
pub unsafe fn consumer(ring: NonNull<RingMemory>, keep: Arc<dyn Any + Send + Sync>) -> Consumer {
    let memory = Memory { ring, _keep: keep };
    Consumer {
        head: 0,
        bulk_head: 0,
        head_published: 0,
        bulk_published: 0,
        peeked: NOTHING,
        body: Body([0; INLINE]),
        evicts: evicting_pays(),
        evicted: 0,
        producer: Waker::new(),
        news: false,
        sleeper: Sleeper::new(&memory.consumer.0),
        memory,
    }
}
