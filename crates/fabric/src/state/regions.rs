//! Memory regions: what peers may reach.

use std::collections::HashMap;

use polyrail_core::proto::Access;
use polyrail_rails::rail::RawIov;

use crate::state::cntr::Cntr;
use crate::state::completion::Class;
use crate::state::slab::Key;

/// One region.
#[derive(Debug)]
pub struct Region {
    pub memory: RawIov,
    pub base: u64,
    pub access: Access,
    /// Counters of what peers read and write.
    pub counters: [Option<Key<Cntr>>; 2],
}

impl Region {
    fn is_reached(&self) -> bool {
        self.access.read || self.access.write
    }
}

/// The regions of a domain by key.
#[derive(Debug, Default)]
pub struct Regions {
    by_key: HashMap<u64, Region>,
    /// How many of them peers may read or write.
    reached: usize,
    /// Whether any region has ever had a counter.
    pub counted: bool,
}

impl Regions {
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub fn contains(&self, key: u64) -> bool {
        self.by_key.contains_key(&key)
    }

    pub fn get(&self, key: u64) -> Option<&Region> {
        self.by_key.get(&key)
    }

    pub fn get_mut(&mut self, key: u64) -> Option<&mut Region> {
        self.by_key.get_mut(&key)
    }

    /// Whether peers may read or write any.
    pub fn are_reached(&self) -> bool {
        self.reached > 0
    }

    pub fn insert(&mut self, key: u64, region: Region) {
        self.reached += usize::from(region.is_reached());
        let before = self.by_key.insert(key, region);
        debug_assert!(before.is_none(), "a key that is in use");
    }

    pub fn remove(&mut self, key: u64) -> Option<Region> {
        let region = self.by_key.remove(&key)?;
        self.reached -= usize::from(region.is_reached());
        Some(region)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, &Region)> {
        self.by_key.iter().map(|(&key, region)| (key, region))
    }

    /// The counter bound to a region for this kind of access.
    #[inline]
    pub fn counter(&self, key: u64, class: Class) -> Option<Key<Cntr>> {
        if !self.counted {
            return None;
        }
        self.by_key.get(&key)?.counters[usize::from(class == Class::RemoteWrite)]
    }
}
