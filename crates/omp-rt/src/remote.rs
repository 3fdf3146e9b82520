//! What a team needs of other ranks. With one rank everything here is local and returns at once.
//!
//! An exchange makes all memories equal ([`synchronize`]), a large one in rounds (`rounds`). Between exchanges, tokens carry a log of what their holders changed ([`lock`], [`unlock`]).
//! What other ranks have rank 0 do in between comes behind what it relies on (`order`). Pieces of stacks, for reductions, travel apart (`gifts`).

mod between;
mod gifts;
mod order;
mod pack;
mod rounds;

use core::ops::Range;
use core::slice;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use polyrail_omp::area::{Count, Header, INLINE, Kind, SLOT_DATA, flag};
use polyrail_omp::blob::{Reader, Record};
use polyrail_omp::layout::{self, PAGE};
use polyrail_omp::merge::Conflict;

use crate::agent::{self, Said};
use crate::stats::{self, Clock};
use crate::team::floating::Floating;
use crate::{alloc, input, library, output, serial, sys, team, track, trap};
pub use between::{Between, publish_all, see};
pub use gifts::{back, collect, folded, give, take_back};
pub use order::{Point, comes_first, folding, numbered, passed, waiting};

/// How a region is begun on all ranks.
#[derive(Clone, Copy, Debug)]
pub struct Region<'a> {
    /// The compiler's function.
    pub function: usize,
    /// GCC's calling convention (one pointer) or LLVM's (`gtid`, `tid`, arguments).
    pub gomp: bool,
    /// The arguments: pointers to what is shared, values of what is not.
    pub args: &'a [usize],
    /// Threads of the team, all ranks together.
    pub team: usize,
    /// What the compiler says of the place (`ident_t`'s text), 0 if nothing.
    pub place: usize,
    /// How the thread that begins it computes with floating point: all threads do so.
    pub floating: Floating,
}

/// This rank.
pub fn rank() -> usize {
    if agent::attached() { agent::area().rank as usize } else { 0 }
}

/// Ranks.
pub fn size() -> usize {
    if agent::attached() { agent::area().size as usize } else { 1 }
}

/// Threads of each rank as the user asked (`-t`); with no agent, `OMP_NUM_THREADS` or the processors.
pub fn threads() -> usize {
    if agent::attached() {
        return agent::area().threads as usize;
    }
    crate::icv::environment_threads()
}

/// Regions are counted, so that what is named by number in one is not taken for another's.
static REGION: AtomicU64 = AtomicU64::new(0);
/// Whether one is being run.
static INSIDE: AtomicBool = AtomicBool::new(false);
/// Rank 0: what serial code changed is being told, for one.
static BEGINS: AtomicBool = AtomicBool::new(false);
/// Since when.
static BEGUN: Mutex<Option<Clock>> = Mutex::new(None);

/// Rank 0's main thread, in serial code: sends what serial code changed, and the region, so that other ranks call [`team::run`]. `sp`: the
/// caller's frames are above it.
pub fn begin(region: &Region<'_>, sp: usize) {
    if size() == 1 {
        return;
    }
    BEGINS.store(true, Ordering::SeqCst);
    output::flush_all();
    track::stack_floor(sp);
    library::tell();
    let first = output::first();
    let mut words = vec![
        sp,
        region.function,
        usize::from(region.gomp),
        region.team,
        region.place,
        region.floating.to_word(),
        first,
    ];
    words.extend(region.args);
    // SAFETY: words as bytes
    let prefix = unsafe { slice::from_raw_parts(words.as_ptr().cast::<u8>(), size_of_val(&words[..])) };
    stats::region(region.function, region.place);
    let mut clock = Clock::start();
    synchronize(0, flag::REGION, &[prefix], &mut |_, _| {});
    clock.lap(Count::Beginning);
    inside(first);
}

/// A region has begun; `first`: see [`output::first`].
pub fn inside(first: usize) {
    if rank() > 0 && serial::on() {
        input::begin();
    }
    library::agree();
    output::agree();
    let streams = output::share(first, rank() == 0);
    let own = streams.iter().flat_map(|stream| stream.own);
    track::set_own(own.filter(|(from, to)| from < to).collect());
    REGION.fetch_add(1, Ordering::Relaxed);
    order::region_begins();
    stats::add(Count::Regions, 1);
    *BEGUN.lock().unwrap_or_else(|broken| broken.into_inner()) = Some(Clock::start());
    INSIDE.store(true, Ordering::SeqCst);
    BEGINS.store(false, Ordering::SeqCst);
}

