//! How a sleeping receiver is woken: an eventfd per worker, of which each peer holds a duplicate.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The owner's end.
pub struct Doorbell(OwnedFd);

/// A peer's end.
pub struct Bell(OwnedFd);

impl Doorbell {
    /// A silent doorbell.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn new() -> io::Result<Self> {
        // SAFETY: a plain call; the descriptor is ours.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor, ours alone.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes it silent again.
    pub fn drain(&self) {
        let mut count = [0u8; 8];
        // SAFETY: the array takes the eight bytes that an eventfd gives. Nothing to read is no failure.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Doorbell {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Bell {
    /// A peer's doorbell, as it came from the peer.
    ///
    /// # Errors
    /// When the descriptor is no eventfd, or one that blocks: writing to anything else could stop or end the process.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
        // SAFETY: a plain call on a descriptor of ours.
        let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
        if link.to_str() != Some("anon_inode:[eventfd]") || flags & libc::O_NONBLOCK == 0 {
            let why = "the peer's doorbell is no nonblocking eventfd";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(Self(fd))
    }

    /// Wakes the owner.
    pub fn ring(&self) {
        let one = 1u64.to_ne_bytes();
        // A full counter, the one failure, means that it rings already.
        // SAFETY: eight readable bytes.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn readable(bell: &Doorbell) -> bool {
        crate::sys::wait_for(bell.as_raw_fd(), libc::POLLIN, std::time::Duration::ZERO)
    }

    #[test]
    fn rings_until_drained() {
        let ours = Doorbell::new().unwrap();
        let theirs = Bell::new(ours.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert!(!readable(&ours));
        theirs.ring();
        theirs.ring();
        assert!(readable(&ours));
        ours.drain();
        assert!(!readable(&ours));
        ours.drain();
    }

    #[test]
    fn nothing_but_an_eventfd_is_a_bell() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(Bell::new(file.into()).is_err());
        // SAFETY: the call takes integers only; the descriptor is ours.
        let blocking = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) };
        assert!(Bell::new(blocking).is_err());
    }

    #[test]
    fn full_counter_does_not_block() {
        let ours = Doorbell::new().unwrap();
        let theirs = Bell::new(ours.as_fd().try_clone_to_owned().unwrap()).unwrap();
        let most = (u64::MAX - 1).to_ne_bytes();
        // SAFETY: the buffer is eight bytes long.
        assert_eq!(unsafe { libc::write(ours.as_raw_fd(), most.as_ptr().cast(), 8) }, 8);
        theirs.ring();
        assert!(readable(&ours));
    }
}
