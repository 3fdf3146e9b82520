//! A thread of a program: does what the plan says, as the runtime's entry points do it, and has the oracle judge what it sees.

use std::sync::Arc;

use polyrail_omp::area::flag;
use polyrail_omp::coherence::fold::Given;
use polyrail_omp::coherence::operation::{Done, Effect, Operation, What, Width};
use polyrail_omp::coherence::tasks::{self, Awaited, Next, Place};
use polyrail_omp::coherence::{Host, Rank, Trouble};

use super::oracle::SINGLE;
use super::plan::{Op, Phase, Plan, Wait};
use super::slot::Slot;
use super::world::{Process, Turn, World, step, until};

/// Where stacks are.
const STACKS: usize = 0x10_0000_0000;

/// What the threads of a rank share, and the runtime keeps outside coherence.
#[derive(Debug, Default)]
pub struct Team {
    begun: Slot<usize>,
    arrived: Slot<usize>,
    passed: Slot<usize>,
    held: Slot<Vec<usize>>,
}

struct Runner<'a> {
    world: &'a Arc<World>,
    rank: &'a Rank<Process>,
    team: &'a Team,
    number: usize,
    local: usize,
    /// In the whole team.
    thread: usize,
    barriers: usize,
    /// Is in a `single`.
    single: bool,
    /// The innermost group, and the innermost task of those that were offered.
    group: u64,
    around: u64,
    /// Numbers that it has given.
    numbers: u64,
}

/// What thread `local` of rank `number` does.
pub fn thread(world: &Arc<World>, rank: &Rank<Process>, number: usize, local: usize) {
    let thread = number * world.plan.threads + local;
    let team = &world.teams[number];
    let mut runner = Runner {
        world,
        rank,
        team,
        number,
        local,
        thread,
        barriers: 0,
        single: false,
        group: 0,
        around: 0,
        numbers: 0,
    };
    for region in 0..world.plan.regions.len() {
        runner.region(&world.plan, region);
    }
}

