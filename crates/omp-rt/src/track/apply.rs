//! Applying what ranks changed, to memory and to the twins.

use polyrail_omp::blob::{Change, Record};
use polyrail_omp::diff::{Mask, diff};
use polyrail_omp::layout::{PAGE, SLOT_HEAP_BYTES, SLOT_HEAPS, SLOTS, TWIN_OFFSET};
use polyrail_omp::merge::{Conflict, Refused, Step, Twins, check, combine, visit, word};

use super::hot::CHUNK;
use super::watch::Pages;
use super::{State, page, page_mut};
use crate::{alloc, raw, remote};

/// From so many pages on, one request that lets them be written costs less than a fault for each.
const MANY: usize = 8;
/// So many bytes are copied to memory and twin while they are in the cache.
const PART: usize = 64 << 10;

impl State {
    /// See [`super::merge()`].
    pub unsafe fn merge(&mut self, blobs: &[&[u8]], own: usize) -> Result<(), Conflict> {
        let mut written = Pages::default();
        check(blobs, self, |step| match step {
            Step::One(rank, _) if *rank as usize == own => {}
            Step::One(_, record) => {
                written.push(record.address as usize, record.address as usize + record.pages as usize * PAGE);
            }
            Step::Many(address, _) => written.push(*address as usize, *address as usize + PAGE),
        })
        .map_err(refused)?;
        self.release(&written);
        visit(blobs, |step| {
            match step {
                // SAFETY: the check found it shared; nobody else uses it, says the caller.
                Step::One(rank, record) => unsafe { self.take(&record, rank as usize != own) },
                Step::Many(address, changes) => {
                    let at = address as usize;
                    let combined = combine(address, self.twin(address), changes, Some(own as u32))
                        .map_err(Refused::Conflict)?;
                    self.used(at);
                    // SAFETY: as above.
                    unsafe {
                        *page_mut(self.twin_at(at)) = combined.page;
                        combined.others.copy(&combined.page, page_mut(at));
                    }
                }
            }
            Ok(())
        })
        .map_err(refused)?;
        self.forget(&written);
        Ok(())
    }
    /// One rank's pages: to the twins, and to memory if they are another's.
    unsafe fn take(&self, record: &Record<'_>, theirs: bool) {
        let from = record.address as usize;
        let bytes = record.pages as usize * PAGE;
        let Some(place) = self.areas.find(from, bytes) else { return };
        self.used(from);
        // SAFETY: the caller's.
        unsafe {
            if let Some(whole) = record.whole() {
                for (i, part) in whole.chunks(PART).enumerate() {
                    let to = from + i * PART;
                    if theirs {
                        core::ptr::copy_nonoverlapping(part.as_ptr(), to as *mut u8, part.len());
                    }
                    core::ptr::copy_nonoverlapping(part.as_ptr(), place.twin(to) as *mut u8, part.len());
                }
            } else if record.is_zero() {
                if theirs {
                    core::ptr::write_bytes(from as *mut u8, 0, bytes);
                }
                core::ptr::write_bytes(place.twin(from) as *mut u8, 0, bytes);
            } else {
                let change = record.change(0);
                change.blend(page_mut(place.twin(from)));
                if theirs {
                    change.blend(page_mut(from));
                }
            }
        }
    }
    /// Notes that a heap is used.
    fn used(&self, address: usize) {
        let inside = address.wrapping_sub(SLOT_HEAPS);
        if inside < SLOTS * SLOT_HEAP_BYTES {
            let slot = inside / SLOT_HEAP_BYTES;
            if alloc::seen(slot) {
                alloc::huge(SLOT_HEAPS + slot * SLOT_HEAP_BYTES + TWIN_OFFSET, SLOT_HEAP_BYTES);
            }
        }
    }
    /// Lets long runs of pages be written without a fault each.
    fn release(&self, written: &Pages) {
        let Some(watch) = &self.watch else { return };
        for &(from, to) in written.runs().iter().filter(|(from, to)| to - from >= MANY * PAGE) {
            // part of a huge page would break it up
            let whole = from.next_multiple_of(CHUNK)..to & !(CHUNK - 1);
            let (from, to) = if whole.is_empty() { (from, to) } else { (whole.start, whole.end) };
            if self.areas.find(from, to - from).is_some_and(|place| place.watched) {
                watch.release(from, to);
            }
        }
    }
    /// What others changed is not to be listed as written here; if more was written meanwhile, that is.
    fn forget(&mut self, written: &Pages) {
        let Some(watch) = &mut self.watch else { return };
        let runs = written.runs();
        let (mut found, mut next, mut at) = (Pages::default(), 0, 0);
        while let Some(&(mut from, mut to)) = runs.get(next) {
            let Some(place) = self.areas.find(from, PAGE) else { return };
            while let Some(run) = runs.get(next).filter(|run| run.0 < place.end) {
                (to, next) = (run.1, next + 1);
            }
            if to - from >= CHUNK {
                // Huge pages stay whole if they are protected as a whole: with what came before, and with what the next round will bring.
                let start = from & !(CHUNK - 1);
                from = if self.areas.find(start, PAGE) == Some(place) { start } else { from };
                to &= !(CHUNK - 1);
            }
            if place.watched {
                self.hot.scan(
                    watch,
                    from,
                    to,
                    |from, to| {
                        written.missing(&mut at, from, to, |from, to| found.push(from, to));
                    },
                    false,
                );
            }
        }
        self.pending.add(&found);
    }

