//! `malloc` and its family, at the same addresses on all ranks. What is exported is in `exports`; `mmap` in `map`.
//!
//! Heaps: one of serial code (`layout::SERIAL_HEAP`), one per slot (`layout::SLOT_HEAPS`), and two of this process alone: the runtime's and the loader's (`layout::PRIVATE_HEAP`), and
//! that of the system's libraries (`layout::LIBRARY_HEAP`), which goes where their data go: into checkpoints. All state of a tracked heap
//! stands inside it, so that it is carried with the data; a slot's heap is only ever changed by its thread in regions, and by serial code.
//! A block of another heap that a thread frees in a region is put on a list in the thread's own heap; serial code gives those back, in the order of slots.
//!
//! Which heap a thread allocates from: its slot's inside regions, the libraries' inside [`privately`], else the serial one, but
//! - the loader's own memory is always private: its tables differ from rank to rank, and stay when rank 0's image comes;
//! - the C and the Fortran library's is the libraries' as long as the process starts ([`started`]): buffers, tables and units that their own data, which are not shared, point to. Later its memory is the
//!   caller's, because it may be what the caller asked for (`getline`, `asprintf`). `strdup` and its like are ours, and always the caller's; so is a stream that is opened.
//!
//! The serial heap begins with a run of 64 KiB, [`shared_page`], which the runtime keeps its shared state in.

pub mod exports;
mod map;
#[cfg(test)]
pub mod tests;

use core::alloc::{GlobalAlloc, Layout};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use polyrail_omp::layout::{
    LIBRARY_HEAP, LIBRARY_HEAP_BYTES, PAGE, PRIVATE_HEAP, PRIVATE_HEAP_BYTES, SERIAL_HEAP, SERIAL_HEAP_BYTES,
    SLOT_HEAP_BYTES, SLOT_HEAPS, SLOTS,
};

use crate::heap::{self, Heap};
use crate::modules;
use crate::raw::{self, Lock};
pub use map::has_mapped;

/// The base of the calling thread's heap; 0: the serial one. Not `thread_local!`, whose accesses are calls in a library.
mod current {
    use core::arch::{asm, global_asm};

    global_asm!(
        ".pushsection .tbss.polyrail_omp_heap,\"awT\",@nobits",
        ".globl polyrail_omp_heap",
        ".hidden polyrail_omp_heap",
        ".type polyrail_omp_heap, @object",
        ".size polyrail_omp_heap, 8",
        ".balign 8",
        "polyrail_omp_heap:",
        ".zero 8",
        ".popsection",
    );

    #[inline]
    pub fn get() -> usize {
        let base;
        // SAFETY: reads the calling thread's variable, which a library that is loaded at the start has at a fixed offset.
        unsafe {
            asm!(
                "mov {0}, qword ptr [rip + polyrail_omp_heap@GOTTPOFF]",
                "mov {0}, qword ptr fs:[{0}]",
                out(reg) base,
                options(nostack, readonly, preserves_flags)
            );
        }
        base
    }
    #[inline]
    pub fn set(base: usize) {
        // SAFETY: as above, a write.
        unsafe {
            asm!(
                "mov {0}, qword ptr [rip + polyrail_omp_heap@GOTTPOFF]",
                "mov qword ptr fs:[{0}], {1}",
                out(reg) _,
                in(reg) base,
                options(nostack, preserves_flags)
            );
        }
    }
}

/// Held by who changes the serial heap, or a slot's from serial code.
static SERIAL: Lock<()> = Lock::new(());
static PRIVATE: Lock<()> = Lock::new(());
static LIBRARY: Lock<()> = Lock::new(());
static SERIAL_MAPPED: AtomicBool = AtomicBool::new(false);
static PRIVATE_MAPPED: AtomicBool = AtomicBool::new(false);
static LIBRARY_MAPPED: AtomicBool = AtomicBool::new(false);
static SLOTS_MAPPED: AtomicBool = AtomicBool::new(false);
static STARTED: AtomicBool = AtomicBool::new(false);
/// The C library allocates for the program, before it has started.
static SHARED: AtomicBool = AtomicBool::new(false);
/// Threads that are in regions: meanwhile slots' heaps are theirs.
static ENTERED: AtomicUsize = AtomicUsize::new(0);
/// Slots whose threads have allocated since they entered.
static USED: [AtomicBool; SLOTS] = [const { AtomicBool::new(false) }; SLOTS];
/// Slots whose heaps have been used, here or, as far as records came, elsewhere.
static SEEN: [AtomicU64; SLOTS / 64] = [const { AtomicU64::new(0) }; SLOTS / 64];

