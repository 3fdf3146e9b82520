//! The threads of a domain: `auto` makes progress without the application, `pusher` sends what was held back. Neither knows what
//! a domain is: what they do there is a trait of theirs.

pub mod auto;
mod nap;
pub mod pusher;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::primitive::{Builder, JoinHandle};

/// Threads of ours in this process.
static OURS: AtomicUsize = AtomicUsize::new(0);

/// How many there are, or were in the process that this one was forked by.
pub fn ours() -> usize {
    OURS.load(Ordering::Relaxed)
}

/// Starts a thread that no signal comes to: they are for the application's, which may wait for them.
///
/// # Errors
/// There is none to be had.
fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let counted = move || {
        OURS.fetch_add(1, Ordering::Relaxed);
        run();
        OURS.fetch_sub(1, Ordering::Relaxed);
    };
    // SAFETY: sets of signals, and places for them
    let before = unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    };
    let thread = Builder::new().name(name.into()).spawn(counted);
    // SAFETY: as above
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    thread
}

/// A process that has threads. One that it forks has copies of their handles, of what they had locked, and none of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process(u32);

impl Process {
    pub fn this() -> Self {
        Self(std::process::id())
    }

    pub fn is_this(self) -> bool {
        self == Self::this()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::{Duration, Instant};

    /// Whether this comes to an end in a process that is forked now.
    pub fn ends_in_a_child(act: impl FnOnce()) -> bool {
        // SAFETY: the child runs what the caller asks, which waits for nothing if it is right, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            act();
            // SAFETY: ends the child at once, without a word to the test's harness.
            unsafe { libc::_exit(0) };
        }
        let (start, mut status) = (Instant::now(), -1);
        // SAFETY: a child of ours, a place for its status.
        while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
            if start.elapsed() > Duration::from_secs(20) {
                // SAFETY: a child of ours.
                unsafe { (libc::kill(child, libc::SIGKILL), libc::waitpid(child, &raw mut status, 0)) };
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        status == 0
    }
}
