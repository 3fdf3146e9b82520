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

/// All regions of one domain, by key.
#[derive(Debug, Default)]
pub struct Regions {
    by_key: BTreeMap<u64, Registered>,
}

/// The key is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyTaken;

impl Regions {
    /// Adds a region.
    ///
    /// # Errors
    /// When another region has this key.
    pub fn insert(&mut self, key: u64, region: Registered) -> Result<(), KeyTaken> {
        match self.by_key.entry(key) {
            Entry::Vacant(v) => {
                v.insert(region);
                Ok(())
            }
            Entry::Occupied(_) => Err(KeyTaken),
        }
    }

    /// Takes a region away; what a peer asks of it from now on is refused.
    pub fn remove(&mut self, key: u64) -> Option<Registered> {
        self.by_key.remove(&key)
    }

    /// Whether `len` bytes at `addr` of region `key` may be reached so; the offset in the region.
    ///
    /// # Errors
    /// [`Status::Access`] or [`Status::Range`], to be returned to the peer.
    pub fn check(&self, key: u64, addr: u64, len: u64, wanted: Access) -> Result<u64, Status> {
        let region = self.by_key.get(&key).ok_or(Status::Access)?;
        if (wanted.read && !region.access.read) || (wanted.write && !region.access.write) {
            return Err(Status::Access);
        }
        let offset = addr.checked_sub(region.base).ok_or(Status::Range)?;
        let end = offset.checked_add(len).ok_or(Status::Range)?;
        if end > region.len { Err(Status::Range) } else { Ok(offset) }
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
        assert_eq!(r.check(7, 1000, 10, access), Ok(0));
        assert_eq!(r.check(7, 1009, 1, access), Ok(9));
        assert_eq!(r.check(7, 1010, 0, access), Ok(10));
        assert_eq!(r.check(7, 1009, 2, access), Err(Status::Range));
        assert_eq!(r.check(7, 999, 1, access), Err(Status::Range));
        assert_eq!(r.check(7, u64::MAX, u64::MAX, access), Err(Status::Range));
        assert_eq!(r.check(7, 1000, 1, write), Err(Status::Access));
        assert_eq!(r.check(8, 1000, 1, access), Err(Status::Access));
        r.remove(7);
        assert_eq!(r.check(7, 1000, 1, access), Err(Status::Access));
    }
}
