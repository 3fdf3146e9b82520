//! Address vectors: peers by number.
//!
//! Maps and tables are the same here: an address gets the lowest free number. An insertion that fails leaves its number free, so
//! that those after it in the same call have the numbers that they would have had.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use polyrail_core::wire::{Address, PeerId};

use crate::ffi::fi_addr_t;
use crate::state::endpoint::Endpoint;
use crate::state::eq::Eq;
use crate::state::slab::Key;

/// One address vector.
#[derive(Debug, Default)]
pub struct Av {
    /// By number; the last one is in use.
    entries: Vec<Option<Address>>,
    /// Numbers below the last that are free.
    holes: BTreeSet<usize>,
    /// The number that stands for a peer.
    numbers: HashMap<PeerId, usize>,
    /// Its others, where an address was inserted several times.
    others: HashMap<PeerId, BTreeSet<usize>>,
    /// Bound endpoints.
    pub users: Vec<Key<Endpoint>>,
    pub eq: Option<Arc<Eq>>,
    pub asynchronous: bool,
}

impl Av {
    /// For `count` addresses, as far as is known. An asynchronous one tells its event queue what was inserted.
    pub fn new(count: usize, asynchronous: bool) -> Self {
        Self { entries: Vec::with_capacity(count.min(1 << 16)), asynchronous, ..Self::default() }
    }

    /// The address with this number.
    pub fn get(&self, number: fi_addr_t) -> Option<&Address> {
        self.entries.get(usize::try_from(number).ok()?)?.as_ref()
    }

    /// The number of a peer.
    pub fn number_of(&self, id: PeerId) -> Option<usize> {
        self.numbers.get(&id).copied()
    }

    /// The lowest free number from `from` on.
    pub fn free(&self, from: usize) -> usize {
        self.holes.range(from..).next().copied().unwrap_or(self.entries.len().max(from))
    }

    /// Gives an address a number that is free.
    pub fn insert(&mut self, number: usize, address: Address) {
        let len = self.entries.len();
        if number >= len {
            self.entries.resize(number + 1, None);
            self.holes.extend(len..number);
        } else {
            self.holes.remove(&number);
        }
        self.entries[number] = Some(address);
        if *self.numbers.entry(address.id()).or_insert(number) != number {
            self.others.entry(address.id()).or_default().insert(number);
        }
    }

    /// Frees a number; whether it was in use.
    pub fn remove(&mut self, number: usize) -> bool {
        let Some(address) = self.entries.get_mut(number).and_then(Option::take) else { return false };
        self.forget(address.id(), number);
        self.holes.insert(number);
        while self.entries.last().is_some_and(Option::is_none) {
            self.entries.pop();
            self.holes.remove(&self.entries.len());
        }
        true
    }

    /// A number of a peer is no longer one: if it stood for the peer, the lowest other one does.
    fn forget(&mut self, id: PeerId, number: usize) {
        let stood = self.numbers.get(&id) == Some(&number);
        let Some(others) = self.others.get_mut(&id) else {
            self.numbers.remove(&id);
            return;
        };
        if stood {
            self.numbers.extend(others.pop_first().map(|other| (id, other)));
        } else {
            others.remove(&number);
        }
        if others.is_empty() {
            self.others.remove(&id);
        }
    }
}
