//! What an object of Python's holds until it is over.

use crate::error::Use;
use pyo3::prelude::*;
use std::sync::{Mutex, MutexGuard, TryLockError};

/// Something with connections, which belong to the process that made them.
pub(crate) struct Held<T> {
    what: &'static str,
    held: Mutex<Option<T>>,
    process: u32,
}

impl<T> Held<T> {
    pub(crate) fn new(what: &'static str, held: T) -> Self {
        Self { what, held: Mutex::new(Some(held)), process: std::process::id() }
    }

    /// For one call; none: it is over. It does not wait: who holds it may need Python's lock.
    pub(crate) fn lock(&self) -> PyResult<MutexGuard<'_, Option<T>>> {
        let what = self.what;
        if self.process != std::process::id() {
            return Err(Use::new_err(format!(
                "{what} was made in the process {}, whose child this is: let each process call found or join itself (with multiprocessing, start processes by \"spawn\")",
                self.process
            )));
        }
        self.held.try_lock().map_err(|why| {
            Use::new_err(match why {
                TryLockError::WouldBlock => format!("{what} is in another call, of another thread or of one that a signal has interrupted: one at a time can be made"),
                TryLockError::Poisoned(_) => format!("{what} cannot be used after an earlier call has failed within"),
            })
        })
    }

    fn over(&self) -> PyErr {
        Use::new_err(format!("{} is over: nothing can be called after its end", self.what))
    }

    /// For one call that needs it.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&mut T) -> PyResult<R>) -> PyResult<R> {
        call(self.lock()?.as_mut().ok_or_else(|| self.over())?)
    }

    /// For the last call.
    pub(crate) fn take(&self) -> PyResult<T> {
        self.lock()?.take().ok_or_else(|| self.over())
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        // to close connections in a child would end its parent's
        if self.process != std::process::id() {
            std::mem::forget(self.held.get_mut().map(Option::take));
        }
    }
}