/// Our own memory.
struct Own;

// SAFETY: a heap of its own under a lock.
unsafe impl GlobalAlloc for Own {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocate_in(PRIVATE_HEAP, layout.align(), layout.size()).0 as *mut u8
    }
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller's.
        let free = |heap: &mut Heap| unsafe { heap.free(block as usize) };
        private(free);
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller's.
        if private(|heap| unsafe { heap.resize(block as usize, bytes) }) {
            return block;
        }
        let (new, _) = allocate_in(PRIVATE_HEAP, layout.align(), bytes);
        if new != 0 {
            // SAFETY: two blocks of at least so many bytes; the old one is the caller's.
            unsafe {
                core::ptr::copy_nonoverlapping(block, new as *mut u8, layout.size().min(bytes));
                self.dealloc(block, layout);
            }
        }
        new as *mut u8
    }
}

#[cfg(not(test))]
#[global_allocator]
static OWN: Own = Own;

fn private<R>(f: impl FnOnce(&mut Heap) -> R) -> R {
    own(PRIVATE_HEAP, PRIVATE_HEAP_BYTES, &PRIVATE, &PRIVATE_MAPPED, f)
}
fn library<R>(f: impl FnOnce(&mut Heap) -> R) -> R {
    own(LIBRARY_HEAP, LIBRARY_HEAP_BYTES, &LIBRARY, &LIBRARY_MAPPED, f)
}
/// A heap of this process alone.
fn own<R>(
    base: usize,
    bytes: usize,
    lock: &Lock<()>,
    mapped: &AtomicBool,
    f: impl FnOnce(&mut Heap) -> R,
) -> R {
    lock.with(|()| {
        if !mapped.load(Ordering::Relaxed) {
            raw::reserve(base, bytes);
            mapped.store(true, Ordering::Relaxed);
        }
        // SAFETY: the region is mapped and under its lock.
        f(unsafe { Heap::at(base, bytes) })
    })
}
/// The serial heap, under its lock.
fn serial<R>(f: impl FnOnce(&mut Heap) -> R) -> R {
    SERIAL.with(|()| {
        map_serial();
        // SAFETY: the region is mapped and under its lock.
        f(unsafe { Heap::at(SERIAL_HEAP, SERIAL_HEAP_BYTES) })
    })
}
/// A slot's heap. The calling thread is in the slot, or holds the serial lock while nobody is in any.
unsafe fn of_slot<'a>(base: usize) -> &'a mut Heap {
    // SAFETY: mapped when the first slot was entered or tracked; the caller's alone.
    unsafe { Heap::at(base, SLOT_HEAP_BYTES) }
}

/// Maps the serial heap if it is not.
pub fn map_serial() {
    if !SERIAL_MAPPED.swap(true, Ordering::Relaxed) {
        raw::reserve(SERIAL_HEAP, SERIAL_HEAP_BYTES);
        huge(SERIAL_HEAP, SERIAL_HEAP_BYTES);
    }
}
/// Maps the slots' heaps if they are not.
pub fn map_slots() {
    SERIAL.with(|()| {
        if !SLOTS_MAPPED.swap(true, Ordering::Relaxed) {
            raw::reserve(SLOT_HEAPS, SLOTS * SLOT_HEAP_BYTES);
        }
    });
}
/// Huge pages for all but the begin of a heap, which small programs are content with.
pub fn huge(base: usize, bytes: usize) {
    raw::advise(base + heap::HUGE_FROM, bytes - heap::HUGE_FROM, libc::MADV_HUGEPAGE);
}

/// Where the calling thread allocates from now on: a slot's heap.
pub fn enter(slot: usize) {
    if !SLOTS_MAPPED.load(Ordering::Acquire) {
        map_slots();
    }
    ENTERED.fetch_add(1, Ordering::AcqRel);
    seen(slot);
    USED[slot].store(false, Ordering::Relaxed);
    current::set(SLOT_HEAPS + slot * SLOT_HEAP_BYTES);
}

/// Whether the thread of `slot` has allocated since it entered.
pub fn used(slot: usize) -> bool {
    USED[slot].load(Ordering::Relaxed)
}

