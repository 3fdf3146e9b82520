//! Which memory is shared, what of it changed, its twins, and applying others' changes.
//!
//! What is shared is listed in `areas`; which pages were written the kernel says (`watch`), or comparison with the twins. Written pages are *pending*
//! until they are agreed upon: what they differ by from their twins is found when it is encoded.

mod apply;
mod areas;
mod bulk;
pub mod digest;
mod hot;
#[cfg(test)]
mod tests;
mod watch;

use core::ops::{ControlFlow, Range};

use polyrail_omp::blob::Encoder;
use polyrail_omp::diff::{Mask, Page, diff, is_zero};
use polyrail_omp::layout::{
    OTHER_TWINS, PAGE, SERIAL_HEAP, SERIAL_HEAP_BYTES, SLOT_HEAP_BYTES, SLOT_HEAPS, SLOTS, TWIN_OFFSET,
};
use polyrail_omp::merge::{Conflict, Twins};

use crate::alloc;
use crate::raw::{self, Lock};
use areas::{Areas, Kind};
pub use bulk::Bulk;
use hot::{CHUNK, Hot};
use watch::{Pages, Watch};

/// How far an encoding came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Bytes written.
    pub bytes: usize,
    /// Changes at lower addresses are all in; `u64::MAX` if all are.
    pub frontier: u64,
}

struct State {
    areas: Areas,
    watch: Option<Watch>,
    hot: Hot,
    pending: Pages,
    /// The main stack's area.
    stack: Range<usize>,
    /// Bytes of the main stack from here on are shared.
    floor: usize,
    /// See [`set_own`].
    own: Vec<(usize, usize)>,
}

static STATE: Lock<Option<State>> = Lock::new(None);

fn with<R>(f: impl FnOnce(&mut State) -> R) -> Option<R> {
    STATE.with(|state| state.as_mut().map(f))
}

/// Finds what is to be tracked and begins. Twins are zero: the first encoding on rank 0 is all that is not zero. `compare`: without the kernel's help.
///
/// # Safety
/// Before `main`, once, by the main thread.
pub unsafe fn start(compare: bool) {
    let state = State::new(Areas::of_process(), compare);
    STATE.with(|place| *place = Some(state));
}

/// On ranks above 0, once, before the first merge: what is tracked becomes zero, as the twins are.
///
/// # Safety
/// Nothing that is tracked is in use.
pub unsafe fn clear() {
    // SAFETY: the caller's.
    with(|state| unsafe { state.clear() });
}

/// Bytes of the main stack below `sp` are not shared.
pub fn stack_floor(sp: usize) {
    with(|state| state.stack_floor(sp));
}

/// Bytes that are each rank's own until the next region begins: nothing is told of them, but by rank 0 at barriers.
pub fn set_own(own: Vec<(usize, usize)>) {
    with(|state| state.own = own);
}

/// Ranks above 0, at a barrier: their own bytes become what all agreed upon last.
///
/// # Safety
/// No thread of the team runs program code.
pub unsafe fn forget_own() {
    // SAFETY: the caller's.
    with(|state| unsafe { state.put_back(&state.own) });
}

/// Bytes of this rank's memory become what all agreed upon last.
///
/// # Safety
/// Nobody uses them meanwhile.
pub unsafe fn put_back(bytes: &[(usize, usize)]) {
    // SAFETY: the caller's.
    with(|state| unsafe { state.put_back(bytes) });
}

/// Lists what changed since the last call, adds it to what is pending, and watches it again.
pub fn collect() {
    with(State::collect);
}

/// As [`collect`], to be published. What is found by comparison is not found where what was stored is what all agreed upon last; but a copy may have been there:
/// `copied` lists the pages with copies.
pub fn collect_all(copied: impl Fn(&Range<usize>) -> Vec<usize>) {
    with(|state| {
        state.collect();
        let mut pages = Pages::default();
        for area in state.areas.list.iter().filter(|area| !area.watched) {
            copied(&(area.from..area.to)).into_iter().for_each(|page| pages.push(page, page + PAGE));
        }
        state.pending.add(&pages);
    });
}

/// Pages pending.
pub fn pending() -> usize {
    with(|state| state.pending.count()).unwrap_or(0)
}

/// Encodes differences of pending pages from their twins, in order of addresses; nothing if `out` has no room for all. Changes nothing.
pub fn encode(out: &mut [u8]) -> Option<usize> {
    let encoded = with(|state| state.encode(&state.pending, 0..usize::MAX, out))?;
    (encoded.frontier == u64::MAX).then_some(encoded.bytes)
}

/// Names the pages that are pending, maybe some more, as far as there is room for `runs` of pages that follow each other.
pub fn list(out: &mut [u8], runs: usize) -> usize {
    with(|state| state.list(out, runs)).unwrap_or(0)
}

