//! A stream of bytes into frames, for rails whose links are streams.
//!
//! Of a frame that is not all there, a short one waits here; a long one is begun: the sink says where its payload goes, and what comes of it
//! goes straight to there.

use super::{LinkId, Payload, Place, RawIov, Sink, Span};
use polyrail_core::frame::{Frame, PREFIX, peek_lengths};

/// What a link has received up to here.
#[derive(Default)]
pub(crate) struct Reader {
    /// The beginning of a frame; empty (and without memory) between frames.
    pub(crate) partial: Vec<u8>,
    /// The rest of a begun payload.
    pub(crate) body: Option<Span>,
    /// The peer has said that nothing follows.
    pub(crate) bye: bool,
    /// Whole frames that came.
    pub(crate) received: u64,
}

/// How a rail wants its stream taken apart.
pub(crate) struct Manner<F> {
    /// A payload longer than this that is not all there is begun in its place rather than collected.
    pub(crate) begin_min: usize,
    /// Is told of each frame and its payload's length before the sink is.
    pub(crate) heed: F,
}

impl Reader {
    /// Bytes that are still to come of the payload that has begun.
    pub(crate) fn rest(&self) -> usize {
        self.body.map_or(0, |rest| rest.len)
    }

    /// Notes that `n` bytes of a begun payload have arrived.
    pub(crate) fn advance<S: Sink + ?Sized>(&mut self, id: LinkId, rest: Span, n: usize, sink: &mut S) {
        let rest = Span { place: rest.place, offset: rest.offset + n as u64, len: rest.len - n };
        self.body = (rest.len > 0).then_some(rest);
        if rest.len == 0 {
            self.received += 1;
            sink.end(id);
        }
    }

    /// Gives the frames in `bytes` to the sink, and keeps what is left of them: how many there were, and payloads that moved on.
    ///
    /// # Errors
    /// What of them is no frame, as a sentence.
    pub(crate) fn parse<S: Sink + ?Sized>(
        &mut self,
        id: LinkId,
        bytes: &[u8],
        manner: &mut Manner<impl FnMut(&Frame, usize)>,
        iov: &mut Vec<RawIov>,
        sink: &mut S,
    ) -> Result<usize, String> {
        let (mut left, mut events) = (bytes, 0);
        while let Some(prefix) = left.first_chunk::<PREFIX>() {
            let (header, len) = peek_lengths(prefix).map_err(|why| why.to_string())?;
            if self.bye {
                return Err("a frame follows a Bye".into());
            }
            if left.len() < header {
                break;
            }
            let (frame, _) = Frame::parse(&left[..header]).map_err(|why| why.to_string())?;
            let there = &left[header..];
            if let Some(payload) = there.get(..len) {
                self.bye = matches!(frame, Frame::Bye);
                (manner.heed)(&frame, len);
                // SAFETY: the bytes are borrowed for longer than the call.
                sink.frame(id, frame, unsafe { Payload::new(payload.as_ptr(), len) });
                self.received += 1;
                left = &there[len..];
            } else if len > manner.begin_min {
                (manner.heed)(&frame, len);
                self.begin(id, frame, len, there, iov, sink);
                left = &[];
            } else {
                break;
            }
            events += 1;
        }
        if left.is_empty() {
            self.partial = Vec::new();
        } else {
            self.partial.clear();
            self.partial.extend_from_slice(left);
        }
        Ok(events)
    }

    /// Begins a payload of `len` bytes of which the bytes `there` have arrived.
    fn begin<S: Sink + ?Sized>(
        &mut self,
        id: LinkId,
        frame: Frame,
        len: usize,
        there: &[u8],
        iov: &mut Vec<RawIov>,
        sink: &mut S,
    ) {
        let span = sink.begin(id, frame, len);
        debug_assert_eq!(span.len, len);
        iov.clear();
        let place = if sink.resolve(span, iov) { span.place } else { Place::Discard };
        scatter(there, iov);
        self.advance(id, Span { place, offset: span.offset, len }, there.len(), sink);
    }

    /// The next bytes of the stream, wherever they were cut: how many frames came, and payloads that moved on.
    ///
    /// # Errors
    /// As [`Reader::parse`].
    pub(crate) fn feed<S: Sink + ?Sized>(
        &mut self,
        id: LinkId,
        mut bytes: &[u8],
        manner: &mut Manner<impl FnMut(&Frame, usize)>,
        iov: &mut Vec<RawIov>,
        sink: &mut S,
    ) -> Result<usize, String> {
        let mut events = 0;
        if let Some(rest) = self.body {
            let here = bytes.len().min(rest.len);
            let place = copy(Span { len: here, ..rest }, &bytes[..here], iov, sink);
            self.advance(id, Span { place, ..rest }, here, sink);
            (bytes, events) = (&bytes[here..], 1);
        }
        if bytes.is_empty() {
            return Ok(events);
        }
        if self.partial.is_empty() {
            return self.parse(id, bytes, manner, iov, sink).map(|more| events + more);
        }
        let mut whole = std::mem::take(&mut self.partial);
        whole.extend_from_slice(bytes);
        self.parse(id, &whole, manner, iov, sink).map(|more| events + more)
    }
}

/// Copies bytes to where a sink says, as many as there are.
pub(crate) fn scatter(mut from: &[u8], iov: &[RawIov]) {
    for to in iov {
        let (now, later) = from.split_at(from.len().min(to.len));
        // SAFETY: the sink just named `to` as a span's memory, writable for `to.len` bytes.
        unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), to.base, now.len()) };
        from = later;
    }
}

/// Copies bytes to a span's memory: its place, or nowhere.
pub(crate) fn copy<S: Sink + ?Sized>(span: Span, from: &[u8], iov: &mut Vec<RawIov>, sink: &mut S) -> Place {
    iov.clear();
    if !sink.resolve(span, iov) {
        return Place::Discard;
    }
    scatter(from, iov);
    span.place
}
