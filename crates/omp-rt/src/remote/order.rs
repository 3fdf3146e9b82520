//! In which order rank 0 does what threads of other ranks ask of its memory: behind what these rely on, and without waiting for it.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use polyrail_omp::area::LOCALS;

use crate::{input, sys, team};

/// How far rank 0 has come: the region, and `single`s of it that a thread has taken.
static CLAIMED: AtomicU64 = AtomicU64::new(0);
/// The one that each of its threads has taken and that is not known to be over; 0: none.
static OPEN: [AtomicU64; LOCALS] = [const { AtomicU64::new(0) }; LOCALS];
/// Whether rank 0's thread 0 waits for what other threads have.
static WAITS: AtomicBool = AtomicBool::new(false);
/// Whether what it waits for are other ranks' parts of a reduction.
static FOLDS: AtomicBool = AtomicBool::new(false);
/// How often this rank's memory was made equal to all others'.
static SETTLED: AtomicU64 = AtomicU64::new(0);

/// A region of several ranks begins, with memories that are equal.
pub fn region_begins() {
    CLAIMED.store(numbered(0), Ordering::Release);
    settled();
}

/// What others told has been applied.
pub fn settled() {
    SETTLED.fetch_add(1, Ordering::Release);
}

/// Rank 0: whether the calling thread is the first to come to the region's `single` of this number, and so does it, as where there is one memory. A program may rely on
/// it that what was stored in a `single` that nobody waits for is there when others, behind it and after some work, update the same by atomic operations: with one
/// memory that is so, as it has long happened.
pub fn comes_first(single: u64) -> bool {
    let open = &OPEN[team::thread().local.get()];
    // before it is taken, so that nobody sees it taken and not open
    open.store(numbered(single), Ordering::SeqCst);
    let first = CLAIMED.fetch_max(numbered(single), Ordering::SeqCst) < numbered(single);
    if !first {
        passed();
    }
    first
}

/// What the calling thread has taken is over.
pub fn passed() {
    OPEN[team::thread().local.get()].store(0, Ordering::Release);
}

/// Whether rank 0 has all `single`s up to this one behind it.
fn are_over(single: u64) -> bool {
    CLAIMED.load(Ordering::SeqCst) >= single
        && OPEN.iter().map(|open| open.load(Ordering::SeqCst)).all(|open| open == 0 || open > single)
}

/// Of what is counted in a region, a number that grows from region to region.
pub fn numbered(count: u64) -> u64 {
    (super::REGION.load(Ordering::Relaxed) << 32) + count
}

/// Waits by `wait` for what other threads have: a token, a lock, their part of a reduction.
pub fn waiting<T>(wait: impl FnOnce() -> T) -> T {
    input::give_back();
    let first = super::rank() == 0 && team::thread().local.get() == 0 && team::here().spread();
    if first {
        WAITS.store(true, Ordering::Relaxed);
    }
    let got = wait();
    if first {
        WAITS.store(false, Ordering::Relaxed);
    }
    got
}

/// As [`waiting`], by rank 0's thread 0 for what it folds.
pub fn folding<T>(fold: impl FnOnce() -> T) -> T {
    FOLDS.store(true, Ordering::Relaxed);
    let got = fold();
    FOLDS.store(false, Ordering::Relaxed);
    got
}

/// Whether rank 0's thread 0 waits, and not for what it folds.
pub fn waits_elsewhere() -> bool {
    WAITS.load(Ordering::Relaxed) && !FOLDS.load(Ordering::Relaxed)
}

/// Where a thread of another rank is that has rank 0's memory changed, of which rank 0 must not be short.
pub struct Point {
    /// As [`CLAIMED`].
    singles: u64,
    /// As [`SETTLED`].
    settled: u64,
    /// Whether the thread has a token.
    holds: bool,
}

impl Point {
    /// The calling thread's.
    pub fn here() -> Self {
        Self { singles: numbered(team::singles()), holds: team::thread().tokens.get() > 0, ..Self::any() }
    }

    /// Wherever thread 0 is.
    pub fn any() -> Self {
        Self { singles: 0, settled: SETTLED.load(Ordering::Relaxed), holds: false }
    }

    /// As it travels.
    pub fn to_bytes(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        for (to, word) in
            bytes.as_chunks_mut().0.iter_mut().zip([self.singles, self.settled, self.holds.into()])
        {
            *to = word.to_ne_bytes();
        }
        bytes
    }

    /// The reverse, and what follows.
    pub fn from_bytes(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (words, rest) = bytes.split_first_chunk::<24>()?;
        let [singles, settled, holds] = [0, 1, 2].map(|at| u64::from_ne_bytes(words.as_chunks().0[at]));
        Some((Self { singles, settled, holds: holds != 0 }, rest))
    }

    /// Rank 0's server thread: whether rank 0 has come there. If thread 0 waits, it may be for what the asking thread has; then that goes first, which nothing
    /// in the program forbids.
    pub fn is_come(&self) -> bool {
        // what others told is being applied: that waits for nobody, and is over soon
        let settled = (0..1000).any(|_| {
            let settled = SETTLED.load(Ordering::Acquire) >= self.settled;
            if !settled {
                sys::pause(0);
            }
            settled
        });
        settled && (are_over(self.singles) || self.holds && WAITS.load(Ordering::Relaxed))
    }
}
