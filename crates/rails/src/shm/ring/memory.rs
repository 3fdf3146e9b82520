//! What the two processes share, and the rules by which both read it.

use std::{any::Any, fmt, ops::Deref, ptr::NonNull, sync::Arc};

use crate::primitive::{AtomicU32, AtomicU64, ByteCell, Line};

/// Slots of a ring: frames in flight at most. Both directions and more fit a first-level cache: with 512, which do not, short
/// frames took 77 ns instead of 62 and streamed at less than half the rate.
pub const SLOTS: usize = if cfg!(loom) { 4 } else { 128 };
/// Bytes of a ring's bulk area.
pub const BULK: usize = if cfg!(loom) { 2 * MAX_PAYLOAD } else { 4 * MAX_PAYLOAD };
/// Bytes of a slot beside its control word: header and payload of a frame that takes one line.
pub const INLINE: usize = if cfg!(loom) { 2 } else { 56 };
/// Bytes of the line beside a slot: a payload that has no room in the slot.
pub const ANNEX: usize = if cfg!(loom) { 1 } else { crate::primitive::SHORT };
/// Longest header, in bytes.
pub const MAX_HEADER: usize = if cfg!(loom) { 2 } else { 48 };
/// Longest payload, in bytes.
pub const MAX_PAYLOAD: usize = if cfg!(loom) { 2 } else { 32 << 10 };

/// Payloads begin on a cache line of their own.
pub(super) const BULK_UNIT: usize = if cfg!(loom) { 2 } else { 64 };
/// Progress is published when the consumer is this part of either area ahead.
pub(super) const LAZY: usize = if cfg!(loom) { 2 } else { 4 };

const _: () = assert!(SLOTS.is_power_of_two() && BULK.is_power_of_two() && BULK <= 1 << 31);
// An empty ring takes any frame, whatever the padding at the end of the area.
const _: () = assert!(2 * MAX_PAYLOAD <= BULK && MAX_HEADER <= INLINE && MAX_PAYLOAD < 1 << 24);
// So does one that the consumer found empty and has not said so of.
const _: () = assert!(cfg!(loom) || BULK / LAZY + 2 * MAX_PAYLOAD <= BULK);

#[repr(C, align(64))]
pub(super) struct Slot {
    pub(super) word: AtomicU64,
    pub(super) body: [ByteCell; INLINE],
}

/// The line beside a slot.
#[repr(C, align(64))]
pub(super) struct Annex(pub(super) [ByteCell; ANNEX]);

#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == 64 && size_of::<Annex>() == 64, "each is one cache line");

impl Slot {
    /// Eight bytes of the body, read once.
    ///
    /// # Panics
    /// If it has not so many.
    #[inline(always)]
    pub(super) fn read(&self, at: usize) -> u64 {
        assert!(at + 8 <= INLINE);
        // SAFETY: within the body, whose bytes any party may write at any time, and which is never referred to but by cells.
        unsafe { self.body.as_ptr().add(at).cast::<u64>().read_volatile() }
    }
}

/// What one side says of its sleep, and of where it hears of what it does not look at. See the ring's page on sleep.
#[repr(C)]
pub(super) struct Sleep {
    pub(super) state: AtomicU32,
    /// The ring's place on the side's board.
    pub(super) place: AtomicU32,
}

/// One direction of a pair, as both processes map it. All zero is an empty ring.
#[repr(C)]
pub struct RingMemory {
    /// Written by the consumer: frames consumed (low half) and bulk bytes consumed (high half), both modulo 2^32.
    pub(super) progress: Line<AtomicU64>,
    pub(super) consumer: Line<Sleep>,
    pub(super) producer: Line<Sleep>,
    pub(super) slots: [Slot; SLOTS],
    pub(super) annexes: [Annex; SLOTS],
    pub(super) bulk: [ByteCell; BULK],
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

/// Where a payload lies in the bulk area: the rule that both sides share. Positions only grow; a place is a position modulo
/// [`BULK`]. A payload does not wrap: what is left at the end is skipped where it is too short.
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Span {
    #[inline]
    pub(super) fn after(position: u64, len: usize) -> Span {
        let left = BULK as u64 - position % BULK as u64;
        let start = if len as u64 <= left { position } else { position + left };
        Span { start, end: start + len.next_multiple_of(BULK_UNIT) as u64 }
    }
}

/// A control word: lap in the high half, then 8 bits of header length and 24 of payload length.
#[inline]
pub(super) fn word(lap: u32, header: usize, payload: usize) -> u64 {
    u64::from(lap) << 32 | (header as u64) << 24 | payload as u64
}

/// The number that a slot carries once the frame at `position` is in it; one less before.
#[inline]
pub(super) fn lap(position: u64) -> u32 {
    ((position / SLOTS as u64) as u32).wrapping_add(1)
}

/// A mapped ring and whatever keeps it mapped.
pub(super) struct Memory {
    pub(super) ring: NonNull<RingMemory>,
    pub(super) _keep: Arc<dyn Any + Send + Sync>,
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
    pub(super) fn slot(&self, position: u64) -> &Slot {
        &self.slots[position as usize % SLOTS]
    }

    #[inline]
    pub(super) fn annex(&self, position: u64) -> *const ByteCell {
        self.annexes[position as usize % SLOTS].0.as_ptr()
    }

    #[inline]
    pub(super) fn bulk(&self, position: u64) -> *const ByteCell {
        self.bulk.as_ptr().wrapping_add(position as usize % BULK)
    }
}
