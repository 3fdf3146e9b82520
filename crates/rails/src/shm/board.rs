//! Which rings have something in them: one page of each worker, which all its peers on the host map.
//!
//! A worker looks at the rings by which something came lately. Of the others it has said that it does not ([`Consumer::arm`]), and who
//! sends by such a ring marks its place on the worker's board. An empty look is thus one load besides the rings in use, however many
//! peers there are. A worker that is about to sleep stops looking at all of them, and says so here: who marks rings its doorbell then.
//!
//! **Order.** A sender publishes, sees that the ring is not looked at, marks, and looks whether the owner sleeps; the owner says that
//! it sleeps, and looks whether anything is marked. Both have a full barrier in between, so that one of them sees the other. Marks are
//! words of bits below a summary of one bit a word: a sender sets from below, the owner clears from above, so that no mark is left
//! without its bit in the summary.
//!
//! **Trust.** All peers write here: processes of one user, who could stop each other anyway, or those that a process of root's let in.
//! What they write has the owner look at rings in vain, sleep on, or not look at a ring: it looks at all of them now and then, also
//! between naps.
//!
//! [`Consumer::arm`]: super::ring::Consumer::arm

use crate::primitive::{AtomicU32, AtomicU64, Line, Ordering::*, fence};

/// Words of marks.
const WORDS: usize = if cfg!(loom) { 1 } else { 64 };
/// Places on a board. Rings whose numbers are alike modulo this share one.
pub(super) const PLACES: usize = WORDS * 64;

/// A board, as all its users map it. All zero: nothing is marked, and the owner is awake.
#[repr(C)]
pub struct Board {
    asleep: Line<AtomicU32>,
    summary: Line<AtomicU64>,
    marks: Line<[AtomicU64; WORDS]>,
}

impl Board {
    /// Marks a place, of which only the remainder by the number of places counts. True: the owner sleeps, and is to be rung for.
    #[cold]
    pub fn mark(&self, place: u32) -> bool {
        let (word, bit) = (place as usize / 64 % WORDS, place % 64);
        self.marks.0[word].fetch_or(1 << bit, AcqRel);
        self.summary.0.fetch_or(1 << word, AcqRel);
        fence(SeqCst);
        self.asleep.0.load(Relaxed) != 0
    }

    /// Marks a place, unless the owner sleeps: that it is not to be rung for.
    #[cold]
    pub fn mark_if_awake(&self, place: u32) {
        if self.asleep.0.load(Relaxed) == 0 {
            self.mark(place);
        }
    }

    /// Whether anything is marked.
    #[inline]
    pub fn is_marked(&self) -> bool {
        self.summary.0.load(Relaxed) != 0
    }

    /// Takes all marks, and says which places they were at.
    #[cold]
    pub fn take(&self, mut at: impl FnMut(usize)) {
        for word in bits(self.summary.0.swap(0, AcqRel)).filter(|word| *word < WORDS) {
            bits(self.marks.0[word].swap(0, AcqRel)).for_each(|bit| at(64 * word + bit));
        }
    }

    /// The owner says whether it sleeps. Whoever marks from now on rings for it; it asks [`is_marked`](Self::is_marked) once more before
    /// it sleeps.
    pub fn sleeps(&self, asleep: bool) {
        self.asleep.0.store(asleep.into(), Relaxed);
        fence(SeqCst);
    }
}

/// The numbers of the bits that are set.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        word &= word.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}

#[cfg(all(test, loom))]
impl Board {
    pub(super) fn empty() -> Self {
        Board {
            asleep: Line(AtomicU32::new(0)),
            summary: Line(AtomicU64::new(0)),
            marks: Line(std::array::from_fn(|_| AtomicU64::new(0))),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn board() -> Board {
        // SAFETY: atomics, of which all zeros are a value.
        unsafe { std::mem::zeroed() }
    }

    fn taken(board: &Board) -> Vec<usize> {
        let mut places = Vec::new();
        board.take(|place| places.push(place));
        places
    }

    #[test]
    fn each_mark_is_taken_once_whatever_its_number() {
        let board = board();
        assert!(!board.is_marked() && taken(&board).is_empty());
        for place in [0, 63, 64, 4095, 64, 4096 + 7, u32::MAX] {
            assert!(!board.mark(place), "nobody sleeps");
        }
        assert!(board.is_marked());
        assert_eq!(taken(&board), [0, 7, 63, 64, 4095]);
        assert!(!board.is_marked() && taken(&board).is_empty());
    }

    #[test]
    fn who_sleeps_is_to_be_rung_for() {
        let board = board();
        board.sleeps(true);
        assert!(board.mark(1) && board.mark(1));
        board.sleeps(false);
        assert!(!board.mark(1));
    }

    /// What others write there by mistake or on purpose.
    #[test]
    fn any_words_name_places_only() {
        let board = board();
        board.summary.0.store(u64::MAX, Relaxed);
        board.marks.0.iter().for_each(|word| word.store(u64::MAX, Relaxed));
        assert_eq!(taken(&board), (0..PLACES).collect::<Vec<_>>());
    }
}
