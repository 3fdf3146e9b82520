//! The thread that follows: what is done at each stop.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use polyrail_core::trace::Call as Function;
use polyrail_native::ptrace::{self, Call, Heard, Sleeper, Stop, Tid};

use super::sockets::Sockets;
use super::status::Status;
use super::{Found, MOST, Shared, numbers, rights};
use crate::diag::monotonic;
use crate::kernel::calls::{Calls, Shape, SyscallEvent, TABLE, What};
use crate::kernel::descriptors;

/// A thread that is followed.
#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    pid: u32,
    /// The call that it is in, by its place in [`TABLE`].
    inside: Option<usize>,
    /// What it was in when something interrupted it: the kernel may have it begun again under another number.
    left: Option<(usize, [u64; 6])>,
    /// It is to stop because we said so.
    interrupted: bool,
    /// It went on from the beginning of a call, or stands still until its process is to go on: what it stops for next is behind that.
    in_kernel: bool,
}

/// What becomes of a thread that stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// It goes on, with this signal.
    On(i32),
    /// Likewise, into the kernel.
    Into,
    /// It stays as it is until its process is to go on.
    Stay,
    /// It was let go.
    Gone,
}

/// See the module.
#[derive(Debug)]
pub struct Follow {
    shared: Arc<Shared>,
    threads: HashMap<Tid, Thread>,
    /// The process that was asked for.
    first: u32,
    /// Since when all are to be let go.
    leaves: Option<Instant>,
    places: HashMap<u64, usize>,
    waiting: Vec<libc::c_long>,
    sockets: Sockets,
    /// Of which the user was told something that is to be told once.
    told: HashSet<(u32, &'static str)>,
    /// Rights do not matter to whom the kernel allows everything.
    is_root: bool,
}

/// Processes of which something was told.
const TOLD: usize = 64;
/// How long a thread may take to stop that is to be let go.
const LEAVE: Duration = Duration::from_secs(1);

impl Follow {
    /// Follows nobody yet.
    pub fn new(shared: Arc<Shared>) -> Follow {
        Follow {
            shared,
            threads: HashMap::new(),
            first: 0,
            leaves: None,
            places: numbers::places(),
            waiting: numbers::waiting(),
            sockets: Sockets::default(),
            told: HashSet::new(),
            is_root: nix::unistd::geteuid().is_root(),
        }
    }

    /// Follows all threads of a process. Those that they start meanwhile are followed by the kernel's doing.
    ///
    /// # Errors
    /// None of them may be followed: why not the first.
    pub fn begin(&mut self, pid: u32) -> io::Result<()> {
        let own = Sleeper::this().tid();
        self.first = pid;
        let mut looked = HashSet::new();
        let mut refused = None;
        loop {
            let threads = fs::read_dir(format!("/proc/{pid}/task"))?.flatten();
            let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<Tid>().ok();
            let new: Vec<Tid> = threads.filter_map(number).filter(|tid| looked.insert(*tid)).collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                match ptrace::seize(tid) {
                    Ok(()) => {
                        self.threads.insert(tid, Thread { pid, interrupted: true, ..Thread::default() });
                        // gone meanwhile: that is heard
                        let _ = ptrace::interrupt(tid);
                    }
                    // begun by one that is followed, or at its end
                    Err(_)
                        if Status::of(tid).is_none_or(|about| about.tracer == own || about.has_ended()) => {}
                    Err(why) => refused = refused.or(Some(why)),
                }
            }
        }
        if self.threads.is_empty() {
            return Err(refused.unwrap_or_else(|| io::ErrorKind::NotFound.into()));
        }
        if refused.is_some() {
            self.warn(pid, "some of its threads may not be followed: their calls are missing");
        }
        Ok(())
    }

    /// Follows until nobody is left, or this is to end.
    pub fn run(&mut self) {
        loop {
            if self.leaves.is_none() && self.shared.end.load(Ordering::Relaxed) {
                self.leave();
            }
            // what hangs in the kernel is left to it
            if let Some(since) = self.leaves
                && (since.elapsed() > LEAVE || !self.threads.values().any(|thread| thread.interrupted))
            {
                return;
            }
            match ptrace::wait() {
                Heard::Stopped(tid, stop) => self.stopped(tid, stop),
                Heard::Ended(tid, status) => self.ended(tid, status),
                Heard::Nothing => {}
                Heard::Nobody => return,
            }
        }
    }

    /// When this thread ends, the kernel lets all go that are in it, and they notice nothing. One that stands still at the beginning of a call at
    /// that moment would find itself interrupted in it: who is not in the kernel is stopped before, and let go where that does no harm.
    fn leave(&mut self) {
        self.leaves = Some(Instant::now());
        for (tid, thread) in &mut self.threads {
            if !thread.in_kernel && !thread.interrupted {
                thread.interrupted = true;
                // one that is gone is heard of
                let _ = ptrace::interrupt(*tid);
            }
        }
    }

