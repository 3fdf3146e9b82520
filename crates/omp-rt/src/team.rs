//! Threads of this process, their stacks, barriers, worksharing within the process.
//!
//! There is one team of several threads at a time, [`TEAM`]; regions inside it have one thread each. Rank `r` of `n` runs the numbers from
//! `r * team / n` (rounded up) on; a team of fewer threads than ranks is all rank 0's. Number 0 is rank 0's main thread, on a stack of its slot;
//! all others are threads of the pool, which stay for the next region.
//!
//! | module | does |
//! |---|---|
//! | `frame` | what a thread knows of the regions it is in |
//! | `pool` | threads and stacks |
//! | `replicated` | regions that serial code on every rank begins |
//! | `work` | loops, sections, `single`, `ordered` |
//! | `locks` | critical sections and locks |
//! | `reduce` | reductions of clang, `copyprivate` |
//! | `tasks` | tasks, which the thread that meets them carries out at once |
//! | `offers` | but those that others carry out |
//! | `privates` | `threadprivate` without thread-local storage |

mod frame;
pub mod locks;
pub mod offers;
mod pool;
pub mod privates;
pub mod reduce;
mod replicated;
pub mod tasks;
pub mod work;

use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

use std::sync::OnceLock;

use polyrail_omp::layout::slot;

pub use self::frame::{Frame, enter, global, here, is_outside, leave, may_fork, own};
pub use self::pool::{count, ensure as have, lead, most, watch_forks};
use self::work::Plan;
use crate::region::Region;
use crate::sync::Gate;
use crate::{alloc, coherence, floating, icv, output, region, remote, run, sync, sys, thread};

/// A team of several threads: what all its threads on this rank know.
pub struct Team {
    region: Cell<Region<'static>>,
    ranks: Cell<usize>,
    low: Cell<usize>,
    locals: Cell<usize>,
    /// The frame of serial code.
    parent: Cell<*const Frame>,
    /// Regions of several ranks so far: the same number on all ranks.
    sequence: AtomicU64,
    gate: Gate,
    /// Loops and sections that threads of this process share out among themselves.
    pub works: [work::Shared; work::RING],
    /// A pointer of each local thread, for reductions.
    pub pieces: [AtomicUsize; polyrail_omp::layout::SLOTS],
    /// Where `copyprivate` copies from, and the piece of stack that it is in.
    pub copied: [AtomicUsize; 3],
}
// SAFETY: the cells are written by the thread that runs number 0 while no other thread of the team runs.
unsafe impl Sync for Team {}

/// The team.
pub static TEAM: Team = Team {
    region: Cell::new(Region {
        function: 0,
        gomp: false,
        args: &[],
        team: 1,
        place: 0,
        floating: floating::Floating::DEFAULT,
    }),
    ranks: Cell::new(1),
    low: Cell::new(0),
    locals: Cell::new(1),
    parent: Cell::new(core::ptr::null()),
    sequence: AtomicU64::new(0),
    gate: Gate::new(),
    works: [const { work::Shared::new() }; work::RING],
    pieces: [const { AtomicUsize::new(0) }; polyrail_omp::layout::SLOTS],
    copied: [const { AtomicUsize::new(0) }; 3],
};

/// Who stands above and is told of regions of several ranks.
pub struct Told {
    /// One ends: what this rank is to say.
    pub ends: fn() -> u32,
    /// It has ended, and these flags were said; no thread runs program code.
    pub ended: fn(u32),
    /// Ranks above 0: the thread that leads begins.
    pub leads: fn(),
}

static TOLD: OnceLock<Told> = OnceLock::new();

/// From now on `told` is.
pub fn tell(told: Told) {
    let _ = TOLD.set(told);
}

/// What stands after the synchronisations of a region in the numbers of places: its end.
const END: u64 = 0xffff;

impl Team {
    /// Ranks that have threads of it.
    pub fn ranks(&self) -> usize {
        self.ranks.get()
    }
    /// Threads of this process.
    pub fn locals(&self) -> usize {
        self.locals.get()
    }
    /// The lowest number of a thread of this process.
    pub fn low(&self) -> usize {
        self.low.get()
    }
    /// A number that construct `construct` of this region alone has, on all ranks.
    pub fn unique(&self, construct: u64) -> u64 {
        (self.sequence.load(Relaxed) & 0x3f_ffff) << 40 | construct & 0xff_ffff_ffff
    }
    fn place(&self, sync: u64) -> u64 {
        (self.region.get().function as u64) << 16 | sync
    }
}

/// Numbers of `rank`'s threads in a team of `threads` over `size` ranks.
fn share(threads: usize, rank: usize, size: usize) -> core::ops::Range<usize> {
    (rank * threads).div_ceil(size)..((rank + 1) * threads).div_ceil(size)
}

/// How many threads a region gets if `asked` (0: nothing) are.
pub fn size(asked: usize) -> usize {
    // constructors' regions: ranks are not ready for them, and each runs the constructors
    if !may_fork() || run::size() > 1 && !alloc::is_started() {
        return 1;
    }
    // SAFETY: this thread's own.
    let icvs = unsafe { &*here().icvs() };
    if icvs.active_levels < 1 {
        return 1;
    }
    let wanted = if asked > 0 { asked } else { icvs.threads[0] as usize };
    let ranks = run::size();
    let most = if wanted < ranks { pool::most() } else { pool::most() * ranks };
    wanted.min(icv::limit()).clamp(1, most)
}

