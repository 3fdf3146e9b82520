//! A program that runs already, recorded by an ordinary user: followed by ptrace. What it did is recorded whole, and it does what it would have done
//! without, whatever happens to it or to who follows it.

mod setting;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus};
use nix::unistd::Pid;
use polyrail_trace::model::{CallEvent, Events, Kind};

use super::support::{Counts, POLYRAIL, calls, counts, open, until};
use setting::{BEGIN, ECHO, Program, User};

fn bytes(calls: &[CallEvent], name: &str) -> u64 {
    calls.iter().filter(|call| call.call.name() == name).map(|call| u64::from(call.bytes)).sum()
}

/// Calls that moved something, and how much.
fn moved(calls: &[CallEvent], name: &str) -> (usize, u64) {
    let some = |call: &&CallEvent| call.call.name() == name && call.bytes > 0;
    (calls.iter().filter(some).count(), bytes(calls, name))
}

fn tracer_of(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix("TracerPid:")).unwrap_or("gone").trim().into()
}

#[test]
fn all_that_a_program_does_from_then_on_is_recorded() {
    let Some(user) = User::new() else { return };
    // a connection from before, one that is made and closed at once, many of them by the same descriptors, a thread, a child, another program
    let mut program = user.program(
        "
s = socket.create_server(('127.0.0.1', 0))
old = pair(s)
ping(old, 5, 1000)
say(s.getsockname()[1])
wait()
def work(): ping(old, 10, 100)
t = threading.Thread(target=work); t.start(); t.join()
for turn in range(20):
    new = pair(s)
    ping(new, 3, 7)
    for end in new: end.close()
child = os.fork()
if child == 0:
    ping(old, 4, 31)
    mine = pair(s)
    ping(mine, 2, 11)
    os._exit(0)
os.waitpid(child, 0)
d = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); d.bind(('127.0.0.1', 0))
d.sendto(b'xyz', d.getsockname()); d.recv(9)
subprocess.run([sys.executable, '-c', 'import socket; a, b = socket.socketpair(); a.send(bytes(17)); b.recv(99)'])
say(child)
sys.exit(7)
",
    );
    let port: u16 = program.first.parse().unwrap();
    let tracer = user.follow(&program, &[]);
    program.go();
    let child: u32 = program.hear().parse().unwrap();
    let pid = program.pid();
    let (_, status) = program.end();
    assert_eq!(status.code(), Some(7));
    tracer.ends();
    let recorded = user.recorded();
    let run = recorded.run();
    assert_eq!((run.status, run.broke_off), (Some(7), false), "{:?}", run.warnings);
    assert!(run.warnings.iter().any(|text| text.contains("by ptrace")), "{:?}", run.warnings);
    let all = calls(&recorded);
    let of = |pid: u32| -> Vec<CallEvent> {
        let process =
            |call: &&CallEvent| run.processes[run.threads[call.thread as usize].process as usize].pid == pid;
        all.iter().filter(process).copied().collect()
    };
    let (own, others) = (of(pid), of(child));
    assert_eq!(moved(&own, "sendto"), (10 + 60 + 1, 1000 + 60 * 7 + 3));
    assert_eq!(moved(&own, "recvfrom"), (10 + 60 + 1, 1000 + 60 * 7 + 3));
    assert_eq!(moved(&others, "sendto"), (4 + 2, 4 * 31 + 2 * 11));
    let number = |calls: &[CallEvent], name: &str| {
        calls.iter().filter(|call| call.call.name() == name && call.result >= 0).count()
    };
    assert_eq!([number(&own, "connect"), number(&own, "accept4")], [20, 20]);
    assert_eq!([number(&others, "connect"), number(&others, "accept4")], [1, 1]);
    // the other program's are neither's
    assert_eq!(moved(&all, "sendto").1, 1000 + 60 * 7 + 3 + 4 * 31 + 22 + 17);
    assert_eq!(run.processes.len(), 3, "{:?}", run.processes);
    assert!(run.threads.len() >= 4, "{:?}", run.threads);
    // each connection by both its names, each end's peer is the other; the old one is the same in parent and child
    let mut sockets = std::collections::BTreeMap::new();
    for call in all.iter().filter(|call| call.call.name() == "sendto" && call.bytes > 0) {
        let socket = &run.sockets[call.socket.expect("its socket is known") as usize];
        let entry: &mut (u64, _) = sockets.entry(call.socket).or_insert((0, socket.clone()));
        entry.0 += u64::from(call.bytes);
    }
    let mut sent: Vec<u64> = Vec::new();
    for (bytes, socket) in sockets.values() {
        if socket.kind == Kind::Tcp {
            assert_eq!(socket.remote.map(|name| name.port()), Some(port), "{socket:?}");
            assert!(socket.local.is_some() && socket.peer.is_some(), "{socket:?}");
        }
        sent.push(*bytes);
    }
    sent.sort_unstable();
    let mut expected = vec![21; 20];
    expected.extend([3, 17, 22, 1000 + 4 * 31]);
    expected.sort_unstable();
    assert_eq!(sent, expected);
}

