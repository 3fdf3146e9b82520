//! An ordinary user, a program of theirs that runs already, and `polyrail trace --pid`.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use polyrail_trace::Recorded;
use tempfile::TempDir;

use crate::support::{POLYRAIL, is_root, open, until};

/// What each program begins with: whatever happens, it ends.
pub const BEGIN: &str = "
import os, select, signal, socket, subprocess, sys, threading, time
signal.alarm(300)
def say(*what): print(*what, flush=True)
def wait(): return sys.stdin.readline().strip()
def pair(server):
    c = socket.create_connection(server.getsockname())
    return c, server.accept()[0]
def ping(ends, count, size):
    for _ in range(count):
        ends[0].sendall(bytes(size))
        left = size
        while left: left -= len(ends[1].recv(left))
";

/// A place where an ordinary user may write and execute. Tests run as root become one, for whom there are no tracepoints.
pub struct User {
    place: TempDir,
    pub drops: bool,
    /// The Python that the user may execute: there may be one that is root's alone.
    pub python: String,
}

impl User {
    /// `None`, after saying so: nobody can be followed here.
    #[track_caller]
    pub fn new() -> Option<User> {
        let place = tempfile::tempdir().unwrap();
        let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        open(place.path(), 0o777);
        fs::copy(POLYRAIL, place.path().join("polyrail")).unwrap();
        open(&place.path().join("polyrail"), 0o755);
        let yama = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
        if !["", "0"].contains(&yama.trim()) {
            polyrail_testing::lacking(
                "a kernel that lets users follow their programs (kernel.yama.ptrace_scope=0)",
            );
            return None;
        }
        let mut user = User { place, drops: is_root(), python: String::new() };
        let runs = |python: &&str| {
            let output = user.command(python).args(["-c", "import socket"]).output();
            output.is_ok_and(|output| output.status.success())
        };
        let Some(python) = ["python3", "/usr/bin/python3"].into_iter().find(runs) else {
            polyrail_testing::lacking("setpriv, or Python for other users than root");
            return None;
        };
        user.python = python.into();
        Some(user)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(if self.drops { "setpriv" } else { program });
        if self.drops {
            command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", program]);
        }
        command.current_dir(&self.place);
        command
    }

    /// A program that has said its first line and waits to be told to go on.
    pub fn program(&self, script: &str) -> Program {
        let mut command = self.command(&self.python);
        command.args(["-c", &format!("{BEGIN}{script}")]);
        self.start(command)
    }

    pub fn start(&self, mut command: Command) -> Program {
        Program::new(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    pub fn tracing(&self, pid: u32, options: &[&str]) -> Command {
        let mut command = self.command(self.path("polyrail").to_str().unwrap());
        command.args(["trace", "-o", "run", "--pid", &pid.to_string()]).args(options);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Follows a program, whose threads have all stopped and gone on by then.
    pub fn follow(&self, program: &Program, options: &[&str]) -> Tracer {
        let mut tracer = Tracer::new(self.tracing(program.pid(), options).spawn().unwrap());
        let line = tracer.line();
        assert!(line.contains("by ptrace"), "{line}{}", tracer.rest());
        tracer
    }

    pub fn recorded(&self) -> Recorded {
        open(&self.path("run"))
    }
}

/// A program that says things and is told things, line by line.
pub struct Program {
    child: Child,
    said: BufReader<ChildStdout>,
    /// What it has said before it waited.
    pub first: String,
}

impl Program {
    pub fn new(mut child: Child) -> Program {
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut program = Program { child, said, first: String::new() };
        program.first = program.hear();
        program
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim().into()
    }

    pub fn go(&mut self) {
        self.tell("go");
    }

    pub fn tell(&mut self, line: &str) {
        self.child.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    pub fn send(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid().cast_signed()), signal).unwrap();
    }

    /// The rest of what it says, and how it ends.
    pub fn end(mut self) -> (String, ExitStatus) {
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        (rest.trim().into(), self.child.wait().unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `polyrail trace --pid`.
pub struct Tracer {
    child: Child,
    told: BufReader<std::process::ChildStderr>,
}

impl Tracer {
    pub fn new(mut child: Child) -> Tracer {
        let told = BufReader::new(child.stderr.take().unwrap());
        Tracer { child, told }
    }

    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.told.read_line(&mut line).unwrap();
        line
    }

    pub fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.told.read_to_string(&mut rest).unwrap();
        rest
    }

    /// It ends by itself, in order.
    pub fn ends(mut self) -> String {
        let rest = self.rest();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{rest}");
        rest
    }

    pub fn send(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a byte each time that it is told to, until it is told no more.
pub const ECHO: &str = "
a, b = socket.socketpair()
say('ready')
while wait():
    a.send(b'x'); b.recv(1)
    say('done')
say('end')
sys.exit(9)
";

impl Program {
    /// Does one turn of [`ECHO`].
    pub fn turn(&mut self) {
        self.go();
        assert_eq!(self.hear(), "done");
    }

    /// Ends [`ECHO`], which has come to no harm.
    pub fn end_echo(mut self) {
        self.turn();
        drop(self.child.stdin.take());
        let (said, status) = self.end();
        assert_eq!((said.as_str(), status.code()), ("end", Some(9)));
    }

    /// What the kernel calls its state.
    pub fn state(&self) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        status.lines().find_map(|line| line.strip_prefix("State:")).unwrap().trim().into()
    }

    pub fn waits(&self, how: WaitPidFlag) -> WaitStatus {
        let mut status = WaitStatus::StillAlive;
        until("its state changes", || {
            let pid = Pid::from_raw(self.pid().cast_signed());
            status = waitpid(pid, Some(how | WaitPidFlag::WNOHANG)).unwrap();
            status != WaitStatus::StillAlive
        });
        status
    }
}
