//! The tracer itself: what it hands through, and what happens when it, or what it traces, is killed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use polyrail_core::trace::ring::session;
use polyrail_trace::model::{Call, Events};
use tempfile::TempDir;

use super::full::number;
use super::support::{POLYRAIL, calls, open, program, recorder, trace, trace_with, tracing, until};

/// Runs a program that says when it is ready; the tracer is then the caller's.
fn start(place: &TempDir, words: &[&str]) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = tracing(&place.path().join("run"), &["--no-kernel"]);
    let mut child = command
        .arg(program("limits"))
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while line != "ready\n" {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "the program ended before it was ready");
    }
    (child, output)
}

/// Calls in a recording that is still being written.
fn readable(run: &Path) -> usize {
    polyrail_trace::open(&[run.to_owned()]).map_or(0, |recorded| calls(&recorded).len())
}

fn sessions() -> Vec<PathBuf> {
    let entries = fs::read_dir("/dev/shm").unwrap().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().contains("/polyrail-trace-"))
        .collect()
}

fn session_of(tracer: u32) -> Option<PathBuf> {
    sessions().into_iter().find(|path| path.to_string_lossy().contains(&format!("polyrail-trace-{tracer}-")))
}

#[test]
fn exit_status_and_output_are_the_commands_own() {
    assert_eq!(trace(&["sh", "-c", "exit 37"]).status, Some(37));
    assert_eq!(trace(&["sh", "-c", "kill -KILL $$"]).status, Some(128 + 9));
    let traced = trace_with(&["--no-kernel"], &["sh", "-c", "cat; echo err >&2"], |command| {
        command.stdin(fs::File::open("/etc/hostname").unwrap());
    });
    assert_eq!(traced.stdout, fs::read_to_string("/etc/hostname").unwrap());
    assert!(traced.stderr.starts_with("err\n"), "{}", traced.stderr);
}

#[test]
fn a_killed_program_leaves_what_it_did() {
    let program = program("limits");
    for (signal, status) in [("9", 137), ("11", 139), ("6", 134)] {
        let traced = trace(&[program.to_str().unwrap(), "signal", signal]);
        assert_eq!(traced.status, Some(status), "{}", traced.stderr);
        traced.check(1);
        assert_eq!(traced.recorded.run().status, Some(status));
        assert_eq!(traced.recorded.run().processes[0].status, None);
    }
}

#[test]
fn signals_to_the_tracer_are_for_the_command() {
    for (signal, number) in [(Signal::SIGTERM, 15), (Signal::SIGINT, 2), (Signal::SIGUSR1, 10)] {
        let place = tempfile::tempdir().unwrap();
        let (mut tracer, _output) = start(&place, &["waits"]);
        kill(Pid::from_raw(tracer.id() as i32), signal).unwrap();
        assert_eq!(tracer.wait().unwrap().code(), Some(number));
        assert_eq!(
            calls(&open(&place.path().join("run"))).iter().filter(|call| call.call == Call::Send).count(),
            20
        );
    }
}

#[test]
fn a_killed_tracer_does_not_hurt_the_program_and_leaves_what_it_wrote() {
    let place = tempfile::tempdir().unwrap();
    let done = place.path().join("done");
    let (mut tracer, mut output) = start(&place, &["until", done.to_str().unwrap()]);
    let run = place.path().join("run");
    until("some of it is written", || readable(&run) > 100);
    let session = session_of(tracer.id()).unwrap();
    let page = fs::File::open(session.join("session")).unwrap();
    tracer.kill().unwrap();
    tracer.wait().unwrap();
    // the program fills its ring meanwhile, sees that nobody is there any more, and goes on; unless a tracer that starts clears up first
    until("nobody waits any more", || {
        number(&page, session::AT_STALLED) == session::GONE || number(&page, session::AT_STOP) as u32 != 0
    });
    fs::write(&done, "").unwrap();
    let mut rest = String::new();
    output.read_line(&mut rest).unwrap();
    assert_eq!(rest, "1\n");
    let recorded = open(&run);
    assert!(calls(&recorded).len() > 100);
    assert_eq!(recorded.run().status, None);
    assert!(
        recorded.run().warnings.iter().any(|text| text.contains("the recording broke off")),
        "{:?}",
        recorded.run().warnings
    );
    let report = Command::new(POLYRAIL).arg("report").arg(&run).current_dir(&place).output().unwrap();
    assert!(report.status.success());
    // the next one clears up, and leaves sessions alone that somebody looks after
    let other = tempfile::tempdir().unwrap();
    let (mut running, _output) = start(&other, &["waits"]);
    let looked_after = session_of(running.id()).unwrap();
    assert!(!session.exists());
    trace(&["true"]);
    assert!(looked_after.exists());
    kill(Pid::from_raw(running.id() as i32), Signal::SIGTERM).unwrap();
    running.wait().unwrap();
    assert!(!looked_after.exists());
}

