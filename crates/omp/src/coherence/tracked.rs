//! What a rank knows of the memory that it shares: pages that it has written are *pending* until they are agreed upon. What they differ by from their twins is found when it
//! is encoded.

use core::ops::{ControlFlow, Range};

use crate::blob::Encoder;
use crate::diff::{Mask, Page, diff};
use crate::layout::PAGE;
use crate::merge::Twins;
use crate::pages::Pages;

use super::Memory;

/// How far an encoding came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Bytes written.
    pub bytes: usize,
    /// Changes at lower addresses are all in; `u64::MAX` if all are.
    pub frontier: u64,
}

/// Memory, and what of it is to be told.
#[derive(Debug)]
pub struct Tracked<M> {
    /// What is tracked.
    pub memory: M,
    /// Pages that may differ from their twins.
    pub pending: Pages,
    /// The main stack.
    pub stack: Range<usize>,
    /// Bytes of the main stack from here on are shared.
    pub floor: usize,
    /// See [`Tracked::set_own`].
    pub(super) own: Vec<(usize, usize)>,
}

impl<M: Memory> Twins for Tracked<M> {
    fn known(&self, address: u64, pages: u64) -> bool {
        self.memory.is_known(address as usize, pages as usize)
    }
    fn twin(&self, address: u64) -> &Page {
        self.memory.page(address as usize).1
    }
}

impl<M: Memory> Tracked<M> {
    /// Of this memory, whose `stack` is not shared yet; what differs from the twins may be in `pending`.
    pub fn new(memory: M, stack: Range<usize>, pending: Pages) -> Self {
        Self { memory, pending, stack, floor: usize::MAX, own: Vec::new() }
    }

    /// Bytes of the main stack below `sp` are not shared.
    pub fn stack_floor(&mut self, sp: usize) {
        if sp != self.floor && self.stack.contains(&self.floor) {
            // The rest of this page was not shared when it was last listed; it stays pending while it is not.
            let mut page = Pages::default();
            page.push(self.floor & !(PAGE - 1), (self.floor & !(PAGE - 1)) + PAGE);
            self.pending.add(&page);
        }
        self.floor = sp;
    }

    /// Bytes that are each rank's own until the next region begins: nothing is told of them, but by rank 0 at barriers.
    pub fn set_own(&mut self, own: Vec<(usize, usize)>) {
        self.own = own;
    }

    /// Ranks above 0, at a barrier: their own bytes become what all agreed upon last. No thread of the team runs program code.
    pub fn forget_own(&mut self) {
        let own = core::mem::take(&mut self.own);
        self.put_back(&own);
        self.own = own;
    }

    /// Bytes of this rank's memory become what all agreed upon last. Nobody uses them meanwhile.
    pub fn put_back(&mut self, bytes: &[(usize, usize)]) {
        for &(from, to) in bytes {
            let mut at = from;
            while at < to {
                let (page, end) = (at & !(PAGE - 1), to.min((at & !(PAGE - 1)) + PAGE));
                if self.memory.is_known(page, 1) {
                    let part = at - page..end - page;
                    let (now, twin) = self.memory.page(page);
                    if now[part.clone()] != twin[part.clone()] {
                        let (now, twin) = self.memory.page_mut(page);
                        now[part.clone()].copy_from_slice(&twin[part]);
                    }
                }
                at = end;
            }
        }
    }

    /// Pages of the stack that are not shared now, which stay pending.
    pub fn hidden(&self) -> Range<usize> {
        self.stack.start..self.floor.clamp(self.stack.start, self.stack.end) & !(PAGE - 1)
    }

    /// Lists what changed since the last call, adds it to what is pending, and watches it again.
    pub fn collect(&mut self) {
        let found = self.memory.collect(&self.hidden());
        self.pending.add(&found);
    }

    /// As [`collect`](Self::collect), to be published. What is found by comparison is not found where what was stored is what all agreed upon last; but a copy may have been
    /// there: `copied` lists the pages with copies.
    pub fn collect_all(&mut self, copied: impl Fn(&Range<usize>) -> Vec<usize>) {
        self.collect();
        let mut pages = Pages::default();
        for area in self.memory.compared() {
            copied(&area).into_iter().for_each(|page| pages.push(page, page + PAGE));
        }
        self.pending.add(&pages);
    }

    /// Encodes differences of pending pages from their twins, in order of addresses; nothing if `out` has no room for all. Changes nothing.
    pub fn encode_all(&self, out: &mut [u8]) -> Option<usize> {
        let encoded = self.encode(&self.pending, 0..usize::MAX, out);
        (encoded.frontier == u64::MAX).then_some(encoded.bytes)
    }

    /// Names the pages that are pending, maybe some more, as far as there is room for `runs` of pages that follow each other.
    pub fn list(&self, out: &mut [u8], runs: usize) -> usize {
        let runs = runs.min(out.len() / 16);
        let mut encoder = Encoder::new(out);
        for &(from, to) in self.pending.roughly(runs).runs() {
            if encoder.list(from as u64, ((to - from) / PAGE) as u64).is_err() {
                break;
            }
        }
        encoder.bytes()
    }

