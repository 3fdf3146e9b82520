//! Threads of this process and their stacks.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

use polyrail_omp::layout::{PAGE, SLOTS, slot};

use super::replicated;

use crate::{agent, alloc, mapping, remote, run, sync, sys, thread};

/// Threads that there are, the main thread of rank 0 included.
static THREADS: AtomicUsize = AtomicUsize::new(0);
/// What the threads of the pool wait on: regions begun in the high half, local threads of the present one in the low half.
static CALL: sync::Word = sync::Word::new(0);
/// Threads that this process can have in a team.
pub fn most() -> usize {
    match run::size() {
        1 => SLOTS,
        // the last is the leader's of ranks above 0
        size => (SLOTS / size).min(polyrail_omp::area::LOCALS - 1),
    }
}

unsafe extern "C" {
    /// The C library's; an interposer that the program brings along counts, too.
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> i32;
}

/// Has children of `fork` begin anew.
pub fn watch_forks() {
    static ONCE: AtomicU32 = AtomicU32::new(0);
    if ONCE.swap(1, Relaxed) == 0 {
        // SAFETY: the function stays.
        alloc::privately(|| unsafe { pthread_atfork(None, None, Some(forked)) });
    }
}

/// A child of `fork` has only the thread that called it.
extern "C" fn forked() {
    THREADS.store(0, Relaxed);
    CALL.reset(0);
    run::set_team(0);
    mapping::detach();
}

/// Makes sure that there are threads for the local numbers up to `count`.
pub fn ensure(count: usize) {
    let have = THREADS.load(Relaxed);
    if have >= count {
        return;
    }
    watch_forks();
    // number 0 is the caller
    alloc::privately(|| (have.max(1)..count).for_each(|local| create(local, member)));
    THREADS.store(count, Relaxed);
}

/// Ranks above 0: begins the thread that works for rank 0, or for this rank's main thread where that runs serial code, as number 0 of the pool.
pub fn lead() {
    watch_forks();
    alloc::privately(|| create(0, leader));
}

extern "C" fn leader(_: *mut c_void) -> *mut c_void {
    begin(0);
    if run::is_replicated() {
        replicated::work();
    }
    if let Some(told) = super::TOLD.get() {
        (told.leads)();
    }
    loop {
        remote::next(super::run);
    }
}

fn create(local: usize, run: extern "C" fn(*mut c_void) -> *mut c_void) {
    let (begin, end) = thread::stack(slot(run::rank(), local, run::size()));
    // SAFETY: plain use of the C library; the stack is the new thread's alone.
    let failed = unsafe {
        let mut attributes = core::mem::zeroed::<libc::pthread_attr_t>();
        libc::pthread_attr_init(&mut attributes);
        // not the last page: what stands next to a stack's end is its neighbour's beginning
        libc::pthread_attr_setstack(&mut attributes, begin as *mut c_void, end - begin - PAGE);
        libc::pthread_attr_setdetachstate(&mut attributes, libc::PTHREAD_CREATE_DETACHED);
        let mut thread = core::mem::zeroed::<libc::pthread_t>();
        libc::pthread_create(&mut thread, &attributes, run, local as *mut c_void)
    };
    if failed != 0 {
        sys::stop(
            "threads",
            "the system gives no more of them; ask for fewer (OMP_NUM_THREADS, -t), or for bigger stacks (OMP_STACKSIZE)",
        );
    }
}

/// What a thread of the pool begins with.
#[inline(always)]
fn begin(local: usize) {
    let thread = thread::current();
    let mark = 0u8;
    if mapping::attached() {
        agent::use_slot(local);
    }
    thread.local.set(local);
    thread.pooled.set(true);
    thread.top.set(core::ptr::from_ref(&mark) as usize & !15);
    thread.began();
}

/// A thread of the pool.
extern "C" fn member(local: *mut c_void) -> *mut c_void {
    let local = local as usize;
    begin(local);
    let mut seen = 0;
    loop {
        let call = CALL.load();
        if call != seen && local < (call & 0xffff) as usize {
            super::member(local);
        } else {
            CALL.until_not(call);
        }
        seen = call;
    }
}

/// How many there are.
pub fn count() -> usize {
    THREADS.load(Relaxed).max(1)
}

/// Has the threads up to `count` run the team's region.
pub fn call(count: usize) {
    CALL.set((CALL.load() & 0xffff_0000).wrapping_add(1 << 16) | count as u32);
}
