//! Which memory is shared, what of it changed, and its twins: memory as `polyrail_omp::coherence` has it.
//!
//! What is shared is listed in `areas`; which pages were written the kernel says (`watch`), or comparison with the twins.

mod areas;
mod hot;
mod since;
#[cfg(test)]
mod tests;
mod threads;
mod watch;

use core::ops::{ControlFlow, Range};

use polyrail_omp::blob::Record;
use polyrail_omp::coherence::{Memory, Tracked};
use polyrail_omp::diff::{Mask, Page, diff, is_zero};
use polyrail_omp::layout::{
    OTHER_TWINS, PAGE, SERIAL_HEAP, SERIAL_HEAP_BYTES, SLOT_HEAP_BYTES, SLOT_HEAPS, SLOTS, TWIN_OFFSET,
};
use polyrail_omp::pages::Pages;

use crate::raw::{self, Lock};
use crate::{alloc, run, stacks};
use areas::{Areas, Kind};
use hot::{CHUNK, Hot};
use since::Since;
use threads::Threads;
use watch::Watch;

/// From so many pages on, one request that lets them be written costs less than a fault for each.
const MANY: usize = 8;
/// So many bytes are copied to memory and twin while they are in the cache.
const PART: usize = 64 << 10;

/// This process' memory. Its functions are called under the state's lock only, and of pages that are known; these are mapped, and so are their twins.
pub struct Process {
    areas: Areas,
    watch: Option<Watch>,
    hot: Hot,
    threads: Threads,
    since: Since,
}

static STATE: Lock<Option<Tracked<Process>>> = Lock::new(None);

/// Does something with what is tracked; nothing before that has begun.
pub fn with<R>(f: impl FnOnce(&mut Tracked<Process>) -> R) -> Option<R> {
    STATE.with(|state| state.as_mut().map(f))
}

/// Finds what is to be tracked and begins. Twins are zero: the first encoding on rank 0 is all that is not zero. `compare`: without the kernel's help.
///
/// # Safety
/// Before `main`, once, by the main thread.
pub unsafe fn start(compare: bool, more: &[(usize, usize)]) {
    let state = tracked(Areas::of_process(more), compare);
    STATE.with(|place| *place = Some(state));
}

/// Before the first merge, once, on ranks above 0, and where rank 0 goes on from a checkpoint: what is tracked becomes zero, as the twins are.
///
/// # Safety
/// Nothing that is tracked is in use.
pub unsafe fn clear() {
    with(|state| {
        // SAFETY: the caller's.
        unsafe { state.memory.clear() };
        state.pending = Pages::default();
    });
}

/// Bytes of the main stack below `sp` are not shared.
pub fn stack_floor(sp: usize) {
    with(|state| state.stack_floor(sp));
}

/// Bytes that are each rank's own until the next region begins: nothing is told of them, but by rank 0 at barriers.
pub fn set_own(own: Vec<(usize, usize)>) {
    with(|state| state.set_own(own));
}

/// Bytes of this rank's memory become what all agreed upon last.
///
/// # Safety
/// Nobody uses them meanwhile.
pub unsafe fn put_back(bytes: &[(usize, usize)]) {
    with(|state| state.put_back(bytes));
}

/// What threads have may be shared from now on: their stacks have so many bytes, and these slots are of this rank.
pub fn share_threads(stack: usize, slots: Range<usize>) {
    with(|state| state.memory.threads.begin(stack, slots));
}

/// These bytes of the stack or the scratch memory of this rank's `slot` are shared, until all is forgotten.
pub fn share_of_thread(slot: usize, bytes: Range<usize>) {
    with(|state| state.memory.threads.share(slot, bytes));
}

/// Nothing of what threads have is shared. Whether anything was.
pub fn forget_threads() -> bool {
    let forgotten = with(|state| {
        let any = state.memory.threads.any();
        if any {
            state.memory.threads.forget();
            state.pending.remove(&stacks::ALL);
        }
        any
    });
    forgotten.unwrap_or(false)
}

