//! The unexpected message queue.

use super::bins::{Bins, Link, Seed};
use super::slab::{NIL, Slab};
use super::{Handle, Mask, Receive, Source};
use alloc::vec::Vec;

/// A search looks at this many messages one by one before it asks for an index. Up to here that is the cheaper way,
/// and programs whose queue stays short never pay for an index.
const SCAN_LIMIT: usize = 16;

/// Indexes at a time. Searches through further masks go one by one: each index makes every message dearer.
const MOST_INDEXES: usize = 8;

/// Arrivals without a search through its mask, beyond the number of messages queued, that make an index not worth
/// its upkeep: by then it would have been as cheap to build it anew.
const IDLE_LIMIT: u64 = 256;

/// Messages that came before their receive, each with the owner's `T`.
///
/// Time is constant for each message and receive, whatever the number of messages queued, with two exceptions: the
/// first long search through a mask builds its index, and searches beyond the eighth mask in use go one by one.
pub struct UnexpectedQueue<T> {
    slab: Slab<Place, T>,
    first: u32,
    last: u32,
    /// Those in use, then empty ones for use again.
    indexes: Vec<Index>,
    in_use: usize,
    seed: Seed,
}

/// A message, and its neighbours in order of arrival.
struct Place {
    source: Source,
    tag: u64,
    prev: u32,
    next: u32,
}

impl Default for Place {
    fn default() -> Self {
        Self { source: Source(0), tag: 0, prev: NIL, next: NIL }
    }
}

/// All messages, as seen through one mask. Links are apart from messages, so that masks not in use take no room.
struct Index {
    mask: Mask,
    bins: Bins,
    links: Vec<Link>,
    /// The sequence number of the first message after the last search.
    searched: u64,
}

impl Index {
    #[inline]
    fn append(&mut self, slot: u32, source: Source, tag: u64, extent: usize) {
        if self.links.len() < extent {
            self.links.resize(extent, Link::NONE);
        }
        let key = self.mask.key(source, tag);
        if self.bins.is_full() {
            self.bins.grow(&mut self.links[..]);
        }
        self.bins.append(&mut self.links[..], slot, key);
    }
}

/// What is known of an unexpected message beside the owner's `T`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Names the message in the queue; stale once it was taken.
    pub handle: Handle,
    /// Who sent it.
    pub source: Source,
    /// The tag that it carries.
    pub tag: u64,
}

