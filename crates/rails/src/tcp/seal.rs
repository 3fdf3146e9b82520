//! Encrypted links: the stream of frames, cut into sealed records.
//!
//! A record is the length of what follows (u16), the encrypted bytes, and a tag of 16. Its number is nowhere: both sides count. So a
//! record that was changed, left out, repeated or moved does not open, and its link ends as a connection does that was cut: what it
//! carried travels by another. Frames begin and end anywhere in records.
//!
//! What was sealed is sent before all else, as it is: positions in the stream ([`crate::rail::journal`]) count bytes before sealing,
//! and count them as written once they are sealed.

use super::Stats;
use super::sys::{self, Errno, Sent};
use crate::keys::Chain;
use crate::rail::RawIov;
use crate::rail::journal::Pool;
use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce};
use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::RawFd;

const HEAD: usize = 2;
const TAG: usize = 16;
/// Bytes of the longest record. It and its plaintext stay in a first-level cache while they are sealed.
pub(super) const RECORD: usize = 16 << 10;
/// Most bytes that a record has before it is sealed.
pub(super) const PLAIN: usize = RECORD - HEAD - TAG;
/// Records that are sealed before they are written.
const BATCH: usize = 4 * PLAIN;
/// Records under one key: a twentieth of what TLS allows with AES-GCM, and often enough that it is exercised.
const REKEY: u64 = 1 << 20;

/// One direction's keys, and how many records there were under the present one.
struct Keys {
    chain: Chain,
    key: LessSafeKey,
    mask: [u8; 12],
    count: u64,
}

impl Keys {
    fn new(chain: Chain) -> Option<Self> {
        let (key, mask) = chain.key()?;
        Some(Self { chain, key, mask, count: 0 })
    }

    /// The next record's nonce, which is never had again under the same key.
    fn nonce(&mut self) -> Option<Nonce> {
        if self.count == REKEY {
            *self = Self::new(self.chain.next()?)?;
        }
        let mut nonce = self.mask;
        for (byte, count) in nonce.iter_mut().zip(self.count.to_le_bytes()) {
            *byte ^= count;
        }
        self.count += 1;
        Some(Nonce::assume_unique_for_key(nonce))
    }
}

/// Bytes at several addresses, taken off their front.
struct Pieces<'a> {
    iov: &'a [RawIov],
    /// Of the first.
    taken: usize,
}

impl Pieces<'_> {
    /// Appends as many bytes as there are, but no more than `most`.
    ///
    /// # Safety
    /// The memory is readable.
    unsafe fn append_to(&mut self, out: &mut Vec<u8>, most: usize) -> usize {
        let mut left = most;
        while let Some(first) = self.iov.first().filter(|_| left > 0) {
            let now = left.min(first.len - self.taken);
            // SAFETY: our contract; the range is within the first piece.
            out.extend_from_slice(unsafe { std::slice::from_raw_parts(first.base.add(self.taken), now) });
            (left, self.taken) = (left - now, self.taken + now);
            if self.taken == first.len {
                (self.iov, self.taken) = (&self.iov[1..], 0);
            }
        }
        most - left
    }
}

/// The sending half.
pub(super) struct Sealer {
    keys: Keys,
    /// Sealed; the first `at` bytes are written. Without memory when all is.
    out: Vec<u8>,
    at: usize,
    progress: Progress,
}

impl Sealer {
    pub(super) fn new(chain: Chain) -> Option<Self> {
        let (out, progress) = (Vec::new(), Progress::default());
        Some(Self { keys: Keys::new(chain)?, out, at: 0, progress })
    }

    /// Whether nothing is sealed that is not written.
    pub(super) fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Bytes of the stream that the peer's kernel has, when it has not acknowledged so many bytes that were written.
    pub(super) fn delivered(&self, unacknowledged: usize) -> u64 {
        self.progress.plain(self.progress.written.saturating_sub(unacknowledged as u64))
    }

