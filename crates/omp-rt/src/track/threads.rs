//! What is shared of threads' stacks and of their scratch memory while tasks go from rank to rank: on their own rank what stands above the deepest frame that has offered a task, elsewhere what others
//! told. From barrier to barrier: then all that is forgotten, and twins are zero.

use core::ops::Range;

use polyrail_omp::diff::{Mask, Page};
use polyrail_omp::layout::{PAGE, TWIN_OFFSET};
use polyrail_omp::pages::Pages;

use crate::stacks;

/// Bytes of this rank's that are shared.
struct Own {
    bytes: Range<usize>,
    /// Pages whose twins are as others know them.
    known: Range<usize>,
    /// The pages that are shared in part.
    parts: [(usize, Mask); 2],
}

/// Them.
#[derive(Default)]
pub struct Threads {
    /// Bytes of a stack; 0: nothing is shared.
    stack: usize,
    /// Slots of this rank's threads.
    slots: Range<usize>,
    own: Vec<Own>,
    theirs: Pages,
}

static HIDDEN: Mask = Mask::NONE;

fn pages(bytes: &Range<usize>) -> Range<usize> {
    bytes.start & !(PAGE - 1)..bytes.end.next_multiple_of(PAGE)
}

/// What of a page is in a range.
fn part(at: usize, bytes: &Range<usize>) -> Mask {
    let mut mask = Mask::NONE;
    mask.set(bytes.start.max(at) - at, bytes.end.min(at + PAGE) - at);
    mask
}

/// # Safety
/// Mapped, and nobody uses it.
unsafe fn clear(at: usize) {
    // SAFETY: the caller's
    unsafe { *(at as *mut Page) = [0; PAGE] };
}

impl Threads {
    /// Of stacks of so many bytes, where these slots are this rank's.
    pub fn begin(&mut self, stack: usize, slots: Range<usize>) {
        (self.stack, self.slots) = (stack, slots);
    }

    /// Whether anything is shared.
    pub fn any(&self) -> bool {
        !self.own.is_empty() || self.theirs.count() > 0
    }

    /// Nothing is shared any more.
    pub fn forget(&mut self) {
        self.own.clear();
        self.theirs = Pages::default();
    }

    /// From now on, these bytes of the stack or the scratch memory of this rank's `slot` are.
    pub fn share(&mut self, slot: usize, bytes: Range<usize>) {
        stacks::map(slot, self.stack);
        let all = pages(&bytes);
        let same = |own: &&mut Own| {
            stacks::slot_of(own.bytes.start, self.stack) == Some(slot)
                && (own.bytes.start < stacks::SCRATCH_FROM) == (bytes.start < stacks::SCRATCH_FROM)
        };
        let own = match self.own.iter_mut().find(same) {
            Some(own) => own,
            None => {
                let none = (0, Mask::NONE);
                self.own.push(Own { bytes: 0..0, known: all.start..all.start, parts: [none, none] });
                let Some(own) = self.own.last_mut() else { return };
                own
            }
        };
        let known = own.known.start.min(all.start)..own.known.end.max(all.end);
        for at in known.clone().step_by(PAGE).filter(|at| !own.known.contains(at)) {
            // SAFETY: mapped above; twins are changed under the state's lock
            unsafe { clear(at + TWIN_OFFSET) };
        }
        own.known = known;
        own.parts = [all.start, all.end - PAGE].map(|at| (at, part(at, &bytes)));
        own.bytes = bytes;
    }

    fn own(&self, at: usize) -> Option<&Own> {
        self.own.iter().find(|own| own.known.contains(&at))
    }

    /// See [`Memory::ready`](polyrail_omp::coherence::Memory::ready).
    pub fn ready(&mut self, at: usize) -> bool {
        let of = |bytes| stacks::slot_of(at, bytes);
        let Some(slot) = Some(self.stack).filter(|bytes| *bytes > 0).and_then(of) else { return true };
        if self.slots.contains(&slot) {
            // What another rank tells late of this one's, which has come to the barrier behind which nobody needs it. Before, all that others know of it is known here.
            return !self.own.is_empty();
        }
        if self.theirs.has(at) {
            return true;
        }
        stacks::map(slot, self.stack);
        // SAFETY: mapped above; threads of another rank's slots are elsewhere
        unsafe {
            clear(at);
            clear(at + TWIN_OFFSET);
        }
        let mut page = Pages::default();
        page.push(at, at + PAGE);
        self.theirs.add(&page);
        true
    }

