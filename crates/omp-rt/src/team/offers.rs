//! Tasks that other threads carry out, of this rank or of others: a thread that meets one *offers* it while others have nothing to do, and otherwise carries it out at once. Who waits, at a barrier or for
//! tasks that it has offered, carries out what is offered meanwhile (`polyrail_omp::services::pool` says what). Memory is handed over as by locks (`polyrail_omp::coherence`), also what stands on
//! stacks and in scratch memory above the frame that meets the task (`track`).
//!
//! In a program that has tasks, each region's barriers ask whether there are any, unless it has been run before and had none. A thread offers as long as what that costs it is little beside the time that has
//! passed, or beside what others have saved it.

use core::cell::{Cell, UnsafeCell};
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Instant;

use polyrail_omp::area::{Count, flag, setting};
use polyrail_omp::coherence::tasks::{Awaited, Done, Next, Place};
use polyrail_omp::layout::{SCRATCH_BYTES, SLOTS, slot};

use super::frame::{Frame, own};
use super::tasks::{self, Around, Dependence, Group};
use crate::icv::{self, Icvs};
use crate::thread::{lent, unscratch};
use crate::{coherence, mapping, modules, remote, run, stats, sys, thread, track};

/// Nanoseconds that a thread may lose by offering, whatever comes of it.
const ALLOWED: u64 = 2_000_000;
/// Of the time that has passed, this part may be lost.
const SHARE: u64 = 20;
/// And of the time that others have worked for it, all but this part.
const SPARE: u64 = 8;
/// Tasks that are carried out at once after one that was too much to offer.
const PASSED: u32 = 8;

/// Entry points by which a program has tasks.
const ENTRIES: [&str; 7] = [
    "GOMP_task",
    "GOMP_taskloop",
    "GOMP_taskloop_ull",
    "__kmpc_omp_task",
    "__kmpc_omp_task_with_deps",
    "__kmpc_taskloop",
    "__kmpc_taskloop_5",
];
/// What it must not have: events are fulfilled on the rank that has them.
const EVENTS: [&str; 2] = ["omp_fulfill_event", "omp_fulfill_event_"];

/// Whether the program has tasks that may be offered.
static HAS_TASKS: AtomicBool = AtomicBool::new(false);
/// Whether all that a thread meets is offered, whatever that costs it.
static ALWAYS: AtomicBool = AtomicBool::new(false);
/// Whether a thread of this rank has met one in it.
static MET: AtomicBool = AtomicBool::new(false);
/// Nanoseconds that others have worked for this rank.
static HELPED: AtomicU64 = AtomicU64::new(0);
/// Regions, by their functions and whether they were of several ranks, that have been run: whether there were tasks.
static REGIONS: Mutex<Option<HashMap<(usize, bool), bool>>> = Mutex::new(None);

/// A function of the compiler's runtime that carries out a task by the addresses of its function and of its data.
pub type Run = unsafe extern "C" fn(function: usize, data: usize);

/// A task that has been met.
pub struct Met {
    /// Its function, as the compiler knows it.
    pub function: usize,
    /// Its data, in [`scratch`](super::scratch) memory.
    pub data: usize,
    /// Carries it out.
    pub run: Run,
    /// What is to be given back when it is done.
    pub block: *mut u8,
    /// Others that it depends on.
    pub depends: Vec<Dependence>,
}

/// One that this thread has offered.
struct Mine {
    task: u64,
    family: u64,
    group: u64,
    block: *mut u8,
    depends: Vec<Dependence>,
}

/// What a thread knows of tasks in a region.
pub struct Offers {
    /// What the present task offers belongs to; 0: it has not offered any.
    pub family: Cell<u64>,
    /// The innermost task, of those that were offered, that the thread carries out.
    around: Cell<u64>,
    mine: UnsafeCell<ManuallyDrop<Vec<Mine>>>,
}

impl Offers {
    /// None.
    pub const fn new() -> Self {
        Self {
            family: Cell::new(0),
            around: Cell::new(0),
            mine: UnsafeCell::new(ManuallyDrop::new(Vec::new())),
        }
    }

