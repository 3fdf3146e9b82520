//! Socket calls of programs that preloading cannot see (static ones, most of Go's), by the tracepoints at which system calls
//! begin and end. Only as root, and only of the processes that are asked for, with their children.
//!
//! While this is open every system call of the machine takes the kernel's slow way (some 100 ns), also those of processes that are
//! not recorded: open it when there is such a program.
//!
//! Process ids are those of the first process namespace of the machine, which the kernel's filter goes by too. What a descriptor is, is
//! known of sockets that calls opened, also of those that a child or another program of the process inherits; of others a call that
//! moves bytes tells, or `/proc` (kernels before 6.3).
//!
//! A program may end long before anybody can look at it, so nothing that must be known is looked up in `/proc`: which process a
//! thread is of tells its making, which connection a socket is tell its changes of state (`ties`). These are of the whole machine, in an
//! instance of their own: segments arrive while anybody runs.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::calls::{Calls, Program, SyscallEvent, TABLE, What};
use super::descriptors;
use super::format::{Field, Format};
use super::names::Named;
use super::socks::{self, SockLayout};
use super::state::STATE;
use super::tracefs::{Instance, Room, Unavailable};
use crate::diag::{Diag, monotonic};

/// 10000 calls a MiB.
const ROOM: Room = Room { least: 1024, all: 32 << 10 };
/// Changes of state: 10000 a MiB.
const STATES_ROOM: Room = Room { least: 1024, all: 4 << 10 };
/// How often names are looked for.
pub(crate) const NAMES: Duration = Duration::from_millis(100);

/// The kernel's own thread that makes others: it makes no system call, and stands for "nobody" in a filter that means
/// "everybody" when it is empty.
const NOBODY: &str = "2";
const NEW: &str = "task/task_newtask";
const EXEC: &str = "sched/sched_process_exec";
const EXIT: &str = "sched/sched_process_exit";

/// An event, and where its fields stand.
#[derive(Clone, Debug)]
enum Kind {
    Enter(usize, [Option<Field>; 6]),
    Exit(usize, Field),
    /// A thread makes another, of its own process or of a new one: its id, and how.
    New([Field; 2]),
    /// The process becomes another program: which, and the id that the thread had.
    Exec([Field; 2]),
    /// A thread ends.
    Gone,
    Sock(SockLayout),
}

type Kinds = HashMap<u16, Kind>;

/// Those tracepoints, being read.
#[derive(Debug)]
pub struct Syscalls {
    instance: Instance,
    kinds: Kinds,
    /// Changes of state; `None`: the kernel has no such events.
    states: Option<(Instance, Kinds)>,
    ahead: Vec<(u64, u32, What)>,
    calls: Calls,
    /// Of the namespace in which this was opened.
    diag: Option<Diag>,
    named: Instant,
}

/// Turns an event on whose layout is understood.
fn enable(
    instance: &Instance,
    event: &str,
    kinds: &mut Kinds,
    make: impl FnOnce(&Format) -> Option<Kind>,
) -> Result<bool, Unavailable> {
    let Some(format) = instance.format(event) else { return Ok(false) };
    let Some(kind) = make(&format) else { return Ok(false) };
    kinds.insert(format.id, kind);
    instance.write(&format!("events/{event}/enable"), "1").map(|()| true)
}

