//! Addresses that are the same in every process of a run, so that a pointer means the same everywhere.
//!
//! All stand between the heap of a program at a fixed address and where the kernel places programs and libraries when it does not randomize
//! (0x5555_5555_4000 and 0x7fff_ffff_f000 downwards), within 47 bits.

/// Bytes of a page. Huge pages are tracked in pages of this size, too.
pub const PAGE: usize = 4096;

/// Threads of all ranks together: each (rank, local thread) pair has a *slot*, `rank * (SLOTS / size) + local`.
pub const SLOTS: usize = 1024;

/// The heap that serial code allocates from; tracked.
pub const SERIAL_HEAP: usize = 0x1000_0000_0000;
/// Bytes of [`SERIAL_HEAP`]: 1 TiB.
pub const SERIAL_HEAP_BYTES: usize = 1 << 40;
/// A slot's heap, which its thread allocates from inside regions, is at `SLOT_HEAPS + slot * SLOT_HEAP_BYTES`; tracked.
pub const SLOT_HEAPS: usize = 0x1800_0000_0000;
/// 8 GiB each.
pub const SLOT_HEAP_BYTES: usize = 1 << 33;
/// What the runtime and the loader keep for this process alone; not tracked. 1 TiB.
pub const PRIVATE_HEAP: usize = 0x2000_0000_0000;
/// Bytes of [`PRIVATE_HEAP`].
pub const PRIVATE_HEAP_BYTES: usize = 1 << 40;
/// What the libraries of the system keep for this process alone; not tracked, but part of a checkpoint as their data are. 1 TiB.
pub const LIBRARY_HEAP: usize = 0x2100_0000_0000;
/// Bytes of [`LIBRARY_HEAP`].
pub const LIBRARY_HEAP_BYTES: usize = 1 << 40;
/// Where rank 0 has what it goes on from, a checkpoint's files among it, until it has: out of the way of what the kernel is to map where it was.
pub const RESUMING: usize = 0x2200_0000_0000;
/// A slot's stack ends (its high end) at `STACKS + (slot + 1) * STACK_STRIDE`. On a rank, other ranks' slots are reserved, so that pieces can be placed there.
pub const STACKS: usize = 0x2800_0000_0000;
/// 1 GiB of addresses for a stack; how much of it can be used is OMP_STACKSIZE's business.
pub const STACK_STRIDE: usize = 1 << 30;
/// What the runtime lends to serial code that runs on every rank, at the same addresses.
pub const SERIAL_SCRATCH: usize = 0x2900_0000_0000;
/// What the runtime lends to a slot's thread, for tasks among other things, is at `SCRATCHES + slot * SCRATCH_BYTES`.
pub const SCRATCHES: usize = 0x2910_0000_0000;
/// 256 MiB each, also of [`SERIAL_SCRATCH`].
pub const SCRATCH_BYTES: usize = 256 << 20;
/// The mapping that agent and program share (see [`crate::area`]).
pub const AREA: usize = 0x2a00_0000_0000;
/// Ranks of one host that map each other's files, at most.
pub const SHARING: usize = 64;
/// The mapping of another rank of the same host, where files are shared, and bytes of addresses for each.
pub const fn peer(rank: usize) -> usize {
    AREA + (rank + 1) * PEER_STRIDE
}
const PEER_STRIDE: usize = 8 << 30;
/// Twins: the twin of a tracked byte at `a` of a heap, a slot's stack or its scratch memory is at `a + TWIN_OFFSET`; of other tracked ranges, the tracker places it from [`OTHER_TWINS`] on.
pub const TWIN_OFFSET: usize = 0x2800_0000_0000;
/// See [`TWIN_OFFSET`].
pub const OTHER_TWINS: usize = 0x2c00_0000_0000;

/// The slot of local thread `local` of `rank` among `size` ranks.
pub const fn slot(rank: usize, local: usize, size: usize) -> usize {
    rank * (SLOTS / size) + local
}

const _: () = {
    assert!(SERIAL_HEAP + SERIAL_HEAP_BYTES <= SLOT_HEAPS);
    assert!(SLOT_HEAPS + SLOTS * SLOT_HEAP_BYTES <= PRIVATE_HEAP);
    assert!(
        PRIVATE_HEAP + PRIVATE_HEAP_BYTES <= LIBRARY_HEAP
            && LIBRARY_HEAP + LIBRARY_HEAP_BYTES <= RESUMING
            && RESUMING < STACKS
    );
    assert!(STACKS + SLOTS * STACK_STRIDE <= SERIAL_SCRATCH && SERIAL_SCRATCH + SCRATCH_BYTES <= SCRATCHES);
    assert!(SCRATCHES + SLOTS * SCRATCH_BYTES <= AREA);
    assert!(peer(SHARING) <= AREA + (1 << 41));
    assert!(AREA + (1 << 41) <= OTHER_TWINS && OTHER_TWINS + (1 << 43) <= SERIAL_HEAP + TWIN_OFFSET);
    assert!(SLOT_HEAPS + SLOTS * SLOT_HEAP_BYTES + TWIN_OFFSET <= STACKS + TWIN_OFFSET);
    assert!(SCRATCHES + SLOTS * SCRATCH_BYTES + TWIN_OFFSET <= 0x5500_0000_0000);
};