#[test]
fn an_interrupt_ends_the_recording_and_not_the_program() {
    let Some(user) = User::new() else { return };
    let mut program = user.program(ECHO);
    for (signal, turns) in [(Signal::SIGINT, 3), (Signal::SIGTERM, 2)] {
        let tracer = user.follow(&program, &[]);
        assert_ne!(tracer_of(program.pid()), "0");
        (0..turns).for_each(|_| program.turn());
        tracer.send(signal);
        tracer.ends();
        assert_eq!(tracer_of(program.pid()), "0");
        program.turn();
        let recorded = user.recorded();
        assert_eq!(moved(&calls(&recorded), "sendto"), (turns, turns as u64));
        let run = recorded.run();
        assert_eq!((run.status, run.broke_off), (None, false), "{:?}", run.warnings);
        fs::rename(user.path("run"), user.path(signal.as_str())).unwrap();
    }
    program.end_echo();
}

#[test]
fn a_recorder_that_is_killed_leaves_the_program_alone() {
    let Some(user) = User::new() else { return };
    let mut program = user.program(ECHO);
    let tracer = user.follow(&program, &[]);
    program.turn();
    // what is written meanwhile is readable
    until("something is written", || {
        let files = fs::read_dir(user.path("run")).into_iter().flatten().flatten();
        files.into_iter().any(|file| moved(&calls(&open(&file.path())), "sendto").0 == 1)
    });
    // in the midst of calls
    (0..50).for_each(|_| program.go());
    drop(tracer);
    (0..50).for_each(|_| assert_eq!(program.hear(), "done"));
    until("nobody follows it", || tracer_of(program.pid()) == "0");
    assert!(user.recorded().run().broke_off);
    program.end_echo();
}

#[test]
fn recording_for_a_time_ends_and_the_program_goes_on() {
    let Some(user) = User::new() else { return };
    let mut program = user.program(ECHO);
    let tracer = user.follow(&program, &["--for", "500ms"]);
    program.turn();
    let said = tracer.ends();
    assert!(said.contains("as --for says"), "{said}");
    assert_eq!(tracer_of(program.pid()), "0");
    program.end_echo();
}

