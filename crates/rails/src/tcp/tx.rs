//! Sending: frames into as few system calls as latency allows.
//!
//! What cannot be written at once waits in the link's queue: copied bytes, in blocks from a pool that all links share, and
//! spans, whose memory is asked for anew at each attempt. The queue is written in order, by one gathering call for many
//! frames.

use std::collections::VecDeque;

use super::link::{Link, Shared};
use super::sys::{self, Errno, MAX_IOV};
use crate::rail::{Full, LinkId, Memory, RawIov, Sent, Span};

/// A payload up to this length is copied when it has to wait, and small enough to share a call.
const SMALL: usize = 4 << 10;
/// Up to this length a frame is put together in staging: cheaper than having the kernel gather it.
const JOIN: usize = 1 << 10;
/// So many staged bytes are written without waiting for a flush.
const STAGED_WRITE: usize = 32 << 10;
/// Most bytes and spans that wait in a link before it is full (exceeded by at most one frame).
const STAGED_MAX: usize = 256 << 10;
const SPANS_MAX: usize = 64;
/// What [`wants_more`](Tx::wants_more) allows to wait.
const EAGER_BYTES: usize = 512 << 10;
const EAGER_SPANS: usize = 2;
/// Most bytes that one call is offered, and that one link sends before it is the next one's turn.
const TURN_BYTES: usize = 2 << 20;
/// A pool's block.
const BLOCK: usize = 32 << 10;
/// Free blocks that a pool keeps.
const POOLED: usize = 64;

/// Stands for memory that is gone.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Blocks for bytes that wait.
#[derive(Default)]
pub(super) struct Pool(Vec<Vec<u8>>);

impl Pool {
    fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_else(|| Vec::with_capacity(BLOCK))
    }
    fn give(&mut self, mut block: Vec<u8>) {
        if self.0.len() < POOLED {
            block.clear();
            self.0.push(block);
        }
    }
}

enum Piece {
    Bytes {
        block: Vec<u8>,
        at: usize,
    },
    Span {
        whole: Span,
        sent: usize,
        /// Its memory turned out not to be readable.
        gone: bool,
    },
}

#[derive(Default)]
pub(super) struct Tx {
    queue: VecDeque<Piece>,
    /// Copied bytes in the queue.
    staged: usize,
    /// Spans in the queue, and their bytes.
    spans: usize,
    spanned: usize,
    /// The socket takes no more until epoll says so.
    pub(super) blocked: bool,
    /// The rail's round in which something was last sent at once.
    round: u32,
}

/// A frame as `send` was given it.
#[derive(Clone, Copy)]
pub(super) struct Outgoing<'a> {
    pub(super) header: &'a [u8],
    pub(super) iov: &'a [RawIov],
    pub(super) len: usize,
    pub(super) span: Option<Span>,
}

impl Tx {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn wants_more(&self) -> bool {
        !self.is_full() && self.spans < EAGER_SPANS && self.staged + self.spanned < EAGER_BYTES
    }

    fn is_full(&self) -> bool {
        self.staged >= STAGED_MAX || self.spans >= SPANS_MAX
    }

    /// Gives back what the queue held.
    pub(super) fn clear(&mut self, pool: &mut Pool) {
        for piece in std::mem::take(&mut self.queue) {
            if let Piece::Bytes { block, .. } = piece {
                pool.give(block);
            }
        }
        *self = Self::default();
    }

