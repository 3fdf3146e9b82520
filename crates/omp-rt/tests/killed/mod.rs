//! A process of a run is killed while it is at work, in regions or in tasks, or a host is cut off: the run ends, says what happened where somebody is left to say it, and leaves no
//! process and no file.

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

/// Of its words the first two are where output and errors of what it runs go, the third is in the command line of each of its processes, the others are what it runs: until that has
/// begun; then it cuts the hosts off from each other, and waits until all has ended and nothing is left. Its status is that of what it ran.
const CUT: &str = r#"
out=$1 errors=$2 mark=$3
shift 3
"$@" >"$out" 2>"$errors" </dev/null &
run=$!
until grep -q begun "$out"; do kill -0 $run || exit 98; sleep 0.05; done
scripts/lab blackhole 0 on || exit 98
wait $run
status=$?
for _ in {1..500}; do pgrep -f " $mark" >/dev/null || exit $status; sleep 0.1; done
echo "something is left" >>"$errors"
exit 99
"#;

/// The program that works until it is ended, by this name, as each test has its own; nothing if it cannot be run here.
fn program(name: &str) -> Option<PathBuf> {
    if [2, 3].map(|ranks| mpiexec(ranks).exists()) != [true, true] {
        polyrail_testing::lacking("an MPI in .venv (make setup), for runs over several ranks");
        return None;
    }
    prepare();
    fs::create_dir_all(directory()).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/killed/work.c");
    let program = COMPILERS[0].build(0, &[], &source, &directory().join(name), None);
    if program.is_none() {
        polyrail_testing::lacking("gcc, for a program that is killed");
    }
    Some(program?.unwrap_or_else(|why| panic!("{why}")))
}

#[test]
fn a_host_that_is_cut_off_ends_the_run() {
    let Some(program) = program("cut-off") else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let in_lab = |words: &[&str]| {
        let mut lab = Command::new("scripts/lab");
        lab.current_dir(&root).args(["run", "--rails", "0", "--"]).args(words);
        lab.stdin(Stdio::null()).output().unwrap()
    };
    if !in_lab(&["true"]).status.success() {
        return polyrail_testing::lacking("network namespaces (scripts/lab)");
    }
    let polyrail = polyrail_testing::built(
        "-p polyrail-omp-rt -p polyrail-omp-agent -p polyrail-fabric -p polyrail-cli",
    );
    let polyrail = polyrail.join("polyrail");
    for work in ["regions", "tasks"] {
        let mark = format!("cut-{}-{work}", std::process::id());
        let [out, errors, script] =
            ["out", "errors", "script"].map(|end| directory().join(format!("{mark}.{end}")));
        let line = format!(
            "env POLYRAIL_PEER_TIMEOUT=6 PATH={}:$PATH timeout 150 {} omp -n 2 -t 1 --serial master \
             -hosts a,b -ppn 1 -iface ctl -launcher ssh -launcher-exec $POLYRAIL_LAB_SSH -- {} {work} {mark}",
            mpiexec(2).parent().unwrap().display(),
            polyrail.display(),
            program.display()
        );
        let place = [&out, &errors].map(|file| file.display().to_string());
        // in a file: words of bash's own command line would be taken for something that is left
        let text = format!("set -- '{}' '{}' '{mark}' {line}\n{CUT}", place[0], place[1]);
        fs::write(&script, text).unwrap();
        let ended = in_lab(&["bash", script.to_str().unwrap()]);
        let said = fs::read_to_string(&errors).unwrap_or_default();
        let code = ended.status.code();
        // 124: it did not end by itself; 98: it had not begun, or was not cut off; 99: something is left
        let ends = !ended.status.success() && ![Some(124), Some(98), Some(99)].contains(&code);
        assert!(ends && said.contains("no rail to it is left"), "{work}: {ended:?} {said}");
        [out, errors, script].iter().for_each(|file| fs::remove_file(file).unwrap());
    }
}

#[test]
fn who_is_killed_at_work_ends_the_run_and_leaves_nothing() {
    let Some(program) = program("killed") else { return };
    for victim in [Victim::Program, Victim::Agent, Victim::Launcher] {
        for ranks in [2, 3] {
            for work in ["regions", "tasks"] {
                killed(victim, ranks, &program, work);
            }
        }
    }
}
