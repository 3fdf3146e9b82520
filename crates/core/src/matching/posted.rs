//! The posted receive queue.

use super::bins::{Bins, Link, Links, Seed, Spot};
use super::slab::{NIL, Slab, Slot};
use super::{Handle, Mask, Receive, Source};
use alloc::vec::Vec;

/// Classes whose tables are kept though they are empty, because their masks will come again.
const KEPT_CLASSES: usize = 8;

/// Receives that wait for a message, each with the owner's `T`.
///
/// Time is constant for posting, matching and cancelling, whatever the number of receives posted; it grows only
/// with the number of *different* masks among them.
pub struct PostedQueue<T> {
    slab: Slab<Place, T>,
    classes: Vec<Class>,
    /// The classes that an arrival looks into, in no order: all that are not empty, and those that were not when an
    /// arrival last looked. A class that is emptied and filled in turn thus stays on the list.
    listed: Vec<u32>,
    /// The class posted to last: most likely the next one, too.
    recent: u32,
    /// The only class that is listed, if there is but one.
    only: u32,
    seed: Seed,
}

#[derive(Default)]
struct Place {
    link: Link,
    class: u32,
}

// Posting and matching touch one entry: what the owner keeps begins in the cache line of what it is found by.
const _: () = assert!(size_of::<Slot<Place, ()>>() <= 56);

/// The receives of one mask.
struct Class {
    mask: Mask,
    bins: Bins,
    listed: bool,
}

impl<T> Links for [Slot<Place, T>] {
    #[inline]
    fn link(&self, slot: u32) -> &Link {
        &self[slot as usize].place().link
    }
    #[inline]
    fn link_mut(&mut self, slot: u32) -> &mut Link {
        &mut self[slot as usize].place_mut().link
    }
}