/// Back to the heap of serial code.
pub fn leave() {
    current::set(0);
    ENTERED.fetch_sub(1, Ordering::AcqRel);
}

/// Runs `f` with what the C library allocates meanwhile in this process's own heap of its libraries.
pub fn privately<T>(f: impl FnOnce() -> T) -> T {
    let before = current::get();
    current::set(LIBRARY_HEAP);
    let result = f();
    current::set(before);
    result
}

/// Whether this is inside [`privately`].
pub fn is_privately() -> bool {
    current::get() == LIBRARY_HEAP
}

/// Runs `f`, telling it whether the process starts yet; then what the C library allocates meanwhile is serial code's.
pub fn shared_at_start<T>(f: impl FnOnce(bool) -> T) -> T {
    let starting = !STARTED.load(Ordering::Relaxed);
    SHARED.store(starting, Ordering::Relaxed);
    let result = f(starting);
    SHARED.store(false, Ordering::Relaxed);
    result
}

/// The process has started: constructors have run.
pub fn started() {
    if LOADER[1].load(Ordering::Relaxed) == 0 {
        find_libraries();
    }
    STARTED.store(true, Ordering::Relaxed);
}

/// Whether it has.
pub fn is_started() -> bool {
    STARTED.load(Ordering::Relaxed)
}

/// Gives back what regions freed of other heaps, in the order of slots. Serial code of rank 0, outside regions.
pub fn settle() {
    serial(|heap| {
        // SAFETY: nobody is in a slot, so all heaps are under the lock of the serial one.
        unsafe {
            settle_one(heap);
            // a heap that has not begun stays so: other ranks may not know that its slot was ever entered
            for_seen(|slot| {
                let base = SLOT_HEAPS + slot * SLOT_HEAP_BYTES;
                if Heap::high(base).is_some() {
                    settle_one(of_slot(base));
                }
            });
        }
    });
}
unsafe fn settle_one(heap: &mut Heap) {
    // SAFETY: the caller holds all heaps; what was deferred is a block in use.
    unsafe {
        while let Some(block) = heap.deferred() {
            match owner(block) {
                SERIAL_HEAP => Heap::at(SERIAL_HEAP, SERIAL_HEAP_BYTES).free(block),
                0 | PRIVATE_HEAP | LIBRARY_HEAP => {}
                base => of_slot(base).free(block),
            }
        }
    }
}

/// A slot's heap is used: tracked from now on. Whether it was not before.
pub fn seen(slot: usize) -> bool {
    let bit = 1 << (slot % 64);
    let new = SEEN[slot / 64].load(Ordering::Relaxed) & bit == 0
        && SEEN[slot / 64].fetch_or(bit, Ordering::AcqRel) & bit == 0;
    if new {
        huge(SLOT_HEAPS + slot * SLOT_HEAP_BYTES, SLOT_HEAP_BYTES);
    }
    new
}
/// Calls `f` with each slot whose heap is used, in their order.
pub fn for_seen(mut f: impl FnMut(usize)) {
    for (word, bits) in SEEN.iter().enumerate() {
        let mut bits = bits.load(Ordering::Acquire);
        while bits != 0 {
            f(64 * word + bits.trailing_zeros() as usize);
            bits &= bits - 1;
        }
    }
}
/// The end of what was ever used of the tracked heap at `base`, which is mapped; its first pages if it has not begun.
pub fn high(base: usize) -> usize {
    // SAFETY: the tracked heaps are mapped when they are tracked.
    unsafe { Heap::high(base) }.unwrap_or(base + heap::RESERVED)
}

/// The end of what was ever used of the libraries' heap.
pub fn library_high() -> usize {
    library(|_| high(LIBRARY_HEAP))
}
/// What was used of the libraries' heap up to `high` becomes zero.
///
/// # Safety
/// Nobody uses it.
pub unsafe fn clear_library(high: usize) {
    raw::advise(LIBRARY_HEAP, high.next_multiple_of(PAGE) - LIBRARY_HEAP, libc::MADV_DONTNEED);
}
/// Whether a block is the runtime's own, or the loader's.
pub fn is_runtimes(block: usize) -> bool {
    owner(block) == PRIVATE_HEAP
}

/// 64 KiB at the begin of the serial heap: the runtime's state that is shared like a program's data.
pub fn shared_page() -> *mut u8 {
    serial(|_| SERIAL_HEAP as *mut u8)
}

