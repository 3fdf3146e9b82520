//! What belongs to a thread, whatever it does: its number, its stack, its scratch memory, the tokens that it has.

use core::arch::asm;
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use polyrail_omp::layout::{SCRATCH_BYTES, SLOTS, STACK_STRIDE, STACKS, slot};

use crate::{icv, run, stacks, sys};

/// A thread.
pub struct Thread {
    /// Tokens that it has.
    pub tokens: Cell<usize>,
    /// Number among this process's threads of teams; 0 for the main thread on rank 0.
    pub local: Cell<usize>,
    /// A thread of the pool.
    pub pooled: Cell<bool>,
    /// The process's first thread, once that is known.
    main: Cell<Option<bool>>,
    /// Its frames stand below this address.
    pub top: Cell<usize>,
    /// It is of a team of which other ranks have threads.
    pub spread: Cell<bool>,
    /// `single`s that it has come to in that team.
    pub singles: Cell<u64>,
    /// Its scratch memory; of serial code that runs on all ranks; and else.
    scratch: [Scratch; 2],
}

thread_local! {
    static CURRENT: Thread = const {
        Thread {
            tokens: Cell::new(0),
            local: Cell::new(0),
            pooled: Cell::new(false),
            main: Cell::new(None),
            top: Cell::new(0),
            spread: Cell::new(false),
            singles: Cell::new(0),
            scratch: [const { Scratch::new() }; 2],
        }
    };
}

/// Where each thread of the pool has its thread-local storage, by number; 0: there is none.
pub static POINTERS: [AtomicUsize; SLOTS] = [const { AtomicUsize::new(0) }; SLOTS];

/// Where the calling thread has its own.
pub fn pointer() -> usize {
    let pointer;
    // SAFETY: the first word of a thread's descriptor is its address (System V ABI, thread-local storage, variant II)
    unsafe { asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly, preserves_flags)) };
    pointer
}

impl Thread {
    /// A thread of the pool, which has its number, begins.
    pub fn began(&self) {
        POINTERS[self.local.get()].store(pointer(), Relaxed);
    }
}

/// The calling thread.
pub fn current() -> &'static Thread {
    // SAFETY: it has no destructor and stays until the thread is gone; only this thread uses it.
    CURRENT.with(|current| unsafe { &*core::ptr::from_ref(current) })
}

/// Whether this is the process's first thread.
pub fn is_main() -> bool {
    let thread = current();
    if thread.main.get().is_none() {
        thread.main.set(Some(!thread.pooled.get() && sys::is_first_thread()));
    }
    thread.main.get() == Some(true)
}

/// In front of each block of scratch memory.
#[repr(C, align(16))]
struct Block {
    before: *mut Block,
    free: AtomicU32,
}

/// Memory of a thread, given back in about the reverse order.
struct Scratch {
    begin: Cell<usize>,
    /// The last block, and where the next one would be.
    last: Cell<*mut Block>,
    next: Cell<usize>,
}

impl Scratch {
    const fn new() -> Self {
        Self { begin: Cell::new(0), last: Cell::new(core::ptr::null_mut()), next: Cell::new(0) }
    }

    /// Whether it begins now.
    fn begins(&self) -> bool {
        self.begin.get() == 0
    }

    fn begin_at(&self, at: usize) {
        self.begin.set(at);
        self.next.set(at);
    }

    fn get(&self, bytes: usize) -> *mut u8 {
        let at = self.next.get();
        let end = at + size_of::<Block>() + bytes.next_multiple_of(16);
        if bytes > SCRATCH_BYTES || end > self.begin.get() + SCRATCH_BYTES {
            sys::stop(
                "tasks",
                "a thread has more than 256 MiB of copies for unfinished tasks; pass big data by reference",
            );
        }
        let block = at as *mut Block;
        // SAFETY: within this thread's mapping.
        unsafe { block.write(Block { before: self.last.get(), free: AtomicU32::new(0) }) };
        self.last.set(block);
        self.next.set(end);
        (at + size_of::<Block>()) as *mut u8
    }

    /// # Safety
    /// It is from `get`, and used no more.
    unsafe fn give_back(&self, at: *mut u8) {
        // SAFETY: a block stands in front of what `get` gives.
        unsafe {
            let block = at.cast::<Block>().sub(1);
            (*block).free.store(1, Relaxed);
            while let Some(last) = self.last.get().as_ref().filter(|last| last.free.load(Relaxed) == 1) {
                self.next.set(core::ptr::from_ref(last) as usize);
                self.last.set(last.before);
            }
        }
    }
}

/// Memory of this thread alone, given back in about the reverse order. 16 bytes aligned, not zeroed. Of threads of a team it is where it is on no other thread of any rank.
pub fn scratch(bytes: usize) -> *mut u8 {
    let thread = current();
    if run::is_replicated() && is_main() && run::team() == 0 {
        let [serial, _] = &thread.scratch;
        if serial.begins() {
            serial.begin_at(stacks::serial_scratch());
        }
        return serial.get(bytes);
    }
    let [_, own] = &thread.scratch;
    if own.begins() {
        own.begin_at(if thread.pooled.get() || is_main() {
            stacks::scratch(slot(run::rank(), thread.local.get(), run::size()))
        } else {
            sys::map(SCRATCH_BYTES) as usize
        });
    }
    own.get(bytes)
}

/// What of the calling thread's scratch memory is in use.
pub fn lent() -> core::ops::Range<usize> {
    let [_, own] = &current().scratch;
    own.begin.get()..own.next.get()
}

/// Gives `at` back, by the thread that has it from [`scratch`].
///
/// # Safety
/// It is used no more.
pub unsafe fn unscratch(at: *mut u8) {
    let [serial, own] = &current().scratch;
    let is_own = (at as usize).wrapping_sub(own.begin.get()) < SCRATCH_BYTES && !own.begins();
    // SAFETY: the caller's
    unsafe { if is_own { own } else { serial }.give_back(at) };
}

/// Whether any of the calling thread's scratch memory is in use.
pub fn has_scratch() -> bool {
    current().scratch.iter().any(|scratch| !scratch.last.get().is_null())
}

/// The stack of `slot`, mapped if it was not: where it begins and ends.
pub fn stack(slot: usize) -> (usize, usize) {
    stacks::stack(slot, icv::stack_bytes())
}

/// Has other ranks' stacks writable at `lo..hi`.
pub fn reserve_stacks(lo: usize, hi: usize) {
    for slot in (lo - STACKS) / STACK_STRIDE..=(hi - 1 - STACKS) / STACK_STRIDE {
        let (begin, _) = stack(slot);
        if lo < begin && lo >= STACKS + slot * STACK_STRIDE {
            sys::stop("stacks", "another rank's threads have larger ones; set OMP_STACKSIZE");
        }
    }
}
