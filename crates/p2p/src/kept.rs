//! States of parts that are kept here: this member's own, to go back to, and those of the member before it, which may be lost.

use crate::view::Stamp;
use std::collections::{BTreeMap, HashMap};

/// Bytes before those of a piece of a state: how many there are in all, where these belong, of which stage it is, and four that are 0.
pub(crate) const PIECE_HEAD: usize = 24;
/// Bytes of a state, at most.
const STATE: u64 = 1 << 33;

/// How many states of a part stay: so many of the newest, and so many of the newest stage that there are some of, and of the one before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stay {
    pub(crate) newest: usize,
    pub(crate) of_stages: [usize; 2],
}

impl Stay {
    /// Twice as many.
    pub(crate) fn twice(self) -> Self {
        Self { newest: self.newest * 2, of_stages: self.of_stages.map(|most| most * 2) }
    }
}

#[derive(Default)]
pub(crate) struct Kept {
    states: BTreeMap<(u32, Stamp), Vec<u8>>,
    /// By who sends them, and of which part.
    coming: HashMap<(usize, u32), (Stamp, Vec<u8>)>,
}

/// What stands before the bytes of a piece of a state.
pub(crate) fn piece_head(total: usize, offset: usize, stage: u32) -> [u8; PIECE_HEAD] {
    let mut head = [0; PIECE_HEAD];
    head[..8].copy_from_slice(&(total as u64).to_le_bytes());
    head[8..16].copy_from_slice(&(offset as u64).to_le_bytes());
    head[16..20].copy_from_slice(&stage.to_le_bytes());
    head
}

impl Kept {
    /// Keeps a state.
    pub(crate) fn put(&mut self, part: u32, stamp: Stamp, bytes: Vec<u8>) {
        self.states.insert((part, stamp), bytes);
    }

