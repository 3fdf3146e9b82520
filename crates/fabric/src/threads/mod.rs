//! The threads of a domain: `auto` makes progress without the application, `pusher` sends what was held back. Neither knows what
//! a domain is: what they do there is a trait of theirs.

pub mod auto;
mod nap;
pub mod pusher;

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
