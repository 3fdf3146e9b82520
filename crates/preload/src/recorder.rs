//! Rings of threads, and the session that they belong to.
//!
//! A record is four stores and the advance of `head`: no lock, no allocation, no system call. Everything else happens seldom: per
//! process (the session page), per thread (its ring, which grows a few times), per fork (the child must not write to its parent's).

use std::cell::{Cell, UnsafeCell};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering, compiler_fence};

use polyrail_core::trace::ring::{self, session};
use polyrail_core::trace::{Call, RECORD, Record, SocketFields, Span, flags, note};
use polyrail_native::counter;

use crate::filter;
use crate::ring::{self as rings, Ring, word32, word64};
use crate::room::await_collector;
use crate::sys::{self, Address, File, quietly};

/// The session page; null while nothing is recorded.
static SESSION: AtomicPtr<u8> = AtomicPtr::new(null_mut());
/// The same in a program that is not among those that are recorded: what it starts may be.
static LEFT_OUT: AtomicPtr<u8> = AtomicPtr::new(null_mut());
/// Whether the processor's counter is the clock.
static COUNTER: AtomicBool = AtomicBool::new(false);
/// Number of this process in the session.
static PROCESS: AtomicU64 = AtomicU64::new(0);
/// Its id.
static PID: AtomicI32 = AtomicI32::new(0);
/// A word that the kernel sets to zero in a forked child.
static ALIVE: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
/// Counts forks on the way to this process: what was known about descriptors before one is told anew.
static GENERATION: AtomicU32 = AtomicU32::new(1);
/// See [`sandboxed`].
static SANDBOXED: AtomicBool = AtomicBool::new(false);
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);

/// Calls that found nothing and took no longer than this many ticks are counted rather than recorded.
const SHORT: u64 = 1 << 17;
/// A run of such calls is written out when it is this old, in ticks: some milliseconds.
const RUN: u64 = 1 << 24;

/// Whether this process records.
#[inline(always)]
pub fn on() -> bool {
    !SESSION.load(Ordering::Relaxed).is_null()
}

/// Whether what this process starts may be recorded.
pub fn has_session() -> bool {
    on() || !LEFT_OUT.load(Ordering::Relaxed).is_null()
}

/// The trace clock.
#[inline(always)]
pub fn now() -> u64 {
    if COUNTER.load(Ordering::Relaxed) { counter::ticks() } else { sys::nanoseconds(libc::CLOCK_MONOTONIC) }
}

/// See [`GENERATION`], in eight bits, never 0.
#[inline(always)]
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Whether the program has put itself behind a filter of system calls: we make none any more.
#[inline(always)]
pub fn sandboxed() -> bool {
    SANDBOXED.load(Ordering::Relaxed)
}

/// See [`sandboxed`].
pub fn sandbox() {
    SANDBOXED.store(true, Ordering::Relaxed);
}

/// Id of this process.
pub fn process() -> u32 {
    PID.load(Ordering::Relaxed) as u32
}

/// Whether recording has ended, though the program goes on: then this process records no more.
#[cold]
pub fn is_over() -> bool {
    let page = [&SESSION, &LEFT_OUT]
        .map(|page| page.load(Ordering::Relaxed))
        .into_iter()
        .find(|page| !page.is_null());
    // SAFETY: the page stays mapped for good
    let over = page.is_none_or(|page| unsafe { word32(page, session::AT_STOP) }.load(Ordering::Relaxed) != 0);
    if over {
        SESSION.store(null_mut(), Ordering::Relaxed);
        LEFT_OUT.store(null_mut(), Ordering::Relaxed);
    }
    over
}

/// Whether a session option is set.
pub fn option(bit: u32) -> bool {
    let page = SESSION.load(Ordering::Relaxed);
    // SAFETY: the page stays mapped for good
    on() && unsafe { word32(page, session::AT_OPTIONS) }.load(Ordering::Relaxed) & bit != 0
}

