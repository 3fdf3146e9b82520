//! What is chosen is recorded, and nothing else; what is kept is whole: limits of time and size, the last seconds, filters.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use polyrail_trace::model::{CallEvent, Events};
use tempfile::TempDir;

use super::support::{POLYRAIL, Traced, calls, open, recorder, trace_with, tracing, until};

/// Sends datagrams whose lengths count, until a file is there or so many were sent, and says how many.
const COUNTER: &str = "
import os, signal, socket, sys
signal.alarm(300)
most, end = int(sys.argv[1]), sys.argv[2]
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
text = bytes(100)
sent = 0
while sent < most and (not sent or sent % 100 or not os.path.exists(end)):
    a.send(text[:1 + sent % 97]); b.recv(100)
    sent += 1
print(os.getpid(), 'sent', sent)
";

fn counted(traced: &Traced) -> usize {
    let line = traced
        .stdout
        .lines()
        .find(|line| line.contains(" sent "))
        .unwrap_or_else(|| panic!("{}", traced.stderr));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Bytes of each call of this name, in order.
fn bytes(calls: &[CallEvent], name: &str) -> Vec<u32> {
    calls.iter().filter(|call| call.call.name() == name).map(|call| call.bytes).collect()
}

fn expected(from: usize, count: usize) -> Vec<u32> {
    (from..from + count).map(|number| 1 + number as u32 % 97).collect()
}

#[test]
fn recording_ends_in_time_and_the_command_goes_on() {
    let place = tempfile::tempdir().unwrap();
    let end = place.path().join("end");
    let mut command = tracing(&place.path().join("run"), &["--no-kernel", "--for", "1s"]);
    command.args(["python3", "-c", COUNTER, "1000000000", end.to_str().unwrap()]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // the session is over when nothing of it is in shared memory any more but its page
    let session = session_of(&child);
    until("recording ends", || {
        let page = fs::read(session.join("session")).unwrap_or_default();
        page.get(8) == Some(&1)
    });
    assert_eq!(child.try_wait().unwrap(), None);
    fs::write(&end, "").unwrap();
    let traced = Traced::of(wait(child), place);
    assert_eq!(traced.status, Some(0), "{}", traced.stderr);
    assert!(traced.warnings().contains("as --for says"), "{}", traced.warnings());
    assert!(
        traced.stderr.contains("as --for says") && !traced.stderr.contains("still running"),
        "{}",
        traced.stderr
    );
    let sent = bytes(&traced.calls(), "send");
    assert!(sent.len() < counted(&traced), "{}", sent.len());
    // all up to there: none, where the program took longer to begin
    assert_eq!(sent, expected(0, sent.len()));
    assert!(!session.exists());
}

/// The directory in shared memory of the command's session.
fn session_of(child: &Child) -> std::path::PathBuf {
    let start = format!("polyrail-trace-{}-", child.id());
    let mut found = None;
    until("the session begins", || {
        let all = fs::read_dir("/dev/shm").unwrap().flatten();
        found = all.map(|one| one.path()).find(|path| {
            path.file_name().unwrap().to_string_lossy().starts_with(&start) && path.join("session").exists()
        });
        found.is_some()
    });
    found.unwrap()
}

fn wait(child: Child) -> std::process::Output {
    child.wait_with_output().unwrap()
}

#[test]
fn a_recording_is_as_long_as_it_may_be_and_no_longer() {
    let traced = trace_with(
        &["--no-kernel", "--max-size", "1M"],
        &["python3", "-c", COUNTER, "400000", "/nowhere"],
        |_| {},
    );
    assert_eq!(traced.status, Some(0), "{}", traced.stderr);
    assert!(traced.warnings().contains("as --max-size allows"), "{}", traced.warnings());
    assert_eq!(counted(&traced), 400_000);
    let sent = bytes(&traced.calls(), "send");
    assert!(sent.len() < 400_000 && sent.len() > 10_000, "{}", sent.len());
    assert_eq!(sent, expected(0, sent.len()), "all up to there");
    // what was in rings is written, too, when the file is full
    assert!(traced.size() < 4 << 20, "{}", traced.size());
}

#[test]
fn the_last_seconds_are_kept_and_written_when_somebody_asks() {
    let place = tempfile::tempdir().unwrap();
    let run = place.path().join("run");
    let begun = place.path().join("begun");
    let end = place.path().join("end");
    let before = format!(
        "
import socket, time
early = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
for _ in range(1000):
    early[0].sendmsg([bytes(99)])
    early[1].recv(99)
open({begun:?}, 'w')
"
    );
    let mut command = tracing(&run, &["--no-kernel", "--last", "1s"]);
    command.args(["python3", "-c", &format!("{before}{COUNTER}"), "1000000000", end.to_str().unwrap()]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the program has begun", || begun.exists());
    // pictures, until one shows nothing of how it began
    let mut pictures = 0;
    let mut picture = None;
    until("what is old is left out", || {
        pictures += 1;
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGUSR1).unwrap();
        let path = run.join(pictures.to_string());
        let is_file = |path: &std::path::Path| path.extension().is_some_and(|end| end == "trace");
        until("the picture is there", || {
            fs::read_dir(&path).is_ok_and(|files| files.flatten().any(|file| is_file(&file.path())))
        });
        let recorded = open(&path);
        let all = calls(&recorded);
        let done = !all.is_empty() && bytes(&all, "sendmsg").is_empty();
        picture = Some((all, recorded));
        done
    });
    fs::write(&end, "").unwrap();
    let output = wait(child);
    let (all, recorded) = picture.unwrap();
    let sent = bytes(&all, "send");
    let first = sent[0] as usize - 1;
    assert_eq!(sent, expected(first, sent.len()), "nothing is missing in between");
    // told of before what is kept: the program, and its sockets
    assert!(
        recorded
            .run()
            .processes
            .iter()
            .any(|process| process.command.iter().any(|word| word.contains("sent += 1")))
    );
    assert!(all.iter().filter(|call| call.call.name() == "send").all(|call| call.socket.is_some()));
    let warnings = recorded.run().warnings.join("\n");
    assert!(warnings.contains("of a longer run (as --last says)"), "{warnings}");
    // and at the end, beside the pictures
    let traced = Traced::of(output, place);
    assert!(
        traced.stderr.contains(&format!("the last seconds are in {}", run.join("1").display())),
        "{}",
        traced.stderr
    );
    let last = bytes(&traced.calls(), "send");
    let end = counted(&traced);
    assert_eq!(last, expected(end - last.len(), last.len()), "up to the end");
}

/// A program with two services on ports that `options` may name as {1} and {2}, and what it does once it is traced.
fn services(options: &[&str], then: &str) -> (Traced, [u16; 2]) {
    // ports that nobody has, for as long as a test lasts: taken here, and used again
    let ports = [0; 2].map(|_| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    });
    let script = format!(
        "
import signal, socket, subprocess, sys
signal.alarm(300)
def connected(port):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(('127.0.0.1', port)); server.listen()
    client = socket.create_connection(('127.0.0.1', port))
    return client, server.accept()[0], server
one, two = connected({}), connected({})
{then}
",
        ports[0], ports[1]
    );
    let options: Vec<String> = options
        .iter()
        .map(|word| word.replace("{1}", &ports[0].to_string()).replace("{2}", &ports[1].to_string()))
        .collect();
    let options: Vec<&str> = options.iter().map(String::as_str).chain(["--no-kernel"]).collect();
    let traced = trace_with(&options, &["python3", "-c", &script], |_| {});
    assert_eq!(traced.status, Some(0), "{}", traced.stderr);
    (traced, ports)
}

#[test]
fn only_connections_of_a_port() {
    let (traced, [wanted, other]) = services(
        &["--port", "{1},1"],
        "
for end, size in (one, 1000), (two, 10):
    for _ in range(7):
        end[0].sendall(bytes(size)); end[1].recv(size)
u = socket.socketpair()
u[0].send(b'x')
d = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
d.bind(('127.0.0.1', 0)); d.sendto(b'xyz', d.getsockname())
",
    );
    let recorded = traced.calls();
    assert_eq!(bytes(&recorded, "send"), [1000; 7]);
    assert_eq!(bytes(&recorded, "recv"), [1000; 7]);
    // datagrams may go anywhere
    assert_eq!(bytes(&recorded, "sendto"), [3]);
    let sockets = &traced.recorded.run().sockets;
    let has = |port: u16| {
        sockets
            .iter()
            .filter(|socket| [socket.local, socket.remote].iter().flatten().any(|name| name.port() == port))
            .count()
    };
    assert_eq!((has(wanted), has(other)), (3, 0), "both ends and the listener: {sockets:?}");
    for name in ["connect", "accept4"] {
        assert_eq!(recorded.iter().filter(|call| call.call.name() == name).count(), 1, "{name}");
    }
}

#[test]
fn only_some_functions_and_programs() {
    let (traced, _) =
        services(&["--call", "send*,recv"], "one[0].sendall(bytes(9)); one[1].recv(9); one[1].getpeername()");
    let names: Vec<&str> = traced.calls().iter().map(|call| call.call.name()).collect();
    assert_eq!(names, ["send", "recv"]);
    let child = "import socket; s = socket.socketpair(); s[0].send(b'abc')";
    let traced = trace_with(&["--no-kernel", "--program", "sh,no-such"], &["python3", "-c", child], |_| {});
    assert_eq!(traced.status, Some(0), "{}", traced.stderr);
    assert_eq!(traced.calls(), []);
    // a program by its file's name, or as it was called
    let place = tempfile::tempdir().unwrap();
    let link = place.path().join("my-own-name");
    let python = String::from_utf8(
        Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().unwrap().stdout,
    );
    std::os::unix::fs::symlink(python.unwrap().trim(), &link).unwrap();
    let script = format!("{} -c \"{child}\"; python3 -c \"{child}; s[0].send(b'defg')\"", link.display());
    let traced = trace_with(&["--no-kernel", "--program", "my-own-name"], &["sh", "-c", &script], |_| {});
    assert_eq!(traced.status, Some(0), "{}", traced.stderr);
    assert_eq!(bytes(&traced.calls(), "send"), [3]);
}

#[test]
fn what_cannot_be_chosen_is_refused_before_anything_starts() {
    for (options, says) in [
        (&["--call", "sned"][..], "\"sned\" is the name of no function"),
        (&["--port", "0"], "0 is no port"),
        (&["--port", "http"], "invalid"),
        (&["--program", "/bin/sh"], "without directories"),
        (&["--for", "5"], "times are like 500ms, 30s"),
        (&["--last", "0s"], "no time at all"),
        (&["--max-size", "many"], "sizes are like"),
        (&["--max-size", "1K"], "1M at least"),
        (&["-p", "1"], "unexpected argument '-p'"),
        (&["--no-such"], "unexpected argument '--no-such'"),
    ] {
        let place = TempDir::new().unwrap();
        let mut command = Command::new(POLYRAIL);
        command
            .arg("trace")
            .arg("-o")
            .arg(place.path().join("run"))
            .args(options)
            .args(["touch"])
            .arg(place.path().join("started"));
        let output = command.env("POLYRAIL_RECORDER_DIR", recorder()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(says), "{options:?}: {text}");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "{options:?}");
    }
}

