//! Completion queues.
//!
//! Entries are kept in one form, which begins with each of C's forms, so that reading is copying a prefix. A queue grows when it
//! must: no completion is ever lost. Errors are apart; as long as there is one, a read says so first. What completes while an
//! empty queue is read goes straight to the reader.

use std::collections::VecDeque;

use crate::ffi::{FI_EAGAIN, FI_EAVAIL};
use crate::state::completion::{Entry, Fault};
use crate::state::endpoint::Endpoint;
use crate::state::room::Room;
use crate::state::slab::Key;
use crate::wait::Wait;

/// Most entries that are allocated in advance.
const ADVANCE: usize = 4096;

/// One completion queue.
#[derive(Debug)]
pub struct Cq {
    room: Room,
    /// Bytes of one entry, as C wants it.
    entry: usize,
    /// Those that wait, behind `taken` others. Nobody waits when it is empty.
    entries: Vec<Entry>,
    taken: usize,
    faults: VecDeque<Fault>,
    /// Bound endpoints.
    pub users: Vec<Key<Endpoint>>,
    pub wait: Wait,
    /// What `err_data` of the last error points to, for applications that gave no room.
    shown: Vec<u8>,
}

impl Cq {
    /// A queue whose entries have `entry` bytes for C, and that expects `size` of them at a time.
    pub fn new(entry: usize, size: usize, wait: Wait) -> Self {
        Self {
            room: Room::NONE,
            entry,
            entries: Vec::with_capacity(size.min(ADVANCE)),
            taken: 0,
            faults: VecDeque::new(),
            users: Vec::new(),
            wait,
            shown: Vec::new(),
        }
    }

    #[inline(always)]
    pub fn push(&mut self, entry: Entry) {
        let Entry { context, flags, len, buf, data, tag, source } = entry;
        if !self.room.put_whole([context, flags, len, buf, data, tag]) {
            self.push_otherwise(context, flags, len, buf, data, tag, source);
        }
    }

    #[inline(never)]
    #[allow(
        clippy::too_many_arguments,
        reason = "an entry by value: by address, all would be written to memory first"
    )]
    fn push_otherwise(
        &mut self,
        context: u64,
        flags: u64,
        len: u64,
        buf: u64,
        data: u64,
        tag: u64,
        source: u64,
    ) {
        let entry = Entry { context, flags, len, buf, data, tag, source };
        if !self.room.put(&entry) {
            self.keep(entry);
        }
    }

    /// Whether there is room for [`Cq::push_sent`], and nobody to be woken.
    #[inline(always)]
    pub fn is_ready(&self) -> bool {
        self.entries.len() < self.entries.capacity() && !self.wait.awaited()
    }

    /// The entry of a send that was complete at once, in a queue that [is ready](Cq::is_ready), outside of reads.
    ///
    /// # Safety
    /// It is.
    #[inline(always)]
    pub unsafe fn push_sent(&mut self, context: u64, flags: u64) {
        debug_assert!(self.is_ready() && self.room.left() == 0, "a read is under way, or it was not asked");
        let len = self.entries.len();
        // SAFETY: there is room for one more, by the caller's promise.
        unsafe {
            self.entries.as_mut_ptr().add(len).write(Entry { context, flags, ..Entry::default() });
            self.entries.set_len(len + 1);
        }
    }

    /// Has an entry wait for the next read.
    #[inline(always)]
    fn keep(&mut self, entry: Entry) {
        self.entries.push(entry);
        self.wait.wake();
    }

    #[cold]
    pub fn push_fault(&mut self, fault: Fault) {
        self.faults.push_back(fault);
        self.wait.wake();
    }

    /// Bytes of an entry, as C wants it.
    #[inline(always)]
    pub fn entry_size(&self) -> usize {
        self.entry
    }

    /// Has what is pushed until [`Cq::take_back`] go to `room`. For a queue that is empty.
    ///
    /// # Safety
    /// Until then there is as much room as it says, for entries of this queue's [size](Cq::entry_size).
    #[inline(always)]
    pub unsafe fn lend(&mut self, room: Room) {
        debug_assert!(self.is_empty(), "what waits comes first");
        self.room = room;
    }

    /// Ends that, of a room for `count`: how many have come.
    #[inline(always)]
    pub fn take_back(&mut self, count: usize) -> usize {
        count - self.room.end()
    }

    /// Why a read finds no entry, as libfabric's number; none if there is one.
    #[inline(always)]
    pub fn lack(&self) -> Option<isize> {
        self.entries
            .is_empty()
            .then_some(-(if self.faults.is_empty() { FI_EAGAIN } else { FI_EAVAIL } as isize))
    }

    /// Moves as many entries to `room` as it takes; how many, or none if an error comes first.
    ///
    /// # Safety
    /// There is as much room as it says, for entries of this queue's [size](Cq::entry_size).
    #[inline(always)]
    pub unsafe fn drain(&mut self, mut room: Room) -> Option<usize> {
        if !self.faults.is_empty() {
            return None;
        }
        let waiting = &self.entries[self.taken..];
        let count = waiting.iter().take_while(|entry| room.put(entry)).count();
        self.taken += count;
        if self.taken == self.entries.len() {
            self.entries.clear();
            self.taken = 0;
        } else if self.taken > self.entries.len() / 2 {
            self.entries.drain(..self.taken);
            self.taken = 0;
        }
        Some(count)
    }

    /// Whether something that waits came from this sender.
    pub fn names(&self, source: u64) -> bool {
        let faults = self.faults.iter().map(|fault| &fault.entry);
        self.entries[self.taken..].iter().chain(faults).any(|entry| entry.source == source)
    }

    /// Takes the first error.
    pub fn take_fault(&mut self) -> Option<Fault> {
        self.faults.pop_front()
    }

    /// Keeps an error's data for an application that gave no room for it, until the next such error.
    pub fn show(&mut self, data: Vec<u8>) -> &mut [u8] {
        self.shown = data;
        &mut self.shown
    }

    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.faults.is_empty()
    }

    /// An endpoint is closed: its peers' numbers mean nothing any more.
    pub fn forget(&mut self, endpoint: usize) {
        self.users.retain(|user| user.number != endpoint);
        let faults = self.faults.iter_mut().map(|fault| &mut fault.entry);
        for entry in self.entries.iter_mut().chain(faults) {
            if Entry::sender(entry.source).is_some_and(|(from, _)| from == endpoint) {
                entry.source = Entry::NO_SOURCE;
            }
        }
    }
}
