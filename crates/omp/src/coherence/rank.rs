//! One rank: when it tells what it has changed, and takes over what others have.
//!
//! An exchange makes all memories equal ([`Rank::synchronize`]), a large one in rounds. Between exchanges, tokens carry a log of what their holders changed ([`Rank::lock`],
//! [`Rank::unlock`]). What other ranks have rank 0 do in between comes behind what it relies on (`order`).

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::area::{Count, Header, INLINE, Kind, flag};
use crate::merge::Refused;

use super::copies::Copies;
use super::host::{Clock, Host, Mutex, RwLock, Said, Trouble};
use super::log::Log;
use super::order::Order;
use super::rounds;

/// Up to so many bytes are told at once.
pub const ONE_MESSAGE: usize = 1 << 20;

/// A rank. With one rank alone nothing here is to be called.
pub struct Rank<H: Host> {
    /// The process that it is in.
    pub host: H,
    /// Regions are counted, so that what is named by number in one is not taken for another's.
    region: AtomicU64,
    /// Whether one is being run.
    inside: AtomicBool,
    /// Threads of the program may wait for each other by flags and flushes.
    flushes: AtomicBool,
    /// Whether this rank has published or applied since the last barrier, or had rank 0 change its memory.
    pub(super) logged: AtomicBool,
    /// What this rank knows of the log. Held while publishing and applying: one rank's entries are in order.
    pub(super) log: H::Mutex<Log>,
    pub(super) order: Order,
    /// Had alone from when a store over a copy counts as a copy until rank 0 has it, shared by operations.
    pub(super) telling: H::RwLock,
    pub(super) copies: H::Mutex<Copies>,
    /// On rank 0: how many ranks have published what stores over copies belong to that they are about to tell.
    pub(super) awaited: AtomicUsize,
    /// A place that rank 0 has changed for this rank without telling others; 0 if it has told all.
    pub(super) untold: AtomicUsize,
    /// On rank 0: operations that it has done for others.
    pub(super) operations: AtomicU64,
    /// Bytes that this rank has told between exchanges.
    pub(super) told: AtomicU64,
    /// All ranks' flags of the last exchange of all ranks' changes.
    heard: AtomicU32,
}

impl<H: Host> fmt::Debug for Rank<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rank").field("rank", &self.host.rank()).finish_non_exhaustive()
    }
}

impl<H: Host> Rank<H> {
    /// In this process. No region has begun.
    pub fn new(host: H) -> Self {
        Self {
            host,
            region: AtomicU64::new(0),
            inside: AtomicBool::new(false),
            flushes: AtomicBool::new(false),
            logged: AtomicBool::new(false),
            log: Mutex::new(Log::default()),
            order: Order::default(),
            telling: RwLock::new(),
            copies: Mutex::new(Copies::new()),
            awaited: AtomicUsize::new(0),
            untold: AtomicUsize::new(0),
            operations: AtomicU64::new(0),
            told: AtomicU64::new(0),
            heard: AtomicU32::new(0),
        }
    }

    /// A region begins: what serial code changed has been told.
    pub fn region_begins(&self) {
        self.region.fetch_add(1, Ordering::Relaxed);
        self.order_begins();
        self.inside.store(true, Ordering::SeqCst);
    }

    /// It is over.
    pub fn region_ends(&self) {
        self.inside.store(false, Ordering::Relaxed);
    }

    /// Whether a region of several ranks is being run.
    pub fn is_inside(&self) -> bool {
        self.inside.load(Ordering::Relaxed)
    }

    /// Bytes that this rank has told between exchanges, so far.
    pub fn told(&self) -> u64 {
        self.told.load(Ordering::Relaxed)
    }

    /// Of what is counted in a region, a number that grows from region to region.
    pub fn numbered(&self, count: u64) -> u64 {
        (self.region.load(Ordering::Relaxed) << 32) + count
    }

    /// A number of this region, for the agents.
    pub fn named(&self, number: u64) -> u64 {
        self.region.load(Ordering::Relaxed) << 32 | (number & 0xff_ffff) << 8
    }

    /// Threads of the program may wait for each other by flags and flushes.
    pub fn set_flushes(&self, yes: bool) {
        self.flushes.store(yes, Ordering::Relaxed);
    }

    pub(super) fn flushes(&self) -> bool {
        self.flushes.load(Ordering::Relaxed)
    }

    /// Rank 0's memory was changed for this rank: at the next barrier, rank 0 must look again when all have come.
    pub fn changed_rank_0(&self) {
        self.logged.store(true, Ordering::Relaxed);
    }

    /// A barrier of all ranks, after which all memories are equal. One thread per rank calls it, all others of the team wait meanwhile. `place` is the
    /// same number on all ranks.
    pub fn exchange(&self, place: u64) {
        self.exchange_saying(place, 0);
    }