impl<T> UnexpectedQueue<T> {
    /// An empty queue. `seed` should be random where peers are not trusted to spread their tags.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let seed = Seed::new(seed);
        UnexpectedQueue { slab: Slab::new(), first: NIL, last: NIL, indexes: Vec::new(), in_use: 0, seed }
    }

    /// How many messages are queued.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether no message is queued.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Queues a message that no posted receive matched.
    #[inline]
    pub fn push(&mut self, source: Source, tag: u64, value: T) -> Handle {
        let handle = self.slab.insert(Place { source, tag, prev: self.last, next: NIL }, value);
        match self.last {
            NIL => self.first = handle.slot,
            last => self.slab.place_mut(last).next = handle.slot,
        }
        self.last = handle.slot;
        if self.in_use > 0 {
            self.index(handle, source, tag);
        }
        handle
    }

    /// Takes the earliest message that satisfies `receive`. A message that its user claims is taken, too.
    #[inline]
    pub fn take_match(&mut self, receive: &Receive) -> Option<(Arrival, T)> {
        let slot = self.find(receive)?;
        let arrival = self.arrival(slot);
        self.unlink(slot).map(|value| (arrival, value))
    }

    /// Finds what [`take_match`](Self::take_match) would take, and leaves it queued.
    pub fn peek(&mut self, receive: &Receive) -> Option<(Arrival, &T)> {
        let slot = self.find(receive)?;
        let arrival = self.arrival(slot);
        self.slab.value(slot).map(|value| (arrival, value))
    }

    /// The owner's value of a message that is still queued, as when more of the message comes.
    pub fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        self.slab.resolve(handle).and_then(|slot| self.slab.value_mut(slot))
    }

    /// Takes a message by name, unless it was taken before.
    pub fn remove(&mut self, handle: Handle) -> Option<T> {
        self.slab.resolve(handle).and_then(|slot| self.unlink(slot))
    }

    /// Takes every message, in order of arrival.
    pub fn drain(&mut self) -> impl ExactSizeIterator<Item = (Arrival, T)> + use<T> {
        let slots = self.slab.in_order(self.slab.taken());
        let mut taken = Vec::with_capacity(slots.len());
        for slot in slots {
            let arrival = self.arrival(slot);
            taken.extend(self.unlink(slot).map(|value| (arrival, value)));
        }
        taken.into_iter()
    }

    #[inline]
    fn arrival(&self, slot: u32) -> Arrival {
        let &Place { source, tag, .. } = self.slab.place(slot);
        Arrival { handle: self.slab.handle(slot), source, tag }
    }

    #[inline]
    fn unlink(&mut self, slot: u32) -> Option<T> {
        for index in &mut self.indexes[..self.in_use] {
            index.bins.remove(&mut index.links[..], slot);
        }
        let &Place { prev, next, .. } = self.slab.place(slot);
        match prev {
            NIL => self.first = next,
            prev => self.slab.place_mut(prev).next = next,
        }
        match next {
            NIL => self.last = prev,
            next => self.slab.place_mut(next).prev = prev,
        }
        let value = self.slab.remove(slot);
        if self.is_empty() {
            // All indexes are empty: put by at no cost, until the queue is long again.
            self.in_use = 0;
        }
        value
    }

    #[inline]
    fn find(&mut self, receive: &Receive) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let (mask, next_seq) = (receive.mask(), self.slab.next_seq());
        if let Some(index) = self.indexes[..self.in_use].iter_mut().find(|index| index.mask == mask) {
            index.searched = next_seq;
            return index.bins.find(&index.links[..], receive.key()).map(|spot| spot.slot);
        }
        if self.len() <= SCAN_LIMIT { self.scan(receive, SCAN_LIMIT) } else { self.find_far(receive) }
    }

    #[inline(never)]
    fn find_far(&mut self, receive: &Receive) -> Option<u32> {
        let near = self.scan(receive, SCAN_LIMIT);
        if near.is_some() {
            return near;
        }
        self.give_up_idle();
        if self.in_use == MOST_INDEXES {
            return self.scan(receive, usize::MAX);
        }
        self.build(receive.mask());
        self.find(receive)
    }

    /// Looks at the earliest `limit` messages.
    fn scan(&self, receive: &Receive, limit: usize) -> Option<u32> {
        self.in_order().take(limit).find(|&slot| {
            let place = self.slab.place(slot);
            receive.matches(place.source, place.tag)
        })
    }

    fn in_order(&self) -> impl Iterator<Item = u32> {
        let slot = |slot| (slot != NIL).then_some(slot);
        core::iter::successors(slot(self.first), move |&at| slot(self.slab.place(at).next))
    }

    /// Enters a new message into the indexes in use.
    #[inline(never)]
    fn index(&mut self, handle: Handle, source: Source, tag: u64) {
        self.give_up_idle();
        for index in &mut self.indexes[..self.in_use] {
            index.append(handle.slot, source, tag, self.slab.extent());
        }
    }

    fn give_up_idle(&mut self) {
        let (now, limit) = (self.slab.next_seq(), self.len() as u64 + IDLE_LIMIT);
        let idle = |index: &Index| now - index.searched > limit;
        while let Some(at) = self.indexes[..self.in_use].iter().position(idle) {
            self.indexes.remove(at);
            self.in_use -= 1;
        }
    }

    /// Sees all messages through one more mask.
    fn build(&mut self, mask: Mask) {
        if self.in_use == self.indexes.len() {
            let bins = Bins::new(self.seed);
            self.indexes.push(Index { mask, bins, links: Vec::new(), searched: 0 });
        }
        let mut index = self.indexes.swap_remove(self.in_use);
        (index.mask, index.searched) = (mask, self.slab.next_seq());
        for slot in self.in_order() {
            let &Place { source, tag, .. } = self.slab.place(slot);
            index.append(slot, source, tag, self.slab.extent());
        }
        self.indexes.insert(self.in_use, index);
        self.in_use += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Receive = Receive { source: None, tag: 99, ignore: 0 };

    fn queue_of(messages: u64) -> UnexpectedQueue<u64> {
        let mut queue = UnexpectedQueue::new(1);
        for tag in 100..100 + messages {
            queue.push(Source(0), tag, tag);
        }
        queue
    }

    #[test]
    fn a_short_queue_has_no_index() {
        let mut queue = queue_of(SCAN_LIMIT as u64);
        assert!(queue.peek(&WANTED).is_none());
        assert_eq!(queue.in_use, 0);
    }

    #[test]
    fn a_long_search_builds_an_index_that_lasts_until_the_queue_is_empty() {
        let mut queue = queue_of(100);
        let near = Receive { tag: 101, ..WANTED };
        assert!(queue.peek(&near).is_some());
        assert_eq!(queue.in_use, 0, "found at once");
        assert!(queue.peek(&WANTED).is_none());
        assert_eq!(queue.in_use, 1);
        assert_eq!(queue.drain().len(), 100);
        assert_eq!((queue.in_use, queue.indexes.len()), (0, 1), "kept for use again");
    }

    #[test]
    fn an_index_lasts_as_long_as_it_is_worth_its_upkeep() {
        let mut queue = queue_of(100);
        let pass = |queue: &mut UnexpectedQueue<u64>| {
            let handle = queue.push(Source(0), 7, 7);
            queue.remove(handle);
        };
        for _ in 0..10 {
            assert!(queue.peek(&WANTED).is_none());
            (0..100 + IDLE_LIMIT).for_each(|_| pass(&mut queue));
            assert_eq!(queue.in_use, 1, "searched in time");
        }
        (0..2).for_each(|_| pass(&mut queue));
        assert_eq!(queue.indexes.len(), 0);
    }

    #[test]
    fn further_masks_get_an_index_only_when_others_are_idle() {
        let mut queue = queue_of(100);
        let search = |queue: &mut UnexpectedQueue<u64>, bit: u32| {
            assert!(queue.peek(&Receive { tag: 0, ignore: 1 << (40 + bit), source: None }).is_none());
        };
        (0..12).for_each(|bit| search(&mut queue, bit));
        assert_eq!(queue.in_use, MOST_INDEXES);
        for _ in 0..=100 + IDLE_LIMIT {
            let handle = queue.push(Source(0), 7, 7);
            queue.remove(handle);
            search(&mut queue, 0);
        }
        search(&mut queue, 11);
        let bits: Vec<u32> =
            queue.indexes.iter().map(|index| index.mask.ignore.trailing_zeros() - 40).collect();
        assert_eq!(bits, [0, 11]);
    }
}