/// Rank 0: whether a region of several ranks begins, so that what other threads write may not be told with it.
pub fn is_beginning() -> bool {
    BEGINS.load(Ordering::SeqCst)
}

/// Whether a region of several ranks is being run.
pub fn is_inside() -> bool {
    INSIDE.load(Ordering::Relaxed)
}

/// What ranks above 0 do instead of `main`: lend their processors to regions. Runs on a stack that is not the program's.
pub fn work() -> ! {
    let mut words: Vec<usize> = Vec::new();
    loop {
        let mut begun = false;
        synchronize(0, 0, &[], &mut |flags, prefix| {
            begun = flags & flag::REGION != 0;
            words.clear();
            words.extend(
                prefix.chunks_exact(8).map(|word| usize::from_ne_bytes(word.try_into().unwrap_or_default())),
            );
            if let Some(sp) = words.first() {
                track::stack_floor(*sp);
            }
        });
        let (true, [_, function, gomp, team, place, floating, first, args @ ..]) = (begun, &words[..]) else {
            sys::fail(format_args!("rank {}: rank 0 began no region", rank()))
        };
        stats::region(*function, *place);
        inside(*first);
        let floating = Floating::from_word(*floating);
        team::run(&Region {
            function: *function,
            gomp: *gomp != 0,
            args,
            team: *team,
            place: *place,
            floating,
        });
    }
}

/// A barrier of all ranks, after which all memories are equal. One thread per rank calls it, all others of the team wait meanwhile. `place` is the
/// same number on all ranks.
pub fn exchange(place: u64) {
    if size() > 1 {
        publish_if_awaited();
        synchronize(place, 0, &[], &mut |_, _| {});
    }
}

/// The barrier at the end of a region.
pub fn end(place: u64) {
    exchange(place);
    INSIDE.store(false, Ordering::Relaxed);
    output::unshare();
    if rank() > 0 && serial::on() {
        input::end();
    }
    if rank() == 0 || serial::on() {
        alloc::settle();
    }
    if let Some(mut begun) = BEGUN.lock().unwrap_or_else(|broken| broken.into_inner()).take() {
        begun.lap(Count::Whole);
    }
}

/// As [`exchange`], and the bytes `lo..hi` of thread 0's stack are at the same addresses on all ranks afterwards; gives rank 0's `word` to all.
pub fn exchange_with(place: u64, lo: usize, hi: usize, word: usize) -> usize {
    if size() == 1 {
        return word;
    }
    let mut got = word;
    if rank() == 0 {
        let words = [word, lo, hi];
        // SAFETY: words as bytes; a piece of thread 0's stack, which waits in this call or is the caller
        let (head, piece) = unsafe {
            (
                slice::from_raw_parts(words.as_ptr().cast::<u8>(), 24),
                slice::from_raw_parts(lo as *const u8, hi - lo),
            )
        };
        synchronize(place, 0, &[head, piece], &mut |_, _| {});
    } else {
        synchronize(place, 0, &[], &mut |_, prefix| {
            let Some((head, piece)) = prefix.split_first_chunk::<24>() else { return };
            let number = |at: usize| usize::from_ne_bytes(head[at..at + 8].try_into().unwrap_or_default());
            got = number(0);
            // SAFETY: checked to be on the stack of a slot of rank 0, which no thread of this process uses
            unsafe { place_on_stack(0, number(8), piece) };
        });
    }
    got
}

/// Where the stacks of a rank's threads are.
fn stacks(of: usize) -> Range<usize> {
    let per_rank = layout::SLOTS / size() * layout::STACK_STRIDE;
    let first = layout::STACKS + of * per_rank;
    first..first + per_rank
}

/// # Safety
/// No thread of this process uses that stack.
unsafe fn place_on_stack(of: usize, at: usize, piece: &[u8]) {
    let stacks = stacks(of);
    if !stacks.contains(&at) || piece.len() > stacks.end - at {
        sys::fail(format_args!("rank {of} shares {at:#x}, which is no part of a stack of its threads"));
    }
    team::reserve_stack(at, at + piece.len());
    // SAFETY: inside a reserved stack
    unsafe { (at as *mut u8).copy_from_nonoverlapping(piece.as_ptr(), piece.len()) };
}

/// Up to so many bytes are told at once.
const ONE_MESSAGE: usize = 1 << 20;

