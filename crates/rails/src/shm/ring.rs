//! A lock-free ring from one process to another: one producer, one consumer, in memory that both map.
//!
//! **Slots.** A frame is a protocol header and a payload. It takes one slot, which is one cache line: a control word and
//! 56 bytes. The producer writes the bytes, then the word, with Release; the consumer polls the word with Acquire. So one
//! cache-line transfer carries flag and data. The word holds the lap number, which tells a fresh slot from last lap's: the
//! consumer never writes to a slot, and an idle ring costs no traffic.
//!
//! **Bulk.** A payload that does not fit beside its header goes to the direction's bulk area, in one piece. Both sides
//! compute its place from the lengths alone, by the same rule ([`Span`]), so that no offset is ever read from the peer.
//!
//! **Progress.** The consumer publishes how far it is, on a line of its own, when a quarter of either area is
//! due, when it finds the ring empty, and on [`Consumer::flush`]. The producer looks only when it seems to be out of room.
//!
//! **Sleep.** A side that wants to sleep arms its word, calls [`sleep_barrier`], looks once more, and only then sleeps; the
//! other side looks at the word after it published ([`Producer::peer_sleeps`], [`Consumer::peer_waits`]) and rings the
//! sleeper's doorbell. This needs a full barrier on both sides. The sleeper makes it for both where membarrier(2) is to be
//! had; each side says so in its word, so that nothing has to be negotiated. The word counts the sleeps, so
//! that one sleep is rung for once, however many frames follow before the sleeper wakes.
//!
//! **Trust.** The peer may write anything at any time. What is read from it is copied before it is looked at and checked
//! once; positions are our own counters; each place is computed modulo its area.

use std::{any::Any, fmt, marker::PhantomData, ops::Deref, ptr::NonNull, sync::Arc};

pub use crate::primitive::heavy_barrier as sleep_barrier;
use crate::primitive::{
    AtomicU32, AtomicU64, ByteCell, Ordering::*, light_barrier, membarrier_registered as registered,
};

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

/// Slots of a ring: frames in flight at most.
pub const SLOTS: usize = if cfg!(loom) { 4 } else { 512 };
/// Bytes of a ring's bulk area.
pub const BULK: usize = if cfg!(loom) { 2 * MAX_PAYLOAD } else { 4 * MAX_PAYLOAD };
/// Bytes of a slot beside its control word: header and payload of a frame that needs no bulk.
pub const INLINE: usize = if cfg!(loom) { 2 } else { 56 };
/// Longest header, in bytes.
pub const MAX_HEADER: usize = if cfg!(loom) { 2 } else { 48 };
/// Longest payload, in bytes.
pub const MAX_PAYLOAD: usize = if cfg!(loom) { 2 } else { 32 << 10 };

/// Payloads begin on a cache line of their own.
const BULK_UNIT: usize = if cfg!(loom) { 2 } else { 64 };
/// Progress is published when the consumer is this part of either area ahead.
const LAZY: usize = if cfg!(loom) { 2 } else { 4 };

const _: () = assert!(SLOTS.is_power_of_two() && BULK.is_power_of_two() && BULK <= 1 << 31);
// An empty ring takes any frame, whatever the padding at the end of the area.
const _: () = assert!(2 * MAX_PAYLOAD <= BULK && MAX_HEADER <= INLINE && MAX_PAYLOAD < 1 << 24);

#[repr(C, align(64))]
struct Slot {
    word: AtomicU64,
    body: [ByteCell; INLINE],
}

#[cfg(not(loom))]
const _: () = assert!(std::mem::size_of::<Slot>() == 64, "a frame is one cache line");

/// Its own cache line, and the one that the processor fetches along with it.
#[repr(C, align(128))]
struct Line<T>(T);

