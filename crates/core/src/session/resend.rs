//! Frames that ended lanes did not deliver.

use crate::frame::Frame;
use crate::proto::Span;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// A frame that a link may not have delivered, as it was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnackedFrame {
    /// Its header, and its payload unless that has a span.
    pub bytes: Vec<u8>,
    /// Bytes of the header.
    pub header: usize,
    /// Where the payload is, if it is not in `bytes`.
    pub span: Option<Span>,
}

impl UnackedFrame {
    /// Bytes of header and payload.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.span.map_or(0, |span| span.len)
    }

    /// Its header, read.
    pub fn frame(&self) -> Option<Frame> {
        Frame::parse(&self.bytes[..self.header]).ok().map(|(frame, _)| frame)
    }

    /// Never: a frame has a header.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// How far a sequenced frame is ahead of the one that the peer waits for. One that it has seen, but of which only a part came
/// before its lane ended, lies before that.
pub(super) fn ahead(seq: u32, seen: u32) -> i32 {
    seq.wrapping_sub(seen).cast_signed()
}

/// Frames that are to be sent again.
#[derive(Debug, Default)]
pub(super) struct Resend {
    /// Those that may take effect at any time.
    pub free: VecDeque<UnackedFrame>,
    /// Those that take effect in order, by their numbers.
    pub sequenced: VecDeque<(u32, UnackedFrame)>,
}

impl Resend {
    pub fn is_empty(&self) -> bool {
        self.free.is_empty() && self.sequenced.is_empty()
    }

    /// Adds what a lane did not deliver; the peer has seen all before `seen`.
    pub fn add(&mut self, frames: VecDeque<UnackedFrame>, seen: u32) {
        for unacked in frames {
            let frame = unacked.frame();
            match frame.and_then(|frame| frame.order()) {
                Some(order) => self.sequenced.push_back((order.seq, unacked)),
                // said again when the lane that carried it ended
                None if matches!(frame, Some(Frame::Retire { .. })) => {}
                None => self.free.push_back(unacked),
            }
        }
        // lanes end in any order, perhaps again before all of an earlier one has left
        self.sequenced.make_contiguous().sort_by_key(|(seq, _)| ahead(*seq, seen));
    }
}
