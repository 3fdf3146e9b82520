//! What a process does with sockets, out of the beginnings and ends of its system calls and what happens to sockets meanwhile. It asks
//! nobody but those who are handed to it, and only where no event has told.

use std::collections::HashMap;

use polyrail_core::trace::{Call, Class};

mod table;

use super::descriptors::{Descriptors, Look};
use super::names::Names;
use super::socks::{SockEvent, SockWhat};
use super::state::{self, Change};
use super::ties::{Sk, Ties};
use Shape::{Accepts, Close, Control, Copies, On, Opens, Range, Splice, Vector, Wait, WaitUntil};
use table::{FILES, keeps};
pub use table::{Shape, TABLE, kind};

/// Calls under way, and threads whose process is known.
const MOST: usize = 65_536;

/// A socket call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyscallEvent {
    /// The process.
    pub pid: u32,
    /// Its thread.
    pub tid: u32,
    /// Which function.
    pub call: Call,
    /// When it began, on the monotonic clock in nanoseconds.
    pub start: u64,
    /// Nanoseconds until it returned.
    pub took: u64,
    /// The descriptor: of a socket, or of an epoll set; -1: none or several.
    pub fd: i32,
    /// A number for the socket, from 1 ([`Named`](super::Named) says what it is); 0: none or several.
    pub socket: u32,
    /// What it returned, or minus its error number.
    pub result: i32,
    /// As in [`SocketFields`](polyrail_core::trace::SocketFields); 0 where that is in the process's memory (vectors,
    /// timeouts of `select` and its kin).
    pub arg: u32,
    /// Of a connection that was accepted, the number of its socket; else 0.
    pub accepted: u32,
}

/// A process that begins, as a copy of its parent, or becomes another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The process.
    pub pid: u32,
    /// Who made it; 0: not known.
    pub parent: u32,
    /// When, on the monotonic clock in nanoseconds.
    pub at: u64,
    /// What it executes; empty: the same as its parent.
    pub path: String,
}

/// What a thread does.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// Begins the call of this place in [`TABLE`], with its arguments.
    Enter(usize, [u64; 6]),
    /// Ends it, with its result.
    Exit(usize, i64),
    /// Makes a thread, of its own process or of a new one.
    New { tid: u32, thread: bool },
    /// Has become another program; it had that number before.
    Exec { path: String, before: u32 },
    /// Ends.
    Gone,
    /// Was running when something happened to a socket.
    Sock(SockEvent),
}

impl What {
    /// Of what is told at one moment, a call begins before it is about something, and ends after that.
    pub fn order(&self) -> u8 {
        match self {
            What::Enter(..) => 0,
            What::Exit(..) => 2,
            _ => 1,
        }
    }
}

/// A call that goes on.
#[derive(Clone, Copy, Debug)]
struct Begun {
    at: u64,
    call: usize,
    arguments: [u64; 6],
    /// What its descriptor was when it began: others may close it meanwhile, and open another.
    socket: Option<u32>,
    /// The kernel's socket that it is about.
    sk: Option<Sk>,
    /// What it moved, and what it was told last; `None`: it has not come to a socket yet.
    moved: Option<(u64, i32)>,
}

impl Begun {
    /// An event inside it.
    fn meet(&mut self, what: SockWhat, sk: Sk) {
        let (_, call, _) = TABLE[self.call];
        match what {
            SockWhat::Moved { result, .. } => {
                let before = self.moved.map_or(0, |(bytes, _)| bytes);
                self.moved = Some((before.saturating_add(u64::try_from(result).unwrap_or(0)), result));
                self.sk = Some(sk);
            }
            SockWhat::State(Change { new: state::SYN_SENT, .. }) => _ = self.sk.get_or_insert(sk),
            SockWhat::State(Change { new: state::LISTEN, .. }) if call == Call::Listen => {
                self.sk.get_or_insert(sk);
            }
            _ if ends(what) && [Call::Close, Call::Shutdown].contains(&call) => _ = self.sk.get_or_insert(sk),
            _ => {}
        }
    }
}

/// Whether that happens to a socket when a process closes it.
fn ends(what: SockWhat) -> bool {
    matches!(what, SockWhat::State(Change { new: state::FIN_WAIT1 | state::LAST_ACK | state::CLOSE, .. }))
}

