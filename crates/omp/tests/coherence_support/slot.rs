//! What coroutines share: only one runs at a time, which the compiler cannot know.

use std::sync::{Mutex, MutexGuard};

/// As a `RefCell` has it.
#[derive(Debug, Default)]
pub struct Slot<T>(Mutex<T>);

impl<T> Slot<T> {
    /// Of `value`.
    pub fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// If nobody has it.
    pub fn try_borrow_mut(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(broken)) => Some(broken.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }

    /// Nobody has it: no coroutine gives way meanwhile.
    pub fn borrow_mut(&self) -> MutexGuard<'_, T> {
        self.try_borrow_mut().expect("nobody gives way while having it")
    }
}

impl<T: Copy> Slot<T> {
    /// A copy.
    pub fn get(&self) -> T {
        *self.borrow_mut()
    }

    /// Another value.
    pub fn set(&self, value: T) {
        *self.borrow_mut() = value;
    }
}
