//! Loops, sections, `single` and `ordered`: who does what.
//!
//! Iterations are numbers from 0. A static loop is shared out by arithmetic; others by a counter that the threads share: of this process where there is
//! one rank, of rank 0's agent where there are several. Constructs without a barrier may be several under way: hence a ring of what threads share.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

use super::sync;
use super::{Frame, Team, here};
use crate::{coherence, icv, remote, run, sys, thread};

/// Constructs that may be under way in a team at once; who is ahead by more waits.
pub const RING: usize = 16;

/// What numbers for agents are below: a region's numbers come around after so many.
pub const NUMBERS: u64 = 1 << 23;

/// How a loop is shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Kind {
    /// A block for each thread.
    Blocks = 1,
    /// Chunks in turn.
    Static,
    /// Chunks for whoever comes.
    Dynamic,
    /// Ever smaller ones.
    Guided,
    /// As the environment or the program says at run time.
    Runtime,
}

/// A loop.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// See [`Kind`].
    pub kind: Kind,
    /// Whether parts are to be done in the order of iterations.
    pub ordered: bool,
    /// Iterations.
    pub total: u64,
    /// Of so many at once; 0: not said.
    pub chunk: u64,
    /// First value, value behind the last (GCC's), step; zeroes: sections.
    pub bounds: [u64; 3],
}

/// Words of a [`Plan`] in a region's arguments.
pub const PLAN: usize = 7;

impl Plan {
    /// What to hand to other ranks with the region.
    pub fn words(&self) -> [usize; PLAN] {
        let [a, b, c] = self.bounds.map(|word| word as usize);
        [self.kind as usize, self.ordered as usize, self.total as usize, self.chunk as usize, a, b, c]
    }
    /// From [`Plan::words`]; none if there are none.
    pub fn from_words(words: &[usize]) -> Option<Self> {
        let &[kind, ordered, total, chunk, a, b, c] = words else { return None };
        let kind = [Kind::Blocks, Kind::Static, Kind::Dynamic, Kind::Guided, Kind::Runtime]
            .into_iter()
            .find(|k| *k as usize == kind)?;
        let bounds = [a, b, c].map(|word| word as u64);
        Some(Self { kind, ordered: ordered != 0, total: total as u64, chunk: chunk as u64, bounds })
    }
    /// With `schedule(runtime)` decided.
    fn decided(mut self, frame: &Frame) -> Self {
        if self.kind == Kind::Runtime {
            // SAFETY: this thread's own.
            let icvs = unsafe { &*frame.icvs() };
            self.chunk = icvs.chunk.max(0) as u64;
            self.kind = match icvs.schedule & !icv::MONOTONIC {
                icv::DYNAMIC => Kind::Dynamic,
                icv::GUIDED => Kind::Guided,
                icv::STATIC if self.chunk > 0 => Kind::Static,
                _ => Kind::Blocks,
            };
        }
        if self.kind == Kind::Static && self.chunk == 0 {
            self.kind = Kind::Blocks;
        }
        self.chunk = self.chunk.max(1);
        self
    }
}

/// A thread's part of a loop.
#[derive(Clone, Copy)]
pub struct Loop {
    plan: Plan,
    number: u64,
    /// Chunks had so far, of a static loop.
    at: u64,
    /// The chunk that is being worked on, and how many of its iterations are through.
    first: u64,
    count: u64,
    /// For `ordered`: the iteration whose turn this thread has or waits for, and whether it has it.
    turn: u64,
    held: bool,
    passed: bool,
    /// Begun and not ended.
    live: bool,
    /// Memory of a loop outside teams.
    memory: (usize, usize),
}

impl Loop {
    /// No loop.
    pub const NONE: Self = Self {
        plan: Plan { kind: Kind::Blocks, ordered: false, total: 0, chunk: 1, bounds: [0; 3] },
        number: 0,
        at: 0,
        first: 0,
        count: 0,
        turn: 0,
        held: false,
        passed: false,
        live: false,
        memory: (0, 0),
    };
    /// GCC's description: first value, value behind the last, step.
    pub fn bounds(&self) -> [u64; 3] {
        self.plan.bounds
    }
    /// Iterations in all.
    pub fn total(&self) -> u64 {
        self.plan.total
    }
}

/// What threads of one process share of a construct.
pub struct Shared {
    /// The construct that this is for at present.
    number: AtomicU64,
    changed: sync::Word,
    next: AtomicU64,
    turn: AtomicU64,
    left: AtomicUsize,
    /// Memory that the team has for the duration of the construct: 0 none, 1 being made.
    memory: AtomicUsize,
    bytes: AtomicUsize,
    /// That of the construct before, which may be read until this one is over.
    before: [AtomicUsize; 2],
}

