//! The lock of a domain: one word, taken once by each call.
//!
//! An application that promises to serialise its calls (`FI_THREAD_DOMAIN`) needs none, and pays for none: an atomic exchange
//! waits for all stores before it, which is a good part of what a small message costs. Such a lock is *private* while no thread
//! of our own shares it: from [`Guard::share`] on, until one that is the only one gives it back ([`Guard::unshare`]).

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use crate::primitive::{AtomicBool, Futex, Ordering};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody sleeps.
const WANTED: u32 = 2;
/// Private: who takes it says nothing.
const PRIVATE: u32 = 3;

/// Looks before sleeping: calls are short.
const SPIN: u32 = if cfg!(loom) { 0 } else { 100 };

#[derive(Debug)]
pub struct Lock<T> {
    word: Futex,
    /// While it is private, where that is checked: somebody has it.
    taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time has the value: by the word when it is shared, else by the promise given to `new`.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The value, until dropped.
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

/// The value of a lock that is private and stays so meanwhile: to share it takes a guard.
pub struct Private<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Deref for Private<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: nobody else has the value, by the promise given to `private`.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Private<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; `self` is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

// where nothing is checked there is nothing to do at its end, and no code for the case of a panic
#[cfg(debug_assertions)]
impl<T> Drop for Private<'_, T> {
    fn drop(&mut self) {
        self.lock.end_private();
    }
}

impl<T> Lock<T> {
    /// For several threads.
    pub fn new(value: T) -> Self {
        Self { word: Futex::new(FREE), taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// For threads that see to it themselves that only one of them is at it.
    ///
    /// # Safety
    /// [`Lock::lock`] is never called as long as another thread has a guard, but between [`Guard::share`] and [`Guard::unshare`].
    pub unsafe fn private(value: T) -> Self {
        Self { word: Futex::new(PRIVATE), ..Self::new(value) }
    }

    #[inline(always)]
    fn is_private(&self) -> bool {
        self.word.word().load(Ordering::Acquire) == PRIVATE
    }

    #[inline(always)]
    fn begin_private(&self) {
        if cfg!(debug_assertions) {
            assert!(!self.taken.swap(true, Ordering::Relaxed), "calls are not serialised");
        }
    }

    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        if self.is_private() {
            self.begin_private();
        } else {
            self.take();
        }
        Guard { lock: self }
    }

    /// The value, where the lock is private: there is nothing to give back. None where it is shared.
    #[inline(always)]
    pub fn at_once(&self) -> Option<Private<'_, T>> {
        if !self.is_private() {
            return None;
        }
        self.begin_private();
        Some(Private { lock: self })
    }

    /// The value, if nobody else is at it; none if that cannot be known.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.try_take().then(|| Guard { lock: self })
    }

    #[inline]
    fn try_take(&self) -> bool {
        self.word.word().compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
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
            if self.word.word().load(Ordering::Relaxed) == FREE && self.try_take() {
                return;
            }
            std::hint::spin_loop();
        }
        loop {
            match self.word.word().swap(WANTED, Ordering::Acquire) {
                FREE => return,
                // the other gave it back: it is this thread's alone, as none is left that could look
                PRIVATE => {
                    self.word.word().store(PRIVATE, Ordering::Relaxed);
                    return self.begin_private();
                }
                _ => self.word.wait(WANTED),
            }
        }
    }

    #[inline(always)]
    fn end_private(&self) {
        if cfg!(debug_assertions) {
            self.taken.store(false, Ordering::Relaxed);
        }
    }

    #[inline]
    fn release(&self) {
        if self.word.word().swap(FREE, Ordering::Release) == WANTED {
            self.word.wake();
        }
    }
}

impl<'a, T> Guard<'a, T> {
    /// Ends a guard of a lock that is not shared; one that is comes back. For who would ask more than once whether it is.
    #[inline(always)]
    pub fn end_unless_shared(self) -> Option<Self> {
        if self.lock.is_private() {
            self.lock.end_private();
            std::mem::forget(self);
            return None;
        }
        Some(self)
    }

