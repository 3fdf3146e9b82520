//! The records of a block, with the payloads of those that are notes.

use polyrail_core::trace::{RECORD, Record};

/// Goes through a block's payload.
pub struct Records<'a>(&'a [u8]);

impl<'a> Records<'a> {
    /// Bytes behind the last whole record are left out.
    pub fn new(payload: &'a [u8]) -> Self {
        Records(payload)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = (Record, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (bytes, rest) = self.0.split_first_chunk::<RECORD>()?;
        let record = Record::from_bytes(bytes);
        let Some(parts) = record.payload() else {
            self.0 = rest;
            return Some((record, &[]));
        };
        // a note that claims more than there is takes what is there
        let (room, rest) = rest.split_at((parts * RECORD).min(rest.len()));
        self.0 = rest;
        Some((record, &room[..(record.rest[2] as usize).min(room.len())]))
    }
}
