//! What the lock and the threads of a domain are made of: atomics, mutexes, threads, and sleeping on a word.
//!
//! Normally these are the standard library's and the kernel's. Under `--cfg loom` they are loom's, so that the model checker sees
//! every step; code that imports them from here alone can be checked unchanged.

pub use imp::{AtomicBool, Builder, Condvar, Futex, JoinHandle, Mutex, Ordering, pause};

#[cfg(not(loom))]
mod imp {
    pub use std::sync::atomic::{AtomicBool, Ordering};
    pub use std::sync::{Condvar, Mutex};
    pub use std::thread::{Builder, JoinHandle, sleep as pause};

    use std::sync::atomic::AtomicU32;

    /// A word that threads of this process sleep on.
    #[derive(Debug)]
    pub struct Futex(AtomicU32);

    impl Futex {
        pub fn new(value: u32) -> Self {
            Self(AtomicU32::new(value))
        }

        #[inline]
        pub fn word(&self) -> &AtomicU32 {
            &self.0
        }

        /// Sleeps if the word has this value, until somebody wakes it or for no reason.
        pub fn wait(&self, value: u32) {
            let none = std::ptr::null::<libc::timespec>();
            let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
            // SAFETY: a live word. Whatever ends the sleep, the caller looks at the word again.
            unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), op, value, none) };
        }

        /// Wakes one that sleeps.
        pub fn wake(&self) {
            let op = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
            // SAFETY: a live word.
            unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), op, 1) };
        }
    }
}

#[cfg(loom)]
mod imp {
    pub use loom::sync::atomic::{AtomicBool, Ordering};
    pub use loom::sync::{Condvar, Mutex};
    pub use loom::thread::{Builder, JoinHandle};

    use loom::sync::atomic::AtomicU32;
    use std::sync::PoisonError;
    use std::time::Duration;

    /// As the kernel has it: comparing and going to sleep are one step for who wakes.
    #[derive(Debug)]
    pub struct Futex {
        word: AtomicU32,
        queue: Mutex<()>,
        sleepers: Condvar,
    }

    impl Futex {
        pub fn new(value: u32) -> Self {
            Self { word: AtomicU32::new(value), queue: Mutex::new(()), sleepers: Condvar::new() }
        }

        pub fn word(&self) -> &AtomicU32 {
            &self.word
        }

        pub fn wait(&self, value: u32) {
            let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            if self.word.load(Ordering::Relaxed) == value {
                drop(self.sleepers.wait(queue));
            }
        }

        pub fn wake(&self) {
            let _queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            self.sleepers.notify_one();
        }
    }

    /// No time passes in a model: a thread that pauses may go on at once, or be overtaken.
    pub fn pause(_: Duration) {}
}
