//! Random OpenMP programs: what each thread of each rank does, and what memory they do it to.
//!
//! A program is free of races by how it is made, unless it is to have one. In each phase, which ends with a barrier, each cell has one role: one thread's own, a lock's, only
//! read, updated by atomic operations, or what is handed over behind a flag.

use super::memory::BASE;
use super::random::Random;
use polyrail_omp::coherence::operation::Effect;
use polyrail_omp::layout::PAGE;

/// A program, and what it is run on.
#[derive(Debug)]
pub struct Plan {
    pub ranks: usize,
    /// Of each rank.
    pub threads: usize,
    pub pages: usize,
    /// Whether writes are watched, by rank.
    pub watched: Vec<bool>,
    /// Bytes of the first page that are not shared.
    pub hidden: usize,
    /// Bytes of an exchange's blob, and of a request.
    pub room: usize,
    pub slot: usize,
    /// Whether ranks exchange directly, so that the agent hears of it some time later.
    pub direct: bool,
    /// The program has flushes, so each rank has one thread.
    pub flushes: bool,
    pub cells: Vec<Cell>,
    pub regions: Vec<Region>,
    /// What tasks do.
    pub tasks: Vec<Vec<Op>>,
    /// It has a race: two ranks store different values into a cell.
    pub races: bool,
    /// Rank 0 may be kept from a `single` for ever.
    pub is_held_up: bool,
}

/// A variable.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    pub at: usize,
    /// Bytes.
    pub width: usize,
    /// So many of these behind each other have the same value.
    pub times: usize,
}

/// Serial code's stores, then phases.
#[derive(Debug)]
pub struct Region {
    pub serial: Vec<usize>,
    pub phases: Vec<Phase>,
}

/// By thread: what it does until the barrier.
#[derive(Debug)]
pub struct Phase {
    pub ops: Vec<Vec<Op>>,
}

/// What a thread does. Cells by their index.
#[derive(Clone, Debug)]
pub enum Op {
    Load(usize),
    Store(usize),
    /// Adds this bit, which nobody else adds; with `then`, loads these if the other bit was there.
    Add {
        cell: usize,
        bit: u32,
        effect: Effect,
        then: Option<(u32, Vec<usize>)>,
    },
    /// Adds one to so many bytes of a cell that no other thread uses in this phase.
    Update {
        cell: usize,
        offset: usize,
        width: usize,
        effect: Effect,
    },
    /// A critical section, or a lock.
    Critical {
        lock: usize,
        body: Vec<Op>,
    },
    /// Tries a lock, and does nothing if another has it.
    Try {
        lock: usize,
        body: Vec<Op>,
    },
    /// Waits for the turn.
    Ordered {
        lock: usize,
        turn: u64,
        body: Vec<Op>,
    },
    /// A lock of the program's own: an exchange of 1 until 0 was there; a plain store of 0.
    Spin {
        cell: usize,
        body: Vec<Op>,
        /// Given back by a plain store, or by another exchange.
        plainly: bool,
    },
    /// Stores into the cell, between flushes if somebody may look at it who does not wait.
    Raise {
        cell: usize,
        flushes: bool,
    },
    /// Looks at the cell between flushes, and loads these if it was raised.
    Look {
        cell: usize,
        then: Vec<usize>,
    },
    /// Waits until it is raised; loads these.
    Await {
        cell: usize,
        then: Vec<usize>,
    },
    /// Loads the cell to which all threads have added, before the turns of an `ordered`, of which this is the last.
    Total(usize),
    /// Every copy of a rank in one: gives rank 0 what leads to the rank's cell, which rank 0 folds.
    Reduce {
        number: u64,
        cells: Vec<usize>,
        own: bool,
    },
    /// The first thread of rank 0 that comes stores, and nobody waits.
    Single {
        number: u64,
        cell: usize,
    },
    /// Takes iterations until there are none; iteration i stores into the i-th of these.
    Loop {
        number: u64,
        chunk: u64,
        guided: bool,
        cells: Vec<usize>,
    },
    /// As a thread of the race.
    Race(usize),
    /// Stores into cells, meets tasks, waits for them, and loads what it may know of then.
    Tasks {
        before: Vec<usize>,
        /// By number, and whether each is offered to others.
        tasks: Vec<(usize, bool)>,
        wait: Wait,
        then: Vec<usize>,
    },
    /// Again and again: stores into the cell, has tasks add to it, waits for them, and loads it.
    Rounds {
        cell: usize,
        /// Tasks by number, and whether each is offered.
        rounds: Vec<Vec<(usize, bool)>>,
    },
}

