//! One agent: its program, the network, and what goes between them. Everything is polled by one thread.
mod ending;
mod watching;

use std::collections::{BTreeSet, VecDeque};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use polyrail_omp::area::{DONE, Kind, LOCALS, REQUEST, SLOT_DATA, flag, setting};

use crate::checkpoint::Keeper;
use crate::control::Control;
use crate::exchange::{self, Exchange, Outcome, Ranks};
use crate::launch::Launch;
use crate::mapping::{Asked, Mapping};
use crate::message::{Message, What};
use crate::mpi::{self, Mpi, Request};
use crate::net::Net;
use crate::pace::{GLANCE, Pace, Waiting};
use crate::stats::{self, Region};
use crate::symbols::Symbols;
use crate::{child, sys};
pub use ending::Ended;
use polyrail_omp::services::{Action, Asker, Server};
use watching::Watchdog;

/// No thread: nobody waits for the answer.
const NOBODY: usize = u32::MAX as usize;
/// The status of a program that used memory that is not there.
const CRASH: u64 = 128 + libc::SIGSEGV as u64;

/// Why a run ends.
#[derive(Debug)]
enum End {
    /// Rank 0 has decided; everybody knows.
    Decided(u8),
    /// The network failed: nobody can be told.
    Network(String),
}

impl From<mpi::Error> for End {
    fn from(error: mpi::Error) -> Self {
        Self::Network(error.to_string())
    }
}

/// A rank's agent while its program runs.
pub struct Agent {
    mpi: Mpi,
    ranks: Ranks,
    mapping: Mapping,
    /// Where all ranks share a host: the others', by rank.
    peers: Vec<Option<Mapping>>,
    /// Of those, the last exchange that all have submitted.
    exchanged: u64,
    exchanges: [Exchange<Request>; 2],
    control: Control<Request>,
    /// Rank 0's.
    server: Server,
    /// What rank 0's program is to do for other ranks, the first of it being done.
    to_serve: VecDeque<(Asker, [u64; 6], Vec<u8>)>,
    serving: bool,
    /// Slots whose requests are being dealt with, a bit each, by rank.
    taken: Vec<u64>,
    program: Option<Child>,
    /// This rank has told rank 0 why it cannot go on.
    failed: bool,
    bell: u32,
    pace: Pace,
    glanced: Instant,
    parent: i32,
    /// Rank 0's, where counters are wanted: of the program, as it was lately, since it has ended when they are read.
    symbols: Option<Symbols>,
    /// Libraries that rank 0's program began with.
    began_with: BTreeSet<PathBuf>,
    counts: bool,
    /// Rank 0's, where checkpoints are wanted.
    keeper: Option<Keeper>,
    glances: u64,
    /// Since when the exchanges are under way, but rounds: in these, ranks do not wait for each other but for the network.
    submitted: [Option<Instant>; 2],
    watchdog: Watchdog,
    others: Vec<(usize, Vec<Region>)>,
}

impl Agent {
    /// For a program that is not started yet.
    ///
    /// # Errors
    /// The network fails, or this host has no memory for the mapping.
    pub fn new(mut mpi: Mpi, launch: &Launch, keeper: Option<Keeper>) -> Result<Self, String> {
        let rank = mpi.rank();
        let facts = crate::mapping::Facts {
            rank,
            size: mpi.size(),
            threads: launch.threads,
            settings: launch.settings,
        };
        let mapping = Mapping::new(facts).map_err(|error| format!("shared memory: {error}"))?;
        let peers = match launch.settings & setting::SHARED {
            0 => Vec::new(),
            _ => crate::start::share(&mut mpi, &mapping, facts).map_err(|error| error.to_string())?,
        };
        let now = Instant::now();
        Ok(Self {
            ranks: Ranks::new(launch.host_of.clone()),
            exchanges: [0, 1].map(|b| Exchange::new(b, mapping.buffers(b))),
            mapping,
            pace: Pace::new(rank == 0 && peers.is_empty(), rank == 0 && !peers.is_empty(), mpi.size(), now),
            peers,
            exchanged: 0,
            control: Control::new(),
            server: Server::new(launch.hosts.clone()),
            to_serve: VecDeque::new(),
            serving: false,
            taken: vec![0; mpi.size()],
            program: None,
            failed: false,
            bell: 0,
            glanced: now,
            parent: sys::parent(),
            symbols: None,
            began_with: BTreeSet::new(),
            counts: rank == 0 && launch.settings & setting::STATS != 0,
            keeper,
            glances: 0,
            submitted: [None; 2],
            watchdog: Watchdog {
                after: Duration::from_secs(launch.watchdog),
                asked: now,
                warned: now,
                watch: None,
                signs: [0; 3],
            },
            others: Vec::new(),
            mpi,
        })
    }

