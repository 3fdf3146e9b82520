//! What rank 0's agent serves to all ranks: tokens, the log, loops, gathers, comparisons, tasks ([`pool`]). State and decisions only.
//!
//! # The log
//! Each part that a rank publishes becomes an entry; the parts of one publication become visible together, by its last. Positions count entries from 1 and never
//! begin anew. An entry is forgotten
//! - as soon as every rank other than the one that published it has *said* that it has applied it, by the position in a [`Kind::Lock`] or [`Kind::Log`] (that
//!   it was delivered is not enough, since two threads of a rank may ask at the same time from different positions; who asks from before what is forgotten
//!   gets what is left, since another thread of its rank has applied the rest);
//! - or when an exchange ends at rank 0 and the one before it bore [`flag::LOG`](crate::area::flag::LOG) from any rank: after an exchange with that flag
//!   every rank applies the rest of the log before it submits the next, so that what was published before the first ended is applied everywhere when the
//!   second ends.
//!
//! # Loops and gathers
//! A loop is forgotten when an exchange ends at rank 0 that rank 0 submitted after the loop was first asked for: all ranks' threads have come to that
//! exchange, and the loop stands before it. (Not at any exchange that ends: another rank may already be behind it.) A gather likewise.
use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::area::{Kind, SLOT_DATA};
use pool::{Awaited, Offer, Pool};

pub mod pool;
#[cfg(test)]
mod tests;

/// Bytes that the log may hold. More means that ranks publish much and never synchronise.
const LOG_LIMIT: usize = 4 << 30;

/// A thread that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Asker {
    /// Its rank.
    pub rank: usize,
    /// Its slot there.
    pub slot: usize,
}

/// What the agent has to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Answer a request.
    Answer {
        /// Whose.
        to: Asker,
        /// See [`Kind`].
        result: [u64; 4],
        /// See [`Kind`].
        data: Vec<u8>,
    },
    /// Have rank 0's program do it, and answer then.
    Serve {
        /// Whose request.
        from: Asker,
        /// Its arguments.
        args: [u64; 6],
        /// What to do.
        data: Vec<u8>,
    },
    /// Look after a checkpoint, and answer.
    Keep {
        /// Whose request: rank 0's.
        from: Asker,
        /// See [`kept`](crate::area::kept).
        args: [u64; 6],
        /// See there.
        data: Vec<u8>,
    },
    /// Tell all ranks whether threads are to offer the tasks that they meet.
    Want(bool),
    /// End the run with this status.
    Exit(u8),
    /// End the run, and say why.
    Fail(String),
}

#[derive(Default)]
struct Token {
    holder: Option<Asker>,
    turn: u64,
    waiting: VecDeque<(Asker, u64, Option<u64>)>,
}

impl Token {
    fn is_new(&self) -> bool {
        self.holder.is_none() && self.waiting.is_empty() && self.turn == 0
    }
}

struct Entry {
    rank: usize,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct Log {
    /// Entries after position `forgotten`.
    entries: VecDeque<Entry>,
    forgotten: u64,
    bytes: usize,
    /// What all ranks apply before the next exchange.
    due: u64,
    /// Up to where each rank says that it has applied.
    applied: Vec<u64>,
    /// Parts of publications that are not complete.
    parts: HashMap<Asker, Vec<Vec<u8>>>,
}

impl Log {
    fn end(&self) -> u64 {
        self.forgotten + self.entries.len() as u64
    }

    fn applied(&mut self, rank: usize, position: u64) {
        self.applied[rank] = self.applied[rank].max(position.min(self.end()));
    }

    fn forget(&mut self, all_have: u64) {
        while let Some(entry) = self.entries.front() {
            let known = |(rank, applied): (usize, &u64)| rank == entry.rank || *applied > self.forgotten;
            if self.forgotten >= all_have && !self.applied.iter().enumerate().all(known) {
                break;
            }
            self.bytes -= entry.bytes.len();
            self.entries.pop_front();
            self.forgotten += 1;
        }
    }