/// Begins recording in this process: the page of the session is mapped. Whether it is to be recorded; `None`: it cannot be.
pub fn begin(file: &File) -> Option<bool> {
    let page = file.map(session::SIZE);
    if page.is_null() {
        return None;
    }
    // SAFETY: the page was just mapped and stays so
    let (magic, clock) = unsafe { (word64(page, session::AT_MAGIC), word32(page, session::AT_CLOCK)) };
    if magic.load(Ordering::Acquire) != session::MAGIC {
        return None;
    }
    // SAFETY: the page stays mapped for good
    if unsafe { !filter::begin(page) } {
        LEFT_OUT.store(page, Ordering::Relaxed);
        // SAFETY: takes nothing
        PID.store(unsafe { libc::getpid() }, Ordering::Relaxed);
        return Some(false);
    }
    COUNTER.store(clock.load(Ordering::Relaxed) == 1, Ordering::Relaxed);
    // one page that forked children find empty
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new anonymous mapping
    let alive = unsafe { libc::mmap(null_mut(), session::SIZE, access, kind, -1, 0) };
    if alive == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping is ours
    if unsafe { libc::madvise(alive, session::SIZE, libc::MADV_WIPEONFORK) } != 0 {
        return None;
    }
    rings::look_whether_they_grow(alive.cast());
    // SAFETY: a function of the right type
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    let mut key = 0;
    // SAFETY: a place for the key, and a function of the right type
    if unsafe { libc::pthread_key_create(&mut key, Some(thread_ends)) } == 0 {
        KEY.store(key, Ordering::Relaxed);
    }
    ALIVE.store(alive.cast(), Ordering::Relaxed);
    SESSION.store(page, Ordering::Release);
    process_begins(page);
    let mut command = [0; 8 + 1500];
    command[..4].copy_from_slice(&parent().to_le_bytes());
    let got = File::open(c"/proc/self/cmdline", libc::O_RDONLY, 0)
        .map_or(0, |file| file.read_at(&mut command[8..], 0));
    tell(note::PROCESS, &command[..8 + got]);
    Some(true)
}

/// Takes a number for this process.
fn process_begins(page: *mut u8) {
    // SAFETY: the session page and the word that forks wipe stay mapped; getpid takes nothing
    unsafe {
        PROCESS.store(
            word64(page, session::AT_PROCESSES).fetch_add(1, Ordering::Relaxed) + 1,
            Ordering::Relaxed,
        );
        PID.store(libc::getpid(), Ordering::Relaxed);
        (*ALIVE.load(Ordering::Relaxed)).store(1, Ordering::Relaxed);
    }
}

/// In a child of `fork`, which a signal handler may have called in the middle of a record.
extern "C" fn forked() {
    THREAD.with(|thread| {
        if thread.busy.get() && !thread.ring.get().at.is_null() {
            thread.ring.get().replace();
        }
    });
}

fn parent() -> u32 {
    // SAFETY: takes nothing and cannot fail
    unsafe { libc::getppid() as u32 }
}

#[inline(always)]
fn alive() -> bool {
    // SAFETY: once a session is on, the word stays mapped
    unsafe { (*ALIVE.load(Ordering::Relaxed)).load(Ordering::Relaxed) != 0 }
}

/// In a forked child: begins anew, so that nothing known of the parent's descriptors is taken for the child's.
#[inline(always)]
pub fn follow_fork() {
    if !alive() {
        flush();
    }
}

/// Adds to a counter of the session page.
pub fn count(at: usize, more: u64) {
    let page = SESSION.load(Ordering::Relaxed);
    if !page.is_null() {
        // SAFETY: the page stays mapped for good
        unsafe { word64(page, at) }.fetch_add(more, Ordering::Relaxed);
    }
}

/// Calls that found nothing, to be written as one record.
#[derive(Clone, Copy)]
struct Run {
    call: Call,
    flags: u8,
    fields: SocketFields,
    start: u64,
    end: u64,
    inside: u64,
    calls: u32,
}

const RUNS: usize = 8;
const NO_RUN: Run = Run {
    call: Call::Poll,
    flags: 0,
    fields: SocketFields { socket: 0, result: 0, arg: 0, arg2: 0, extra: 0 },
    start: 0,
    end: 0,
    inside: 0,
    calls: 0,
};

