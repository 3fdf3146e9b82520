//! Counters.

use std::ffi::c_int;

use crate::ffi::{FI_EAVAIL, FI_SUCCESS};
use crate::state::endpoint::Endpoint;
use crate::state::slab::Key;
use crate::wait::Wait;

/// One counter: of successes, and of failures. Both wrap.
#[derive(Debug)]
pub struct Cntr {
    value: u64,
    errors: u64,
    /// Bound endpoints.
    pub users: Vec<Key<Endpoint>>,
    /// Bound memory regions.
    pub regions: usize,
    pub wait: Wait,
}

impl Cntr {
    pub fn new(wait: Wait) -> Self {
        Self { value: 0, errors: 0, users: Vec::new(), regions: 0, wait }
    }

    pub fn value(&self) -> u64 {
        self.value
    }

    pub fn errors(&self) -> u64 {
        self.errors
    }

    #[inline]
    pub fn add(&mut self, n: u64) {
        self.set(self.value.wrapping_add(n));
    }

    #[inline]
    pub fn set(&mut self, value: u64) {
        self.value = value;
        self.wait.wake();
    }

    pub fn add_error(&mut self, n: u64) {
        self.set_error(self.errors.wrapping_add(n));
    }

    pub fn set_error(&mut self, errors: u64) {
        self.errors = errors;
        self.wait.wake();
    }

    /// How a wait for `threshold` ends, that began when there were so many `errors`; not at all as long as nothing has come of it.
    pub fn outcome(&self, threshold: u64, errors: u64) -> Option<c_int> {
        if self.value >= threshold {
            return Some(FI_SUCCESS);
        }
        (self.errors != errors).then_some(-FI_EAVAIL)
    }
}
