//! How bytes come from some ranks of a host to others: by slots, in pieces.
//!
//! What is longer than a slot goes piece by piece. Where only one rank writes or only one reads, the others are up to four pieces
//! ahead, or 64 short operations; where all read of all, nobody is more than one ahead.

use std::ptr;

use crate::area::PAYLOAD;
use crate::library::Failed;
use crate::reach::Part;
use crate::team::{Call, Team};

/// Copies between memory of the program's or ours and slots; they never overlap.
///
/// # Safety
/// As of `copy_nonoverlapping`.
pub unsafe fn copy(from: *const u8, into: *mut u8, bytes: usize) {
    // SAFETY: as the caller says
    unsafe { ptr::copy_nonoverlapping(from, into, bytes) }
}

/// The pieces of so many bytes, each as long as `most` allows: where each begins, and its length.
pub fn pieces(bytes: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..bytes).step_by(most.max(1)).map(move |at| (at, most.min(bytes - at)))
}

/// Where each of several parts begins that stand one behind the other.
pub fn begins(lengths: &[usize]) -> Vec<usize> {
    let begin = |next: &mut usize, length: &usize| {
        let begin = *next;
        *next += length;
        Some(begin)
    };
    lengths.iter().scan(0, begin).collect()
}

/// The most.
pub fn longest(lengths: &[usize]) -> usize {
    lengths.iter().copied().max().unwrap_or(0)
}

/// One of `parts` parts of so many elements: at which byte it begins, and its bytes.
pub fn part_of(count: usize, extent: usize, part: usize, parts: usize) -> (usize, usize) {
    let (first, end) = (count * part / parts, count * (part + 1) / parts);
    (first * extent, (end - first) * extent)
}

impl Team {
    /// Whether no other rank is on this host.
    pub fn is_alone(&self) -> bool {
        self.mates() == 1
    }

    /// All contribute `bytes`, which places may have different numbers of, from `own`, and `at` reads all of them: by place, in order. Where
    /// that is not this rank, it only contributes.
    pub fn collect(
        &mut self,
        at: usize,
        call: Call,
        own: *const u8,
        bytes: impl Fn(usize) -> usize,
        mut each: impl FnMut(usize, *const u8) -> Result<(), Failed>,
        order: impl Iterator<Item = usize>,
    ) -> Result<(), Failed> {
        let number = if self.place == at {
            let number = self.next();
            for place in order {
                let from = if place == at { own } else { self.read(place, number, call, bytes(place))? };
                each(place, from)?;
            }
            number
        } else {
            let bytes = bytes(self.place);
            let turn = self.turn(bytes)?;
            // SAFETY: the caller's bytes, no more than a slot takes
            unsafe { copy(own, turn.payload, bytes) };
            self.fill(&turn, call);
            turn.number()
        };
        self.over(number);
        Ok(())
    }

    /// All of `bytes` that one has goes to all others, each of whom is given the pieces as they come.
    fn spread_pieces(
        &mut self,
        at: usize,
        call: Call,
        from: *const u8,
        bytes: usize,
        mut each: impl FnMut(*const u8, usize, usize),
    ) -> Result<(), Failed> {
        if self.is_alone() {
            return Ok(());
        }
        for (start, length) in pieces(bytes, PAYLOAD) {
            let number = if self.place == at {
                let turn = self.turn(length)?;
                // SAFETY: within the caller's bytes, no more than a slot takes
                unsafe { copy(from.add(start), turn.payload, length) };
                self.fill(&turn, call);
                turn.number()
            } else {
                let number = self.next();
                each(self.read(at, number, call, length)?, start, length);
                number
            };
            self.over(number);
        }
        Ok(())
    }

    /// `at` has `bytes` at `data`, and all others get them there.
    pub fn spread(&mut self, at: usize, call: Call, data: *mut u8, bytes: usize) -> Result<(), Failed> {
        self.spread_pieces(at, call, data, bytes, |theirs, start, length| {
            // SAFETY: the caller's place for as many bytes
            unsafe { copy(theirs, data.add(start), length) };
        })
    }

