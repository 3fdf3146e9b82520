//! Ranks in one process: threads of a program, rank 0's server thread, its agent and the network between, of which one takes a step at a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{self, Arc, MutexGuard, RwLockReadGuard, RwLockWriteGuard};

use generator::{Generator, Gn};
use polyrail_omp::area::{Count, Header, Kind, flag};
use polyrail_omp::coherence::fold::Back;
use polyrail_omp::coherence::home::Served;
use polyrail_omp::coherence::{Answer, Host, Mutex, Rank, RwLock, Said, Tracked, Trouble, Value};
use polyrail_omp::pages::Pages;
use polyrail_omp::services::{Action, Asker, Server};

use super::memory::{BASE, Played};
use super::oracle::{Known, Oracle};
use super::plan::Plan;
use super::program::Team;
use super::random::Random;
use super::slot::Slot;
use polyrail_omp::layout::PAGE;

/// What a step was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Something was done.
    Step,
    /// It waits for others.
    Waits,
    /// There is nothing more to do.
    Over,
}

/// Gives way to the others.
#[expect(deprecated, reason = "a scope cannot be handed through all that is called in between")]
pub fn step(turn: Turn) {
    generator::yield_with(turn);
}

/// Waits for others.
pub fn until(mut ready: impl FnMut() -> bool) {
    while !ready() {
        step(Turn::Waits);
    }
}

/// Of one thread at a time.
pub struct Locked<T>(Slot<T>);

impl<T> Mutex<T> for Locked<T> {
    type Guard<'a>
        = MutexGuard<'a, T>
    where
        Self: 'a;
    fn new(value: T) -> Self {
        Self(Slot::new(value))
    }
    fn lock(&self) -> Self::Guard<'_> {
        loop {
            if let Some(guard) = self.0.try_borrow_mut() {
                return guard;
            }
            step(Turn::Waits);
        }
    }
}

/// Of several, or of one.
pub struct Shared(sync::RwLock<()>);

impl RwLock for Shared {
    type Shared<'a>
        = RwLockReadGuard<'a, ()>
    where
        Self: 'a;
    type Alone<'a>
        = RwLockWriteGuard<'a, ()>
    where
        Self: 'a;
    fn new() -> Self {
        Self(sync::RwLock::new(()))
    }
    fn shared(&self) -> Self::Shared<'_> {
        loop {
            match self.0.try_read() {
                Ok(guard) => return guard,
                Err(sync::TryLockError::Poisoned(broken)) => return broken.into_inner(),
                Err(sync::TryLockError::WouldBlock) => step(Turn::Waits),
            }
        }
    }
    fn alone(&self) -> Self::Alone<'_> {
        loop {
            match self.0.try_write() {
                Ok(guard) => return guard,
                Err(sync::TryLockError::Poisoned(broken)) => return broken.into_inner(),
                Err(sync::TryLockError::WouldBlock) => step(Turn::Waits),
            }
        }
    }
}

/// A blob and its header.
type Told = (Header, Arc<Vec<u8>>);

/// What all ranks said.
pub struct Heard(Vec<Told>);

impl Said for Heard {
    fn header(&self, rank: usize) -> &Header {
        &self.0[rank].0
    }
    fn blob(&self, rank: usize) -> &[u8] {
        &self.0[rank].1
    }
}

/// A thread's request, on its way or waiting for rank 0's program.
struct Request {
    from: Asker,
    kind: u32,
    args: [u64; 6],
    data: Vec<u8>,
}

/// A request's answer.
type Reply = ([u64; 4], Vec<u8>);

/// What a thread is to know of itself.
#[derive(Debug, Default)]
pub struct Thread {
    pub singles: Slot<u64>,
    pub tokens: Slot<usize>,
    /// Where it is in the plan: region, phase, operation.
    pub at: Slot<(usize, usize, usize)>,
    reply: Slot<Option<Reply>>,
}

