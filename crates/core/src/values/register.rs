//! The sending side of a tag: the value that is being sent, and the newest behind it.

use super::{BYTES, PutError, TAGS, refill};
use crate::wire::datagram::VALUE_MOST;
use alloc::vec::Vec;

/// A tag's. How far the value has been sent is known to who sends it.
#[derive(Debug)]
pub struct Register {
    /// Which tag.
    pub tag: u64,
    /// The newest iteration that was given.
    pub newest: u64,
    /// The iteration of the value that is being sent.
    pub iteration: u64,
    /// That value.
    pub bytes: Vec<u8>,
    /// A value that is to be sent after it: its iteration and bytes, which are a buffer without use where there is none.
    waiting: Option<u64>,
    next: Vec<u8>,
}

impl Register {
    /// For the first value.
    pub fn new(tag: u64, iteration: u64, bytes: &[u8]) -> Self {
        let bytes = bytes.to_vec();
        Self { tag, newest: iteration, iteration, bytes, waiting: None, next: Vec::new() }
    }

    /// Bytes of its buffers.
    pub fn held(&self) -> usize {
        self.bytes.capacity() + self.next.capacity()
    }

    /// The length of the value that is being sent; one without bytes is sent, too, and counts for one here.
    pub fn span(&self) -> u64 {
        (self.bytes.len() as u64).max(1)
    }

    /// A newer value, which waits; true if it took the place of one that waited.
    pub fn put(&mut self, iteration: u64, bytes: &[u8]) -> bool {
        refill(&mut self.next, bytes);
        self.newest = iteration;
        self.waiting.replace(iteration).is_some()
    }

    /// The length of the value that waits, if one does.
    pub fn waiting(&self) -> Option<u64> {
        self.waiting.map(|_| self.next.len() as u64)
    }

    /// The value that waits is the one that is being sent from now on; false if none does.
    pub fn advance(&mut self) -> bool {
        let Some(iteration) = self.waiting.take() else { return false };
        core::mem::swap(&mut self.bytes, &mut self.next);
        self.next.clear();
        self.iteration = iteration;
        true
    }
}

/// Whether a value of so many bytes may be given to a tag's register (None: its first), where there are so many `tags`, and all registers
/// hold so many bytes.
///
/// # Errors
/// Why not.
pub fn may_put(
    register: Option<&Register>,
    (tags, held): (usize, usize),
    iteration: u64,
    len: usize,
) -> Result<(), PutError> {
    let (before, after) = register.map_or((0, len), |one| (one.held(), one.bytes.capacity() + len));
    match () {
        () if len > VALUE_MOST as usize => Err(PutError::TooLong),
        () if register.is_some_and(|one| iteration <= one.newest) => Err(PutError::Old),
        () if register.is_none() && tags >= TAGS => Err(PutError::TooManyTags),
        () if held - before + after > BYTES => Err(PutError::TooManyBytes),
        () => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_replaced_and_what_is_sent_is_not() {
        let mut register = Register::new(7, 1, b"one");
        assert!(!register.advance() && !register.put(2, b"two") && register.put(4, b"four"));
        assert_eq!((register.iteration, &register.bytes[..], register.waiting()), (1, &b"one"[..], Some(4)));
        assert!(register.advance());
        assert_eq!((register.iteration, &register.bytes[..], register.newest), (4, &b"four"[..], 4));
        assert_eq!(register.waiting(), None);
    }

    #[test]
    fn bounds_are_said_by_name() {
        let register = Register::new(7, 5, &[0; 10]);
        let may = |held, iteration, len| may_put(Some(&register), (1, held), iteration, len);
        assert_eq!(may(10, 6, 10), Ok(()));
        assert_eq!(may(10, 5, 10), Err(PutError::Old));
        assert_eq!(may(10, 6, VALUE_MOST as usize + 1), Err(PutError::TooLong));
        assert_eq!(may(BYTES, 6, 1), Err(PutError::TooManyBytes));
        assert_eq!(may_put(None, (TAGS, 0), 1, 1), Err(PutError::TooManyTags));
        assert_eq!(may_put(None, (TAGS - 1, BYTES - 1), 1, 1), Ok(()));
    }
}
