//! Tag matching: which receive takes which message.
//!
//! A receive names a tag, the bits of it to ignore, and one source or any; a message carries its source and a tag.
//! They match when the sources agree and the tags agree in every bit that is not ignored. MPI adds order: a message
//! takes the *earliest posted* receive that matches it, exact and wildcard alike ([`PostedQueue`]), and a receive
//! takes the *earliest arrived* message that matches it ([`UnexpectedQueue`]).
//!
//! # Mask classes
//!
//! A list kept in order is right but slow: a program with 10,000 receives outstanding would walk thousands for each
//! message. A plain hash table cannot hold wildcards. But programs use few *masks*, a mask being the ignored bits
//! and whether the source counts: MPI libraries ignore the protocol bits of the tag in every receive, and the tag's
//! or the source's bits too for `MPI_ANY_TAG` and `MPI_ANY_SOURCE`. Seen through one mask, matching is equality of
//! keys (the tag's remaining bits, and the source or nothing), which a hash table does at once. Hence one table per
//! mask in use:
//!
//! - a posted receive sits in its own mask's table. An arrival looks into each table that is not empty and takes the
//!   lowest posting sequence of at most one find in each;
//! - a message that came unexpected can be taken through any mask, so that it sits in every table. These are built
//!   when a search through a mask turns out long, and given up when nobody searches through it any more.
//!
//! Entries live in a slab and the tables are lists threaded through it: nothing is allocated per entry, entries of
//! one key are a first-in-first-out list, and each leaves from anywhere in constant time.
//!
//! | file | what it holds |
//! |---|---|
//! | `posted.rs`, `unexpected.rs` | the two queues |
//! | `bins.rs` | a hash table of first-in-first-out lists, threaded through storage that it does not own |
//! | `slab.rs` | entries by slot number, with handles that go stale |
//!
//! Neither queue bounds itself: a peer can make [`UnexpectedQueue`] grow, and its owner grants the credit for that.

mod bins;
mod posted;
mod slab;
mod unexpected;

pub use posted::PostedQueue;
pub use unexpected::{Arrival, UnexpectedQueue};

use bins::Key;

/// A peer, as its index in the owner's table of peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source(pub u32);

/// What a receive asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receive {
    /// The only peer it takes messages from (a directed receive); `None` takes them from any.
    pub source: Option<Source>,
    /// The tag that a message must carry, apart from the ignored bits.
    pub tag: u64,
    /// The bits of the tag that do not matter, as in fi_tagged(3): 0 asks for this very tag, `u64::MAX` for any.
    pub ignore: u64,
}

impl Receive {
    /// Whether a message from `source` with `tag` satisfies this receive.
    #[inline]
    #[must_use]
    pub fn matches(&self, source: Source, tag: u64) -> bool {
        (self.tag ^ tag) & !self.ignore == 0 && self.source.is_none_or(|only| only == source)
    }

    #[inline]
    fn mask(&self) -> Mask {
        Mask { ignore: self.ignore, directed: self.source.is_some() }
    }

    #[inline]
    fn key(&self) -> Key {
        // The source of an undirected receive is any constant: its mask gives every message the same one.
        self.mask().key(self.source.unwrap_or(Source(0)), self.tag)
    }
}

/// What a receive looks at: receives of one mask match the same message only if their keys are equal.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Mask {
    ignore: u64,
    directed: bool,
}

impl Mask {
    #[inline]
    fn key(self, source: Source, tag: u64) -> Key {
        Key { tag: tag & !self.ignore, source: if self.directed { source.0 } else { 0 } }
    }
}

/// Names one entry of one queue for as long as the entry is in it; afterwards it names nothing, for ever, because a
/// sequence number is never given twice. Handles of a queue are ordered as its entries are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    seq: u64,
    slot: u32,
}
