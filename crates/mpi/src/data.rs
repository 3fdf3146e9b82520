//! What a count of a type is in memory.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};

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
        let mut position = 0;
        // SAFETY: the program's own data, and room for them
        unsafe {
            let (from, into) = (self.at as *const c_void, room.as_mut_ptr().cast());
            pack(
                from,
                self.count as c_int,
                self.kind.handle,
                into,
                room.len() as c_int,
                &mut position,
                comm,
            )?;
        }
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
        if self.kind.is_plain() || self.bytes() == 0 {
            return Ok(());
        }
        let mut position = 0;
        // SAFETY: the program's own place, and as many bytes
        unsafe {
            let (from, into) = (room.as_ptr().cast(), self.at.cast());
            unpack(
                from,
                room.len() as c_int,
                &mut position,
                into,
                self.count as c_int,
                self.kind.handle,
                comm,
            )
        }
    }
}