#[test]
fn a_process_that_is_stopped_when_the_command_ends_holds_nothing_up() {
    let program = program("limits");
    // its output is a file: the pipe would stay open
    let file = tempfile::NamedTempFile::new().unwrap();
    let script = format!(
        "{} stops >{} 2>&1 & until grep -q '^State:.[TZ]' /proc/$!/status; do sleep 0.01; done; echo $! >&2",
        program.display(),
        file.path().display()
    );
    let mut traced = trace(&["sh", "-c", &script]);
    let stopped: i32 = traced.stderr.lines().next().unwrap().parse().unwrap();
    kill(Pid::from_raw(stopped), Signal::SIGKILL).unwrap();
    assert_eq!(traced.status, Some(0));
    traced.stdout = fs::read_to_string(file.path()).unwrap();
    traced.check(1);
    assert!(traced.warnings().contains("still running when the command ended"), "{}", traced.warnings());
}

#[test]
fn what_cannot_start_is_told() {
    let place = tempfile::tempdir().unwrap();
    let run = place.path().join("run");
    let told = |command: &mut Command, status: i32, text: &str| {
        let tracer = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let id = tracer.id();
        let output = tracer.wait_with_output().unwrap();
        assert_eq!(session_of(id), None);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{stderr}");
        assert!(stderr.contains(text), "{stderr}");
    };
    told(tracing(&run, &[]).arg("no-such-command"), 125, "no-such-command: No such file or directory");
    assert!(!run.exists());
    told(tracing(Path::new("/proc/run"), &[]).arg("true"), 125, "nothing can be recorded: /proc/run");
    fs::write(place.path().join("file"), "").unwrap();
    told(tracing(&place.path().join("file"), &[]).arg("true"), 125, "nothing can be recorded");
    told(tracing(&run, &["--no-kernel"]).arg("true"), 0, "");
    told(tracing(&run, &[]).arg("true"), 125, "holds a recording already");
    let mut no_recorder = tracing(&place.path().join("other"), &[]);
    told(
        no_recorder.env("POLYRAIL_RECORDER_DIR", "/nowhere").arg("true"),
        125,
        "libpolyrail_preload.so) is in none of these: /nowhere",
    );
}

#[test]
fn places_and_environment_are_taken_as_they_are() {
    // a relative place, a command that is found by PATH, in a directory that the command leaves
    let place = tempfile::tempdir().unwrap();
    let bin = place.path().join("bin");
    fs::create_dir(&bin).unwrap();
    fs::copy(program("processes"), bin.join("its-name")).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut command = tracing(Path::new("run"), &["--no-kernel"]);
    // a library that the user preloads stays, behind the recorder
    let library = place.path().join("libnothing.so");
    let source = "int polyrail_test_symbol(void) { return 42; }";
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-x", "c", "-", "-o"])
        .arg(&library)
        .stdin(Stdio::piped())
        .spawn();
    let mut built = built.unwrap();
    std::io::Write::write_all(&mut built.stdin.take().unwrap(), source.as_bytes()).unwrap();
    assert!(built.wait().unwrap().success());
    command.args(["sh", "-c", "cd /; its-name talk 5; echo $LD_PRELOAD; env -i /bin/sh -c 'grep -c libnothing /proc/self/maps; true'"]);
    let output = command.current_dir(&place).env("PATH", path).env("LD_PRELOAD", &library).output().unwrap();
    let traced = super::support::Traced::of(output, place);
    assert_eq!(traced.status, Some(0), "{}", traced.stderr);
    traced.check(1);
    let preload = traced.stdout.lines().find(|line| line.contains("libnothing")).unwrap();
    assert_eq!(preload, format!("{}/libpolyrail_preload.so:{}", recorder().display(), library.display()));
    // a cleared environment is cleared but for the recorder
    assert_eq!(traced.stdout.lines().last(), Some("0"));
}
