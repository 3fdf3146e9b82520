//! Builds test programs, runs them traced, and reads what was recorded.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, OnceLock};

use polyrail_trace::Recorded;
use polyrail_trace::model::{CallEvent, Class, Event, Events};
use tempfile::TempDir;

pub const POLYRAIL: &str = env!("CARGO_BIN_EXE_polyrail");

/// Calls and bytes, by function.
pub type Counts = BTreeMap<String, (u64, u64)>;

/// Where the recorder is: of the same profile as `polyrail`. Cargo builds no library of another crate for a test, so it is asked to.
pub fn recorder() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let place = Path::new(POLYRAIL).parent().unwrap();
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .args(["build", "--quiet", "-p", "polyrail-preload", "--target-dir"])
            .arg(place.parent().unwrap());
        if place.ends_with("release") {
            cargo.arg("--release");
        }
        let done = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo starts");
        assert!(done.success(), "the recorder cannot be built");
        place.into()
    })
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

/// A traced run.
pub struct Traced {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub recorded: Recorded,
    /// Its files are read again with each pass over the events.
    _directory: TempDir,
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
        Traced { status: output.status.code(), stdout, stderr, recorded, _directory: directory }
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

    /// Compares every process's own count with the record of it.
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
            assert_same(&truth, &self.counts(pid), pid, &self.stderr);
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

    pub fn warnings(&self) -> String {
        self.recorded.run().warnings.join("\n")
    }
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