/// All that ranks share.
pub struct World {
    pub plan: Plan,
    pub random: Slot<Random>,
    /// Who takes a step: its rank, its thread. Rank 0's server thread is its last.
    current: Slot<(usize, usize)>,
    pub threads: Vec<Vec<Thread>>,
    pub memories: Vec<Slot<Tracked<Played>>>,
    /// Exchanges, by number, and each rank's part.
    exchanges: Slot<Vec<Vec<Option<Told>>>>,
    submitted: Vec<Slot<u64>>,
    /// Exchanges that a rank waits for.
    ended: Vec<Slot<u64>>,
    server: Slot<Server>,
    /// Requests on their way to rank 0's agent, and answers on their way back, by rank.
    requests: Vec<Slot<VecDeque<Request>>>,
    answers: Vec<Slot<VecDeque<(usize, Reply)>>>,
    /// Questions for rank 0's program.
    questions: Slot<VecDeque<(Asker, Vec<u8>)>>,
    /// Exchanges whose end rank 0's agent does not know yet.
    heard: Slot<u64>,
    /// Steps that were taken.
    steps: Slot<u64>,
    /// What the threads of each rank share.
    pub teams: Vec<Team>,
    /// What is known with what was given to a reduction, or behind it, by number and rank; pieces of stacks that rank 0 has.
    pub handed: Slot<BTreeMap<(usize, usize), Known>>,
    /// Of tasks that were offered: what was known when they were, and when they were done.
    pub met: Slot<BTreeMap<usize, Known>>,
    pub done: Slot<BTreeMap<usize, Known>>,
    pub stacks: Slot<BTreeMap<(usize, usize), Vec<u8>>>,
    /// What every read is judged by.
    pub oracle: Slot<Oracle>,
    /// Why the run ended.
    pub trouble: Slot<Option<Trouble>>,
    /// What the oracle found wrong.
    pub wrong: Slot<Option<String>>,
}

/// One rank, as coherence sees it.
pub struct Process {
    world: Arc<World>,
    rank: usize,
}

impl World {
    fn new(plan: Plan, random: Random) -> Self {
        let (ranks, threads) = (plan.ranks, plan.threads);
        let memories = (0..ranks)
            .map(|rank| {
                let memory = Played::new(plan.pages, plan.watched[rank], plan.hidden);
                let mut pending = Pages::default();
                pending.push(BASE, BASE + plan.pages * PAGE);
                Slot::new(Tracked::new(memory, 0..0, pending))
            })
            .collect();
        Self {
            random: Slot::new(random),
            current: Slot::new((0, 0)),
            threads: (0..ranks).map(|_| (0..=threads).map(|_| Thread::default()).collect()).collect(),
            memories,
            exchanges: Slot::new(Vec::new()),
            submitted: (0..ranks).map(|_| Slot::new(0)).collect(),
            ended: (0..ranks).map(|_| Slot::new(0)).collect(),
            server: Slot::new(Server::with_room(vec![String::new(); ranks], plan.slot)),
            requests: (0..ranks).map(|_| Slot::default()).collect(),
            answers: (0..ranks).map(|_| Slot::default()).collect(),
            questions: Slot::default(),
            heard: Slot::new(0),
            steps: Slot::new(0),
            teams: (0..ranks).map(|_| Team::default()).collect(),
            handed: Slot::default(),
            met: Slot::default(),
            done: Slot::default(),
            stacks: Slot::default(),
            oracle: Slot::new(Oracle::new(&plan)),
            trouble: Slot::new(None),
            wrong: Slot::new(None),
            plan,
        }
    }

    fn is_over(&self) -> bool {
        self.trouble.borrow_mut().is_some() || self.wrong.borrow_mut().is_some()
    }

    /// Says what is wrong, first things first.
    pub fn complain(&self, what: impl FnOnce() -> String) {
        let mut wrong = self.wrong.borrow_mut();
        if wrong.is_none() && self.trouble.borrow_mut().is_none() {
            *wrong = Some(what());
        }
    }

