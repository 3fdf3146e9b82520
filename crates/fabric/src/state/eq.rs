//! Event queues: what happened to control operations. Ours are all synchronous, so that there is little to report: address
//! insertions of applications that want it so, and what applications write themselves.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ffi::{fi_eq_entry, fid};
use crate::wait::Wait;

/// One event queue. It has a lock of its own, which is never held while another one is taken.
#[derive(Debug)]
pub struct Eq {
    events: Mutex<Events>,
    /// The application may write events.
    pub writable: bool,
}

/// What is in one.
#[derive(Debug)]
pub struct Events {
    /// Events with their bytes.
    pub done: VecDeque<(u32, Vec<u8>)>,
    pub failed: VecDeque<Failed>,
    pub wait: Wait,
}

/// A control operation that failed; object and context as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    pub fid: usize,
    pub context: usize,
    pub data: u64,
    pub err: c_int,
}

impl Events {
    pub fn is_empty(&self) -> bool {
        self.done.is_empty() && self.failed.is_empty()
    }

    /// After something was taken.
    pub fn settle(&mut self) {
        if self.is_empty() {
            self.wait.lower();
        }
    }
}

impl Eq {
    pub fn new(wait: Wait, writable: bool) -> Self {
        let events = Events { done: VecDeque::new(), failed: VecDeque::new(), wait };
        Self { events: Mutex::new(events), writable }
    }

    pub fn lock(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn push(&self, event: u32, bytes: Vec<u8>) {
        let mut events = self.lock();
        events.done.push_back((event, bytes));
        events.wait.raise();
    }

    /// A control operation that is done.
    pub fn push_entry(&self, event: u32, fid: *mut fid, context: *mut c_void, data: u64) {
        let entry = [fid.expose_provenance() as u64, context.expose_provenance() as u64, data];
        self.push(event, entry.map(u64::to_ne_bytes).concat());
    }

    /// A control operation that failed.
    pub fn push_error(&self, fid: *mut fid, context: *mut c_void, data: u64, err: c_int) {
        let mut events = self.lock();
        events.failed.push_back(Failed {
            fid: fid.expose_provenance(),
            context: context.expose_provenance(),
            data,
            err,
        });
        events.wait.raise();
    }

    /// `fi_trywait`: whether the application may sleep on the descriptor.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub fn try_wait(&self) -> io::Result<bool> {
        let mut events = self.lock();
        events.wait.fd([])?;
        Ok(events.is_empty())
    }
}

const _: () = assert!(size_of::<fi_eq_entry>() == 24, "push_entry writes its three words");
