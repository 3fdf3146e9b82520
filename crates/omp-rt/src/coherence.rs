//! `polyrail_omp::coherence` in this process: memory that ranks share. With one rank everything here is local and returns at once. What begins and ends around that, and the handing over of
//! streams, is in `remote`.
//!
//! | module | does |
//! |---|---|
//! | `here` | this process, as the coherence of its memory needs it |
//! | `link` | exchanges with other ranks, compressed (`pack`) where there is time for it |
//! | `gifts` | pieces of stacks, for reductions |

mod gifts;
mod here;
mod link;
mod pack;

use core::ops::Range;
use core::slice;
use std::sync::LazyLock;

use polyrail_omp::coherence::home::Served;
use polyrail_omp::coherence::operation::{Effect, Operation};
use polyrail_omp::coherence::{Rank, rank::header};
use polyrail_omp::layout;

use crate::{alloc, exchange, run, stacks, sys, thread, track};
pub use gifts::{back, fold, give};
use here::Here;
pub use link::Said;

/// This rank.
pub static RANK: LazyLock<Rank<Here>> = LazyLock::new(|| Rank::new(Here));

/// A barrier of all ranks, after which all memories are equal. One thread per rank calls it, all others of the team wait meanwhile. `place` is the
/// same number on all ranks.
pub fn exchange(place: u64) {
    if run::size() > 1 {
        forget_threads();
        RANK.exchange(place);
        // what others told before they came
        forget_threads();
    }
}

/// No task of others is on a stack of this rank's threads, or in their scratch memory, any more.
pub fn forget_threads() {
    if track::forget_threads() {
        RANK.forget_places(&stacks::ALL);
    }
}

/// As [`exchange`], and the bytes `lo..hi` of thread 0's stack are at the same addresses on all ranks afterwards; gives rank 0's `word` to all.
pub fn exchange_with(place: u64, lo: usize, hi: usize, word: usize) -> usize {
    if run::size() == 1 {
        return word;
    }
    let mut got = word;
    if run::rank() == 0 {
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
    let per_rank = layout::SLOTS / run::size() * layout::STACK_STRIDE;
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
    thread::reserve_stacks(at, at + piece.len());
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

/// Tells all ranks `bytes` of what is in [`exchange::out`], `word` beside it, at `place`; what all said, if they are at the same point of the program.
pub fn tell(place: u64, bytes: usize, word: usize) -> Said {
    let said = Said::plain(exchange::exchange(header(place, bytes, word, 0)));
    RANK.check(&said, place);
    said
}

/// Rank 0's memory was changed for this rank: at the next barrier, rank 0 must look again when all have come.
pub fn changed_rank_0() {
    RANK.changed_rank_0();
}

/// See [`Rank::tell_first`].
pub fn tell_first() {
    RANK.tell_first();
}

/// Threads of the program may wait for each other by flags and flushes.
pub fn flushes(yes: bool) {
    RANK.set_flushes(yes);
}

/// See [`Rank::told`].
pub fn told() -> u64 {
    RANK.told()
}

/// See [`Rank::tell_of_task`].
pub fn tell_of_task() {
    RANK.tell_of_task();
}

/// Publishes and sees what others published: `flush`.
pub fn flush() {
    if run::size() > 1 {
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

/// Ranks above 0: has rank 0 do it; what was there.
pub fn carry_out(operation: &Operation, place: usize, effect: Effect) -> (u64, u64) {
    RANK.carry_out(operation, place, effect).before
}

/// See [`Rank::look`].
pub fn look(goes_on: bool) {
    if run::size() > 1 {
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
