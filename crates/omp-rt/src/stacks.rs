//! Stacks and scratch memory of slots, at the same addresses on all ranks; mapped when they are first used.

use core::sync::atomic::{AtomicU64, Ordering::*};

use polyrail_omp::layout::{
    PAGE, SCRATCH_BYTES, SCRATCHES, SERIAL_SCRATCH, SLOTS, STACK_STRIDE, STACKS, TWIN_OFFSET,
};

use crate::{raw, sys};

/// A bit for each slot.
struct Bits([AtomicU64; SLOTS / 64]);

impl Bits {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; SLOTS / 64])
    }
    /// Whether it was not set before.
    fn set(&self, slot: usize) -> bool {
        self.0[slot / 64].fetch_or(1 << (slot % 64), AcqRel) >> (slot % 64) & 1 == 0
    }
}

static MAPPED: Bits = Bits::new();
static LENT: Bits = Bits::new();
static TWINS: Bits = Bits::new();
static SERIAL: AtomicU64 = AtomicU64::new(0);

/// The stack of `slot`, of so many bytes: where it begins and ends.
pub fn stack(slot: usize, bytes: usize) -> (usize, usize) {
    let end = STACKS + (slot + 1) * STACK_STRIDE;
    let begin = end - bytes;
    if MAPPED.set(slot) {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags =
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK | libc::MAP_FIXED;
        // SAFETY: the address space of a slot's stack is ours alone (see `layout`)
        let at = unsafe { raw::mmap(begin, end - begin, protection, flags, -1, 0) };
        if at < 0 {
            sys::stop("stacks", "the system has no room for the threads' stacks; lower OMP_STACKSIZE");
        }
    }
    (begin, end)
}

/// The scratch memory of `slot`.
pub fn scratch(slot: usize) -> usize {
    let at = SCRATCHES + slot * SCRATCH_BYTES;
    if LENT.set(slot) {
        raw::reserve(at, SCRATCH_BYTES);
    }
    at
}

/// That of serial code on all ranks.
pub fn serial_scratch() -> usize {
    if SERIAL.swap(1, AcqRel) == 0 {
        raw::reserve(SERIAL_SCRATCH, SCRATCH_BYTES);
    }
    SERIAL_SCRATCH
}

/// Of a page of a slot's stack (of so many bytes) or of its scratch memory: the slot.
pub fn slot_of(at: usize, bytes: usize) -> Option<usize> {
    let inside = at.wrapping_sub(STACKS);
    if inside < SLOTS * STACK_STRIDE {
        return (inside % STACK_STRIDE >= STACK_STRIDE - bytes).then_some(inside / STACK_STRIDE);
    }
    let inside = at.wrapping_sub(SCRATCHES);
    (inside < SLOTS * SCRATCH_BYTES).then_some(inside / SCRATCH_BYTES)
}

/// Maps both, and their twins.
pub fn map(slot: usize, bytes: usize) {
    let (begin, end) = stack(slot, bytes);
    let lent = scratch(slot);
    if TWINS.set(slot) {
        for (at, bytes) in [(begin, end - begin), (lent, SCRATCH_BYTES)] {
            raw::reserve(at + TWIN_OFFSET, bytes);
            raw::advise(at + TWIN_OFFSET, bytes, libc::MADV_DONTDUMP);
            raw::advise(at + TWIN_OFFSET, bytes, libc::MADV_DONTFORK);
        }
    }
}

/// Where scratch memory begins, above all stacks.
pub const SCRATCH_FROM: usize = SERIAL_SCRATCH;

/// All pages that this module knows.
pub const ALL: core::ops::Range<usize> = STACKS..SCRATCHES + SLOTS * SCRATCH_BYTES;

const _: () = assert!(ALL.start.is_multiple_of(PAGE) && ALL.end.is_multiple_of(PAGE));
