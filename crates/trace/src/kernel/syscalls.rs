//! Socket calls of programs that preloading cannot see (static ones, most of Go's), by the tracepoints at which system calls
//! begin and end. Only as root, and only of the processes that are asked for, with their children.
//!
//! While this is open every system call of the machine takes the kernel's slow way (some 100 ns), also those of processes that are
//! not recorded: open it when there is such a program.
//!
//! Process ids are those of the first process namespace of the machine, which the kernel's filter goes by too. What happens
//! before the first look at a descriptor is known of sockets that calls opened; of inherited ones `/proc` tells.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use polyrail_core::trace::Call;

use super::descriptors::{self, Descriptors, Named};
use super::format::Field;
use super::tracefs::{Instance, Unavailable};
use crate::diag::{Diag, monotonic};

/// KiB of each processor's ring: 10000 calls.
const RING_KIB: u32 = 1024;
/// Calls under way, and threads whose process is known.
const MOST: usize = 65_536;
/// How often names are looked for.
const NAMES: Duration = Duration::from_millis(100);

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
    /// A number for the socket, from 1 ([`Named`] says what it is); 0: none or several.
    pub socket: u32,
    /// What it returned, or minus its error number.
    pub result: i32,
    /// As in [`SocketFields`](polyrail_core::trace::SocketFields); 0 where that is in the process's memory (vectors,
    /// timeouts of `select` and its kin).
    pub arg: u32,
}

/// What is to be known of a system call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    /// On a descriptor, the first argument; `arg` is the argument of this number.
    On(usize),
    /// On a descriptor; `arg` is not in the arguments.
    Vector,
    /// Waits on many; `arg` is the timeout in milliseconds.
    Wait(usize),
    /// Waits on many; the timeout is not in the arguments.
    WaitUntil,
    /// Returns a new socket; `arg` is the first argument.
    Opens,
    /// Returns a new socket of one that listens.
    Accepts,
    Close,
    /// Returns or makes a descriptor that is the same as the first argument.
    Copies,
    /// `fcntl`, which may be a copy.
    Control,
    Splice,
    /// Closes descriptors; is no socket call itself.
    Unsure,
}

use Shape::{Accepts, Close, Control, Copies, On, Opens, Splice, Unsure, Vector, Wait, WaitUntil};

const TABLE: &[(&str, Call, Shape)] = &[
    ("socket", Call::Socket, Opens),
    ("bind", Call::Bind, Vector),
    ("listen", Call::Listen, On(1)),
    ("connect", Call::Connect, Vector),
    ("accept", Call::Accept, Accepts),
    ("accept4", Call::Accept4, Accepts),
    ("shutdown", Call::Shutdown, On(1)),
    ("close", Call::Close, Close),
    ("close_range", Call::Close, Unsure),
    ("dup", Call::Dup, Copies),
    ("dup2", Call::Dup2, Copies),
    ("dup3", Call::Dup3, Copies),
    ("fcntl", Call::FcntlDup, Control),
    ("sendto", Call::SendTo, On(2)),
    ("sendmsg", Call::SendMsg, Vector),
    ("sendmmsg", Call::SendMMsg, Vector),
    ("write", Call::Write, On(2)),
    ("writev", Call::WriteV, Vector),
    ("sendfile64", Call::SendFile, On(3)),
    ("splice", Call::SpliceTo, Splice),
    ("recvfrom", Call::RecvFrom, On(2)),
    ("recvmsg", Call::RecvMsg, Vector),
    ("recvmmsg", Call::RecvMMsg, Vector),
    ("read", Call::Read, On(2)),
    ("readv", Call::ReadV, Vector),
    ("poll", Call::Poll, Wait(2)),
    ("ppoll", Call::PPoll, WaitUntil),
    ("select", Call::Select, WaitUntil),
    ("pselect6", Call::PSelect, WaitUntil),
    ("epoll_wait", Call::EpollWait, Wait(3)),
    ("epoll_pwait", Call::EpollPWait, Wait(3)),
    ("epoll_pwait2", Call::EpollPWait2, WaitUntil),
];

/// The kernel's own thread that makes others: it makes no system call, and stands for "nobody" in a filter that means
/// "everybody" when it is empty.
const NOBODY: &str = "2";
const EXEC: &str = "sched/sched_process_exec";
const EXIT: &str = "sched/sched_process_exit";

#[derive(Clone, Debug)]
enum Kind {
    Enter(usize, [Option<Field>; 6]),
    Exit(usize, Field),
    /// The process becomes another program.
    Exec,
    /// A thread ends.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Enter(usize, [u64; 6]),
    Exit(usize, i64),
    Exec,
    Gone,
}