    /// Starts the program.
    fn start(&mut self, launch: &Launch) -> Result<(), End> {
        let rank = self.mpi.rank();
        sys::sleep_exactly();
        sys::work_briefly();
        sys::watch_children();
        match child::start(launch, &self.mapping, rank) {
            Ok(program) => {
                sys::forward_signals(rank, program.id());
                self.program = Some(program);
                Ok(())
            }
            Err(why) => self.fail(why, crate::NOT_STARTED),
        }
    }

    fn is_first(&self) -> bool {
        self.mpi.rank() == 0
    }

    /// From the program's start until the run ends.
    pub fn run(mut self, launch: &Launch) -> Ended {
        let mut end = self.start(launch);
        loop {
            match end {
                Ok(()) => end = self.turn(),
                Err(End::Decided(status)) => return self.finish(status),
                Err(End::Network(why)) => {
                    tell(&format!("{}: {why}", self.server.name(self.mpi.rank())));
                    self.end_program();
                    self.mpi.abort(1);
                }
            }
        }
    }

    fn turn(&mut self) -> Result<(), End> {
        let bell = self.mapping.doorbell().load(Ordering::Acquire);
        let mut busy = bell != self.bell;
        if busy {
            self.bell = bell;
            self.look()?;
        }
        busy |= self.poll_exchanges()?;
        busy |= self.poll_control()?;
        busy |= self.poll_server()?;
        busy |= self.act()?;
        let now = Instant::now();
        if sys::child_may_have_ended() || now - self.glanced > GLANCE {
            self.glanced = now;
            self.glance()?;
            self.warn(now)?;
        }
        self.watch(now)?;
        let waiting = Waiting {
            answer: self.taken.iter().any(|taken| *taken != 0) || self.serving || self.control.is_sending(),
            exchange: self.exchanges.iter().any(Exchange::is_busy),
        };
        self.pace.rest(busy, waiting, now, &self.mapping, self.bell);
        Ok(())
    }

    /// Whether all ranks are on this host: then programs exchange by themselves, and ask rank 0's agent.
    fn shares(&self) -> bool {
        !self.peers.is_empty()
    }

    fn mapping_of(&self, rank: usize) -> &Mapping {
        self.peers.get(rank).and_then(Option::as_ref).unwrap_or(&self.mapping)
    }

    /// The bell has rung: who asks?
    fn look(&mut self) -> Result<(), End> {
        if !self.shares() || self.is_first() {
            let ranks = if self.shares() { 0..self.mpi.size() } else { self.mpi.rank()..self.mpi.rank() + 1 };
            for rank in ranks {
                let mut taken = self.taken[rank];
                let asked = self.mapping_of(rank).asked(&mut taken);
                self.taken[rank] = taken;
                asked.into_iter().try_for_each(|asked| self.ask(rank, asked))?;
            }
        }
        if self.shares() {
            return Ok(());
        }
        for b in [0, 1] {
            let state = self.mapping.exchange_state(b).load(Ordering::Acquire);
            if state == REQUEST && !self.exchanges[b].is_busy() {
                let now = Instant::now();
                // SAFETY: the buffers are the mapping's; the program leaves them alone until the state changes
                let submitted = unsafe { self.exchanges[b].submit(&mut self.mpi, &self.ranks) };
                let (number, flags) = match submitted {
                    Ok(submitted) => submitted,
                    Err(error) => return self.exchange_failed(error),
                };
                self.submitted[b] = (flags & flag::ROUND == 0).then_some(now);
                if self.is_first() {
                    self.server.handle_submitted(number);
                }
            }
        }
        Ok(())
    }