    #[allow(clippy::mut_from_ref, reason = "the calling thread's alone, for the length of a statement")]
    fn mine(&self) -> &mut Vec<Mine> {
        // SAFETY: only the frame's thread asks, and keeps it for no longer than it looks
        unsafe { &mut *self.mine.get() }
    }

    /// Forgets those that are done.
    fn forget(&self, is_done: impl Fn(&Mine) -> bool) {
        let mine = self.mine();
        mine.retain(|mine| {
            let done = is_done(mine);
            if done {
                // SAFETY: this thread's, from `scratch`; nobody needs it any more
                unsafe { unscratch(mine.block) };
            }
            !done
        });
        if mine.is_empty() {
            *mine = Vec::new();
        }
    }
}

/// Nanoseconds that a byte costs which is told: its encoding, its way, faults and applying on both sides.
const BYTE: u64 = 5;

/// What a thread has spent on offering. Numbers that it has given.
pub struct Account {
    spent: Cell<u64>,
    /// Nanoseconds in which it has waited for tasks, or carried out others'.
    away: Cell<u64>,
    since: Cell<Option<Instant>>,
    pass: Cell<u32>,
    numbers: Cell<u64>,
}

impl Account {
    /// Nothing.
    pub const fn new() -> Self {
        Self {
            spent: Cell::new(0),
            away: Cell::new(0),
            since: Cell::new(None),
            pass: Cell::new(0),
            numbers: Cell::new(0),
        }
    }

    fn spend(&self, nanoseconds: u64) {
        self.spent.set(self.spent.get() + nanoseconds);
    }

    fn is_away(&self, nanoseconds: u64) {
        self.away.set(self.away.get() + nanoseconds);
    }

    /// Whether it may spend more.
    fn allows(&self) -> bool {
        if let Some(left) = self.pass.get().checked_sub(1) {
            self.pass.set(left);
            return false;
        }
        let passed = match self.since.get() {
            Some(since) => since.elapsed().as_nanos() as u64,
            None => {
                self.since.set(Some(Instant::now()));
                0
            }
        };
        // what it has waited for tasks of its own it would have worked on them
        let helped = HELPED.load(Relaxed);
        let allows = self.spent.get() <= ALLOWED + passed / SHARE + (helped - helped / SPARE);
        self.pass.set(if allows { 0 } else { PASSED });
        allows
    }

    /// A number that no other thread has given, nor this one before.
    fn number(&self) -> u64 {
        self.numbers.set(self.numbers.get() + 1);
        let slot = slot(run::rank(), thread::current().local.get(), run::size()) as u64;
        (slot + 1) << 40 | self.numbers.get()
    }
}

/// Looks whether the program has tasks that may be offered.
pub fn start() {
    if !mapping::attached() || mapping::area().settings & setting::NO_TASKS != 0 {
        return;
    }
    ALWAYS.store(mapping::area().settings & setting::ALL_TASKS != 0, Relaxed);
    let (mut has, mut events) = (false, false);
    for module in modules::shared() {
        has |= ENTRIES.iter().any(|name| module.names(name));
        events |= EVENTS.iter().any(|name| module.names(name));
    }
    if has && !events {
        let first = slot(run::rank(), 0, run::size());
        track::share_threads(icv::stack_bytes(), first..first + SLOTS / run::size());
        HAS_TASKS.store(true, Relaxed);
    }
}

fn regions<T>(f: impl FnOnce(&mut HashMap<(usize, bool), bool>) -> T) -> T {
    f(REGIONS.lock().unwrap_or_else(|broken| broken.into_inner()).get_or_insert_default())
}

/// A region begins, on all its ranks alike.
pub fn region_begins(function: usize, spread: bool) {
    MET.store(false, Relaxed);
    let on = HAS_TASKS.load(Relaxed)
        && regions(|regions| regions.get(&(function, spread)).copied().unwrap_or(true));
    run::offer_tasks(on);
}

/// What a rank says of it at its end.
pub fn flags() -> u32 {
    if MET.load(Relaxed) { flag::TASKS } else { 0 }
}

