//! What a count of a type is in memory.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::ops::Range;

use polyrail_pmpi::abi;

use crate::library::{Failed, pack, type_get_envelope, type_get_extent, type_size, unpack};

/// What there is to know of a type.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    /// Its handle.
    pub handle: usize,
    /// Bytes of data.
    pub size: usize,
    /// Bytes from one to the next, which may be before it.
    pub extent: isize,
    /// One of MPI's own.
    pub named: bool,
}

impl Kind {
    /// Asks the library, unless it has been asked before. Nothing for what is no type, or one that is odd.
    pub fn of(handle: usize) -> Option<Self> {
        const KEPT: usize = 16;
        thread_local! {
            /// MPI's own types, which are never another's.
            static KNOWN: RefCell<[Option<Kind>; KEPT]> = const { RefCell::new([None; KEPT]) };
        }
        let handle = abi().handle(handle);
        let at = (handle as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 60;
        if let Some(kind) = KNOWN.with_borrow(|known| known[at]).filter(|kind| kind.handle == handle) {
            return Some(kind);
        }
        let kind = Self::ask(handle)?;
        if kind.named {
            KNOWN.with_borrow_mut(|known| known[at] = Some(kind));
        }
        Some(kind)
    }

    /// MPI's own types only are asked for in a way that an invalid handle survives: the library's checks raise an error that the program
    /// is to see from its own call.
    fn ask(handle: usize) -> Option<Self> {
        let (mut size, mut lower, mut extent): (c_int, isize, isize) = (0, 0, 0);
        let (mut integers, mut addresses, mut types, mut combiner) = (0, 0, 0, 0);
        // SAFETY: the program's handle, and places for the answers
        unsafe {
            type_get_envelope(handle, &mut integers, &mut addresses, &mut types, &mut combiner).ok()?;
            type_size(handle, &mut size).ok()?;
            type_get_extent(handle, &mut lower, &mut extent).ok()?;
        }
        let named = combiner == abi().named;
        let size = usize::try_from(size).ok()?;
        (lower == 0 || !named).then_some(Self { handle, size, extent, named })
    }

    /// Whether elements lie one behind the other with nothing between.
    pub fn is_plain(&self) -> bool {
        self.named && self.size > 0 && self.size as isize == self.extent
    }
}

/// `count` elements of a type somewhere in the program.
#[derive(Clone, Copy)]
pub struct Data {
    /// Where.
    pub at: *mut u8,
    /// How many.
    pub count: usize,
    /// Of what.
    pub kind: Kind,
}

impl Data {
    /// Bytes of data.
    pub fn bytes(&self) -> usize {
        self.count * self.kind.size
    }

    /// Bytes of data, if they can be.
    pub fn checked_bytes(&self) -> Option<usize> {
        self.count.checked_mul(self.kind.size)
    }

    /// The `n`th of several such parts that stand one behind the other.
    pub fn part(&self, n: usize) -> Self {
        Self { at: self.at.wrapping_offset((n * self.count) as isize * self.kind.extent), ..*self }
    }

    /// `n` such parts, one behind the other.
    pub fn times(&self, n: usize) -> Self {
        Self { count: n * self.count, ..*self }
    }

    /// The data one behind the other: where they are, or packed into `room`.
    ///
    /// # Errors
    /// What the MPI says.
    pub fn gather(&self, room: &mut Vec<u8>, comm: usize) -> Result<*const u8, Failed> {
        if self.kind.is_plain() {
            return Ok(self.at);
        }
        room.resize(self.bytes(), 0);
        self.pack(room, comm)?;
        Ok(room.as_ptr())
    }

    /// Where data one behind the other may be put: where they belong, or `room`, from where [`spread`](Self::spread) takes them.
    pub fn place(&self, room: &mut Vec<u8>) -> *mut u8 {
        if self.kind.is_plain() {
            return self.at;
        }
        room.resize(self.bytes(), 0);
        room.as_mut_ptr()
    }

    /// Puts what stands at [`place`](Self::place) where it belongs.
    ///
    /// # Errors
    /// What the MPI says.
    pub fn spread(&self, room: &[u8], comm: usize) -> Result<(), Failed> {
        if self.kind.is_plain() { Ok(()) } else { self.unpack(room, comm) }
    }

    /// Packs the data into as many bytes.
    ///
    /// # Errors
    /// What the MPI says.
    pub fn pack(&self, room: &mut [u8], comm: usize) -> Result<(), Failed> {
        for (data, bytes) in self.portions() {
            let (room, mut position) = (&mut room[bytes], 0);
            // SAFETY: the program's own data, and room for them
            unsafe {
                let (from, into) = (data.at as *const c_void, room.as_mut_ptr().cast());
                let (count, size) = (data.count as c_int, room.len() as c_int);
                pack(from, count, data.kind.handle, into, size, &mut position, comm)?;
            }
        }
        Ok(())
    }

    /// The opposite of [`pack`](Self::pack).
    ///
    /// # Errors
    /// What the MPI says.
    pub fn unpack(&self, room: &[u8], comm: usize) -> Result<(), Failed> {
        for (data, bytes) in self.portions() {
            let (room, mut position) = (&room[bytes], 0);
            // SAFETY: the program's own place, and as many bytes
            unsafe {
                let (from, into) = (room.as_ptr().cast(), data.at.cast());
                let (count, size) = (data.count as c_int, room.len() as c_int);
                unpack(from, size, &mut position, into, count, data.kind.handle, comm)?;
            }
        }
        Ok(())
    }

    /// The data in portions whose bytes an `int` counts, and where each is among all bytes.
    fn portions(&self) -> impl Iterator<Item = (Self, Range<usize>)> {
        const MOST: usize = 1 << 30;
        let (all, size) = (*self, self.kind.size);
        let step = MOST.checked_div(size).map_or(1, |step| step.max(1));
        (0..if size == 0 { 0 } else { all.count }).step_by(step).map(move |first| {
            let at = all.at.wrapping_offset(first as isize * all.kind.extent);
            let data = Self { at, count: step.min(all.count - first), ..all };
            (data, first * size..(first + data.count) * size)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_cover_all_and_are_short_enough() {
        let portions = |count, size| {
            let kind = Kind { handle: 0, size, extent: 2 * size as isize, named: false };
            let data = Data { at: std::ptr::null_mut(), count, kind };
            data.portions().map(|(data, bytes)| (data.at as usize, data.count, bytes)).collect::<Vec<_>>()
        };
        assert_eq!(portions(0, 8), []);
        assert_eq!(portions(5, 0), []);
        assert_eq!(portions(3, 8), [(0, 3, 0..24)]);
        let (most, all) = (1 << 27, (1 << 28) + 1);
        let long = portions(all, 8);
        assert_eq!(long.iter().map(|(_, count, _)| count).sum::<usize>(), all);
        assert_eq!(long[1], (16 * most, most, 8 * most..16 * most));
        assert_eq!(portions(2, 2 << 30).len(), 2, "an element at least");
    }
}
