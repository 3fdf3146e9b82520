//! The memory of who reads a completion queue, in the form that C wants.

use crate::ffi::*;
use crate::state::completion::Entry;

/// Bytes of one entry of a format; none for a format that there is not.
pub fn entry_size(format: fi_cq_format) -> Option<usize> {
    Some(match format {
        FI_CQ_FORMAT_CONTEXT => size_of::<fi_cq_entry>(),
        FI_CQ_FORMAT_MSG => size_of::<fi_cq_msg_entry>(),
        FI_CQ_FORMAT_DATA => size_of::<fi_cq_data_entry>(),
        FI_CQ_FORMAT_UNSPEC | FI_CQ_FORMAT_TAGGED => size_of::<fi_cq_tagged_entry>(),
        _ => return None,
    })
}

/// Room for entries of one size.
#[derive(Debug)]
pub struct Room {
    at: *mut u8,
    left: usize,
    /// Where senders go, if anywhere.
    sources: *mut fi_addr_t,
}

// SAFETY: there is room only during a read, on the thread that reads.
unsafe impl Send for Room {}

impl Room {
    pub const NONE: Self = Self { at: std::ptr::null_mut(), left: 0, sources: std::ptr::null_mut() };

    /// Room for `count` entries at `at`, and for as many senders at `sources` unless that is null.
    ///
    /// # Safety
    /// Both are writable for that many, entries of the size that [`Room::put`] is told, as long as the room is used.
    #[inline(always)]
    pub unsafe fn new(at: *mut u8, count: usize, sources: *mut fi_addr_t) -> Self {
        Self { at, left: count, sources }
    }

    /// How many more there is room for.
    #[inline(always)]
    pub fn left(&self) -> usize {
        self.left
    }

    /// Ends it; how many there was still room for.
    #[inline(always)]
    pub fn end(&mut self) -> usize {
        std::mem::replace(&mut self.left, 0)
    }

    /// # Safety
    /// There is room for one more, of `size` bytes.
    #[inline(always)]
    pub unsafe fn put(&mut self, entry: Entry, size: usize) {
        // SAFETY: by the caller's promise.
        unsafe {
            write(entry, self.at, size);
            self.at = self.at.add(size);
            self.left -= 1;
            if !self.sources.is_null() {
                self.sources.write(entry.source);
                self.sources = self.sources.add(1);
            }
        }
    }
}

/// Writes C's form of an entry, which has so many bytes, word by word: no entry need be put together first.
///
/// # Safety
/// `to` has room for `size` bytes.
#[inline(always)]
unsafe fn write(Entry { context, flags, len, buf, data, tag, .. }: Entry, to: *mut u8, size: usize) {
    const WHOLE: usize = size_of::<fi_cq_tagged_entry>();
    // SAFETY: by the caller's promise; an entry begins with each of the forms.
    unsafe {
        to.cast::<u64>().write_unaligned(context);
        if size == WHOLE {
            return to.add(8).cast::<[u64; 5]>().write_unaligned([flags, len, buf, data, tag]);
        }
        if size > 8 {
            to.add(8).cast::<[u64; 2]>().write_unaligned([flags, len]);
        }
        if size > 24 {
            to.add(24).cast::<[u64; 2]>().write_unaligned([buf, data]);
        }
    }
}