/// A thread's side of its ring.
pub struct Thread {
    ring: Cell<Ring>,
    /// Records that are let pass before a ring is tried again, and how many it will be if that fails too.
    pause: Cell<(u32, u32)>,
    head: Cell<u64>,
    /// Up to where there was room when that was last looked at.
    room: Cell<u64>,
    /// The collector's `tail` when this thread has waited for it in vain.
    vain: Cell<Option<u64>>,
    /// A record is being written: a signal handler that interrupts it must not write another.
    busy: Cell<bool>,
    /// MPI functions that are running, one inside the other.
    in_mpi: Cell<u32>,
    /// Which of `runs` hold something, by bit.
    open_runs: Cell<u8>,
    runs: UnsafeCell<[Run; RUNS]>,
    /// See [`spare`].
    spare: Cell<(*mut libc::c_void, usize)>,
    /// Addresses told lately, so that each is told seldom.
    told: UnsafeCell<[u32; 64]>,
}

thread_local! {
    // constant and without a destructor: reaching it is an addition, and works in signal handlers and at exit
    static THREAD: Thread = const {
        Thread {
            ring: Cell::new(Ring::NONE),
            pause: Cell::new((0, 0)),
            head: Cell::new(0),
            room: Cell::new(0),
            vain: Cell::new(None),
            busy: Cell::new(false),
            in_mpi: Cell::new(0),
            open_runs: Cell::new(0),
            runs: UnsafeCell::new([NO_RUN; RUNS]),
            spare: Cell::new((null_mut(), 0)),
            told: UnsafeCell::new([0; 64]),
        }
    };
}

/// Does `work` with the thread's ring, which is made if there is none yet. When nothing can be recorded now: the counter of the session
/// that says so.
#[inline(always)]
fn with<T>(work: impl FnOnce(&Thread) -> T) -> Result<T, usize> {
    THREAD.with(|thread| {
        if thread.busy.get() {
            return Err(session::AT_NESTED);
        }
        thread.busy.set(true);
        compiler_fence(Ordering::SeqCst);
        let ready = (!thread.ring.get().at.is_null() && alive()) || quietly(|| thread.begin());
        let result = if ready { Ok(work(thread)) } else { Err(session::AT_MISSED) };
        compiler_fence(Ordering::SeqCst);
        thread.busy.set(false);
        result
    })
}

/// Records a call. One that found nothing, and quickly, is counted with its like instead.
#[inline(always)]
pub fn call(call: Call, start: u64, nothing: bool, fields: SocketFields) {
    if filter::leaves_out(call as u8) {
        return;
    }
    let end = now();
    let took = end.saturating_sub(start);
    let outcome = with(|thread| {
        let bits = if thread.in_mpi.get() > 0 { flags::IN_MPI } else { 0 };
        if nothing && took < SHORT && thread.join_run(call, bits, start, end, fields) {
            return;
        }
        thread.close_runs();
        thread.put(Record::socket(start, Span::from_ticks(took), call, bits, fields));
    });
    if let Err(at) = outcome {
        count(at, 1);
    }
}

/// Records an MPI call; `nothing` as for [`call`].
pub fn mpi(record: Record, nothing: bool) {
    if filter::leaves_out(record.call) {
        return;
    }
    let outcome = with(|thread| {
        let end = record.start + record.took.ticks();
        if nothing && record.took.ticks() < SHORT {
            let fields = Record { ..record }.socket_fields();
            if let Some(call) = Call::from_number(record.call)
                && thread.join_run(call, 0, record.start, end, SocketFields { arg: 0, arg2: 0, ..fields })
            {
                return;
            }
        }
        thread.close_runs();
        thread.put(record);
    });
    if let Err(at) = outcome {
        count(at, 1);
    }
}

/// An MPI function begins (`+1`) or ends (`-1`) in this thread; how many now run.
#[inline]
pub fn in_mpi(change: i32) -> u32 {
    THREAD.with(|thread| {
        let depth = thread.in_mpi.get().wrapping_add_signed(change);
        thread.in_mpi.set(depth);
        depth
    })
}

/// Writes a note; whether there was room for it. What it would have explained is not recorded, and this counts in its place.
pub fn tell(kind: u8, payload: &[u8]) -> bool {
    on() && with(|thread| thread.note(kind, payload)).unwrap_or_else(|at| {
        count(at, 1);
        false
    })
}

/// The number of an address, which is told if that was not done lately; 0 for none.
pub fn tell_address(address: &Address) -> u32 {
    if !address.is_some() {
        return 0;
    }
    let number = address.number();
    let _ = with(|thread| {
        // SAFETY: `busy` keeps everyone else off, also signal handlers
        let told = unsafe { &mut (&mut *thread.told.get())[number as usize % 64] };
        if *told != number {
            let mut payload = [0; 8 + note::ADDRESS_BYTES];
            payload[..4].copy_from_slice(&number.to_le_bytes());
            payload[8..].copy_from_slice(&address.0);
            if thread.note(note::ADDRESS, &payload) {
                *told = number;
            }
        }
    });
    number
}