    fn copy(&mut self, mut bytes: &[u8], pool: &mut Pool) {
        self.staged += bytes.len();
        while !bytes.is_empty() {
            let block = match self.queue.back_mut() {
                Some(Piece::Bytes { block, .. }) if block.len() < BLOCK => block,
                _ => {
                    self.queue.push_back(Piece::Bytes { block: pool.take(), at: 0 });
                    continue;
                }
            };
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - block.len()));
            block.extend_from_slice(now);
            bytes = later;
        }
    }

    /// Queues what is left of a frame of which `skip` bytes are sent.
    ///
    /// # Safety
    /// The frame's memory is readable.
    unsafe fn append(&mut self, f: Outgoing<'_>, mut skip: usize, pool: &mut Pool) -> Sent {
        if let Some(rest) = f.header.get(skip..) {
            self.copy(rest, pool);
        }
        skip = skip.saturating_sub(f.header.len());
        if let Some(whole) = f.span.filter(|_| f.len - skip > SMALL) {
            self.queue.push_back(Piece::Span { whole, sent: skip, gone: false });
            self.spans += 1;
            self.spanned += whole.len - skip;
            return Sent::Kept;
        }
        for v in f.iov {
            let from = skip.min(v.len);
            skip -= from;
            if from < v.len {
                // SAFETY: our contract; a span of bytes inside one of the frame's addresses.
                self.copy(unsafe { std::slice::from_raw_parts(v.base.add(from), v.len - from) }, pool);
            }
        }
        Sent::Done
    }

    /// The addresses of the queue's first bytes. False: not all of the queue is named.
    fn gather(&self, iov: &mut Vec<RawIov>, mem: Option<&dyn Memory>) -> bool {
        let mut bytes = 0;
        for piece in &self.queue {
            if bytes >= TURN_BYTES || iov.len() >= MAX_IOV {
                return false;
            }
            match (piece, mem) {
                (Piece::Bytes { block, at }, _) => {
                    iov.push(RawIov { base: block[*at..].as_ptr().cast_mut(), len: block.len() - at });
                    bytes += block.len() - at;
                }
                (Piece::Span { .. }, None) => return false,
                (&Piece::Span { whole, sent, gone }, Some(mem)) => {
                    let len = whole.len - sent;
                    let rest = Span { place: whole.place, offset: whole.offset + sent as u64, len };
                    if gone || !mem.resolve(rest, iov) {
                        zeros(len, iov);
                    }
                    bytes += len;
                }
            }
        }
        iov.len() < MAX_IOV
    }

    /// Forgets the queue's first `n` bytes, which are sent; `done` hears of spans that thereby ended. Returns what of `n`
    /// was not the queue's.
    fn advance(&mut self, mut n: usize, pool: &mut Pool, mut done: impl FnMut(Span)) -> usize {
        while let Some(piece) = self.queue.front_mut() {
            let (left, is_span) = match piece {
                Piece::Bytes { block, at } => (block.len() - *at, false),
                Piece::Span { whole, sent, .. } => (whole.len - *sent, true),
            };
            let now = left.min(n);
            n -= now;
            if is_span {
                self.spanned -= now
            } else {
                self.staged -= now
            }
            if now < left {
                match piece {
                    Piece::Bytes { at: sent, .. } | Piece::Span { sent, .. } => *sent += now,
                }
                break;
            }
            match self.queue.pop_front() {
                Some(Piece::Bytes { block, .. }) => pool.give(block),
                Some(Piece::Span { whole, .. }) => {
                    self.spans -= 1;
                    done(whole);
                }
                None => {}
            }
        }
        n
    }

    /// Gives up the memory of the first span that still had some. False: there is none.
    fn give_up_span(&mut self) -> bool {
        for piece in &mut self.queue {
            if let Piece::Span { gone: gone @ false, .. } = piece {
                *gone = true;
                return true;
            }
        }
        false
    }
}

fn zeros(mut len: usize, iov: &mut Vec<RawIov>) {
    while len > 0 {
        let now = len.min(ZEROS.len());
        iov.push(RawIov { base: ZEROS.as_ptr().cast_mut(), len: now });
        len -= now;
    }
}

