//! Runs that are ended at any moment and gone on with from their checkpoints say and write in the end what they say and write undisturbed; what cannot be kept, or gone on from, is named.
//! `KEPT_RUNS=20` has each of them run twenty times, ended at other moments.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::ways::{COMPILERS, Compiler, Said, agents, header, mpiexec, plain, prepare, run};

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("kept")
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kept").join(name)
}

/// Builds one of `tests/kept`, unless the compiler is not there.
fn build(name: &str, compiler: &Compiler) -> Option<PathBuf> {
    prepare();
    fs::create_dir_all(directory()).unwrap();
    let (stem, ending) = name.split_once('.').unwrap();
    let language = ["c", "cpp", "f90"].iter().position(|known| *known == ending).unwrap();
    let out = directory().join(format!("{stem}.{}", compiler.name));
    let flags = ["-frounding-math", "-Wl,--no-as-needed", "-lm"].map(String::from);
    let flags = if language == 0 { &flags[..] } else { &[] };
    let built = compiler.build(language, flags, &source(name), &out, header().as_deref())?;
    Some(built.unwrap_or_else(|why| panic!("{name} by {} does not build: {why}", compiler.name)))
}

/// What a run leaves: what it says, and its files.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    output: String,
    status: String,
    files: BTreeMap<String, Vec<u8>>,
}

/// Where a run's files are, which are gone.
fn empty(name: &str) -> PathBuf {
    let place = directory().join(name);
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).unwrap();
    place
}

fn left(said: Said, place: &Path) -> Left {
    let files = fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path());
    let file =
        |path: PathBuf| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap());
    Left { output: said.output, status: said.status, files: files.map(file).collect() }
}

/// A program of `tests/kept`, so many rounds of it, with its files in `place`.
fn words(name: &str, place: &Path, rounds: &str) -> Vec<String> {
    let at = |file: &str| place.join(file).to_str().unwrap().to_owned();
    let more = match name {
        "state.c" => {
            let own = source(name).to_str().unwrap().to_owned();
            vec![at("log"), own, at("appended"), at("in_place"), at("began")]
        }
        _ => vec![at("log")],
    };
    [vec![rounds.to_owned()], more].concat()
}

/// Ends a run at once, all of it.
fn kill(id: u32) {
    let ended = Command::new("kill").args(["-9", "--", &format!("-{id}")]).status().unwrap();
    assert!(ended.success());
}

/// Runs it until there is a checkpoint and then some milliseconds more, and ends it. What it said, if it had ended by itself.
fn interrupt(mut command: Command, kept: &Path, more: u64) -> Option<Said> {
    use std::os::unix::process::CommandExt;
    // Open MPI's mpiexec, ended, leaves files that one of the same process id stumbles upon
    let session = kept.with_extension("session");
    let _ = fs::remove_dir_all(&session);
    fs::create_dir_all(&session).unwrap();
    command.env("PRTE_MCA_prte_tmpdir_base", &session);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().unwrap();
    let began = Instant::now();
    let there = || kept.join("checkpoint").exists();
    while !there() && child.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < Duration::from_secs(50), "there is no checkpoint");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(more));
    if child.try_wait().unwrap().is_none() {
        kill(child.id());
        // who waits for the pipes waits for all ranks
        child.wait_with_output().unwrap();
        return None;
    }
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Some(Said {
        status: output.status.to_string(),
        output: text(output.stdout),
        display: 0,
        errors: text(output.stderr),
    })
}

const EVERY: [&str; 2] = ["--every", "0.02"];

/// One rank, and three, find what has changed by comparing.
fn compared(ranks: usize) -> &'static [&'static str] {
    if ranks == 2 { &[] } else { &["--compare"] }
}

fn resumed(ranks: usize, threads: usize, kept: &Path) -> Command {
    let options = ["--resume", kept.to_str().unwrap()];
    agents(ranks, threads, &[&options[..], &EVERY, compared(ranks)].concat())
}

fn begun(ranks: usize, threads: usize, kept: &Path, program: &Path, words: &[String]) -> Command {
    let options = ["--checkpoint", kept.to_str().unwrap()];
    let mut command = agents(ranks, threads, &[&options[..], &EVERY, compared(ranks)].concat());
    command.arg("--").arg(program).args(words);
    command
}

