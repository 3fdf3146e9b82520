//! System calls of a process that runs already, by `ptrace`: for who is not root, and where there is no tracefs. It costs what `strace` costs:
//! each system call of each thread stops it twice, and one thread here looks what it is about each time.
//!
//! | module | does |
//! |---|---|
//! | `follow` | the thread that follows: what is done at each stop |
//! | `numbers` | which system call is which |
//! | `sockets` | what a descriptor of another process is |
//! | `rights` | programs that would not get their rights while they are followed |
//! | `status` | what `/proc` says of a process |
//! | `refusal` | why a process cannot be followed, and what to do |
//!
//! What stops say are the same events that tracepoints say, and the same [`Calls`](crate::kernel) makes records of them. As threads stand
//! still while they are asked about, descriptors are known exactly, and nothing has to be tied together afterwards.
//!
//! Whoever follows is a thread: when it ends, the kernel lets all go on, also those that stand still, and those that wait are not
//! disturbed. So does it when this process is killed. What cannot be avoided is an interruption of each thread at the beginning, and at the end of
//! those that do not wait; the calls that they may be in know nothing of it (`polyrail_native::ptrace::wait_on`).

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use polyrail_native::ptrace::Sleeper;

mod follow;
mod numbers;
pub mod refusal;
mod rights;
mod sockets;
mod status;

use crate::diag::Diag;
use crate::kernel::calls::{Calls, Program, SyscallEvent};
use crate::kernel::{NAMES, Named};
use follow::Follow;

/// Calls that wait to be written: a few seconds of what can be followed at all.
const MOST: usize = 1 << 18;
/// How long the thread that follows is woken until it is left alone.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the thread that follows hands over.
#[derive(Debug)]
struct Found {
    calls: Calls,
    events: Vec<SyscallEvent>,
    /// Calls that were not written, because nobody took those before.
    lost: u64,
    /// What the user must know.
    warnings: Vec<String>,
    /// Descriptors cannot be looked at: sockets are to be looked for in the kernel's lists.
    blind: bool,
    /// How the process ended, if it has.
    status: Option<i32>,
}

#[derive(Debug)]
struct Shared {
    found: Mutex<Found>,
    end: AtomicBool,
}

impl Shared {
    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A process that is followed, with all that it starts. When this is dropped, all go on by themselves.
#[derive(Debug)]
pub struct Attached {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    sleeper: Sleeper,
    diag: Option<Diag>,
    named: Instant,
}

impl Attached {
    /// Follows all threads of a process.
    ///
    /// # Errors
    /// None of them may be followed: why the kernel says so of the first.
    pub fn new(pid: u32) -> io::Result<Attached> {
        let calls = Calls::of_stops();
        let found = Found { calls, events: vec![], lost: 0, warnings: vec![], blind: false, status: None };
        let shared = Arc::new(Shared { found: Mutex::new(found), end: AtomicBool::new(false) });
        let (tell, told) = mpsc::channel();
        let for_thread = Arc::clone(&shared);
        let follow = move || {
            let mut follow = Follow::new(for_thread);
            let begun = follow.begin(pid).map(|()| Sleeper::this());
            let goes_on = begun.is_ok();
            if tell.send(begun).is_ok() && goes_on {
                follow.run();
            }
        };
        let thread = std::thread::Builder::new().name("polyrail-follow".into()).spawn(follow)?;
        let ended = |_| Err(io::Error::other("its thread ended early"));
        let sleeper = told.recv().unwrap_or_else(ended)?;
        let (thread, diag, named) = (Some(thread), Diag::open().ok(), Instant::now());
        Ok(Attached { shared, thread, sleeper, diag, named })
    }

    /// Hands out the calls that have ended since the last time, in the order in which their ends were seen.
    pub fn drain(&mut self, each: &mut dyn FnMut(SyscallEvent)) {
        let events = std::mem::take(&mut self.shared.found().events);
        events.into_iter().for_each(each);
    }

    /// Hands out the programs that have begun since the last time.
    pub fn programs(&mut self) -> Vec<Program> {
        std::mem::take(&mut self.shared.found().calls.programs)
    }

    /// Hands out what has been found out of sockets since the last time. `last`: and nothing more will be.
    pub fn names(&mut self, last: bool, each: &mut dyn FnMut(Named)) {
        let mut found = self.shared.found();
        let Found { calls, blind, .. } = &mut *found;
        if last || self.named.elapsed() >= NAMES {
            self.named = Instant::now();
            if *blind {
                calls.names.search(&mut self.diag);
            }
            calls.names.age(&mut |_, _| ());
        }
        calls.names.tell(last, each);
    }

    /// What the user must know.
    pub fn warnings(&self) -> Vec<String> {
        let found = self.shared.found();
        let lost = (found.lost > 0)
            .then(|| format!("{} system calls could not be written fast enough and were lost", found.lost));
        found.warnings.iter().cloned().chain(lost).collect()
    }

    /// How the process that was asked for ended, if it has.
    pub fn status(&self) -> Option<i32> {
        self.shared.found().status
    }

    /// Whether that process has ended, or nobody is followed any more.
    pub fn is_over(&self) -> bool {
        self.status().is_some() || self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Lets all go on by themselves.
    pub fn end(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.shared.end.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        while !thread.is_finished() && begun.elapsed() < PATIENCE {
            self.sleeper.wake();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.end();
    }
}