/// Bytes of another rank's stack were put there, apart from all that is told: nothing is to be told of them.
pub fn placed(at: usize, bytes: usize) {
    with(|state| {
        for page in (at & !(PAGE - 1)..at + bytes).step_by(PAGE) {
            if state.memory.threads.knows(page) {
                let mut mask = Mask::NONE;
                mask.set(at.max(page) - page, (at + bytes).min(page + PAGE) - page);
                let (now, twin) = state.memory.page_mut(page);
                mask.copy(now, twin);
            }
        }
    });
}

/// From now on it is noted what changes, for checkpoints.
pub fn note_changes() {
    with(|state| {
        let began_as = state.pending.clone();
        let since = &mut state.memory.since;
        since.begin();
        since.note_all(&began_as);
    });
}

/// Pages that may have changed since the last time, but of the main stack. No thread runs program code.
pub fn changes() -> Pages {
    let changed = with(|state| {
        state.collect();
        let mut pages = state.memory.since.take();
        state.memory.note_compared(&pages, &state.pending);
        pages.remove(&state.stack);
        pages.remove(&stacks::ALL);
        pages
    });
    changed.unwrap_or_default()
}

/// Calls `look` with each of these pages, which are known, and the bytes of it that are shared, if not all are; until it has enough.
pub fn look_at<E>(
    pages: &Pages,
    mut look: impl FnMut(usize, &Page, Option<&Mask>) -> Result<(), E>,
) -> Result<(), E> {
    let looked = with(|state| {
        let looked =
            pages.each(0..usize::MAX, |at| match look(at, state.memory.page(at).0, state.memory.part(at)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(error),
            });
        looked.break_value()
    });
    looked.flatten().map_or(Ok(()), Err)
}

