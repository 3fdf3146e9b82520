//! System calls that wait for descriptors, or ask which are ready, or how many there may be: one wrapper of each.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// An epoll instance.
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    /// One that watches nothing.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no memory is involved.
        match unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) } {
            -1 => Err(io::Error::last_os_error()),
            // SAFETY: a descriptor that was just made and is nobody else's.
            fd => Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) })),
        }
    }

    /// Watches `fd` for these events, which come with the token.
    pub fn add(&self, fd: RawFd, events: libc::c_int, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, events, token)
    }

    /// Watches `fd` for other events than before.
    pub fn change(&self, fd: RawFd, events: libc::c_int, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, events, token)
    }

    fn control(&self, what: libc::c_int, fd: RawFd, events: libc::c_int, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        // SAFETY: the kernel reads one event.
        match unsafe { libc::epoll_ctl(self.0.as_raw_fd(), what, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Forgets `fd`. Closing it would not be enough where a forked child holds it too.
    pub fn remove(&self, fd: RawFd) {
        // SAFETY: EPOLL_CTL_DEL reads no event. A failure would mean that it is not watched.
        unsafe { libc::epoll_ctl(self.0.as_raw_fd(), libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) };
    }

    /// Takes what has happened, without waiting, in place of what `events` held: as much as that has room for.
    pub fn take(&self, events: &mut Vec<libc::epoll_event>) {
        events.clear();
        let room = events.capacity() as libc::c_int;
        // SAFETY: the kernel writes at most `room` events to memory that has that capacity.
        let n = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), room, 0) };
        // SAFETY: the first n events were written; an error (EINTR) is no event.
        unsafe { events.set_len(n.max(0) as usize) };
    }
}

impl AsRawFd for Epoll {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Wakes who sleeps on its descriptor when a time comes.
pub(crate) struct Timer {
    fd: OwnedFd,
    at: Option<Instant>,
}

impl Timer {
    /// One that is silent.
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

    /// What to watch.
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

/// How many descriptors this process may have; it may change that at any time.
pub(crate) fn descriptor_limit() -> usize {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is ours.
    let told = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut now) } == 0;
    if told { usize::try_from(now.rlim_cur).unwrap_or(usize::MAX) } else { 1024 }
}

/// An event that can be waited for, and is not there.
pub(crate) fn event() -> io::Result<OwnedFd> {
    // SAFETY: no memory is involved; the descriptor is new and ours.
    unsafe {
        match libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// The event is there, or no more.
pub(crate) fn signal(fd: &OwnedFd, there: bool) {
    let mut count = 1_u64.to_ne_bytes();
    match there {
        // SAFETY: eight bytes of ours. It fails only where it is readable already.
        true => unsafe { libc::write(fd.as_raw_fd(), count.as_ptr().cast(), count.len()) },
        // SAFETY: room for the eight bytes that are written.
        false => unsafe { libc::read(fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) },
    };
}

/// Waits for one of these events on a descriptor, at most so long (a signal ends it, too); whether there is one.
pub(crate) fn wait_for(fd: RawFd, events: libc::c_short, most: Duration) -> bool {
    let mut poll = libc::pollfd { fd, events, revents: 0 };
    let most = i32::try_from(most.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one entry, of ours.
    unsafe { libc::poll(&mut poll, 1, most) == 1 }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_is_watched_is_told_and_what_is_forgotten_is_not() {
        let (mut near, far) = UnixStream::pair().expect("sockets");
        let epoll = Epoll::new().expect("a descriptor");
        epoll.add(far.as_raw_fd(), libc::EPOLLIN, 7).expect("watched");
        let mut events = Vec::with_capacity(4);
        epoll.take(&mut events);
        assert!(events.is_empty() && !wait_for(far.as_raw_fd(), libc::POLLIN, Duration::ZERO));
        near.write_all(b"x").expect("room");
        assert!(wait_for(epoll.as_raw_fd(), libc::POLLIN, Duration::from_secs(20)));
        epoll.take(&mut events);
        assert_eq!(events.iter().map(|event| event.u64).collect::<Vec<_>>(), [7]);
        epoll.remove(far.as_raw_fd());
        epoll.take(&mut events);
        assert!(events.is_empty());
        assert!(epoll.add(-1, libc::EPOLLIN, 0).is_err());
    }
}