/// Beginnings and ends of calls, put together.
#[derive(Debug, Default)]
pub struct Calls {
    /// Whether each call that moves bytes tells of its socket.
    moved: bool,
    /// Whether threads stand still at the beginning of a call, so that what its descriptor is can be seen then.
    stops: bool,
    /// Processes of threads, and how many threads of each are known.
    processes: HashMap<u32, u32>,
    threads: HashMap<u32, u32>,
    parents: HashMap<u32, u32>,
    begun: HashMap<u32, Begun>,
    /// What a thread has closed last, which kernels before 6.6 do after the call.
    closed: HashMap<u32, u32>,
    pub descriptors: Descriptors,
    pub names: Names,
    pub ties: Ties,
    pub programs: Vec<Program>,
}

/// How `/proc` is asked for the process of a thread.
pub type Process<'a> = &'a dyn Fn(u32) -> Option<u32>;

impl Calls {
    /// `moved`: whether each call that moves bytes tells of its socket.
    pub fn new(moved: bool) -> Calls {
        Calls { moved, ..Calls::default() }
    }

    /// Of threads that stand still while they are asked about.
    pub fn of_stops() -> Calls {
        Calls { stops: true, ..Calls::default() }
    }

    /// The next event, in the order of time. `each` gets the calls that end with it.
    pub fn handle(
        &mut self,
        at: u64,
        tid: u32,
        what: What,
        process: Process<'_>,
        inode: Look<'_>,
        each: &mut dyn FnMut(SyscallEvent),
    ) {
        match what {
            What::Enter(call, arguments) => {
                if self.begun.len() >= MOST {
                    self.begun.clear();
                }
                self.closed.remove(&tid);
                let pid = self.process(tid, process);
                let fd = arguments[0] as i32;
                let socket = match self.stops && TABLE[call].2.is_on_descriptor() {
                    true => self.descriptors.look(pid, fd, at, &mut self.names, inode),
                    false => self.descriptors.known(pid, fd),
                };
                // it is free from now on, and may be something else before the call ends
                match TABLE[call].2 {
                    Close => self.descriptors.closed(pid, fd),
                    Range => self.closes_range(pid, arguments),
                    _ => {}
                }
                self.begun.insert(tid, Begun { at, call, arguments, socket, sk: None, moved: None });
            }
            What::Exit(call, result) => {
                // An end whose beginning was lost, or came before the process was recorded.
                let Some(begun) = self.begun.remove(&tid).filter(|begun| begun.call == call) else { return };
                let pid = self.process(tid, process);
                if let Some(event) = self.ended(pid, tid, at, begun, result, inode) {
                    each(event);
                }
            }
            What::New { tid: new, thread } => {
                let pid = self.process(tid, process);
                self.forget_thread(new);
                if thread {
                    self.belongs(new, pid);
                } else {
                    self.belongs(new, new);
                    self.descriptors.forked(pid, new);
                    if self.parents.len() >= MOST {
                        self.parents.clear();
                    }
                    self.parents.insert(new, pid);
                    self.program(Program { pid: new, parent: pid, at, path: String::new() });
                }
            }
            What::Exec { path, before } => {
                let pid = self.process(tid, process);
                // a thread that becomes a program has its process's number from then on
                if before != tid {
                    self.forget_thread(before);
                }
                self.begun.remove(&tid);
                self.descriptors.executed(pid);
                let parent = self.parents.get(&pid).copied().unwrap_or(0);
                self.program(Program { pid, parent, at, path });
            }
            What::Gone => self.forget_thread(tid),
            What::Sock(event) => {
                let sk = self.ties.see(&event, &mut self.names);
                if event.aside {
                    return;
                }
                if let Some(begun) = self.begun.get_mut(&tid) {
                    begun.meet(event.what, sk);
                } else if ends(event.what)
                    && let Some(number) = self.closed.remove(&tid)
                    && self.ties.number(sk).is_none()
                    && self.names.get(number).is_some_and(|name| name.remote.is_none() && !name.listening)
                {
                    self.ties.tie(number, sk, &mut self.names);
                }
            }
        }
    }