    /// Result words 1 and 2, and data, for `rank`, which has applied up to `position`.
    fn since(&self, rank: usize, position: u64, room: usize) -> (u64, u64, Vec<u8>) {
        let mut data = Vec::new();
        let mut at = position.clamp(self.forgotten, self.end());
        for entry in self.entries.iter().skip((at - self.forgotten) as usize) {
            if entry.rank != rank {
                if data.len() + 8 + entry.bytes.len() > room {
                    return (at, 1, data);
                }
                data.extend_from_slice(&(entry.bytes.len() as u32).to_le_bytes());
                data.extend_from_slice(&(entry.rank as u32).to_le_bytes());
                data.extend_from_slice(&entry.bytes);
            }
            at += 1;
        }
        (at, 0, data)
    }
}

struct Loop {
    next: u64,
    /// Exchanges that rank 0 had submitted.
    born: u64,
}

#[derive(Default)]
struct Gather {
    born: u64,
    given: BTreeMap<usize, Vec<u8>>,
    /// Who waits: how many must have given, and which of them is asked for.
    waiting: Vec<(Asker, u64, u64)>,
    taken: u64,
}

/// All services.
pub struct Server {
    hosts: Vec<String>,
    tokens: HashMap<u64, Token>,
    log: Log,
    loops: HashMap<u64, Loop>,
    gathers: HashMap<u64, Gather>,
    same: HashMap<u64, BTreeMap<Asker, Vec<u8>>>,
    pool: Pool,
    /// What was last said of whether it wants tasks.
    wanted: bool,
    submitted: u64,
    actions: VecDeque<Action>,
    /// Bytes that an answer may have.
    room: usize,
}

impl Server {
    /// For ranks on `hosts`.
    pub fn new(hosts: Vec<String>) -> Self {
        Self::with_room(hosts, SLOT_DATA)
    }

    /// As [`new`](Self::new), with at most `room` bytes in a request or an answer.
    pub fn with_room(hosts: Vec<String>, room: usize) -> Self {
        Self {
            room,
            log: Log { applied: vec![0; hosts.len()], ..Log::default() },
            hosts,
            tokens: HashMap::new(),
            loops: HashMap::new(),
            gathers: HashMap::new(),
            same: HashMap::new(),
            pool: Pool::default(),
            wanted: true,
            submitted: 0,
            actions: VecDeque::new(),
        }
    }

    /// What is to be done next.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Rank 0's program has submitted exchange `number`.
    pub fn handle_submitted(&mut self, number: u64) {
        self.submitted = self.submitted.max(number);
    }

    /// Exchange `number` has ended at rank 0; `log`: some rank has published or applied since the last barrier.
    pub fn handle_exchange(&mut self, number: u64, log: bool) {
        self.loops.retain(|_, it| it.born >= number);
        self.gathers.retain(|_, gather| gather.born >= number || !gather.waiting.is_empty());
        self.log.forget(self.log.due);
        if log {
            self.log.due = self.log.end();
        }
    }

    /// A thread asks.
    pub fn handle(&mut self, from: Asker, kind: u32, args: [u64; 6], data: Vec<u8>) {
        let known = KINDS.into_iter().find(|known| *known as u32 == kind);
        match known {
            _ if from.rank >= self.hosts.len() => self.fail(format!("a request of rank {}", from.rank)),
            Some(Kind::Lock) => self.lock(from, args),
            Some(Kind::Unlock) => self.unlock(from, args[0], args[1]),
            Some(Kind::Publish) => self.publish(from, args[0] != 0, data),
            Some(Kind::Log) => {
                self.log.applied(from.rank, args[0]);
                let (position, more, data) = self.log.since(from.rank, args[0], self.room);
                self.log.forget(0);
                self.answer(from, [0, position, more, 0], data);
            }
            Some(Kind::Take) => self.take(from, args),
            Some(Kind::Give) => self.give(from, args[0], data),
            Some(Kind::Collect) => {
                self.gather(args[0]).waiting.push((from, args[1], args[2]));
                self.collect(args[0]);
            }
            Some(Kind::Offer) => self.offer(from, args, data),
            Some(Kind::Work) => self.work(from, args),
            Some(Kind::Serve) => self.actions.push_back(Action::Serve { from, args, data }),
            Some(Kind::Keep) if from.rank == 0 => self.actions.push_back(Action::Keep { from, args, data }),
            Some(Kind::Keep) => self.fail(format!("{} asks for checkpoints", self.name(from.rank))),
            Some(Kind::Same) => self.same(from, args[0], data),
            Some(Kind::Exit) => self.actions.push_back(Action::Exit(args[0] as u8)),
            Some(Kind::Fail) => {
                let why = String::from_utf8_lossy(&data);
                self.fail(format!("{}: {}", self.name(from.rank), why.trim_end()));
            }
            None => self.fail(format!("{} asks for {kind}, which is nothing", self.name(from.rank))),
        }
    }