    /// Whether another thread sleeps until this guard ends.
    pub fn is_wanted(&self) -> bool {
        self.lock.word.word().load(Ordering::Relaxed) == WANTED
    }

    /// From now on the lock is one for several threads, beginning with this guard.
    pub fn share(&mut self) {
        if self.lock.is_private() {
            self.lock.end_private();
            self.lock.word.word().store(HELD, Ordering::Relaxed);
        }
    }

    /// Ends this guard, and from now on the lock is private.
    ///
    /// # Safety
    /// It began as such, and no other thread takes it as long as another has a guard: but for one that waits for this guard.
    pub unsafe fn unshare(self) {
        if self.lock.word.word().swap(PRIVATE, Ordering::Release) == WANTED {
            self.lock.word.wake();
        }
        std::mem::forget(self);
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
        if self.lock.is_private() {
            self.lock.end_private();
        } else {
            self.lock.release();
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::thread;
    use std::sync::Arc;

    /// The value of a lock: loom sees who is at it together with whom.
    fn add(value: &UnsafeCell<u32>) -> u32 {
        // SAFETY: the lock is held; loom checks that nobody else is at it.
        value.with_mut(|value| unsafe {
            *value += 1;
            *value
        })
    }

    #[test]
    fn loom_one_at_a_time_and_nobody_sleeps_for_ever() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let lock = Arc::new(Lock::new(UnsafeCell::new(0)));
            let others = [(); 2].map(|()| {
                let lock = lock.clone();
                thread::spawn(move || {
                    let guard = lock.lock();
                    add(&guard);
                    assert!(guard.end_unless_shared().is_some());
                })
            });
            if let Some(guard) = lock.try_lock() {
                add(&guard);
            } else {
                add(&lock.lock());
            }
            others.into_iter().for_each(|other| other.join().expect("no panic"));
            assert_eq!(add(&lock.lock()), 4);
        });
    }

    #[test]
    fn loom_a_private_lock_is_shared_before_the_other_thread_begins() {
        loom::model(|| {
            // SAFETY: only this thread takes it before it is shared.
            let lock = Arc::new(unsafe { Lock::private(UnsafeCell::new(0)) });
            let guard = lock.lock();
            add(&guard);
            assert!(guard.end_unless_shared().is_none());
            assert_eq!(lock.at_once().map(|value| add(&value)), Some(2));
            let mut guard = lock.lock();
            guard.share();
            assert!(lock.at_once().is_none());
            let other = {
                let lock = lock.clone();
                thread::spawn(move || {
                    _ = lock.try_lock().map(|guard| add(&guard)).unwrap_or_else(|| add(&lock.lock()))
                })
            };
            add(&guard);
            drop(guard);
            add(&lock.lock());
            other.join().expect("no panic");
            assert_eq!(add(&lock.lock()), 6);
        });
    }

    #[test]
    fn loom_what_is_given_back_is_private_again() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            // SAFETY: only this thread takes it, but for the time when it is shared.
            let lock = Arc::new(unsafe { Lock::private(UnsafeCell::new(0)) });
            let mut guard = lock.lock();
            guard.share();
            let other = {
                let lock = lock.clone();
                thread::spawn(move || {
                    let guard = lock.lock();
                    add(&guard);
                    // SAFETY: this thread takes it no more.
                    unsafe { guard.unshare() };
                })
            };
            add(&guard);
            drop(guard);
            add(&lock.lock());
            lock.at_once().map(|value| add(&value));
            other.join().expect("no panic");
            assert!(lock.at_once().is_some() && lock.try_lock().is_none());
            // and shared once more
            let mut guard = lock.lock();
            guard.share();
            drop(guard);
            assert!(lock.try_lock().is_some() && lock.at_once().is_none());
        });
    }
}

#[cfg(all(test, not(loom)))]
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
        assert_eq!(lock.word.word().load(Ordering::Relaxed), FREE);
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
