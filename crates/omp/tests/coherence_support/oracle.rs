//! What OpenMP's memory model allows (specification 5.2, section 1.4): each read may have what is not overwritten before it, as far as what the program does orders it. What is
//! ordered by an operation of Polyrail besides that is not asked for.

use super::plan::Plan;
use polyrail_omp::coherence::operation::Effect;

/// Threads that a team has at most.
const TEAM: usize = 16;

/// How far each thread is known to have come (vector clock).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known([u32; TEAM]);

impl Known {
    fn join(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own = (*own).max(other));
    }
}

#[derive(Clone, Copy, Debug)]
struct Write {
    thread: usize,
    known: Known,
    value: u64,
}

impl Write {
    fn is_before(&self, known: &Known) -> bool {
        known.0[self.thread] >= self.known.0[self.thread]
    }
}

/// An addition of a bit to a cell: each sees by the bits which were before it.
#[derive(Clone, Copy, Debug)]
struct Addition {
    bit: u32,
    /// What its thread knew when it began, if others are to.
    known: Known,
    before: Option<u64>,
}

#[derive(Debug, Default)]
struct Cell {
    mask: u64,
    writes: Vec<Write>,
    /// Of additions in this phase.
    base: Option<u64>,
    added: Vec<Addition>,
    /// A flag's or a lock's of the program's own.
    known: Known,
    raised: Option<u64>,
    held: bool,
}

/// All that happened, in an order in which it can have.
#[derive(Debug)]
pub struct Oracle {
    threads: Vec<Known>,
    cells: Vec<Cell>,
    locks: Vec<(Known, bool)>,
    flushed: Known,
    /// By number: who has come to a barrier, and whether it is over.
    barriers: Vec<(Known, bool)>,
    taken: Vec<(u64, u64)>,
    values: u64,
    /// What happened how often.
    pub reads: u64,
}

/// The additions to a cell that a `single` begins are on top of this.
pub const SINGLE: u64 = 1 << 62;

impl Oracle {
    /// Nothing has happened yet: all cells are 0.
    pub fn new(plan: &Plan) -> Self {
        let zero = Write { thread: 0, known: Known::default(), value: 0 };
        let cell = |width: usize| Cell {
            mask: if width == 8 { u64::MAX } else { (1 << (8 * width)) - 1 },
            writes: vec![zero],
            ..Cell::default()
        };
        Self {
            threads: vec![Known::default(); plan.ranks * plan.threads],
            cells: plan.cells.iter().map(|one| cell(one.width)).collect(),
            locks: vec![(Known::default(), false); 64],
            flushed: Known::default(),
            barriers: Vec::new(),
            taken: Vec::new(),
            values: 0,
            reads: 0,
        }
    }

    fn tick(&mut self, thread: usize) -> Known {
        self.threads[thread].0[thread] += 1;
        self.threads[thread]
    }

    /// A thread is about to store; what.
    pub fn store(&mut self, thread: usize, cell: usize) -> u64 {
        self.values += 1;
        let value = self.values.wrapping_mul(0x0101_0101_0101_0101).wrapping_add(self.values << 20);
        let known = self.tick(thread);
        let value = value & self.cells[cell].mask;
        self.cells[cell].writes.push(Write { thread, known, value });
        value
    }

    /// A thread is about to add one to so many bytes of a cell that is its own; what is to be there.
    pub fn update(&mut self, thread: usize, cell: usize, offset: usize, width: usize) -> u64 {
        let (all, shift) = (self.value(cell), 8 * offset as u32);
        let mask = u64::MAX >> (64 - 8 * width);
        let before = all >> shift & mask;
        let value = all & !(mask << shift) | (before.wrapping_add(1) & mask) << shift;
        let known = self.tick(thread);
        self.cells[cell].writes.push(Write { thread, known, value });
        before
    }

    /// What may be there for a thread.
    fn allowed(&self, thread: usize, cell: usize) -> Vec<u64> {
        let (writes, known) = (&self.cells[cell].writes, &self.threads[thread]);
        let is_over = |one: &Write| {
            writes.iter().any(|other| {
                one.known != other.known && one.is_before(&other.known) && other.is_before(known)
            })
        };
        writes.iter().filter(|one| !is_over(one)).map(|one| one.value).collect()
    }