impl Syscalls {
    /// Records nobody's calls yet.
    ///
    /// # Errors
    /// One sentence for the user: no root, no tracefs, no such tracepoints.
    pub fn open() -> Result<Syscalls, Unavailable> {
        let instance = Instance::new(ROOM)?;
        instance.write("set_event_pid", NOBODY)?;
        instance.write("options/event-fork", "1")?;
        let sock = |event: &str, format: &Format| SockLayout::new(event, format).map(Kind::Sock);
        let mut kinds = Kinds::new();
        let mut any = false;
        for (at, (name, ..)) in TABLE.iter().enumerate() {
            any |= enable(&instance, &format!("syscalls/sys_enter_{name}"), &mut kinds, |format| {
                let mut arguments = format.behind("__syscall_nr");
                Some(Kind::Enter(at, std::array::from_fn(|_| arguments.next())))
            })?;
            enable(&instance, &format!("syscalls/sys_exit_{name}"), &mut kinds, |format| {
                Some(Kind::Exit(at, format.field("ret")?))
            })?;
        }
        if !any {
            return Err(Unavailable::NoEvents("syscalls:sys_enter_*".into()));
        }
        enable(&instance, NEW, &mut kinds, |format| {
            Some(Kind::New([format.field("pid")?, format.field("clone_flags")?]))
        })?;
        enable(&instance, EXEC, &mut kinds, |format| {
            Some(Kind::Exec([format.field("filename")?, format.field("old_pid")?]))
        })?;
        enable(&instance, EXIT, &mut kinds, |_| Some(Kind::Gone))?;
        let mut moved = true;
        for event in socks::MOVED {
            moved &= enable(&instance, event, &mut kinds, |format| sock(event, format))?;
        }
        let states = Instance::new(STATES_ROOM).and_then(|states| {
            let mut kinds = Kinds::new();
            for event in [STATE, socks::DESTROYED] {
                enable(&states, event, &mut kinds, |format| sock(event, format))?;
            }
            Ok((states, kinds))
        });
        let calls = Calls::new(moved);
        let (ahead, named) = (Vec::new(), Instant::now());
        Ok(Syscalls { instance, kinds, states: states.ok(), ahead, calls, diag: Diag::open().ok(), named })
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
    pub fn add(&mut self, pid: u32) -> io::Result<()> {
        // while it waits for this: it may be gone when its first call is read
        self.calls.process(pid, &process);
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
        let Syscalls { instance, kinds, states, ahead, calls, .. } = self;
        let missed = instance.read(&mut |at, data| ahead.extend(decode(kinds, at, data)))?;
        if let Some((states, kinds)) = states
            && states.read(&mut |at, data| ahead.extend(decode(kinds, at, data)))?
        {
            calls.ties.missed();
        }
        // what was lost is older than all that is still there
        if missed {
            calls.forget();
        }
        ahead.sort_by_key(|(at, _, what)| (*at, what.order()));
        let complete = ahead.partition_point(|event| event.0 < now);
        for (at, tid, what) in ahead.drain(..complete) {
            calls.handle(at, tid, what, &process, &descriptors::inode, each);
        }
        let clock = || monotonic().unwrap_or(u64::MAX);
        calls.descriptors.settle(now, &mut calls.names, &descriptors::inode, clock);
        Ok(())
    }

    /// Hands out the programs of which [`drain`](Self::drain) has heard since the last time.
    pub fn programs(&mut self) -> Vec<Program> {
        std::mem::take(&mut self.calls.programs)
    }

    /// Hands out what has been found out of sockets since the last time; looks around no more often than every 100 ms.
    pub fn names(&mut self, each: &mut dyn FnMut(Named)) {
        let Calls { names, ties, .. } = &mut self.calls;
        if self.named.elapsed() >= NAMES {
            self.named = Instant::now();
            names.look(&mut self.diag, &mut |names, number| ties.settle(number, names));
        }
        names.tell(false, each);
    }

    /// As [`names`](Self::names), and nothing more will be found out.
    pub fn last_names(&mut self, each: &mut dyn FnMut(Named)) {
        let Calls { names, ties, .. } = &mut self.calls;
        names.look(&mut self.diag, &mut |_, _| ());
        ties.guessed().into_iter().for_each(|number| ties.settle(number, names));
        names.tell(true, each);
    }

    /// Events that the kernel lost, because they were not read fast enough. Reads a file for each processor.
    pub fn lost(&self) -> u64 {
        self.instance.lost()
    }

    /// Likewise of changes of state, of the whole machine.
    pub fn lost_states(&self) -> u64 {
        self.states.as_ref().map_or(0, |(states, _)| states.lost())
    }
}

fn decode(kinds: &Kinds, at: u64, data: &[u8]) -> Option<(u64, u32, What)> {
    // The same in all kernels: type u16, flags u8, preemption u8, pid i32.
    let id = u16::from_ne_bytes(data.get(..2)?.try_into().ok()?);
    let tid = u32::from_ne_bytes(data.get(4..8)?.try_into().ok()?);
    let what = match kinds.get(&id)? {
        Kind::Enter(call, fields) => {
            What::Enter(*call, fields.map(|field| field.and_then(|field| field.number(data)).unwrap_or(0)))
        }
        Kind::Exit(call, field) => What::Exit(*call, field.number(data)? as i64),
        Kind::New([tid, flags]) => What::New {
            tid: tid.number(data)? as u32,
            thread: flags.number(data)? & libc::CLONE_THREAD as u64 != 0,
        },
        Kind::Exec([path, before]) => {
            What::Exec { path: text(path.number(data)?, data), before: before.number(data)? as u32 }
        }
        Kind::Gone => What::Gone,
        Kind::Sock(layout) => What::Sock(layout.decode(data)?),
    };
    Some((at, tid, what))
}

/// A text in an event: where it begins, and its length in the high 16 bits.
fn text(place: u64, data: &[u8]) -> String {
    let (from, length) = ((place & 0xffff) as usize, (place >> 16 & 0xffff) as usize);
    let bytes = data.get(from..from + length).unwrap_or_default();
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

/// The process of a thread.
fn process(tid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}
