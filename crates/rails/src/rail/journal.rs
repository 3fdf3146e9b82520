//! What was given to a link and the peer may not have: the stream's bytes from the first such frame on. Small payloads and
//! headers are copied to here and written from here; large ones stay where they are, under their span's name. Of these some are only
//! lent, those of eager messages that want no acknowledgement: they may be copied later, and whose they were is told when they are not
//! needed any more.
//!
//! Positions count the stream's bytes since the link began. The frames between them need no table: their headers are here.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use polyrail_core::frame::{Acked, Frame, OpId, PREFIX, peek_lengths};

use crate::rail::{Memory, Place, RawIov, Span, UnackedFrame};

/// Most addresses that one call is offered (`UIO_MAXIOV`).
pub(crate) const MAX_IOV: usize = 1024;
/// Most bytes that one call is offered, and that one link sends before it is the next one's turn.
pub(crate) const TURN_BYTES: usize = 2 << 20;
/// Memory of this much and less is kept for the next link that needs some, and so many pieces of it.
const POOLED: usize = 64 << 10;
const POOL: usize = 64;
/// The same of links that copy more, which it would cost a copy and page faults to find again.
const POOLED_LARGE: usize = 2 << 20;
const POOL_LARGE: usize = 4;
/// A frame of so much asks for the latter.
const LARGE: usize = 8 << 10;
/// Bytes in front that nobody needs any more are cut off from here on.
const CUT: usize = 32 << 10;

/// Stands for memory that is gone.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// What links have no use for now: memory of their own, and, by their operations, users' that was lent to them.
#[derive(Default)]
pub(crate) struct Pool {
    small: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
    pub(crate) returned: VecDeque<OpId>,
}

impl Pool {
    /// Some for a frame of so many bytes, and others after it.
    pub(crate) fn take(&mut self, len: usize) -> Vec<u8> {
        let large = if len >= LARGE { self.large.pop() } else { None };
        large.or_else(|| self.small.pop()).unwrap_or_default()
    }

    /// Some for one payload.
    fn take_one(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = self.small.pop().unwrap_or_default();
        bytes.reserve_exact(len);
        bytes
    }

    pub(crate) fn give(&mut self, mut bytes: Vec<u8>) {
        let small = bytes.capacity() <= POOLED;
        let (pieces, most) = if small { (&mut self.small, POOL) } else { (&mut self.large, POOL_LARGE) };
        if pieces.len() < most && bytes.capacity() <= POOLED_LARGE {
            bytes.clear();
            pieces.push(bytes);
        }
    }
}

/// A payload that stays where it is.
struct Lasting {
    /// Where in the stream it begins.
    at: u64,
    /// Bytes of such payloads before it, counted from some of them on.
    before: u64,
    span: Span,
    /// Its memory turned out not to be readable.
    gone: bool,
    /// Whose it is, if it is only lent.
    lent: Option<OpId>,
    /// A copy of it; without memory while there is none.
    copy: Vec<u8>,
}

impl Lasting {
    /// Bytes of such payloads before what follows it.
    fn spans_to(&self) -> u64 {
        self.before + self.span.len as u64
    }

    /// The copy's bytes from `offset` on, if it is copied.
    fn copied(&self, offset: usize) -> Option<&[u8]> {
        self.copy.get(offset..).filter(|_| !self.copy.is_empty())
    }
}

/// The send that a payload is lent by.
fn lender(header: &[u8], span: Span) -> Option<OpId> {
    match (Frame::parse(header), span.place) {
        (Ok((Frame::Eager { ack: None, .. }, _)), Place::Send(op)) => Some(op),
        _ => None,
    }
}

#[derive(Default)]
pub(crate) struct RetransmitBuffer {
    /// Headers and copied payloads; the first `head` bytes are no longer needed.
    bytes: Vec<u8>,
    head: usize,
    lasting: VecDeque<Lasting>,
    /// Bytes of copies of these.
    copies: usize,
    /// Where the first frame kept begins, what is written, and the end of all that was given.
    kept: u64,
    written: u64,
    end: u64,
    /// The place of `written` in `bytes` (from `head`) and in `lasting`.
    at: usize,
    next: usize,
    /// How many frames are gone from here, and how many were given.
    had: u64,
    frames: u64,
    /// What the peer is known to have: all that are gone, and perhaps ranges of those that are here.
    said: Acked,
}

impl RetransmitBuffer {
    /// Whether all is written.
    pub(crate) fn is_written(&self) -> bool {
        self.written == self.end
    }

