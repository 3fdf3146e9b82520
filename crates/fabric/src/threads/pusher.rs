//! A thread that sends what was held back to share a system call, if the application then makes no calls for a while: a message
//! that was sent leaves, also when its sender goes on to compute.
//!
//! It starts with the first message that is held back, looks every [`PERIOD`] as long as there are more, and sleeps otherwise:
//! a program that communicates in bursts pays one wake-up for each burst. Where peers hear only from this process, not from its kernel,
//! that it is there, the thread answers them each [`ANSWER`], however long the program computes.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::{Process, spawn};
use crate::lock::Guard;
use crate::primitive::{AtomicBool, Condvar, JoinHandle, Mutex, Ordering, pause};

/// How long a message may be held back, about.
const PERIOD: Duration = Duration::from_micros(200);
/// How long peers wait for an answer that the application does not give: shorter than the shortest time after which it counts as gone.
const ANSWER: Duration = Duration::from_millis(400);
/// Looks in vain after which the thread sleeps.
const PATIENCE: u32 = if cfg!(loom) { 1 } else { 10 };

/// What the thread sends from.
pub trait Holding: Send + Sync + 'static {
    /// The thread's handle.
    fn pusher(&self) -> &Pusher;

    /// Sends what is held back, unless somebody is at it who will; whether there was anything.
    fn push(&self) -> bool;

    /// Calls `looked` with whether anything is held back, before anything else can be.
    fn look(&self, looked: &mut dyn FnMut(bool));

    /// Whether peers hear only by progress that this process is there.
    fn is_owed_answers(&self) -> bool;

    /// Makes progress, unless somebody is at it.
    fn answer(&self);
}

/// The thread's handle.
pub struct Pusher {
    process: Process,
    /// The thread looks, or is about to.
    awake: AtomicBool,
    stopping: AtomicBool,
    /// There is a thread: it is set under the lock of what it sends from.
    started: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
    bell: Condvar,
}

impl Default for Pusher {
    fn default() -> Self {
        Self {
            process: Process::this(),
            awake: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            started: AtomicBool::new(false),
            thread: Mutex::new(None),
            bell: Condvar::new(),
        }
    }
}

impl Pusher {
    /// Something is held back in what this guard has locked.
    #[inline]
    pub fn note<T>(&self, of: &Arc<impl Holding>, guard: &mut Guard<'_, T>) {
        if !self.awake.load(Ordering::Relaxed) {
            self.wake(of, guard);
        }
    }

    /// Whether there is a thread, under the lock of what it sends from.
    pub fn is_started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    #[cold]
    fn wake<T>(&self, of: &Arc<impl Holding>, guard: &mut Guard<'_, T>) {
        guard.share();
        self.started.store(true, Ordering::Relaxed);
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        self.awake.store(true, Ordering::Relaxed);
        if thread.is_none() {
            let of = of.clone();
            // without a thread, what is held back leaves with the application's next call
            *thread = spawn("polyrail-push", move || run(&*of)).ok();
        }
        self.bell.notify_one();
    }

    /// Ends the thread, and waits for that. In a child of its process there is none, and nothing here may be waited for: what
    /// was locked when it was forked stays so.
    pub fn stop(&self) {
        if !self.process.is_this() {
            return;
        }
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

    /// Sleeps until there is something, or the end has come; false for the end. Peers are answered meanwhile.
    fn wait(&self, of: &impl Holding) -> bool {
        let mut owed = of.is_owed_answers();
        let mut guard = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.awake.load(Ordering::Relaxed) && !self.stopping.load(Ordering::Relaxed) {
            if !owed {
                guard = self.bell.wait(guard).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let (held, timed) = self.bell.wait_timeout(guard, ANSWER).unwrap_or_else(PoisonError::into_inner);
            guard = held;
            if timed.timed_out() {
                // whoever wakes the thread has what it sends locked, and waits for this
                drop(guard);
                of.answer();
                owed = of.is_owed_answers();
                guard = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
            }
        }
        !self.stopping.load(Ordering::Relaxed)
    }
}

fn run(of: &impl Holding) {
    let pusher = of.pusher();
    while pusher.wait(of) {
        let mut in_vain = 0;
        while in_vain < PATIENCE && !pusher.stopping.load(Ordering::Relaxed) {
            pause(PERIOD);
            in_vain = if of.push() { 0 } else { in_vain + 1 };
        }
        // before anything else can be held back, or nobody would see it
        of.look(&mut |held| pusher.awake.store(held, Ordering::Relaxed));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::threads::tests::ends_in_a_child;

    /// Whose peers want three answers, and nothing else.
    #[derive(Default)]
    struct Computing {
        pusher: Pusher,
        answers: std::sync::atomic::AtomicU32,
    }

    impl Holding for Computing {
        fn pusher(&self) -> &Pusher {
            &self.pusher
        }

        fn push(&self) -> bool {
            false
        }

        fn look(&self, looked: &mut dyn FnMut(bool)) {
            looked(false);
        }

        fn is_owed_answers(&self) -> bool {
            self.answers.load(Ordering::Relaxed) < 3
        }

        fn answer(&self) {
            self.answers.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_computes_answers_as_long_as_somebody_waits_for_that() {
        let computing = Arc::new(Computing::default());
        let lock = crate::lock::Lock::new(());
        computing.pusher.note(&computing, &mut lock.lock());
        let begun = std::time::Instant::now();
        while computing.is_owed_answers() {
            assert!(begun.elapsed() < Duration::from_secs(120), "nobody answers");
            pause(PERIOD);
        }
        pause(2 * ANSWER);
        assert_eq!(computing.answers.load(Ordering::Relaxed), 3);
        computing.pusher.stop();
    }

    #[test]
    fn a_child_waits_for_no_mutex_of_its_parent() {
        let pusher = Pusher::default();
        let held = pusher.thread.lock().expect("no panic");
        assert!(ends_in_a_child(|| pusher.stop()));
        drop(held);
        pusher.stop();
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::lock::Lock;

    /// A domain in which a message is held back, or not.
    struct Model {
        held: Lock<bool>,
        pusher: Pusher,
    }

    impl Holding for Model {
        fn pusher(&self) -> &Pusher {
            &self.pusher
        }

        fn push(&self) -> bool {
            self.held.try_lock().is_some_and(|mut held| std::mem::take(&mut *held))
        }

        fn look(&self, looked: &mut dyn FnMut(bool)) {
            looked(*self.held.lock());
        }

        fn is_owed_answers(&self) -> bool {
            false
        }

        fn answer(&self) {}
    }

    fn check(private: bool, messages: usize) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(move || {
            // SAFETY: only this thread takes it before the pusher has it shared.
            let held = if private { unsafe { Lock::private(false) } } else { Lock::new(false) };
            let model = Arc::new(Model { held, pusher: Pusher::default() });
            for _ in 0..messages {
                let mut held = model.held.lock();
                *held = true;
                model.pusher.note(&model, &mut held);
            }
            // no more calls: all that was held back leaves, or this never ends
            while *model.held.lock() {
                loom::thread::yield_now();
            }
            model.pusher.stop();
            assert!(model.pusher.thread.lock().expect("no panic").is_none());
        });
    }

    #[test]
    fn loom_what_is_held_back_leaves() {
        check(false, 2);
    }

    #[test]
    fn loom_what_is_held_back_leaves_a_private_domain() {
        check(true, 2);
    }
}