/// Stops by signals are the program's and its parent's matter, as ever.
#[test]
fn a_program_that_is_stopped_stays_so_until_it_is_to_go_on() {
    let Some(user) = User::new() else { return };
    let mut program = user.program(ECHO);
    let stopped = WaitStatus::Stopped(Pid::from_raw(program.pid().cast_signed()), Signal::SIGSTOP);
    let goes_on = WaitStatus::Continued(Pid::from_raw(program.pid().cast_signed()));
    // before it is followed
    program.send(Signal::SIGSTOP);
    assert_eq!(program.waits(WaitPidFlag::WUNTRACED), stopped);
    let tracer = user.follow(&program, &[]);
    program.go();
    std::thread::sleep(Duration::from_millis(100));
    assert!(program.state().contains("stop"), "{}", program.state());
    program.send(Signal::SIGCONT);
    assert_eq!(program.waits(WaitPidFlag::WCONTINUED), goes_on);
    assert_eq!(program.hear(), "done");
    // while it is followed
    for _ in 0..3 {
        program.send(Signal::SIGSTOP);
        assert_eq!(program.waits(WaitPidFlag::WUNTRACED), stopped);
        program.go();
        std::thread::sleep(Duration::from_millis(50));
        assert!(program.state().contains("stop"), "{}", program.state());
        program.send(Signal::SIGCONT);
        assert_eq!(program.waits(WaitPidFlag::WCONTINUED), goes_on);
        assert_eq!(program.hear(), "done");
    }
    // and it stays so when it is let go
    program.send(Signal::SIGSTOP);
    assert_eq!(program.waits(WaitPidFlag::WUNTRACED), stopped);
    tracer.send(Signal::SIGINT);
    tracer.ends();
    until("it is let go", || program.state().contains("T (stopped)"));
    program.send(Signal::SIGCONT);
    assert_eq!(moved(&calls(&user.recorded()), "sendto"), (4, 4));
    program.end_echo();
}

/// Who waits is not disturbed by who comes and goes; signals arrive as ever, also those without a name.
#[test]
fn calls_that_wait_wait_on_and_signals_arrive() {
    let Some(user) = User::new() else { return };
    fs::copy(super::support::program("attach"), user.path("attach")).unwrap();
    let mut program = user.start(user.command("./attach"));
    // all four wait
    let in_kernel = |tid: &fs::DirEntry| {
        let call = fs::read_to_string(tid.path().join("syscall")).unwrap_or_default();
        !call.starts_with("running")
    };
    let all_wait = |program: &Program| {
        until("all threads wait", || {
            let tasks: Vec<_> =
                fs::read_dir(format!("/proc/{}/task", program.pid())).unwrap().flatten().collect();
            tasks.len() == 5 && tasks.iter().all(in_kernel)
        });
    };
    for _ in 0..5 {
        all_wait(&program);
        let tracer = user.follow(&program, &[]);
        all_wait(&program);
        tracer.send(Signal::SIGINT);
        tracer.ends();
        fs::remove_dir_all(user.path("run")).unwrap();
    }
    all_wait(&program);
    let tracer = user.follow(&program, &[]);
    program.tell("signal");
    assert_eq!(program.hear(), "2 handled");
    program.go();
    let (said, status) = program.end();
    assert_eq!(status.code(), Some(5));
    // elsewhere some calls cannot be begun again as if nothing had happened
    if cfg!(target_arch = "x86_64") {
        assert!(said.starts_with("0 0 0 "), "{said}");
    }
    // the second signal may come before the thread waits again
    let interrupted: usize = said.rsplit(' ').next().unwrap().parse().unwrap();
    assert!([1, 2].contains(&interrupted), "{said}");
    tracer.ends();
    let all = calls(&user.recorded());
    assert_eq!(moved(&all, "recvfrom"), (3, 3));
    let ended_early = all.iter().filter(|call| call.call.name() == "recvfrom" && call.result == -4);
    // all, but for the first if it had begun before it was followed
    assert!([interrupted - 1, interrupted].contains(&ended_early.count()), "{all:?}");
    assert!(all.iter().any(|call| call.call.name() == "epoll_wait" && call.result == 1), "{all:?}");
}

#[test]
fn a_program_that_is_killed_or_becomes_another_ends_the_recording_with_it() {
    let Some(user) = User::new() else { return };
    let program = user.program(ECHO);
    let tracer = user.follow(&program, &[]);
    program.send(Signal::SIGKILL);
    assert_eq!(program.end().1.signal(), Some(9));
    tracer.ends();
    assert_eq!(user.recorded().run().status, Some(137));
    fs::remove_dir_all(user.path("run")).unwrap();
    // a thread that is not the first becomes another program: all others are gone, and it has the process's number
    let mut program = user.program(
        "
say('ready'); wait()
a, b = socket.socketpair(); a.send(bytes(3)); b.recv(3)
then = 'import socket, sys; a, b = socket.socketpair(); a.send(bytes(19)); b.recv(19); print(\"other\", flush=True); sys.stdin.readline(); sys.exit(6)'
others = [threading.Thread(target=lambda: time.sleep(1000), daemon=True) for _ in range(3)]
for other in others: other.start()
threading.Thread(target=lambda: os.execv(sys.executable, [sys.executable, '-c', then])).start()
time.sleep(1000)
",
    );
    let pid = program.pid();
    let tracer = user.follow(&program, &[]);
    program.go();
    assert_eq!(program.hear(), "other");
    program.go();
    assert_eq!(program.end().1.code(), Some(6));
    tracer.ends();
    let recorded = user.recorded();
    assert_eq!(recorded.run().status, Some(6));
    assert_eq!(moved(&calls(&recorded), "sendto"), (2, 22));
    let own: Counts = counts(&recorded, |process| process == pid);
    assert_eq!(own["sendto"].1, 22);
}