/// For what a thread that has met tasks waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Nothing, before the barrier.
    Nothing,
    /// These tasks.
    Tasks,
    /// All of a group.
    Group,
}

/// The kind of part that is tasks.
const TASKS: usize = 18;

/// Locks that programs have.
pub const LOCKS: usize = 3;

struct Maker<'a> {
    /// Kinds of parts that it has.
    kinds: Vec<usize>,
    random: &'a mut Random,
    ranks: usize,
    threads: usize,
    cells: Vec<Cell>,
    singles: u64,
    loops: u64,
    reductions: u64,
    ordered: usize,
    tasks: Vec<Vec<Op>>,
    /// Threads of this phase wait for flags, or have a `single` that nobody waits for. If both, rank 0, which has the `single`, behind which others' updates come, may
    /// wait before it for what others do behind them: that is refused by name.
    awaits: bool,
    has_single: bool,
    is_held_up: bool,
}

impl Plan {
    /// All from one number.
    pub fn new(random: &mut Random) -> Self {
        let ranks = random.pick(&[2, 2, 2, 3, 3, 4, 5, 8]);
        let flushes = random.one_in(3);
        let threads = if flushes || ranks > 4 { 1 } else { random.pick(&[1, 1, 2, 2, 3, 4]) };
        let pages = 1 + random.below(4);
        let hidden = if random.one_in(3) { 64 * random.below(8) } else { 0 };
        let mut cells = cells(random, pages, hidden);
        let pages = if random.one_in(3) { blocks(random, pages, &mut cells) } else { pages };
        let races = !flushes && random.one_in(12);
        // half of the programs have few kinds of work, so that it meets
        let all: Vec<usize> = (0..if flushes { 18 } else { 15 }).chain([TASKS, TASKS]).collect();
        let kinds = match random.one_in(2) {
            true => (0..1 + random.below(3)).map(|_| random.pick(&all)).collect(),
            false => all,
        };
        let mut maker = Maker {
            kinds,
            random,
            ranks,
            threads,
            cells,
            singles: 0,
            loops: 0,
            reductions: 0,
            ordered: LOCKS,
            tasks: Vec::new(),
            awaits: false,
            has_single: false,
            is_held_up: false,
        };
        let count = 1 + maker.random.below(2);
        let regions = (0..count).map(|_| maker.region(races)).collect();
        let is_held_up = maker.is_held_up;
        let (cells, tasks) = (maker.cells, maker.tasks);
        Self {
            ranks,
            threads,
            pages,
            watched: (0..ranks).map(|_| random.one_in(2)).collect(),
            hidden,
            room: random.pick(&[2 * 4744, 3 * 4744, 1 << 20]),
            slot: random.pick(&[2 * 4744 + 64, 3 * 4744, 256 << 10]),
            direct: random.one_in(2),
            flushes,
            cells,
            regions,
            tasks,
            races,
            is_held_up,
        }
    }
}

