//! Progress without the application: a thread for each domain whose application asked for it, or that has something long under way.
//!
//! It sleeps until a rail has something, and keeps out of the way of an application that polls: as long as the application makes
//! progress itself, the thread looks now and then whether it still does. Where nobody asked for it, it rests while there is nothing that it
//! is for, and is roused by what begins.

use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::nap::{Bell, Nap};
use super::{Process, spawn};
use crate::ffi::FI_WAIT_FD;
use crate::primitive::{AtomicBool, Condvar, JoinHandle, Mutex, Ordering};
use crate::wait::{Awaited, Deadline, Wait, sleep_on};

/// How long the thread stays away from a polling application: as something begins that it is for, first, at most.
const BEGINS: Duration = Duration::from_micros(200);
const AWAY: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(8));
/// How often it is called for what begins.
const CALLED: Duration = Duration::from_millis(10);

/// What the thread makes progress on.
pub trait Moving: Send + Sync + 'static {
    /// The thread's handle.
    fn auto(&self) -> Option<&Auto>;

    /// How often the application has asked for progress.
    fn polls(&self) -> u64;

    /// What the thread is there for at the moment. Where that is [`Need::Rest`], `rests` is called before anything can begin that the thread is
    /// for, and the thread has nothing to do with it any more until it is roused.
    fn need(&self, rests: &mut dyn FnMut()) -> Need;

    /// Makes progress until nothing moves, has what comes next wake the thread, and calls `settled` before anybody else can
    /// make progress.
    fn settle(&self, settled: &mut dyn FnMut()) -> Settled;
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settled {
    /// What comes next wakes the thread.
    Yes,
    /// There is still something to do.
    No,
    /// The same, and the application waits to do something.
    Wanted,
}

/// What the thread is there for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// What comes next wakes it.
    Progress,
    /// The application is at it, or sleeps until something comes. In case it only could, some progress was made.
    Nothing,
    /// Nothing, until it is roused.
    Rest,
}

/// The thread's handle.
pub struct Auto {
    process: Process,
    /// The thread's sleep, with all workers armed.
    nap: Nap<Wait>,
    /// Nothing needs the thread. It becomes so under the lock of what it makes progress on.
    resting: AtomicBool,
    stopping: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Something has begun, while the thread stays away.
    called: AtomicBool,
    /// When that was said the last time.
    since: Mutex<Option<Instant>>,
    roused: Condvar,
}

impl Bell for Wait {
    fn ring(&mut self) {
        self.raise();
    }

    fn quiet(&mut self) {
        self.lower();
    }
}

impl Auto {
    /// # Errors
    /// When there are no descriptors left.
    pub fn new() -> io::Result<Self> {
        let mut wait = Wait::new(FI_WAIT_FD, &Awaited::default()).map_err(io::Error::from_raw_os_error)?;
        wait.fd([])?;
        Ok(Self {
            process: Process::this(),
            nap: Nap::new(wait),
            resting: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            thread: Mutex::new(None),
            called: AtomicBool::new(false),
            since: Mutex::new(None),
            roused: Condvar::new(),
        })
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn start(&self, on: &Arc<impl Moving>) -> io::Result<()> {
        let on = on.clone();
        let thread = spawn("polyrail", move || run(&*on))?;
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// Ends it, and waits for that. In a child of its process there is none, as with [`super::pusher::Pusher::stop`].
    pub fn stop(&self) {
        if !self.process.is_this() {
            return;
        }
        let thread = {
            let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
            self.stopping.store(true, Ordering::Relaxed);
            self.roused.notify_one();
            thread.take()
        };
        self.nap.with_bell(Wait::raise);
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    /// A new worker to look after.
    ///
    /// # Errors
    /// What epoll_ctl(2) says.
    pub fn attach(&self, worker: RawFd) -> io::Result<()> {
        self.nap.with_bell(|wait| wait.attach(worker))?;
        self.kick();
        Ok(())
    }

    /// A worker that is about to be closed.
    pub fn detach(&self, worker: RawFd) {
        self.nap.with_bell(|wait| wait.detach(worker));
    }

    /// Whether the thread sleeps and relies on the workers' descriptors.
    #[inline]
    pub fn is_asleep(&self) -> bool {
        self.nap.is_asleep()
    }

    /// Wakes the thread if it sleeps.
    pub fn kick(&self) {
        self.nap.kick();
    }

    /// Whether the thread rests, under the lock of what it makes progress on.
    #[inline]
    pub fn is_resting(&self) -> bool {
        self.resting.load(Ordering::Relaxed)
    }

    /// Something begins that the thread is for: under the same lock.
    #[cold]
    pub fn rouse(&self) {
        let _thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        self.resting.store(false, Ordering::Relaxed);
        self.roused.notify_one();
    }

    /// The same where the thread does not rest, but stays away from an application that polled: it soon looks whether it still does. Called for
    /// each that begins, it is not told of all.
    #[cold]
    pub fn call(&self) {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if since.is_some_and(|since| since.elapsed() < CALLED) {
            return;
        }
        *since = Some(Instant::now());
        drop(since);
        self.look();
    }

    /// Who stays away comes and looks.
    pub fn look(&self) {
        let _thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        self.called.store(true, Ordering::Relaxed);
        self.roused.notify_one();
    }

    /// Stays away for so long, or until it is called; how long it stays away the next time.
    fn stay_away(&self, away: Duration) -> Duration {
        let end = Instant::now() + away;
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.stopping.load(Ordering::Relaxed) {
            if self.called.swap(false, Ordering::Relaxed) {
                return BEGINS;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            thread = self.roused.wait_timeout(thread, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        (away * 2).min(AWAY.1)
    }

    /// Until it is roused, or the end has come.
    fn rest(&self) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        while self.resting.load(Ordering::Relaxed) && !self.stopping.load(Ordering::Relaxed) {
            thread = self.roused.wait(thread).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The application makes progress, which disarms the workers: the thread must not rely on them any more.
    #[inline]
    pub fn relieve(&self) {
        if self.is_asleep() {
            self.kick();
        }
    }
}

fn run(on: &impl Moving) {
    let Some(auto) = on.auto() else { return };
    let (mut seen, mut away) = (on.polls(), BEGINS);
    while !auto.stopping.load(Ordering::Relaxed) {
        let need = on.need(&mut || auto.resting.store(true, Ordering::Relaxed));
        if need == Need::Rest {
            auto.rest();
            away = BEGINS;
            continue;
        }
        let polls = on.polls();
        if polls != seen || need == Need::Nothing {
            seen = polls;
            away = auto.stay_away(away);
            continue;
        }
        away = AWAY.0;
        let mut fd = None;
        let settled = on.settle(&mut || fd = auto.nap.begin(|wait| wait.fd([])).ok());
        match settled {
            Settled::Yes => {}
            Settled::No => continue,
            // who is woken needs longer than a thread that is awake
            Settled::Wanted => {
                away = auto.stay_away(BEGINS);
                continue;
            }
        }
        if let Some(fd) = fd
            && !auto.stopping.load(Ordering::Relaxed)
        {
            // A signal, or nothing to sleep on: look again.
            let _ = sleep_on(fd, Deadline::after(-1).or_in(Deadline::LONGEST));
        }
        auto.nap.end();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::threads::tests::ends_in_a_child;

    #[test]
    fn a_child_waits_for_no_mutex_of_its_parent() {
        let auto = Auto::new().expect("descriptors");
        let held = auto.thread.lock().expect("no panic");
        auto.nap.with_bell(|_| assert!(ends_in_a_child(|| auto.stop())));
        drop(held);
        auto.stop();
    }
}
