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
        if self.room.left() > 0 {
            // SAFETY: there is, of the size that `lend` was promised.
            unsafe { self.room.put(entry, self.entry) };
        } else {
            self.entries.push(entry);
        }
        self.wait.wake();
    }

    #[cold]
    pub fn push_fault(&mut self, fault: Fault) {
        self.faults.push_back(fault);
        self.wait.wake();
    }

    /// Has what is pushed until [`Cq::take_back`] go to `room`. For a queue that is empty.
    ///
    /// # Safety
    /// Until then there is as much room as it says, for entries of this queue's size.
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
    /// There is as much room as it says, for entries of this queue's size.
    #[inline(always)]
    pub unsafe fn drain(&mut self, mut room: Room) -> Option<usize> {
        if !self.faults.is_empty() {
            return None;
        }
        let waiting = &self.entries[self.taken..];
        let count = room.left().min(waiting.len());
        for entry in &waiting[..count] {
            // SAFETY: there is room.
            unsafe { room.put(*entry, self.entry) };
        }
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