    /// As [`exchange`](Self::exchange), with flags of this rank's; all ranks' together.
    pub fn exchange_saying(&self, place: u64, flags: u32) -> u32 {
        self.publish_if_awaited();
        self.synchronize(place, flags, &[], &mut |_, _| {});
        self.heard.load(Ordering::Relaxed)
    }

    /// All ranks' changes to all ranks. `prefix`: what rank 0 says besides, which other ranks get by `told`, with rank 0's flags.
    pub fn synchronize(&self, place: u64, flags: u32, prefix: &[&[u8]], told: &mut dyn FnMut(u32, &[u8])) {
        let (rank, size) = (self.host.rank(), self.host.size());
        let inside = self.is_inside();
        let mut first = true;
        let mut heard = 0;
        if rank > 0 && inside {
            // all threads of the team wait
            self.host.tracked(super::Tracked::forget_own);
            if self.is_to_tell() {
                self.publish(&mut self.log.lock());
            }
        }
        loop {
            let mut clock = Clock::start(&self.host);
            // between regions nothing runs on ranks above 0
            if rank == 0 || inside {
                self.without_copies(|| self.host.tracked(super::Tracked::collect));
            }
            clock.lap(&self.host, Count::Finding);
            let said = self.host.wait(self.host.submit(false, &mut |out| {
                let flags = if first { flags } else { 0 };
                let header = self.encode(place, flags, if first { prefix } else { &[] }, out);
                clock.lap(&self.host, Count::Encoding);
                header
            }));
            clock.lap(&self.host, Count::Exchanging);
            self.check(&said, place);
            let zero = said.header(0);
            let told_bytes = (zero.words[0].min(zero.bytes)) as usize;
            if first && rank != 0 {
                told(zero.flags, &said.blob(0)[..told_bytes]);
            }
            first = false;
            let headers = || (0..size).map(|rank| said.header(rank));
            heard |= headers().fold(0, |all, header| all | header.flags);
            if headers().any(|header| header.flags & flag::LOG != 0) {
                // all have arrived, so nobody publishes any more; what was published comes before what was not
                self.catch_up(&mut self.log.lock());
                self.logged.store(false, Ordering::Relaxed);
                continue;
            }
            self.count_in(&said);
            let is_listed = headers().any(|header| header.flags & flag::LISTED != 0);
            let blob = |of: usize| &said.blob(of)[if of == 0 { told_bytes } else { 0 }..];
            let blobs: Vec<&[u8]> = (0..size).map(blob).collect();
            let merged = if is_listed {
                let bulk = self.bulk(&blobs);
                // the rounds have its buffers
                drop(blobs);
                drop(said);
                bulk.and_then(|bulk| rounds::exchange(self, place, bulk, &mut clock))
            } else {
                // all threads of the team wait
                let merged = self.host.tracked(|tracked| {
                    tracked.done(u64::MAX);
                    tracked.merge(&blobs, rank)
                });
                merged.unwrap_or(Ok(()))
            };
            merged.unwrap_or_else(|refused| self.refused(refused, "at a barrier, or the end of a region"));
            clock.lap(&self.host, Count::Applying);
            // there are no copies any more
            self.log.lock().served.clear();
            self.settled();
            break;
        }
        self.heard.store(heard, Ordering::Relaxed);
    }

    /// What this rank says in an exchange: `prefix`, and what it has changed or, if that is too much, a list of pages.
    fn encode(&self, place: u64, flags: u32, prefix: &[&[u8]], out: &mut [u8]) -> Header {
        let mut start = 0;
        for part in prefix {
            let Some(room) = out.get_mut(start..start + part.len()) else {
                self.host.fail(&Trouble::TooMuch(part.len()))
            };
            room.copy_from_slice(part);
            start += part.len();
        }
        let room = out.len().min(start + ONE_MESSAGE);
        let (mut encoded, mut pages) = (Some(0), 0);
        self.host.tracked(|tracked| {
            encoded = tracked.encode_all(&mut out[start..room]);
            pages = tracked.pending.count();
        });
        let listed =
            || self.host.tracked(|tracked| tracked.list(&mut out[start..], rounds::listed(self.host.size())));
        let mut flags = flags | if encoded.is_none() { flag::LISTED } else { 0 };
        let bytes = start + encoded.or_else(listed).unwrap_or(0);
        if self.logged.load(Ordering::Relaxed) {
            flags |= flag::LOG;
        }
        self.host.add(Count::Exchanges, 1);
        self.host.add(Count::Pages, pages as u64);
        self.host.add(Count::BytesOut, bytes as u64);
        header(place, bytes, start, flags)
    }

    pub(super) fn count_in(&self, said: &H::Said) {
        let others = (0..self.host.size()).filter(|other| *other != self.host.rank());
        self.host.add(Count::BytesIn, others.map(|other| said.header(other).bytes).sum());
    }

