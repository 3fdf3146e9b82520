//! Things by number.

use std::fmt::{self, Debug, Formatter};
use std::ops::{Index, IndexMut};
use std::ptr::NonNull;

/// Things by number, each at a place that it keeps. A number is free again once its thing is removed.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<Option<Place<T>>>,
    free: Vec<usize>,
}

/// Where a thing is; its owner. Not a box: keys point there, too.
#[derive(Debug)]
struct Place<T>(NonNull<T>);

// SAFETY: it owns the thing, as a box does.
unsafe impl<T: Send> Send for Place<T> {}
// SAFETY: the same.
unsafe impl<T: Sync> Sync for Place<T> {}

impl<T> Place<T> {
    fn take(self) -> T {
        let at = self.0;
        std::mem::forget(self);
        // SAFETY: made of a box in `insert`, and given back once.
        *unsafe { Box::from_raw(at.as_ptr()) }
    }
}

impl<T> Drop for Place<T> {
    fn drop(&mut self) {
        // SAFETY: as in `take`.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// A thing's number and where it is: for who would look it up in each call. An open object has it, or what is bound to one, and the
/// thing is there until that is closed: closing an endpoint takes its key off all lists, and what is bound to one cannot be closed. It is
/// good for its own slab only: objects are bound to objects of their own domain.
pub struct Key<T> {
    at: NonNull<T>,
    pub number: usize,
}

// SAFETY: nothing is reached by it but through its slab.
unsafe impl<T: Send> Send for Key<T> {}
// SAFETY: the same.
unsafe impl<T: Send> Sync for Key<T> {}

// by hand: derived, these would ask the same of the thing
impl<T> Clone for Key<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Key<T> {}

impl<T> Debug for Key<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "number {}", self.number)
    }
}

impl<T> PartialEq for Key<T> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub fn insert(&mut self, thing: T) -> Key<T> {
        let at = NonNull::from(Box::leak(Box::new(thing)));
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[number] = Some(Place(at));
        Key { at, number }
    }

    pub fn remove(&mut self, at: usize) -> Option<T> {
        let thing = self.slots.get_mut(at)?.take();
        self.free.extend(thing.is_some().then_some(at));
        thing.map(Place::take)
    }

    /// The key of a thing that is there.
    ///
    /// # Panics
    /// When there is none of this number.
    pub fn key(&self, number: usize) -> Key<T> {
        Key { at: self.place(number).expect("it is in use"), number }
    }

    #[inline(always)]
    fn place(&self, number: usize) -> Option<NonNull<T>> {
        self.slots.get(number)?.as_ref().map(|place| place.0)
    }

    pub fn get(&self, at: usize) -> Option<&T> {
        // SAFETY: it lives as long as its place, which is borrowed with the slab.
        self.place(at).map(|at| unsafe { at.as_ref() })
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The keys of all things.
    pub fn keys(&self) -> impl Iterator<Item = Key<T>> + '_ {
        let things = self.slots.iter().enumerate();
        things.filter_map(|(number, slot)| slot.as_ref().map(|place| Key { at: place.0, number }))
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        // SAFETY: as in `get`, and borrowed for changing; no two places are the same.
        self.slots.iter_mut().flatten().map(|place| unsafe { place.0.as_mut() })
    }
}

impl<T> Index<Key<T>> for Slab<T> {
    type Output = T;
    #[inline(always)]
    fn index(&self, key: Key<T>) -> &T {
        debug_assert_eq!(self.place(key.number), Some(key.at), "a key of what was removed");
        // SAFETY: an open object of this domain holds the key, or what is bound to one: its thing is there, and borrowed with the slab.
        unsafe { key.at.as_ref() }
    }
}

impl<T> IndexMut<Key<T>> for Slab<T> {
    #[inline(always)]
    fn index_mut(&mut self, mut key: Key<T>) -> &mut T {
        debug_assert_eq!(self.place(key.number), Some(key.at), "a key of what was removed");
        // SAFETY: as above, and the slab is borrowed for changing.
        unsafe { key.at.as_mut() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_numbers_lead_to_the_same_things() {
        let mut slab = Slab::default();
        let (a, b) = (slab.insert("a".to_string()), slab.insert("b".to_string()));
        slab[b].push('!');
        for more in 0..100 {
            slab.insert(more.to_string());
        }
        assert_eq!((slab[a].as_str(), slab[b].as_str()), ("a", "b!"));
        assert!(slab.key(b.number) == b && a != b);
        assert_eq!((slab.remove(a.number), slab.remove(a.number)), (Some("a".into()), None));
        assert!(slab.get(a.number).is_none());
        let c = slab.insert("c".into());
        assert_eq!(
            (c.number, slab[c].as_str(), slab.get(c.number).map(String::as_str)),
            (a.number, "c", Some("c"))
        );
        slab.values_mut().for_each(String::clear);
        assert_eq!((slab[b].len(), slab.len(), slab.keys().count()), (0, 102, 102));
    }
}
