//! The lock of a domain: one word, taken once by each call.
//!
//! An application that promises to serialise its calls (`FI_THREAD_DOMAIN`) needs none, and pays for none: an atomic exchange
//! waits for all stores before it, which is a good part of what a small message costs. Such a lock is *private* until a thread
//! of our own comes to share it ([`Lock::share`]), which never ends.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody sleeps.
const WANTED: u32 = 2;

/// Looks before sleeping: calls are short.
const SPIN: u32 = 100;

#[derive(Debug)]
pub struct Lock<T> {
    shared: AtomicBool,
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time has the value: by the word when it is shared, else by the promise given to `new`.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The value, until dropped.
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Lock<T> {
    /// For several threads.
    pub fn new(value: T) -> Self {
        Self { shared: AtomicBool::new(true), word: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    /// For threads that see to it themselves that only one of them is at it.
    ///
    /// # Safety
    /// [`Lock::lock`] is never called as long as another thread has a guard, until [`Lock::share`] has been called.
    pub unsafe fn private(value: T) -> Self {
        Self { shared: AtomicBool::new(false), ..Self::new(value) }
    }

    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        if self.shared.load(Ordering::Relaxed) {
            self.take();
        } else {
            debug_assert_eq!(self.word.swap(HELD, Ordering::Relaxed), FREE, "calls are not serialised");
        }
        Guard { lock: self }
    }

    /// The value, if nobody else is at it; none if that cannot be known.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        (self.shared.load(Ordering::Relaxed) && self.try_take()).then(|| Guard { lock: self })
    }

    #[inline]
    fn try_take(&self) -> bool {
        self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn take(&self) {
        if !self.try_take() {
            self.wait();
        }
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..SPIN {
            if self.word.load(Ordering::Relaxed) == FREE && self.try_take() {
                return;
            }
            std::hint::spin_loop();
        }
        while self.word.swap(WANTED, Ordering::Acquire) != FREE {
            let none = std::ptr::null::<libc::timespec>();
            let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
            // SAFETY: a live word. Whatever ends the sleep, the word is looked at again.
            unsafe { libc::syscall(libc::SYS_futex, self.word.as_ptr(), op, WANTED, none) };
        }
    }

    #[inline]
    fn release(&self) {
        if self.word.swap(FREE, Ordering::Release) == WANTED {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // SAFETY: a live word.
        unsafe {
            libc::syscall(libc::SYS_futex, self.word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1)
        };
    }
}

impl<T> Guard<'_, T> {
    /// From now on the lock is one for several threads, beginning with this guard.
    pub fn share(&mut self) {
        if !self.lock.shared.load(Ordering::Relaxed) {
            self.lock.word.store(HELD, Ordering::Relaxed);
            self.lock.shared.store(true, Ordering::Relaxed);
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: as long as there is a guard, nobody else has the value.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; `self` is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.lock.shared.load(Ordering::Relaxed) {
            self.lock.release();
        } else if cfg!(debug_assertions) {
            self.lock.word.store(FREE, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn no_increment_is_lost_and_sleepers_are_woken() {
        const EACH: u64 = 20_000;
        let lock = Lock::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for i in 0..EACH {
                        let mut guard = lock.lock();
                        *guard += 1;
                        if i % 5000 == 0 {
                            // long enough for the others to sleep
                            std::thread::sleep(Duration::from_millis(2));
                        }
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 4 * EACH);
        assert_eq!(lock.word.load(Ordering::Relaxed), FREE);
    }

    #[test]
    fn a_private_lock_is_shared_from_its_holder_on() {
        // SAFETY: only this thread takes it before it is shared.
        let lock = unsafe { Lock::private(1) };
        assert!(lock.try_lock().is_none(), "nobody can know who is at it");
        let mut guard = lock.lock();
        guard.share();
        assert!(lock.try_lock().is_none(), "it is held");
        std::thread::scope(|scope| {
            let other = scope.spawn(|| *lock.lock());
            std::thread::sleep(Duration::from_millis(5));
            *guard = 2;
            drop(guard);
            assert_eq!(other.join().expect("no panic"), 2);
        });
        assert!(lock.try_lock().is_some());
    }
}