/// Whether this is a child of `vfork`, which runs in its parent's memory: what it does to its descriptors is not the parent's.
pub fn borrowed() -> bool {
    // of a program that is not recorded it is not known whether a child has its own memory, and no matter
    let shared = ALIVE.load(Ordering::Relaxed).is_null() || alive();
    // SAFETY: takes nothing
    shared && !sandboxed() && PID.load(Ordering::Relaxed) != unsafe { libc::getpid() }
}

/// Notes pages that a child of this thread's `vfork` leaves behind, and says what was noted before.
pub fn spare(pages: (*mut libc::c_void, usize)) -> (*mut libc::c_void, usize) {
    THREAD.with(|thread| thread.spare.replace(pages))
}

/// Writes out what is held back. At the end of a process or thread.
pub fn flush() {
    let _ = with(|thread| thread.close_runs());
}

extern "C" fn thread_ends(_: *mut libc::c_void) {
    THREAD.with(|thread| {
        if thread.ring.get().at.is_null() || !alive() || thread.busy.get() {
            return;
        }
        thread.close_runs();
        thread.ring.replace(Ring::NONE).close();
    });
}

impl Thread {
    /// Makes the thread's ring; in a forked child, everything that was inherited is forgotten first.
    #[cold]
    fn begin(&self) -> bool {
        let page = SESSION.load(Ordering::Acquire);
        if page.is_null() {
            return false;
        }
        // SAFETY: the page stays mapped for good
        if unsafe { word32(page, session::AT_STOP) }.load(Ordering::Relaxed) != 0 {
            SESSION.store(null_mut(), Ordering::Relaxed);
            return false;
        }
        let forked = !alive();
        if forked {
            // the parent's ring was not given to this process (MADV_DONTFORK)
            self.ring.set(Ring::NONE);
            self.pause.set((0, 0));
            self.spare.set((null_mut(), 0));
            self.open_runs.set(0);
            self.in_mpi.set(0);
            let next = (generation() + 1) & 0xff;
            GENERATION.store(next.max(1), Ordering::Relaxed);
            process_begins(page);
        }
        let (left, next) = self.pause.get();
        if left > 0 || sandboxed() {
            self.pause.set((left.saturating_sub(1), next));
            return false;
        }
        // a signal handler must neither fork nor record in the middle of this
        let ring = sys::undisturbed(|| {
            // SAFETY: takes nothing
            Ring::make(unsafe { libc::gettid() }, parent(), PROCESS.load(Ordering::Relaxed), now())
        });
        let Some(ring) = ring else {
            if next == 0 {
                count(session::AT_FAILED, 1);
            }
            self.pause.set((next, (next * 2).clamp(16, 1 << 16)));
            return false;
        };
        // SAFETY: the buffer is this thread's, and nobody else is in `with`
        unsafe { *self.told.get() = [0; 64] };
        self.ring.set(ring);
        self.head.set(0);
        self.room.set(ring.slots as u64);
        self.vain.set(None);
        let key = KEY.load(Ordering::Relaxed);
        if key != u32::MAX {
            // SAFETY: a key of this process, and any value but null
            unsafe { libc::pthread_setspecific(key, ring.at.cast()) };
        }
        if forked {
            let mut command = [0; 8];
            command[..4].copy_from_slice(&parent().to_le_bytes());
            self.note(note::PROCESS, &command);
        }
        true
    }

    /// Whether there is room for `records` more.
    #[inline(always)]
    fn has_room(&self, records: u64) -> bool {
        self.head.get() + records <= self.room.get() || self.look_for_room(records)
    }

