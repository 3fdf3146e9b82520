//! What begins and ends around regions of several ranks, and what is handed over where threads wait for other ranks: streams, above all. Memory itself is `coherence`'s.

use core::slice;
use std::sync::Mutex;

use polyrail_omp::area::{Count, flag};
use polyrail_omp::coherence::tasks::{Awaited, Done, Next, Place};

use crate::coherence::{RANK, forget_threads, synchronize};
use crate::floating::Floating;
use crate::region::Region;
use crate::stats::{self, Clock};
use crate::{alloc, input, library, output, run, sys, track};

/// When the region began.
static BEGUN: Mutex<Option<Clock>> = Mutex::new(None);

/// Rank 0's main thread, in serial code: sends what serial code changed, and the region, which other ranks hear of by [`next`]. `sp`: the
/// caller's frames are above it.
pub fn begin(region: &Region<'_>, sp: usize) {
    if run::size() == 1 {
        return;
    }
    run::begins();
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
    if run::rank() > 0 && run::is_replicated() {
        input::begin();
    }
    library::agree();
    output::agree();
    let streams = output::share(first, run::rank() == 0);
    let own = streams.iter().flat_map(|stream| stream.own);
    track::set_own(own.filter(|(from, to)| from < to).collect());
    stats::add(Count::Regions, 1);
    *BEGUN.lock().unwrap_or_else(|broken| broken.into_inner()) = Some(Clock::start());
    RANK.region_begins();
    run::enters();
}

/// Ranks above 0: waits for the next region that rank 0 begins, has `each` run it, and comes back.
pub fn next(each: impl FnOnce(&Region<'_>)) {
    let mut words: Vec<usize> = Vec::new();
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
        sys::fail(format_args!("rank {}: rank 0 began no region", run::rank()))
    };
    stats::region(*function, *place);
    inside(*first);
    let floating = Floating::from_word(*floating);
    let (function, gomp, team, place) = (*function, *gomp != 0, *team, *place);
    each(&Region { function, gomp, args, team, place, floating });
}

/// The barrier at the end of a region, at which this rank says `flags`; what all say.
pub fn end(place: u64, flags: u32) -> u32 {
    forget_threads();
    let flags = RANK.exchange_saying(place, flags);
    forget_threads();
    RANK.region_ends();
    run::leaves();
    output::unshare();
    if run::rank() > 0 && run::is_replicated() {
        input::end();
    }
    if run::rank() == 0 || run::is_replicated() {
        alloc::settle();
    }
    if let Some(mut begun) = BEGUN.lock().unwrap_or_else(|broken| broken.into_inner()).take() {
        begun.lap(Count::Whole);
    }
    flags
}

/// Waits for token `token`; after it this rank sees what former holders published. `turn`: wait until the token's turn is this one (`ordered`; turns begin at 0).
/// Within a rank, threads exclude each other before they call this.
pub fn lock(token: u64, turn: Option<u64>) {
    if run::size() > 1 {
        input::give_back();
        RANK.lock(token, turn);
    }
}

/// As [`lock`] without waiting: whether it was got.
pub fn try_lock(token: u64) -> bool {
    if run::size() == 1 {
        return true;
    }
    input::give_back();
    RANK.try_lock(token)
}

/// Publishes what this rank changed and gives the token back; `turn`: whose turn it is from now on.
pub fn unlock(token: u64, turn: Option<u64>) {
    if run::size() > 1 {
        output::flush();
        RANK.unlock(token, turn);
    }
}

/// See [`Rank::offer`].
pub fn offer(place: Place, task: &[u8]) -> (u64, u64) {
    if run::is_inside() {
        output::flush();
    }
    RANK.offer(place, &[task])
}

/// See [`Rank::work`].
pub fn wait_for_tasks(awaited: Awaited, done: Option<Done>) -> Next {
    input::give_back();
    if run::is_inside() && done.is_some() {
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

/// Waits by `wait` for what other threads have: a token, a lock, their part of a reduction.
pub fn waiting<T>(wait: impl FnOnce() -> T) -> T {
    input::give_back();
    RANK.waiting(wait)
}
