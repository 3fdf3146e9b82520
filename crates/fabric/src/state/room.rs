//! The memory of who reads a completion queue, in the form that C wants.

use crate::ffi::*;
use crate::state::completion::Entry;

/// Bytes of the largest form.
const WHOLE: usize = size_of::<fi_cq_tagged_entry>();

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
    /// How many more entries there is room for, of the largest form and without senders.
    whole: usize,
    /// The same of all others.
    others: usize,
    size: usize,
    /// Where senders go, if anywhere.
    sources: *mut fi_addr_t,
}

// SAFETY: there is room only during a read, on the thread that reads.
unsafe impl Send for Room {}

impl Room {
    pub const NONE: Self =
        Self { at: std::ptr::null_mut(), whole: 0, others: 0, size: 0, sources: std::ptr::null_mut() };

    /// Room for `count` entries of `size` bytes at `at`, and for as many senders at `sources` unless that is null.
    ///
    /// # Safety
    /// Both are writable for that many as long as the room is used.
    #[inline(always)]
    pub unsafe fn new(at: *mut u8, count: usize, size: usize, sources: *mut fi_addr_t) -> Self {
        let is_whole = size == WHOLE && sources.is_null();
        let (whole, others) = if is_whole { (count, 0) } else { (0, count) };
        Self { at, whole, others, size, sources }
    }

    /// How many more there is room for.
    #[inline(always)]
    pub fn left(&self) -> usize {
        self.whole + self.others
    }

    /// Ends it; how many there was still room for.
    #[inline(always)]
    pub fn end(&mut self) -> usize {
        let left = self.left();
        (self.whole, self.others) = (0, 0);
        left
    }

    /// Takes an entry, word by word, if that is all there is to it: of the largest form, without a sender. False, and nothing has happened:
    /// [`Room::put`] knows.
    #[inline(always)]
    pub fn put_whole(&mut self, words: [u64; 6]) -> bool {
        let Some(left) = self.whole.checked_sub(1) else { return false };
        self.whole = left;
        // SAFETY: there is room, by the promise given to `new`.
        unsafe {
            self.at.cast::<[u64; 6]>().write_unaligned(words);
            self.at = self.at.add(WHOLE);
        }
        true
    }

    /// Takes an entry; false where there is no room.
    #[inline]
    pub fn put(&mut self, entry: &Entry) -> bool {
        let &Entry { context, flags, len, buf, data, tag, source } = entry;
        if self.put_whole([context, flags, len, buf, data, tag]) {
            return true;
        }
        let Some(left) = self.others.checked_sub(1) else { return false };
        self.others = left;
        // SAFETY: there is room, by the promise given to `new`; an entry begins with each of the forms.
        unsafe {
            (&raw const *entry).cast::<u8>().copy_to_nonoverlapping(self.at, self.size);
            self.at = self.at.add(self.size);
            if !self.sources.is_null() {
                self.sources.write(source);
                self.sources = self.sources.add(1);
            }
        }
        true
    }
}
