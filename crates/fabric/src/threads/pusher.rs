//! A thread that sends what was held back to share a system call, if the application then makes no calls for a while: a message
//! that was sent leaves, also when its sender goes on to compute.
//!
//! It starts with the first message that is held back, looks every [`PERIOD`] as long as there are more, and sleeps otherwise:
//! a program that communicates in bursts pays one wake-up for each burst.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::lock::Guard;

/// How long a message may be held back, about.
const PERIOD: Duration = Duration::from_micros(200);
/// Looks in vain after which the thread sleeps.
const PATIENCE: u32 = 50;

/// What the thread sends from.
pub trait Holding: Send + Sync + 'static {
    /// The thread's handle.
    fn pusher(&self) -> &Pusher;

    /// Sends what is held back, unless somebody is at it who will; whether there was anything.
    fn push(&self) -> bool;

    /// Calls `looked` with whether anything is held back, before anything else can be.
    fn look(&self, looked: &mut dyn FnMut(bool));
}

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
    /// Something is held back in what this guard has locked.
    #[inline]
    pub fn note<T>(&self, of: &Arc<impl Holding>, guard: &mut Guard<'_, T>) {
        if !self.awake.load(Ordering::Relaxed) {
            self.wake(of, guard);
        }
    }

    #[cold]
    fn wake<T>(&self, of: &Arc<impl Holding>, guard: &mut Guard<'_, T>) {
        guard.share();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        self.awake.store(true, Ordering::Relaxed);
        if thread.is_none() {
            let of = of.clone();
            let name = std::thread::Builder::new().name("polyrail-push".into());
            // without a thread, what is held back leaves with the application's next call
            *thread = name.spawn(move || run(&*of)).ok();
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

fn run(of: &impl Holding) {
    let pusher = of.pusher();
    while pusher.wait() {
        let mut in_vain = 0;
        while in_vain < PATIENCE && !pusher.stopping.load(Ordering::Relaxed) {
            std::thread::sleep(PERIOD);
            in_vain = if of.push() { 0 } else { in_vain + 1 };
        }
        // before anything else can be held back, or nobody would see it
        of.look(&mut |held| pusher.awake.store(held, Ordering::Relaxed));
    }
}
