//! A process of a run is killed while it is at work, in regions or in tasks: the run ends, says what was killed where somebody is left to say it, and leaves no process and
//! no file.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::ways::{COMPILERS, agents, built, directory, mpiexec, prepare};

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Victim {
    Program,
    Agent,
    Launcher,
}

/// No run of this test takes so long, whatever else the machine has to do.
const LONG: Duration = Duration::from_secs(50);

/// Processes whose command line has `mark` in it, by process: their command line's words.
fn marked(mark: &str) -> Vec<(i32, Vec<String>)> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let processes = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let line = |process: i32| {
        let bytes = fs::read(format!("/proc/{process}/cmdline")).ok()?;
        let words = bytes.split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
        Some((process, words.filter(|word| !word.is_empty()).collect()))
    };
    let mut marked: Vec<(i32, Vec<String>)> = processes.filter_map(line).collect();
    marked.retain(|(_, words)| words.iter().any(|word| word == mark));
    marked.sort_unstable();
    marked
}

/// The last of those that are to be killed: the one of the highest rank, most often.
fn find(victim: Victim, mark: &str, program: &Path) -> Option<i32> {
    let is = |words: &[String]| {
        let first = Path::new(words.first()?);
        let name = first.file_name()?.to_str()?;
        Some(match victim {
            Victim::Program => first == program,
            Victim::Agent => first == built("polyrail-omp-agent"),
            // MPICH's is a program, Open MPI's becomes prterun
            Victim::Launcher => name.starts_with("mpiexec") || name == "prterun",
        })
    };
    marked(mark).into_iter().rev().find(|(_, words)| is(words) == Some(true)).map(|(process, _)| process)
}

/// Processes of the run that has its files in `place`, launchers' own among them: it is in their environment.
fn left(place: &Path) -> Vec<i32> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let processes = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let variable = format!("TMPDIR={}", place.display());
    let has = |process: &i32| {
        let bytes = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        bytes.split(|&byte| byte == 0).any(|word| word == variable.as_bytes())
    };
    processes.filter(has).collect()
}

/// Nothing of a run outlives a test that fails.
struct Run<'a>(&'a Path);

impl Drop for Run<'_> {
    fn drop(&mut self) {
        for process in left(self.0) {
            let _ = Command::new("kill").args(["-9", &process.to_string()]).status();
        }
    }
}

fn killed(victim: Victim, ranks: usize, program: &Path, work: &str) {
    let label = format!("{victim:?} of {ranks} ranks, at work in {work}");
    let mark = format!("mark-{}-{victim:?}-{ranks}-{work}", std::process::id());
    let place = directory().join(&mark);
    fs::create_dir_all(&place).unwrap();
    let mut command = agents(ranks, ranks, &["--serial", "master"]);
    command.arg("--").arg(program).args([work, &mark]);
    // what launchers, and we, have for a while
    command.env("TMPDIR", &place).env("PRTE_MCA_prte_tmpdir_base", &place);
    let mut run = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _guard = Run(&place);
    let mut out = BufReader::new(run.stdout.take().unwrap());
    let mut err = run.stderr.take().unwrap();
    let said = std::thread::spawn(move || {
        let mut said = String::new();
        err.read_to_string(&mut said).unwrap();
        said
    });
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    if line != "begun\n" {
        panic!("{label}: {line:?}, {}: {}", run.wait().unwrap(), said.join().unwrap());
    }
    let process =
        find(victim, &mark, program).unwrap_or_else(|| panic!("{label}: not among {:?}", marked(&mark)));
    assert!(Command::new("kill").args(["-9", &process.to_string()]).status().unwrap().success());
    let status = run.wait().unwrap();
    let ended = Instant::now();
    while !left(&place).is_empty() {
        assert!(ended.elapsed() < LONG, "{label}: {:?} of {:?} are left", left(&place), marked(&mark));
        std::thread::sleep(Duration::from_millis(20));
    }
    // who is left would have it open
    let said = said.join().unwrap();
    // 124: the run's own time was over
    assert!(!status.success() && status.code() != Some(124), "{label}: {status}: {said}");
    if victim == Victim::Program {
        assert!(said.contains("polyrail omp: ") && said.contains("was ended by signal 9"), "{label}: {said}");
    }
    let files: Vec<_> = fs::read_dir(&place).unwrap().flatten().map(|entry| entry.path()).collect();
    // Open MPI's launcher, killed, leaves its session's directory itself
    let launchers = |path: &PathBuf| ranks == 3 && path.to_string_lossy().contains("/ompi.");
    assert!(files.iter().all(launchers), "{label}: {files:?}");
    fs::remove_dir_all(&place).unwrap();
}

#[test]
fn who_is_killed_at_work_ends_the_run_and_leaves_nothing() {
    let there = [2, 3].map(|ranks| mpiexec(ranks).exists());
    if there != [true, true] {
        return polyrail_testing::lacking("an MPI in .venv (make setup), for runs over several ranks");
    }
    prepare();
    fs::create_dir_all(directory()).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/killed/work.c");
    let Some(program) = COMPILERS[0].build(0, &[], &source, &directory().join("killed"), None) else {
        return polyrail_testing::lacking("gcc, for a program that is killed");
    };
    let program = program.unwrap_or_else(|why| panic!("{why}"));
    for victim in [Victim::Program, Victim::Agent, Victim::Launcher] {
        for ranks in [2, 3] {
            for work in ["regions", "tasks"] {
                killed(victim, ranks, &program, work);
            }
        }
    }
}
