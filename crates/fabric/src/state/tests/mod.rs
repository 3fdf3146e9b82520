//! Queues, counters and address vectors against simple oracles.

mod av;
mod cntr;
mod cq;

use proptest::test_runner::Config;

use crate::ffi::{FI_WAIT_FD, FI_WAIT_NONE};
use crate::wait::{Awaited, Deadline, Wait, sleep_on};

/// Random runs: few where each instruction is looked at.
fn runs() -> Config {
    let cases = if cfg!(miri) { 4 } else { Config::default().cases };
    Config { cases, failure_persistence: None, ..Config::default() }
}

/// The wait object of who never waits.
fn idle() -> Wait {
    Wait::new(FI_WAIT_NONE, &Awaited::default()).expect("a kind that there is")
}

/// Somebody who waits by descriptor.
struct Waiter {
    awaited: Awaited,
    fd: std::os::fd::RawFd,
}

impl Waiter {
    /// The wait object, and who sleeps on it.
    fn new() -> (Wait, Self) {
        let awaited = Awaited::default();
        let mut wait = Wait::new(FI_WAIT_FD, &awaited).expect("a kind that there is");
        let fd = wait.fd([]).expect("descriptors");
        (wait, Self { awaited, fd })
    }

    /// Whether the descriptor is readable.
    fn is_called(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one whole entry.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    /// `wait` must not have called; it is armed, `act` changes what is waited for, and then it must have called, once.
    fn is_woken_by<T>(&self, all: &mut T, wait: impl Fn(&mut T) -> &mut Wait, act: impl FnOnce(&mut T)) {
        wait(all).arm();
        assert!(!self.is_called() && self.awaited.any(), "called for nothing");
        act(all);
        assert!(self.is_called() && !self.awaited.any(), "not called");
        sleep_on(self.fd, Deadline::after(-1)).expect("it does not sleep");
        wait(all).lower();
        assert!(!self.is_called());
    }
}