    /// A thread has loaded; what is wrong.
    pub fn load(&mut self, thread: usize, cell: usize, value: u64) -> Option<String> {
        self.reads += 1;
        let allowed = self.allowed(thread, cell);
        let why = || format!("thread {thread} reads {value:#x} of cell {cell}, where {allowed:x?} may be");
        (!allowed.contains(&value)).then(why)
    }

    /// What is in a cell, behind a barrier.
    pub fn value(&self, cell: usize) -> u64 {
        self.cells[cell].writes.last().map_or(0, |write| write.value)
    }

    /// A thread has a lock.
    pub fn acquired(&mut self, thread: usize, lock: usize) -> Option<String> {
        let (known, held) = &mut self.locks[lock];
        let both = core::mem::replace(held, true);
        self.threads[thread].join(known);
        both.then(|| format!("thread {thread} has lock {lock}, which another has"))
    }

    /// It is about to give it back.
    pub fn release(&mut self, thread: usize, lock: usize) {
        let known = self.tick(thread);
        self.locks[lock].0.join(&known);
        self.locks[lock].1 = false;
    }

    /// As [`acquired`](Self::acquired), of the program's own.
    pub fn spun(&mut self, thread: usize, cell: usize) -> Option<String> {
        let both = core::mem::replace(&mut self.cells[cell].held, true);
        let known = self.cells[cell].known;
        self.threads[thread].join(&known);
        both.then(|| format!("thread {thread} has the lock in cell {cell}, which another has"))
    }

    /// As [`release`](Self::release), of the program's own.
    pub fn unspin(&mut self, thread: usize, cell: usize) {
        let known = self.tick(thread);
        self.cells[cell].known.join(&known);
        self.cells[cell].held = false;
    }

    /// A thread begins to flush; what it learns in any case, and what others learn behind it.
    pub fn flush(&mut self, thread: usize) -> (Known, Known) {
        (self.flushed, self.tick(thread))
    }

    /// It has.
    pub fn flushed(&mut self, thread: usize, (learns, tells): (Known, Known)) {
        self.threads[thread].join(&learns);
        self.flushed.join(&tells);
    }

    /// A thread is about to raise a flag.
    pub fn raise(&mut self, thread: usize, cell: usize) -> u64 {
        let value = self.store(thread, cell);
        self.cells[cell].raised = Some(value);
        self.cells[cell].known = self.threads[thread];
        value
    }

    /// A thread has looked at a flag: whether it was raised, if that may be.
    pub fn looked(&self, cell: usize, value: u64) -> Result<bool, String> {
        let cell_of = &self.cells[cell];
        if cell_of.raised == Some(value) {
            return Ok(true);
        }
        match cell_of.writes[0].value == value {
            true => Ok(false),
            false => Err(format!("the flag in cell {cell} is {value:#x}: {:?}", cell_of.writes)),
        }
    }

    /// A thread has waited for a flag.
    pub fn awaited(&mut self, thread: usize, cell: usize) {
        let known = self.cells[cell].known;
        self.threads[thread].join(&known);
    }

    /// A `single` has stored into a cell to which all add then.
    pub fn single(&mut self, cell: usize) {
        self.cells[cell].base = Some(SINGLE);
    }

    /// A thread begins to add a bit.
    pub fn add(&mut self, thread: usize, cell: usize, bit: u32, effect: Effect) {
        let known = self.tick(thread);
        let now = self.value(cell);
        let of = &mut self.cells[cell];
        of.base.get_or_insert(now);
        let known = if effect == Effect::None { Known::default() } else { known };
        of.added.push(Addition { bit, known, before: None });
    }

