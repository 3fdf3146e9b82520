//! Pieces of stacks that ranks above 0 give rank 0, for reductions of clang, and have back as it leaves them.

use core::slice;

use polyrail_omp::coherence::fold::{Back, Given};

use super::{RANK, place_on_stack, stacks};
use crate::run;

/// Ranks above 0: ships `lo..hi` of the calling thread's stack, and `word`, to rank 0, for the `fold`-th reduction of this region. Where threads have allocated (`used`), the
/// piece may lead to memory; what may `own` some of it comes back as rank 0 has left it.
pub fn give(number: u64, fold: u64, (lo, hi): (usize, usize), word: usize, used: bool, own: bool) {
    // SAFETY: the caller's stack; below this function's frames nothing of it is used
    let piece = unsafe { slice::from_raw_parts(lo as *const u8, hi - lo) }.to_vec();
    let given = Given { piece: &piece, at: lo, word, used, own };
    RANK.give(number, fold, &given, &mut |from, piece| {
        // SAFETY: the calling thread's frames, which are as they were when they were given; rank 0 changes what its function was given
        let now = unsafe { slice::from_raw_parts_mut(from as *mut u8, piece.len()) };
        if now != piece {
            now.copy_from_slice(piece);
        }
    });
}

/// Rank 0: has what all others gave for the `fold`-th reduction of this region at the same addresses, and calls `each` with their words, in order of ranks.
pub fn fold(number: u64, fold: u64, each: &mut dyn FnMut(usize)) {
    // SAFETY: stacks of other ranks
    RANK.fold(number, fold, &mut |rank, at, piece| unsafe { place_on_stack(rank, at, piece) }, each);
}

/// Rank 0's server thread: a piece as it is behind the folding. 0 if that is not over; a second 0 if thread 0 waits for something else meanwhile.
pub fn back(question: &[u8]) -> Option<Vec<u8>> {
    match RANK.serve_back(question)? {
        Back::NotYet(elsewhere) => Some(vec![0; 1 + usize::from(elsewhere)]),
        Back::Of(of, from, bytes) => {
            let inside = of < run::size() && stacks(of).contains(&from) && bytes <= stacks(of).end - from;
            // SAFETY: inside a stack that the rank's piece was put on
            inside.then(|| [&[1_u8][..], unsafe { slice::from_raw_parts(from as *const u8, bytes) }].concat())
        }
    }
}