/// A server that runs already, with a connection that it has already: what it does from then on is recorded.
#[test]
fn a_process_that_runs_already() {
    let script = "
import signal, socket, sys, threading
signal.alarm(300)
s = socket.create_server(('127.0.0.1', 0))
c = socket.create_connection(s.getsockname()); d, _ = s.accept()
c.sendall(bytes(5000)); d.recv(5000)
print(s.getsockname()[1], flush=True)
def work():
    for _ in range(10): c.sendall(bytes(100)); d.recv(100)
    e = socket.create_connection(s.getsockname()); f, _ = s.accept()
    e.sendall(bytes(77)); f.recv(77)
sys.stdin.readline()
t = threading.Thread(target=work); t.start(); t.join()
";
    let place = tempfile::tempdir().unwrap();
    let run = place.path().join("run");
    let mut program = Command::new("python3");
    program.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = program.spawn().unwrap();
    let mut line = String::new();
    let mut said = BufReader::new(program.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    let mut command = Command::new(POLYRAIL);
    command.args(["trace", "--no-kernel", "--pid", &program.id().to_string(), "-o"]).arg(&run);
    let mut tracer = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(tracer.stderr.take().unwrap());
    let mut text = String::new();
    told.read_line(&mut text).unwrap();
    // without root, or such events, it says so and ends
    if !text.contains("recording process") {
        assert!(text.contains("it cannot be recorded: "), "{text}");
        assert_eq!(tracer.wait().unwrap().code(), Some(125));
        drop(program.stdin.take());
        program.wait().unwrap();
        return polyrail_testing::lacking(format_args!("the kernel's events: {text}"));
    }
    program.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(program.wait().unwrap().success());
    assert_eq!(tracer.wait().unwrap().code(), Some(0));
    let recorded = open(&run);
    let mut sent: Vec<u32> =
        bytes(&calls(&recorded), "sendto").into_iter().filter(|bytes| *bytes > 0).collect();
    sent.sort_unstable();
    assert_eq!(sent, [&[77][..], &[100; 10]].concat());
    let port: u16 = line.trim().parse().unwrap();
    let of = |wanted: u32| {
        let all = calls(&recorded);
        let call = all.iter().find(|call| call.call.name() == "sendto" && call.bytes == wanted).unwrap();
        recorded.run().sockets[call.socket.expect("its socket is known") as usize].remote
    };
    assert_eq!([of(100), of(77)].map(|name| name.map(|name| name.port())), [Some(port); 2]);
    assert!(recorded.run().warnings.join("\n").contains("since it ran already"));
    let refused = Command::new(POLYRAIL)
        .args(["trace", "--pid", "4194999", "-o"])
        .arg(place.path().join("none"))
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(125));
    assert!(!place.path().join("none").exists());
}