    /// How a rank is called in messages.
    pub fn name(&self, rank: usize) -> String {
        format!("rank {rank} on {}", self.hosts[rank])
    }

    fn fail(&mut self, why: String) {
        self.actions.push_back(Action::Fail(why));
    }

    fn answer(&mut self, to: Asker, result: [u64; 4], data: Vec<u8>) {
        self.actions.push_back(Action::Answer { to, result, data });
    }

    fn lock(&mut self, from: Asker, [token, position, how, turn, ..]: [u64; 6]) {
        self.log.applied(from.rank, position);
        let turn = (how == 2).then_some(turn);
        let state = self.tokens.entry(token).or_default();
        if how == 1 && state.holder.is_some() {
            return self.answer(from, [0, position, 0, 0], Vec::new());
        }
        state.waiting.push_back((from, position, turn));
        self.pass_on(token);
    }

    fn unlock(&mut self, from: Asker, token: u64, turn: u64) {
        let state = self.tokens.entry(token).or_default();
        state.holder = None;
        if turn != u64::MAX {
            state.turn = turn;
        }
        self.pass_on(token);
        // ordered loops have new tokens each, and give them back as they were
        if self.tokens.get(&token).is_some_and(Token::is_new) {
            self.tokens.remove(&token);
        }
        self.answer(from, [0; 4], Vec::new());
    }

    /// Gives the token to the first who may have it.
    fn pass_on(&mut self, token: u64) {
        let Some(state) = self.tokens.get_mut(&token) else { return };
        let may = |turn: Option<u64>| turn.is_none_or(|turn| turn == state.turn);
        if state.holder.is_none()
            && let Some(at) = state.waiting.iter().position(|waiter| may(waiter.2))
            && let Some((next, position, _)) = state.waiting.remove(at)
        {
            state.holder = Some(next);
            let (position, more, data) = self.log.since(next.rank, position, self.room);
            self.log.forget(0);
            self.answer(next, [1, position, more, 0], data);
        }
    }

    fn publish(&mut self, from: Asker, last: bool, part: Vec<u8>) {
        if part.len() + 8 > self.room {
            return self.fail(format!("{} publishes {} bytes in a part", self.name(from.rank), part.len()));
        }
        self.log.bytes += part.len();
        let parts = self.log.parts.entry(from).or_default();
        if !part.is_empty() {
            parts.push(part);
        }
        if last {
            let parts = self.log.parts.remove(&from).unwrap_or_default();
            self.log.entries.extend(parts.into_iter().map(|bytes| Entry { rank: from.rank, bytes }));
        }
        if self.log.bytes > LOG_LIMIT {
            return self.fail(format!(
                "critical sections have changed {} GiB since the last barrier, which is more than fits",
                self.log.bytes >> 30
            ));
        }
        self.log.forget(0);
        self.answer(from, [self.log.end(), 0, 0, 0], Vec::new());
    }

    fn take(&mut self, from: Asker, [number, total, chunk, guided, threads, _]: [u64; 6]) {
        let born = self.submitted;
        let it = self.loops.entry(number).or_insert(Loop { next: 0, born });
        let rest = total.saturating_sub(it.next);
        let wanted = if guided == 1 { rest.div_ceil(threads.max(1)).max(chunk) } else { chunk };
        let (first, count) = (it.next, wanted.max(1).min(rest));
        it.next += count;
        self.answer(from, [count, first, 0, 0], Vec::new());
    }

    fn gather(&mut self, number: u64) -> &mut Gather {
        let born = self.submitted;
        self.gathers.entry(number).or_insert_with(|| Gather { born, ..Gather::default() })
    }

    fn give(&mut self, from: Asker, number: u64, data: Vec<u8>) {
        if self.gather(number).given.insert(from.rank, data).is_some() {
            return self.fail(format!("{} gave twice to gather {number}", self.name(from.rank)));
        }
        self.answer(from, [0; 4], Vec::new());
        self.collect(number);
    }