impl<T> PostedQueue<T> {
    /// An empty queue. `seed` should be random where peers are not trusted to spread their tags.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let seed = Seed::new(seed);
        PostedQueue { slab: Slab::new(), classes: Vec::new(), listed: Vec::new(), recent: 0, only: NIL, seed }
    }

    /// How many receives are posted.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether no receive is posted.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Posts a receive behind all others.
    pub fn post(&mut self, receive: Receive, value: T) -> Handle {
        self.post_with(receive, || value)
    }

    /// The same of a value that is made where it is kept.
    #[inline(always)]
    pub fn post_with(&mut self, receive: Receive, make: impl FnOnce() -> T) -> Handle {
        if !self.is_ready(receive.mask()) {
            self.make_ready(receive.mask());
        }
        self.post_ready(receive, make)
    }

    /// The same if it takes no more than a few words: mostly. False, and nothing has happened.
    #[inline(always)]
    pub fn try_post(&mut self, receive: Receive, make: impl FnOnce() -> T) -> bool {
        let ready = self.is_ready(receive.mask());
        if ready {
            self.post_ready(receive, make);
        }
        ready
    }

    /// Whether there is room for a receive of this mask, in the class posted to last.
    #[inline(always)]
    fn is_ready(&self, mask: Mask) -> bool {
        let class = self.classes.get(self.recent as usize);
        class.is_some_and(|class| class.mask == mask && class.listed && !class.bins.is_full())
            && self.slab.has_room()
    }

    #[inline(never)]
    fn make_ready(&mut self, mask: Mask) {
        self.slab.make_room();
        if self.classes.get(self.recent as usize).is_none_or(|class| class.mask != mask) {
            self.recent = self.other_class(mask);
        }
        let Class { bins, listed, .. } = &mut self.classes[self.recent as usize];
        if bins.is_full() {
            bins.grow(self.slab.split().0);
        }
        if !core::mem::replace(listed, true) {
            self.listed.push(self.recent);
            self.only = if self.listed.len() == 1 { self.recent } else { NIL };
        }
    }

    #[inline(always)]
    fn post_ready(&mut self, receive: Receive, make: impl FnOnce() -> T) -> Handle {
        let handle = self.slab.insert_with(|place| place.class = self.recent, make);
        let bins = &mut self.classes[self.recent as usize].bins;
        bins.append(self.slab.split().0, handle.slot, receive.key());
        handle
    }

    /// Ends the earliest posted receive that a message from `source` with `tag` satisfies, if `read` makes something of it where it is:
    /// it is forgotten then, and must own nothing. Cheaper than to take it out.
    #[inline(always)]
    pub fn end_match<U>(
        &mut self,
        source: Source,
        tag: u64,
        read: impl FnOnce(&T) -> Option<U>,
    ) -> Option<U> {
        // With one mask in use there is nothing to compare.
        let several;
        let (class, found) = match self.classes.get_mut(self.only as usize) {
            Some(class) => (class, None),
            None => {
                several = self.find_earliest(source, tag)?;
                (&mut self.classes[several.0 as usize], Some(several.1))
            }
        };
        let Class { mask, bins, .. } = class;
        let (slots, pool) = self.slab.split();
        let spot = match found {
            None => bins.find(slots, mask.key(source, tag))?,
            Some(spot) => spot,
        };
        let made = read(slots[spot.slot as usize].value()?)?;
        bins.remove_leader(slots, spot);
        core::mem::forget(pool.free(slots, spot.slot));
        Some(made)
    }

    /// Finds what [`end_match`](Self::end_match) would end, and leaves it posted: for a receive that serves
    /// several messages, until its owner cancels it.
    #[inline]
    pub fn find_match(&mut self, source: Source, tag: u64) -> Option<(Handle, &mut T)> {
        let (_, Spot { slot, .. }) = self.find_earliest(source, tag)?;
        let handle = self.slab.handle(slot);
        self.slab.value_mut(slot).map(|value| (handle, value))
    }

    /// Takes a receive back, unless it was matched, cancelled or taken before.
    pub fn cancel(&mut self, handle: Handle) -> Option<T> {
        self.slab.resolve(handle).and_then(|slot| self.remove(slot))
    }

    /// The earliest receive of which `is` says so. Looks at every slot.
    pub fn find_where(&self, is: impl Fn(&T) -> bool) -> Option<Handle> {
        let found = self.slab.taken().filter(|&slot| self.slab.value(slot).is_some_and(&is));
        found.map(|slot| self.slab.handle(slot)).min()
    }

    /// The receives from this source only, in posting order. Looks at every slot.
    pub fn directed(&self, source: Source) -> Vec<Handle> {
        let is = |slot: &u32| {
            let place = self.slab.place(*slot);
            self.classes[place.class as usize].mask.directed && place.link.key().source == source.0
        };
        self.slab
            .in_order(self.slab.taken().filter(is))
            .into_iter()
            .map(|slot| self.slab.handle(slot))
            .collect()
    }

    /// Takes every receive, in posting order.
    pub fn drain(&mut self) -> impl ExactSizeIterator<Item = T> + use<T> {
        let slots = self.slab.in_order(self.slab.taken());
        slots.into_iter().filter_map(|slot| self.remove(slot)).collect::<Vec<T>>().into_iter()
    }

    fn remove(&mut self, slot: u32) -> Option<T> {
        let class = self.slab.place(slot).class;
        self.classes[class as usize].bins.remove(self.slab.split().0, slot);
        self.slab.remove(slot)
    }

    #[inline(never)]
    fn find_earliest(&mut self, source: Source, tag: u64) -> Option<(u32, Spot)> {
        let mut best: Option<(u32, Spot)> = None;
        let mut at = 0;
        while let Some(&class) = self.listed.get(at) {
            let Class { mask, bins, listed } = &mut self.classes[class as usize];
            if bins.is_empty() {
                *listed = false;
                self.listed.swap_remove(at);
                self.only = if let [only] = self.listed[..] { only } else { NIL };
                continue;
            }
            at += 1;
            let Some(spot) = bins.find(&*self.slab.split().0, mask.key(source, tag)) else { continue };
            if best.is_none_or(|(_, best)| self.slab.handle(spot.slot) < self.slab.handle(best.slot)) {
                best = Some((class, spot));
            }
        }
        best
    }

    /// The mask's class among those that are there, else a new one in the stead of an empty one.
    #[inline(never)]
    fn other_class(&mut self, mask: Mask) -> u32 {
        let known = self.classes.iter().position(|class| class.mask == mask);
        let spare = || self.classes.iter().position(|class| class.bins.is_empty());
        let class = known.or_else(|| if self.classes.len() < KEPT_CLASSES { None } else { spare() });
        match class {
            Some(class) => self.classes[class].mask = mask,
            None => self.classes.push(Class { mask, bins: Bins::new(self.seed), listed: false }),
        }
        class.unwrap_or(self.classes.len() - 1) as u32
    }
}