/// What was told before the last seconds is told with them, and is in none's time.
#[test]
fn the_last_seconds_know_what_came_before() {
    let script = "
import os, signal, socket, time
signal.alarm(300)
pairs = [socket.socketpair() for _ in range(10)]
for a, b in pairs: a.getsockname(); b.getsockname()
time.sleep(0.05)
begun = time.monotonic_ns()
ends = []
for _ in range(3):
    a, b = socket.socketpair()
    if os.fork() == 0:
        signal.alarm(300)
        for one in ends + [a]: one.close()
        while b.recv(1): b.send(b'y')
        os._exit(0)
    b.close(); ends.append(a)
time.sleep(0.05)
print(begun)
for a, b in pairs: a.send(b'x'); b.recv(1)
time.sleep(3)
for a, b in pairs: a.send(b'x'); b.recv(1)
for a in ends: a.send(b'x'); a.recv(1); a.close()
for _ in range(3): os.wait()
";
    let traced = trace_with(&["--no-kernel", "--last", "1s"], &["python3", "-c", script], |_| {});
    assert_eq!(traced.status, Some(0), "{}", traced.stderr);
    let run = traced.recorded.run();
    assert!(traced.warnings().contains("of a longer run"), "{}", traced.warnings());
    let begun: u64 = traced.stdout.trim().parse().unwrap();
    assert!(run.span.0 >= begun, "{:?} {begun}", run.span);
    let all = traced.calls();
    let moved: Vec<&CallEvent> = all.iter().filter(|call| call.bytes > 0).collect();
    assert_eq!(moved.len(), 20 + 4 * 3, "the second round alone");
    let mut processes = std::collections::BTreeSet::new();
    for call in moved {
        let socket = &run.sockets[call.socket.expect("its socket is known") as usize];
        assert!(socket.peer.is_some(), "{socket:?}");
        processes.insert(run.threads[call.thread as usize].process);
    }
    assert_eq!(processes.len(), 4);
    for process in processes {
        let command = &run.processes[process as usize].command;
        assert!(command.iter().any(|word| word.contains("socketpair")), "{command:?}");
    }
}