/// All ranks' changes to all ranks. `prefix`: what rank 0 says besides, which other ranks get by `told`, with rank 0's flags.
pub fn synchronize(place: u64, flags: u32, prefix: &[&[u8]], told: &mut dyn FnMut(u32, &[u8])) {
    let (rank, size) = (rank(), size());
    let mut first = true;
    if rank > 0 && INSIDE.load(Ordering::Relaxed) {
        // SAFETY: all threads of the team wait, or there are none
        unsafe { track::forget_own() };
        if trap::is_to_tell() {
            publish(&mut log());
        }
    }
    loop {
        let mut clock = Clock::start();
        // between regions nothing runs on ranks above 0
        if rank == 0 || INSIDE.load(Ordering::Relaxed) {
            trap::without_copies(track::collect);
        }
        clock.lap(Count::Finding);
        let out = agent::out();
        let mut start = 0;
        if first {
            for part in prefix {
                let Some(room) = out.get_mut(start..start + part.len()) else {
                    sys::fail(format_args!(
                        "{} bytes of a thread's stack are to be shared at once, more than buffers hold",
                        part.len()
                    ))
                };
                room.copy_from_slice(part);
                start += part.len();
            }
        }
        let room = out.len().min(start + ONE_MESSAGE);
        let encoded = track::encode(&mut out[start..room]);
        let bytes = start + encoded.unwrap_or_else(|| track::list(&mut out[start..], rounds::listed(size)));
        let mut header = header(place, bytes, start, if first { flags } else { 0 });
        if LOGGED.load(Ordering::Relaxed) {
            header.flags |= flag::LOG;
        }
        if encoded.is_none() {
            header.flags |= flag::LISTED;
        }
        stats::add(Count::Exchanges, 1);
        stats::add(Count::Pages, track::pending() as u64);
        stats::add(Count::BytesOut, header.bytes);
        clock.lap(Count::Encoding);
        let said = agent::exchange(header);
        clock.lap(Count::Exchanging);
        check(&said, place);
        let zero = said.header(0);
        let told_bytes = (zero.words[0].min(zero.bytes)) as usize;
        if first && rank != 0 {
            told(zero.flags, &said.blob(0)[..told_bytes]);
        }
        first = false;
        let headers = || (0..size).map(|rank| said.header(rank));
        if headers().any(|header| header.flags & flag::LOG != 0) {
            // all have arrived, so nobody publishes any more; what was published comes before what was not
            catch_up(&mut log());
            LOGGED.store(false, Ordering::Relaxed);
            continue;
        }
        let mut blobs: Vec<&[u8]> = (0..size).map(|rank| said.blob(rank)).collect();
        blobs[0] = &blobs[0][told_bytes..];
        count_in(&said);
        let merged = if headers().any(|header| header.flags & flag::LISTED != 0) {
            rounds::exchange(place, said, &blobs, &mut clock)
        } else {
            // SAFETY: all threads of the team wait
            unsafe { track::merge(&blobs, rank) }
        };
        if let Err(conflict) = merged {
            conflicting(&conflict, "at a barrier, or the end of a region");
        }
        clock.lap(Count::Applying);
        order::settled();
        break;
    }
}

/// Of an exchange at `place`, whose blob has so many bytes, `first` of them apart.
pub fn header(place: u64, bytes: usize, first: usize, flags: u32) -> Header {
    let words = [first as u64, 0, 0, 0];
    Header { number: 0, bytes: bytes as u64, place, flags, rank: 0, words, inline: [0; INLINE] }
}

fn count_in(said: &Said) {
    let others = (0..size()).filter(|other| *other != rank());
    stats::add(Count::BytesIn, others.map(|other| said.blob(other).len() as u64).sum());
}

/// All ranks must be at the same point of the program.
pub fn check(said: &Said, place: u64) {
    let own = said.header(rank());
    for rank in 0..size() {
        let other = said.header(rank);
        if other.number != own.number || other.place != place {
            sys::fail(format_args!(
                "rank {rank} is at another point of the program than rank {}: {:#x} and {place:#x} (exchange {} and {}). A barrier, or a \
                 worksharing construct, that not all threads of the team come to?",
                self::rank(),
                other.place,
                other.number,
                own.number
            ));
        }
    }
}

fn conflicting(conflict: &Conflict, found: &str) -> ! {
    let Conflict { address, ranks, values, before } = conflict;
    sys::fail(format_args!(
        "ranks {} and {} wrote different values to {address:#x} without synchronisation in between: {:#x} and {:#x} (before: {before:#x}). \
         A data race of the program, or an update that is not supported (found {found})",
        ranks[0], ranks[1], values[0], values[1]
    ))
}