    /// See [`super::apply()`].
    pub unsafe fn apply(&mut self, rank: usize, entry: &[u8]) -> Result<(), Conflict> {
        let each = |f: &mut dyn FnMut(usize, Change<'_>) -> Result<(), Refused>| {
            visit(&[entry], |step| {
                let Step::One(_, record) = step else { return Ok(()) };
                (0..record.pages)
                    .try_for_each(|i| f(record.address as usize + i as usize * PAGE, record.change(i)))
            })
        };
        each(&mut |at, change| {
            let Some(place) = self.areas.find(at, PAGE) else {
                return Err(Refused::Foreign { rank: rank as u32, address: at as u64 });
            };
            // SAFETY: shared, so mapped, and so are twins.
            let (now, twin) = unsafe { (page(at), page(place.twin(at))) };
            let mut theirs = *twin;
            change.blend(&mut theirs);
            let mut both = diff(now, twin).and(&change.mask(twin)).and(&diff(now, &theirs));
            if let Some(part) = self.part(at) {
                both = both.and(&part);
            }
            let Some(byte) = both.first() else { return Ok(()) };
            let mut sides = [(remote::rank() as u32, word(now, byte)), (rank as u32, word(&theirs, byte))];
            sides.sort_unstable_by_key(|side| side.0);
            Err(Refused::Conflict(Conflict {
                address: (at + byte) as u64,
                ranks: sides.map(|side| side.0),
                values: sides.map(|side| side.1),
                before: word(twin, byte),
            }))
        })
        .map_err(refused)?;
        each(&mut |at, change| {
            self.used(at);
            // SAFETY: as above. Memory is changed by the byte, twins under the state's lock only. That the page is listed as written costs one comparison;
            // protecting it again could lose what other threads write meanwhile.
            unsafe {
                change.blend(page_mut(self.twin_at(at)));
                change.apply(page_mut(at));
            }
            Ok(())
        })
        .map_err(refused)
    }
}

/// See [`super::contradiction`].
pub fn contradiction(one: (usize, &[u8]), other: (usize, &[u8])) -> Option<Conflict> {
    let mut found = None;
    // both were applied or made here, so they are well formed
    let _ = visit(&[one.1, other.1], |step| {
        let Step::Many(address, [(_, left), (_, right)]) = step else { return Ok(()) };
        // what is published is exact: what comes without a mask is all bytes
        let seen = |change: &Change<'_>| {
            let mut page = [0; PAGE];
            change.blend(&mut page);
            match change {
                Change::Whole(_) | Change::Zero => (Mask::ALL, page),
                change => (change.mask(&page), page),
            }
        };
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

/// The program's fault is the caller's to tell; anything else is ours.
pub fn refused(refused: Refused) -> Conflict {
    match refused {
        Refused::Conflict(conflict) => conflict,
        other => {
            let alloc = format!("what another rank sent cannot be applied: {other:?}");
            raw::fail(&alloc)
        }
    }
}