    /// A thread stands still, until this is done. It may be killed meanwhile: then nothing of it can be asked, and its end is heard next.
    fn stopped(&mut self, tid: Tid, stop: Stop) {
        let at = now();
        if !self.threads.contains_key(&tid) {
            self.begins(tid, at);
        }
        let interrupted = self.threads.get(&tid).is_some_and(|thread| thread.interrupted);
        let mut next = Next::On(0);
        match stop {
            Stop::Call => next = self.call(tid, at),
            Stop::Other => {}
            Stop::Signal(number) => next = Next::On(number),
            Stop::Group => next = Next::Stay,
            Stop::Trap if interrupted => _ = ptrace::wait_on(tid, &self.waiting),
            Stop::Trap => {}
            Stop::New => {
                if let Ok(new) = ptrace::message(tid)
                    && !self.threads.contains_key(&new)
                {
                    self.begins(new, at);
                }
            }
            Stop::Exec => self.executed(tid, at),
            Stop::Exit => {
                let pid = self.threads.get(&tid).map_or(tid, |thread| thread.pid);
                if !self.threads.iter().any(|(other, thread)| *other != tid && thread.pid == pid) {
                    self.ask_all(tid);
                }
            }
        }
        // who was interrupted stops because of that yet, unless this is it; a stop for something else may have taken its place
        let yet = interrupted && !matches!(stop, Stop::Trap | Stop::Group);
        if yet {
            let _ = ptrace::interrupt(tid);
        }
        if let Some(thread) = self.threads.get_mut(&tid) {
            (thread.interrupted, thread.in_kernel) = (yet, matches!(next, Next::Into | Next::Stay));
        }
        let _ = match next {
            Next::On(signal) if self.leaves.is_some() && !yet => {
                self.threads.remove(&tid);
                ptrace::detach(tid, signal)
            }
            Next::On(signal) => ptrace::resume(tid, signal),
            Next::Into => ptrace::resume(tid, 0),
            Next::Stay => ptrace::listen(tid),
            Next::Gone => Ok(()),
        };
    }

    /// A thread that was not there before. Itself or who made it tells first; nobody makes calls before that.
    fn begins(&mut self, tid: Tid, at: u64) {
        let Some(about) = Status::of(tid) else { return };
        self.threads.insert(tid, Thread { pid: about.process, ..Thread::default() });
        let thread = about.process != tid;
        let by = if thread { about.process } else { about.parent };
        if thread || self.threads.values().any(|thread| thread.pid == by) {
            self.tell(by, at, What::New { tid, thread });
        }
    }

    fn executed(&mut self, tid: Tid, at: u64) {
        let before = ptrace::message(tid).unwrap_or(tid);
        if before != tid {
            self.threads.remove(&before);
        }
        // its process's number is the thread's from now on
        self.threads.insert(tid, Thread { pid: tid, ..Thread::default() });
        let path = fs::read_link(format!("/proc/{tid}/exe")).unwrap_or_default();
        self.tell(tid, at, What::Exec { path: path.to_string_lossy().into_owned(), before });
    }

    fn ended(&mut self, tid: Tid, status: i32) {
        self.tell(tid, now(), What::Gone);
        let Some(Thread { pid, .. }) = self.threads.remove(&tid) else { return };
        if !self.threads.values().any(|thread| thread.pid == pid) {
            self.sockets.gone(pid);
        }
        if tid == self.first {
            self.shared.found().status = Some(status);
        }
    }

    /// A system call begins or ends.
    fn call(&mut self, tid: Tid, at: u64) -> Next {
        match ptrace::call(tid) {
            Ok(Some(Call::Enter(number, arguments))) => return self.enters(tid, number, arguments),
            Ok(Some(Call::Exit(result))) => {
                let Some(thread) = self.threads.get_mut(&tid) else { return Next::On(0) };
                if let Some(place) = thread.inside.take() {
                    // ERESTART_RESTARTBLOCK: another call goes on with it
                    if result != -516 {
                        thread.left = None;
                    }
                    self.tell(tid, at, What::Exit(place, result));
                }
            }
            Ok(Some(Call::Foreign)) => {
                let pid = self.process(tid);
                self.warn(pid, "it makes system calls of 32 bits, which are not seen");
            }
            Ok(None) | Err(_) => {}
        }
        Next::On(0)
    }

