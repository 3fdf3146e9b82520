//! What a thread knows of the regions and tasks that it is in.
//!
//! Each region that a thread enters has a [`Frame`], on the thread's stack or in its [`scratch`] memory; [`here`] is the innermost. Outside all regions it is the thread's own root.

use core::cell::{Cell, UnsafeCell};
use core::mem::ManuallyDrop;

use super::Team;
use super::sync::Word;
use super::tasks::{Group, Unfinished};
use super::work::Loop;

use super::offers::{Account, Offers};
use crate::icv::{self, Icvs};
use crate::{coherence, run, thread};

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

/// What constructs know of a thread, whichever region it is in; see [`crate::thread`] for what else belongs to it.
pub struct Own {
    frame: Cell<*const Frame>,
    root: Frame,
    /// `num_threads` of the region that comes next; 0: none.
    pub pushed: Cell<usize>,
    /// `num_teams` and `thread_limit` of the league that comes next.
    pub league: Cell<(usize, usize)>,
    /// What offering tasks has cost it.
    pub account: Account,
    /// `threadprivate` copies of compilers that do without thread-local storage.
    pub privates: Cell<*mut super::privates::Copy>,
}

thread_local! {
    static OWN: Own = const {
        Own {
            frame: Cell::new(core::ptr::null()),
            root: Frame::root(),
            pushed: Cell::new(0),
            league: Cell::new((0, 0)),
            account: Account::new(),
            privates: Cell::new(core::ptr::null_mut()),
        }
    };
}

/// The calling thread's.
pub fn own() -> &'static Own {
    // SAFETY: it has no destructor and stays until the thread is gone; only this thread uses it.
    OWN.with(|own| unsafe { &*core::ptr::from_ref(own) })
}

/// The innermost region that the calling thread is in.
pub fn here() -> &'static Frame {
    let frame = innermost();
    // a compiler does not say where a `single` ends; that the program comes back to the runtime says that it has
    if frame.single.replace(false) {
        coherence::passed();
    }
    frame
}

/// As [`here`], where the program has not come to the runtime by itself.
pub fn innermost() -> &'static Frame {
    let thread = own();
    // SAFETY: who entered a frame leaves it before it is gone.
    unsafe { thread.frame.get().as_ref() }.unwrap_or(&thread.root)
}

/// Whether the calling thread is in serial code: in no region, not even of one thread, and in no task.
pub fn is_outside() -> bool {
    innermost().level.get() == 0 && !innermost().task.get().0 && !thread::has_scratch()
}

/// Makes `frame` the innermost; gives the one before.
///
/// # Safety
/// It stays until another takes its place.
pub unsafe fn enter(frame: *const Frame) -> *const Frame {
    // SAFETY: the caller's
    thread::current().spread.set(unsafe { frame.as_ref() }.is_some_and(Frame::spread));
    own().frame.replace(frame)
}

/// Back from a team of one to the region around.
pub fn leave() {
    // SAFETY: frames around stay longer
    unsafe { enter(here().parent.get()) };
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

/// Whether this thread may begin a team of several: the main thread, outside all regions with several threads.
pub fn may_fork() -> bool {
    thread::is_main() && here().active.get() == 0 && run::team() == 0
}