/// One direction of a pair, as both processes map it. All zero is an empty ring.
#[repr(C)]
pub struct RingMemory {
    /// Written by the consumer: frames consumed (low half) and bulk bytes consumed (high half), both modulo 2^32.
    progress: Line<AtomicU64>,
    /// The consumer's sleep word.
    consumer: Line<AtomicU32>,
    /// The producer's sleep word.
    producer: Line<AtomicU32>,
    slots: [Slot; SLOTS],
    bulk: [ByteCell; BULK],
}

/// What the peer wrote that no honest peer writes. The pair is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Corrupt {
    /// A slot carries the number of another lap.
    Lap {
        /// The lap that the slot was last written in, or is due for.
        expected: u32,
        /// What the slot says.
        found: u32,
    },
    /// A header longer than [`MAX_HEADER`].
    HeaderLength(usize),
    /// A payload longer than [`MAX_PAYLOAD`].
    PayloadLength(usize),
    /// The consumer says that it consumed frames that were not sent, or fewer than it said before.
    SlotProgress(u32),
    /// The same for bytes of the bulk area.
    BulkProgress(u32),
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the peer damaged the shared memory: ")?;
        match *self {
            Corrupt::Lap { expected, found } => {
                write!(f, "a slot of lap {found} where lap {expected} is due")
            }
            Corrupt::HeaderLength(n) => write!(f, "a header of {n} bytes, at most {MAX_HEADER} are allowed"),
            Corrupt::PayloadLength(n) => {
                write!(f, "a payload of {n} bytes, at most {MAX_PAYLOAD} are allowed")
            }
            Corrupt::SlotProgress(n) => write!(f, "frames consumed up to number {n}, which is out of order"),
            Corrupt::BulkProgress(n) => {
                write!(f, "bulk bytes consumed up to number {n}, which is out of order")
            }
        }
    }
}

impl std::error::Error for Corrupt {}

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

/// Where a payload lies in the bulk area: the rule that both sides share. Positions only grow; a place is a position modulo
/// [`BULK`]. A payload does not wrap: what is left at the end is skipped where it is too short.
struct Span {
    start: u64,
    end: u64,
}

impl Span {
    #[inline]
    fn after(position: u64, len: usize) -> Span {
        let left = BULK as u64 - position % BULK as u64;
        let start = if len as u64 <= left { position } else { position + left };
        Span { start, end: start + len.next_multiple_of(BULK_UNIT) as u64 }
    }
}

/// A control word: lap in the high half, then 8 bits of header length and 24 of payload length.
#[inline]
fn word(lap: u32, header: usize, payload: usize) -> u64 {
    u64::from(lap) << 32 | (header as u64) << 24 | payload as u64
}

/// The number that a slot carries once the frame at `position` is in it; one less before.
#[inline]
fn lap(position: u64) -> u32 {
    ((position / SLOTS as u64) as u32).wrapping_add(1)
}

/// A mapped ring and whatever keeps it mapped.
struct Memory {
    ring: NonNull<RingMemory>,
    _keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the pointer is to shared memory made of atomics and ByteCells, which `_keep` keeps mapped.
unsafe impl Send for Memory {}

impl Deref for Memory {
    type Target = RingMemory;

    #[inline]
    fn deref(&self) -> &RingMemory {
        // SAFETY: valid while `_keep` lives (contract of `pair`); everything in it may change under a shared reference.
        unsafe { self.ring.as_ref() }
    }
}

impl Memory {
    #[inline]
    fn slot(&self, position: u64) -> &Slot {
        &self.slots[position as usize % SLOTS]
    }

    #[inline]
    fn bulk(&self, position: u64) -> *const ByteCell {
        self.bulk.as_ptr().wrapping_add(position as usize % BULK)
    }
}

// A sleep word: whether heavy barriers of its owner reach others, whether the owner sleeps (or is about to), and above
// these the number of sleeps.
const REMOTE: u32 = 1;
const ARMED: u32 = 2;

/// The owner of a sleep word.
struct Sleeper(u32);

impl Sleeper {
    fn new(word: &AtomicU32) -> Sleeper {
        let state = if registered() { REMOTE } else { 0 };
        word.store(state, Relaxed);
        Sleeper(state)
    }