    fn exchange_failed(&mut self, error: exchange::Error<mpi::Error>) -> Result<(), End> {
        match error {
            exchange::Error::Net(error) => Err(error.into()),
            exchange::Error::Header(why) => self.fail(why, 1),
        }
    }

    /// Where programs exchange by themselves: what they have done since, for the server. To be called after a request was read and before it is dealt with: what
    /// came before it for who asks has then come before it here.
    fn observe(&mut self) {
        if !self.shares() {
            return;
        }
        let widen = |known: u64, low: u32| {
            known.saturating_add_signed(low.wrapping_sub(known as u32).cast_signed().into())
        };
        let submitted = |rank: usize| widen(self.exchanged, self.mapping_of(rank).exchanged().0);
        let all = (0..self.mpi.size()).map(submitted).min().unwrap_or(0);
        self.server.handle_submitted(submitted(0));
        if all > self.exchanged {
            // Whatever of the log is there was published before the first of these, which then bore the flag; and all ranks apply the log before the second.
            for number in all.saturating_sub(1).max(self.exchanged + 1)..=all {
                self.server.handle_exchange(number, true);
            }
            self.exchanged = all;
        }
    }

    fn ask(&mut self, rank: usize, mut asked: Asked) -> Result<(), End> {
        if asked.kind == Kind::Fail as u32
            && let Some(program) = &self.program
        {
            let text = Symbols::of(program.id()).explain(&String::from_utf8_lossy(&asked.data));
            asked.data = text.into_bytes();
            asked.data.truncate(SLOT_DATA);
        }
        if self.is_first()
            && asked.kind == Kind::Same as u32
            && let Some(program) = &self.program
        {
            let symbols = Symbols::of(program.id());
            self.began_with = symbols.paths();
            self.symbols = Some(symbols).filter(|_| self.counts);
        }
        let at_once = asked.kind == Kind::Unlock as u32 || asked.kind == Kind::Give as u32;
        if at_once {
            self.answer(rank, asked.slot, [0; 4], &[]);
        }
        let slot = if at_once { NOBODY } else { asked.slot };
        if self.is_first() {
            self.observe();
            let from = Asker { rank, slot };
            self.server.handle(from, asked.kind, asked.args, asked.data);
            return Ok(());
        }
        let mut message = Message::new(What::Ask, self.mpi.rank());
        (message.slot, message.kind, message.args) = (slot as u32, asked.kind, asked.args);
        message.data = asked.data;
        Ok(self.control.send(&mut self.mpi, 0, &message)?)
    }

    fn answer(&mut self, rank: usize, slot: usize, result: [u64; 4], data: &[u8]) {
        self.taken[rank] &= !(1 << slot);
        self.mapping_of(rank).answer(slot, result, data);
    }

    fn poll_exchanges(&mut self) -> Result<bool, End> {
        let mut busy = false;
        for b in [0, 1] {
            if !self.exchanges[b].is_busy() {
                continue;
            }
            let waited = self.exchanges[b].waits_for_others();
            let polled = self.exchanges[b].poll(&mut self.mpi, &self.ranks);
            if let Some(since) = self.submitted[b].filter(|_| waited && !self.exchanges[b].waits_for_others())
            {
                self.mapping.count_waiting(since.elapsed());
            }
            match polled {
                Ok(None) => {}
                Ok(Some(outcome)) => {
                    busy = true;
                    self.exchanged(b, outcome);
                }
                Err(error) => self.exchange_failed(error)?,
            }
        }
        Ok(busy)
    }