/// Takes what is in a checkpoint: these bytes become the memory's at `at`. Whether they are shared memory.
///
/// # Safety
/// Nothing that is tracked is in use.
pub unsafe fn restore(at: usize, bytes: &[u8]) -> bool {
    let known = with(|state| {
        let (first, end) = (at & !(PAGE - 1), (at + bytes.len()).next_multiple_of(PAGE));
        // areas may touch, and a record be of two
        let known = (first..end).step_by(PAGE).all(|page| state.memory.is_known(page, 1));
        if known {
            (first..end).step_by(PAGE).for_each(|page| state.memory.used(page));
        }
        known
    });
    if known != Some(true) {
        return false;
    }
    // SAFETY: found to be shared, and mapped; the caller's
    unsafe { (at as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    true
}

/// As [`restore`], so many zeros.
///
/// # Safety
/// As there.
pub unsafe fn restore_zeros(at: usize, bytes: usize) -> bool {
    let known = with(|state| (at..at + bytes).step_by(PAGE).all(|page| state.memory.is_known(page, 1)));
    if known != Some(true) || !at.is_multiple_of(PAGE) {
        return false;
    }
    // SAFETY: found to be shared, and mapped; the caller's
    unsafe { core::ptr::write_bytes(at as *mut u8, 0, bytes) };
    true
}

/// Whether `address` is on the main stack.
pub fn is_on_stack(address: usize) -> bool {
    with(|state| state.stack.contains(&address)) == Some(true)
}

/// Where the main stack ends, above all that is on it.
pub fn stack_end() -> usize {
    with(|state| state.stack.end).unwrap_or(0)
}

/// Whether `address` is shared.
pub fn is_shared(address: usize) -> bool {
    with(|state| state.is_shared(address)).unwrap_or(false)
}

unsafe fn page<'a>(address: usize) -> &'a Page {
    // SAFETY: the caller's: a page that is mapped.
    unsafe { &*(address as *const Page) }
}
unsafe fn page_mut<'a>(address: usize) -> &'a mut Page {
    // SAFETY: the caller's: a page that is mapped and the caller's alone, as far as its bytes are changed.
    unsafe { &mut *(address as *mut Page) }
}

/// What is tracked in these areas.
fn tracked(mut areas: Areas, compare: bool) -> Tracked<Process> {
    alloc::map_serial();
    alloc::map_slots();
    let mut watch = if compare { None } else { Watch::new() };
    let fixed: usize = areas.list.iter().map(|area| area.to - area.from).sum();
    let twins = [
        (SERIAL_HEAP + TWIN_OFFSET, SERIAL_HEAP_BYTES),
        (SLOT_HEAPS + TWIN_OFFSET, SLOTS * SLOT_HEAP_BYTES),
        (OTHER_TWINS, fixed),
    ];
    for (address, bytes) in twins.into_iter().filter(|(_, bytes)| *bytes > 0) {
        raw::reserve(address, bytes);
        raw::advise(address, bytes, libc::MADV_DONTDUMP);
        raw::advise(address, bytes, libc::MADV_DONTFORK);
    }
    alloc::huge(SERIAL_HEAP + TWIN_OFFSET, SERIAL_HEAP_BYTES);
    for area in areas.list.iter().filter(|area| areas::is_huge(area)) {
        for from in [area.from, area.from.wrapping_add(area.offset)] {
            raw::advise(from, area.to - area.from, libc::MADV_HUGEPAGE);
        }
    }
    if let Some(watched) = &watch {
        for area in areas.list.iter_mut().filter(|area| areas::is_large(area)) {
            let (from, to) =
                if area.kind == Kind::Stack { areas::stack_now(area) } else { (area.from, area.to) };
            area.watched = watched.add(from, to);
        }
        areas.watched_heaps = watched.add(SERIAL_HEAP, SERIAL_HEAP + SERIAL_HEAP_BYTES)
            && watched.add(SLOT_HEAPS, SLOT_HEAPS + SLOTS * SLOT_HEAP_BYTES);
    }
    watch.take_if(|_| !areas.watched_heaps && areas.list.iter().all(|area| !area.watched));
    let mut pending = Pages::default();
    // What the program's file says is there without having been written.
    areas
        .list
        .iter()
        .filter(|area| area.kind == Kind::Data)
        .for_each(|area| pending.push(area.from, area.to));
    let stack =
        areas.list.iter().find(|area| area.kind == Kind::Stack).map_or(0..0, |area| area.from..area.to);
    Tracked::new(
        Process { areas, watch, hot: Hot::default(), threads: Threads::default(), since: Since::default() },
        stack,
        pending,
    )
}

impl Process {
    unsafe fn clear(&mut self) {
        self.refresh();
        for area in &self.areas.list {
            // SAFETY: nobody uses it, says the caller; it is mapped.
            unsafe {
                match area.kind {
                    Kind::Heap => raw::advise(area.from, area.to - area.from, libc::MADV_DONTNEED),
                    Kind::Stack => {
                        let (from, to) = areas::stack_now(area);
                        core::ptr::write_bytes(from as *mut u8, 0, to - from);
                    }
                    Kind::Data => {
                        // Arrays that were never written stay so.
                        for at in (area.from..area.to).step_by(PAGE).filter(|at| !is_zero(page(*at))) {
                            self.areas.part(at).unwrap_or(&Mask::ALL).copy(&[0; PAGE], page_mut(at));
                        }
                    }
                }
            }
        }
        if let Some(watch) = &mut self.watch {
            for area in self.areas.list.iter().filter(|area| area.watched) {
                let (from, to) =
                    if area.kind == Kind::Stack { areas::stack_now(area) } else { (area.from, area.to) };
                watch.scan(from, to, |_, _| {});
            }
        }
        self.hot.reset(false);
    }

    /// Of pages that are found by comparison, one that becomes again what its twin is would not be found, though a checkpoint has something else: those that others have not been told of
    /// are noted again. With one rank nobody is told of any, so twins are what the checkpoint has.
    fn note_compared(&mut self, kept: &Pages, pending: &Pages) {
        if !self.since.is_on() {
            return;
        }
        let alone = run::size() == 1;
        for area in self.compared() {
            let of = if alone { kept } else { pending };
            let _ = of.each(area, |at| {
                if alone {
                    // SAFETY: a page that is known, and its twin
                    unsafe { *page_mut(self.twin_at(at)) = *page(at) };
                } else {
                    self.since.note(at, at + PAGE);
                }
                ControlFlow::<()>::Continue(())
            });
        }
    }

    /// Where the twin is of a page that is known.
    fn twin_at(&self, at: usize) -> usize {
        if stacks::ALL.contains(&at) {
            return at + TWIN_OFFSET;
        }
        self.areas.find(at, PAGE).map_or(at, |place| place.twin(at))
    }

    /// Renews how far heaps reach.
    fn refresh(&mut self) {
        self.areas.heap(SERIAL_HEAP, alloc::high(SERIAL_HEAP));
        alloc::for_seen(|slot| {
            let base = SLOT_HEAPS + slot * SLOT_HEAP_BYTES;
            if self.areas.heap(base, alloc::high(base)) {
                alloc::huge(base + TWIN_OFFSET, SLOT_HEAP_BYTES);
            }
        });
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
}

impl Memory for Process {
    const CHUNK: usize = CHUNK;

    fn ready(&mut self, at: usize) -> bool {
        self.threads.ready(at)
    }

    fn is_known(&self, address: usize, pages: usize) -> bool {
        if stacks::ALL.contains(&address) {
            return (0..pages).all(|i| self.threads.knows(address + i * PAGE));
        }
        self.areas.find(address, pages * PAGE).is_some()
    }

    fn part(&self, at: usize) -> Option<&Mask> {
        if stacks::ALL.contains(&at) {
            return self.threads.part(at);
        }
        self.areas.part(at)
    }

    fn page(&self, at: usize) -> (&Page, &Page) {
        // SAFETY: asked of pages only that are known
        unsafe { (page(at), page(self.twin_at(at))) }
    }

    fn page_mut(&mut self, at: usize) -> (&mut Page, &mut Page) {
        self.used(at);
        self.since.note(at, at + PAGE);
        // SAFETY: as above. Twins are changed under the state's lock only; of the page, what other threads use meanwhile is not changed
        unsafe { (page_mut(at), page_mut(self.twin_at(at))) }
    }

    fn take(&mut self, record: &Record<'_>, theirs: bool) {
        let from = record.address as usize;
        let bytes = record.pages as usize * PAGE;
        let Some(place) = self.areas.find(from, bytes) else { return };
        self.used(from);
        self.since.note(from, from + bytes);
        // SAFETY: found to be shared; no thread of the team runs program code
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

    fn collect(&mut self, hidden: &Range<usize>) -> Pages {
        self.refresh();
        self.hot.begin();
        let mut found = Pages::default();
        for area in &self.areas.list {
            let from = if area.kind == Kind::Stack { hidden.end.max(area.from) } else { area.from };
            let scanned = match &mut self.watch {
                Some(watch) if area.watched => {
                    self.hot.scan(watch, from, area.to, |from, to| found.push(from, to), true)
                }
                _ => false,
            };
            if scanned {
                continue;
            }
            for at in (from..area.to).step_by(PAGE) {
                // SAFETY: areas and their twins are mapped, the stack when it is touched.
                if !unsafe { diff(page(at), page(at.wrapping_add(area.offset))) }.is_empty() {
                    found.push(at, at + PAGE);
                }
            }
        }
        if let Some(watch) = &self.watch {
            self.hot.found(watch, &found);
        }
        self.since.note_all(&found);
        if self.threads.any() {
            found.add(&self.threads.pages());
        }
        found
    }

    fn compared(&self) -> Vec<Range<usize>> {
        let areas = self.areas.list.iter().filter(|area| !area.watched).map(|area| area.from..area.to);
        areas.chain(self.threads.pages().runs().iter().map(|&(from, to)| from..to)).collect()
    }

    fn changed(&self, at: usize) {
        self.hot.changed(at);
    }

    fn is_published(&mut self) {
        self.hot.reset(true);
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
    fn forget(&mut self, written: &Pages) -> Pages {
        let (runs, mut found) = (written.runs(), Pages::default());
        let Some(watch) = &mut self.watch else { return found };
        let (mut next, mut at) = (0, 0);
        while let Some(&(mut from, mut to)) = runs.get(next) {
            let Some(place) = self.areas.find(from, PAGE) else { return found };
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
        self.since.note_all(&found);
        found
    }
}
