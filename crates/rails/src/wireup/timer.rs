//! Wakes who sleeps on the worker's descriptor when a deadline comes.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

pub(super) struct Timer {
    fd: OwnedFd,
    at: Option<Instant>,
}

impl Timer {
    pub fn new() -> io::Result<Self> {
        // SAFETY: a plain call.
        let fd =
            unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor, ours alone.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) }, at: None })
    }

    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// The descriptor becomes readable at this time, or before it where that was asked for earlier.
    pub fn wake_at(&mut self, at: Instant) {
        if self.at.is_some_and(|set| set <= at) {
            return;
        }
        self.at = Some(at);
        let left = at.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let value = libc::timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos() as _ };
        let once =
            libc::itimerspec { it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        // SAFETY: the value is read, nothing is written. It cannot fail with a valid time.
        unsafe { libc::timerfd_settime(self.fd(), 0, &once, std::ptr::null_mut()) };
    }

    /// It has rung, and is silent again.
    pub fn rang(&mut self) {
        self.at = None;
        let mut count = [0u8; 8];
        // SAFETY: the array takes the eight bytes that a timer gives. Nothing to read is no failure.
        unsafe { libc::read(self.fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}
