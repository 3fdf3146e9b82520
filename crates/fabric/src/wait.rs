//! Sleeping until something happens to a completion queue, a counter or an event queue.
//!
//! What is waited for may come in two ways: a rail has something (its worker's descriptor becomes readable), or another thread has
//! made progress and put the result here (our eventfd). One epoll descriptor joins them; it is what applications get as wait
//! object, and it is made when first asked for.
//!
//! Who wants to sleep arms each worker first; a worker that is armed tells its peers to wake it, until the next progress on it.
//! So as long as anybody sleeps in a domain, progress ends with arming again (see [`crate::progress`]).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::ffi::*;

#[derive(Debug)]
struct Fds {
    epoll: OwnedFd,
    event: OwnedFd,
}

/// The sleeping side of one object. All under its domain's lock (or its own, for an event queue).
#[derive(Debug)]
pub struct Wait {
    object: fi_wait_obj,
    fds: Option<Fds>,
    /// Threads in a blocking read.
    sleepers: usize,
    /// The application waits on the descriptor itself, or may.
    armed: bool,
    /// The eventfd is readable.
    raised: bool,
    /// A blocking read is to return empty-handed.
    interrupted: bool,
    /// Somebody sleeps, or may: what [`Wait::sleepers`] and [`Wait::armed`] say.
    awaits: bool,
    /// How many objects of the domain are awaited: one look tells whether any is.
    awaited: Awaited,
}

/// The number of objects, of those that share it, on which somebody sleeps or may. It changes under their lock.
#[derive(Clone, Debug, Default)]
pub struct Awaited(Arc<AtomicUsize>);

impl Awaited {
    #[inline]
    pub fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// Makes a descriptor of what a system call returned.
fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: new, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn watch(epoll: &OwnedFd, fd: RawFd) -> io::Result<()> {
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: fd as u64 };
    // SAFETY: open descriptors and a whole event.
    match unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) } {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            // a counter of regions watches all endpoints, and is bound to this one besides
            error if error.raw_os_error() == Some(libc::EEXIST) => Ok(()),
            error => Err(error),
        },
    }
}