/// What this rank knows of the log. Held while publishing and applying: one rank's entries are in order.
static LOG: Mutex<Log> = Mutex::new(Log { applied: 0, own: VecDeque::new(), part: Vec::new() });

struct Log {
    /// Up to where this rank has applied it.
    applied: u64,
    /// Positions and contents of this rank's own entries beyond: who published before them, and is applied behind them, knew as little of them as this rank of it.
    own: VecDeque<(u64, Vec<u8>)>,
    /// Room to encode an entry.
    part: Vec<u8>,
}

impl Log {
    /// Up to where this rank knows it: it has applied, or said, what is there.
    fn known(&self) -> u64 {
        self.own.back().map_or(self.applied, |own| own.0.max(self.applied))
    }
}

fn log() -> MutexGuard<'static, Log> {
    LOG.lock().unwrap_or_else(|broken| broken.into_inner())
}
/// Whether this rank has published or applied since the last barrier, or had rank 0 change its memory.
static LOGGED: AtomicBool = AtomicBool::new(false);

/// Rank 0's memory was changed for this rank: at the next barrier, rank 0 must look again when all have come.
pub fn changed_rank_0() {
    LOGGED.store(true, Ordering::Relaxed);
}

/// Applies what others published.
fn catch_up(log: &mut Log) {
    loop {
        let answer = agent::ask(Kind::Log, [log.applied, 0, 0, 0, 0, 0], &[]);
        apply(log, answer.result, answer.data);
        if answer.result[2] == 0 {
            break;
        }
    }
}

/// Entries of others, beginning behind what is applied; this rank's own stand between them.
fn apply(log: &mut Log, result: [u64; 4], entries: &[u8]) {
    let kept;
    let mut entries = entries;
    if is_to_tell_first(entries) {
        kept = entries.to_vec();
        publish(log);
        entries = &kept;
    }
    let mut before = 0;
    let mut position = log.applied;
    while let Some((head, rest)) = entries.split_first_chunk::<8>() {
        let length = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let from = u32::from_ne_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let Some((entry, rest)) = rest.split_at_checked(length) else {
            sys::fail(format_args!("the log is broken: {length} bytes of {}", rest.len()))
        };
        position += 1;
        while log.own.get(before).is_some_and(|own| own.0 == position) {
            (before, position) = (before + 1, position + 1);
        }
        for (_, own) in log.own.iter().skip(before) {
            if let Some(conflict) = track::contradiction((rank(), own), (from, entry)) {
                conflicting(&conflict, "under different locks, or at flushes");
            }
        }
        // SAFETY: what was published by who held a token
        let applied = trap::without_copies_of(&pages(entry), || unsafe { track::apply(from, entry) });
        if let Err(conflict) = applied {
            conflicting(&conflict, "under a lock");
        }
        LOGGED.store(true, Ordering::Relaxed);
        entries = rest;
    }
    log.applied = result[1];
    log.own.retain(|own| own.0 > result[1]);
}

/// Whether this rank has stored over copies where others' entries change memory.
fn is_to_tell_first(mut entries: &[u8]) -> bool {
    while let Some((head, rest)) = entries.split_first_chunk::<8>() {
        let length = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let Some((entry, rest)) = rest.split_at_checked(length) else { return false };
        if trap::is_to_tell_of(&pages(entry)) {
            return true;
        }
        entries = rest;
    }
    false
}

/// Where an entry changes memory.
fn pages(entry: &[u8]) -> Vec<Range<usize>> {
    let pages = |record: Record<'_>| {
        let from = record.address as usize;
        from..from + record.pages as usize * PAGE
    };
    // what is malformed is found when it is applied
    Reader::new(entry).map_while(Result::ok).map(pages).collect()
}