    /// `close_range`, whose arguments are 32 bits each; the kernel refuses others than these.
    fn closes_range(&mut self, pid: u32, [first, last, flags, ..]: [u64; 6]) {
        let (first, last, flags) = (first as u32, last as u32, flags as u32);
        if first > last || flags & !(libc::CLOSE_RANGE_CLOEXEC | libc::CLOSE_RANGE_UNSHARE) != 0 {
            return;
        }
        match flags & libc::CLOSE_RANGE_CLOEXEC != 0 {
            true => self.descriptors.keeps_none(pid, first, last),
            false => self.descriptors.closed_range(pid, first, last),
        }
    }

    fn program(&mut self, program: Program) {
        if self.programs.len() < MOST {
            self.programs.push(program);
        }
    }

    /// The process of a thread. Of one that is gone before it could be looked at, most have one thread.
    pub fn process(&mut self, tid: u32, process: Process<'_>) -> u32 {
        if let Some(pid) = self.processes.get(&tid) {
            return *pid;
        }
        let pid = process(tid).unwrap_or(tid);
        self.belongs(tid, pid);
        pid
    }

    fn belongs(&mut self, tid: u32, pid: u32) {
        if self.processes.len() >= MOST {
            self.processes.clear();
            self.threads.clear();
        }
        if self.processes.insert(tid, pid).is_none() {
            *self.threads.entry(pid).or_default() += 1;
        }
    }

    fn forget_thread(&mut self, tid: u32) {
        self.begun.remove(&tid);
        self.closed.remove(&tid);
        let Some(pid) = self.processes.remove(&tid) else { return };
        let Some(threads) = self.threads.get_mut(&pid) else { return };
        *threads -= 1;
        if *threads == 0 {
            self.threads.remove(&pid);
            self.parents.remove(&pid);
            self.descriptors.forget(pid);
        }
    }

    /// Events were lost before those that come now: what descriptors are is to be looked up again, and a call that had begun may have ended, and
    /// another like it begun.
    pub fn forget(&mut self) {
        self.descriptors.clear();
        self.begun.clear();
        self.closed.clear();
    }

    /// The socket that a call was about; `None`: it was none.
    fn socket(&mut self, pid: u32, fd: i32, begun: &Begun, result: i64, inode: Look<'_>) -> Option<u32> {
        let (_, call, _) = TABLE[begun.call];
        let known = begun.socket.or_else(|| self.descriptors.known(pid, fd));
        let moves = matches!(call.class(), Class::Send | Class::Receive);
        let number = match known {
            Some(number) => number,
            None if !self.moved => self.descriptors.look(pid, fd, begun.at, &mut self.names, inode)?,
            None => {
                let is_socket = match begun.moved {
                    // what files are read by may be sockets of the kernel's own
                    Some((_, last)) if FILES.contains(&call) => i64::from(last) == result,
                    Some(_) => true,
                    None if moves => false,
                    None => ![libc::EBADF, libc::ENOTSOCK].contains(&(-result as i32)) || result >= 0,
                };
                if !is_socket {
                    return None;
                }
                let tied = begun.sk.filter(|_| moves).and_then(|sk| self.ties.number(sk));
                match tied {
                    Some(number) => {
                        self.descriptors.is(pid, fd, number, None);
                        number
                    }
                    None => self.descriptors.inherited(pid, fd, begun.at, &mut self.names, inode),
                }
            }
        };
        if let Some(sk) = begun.sk {
            self.ties.tie(number, sk, &mut self.names);
        }
        Some(number)
    }

