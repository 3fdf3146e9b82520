//! Which numbers lanes have had lately. A number is used again only when half of all others have been, so that a word of the peer's
//! about an old lane is never taken for one about a new.

use alloc::collections::BTreeMap;

/// Numbers that were given, and whether a lane came of it.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    spent: BTreeMap<u16, bool>,
    next: u16,
}

impl Numbers {
    /// A number is used up: it is not used again before half of all have been.
    pub fn spend(&mut self, number: u16, came: bool) {
        self.spent.remove(&number.wrapping_add(1 << 15));
        self.spent.insert(number, came);
        self.next = number.wrapping_add(1);
    }

    /// Nobody has heard of this number after all.
    pub fn give_back(&mut self, number: u16) {
        self.spent.remove(&number);
    }

    pub fn is_spent(&self, number: u16) -> bool {
        self.spent.contains_key(&number)
    }

    /// Whether a lane of this number has come to be; None: nobody tried.
    pub fn came(&self, number: u16) -> Option<bool> {
        self.spent.get(&number).copied()
    }

    /// Whether more than one lane was at least tried.
    pub fn several(&self) -> bool {
        self.spent.len() > 1
    }

    /// A number for one more lane that is free.
    pub fn next(&self, is_free: impl Fn(u16) -> bool) -> u16 {
        (0..=u16::MAX).map(|n| self.next.wrapping_add(n)).find(|n| is_free(*n)).unwrap_or(self.next)
    }
}
