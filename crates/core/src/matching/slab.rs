//! Entries by slot number. A free slot is reused at once, the latest freed first, while it is warm in the cache.
//!
//! The sequence number that orders entries also tells an entry from its slot's earlier tenants. Being 64 bits wide
//! it never comes again, which a generation beside it (32 bits, in use within minutes) could not promise.

use super::Handle;
use alloc::vec::Vec;

/// No slot.
pub(super) const NIL: u32 = u32::MAX;

/// Marks `seq` of a free slot; the low half is then the next free slot.
const FREE: u64 = 1 << 63;

/// Values of type `T`, each with the place `P` that its queue gives it.
pub(super) struct Slab<P, T> {
    slots: Vec<Slot<P, T>>,
    pool: Pool,
}

/// Which slots are free, and what the next entry is called.
pub(super) struct Pool {
    free: u32,
    len: usize,
    next_seq: u64,
}

pub(super) struct Slot<P, T> {
    seq: u64,
    place: P,
    value: Option<T>,
}

impl<P, T> Slot<P, T> {
    #[inline]
    pub fn place(&self) -> &P {
        &self.place
    }

    #[inline]
    pub fn place_mut(&mut self) -> &mut P {
        &mut self.place
    }

    #[inline]
    pub fn value(&self) -> Option<&T> {
        self.value.as_ref()
    }
}

impl Pool {
    /// Frees a slot that is taken, whose value comes back.
    #[inline(always)]
    pub fn free<P, T>(&mut self, slots: &mut [Slot<P, T>], slot: u32) -> Option<T> {
        let entry = &mut slots[slot as usize];
        entry.seq = FREE | u64::from(self.free);
        self.free = slot;
        self.len -= 1;
        entry.value.take()
    }
}

impl<P: Default, T> Slab<P, T> {
    pub fn new() -> Self {
        Slab { slots: Vec::new(), pool: Pool { free: NIL, len: 0, next_seq: 0 } }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.pool.len
    }

    /// One more than the highest slot number that was ever in use.
    #[inline]
    pub fn extent(&self) -> usize {
        self.slots.len()
    }

    /// The sequence number that the next entry gets.
    #[inline]
    pub fn next_seq(&self) -> u64 {
        self.pool.next_seq
    }

    /// All slots, and which of them are free: for who does several things to them in turn.
    #[inline(always)]
    pub fn split(&mut self) -> (&mut [Slot<P, T>], &mut Pool) {
        (&mut self.slots, &mut self.pool)
    }

    #[inline]
    pub fn insert(&mut self, place: P, value: T) -> Handle {
        self.make_room();
        self.insert_with(|at| *at = place, || value)
    }

    /// Whether a slot is free.
    #[inline(always)]
    pub fn has_room(&self) -> bool {
        self.pool.free != NIL
    }

    /// Sees to it that one is.
    #[inline]
    pub fn make_room(&mut self) {
        if !self.has_room() {
            self.grow();
        }
    }

    /// The same, where there is room, of a value that is made where it is kept: moved there, a large one would go through memory twice. The
    /// place is that of an earlier entry, for `set` to change.
    #[inline(always)]
    pub fn insert_with(&mut self, set: impl FnOnce(&mut P), make: impl FnOnce() -> T) -> Handle {
        let pool = &mut self.pool;
        let (seq, slot) = (pool.next_seq, pool.free);
        pool.next_seq += 1;
        pool.len += 1;
        let free = &mut self.slots[slot as usize];
        pool.free = free.seq as u32;
        free.seq = seq;
        set(&mut free.place);
        // there was none, which the compiler cannot know: to let go of it would cost a question
        core::mem::forget(free.value.replace(make()));
        Handle { seq, slot }
    }

    /// Adds a free slot, where there is none.
    #[cold]
    fn grow(&mut self) {
        self.slots.push(Slot { seq: FREE | u64::from(NIL), place: P::default(), value: None });
        self.pool.free = (self.slots.len() - 1) as u32;
    }

    /// Frees a slot that is taken.
    #[inline]
    pub fn remove(&mut self, slot: u32) -> Option<T> {
        self.pool.free(&mut self.slots, slot)
    }

    /// The handle's slot, while the handle's entry is in it.
    #[inline]
    pub fn resolve(&self, handle: Handle) -> Option<u32> {
        self.slots.get(handle.slot as usize).filter(|entry| entry.seq == handle.seq).map(|_| handle.slot)
    }

    #[inline]
    pub fn handle(&self, slot: u32) -> Handle {
        Handle { seq: self.slots[slot as usize].seq, slot }
    }

    #[inline]
    pub fn place(&self, slot: u32) -> &P {
        &self.slots[slot as usize].place
    }

    #[inline]
    pub fn place_mut(&mut self, slot: u32) -> &mut P {
        &mut self.slots[slot as usize].place
    }

    #[inline]
    pub fn value(&self, slot: u32) -> Option<&T> {
        self.slots[slot as usize].value.as_ref()
    }

    #[inline]
    pub fn value_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots[slot as usize].value.as_mut()
    }

    /// The taken slots, in no order. Looks at every slot.
    pub fn taken(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.slots).filter(|(_, entry)| entry.seq & FREE == 0).map(|(slot, _)| slot)
    }

    /// Slots in order of their sequence numbers.
    pub fn in_order(&self, slots: impl Iterator<Item = u32>) -> Vec<u32> {
        let mut slots: Vec<u32> = slots.collect();
        slots.sort_unstable_by_key(|&slot| self.handle(slot));
        slots
    }
}
