//! What a thread knows of the regions and tasks that it is in.
//!
//! Each region that a thread enters has a [`Frame`], on the thread's stack or in its [`scratch`] memory; [`here`] is the innermost. Outside all regions it is the thread's own root.

use core::cell::{Cell, UnsafeCell};
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::sync::Word;
use super::tasks::{Group, Unfinished};
use super::work::Loop;
use super::{TEAM, Team};
use polyrail_omp::layout::{SCRATCH_BYTES, slot};

use super::offers::{Account, Offers};
use crate::icv::{self, Icvs};
use crate::{library, remote, serial, stacks, sys};

/// A thread's place in a region: its implicit task, and whichever explicit task it carries out there.
pub struct Frame {
    /// The region around; null for the root.
    pub parent: Cell<*const Frame>,
    /// The team, where it has several threads.
    pub team: Cell<Option<&'static Team>>,
    /// The innermost region's around that has several threads, this one included.
    pub within: Cell<Option<&'static Team>>,
    /// Number in the team.
    pub tid: Cell<usize>,
    /// Threads of the team.
    pub threads: Cell<usize>,
    /// Regions around, this one included.
    pub level: Cell<u32>,
    /// Those of them with several threads.
    pub active: Cell<u32>,
    /// This region's, whatever serial code's are.
    pub icvs: UnsafeCell<Icvs>,
    /// Loops, sections and `single`s so far: the same number on all threads for the same construct.
    pub constructs: Cell<u64>,
    /// Of them `single`s, where several ranks have threads of the team.
    pub singles: Cell<u64>,
    /// On rank 0 of several: it is in a `single`, for all that is known.
    pub single: Cell<bool>,
    /// Reductions so far.
    pub folds: Cell<u64>,
    /// Barriers so far.
    pub syncs: Cell<u64>,
    /// The loop or the sections that are being worked on.
    pub work: Cell<Loop>,
    /// The innermost task group.
    pub groups: Cell<*const Group>,
    /// Whether a task is being carried out, and whether it is final.
    pub task: Cell<(bool, bool)>,
    /// Tasks that others may carry out.
    pub offers: Offers,
    /// Tasks that wait for `omp_fulfill_event`.
    pub detached: Word,
    /// Tasks that others depend on and that are not over. Empty at the end of a region.
    pub unfinished: UnsafeCell<ManuallyDrop<Vec<Unfinished>>>,
    /// GCC's description of the task reductions in force.
    pub reductions: Cell<*mut usize>,
    /// Inside `ordered(n)` loops, which thread 0 works on alone.
    pub doacross: Cell<bool>,
    /// Number of this team in its league, and teams of the league.
    pub league: Cell<(usize, usize)>,
}

impl Frame {
    /// Outside all regions.
    const fn root() -> Self {
        Self {
            parent: Cell::new(core::ptr::null()),
            team: Cell::new(None),
            within: Cell::new(None),
            tid: Cell::new(0),
            threads: Cell::new(1),
            level: Cell::new(0),
            active: Cell::new(0),
            icvs: UnsafeCell::new(icv::NONE),
            constructs: Cell::new(0),
            singles: Cell::new(0),
            single: Cell::new(false),
            folds: Cell::new(0),
            syncs: Cell::new(0),
            work: Cell::new(Loop::NONE),
            groups: Cell::new(core::ptr::null()),
            task: Cell::new((false, false)),
            offers: Offers::new(),
            detached: Word::new(0),
            unfinished: UnsafeCell::new(ManuallyDrop::new(Vec::new())),
            reductions: Cell::new(core::ptr::null_mut()),
            doacross: Cell::new(false),
            league: Cell::new((0, 1)),
        }
    }

    /// A region inside `around`, of `threads` threads of which this is number `tid`.
    pub fn inner(around: &Self, team: Option<&'static Team>, tid: usize, threads: usize) -> Self {
        let frame = Self::root();
        frame.parent.set(around);
        frame.team.set(team);
        frame.within.set(team.or(around.within.get()));
        frame.tid.set(tid);
        frame.threads.set(threads);
        frame.level.set(around.level.get() + 1);
        frame.active.set(around.active.get() + u32::from(threads > 1));
        frame.task.set((false, around.task.get().1));
        frame.league.set(around.league.get());
        // SAFETY: both are this thread's own, or serial code's, which does not run now.
        unsafe {
            let mut icvs = *around.icvs();
            if icvs.threads[1] > 0 {
                icvs.threads.copy_within(1.., 0);
            }
            *frame.icvs.get() = icvs;
        }
        frame
    }

    /// The data environment's variables.
    pub fn icvs(&self) -> *mut Icvs {
        if self.level.get() == 0 { icv::root() } else { self.icvs.get() }
    }

    /// Whether other ranks have threads of the team that this thread is of.
    pub fn spread(&self) -> bool {
        self.within.get().is_some_and(|team| team.ranks() > 1)
    }
}

