//! Pieces of stacks that ranks above 0 give rank 0, for reductions of clang, and have back as it leaves them.
//!
//! A copy may own memory of the rank's heap. Rank 0 may take that over, by moving from the copy; and the rank destroys the copy when it goes on. So a rank whose copies
//! may lead there goes on when rank 0 has folded them, with the copies as they are then.

use core::slice;
use core::sync::atomic::{AtomicU64, Ordering};

use polyrail_omp::area::{Kind, SLOT_DATA};

use super::{RANK, place_on_stack, rank, size, stacks};
use crate::{agent, calls, sys, team};

/// What a piece that is given begins with: the word, where the whole begins and ends.
const GIFT: usize = 24;

/// Ranks above 0: ships `lo..hi` of the calling thread's stack, and `word`, to rank 0. Does not wait for rank 0.
pub fn give(number: u64, lo: usize, hi: usize, word: usize) {
    let head: Vec<u8> = [word, lo, hi].iter().flat_map(|word| word.to_ne_bytes()).collect();
    // SAFETY: the caller's stack
    let piece = unsafe { slice::from_raw_parts(lo as *const u8, hi - lo) };
    let parts = piece.chunks(SLOT_DATA - GIFT);
    if parts.len() > 256 {
        sys::fail(format_args!(
            "{} bytes of a thread's stack are to be reduced at once; at most 60 MB are supported",
            piece.len()
        ));
    }
    for (part, bytes) in parts.enumerate() {
        agent::ask(Kind::Give, [RANK.named(number) + part as u64, 0, 0, 0, 0, 0], &[&head, bytes]);
    }
}

/// Rank 0: waits for what all others gave, has it at the same addresses, and returns their words, in order of ranks. What a rank gives in several parts is as long as
/// its first part says.
pub fn collect(number: u64) -> Vec<usize> {
    let mut words = Vec::new();
    // ranks that give more: where the rest is to be
    let mut more: Vec<(usize, usize, usize)> = (1..size()).map(|rank| (rank, 0, 0)).collect();
    for part in 0.. {
        let count = more.len() as u64;
        for (which, (rank, at, end)) in more.iter_mut().enumerate() {
            let which = [RANK.named(number) + part, count, which as u64, 0, 0, 0];
            let answer = agent::ask(Kind::Collect, which, &[]);
            let Some((head, piece)) = answer.data.split_first_chunk::<GIFT>() else {
                sys::fail(format_args!("rank {rank} gave {} bytes to a reduction", answer.data.len()))
            };
            let [word, lo, hi] = [0, 1, 2].map(|at| usize::from_ne_bytes(head.as_chunks().0[at]));
            if part == 0 {
                words.push(word);
                (*at, *end) = (lo, hi);
            }
            // SAFETY: a stack of another rank's
            unsafe { place_on_stack(*rank, *at, piece) };
            *at += piece.len();
        }
        more.retain(|(_, at, end)| at < end);
        if more.is_empty() {
            break;
        }
    }
    words
}

/// Longest pause between two questions, in microseconds.
const PAUSE: u32 = 2000;
/// Bytes of a piece that come back with one answer.
const PART: usize = SLOT_DATA - 64;
/// Rank 0's thread 0 may wait for a lock that a thread has while that waits for rank 0; so many seconds.
const PATIENCE: u64 = 10;

/// Rank 0: up to which reduction of which region it has folded what it was given.
static FOLDED: AtomicU64 = AtomicU64::new(0);

/// Rank 0 has folded what it was given for reduction `fold` of this region.
pub fn folded(fold: u64) {
    FOLDED.store(super::numbered(fold), Ordering::Release);
}

/// Ranks above 0: waits until rank 0 has folded what was given for reduction `fold` of this region, and takes `lo..hi` of the calling thread's stack back.
pub fn take_back(fold: u64, lo: usize, hi: usize) {
    let begun = std::time::Instant::now();
    for from in (lo..hi).step_by(PART) {
        let bytes = PART.min(hi - from);
        let question: Vec<u8> = [super::numbered(fold) as usize, rank(), from, bytes]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        let mut tries = 0;
        let piece = loop {
            let answer = calls::ask_rank_0(calls::REMOTE_BACK, &question);
            match answer.split_first() {
                Some((0, [])) => {}
                Some((0, _)) if team::thread().tokens.get() == 0 || begun.elapsed().as_secs() < PATIENCE => {}
                Some((1, piece)) if piece.len() == bytes => break piece,
                _ => sys::stop(
                    "a reduction of objects that have memory of their own",
                    "by a thread that has a lock for which thread 0 waits: unset the lock before, or run with -n 1",
                ),
            }
            calls::pause(tries, PAUSE);
            tries += 1;
        };
        // SAFETY: the calling thread's frames, which are as they were when they were given; rank 0 changes what its function was given
        let now = unsafe { slice::from_raw_parts_mut(from as *mut u8, bytes) };
        if now != piece {
            now.copy_from_slice(piece);
        }
    }
}

/// Rank 0's server thread: a piece as it is behind the folding. 0 if that is not over; a second 0 if thread 0 waits for something else meanwhile.
pub fn back(question: &[u8]) -> Option<Vec<u8>> {
    let words: Vec<usize> = question.as_chunks().0.iter().map(|word| usize::from_ne_bytes(*word)).collect();
    let [fold, of, from, bytes] = words[..] else { return None };
    if FOLDED.load(Ordering::Acquire) < fold as u64 {
        return Some(vec![0; 1 + usize::from(RANK.waits_elsewhere())]);
    }
    let inside = of < size() && stacks(of).contains(&from) && bytes <= PART && bytes <= stacks(of).end - from;
    // SAFETY: inside a stack that the rank's piece was put on
    inside.then(|| [&[1_u8][..], unsafe { slice::from_raw_parts(from as *const u8, bytes) }].concat())
}
