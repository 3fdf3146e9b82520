//! Which memory of this process peers may reach: keys, bounds and rights. The memory itself is the driver's.

use crate::frame::Status;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;

/// What a peer may do with a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Access {
    /// Read it (get).
    pub read: bool,
    /// Write it (put).
    pub write: bool,
}

/// A registered region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registered {
    /// What peers call its first byte: 0 where they use offsets, the virtual address where they use that.
    pub base: u64,
    /// Bytes.
    pub len: u64,
    /// Rights.
    pub access: Access,
}

/// Where in a region something lies, and which registration of its key that is. A key may be closed and given to other memory
/// while bytes are on their way, which are not to reach that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reach {
    /// Bytes from the region's first.
    pub offset: u64,
    /// The registration.
    pub generation: u32,
}

/// All regions of one domain, by key.
#[derive(Debug, Default)]
pub struct Regions {
    by_key: BTreeMap<u64, (u32, Registered)>,
    /// The generation of the next registration.
    next: u32,
}

/// The key is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyTaken;

impl Regions {
    /// Adds a region; the generation of this registration, which no other has (of the last 2^32).
    ///
    /// # Errors
    /// When another region has this key.
    pub fn insert(&mut self, key: u64, region: Registered) -> Result<u32, KeyTaken> {
        match self.by_key.entry(key) {
            Entry::Vacant(v) => {
                let generation = self.next;
                self.next = generation.wrapping_add(1);
                v.insert((generation, region));
                Ok(generation)
            }
            Entry::Occupied(_) => Err(KeyTaken),
        }
    }

    /// Whether a registration has not ended.
    pub fn is_registered(&self, key: u64, generation: u32) -> bool {
        self.generation(key) == Some(generation)
    }

    /// The registration that a key has.
    pub fn generation(&self, key: u64) -> Option<u32> {
        self.by_key.get(&key).map(|(generation, _)| *generation)
    }

    /// Takes a region away; what a peer asks of it from now on is refused.
    pub fn remove(&mut self, key: u64) -> Option<Registered> {
        self.by_key.remove(&key).map(|(_, region)| region)
    }

    /// Whether `len` bytes at `addr` of region `key` may be reached so, and where that is.
    ///
    /// # Errors
    /// [`Status::Access`] or [`Status::Range`], to be returned to the peer.
    pub fn check(&self, key: u64, addr: u64, len: u64, wanted: Access) -> Result<Reach, Status> {
        let &(generation, region) = self.by_key.get(&key).ok_or(Status::Access)?;
        if (wanted.read && !region.access.read) || (wanted.write && !region.access.write) {
            return Err(Status::Access);
        }
        let offset = addr.checked_sub(region.base).ok_or(Status::Range)?;
        let end = offset.checked_add(len).ok_or(Status::Range)?;
        if end > region.len { Err(Status::Range) } else { Ok(Reach { offset, generation }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_registered_is_reached() {
        let mut r = Regions::default();
        let access = Access { read: true, write: false };
        r.insert(7, Registered { base: 1000, len: 10, access }).unwrap();
        assert_eq!(r.insert(7, Registered { base: 0, len: 1, access }), Err(KeyTaken));
        let write = Access { read: false, write: true };
        let at = |offset| Ok(Reach { offset, generation: 0 });
        assert_eq!(r.check(7, 1000, 10, access), at(0));
        assert_eq!(r.check(7, 1009, 1, access), at(9));
        assert_eq!(r.check(7, 1010, 0, access), at(10));
        assert_eq!(r.check(7, 1009, 2, access), Err(Status::Range));
        assert_eq!(r.check(7, 999, 1, access), Err(Status::Range));
        assert_eq!(r.check(7, u64::MAX, u64::MAX, access), Err(Status::Range));
        assert_eq!(r.check(7, 1000, 1, write), Err(Status::Access));
        assert_eq!(r.check(8, 1000, 1, access), Err(Status::Access));
        r.remove(7);
        assert_eq!(r.check(7, 1000, 1, access), Err(Status::Access));
    }
    #[test]
    fn a_key_that_is_used_again_is_another_registration() {
        let mut r = Regions::default();
        let region = Registered { base: 0, len: 10, access: Access { read: true, write: false } };
        let first = r.insert(7, region).unwrap();
        assert!(r.is_registered(7, first) && !r.is_registered(8, first));
        r.remove(7);
        assert!(!r.is_registered(7, first));
        let again = r.insert(7, region).unwrap();
        assert!(r.is_registered(7, again) && !r.is_registered(7, first));
    }
}