    /// Rank 0's agent: what exchanges have ended, where ranks exchange directly.
    fn look_at_exchanges(&self) {
        let all = self.submitted.iter().map(Slot::get).min().unwrap_or(0);
        let mut server = self.server.borrow_mut();
        server.handle_submitted(self.submitted[0].get());
        if all > self.heard.get() {
            for number in all.saturating_sub(1).max(self.heard.get() + 1)..=all {
                server.handle_exchange(number, true);
            }
            self.heard.set(all);
        }
    }

    /// The network takes something from one place to another; whether there was anything.
    fn carry(&self) -> bool {
        let ranks = self.plan.ranks;
        let mut random = self.random.borrow_mut();
        let begin = random.below(2 * ranks);
        for i in 0..2 * ranks {
            let which = (begin + i) % (2 * ranks);
            let rank = which / 2;
            if which.is_multiple_of(2) {
                let Some(request) = self.requests[rank].borrow_mut().pop_front() else { continue };
                if self.plan.direct {
                    self.look_at_exchanges();
                }
                self.server.borrow_mut().handle(request.from, request.kind, request.args, request.data);
                self.act();
            } else {
                let Some((slot, reply)) = self.answers[rank].borrow_mut().pop_front() else { continue };
                *self.threads[rank][slot].reply.borrow_mut() = Some(reply);
            }
            return true;
        }
        if self.plan.direct && random.one_in(2) {
            self.look_at_exchanges();
        }
        false
    }

    fn act(&self) {
        while let Some(action) = { self.server.borrow_mut().poll_action() } {
            match action {
                Action::Answer { to, result, data } => {
                    if to.slot != NOBODY {
                        self.answers[to.rank].borrow_mut().push_back((to.slot, (result, data)));
                    }
                }
                Action::Serve { from, data, .. } => self.questions.borrow_mut().push_back((from, data)),
                // they do as they are planned to
                Action::Want(_) | Action::Exit(_) | Action::Keep { .. } => {}
                Action::Fail(why) => self.complain(|| format!("the agent: {why}")),
            }
        }
    }
}

impl Process {
    fn thread(&self) -> &Thread {
        let (rank, thread) = self.world.current.get();
        assert_eq!(rank, self.rank);
        &self.world.threads[rank][thread]
    }

    fn request(&self, kind: Kind, args: [u64; 6], data: &[&[u8]]) -> Reply {
        let (rank, slot) = self.world.current.get();
        let data = data.concat();
        assert!(data.len() <= self.world.plan.slot.max(512), "{} bytes are asked at once", data.len());
        // the rank's own agent answers these at once, and nobody awaits another answer
        let at_once = matches!(kind, Kind::Unlock | Kind::Give);
        let from = Asker { rank, slot: if at_once { NOBODY } else { slot } };
        self.world.requests[rank].borrow_mut().push_back(Request { from, kind: kind as u32, args, data });
        if at_once {
            step(Turn::Step);
            return ([0; 4], Vec::new());
        }
        let reply = &self.world.threads[rank][slot].reply;
        until(|| reply.borrow_mut().is_some());
        let reply = reply.borrow_mut().take().expect("it has come");
        step(Turn::Step);
        reply
    }
}

