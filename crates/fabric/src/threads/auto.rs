//! Automatic progress: a thread for each domain whose application asked for it.
//!
//! It sleeps until a rail has something, and keeps out of the way of an application that polls: as long as the application makes
//! progress itself, the thread looks now and then whether it still does.

use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::Process;
use super::nap::{Bell, Nap};
use crate::ffi::FI_WAIT_FD;
use crate::primitive::{AtomicBool, Builder, JoinHandle, Mutex, Ordering, pause};
use crate::wait::{Awaited, Deadline, Wait, sleep_on};

/// How long the thread stays away from a polling application: first, at most.
const AWAY: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(8));

/// What the thread makes progress on.
pub trait Moving: Send + Sync + 'static {
    /// The thread's handle.
    fn auto(&self) -> Option<&Auto>;

    /// How often the application has asked for progress.
    fn polls(&self) -> u64;

    /// Makes progress until nothing moves, has what comes next wake the thread, and calls `settled` before anybody else can
    /// make progress. False, without that call, if there is still something to do.
    fn settle(&self, settled: &mut dyn FnMut()) -> bool;
}

/// The thread's handle.
pub struct Auto {
    process: Process,
    /// The thread's sleep, with all workers armed.
    nap: Nap<Wait>,
    stopping: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
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
            stopping: AtomicBool::new(false),
            thread: Mutex::new(None),
        })
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn start(&self, on: &Arc<impl Moving>) -> io::Result<()> {
        let on = on.clone();
        let thread = Builder::new().name("polyrail".into()).spawn(move || run(&*on))?;
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// Ends it, and waits for that. In a child of its process there is none, as with [`super::pusher::Pusher::stop`].
    pub fn stop(&self) {
        if !self.process.is_this() {
            return;
        }
        self.stopping.store(true, Ordering::Relaxed);
        self.nap.with_bell(Wait::raise);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
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
    let (mut seen, mut away) = (on.polls(), AWAY.0);
    while !auto.stopping.load(Ordering::Relaxed) {
        let polls = on.polls();
        if polls != seen {
            seen = polls;
            pause(away);
            away = (away * 2).min(AWAY.1);
            continue;
        }
        away = AWAY.0;
        let mut fd = None;
        let settled = on.settle(&mut || fd = auto.nap.begin(|wait| wait.fd([])).ok());
        if !settled {
            continue;
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
