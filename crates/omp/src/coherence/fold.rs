//! Reductions whose operator the compiler gives as a function (clang's): ranks above 0 give rank 0 pieces of stacks, which folds them, and have them back as it leaves them.
//!
//! A copy may own memory of the rank's heap. Rank 0 may take that over, by moving from the copy; and the rank destroys the copy when it goes on. So a rank whose copies
//! may lead there goes on when rank 0 has folded them, with the copies as they are then.

use core::sync::atomic::Ordering;

use crate::area::Kind;

use super::host::{Host, Trouble};
use super::rank::Rank;

/// What a part of a piece begins with: the word, where the whole begins and ends.
const HEAD: usize = 24;
/// Longest pause between two questions, in microseconds.
const PAUSE: u32 = 2000;
/// Parts of a piece at most.
const PARTS: usize = 256;

/// What a rank gives for a reduction.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// A piece of a stack.
    pub piece: &'a [u8],
    /// Where it stands.
    pub at: usize,
    /// A word for rank 0, whose two lowest bits are free.
    pub word: usize,
    /// Memory was allocated to which the piece may lead.
    pub used: bool,
    /// The piece may own some of it.
    pub own: bool,
}

/// What rank 0 says of a piece behind the folding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Back {
    /// It is not folded yet; whether thread 0 waits for something else meanwhile.
    NotYet(bool),
    /// Whose, from where on, how many bytes.
    Of(usize, usize, usize),
}

impl<H: Host> Rank<H> {
    /// Ranks above 0: gives rank 0 what it is to fold, as reduction `number` of the region, the `fold`-th; takes back by `take`, at addresses, what it may own.
    pub fn give(&self, number: u64, fold: u64, given: &Given<'_>, take: &mut dyn FnMut(usize, &[u8])) {
        if given.used {
            // it must be there before the piece is
            self.flush();
        }
        let Given { piece, at, word, .. } = *given;
        let word = word | usize::from(given.used) | usize::from(given.own) << 1;
        let head: Vec<u8> = [word, at, at + piece.len()].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let parts = piece.chunks(self.host.slot() - HEAD);
        if parts.len() > PARTS {
            self.host.fail(&Trouble::TooMuch(piece.len()));
        }
        for (part, bytes) in parts.enumerate() {
            let name = self.named(number) + part as u64;
            self.host.ask(Kind::Give, [name, 0, 0, 0, 0, 0], &[&head, bytes]);
        }
        if given.own {
            self.take_back(fold, at..at + piece.len(), take);
            self.flush();
        }
    }

    /// Rank 0: waits for what all others gave for reduction `number` of the region, the `fold`-th, puts it where it was on its rank by `put` (rank, address, bytes), and folds
    /// one after the other by `each`, which gets their words.
    pub fn fold(
        &self,
        number: u64,
        fold: u64,
        put: &mut dyn FnMut(usize, usize, &[u8]),
        each: &mut dyn FnMut(usize),
    ) {
        self.order.folds.store(true, Ordering::Relaxed);
        let given = self.collect(number, put);
        for word in &given {
            if word & 1 == 1 {
                self.flush();
            }
            each(word & !3);
        }
        if given.iter().any(|word| word & 2 == 2) {
            // what was taken over from there, or given back, must be known where copies are destroyed
            self.flush();
            self.order.folded.store(self.numbered(fold), Ordering::Release);
        }
        self.order.folds.store(false, Ordering::Relaxed);
    }

    /// Words of what all others gave, in order of ranks. What a rank gives in several parts is as long as its first part says.
    fn collect(&self, number: u64, put: &mut dyn FnMut(usize, usize, &[u8])) -> Vec<usize> {
        let mut words = Vec::new();
        // ranks that give more: where the rest is to be
        let mut more: Vec<(usize, usize, usize)> = (1..self.host.size()).map(|rank| (rank, 0, 0)).collect();
        for part in 0.. {
            let count = more.len() as u64;
            for (which, (rank, at, end)) in more.iter_mut().enumerate() {
                let which = [self.named(number) + part, count, which as u64, 0, 0, 0];
                let answer = self.host.ask(Kind::Collect, which, &[]);
                let Some((head, piece)) = answer.data.split_first_chunk::<HEAD>() else {
                    let why = format!("rank {rank} gave {} bytes to a reduction", answer.data.len());
                    self.host.fail(&Trouble::Broken(why))
                };
                let [word, lo, hi] = [0, 1, 2].map(|at| usize::from_ne_bytes(head.as_chunks().0[at]));
                if part == 0 {
                    words.push(word);
                    (*at, *end) = (lo, hi);
                }
                put(*rank, *at, piece);
                *at += piece.len();
            }
            more.retain(|(_, at, end)| at < end);
            if more.is_empty() {
                break;
            }
        }
        words
    }

    /// Ranks above 0: waits until rank 0 has folded what was given for reduction `fold` of this region, and takes the `piece` back.
    fn take_back(&self, fold: u64, piece: core::ops::Range<usize>, take: &mut dyn FnMut(usize, &[u8])) {
        let begun = self.host.now();
        let part = self.host.slot() - 64;
        for from in piece.clone().step_by(part) {
            let bytes = part.min(piece.end - from);
            let question: Vec<u8> = [self.numbered(fold) as usize, self.host.rank(), from, bytes]
                .iter()
                .flat_map(|word| word.to_ne_bytes())
                .collect();
            for tries in 0.. {
                self.tell_first();
                let answer = self.host.ask_back(&question);
                let waited = self.host.now() - begun;
                match answer.split_first() {
                    Some((0, [])) => {}
                    // rank 0's thread 0 may wait for a lock that this thread has
                    Some((0, _)) if self.host.tokens() == 0 || waited < self.host.patience() => {}
                    Some((1, piece)) if piece.len() == bytes => {
                        take(from, piece);
                        break;
                    }
                    _ => self.host.fail(&Trouble::FoldsLocked),
                }
                self.host.pause(tries, PAUSE);
            }
        }
    }

    /// Rank 0's server thread: which piece a rank wants back.
    pub fn serve_back(&self, question: &[u8]) -> Option<Back> {
        let words: Vec<usize> =
            question.as_chunks().0.iter().map(|word| usize::from_ne_bytes(*word)).collect();
        let [fold, of, from, bytes] = words[..] else { return None };
        if self.order.folded.load(Ordering::Acquire) < fold as u64 {
            return Some(Back::NotYet(self.waits_elsewhere()));
        }
        (of < self.host.size() && bytes < self.host.slot()).then_some(Back::Of(of, from, bytes))
    }
}