/// How many teams a league has if `asked` (0: nothing) are. Over several ranks one: others do not know of the league's number.
pub fn league(asked: usize) -> usize {
    // SAFETY: this thread's own.
    let default = unsafe { (*here().icvs()).teams } as usize;
    match run::size() {
        1 => [asked, default, 1].into_iter().find(|n| *n > 0).unwrap_or(1),
        _ => 1,
    }
}

/// A region of several threads, begun by rank 0's main thread in serial code. `sp`: the frames of serial code are above.
pub fn fork(region: &Region<'_>, sp: usize) {
    if run::is_replicated() {
        return replicated::fork(region, sp);
    }
    if region.team >= run::size() && run::size() > 1 {
        locks::begin();
        remote::begin(region, sp);
    }
    run(region);
}

/// Runs this rank's share of a region's threads, all of them, and returns when they are through its end (its last barrier is an exchange).
/// Ranks above 0: called by the thread that leads, which is number 0 of theirs, for each region that rank 0 begins.
pub fn run(region: &Region<'_>) {
    let (rank, size) = (run::rank(), run::size());
    let ranks = if region.team < size { 1 } else { size };
    let numbers = share(region.team, rank, ranks);
    let locals = numbers.len();
    // SAFETY: the arguments stay until the region has ended, which is before this function returns.
    TEAM.region.set(unsafe { core::mem::transmute::<Region<'_>, Region<'static>>(*region) });
    TEAM.ranks.set(ranks);
    TEAM.low.set(numbers.start);
    TEAM.locals.set(locals);
    TEAM.parent.set(here());
    if ranks > 1 {
        TEAM.sequence.fetch_add(1, Relaxed);
    }
    for (number, work) in TEAM.works.iter().enumerate() {
        work.reset(number as u64);
    }
    offers::region_begins(region.function, ranks > 1);
    run::set_team(locals);
    sync::threads(locals);
    pool::ensure(locals);
    if rank == 0 {
        if locals > 1 {
            pool::call(locals);
        }
        let (_, top) = thread::stack(slot(0, 0, size));
        // what is above is a neighbour's, and red zones and probes may reach a little beyond
        let top = top - 4096;
        let before = thread::current().top.replace(top);
        // SAFETY: the slot's stack is this thread's in regions, and nothing leaves a region by unwinding.
        unsafe { sys::on_stack(top, first, 0) };
        thread::current().top.set(before);
    } else {
        if locals > 1 {
            pool::call(locals);
        }
        // frames above are ours
        let mark = 0u8;
        let before = thread::current().top.replace(&raw const mark as usize & !15);
        member(0);
        thread::current().top.set(before);
    }
    run::set_team(0);
}

extern "C" fn first(_: usize) {
    member(0);
}

/// A thread's part in the region.
fn member(local: usize) {
    let team = &TEAM;
    let region = team.region.get();
    // SAFETY: number 0's, which waits for the region's end.
    let around = unsafe { &*team.parent.get() };
    let frame = Frame::inner(around, Some(team), team.low() + local, region.team);
    alloc::enter(slot(run::rank(), local, run::size()));
    // SAFETY: it is left below.
    let before = unsafe { enter(&frame) };
    thread::current().singles.set(0);
    region.floating.take();
    if region.gomp {
        // SAFETY: the compiler's function and argument.
        let function: extern "C" fn(*mut c_void) = unsafe { core::mem::transmute(region.function) };
        if let Some(plan) = Plan::from_words(&region.args[1..]) {
            work::start(plan);
        }
        function(region.args[0] as *mut c_void);
    } else {
        let number = frame.tid.get() as i32;
        // SAFETY: the compiler's function, with the arguments that it was begun with.
        unsafe {
            region::microtask(region.function, &number, &number, region.args.len(), region.args.as_ptr())
        };
    }
    tasks::arrive();
    // SAFETY: where this thread was before.
    unsafe { enter(before) };
    thread::current().singles.set(0);
    alloc::leave();
    meet(team, || {
        let mut flags = offers::flags();
        if team.ranks() > 1 {
            locks::end();
            output::flush_all();
            let told = TOLD.get();
            flags |= told.map_or(0, |told| (told.ends)());
            flags = remote::end(team.place(END), flags);
            if let Some(told) = told {
                (told.ended)(flags);
            }
        }
        offers::region_ends(region.function, team.ranks() > 1, flags);
    });
}

/// A barrier of the team.
pub fn barrier() {
    barrier_with(|_, _| ());
}

/// A barrier at which `exchange` is done once on each rank, if there are several, in place of the plain exchange that it is given.
fn barrier_then(exchange: impl FnOnce(&Team, u64)) {
    let frame = here();
    tasks::arrive();
    let Some(team) = frame.team.get() else { return };
    let sync = frame.syncs.get();
    frame.syncs.set(sync + 1);
    meet(team, || {
        if team.ranks() > 1 {
            output::flush_all();
        }
        exchange(team, team.place(sync % END));
    });
}

fn barrier_with(extra: impl FnOnce(&Team, u64)) {
    barrier_then(|team, place| {
        if team.ranks() > 1 {
            coherence::exchange(place);
        }
        extra(team, place);
    });
}

/// A barrier of this process's threads of the team, at which the last to come does `last`.
fn local_barrier(team: &Team, last: impl FnOnce()) {
    meet(team, last);
}

/// All threads of this process come; the last does `last`.
fn meet(team: &Team, last: impl FnOnce()) {
    if team.ranks() > 1 && team.locals() > 1 {
        coherence::tell_first();
    }
    team.gate.pass(team.locals(), last);
}