    #[cold]
    fn look_for_room(&self, records: u64) -> bool {
        if is_over() {
            return false;
        }
        let mut ring = self.ring.get();
        // SAFETY: the ring is mapped while it is one, which `with` has made sure of
        let (tail, lost) = unsafe { (word64(ring.at, ring::AT_TAIL), word64(ring.at, ring::AT_LOST)) };
        let (before, head) = (tail.load(Ordering::Acquire), self.head.get());
        // a tail that cannot be right gives no room
        let used = |tail: u64| head.wrapping_sub(tail);
        let fits = |tail: u64, slots: usize| used(tail).saturating_add(records) <= slots as u64;
        let sane = used(before) <= ring.slots as u64;
        while sane && !fits(before, ring.slots) && !sandboxed() && ring.grow() {}
        self.ring.set(ring);
        let has_room = || fits(tail.load(Ordering::Acquire), ring.slots);
        let room = has_room()
            || sane
                && self.vain.get() != Some(before)
                && await_collector(SESSION.load(Ordering::Relaxed), has_room);
        if room {
            self.room.set(tail.load(Ordering::Acquire).wrapping_add(ring.slots as u64));
        } else {
            self.vain.set(Some(before));
            lost.store(lost.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        room
    }

    /// Stores a record without showing it yet.
    #[inline(always)]
    fn store(&self, words: [u64; 4]) {
        let Ring { at, slots, .. } = self.ring.get();
        let slot = self.head.get() as usize & (slots - 1);
        // SAFETY: the ring has `slots` records, a power of two, behind its header, and 32-byte records at such offsets are aligned for u64; the collector
        // does not read a slot before `head` is past it, nor does this thread write one that was not acknowledged
        unsafe { at.add(ring::HEADER + slot * RECORD).cast::<[u64; 4]>().write(words.map(u64::to_le)) };
        self.head.set(self.head.get() + 1);
    }

    #[inline(always)]
    fn show(&self) {
        // SAFETY: the ring is mapped while it is one
        unsafe { word64(self.ring.get().at, ring::AT_HEAD) }.store(self.head.get(), Ordering::Release);
    }

    #[inline(always)]
    fn put(&self, record: Record) {
        if self.has_room(1) {
            self.store(record.to_words());
            self.show();
        }
    }

    fn note(&self, kind: u8, payload: &[u8]) -> bool {
        if is_over() {
            return false;
        }
        let head = Record::note(now(), kind, payload.len() as u32);
        let parts = payload.len().div_ceil(RECORD) as u64;
        if !self.has_room(1 + parts) {
            return false;
        }
        self.store(head.to_words());
        for part in payload.chunks(RECORD) {
            let mut bytes = [0; RECORD];
            bytes[..part.len()].copy_from_slice(part);
            self.store(Record::from_bytes(&bytes).to_words());
        }
        self.show();
        true
    }

    /// Counts a call that found nothing with its like; false: it must be recorded by itself.
    #[inline]
    fn join_run(&self, call: Call, bits: u8, start: u64, end: u64, fields: SocketFields) -> bool {
        if option(session::OPTION_EVERY_CALL) {
            return false;
        }
        let at = (call as usize ^ fields.socket as usize) % RUNS;
        // SAFETY: `busy` keeps everyone else off, also signal handlers
        let run = unsafe { &mut (&mut *self.runs.get())[at] };
        let open = self.open_runs.get() & 1 << at != 0;
        if open {
            let like = run.call == call && run.fields == fields && run.flags == bits;
            if like && start.wrapping_sub(run.start) < RUN {
                run.end = end;
                run.inside += end.saturating_sub(start);
                run.calls += 1;
                return true;
            }
            self.write_run(run);
        }
        *run = Run { call, flags: bits, fields, start, end, inside: end.saturating_sub(start), calls: 1 };
        self.open_runs.set(self.open_runs.get() | 1 << at);
        true
    }

    /// Writes out all runs, so that records of a thread stand in the order of their ends.
    #[inline(always)]
    fn close_runs(&self) {
        if self.open_runs.get() != 0 {
            self.write_runs();
        }
    }

    #[inline(never)]
    fn write_runs(&self) {
        let mut open = self.open_runs.replace(0);
        while open != 0 {
            let at = open.trailing_zeros() as usize;
            open &= open - 1;
            // SAFETY: as in `join_run`
            self.write_run(unsafe { &(&*self.runs.get())[at] });
        }
    }

    fn write_run(&self, run: &Run) {
        let Run { call, flags: bits, fields, start, end, inside, calls } = *run;
        let mut record =
            Record::socket(start, Span::from_ticks(end.saturating_sub(start)), call, bits, fields);
        if calls > 1 {
            record.flags |= flags::RUN;
            record.rest[2] = Span::from_ticks(inside).0;
            record.rest[3] = calls;
        }
        self.put(record);
    }
}
