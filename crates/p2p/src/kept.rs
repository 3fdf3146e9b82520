//! States of parts that are kept here: this member's own, to go back to, and those of the member before it, which may be lost.

use std::collections::{BTreeMap, HashMap};

/// Bytes before those of a piece of a state: how many there are in all, and where these belong.
pub(crate) const PIECE_HEAD: usize = 16;
/// Bytes of a state, at most.
const STATE: u64 = 1 << 33;

#[derive(Default)]
pub(crate) struct Kept {
    states: BTreeMap<(u32, u64), Vec<u8>>,
    /// By who sends them, and of which part.
    coming: HashMap<(usize, u32), (u64, Vec<u8>)>,
}

impl Kept {
    /// Keeps a state.
    pub(crate) fn put(&mut self, part: u32, iteration: u64, bytes: Vec<u8>) {
        self.states.insert((part, iteration), bytes);
    }

    pub(crate) fn get(&self, part: u32, iteration: u64) -> Option<&[u8]> {
        self.states.get(&(part, iteration)).map(Vec::as_slice)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.states.keys().copied()
    }

    /// Forgets all of a part but the newest so many, and those that are needed; which.
    pub(crate) fn retire(&mut self, part: u32, most: usize, is_needed: impl Fn(u64) -> bool) -> Vec<u64> {
        let all: Vec<u64> =
            self.states.range((part, 0)..=(part, u64::MAX)).map(|((_, iteration), _)| *iteration).collect();
        let mut old = all[..all.len().saturating_sub(most)].to_vec();
        old.retain(|number| !is_needed(*number));
        old.iter().for_each(|iteration| _ = self.states.remove(&(part, *iteration)));
        old
    }

    /// Forgets those that this says.
    pub(crate) fn forget(&mut self, which: impl Fn(u32, u64) -> bool) {
        self.states.retain(|(part, iteration), _| !which(*part, *iteration));
    }

    /// What was on its way from members of a view that is over will not come.
    pub(crate) fn begin_anew(&mut self) {
        self.coming.clear();
    }

    /// A piece of a state came; whether that is whole now.
    ///
    /// # Errors
    /// It is not the piece that follows.
    pub(crate) fn take_in(
        &mut self,
        from: usize,
        part: u32,
        iteration: u64,
        piece: &[u8],
    ) -> Result<bool, &'static str> {
        let number =
            |at: usize| piece.get(at..).and_then(|rest| rest.first_chunk()).map(|n| u64::from_le_bytes(*n));
        let (Some(total), Some(offset)) = (number(0), number(8)) else {
            return Err("a piece of a state has no head");
        };
        let bytes = &piece[PIECE_HEAD..];
        let coming = self.coming.entry((from, part)).or_default();
        if offset == 0 {
            *coming = (iteration, Vec::new());
        }
        if total > STATE
            || (coming.0, coming.1.len() as u64) != (iteration, offset)
            || offset + bytes.len() as u64 > total
        {
            return Err("a piece of a state is not the one that follows");
        }
        coming.1.extend(bytes);
        if (coming.1.len() as u64) < total {
            return Ok(false);
        }
        let (_, whole) = self.coming.remove(&(from, part)).unwrap_or_default();
        self.states.insert((part, iteration), whole);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(total: u64, offset: u64, bytes: &[u8]) -> Vec<u8> {
        [&total.to_le_bytes()[..], &offset.to_le_bytes(), bytes].concat()
    }

    #[test]
    fn a_state_is_put_together_and_old_ones_are_forgotten() {
        let mut kept = Kept::default();
        assert_eq!(kept.take_in(1, 7, 30, &piece(5, 0, b"abc")), Ok(false));
        assert_eq!(kept.all().count(), 0);
        assert_eq!(kept.take_in(1, 7, 30, &piece(5, 3, b"de")), Ok(true));
        assert_eq!(kept.get(7, 30), Some(&b"abcde"[..]));
        // one that is begun anew, by another, and an empty one
        assert_eq!(kept.take_in(1, 7, 60, &piece(5, 0, b"abc")), Ok(false));
        assert_eq!(kept.take_in(2, 7, 60, &piece(0, 0, b"")), Ok(true));
        assert_eq!(kept.take_in(1, 7, 90, &piece(2, 0, b"xy")), Ok(true));
        assert_eq!(kept.retire(7, 2, |number| number == 30), Vec::<u64>::new());
        assert_eq!(kept.retire(7, 2, |_| false), [30]);
        assert_eq!(kept.all().collect::<Vec<_>>(), [(7, 60), (7, 90)]);
        kept.forget(|_, iteration| iteration > 60);
        assert_eq!(kept.all().collect::<Vec<_>>(), [(7, 60)]);
    }

    #[test]
    fn pieces_that_do_not_follow_are_refused() {
        let mut kept = Kept::default();
        for bad in [piece(5, 1, b"abc"), piece(2, 0, b"abc"), piece(u64::MAX, 0, b"abc"), b"short".to_vec()] {
            assert!(kept.take_in(1, 7, 30, &bad).is_err());
        }
        assert_eq!(kept.take_in(1, 7, 30, &piece(5, 0, b"abc")), Ok(false));
        assert!(kept.take_in(1, 7, 60, &piece(5, 3, b"de")).is_err(), "of another iteration");
    }
}
