//! In which order rank 0 does what threads of other ranks ask of its memory: behind what these rely on, and without waiting for it.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::area::LOCALS;

use super::host::Host;
use super::rank::Rank;

/// How far a rank has come.
#[derive(Debug)]
pub struct Order {
    /// The region, and `single`s of it that a thread has taken.
    claimed: AtomicU64,
    /// The one that each of its threads has taken and that is not known to be over; 0: none.
    open: [AtomicU64; LOCALS],
    /// Whether rank 0's thread 0 waits for what other threads have.
    waits: AtomicBool,
    /// Whether what it waits for are other ranks' parts of a reduction.
    pub(super) folds: AtomicBool,
    /// Up to which reduction of which region rank 0 has folded what it was given.
    pub(super) folded: AtomicU64,
    /// Whether it goes around a loop that waits for what others store.
    looks: AtomicBool,
    /// How often this rank's memory was made equal to all others'.
    settled: AtomicU64,
}

impl Default for Order {
    fn default() -> Self {
        Self {
            claimed: AtomicU64::new(0),
            open: [const { AtomicU64::new(0) }; LOCALS],
            waits: AtomicBool::new(false),
            folds: AtomicBool::new(false),
            folded: AtomicU64::new(0),
            looks: AtomicBool::new(false),
            settled: AtomicU64::new(0),
        }
    }
}

impl Order {
    /// Whether rank 0 has all `single`s up to this one behind it.
    fn are_over(&self, single: u64) -> bool {
        self.claimed.load(Ordering::SeqCst) >= single
            && self.open.iter().map(|open| open.load(Ordering::SeqCst)).all(|open| open == 0 || open > single)
    }
}

/// Where a thread of another rank is that has rank 0's memory changed, of which rank 0 must not be short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The region, and `single`s of it that the thread has come to.
    singles: u64,
    /// How often its rank's memory was made equal to all others'.
    settled: u64,
    /// Whether the thread has a token.
    holds: bool,
}

impl Point {
    /// As it travels.
    pub fn to_bytes(self) -> [u8; 24] {
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
}

impl<H: Host> Rank<H> {
    /// A region of several ranks begins, with memories that are equal.
    pub(super) fn order_begins(&self) {
        self.order.claimed.store(self.numbered(0), Ordering::Release);
        self.settled();
    }

    /// What others told has been applied.
    pub(super) fn settled(&self) {
        self.order.settled.fetch_add(1, Ordering::Release);
    }

    /// Rank 0: whether the calling thread is the first to come to the region's `single` of this number, and so does it, as where there is one memory. A program may rely on
    /// it that what was stored in a `single` that nobody waits for is there when others, behind it and after some work, update the same by atomic operations: with one
    /// memory that is so, as it has long happened by then.
    pub fn comes_first(&self, single: u64) -> bool {
        let open = &self.order.open[self.host.local()];
        // before it is taken, so that nobody sees it taken and not open
        open.store(self.numbered(single), Ordering::SeqCst);
        let first =
            self.order.claimed.fetch_max(self.numbered(single), Ordering::SeqCst) < self.numbered(single);
        if !first {
            self.passed();
        }
        first
    }

    /// What the calling thread has taken is over.
    pub fn passed(&self) {
        self.order.open[self.host.local()].store(0, Ordering::Release);
    }

    /// Waits by `wait` for what other threads have: a token, a lock, their part of a reduction.
    pub fn waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.tell_first();
        let first = self.host.is_first();
        if first {
            self.order.waits.store(true, Ordering::Relaxed);
        }
        let got = wait();
        if first {
            self.order.waits.store(false, Ordering::Relaxed);
        }
        got
    }

    /// Whether rank 0's thread 0 waits, and not for what it folds.
    pub(super) fn waits_elsewhere(&self) -> bool {
        self.order.waits.load(Ordering::Relaxed) && !self.order.folds.load(Ordering::Relaxed)
    }

    /// Where the calling thread is.
    pub(super) fn here(&self) -> Point {
        let singles = self.numbered(self.host.singles());
        Point { singles, holds: self.host.tokens() > 0, ..self.anywhere() }
    }

    /// Wherever thread 0 is.
    pub(super) fn anywhere(&self) -> Point {
        Point { singles: 0, settled: self.order.settled.load(Ordering::Relaxed), holds: false }
    }

    /// A loop that waits for what others store has looked at it, and goes on or is over: takes over what others told, and what rank 0 or those who are about to tell it know.
    /// `place`: any that is shared.
    pub fn look(&self, place: usize, goes_on: bool) {
        self.flush();
        // what was loaded may be of a rank that is about to tell rank 0 of other stores, or rank 0's own, told while that went on storing
        if self.host.rank() > 0 {
            self.see_rank_0(place);
        } else {
            self.all_is_told();
        }
        if self.host.is_first() {
            self.order.looks.store(goes_on, Ordering::Relaxed);
        }
    }

    /// Rank 0: whether it is not past that `single`, and waits for what others store.
    pub(super) fn is_held_up(&self, point: &Point) -> bool {
        self.order.looks.load(Ordering::Relaxed) && !self.order.are_over(point.singles)
    }

    /// Rank 0's server thread: whether rank 0 has come there. If thread 0 waits, it may be for what the asking thread has; then that goes first, which nothing
    /// in the program forbids.
    pub(super) fn has_come_to(&self, point: &Point) -> bool {
        // what others told is being applied: that waits for nobody, and is over soon
        let settled = (0..1000).any(|_| {
            let settled = self.order.settled.load(Ordering::Acquire) >= point.settled;
            if !settled {
                self.host.pause(0, 0);
            }
            settled
        });
        settled
            && (self.order.are_over(point.singles) || point.holds && self.order.waits.load(Ordering::Relaxed))
    }
}
