//! What a team needs of other ranks: `polyrail_omp::coherence` in this process. With one rank everything here is local and returns at once.
//!
//! Around what that does, regions begin and end here, and streams are handed over. Pieces of stacks, for reductions, travel apart (`gifts`).

mod gifts;
mod here;
mod link;
mod pack;

use core::ops::Range;
use core::slice;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex};

use polyrail_omp::area::{Count, flag};
use polyrail_omp::coherence::home::Served;
use polyrail_omp::coherence::operation::{Effect, Operation};
use polyrail_omp::coherence::tasks::{Awaited, Done, Next, Place};
use polyrail_omp::coherence::{Rank, rank::header};
use polyrail_omp::layout;

use crate::agent;
use crate::stats::{self, Clock};
use crate::team::floating::Floating;
use crate::{alloc, checkpoint, input, library, output, serial, stacks, sys, team, track};
pub use gifts::{back, fold, give};
use here::Here;
pub use link::Said;

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

static RANK: LazyLock<Rank<Here>> = LazyLock::new(|| Rank::new(Here));

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
    stats::add(Count::Regions, 1);
    *BEGUN.lock().unwrap_or_else(|broken| broken.into_inner()) = Some(Clock::start());
    RANK.region_begins();
    BEGINS.store(false, Ordering::SeqCst);
}

/// Rank 0: whether a region of several ranks begins, so that what other threads write may not be told with it.
pub fn is_beginning() -> bool {
    BEGINS.load(Ordering::SeqCst)
}

/// Whether a region of several ranks is being run.
pub fn is_inside() -> bool {
    RANK.is_inside()
}

/// What ranks above 0 do instead of `main`: lend their processors to regions. Runs on a stack that is not the program's.
pub fn work() -> ! {
    if checkpoint::is_resumed() {
        checkpoint::receive();
    }
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
        forget_threads();
        RANK.exchange(place);
        // what others told before they came
        forget_threads();
    }
}

/// No task of others is on a stack of this rank's threads, or in their scratch memory, any more.
fn forget_threads() {
    if track::forget_threads() {
        RANK.forget_places(&stacks::ALL);
    }
}

/// The barrier at the end of a region, at which this rank says `flags`; what all say.
pub fn end(place: u64, flags: u32) -> u32 {
    forget_threads();
    let flags = RANK.exchange_saying(place, flags);
    forget_threads();
    RANK.region_ends();
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
    flags
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
    track::placed(at, piece.len());
}

/// All ranks' changes to all ranks. `prefix`: what rank 0 says besides, which other ranks get by `told`, with rank 0's flags.
pub fn synchronize(place: u64, flags: u32, prefix: &[&[u8]], told: &mut dyn FnMut(u32, &[u8])) {
    forget_threads();
    RANK.synchronize(place, flags, prefix, told);
    forget_threads();
}

/// Tells all ranks `bytes` of what is in [`agent::out`], `word` beside it, at `place`; what all said, if they are at the same point of the program.
pub fn tell(place: u64, bytes: usize, word: usize) -> Said {
    let said = Said::plain(agent::exchange(header(place, bytes, word, 0)));
    RANK.check(&said, place);
    said
}

/// Rank 0's memory was changed for this rank: at the next barrier, rank 0 must look again when all have come.
pub fn changed_rank_0() {
    RANK.changed_rank_0();
}

/// Waits for token `token`; after it this rank sees what former holders published. `turn`: wait until the token's turn is this one (`ordered`; turns begin at 0).
/// Within a rank, threads exclude each other before they call this.
pub fn lock(token: u64, turn: Option<u64>) {
    if size() > 1 {
        input::give_back();
        RANK.lock(token, turn);
    }
}

/// As [`lock`] without waiting: whether it was got.
pub fn try_lock(token: u64) -> bool {
    if size() == 1 {
        return true;
    }
    input::give_back();
    RANK.try_lock(token)
}

/// Publishes what this rank changed and gives the token back; `turn`: whose turn it is from now on.
pub fn unlock(token: u64, turn: Option<u64>) {
    if size() > 1 {
        output::flush();
        RANK.unlock(token, turn);
    }
}

/// See [`Rank::tell_first`].
pub fn tell_first() {
    RANK.tell_first();
}

/// Threads of the program may wait for each other by flags and flushes.
pub fn flushes(yes: bool) {
    RANK.set_flushes(yes);
}

/// See [`Rank::offer`].
pub fn offer(place: Place, task: &[u8]) -> (u64, u64) {
    if is_inside() {
        output::flush();
    }
    RANK.offer(place, &[task])
}

/// See [`Rank::told`].
pub fn told() -> u64 {
    RANK.told()
}

/// See [`Rank::tell_of_task`].
pub fn tell_of_task() {
    RANK.tell_of_task();
}

/// See [`Rank::work`].
pub fn wait_for_tasks(awaited: Awaited, done: Option<Done>) -> Next {
    input::give_back();
    if is_inside() && done.is_some() {
        output::flush();
    }
    let mut clock = Clock::start();
    let (next, position) = RANK.work(awaited, done);
    if matches!((&next, awaited), (Next::Over, Awaited::Team(_))) {
        // There are no tasks any more. Ranks come to know that one after the other: what those tell who do not yet is not to be taken over.
        forget_threads();
    }
    RANK.see(position);
    clock.lap(Count::TaskTime);
    next
}

/// Publishes and sees what others published: `flush`.
pub fn flush() {
    if size() > 1 {
        RANK.flush();
    }
}

/// See [`Rank::take`].
pub fn take(number: u64, total: u64, chunk: u64, guided: Option<u64>) -> Option<(u64, u64)> {
    RANK.take(number, total, chunk, guided)
}

/// See [`Rank::comes_first`].
pub fn comes_first(single: u64) -> bool {
    RANK.comes_first(single)
}

/// What the calling thread has taken is over.
pub fn passed() {
    RANK.passed();
}

/// See [`Rank::numbered`].
pub fn numbered(count: u64) -> u64 {
    RANK.numbered(count)
}

/// Waits by `wait` for what other threads have: a token, a lock, their part of a reduction.
pub fn waiting<T>(wait: impl FnOnce() -> T) -> T {
    input::give_back();
    RANK.waiting(wait)
}

/// Ranks above 0: has rank 0 do it; what was there.
pub fn carry_out(operation: &Operation, place: usize, effect: Effect) -> (u64, u64) {
    RANK.carry_out(operation, place, effect).before
}

/// See [`Rank::look`].
pub fn look(goes_on: bool) {
    if size() > 1 {
        // any place will do
        RANK.look(alloc::shared_page() as usize, goes_on);
    }
}

/// Rank 0's server thread: an operation of another rank.
pub fn serve_operation(question: &[u8]) -> Option<Vec<u8>> {
    match RANK.serve_operation(question) {
        Served::Done(answer) => Some(answer),
        Served::NotYet(early) => Some(early.to_bytes().to_vec()),
        Served::Refused => None,
    }
}

/// Rank 0's server thread: another rank is about to tell of stores, or is through.
pub fn serve_awaits(question: &[u8]) -> Option<Vec<u8>> {
    RANK.serve_awaits(*question.first()? != 0);
    Some(Vec::new())
}
