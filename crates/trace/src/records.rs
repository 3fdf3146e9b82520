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

/// A payload in pieces of about `most` bytes, none of which parts a note from its payload.
pub fn pieces(payload: &[u8], most: usize) -> impl Iterator<Item = &[u8]> {
    let mut rest = payload;
    std::iter::from_fn(move || {
        let mut records = Records::new(rest);
        while rest.len() - records.0.len() < most && records.next().is_some() {}
        // bytes behind the last whole record go with it
        let left = if records.0.len() < RECORD { &[] } else { records.0 };
        let piece = &rest[..rest.len() - left.len()];
        rest = left;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_whole_and_part_no_note() {
        let mut payload = Vec::new();
        for length in [0, 1, 100, 32, 5, 1000, 0, 7] {
            payload.extend(Record::note(0, 1, length).to_bytes());
            payload.resize(payload.len() + (length as usize).div_ceil(RECORD) * RECORD, length as u8);
        }
        payload.extend([1, 2, 3]);
        let whole: Vec<_> = Records::new(&payload).collect();
        for most in [1, 32, 33, 64, 500, 2000, 1 << 20] {
            let parts: Vec<&[u8]> = pieces(&payload, most).collect();
            assert_eq!(parts.concat(), payload);
            assert!(parts.iter().flat_map(|part| Records::new(part)).eq(whole.iter().copied()), "{most}");
            assert!(parts.iter().all(|part| part.len() < most + RECORD + 1024 + 3));
        }
        assert_eq!(pieces(&[], 10).count(), 0);
    }
}
