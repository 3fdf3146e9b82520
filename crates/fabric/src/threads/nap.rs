//! How a thread sleeps that others must not rely on, and that must rely on nobody, at the wrong time.
//!
//! Who sleeps says so under the lock of what it sleeps on; who changes that thing, under the same lock, then sees it and rings.

use std::sync::PoisonError;

use crate::primitive::{AtomicBool, Mutex, Ordering};

/// What wakes the thread: it is heard also when it was rung before the thread slept.
pub trait Bell {
    fn ring(&mut self);

    /// Forgets that it was rung.
    fn quiet(&mut self);
}

/// The sleep of one thread.
pub struct Nap<B> {
    bell: Mutex<B>,
    asleep: AtomicBool,
}

impl<B: Bell> Nap<B> {
    pub fn new(bell: B) -> Self {
        Self { bell: Mutex::new(bell), asleep: AtomicBool::new(false) }
    }

    pub fn with_bell<T>(&self, f: impl FnOnce(&mut B) -> T) -> T {
        f(&mut self.bell.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The thread is about to sleep until the bell rings: under the lock. `f` is what it needs of the bell.
    pub fn begin<T>(&self, f: impl FnOnce(&mut B) -> T) -> T {
        let got = self.with_bell(|bell| {
            bell.quiet();
            f(bell)
        });
        // Only now, or a ring would be lost.
        self.asleep.store(true, Ordering::Relaxed);
        got
    }

    /// The thread has woken up.
    pub fn end(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Whether the thread sleeps.
    #[inline]
    pub fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed)
    }

    /// Wakes the thread if it sleeps.
    pub fn kick(&self) {
        if self.asleep.swap(false, Ordering::Relaxed) {
            self.with_bell(B::ring);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::lock::Lock;
    use crate::primitive::Condvar;
    use loom::thread;
    use std::sync::Arc;

    /// A bell as a mutex has it: the kernel's, which the thread sleeps on, cannot be modelled.
    #[derive(Default)]
    struct Rung(bool);

    impl Bell for Rung {
        fn ring(&mut self) {
            self.0 = true;
        }

        fn quiet(&mut self) {
            self.0 = false;
        }
    }

    struct Model {
        /// Whether the thread relies on workers that are armed.
        relies: Lock<bool>,
        nap: Nap<Rung>,
        heard: Condvar,
        stopping: AtomicBool,
    }

    impl Model {
        /// As in `auto`: the thread arms the workers, and sleeps until somebody rings.
        fn run(&self) {
            while !self.stopping.load(Ordering::Relaxed) {
                {
                    let mut relies = self.relies.lock();
                    *relies = true;
                    self.nap.begin(|_| ());
                }
                if !self.stopping.load(Ordering::Relaxed) {
                    let mut bell = self.nap.bell.lock().expect("no panic");
                    while !bell.0 {
                        bell = self.heard.wait(bell).expect("no panic");
                    }
                }
                self.nap.end();
                *self.relies.lock() = false;
            }
        }

        /// Progress by the application, which disarms the workers.
        fn disarm(&self) {
            let relies = self.relies.lock();
            if self.nap.is_asleep() {
                self.nap.kick();
                self.heard.notify_one();
            }
            assert!(
                !*relies || self.nap.with_bell(|bell| bell.0),
                "it relies on them, and nothing will wake it"
            );
        }

        fn stop(&self) {
            self.stopping.store(true, Ordering::Relaxed);
            self.nap.with_bell(Rung::ring);
            self.heard.notify_one();
        }
    }

    #[test]
    fn loom_who_relies_on_what_is_disarmed_is_woken_and_ends() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let model = Arc::new(Model {
                relies: Lock::new(false),
                nap: Nap::new(Rung::default()),
                heard: Condvar::new(),
                stopping: AtomicBool::new(false),
            });
            let sleeper = {
                let model = model.clone();
                thread::spawn(move || model.run())
            };
            model.disarm();
            model.disarm();
            model.stop();
            sleeper.join().expect("no panic");
        });
    }
}