/// Threads and processes that begin and end in great numbers, also while the program begins to be followed.
#[test]
fn threads_and_processes_that_come_and_go() {
    let Some(user) = User::new() else { return };
    let mut program = user.program(
        "
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
stop = False
def churn():
    while not stop: t = threading.Thread(target=lambda: None); t.start(); t.join()
churning = [threading.Thread(target=churn) for _ in range(3)]
for t in churning: t.start()
say('ready'); wait(); stop = True
for t in churning: t.join()
def one(): a.send(b'xyz'); b.recv(3)
for _ in range(10):
    threads = [threading.Thread(target=one) for _ in range(10)]
    for t in threads: t.start()
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0: one(); os._exit(0)
        children.append(child)
    for t in threads: t.join()
    for child in children: os.waitpid(child, 0)
say('end'); sys.exit(2)
",
    );
    let tracer = user.follow(&program, &[]);
    program.go();
    let (said, status) = program.end();
    assert_eq!((said.as_str(), status.code()), ("end", Some(2)));
    tracer.ends();
    let recorded = user.recorded();
    assert_eq!(moved(&calls(&recorded), "sendto"), (130, 390));
    assert_eq!(moved(&calls(&recorded), "recvfrom"), (130, 390));
    assert_eq!(recorded.run().processes.len(), 31);
}

#[test]
fn programs_with_more_rights_have_them() {
    let Some(user) = User::new() else { return };
    if !user.drops {
        return polyrail_testing::lacking("root, who can make setuid programs");
    }
    let own = user.path("id");
    fs::copy("/usr/bin/id", &own).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o4755)).unwrap();
    let run = "subprocess.run(['./id', '-u'])";
    let mut program = user.program(&format!("say('ready'); wait(); {run}; sys.exit(4)"));
    let without = user.command("./id").arg("-u").output().unwrap();
    if String::from_utf8_lossy(&without.stdout).trim() != "0" {
        return polyrail_testing::lacking("a file system with setuid programs");
    }
    let tracer = user.follow(&program, &[]);
    program.go();
    let (said, status) = program.end();
    assert_eq!((said.as_str(), status.code()), ("0", Some(4)));
    let told = tracer.ends();
    assert!(told.contains("became id, which has more rights"), "{told}");
}

#[test]
fn what_is_not_seen_is_told() {
    let Some(user) = User::new() else { return };
    let mut program = user.program(
        "
import ctypes
say('ready'); wait()
c = ctypes.CDLL(None); c.syscall(425, 4, ctypes.create_string_buffer(120))
try: subprocess.run(['./foreign'])
except OSError: pass
",
    );
    let source = ".globl _start\n_start: movl $1, %eax\n movl $7, %ebx\n int $0x80\n";
    fs::write(user.path("foreign.s"), source).unwrap();
    let mut build = Command::new("cc");
    build.args(["-m32", "-nostdlib", "-static", "-o", "foreign", "foreign.s"]).current_dir(user.path(""));
    let has_foreign = build.output().is_ok_and(|output| output.status.success())
        && user.command("./foreign").status().is_ok_and(|status| status.code() == Some(7));
    let tracer = user.follow(&program, &[]);
    program.go();
    assert!(program.end().1.success());
    let told = tracer.ends();
    assert!(told.contains("it uses io_uring"), "{told}");
    assert_eq!(told.contains("system calls of 32 bits"), has_foreign, "{told}");
}

