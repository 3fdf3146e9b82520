//! Bytes between a stream and the records of a handshake.

use alloc::vec::Vec;

use crate::wire::handshake::{
    HELLO_LEN, HandshakeError, MAGIC, MAX_OFFER, MAX_RECORD, Record, SEALED_HEAD, SEALED_LEN,
};

/// Gathers one record, in room that is there from the start. A wrong byte is refused as soon as it is seen.
pub(super) struct Inbox {
    bytes: [u8; MAX_RECORD],
    len: usize,
}

impl Inbox {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; MAX_RECORD], len: 0 }
    }

    /// Takes bytes off `input` until a record is whole, and says which; None when more bytes are needed. The record's
    /// bytes are there until [`Inbox::clear`], which must come before the next.
    pub(super) fn take(
        &mut self,
        input: &mut &[u8],
        allowed: &[Record],
    ) -> Result<Option<Record>, HandshakeError> {
        loop {
            let (record, end) = self.wanted(allowed)?;
            if self.len == end {
                return Ok(record);
            }
            let (head, rest) = input.split_at(input.len().min(end - self.len));
            if head.is_empty() {
                return Ok(None);
            }
            self.bytes[self.len..self.len + head.len()].copy_from_slice(head);
            self.len += head.len();
            *input = rest;
        }
    }

    /// Where the bytes that can be judged next end, and, once they are known to be the last, the record's kind.
    fn wanted(&self, allowed: &[Record]) -> Result<(Option<Record>, usize), HandshakeError> {
        let have = &self.bytes[..self.len];
        if have.iter().zip(&MAGIC).any(|(a, b)| a != b) {
            return Err(HandshakeError::NotPolyrail);
        }
        let Some(&number) = have.get(MAGIC.len()) else {
            return Ok((None, MAGIC.len() + 1));
        };
        let record = Record::from_wire(number).filter(|record| allowed.contains(record));
        let record = record.ok_or(HandshakeError::Record(number))?;
        if !matches!(record, Record::Proof | Record::Verdict) {
            return Ok((Some(record), record.fixed_len()));
        }
        if self.len < SEALED_HEAD {
            return Ok((None, SEALED_HEAD));
        }
        let offer = u16::from_le_bytes([have[6], have[7]]);
        if usize::from(offer) > MAX_OFFER {
            return Err(HandshakeError::Oversized(offer));
        }
        Ok((Some(record), SEALED_LEN + usize::from(offer)))
    }

    /// The first `N` bytes of the record.
    pub(super) fn fixed<const N: usize>(&self) -> &[u8; N] {
        const { assert!(N <= MAX_RECORD) };
        self.bytes.first_chunk().expect("shorter than the room")
    }

    /// What follows the fixed part of PROOF or VERDICT.
    pub(super) fn offer(&self) -> &[u8] {
        self.bytes.get(SEALED_LEN..self.len).unwrap_or(&[])
    }

    pub(super) const fn clear(&mut self) {
        self.len = 0;
    }
}

/// Bytes on their way out: a record's fixed part, then its offer. Nothing is allocated unless there is an offer.
pub(super) struct Outbox {
    fixed: [u8; HELLO_LEN],
    len: usize,
    offer: Vec<u8>,
    at: usize,
}

impl Outbox {
    pub(super) const fn new() -> Self {
        Self { fixed: [0; HELLO_LEN], len: 0, offer: Vec::new(), at: 0 }
    }

    /// Puts a record in place of the one before, which has gone out: the two sides take turns.
    pub(super) fn put<const N: usize>(&mut self, fixed: &[u8; N], offer: Vec<u8>) {
        const { assert!(N <= HELLO_LEN) };
        self.fixed[..N].copy_from_slice(fixed);
        (self.len, self.offer, self.at) = (N, offer, 0);
    }

    pub(super) fn pending(&self) -> Option<&[u8]> {
        let fixed = self.fixed[..self.len].get(self.at..).filter(|bytes| !bytes.is_empty());
        let offer = || self.offer.get(self.at.checked_sub(self.len)?..).filter(|bytes| !bytes.is_empty());
        fixed.or_else(offer)
    }

    /// Whether all has gone out.
    pub(super) fn sent(&mut self, n: usize) -> bool {
        self.at = (self.at + n).min(self.len + self.offer.len());
        self.pending().is_none()
    }
}