    /// Whether a page is known.
    pub fn knows(&self, at: usize) -> bool {
        stacks::ALL.contains(&at) && (self.own(at).is_some() || self.theirs.has(at))
    }

    /// What of a page is shared, if not all is.
    pub fn part(&self, at: usize) -> Option<&Mask> {
        let own = self.own(at)?;
        match own.parts.iter().find(|(page, _)| *page == at) {
            Some((_, mask)) => Some(mask),
            None if pages(&own.bytes).contains(&at) => None,
            None => Some(&HIDDEN),
        }
    }

    /// All pages that may differ from their twins, in order.
    pub fn pages(&self) -> Pages {
        let mut runs: Vec<_> = self.own.iter().map(|own| pages(&own.bytes)).collect();
        runs.sort_unstable_by_key(|run| run.start);
        let mut found = Pages::default();
        runs.into_iter().for_each(|run| found.push(run.start, run.end));
        found.add(&self.theirs);
        found
    }
}

#[cfg(test)]
mod tests {
    use polyrail_omp::layout::{SCRATCHES, STACK_STRIDE, STACKS};

    use super::*;

    const BYTES: usize = 1 << 20;

    /// The first page of what slot `slot` has mapped of its stack.
    fn stack(slot: usize) -> usize {
        STACKS + (slot + 1) * STACK_STRIDE - BYTES
    }

    #[test]
    fn what_stands_above_is_shared_until_it_is_forgotten() {
        let mut threads = Threads::default();
        threads.begin(BYTES, 900..902);
        let (base, top) = (stack(901), stack(901) + 10 * PAGE + 0x80);
        assert!(!threads.knows(base + 4 * PAGE) && !threads.any());
        threads.share(901, base + 4 * PAGE + 0x40..top);
        assert_eq!(threads.part(base + 4 * PAGE).map(Mask::count), Some(PAGE - 0x40));
        assert_eq!(threads.part(base + 5 * PAGE).map(Mask::count), None, "all of it");
        assert_eq!(threads.part(base + 10 * PAGE).map(Mask::count), Some(0x80));
        assert!(!threads.knows(base + 3 * PAGE) && !threads.knows(base + 11 * PAGE));
        // frames are left: what others know of them stays known, and is told no more
        threads.share(901, base + 8 * PAGE..top);
        assert!(threads.knows(base + 5 * PAGE));
        assert_eq!(threads.part(base + 5 * PAGE).map(Mask::count), Some(0));
        threads.share(
            901,
            SCRATCHES + 901 * polyrail_omp::layout::SCRATCH_BYTES
                ..SCRATCHES + 901 * polyrail_omp::layout::SCRATCH_BYTES + 100,
        );
        let runs: Vec<_> = threads.pages().runs().iter().map(|(from, to)| (to - from) / PAGE).collect();
        assert_eq!(runs, [3, 1]);
        assert!(threads.ready(base + 9 * PAGE), "what others tell of it while it is shared counts");
        threads.forget();
        assert!(
            !threads.ready(base + 9 * PAGE) && !threads.knows(base + 9 * PAGE),
            "and not when it is late"
        );
    }

    #[test]
    fn what_others_tell_of_theirs_begins_as_zeroes() {
        let mut threads = Threads::default();
        threads.begin(BYTES, 900..902);
        let page = stack(910) + 7 * PAGE;
        assert!(!threads.knows(page));
        for round in 1..3_u8 {
            assert!(threads.ready(page) && threads.knows(page) && threads.part(page).is_none());
            // SAFETY: mapped by `ready`, and no thread has this slot
            let (now, twin) =
                unsafe { (&mut *(page as *mut Page), &mut *((page + TWIN_OFFSET) as *mut Page)) };
            assert!(now.iter().chain(twin.iter()).all(|byte| *byte == 0), "round {round}");
            (now[5], twin[5]) = (round, round);
            assert!(threads.ready(page) && now[5] == round, "once only");
            threads.forget();
        }
        // no stack is so large
        let below = stack(910) - PAGE;
        assert!(threads.ready(below) && !threads.knows(below));
    }
}
