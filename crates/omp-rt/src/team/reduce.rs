//! Reductions whose operator the compiler gives as a function (clang's), and `copyprivate`.
//!
//! A thread's private copies are on its stack; the function takes two arrays of pointers to copies, and puts the combination where the first points. Each rank
//! folds its threads' into its lowest thread's, in order of numbers; the others' stacks are shipped to rank 0 at the same addresses, which folds in order of ranks. What may
//! own memory comes back as rank 0 leaves it.

use core::ffi::c_void;
use core::sync::atomic::Ordering::*;

use polyrail_omp::layout::{SLOT_HEAP_BYTES, SLOT_HEAPS, slot};

use super::{Team, barrier_then, here, local_barrier, work};
use crate::{alloc, coherence, remote, run, thread};

/// `lhs op= rhs`, for all variables of a reduction.
pub type Fold = unsafe extern "C" fn(lhs: *mut c_void, rhs: *mut c_void);

/// Folds all threads' `data` into thread 0's. True for the thread that has the result, which is thread 0.
///
/// # Safety
/// The compiler's arguments. `floor` is below all that `data` leads to on the calling thread's stack.
pub unsafe fn fold(data: *mut c_void, function: Fold, floor: usize) -> bool {
    let frame = here();
    let Some(team) = frame.team.get() else { return true };
    // SAFETY: the caller's.
    remote::waiting(|| unsafe { fold_in(team, data, function, floor) });
    frame.tid.get() == 0
}

unsafe fn fold_in(team: &Team, data: *mut c_void, function: Fold, floor: usize) {
    let frame = here();
    let folds = frame.folds.get();
    frame.folds.set(folds + 1);
    let number = work::NUMBERS + folds % work::NUMBERS;
    let local = thread::current().local.get();
    team.pieces[local].store(data as usize, Release);
    // the last to come does not fold: the lowest does, on its own stack
    local_barrier(team, || ());
    if local == 0 {
        for other in 1..team.locals() {
            // SAFETY: the others wait until their copies are folded.
            unsafe { function(data, team.pieces[other].load(Acquire) as *mut c_void) };
        }
        if team.ranks() > 1 && run::rank() > 0 {
            give(team, data, (number, folds + 1), floor);
        } else if team.ranks() > 1 {
            // SAFETY: the caller's
            unsafe { fold_given(team, data, function, (number, folds + 1)) };
        }
    }
    local_barrier(team, || ());
}

/// Ranks above 0: ships this rank's copies to rank 0.
fn give(team: &Team, data: *mut c_void, (number, fold): (u64, u64), floor: usize) {
    // what was allocated may be led to by the copies (vectors)
    let slots = (0..team.locals()).map(|local| slot(run::rank(), local, team.ranks()));
    let used = slots.into_iter().any(alloc::used);
    let top = thread::current().top.get();
    let own = used && leads_to_heaps(team, floor, top);
    coherence::give(number, fold, (floor, top), data as usize, used, own);
}

/// Whether any word of a piece of this thread's stack points into the heaps of this rank's threads.
fn leads_to_heaps(team: &Team, floor: usize, top: usize) -> bool {
    let heap = |local| SLOT_HEAPS + slot(run::rank(), local, team.ranks()) * SLOT_HEAP_BYTES;
    // SAFETY: the calling thread's frames
    let words =
        unsafe { core::slice::from_raw_parts((floor & !7) as *const usize, (top - (floor & !7)) / 8) };
    words.iter().any(|word| (0..team.locals()).any(|local| word.wrapping_sub(heap(local)) < SLOT_HEAP_BYTES))
}

/// Rank 0: folds what other ranks give.
unsafe fn fold_given(team: &Team, data: *mut c_void, function: Fold, (number, fold): (u64, u64)) {
    for rank in 1..team.ranks() {
        thread::stack(slot(rank, 0, team.ranks()));
    }
    coherence::fold(number, fold, &mut |other| {
        // SAFETY: the piece is where it was on its rank
        unsafe { function(data, other as *mut c_void) };
    });
}

/// Has `data`, which one thread gives (null by the others), read by all: what it leads to is on that thread's stack above `floor`, or shared.
pub fn copy(data: *mut c_void, floor: usize) -> *mut c_void {
    let frame = here();
    let Some(team) = frame.team.get() else { return data };
    if !data.is_null() {
        for (word, value) in team.copied.iter().zip([data as usize, floor, thread::current().top.get()]) {
            word.store(value, Relaxed);
        }
    }
    barrier_then(|team, place| {
        if team.ranks() > 1 {
            let [data, low, high] = [0, 1, 2].map(|word: usize| team.copied[word].load(Relaxed));
            if run::rank() > 0 {
                thread::stack(slot(0, 0, team.ranks()));
                team.copied[0].store(coherence::exchange_with(place, 0, 0, 0), Relaxed);
            } else {
                coherence::exchange_with(place, low, high, data);
            }
        }
    });
    team.copied[0].load(Relaxed) as *mut c_void
}

/// All have copied: the one that gave may go on.
pub fn copied() {
    if let Some(team) = here().team.get() {
        local_barrier(team, || ());
    }
}