/// Whether a block is of the serial heap.
pub fn is_serial(block: usize) -> bool {
    owner(block) == SERIAL_HEAP
}
/// Whether it is this process's own.
pub fn is_private(block: usize) -> bool {
    matches!(owner(block), PRIVATE_HEAP | LIBRARY_HEAP)
}
/// Whether it is of one that all ranks have.
pub fn is_tracked(block: usize) -> bool {
    !matches!(owner(block), 0 | PRIVATE_HEAP | LIBRARY_HEAP)
}

/// The base of the heap that a block is of; 0 if it is none of ours.
#[inline]
fn owner(block: usize) -> usize {
    if block.wrapping_sub(SERIAL_HEAP) < SERIAL_HEAP_BYTES {
        SERIAL_HEAP
    } else if block.wrapping_sub(SLOT_HEAPS) < SLOTS * SLOT_HEAP_BYTES {
        block & !(SLOT_HEAP_BYTES - 1)
    } else if block.wrapping_sub(PRIVATE_HEAP) < PRIVATE_HEAP_BYTES {
        PRIVATE_HEAP
    } else if block.wrapping_sub(LIBRARY_HEAP) < LIBRARY_HEAP_BYTES {
        LIBRARY_HEAP
    } else {
        0
    }
}
const _: () = assert!(SLOT_HEAPS.is_multiple_of(SLOT_HEAP_BYTES), "a slot's base is found by masking");

/// Where the loader and the C library are, from and to.
static LOADER: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
static LIBC: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// And the Fortran library's code, if there is one.
static FORTRAN: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

#[inline]
fn within(range: &[AtomicUsize; 2], address: usize) -> bool {
    let from = range[0].load(Ordering::Relaxed);
    address.wrapping_sub(from) < range[1].load(Ordering::Relaxed).wrapping_sub(from)
}
/// Whether a call is the Fortran library's. Constructors run, so all that the program needs is loaded.
pub fn is_fortran(caller: usize) -> bool {
    static KNOWN: AtomicBool = AtomicBool::new(false);
    if !KNOWN.swap(true, Ordering::Relaxed) {
        let modules = modules::all();
        let library = modules.iter().find(|module| module.name.contains("/libgfortran"));
        for segment in library.iter().flat_map(|library| library.segments.iter().filter(|one| one.executable))
        {
            FORTRAN[0].store(segment.start, Ordering::Relaxed);
            FORTRAN[1].store(segment.end, Ordering::Relaxed);
        }
    }
    within(&FORTRAN, caller)
}
#[cold]
fn find_libraries() {
    unsafe extern "C" {
        fn __tls_get_addr(index: *const usize) -> *mut u8;
    }
    // A function that the loader defines, and one that the C library does.
    for (range, inside) in
        [(&LIBC, libc::atoi as *const () as usize), (&LOADER, __tls_get_addr as *const () as usize)]
    {
        let (from, to) = extent(inside);
        range[0].store(from, Ordering::Relaxed);
        range[1].store(to, Ordering::Relaxed);
    }
}
/// The addresses of the library that has `inside` in its code.
fn extent(inside: usize) -> (usize, usize) {
    let mut base = inside & !0xfff;
    // SAFETY: a library's first segment has its ELF header, and what is between that and its code is mapped; the program headers are in that segment.
    unsafe {
        while *(base as *const [u8; 4]) != *b"\x7fELF" {
            base -= 0x1000;
        }
        let header = &*(base as *const libc::Elf64_Ehdr);
        let programs = (base + header.e_phoff as usize) as *const libc::Elf64_Phdr;
        let end = (0..usize::from(header.e_phnum))
            .map(|i| &*programs.add(i))
            .filter(|program| program.p_type == libc::PT_LOAD)
            .map(|program| (program.p_vaddr + program.p_memsz) as usize)
            .max();
        (base, base + end.unwrap_or(0))
    }
}

/// The heap that serves a call from `caller`.
#[inline]
fn choose(caller: usize) -> usize {
    if within(&LOADER, caller) {
        return PRIVATE_HEAP;
    }
    match current::get() {
        0 if !STARTED.load(Ordering::Relaxed) => choose_starting(caller),
        0 => SERIAL_HEAP,
        base => base,
    }
}
#[cold]
fn choose_starting(caller: usize) -> usize {
    if LOADER[1].load(Ordering::Relaxed) == 0 {
        find_libraries();
    }
    if within(&LOADER, caller) {
        return PRIVATE_HEAP;
    }
    let systems = within(&LIBC, caller) || is_fortran(caller);
    if systems && !SHARED.load(Ordering::Relaxed) { LIBRARY_HEAP } else { SERIAL_HEAP }
}

