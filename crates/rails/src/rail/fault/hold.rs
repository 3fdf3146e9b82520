//! Frames that have come and are told later, or in parts. Their order is kept: what comes behind one that waits, waits.

use super::{LATE, Plan, Pretended};
use crate::rail::{Down, LinkId, Memory, Payload, RawIov, Sink, Span};
use polyrail_core::frame::{Frame, OpId};
use polyrail_core::wire::datagram::Value;

/// A frame that waits.
pub(super) struct Held {
    frame: Frame,
    payload: Vec<u8>,
    /// So many rounds more.
    rounds: u64,
    /// Its payload is told in so many bytes at a time; 0: all at once.
    part: usize,
}

/// Stands between the rail and its worker.
pub(super) struct Holding<'a, S: ?Sized> {
    pub sink: &'a mut S,
    pub plan: &'a mut Plan,
    /// Which frames are held could not be said: they come out of order by themselves.
    pub passes: bool,
}

impl<S: Sink + ?Sized> Memory for Holding<'_, S> {
    fn resolve(&self, span: Span, out: &mut Vec<RawIov>) -> bool {
        self.sink.resolve(span, out)
    }
}

impl<S: Sink + ?Sized> Sink for Holding<'_, S> {
    fn frame(&mut self, link: LinkId, frame: Frame, payload: Payload) {
        let Plan { faults, rng, .. } = &mut *self.plan;
        let rounds = if faults.delay && rng.chance(20) { 1 + rng.below(LATE) } else { 0 };
        let parts = faults.parts && !payload.is_empty() && rng.chance(30);
        let part = if parts { 1 + rng.below(payload.len() as u64) as usize } else { 0 };
        let pretended = self.plan.link(link);
        if self.passes || rounds == 0 && part == 0 && pretended.held.is_empty() {
            return self.sink.frame(link, frame, payload);
        }
        pretended.held.push_back(Held { frame, payload: payload.to_vec(), rounds, part });
    }

    fn is_read(&mut self, link: LinkId, send: OpId) -> bool {
        self.sink.is_read(link, send)
    }

    fn begin(&mut self, link: LinkId, frame: Frame, len: usize) -> Span {
        self.plan.link(link).tell_all(link, self.sink);
        self.sink.begin(link, frame, len)
    }

    fn end(&mut self, link: LinkId) {
        self.sink.end(link);
    }

    fn value(&mut self, link: LinkId, value: &Value<'_>) {
        self.sink.value(link, value);
    }

    fn down(&mut self, link: LinkId, why: Down) {
        self.plan.link(link).tell_all(link, self.sink);
        self.sink.down(link, why);
    }
}

impl Plan {
    /// Tells what has waited long enough; returns how much that was.
    pub(super) fn tell<S: Sink + ?Sized>(&mut self, sink: &mut S) -> usize {
        let mut told = 0;
        for (link, pretended) in &mut self.links {
            while let Some(first) = pretended.held.front_mut() {
                if first.rounds > 0 {
                    first.rounds -= 1;
                    break;
                }
                told += 1;
                if !pretended.step(*link, sink) {
                    break;
                }
            }
        }
        told
    }
}

impl Pretended {
    /// Tells the first that waits, or one more part of it. True: it is told.
    fn step<S: Sink + ?Sized>(&mut self, link: LinkId, sink: &mut S) -> bool {
        let Some(first) = self.held.front() else { return true };
        if first.part > 0 {
            let (span, there) = match self.begun {
                Some(begun) => begun,
                None => (sink.begin(link, first.frame, first.payload.len()), 0),
            };
            let now = first.part.min(first.payload.len() - there);
            place(sink, span, there, &first.payload[there..there + now]);
            self.begun = Some((span, there + now));
            if there + now < first.payload.len() {
                return false;
            }
            self.begun = None;
            self.held.pop_front();
            sink.end(link);
        } else if let Some(held) = self.held.pop_front() {
            // SAFETY: the bytes outlive the call.
            let payload = unsafe { Payload::new(held.payload.as_ptr(), held.payload.len()) };
            sink.frame(link, held.frame, payload);
        }
        true
    }

    /// Tells all of them.
    fn tell_all<S: Sink + ?Sized>(&mut self, link: LinkId, sink: &mut S) {
        while !self.held.is_empty() {
            self.step(link, sink);
        }
    }
}

/// Puts bytes at their place in a span, if it still has one.
fn place<S: Sink + ?Sized>(sink: &S, span: Span, at: usize, bytes: &[u8]) {
    let mut iov = Vec::new();
    let part = Span { place: span.place, offset: span.offset + at as u64, len: bytes.len() };
    if !sink.resolve(part, &mut iov) {
        return;
    }
    let mut from = bytes;
    for to in iov {
        let (now, later) = from.split_at(to.len.min(from.len()));
        // SAFETY: the sink just named this memory as the span's, writable for `to.len` bytes.
        unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), to.base, now.len()) };
        from = later;
    }
}