    /// It has found `before` there: the bits that were added before.
    pub fn added(
        &mut self,
        thread: usize,
        cell: usize,
        bit: u32,
        effect: Effect,
        before: u64,
    ) -> Result<u64, String> {
        let of = &mut self.cells[cell];
        let bits = before.wrapping_sub(of.base.unwrap_or(0));
        let all = of.added.iter().fold(0, |all, one| all | 1 << one.bit);
        if bits & !all != 0 || bits >> bit & 1 != 0 {
            return Err(format!(
                "thread {thread} adds bit {bit} to cell {cell} and finds {before:#x}, on top of {:#x} with bits {all:#x}",
                of.base.unwrap_or(0)
            ));
        }
        if let Some(one) = of.added.iter_mut().find(|one| one.bit == bit) {
            one.before = Some(bits);
        }
        if effect == Effect::Full {
            let known: Vec<Known> =
                of.added.iter().filter(|one| bits >> one.bit & 1 == 1).map(|one| one.known).collect();
            known.iter().for_each(|known| self.threads[thread].join(known));
        }
        Ok(bits)
    }

    /// All that was to be added to a cell has been, and a thread knows of it: what is there.
    pub fn collected(&mut self, thread: usize, cell: usize) -> u64 {
        let (value, known) = (self.total(cell), self.tick(thread));
        let of = &mut self.cells[cell];
        (of.base, of.writes) = (None, vec![Write { thread, known, value }]);
        of.added.clear();
        value
    }

    /// What is in a cell when all have added.
    pub fn total(&self, cell: usize) -> u64 {
        let of = &self.cells[cell];
        of.added.iter().fold(of.base.unwrap_or(0), |all, one| all.wrapping_add(1 << one.bit))
    }

    /// A rank's copies are about to be given, or what was folded to be given back.
    pub fn hand_over(&mut self, thread: usize) -> Known {
        self.tick(thread)
    }

    /// A thread has them.
    pub fn handed_over(&mut self, thread: usize, known: &Known) {
        self.threads[thread].join(known);
    }

    /// A thread takes an iteration.
    pub fn take(&mut self, number: u64, iteration: u64) -> Option<String> {
        let twice = self.taken.contains(&(number, iteration));
        self.taken.push((number, iteration));
        twice.then(|| format!("iteration {iteration} of loop {number} is taken twice"))
    }

    /// How many iterations were taken of a loop.
    pub fn count(&self, number: u64) -> usize {
        self.taken.iter().filter(|taken| taken.0 == number).count()
    }

    /// A thread comes to a barrier.
    pub fn arrive(&mut self, thread: usize, number: usize) {
        let known = self.tick(thread);
        if self.barriers.len() <= number {
            self.barriers.push((Known::default(), false));
        }
        self.barriers[number].0.join(&known);
    }

    /// It goes on, as all have come; what is wrong.
    pub fn leave(&mut self, thread: usize, number: usize) -> Option<String> {
        let (known, is_over) = self.barriers[number];
        self.threads[thread].join(&known);
        if is_over {
            return None;
        }
        self.barriers[number].1 = true;
        (0..self.cells.len()).find_map(|cell| self.settle(cell, known))
    }

    /// All threads have come: what is in a cell is what was written last, or all that was added.
    fn settle(&mut self, cell: usize, known: Known) -> Option<String> {
        let of = &mut self.cells[cell];
        let mut wrong = None;
        if let Some(base) = of.base.take().filter(|_| !of.added.is_empty()) {
            let mut before: Vec<(u64, u32)> =
                of.added.iter().map(|one| (one.before.unwrap_or(u64::MAX), one.bit)).collect();
            before.sort_unstable_by_key(|(bits, _)| bits.count_ones());
            let mut all = 0;
            for (bits, bit) in before {
                if bits != all {
                    wrong = Some(format!("additions to cell {cell} are in no order: {:x?}", of.added));
                }
                all |= 1 << bit;
            }
            of.writes = vec![Write { thread: 0, known, value: base.wrapping_add(all) }];
            of.added.clear();
        } else {
            let writes = core::mem::take(&mut of.writes);
            let is_over = |one: &Write| {
                writes.iter().any(|other| one.known != other.known && one.is_before(&other.known))
            };
            of.writes = writes.iter().filter(|one| !is_over(one)).copied().collect();
        }
        of.raised = None;
        wrong
    }
}
