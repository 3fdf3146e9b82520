//! How a worker is told of what it does not look at, and woken if it sleeps: a board and an eventfd per worker, of which each peer holds
//! duplicates.

use super::board::Board;
use super::sealed::Sealed;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Bytes of a board's memory.
const BOARD: usize = 4096;
const _: () = assert!(size_of::<Board>() <= BOARD);

/// A board's memory, mapped.
struct Mapped(Sealed);

impl Deref for Mapped {
    type Target = Board;

    #[inline]
    fn deref(&self) -> &Board {
        // SAFETY: all zero when it was made, large enough, mapped while `self` lives, and of atomics.
        unsafe { self.0.at().cast().as_ref() }
    }
}

/// The owner's end.
pub struct Doorbell {
    event: OwnedFd,
    /// What peers map, or why there is nothing that they could.
    memory: Result<OwnedFd, String>,
    board: Mapped,
}

/// A peer's end.
pub struct Bell {
    event: OwnedFd,
    board: Mapped,
}

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
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        let (board, memory) = match Sealed::create(BOARD) {
            Ok((board, memory)) => (board, Ok(memory)),
            // where this process may not share memory it has peers on other hosts only
            Err(why) if why.is_for_good() => {
                (Sealed::private(BOARD).map_err(io::Error::other)?, Err(why.to_string()))
            }
            Err(why) => return Err(io::Error::other(why)),
        };
        Ok(Self { event, memory, board: Mapped(board) })
    }

    /// Descriptors for a peer's [`Bell`].
    ///
    /// # Errors
    /// When no descriptor is left, or this process may not share memory.
    pub fn introduce(&self) -> io::Result<[OwnedFd; 2]> {
        let memory = self.memory.as_ref().map_err(|why| io::Error::other(why.as_str()))?;
        Ok([self.event.as_fd().try_clone_to_owned()?, memory.as_fd().try_clone_to_owned()?])
    }

    /// What peers mark.
    #[inline]
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// Makes it silent again.
    pub fn drain(&self) {
        let mut count = [0u8; 8];
        // SAFETY: the array takes the eight bytes that an eventfd gives. Nothing to read is no failure.
        unsafe { libc::read(self.event.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

impl AsRawFd for Doorbell {
    fn as_raw_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }
}

impl Bell {
    /// A peer's doorbell, from what the peer's [`Doorbell::introduce`] gave.
    ///
    /// # Errors
    /// When the first descriptor is no eventfd, or one that blocks: writing to anything else could stop or end the process. When the
    /// second is no board's memory, or cannot be mapped.
    pub fn new([fd, memory]: [OwnedFd; 2]) -> io::Result<Self> {
        let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
        // SAFETY: a plain call on a descriptor of ours.
        let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
        if link.to_str() != Some("anon_inode:[eventfd]") || flags & libc::O_NONBLOCK == 0 {
            let why = "the peer's doorbell is no nonblocking eventfd";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let board = Mapped(Sealed::open(memory.as_fd(), BOARD).map_err(io::Error::other)?);
        Ok(Self { event: fd, board })
    }

    /// Tells the owner to look at the ring that stands at this place on its board, and wakes it if it sleeps.
    #[cold]
    pub fn ring(&self, place: u32) {
        if self.board.mark(place) {
            self.wake();
        }
    }

    /// Tells the owner, if it is awake, that there is something for it at this place, which can do without it.
    pub fn tell(&self, place: u32) {
        self.board.mark_if_awake(place);
    }

    fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // A full counter, the one failure, means that it rings already.
        // SAFETY: eight readable bytes.
        unsafe { libc::write(self.event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn readable(bell: &Doorbell) -> bool {
        crate::sys::wait_for(bell.as_raw_fd(), libc::POLLIN, std::time::Duration::ZERO)
    }

    fn pair() -> (Doorbell, Bell) {
        let ours = Doorbell::new().unwrap();
        let theirs = Bell::new(ours.introduce().unwrap()).unwrap();
        (ours, theirs)
    }

    #[test]
    fn who_sleeps_is_woken_until_it_drains() {
        let (ours, theirs) = pair();
        theirs.ring(3);
        assert!(!readable(&ours) && ours.board().is_marked(), "it is awake");
        ours.board().sleeps(true);
        theirs.ring(3);
        theirs.ring(3);
        assert!(readable(&ours));
        ours.drain();
        assert!(!readable(&ours));
        ours.drain();
    }

    #[test]
    fn nothing_but_an_eventfd_and_a_board_is_a_bell() {
        let (ours, _) = pair();
        let with = |event: Option<OwnedFd>, memory: Option<OwnedFd>| {
            let [e, m] = ours.introduce().unwrap();
            Bell::new([event.unwrap_or(e), memory.unwrap_or(m)]).err().map(|why| why.to_string())
        };
        let file = || Some(std::fs::File::open("/proc/self/exe").unwrap().into());
        assert!(with(file(), None).is_some_and(|why| why.contains("eventfd")));
        // SAFETY: the call takes integers only; the descriptor is ours.
        let blocking = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) };
        assert!(with(Some(blocking), None).is_some());
        assert!(with(None, file()).is_some_and(|why| why.contains("F_GET_SEALS")));
        let (_, larger) = Sealed::create(2 * BOARD).unwrap();
        assert!(with(None, Some(larger)).is_some_and(|why| why.contains("size")));
        assert_eq!(with(None, None), None);
    }

    #[test]
    fn full_counter_does_not_block() {
        let (ours, theirs) = pair();
        let most = (u64::MAX - 1).to_ne_bytes();
        // SAFETY: the buffer is eight bytes long.
        assert_eq!(unsafe { libc::write(ours.as_raw_fd(), most.as_ptr().cast(), 8) }, 8);
        theirs.wake();
        assert!(readable(&ours));
    }
}