/// Encodes differences of pending pages from their twins as far as `out` has room (at least two pages' worth), and the twins take it at once: what is published. Other
/// threads of this rank may run. `mask`: what others are to be told of the page at an address, by its contents and its twin.
pub fn publish(out: &mut [u8], mask: &mut dyn FnMut(usize, &mut Page, &Page)) -> Encoded {
    with(|state| state.publish(out, mask)).unwrap_or(Encoded { bytes: 0, frontier: u64::MAX })
}

/// Checks all ranks' blobs (`blobs[rank]`, [`encode`]'s of this rank included, by which nothing else has changed meanwhile) against each other, then applies them:
/// others' to memory and twins, this rank's to the twins. What is pending is done. On a conflict nothing is applied.
///
/// # Safety
/// No thread of the team runs program code.
pub unsafe fn merge(blobs: &[&[u8]], own: usize) -> Result<(), Conflict> {
    with(|state| {
        state.done(u64::MAX);
        // SAFETY: the caller's.
        unsafe { state.merge(blobs, own) }
    })
    .unwrap_or(Ok(()))
}

/// Applies what `rank` published, to memory and twins. Changes of this rank that are not published stay; where both changed a byte, differently, it is a conflict.
///
/// # Safety
/// Other threads of this rank may run; bytes that they use at the same time are a race of the program.
pub unsafe fn apply(rank: usize, entry: &[u8]) -> Result<(), Conflict> {
    // SAFETY: the caller's.
    with(|state| unsafe { state.apply(rank, entry) }).unwrap_or(Ok(()))
}

/// Where two ranks' publications, of which neither knew the other, say different things.
pub fn contradiction(one: (usize, &[u8]), other: (usize, &[u8])) -> Option<Conflict> {
    apply::contradiction(one, other)
}

/// Whether `address` is shared.
pub fn is_shared(address: usize) -> bool {
    with(|state| state.is_shared(address)).unwrap_or(false)
}

/// The agreed contents at a shared address: where the twin is.
pub fn twin(address: usize) -> Option<*const u8> {
    with(|state| state.areas.find(address, 1).map(|place| place.twin(address) as *const u8)).flatten()
}

unsafe fn page<'a>(address: usize) -> &'a Page {
    // SAFETY: the caller's: a page that is mapped.
    unsafe { &*(address as *const Page) }
}
unsafe fn page_mut<'a>(address: usize) -> &'a mut Page {
    // SAFETY: the caller's: a page that is mapped and the caller's alone, as far as its bytes are changed.
    unsafe { &mut *(address as *mut Page) }
}

impl Twins for State {
    fn known(&self, address: u64, pages: u64) -> bool {
        self.areas.find(address as usize, pages as usize * PAGE).is_some()
    }
    fn twin(&self, address: u64) -> &Page {
        // SAFETY: asked of pages only that are known; their twins are mapped.
        unsafe { page(self.twin_at(address as usize)) }
    }
}