/// Those tracepoints, being read.
#[derive(Debug)]
pub struct Syscalls {
    instance: Instance,
    kinds: HashMap<u16, Kind>,
    ahead: Vec<(u64, u32, What)>,
    calls: Calls,
    /// Of the namespace in which this was opened.
    diag: Option<Diag>,
    named: Instant,
}

impl Syscalls {
    /// Records nobody's calls yet.
    ///
    /// # Errors
    /// One sentence for the user: no root, no tracefs, no such tracepoints.
    pub fn open() -> Result<Syscalls, Unavailable> {
        let instance = Instance::new(RING_KIB)?;
        instance.write("set_event_pid", NOBODY)?;
        instance.write("options/event-fork", "1")?;
        let mut kinds = HashMap::new();
        let mut events = Vec::new();
        let mut add = |event: String, make: &dyn Fn(&super::format::Format) -> Option<Kind>| {
            if let Some(format) = instance.format(&event)
                && let Some(kind) = make(&format)
            {
                kinds.insert(format.id, kind);
                events.push(event);
            }
        };
        for (at, (name, ..)) in TABLE.iter().enumerate() {
            add(format!("syscalls/sys_enter_{name}"), &|format| {
                let mut arguments = format.behind("__syscall_nr");
                Some(Kind::Enter(at, std::array::from_fn(|_| arguments.next())))
            });
            add(format!("syscalls/sys_exit_{name}"), &|format| Some(Kind::Exit(at, format.field("ret")?)));
        }
        add(EXEC.into(), &|_| Some(Kind::Exec));
        add(EXIT.into(), &|_| Some(Kind::Gone));
        if !events.iter().any(|event| event.starts_with("syscalls/")) {
            return Err(Unavailable::NoEvents("syscalls:sys_enter_*".into()));
        }
        for event in events {
            instance.write(&format!("events/{event}/enable"), "1")?;
        }
        let (calls, ahead) = Default::default();
        Ok(Syscalls { instance, kinds, ahead, calls, diag: Diag::open().ok(), named: Instant::now() })
    }

    /// The file to which the id of a process is written to have it recorded, with all that it starts later. A process can do so for
    /// itself, if it is root and in the machine's first process namespace.
    pub fn pids(&self) -> PathBuf {
        self.instance.path().join("set_event_pid")
    }

    /// Records this process (of one that runs already, only the thread of this number and what it starts).
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn add(&self, pid: u32) -> io::Result<()> {
        // Appended to those that are there.
        let file = fs::OpenOptions::new().append(true).open(self.pids())?;
        io::Write::write_all(&mut &file, pid.to_string().as_bytes())
    }

    /// The instance's directory.
    pub fn path(&self) -> &Path {
        self.instance.path()
    }

    /// Hands out the calls that have ended since the last time, in the order of their ends.
    ///
    /// # Errors
    /// Reading failed; the next call goes on.
    pub fn drain(&mut self, each: &mut dyn FnMut(SyscallEvent)) -> io::Result<()> {
        let now = monotonic()?;
        let Syscalls { instance, kinds, ahead, calls, .. } = self;
        let missed =
            instance.read(RING_KIB as usize / 4, &mut |at, data| ahead.extend(decode(kinds, at, data)))?;
        ahead.sort_by_key(|event| event.0);
        let complete = ahead.partition_point(|event| event.0 < now);
        for (at, tid, what) in ahead.drain(..complete) {
            calls.handle(at, tid, what, &process, &descriptors::inode, each);
        }
        if missed {
            calls.forget();
        }
        Ok(())
    }

    /// Hands out what has been found out of sockets since the last time; does nothing more often than every 100 ms.
    pub fn names(&mut self, each: &mut dyn FnMut(Named)) {
        if self.named.elapsed() >= NAMES {
            self.named = Instant::now();
            self.calls.descriptors.name(&mut self.diag, each);
        }
    }

    /// Events that the kernel lost, because they were not read fast enough. Reads a file for each processor.
    pub fn lost(&self) -> u64 {
        self.instance.lost()
    }
}

fn decode(kinds: &HashMap<u16, Kind>, at: u64, data: &[u8]) -> Option<(u64, u32, What)> {
    // The same in all kernels: type u16, flags u8, preemption u8, pid i32.
    let id = u16::from_ne_bytes(data.get(..2)?.try_into().ok()?);
    let tid = u32::from_ne_bytes(data.get(4..8)?.try_into().ok()?);
    let what = match kinds.get(&id)? {
        Kind::Enter(call, fields) => {
            What::Enter(*call, fields.map(|field| field.and_then(|field| field.number(data)).unwrap_or(0)))
        }
        Kind::Exit(call, field) => What::Exit(*call, field.number(data)? as i64),
        Kind::Exec => What::Exec,
        Kind::Gone => What::Gone,
    };
    Some((at, tid, what))
}

