//! A thread that sends what was held back to share a system call, if the application then makes no calls for a while: a message
//! that was sent leaves, also when its sender goes on to compute.
//!
//! It starts with the first message that is held back, looks every [`PERIOD`] as long as there are more, and sleeps otherwise:
//! a program that communicates in bursts pays one wake-up for each burst.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::domain::{Domain, State};
use crate::lock::Guard;

/// How long a message may be held back, about.
const PERIOD: Duration = Duration::from_micros(200);
/// Looks in vain after which the thread sleeps.
const PATIENCE: u32 = 50;

/// The thread's handle.
#[derive(Default)]
pub struct Pusher {
    /// The thread looks, or is about to.
    awake: AtomicBool,
    stopping: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
    bell: Condvar,
}

impl Pusher {
    /// Something is held back in a domain whose lock is held.
    #[inline]
    pub fn note(&self, domain: &Arc<Domain>, state: &mut Guard<'_, State>) {
        if !self.awake.load(Ordering::Relaxed) {
            self.wake(domain, state);
        }
    }

    #[cold]
    fn wake(&self, domain: &Arc<Domain>, state: &mut Guard<'_, State>) {
        state.share();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        self.awake.store(true, Ordering::Relaxed);
        if thread.is_none() {
            let domain = domain.clone();
            let name = std::thread::Builder::new().name("polyrail-push".into());
            // without a thread, what is held back leaves with the application's next call
            *thread = name.spawn(move || run(&domain)).ok();
        }
        self.bell.notify_one();
    }

    /// Ends the thread, and waits for that.
    pub fn stop(&self) {
        let thread = {
            let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
            self.stopping.store(true, Ordering::Relaxed);
            self.bell.notify_one();
            thread.take()
        };
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    /// Sleeps until there is something, or the end has come; false for the end.
    fn wait(&self) -> bool {
        let mut guard = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.awake.load(Ordering::Relaxed) && !self.stopping.load(Ordering::Relaxed) {
            guard = self.bell.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        !self.stopping.load(Ordering::Relaxed)
    }
}

fn run(domain: &Domain) {
    let pusher = domain.pusher();
    while pusher.wait() {
        let mut in_vain = 0;
        while in_vain < PATIENCE && !pusher.stopping.load(Ordering::Relaxed) {
            std::thread::sleep(PERIOD);
            in_vain += 1;
            // whoever holds the lock sends it all at the end of a round of progress
            let Some(mut state) = domain.try_lock() else { continue };
            for endpoint in state.endpoints.values_mut() {
                if let Some(worker) = endpoint.worker.as_mut().filter(|worker| worker.holds_back()) {
                    worker.push();
                    in_vain = 0;
                }
            }
        }
        let mut state = domain.lock();
        let held =
            state.endpoints.values_mut().any(|e| e.worker.as_ref().is_some_and(|worker| worker.holds_back()));
        // under the lock, so that nothing can be held back in between
        pusher.awake.store(held, Ordering::Relaxed);
        drop(state);
    }
}