impl Fds {
    fn open() -> io::Result<Self> {
        // SAFETY: plain calls.
        let (epoll, event) = unsafe {
            (
                owned(libc::epoll_create1(libc::EPOLL_CLOEXEC))?,
                owned(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?,
            )
        };
        watch(&epoll, event.as_raw_fd())?;
        Ok(Self { epoll, event })
    }

    fn raise(&self) {
        // SAFETY: 8 readable bytes. It fails only when the counter is full, and then it is raised.
        unsafe { libc::write(self.event.as_raw_fd(), (&raw const ONE).cast(), 8) };
    }

    fn lower(&self) {
        let mut count = 0u64;
        // SAFETY: 8 writable bytes; not blocking.
        unsafe { libc::read(self.event.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

static ONE: u64 = 1;

/// Until when a call may take.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// From libfabric's milliseconds, negative for ever.
    pub fn after(timeout: libc::c_int) -> Self {
        Self(u64::try_from(timeout).ok().map(|ms| Instant::now() + Duration::from_millis(ms)))
    }

    /// In so long.
    pub fn within(time: Duration) -> Self {
        Self(Some(Instant::now() + time))
    }

    /// How long anybody sleeps at most before looking again: connections have deadlines that no descriptor tells of.
    pub const LONGEST: Duration = Duration::from_millis(100);

    /// The same, but not later than in so long.
    pub fn or_in(self, longest: Duration) -> Self {
        let latest = Instant::now() + longest;
        Self(Some(self.0.map_or(latest, |at| at.min(latest))))
    }

    pub fn passed(self) -> bool {
        self.0.is_some_and(|at| at <= Instant::now())
    }

    /// How long that is from now; none: for ever.
    fn left(self) -> Option<libc::timespec> {
        let left = self.0?.saturating_duration_since(Instant::now());
        let tv_sec = left.as_secs().try_into().unwrap_or(libc::time_t::MAX);
        Some(libc::timespec { tv_sec, tv_nsec: left.subsec_nanos().into() })
    }
}

/// Sleeps until `fd` is readable or the deadline has passed.
///
/// # Errors
/// `EINTR`, and what else ppoll(2) may say.
pub fn sleep_on(fd: RawFd, deadline: Deadline) -> io::Result<()> {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let left = deadline.left();
    let time = left.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: one whole entry, and a time or none.
    match unsafe { libc::ppoll(&raw mut poll, 1, time, ptr::null()) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Wait {
    /// For a wait object of this kind.
    ///
    /// # Errors
    /// libfabric's number, negative, for a kind that we do not have.
    pub fn new(object: fi_wait_obj, awaited: &Awaited) -> Result<Self, libc::c_int> {
        match object {
            FI_WAIT_NONE | FI_WAIT_UNSPEC | FI_WAIT_FD | FI_WAIT_MUTEX_COND | FI_WAIT_YIELD
            | FI_WAIT_POLLFD => Ok(Self {
                object,
                fds: None,
                sleepers: 0,
                armed: false,
                raised: false,
                interrupted: false,
                awaits: false,
                awaited: awaited.clone(),
            }),
            // wait sets are gone from libfabric 2
            FI_WAIT_SET => Err(-FI_ENOSYS),
            _ => Err(-FI_EINVAL),
        }
    }

    /// Whether blocking calls are allowed.
    pub fn blocks(&self) -> bool {
        self.object != FI_WAIT_NONE
    }

    /// Whether anybody sleeps, or may.
    #[inline(always)]
    pub fn awaited(&self) -> bool {
        self.awaits
    }

    /// Changes who sleeps, and the common count with that.
    fn change(&mut self, f: impl FnOnce(&mut Self)) {
        let before = self.awaits;
        f(self);
        self.awaits = self.armed || self.sleepers > 0;
        match (before, self.awaits) {
            (false, true) => self.awaited.0.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.awaited.0.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
    }

    /// The descriptor to sleep on; `workers` are the descriptors that it joins when it is made.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub fn fd(&mut self, workers: impl IntoIterator<Item = RawFd>) -> io::Result<RawFd> {
        if self.fds.is_none() {
            let fds = Fds::open()?;
            workers.into_iter().try_for_each(|fd| watch(&fds.epoll, fd))?;
            if self.raised || self.interrupted {
                fds.raise();
            }
            self.fds = Some(fds);
        }
        Ok(self.fds.as_ref().map_or(-1, |fds| fds.epoll.as_raw_fd()))
    }

    /// Joins another worker's descriptor.
    ///
    /// # Errors
    /// What epoll_ctl(2) says.
    pub fn attach(&mut self, worker: RawFd) -> io::Result<()> {
        self.fds.as_ref().map_or(Ok(()), |fds| watch(&fds.epoll, worker))
    }

    /// Forgets a worker's descriptor, which is still open.
    pub fn detach(&mut self, worker: RawFd) {
        if let Some(fds) = &self.fds {
            // SAFETY: open descriptors; deletion takes no event.
            unsafe {
                libc::epoll_ctl(fds.epoll.as_raw_fd(), libc::EPOLL_CTL_DEL, worker, std::ptr::null_mut())
            };
        }
    }

    /// Wakes who sleeps.
    #[inline]
    pub fn wake(&mut self) {
        if self.awaited() {
            self.raise();
        }
    }

    /// Makes the descriptor readable, whoever waits.
    #[cold]
    pub fn raise(&mut self) {
        self.change(|wait| wait.armed = false);
        if !self.raised {
            self.raised = true;
            if let Some(fds) = &self.fds {
                fds.raise();
            }
        }
    }

    /// There is nothing any more: the descriptor is readable only when something comes.
    pub fn lower(&mut self) {
        if self.raised && !self.interrupted {
            self.raised = false;
            if let Some(fds) = &self.fds {
                fds.lower();
            }
        }
    }

    /// The application is going to wait on the descriptor.
    pub fn arm(&mut self) {
        self.change(|wait| wait.armed = true);
    }

    /// A thread goes to sleep.
    pub fn enter(&mut self) {
        self.change(|wait| wait.sleepers += 1);
    }

    /// A thread has woken up.
    pub fn leave(&mut self) {
        self.change(|wait| wait.sleepers -= 1);
    }

    /// Makes one blocking read return, now or the next.
    pub fn interrupt(&mut self) {
        self.interrupted = true;
        self.raise();
    }

    /// Whether to return from a blocking read; asked once.
    pub fn take_interrupt(&mut self) -> bool {
        std::mem::take(&mut self.interrupted)
    }

    /// Which kind of wait object it is.
    pub fn object(&self) -> fi_wait_obj {
        self.object
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.change(|wait| (wait.armed, wait.sleepers) = (false, 0));
    }
}