    /// Bytes not yet written.
    pub(crate) fn unwritten(&self) -> usize {
        (self.end - self.written) as usize
    }

    /// Copied bytes not yet written.
    pub(crate) fn staged(&self) -> usize {
        self.bytes.len() - self.head - self.at
    }

    /// Copied bytes that the peer may not have.
    pub(crate) fn copied(&self) -> usize {
        self.bytes.len() - self.head + self.copies
    }

    /// Payloads under a span's name that are not yet written whole.
    pub(crate) fn spans(&self) -> usize {
        self.lasting.len() - self.next
    }

    /// Bytes written since the link began.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Bytes given since the link began.
    pub(crate) fn given(&self) -> u64 {
        self.end
    }

    /// Adds a frame; its payload is copied unless it has a span.
    ///
    /// # Safety
    /// The memory at `iov` is readable.
    pub(crate) unsafe fn push(&mut self, header: &[u8], iov: &[RawIov], span: Option<Span>, pool: &mut Pool) {
        if self.bytes.capacity() == 0 {
            let len: usize = iov.iter().map(|v| v.len).sum();
            self.bytes = pool.take(if span.is_some() { 0 } else { len });
        }
        self.bytes.extend_from_slice(header);
        self.end += header.len() as u64;
        self.frames += 1;
        match span {
            Some(span) => {
                let (lent, copy) = (lender(header, span), Vec::new());
                let before = self.lasting.back().map_or(0, Lasting::spans_to);
                self.lasting.push_back(Lasting { at: self.end, before, span, gone: false, lent, copy });
                self.end += span.len as u64;
            }
            None => {
                for v in iov.iter().filter(|v| v.len > 0) {
                    // SAFETY: our contract.
                    self.bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(v.base, v.len) });
                    self.end += v.len as u64;
                }
            }
        }
    }

    /// The copied bytes that are not yet written, up to the next payload that is not among them.
    pub(crate) fn plain(&self) -> &[u8] {
        let rest = &self.bytes[self.head + self.at..];
        match self.lasting.get(self.next) {
            Some(lasting) => &rest[..lasting.at.saturating_sub(self.written) as usize],
            None => rest,
        }
    }

    /// Appends where the next bytes to write are; without `mem` only those before the next payload that is not here.
    pub(crate) fn gather<M: Memory + ?Sized>(&self, iov: &mut Vec<RawIov>, mem: Option<&M>) {
        let mut rest = &self.bytes[self.head + self.at..];
        let (mut at, mut bytes) = (self.written, 0);
        let copied = |rest: &mut &[u8], len: usize, iov: &mut Vec<RawIov>| {
            let (now, later) = rest.split_at(len);
            *rest = later;
            if len > 0 {
                iov.push(RawIov { base: now.as_ptr().cast_mut(), len });
            }
        };
        for lasting in self.lasting.range(self.next..) {
            let before = lasting.at.saturating_sub(at) as usize;
            copied(&mut rest, before, iov);
            let Some(mem) = mem else { return };
            at += before as u64;
            let sent = (at - lasting.at) as usize;
            let span = lasting.span;
            let left = Span { place: span.place, offset: span.offset + sent as u64, len: span.len - sent };
            if let Some(copy) = lasting.copied(sent) {
                iov.push(RawIov { base: copy.as_ptr().cast_mut(), len: copy.len() });
            } else if lasting.gone || !mem.resolve(left, iov) {
                zeros(left.len, iov);
            }
            at += left.len as u64;
            bytes += before + left.len;
            if bytes >= TURN_BYTES || iov.len() >= MAX_IOV {
                return;
            }
        }
        let len = rest.len();
        copied(&mut rest, len, iov);
    }

    /// The next `n` bytes are written.
    pub(crate) fn advance(&mut self, mut n: usize) {
        while n > 0 {
            let (len, plain) = match self.lasting.get(self.next) {
                Some(lasting) if lasting.at <= self.written => {
                    ((lasting.at + lasting.span.len as u64 - self.written) as usize, false)
                }
                Some(lasting) => ((lasting.at - self.written) as usize, true),
                None => (n, true),
            };
            let now = len.min(n);
            self.written += now as u64;
            n -= now;
            if plain {
                self.at += now;
            } else if now == len {
                self.next += 1;
            }
        }
    }

    /// Gives up the memory of the first payload not yet written whole. False: there is none, or it was given up before.
    pub(crate) fn give_up(&mut self) -> bool {
        self.lasting.get_mut(self.next).is_some_and(|lasting| !std::mem::replace(&mut lasting.gone, true))
    }

    /// Copies what was lent, by this send or by any.
    pub(crate) fn copy_lent<M: Memory + ?Sized>(&mut self, send: Option<OpId>, mem: &M, pool: &mut Pool) {
        let mut iov = Vec::new();
        for lasting in &mut self.lasting {
            let Some(op) = lasting.lent.filter(|op| send.is_none_or(|send| send == *op)) else { continue };
            lasting.lent = None;
            iov.clear();
            // what cannot be read the peer has had as zeros
            if lasting.gone || !mem.resolve(lasting.span, &mut iov) {
                zeros(lasting.span.len, &mut iov);
            }
            lasting.copy = pool.take_one(lasting.span.len);
            for piece in iov.iter().filter(|piece| piece.len > 0) {
                // SAFETY: zeros, or what the memory's owner just named as a live operation's.
                lasting.copy.extend_from_slice(unsafe { std::slice::from_raw_parts(piece.base, piece.len) });
            }
            self.copies += lasting.copy.len();
            pool.returned.push_back(op);
        }
    }

    /// Takes the first frame kept off: its header, its payload where that was copied with it, its place where not.
    fn pop(&mut self) -> Option<(std::ops::Range<usize>, usize, Option<Lasting>)> {
        let from = self.head;
        let prefix: &[u8; PREFIX] = self.bytes[from..].first_chunk()?;
        let (header, payload) = peek_lengths(prefix).ok()?;
        let place = self.kept + header as u64;
        let lasting = match self.lasting.front() {
            Some(lasting) if lasting.at == place => self.lasting.pop_front(),
            _ => None,
        };
        let stored = if lasting.is_some() { header } else { header + payload };
        self.head += stored;
        self.at = self.at.saturating_sub(stored);
        self.next = self.next.saturating_sub(usize::from(lasting.is_some()));
        self.copies -= lasting.as_ref().map_or(0, |lasting| lasting.copy.len());
        self.kept = place + payload as u64;
        self.had += 1;
        Some((from..from + stored, header, lasting))
    }

    /// The frames kept, oldest first: their headers, and with them their payloads where those were copied with them.
    pub(crate) fn frames(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let (mut from, mut place) = (self.head, self.kept);
        let mut lasting = self.lasting.iter().peekable();
        std::iter::from_fn(move || {
            let prefix: &[u8; PREFIX] = self.bytes[from..].first_chunk()?;
            let (header, payload) = peek_lengths(prefix).ok()?;
            let copied = lasting.next_if(|lasting| lasting.at == place + header as u64).is_none();
            let stored = if copied { header + payload } else { header };
            let found = self.bytes[from..from + stored].split_at(header);
            from += stored;
            place += (header + payload) as u64;
            Some(found)
        })
    }

    /// The peer has had these frames, if not more; false when some of them were not written, or it contradicts itself.
    pub(crate) fn acked(&mut self, acked: &Acked, pool: &mut Pool) -> bool {
        if self.said.covers(acked) {
            return true;
        }
        if acked.end() > self.frames || !acked.covers(&self.said) {
            return false;
        }
        self.said.clone_from(acked);
        while self.had < acked.upto() {
            self.forget_first(pool);
            if self.kept > self.written {
                return false;
            }
        }
        self.cut(pool);
        true
    }

    /// Whether a frame is kept that ends before this position, or at it.
    pub(crate) fn keeps_before(&self, position: u64) -> bool {
        self.first_end().is_some_and(|end| end <= position)
    }

    /// The peer has the stream up to this position, by a rail that knows that itself: frames that end there are forgotten.
    pub(crate) fn forget_before(&mut self, position: u64, pool: &mut Pool) {
        while self.keeps_before(position) {
            self.forget_first(pool);
        }
        if self.said.upto() < self.had {
            self.said = Acked::before(self.had);
        }
        self.cut(pool);
    }

    /// Where the first frame kept ends.
    fn first_end(&self) -> Option<u64> {
        let prefix: &[u8; PREFIX] = self.bytes[self.head..].first_chunk()?;
        let (header, payload) = peek_lengths(prefix).ok()?;
        Some(self.kept + (header + payload) as u64)
    }

    fn forget_first(&mut self, pool: &mut Pool) {
        if let Some((.., Some(Lasting { lent, copy, .. }))) = self.pop() {
            pool.returned.extend(lent);
            if copy.capacity() > 0 {
                pool.give(copy);
            }
        }
    }

    /// Gives memory back that nothing is kept in.
    fn cut(&mut self, pool: &mut Pool) {
        if self.head == self.bytes.len() {
            pool.give(std::mem::take(&mut self.bytes));
            self.head = 0;
        } else if self.head >= CUT.max(self.bytes.len() / 2) {
            self.bytes.drain(..self.head);
            self.head = 0;
        }
    }

    /// Whether any payload is kept under a span's name, without a copy.
    pub(crate) fn has_spans(&self) -> bool {
        self.lasting.iter().any(|lasting| lasting.copy.is_empty())
    }

    /// Copies the stream's bytes from a position on, wherever they are: for rails that send parts of it again. What cannot be read, or would
    /// need memory where there is none, is zeros.
    pub(crate) fn read_at<M: Memory + ?Sized>(
        &self,
        mut at: u64,
        mut out: &mut [u8],
        mem: Option<&M>,
        iov: &mut Vec<RawIov>,
    ) {
        debug_assert!(
            at >= self.kept && at + out.len() as u64 <= self.end,
            "{at} and {} more of {} to {}",
            out.len(),
            self.kept,
            self.end
        );
        let gone = self.lasting.front().map_or(0, |first| first.before);
        let all = self.lasting.back().map_or(0, Lasting::spans_to);
        let mut next = self.lasting.partition_point(|lasting| lasting.at + lasting.span.len as u64 <= at);
        while !out.is_empty() {
            let lasting = self.lasting.get(next);
            let inside = lasting.filter(|lasting| lasting.at <= at);
            let len = match (inside, lasting) {
                (Some(inside), _) => inside.at + inside.span.len as u64 - at,
                (None, Some(lasting)) => lasting.at - at,
                (None, None) => out.len() as u64,
            };
            let (now, later) = out.split_at_mut(out.len().min(len as usize));
            match inside {
                Some(inside) => read_lasting(inside, (at - inside.at) as usize, now, mem, iov),
                None => {
                    let spans = lasting.map_or(all, |lasting| lasting.before) - gone;
                    let from = self.head + (at - self.kept - spans) as usize;
                    now.copy_from_slice(&self.bytes[from..from + now.len()]);
                }
            }
            next += usize::from(inside.is_some());
            at += now.len() as u64;
            out = later;
        }
    }

    /// What the peer, which has had these frames, has not had; None when that cannot be.
    pub(crate) fn reclaim(mut self, acked: &Acked, pool: &mut Pool) -> Option<VecDeque<UnackedFrame>> {
        if !acked.covers(&self.said) || !self.acked(acked, pool) {
            return None;
        }
        let mut unacked = VecDeque::new();
        loop {
            let number = self.had;
            let Some((stored, header, lasting)) = self.pop() else { return Some(unacked) };
            match acked.has(number) {
                // it cannot have come before it was written
                true if self.kept > self.written => return None,
                true => {}
                false => {
                    let copy = lasting.as_ref().and_then(|lasting| lasting.copied(0));
                    let bytes = [&self.bytes[stored], copy.unwrap_or_default()].concat();
                    let span = lasting.as_ref().filter(|_| copy.is_none()).map(|lasting| lasting.span);
                    unacked.push_back(UnackedFrame { bytes, header, span });
                }
            }
        }
    }
}

/// Copies a part of a payload that stays where it is.
fn read_lasting<M: Memory + ?Sized>(
    lasting: &Lasting,
    offset: usize,
    out: &mut [u8],
    mem: Option<&M>,
    iov: &mut Vec<RawIov>,
) {
    if let Some(copy) = lasting.copied(offset) {
        out.copy_from_slice(&copy[..out.len()]);
        return;
    }
    let span = lasting.span;
    let part = Span { place: span.place, offset: span.offset + offset as u64, len: out.len() };
    iov.clear();
    if lasting.gone || !mem.is_some_and(|mem| mem.resolve(part, iov)) {
        return out.fill(0);
    }
    let mut rest = out;
    for piece in &*iov {
        let (now, later) = rest.split_at_mut(piece.len.min(rest.len()));
        // SAFETY: the memory's owner just named the address as a live operation's, readable for its length.
        unsafe { crate::primitive::copy(piece.base, now.as_mut_ptr(), now.len()) };
        rest = later;
    }
}

fn zeros(mut len: usize, iov: &mut Vec<RawIov>) {
    while len > 0 {
        let now = len.min(ZEROS.len());
        iov.push(RawIov { base: ZEROS.as_ptr().cast_mut(), len: now });
        len -= now;
    }
}
