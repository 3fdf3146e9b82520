//! Rings that are full: the program waits for its collector, within bounds. Here the test is the collector, and so decides when
//! it comes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use polyrail_core::trace::ring::{MOST, session};
use polyrail_trace::blocks::CommandBlock;
use polyrail_trace::collect::Collector;
use polyrail_trace::model::Events;
use polyrail_trace::options::Options;
use tempfile::TempDir;

use super::support::{Counts, Traced, WAITED, program, recorder, sends_and_receives, trace_with};
use super::unseen::may_unshare;

/// Sends and as many receives: more records than a ring holds at most, and fewer than two such rings do.
const TALKS: usize = MOST * 3 / 4;

/// A session whose collector is the test.
struct Session {
    collector: Collector,
    directory: TempDir,
    page: File,
    place: TempDir,
    /// What the programs wrote.
    stdout: Vec<u8>,
    status: Option<std::process::ExitStatus>,
}

impl Session {
    fn begin(options: u32) -> Session {
        let directory = tempfile::Builder::new().prefix("polyrail-test-").tempdir_in("/dev/shm").unwrap();
        let place = tempfile::tempdir().unwrap();
        let run = place.path().join("run");
        let mut collector = Collector::begin(
            directory.path(),
            &run,
            Options { bits: options, no_kernel: true, ..Options::default() },
        )
        .unwrap();
        collector.command(&CommandBlock { status: Some(0), ..CommandBlock::default() });
        let page = File::open(directory.path().join("session")).unwrap();
        Session { collector, directory, page, place, stdout: Vec::new(), status: None }
    }

    fn start(&self, way: &str, number: usize) -> Child {
        let mut command = Command::new(program("processes"));
        command.args([way, &number.to_string()]).stdout(Stdio::piped());
        command.env("LD_PRELOAD", recorder().join("libpolyrail_preload.so"));
        command.env("POLYRAIL_TRACE", self.directory.path()).spawn().unwrap()
    }

    fn number(&self, at: usize) -> u64 {
        number(&self.page, at)
    }

    /// Lets a program fill its ring, and then collects until it has ended.
    fn come_late(&mut self, way: &str, number: usize) {
        let before = self.number(session::AT_WAITS);
        let mut child = self.start(way, number);
        while self.number(session::AT_WAITS) == before {
            assert!(child.try_wait().unwrap().is_none(), "it ended without having waited");
            std::thread::sleep(Duration::from_millis(1));
        }
        while child.try_wait().unwrap().is_none() {
            self.collector.round();
            self.collector.rest();
        }
        self.ended(child);
    }

    /// Lets a program run to its end without having come.
    fn stay_away(&mut self, way: &str, number: usize) {
        let child = self.start(way, number);
        self.ended(child);
    }

    fn ended(&mut self, child: Child) {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        self.stdout.extend(output.stdout);
        self.status = Some(output.status);
    }

    /// What all of them did, and what was recorded of it.
    fn end(self) -> Traced {
        let totals = self.collector.end();
        let status = self.status.expect("something ran");
        let traced = Traced::of(Output { status, stdout: self.stdout, stderr: Vec::new() }, self.place);
        assert_eq!(totals.lost, traced.lost(|_| true), "who waits at the terminal is told, too");
        traced
    }
}

/// A number of a session's page.
pub fn number(page: &File, at: usize) -> u64 {
    let mut bytes = [0; 8];
    page.read_exact_at(&mut bytes, at as u64).unwrap();
    u64::from_le_bytes(bytes)
}

/// Calls that a process made and that are not recorded.
fn missing(traced: &Traced, pid: u32) -> u64 {
    let sum = |counts: &Counts| counts.values().map(|count| count.0).sum::<u64>();
    sum(&traced.truth()[&pid]) - sum(&traced.counts(pid))
}

#[test]
fn nothing_is_lost_while_a_collector_is_slow() {
    let mut session = Session::begin(0);
    session.come_late("busy", TALKS);
    assert_eq!(session.number(session::AT_VAIN), 0);
    let traced = session.end();
    traced.check(1);
    assert_eq!(traced.lost(|_| true), 0);
    assert!(traced.warnings().contains(WAITED), "{}", traced.warnings());
    traced.check_no_warnings();
}