impl Shared {
    /// For nothing yet.
    pub const fn new() -> Self {
        Self {
            number: AtomicU64::new(0),
            changed: sync::Word::new(0),
            next: AtomicU64::new(0),
            turn: AtomicU64::new(0),
            left: AtomicUsize::new(0),
            memory: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            before: [const { AtomicUsize::new(0) }; 2],
        }
    }
    /// For construct `number`, before the team runs.
    pub fn reset(&self, number: u64) {
        self.next.store(0, Relaxed);
        self.turn.store(0, Relaxed);
        self.left.store(0, Relaxed);
        let memory = self.memory.swap(0, Relaxed);
        let (before, bytes) =
            (self.before[0].swap(memory, Relaxed), self.before[1].swap(self.bytes.load(Relaxed), Relaxed));
        if before > 1 {
            sys::unmap(before as *mut u8, bytes);
        }
        self.number.store(number, Release);
    }
    fn change(&self) {
        self.changed.add(1);
    }
    fn until(&self, so: impl Fn() -> bool) {
        loop {
            let seen = self.changed.load();
            if so() {
                return;
            }
            self.changed.until_not(seen);
        }
    }
}

fn shared(team: &Team, number: u64) -> &Shared {
    &team.works[(number % RING as u64) as usize]
}

/// What the threads share of construct `number`, which the calling one comes to. Each construct that has a number is come to and left, or the next with its place in the ring waits.
fn come(team: &Team, number: u64) -> &Shared {
    let shared = shared(team, number);
    if shared.number.load(Acquire) != number {
        shared.until(|| shared.number.load(Acquire) == number);
    }
    shared
}

/// The calling thread is through with the construct.
fn go(team: &Team, number: u64) {
    let shared = shared(team, number);
    if shared.left.fetch_add(1, AcqRel) + 1 == team.locals() {
        shared.reset(number + RING as u64);
        shared.change();
    }
}

/// The next construct's number.
pub fn construct(frame: &Frame) -> u64 {
    let number = frame.constructs.get();
    frame.constructs.set(number + 1);
    number
}

/// Begins a loop.
pub fn start(plan: Plan) {
    let frame = here();
    let number = construct(frame);
    if let Some(team) = frame.team.get().filter(|team| team.ranks() == 1) {
        come(team, number);
    }
    frame.work.set(Loop { plan: plan.decided(frame), number, live: true, ..Loop::NONE });
}

/// The next iterations for this thread: the first, and how many.
pub fn next() -> Option<(u64, u64)> {
    let frame = here();
    let mut work = frame.work.get();
    let got = work.take(frame);
    if let Some((first, count)) = got {
        (work.first, work.count, work.turn) = (first, count, first);
        (work.held, work.passed) = (false, false);
    }
    frame.work.set(work);
    got
}

impl Loop {
    fn take(&mut self, frame: &Frame) -> Option<(u64, u64)> {
        let Plan { kind, total, chunk, .. } = self.plan;
        let (tid, threads) = (frame.tid.get() as u64, frame.threads.get() as u64);
        let at = self.at;
        self.at += 1;
        if frame.team.get().is_none() && self.plan.bounds[2] == 0 {
            // sections: one after the other
            return (at < total).then_some((at, 1));
        }
        if frame.team.get().is_none() || frame.doacross.get() {
            return (at == 0 && total > 0 && tid == 0).then_some((0, total));
        }
        match kind {
            Kind::Blocks => {
                let range = block(total, tid, threads);
                (at == 0 && range.1 > 0).then_some(range)
            }
            Kind::Static => {
                let first =
                    at.checked_mul(threads)?.checked_add(tid)?.checked_mul(chunk).filter(|f| *f < total)?;
                Some((first, chunk.min(total - first)))
            }
            _ => {
                let guided = (kind == Kind::Guided).then_some(threads);
                let team = frame.team.get()?;
                if team.ranks() > 1 {
                    return coherence::take(self.number % NUMBERS, total, chunk, guided);
                }
                let next = &shared(team, self.number).next;
                let mut count = 0;
                let first = next.fetch_update(Relaxed, Relaxed, |first| {
                    let rest = total.checked_sub(first).filter(|rest| *rest > 0)?;
                    count = guided.map_or(chunk, |threads| (rest / (2 * threads)).max(chunk)).min(rest);
                    Some(first + count)
                });
                first.ok().map(|first| (first, count))
            }
        }
    }
}

/// Block `tid` of `threads` of `total` iterations: the first ones get one more.
pub fn block(total: u64, tid: u64, threads: u64) -> (u64, u64) {
    let (each, more) = (total / threads, total % threads);
    (each * tid + tid.min(more), each + u64::from(tid < more))
}