    /// Answers who waits for a gather that is complete. The last of its ranks' data empties it.
    fn collect(&mut self, number: u64) {
        let Some(gather) = self.gathers.get_mut(&number) else { return };
        let given = gather.given.len() as u64;
        let (ready, waiting) = gather.waiting.drain(..).partition(|(_, count, _)| given >= *count);
        gather.waiting = waiting;
        let ready: Vec<(Asker, u64, u64)> = ready;
        for (to, count, which) in ready {
            let found = gather.given.iter_mut().nth(which as usize);
            let (rank, data) =
                found.map_or((u64::MAX, Vec::new()), |(rank, data)| (*rank as u64, std::mem::take(data)));
            gather.taken += 1;
            let all = gather.taken == count;
            self.actions.push_back(Action::Answer { to, result: [rank, 0, 0, 0], data });
            if all {
                self.gathers.remove(&number);
                break;
            }
        }
    }

    fn offer(&mut self, from: Asker, [family, group, around, position, team, _]: [u64; 6], data: Vec<u8>) {
        let offer = Offer { family, group, around, position, team: team as usize };
        let task = self.pool.offer(from, offer, data).unwrap_or(0);
        self.answer(from, [task, self.pool.helped(from.rank), 0, 0], Vec::new());
        self.pool_changed();
    }

    fn work(&mut self, from: Asker, [how, number, task, position, nanoseconds, _]: [u64; 6]) {
        if task > 0
            && let Err(why) = self.pool.done(from, task, position, nanoseconds)
        {
            return self.fail(format!("{}: {why}", self.name(from.rank)));
        }
        self.pool.wait(from, Awaited::from_words([how, number]));
        self.pool_changed();
    }

    fn pool_changed(&mut self) {
        while let Some((to, answer, position)) = self.pool.poll() {
            let (result, data) = match answer {
                pool::Answer::Over => ([0, 0, position, 0], Vec::new()),
                pool::Answer::Task { task, group, data } => ([1, task, position, group], data),
                pool::Answer::Done(tasks) => {
                    ([2, 0, position, 0], tasks.into_iter().flat_map(u64::to_ne_bytes).collect())
                }
            };
            self.answer(to, result, data);
        }
        if self.wanted != self.pool.is_wanted() {
            self.wanted = self.pool.is_wanted();
            self.actions.push_back(Action::Want(self.wanted));
        }
    }

    fn same(&mut self, from: Asker, name: u64, data: Vec<u8>) {
        let told = self.same.entry(name).or_default();
        told.insert(from, data);
        if told.len() < self.hosts.len() {
            return;
        }
        let told = self.same.remove(&name).unwrap_or_default();
        let mut all = told.iter();
        let Some((first, expected)) = all.next() else { return };
        let differs = all
            .find(|(_, data)| *data != expected)
            .map(|(other, data)| difference(&self.name(first.rank), expected, &self.name(other.rank), data));
        let (same, text) = (u64::from(differs.is_none()), differs.unwrap_or_default());
        for asker in told.into_keys() {
            self.answer(asker, [same, 0, 0, 0], text.clone().into_bytes());
        }
    }
}

const KINDS: [Kind; 14] = [
    Kind::Lock,
    Kind::Unlock,
    Kind::Publish,
    Kind::Log,
    Kind::Take,
    Kind::Give,
    Kind::Collect,
    Kind::Offer,
    Kind::Work,
    Kind::Serve,
    Kind::Same,
    Kind::Keep,
    Kind::Exit,
    Kind::Fail,
];

/// The first line in which two texts differ.
fn difference(one: &str, of_one: &[u8], other: &str, of_other: &[u8]) -> String {
    let (of_one, of_other) = (String::from_utf8_lossy(of_one), String::from_utf8_lossy(of_other));
    let (mut left, mut right) = (of_one.lines(), of_other.lines());
    loop {
        match (left.next(), right.next()) {
            (None, None) => return format!("{one} and {other} end their lines differently"),
            (a, b) if a == b => {}
            (a, b) => {
                let shown = |line: Option<&str>| line.map_or("nothing".into(), |line| format!("\"{line}\""));
                return format!("{one} has {}, {other} has {}", shown(a), shown(b));
            }
        }
    }
}