    pub(crate) fn get(&self, part: u32, stamp: Stamp) -> Option<&[u8]> {
        self.states.get(&(part, stamp)).map(Vec::as_slice)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, Stamp)> + '_ {
        self.states.keys().copied()
    }

    /// Forgets all of a part but so many, and besides those that are needed; which.
    pub(crate) fn retire(&mut self, part: u32, stay: Stay, is_needed: impl Fn(Stamp) -> bool) -> Vec<Stamp> {
        let of = |stage: u32, number: u64| (part, Stamp { stage, number });
        let all = self.states.range(of(0, 0)..=of(u32::MAX, u64::MAX));
        let mut old: Vec<Stamp> = all.map(|((_, stamp), _)| *stamp).collect();
        old.reverse();
        // how many there are that are newer, of the same stage and in all, and how many stages
        let (mut stage, mut newer, mut before, mut stages) = (None, 0, 0, 0);
        old.retain(|stamp| {
            if is_needed(*stamp) {
                return false;
            }
            if stage.replace(stamp.stage).is_some_and(|stage| stage != stamp.stage) {
                (newer, stages) = (0, stages + 1);
            }
            let stays = before < stay.newest || stay.of_stages.get(stages).is_some_and(|most| newer < *most);
            (newer, before) = (newer + 1, before + 1);
            !stays
        });
        old.iter().for_each(|stamp| _ = self.states.remove(&(part, *stamp)));
        old
    }

    /// Forgets those that this says.
    pub(crate) fn forget(&mut self, which: impl Fn(u32, Stamp) -> bool) {
        self.states.retain(|(part, stamp), _| !which(*part, *stamp));
    }

    /// What was on its way from members of a view that is over will not come.
    pub(crate) fn begin_anew(&mut self) {
        self.coming.clear();
    }

    /// A piece of a state came, with this number; which it is, if it is whole now.
    ///
    /// # Errors
    /// It is not the piece that follows.
    pub(crate) fn take_in(
        &mut self,
        from: usize,
        part: u32,
        number: u64,
        piece: &[u8],
    ) -> Result<Option<Stamp>, &'static str> {
        let word =
            |at: usize| piece.get(at..).and_then(|rest| rest.first_chunk()).map(|n| u64::from_le_bytes(*n));
        let (Some(total), Some(offset), Some(stage)) = (word(0), word(8), word(16)) else {
            return Err("a piece of a state has no head");
        };
        let Ok(stage) = u32::try_from(stage) else {
            return Err("what is kept free in the head of a state is used");
        };
        let stamp = Stamp { stage, number };
        let bytes = &piece[PIECE_HEAD..];
        let coming = self.coming.entry((from, part)).or_insert((stamp, Vec::new()));
        if offset == 0 {
            *coming = (stamp, Vec::new());
        }
        if total > STATE
            || (coming.0, coming.1.len() as u64) != (stamp, offset)
            || offset + bytes.len() as u64 > total
        {
            return Err("a piece of a state is not the one that follows");
        }
        coming.1.extend(bytes);
        if (coming.1.len() as u64) < total {
            return Ok(None);
        }
        if let Some((_, whole)) = self.coming.remove(&(from, part)) {
            self.states.insert((part, stamp), whole);
        }
        Ok(Some(stamp))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(total: usize, offset: usize, bytes: &[u8]) -> Vec<u8> {
        [&piece_head(total, offset, 2)[..], bytes].concat()
    }

    fn of(stage: u32, number: u64) -> Stamp {
        Stamp { stage, number }
    }

    #[test]
    fn a_state_is_put_together_and_old_ones_are_forgotten() {
        let mut kept = Kept::default();
        assert_eq!(kept.take_in(1, 7, 30, &piece(5, 0, b"abc")), Ok(None));
        assert_eq!(kept.all().count(), 0);
        assert_eq!(kept.take_in(1, 7, 30, &piece(5, 3, b"de")), Ok(Some(of(2, 30))));
        assert_eq!(kept.get(7, of(2, 30)), Some(&b"abcde"[..]));
        // one that is begun anew, by another, and an empty one
        assert_eq!(kept.take_in(1, 7, 60, &piece(5, 0, b"abc")), Ok(None));
        assert_eq!(kept.take_in(2, 7, 60, &piece(0, 0, b"")), Ok(Some(of(2, 60))));
        assert_eq!(kept.take_in(1, 7, 90, &piece(2, 0, b"xy")), Ok(Some(of(2, 90))));
        assert_eq!(kept.retire(7, TWO, |stamp| stamp.number == 90), Vec::<Stamp>::new());
        assert_eq!(kept.retire(7, TWO, |_| false), [of(2, 30)]);
        assert_eq!(kept.all().collect::<Vec<_>>(), [(7, of(2, 60)), (7, of(2, 90))]);
        kept.forget(|_, stamp| stamp.number > 60);
        assert_eq!(kept.all().collect::<Vec<_>>(), [(7, of(2, 60))]);
    }

    const TWO: Stay = Stay { newest: 2, of_stages: [0; 2] };

    #[test]
    fn of_the_stage_before_the_newest_some_stay() {
        let mut kept = Kept::default();
        for (stage, number) in [(0, 90), (1, 10), (1, 20), (1, 30), (3, 31)] {
            kept.put(7, of(stage, number), Vec::new());
        }
        kept.put(8, of(0, 5), Vec::new());
        let stay = Stay { newest: 0, of_stages: [3, 2] };
        assert_eq!(kept.retire(7, stay, |_| false), [of(1, 10), of(0, 90)]);
        assert_eq!(kept.retire(7, stay, |_| false), []);
        assert_eq!(kept.retire(7, TWO, |_| false), [of(1, 20)]);
        assert_eq!(kept.all().count(), 3);
    }

    #[test]
    fn pieces_that_do_not_follow_are_refused() {
        let mut kept = Kept::default();
        let mut free = piece(5, 0, b"abc");
        free[23] = 1;
        for bad in
            [piece(5, 1, b"abc"), piece(2, 0, b"abc"), piece(1 << 40, 0, b"abc"), b"short".to_vec(), free]
        {
            assert!(kept.take_in(1, 7, 30, &bad).is_err());
        }
        assert_eq!(kept.take_in(1, 7, 30, &piece(5, 0, b"abc")), Ok(None));
        assert!(kept.take_in(1, 7, 60, &piece(5, 3, b"de")).is_err(), "of another iteration");
        assert!(
            kept.take_in(1, 7, 30, &[&piece_head(5, 3, 3)[..], b"de"].concat()).is_err(),
            "of another stage"
        );
    }
}