    /// What is to be said of a call that has ended; `None`: it was not about sockets.
    fn ended(
        &mut self,
        pid: u32,
        tid: u32,
        at: u64,
        begun: Begun,
        result: i64,
        inode: Look<'_>,
    ) -> Option<SyscallEvent> {
        let (_, call, shape) = TABLE[begun.call];
        let arguments = begun.arguments;
        let fd = arguments[0] as i32;
        let arg = |at: usize| arguments[at].min(u32::MAX.into()) as u32;
        let done = u32::try_from(result).ok();
        let new = done.map_or(-1, |fd| fd as i32);
        let mut accepted = 0;
        let (call, fd, socket, arg) = match shape {
            On(at) => (call, fd, self.socket(pid, fd, &begun, result, inode)?, arg(at)),
            Vector => {
                let socket = self.socket(pid, fd, &begun, result, inode)?;
                let moved = begun.moved.filter(|_| matches!(call, Call::SendMMsg | Call::RecvMMsg));
                (call, fd, socket, moved.map_or(0, |(bytes, _)| bytes.min(u32::MAX.into()) as u32))
            }
            Wait(at) => {
                // A negative number of milliseconds is for ever.
                let timeout = u32::try_from(arguments[at] as i32).unwrap_or(u32::MAX);
                (call, if call == Call::Poll { -1 } else { fd }, 0, timeout)
            }
            WaitUntil => (call, if call == Call::EpollPWait2 { fd } else { -1 }, 0, 0),
            Opens => {
                let socket = done.map_or(0, |_| {
                    let number = self.names.open(begun.at, Some(kind(arguments)));
                    self.descriptors.is(pid, new, number, Some(keeps(arguments[1])));
                    number
                });
                (call, new, socket, arg(0))
            }
            Accepts => {
                let listener = self.socket(pid, fd, &begun, result, inode)?;
                if done.is_some() {
                    let about = self.names.get(listener);
                    let (kind, local) = about.map_or((None, None), |about| (about.kind, about.local));
                    accepted = self.names.open(begun.at, kind);
                    let keeps = call == Call::Accept || keeps(arguments[3]);
                    self.descriptors.is(pid, new, accepted, Some(keeps));
                    if let Some(local) = local {
                        self.ties.accepted(local, accepted);
                    }
                    self.names.used(accepted, pid);
                }
                (call, fd, listener, 0)
            }
            Close => {
                let socket = begun.socket?;
                match begun.sk {
                    Some(sk) => self.ties.tie(socket, sk, &mut self.names),
                    None => {
                        if self.closed.len() >= MOST {
                            self.closed.clear();
                        }
                        self.closed.insert(tid, socket);
                    }
                }
                (call, fd, socket, 0)
            }
            Copies | Control => {
                let control = arguments[1] as i32;
                let keeps = match call {
                    Call::Dup3 => keeps(arguments[2]),
                    Call::FcntlDup => control == libc::F_DUPFD,
                    _ => true,
                };
                if shape == Control && control == libc::F_SETFD && done.is_some() {
                    self.descriptors.keeps(pid, fd, arguments[2] & libc::FD_CLOEXEC as u64 == 0);
                }
                if shape == Control && ![libc::F_DUPFD, libc::F_DUPFD_CLOEXEC].contains(&control) {
                    return None;
                }
                let socket = match self.moved {
                    true => self.descriptors.known(pid, fd),
                    false => self.descriptors.look(pid, fd, begun.at, &mut self.names, inode),
                };
                // one that is copied onto itself is as before
                if done.is_some() && new != fd {
                    self.descriptors.copied(pid, fd, new, keeps);
                }
                (call, fd, socket?, fd as u32)
            }
            Splice => {
                let to = arguments[2] as i32;
                let out = Begun { socket: None, ..begun };
                let found = match begun.moved {
                    None if self.moved => self.descriptors.known(pid, to),
                    _ => self.socket(pid, to, &out, result, inode),
                };
                match found {
                    Some(socket) => (Call::SpliceTo, to, socket, arg(4)),
                    None => {
                        let from = begun.socket;
                        let look = || self.descriptors.look(pid, fd, begun.at, &mut self.names, inode);
                        (Call::SpliceFrom, fd, from.or_else(look)?, arg(4))
                    }
                }
            }
            Range => return None,
        };
        if socket != 0 {
            self.names.used(socket, pid);
        }
        let took = at.saturating_sub(begun.at);
        // Interrupted, and to be begun again: numbers that no program sees.
        let result = if (-516..=-512).contains(&result) { -i64::from(libc::EINTR) } else { result };
        let result = result.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
        Some(SyscallEvent { pid, tid, call, start: begun.at, took, fd, socket, result, arg, accepted })
    }
}

#[cfg(test)]
mod tests;