    /// Writes what is sealed; then seals what is at `iov`, and writes that, until the socket takes no more.
    ///
    /// # Safety
    /// The memory at `iov` is readable.
    pub(super) unsafe fn write(
        &mut self,
        fd: RawFd,
        iov: &[RawIov],
        pool: &mut Pool,
        stats: &mut Stats,
    ) -> Sent {
        let (mut from, mut sent) = (Pieces { iov, taken: 0 }, Sent { bytes: 0, stopped: None });
        loop {
            sent.stopped = self.drain(fd, pool, stats).err();
            if sent.stopped.is_some() {
                return sent;
            }
            // SAFETY: our contract.
            match Sent::from(unsafe { self.seal(&mut from, pool) }) {
                Sent { bytes: 0, stopped } => return Sent { stopped, ..sent },
                Sent { bytes, .. } => sent.bytes += bytes,
            }
        }
    }

    fn drain(&mut self, fd: RawFd, pool: &mut Pool, stats: &mut Stats) -> Result<(), Errno> {
        while self.at < self.out.len() {
            stats.sends += 1;
            let n = sys::send(fd, &self.out[self.at..])?;
            self.at += n;
            self.progress.written += n as u64;
        }
        if !self.out.is_empty() {
            self.at = 0;
            pool.give(std::mem::take(&mut self.out));
            self.progress.prune(|| sys::unacknowledged(fd));
        }
        Ok(())
    }

    /// Seals a batch; nothing is sealed that waits to be written.
    ///
    /// # Safety
    /// As [`Sealer::write`].
    unsafe fn seal(&mut self, from: &mut Pieces<'_>, pool: &mut Pool) -> Result<usize, Errno> {
        if from.iov.is_empty() {
            return Ok(0);
        }
        self.out = pool.take(0);
        let most = BATCH.min(from.iov.iter().map(|v| v.len).sum());
        self.out.reserve_exact(most + most.div_ceil(PLAIN) * (HEAD + TAG));
        let mut sealed = 0;
        while sealed < BATCH {
            // SAFETY: our contract.
            match unsafe { self.record(from) }? {
                0 => break,
                n => sealed += n,
            }
        }
        self.progress.sealed(sealed as u64, self.out.len() as u64);
        Ok(sealed)
    }

    /// Seals one record.
    ///
    /// # Safety
    /// As [`Sealer::write`].
    unsafe fn record(&mut self, from: &mut Pieces<'_>) -> Result<usize, Errno> {
        let start = self.out.len();
        self.out.extend_from_slice(&[0; HEAD]);
        // SAFETY: our contract.
        let len = unsafe { from.append_to(&mut self.out, PLAIN) };
        if len == 0 {
            self.out.truncate(start);
            return Ok(0);
        }
        let (head, plain) = self.out[start..].split_at_mut(HEAD);
        head.copy_from_slice(&((len + TAG) as u16).to_le_bytes());
        // neither fails with lengths like these
        let nonce = self.keys.nonce().ok_or(libc::EIO)?;
        let tag = self.keys.key.seal_in_place_separate_tag(nonce, Aad::empty(), plain);
        self.out.extend_from_slice(tag.map_err(|_| libc::EIO)?.as_ref());
        Ok(len)
    }
}

/// How far the stream has come, in its own bytes, when so many sealed ones are acknowledged.
#[derive(Default)]
struct Progress {
    /// Ends of stretches that were sealed: in the stream, and sealed. The first is acknowledged.
    marks: VecDeque<(u64, u64)>,
    /// Sealed bytes that were written.
    written: u64,
    /// What was asked last, and answered: the answer is another only when more is acknowledged.
    told: Cell<(u64, u64)>,
}

/// A stretch grows to so many bytes before another begins, and so many stretches are there before it is asked which are acknowledged.
const STRETCH: u64 = 16 << 10;
const STRETCHES: usize = 64;