/// What belongs to a thread, whichever region it is in.
pub struct Here {
    frame: Cell<*const Frame>,
    root: Frame,
    /// `num_threads` of the region that comes next; 0: none.
    pub pushed: Cell<usize>,
    /// `num_teams` and `thread_limit` of the league that comes next.
    pub league: Cell<(usize, usize)>,
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
    /// What offering tasks has cost it.
    pub account: Account,
    /// Its scratch memory; of serial code that runs on all ranks; and else.
    scratch: [Scratch; 2],
    /// `threadprivate` copies of compilers that do without thread-local storage.
    pub privates: Cell<*mut super::privates::Copy>,
}

thread_local! {
    static HERE: Here = const {
        Here {
            frame: Cell::new(core::ptr::null()),
            root: Frame::root(),
            pushed: Cell::new(0),
            league: Cell::new((0, 0)),
            tokens: Cell::new(0),
            local: Cell::new(0),
            pooled: Cell::new(false),
            main: Cell::new(None),
            top: Cell::new(0),
            account: Account::new(),
            scratch: [const { Scratch::new() }; 2],
            privates: Cell::new(core::ptr::null_mut()),
        }
    };
}

/// The calling thread's.
pub fn thread() -> &'static Here {
    // SAFETY: it has no destructor and stays until the thread is gone; only this thread uses it.
    HERE.with(|here| unsafe { &*core::ptr::from_ref(here) })
}

/// The innermost region that the calling thread is in.
pub fn here() -> &'static Frame {
    let frame = innermost();
    // a compiler does not say where a `single` ends; that the program comes back to the runtime says that it has
    if frame.single.replace(false) {
        crate::remote::passed();
    }
    frame
}

/// As [`here`], where the program has not come to the runtime by itself.
pub fn innermost() -> &'static Frame {
    let thread = thread();
    // SAFETY: who entered a frame leaves it before it is gone.
    unsafe { thread.frame.get().as_ref() }.unwrap_or(&thread.root)
}

/// `single`s that the calling thread has come to in the team of several threads that it is in.
pub fn singles() -> u64 {
    let mut frame = innermost();
    // SAFETY: frames around stay longer.
    while let (None, Some(around)) = (frame.team.get(), unsafe { frame.parent.get().as_ref() }) {
        frame = around;
    }
    frame.singles.get()
}

/// Whether the calling thread is in serial code: in no region, not even of one thread, and in no task.
pub fn is_outside() -> bool {
    let [serial, own] = &thread().scratch;
    innermost().level.get() == 0
        && !innermost().task.get().0
        && [serial, own].iter().all(|scratch| scratch.last.get().is_null())
}

/// Makes `frame` the innermost; gives the one before.
///
/// # Safety
/// It stays until another takes its place.
pub unsafe fn enter(frame: *const Frame) -> *const Frame {
    thread().frame.replace(frame)
}

/// Back from a team of one to the region around.
pub fn leave() {
    thread().frame.set(here().parent.get());
}

/// The outermost region's number of this thread: what LLVM calls the global number.
pub fn global() -> usize {
    let mut frame = here();
    while frame.level.get() > 1 {
        // SAFETY: frames around stay longer.
        frame = unsafe { &*frame.parent.get() };
    }
    frame.tid.get()
}

/// Whether this is the process's first thread.
pub fn is_main() -> bool {
    let thread = thread();
    if thread.main.get().is_none() {
        thread.main.set(Some(!thread.pooled.get() && library::is_first_thread()));
    }
    thread.main.get() == Some(true)
}

/// Whether this thread may begin a team of several: the main thread, outside all regions with several threads.
pub fn may_fork() -> bool {
    is_main() && here().active.get() == 0 && !TEAM.busy()
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
    let thread = thread();
    if serial::on() && is_main() && !TEAM.busy() {
        let [serial, _] = &thread.scratch;
        if serial.begins() {
            serial.begin_at(stacks::serial_scratch());
        }
        return serial.get(bytes);
    }
    let [_, own] = &thread.scratch;
    if own.begins() {
        own.begin_at(if thread.pooled.get() || is_main() {
            stacks::scratch(slot(remote::rank(), thread.local.get(), remote::size()))
        } else {
            sys::map(SCRATCH_BYTES) as usize
        });
    }
    own.get(bytes)
}

/// What of the calling thread's scratch memory is in use.
pub fn lent() -> core::ops::Range<usize> {
    let [_, own] = &thread().scratch;
    own.begin.get()..own.next.get()
}

/// Gives `at` back, by the thread that has it from [`scratch`].
///
/// # Safety
/// It is used no more.
pub unsafe fn unscratch(at: *mut u8) {
    let [serial, own] = &thread().scratch;
    let is_own = (at as usize).wrapping_sub(own.begin.get()) < SCRATCH_BYTES && !own.begins();
    // SAFETY: the caller's
    unsafe { if is_own { own } else { serial }.give_back(at) };
}