/// Sends a frame, or queues it. On success the link may have something to flush.
///
/// # Safety
/// The frame's memory is readable.
pub(super) unsafe fn send(
    link: &mut Link,
    f: Outgoing<'_>,
    round: u32,
    sh: &mut Shared,
) -> Result<Sent, Full> {
    let tx = &mut link.tx;
    if link.error.is_some() || tx.is_full() {
        return Err(Full);
    }
    if tx.blocked || tx.spans > 0 {
        // SAFETY: our contract.
        return Ok(unsafe { tx.append(f, 0, &mut sh.pool) });
    }
    if f.len <= SMALL && tx.round == round {
        // SAFETY: our contract.
        let sent = unsafe { tx.append(f, 0, &mut sh.pool) };
        if tx.staged >= STAGED_WRITE {
            write(link, sh, None, |_| {});
        }
        return Ok(sent);
    }
    tx.round = round;
    // SAFETY: our contract.
    let n = unsafe { at_once(link, f, sh) };
    match (n, link.error) {
        (0, Some(_)) => Err(Full),
        (n, _) if n == f.header.len() + f.len => Ok(Sent::Done),
        // SAFETY: our contract.
        (n, _) => Ok(unsafe { link.tx.append(f, n, &mut sh.pool) }),
    }
}

/// Writes what is staged and the frame; returns how many of the frame's bytes the socket took.
///
/// # Safety
/// The frame's memory is readable.
unsafe fn at_once(link: &mut Link, f: Outgoing<'_>, sh: &mut Shared) -> usize {
    sh.stats.sends += 1;
    let all = f.header.len() + f.len;
    let n = if link.tx.is_empty() && f.len <= JOIN {
        let mut at = f.header.len();
        sh.staging[..at].copy_from_slice(f.header);
        for v in f.iov {
            // SAFETY: our contract; the lengths add up to f.len, which fits.
            unsafe { std::ptr::copy_nonoverlapping(v.base, sh.staging[at..].as_mut_ptr(), v.len) };
            at += v.len;
        }
        sys::send(link.fd(), &sh.staging[..all])
    } else {
        sh.iov.clear();
        if link.tx.gather(&mut sh.iov, None) {
            sh.iov.push(RawIov { base: f.header.as_ptr().cast_mut(), len: f.header.len() });
            let room = MAX_IOV.saturating_sub(sh.iov.len());
            sh.iov.extend_from_slice(&f.iov[..f.iov.len().min(room)]);
        }
        sh.iov.truncate(MAX_IOV);
        // SAFETY: the queue's blocks, the header and, by our contract, the payload.
        unsafe { sys::send_iov(link.fd(), &sh.iov) }
    };
    match n {
        Ok(n) => link.tx.advance(n, &mut sh.pool, |_| {}),
        Err(e) => {
            failed(link, e);
            0
        }
    }
}

/// Notes what a failed attempt means. Memory that cannot be read is left to the attempt that knows it by its span.
fn failed(link: &mut Link, e: Errno) {
    match e {
        libc::EAGAIN => link.tx.blocked = true,
        libc::ENOBUFS | libc::ENOMEM | libc::EFAULT => {}
        e => link.error = Some(e),
    }
}

/// Writes the queue: all of it, or until the socket takes no more, or one turn's worth. Spans only with `mem`.
pub(super) fn write(link: &mut Link, sh: &mut Shared, mem: Option<&dyn Memory>, mut done: impl FnMut(Span)) {
    let mut bytes = 0;
    while !link.tx.is_empty() && bytes < TURN_BYTES {
        sh.iov.clear();
        link.tx.gather(&mut sh.iov, mem);
        sh.iov.truncate(MAX_IOV);
        if sh.iov.is_empty() {
            return;
        }
        sh.stats.sends += 1;
        // SAFETY: the queue's blocks, zeros, and what the memory's owner just named as a span's.
        match unsafe { sys::send_iov(link.fd(), &sh.iov) } {
            Ok(n) => {
                bytes += n;
                link.tx.advance(n, &mut sh.pool, &mut done);
            }
            Err(libc::EFAULT) if link.tx.give_up_span() => {}
            Err(e) => {
                failed(link, e);
                return;
            }
        }
    }
}

/// The spans that ended, for [`Sink::sent`](crate::rail::Sink::sent).
pub(super) type Ended = Vec<(LinkId, Span)>;