impl Host for Process {
    type Memory = Played;
    type Mutex<T> = Locked<T>;
    type RwLock = Shared;
    type Data = Vec<u8>;
    type Submitted = usize;
    type Said = Heard;

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.world.plan.ranks
    }

    fn tracked<R>(&self, f: impl FnOnce(&mut Tracked<Played>) -> R) -> Option<R> {
        let result = f(&mut self.world.memories[self.rank].borrow_mut());
        // threads of this rank go on between any two looks
        step(Turn::Step);
        Some(result)
    }

    fn ask(&self, kind: Kind, args: [u64; 6], data: &[&[u8]]) -> Answer<Vec<u8>> {
        let (result, data) = self.request(kind, args, data);
        Answer { result, data }
    }

    fn ask_operation(&self, question: &[&[u8]]) -> Vec<u8> {
        let question = [&[&[0][..]], question].concat();
        self.request(Kind::Serve, [0; 6], &question).1
    }

    fn ask_awaits(&self, about: bool) {
        self.request(Kind::Serve, [0; 6], &[&[1, about.into()]]);
    }

    fn ask_back(&self, question: &[u8]) -> Vec<u8> {
        self.request(Kind::Serve, [0; 6], &[&[2], question]).1
    }

    fn slot(&self) -> usize {
        self.world.plan.slot
    }

    fn room(&self) -> usize {
        self.world.plan.room
    }

    fn submit(&self, _: bool, fill: &mut dyn FnMut(&mut [u8]) -> Header) -> usize {
        let world = &self.world;
        let mut blob = vec![0xa5; world.plan.room];
        let mut header = fill(&mut blob);
        let number = world.submitted[self.rank].get() + 1;
        assert!(number <= world.ended[self.rank].get() + 2, "two exchanges at a time");
        header.number = number;
        header.rank = self.rank as u32;
        blob.truncate(header.bytes as usize);
        let index = number as usize - 1;
        let mut exchanges = world.exchanges.borrow_mut();
        if exchanges.len() <= index {
            exchanges.push(vec![None; world.plan.ranks]);
        }
        exchanges[index][self.rank] = Some((header, Arc::new(blob)));
        world.submitted[self.rank].set(number);
        if self.rank == 0 && !world.plan.direct {
            world.server.borrow_mut().handle_submitted(number);
        }
        drop(exchanges);
        step(Turn::Step);
        index
    }

    fn wait(&self, index: usize) -> Heard {
        let world = &self.world;
        until(|| world.exchanges.borrow_mut()[index].iter().all(Option::is_some));
        let all: Vec<Told> = world.exchanges.borrow_mut()[index].iter().flatten().cloned().collect();
        if self.rank == 0 && !world.plan.direct {
            let log = all.iter().any(|(header, _)| header.flags & flag::LOG != 0);
            world.server.borrow_mut().handle_exchange(index as u64 + 1, log);
        }
        world.ended[self.rank].set(index as u64 + 1);
        step(Turn::Step);
        Heard(all)
    }

    fn load(&self, place: usize, bytes: usize) -> Value {
        let mut value = Value::default();
        self.world.memories[self.rank].borrow_mut().memory.load(place, &mut value[..bytes]);
        value
    }

    fn replace(&self, place: usize, bytes: usize, before: &Value, after: &Value) -> bool {
        let is_there = self.load(place, bytes)[..bytes] == before[..bytes];
        if is_there {
            self.world.memories[self.rank].borrow_mut().memory.store(place, &after[..bytes]);
        }
        is_there
    }

    fn local(&self) -> usize {
        self.world.current.get().1
    }

    fn singles(&self) -> u64 {
        self.thread().singles.get()
    }

    fn tokens(&self) -> usize {
        self.thread().tokens.get()
    }

    fn set_tokens(&self, tokens: usize) {
        self.thread().tokens.set(tokens);
    }

    fn is_first(&self) -> bool {
        self.world.current.get() == (0, 0)
    }

    fn pause(&self, _: u32, _: u32) {
        step(Turn::Waits);
    }

    fn now(&self) -> u64 {
        self.world.steps.get()
    }

    fn patience(&self) -> u64 {
        STUCK
    }

    fn add(&self, _: Count, _: u64) {}

    fn fail(&self, trouble: &Trouble) -> ! {
        self.world.trouble.borrow_mut().get_or_insert_with(|| trouble.clone());
        loop {
            step(Turn::Waits);
        }
    }
}

/// No thread: nobody waits for the answer.
const NOBODY: usize = usize::MAX;
/// Bytes of a thread's stack, in words.
const STACK: usize = 0x3000;
/// So many steps in which nothing is done are a hang.
const PATIENCE: usize = 20_000;
/// Who is held up for so many has waited long enough.
const STUCK: u64 = 200_000;
/// So many in all are one, too.
const STEPS: u64 = 4_000_000;