#[test]
fn a_signal_handler_does_not_end_a_wait_and_its_calls_are_recorded() {
    let mut session = Session::begin(0);
    session.come_late("signals", TALKS);
    assert_eq!(session.number(session::AT_VAIN), 0);
    let nested = session.number(session::AT_NESTED);
    let traced = session.end();
    let pid = *traced.truth().keys().next().unwrap();
    assert_eq!(traced.lost(|_| true), 0);
    assert_eq!(sends_and_receives(&traced.counts(pid)) + nested, sends_and_receives(&traced.truth()[&pid]));
}

/// One wait in vain is what it costs, however many records, threads and programs follow; and when it is back it is waited for again.
#[test]
fn a_collector_that_does_not_come_costs_one_wait() {
    let mut session = Session::begin(0);
    let state = |session: &Session| [session::AT_WAITS, session::AT_VAIN].map(|at| session.number(at));
    session.stay_away("busy", TALKS);
    assert_eq!(state(&session), [1, 1]);
    assert_eq!(session.number(session::AT_STALLED), session.number(session::AT_BEAT));
    session.stay_away("busy", TALKS);
    assert_eq!(state(&session), [1, 1]);
    session.collector.round();
    session.come_late("busy", TALKS);
    assert_eq!(session.number(session::AT_VAIN), 1);
    let traced = session.end();
    let pids: Vec<u32> = traced.recorded.run().processes.iter().map(|process| process.pid).collect();
    assert_eq!(pids.len(), 3);
    for pid in &pids[..2] {
        // and a note of how it ended
        assert_eq!(traced.lost(|process| process == *pid), missing(&traced, *pid) + 1);
        assert!(traced.counts(*pid)["send"].0 > TALKS as u64 / 2);
    }
    assert_eq!((traced.lost(|process| process == pids[2]), missing(&traced, pids[2])), (0, 0));
    assert!(traced.warnings().contains(" were lost: 2 threads wrote"), "{}", traced.warnings());
}

#[test]
fn a_collector_that_was_killed_is_not_waited_for() {
    let session = Session::begin(0);
    let child = session.start("busy", TALKS);
    let Session { collector, directory: _directory, page, place: _place, .. } = session;
    // the kernel takes its lock from it, as from a process that is killed
    drop(collector);
    assert!(child.wait_with_output().unwrap().status.success());
    let state = [session::AT_WAITS, session::AT_VAIN, session::AT_STALLED].map(|at| number(&page, at));
    assert_eq!(state, [1, 1, session::GONE]);
}

#[test]
fn nobody_waits_where_losing_was_asked_for() {
    let mut session = Session::begin(session::OPTION_DROP);
    session.stay_away("busy", TALKS);
    assert_eq!(session.number(session::AT_WAITS), 0);
    let traced = session.end();
    let pid = *traced.truth().keys().next().unwrap();
    assert!(missing(&traced, pid) > 0);
    assert_eq!(traced.lost(|_| true), missing(&traced, pid) + 1);
    assert!(traced.warnings().contains(" were lost: 1 thread wrote"), "{}", traced.warnings());
}

/// Options as the session's page has them, on the command's host and on another, which is a mount of its own of shared memory.
#[test]
fn options_hold_on_all_hosts() {
    const LOOK: &str = "od -An -tu4 -j40 -N4 $POLYRAIL_TRACE/session";
    let options = ["--no-kernel", "--drop", "--every-call"];
    let bits = session::OPTION_DROP | session::OPTION_EVERY_CALL;
    let told = |words: &[&str]| {
        let traced = trace_with(&options, words, |_| {});
        assert_eq!(traced.stdout.trim(), bits.to_string(), "{}", traced.stderr);
    };
    told(&["sh", "-c", LOOK]);
    if !may_unshare(&["-m"]) {
        return;
    }
    told(&["unshare", "-m", "sh", "-c", &format!("mount -t tmpfs -o size=8m tmpfs /dev/shm; {LOOK}")]);
}