/// Tells others what this rank changed since it last did; then rank 0 what it has stored over copies.
fn publish(log: &mut Log) {
    // an entry is delivered behind eight bytes of its own
    let mut part = core::mem::take(&mut log.part);
    part.resize(SLOT_DATA - 8, 0);
    let mut held = trap::hold();
    track::collect_all(|range| held.pages(range));
    let mut parts = Vec::new();
    loop {
        let encoded = track::publish(&mut part, &mut |at, page, twin| held.mask(at, page, twin));
        let last = encoded.frontier == u64::MAX;
        if encoded.bytes > 0 || last && !parts.is_empty() {
            if last && FLUSHES.load(Ordering::Relaxed) {
                held.announce();
            }
            LOGGED.store(true, Ordering::Relaxed);
            let bytes = &part[..encoded.bytes];
            let end = agent::ask(Kind::Publish, [u64::from(last), 0, 0, 0, 0, 0], &[bytes]).result[0];
            parts.extend(Some(bytes.to_vec()).filter(|bytes| !bytes.is_empty()));
            if last && end == log.applied + parts.len() as u64 {
                // nobody else has published since this rank last looked
                log.applied = end;
            } else if last {
                let first = end + 1 - parts.len() as u64;
                log.own.extend((first..).zip(parts.drain(..)));
            }
        }
        if last {
            break;
        }
    }
    log.part = part;
    held.looked().tell(log.known());
}

/// Waits for token `token`; after it this rank sees what former holders published. `turn`: wait until the token's turn is this one (`ordered`; turns begin at 0).
/// Within a rank, threads exclude each other before they call this.
pub fn lock(token: u64, turn: Option<u64>) {
    if size() > 1 {
        publish_if_awaited();
        if trap::is_to_tell() {
            // who has the token may wait for what was stored
            publish(&mut log());
        }
        let (mode, turn) = turn.map_or((0, 0), |turn| (2, turn));
        take_token(token, mode, turn);
    }
}

/// As [`lock`] without waiting: whether it was got.
pub fn try_lock(token: u64) -> bool {
    size() == 1 || take_token(token, 1, 0)
}

fn take_token(token: u64, mode: u64, turn: u64) -> bool {
    let mut clock = Clock::start();
    let got = waiting(|| wait_for_token(token, mode, turn));
    let tokens = &team::thread().tokens;
    tokens.set(tokens.get() + usize::from(got));
    stats::add(Count::Tokens, 1);
    clock.lap(Count::TokenTime);
    got
}

fn wait_for_token(token: u64, mode: u64, turn: u64) -> bool {
    let known = log().applied;
    let answer = agent::ask(Kind::Lock, [token, known, mode, turn, 0, 0], &[]);
    if answer.result[0] == 0 {
        return false;
    }
    let mut log = log();
    // another thread of this rank may have applied some of it meanwhile
    if log.applied == known {
        apply(&mut log, answer.result, answer.data);
        if answer.result[2] == 0 {
            return true;
        }
    }
    catch_up(&mut log);
    true
}

/// Publishes what this rank changed and gives the token back; `turn`: whose turn it is from now on.
pub fn unlock(token: u64, turn: Option<u64>) {
    if size() > 1 {
        output::flush();
        publish(&mut log());
        let tokens = &team::thread().tokens;
        tokens.set(tokens.get().saturating_sub(1));
        agent::ask(Kind::Unlock, [token, turn.unwrap_or(u64::MAX), 0, 0, 0, 0], &[]);
    }
}

/// Whether threads of the program may wait for each other by flags and flushes.
static FLUSHES: AtomicBool = AtomicBool::new(false);

/// Says so.
pub fn flushes(yes: bool) {
    FLUSHES.store(yes, Ordering::Relaxed);
}

/// Before a thread waits for others: they may wait for what it has stored.
fn publish_if_awaited() {
    if FLUSHES.load(Ordering::Relaxed) && INSIDE.load(Ordering::Relaxed) {
        publish(&mut log());
    }
}

/// Publishes and sees what others published: `flush`.
pub fn flush() {
    if size() > 1 && INSIDE.load(Ordering::Relaxed) {
        let mut log = log();
        publish(&mut log);
        catch_up(&mut log);
    }
}

/// A number of this region, for the agents.
fn named(number: u64) -> u64 {
    REGION.load(Ordering::Relaxed) << 32 | (number & 0xff_ffff) << 8
}

/// Iterations of a loop that is shared out at run time: `number` names the loop (the same on all ranks, never used twice in a region), `total` iterations,
/// chunks of `chunk`, or ever smaller ones of at least `chunk` for `guided` threads. The first iteration and how many.
pub fn take(number: u64, total: u64, chunk: u64, guided: Option<u64>) -> Option<(u64, u64)> {
    let (kind, threads) = guided.map_or((0, 0), |threads| (1, threads));
    let mut clock = Clock::start();
    let answer = agent::ask(Kind::Take, [named(number), total, chunk, kind, threads, 0], &[]);
    stats::add(Count::Chunks, 1);
    clock.lap(Count::ChunkTime);
    (answer.result[0] > 0).then_some((answer.result[1], answer.result[0]))
}
