//! Which numbers lanes have had lately. A number is used again only when half of all others have been, so that a word of the peer's
//! about an old lane is never taken for one about a new.

use alloc::collections::BTreeMap;

/// What became of a number that was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// A lane of it was tried.
    Tried,
    /// There was one.
    Came,
    /// Both sides have said that none is to be: what is said of it from now on is said again.
    Settled,
}

/// Numbers that were given.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    spent: BTreeMap<u16, Fate>,
    next: u16,
}

impl Numbers {
    /// A number is used up: it is not used again before half of all have been.
    pub fn spend(&mut self, number: u16, came: bool) {
        self.spent.remove(&number.wrapping_add(1 << 15));
        self.spent.insert(number, if came { Fate::Came } else { Fate::Tried });
        self.next = number.wrapping_add(1);
    }

    /// No lane of this number is to be, and the peer is told so now.
    pub fn settle(&mut self, number: u16) {
        self.spent.insert(number, Fate::Settled);
    }

    /// Nobody has heard of this number after all.
    pub fn give_back(&mut self, number: u16) {
        self.spent.remove(&number);
    }

    pub fn is_spent(&self, number: u16) -> bool {
        self.spent.contains_key(&number)
    }

    /// What became of this number; None: nobody tried.
    pub fn fate(&self, number: u16) -> Option<Fate> {
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
