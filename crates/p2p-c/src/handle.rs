//! What a program holds, and how a call enters it and comes back.

use crate::failure::{Failure, answer};
use crate::layout::P2Pset;
use polyrail_p2p::{Founding, Peers};
use std::ffi::c_int;
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

/// A `P2Peers` of the header. The lock is never waited for: it finds out a second thread, and what a panic left half done.
pub struct Handle(Mutex<Inner>);

/// How far a run is.
pub(crate) enum State {
    /// Others may join.
    Founding(Box<Founding>),
    /// It is under way.
    Running(Box<Peers>),
    /// It did not begin.
    Over,
}

/// What is behind the lock.
pub(crate) struct Inner {
    pub(crate) state: State,
    /// The job's, for the program to look at: a view may be replaced by any call.
    pub(crate) task: Vec<u8>,
    pub(crate) lent: Lent,
}

/// What was handed to the program to look at, until the next of its kind.
#[derive(Default)]
pub(crate) struct Lent {
    pub(crate) lost: Vec<u32>,
    pub(crate) states: Vec<Option<Vec<u8>>>,
    /// Points into `states`.
    pub(crate) set: Vec<P2Pset>,
    pub(crate) piece: Vec<u8>,
}

// a handle may go from thread to thread: what it is made of may, and what is lent points into it
const _: () = {
    const fn may_change_threads<T: Send>() {}
    may_change_threads::<Founding>();
    may_change_threads::<Peers>();
};

impl Handle {
    pub(crate) fn new(state: State) -> Box<Self> {
        let task = match &state {
            State::Running(peers) => peers.view().job.task.clone(),
            State::Founding(_) | State::Over => Vec::new(),
        };
        Box::new(Self(Mutex::new(Inner { state, task, lent: Lent::default() })))
    }

    fn with<R>(&self, call: impl FnOnce(&mut Inner) -> Result<R, Failure>) -> Result<R, Failure> {
        match self.0.try_lock() {
            Ok(mut inner) => call(&mut inner),
            Err(TryLockError::WouldBlock) => {
                Err(Failure::misuse("another thread is in a call with this handle: one at a time may be"))
            }
            Err(TryLockError::Poisoned(_)) => Err(Failure::internal(
                "a fault of the library ended an earlier call with this handle: only P2Pleave is possible",
            )),
        }
    }
}

impl Inner {
    /// The run, which is under way.
    pub(crate) fn peers(&mut self) -> Result<&mut Peers, Failure> {
        match &mut self.state {
            State::Running(peers) => Ok(peers),
            State::Founding(_) => Err(Failure::misuse("the run has not begun: P2Pgather begins it")),
            State::Over => Err(Failure::misuse(
                "the run did not begin, as an earlier call has said: P2Pleave, and begin anew",
            )),
        }
    }
}

/// Carries out a call with a handle, at whatever stage.
///
/// # Safety
/// The handle is one that was given to the program and not taken back, or null.
pub(crate) unsafe fn with_handle(
    handle: *const Handle,
    call: impl FnOnce(&mut Inner) -> Result<(), Failure>,
) -> c_int {
    answer(|| {
        // SAFETY: the caller promises it; what is behind the lock is used by one thread.
        let handle = unsafe { handle.as_ref() };
        handle
            .ok_or_else(|| {
                Failure::misuse("the handle is a null pointer; did the call fail that was to give it?")
            })?
            .with(call)
    })
}

/// Carries out a call with a run that is under way.
///
/// # Safety
/// As [`with_handle`].
pub(crate) unsafe fn with_peers(
    handle: *const Handle,
    call: impl FnOnce(&mut Peers) -> Result<(), Failure>,
) -> c_int {
    // SAFETY: the caller promises it.
    unsafe { with_handle(handle, |inner| call(inner.peers()?)) }
}

/// Takes a handle back, and leaves its run.
///
/// # Safety
/// As [`with_handle`]; nobody uses it afterwards.
pub(crate) unsafe fn take_back(handle: *mut Handle, most: Duration) -> Result<(), Failure> {
    if handle.is_null() {
        return Ok(());
    }
    // SAFETY: it was made by a box, and the caller has no other use for it.
    let Handle(inner) = *unsafe { Box::from_raw(handle) };
    let inner = inner.into_inner().unwrap_or_else(|broken| {
        // nobody can be sent anything by what is half done
        let mut inner = broken.into_inner();
        let broken = std::mem::replace(&mut inner.state, State::Over);
        drop(broken);
        inner
    });
    if let State::Running(peers) = inner.state {
        peers.leave(most);
    }
    Ok(())
}