    fn exchanged(&mut self, b: usize, outcome: Outcome) {
        if self.is_first() {
            self.server.handle_exchange(outcome.number, outcome.flags & flag::LOG != 0);
        }
        let state = self.mapping.exchange_state(b);
        state.store(DONE, Ordering::Release);
        sys::futex_wake(state);
    }

    fn poll_control(&mut self) -> Result<bool, End> {
        let mut busy = false;
        while let Some(message) = self.control.poll(&mut self.mpi)? {
            busy = true;
            let Some(message) = message else {
                self.fail("a message that makes no sense".into(), 1)?;
                continue;
            };
            self.handle(message)?;
        }
        Ok(busy)
    }

    fn handle(&mut self, message: Message) -> Result<(), End> {
        let rank = message.rank as usize;
        match message.what {
            What::Ask if message.slot as usize >= LOCALS && message.slot as usize != NOBODY => {
                self.fail(format!("a request of rank {rank}'s thread {}", message.slot), 1)?;
            }
            What::Ask if self.is_first() => {
                let from = Asker { rank, slot: message.slot as usize };
                self.server.handle(from, message.kind, message.args, message.data);
            }
            What::Answer if (message.slot as usize) < LOCALS => {
                self.answer(self.mpi.rank(), message.slot as usize, message.result, &message.data);
            }
            What::Fail if self.is_first() => {
                // its program may have said more, by a way of its own
                self.look()?;
                self.act()?;
                let mut why = String::from_utf8_lossy(&message.data).into_owned();
                if message.args[0] == CRASH
                    && let Some(late) = self.loaded_late()
                {
                    why += &format!(
                        ". Rank 0 has loaded {late} since it began, which other ranks have not: if regions use it, name it in LD_PRELOAD"
                    );
                }
                return self.end(message.args[0] as u8, Some(&format!("{}: {why}", self.server.name(rank))));
            }
            What::End => return Err(End::Decided(message.args[0] as u8)),
            What::Ended => self.others.push((rank, stats::from_bytes(&message.data))),
            What::Waiting => {
                self.suspect();
                if self.is_first() {
                    self.pass_on(rank)?;
                }
            }
            What::Want => self.mapping.want(message.args[0] != 0),
            What::Ask | What::Answer | What::Fail | What::Leave => {}
        }
        Ok(())
    }

    /// A library that rank 0's program has loaded since it began: the region's, if that is one.
    fn loaded_late(&self) -> Option<String> {
        let symbols = Symbols::of(self.program.as_ref()?.id());
        let is_late =
            |path: &&Path| !self.began_with.contains(*path) && path.to_string_lossy().contains(".so");
        let regions = symbols.path(self.mapping.region()).filter(is_late).map(Path::to_path_buf);
        let late = regions.or_else(|| symbols.paths().into_iter().find(|path| is_late(&path.as_path())));
        Some(late?.display().to_string())
    }

    /// Rank 0's program does one thing at a time for others.
    fn poll_server(&mut self) -> Result<bool, End> {
        let mut busy = false;
        if self.serving
            && let Some((result, data)) = self.mapping.served()
        {
            (busy, self.serving) = (true, false);
            if let Some((from, ..)) = self.to_serve.pop_front() {
                self.reply(from, result, data)?;
            }
        }
        if !self.serving
            && let Some((from, args, data)) = self.to_serve.front()
        {
            (busy, self.serving) = (true, true);
            self.mapping.serve(from.rank, from.slot, Kind::Serve as u32, *args, data);
        }
        Ok(busy)
    }

    fn reply(&mut self, to: Asker, result: [u64; 4], data: Vec<u8>) -> Result<(), End> {
        if to.slot == NOBODY {
            return Ok(());
        }
        if to.rank == self.mpi.rank() || self.shares() {
            self.answer(to.rank, to.slot, result, &data);
            return Ok(());
        }
        let mut message = Message::new(What::Answer, self.mpi.rank());
        (message.slot, message.result, message.data) = (to.slot as u32, result, data);
        Ok(self.control.send(&mut self.mpi, to.rank, &message)?)
    }