impl Runner<'_> {
    fn judge(&self, wrong: Option<String>) {
        if let Some(wrong) = wrong {
            self.world.complain(|| format!("rank {}: {wrong}", self.number));
        }
    }

    fn region(&mut self, plan: &Plan, number: usize) {
        let region = &plan.regions[number];
        let begin = self.barriers;
        self.barriers += 1;
        if self.thread == 0 {
            for cell in &region.serial {
                self.store(*cell);
            }
        }
        self.world.oracle.borrow_mut().arrive(self.thread, begin);
        if self.local == 0 {
            if self.number == 0 {
                self.rank.synchronize(0, flag::REGION, &[b"region"], &mut |_, _| {});
            } else {
                self.rank.synchronize(0, 0, &[], &mut |flags, prefix| {
                    if flags & flag::REGION == 0 || prefix != b"region" {
                        self.judge(Some(format!("no region begins: {flags}, {prefix:?}")));
                    }
                });
            }
            self.rank.region_begins();
            self.team.begun.set(number + 1);
        } else {
            until(|| self.team.begun.get() > number);
        }
        let wrong = self.world.oracle.borrow_mut().leave(self.thread, begin);
        self.judge(wrong);
        self.world.threads[self.number][self.local].singles.set(0);
        for (at, phase) in region.phases.iter().enumerate() {
            for (step, op) in phase.ops[self.thread].iter().enumerate() {
                *self.world.threads[self.number][self.local].at.borrow_mut() = (number, at, step);
                self.op(op);
            }
            let steps = phase.ops[self.thread].len();
            *self.world.threads[self.number][self.local].at.borrow_mut() = (number, at, steps);
            self.barrier((number * 16 + at + 1) as u64, at + 1 == region.phases.len());
            phase.ops[self.thread].iter().for_each(|op| self.taken(op));
        }
    }

    fn barrier(&mut self, place: u64, is_last: bool) {
        self.come();
        if !self.world.plan.tasks.is_empty() {
            self.work(Awaited::Team(self.world.plan.ranks * self.world.plan.threads));
        }
        let number = self.barriers;
        self.barriers += 1;
        self.world.oracle.borrow_mut().arrive(self.thread, number);
        self.rank.tell_first();
        let passed = self.team.passed.get();
        self.team.arrived.set(self.team.arrived.get() + 1);
        if self.team.arrived.get() == self.world.plan.threads {
            self.rank.exchange(place);
            if is_last {
                self.rank.region_ends();
            }
            self.team.arrived.set(0);
            self.team.passed.set(passed + 1);
        } else {
            until(|| self.team.passed.get() != passed);
        }
        let wrong = self.world.oracle.borrow_mut().leave(self.thread, number);
        self.judge(wrong);
    }

    /// All iterations of a loop have been done by somebody.
    fn taken(&self, op: &Op) {
        if let Op::Loop { number, cells, .. } = op {
            let count = self.world.oracle.borrow_mut().count(*number);
            let why = || format!("loop {number} of {} is over after {count} iterations", cells.len());
            self.judge((count != cells.len()).then(why));
        }
    }

    /// The program comes to the runtime: a `single` of before is over.
    fn come(&mut self) {
        if core::mem::take(&mut self.single) {
            self.rank.passed();
        }
    }

    fn read(&self, cell: usize) -> u64 {
        let cell = self.world.plan.cells[cell];
        let mut bytes = vec![0; cell.width * cell.times];
        self.world.memories[self.number].borrow_mut().memory.load(cell.at, &mut bytes);
        let value = |bytes: &[u8]| {
            let mut value = [0; 8];
            value[..cell.width].copy_from_slice(bytes);
            u64::from_ne_bytes(value)
        };
        let (first, rest) = bytes.split_at(cell.width);
        // what is not the same all over is none of what may be there
        let other = rest.chunks(cell.width).find(|other| *other != first);
        other.map_or(value(first), |other| !(value(other) ^ value(first)))
    }

    fn write(&self, cell: usize, value: u64) {
        let cell = self.world.plan.cells[cell];
        let bytes = value.to_ne_bytes()[..cell.width].repeat(cell.times);
        self.world.memories[self.number].borrow_mut().memory.store(cell.at, &bytes);
    }

    fn load(&self, cell: usize) {
        let value = self.read(cell);
        let wrong = self.world.oracle.borrow_mut().load(self.thread, cell, value);
        self.judge(wrong);
        step(Turn::Step);
    }

    fn store(&self, cell: usize) {
        let value = self.world.oracle.borrow_mut().store(self.thread, cell);
        self.write(cell, value);
        step(Turn::Step);
    }

    fn all(&mut self, body: &[Op]) {
        body.iter().for_each(|op| self.op(op));
    }

    fn op(&mut self, op: &Op) {
        if !matches!(op, Op::Load(_) | Op::Store(_) | Op::Race(_)) {
            self.come();
        }
        match op {
            Op::Load(cell) => self.load(*cell),
            Op::Store(cell) | Op::Race(cell) => self.store(*cell),
            Op::Add { cell, bit, effect, then } => {
                let bits = self.add(*cell, *bit, *effect);
                if let Some((other, cells)) = then
                    && bits >> other & 1 == 1
                {
                    cells.iter().for_each(|cell| self.load(*cell));
                }
            }
            Op::Update { cell, offset, width, effect } => {
                let expected = self.world.oracle.borrow_mut().update(self.thread, *cell, *offset, *width);
                let kind = if *effect == Effect::Full { What::ExchangeAdd } else { What::Add };
                let place = self.world.plan.cells[*cell].at + offset;
                let width = Width::of(*width).expect("a width");
                let found = self.operate(place, width, kind, 1, *effect);
                let why = || {
                    format!(
                        "thread {} finds {found:#x} at {offset} in cell {cell}, not {expected:#x}",
                        self.thread
                    )
                };
                self.judge((found != expected).then(why));
            }
            Op::Critical { lock, body } => {
                if self.is_held(*lock) {
                    self.rank.waiting(|| until(|| !self.is_held(*lock)));
                }
                self.team.held.borrow_mut().push(*lock);
                self.rank.lock(1000 + *lock as u64, None);
                self.locked(*lock, body, None);
            }
            Op::Try { lock, body } => {
                if self.is_held(*lock) {
                    return;
                }
                self.team.held.borrow_mut().push(*lock);
                match self.rank.try_lock(1000 + *lock as u64) {
                    true => self.locked(*lock, body, None),
                    false => self.team.held.borrow_mut().retain(|held| held != lock),
                }
            }
            Op::Ordered { lock, turn, body } => {
                self.rank.lock(1000 + *lock as u64, Some(*turn));
                self.locked(*lock, body, Some(turn + 1));
            }
            Op::Spin { cell, body, plainly } => {
                let free = self.world.oracle.borrow_mut().value(*cell);
                while self.exchange(*cell, !free) != free {
                    step(Turn::Waits);
                }
                let wrong = self.world.oracle.borrow_mut().spun(self.thread, *cell);
                self.judge(wrong);
                self.all(body);
                self.world.oracle.borrow_mut().unspin(self.thread, *cell);
                if *plainly {
                    self.write(*cell, free);
                    step(Turn::Step);
                } else {
                    self.exchange(*cell, free);
                }
            }
            Op::Raise { cell, flushes } => {
                if *flushes {
                    self.flush();
                }
                let value = self.world.oracle.borrow_mut().raise(self.thread, *cell);
                self.write(*cell, value);
                step(Turn::Step);
                if *flushes {
                    self.flush();
                }
            }
            Op::Look { cell, then } => {
                self.flush();
                let raised = self.look(*cell);
                step(Turn::Step);
                self.flush();
                if raised {
                    then.iter().for_each(|cell| self.load(*cell));
                }
            }
            Op::Await { cell, then } => {
                let mut raised = false;
                while !raised {
                    raised = self.look(*cell);
                    // as at the jump of a loop that waits
                    self.rank.look(self.world.plan.cells[*cell].at, !raised);
                    if !raised {
                        step(Turn::Waits);
                    }
                }
                self.world.oracle.borrow_mut().awaited(self.thread, *cell);
                then.iter().for_each(|cell| self.load(*cell));
            }
            Op::Total(cell) => {
                let (found, total) = (self.read(*cell), self.world.oracle.borrow_mut().total(*cell));
                let why = || {
                    format!(
                        "thread {} finds {found:#x} in cell {cell}, to which all have added: {total:#x}",
                        self.thread
                    )
                };
                self.judge((found != total).then(why));
            }
            Op::Reduce { number, cells, own } => self.reduce(*number, cells, *own),
            Op::Single { number, cell } => {
                self.world.threads[self.number][self.local].singles.set(*number);
                self.world.oracle.borrow_mut().single(*cell);
                if self.number == 0 && self.rank.comes_first(*number) {
                    self.write(*cell, SINGLE);
                    step(Turn::Step);
                    self.single = true;
                }
            }
            Op::Rounds { cell, rounds } => {
                for tasks in rounds {
                    self.tasks(&[*cell], tasks, Wait::Tasks, &[]);
                    let value = self.world.oracle.borrow_mut().collected(self.thread, *cell);
                    let found = self.read(*cell);
                    let why =
                        || format!("thread {} finds {found:#x} in cell {cell}, not {value:#x}", self.thread);
                    self.judge((found != value).then(why));
                    step(Turn::Step);
                }
            }
            Op::Tasks { before, tasks, wait, then } => self.tasks(before, tasks, *wait, then),
            Op::Loop { number, chunk, guided, cells } => {
                let guided = guided.then_some(self.world.threads.len() as u64);
                while let Some((first, count)) = self.rank.take(*number, cells.len() as u64, *chunk, guided) {
                    for iteration in first..first + count {
                        let wrong = self.world.oracle.borrow_mut().take(*number, iteration);
                        self.judge(wrong);
                        self.store(cells[iteration as usize]);
                    }
                }
            }
        }
    }

    fn unique(&mut self) -> u64 {
        self.numbers += 1;
        (self.thread as u64 + 1) << 40 | self.numbers
    }

    fn tasks(&mut self, before: &[usize], tasks: &[(usize, bool)], wait: Wait, then: &[usize]) {
        before.iter().for_each(|cell| self.store(*cell));
        let (family, groups) = (self.unique(), self.group);
        if wait == Wait::Group {
            self.group = self.unique();
        }
        let (world, team) = (self.world, self.world.plan.ranks * self.world.plan.threads);
        for (task, offered) in tasks {
            let place = Place { family, group: self.group, around: self.around, team };
            let known = world.oracle.borrow_mut().hand_over(self.thread);
            world.met.borrow_mut().insert(*task, known);
            let singles = world.threads[self.number][self.local].singles.get();
            let data = [*task as u64, singles].map(u64::to_ne_bytes).concat();
            if !offered || self.rank.offer(place, &[&data]).0 == 0 {
                self.all(&world.plan.tasks[*task]);
                let known = world.oracle.borrow_mut().hand_over(self.thread);
                world.done.borrow_mut().insert(*task, known);
            }
        }
        match wait {
            Wait::Nothing => {}
            Wait::Tasks => self.work(Awaited::Family(family)),
            Wait::Group => self.work(Awaited::Group(self.group)),
        }
        if wait != Wait::Nothing {
            tasks.iter().for_each(|(task, _)| self.over(*task, wait == Wait::Group));
        }
        self.group = groups;
        then.iter().for_each(|cell| self.load(*cell));
    }

    /// A task has been waited for, perhaps with all that is inside.
    fn over(&self, task: usize, inside: bool) {
        let known = self.world.done.borrow_mut().get(&task).copied();
        match known {
            Some(known) => self.world.oracle.borrow_mut().handed_over(self.thread, &known),
            None => self.judge(Some(format!("task {task} is waited for and not done"))),
        }
        for op in self.world.plan.tasks[task].iter().filter(|_| inside) {
            if let Op::Tasks { tasks, .. } = op {
                tasks.iter().for_each(|(task, _)| self.over(*task, true));
            }
        }
    }

    /// Waits, and carries out tasks meanwhile.
    fn work(&mut self, awaited: Awaited) {
        let mut done = None;
        loop {
            let (next, position) = self.rank.work(awaited, done.take());
            self.rank.see(position);
            let Next::Task { task, group, data } = next else { break };
            let words: Vec<u64> = data.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
            let number = words[0] as usize;
            let world = self.world;
            let known = world.met.borrow_mut().get(&number).copied().expect("it was met");
            world.oracle.borrow_mut().handed_over(self.thread, &known);
            let of = &world.threads[self.number][self.local].singles;
            let singles = core::mem::replace(&mut *of.borrow_mut(), words[1]);
            let groups = core::mem::replace(&mut self.group, group);
            let around = core::mem::replace(&mut self.around, task);
            self.all(&world.plan.tasks[number]);
            (self.group, self.around) = (groups, around);
            of.set(singles);
            let known = world.oracle.borrow_mut().hand_over(self.thread);
            if world.done.borrow_mut().insert(number, known).is_some() {
                self.judge(Some(format!("task {number} is done twice")));
            }
            done = Some(tasks::Done { task, nanoseconds: 1 });
        }
    }

    /// As clang's reductions of objects that have memory: the rank's cell is that memory.
    fn reduce(&mut self, number: u64, cells: &[usize], own: bool) {
        let (fold, index) = (number + 1, number as usize);
        if self.number > 0 {
            let cell = cells[self.number];
            self.store(cell);
            let known = self.world.oracle.borrow_mut().hand_over(self.thread);
            self.world.handed.borrow_mut().insert((index, self.number), known);
            let piece = vec![self.number as u8; 100 + 5000 * self.world.plan.threads];
            let at = STACKS + self.number * 0x10_0000;
            let given = Given { piece: &piece, at, word: cell << 2, used: true, own };
            let mut back = Vec::new();
            self.rank.waiting(|| {
                self.rank.give(number, fold, &given, &mut |from, bytes| {
                    assert_eq!(from, at + back.len());
                    back.extend_from_slice(bytes);
                });
            });
            if own {
                let all: Vec<u8> = piece.iter().map(|byte| byte ^ 0x80).collect();
                self.judge((back != all).then(|| String::from("a piece is not as rank 0 has left it")));
                let known = self.world.handed.borrow_mut().get(&(index, 0)).copied();
                match known {
                    Some(known) => self.world.oracle.borrow_mut().handed_over(self.thread, &known),
                    None => self.judge(Some(String::from("a piece comes back before it is folded"))),
                }
                // what was moved from is destroyed
                self.load(cell);
                self.store(cell);
            }
            return;
        }
        let world = self.world;
        self.rank.waiting(|| {
            self.rank.fold(
                number,
                fold,
                &mut |rank, at, bytes| {
                    let mut stacks = world.stacks.borrow_mut();
                    let stack = stacks.entry((index, rank)).or_default();
                    assert_eq!(at, STACKS + rank * 0x10_0000 + stack.len());
                    stack.extend(bytes.iter().map(|byte| byte ^ 0x80));
                },
                &mut |word| {
                    let cell = word >> 2;
                    let rank = cells.iter().position(|other| *other == cell).expect("a rank's");
                    let known = world.handed.borrow_mut()[&(index, rank)];
                    world.oracle.borrow_mut().handed_over(self.thread, &known);
                    self.load(cell);
                    self.store(cells[0]);
                    if own {
                        self.store(cell);
                    }
                    if rank + 1 == cells.len() {
                        let known = world.oracle.borrow_mut().hand_over(self.thread);
                        world.handed.borrow_mut().insert((index, 0), known);
                    }
                },
            );
        });
    }

    fn is_held(&self, lock: usize) -> bool {
        self.team.held.borrow_mut().contains(&lock)
    }

    /// Does something with a lock, and gives it back.
    fn locked(&mut self, lock: usize, body: &[Op], turn: Option<u64>) {
        let wrong = self.world.oracle.borrow_mut().acquired(self.thread, lock);
        self.judge(wrong);
        self.all(body);
        self.world.oracle.borrow_mut().release(self.thread, lock);
        self.rank.unlock(1000 + lock as u64, turn);
        if turn.is_none() {
            self.team.held.borrow_mut().retain(|held| *held != lock);
        }
    }

    fn flush(&self) {
        let before = self.world.oracle.borrow_mut().flush(self.thread);
        self.rank.flush();
        self.world.oracle.borrow_mut().flushed(self.thread, before);
    }

    fn look(&self, cell: usize) -> bool {
        let looked = self.world.oracle.borrow_mut().looked(cell, self.read(cell));
        looked.unwrap_or_else(|wrong| {
            self.judge(Some(wrong));
            true
        })
    }

    /// What was there.
    fn operate(&self, place: usize, width: Width, kind: What, operand: u64, effect: Effect) -> u64 {
        let operation = Operation { kind, width, operand, expected: (0, 0), desired: (0, 0), carry: 0 };
        if self.number > 0 {
            return self.rank.carry_out(&operation, place, effect).before.0;
        }
        let value = self.rank.host.load(place, width.bytes());
        let done = Done { before: (u64::from_ne_bytes(*value.first_chunk().expect("eight bytes")), 0) };
        let after = operation.after(&done).0.to_ne_bytes();
        self.world.memories[0].borrow_mut().memory.store(place, &after[..width.bytes()]);
        step(Turn::Step);
        done.before.0
    }

    fn exchange(&self, cell: usize, value: u64) -> u64 {
        self.operate(self.world.plan.cells[cell].at, Width::Quad, What::Exchange, value, Effect::Full)
    }

    /// The bits that were there.
    fn add(&self, cell: usize, bit: u32, effect: Effect) -> u64 {
        self.world.oracle.borrow_mut().add(self.thread, cell, bit, effect);
        let kind = if effect == Effect::Full { What::ExchangeAdd } else { What::Add };
        let place = self.world.plan.cells[cell].at;
        let before = self.operate(place, Width::Quad, kind, 1 << bit, effect);
        let added = self.world.oracle.borrow_mut().added(self.thread, cell, bit, effect, before);
        added.unwrap_or_else(|wrong| {
            self.judge(Some(wrong));
            0
        })
    }
}

