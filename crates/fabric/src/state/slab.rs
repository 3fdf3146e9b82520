//! Things by number.

use std::ops::{Index, IndexMut};

/// Things by number. A number is free again once its thing is removed.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub fn insert(&mut self, thing: T) -> usize {
        match self.free.pop() {
            Some(at) => {
                self.slots[at] = Some(thing);
                at
            }
            None => {
                self.slots.push(Some(thing));
                self.slots.len() - 1
            }
        }
    }

    pub fn remove(&mut self, at: usize) -> Option<T> {
        let thing = self.slots.get_mut(at)?.take();
        self.free.extend(thing.is_some().then_some(at));
        thing
    }

    pub fn get(&self, at: usize) -> Option<&T> {
        self.slots.get(at)?.as_ref()
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers in use.
    pub fn keys(&self) -> impl Iterator<Item = usize> + '_ {
        self.slots.iter().enumerate().filter_map(|(at, slot)| slot.as_ref().map(|_| at))
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().flatten()
    }
}

/// For numbers that an open object holds: its thing is there until the object is closed.
impl<T> Index<usize> for Slab<T> {
    type Output = T;
    #[inline(always)]
    fn index(&self, at: usize) -> &T {
        self.slots[at].as_ref().expect("it is in use")
    }
}

impl<T> IndexMut<usize> for Slab<T> {
    #[inline(always)]
    fn index_mut(&mut self, at: usize) -> &mut T {
        self.slots[at].as_mut().expect("it is in use")
    }
}