/// Ends a run after each of so many milliseconds behind a checkpoint, and has it go on from there.
fn ends_and_goes_on(name: &str, compiler: &Compiler, [ranks, threads]: [usize; 2], moments: &[u64]) {
    let Some(program) = build(name, compiler) else { return polyrail_testing::lacking(compiler.name) };
    for round in 0..runs() {
        // the first is as the caller says, others are at other moments
        let moved = |(at, moment): (usize, &u64)| (moment + 37 * round * (at as u64 + 1)) % 450;
        let moments: Vec<u64> = moments.iter().enumerate().map(moved).collect();
        ends_and_goes_on_once(name, compiler, &program, [ranks, threads], &moments);
    }
}

/// How often each of them is run: `KEPT_RUNS`, or once.
fn runs() -> u64 {
    std::env::var("KEPT_RUNS").map_or(1, |text| text.parse().expect("KEPT_RUNS is a number"))
}

fn ends_and_goes_on_once(
    name: &str,
    compiler: &Compiler,
    program: &Path,
    [ranks, threads]: [usize; 2],
    moments: &[u64],
) {
    let label = format!("{name} by {}, {ranks} ranks, {threads} threads, {moments:?}", compiler.name);
    let place = empty(&format!("{name}.{}.{ranks}", compiler.name));
    let mut natively = plain(program, threads);
    natively.args(words(name, &place, ROUNDS));
    let expected = left(run(natively), &place);
    empty(&format!("{name}.{}.{ranks}", compiler.name));
    let kept = empty(&format!("{name}.{}.{ranks}.checkpoints", compiler.name));
    let mut command = begun(ranks, threads, &kept, program, &words(name, &place, ROUNDS));
    for &more in moments {
        if let Some(said) = interrupt(command, &kept, more) {
            // this machine was slow to look, and the run quick
            assert_eq!(said.status, expected.status, "{label}, as it ended by itself: {}", said.errors);
            break;
        }
        command = resumed(ranks, threads, &kept);
    }
    let said = run(resumed(ranks, threads, &kept));
    let errors = said.errors.clone();
    let got = left(said, &place);
    assert_eq!((&got.status, &got.output), (&expected.status, &expected.output), "{label}: {errors}");
    for (file, bytes) in &expected.files {
        assert!(got.files.get(file) == Some(bytes), "{label}: {file} has other contents. {errors}");
    }
}

const ROUNDS: &str = "400";

#[test]
fn c_goes_on() {
    if !mpiexec(2).exists() {
        return polyrail_testing::lacking("an MPI in .venv (make setup), for runs over several ranks");
    }
    ends_and_goes_on("state.c", &COMPILERS[0], [2, 4], &[300, 0, 150]);
    ends_and_goes_on("state.c", &COMPILERS[1], [1, 3], &[100, 200]);
    ends_and_goes_on("state.c", &COMPILERS[1], [3, 3], &[100, 200]);
}

#[test]
fn cpp_goes_on() {
    if !mpiexec(2).exists() {
        return polyrail_testing::lacking("an MPI in .venv (make setup), for runs over several ranks");
    }
    ends_and_goes_on("objects.cpp", &COMPILERS[0], [2, 4], &[300, 0, 150]);
    ends_and_goes_on("objects.cpp", &COMPILERS[1], [2, 2], &[100, 200]);
}

#[test]
fn fortran_goes_on() {
    if !mpiexec(2).exists() {
        return polyrail_testing::lacking("an MPI in .venv (make setup), for runs over several ranks");
    }
    ends_and_goes_on("units.f90", &COMPILERS[0], [2, 4], &[300, 0, 150]);
}

