//! Builds test programs, runs them traced, and reads what was recorded.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use polyrail_testing::built;
use polyrail_trace::Recorded;
use polyrail_trace::model::{CallEvent, Class, Event, Events};
use tempfile::TempDir;

pub const POLYRAIL: &str = env!("CARGO_BIN_EXE_polyrail");

/// What tells that threads waited for room in their rings.
pub const WAITED: &str = " in all, for their records to be collected";

/// Calls and bytes, by function.
pub type Counts = BTreeMap<String, (u64, u64)>;

/// Where the recorder is: of the same profile as `polyrail`.
pub fn recorder() -> &'static Path {
    built("-p polyrail-preload")
}

/// Builds a program once, with more flags than usual; `None` where they are not supported.
pub fn build(source: &str, flags: &[&str]) -> Option<PathBuf> {
    static BUILT: Mutex<BTreeMap<String, Option<PathBuf>>> = Mutex::new(BTreeMap::new());
    let key = format!("{source} {}", flags.join(" "));
    let mut built = BUILT.lock().unwrap_or_else(|stale| stale.into_inner());
    let number = built.len();
    built
        .entry(key)
        .or_insert_with(|| {
            let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("trace-{number}-{source}"));
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trace").join(format!("{source}.c"));
            let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
            let mut command = Command::new(compiler);
            command
                .args(["-O1", "-g", "-Wall", "-Wno-unused-function", "-pthread", "-o"])
                .arg(&binary)
                .arg(file)
                .args(flags);
            let Output { status, stderr, .. } = command.output().expect("a C compiler starts");
            if !status.success() {
                eprintln!("{source}.c {flags:?}: {}", String::from_utf8_lossy(&stderr));
            }
            status.success().then_some(binary)
        })
        .clone()
}

/// A program without special flags.
pub fn program(source: &str) -> PathBuf {
    build(source, &[]).expect("the program builds")
}

pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Waits for what happens soon, however busy the machine is.
pub fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < Duration::from_secs(120), "it does not happen: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A traced run.
pub struct Traced {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub recorded: Recorded,
    /// Its files are read again with each pass over the events.
    directory: TempDir,
}

/// `polyrail trace -o PLACE OPTIONS --` with nothing to run yet.
pub fn tracing(place: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(POLYRAIL);
    command.arg("trace").arg("-o").arg(place).args(options).arg("--");
    command.env("POLYRAIL_RECORDER_DIR", recorder()).stdin(Stdio::null());
    command
}

/// Runs a command traced.
pub fn trace(words: &[&str]) -> Traced {
    trace_with(&["--no-kernel"], words, |_| {})
}

pub fn trace_with(options: &[&str], words: &[&str], prepare: impl FnOnce(&mut Command)) -> Traced {
    let directory = tempfile::tempdir().unwrap();
    let mut command = tracing(&directory.path().join("run"), options);
    command.args(words);
    prepare(&mut command);
    Traced::of(command.output().expect("polyrail starts"), directory)
}

pub fn open(run: &Path) -> Recorded {
    polyrail_trace::open(&[run.to_owned()]).unwrap_or_else(|why| panic!("{why}"))
}

impl Traced {
    /// Of a run whose recording is in `run` of the directory.
    pub fn of(output: Output, directory: TempDir) -> Traced {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        let run = directory.path().join("run");
        let recorded = polyrail_trace::open(&[run]).unwrap_or_else(|why| panic!("{why}\n{stderr}"));
        Traced { status: output.status.code(), stdout, stderr, recorded, directory }
    }

    /// Bytes of its files.
    pub fn size(&self) -> u64 {
        let files = std::fs::read_dir(self.directory.path().join("run")).unwrap().flatten();
        files.map(|file| file.metadata().unwrap().len()).sum()
    }

    /// Its files as they are now: those of other collectors may come later, on a machine that is busy.
    pub fn again(&self) -> Recorded {
        open(&self.directory.path().join("run"))
    }

    pub fn calls(&self) -> Vec<CallEvent> {
        calls(&self.recorded)
    }

    pub fn counts(&self, pid: u32) -> Counts {
        counts(&self.recorded, |process| process == pid)
    }

