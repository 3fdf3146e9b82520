//! `malloc` and its family, `mmap` of anonymous memory: at the same addresses on all ranks.
//!
//! Heaps: one of serial code (`layout::SERIAL_HEAP`), one per slot (`layout::SLOT_HEAPS`), one of this process alone (`layout::PRIVATE_HEAP`). All state of a tracked heap
//! stands inside it, so that it is carried with the data; a slot's heap is only ever changed by its thread in regions, and by serial code.
//! A block of another heap that a thread frees in a region is put on a list in the thread's own heap; serial code gives those back, in the order of slots.

/// Where the calling thread allocates from now on: a slot's heap.
pub fn enter(slot: usize) {
    let _ = slot;
}

/// Back to the heap of serial code.
pub fn leave() {}

/// Runs `f` with what the C library allocates meanwhile in this process's own heap.
pub fn privately<T>(f: impl FnOnce() -> T) -> T {
    f()
}