    fn enters(&mut self, tid: Tid, number: u64, arguments: [u64; 6]) -> Next {
        let again = number as libc::c_long == libc::SYS_restart_syscall;
        let Some(thread) = self.threads.get_mut(&tid) else { return Next::Into };
        let pid = thread.pid;
        let left = thread.left.take().filter(|_| again);
        let Some((place, arguments)) = left.or_else(|| Some((*self.places.get(&number)?, arguments))) else {
            return self.enters_other(tid, pid, number, arguments);
        };
        (thread.inside, thread.left) = (Some(place), Some((place, arguments)));
        // what is closed cannot be asked any more afterwards
        match (TABLE[place].1, TABLE[place].2) {
            (_, Shape::Range) => self.ask_all(tid),
            (_, Shape::Close) => self.ask_last(tid, pid, arguments[0] as i32),
            (Function::Dup2 | Function::Dup3, _) => self.ask_last(tid, pid, arguments[1] as i32),
            _ => {}
        }
        self.tell(tid, now(), What::Enter(place, arguments));
        Next::Into
    }

    /// A call that is no socket call.
    fn enters_other(&mut self, tid: Tid, pid: u32, number: u64, arguments: [u64; 6]) -> Next {
        match number as libc::c_long {
            libc::SYS_io_uring_setup => {
                self.warn(pid, "it uses io_uring: what it does by that is not seen");
            }
            libc::SYS_execve | libc::SYS_execveat => {
                if let Some(program) = rights::gains(tid, number, arguments).filter(|_| !self.is_root) {
                    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
                    self.warn_of(format!(
                        "process {pid} became {name}, which has more rights than this, and is not recorded from there: it would not get them"
                    ));
                    self.tell(tid, now(), What::Gone);
                    self.threads.remove(&tid);
                    let _ = ptrace::detach(tid, 0);
                    return Next::Gone;
                }
                self.ask_all(tid);
            }
            _ => {}
        }
        Next::Into
    }

    fn process(&self, tid: Tid) -> u32 {
        self.threads.get(&tid).map_or(tid, |thread| thread.pid)
    }

    /// What a thread does becomes a record, and what it was about is asked where that is not known.
    fn tell(&mut self, tid: Tid, at: u64, what: What) {
        let mut found = self.shared.found();
        let Found { calls, events, lost, blind, .. } = &mut *found;
        let threads = &self.threads;
        let process = |tid: u32| Some(threads.get(&tid)?.pid).or_else(|| Some(Status::of(tid)?.process));
        let mut ended: Option<SyscallEvent> = None;
        // by the thread, for that of a process may have ended before the others
        calls.handle(at, tid, what, &process, &|_, fd| descriptors::inode(tid, fd), &mut |event| {
            ended = Some(event);
        });
        let Some(event) = ended else { return };
        for (number, fd) in [(event.socket, event.fd), (event.accepted, event.result)] {
            if fd >= 0 && event.call != Function::Close && calls.names.asks(number) {
                ask(calls, &mut self.sockets, tid, event.pid, fd, number);
            }
        }
        *blind = self.sockets.refused;
        if events.len() < MOST { events.push(event) } else { *lost += 1 }
    }

    /// The last moment to ask what a descriptor is.
    fn ask_last(&mut self, tid: Tid, pid: u32, fd: i32) {
        let mut found = self.shared.found();
        let Found { calls, .. } = &mut *found;
        let look = |_: u32, fd: i32| descriptors::inode(tid, fd);
        if let Some(number) = calls.descriptors.look(pid, fd, now(), &mut calls.names, &look)
            && calls.names.asks_last(number)
        {
            ask(calls, &mut self.sockets, tid, pid, fd, number);
        }
    }

    /// Likewise all of a process.
    fn ask_all(&mut self, tid: Tid) {
        let pid = self.process(tid);
        let sockets = self.shared.found().calls.descriptors.sockets(pid);
        sockets.into_iter().for_each(|fd| self.ask_last(tid, pid, fd));
    }

    fn warn(&mut self, pid: u32, what: &'static str) {
        if self.told.len() < TOLD && self.told.insert((pid, what)) {
            self.warn_of(format!("process {pid}: {what}"));
        }
    }

    fn warn_of(&self, text: String) {
        let mut found = self.shared.found();
        if found.warnings.len() < 2 * TOLD {
            found.warnings.push(text);
        }
    }
}

fn now() -> u64 {
    monotonic().unwrap_or(0)
}

/// Asks a socket what it is.
fn ask(calls: &mut Calls, sockets: &mut Sockets, tid: Tid, pid: u32, fd: i32, number: u32) {
    let Some(inode) = descriptors::inode(tid, fd) else { return };
    calls.names.has_inode(number, inode);
    calls.names.learn(number, |name| sockets.ask(pid, fd, name));
}