    /// What the programs said of themselves, by process.
    pub fn truth(&self) -> BTreeMap<u32, Counts> {
        let mut truth: BTreeMap<u32, Counts> = BTreeMap::new();
        for line in self.stdout.lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            let [pid, name, calls, bytes] = words[..] else { continue };
            let Ok(pid) = pid.parse() else { continue };
            truth
                .entry(pid)
                .or_default()
                .insert(name.into(), (calls.parse().unwrap(), bytes.parse().unwrap()));
        }
        truth
    }

    /// Records that were lost and counted; of one process, or of all.
    pub fn lost(&self, of: impl Fn(u32) -> bool) -> u64 {
        let run = self.recorded.run();
        let threads = run.threads.iter().filter(|thread| of(run.processes[thread.process as usize].pid));
        threads.map(|thread| thread.lost).sum()
    }

    /// Compares every process's own count with the record of it. Where the machine has kept the collector off for longer than recorders wait
    /// for it, what is missing must have been counted.
    pub fn check(&self, processes: usize) {
        let truth = self.truth();
        assert_eq!(
            truth.len(),
            processes,
            "processes that told of themselves\n{}\n{}",
            self.stdout,
            self.stderr
        );
        for (pid, truth) in truth {
            let recorded = self.counts(pid);
            match self.lost(|process| process == pid) {
                0 => assert_same(&truth, &recorded, pid, &self.stderr),
                lost => assert_told(&truth, &recorded, lost),
            }
        }
    }

    /// As [`check`](Self::check), of programs that did more after they had told.
    pub fn check_at_least(&self) {
        for (pid, truth) in self.truth() {
            let seen = self.counts(pid);
            for (name, (calls, bytes)) in &truth {
                let (seen_calls, seen_bytes) = seen.get(name).copied().unwrap_or_default();
                let moves = matches!(name.as_str(), "send" | "recv");
                assert!(
                    seen_calls >= *calls && (!moves || seen_bytes >= *bytes),
                    "{pid} {name}: {seen:?} of {truth:?}"
                );
            }
        }
    }

    /// Calls in signal handlers that interrupted the recorder, as told.
    pub fn nested(&self) -> u64 {
        let number = |text: &String| text.split_once(" calls in signal handlers")?.0.parse().ok();
        self.recorded.run().warnings.iter().find_map(number).unwrap_or(0)
    }

    /// Nothing went wrong but what a busy machine brings about, of which each is told in its way.
    pub fn check_no_warnings(&self) {
        let lost = self.lost(|_| true) > 0;
        let warnings = self.recorded.run().warnings.iter().filter(|text| {
            let loss = lost && text.contains(" were lost: ");
            !(loss || text.contains(WAITED))
        });
        assert_eq!(warnings.collect::<Vec<_>>(), Vec::<&String>::new());
    }

    pub fn warnings(&self) -> String {
        self.recorded.run().warnings.join("\n")
    }
}

/// Of a process that has lost so many records: nothing was recorded that was not, and what is missing is told. A record that was lost may
/// have stood for several calls, or for none.
pub fn assert_told(truth: &Counts, recorded: &Counts, lost: u64) {
    eprintln!("{lost} records were lost: this machine kept the collector waiting for seconds");
    for (name, (calls, _)) in truth {
        let seen = recorded.get(name).map_or(0, |count| count.0);
        assert!(seen <= *calls, "{name}: {seen} of {calls}");
    }
}

/// Calls of `send` and `recv`.
pub fn sends_and_receives(counts: &Counts) -> u64 {
    ["send", "recv"].iter().map(|name| counts[*name].0).sum()
}

/// All that move bytes are the same, and all that the truth knows of.
pub fn assert_same(truth: &Counts, recorded: &Counts, pid: u32, stderr: &str) {
    let moves = |name: &str| {
        let call = polyrail_trace::model::Call::ALL.iter().find(|call| call.name() == name);
        call.is_some_and(|call| matches!(call.class(), Class::Send | Class::Receive))
    };
    let only_calls = |(name, (calls, bytes)): (&String, &(u64, u64))| {
        (name.clone(), *calls, if moves(name) { *bytes } else { 0 })
    };
    let expected: Vec<_> = truth.iter().map(only_calls).collect();
    let seen: Vec<_> = recorded
        .iter()
        .filter(|(name, _)| truth.contains_key(*name) || moves(name))
        .map(only_calls)
        .collect();
    assert_eq!(seen, expected, "process {pid}: recorded, and what it did\n{stderr}");
}

pub fn calls(recorded: &Recorded) -> Vec<CallEvent> {
    let mut calls = Vec::new();
    recorded
        .for_each(&mut |event| {
            if let Event::Call(call) = event {
                calls.push(*call);
            }
        })
        .unwrap();
    calls
}

pub fn counts(recorded: &Recorded, of: impl Fn(u32) -> bool) -> Counts {
    let run = recorded.run();
    let mut counts = Counts::new();
    for call in calls(recorded) {
        let process = run.threads[call.thread as usize].process;
        if of(run.processes[process as usize].pid) {
            let count = counts.entry(call.call.name().into()).or_default();
            *count = (count.0 + u64::from(call.calls), count.1 + u64::from(call.bytes));
        }
    }
    counts
}
