//! A doorbell: an eventfd that a worker sleeps on, together with its sockets, and that peers hold a duplicate of.

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

/// One worker's doorbell, or a peer's hold of it.
#[derive(Debug)]
pub struct Doorbell(OwnedFd);

impl Doorbell {
    /// A new doorbell, silent.
    pub fn new() -> io::Result<Doorbell> {
        // SAFETY: the call takes integers only.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor, ours alone.
        Ok(Doorbell(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Takes a peer's doorbell as it came over a socket.
    ///
    /// # Errors
    /// `InvalidData` for what is not a non-blocking eventfd or its like: ringing a file would damage it, ringing a pipe
    /// could block.
    pub fn from_peer(fd: OwnedFd) -> io::Result<Doorbell> {
        let mut stat = mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the descriptor is valid, the buffer is a stat.
        let (flags, done) = unsafe {
            (libc::fcntl(fd.as_raw_fd(), libc::F_GETFL), libc::fstat(fd.as_raw_fd(), stat.as_mut_ptr()))
        };
        if flags < 0 || done < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: filled by fstat.
        let kind = unsafe { stat.assume_init() }.st_mode & libc::S_IFMT;
        // The kernel's anonymous files, eventfds among them, are of no kind.
        if kind != 0 || flags & libc::O_NONBLOCK == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the peer's doorbell is no eventfd"));
        }
        Ok(Doorbell(fd))
    }

    /// Wakes the worker. Never blocks; ringing what rings already changes nothing.
    pub fn ring(&self) {
        let one = 1u64.to_ne_bytes();
        // The only failure is a counter that is full, and rings.
        // SAFETY: the buffer is eight bytes long.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Silences the doorbell; says whether it rang. To be called after waking, before the rings are looked at.
    pub fn drain(&self) -> bool {
        let mut count = [0; 8];
        // SAFETY: the buffer is eight bytes long.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) == 8 }
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn peers_ring_is_heard_once() {
        let bell = Doorbell::new().unwrap();
        let peer = Doorbell::from_peer(bell.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert!(!bell.drain());
        peer.ring();
        peer.ring();
        assert!(bell.drain());
        assert!(!bell.drain());
    }

    #[test]
    fn full_counter_does_not_block() {
        let bell = Doorbell::new().unwrap();
        let most = (u64::MAX - 1).to_ne_bytes();
        // SAFETY: the buffer is eight bytes long.
        assert_eq!(unsafe { libc::write(bell.0.as_raw_fd(), most.as_ptr().cast(), 8) }, 8);
        bell.ring();
        assert!(bell.drain());
    }

    #[test]
    fn other_descriptors_are_refused() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let (_, pipe) = std::io::pipe().unwrap();
        // SAFETY: the call takes integers only; the descriptor is ours.
        let blocking = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) };
        for fd in [file.into(), pipe.into(), blocking] {
            assert_eq!(Doorbell::from_peer(fd).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }
}