    /// The same with places that stand one behind the other where they come from.
    pub fn spread_to(&mut self, at: usize, call: Call, from: *const u8, into: &[Part]) -> Result<(), Failed> {
        let bytes = into.iter().map(|part| part.bytes).sum();
        let (mut now, mut filled) = (into.iter(), 0);
        let mut part = now.next();
        self.spread_pieces(at, call, from, bytes, |theirs, _, length| {
            let mut read = 0;
            while let (Some(into), true) = (part, read < length) {
                let portion = (into.bytes - filled).min(length - read);
                // SAFETY: within a place of the program's, and what came
                unsafe { copy(theirs.wrapping_add(read), into.at.wrapping_add(filled), portion) };
                read += portion;
                filled += portion;
                if filled == into.bytes {
                    (part, filled) = (now.next(), 0);
                }
            }
        })
    }

    /// What each place has, as long as `lengths` says, comes to one of them, one behind the other.
    pub fn gather_here(
        &mut self,
        at: usize,
        call: Call,
        own: *const u8,
        lengths: &[usize],
        into: *mut u8,
    ) -> Result<(), Failed> {
        let begin = begins(lengths);
        for (start, _) in pieces(longest(lengths), PAYLOAD) {
            let piece = |place: usize| lengths[place].saturating_sub(start).min(PAYLOAD);
            let each = |place: usize, theirs: *const u8| {
                let into = into.wrapping_add(begin[place] + start);
                if !ptr::eq(theirs, into) {
                    // SAFETY: a piece of a contribution, and where it belongs
                    unsafe { copy(theirs, into, piece(place)) };
                }
                Ok(())
            };
            let mates = self.mates();
            self.collect(at, call, own.wrapping_add(start), piece, each, 0..mates)?;
        }
        Ok(())
    }

    /// The opposite: each place gets its part, unless it has it already, as one of them may.
    pub fn scatter_here(
        &mut self,
        at: usize,
        call: Call,
        from: *const u8,
        lengths: &[usize],
        into: Option<*mut u8>,
    ) -> Result<(), Failed> {
        let (mates, own, begin) = (self.mates(), self.place, begins(lengths));
        // as many bytes of each one's part as a slot takes of all
        let most = PAYLOAD / mates;
        for (start, _) in pieces(longest(lengths), most) {
            let piece = |place: usize| lengths[place].saturating_sub(start).min(most);
            let here = |place: usize| (0..place).map(piece).sum::<usize>();
            let into = into.map(|into| into.wrapping_add(start));
            if own != at {
                let number = self.next();
                let theirs = self.read(at, number, call, here(mates))?;
                if let Some(into) = into {
                    // SAFETY: this rank's piece, and its place
                    unsafe { copy(theirs.add(here(own)), into, piece(own)) };
                }
                self.over(number);
                continue;
            }
            let part = |place: usize| from.wrapping_add(begin[place] + start);
            if mates > 1 {
                let turn = self.turn(here(mates))?;
                for other in (0..mates).filter(|other| *other != own) {
                    // SAFETY: within the parts, and the slot
                    unsafe { copy(part(other), turn.payload.add(here(other)), piece(other)) };
                }
                self.fill(&turn, call);
                self.over(turn.number());
            }
            if let Some(into) = into {
                // SAFETY: within the parts, and its place, which Open MPI takes where it is the same, too
                unsafe { ptr::copy(part(own), into, piece(own)) };
            }
        }
        Ok(())
    }

    /// All contribute what `put` writes, of `bytes`, and all read of all.
    pub fn exchange(
        &mut self,
        call: Call,
        bytes: usize,
        put: impl FnOnce(*mut u8),
        mut each: impl FnMut(usize, *const u8) -> Result<(), Failed>,
        order: impl Iterator<Item = usize>,
    ) -> Result<(), Failed> {
        let turn = self.turn(bytes)?;
        put(turn.payload);
        self.fill(&turn, call);
        for place in order {
            let from = if place == self.place {
                turn.payload.cast_const()
            } else {
                self.read(place, turn.number(), call, bytes)?
            };
            each(place, from)?;
        }
        self.over_for_all(turn.number());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_all() {
        let of = |bytes, most| pieces(bytes, most).collect::<Vec<_>>();
        assert_eq!(of(0, 8), []);
        assert_eq!(of(8, 8), [(0, 8)]);
        assert_eq!(of(17, 8), [(0, 8), (8, 8), (16, 1)]);
    }
}