#[test]
fn whoever_cannot_be_recorded_is_refused_with_the_reason() {
    let Some(user) = User::new() else { return };
    let refused = |pid: u32, says: &str| {
        let output = user.tracing(pid, &[]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(125) && text.contains(says), "{pid} {says}: {text}");
        assert!(!user.path("run").exists());
    };
    refused(4_194_999, "there is no process 4194999");
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd") {
        refused(2, "is a part of the kernel");
    }
    if user.drops {
        let mut roots = Command::new("sleep").arg("300").spawn().unwrap();
        refused(roots.id(), "it belongs to user 0, and this is user 65534");
        roots.kill().unwrap();
        roots.wait().unwrap();
    }
    let mut program = user.program(
        "
import ctypes
own = threading.Thread(target=lambda: (say(threading.get_native_id()), time.sleep(1000)), daemon=True); own.start()
wait(); ctypes.CDLL(None).prctl(4, 0)
say('done'); wait()
",
    );
    let thread: u32 = program.first.parse().unwrap();
    refused(thread, &format!("is a thread of process {}: polyrail trace --pid", program.pid()));
    program.turn();
    refused(program.pid(), "may not be followed: it has more rights than this, or protects itself");
    program.go();
    program.end();
    // who is followed already
    let program = user.program(ECHO);
    let tracer = user.follow(&program, &[]);
    let mut again = user.command(user.path("polyrail").to_str().unwrap());
    let output = again.args(["trace", "-o", "other", "--pid", &program.pid().to_string()]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("is followed by process ") && text.contains(" already"), "{text}");
    tracer.send(Signal::SIGINT);
    tracer.ends();
    fs::remove_dir_all(user.path("run")).unwrap();
    program.end_echo();
    // itself, and who waits for it
    let script = "exec ./polyrail trace -o run --pid $$";
    let output = user.command("sh").args(["-c", script]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("is this command itself"), "{text}");
    let script = "./polyrail trace -o run --pid $$; true";
    let output = user.command("sh").args(["-c", script]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("this command was started by process"), "{text}");
}

#[test]
fn a_program_that_is_recorded_already_is_not_recorded_twice() {
    let Some(user) = User::new() else { return };
    let library = "libpolyrail_preload.so";
    fs::copy(super::support::recorder().join(library), user.path(library)).unwrap();
    let mut command = user.command("./polyrail");
    let script = format!("{BEGIN}say(os.getpid()); wait()");
    command.args(["trace", "-o", "first", "--no-kernel", "--", &user.python, "-c", &script]);
    command.env("POLYRAIL_RECORDER_DIR", user.path("")).stderr(Stdio::null());
    let mut program = user.start(command);
    let pid = program.first.parse().unwrap();
    let output = user.tracing(pid, &[]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("is recorded already, by a polyrail trace that writes to"), "{text}");
    program.go();
    assert!(program.end().1.success());
}

/// The kernel's tracepoints go by numbers that processes of a container do not have.
#[test]
fn in_a_namespace_of_process_ids_it_is_followed() {
    if !super::unseen::may_unshare(&["-pf", "--mount-proc"]) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let child =
        format!("{BEGIN}a, b = socket.socketpair(); say('ready'); wait(); a.send(bytes(41)); b.recv(41)");
    let outer = "
import subprocess, sys
child = subprocess.Popen(['python3', '-c', sys.argv[3]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
tracer = subprocess.Popen([sys.argv[1], 'trace', '-o', sys.argv[2], '--pid', str(child.pid)], stderr=subprocess.PIPE)
print(tracer.stderr.readline().decode())
child.stdin.write(b'go\\n'); child.stdin.close(); child.wait(); tracer.wait()
";
    let mut command = Command::new("unshare");
    command.args(["-pf", "--mount-proc", "python3", "-c", outer, POLYRAIL]).arg(place.path().join("run"));
    let output = command.arg(&child).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("by ptrace"), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(moved(&calls(&open(&place.path().join("run"))), "sendto"), (1, 41));
}
