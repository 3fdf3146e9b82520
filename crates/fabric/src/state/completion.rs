//! What is told of an operation that is over.

use std::mem::offset_of;

use polyrail_core::proto::PeerIdx;

use crate::error::Why;
use crate::ffi::fi_cq_tagged_entry;

/// What an operation's `User::flags` hold: the completion's flags in the low bits, then these.
pub mod mark {
    use crate::ffi::FI_COMPLETION;

    /// The flags that a completion shows.
    pub const SHOWN: u64 = (1 << 24) - 1;
    /// An entry is wanted (not only on failure).
    pub const WANTED: u64 = FI_COMPLETION;
    /// `User::context` is the number of an [`Extra`](crate::state::endpoint::Extra).
    pub const EXTRA: u64 = 1 << 25;
    /// The operation is [`LONG`](crate::limits::LONG): it is counted until it is over.
    pub const LONG: u64 = 1 << 26;
}

/// The kinds of completion that counters tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    Send,
    Recv,
    Read,
    Write,
    RemoteRead,
    RemoteWrite,
}

/// A completion: `fi_cq_tagged_entry`, and what only we know.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub context: u64,
    pub flags: u64,
    pub len: u64,
    pub buf: u64,
    pub data: u64,
    pub tag: u64,
    /// The sender: an endpoint's number and a peer's, or [`Entry::NO_SOURCE`].
    pub source: u64,
}

const _: () = {
    assert!(offset_of!(Entry, flags) == offset_of!(fi_cq_tagged_entry, flags));
    assert!(offset_of!(Entry, len) == offset_of!(fi_cq_tagged_entry, len));
    assert!(offset_of!(Entry, buf) == offset_of!(fi_cq_tagged_entry, buf));
    assert!(offset_of!(Entry, data) == offset_of!(fi_cq_tagged_entry, data));
    assert!(offset_of!(Entry, tag) == offset_of!(fi_cq_tagged_entry, tag));
    assert!(offset_of!(Entry, source) == size_of::<fi_cq_tagged_entry>());
};

impl Entry {
    pub const NO_SOURCE: u64 = u64::MAX;

    /// A sender, to be translated when it is asked for.
    #[inline]
    pub fn source(endpoint: usize, peer: PeerIdx) -> u64 {
        (endpoint as u64) << 32 | u64::from(peer.0)
    }

    /// What [`Entry::source`] was made of; nothing where there is no sender.
    pub fn sender(source: u64) -> Option<(usize, u32)> {
        (source != Self::NO_SOURCE).then_some(((source >> 32) as usize, source as u32))
    }
}

/// A completion in error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    pub entry: Entry,
    /// Bytes that did not fit.
    pub olen: u64,
    pub why: Why,
}

impl Fault {
    pub fn new(why: Why) -> Self {
        Self { why, ..Self::default() }
    }
}