/// What all said.
pub fn region_ends(function: usize, spread: bool, flags: u32) {
    run::offer_tasks(false);
    if HAS_TASKS.load(Relaxed) {
        regions(|regions| regions.insert((function, spread), flags & flag::TASKS != 0));
    }
}

/// Whether a task that the calling thread meets may be one for others. `is_final`: it is, or all in it are, to be carried out at once.
pub fn may(frame: &Frame, is_final: bool) -> bool {
    if !MET.load(Relaxed) {
        MET.store(true, Relaxed);
    }
    if !run::offers_tasks() || is_final || frame.task.get().1 || frame.team.get().is_none() {
        return false;
    }
    // SAFETY: the calling thread's, which stays until its end
    let reduces = unsafe { frame.groups.get().as_ref() }.is_some_and(Group::reduces);
    let wanted = ALWAYS.load(Relaxed) || mapping::wants_tasks() && own().account.allows();
    // what is offered keeps its copies until the thread waits; one that never does has them carried out at once then
    wanted && !reduces && frame.reductions.get().is_null() && lent().len() < SCRATCH_BYTES / 2
}

/// What is shipped of a task, besides what memory has of it.
#[derive(Clone, Copy)]
#[repr(C)]
struct Shipped {
    function: usize,
    data: usize,
    run: usize,
    /// `single`s behind which it was met, which it does not come behind more of elsewhere.
    singles: u64,
    icvs: Icvs,
}

