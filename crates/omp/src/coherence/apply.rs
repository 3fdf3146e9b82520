//! Applying what ranks changed, to memory and to the twins.

use core::ops::Range;

use crate::blob::Change;
use crate::diff::{Mask, Page, diff};
use crate::layout::PAGE;
use crate::merge::{Conflict, Refused, Step, Twins, check, combine, visit, word};
use crate::pages::Pages;

use super::Memory;
use super::tracked::{Tracked, near};

impl<M: Memory> Tracked<M> {
    /// Checks all ranks' blobs (`blobs[rank]`, [`encode_all`](Self::encode_all)'s of this rank included, by which nothing else has changed meanwhile) against each other, then
    /// applies them: others' to memory and twins, this rank's to the twins. No thread of the team runs program code.
    ///
    /// # Errors
    /// Then nothing is applied.
    pub fn merge(&mut self, blobs: &[&[u8]], own: usize) -> Result<(), Refused> {
        let mut written = Pages::default();
        check(blobs, self, |step| match step {
            Step::One(rank, _) if *rank as usize == own => {}
            Step::One(_, record) => {
                written.push(record.address as usize, record.address as usize + record.pages as usize * PAGE);
            }
            Step::Many(address, _) => written.push(*address as usize, *address as usize + PAGE),
        })?;
        self.memory.release(&written);
        visit(blobs, |step| {
            match step {
                Step::One(rank, record) => self.memory.take(&record, rank as usize != own),
                Step::Many(address, changes) => {
                    let combined = combine(address, self.twin(address), changes, Some(own as u32))
                        .map_err(Refused::Conflict)?;
                    let (page, twin) = self.memory.page_mut(address as usize);
                    *twin = combined.page;
                    combined.others.copy(&combined.page, page);
                }
            }
            Ok(())
        })?;
        let found = self.memory.forget(&written);
        self.pending.add(&found);
        Ok(())
    }

    /// Applies what `rank` published, to memory and twins, on rank `own`. Changes of this rank that are not published stay; where both changed a byte, differently, it is a
    /// conflict. Other threads of this rank may run; bytes that they use at the same time are a race of the program. Bytes of memory in `kept`, which are places in order, stay as they are: the twins alone
    /// take them over.
    ///
    /// # Errors
    /// Then nothing is applied.
    pub fn apply(
        &mut self,
        own: usize,
        rank: usize,
        entry: &[u8],
        kept: &[Range<usize>],
    ) -> Result<(), Refused> {
        each(entry, &mut |at, change| {
            if !self.memory.ready(at) {
                return Ok(());
            }
            if !self.memory.is_known(at, 1) {
                return Err(Refused::Foreign { rank: rank as u32, address: at as u64 });
            }
            let (now, twin) = self.memory.page(at);
            let mut theirs = *twin;
            change.blend(&mut theirs);
            let mut both = diff(now, twin).and(&change.mask(twin)).and(&diff(now, &theirs));
            if let Some(part) = self.part(at) {
                both = both.and(&part);
            }
            if let Some(others) = without(at, kept) {
                both = both.and(&others);
            }
            let Some(byte) = both.first() else { return Ok(()) };
            let mut sides = [(own as u32, word(now, byte)), (rank as u32, word(&theirs, byte))];
            sides.sort_unstable_by_key(|side| side.0);
            Err(Refused::Conflict(Conflict {
                address: (at + byte) as u64,
                ranks: sides.map(|side| side.0),
                values: sides.map(|side| side.1),
                before: word(twin, byte),
            }))
        })?;
        each(entry, &mut |at, change| {
            if !self.memory.ready(at) {
                return Ok(());
            }
            let (now, twin) = self.memory.page_mut(at);
            // Memory is changed by the byte. That the page is listed as written costs one comparison; protecting it again could lose what other threads write meanwhile.
            match without(at, kept) {
                None => change.apply(now),
                Some(others) => {
                    let mut theirs = *twin;
                    change.blend(&mut theirs);
                    change.mask(twin).and(&others).copy(&theirs, now);
                }
            }
            change.blend(twin);
            Ok(())
        })
    }
}

/// Bytes of a page that are not `kept`, if some are.
fn without(at: usize, kept: &[Range<usize>]) -> Option<Mask> {
    let mut mask = Mask::NONE;
    near(kept, at).for_each(|kept| mask.set(kept.start.max(at) - at, kept.end.min(at + PAGE) - at));
    (!mask.is_empty()).then(|| {
        mask.0.iter_mut().for_each(|word| *word = !*word);
        mask
    })
}

/// Each page of an entry.
fn each(entry: &[u8], f: &mut dyn FnMut(usize, Change<'_>) -> Result<(), Refused>) -> Result<(), Refused> {
    visit(&[entry], |step| {
        let Step::One(_, record) = step else { return Ok(()) };
        (0..record.pages).try_for_each(|i| f(record.address as usize + i as usize * PAGE, record.change(i)))
    })
}

/// Which bytes an entry tells of, by page, in order.
pub fn bytes_of(entry: &[u8]) -> Vec<(usize, Mask)> {
    let mut told = Vec::new();
    // it has been applied, so it is well formed
    let _ = each(entry, &mut |at, change| {
        told.push((at, seen(&change).0));
        Ok(())
    });
    told
}

/// Whether a byte is among them.
pub fn is_in(told: &[(usize, Mask)], at: usize) -> bool {
    let byte = at & (PAGE - 1);
    let page = told.binary_search_by_key(&(at - byte), |(page, _)| *page);
    page.is_ok_and(|page| told[page].1.0[byte / 64] >> (byte % 64) & 1 == 1)
}

/// Bytes that are published with a page, and the page with these. What is published is exact: what comes without a mask is all bytes.
fn seen(change: &Change<'_>) -> (Mask, Page) {
    let mut page = [0; PAGE];
    change.blend(&mut page);
    match change {
        Change::Whole(_) | Change::Zero => (Mask::ALL, page),
        change => (change.mask(&page), page),
    }
}

/// Where two ranks' publications, of which neither knew the other, say different things.
pub fn contradiction(one: (usize, &[u8]), other: (usize, &[u8])) -> Option<Conflict> {
    let mut found = None;
    // both were applied or made here, so they are well formed
    let _ = visit(&[one.1, other.1], |step| {
        let Step::Many(address, [(_, left), (_, right)]) = step else { return Ok(()) };
        let ((mine, left), (theirs, right)) = (seen(left), seen(right));
        if let (None, Some(byte)) = (found, mine.and(&theirs).and(&diff(&left, &right)).first()) {
            let mut sides = [(one.0 as u32, word(&left, byte)), (other.0 as u32, word(&right, byte))];
            sides.sort_unstable_by_key(|side| side.0);
            found = Some(Conflict {
                address: address + byte as u64,
                ranks: sides.map(|side| side.0),
                values: sides.map(|side| side.1),
                before: 0,
            });
        }
        Ok(())
    });
    found
}