/// The loop is over for this thread.
pub fn end() {
    let frame = here();
    let mut work = frame.work.get();
    if core::mem::replace(&mut work.live, false) {
        frame.work.set(work);
        match frame.team.get() {
            Some(team) if team.ranks() == 1 => go(team, work.number),
            None if work.memory.0 > 0 => sys::unmap(work.memory.0 as *mut u8, work.memory.1),
            _ => {}
        }
    }
}

// --- ordered -------------------------------------------------------------------------------------

/// A loop's token: no address.
fn token(team: &Team, number: u64) -> u64 {
    1 << 63 | team.unique(number)
}

/// Waits until it is the turn of iteration `work.turn`.
fn wait_turn(team: &Team, work: &mut Loop) {
    if core::mem::replace(&mut work.held, true) {
        return;
    }
    if team.ranks() > 1 {
        return remote::lock(token(team, work.number), Some(work.turn));
    }
    let shared = shared(team, work.number);
    shared.until(|| shared.turn.load(Acquire) == work.turn);
}

/// It is `turn`'s turn from now on. After the last, the token is as new.
fn pass_turn(team: &Team, work: &mut Loop, turn: u64) {
    work.held = false;
    if team.ranks() > 1 {
        let turn = if turn == work.plan.total { 0 } else { turn };
        return remote::unlock(token(team, work.number), Some(turn));
    }
    let shared = shared(team, work.number);
    shared.turn.store(turn, Release);
    shared.change();
}

fn with_ordered(f: impl FnOnce(&Team, &mut Loop)) {
    let frame = here();
    let mut work = frame.work.get();
    if let (Some(team), true, true, false) =
        (frame.team.get(), work.plan.ordered, work.live, frame.doacross.get())
    {
        f(team, &mut work);
        frame.work.set(work);
    }
}

/// `ordered` begins.
pub fn ordered() {
    with_ordered(wait_turn);
}

/// `ordered` ends, where [`iterated`] tells the end of each iteration.
pub fn end_ordered() {
    with_ordered(|team, work| {
        pass_turn(team, work, work.turn + 1);
        work.passed = true;
    });
}

/// An iteration has ended.
pub fn iterated() {
    with_ordered(|team, work| {
        if !core::mem::replace(&mut work.passed, false) {
            wait_turn(team, work);
            pass_turn(team, work, work.turn + 1);
        }
        work.turn += 1;
    });
}

/// A chunk has ended, where nothing tells the end of iterations.
pub fn chunk_done() {
    with_ordered(|team, work| {
        if work.count > 0 {
            wait_turn(team, work);
            pass_turn(team, work, work.first + work.count);
            work.count = 0;
        }
    });
}

// --- single, memory -------------------------------------------------------------------------------

/// Whether this thread does what one thread of the team is to do. `copied`: it may be `copyprivate`; of `threadprivate` memory, only thread 0's is the same everywhere.
pub fn single(copied: bool) -> bool {
    let frame = here();
    let Some(team) = frame.team.get() else {
        construct(frame);
        return true;
    };
    if team.ranks() > 1 {
        construct(frame);
        let singles = &thread::current().singles;
        singles.set(singles.get() + 1);
        // what it stores comes before what others' atomic operations do behind the construct, even without a barrier (see `coherence::comes_first`)
        let may = if copied { frame.tid.get() == 0 } else { run::rank() == 0 };
        let first = may && coherence::comes_first(singles.get());
        frame.single.set(first);
        return first;
    }
    let number = construct(frame);
    let first = come(team, number).next.fetch_add(1, Relaxed) == 0;
    go(team, number);
    first
}

/// `bytes` of zeroed memory that the threads of the team share until the present loop is over.
pub fn memory(bytes: usize) -> *mut u8 {
    let frame = here();
    let Some(team) = frame.team.get() else {
        let at = sys::map(bytes.max(1));
        let mut work = frame.work.get();
        work.memory = (at as usize, bytes.max(1));
        frame.work.set(work);
        return at;
    };
    if team.ranks() > 1 {
        sys::stop(
            "a scan, a conditional lastprivate or a reduction of tasks, built by gcc",
            "it keeps the threads' parts in memory of one process; build with clang, or run with -n 1",
        );
    }
    let shared = shared(team, frame.work.get().number);
    if shared.memory.compare_exchange(0, 1, AcqRel, Acquire).is_ok() {
        shared.bytes.store(bytes, Relaxed);
        shared.memory.store(sys::map(bytes.max(1)) as usize, Release);
        shared.change();
    }
    shared.until(|| shared.memory.load(Acquire) > 1);
    shared.memory.load(Acquire) as *mut u8
}