/// Who is chosen is recorded whoever starts it, and however.
#[test]
fn a_program_that_is_chosen_is_recorded_behind_others() {
    let plain = super::support::program("processes");
    let name = plain.file_name().unwrap().to_str().unwrap();
    let path = plain.to_str().unwrap();
    // a program that is left out starts it, with an environment of its own
    trace_with(&["--no-kernel", "--program", name], &["env", "-i", path, "talk", "3"], |_| {}).check(1);
    trace_with(
        &["--no-kernel", "--program", name],
        &["python3", "-c", &format!("import subprocess; subprocess.run([{path:?}, 'talk', '3'], env={{}})")],
        |_| {},
    )
    .check(1);
    let Some(plain) = super::support::build("processes", &["-static"]) else {
        return polyrail_testing::lacking("a static C library");
    };
    if !super::support::is_root() {
        return polyrail_testing::lacking("root, for the kernel's events");
    }
    let name = plain.file_name().unwrap().to_str().unwrap();
    for (chosen, any) in [(name, true), ("another", false)] {
        let traced = trace_with(&["--program", chosen], &[plain.to_str().unwrap(), "talk", "3"], |_| {});
        assert_eq!(traced.status, Some(0), "{}", traced.stderr);
        assert_eq!(!traced.calls().is_empty(), any, "{chosen}: {}", traced.stderr);
    }
}

/// A recording that did not begin leaves nothing behind; what others asked for before is left alone.
#[test]
fn directories_of_others_are_left_alone() {
    let place = tempfile::tempdir().unwrap();
    let run = place.path().join("run");
    let traced =
        |words: &[&str]| tracing(&run, &["--no-kernel", "--last", "5s"]).args(words).output().unwrap();
    assert_eq!(traced(&["/nowhere/at/all"]).status.code(), Some(125));
    assert!(!run.exists());
    fs::create_dir_all(run.join("1")).unwrap();
    assert_eq!(traced(&["true"]).status.code(), Some(0));
    assert_eq!(fs::read_dir(run.join("1")).unwrap().count(), 0);
    let own = fs::read_dir(&run).unwrap().flatten().find(|file| file.path().is_file()).unwrap().path();
    fs::rename(&own, run.join("1/a.trace")).unwrap();
    let refused = traced(&["true"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("holds a recording already"), "{refused:?}");
}
