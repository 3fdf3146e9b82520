//! Payloads of which only a part had come when their lane ended. The header took effect; the frame comes again by another lane, as it
//! was, and its payload then goes where it was to go.

use crate::frame::Frame;
use alloc::vec::Vec;

/// Each comes of a lane that ended, and what a lane did not deliver is sent again before anything else.
const MAX: usize = 256;

/// What was to become of payloads that came in part; `I` is the driver's word for it.
#[derive(Debug)]
pub struct Partial<I>(Vec<(Frame, usize, I)>);

impl<I> Default for Partial<I> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<I> Partial<I> {
    /// A lane ended in the middle of a frame with a payload of `len` bytes. False: so many never came again that the peer cannot
    /// mean to send them.
    #[must_use]
    pub fn keep(&mut self, frame: Frame, len: usize, incoming: I) -> bool {
        self.0.push((frame, len, incoming));
        self.0.len() <= MAX
    }

    /// The frame comes again: what was said of it.
    pub fn take(&mut self, frame: &Frame, len: usize) -> Option<I> {
        let at = self.0.iter().position(|(kept, its, _)| kept == frame && *its == len)?;
        Some(self.0.swap_remove(at).2)
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The session is over.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