#[test]
fn what_cannot_be_kept_is_named_and_the_program_goes_on() {
    if !mpiexec(2).exists() {
        return polyrail_testing::lacking("an MPI in .venv (make setup), for runs over several ranks");
    }
    let program = build("obstacle.c", &COMPILERS[0]).expect("gcc is there");
    for (what, why) in [
        ("socket", "is a socket"),
        ("pipe", "is a pipe"),
        ("deleted", "has no name any more"),
        ("shared", "memory that it shares with others"),
        ("library", "libraries were loaded while it ran: /lib/x86_64-linux-gnu/libresolv.so.2"),
        ("thread", "the program has 1 threads of its own"),
        ("child", "the program has child processes"),
        ("timer", "the program has timers"),
        ("unjoined", "threads that it has not joined"),
        ("mutex", "serial code holds a recursive or error-checking mutex"),
        ("executable", "memory of its own making"),
        ("specific", "on rank 1, threads have values by pthread_setspecific"),
        ("constructor", "constructors have opened"),
        ("nothing", ""),
    ] {
        let kept = empty("obstacle.checkpoints");
        let file = directory().join("obstacle.deleted").to_str().unwrap().to_owned();
        let said = run(begun(2, 2, &kept, &program, &[what.into(), file]));
        assert_eq!(
            (&said.output[..], &said.status[..]),
            ("99000\n", "exit status: 0"),
            "{what}: {}",
            said.errors
        );
        if why.is_empty() {
            assert!(kept.join("checkpoint").exists() && said.errors.is_empty(), "{}", said.errors);
            continue;
        }
        let told: Vec<&str> = said.errors.lines().filter(|line| line.contains("no checkpoint now")).collect();
        assert!(told.len() == 1 && told[0].contains(why), "{what}: {}", said.errors);
        assert!(!kept.join("checkpoint").exists(), "{what}");
    }
}

/// The files of a checkpoint, but for the manifest.
fn segments(kept: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(kept).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.retain(|path| path.file_name().unwrap() != "checkpoint");
    all
}

#[test]
fn what_cannot_be_gone_on_from_is_named() {
    if !mpiexec(2).exists() {
        return polyrail_testing::lacking("an MPI in .venv (make setup), for runs over several ranks");
    }
    let program = build("obstacle.c", &COMPILERS[0]).expect("gcc is there");
    // its own file, as it is changed
    let own = directory().join("another");
    fs::copy(&program, &own).unwrap();
    let kept = empty("refused.checkpoints");
    let refused = |command: Command, why: &str| {
        let said = run(command);
        assert!(said.errors.contains(why) && said.output.is_empty(), "{why}: {}", said.errors);
        assert_ne!(said.status, "exit status: 0", "{why}");
    };
    refused(resumed(2, 2, &kept), "there is no checkpoint");
    let words = ["nothing".to_owned()];
    let said = run(begun(2, 2, &kept, &own, &words));
    assert_eq!(said.status, "exit status: 0", "{}", said.errors);
    refused(begun(2, 2, &kept, &own, &words), "has a checkpoint of an earlier run");
    refused(resumed(2, 4, &kept), "resume it with -n 2 -t 1");
    refused(resumed(1, 2, &kept), "resume it with -n 2 -t 1");
    let mut with_program = resumed(2, 2, &kept);
    with_program.arg("--").arg(&own);
    refused(with_program, "takes no other");
    let held = fs::File::open(&kept).unwrap();
    held.lock().unwrap();
    refused(resumed(2, 2, &kept), "another run has its checkpoints there");
    drop(held);
    // a byte of the memory
    let segment = &segments(&kept)[0];
    let bytes = fs::read(segment).unwrap();
    let mut changed = bytes.clone();
    changed[bytes.len() / 2] ^= 1;
    fs::write(segment, &changed).unwrap();
    refused(resumed(2, 2, &kept), "is damaged");
    fs::write(segment, &bytes[..bytes.len() - 1]).unwrap();
    refused(resumed(2, 2, &kept), "is damaged");
    fs::write(segment, &bytes).unwrap();
    // the last regions once more
    let said = run(resumed(2, 2, &kept));
    assert_eq!((&said.output[..], &said.status[..]), ("99000\n", "exit status: 0"), "{}", said.errors);
    // another program of that name
    let mut file = fs::read(&own).unwrap();
    file.push(0);
    fs::write(&own, file).unwrap();
    refused(resumed(2, 2, &kept), "the program or its libraries are others than they were");
}
