//! The receiving side of all tags of a peer.

use super::latest::{Latest, Took};
use super::{BYTES, TAGS, Taken, Time};
use crate::wire::datagram::Value;
use alloc::collections::BTreeMap;

/// What has come.
#[derive(Debug, Default)]
pub struct Inbox {
    latest: BTreeMap<u64, Latest>,
    kept: usize,
}

impl Inbox {
    /// Bytes of its buffers.
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// The newest whole value of a tag, for who asks: it is new once.
    pub fn take(&mut self, now: Time, tag: u64) -> Taken<'_> {
        let Some(latest) = self.latest.get_mut(&tag) else { return Taken::Nothing };
        let Some((iteration, came)) = latest.newest() else { return Taken::Nothing };
        let age = now.saturating_sub(came);
        match core::mem::replace(&mut latest.taken, true) {
            true => Taken::Unchanged { iteration, age },
            false => Taken::New { iteration, age, bytes: &latest.bytes },
        }
    }

    /// Whether [`Inbox::take`] would have one that is new.
    pub fn has_new(&self, tag: u64) -> bool {
        self.latest.get(&tag).is_some_and(|latest| !latest.taken && latest.newest().is_some())
    }

    /// Of a tag of which anything came, the newest whole value.
    pub fn newest(&self, tag: u64) -> Option<Option<u64>> {
        self.latest.get(&tag).map(|latest| latest.newest().map(|(iteration, _)| iteration))
    }

    /// A part of a value came.
    pub fn take_in(&mut self, now: Time, value: &Value<'_>) -> Took {
        if self.latest.len() >= TAGS && !self.latest.contains_key(&value.tag) {
            return Took::Dropped;
        }
        let latest = self.latest.entry(value.tag).or_default();
        self.kept -= latest.held();
        let took = latest.take_in(now, value, BYTES - self.kept - latest.held());
        self.kept += latest.held();
        took
    }
}