/// Runs a program: `thread` is what each thread does, `server` is rank 0's.
pub fn run(
    plan: Plan,
    random: Random,
    thread: impl Fn(&Arc<World>, &Rank<Process>, usize, usize) + Copy + Send + 'static,
) -> Arc<World> {
    let (ranks, threads, flushes) = (plan.ranks, plan.threads, plan.flushes);
    let world = Arc::new(World::new(plan, random));
    let all: Vec<Arc<Rank<Process>>> =
        (0..ranks).map(|rank| Arc::new(Rank::new(Process { world: world.clone(), rank }))).collect();
    all.iter().for_each(|rank| rank.set_flushes(flushes));
    let mut running: Vec<((usize, usize), Generator<'_, (), Turn>)> = Vec::new();
    for (number, rank) in all.iter().enumerate() {
        for local in 0..threads {
            let (world, rank) = (world.clone(), rank.clone());
            let code = move || {
                thread(&world, &rank, number, local);
                Turn::Over
            };
            running.push(((number, local), Gn::<()>::new_opt(STACK, code)));
        }
    }
    let (served, zero) = (world.clone(), all[0].clone());
    let server = move || {
        serve(&served, &zero);
        Turn::Over
    };
    running.push(((0, threads), Gn::<()>::new_opt(STACK, server)));
    let mut idle = 0;
    // who is slow, for a while
    let mut slow = None;
    // the server thread has no end
    while running.len() > 1 && !world.is_over() {
        let which = {
            let mut random = world.random.borrow_mut();
            if random.one_in(300) {
                slow = random.one_in(2).then(|| random.below(running.len() + 1));
            }
            let which = random.below(running.len() + 1);
            if Some(which) == slow && !random.one_in(50) {
                continue;
            }
            which
        };
        let Some((who, generator)) = running.get_mut(which) else {
            idle = if world.carry() { 0 } else { idle + 1 };
            continue;
        };
        world.current.set(*who);
        match generator.resume() {
            Some(Turn::Step) => idle = 0,
            Some(Turn::Waits) => idle += 1,
            Some(Turn::Over) | None => {
                drop(running.swap_remove(which));
                idle = 0;
            }
        }
        let steps = world.steps.get() + 1;
        world.steps.set(steps);
        if idle > PATIENCE || steps > STEPS {
            let at = |who: (usize, usize)| world.threads[who.0][who.1].at.get();
            let left: Vec<_> = running.iter().map(|(who, _)| (*who, at(*who))).collect();
            world.complain(|| format!("after {steps} steps these are not through: {left:?}"));
        }
    }
    drop(running);
    world
}

fn serve(world: &Arc<World>, rank: &Rank<Process>) {
    loop {
        until(|| !world.questions.borrow_mut().is_empty());
        let (from, question) = world.questions.borrow_mut().pop_front().expect("there is one");
        let answer = match question[0] {
            0 => match rank.serve_operation(&question[1..]) {
                Served::Done(answer) => answer,
                Served::NotYet(early) => early.to_bytes().to_vec(),
                Served::Refused => Vec::new(),
            },
            1 => {
                rank.serve_awaits(question[1] != 0);
                Vec::new()
            }
            _ => match rank.serve_back(&question[1..]) {
                None => Vec::new(),
                Some(Back::NotYet(elsewhere)) => vec![0; 1 + usize::from(elsewhere)],
                Some(Back::Of(of, from, bytes)) => {
                    let stacks = world.stacks.borrow_mut();
                    let last = stacks.keys().rfind(|key| key.1 == of).expect("it was given");
                    let at = from - (0x10_0000_0000 + of * 0x10_0000);
                    [&[1][..], &stacks[last][at..at + bytes]].concat()
                }
            },
        };
        world.answers[from.rank].borrow_mut().push_back((from.slot, ([0; 4], answer)));
        step(Turn::Step);
    }
}