/// The process of a thread.
fn process(tid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

/// Beginnings and ends of calls, put together.
#[derive(Debug, Default)]
struct Calls {
    processes: HashMap<u32, u32>,
    begun: HashMap<u32, (u64, usize, [u64; 6])>,
    descriptors: Descriptors,
}

type Look<'a> = &'a dyn Fn(u32, i32) -> Option<u64>;

impl Calls {
    fn handle(
        &mut self,
        at: u64,
        tid: u32,
        what: What,
        process: &dyn Fn(u32) -> Option<u32>,
        inode: Look<'_>,
        each: &mut dyn FnMut(SyscallEvent),
    ) {
        match what {
            What::Enter(call, arguments) => {
                if self.begun.len() >= MOST {
                    self.begun.clear();
                }
                self.begun.insert(tid, (at, call, arguments));
            }
            What::Exit(call, result) => {
                // An end whose beginning was lost, or came before the process was recorded.
                let Some((start, begun, arguments)) = self.begun.remove(&tid) else { return };
                if begun != call {
                    return;
                }
                if self.processes.len() >= MOST {
                    self.processes.clear();
                }
                // Of a process that is gone before it could be looked at, most have one thread.
                let pid = *self.processes.entry(tid).or_insert_with(|| process(tid).unwrap_or(tid));
                if let Some((call, fd, socket, arg)) = self.ended(pid, call, arguments, result, inode) {
                    let took = at.saturating_sub(start);
                    // Interrupted, and to be begun again: numbers that no program sees.
                    let result =
                        if (-516..=-512).contains(&result) { -i64::from(libc::EINTR) } else { result };
                    let result = result.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
                    each(SyscallEvent { pid, tid, call, start, took, fd, socket, result, arg });
                }
            }
            What::Exec => {
                if let Some(pid) = self.processes.get(&tid) {
                    self.descriptors.unsure(*pid);
                }
            }
            What::Gone => {
                self.begun.remove(&tid);
                if self.processes.remove(&tid) == Some(tid) {
                    self.descriptors.unsure(tid);
                }
            }
        }
    }

    /// Events were lost: what descriptors are is to be looked up again.
    fn forget(&mut self) {
        let processes: HashSet<u32> = self.processes.values().copied().collect();
        processes.into_iter().for_each(|pid| self.descriptors.unsure(pid));
        self.begun.clear();
    }

    /// Function, descriptor, socket and `arg` of a call that has ended; `None`: it was not about sockets.
    fn ended(
        &mut self,
        pid: u32,
        call: usize,
        arguments: [u64; 6],
        result: i64,
        inode: Look<'_>,
    ) -> Option<(Call, i32, u32, u32)> {
        let (_, call, shape) = TABLE[call];
        let fd = arguments[0] as i32;
        let arg = |at: usize| arguments[at].min(u32::MAX.into()) as u32;
        let sockets = &mut self.descriptors;
        let done = u32::try_from(result).ok();
        let new = done.map_or(-1, |fd| fd as i32);
        Some(match shape {
            On(at) => (call, fd, sockets.socket(pid, fd, inode)?, arg(at)),
            Vector => (call, fd, sockets.socket(pid, fd, inode)?, 0),
            Wait(at) => {
                // A negative number of milliseconds is for ever.
                (
                    call,
                    if call == Call::Poll { -1 } else { fd },
                    0,
                    u32::try_from(arguments[at] as i32).unwrap_or(u32::MAX),
                )
            }
            WaitUntil => (call, if call == Call::EpollPWait2 { fd } else { -1 }, 0, 0),
            Opens => (call, new, done.map_or(0, |_| sockets.opened(pid, new, inode)), arg(0)),
            Accepts => {
                let listener = sockets.socket(pid, fd, inode)?;
                let _ = done.map(|_| sockets.opened(pid, new, inode));
                (call, fd, listener, 0)
            }
            Close => {
                let socket = sockets.known(pid, fd);
                sockets.closed(pid, fd);
                (call, fd, socket?, 0)
            }
            Copies => {
                let socket = sockets.socket(pid, fd, inode);
                done.inspect(|_| sockets.copied(pid, fd, new));
                (call, fd, socket?, fd as u32)
            }
            Control => {
                if ![libc::F_DUPFD, libc::F_DUPFD_CLOEXEC].contains(&(arguments[1] as i32)) {
                    return None;
                }
                let socket = sockets.socket(pid, fd, inode);
                done.inspect(|_| sockets.copied(pid, fd, new));
                (call, fd, socket?, fd as u32)
            }
            Splice => {
                let to = arguments[2] as i32;
                match sockets.socket(pid, to, inode) {
                    Some(socket) => (Call::SpliceTo, to, socket, arg(4)),
                    None => (Call::SpliceFrom, fd, sockets.socket(pid, fd, inode)?, arg(4)),
                }
            }
            Unsure => {
                sockets.unsure(pid);
                return None;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number(name: &str) -> usize {
        TABLE.iter().position(|(known, ..)| *known == name).unwrap()
    }

    /// Calls one after the other, 10 ns each; 3 is a socket, other descriptors are files unless a call opened them.
    fn run(calls: &mut Calls, script: &[(&str, [u64; 6], i64)]) -> Vec<(Call, i32, u32, i32, u32)> {
        let mut out = Vec::new();
        for (at, (name, arguments, result)) in (0..).step_by(100).zip(script) {
            for (at, what) in
                [(at, What::Enter(number(name), *arguments)), (at + 10, What::Exit(number(name), *result))]
            {
                calls.handle(at, 8, what, &|_| Some(7), &|_, fd| (fd == 3).then_some(700), &mut |event| {
                    assert_eq!((event.pid, event.tid, event.took), (7, 8, 10));
                    out.push((event.call, event.fd, event.socket, event.result, event.arg));
                });
            }
        }
        out
    }

    #[test]
    fn calls_on_sockets_are_told_and_others_are_not() {
        let out = run(
            &mut Calls::default(),
            &[
                ("read", [3, 0, 4096, 0, 0, 0], 100),
                ("read", [4, 0, 4096, 0, 0, 0], 100),
                ("socket", [2, 1, 0, 0, 0, 0], 5),
                ("connect", [5, 0, 16, 0, 0, 0], -115),
                ("sendto", [5, 0, 10, 0, 0, 0], 10),
                ("dup2", [5, 4, 0, 0, 0, 0], 4),
                ("write", [4, 0, 9, 0, 0, 0], 9),
                ("close", [4, 0, 0, 0, 0, 0], 0),
                ("write", [4, 0, 9, 0, 0, 0], 9),
                ("fcntl", [5, 4, 2048, 0, 0, 0], 0),
                ("poll", [0, 1, u64::from(u32::MAX), 0, 0, 0], 1),
                ("epoll_wait", [9, 0, 1, 20, 0, 0], 0),
                ("splice", [3, 0, 6, 0, 77, 0], 7),
                ("sendfile64", [5, 6, 0, 1 << 40, 0, 0], 1 << 30),
                ("read", [5, 0, 1, 0, 0, 0], -512),
                ("accept4", [3, 0, 0, 0, 0, 0], 11),
                ("close_range", [5, 5, 0, 0, 0, 0], 0),
                ("read", [5, 0, 1, 0, 0, 0], 1),
            ],
        );
        assert_eq!(
            out,
            [
                (Call::Read, 3, 1, 100, 4096),
                (Call::Socket, 5, 2, 5, 2),
                (Call::Connect, 5, 2, -115, 0),
                (Call::SendTo, 5, 2, 10, 10),
                (Call::Dup2, 5, 2, 4, 5),
                (Call::Write, 4, 2, 9, 9),
                (Call::Close, 4, 2, 0, 0),
                (Call::Poll, -1, 0, 1, u32::MAX),
                (Call::EpollWait, 9, 0, 0, 20),
                (Call::SpliceFrom, 3, 1, 7, 77),
                (Call::SendFile, 5, 2, 1 << 30, u32::MAX),
                (Call::Read, 5, 2, -4, 1),
                (Call::Accept4, 3, 1, 11, 0),
            ]
        );
    }

    #[test]
    fn an_end_without_its_beginning_is_nothing() {
        let mut calls = Calls::default();
        let mut none = |event| panic!("{event:?}");
        let mut handle = |what| calls.handle(1, 8, what, &|_| None, &|_, _| Some(1), &mut none);
        handle(What::Exit(number("read"), 1));
        handle(What::Enter(number("read"), [3; 6]));
        handle(What::Exit(number("write"), 1));
        handle(What::Enter(number("read"), [3; 6]));
        handle(What::Gone);
        handle(What::Exit(number("read"), 1));
    }

    proptest! {
        #[test]
        fn any_calls_can_be_told(
            steps in proptest::collection::vec((0..TABLE.len(), any::<[u64; 6]>(), any::<i64>(), 0u32..3, 0u8..6), 0..100),
        ) {
            let mut calls = Calls::default();
            for (at, (call, arguments, result, tid, step)) in (0..).zip(steps) {
                let what = match step { 0 | 1 => What::Enter(call, arguments), 2 | 3 => What::Exit(call, result), 4 => What::Exec, _ => What::Gone };
                calls.handle(at, tid, what, &|_| None, &|_, fd| (fd % 2 == 0).then_some(fd as u64), &mut |_| {});
            }
        }
    }
}
