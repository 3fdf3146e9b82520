//! What a rail is to its worker: a dozen operations and a record of what it can do.
//!
//! A **rail** is one transport opened on one device; a **link** is its connection to one peer. A rail moves frames
//! ([`polyrail_core::frame`]); it decides nothing. Links are made by wireup (`crate::worker`) and given to the rail.
//!
//! Memory: a rail never keeps a pointer to a user's memory between two calls. It keeps a [`Span`], which names an operation's
//! bytes, and asks [`Memory::resolve`] for the addresses each time it touches them. An operation that ended in the meantime
//! resolves to nothing, and the rail then sends zeros or discards, so that the stream stays in step.

use polyrail_core::frame::Frame;

/// A link of one rail: an index into the rail's table. Never reused before [`Rail::close`] has been called for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct LinkId(pub u32);

/// Memory of this process, as the user gave it: nothing but an address and a length.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RawIov {
    /// First byte.
    pub base: *mut u8,
    /// Bytes.
    pub len: usize,
}

// SAFETY: a `RawIov` is only an address; who dereferences it must have the right to, on whichever thread that happens.
unsafe impl Send for RawIov {}
// SAFETY: as above; sharing the address shares no memory.
unsafe impl Sync for RawIov {}

pub use polyrail_core::proto::{Place, Span};
pub use polyrail_core::session::UnackedFrame;

/// Where spans are.
pub trait Memory {
    /// Appends the addresses of `span` to `out`, in order; their lengths add up to `span.len`.
    /// Returns false, with `out` as it was, when the operation is gone, the range is not all inside it, or the place is
    /// [`Place::Discard`]. The addresses are valid until the worker's next call.
    fn resolve(&self, span: Span, out: &mut Vec<RawIov>) -> bool;
}

/// Why a link ended.
#[derive(Debug)]
pub enum Down {
    /// The peer said that it closes, then closed.
    Orderly,
    /// The connection ended without a word: the peer died, or the network cut it.
    Lost(std::io::Error),
    /// The peer sent what is not a frame, or broke the protocol; the text says what.
    Protocol(String),
}

/// The bytes of a frame's payload, all there, valid during the call. They may lie in memory that the peer can still write:
/// they are copied, never looked at in place.
#[derive(Clone, Copy, Debug)]
pub struct Payload {
    base: *const u8,
    len: usize,
}

impl Payload {
    /// No bytes.
    pub const EMPTY: Self = Self { base: std::ptr::null(), len: 0 };

    /// # Safety
    /// `base..base + len` stays readable (though perhaps changing) as long as the value is used.
    pub unsafe fn new(base: *const u8, len: usize) -> Self {
        Self { base, len }
    }
    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// First byte.
    pub fn base(&self) -> *const u8 {
        self.base
    }
    /// Copies `len` bytes from `offset` to `to`, as many as there are; returns how many.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes and overlaps no part of the payload.
    #[inline]
    pub unsafe fn copy_to(&self, offset: usize, to: *mut u8, len: usize) -> usize {
        let len = len.min(self.len.saturating_sub(offset));
        if len > 0 {
            // SAFETY: offset + len <= self.len, readable by `new`'s contract; `to` by ours.
            unsafe { std::ptr::copy_nonoverlapping(self.base.add(offset), to, len) };
        }
        len
    }
    /// A copy of all bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len);
        // SAFETY: the capacity is `len`, and copy_to writes exactly that many bytes.
        unsafe {
            self.copy_to(0, out.as_mut_ptr(), self.len);
            out.set_len(self.len);
        }
        out
    }
}

/// What a rail tells its worker while it makes progress.
pub trait Sink: Memory {
    /// A whole frame. The payload is valid during the call only.
    fn frame(&mut self, link: LinkId, frame: Frame, payload: Payload);
    /// A frame with a long payload has begun: says where its `len` bytes go. The span has exactly `len` bytes. The rail
    /// calls [`Sink::end`] for this link when they are all there; no other frame of the link comes in between.
    fn begin(&mut self, link: LinkId, frame: Frame, len: usize) -> Span;
    /// The payload of the frame last begun on this link is complete.
    fn end(&mut self, link: LinkId);
    /// The link has ended. Its number stays taken until [`Rail::close`].
    fn down(&mut self, link: LinkId, why: Down);
}

/// The rail has no room: try again after progress. Nothing of the frame was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// A transport opened on a device. No method blocks. No method calls back except `progress`.
pub trait Rail: Send {
    /// Sends one frame. `header` is encoded for exactly the payload's length; the payload's bytes are at `iov`. With `span`,
    /// the rail may keep the span in place of a copy, for as long as the peer may not have the frame; without, it copies what it
    /// may still need.
    ///
    /// # Errors
    /// [`Full`] when neither is possible; a link that is down is full for ever (its end has been or will be told).
    ///
    /// # Safety
    /// The memory at `iov` is readable during the call.
    unsafe fn send(
        &mut self,
        link: LinkId,
        header: &[u8],
        iov: &[RawIov],
        span: Option<Span>,
    ) -> Result<(), Full>;

    /// Whether a large frame would be taken now without queueing much behind what is already waiting: who stripes or
    /// fragments asks this before each fragment, so that fragments are pulled by the rail, not dealt to it.
    fn wants_more(&self, link: LinkId) -> bool;

    /// Sends what `send` held back in order to share system calls. Called at the end of each round of progress.
    fn flush(&mut self, mem: &dyn Memory);

    /// Moves what can be moved, both ways; returns how many frames arrived and sends ended (0: nothing to do).
    fn progress(&mut self, sink: &mut dyn Sink) -> usize;

    /// A descriptor that becomes readable when `progress` has something to do, provided that `arm` said so.
    fn wait_fd(&self) -> std::os::fd::RawFd;

    /// Prepares to sleep on `wait_fd`. False: something is there already, progress first.
    fn arm(&mut self) -> bool;

    /// Ends a link and forgets all about it; pending frames are dropped. What must arrive was flushed before.
    fn close(&mut self, link: LinkId);

    /// Whether frames wait in this link (used to linger at an orderly close).
    fn idle(&self, link: LinkId) -> bool;
}
