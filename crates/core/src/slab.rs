//! A table of operations, addressed by slot and generation.
//!
//! Invariant: an [`OpId`] reaches its entry until that entry is removed, and nothing afterwards (up to 2^32 reuses of one slot).

use crate::frame::OpId;
use alloc::vec::Vec;

#[derive(Debug)]
enum Slot<T> {
    Free { next: u32 },
    Full(T),
}

/// The table.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<(u32, Slot<T>)>,
    free: u32,
    len: usize,
}

const NONE: u32 = u32::MAX;

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: NONE, len: 0 }
    }
}

impl<T> Slab<T> {
    /// Stores a value.
    ///
    /// # Panics
    /// With 2^32 - 1 entries alive.
    #[inline]
    pub fn insert(&mut self, value: T) -> OpId {
        self.len += 1;
        if let Some((generation, entry)) = self.slots.get_mut(self.free as usize) {
            let slot = self.free;
            if let Slot::Free { next } = *entry {
                self.free = next;
            }
            *entry = Slot::Full(value);
            return OpId { slot, generation: *generation };
        }
        let slot =
            u32::try_from(self.slots.len()).ok().filter(|s| *s != NONE).expect("operation table is full");
        self.slots.push((0, Slot::Full(value)));
        OpId { slot, generation: 0 }
    }

    /// The entry, if it is still there.
    #[inline]
    pub fn get(&self, id: OpId) -> Option<&T> {
        match self.slots.get(id.slot as usize) {
            Some((generation, Slot::Full(value))) if *generation == id.generation => Some(value),
            _ => None,
        }
    }

    /// The entry, if it is still there.
    #[inline]
    pub fn get_mut(&mut self, id: OpId) -> Option<&mut T> {
        match self.slots.get_mut(id.slot as usize) {
            Some((generation, Slot::Full(value))) if *generation == id.generation => Some(value),
            _ => None,
        }
    }

    /// Takes the entry out.
    #[inline]
    pub fn remove(&mut self, id: OpId) -> Option<T> {
        let (generation, slot) = self.slots.get_mut(id.slot as usize)?;
        if *generation != id.generation || matches!(slot, Slot::Free { .. }) {
            return None;
        }
        *generation = generation.wrapping_add(1);
        let taken = core::mem::replace(slot, Slot::Free { next: self.free });
        self.free = id.slot;
        self.len -= 1;
        match taken {
            Slot::Full(value) => Some(value),
            Slot::Free { .. } => None,
        }
    }

    /// Ends the entry where it is, after a last look at it: cheaper than taking a large one out.
    #[inline]
    pub fn end<R>(&mut self, id: OpId, look: impl FnOnce(&T) -> R) -> Option<R> {
        match self.slots.get_mut(id.slot as usize) {
            Some((generation, slot)) if *generation == id.generation => {
                let Slot::Full(value) = slot else { return None };
                let seen = look(value);
                *slot = Slot::Free { next: self.free };
                *generation = generation.wrapping_add(1);
                self.free = id.slot;
                self.len -= 1;
                Some(seen)
            }
            _ => None,
        }
    }

    /// Entries alive.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no entry is alive.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = (OpId, &T)> {
        self.slots.iter().enumerate().filter_map(|(slot, (generation, entry))| match entry {
            Slot::Full(value) => Some((OpId { slot: slot as u32, generation: *generation }, value)),
            Slot::Free { .. } => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_name_reaches_nothing() {
        let mut slab = Slab::default();
        let a = slab.insert(1);
        assert_eq!(slab.remove(a), Some(1));
        let b = slab.insert(2);
        assert_eq!(a.slot, b.slot);
        assert_eq!((slab.get(a), slab.get(b)), (None, Some(&2)));
        assert_eq!((slab.remove(a), slab.end(a, |_| ()), slab.len()), (None, None, 1));
        assert_eq!(slab.iter().count(), 1);
        assert_eq!((slab.end(b, |two| *two), slab.end(b, |two| *two), slab.len()), (Some(2), None, 0));
        assert_eq!(slab.insert(3).slot, b.slot);
    }
}