impl Progress {
    fn sealed(&mut self, plain: u64, sealed: u64) {
        if self.marks.is_empty() {
            self.marks.push_back((0, 0));
        }
        let last = self.marks.len() - 1;
        let (p, s) = self.marks[last];
        let end = (p + plain, s + sealed);
        match last.checked_sub(1).map(|before| self.marks[before]) {
            Some((_, begun)) if s - begun < STRETCH => self.marks[last] = end,
            _ => self.marks.push_back(end),
        }
    }

    /// Bytes of the stream in the first so many sealed ones. It stays as long as `acked` does, and is never less than before.
    fn plain(&self, acked: u64) -> u64 {
        let (asked, told) = self.told.get();
        if acked != asked {
            let least = if acked > asked { told } else { 0 };
            self.told.set((acked, self.divided(acked).max(least)));
        }
        self.told.get().1
    }

    /// Of the stretch that is acknowledged in part, as much as of its sealed bytes.
    fn divided(&self, acked: u64) -> u64 {
        let next = self.marks.partition_point(|&(_, sealed)| sealed <= acked);
        let (p, s) = next.checked_sub(1).map_or((0, 0), |at| self.marks[at]);
        self.marks.get(next).map_or(p, |&(plain, sealed)| p + (acked - s) * (plain - p) / (sealed - s))
    }

    fn prune(&mut self, unacknowledged: impl FnOnce() -> usize) {
        if self.marks.len() >= STRETCHES {
            let acked = self.written.saturating_sub(unacknowledged() as u64);
            let done = self.marks.partition_point(|&(_, sealed)| sealed <= acked);
            self.marks.drain(..done.saturating_sub(1));
        }
    }
}

/// The receiving half.
pub(super) struct Opener {
    keys: Keys,
    /// The beginning of a record; without memory between records.
    pub(super) partial: Vec<u8>,
}

/// Why a record does not open. Who is on the way can bring that about, and so it must end no more than cutting the connection would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    Length(usize),
    Tag,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Length(len) => {
                write!(f, "an encrypted record of {len} bytes came; something changes what is sent")
            }
            Self::Tag => {
                f.write_str("a record came that is not as it was sealed; something changes what is sent")
            }
        }
    }
}

impl Opener {
    pub(super) fn new(chain: Chain) -> Option<Self> {
        Some(Self { keys: Keys::new(chain)?, partial: Vec::new() })
    }

    /// How many bytes the first record in `bytes` has before and after it is opened; none if it is not all there.
    #[inline]
    pub(super) fn peek(bytes: &[u8]) -> Result<Option<(usize, usize)>, Broken> {
        let Some(&head) = bytes.first_chunk::<HEAD>() else { return Ok(None) };
        let len = usize::from(u16::from_le_bytes(head));
        match len.checked_sub(TAG) {
            Some(plain @ 1..=PLAIN) => Ok((bytes.len() >= HEAD + len).then_some((HEAD + len, plain))),
            _ => Err(Broken::Length(len)),
        }
    }

    /// Opens the first record in `bytes`, if it is all there, to the beginning of a place that has room for any: how many bytes it had
    /// before and after.
    #[inline]
    pub(super) fn open_first(
        &mut self,
        bytes: &[u8],
        to: &mut [u8],
    ) -> Result<Option<(usize, usize)>, Broken> {
        let Some((len, plain)) = Self::peek(bytes)? else { return Ok(None) };
        self.open(&bytes[..len], &mut to[..plain])?;
        Ok(Some((len, plain)))
    }

    /// Opens a record, which [`Opener::peek`] found whole, into a place of exactly its length. Without success the place's bytes mean
    /// nothing, and neither does anything that comes later.
    #[inline]
    pub(super) fn open(&mut self, record: &[u8], to: &mut [u8]) -> Result<(), Broken> {
        let nonce = self.keys.nonce().ok_or(Broken::Tag)?;
        let (sealed, tag) = record[HEAD..].split_at(to.len());
        self.keys.key.open_separate_gather(nonce, Aad::empty(), sealed, tag, to).map_err(|_| Broken::Tag)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