/// Some next to each other, some alone, some at the end of a page.
fn cells(random: &mut Random, pages: usize, hidden: usize) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    let count = 6 + random.below(8);
    let mut at = BASE + hidden.next_multiple_of(8);
    let end = BASE + pages * PAGE;
    for i in 0..count {
        let width = if i < 4 { 8 } else { random.pick(&[1, 2, 4, 8, 8]) };
        let next = match random.below(4) {
            0 => at + 8 * random.below(PAGE / 8),
            1 => (at + PAGE).next_multiple_of(PAGE) - 8 * (1 + random.below(2)),
            _ => at,
        };
        let next = next.next_multiple_of(width);
        let next = if next + width > end { at.next_multiple_of(width) } else { next };
        if next + width <= end {
            cells.push(Cell { at: next, width, times: 1 });
            at = next + width;
        }
    }
    cells
}

/// Arrays behind the pages: whole pages, and parts of pages. How many pages there are then.
fn blocks(random: &mut Random, pages: usize, cells: &mut Vec<Cell>) -> usize {
    let count = 1 + random.below(4);
    for page in pages..pages + count {
        // a page is told as a whole if most of it has changed
        let parts: &[usize] = [&[512][..], &[256, 256], &[448, 64], &[64, 384, 64]][random.below(4)];
        let mut at = BASE + page * PAGE;
        for times in parts.iter().copied() {
            cells.push(Cell { at, width: 8, times });
            at += 8 * times;
        }
    }
    pages + count
}

/// What all tasks of a part use.
struct Shared {
    /// They add to it.
    counter: Option<usize>,
    bits: u32,
    /// They have it under a lock.
    guarded: Option<usize>,
    lock: usize,
}