/// Whether threads of two ranks store into a cell, and nothing that they do besides can put one before the other.
fn must_be_found(plan: &Plan, phase: &Phase) -> bool {
    let mut ops = phase.ops.iter().flatten();
    let races = |op: &Op| matches!(op, Op::Race(cell) if plan.cells[*cell].width > 1);
    phase.ops.iter().flatten().any(races)
        && ops.all(|op| matches!(op, Op::Load(_) | Op::Store(_) | Op::Race(_)))
}

/// All is over: all memories are equal, or the program had a race and that was found.
pub fn end(world: &World) -> Result<(), String> {
    if let Some(wrong) = world.wrong.borrow_mut().as_ref() {
        return Err(wrong.clone());
    }
    if let Some(trouble) = world.trouble.borrow_mut().as_ref() {
        return match world.plan.races {
            true => Ok(()),
            false if world.plan.is_held_up && *trouble == Trouble::HeldUp => Ok(()),
            false => Err(format!("{trouble}")),
        };
    }
    if let Some(phase) = world
        .plan
        .regions
        .iter()
        .flat_map(|region| &region.phases)
        .find(|phase| must_be_found(&world.plan, phase))
    {
        return Err(format!("a race was not found: {:?}", phase.ops));
    }
    let first = world.memories[0].borrow_mut();
    for (rank, memory) in world.memories.iter().enumerate().skip(1) {
        let memory = memory.borrow_mut();
        if let Some(at) = memory.memory.differs(&first.memory) {
            return Err(format!("rank {rank} has another byte at {at:#x} than rank 0, or than its twin"));
        }
    }
    Ok(())
}