    /// All ranks must be at the same point of the program.
    pub fn check(&self, said: &H::Said, place: u64) {
        let own = said.header(self.host.rank());
        for rank in 0..self.host.size() {
            let other = said.header(rank);
            if other.number != own.number || other.place != place {
                let mine = (self.host.rank(), place, own.number);
                self.host.fail(&Trouble::Apart([(rank, other.place, other.number), mine]));
            }
        }
    }

    pub(super) fn refused(&self, refused: Refused, found: &'static str) -> ! {
        self.host.fail(&match refused {
            Refused::Conflict(conflict) => Trouble::Conflict(conflict, found),
            other => Trouble::Broken(format!("what another rank sent cannot be applied: {other:?}")),
        })
    }

    /// Waits for token `token`; after it this rank sees what former holders published. `turn`: wait until the token's turn is this one (`ordered`; turns begin at 0).
    /// Within a rank, threads exclude each other before they call this.
    pub fn lock(&self, token: u64, turn: Option<u64>) {
        self.publish_if_awaited();
        // who has the token may wait for what was stored
        self.tell_first();
        let (mode, turn) = turn.map_or((0, 0), |turn| (2, turn));
        self.take_token(token, mode, turn);
    }

    /// Tells what the calling thread, which is about to wait for others of its rank, may have stored over copies: who waits for that may be who they wait for.
    pub fn tell_first(&self) {
        if self.is_inside() && self.is_to_tell() {
            self.publish(&mut self.log.lock());
        }
    }

    /// As [`lock`](Self::lock) without waiting: whether it was got.
    pub fn try_lock(&self, token: u64) -> bool {
        self.take_token(token, 1, 0)
    }

    fn take_token(&self, token: u64, mode: u64, turn: u64) -> bool {
        let mut clock = Clock::start(&self.host);
        let got = self.waiting(|| self.wait_for_token(token, mode, turn));
        self.host.set_tokens(self.host.tokens() + usize::from(got));
        self.host.add(Count::Tokens, 1);
        clock.lap(&self.host, Count::TokenTime);
        got
    }

    fn wait_for_token(&self, token: u64, mode: u64, turn: u64) -> bool {
        let known = self.log.lock().applied;
        let answer = self.host.ask(Kind::Lock, [token, known, mode, turn, 0, 0], &[]);
        if answer.result[0] == 0 {
            return false;
        }
        let mut log = self.log.lock();
        // another thread of this rank may have applied some of it meanwhile
        if log.applied == known {
            self.apply(&mut log, answer.result, &answer.data);
            if answer.result[2] == 0 {
                return true;
            }
        }
        self.catch_up(&mut log);
        true
    }

    /// Publishes what this rank changed and gives the token back; `turn`: whose turn it is from now on.
    pub fn unlock(&self, token: u64, turn: Option<u64>) {
        let mut clock = Clock::start(&self.host);
        self.release(&mut self.log.lock());
        self.host.set_tokens(self.host.tokens().saturating_sub(1));
        self.host.ask(Kind::Unlock, [token, turn.unwrap_or(u64::MAX), 0, 0, 0, 0], &[]);
        clock.lap(&self.host, Count::TokenTime);
    }

    /// Before a thread waits for others: they may wait for what it has stored.
    pub(super) fn publish_if_awaited(&self) {
        if self.flushes() && self.is_inside() {
            self.publish(&mut self.log.lock());
        }
    }

    /// Publishes and sees what others published: `flush`.
    pub fn flush(&self) {
        if self.is_inside() {
            let mut log = self.log.lock();
            self.release(&mut log);
            self.catch_up(&mut log);
        }
    }

    /// Iterations of a loop that is shared out at run time: `number` names the loop (the same on all ranks, never used twice in a region), `total` iterations,
    /// chunks of `chunk`, or ever smaller ones of at least `chunk` for `guided` threads. The first iteration and how many.
    pub fn take(&self, number: u64, total: u64, chunk: u64, guided: Option<u64>) -> Option<(u64, u64)> {
        let (kind, threads) = guided.map_or((0, 0), |threads| (1, threads));
        let mut clock = Clock::start(&self.host);
        let answer = self.host.ask(Kind::Take, [self.named(number), total, chunk, kind, threads, 0], &[]);
        self.host.add(Count::Chunks, 1);
        clock.lap(&self.host, Count::ChunkTime);
        (answer.result[0] > 0).then_some((answer.result[1], answer.result[0]))
    }
}

/// Of an exchange at `place`, whose blob has so many bytes, `first` of them apart.
pub fn header(place: u64, bytes: usize, first: usize, flags: u32) -> Header {
    let words = [first as u64, 0, 0, 0];
    Header { number: 0, bytes: bytes as u64, place, flags, rank: 0, words, inline: [0; INLINE] }
}
