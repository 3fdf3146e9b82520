//! System calls that wait for descriptors, or ask which are ready: one wrapper of each.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

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