    fn act(&mut self) -> Result<bool, End> {
        let mut busy = false;
        while let Some(action) = self.server.poll_action() {
            busy = true;
            match action {
                Action::Answer { to, result, data } => self.reply(to, result, data)?,
                Action::Keep { from, args, data } => self.keep(from, args, &data)?,
                Action::Serve { from, args, data } => self.to_serve.push_back((from, args, data)),
                Action::Want(yes) => self.want(yes)?,
                Action::Exit(status) => self.end(status, None)?,
                Action::Fail(why) => self.end(1, Some(&why))?,
            }
        }
        Ok(busy)
    }

    /// Rank 0: its program asks of checkpoints.
    fn keep(&mut self, from: Asker, args: [u64; 6], data: &[u8]) -> Result<(), End> {
        let Some(keeper) = &mut self.keeper else {
            return self.fail("it asks for checkpoints, and nobody wants any".into(), 1);
        };
        let (result, data, told) = keeper.ask(args, data);
        if let Some(told) = told {
            tell(&told);
        }
        self.reply(from, result, data)
    }

    /// Rank 0: all threads are to know whether to offer the tasks that they meet.
    fn want(&mut self, yes: bool) -> Result<(), End> {
        self.mapping.want(yes);
        let others = if self.shares() { 1..1 } else { 1..self.mpi.size() };
        others.into_iter().try_for_each(|rank| {
            let mut message = Message::new(What::Want, 0);
            message.args[0] = yes.into();
            Ok(self.control.send(&mut self.mpi, rank, &message)?)
        })
    }

    /// Looks whether the program has ended, and whether the launcher is still there.
    fn glance(&mut self) -> Result<(), End> {
        if sys::parent() != self.parent {
            return Err(End::Network("mpiexec is gone".into()));
        }
        let Some(program) = &mut self.program else { return Ok(()) };
        self.glances += 1;
        if self.counts && self.glances.is_power_of_two() {
            // nothing is known of one that has just ended
            self.symbols =
                Some(Symbols::of(program.id())).filter(|now| !now.paths().is_empty()).or(self.symbols.take());
        }
        let Ok(Some(ended)) = program.try_wait() else { return Ok(()) };
        sys::forget_program();
        self.program = None;
        // what it asked last says why it ended
        self.look()?;
        self.act()?;
        let (status, words) = (child::status(ended), child::words(ended));
        if self.is_first() {
            let by_signal = std::os::unix::process::ExitStatusExt::signal(&ended)
                .is_some_and(|signal| !sys::has_forwarded(signal));
            return self.end(status, by_signal.then(|| format!("the program {words}")).as_deref());
        }
        self.fail(format!("its part of the program {words}"), if status == 0 { 1 } else { status })
    }

    /// This rank cannot go on; rank 0 ends the run.
    fn fail(&mut self, why: String, status: u8) -> Result<(), End> {
        if self.is_first() {
            let why = format!("{}: {why}", self.server.name(0));
            return self.end(status, Some(&why));
        }
        if !self.failed {
            self.failed = true;
            let mut message = Message::new(What::Fail, self.mpi.rank());
            (message.args[0], message.data) = (status.into(), why.into_bytes());
            message.data.truncate(SLOT_DATA);
            self.control.send(&mut self.mpi, 0, &message)?;
        }
        Ok(())
    }

    /// Rank 0 ends the run.
    fn end(&mut self, status: u8, why: Option<&str>) -> Result<(), End> {
        if let Some(why) = why {
            tell(why);
        }
        for rank in 1..self.mpi.size() {
            let mut message = Message::new(What::End, 0);
            message.args[0] = status.into();
            self.control.send(&mut self.mpi, rank, &message)?;
        }
        Err(End::Decided(status))
    }
}

/// For people, once.
pub fn tell(why: &str) {
    print(&format!("polyrail omp: {why}\n"));
}

/// To standard error. Where that is closed or full there is nobody to tell, and the program's own end must not change by that.
pub fn print(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