impl Shipped {
    fn bytes(&self) -> &[u8] {
        // SAFETY: plain data without padding that matters: what is there is copied
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        // SAFETY: plain data of that size, from a runtime of this build
        (bytes.len() == size_of::<Self>()).then(|| unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
    }
}

/// Offers a task that [`may`] be offered. Whether somebody will carry it out; else the caller does.
pub fn offer(frame: &Frame, met: Met) -> bool {
    let Some(team) = frame.team.get() else { return false };
    let own = own();
    let (begun, told) = (Instant::now(), coherence::told());
    if frame.offers.family.get() == 0 {
        frame.offers.family.set(own.account.number());
    }
    // SAFETY: this thread's, which stays until its end
    let group = unsafe { frame.groups.get().as_ref() }.map_or(0, |group| {
        if group.number.get() == 0 && !group.is_elsewhere() {
            group.number.set(own.account.number());
        }
        group.number.get()
    });
    if team.ranks() > 1 {
        share();
    }
    let family = frame.offers.family.get();
    let place = Place { family, group, around: frame.offers.around.get(), team: frame.threads.get() };
    // SAFETY: this thread's own
    let icvs = unsafe { *frame.icvs() };
    let (run, singles) = (met.run as *const () as usize, thread::current().singles.get());
    let shipped = Shipped { function: met.function, data: met.data, run, singles, icvs };
    let (task, helped) = remote::offer(place, shipped.bytes());
    HELPED.store(helped, Relaxed);
    let nanoseconds = begun.elapsed().as_nanos() as u64;
    own.account.spend(nanoseconds + BYTE * (coherence::told() - told));
    own.account.is_away(nanoseconds);
    if task > 0 {
        let Met { block, depends, .. } = met;
        frame.offers.mine().push(Mine { task, family, group, block, depends });
    }
    task > 0
}

/// What stands above the calling frame, and all that the thread has lent, is for others to see.
#[inline(never)]
fn share() {
    let mark = 0u8;
    let thread = thread::current();
    let slot = slot(run::rank(), thread.local.get(), run::size());
    let from = &raw const mark as usize & !15;
    track::share_of_thread(slot, from..thread.top.get().max(from));
    let lent = lent();
    if !lent.is_empty() {
        track::share_of_thread(slot, lent);
    }
}

/// Waits for what the present task has offered.
pub fn wait_for_children(frame: &Frame) {
    let family = frame.offers.family.get();
    let is_child = |mine: &Mine| mine.family == family;
    if family == 0 || !frame.offers.mine().iter().any(is_child) {
        return;
    }
    work(frame, Awaited::Family(family), |_| false);
    frame.offers.forget(is_child);
}

/// Waits until none of what the present task has offered comes before a task with these dependences.
pub fn wait_for_those(frame: &Frame, depends: &[Dependence]) {
    let family = frame.offers.family.get();
    let precedes = |mine: &Mine| mine.family == family && tasks::depend(&mine.depends, depends);
    if family == 0 || !frame.offers.mine().iter().any(precedes) {
        return;
    }
    let over = work(frame, Awaited::Any(family), |done| {
        frame.offers.forget(|mine| done.contains(&mine.task));
        !frame.offers.mine().iter().any(precedes)
    });
    if over {
        frame.offers.forget(|mine| mine.family == family);
    }
}

/// Waits for all of the innermost group.
pub fn wait_for_group(frame: &Frame) {
    // SAFETY: this thread's, which is about to end it
    let number = unsafe { frame.groups.get().as_ref() }.map_or(0, |group| group.number.get());
    if number > 0 {
        work(frame, Awaited::Group(number), |_| false);
        frame.offers.forget(|mine| mine.group == number);
    }
}

/// At a barrier: waits for all tasks, and for all threads.
pub fn arrive(frame: &Frame) {
    if run::offers_tasks() && frame.team.get().is_some() {
        work(frame, Awaited::Team(frame.threads.get()), |_| false);
        frame.offers.forget(|_| true);
        frame.offers.family.set(0);
    }
}

/// Waits, and carries out tasks meanwhile. `done`: is told what is done, and says whether that will do. Whether it is over.
fn work(frame: &Frame, awaited: Awaited, done: impl Fn(&[u64]) -> bool) -> bool {
    let mut carried: Option<Done> = None;
    let inside = !matches!(awaited, Awaited::Team(_));
    loop {
        if inside && frame.spread() {
            // what it has done may be on its stack
            share();
        }
        let begun = Instant::now();
        let next = remote::wait_for_tasks(awaited, carried.take());
        let nanoseconds = begun.elapsed().as_nanos() as u64;
        own().account.is_away(nanoseconds);
        if inside {
            own().account.spend(nanoseconds);
        }
        match next {
            Next::Over => return true,
            Next::Done(tasks) if done(&tasks) => return false,
            Next::Done(_) => {}
            Next::Task { task, group, data } => {
                let Some(shipped) = Shipped::from_bytes(&data) else {
                    sys::fail(format_args!("a task is offered by {} bytes", data.len()))
                };
                let account = &own().account;
                let (begun, away) = (Instant::now(), account.away.get());
                carry_out(frame, task, group, &shipped);
                let all = begun.elapsed().as_nanos() as u64;
                let told = coherence::told();
                coherence::tell_of_task();
                // what the thread that offered it was saved by that, less what it costs to take it over
                let worked = all.saturating_sub(account.away.get() - away);
                let nanoseconds = worked.saturating_sub(BYTE * (coherence::told() - told));
                account.away.set(away + all);
                stats::add(Count::Tasks, 1);
                carried = Some(Done { task, nanoseconds });
            }
        }
    }
}

fn carry_out(frame: &Frame, task: u64, group: u64, shipped: &Shipped) {
    let before: Around = tasks::begin(frame, false);
    let around = frame.offers.around.replace(task);
    let elsewhere = Group::elsewhere(group);
    let groups = frame.groups.replace(&elsewhere);
    let singles = thread::current().singles.replace(shipped.singles);
    // SAFETY: this thread's own; the function is a runtime's of this build at the same address, and what it is given are the compiler's function and data, which the thread that met
    // the task keeps, and which is here as all memory is
    unsafe {
        let icvs = core::mem::replace(&mut *frame.icvs(), shipped.icvs);
        let run = core::mem::transmute::<usize, Run>(shipped.run);
        run(shipped.function, shipped.data);
        *frame.icvs() = icvs;
    }
    frame.groups.set(groups);
    thread::current().singles.set(singles);
    frame.offers.around.set(around);
    tasks::end(frame, before);
}

const _: () = assert!(size_of::<Shipped>() < polyrail_omp::area::SLOT_DATA);