    /// What of a page is shared now, if not all is; nothing if it is of the unshared part of the stack.
    pub fn part(&self, at: usize) -> Option<Mask> {
        if at < self.floor && self.stack.contains(&at) {
            let mut mask = Mask::NONE;
            mask.set(self.floor.min(at + PAGE) - at, PAGE);
            return Some(mask);
        }
        self.memory.part(at).copied()
    }

    /// Whether the byte at `address` is shared.
    pub fn is_shared(&self, address: usize) -> bool {
        let at = address & !(PAGE - 1);
        let byte = address - at;
        self.memory.is_known(at, 1)
            && self.part(at).is_none_or(|mask| mask.0[byte / 64] >> (byte % 64) & 1 == 1)
    }

    /// Bytes of the twins, as far as they are known, of one place.
    pub fn agreed(&self, place: usize, bytes: usize) -> Option<super::host::Value> {
        let mut value = super::host::Value::default();
        for (i, byte) in value.iter_mut().enumerate().take(bytes) {
            let (at, in_page) = ((place + i) & !(PAGE - 1), (place + i) & (PAGE - 1));
            if !self.memory.is_known(at, 1) {
                return None;
            }
            *byte = self.memory.page(at).1[in_page];
        }
        Some(value)
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

    /// Encodes differences of `pages` in `range` from their twins, as far as `out` has room.
    pub fn encode(&self, pages: &Pages, range: Range<usize>, out: &mut [u8]) -> Encoded {
        let mut encoder = Encoder::new(out);
        let mut chunk = None;
        let end = pages.each(range, |at| {
            if at.is_multiple_of(M::CHUNK) {
                chunk = Some((at, encoder.part()));
            }
            let (contents, twin) = self.memory.page(at);
            let mut mask = diff(contents, twin);
            let part = self.part(at);
            if let Some(part) = &part {
                mask = mask.and(part);
            }
            if encoder.page(at as u64, contents, &mask, part.is_some()).is_err() {
                return ControlFlow::Break(at as u64);
            }
            if !mask.is_empty() {
                self.memory.changed(at);
            }
            ControlFlow::Continue(())
        });
        let mut frontier = end.break_value().unwrap_or(u64::MAX);
        // huge pages stay whole if they are applied as a whole
        if let Some((at, part)) =
            chunk.filter(|(at, part)| *part > 0 && frontier - (*at as u64) < M::CHUNK as u64)
        {
            encoder.truncate(part);
            frontier = at as u64;
        }
        Encoded { bytes: encoder.bytes(), frontier }
    }

    /// Encodes differences of pending pages from their twins as far as `out` has room (at least two pages' worth), and the twins take it at once: what is published. Other
    /// threads of this rank may run. `mask`: what others are to be told of the page at an address, by its contents and its twin. Bytes in `said` are told even if they are as all agreed
    /// upon last; they are places, in order.
    pub fn publish(
        &mut self,
        out: &mut [u8],
        mask: &mut dyn FnMut(usize, &mut Page, &Page),
        said: &[Range<usize>],
    ) -> Encoded {
        self.memory.is_published();
        let mut encoder = Encoder::new(out);
        let pending = core::mem::take(&mut self.pending);
        let end = pending.each(0..usize::MAX, |at| {
            // A page that others write: what is encoded and what the twin takes must be the same.
            let (now, twin) = self.memory.page(at);
            let mut contents = *now;
            mask(at, &mut contents, twin);
            let mut changed = diff(&contents, twin);
            for said in near(said, at) {
                changed.set(said.start.max(at) - at, said.end.min(at + PAGE) - at);
            }
            if let Some(part) = self.part(at) {
                changed = changed.and(&part);
            }
            self.without_own(at, &mut changed);
            if encoder.page(at as u64, &contents, &changed, true).is_err() {
                return ControlFlow::Break(at as u64);
            }
            changed.copy(&contents, self.memory.page_mut(at).1);
            ControlFlow::Continue(())
        });
        let encoded = Encoded { bytes: encoder.bytes(), frontier: end.break_value().unwrap_or(u64::MAX) };
        self.pending = pending;
        self.done(encoded.frontier);
        // what was not told is still to be told by rank 0 at a barrier
        for &(from, to) in &self.own {
            let mut pages = Pages::default();
            pages.push(from & !(PAGE - 1), to.next_multiple_of(PAGE));
            self.pending.add(&pages);
        }
        encoded
    }

    /// Pages with these places, in order, are to be told of.
    pub fn say(&mut self, said: &[Range<usize>]) {
        let mut pages = Pages::default();
        said.iter().for_each(|said| pages.push(said.start & !(PAGE - 1), said.end.next_multiple_of(PAGE)));
        self.pending.add(&pages);
    }

    /// What is pending below the frontier has been agreed upon, but for the part of the stack that is not shared now.
    pub fn done(&mut self, frontier: u64) {
        let keep = self.hidden();
        self.pending.done(frontier, keep);
    }
}

/// Of ranges of places, in order, those that have bytes in the page at `at`.
pub(super) fn near(ranges: &[Range<usize>], at: usize) -> impl Iterator<Item = &Range<usize>> {
    let first = ranges.partition_point(|range| range.start + size_of::<super::Value>() <= at);
    ranges[first..]
        .iter()
        .take_while(move |range| range.start < at + PAGE)
        .filter(move |range| at < range.end)
}