/// A block in the heap at `base`, 0 if there is no room, and whether it is zero already.
#[inline]
pub fn allocate_in(base: usize, align: usize, bytes: usize) -> (usize, bool) {
    // SAFETY: each heap's exclusion is taken here.
    let from = |heap: &mut Heap| unsafe {
        if align <= 16 { heap.allocate(bytes) } else { heap.aligned(align, bytes) }
    };
    match base {
        _ if bytes > isize::MAX as usize => (0, false),
        SERIAL_HEAP => serial(from),
        PRIVATE_HEAP => private(from),
        LIBRARY_HEAP => library(from),
        slot => {
            let used = &USED[(slot - SLOT_HEAPS) / SLOT_HEAP_BYTES];
            if !used.load(Ordering::Relaxed) {
                used.store(true, Ordering::Relaxed);
            }
            // SAFETY: the calling thread's own slot.
            from(unsafe { of_slot(slot) })
        }
    }
}
/// Gives a block back; nothing happens to what is none of ours.
///
/// # Safety
/// The block is in use.
#[inline]
unsafe fn free(block: usize) {
    let (mine, base) = (current::get(), owner(block));
    // SAFETY: the block is the caller's; each heap's exclusion is taken here.
    unsafe {
        match base {
            0 => {}
            PRIVATE_HEAP => private(|heap| heap.free(block)),
            LIBRARY_HEAP => library(|heap| heap.free(block)),
            SERIAL_HEAP if mine == 0 => serial(|heap| heap.free(block)),
            base if base == mine => of_slot(base).free(block),
            base if mine == 0 => serial(|heap| {
                if ENTERED.load(Ordering::Acquire) == 0 {
                    of_slot(base).free(block)
                } else {
                    heap.defer(block)
                }
            }),
            // What the C library lets go of in our name is not ours to tell other ranks.
            _ if mine == LIBRARY_HEAP => {}
            _ => of_slot(mine).defer(block),
        }
    }
}
/// Makes a block larger or smaller where it is, if it is of the calling thread's heap.
///
/// # Safety
/// The block is in use.
unsafe fn resize(block: usize, bytes: usize) -> bool {
    let mine = match current::get() {
        0 => SERIAL_HEAP,
        base => base,
    };
    // SAFETY: the block is the caller's; each heap's exclusion is taken here.
    unsafe {
        match owner(block) {
            PRIVATE_HEAP => private(|heap| heap.resize(block, bytes)),
            LIBRARY_HEAP => library(|heap| heap.resize(block, bytes)),
            base if base != mine => false,
            SERIAL_HEAP => serial(|heap| heap.resize(block, bytes)),
            base => of_slot(base).resize(block, bytes),
        }
    }
}
/// A block with the contents of `block`, which is given back; 0 if there is no room, and then nothing changed.
///
/// # Safety
/// The block is in use.
unsafe fn reallocate(block: usize, align: usize, bytes: usize, caller: usize) -> usize {
    // SAFETY: the block is the caller's, the new one has room for what is copied.
    unsafe {
        if resize(block, bytes) {
            return block;
        }
        let old = if owner(block) == 0 { 0 } else { heap::usable(block) };
        // What the C or the Fortran library made for itself stays its own; what it made for the program is the program's from here on.
        let systems =
            is_private(block) && (within(&LIBC, caller) || within(&LOADER, caller) || is_fortran(caller));
        let base = if systems { owner(block) } else { choose(caller) };
        let (new, _) = allocate_in(base, align, bytes);
        if new != 0 {
            core::ptr::copy_nonoverlapping(block as *const u8, new as *mut u8, old.min(bytes));
            free(block);
        }
        new
    }
}

extern "C" fn before_fork() {
    SERIAL.acquire();
    LIBRARY.acquire();
    PRIVATE.acquire();
}
extern "C" fn after_fork() {
    PRIVATE.release();
    LIBRARY.release();
    SERIAL.release();
}
/// A child must find the heaps unlocked: the threads that held the locks are not in it.
extern "C" fn at_start() {
    // SAFETY: registers functions that stay.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
}
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;
