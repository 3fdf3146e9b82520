//! Sending: frames into as few system calls as latency allows.
//!
//! What cannot be written at once waits in the link's [`RetransmitBuffer`], which keeps it beyond that until the peer says that it has it.
//! It is written in order, by one gathering call for many frames.

use super::link::{Link, Shared};
use super::seal::Sealer;
use super::sys::{self, Errno, Sent};
use crate::rail::journal::{MAX_IOV, RetransmitBuffer, TURN_BYTES};
use crate::rail::{Full, Memory, RawIov, Span};

/// A payload up to this length is copied, and small enough to share a call.
pub(super) const SMALL: usize = 4 << 10;
/// So many staged bytes are written without waiting for a flush.
const STAGED_WRITE: usize = 32 << 10;
/// Most bytes and spans that wait in a link before it is full (exceeded by at most one frame).
const STAGED_MAX: usize = 256 << 10;
const SPANS_MAX: usize = 64;
/// What [`wants_more`](Tx::wants_more) allows to wait.
const EAGER_BYTES: usize = 512 << 10;
const EAGER_SPANS: usize = 2;

/// Only what was copied is to be written: the memory of spans cannot be asked for.
const COPIES: Option<&Nowhere> = None;

/// Has no memory.
struct Nowhere;

impl Memory for Nowhere {
    fn resolve(&self, _span: Span, _out: &mut Vec<RawIov>) -> bool {
        false
    }
}

pub(super) struct Tx {
    pub(super) unacked: RetransmitBuffer,
    /// The socket takes no more until epoll says so.
    pub(super) blocked: bool,
    /// The rail's round in which something was last sent at once.
    round: u32,
    /// Encrypts what is sent.
    pub(super) sealer: Option<Box<Sealer>>,
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
    pub(super) fn new(sealer: Option<Box<Sealer>>) -> Self {
        Self { unacked: RetransmitBuffer::default(), blocked: false, round: 0, sealer }
    }

    /// Whether nothing waits to be written.
    pub(super) fn is_empty(&self) -> bool {
        self.unacked.is_written() && !self.holds_sealed()
    }

    /// Whether something waits because the socket takes no more, or is long.
    pub(super) fn waits(&self) -> bool {
        self.blocked || self.unacked.spans() > 0
    }

    pub(super) fn wants_more(&self) -> bool {
        !self.is_full() && self.unacked.spans() < EAGER_SPANS && self.unacked.unwritten() < EAGER_BYTES
    }

    /// Whether something is sealed that the socket has not taken.
    fn holds_sealed(&self) -> bool {
        self.sealer.as_ref().is_some_and(|sealer| !sealer.is_empty())
    }

    fn is_full(&self) -> bool {
        self.unacked.staged() >= STAGED_MAX || self.unacked.spans() >= SPANS_MAX
    }
}

/// Sends a frame, or queues it. On success the link may have something to flush.
///
/// # Safety
/// The frame's memory is readable.
pub(super) unsafe fn send(link: &mut Link, f: Outgoing<'_>, round: u32, sh: &mut Shared) -> Result<(), Full> {
    let fd = link.fd();
    if link.error.is_some() || link.tx.is_full() {
        return Err(Full);
    }
    link.look_before_sending();
    let tx = &mut link.tx;
    let waits = tx.waits();
    let span = f.span.filter(|_| f.len > SMALL);
    if f.len > SMALL && span.is_none() && tx.is_empty() && !waits && tx.sealer.is_none() {
        tx.round = round;
        // SAFETY: our contract.
        return unsafe { send_then_copy(link, f, sh) };
    }
    // SAFETY: our contract.
    unsafe { tx.unacked.push(f.header, f.iov, span, &mut sh.pool) };
    if waits {
        return Ok(());
    }
    if f.len <= SMALL && tx.round == round {
        if tx.unacked.staged() >= STAGED_WRITE {
            write(link, sh, COPIES);
        }
        return Ok(());
    }
    tx.round = round;
    let sent = if span.is_none() && tx.sealer.is_none() {
        sh.stats.sends += 1;
        sys::send(fd, tx.unacked.plain()).into()
    } else {
        sh.iov.clear();
        tx.unacked.gather(&mut sh.iov, COPIES);
        if span.is_some() {
            let room = MAX_IOV - sh.iov.len();
            sh.iov.extend_from_slice(&f.iov[..f.iov.len().min(room)]);
        }
        // SAFETY: the buffer's bytes and, by our contract, the payload.
        unsafe { put(link, sh) }
    };
    came_to(link, sent);
    Ok(())
}

/// Sends a long payload before it is copied: the peer need not wait for that.
///
/// # Safety
/// The frame's memory is readable.
unsafe fn send_then_copy(link: &mut Link, f: Outgoing<'_>, sh: &mut Shared) -> Result<(), Full> {
    sh.iov.clear();
    sh.iov.push(RawIov { base: f.header.as_ptr().cast_mut(), len: f.header.len() });
    sh.iov.extend_from_slice(&f.iov[..f.iov.len().min(MAX_IOV - 1)]);
    // SAFETY: the header is borrowed, the payload readable by our contract.
    let sent = unsafe { put(link, sh) };
    // SAFETY: our contract.
    unsafe { link.tx.unacked.push(f.header, f.iov, None, &mut sh.pool) };
    came_to(link, sent);
    Ok(())
}

/// Writes what is at `sh.iov`, or seals it to be written before all else.
///
/// # Safety
/// The memory is readable.
unsafe fn put(link: &mut Link, sh: &mut Shared) -> Sent {
    let fd = link.fd();
    match &mut link.tx.sealer {
        None => {
            sh.stats.sends += 1;
            // SAFETY: our contract.
            unsafe { sys::send_iov(fd, &sh.iov) }.into()
        }
        // SAFETY: our contract.
        Some(sealer) => unsafe { sealer.write(fd, &sh.iov, &mut sh.pool, &mut sh.stats) },
    }
}

/// Notes what an attempt to send the oldest bytes came to.
fn came_to(link: &mut Link, sent: Sent) {
    link.tx.unacked.advance(sent.bytes);
    if let Some(e) = sent.stopped {
        failed(link, e);
    }
}

/// Notes what a failed attempt means. Memory that cannot be read is left to the attempt that knows it by its span.
fn failed(link: &mut Link, e: Errno) {
    match e {
        libc::EAGAIN => {
            link.tx.blocked = true;
            link.way.iter_mut().for_each(|way| way.refused = true);
        }
        libc::ENOBUFS | libc::ENOMEM | libc::EFAULT => {}
        e => link.error = Some(e),
    }
}

/// Writes what waits: all of it, or until the socket takes no more, or one turn's worth. Spans only with `mem`.
pub(super) fn write<M: Memory + ?Sized>(link: &mut Link, sh: &mut Shared, mem: Option<&M>) {
    let mut bytes = 0;
    while !link.tx.is_empty() && bytes < TURN_BYTES {
        sh.iov.clear();
        link.tx.unacked.gather(&mut sh.iov, mem);
        sh.iov.truncate(MAX_IOV);
        if sh.iov.is_empty() && !link.tx.holds_sealed() {
            return;
        }
        // SAFETY: the buffer's bytes, zeros, and what the memory's owner just named as a span's.
        match unsafe { put(link, sh) } {
            Sent { stopped: Some(libc::EFAULT), bytes: 0 } if link.tx.unacked.give_up() => {}
            sent => {
                bytes += sent.bytes;
                came_to(link, sent);
                if sent.stopped.is_some() {
                    return;
                }
            }
        }
    }
}