    fn set(&mut self, word: &AtomicU32, armed: bool) {
        if (self.0 & ARMED != 0) != armed {
            // Disarming carries into the count above.
            self.0 = self.0.wrapping_add(ARMED);
            word.store(self.0, Relaxed);
        }
    }
}

/// The other side of a sleep word.
struct Waker {
    /// Both sides take part in membarrier, so that the sleeper's barrier is ours too.
    remote: bool,
    /// The sleep that was rung for.
    rung: u32,
}

impl Waker {
    fn new() -> Waker {
        Waker { remote: false, rung: 0 }
    }

    #[inline]
    fn must_ring(&mut self, word: &AtomicU32) -> bool {
        light_barrier(self.remote);
        let state = word.load(Relaxed);
        if state == self.rung || state & ARMED == 0 {
            return self.awake(state);
        }
        self.rung = state;
        true
    }

    #[inline]
    fn awake(&mut self, state: u32) -> bool {
        // The owner sets its flag before its first sleep, so that every sleep from now on comes with its barrier.
        self.remote = state & REMOTE != 0 && (self.remote || registered());
        false
    }
}

/// The sending end.
pub struct Producer {
    memory: Memory,
    /// Frames sent, and the number that may be sent before progress is looked at.
    tail: u64,
    tail_limit: u64,
    /// Bulk positions taken, and the limit likewise.
    bulk_tail: u64,
    bulk_limit: u64,
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
        let span = if inline { None } else { Some(self.reserve(len)?) };
        let slot = self.memory.slot(self.tail);
        let body = slot.body.as_ptr();
        let rest = match &span {
            None => body.wrapping_add(header.len()),
            Some(span) => self.memory.bulk(span.start),
        };
        // SAFETY: the slot and the span are within the ring, and free: the consumer released what was there before. The
        // lengths were checked against both. The caller's slices cannot overlap memory that only this ring hands out.
        unsafe {
            ByteCell::copy_in(body, header.as_ptr(), header.len());
            let mut at = 0;
            for piece in payload {
                ByteCell::copy_in(rest.wrapping_add(at), piece.as_ptr(), piece.len());
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

    /// Whether the consumer must be woken by its doorbell for what was sent up to now: true once per sleep.
    #[inline]
    pub fn peer_sleeps(&mut self) -> bool {
        self.consumer.must_ring(&self.memory.consumer.0)
    }

    /// Frames without bulk that can be sent now.
    pub fn room(&mut self) -> Result<usize, Corrupt> {
        self.reload()?;
        Ok((self.tail_limit - self.tail) as usize)
    }

    /// Whether a frame with so many bytes of header and payload can be sent now.
    pub fn has_room(&mut self, header: usize, payload: usize) -> Result<bool, Corrupt> {
        let bulk = header + payload > INLINE;
        self.reload()?;
        let fits = !bulk || Span::after(self.bulk_tail, payload).end <= self.bulk_limit;
        Ok(fits && self.tail < self.tail_limit)
    }

    /// Says that this side is about to sleep until there is room. Call [`sleep_barrier`], then try once more.
    pub fn arm(&mut self) {
        self.sleeper.set(&self.memory.producer.0, true);
    }

    /// Takes [`arm`](Self::arm) back.
    pub fn disarm(&mut self) {
        self.sleeper.set(&self.memory.producer.0, false);
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
    /// What to release next, once a frame was peeked.
    peeked: Option<u64>,
    body: Body,
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
    Bulk(*const ByteCell, usize, PhantomData<&'a ByteCell>),
}

impl<'a> Payload<'a> {
    /// Length in bytes.
    #[allow(clippy::len_without_is_empty)]
    #[inline]
    pub fn len(&self) -> usize {
        match self.place {
            Place::Inline(bytes) => bytes.len(),
            Place::Bulk(_, len, _) => len,
        }
    }

    /// The bytes of a short payload. None if it is in shared memory, which the peer may still write to: copy it then.
    #[inline]
    pub fn inline(&self) -> Option<&'a [u8]> {
        match self.place {
            Place::Inline(bytes) => Some(bytes),
            Place::Bulk(..) => None,
        }
    }

    /// Where the bytes are. Those of a long payload are shared memory, which the peer may still write to.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        match self.place {
            Place::Inline(bytes) => bytes.as_ptr(),
            Place::Bulk(at, ..) => at.cast(),
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
                Place::Bulk(at, ..) => ByteCell::copy_out(at.add(offset), dst, len),
            }
        }
    }
}

impl Consumer {
    /// The frame at the head, again and again until it is released. None if the ring is empty.
    ///
    /// # Errors
    /// [`Corrupt`]: nothing can be received from this peer any more.
    #[inline]
    pub fn peek(&mut self) -> Option<Result<Frame<'_>, Corrupt>> {
        let slot = self.memory.slot(self.head);
        let word = slot.word.load(Acquire);
        if (word >> 32) as u32 != lap(self.head) {
            return self.none((word >> 32) as u32);
        }
        let (header, payload) = ((word >> 24 & 0xff) as usize, (word & 0xff_ffff) as usize);
        if header > MAX_HEADER {
            return Some(Err(Corrupt::HeaderLength(header)));
        }
        if payload > MAX_PAYLOAD {
            return Some(Err(Corrupt::PayloadLength(payload)));
        }
        let inline = header + payload <= INLINE;
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
        } else {
            let span = Span::after(self.bulk_head, payload);
            (Place::Bulk(self.memory.bulk(span.start), payload, PhantomData), span.end)
        };
        self.peeked = Some(end);
        Some(Ok(Frame { header: &self.body.0[..header], payload: Payload { place } }))
    }

    /// Frees the frame that was peeked last. Without one, does nothing.
    #[inline]
    pub fn release(&mut self) {
        let Some(end) = self.peeked.take() else { return };
        self.head += 1;
        self.bulk_head = end;
        if self.head - self.head_published >= (SLOTS / LAZY) as u64
            || self.bulk_head - self.bulk_published >= (BULK / LAZY) as u64
        {
            self.publish();
        }
    }

    /// Publishes progress now. Needed only by who stops peeking before the ring is empty.
    pub fn flush(&mut self) {
        if self.head != self.head_published {
            self.publish();
        }
    }

    /// Whether a frame (or damage) is there; nothing is published.
    #[inline]
    pub fn has_frame(&self) -> bool {
        let found = (self.memory.slot(self.head).word.load(Acquire) >> 32) as u32;
        found != lap(self.head).wrapping_sub(1)
    }

    /// Whether the producer must be woken by its doorbell for what was published up to now: true once per sleep. Ask when
    /// [`peek`](Self::peek) found nothing and after [`flush`](Self::flush); it costs nothing if nothing was published.
    #[inline]
    pub fn peer_waits(&mut self) -> bool {
        std::mem::take(&mut self.news) && self.producer.must_ring(&self.memory.producer.0)
    }

    /// Says that this side is about to sleep. Call [`sleep_barrier`], once for any number of rings, then ask
    /// [`has_frame`](Self::has_frame) once more before sleeping. Drain the doorbell before, not after.
    pub fn arm(&mut self) {
        self.sleeper.set(&self.memory.consumer.0, true);
    }

    /// Takes [`arm`](Self::arm) back.
    pub fn disarm(&mut self) {
        self.sleeper.set(&self.memory.consumer.0, false);
    }

    #[inline]
    fn none(&mut self, found: u32) -> Option<Result<Frame<'_>, Corrupt>> {
        self.flush();
        let expected = lap(self.head).wrapping_sub(1);
        (found != expected).then_some(Err(Corrupt::Lap { expected, found }))
    }

    #[inline]
    fn publish(&mut self) {
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
        peeked: None,
        body: Body([0; INLINE]),
        producer: Waker::new(),
        news: false,
        sleeper: Sleeper::new(&memory.consumer.0),
        memory,
    }
}