impl State {
    fn new(mut areas: Areas, compare: bool) -> Self {
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
        Self { areas, watch, hot: Hot::default(), pending, stack, floor: usize::MAX, own: Vec::new() }
    }

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
        self.pending = Pages::default();
    }

    fn stack_floor(&mut self, sp: usize) {
        if sp != self.floor && self.on_stack(self.floor) {
            // The rest of this page was not shared when it was last listed; it stays pending while it is not.
            let mut page = Pages::default();
            page.push(self.floor & !(PAGE - 1), (self.floor & !(PAGE - 1)) + PAGE);
            self.pending.add(&page);
        }
        self.floor = sp;
    }
    fn on_stack(&self, address: usize) -> bool {
        self.stack.contains(&address)
    }

    /// Where the twin is of a page that is known.
    fn twin_at(&self, at: usize) -> usize {
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

    fn collect(&mut self) {
        self.refresh();
        self.hot.begin();
        let mut found = Pages::default();
        for area in &self.areas.list {
            let from = if area.kind == Kind::Stack {
                self.floor.clamp(area.from, area.to) & !(PAGE - 1)
            } else {
                area.from
            };
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
        self.pending.add(&found);
    }

    /// What of a page is shared now, if not all is; nothing if it is of the unshared part of the stack.
    fn part(&self, at: usize) -> Option<Mask> {
        if at < self.floor && self.on_stack(at) {
            let mut mask = Mask::NONE;
            mask.set(self.floor.min(at + PAGE) - at, PAGE);
            return Some(mask);
        }
        self.areas.part(at).copied()
    }

    unsafe fn put_back(&self, bytes: &[(usize, usize)]) {
        for &(from, to) in bytes {
            let Some(place) = self.areas.find(from, to - from) else { continue };
            // SAFETY: shared, so mapped, and so are twins; nobody uses it, says the caller.
            unsafe {
                let twin = core::slice::from_raw_parts(place.twin(from) as *const u8, to - from);
                let now = core::slice::from_raw_parts_mut(from as *mut u8, to - from);
                if now != twin {
                    now.copy_from_slice(twin);
                }
            }
        }
    }
    /// Takes a rank's own bytes of a page out of `mask`.
    fn without_own(&self, at: usize, mask: &mut Mask) {
        for (from, to) in self.own.iter().filter(|(from, to)| *from < at + PAGE && at < *to) {
            let mut own = Mask::NONE;
            own.set(from.max(&at) - at, *to.min(&(at + PAGE)) - at);
            own.0.iter_mut().for_each(|word| *word = !*word);
            *mask = mask.and(&own);
        }
    }

    /// Encodes pages that `look` finds changed: it gives the page's contents and puts the twin right if need be.
    fn encode_with<'a>(
        &self,
        (pages, range): (&Pages, Range<usize>),
        out: &mut [u8],
        all_exact: bool,
        mut look: impl FnMut(usize) -> &'a Page,
        mut encoded: impl FnMut(usize, usize, &Mask),
    ) -> Encoded {
        let mut encoder = Encoder::new(out);
        let mut chunk = None;
        let end = pages.each(range, |at| {
            if !all_exact && at.is_multiple_of(CHUNK) {
                chunk = Some((at, encoder.part()));
            }
            let (contents, twin) = (look(at), self.twin_at(at));
            // SAFETY: what is pending is of an area, whose twins are mapped.
            let mut mask = diff(contents, unsafe { page(twin) });
            let part = self.part(at);
            if let Some(part) = &part {
                mask = mask.and(part);
            }
            if all_exact {
                self.without_own(at, &mut mask);
            }
            if encoder.page(at as u64, contents, &mask, all_exact || part.is_some()).is_err() {
                return ControlFlow::Break(at as u64);
            }
            encoded(at, twin, &mask);
            ControlFlow::Continue(())
        });
        let mut frontier = end.break_value().unwrap_or(u64::MAX);
        // huge pages stay whole if they are applied as a whole
        if let Some((at, part)) =
            chunk.filter(|(at, part)| *part > 0 && frontier - (*at as u64) < CHUNK as u64)
        {
            encoder.truncate(part);
            frontier = at as u64;
        }
        Encoded { bytes: encoder.bytes(), frontier }
    }
    fn encode(&self, pages: &Pages, range: Range<usize>, out: &mut [u8]) -> Encoded {
        // SAFETY: what is pending is of an area, which is mapped.
        self.encode_with(
            (pages, range),
            out,
            false,
            |at| unsafe { page(at) },
            |at, _, mask| {
                if !mask.is_empty() {
                    self.hot.changed(at);
                }
            },
        )
    }
    fn publish(&mut self, out: &mut [u8], mask: &mut dyn FnMut(usize, &mut Page, &Page)) -> Encoded {
        self.hot.reset(true);
        let mut copy = [0; PAGE];
        let copy = &raw mut copy;
        let encoded = self.encode_with(
            (&self.pending, 0..usize::MAX),
            out,
            true,
            |at| {
                // A page that others write: what is encoded and what the twin takes must be the same.
                // SAFETY: what is pending is mapped; the copy is used until the next.
                unsafe {
                    core::ptr::copy_nonoverlapping(at as *const u8, copy.cast(), PAGE);
                    mask(at, &mut *copy, page(self.twin_at(at)));
                    &*copy
                }
            },
            // SAFETY: twins are mapped and changed under the state's lock only.
            |_, twin, mask| unsafe { mask.copy(&*copy, page_mut(twin)) },
        );
        self.done(encoded.frontier);
        // what was not told is still to be told by rank 0 at a barrier
        for &(from, to) in &self.own {
            let mut pages = Pages::default();
            pages.push(from & !(PAGE - 1), to.next_multiple_of(PAGE));
            self.pending.add(&pages);
        }
        encoded
    }
    /// What is pending below the frontier has been agreed upon, but for the part of the stack that is not shared now.
    fn done(&mut self, frontier: u64) {
        let keep = self.stack.start..self.floor.clamp(self.stack.start, self.stack.end) & !(PAGE - 1);
        self.pending.done(frontier, keep);
    }

    fn is_shared(&self, address: usize) -> bool {
        let at = address & !(PAGE - 1);
        let byte = address - at;
        self.areas.find(address, 1).is_some()
            && self.part(at).is_none_or(|mask| mask.0[byte / 64] >> (byte % 64) & 1 == 1)
    }
}
