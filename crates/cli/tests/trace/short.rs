//! Programs that preloading cannot see and that are gone before anybody can look at them: as root nothing of them is lost, and of what
//! cannot be known nothing is denied.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;

use polyrail_trace::analysis::{Analysis, Analyst, Settings};
use polyrail_trace::model::{Events, Kind};

use super::support::{Traced, build, is_root, trace, trace_with};

/// Runs, each with other luck.
const RUNS: usize = 5;

fn analysis(traced: &Traced) -> Analysis {
    let mut analyst = Analyst::new(traced.recorded.run(), Settings::default());
    traced.recorded.for_each(&mut |event| analyst.event(event)).unwrap();
    analyst.finish()
}

/// What `polyrail report` prints.
fn report(traced: &Traced) -> String {
    let place = tempfile::tempdir().unwrap();
    polyrail_trace::report::write(&traced.recorded, place.path(), &Default::default(), None)
        .unwrap()
        .to_string()
}

/// All of a program of two processes with connections of so many bytes, from end to end.
fn check(traced: &Traced, program: &Path, bytes: &[u64]) {
    assert_eq!(traced.status, Some(0), "{}", traced.stderr);
    let run = traced.recorded.run();
    let text = report(traced);
    let by_kernel = format!(
        "{} was run and it is linked without the dynamic loader: its calls were recorded by the kernel",
        program.display()
    );
    // others on the machine may do more than can be read; that is told, and only then may anything be missing
    let machines = |text: &&String| text.contains(" of the machine), because they were not read fast enough");
    let (lost, others): (Vec<_>, Vec<_>) = run.warnings.iter().partition(machines);
    assert!(others.len() == 1 && others[0].starts_with(&by_kernel), "{text}");
    assert!(!traced.stderr.contains("not recorded"), "{}", traced.stderr);
    if lost.iter().any(|text| text.contains("events of sockets")) {
        return polyrail_testing::by_chance("the machine has too many other connections");
    }
    assert_eq!(run.processes.len(), 2, "{:#?}", run.processes);
    assert!(traced.stderr.contains(" records of 2 processes in "), "{}", traced.stderr);
    let analysis = analysis(traced);
    let mut found = Vec::new();
    for one in analysis.connections(run).iter().filter(|one| one.kind == Kind::Tcp) {
        let [here, there] =
            [one.sockets.0, one.sockets.1.expect("both ends")].map(|end| &run.sockets[end as usize]);
        assert!(here.local.is_some() && here.remote.is_some(), "{here:?}");
        assert_eq!((here.local, here.remote), (there.remote, there.local));
        assert!(here.accepted != there.accepted, "{here:?} {there:?}");
        let received = |end: u32| analysis.sockets[end as usize].received.bytes;
        assert_eq!(received(one.sockets.0) + received(one.sockets.1.unwrap()), one.bytes());
        found.push(one.bytes());
    }
    found.sort_unstable();
    assert_eq!(found, bytes, "{text}\n{:#?}", run.sockets);
    assert_eq!(analysis.seen.nameless, (0, 0));
    assert_eq!(analysis.outside, Vec::<String>::new(), "everybody was traced");
    assert!(!text.contains("no message"), "{text}");
}

#[test]
fn a_static_program_and_its_child() {
    if !is_root() {
        return polyrail_testing::lacking(
            "root, for whom the kernel records programs that preloading does not see",
        );
    }
    let Some(program) = build("short", &["-static"]) else {
        return polyrail_testing::lacking("a static C library");
    };
    for _ in 0..RUNS {
        let traced = trace_with(&[], &[program.to_str().unwrap()], |_| {});
        check(&traced, &program, &[0, 400_000, 400_000, 400_000]);
    }
}

#[test]
fn a_go_program_and_its_child() {
    if !is_root() {
        return polyrail_testing::lacking(
            "root, for whom the kernel records programs that preloading does not see",
        );
    }
    let place = tempfile::tempdir().unwrap();
    fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/trace/short.go"), place.path().join("main.go"))
        .unwrap();
    let mut go = Command::new("go");
    go.args(["build", "-o", "program", "main.go"]).current_dir(&place);
    go.env("CGO_ENABLED", "0").env("GO111MODULE", "off");
    go.env("GOCACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/go")).env("GOFLAGS", "-p=2");
    if !go.output().is_ok_and(|output| output.status.success()) {
        return polyrail_testing::lacking("a Go compiler");
    }
    let program = place.path().join("program");
    for _ in 0..RUNS {
        let traced = trace_with(&[], &[program.to_str().unwrap()], |_| {});
        check(&traced, &program, &[400_000; 3]);
    }
}

/// A connection that was there before, and that goes on when the program is gone: nothing tells what it is.
#[test]
fn a_connection_that_cannot_be_named_is_told_of() {
    if !is_root() {
        return polyrail_testing::lacking(
            "root, for whom the kernel records programs that preloading does not see",
        );
    }
    let Some(program) = build("short", &["-static"]) else {
        return polyrail_testing::lacking("a static C library");
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let given = OwnedFd::from(client.try_clone().unwrap());
    let traced = trace_with(&[], &[program.to_str().unwrap(), "say"], |command| _ = command.stdin(given));
    assert_eq!(traced.status, Some(0), "{}", traced.stderr);
    let (analysis, text) = (analysis(&traced), report(&traced));
    // somebody may have looked in time
    if analysis.seen.nameless == (0, 0) {
        let connections = analysis.connections(traced.recorded.run());
        assert_eq!(connections.iter().map(|one| one.bytes()).collect::<Vec<_>>(), [1000], "{text}");
    } else {
        assert_eq!(analysis.seen.nameless, (1, 1000));
        assert!(text.contains("1 call moved 1 kB"), "{text}");
    }
    println!("{text}");
    assert!(!text.contains("no message"), "{text}");
}

/// Without root nothing is recorded, which is said as it is.
#[test]
fn what_is_not_recorded_is_not_called_silent() {
    let Some(program) = build("short", &["-static"]) else {
        return polyrail_testing::lacking("a static C library");
    };
    let traced = trace(&[program.to_str().unwrap()]);
    assert!(traced.warnings().contains("its calls were recorded not at all"), "{}", traced.warnings());
    let text = report(&traced);
    assert!(text.contains("No call was recorded"), "{text}");
    assert!(text.contains("no call of it was recorded"), "{text}");
    assert!(text.contains("What holds it up cannot be told"), "{text}");
    assert!(!text.contains("no message went"), "{text}");
}