impl Maker<'_> {
    fn team(&self) -> usize {
        self.ranks * self.threads
    }

    fn region(&mut self, races: bool) -> Region {
        self.singles = 0;
        let serial = (0..self.cells.len()).filter(|_| self.random.one_in(3)).collect();
        let phases = 1 + self.random.below(3);
        let racy = races.then(|| self.random.below(phases));
        Region { serial, phases: (0..phases).map(|phase| self.phase(racy == Some(phase))).collect() }
    }

    fn phase(&mut self, racy: bool) -> Phase {
        let team = self.team();
        (self.awaits, self.has_single) = (false, false);
        let mut free: Vec<usize> = (0..self.cells.len()).collect();
        for i in (1..free.len()).rev() {
            free.swap(i, self.random.below(i + 1));
        }
        let mut ops: Vec<Vec<Op>> = vec![Vec::new(); team];
        if racy {
            let Some(cell) = free.pop() else { return Phase { ops } };
            let one = self.random.below(team);
            // of another rank
            let other = (one + self.threads * (1 + self.random.below(self.ranks - 1))) % team;
            ops[one].push(Op::Race(cell));
            ops[other].push(Op::Race(cell));
        }
        // how much there is to do
        let parts = 1 + self.random.below(5);
        for _ in 0..parts {
            self.part(&mut free, &mut ops);
        }
        Phase { ops }
    }

    /// Puts something at a random place of a thread, behind what is there for the part in hand.
    fn insert(&mut self, ops: &mut [Vec<Op>], thread: usize, from: usize, op: Op) -> usize {
        let list = &mut ops[thread];
        let at = from + self.random.below(list.len() + 1 - from.min(list.len()));
        let at = at.min(list.len());
        list.insert(at, op);
        at + 1
    }

    fn part(&mut self, free: &mut Vec<usize>, ops: &mut [Vec<Op>]) {
        let team = self.team();
        let mut take = |n: usize| (free.len() >= n).then(|| free.split_off(free.len() - n));
        let kinds = self.kinds.clone();
        match self.random.pick(&kinds) {
            // a thread's own
            0 | 1 => {
                let Some(cells) = take(1) else { return };
                let thread = self.random.below(team);
                for _ in 0..1 + self.random.below(3) {
                    let op = if self.random.one_in(2) { Op::Load(cells[0]) } else { Op::Store(cells[0]) };
                    self.insert(ops, thread, 0, op);
                }
            }
            // a thread's own, by atomic operations, too
            2 => {
                let Some(cell) = self.wide(free) else { return };
                let thread = self.random.below(team);
                for _ in 0..2 + self.random.below(4) {
                    let effect =
                        self.random.pick(&[Effect::None, Effect::None, Effect::Release, Effect::Full]);
                    let op = match self.random.below(4) {
                        0 => Op::Load(cell),
                        1 => Op::Store(cell),
                        _ => {
                            let width = self.random.pick(&[1, 2, 4, 4, 8, 8]);
                            let offset = width * self.random.below(8 / width);
                            Op::Update { cell, offset, width, effect }
                        }
                    };
                    self.insert(ops, thread, 0, op);
                }
            }
            // read by all
            3 => {
                let Some(cells) = take(1) else { return };
                for thread in 0..team {
                    if !self.random.one_in(3) {
                        self.insert(ops, thread, 0, Op::Load(cells[0]));
                    }
                }
            }
            // a lock's
            4 | 5 => {
                let Some(cells) = take(1) else { return };
                let lock = self.random.below(LOCKS);
                for thread in 0..team {
                    for _ in 0..self.random.below(3) {
                        let body = self.body(&cells);
                        let op = match self.random.one_in(4) {
                            true => Op::Try { lock, body },
                            false => Op::Critical { lock, body },
                        };
                        self.insert(ops, thread, 0, op);
                    }
                }
            }
            // updated by all
            6 => {
                let Some(cell) = self.wide(free) else { return };
                let effect = self.random.pick(&[Effect::None, Effect::Release, Effect::Full]);
                let mut bit = 0;
                for thread in 0..team {
                    for _ in 0..self.random.below(3) {
                        self.insert(ops, thread, 0, Op::Add { cell, bit, effect, then: None });
                        bit += 1;
                    }
                }
            }
            // handed over by an atomic operation
            7 | 8 => {
                let Some(cell) = self.wide(free) else { return };
                let mut take = |n: usize| (free.len() >= n).then(|| free.split_off(free.len() - n));
                let Some(data) = take(1) else { return };
                let writer = self.random.below(team);
                let at = self.insert(ops, writer, 0, Op::Store(data[0]));
                let effect = self.random.pick(&[Effect::Release, Effect::Full]);
                self.insert(ops, writer, at, Op::Add { cell, bit: 0, effect, then: None });
                let mut bit = 1;
                for thread in (0..team).filter(|thread| *thread != writer) {
                    for _ in 0..self.random.below(3) {
                        let then = Some((0, data.clone()));
                        self.insert(ops, thread, 0, Op::Add { cell, bit, effect: Effect::Full, then });
                        bit += 1;
                    }
                }
            }
            // a lock of the program's own
            9 => {
                let Some(cell) = self.wide(free) else { return };
                let mut take = |n: usize| (free.len() >= n).then(|| free.split_off(free.len() - n));
                let Some(data) = take(1) else { return };
                for thread in 0..team {
                    if self.random.one_in(2) {
                        let body = self.body(&data);
                        let plainly = self.random.one_in(2);
                        self.insert(ops, thread, 0, Op::Spin { cell, body, plainly });
                    }
                }
            }
            // in order
            10 => {
                let Some(cells) = take(1) else { return };
                let lock = self.ordered;
                self.ordered += 1;
                let mut order: Vec<usize> = (0..team).collect();
                for i in (1..team).rev() {
                    order.swap(i, self.random.below(i + 1));
                }
                for (turn, thread) in order.into_iter().enumerate() {
                    // at the end: what comes behind may be what an earlier turn waits for
                    let body = self.body(&cells);
                    ops[thread].push(Op::Ordered { lock, turn: turn as u64, body });
                }
            }
            // updated by all, and then read by one
            11 => {
                let Some(cell) = self.wide(free) else { return };
                let lock = self.ordered;
                self.ordered += 1;
                let effect = self.random.pick(&[Effect::None, Effect::None, Effect::Release, Effect::Full]);
                let last = self.random.below(team);
                for (thread, ops) in ops.iter_mut().enumerate() {
                    ops.push(Op::Add { cell, bit: thread as u32, effect, then: None });
                    let turn = ((thread + team - 1 - last) % team) as u64;
                    let body = if thread == last { vec![Op::Total(cell)] } else { Vec::new() };
                    ops.push(Op::Ordered { lock, turn, body });
                }
            }
            // a reduction of copies that lead to memory
            12 => {
                let mut take = |n: usize| (free.len() >= n).then(|| free.split_off(free.len() - n));
                let Some(cells) = take(self.ranks) else { return };
                let number = self.reductions;
                self.reductions += 1;
                let own = self.random.one_in(2);
                for rank in 0..self.ranks {
                    ops[rank * self.threads].push(Op::Reduce { number, cells: cells.clone(), own });
                }
            }
            // a loop that is shared out
            13 => {
                let n = (2 + self.random.below(3)).min(free.len());
                let mut take = |n: usize| (free.len() >= n).then(|| free.split_off(free.len() - n));
                let Some(cells) = take(n) else { return };
                let (number, chunk) = (self.loops, 1 + self.random.below(2) as u64);
                self.loops += 1;
                let guided = self.random.one_in(2);
                for thread in 0..team {
                    self.insert(ops, thread, 0, Op::Loop { number, chunk, guided, cells: cells.clone() });
                }
            }
            // a single that nobody waits for, one thread each
            14 => {
                let Some(cell) = self.wide(free) else { return };
                if self.threads > 1 || self.awaits && !self.random.one_in(20) {
                    return;
                }
                self.is_held_up |= self.awaits;
                self.has_single = true;
                self.singles += 1;
                for (thread, ops) in ops.iter_mut().enumerate() {
                    ops.push(Op::Single { number: self.singles, cell });
                    let bit = thread as u32;
                    let effect = self.random.pick(&[Effect::None, Effect::Full]);
                    ops.push(Op::Add { cell, bit, effect, then: None });
                }
            }
            // handed over by a flag: what was stored over the outcome of an operation
            15 => {
                let Some(cell) = self.wide(free) else { return };
                let mut take = |n: usize| (free.len() >= n).then(|| free.split_off(free.len() - n));
                if self.has_single {
                    return;
                }
                let Some(flag) = take(1) else { return };
                self.awaits = true;
                let writer = self.random.below(team);
                let reader = (writer + 1 + self.random.below(team - 1)) % team;
                let effect = self.random.pick(&[Effect::None, Effect::Full]);
                let update = Op::Update { cell, offset: 0, width: 8, effect };
                let at = self.insert(ops, writer, 0, update.clone());
                let at = self.insert(ops, writer, at, Op::Store(cell));
                let flushes = self.random.one_in(2);
                self.insert(ops, writer, at, Op::Raise { cell: flag[0], flushes });
                ops[reader].push(Op::Await { cell: flag[0], then: Vec::new() });
                ops[reader].push(update);
            }
            TASKS if self.random.one_in(3) => {
                let Some(cell) = self.wide(free) else { return };
                let thread = self.random.below(team);
                let rounds = (0..1 + self.random.below(4)).map(|_| self.round(cell)).collect();
                self.insert(ops, thread, 0, Op::Rounds { cell, rounds });
            }
            TASKS => {
                let shared = self.wide(free);
                let guarded = (free.len() > 1).then(|| free.pop()).flatten();
                let mut shared = Shared { counter: shared, bits: 0, guarded, lock: self.random.below(LOCKS) };
                for _ in 0..1 + self.random.below(2) {
                    let thread = self.random.below(team);
                    if let Some((op, _)) = self.tasks(free, &mut shared, 0) {
                        self.insert(ops, thread, 0, op);
                    }
                }
            }
            // flags and flushes
            _ => {
                if self.has_single && !self.random.one_in(20) {
                    return;
                }
                self.is_held_up |= self.has_single;
                let Some(cells) = take(2) else { return };
                self.awaits = true;
                let (flag, data) = (cells[0], cells[1]);
                let writer = self.random.below(team);
                let at = self.insert(ops, writer, 0, Op::Store(data));
                let flushes = self.random.one_in(2);
                self.insert(ops, writer, at, Op::Raise { cell: flag, flushes });
                for thread in (0..team).filter(|thread| *thread != writer) {
                    for _ in 0..if flushes { self.random.below(3) } else { 0 } {
                        self.insert(ops, thread, 0, Op::Look { cell: flag, then: vec![data] });
                    }
                    if self.random.one_in(if flushes { 3 } else { 1 }) {
                        ops[thread].push(Op::Await { cell: flag, then: vec![data] });
                    }
                }
            }
        }
    }

    /// Tasks that add to a cell.
    fn round(&mut self, cell: usize) -> Vec<(usize, bool)> {
        let mut bit = 0;
        let mut tasks = Vec::new();
        for _ in 0..1 + self.random.below(4) {
            let mut body = Vec::new();
            for _ in 0..1 + self.random.below(2) {
                let effect = self.random.pick(&[Effect::None, Effect::Release, Effect::Full]);
                body.push(Op::Add { cell, bit, effect, then: None });
                bit += 1;
            }
            self.tasks.push(body);
            tasks.push((self.tasks.len() - 1, !self.random.one_in(3)));
        }
        tasks
    }

    /// Tasks, each with a cell of its own; which cells who waits for them may know.
    fn tasks(
        &mut self,
        free: &mut Vec<usize>,
        shared: &mut Shared,
        depth: usize,
    ) -> Option<(Op, Vec<usize>)> {
        let wait = self.random.pick(&[Wait::Nothing, Wait::Tasks, Wait::Tasks, Wait::Group]);
        let (mut before, mut tasks, mut then) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..1 + self.random.below(3) {
            let Some(cell) = free.pop() else { break };
            if !self.random.one_in(3) {
                before.push(cell);
            }
            let mut body = self.body(&[cell]);
            if depth < 2
                && self.random.one_in(3)
                && let Some((op, known)) = self.tasks(free, shared, depth + 1)
            {
                // a group waits for all that is inside
                then.extend(if wait == Wait::Group { known.clone() } else { Vec::new() });
                body.push(op);
            }
            if let Some(cell) = shared.counter.filter(|_| shared.bits < 50 && self.random.one_in(3)) {
                let effect = self.random.pick(&[Effect::None, Effect::Release, Effect::Full]);
                body.push(Op::Add { cell, bit: shared.bits, effect, then: None });
                shared.bits += 1;
            }
            if let Some(cell) = shared.guarded.filter(|_| self.random.one_in(3)) {
                body.push(Op::Critical { lock: shared.lock, body: self.body(&[cell]) });
            }
            if self.random.one_in(2) {
                body.push(Op::Store(cell));
            }
            self.tasks.push(body);
            tasks.push((self.tasks.len() - 1, !self.random.one_in(4)));
            then.push(cell);
        }
        if wait == Wait::Nothing {
            then.clear();
        }
        let op = Op::Tasks { before, tasks, wait, then: then.clone() };
        Some((op, then)).filter(|(op, _)| !matches!(op, Op::Tasks { tasks, .. } if tasks.is_empty()))
    }

    /// A cell of eight bytes.
    fn wide(&mut self, free: &mut Vec<usize>) -> Option<usize> {
        let at = free.iter().position(|cell| self.cells[*cell].width == 8 && self.cells[*cell].times == 1)?;
        Some(free.swap_remove(at))
    }

    fn body(&mut self, cells: &[usize]) -> Vec<Op> {
        let mut body = Vec::new();
        for _ in 0..1 + self.random.below(2) {
            let cell = self.random.pick(cells);
            body.push(if self.random.one_in(2) { Op::Load(cell) } else { Op::Store(cell) });
        }
        body
    }
}
