//! Whole runs: agents under both MPIs, with a program (`examples/program.rs`) that speaks with them as the runtime does.
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

fn mpiexec(mpi: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv").join(mpi).join("bin/mpiexec");
    path.is_file().then_some(path)
}

/// Where cargo puts examples: it builds them with the tests, beside the directory of test programs.
fn program() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().parent().unwrap().join("examples/program")
}

fn command(mpi: &str, ranks: usize, words: &[&str]) -> Command {
    let mpiexec = mpiexec(mpi).unwrap_or_else(|| panic!("{mpi} is not there: make setup"));
    // no test hangs
    let mut command = Command::new("timeout");
    command.arg("100").arg(mpiexec).args(["-n", &ranks.to_string()]);
    if mpi == "openmpi" {
        command.args(["--bind-to", "none", "--map-by", ":oversubscribe"]);
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    }
    command.arg(env!("CARGO_BIN_EXE_polyrail-omp-agent")).arg("--").arg(program()).args(words);
    // any library will do: this program needs no runtime
    command.env("POLYRAIL_OMP_RT", "libm.so.6").stdin(Stdio::null());
    // agents are what is tried here; ranks of one host do without them otherwise
    command.env("POLYRAIL_OMP_SHM", "0");
    let runtime = ["/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6", "/usr/lib/libm.so.6"];
    if let Some(path) = runtime.into_iter().find(|path| Path::new(path).exists()) {
        command.env("POLYRAIL_OMP_RT", path);
    }
    command
}

/// Eight ranks on two processors leave no others their time: one whole run at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|broken| broken.into_inner())
}

/// Status, standard output and what agents say.
fn run(mpi: &str, ranks: usize, words: &[&str]) -> (Option<i32>, String, String) {
    told(command(mpi, ranks, words).output().unwrap())
}

fn told(output: Output) -> (Option<i32>, String, String) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let ours: Vec<&str> = stderr
        .lines()
        .filter(|line| line.starts_with("polyrail") || line.contains("panicked") || line.contains("assert"))
        .collect();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), ours.join("\n"))
}

const MPIS: [&str; 2] = ["mpich", "openmpi"];

#[test]
fn exchanges_bring_every_byte() {
    let _alone = alone();
    for mpi in MPIS {
        for ranks in [1, 2, 3, 8] {
            assert_eq!(
                run(mpi, ranks, &["exchanges"]),
                (Some(0), String::new(), String::new()),
                "{mpi} {ranks}"
            );
        }
    }
}

#[test]
fn services_serve() {
    let _alone = alone();
    for mpi in MPIS {
        for ranks in [1, 2, 4] {
            assert_eq!(
                run(mpi, ranks, &["services"]),
                (Some(0), String::new(), String::new()),
                "{mpi} {ranks}"
            );
        }
    }
}

#[test]
fn all_processes_are_alike() {
    let _alone = alone();
    for mpi in MPIS {
        // numbers of ranks with one digit and with two
        let (status, text, told) = run(mpi, 11, &["same"]);
        assert_eq!((status, told.as_str()), (Some(0), ""), "{mpi}");
        for stranger in ["OMPI_", "PMI", "HYD", "POLYRAIL_", "FI_"] {
            assert!(
                !text.lines().any(|line| line.trim_start_matches('"').starts_with(stranger)),
                "{mpi}: {text}"
            );
        }
        assert!(text.contains("libgomp.so.1") && text.contains("\"LD_BIND_NOW\"=\"1\""), "{mpi}: {text}");
    }
}

#[test]
fn a_run_ends_as_the_program_does_and_says_why_once() {
    let _alone = alone();
    let dies = "its part of the program was ended by signal 11 (segmentation fault)";
    for mpi in MPIS {
        for (words, status, says) in [
            ("end 0 exit 7", 7, ""),
            ("end 2 exit 7", 7, ""),
            ("end 0 signal", 139, "polyrail omp: the program was ended by signal 11 (segmentation fault)"),
            ("end 2 signal", 139, dies),
            ("end 2 return 5", 5, "its part of the program ended with status 5"),
            ("end 0 fail", 1, "no memory left"),
            ("end 2 fail", 1, "no memory left"),
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            let begun = Instant::now();
            let (ended, _, told) = run(mpi, 3, &words);
            assert_eq!(ended, Some(status), "{mpi} {words:?}: {told}");
            assert!(
                told.lines().count() <= 1 && told.contains(says) && told.is_empty() == says.is_empty(),
                "{mpi} {words:?}: {told}"
            );
            if says.starts_with("its") || says.starts_with("no memory") {
                assert!(told.starts_with(&format!("polyrail omp: rank {} on ", words[1])), "{told}");
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "{mpi} {words:?}");
        }
    }
}

/// Processes whose command line has `mark` in it, other than mpiexec and this.
fn left(mark: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(mark)).collect()
}

#[test]
fn an_agent_that_is_killed_takes_all_with_it() {
    let _alone = alone();
    for mpi in MPIS {
        for rank in ["0", "1"] {
            // found again among all processes
            let mark = format!("{}-{mpi}-{rank}", std::process::id());
            let begun = Instant::now();
            let (status, ..) = run(mpi, 3, &["end", rank, "agent", &mark]);
            assert!(status != Some(0) && begun.elapsed() < Duration::from_secs(30), "{mpi}: {status:?}");
            let gone = Instant::now();
            while !left(&mark).is_empty() {
                assert!(gone.elapsed() < Duration::from_secs(10), "{mpi}: {:?}", left(&mark));
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

#[test]
fn busy_waiting_is_found_and_computing_is_left_alone() {
    let _alone = alone();
    let run =
        |words: &[&str]| told(command("mpich", 2, words).env("POLYRAIL_OMP_WATCHDOG", "1").output().unwrap());
    let (status, _, told) = run(&["end", "1", "spin"]);
    assert_eq!(status, Some(1), "{told}");
    assert!(
        told.contains("rank 1 on ") && told.contains("busy waiting on shared memory is not supported"),
        "{told}"
    );
    let (status, _, told) = run(&["end", "0", "compute", "6"]);
    assert_eq!((status, told.as_str()), (Some(0), ""));
}

#[test]
fn what_cannot_be_started_is_told_by_rank_0_alone() {
    let _alone = alone();
    for mpi in MPIS {
        let mut command = command(mpi, 2, &[]);
        command.env("POLYRAIL_OMP_RT", "/nowhere/rt.so");
        let (status, _, said) = told(command.output().unwrap());
        assert_eq!(status, Some(125), "{mpi}: {said}");
        assert!(said.lines().count() == 1 && said.contains("/nowhere/rt.so"), "{mpi}: {said}");
    }
}

#[test]
fn signals_reach_the_program_and_end_the_run() {
    let _alone = alone();
    let mut child = command("mpich", 2, &["sleep", "60"]).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let begun = Instant::now();
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    let status = child.wait().unwrap();
    assert!(!status.success() && begun.elapsed() < Duration::from_secs(20), "{status}");
}

/// Agents whose command line has `mark` in it, by process.
fn agents(mark: &str) -> Vec<i32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let is_agent = |process: &i32| {
        let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        line.split('\0').next().is_some_and(|first| first.ends_with("polyrail-omp-agent"))
            && line.contains(mark)
    };
    let mut agents: Vec<i32> =
        all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_agent).collect();
    agents.sort_unstable();
    agents
}

/// Over the provider, which tells MPI when a process leaves, and then MPICH ends the job if anything under way names it.
#[test]
fn nobody_leaves_while_others_need_it() {
    let _alone = alone();
    let polyrail = Path::new(env!("CARGO_BIN_EXE_polyrail-omp-agent")).with_file_name("polyrail");
    // libraries that programs load are built by `cargo build` only, as `make test` does it first
    let places = [".", "../release"].map(|place| polyrail.with_file_name(place));
    let provider = places.iter().find(|place| place.join("libpolyrail_fi.so").exists());
    let Some(provider) = provider.filter(|_| polyrail.exists()) else {
        return polyrail_testing::lacking("polyrail and its provider, built (make build)");
    };
    let mark = format!("{}-leave", std::process::id());
    for turn in 0..12 {
        let mut command = Command::new("timeout");
        command.arg("100").arg(&polyrail).args(["omp", "-n", "8", "-t", "1", "--provider-dir"]);
        command.arg(provider).arg("--mpiexec");
        command.arg(mpiexec("mpich").expect("mpich is not there: make setup"));
        command.arg("--").arg(program()).args(["end", "0", "exit", "7", &mark]);
        command.env("POLYRAIL_OMP_RT", "/lib/x86_64-linux-gnu/libm.so.6").env("POLYRAIL_OMP_SHM", "0");
        let mut run = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // one after the other gets no processor for a while
        for stopped in (1..8).cycle() {
            if run.try_wait().unwrap().is_some() {
                break;
            }
            if let Some(agent) = agents(&mark).get(stopped) {
                let signal =
                    |name: &str| Command::new("kill").args([name, &agent.to_string()]).output().unwrap();
                signal("-STOP");
                std::thread::sleep(Duration::from_millis(20));
                signal("-CONT");
            }
        }
        let (status, _, told) = told(run.wait_with_output().unwrap());
        // that this program uses no OpenMP is known
        let new: Vec<&str> = told.lines().filter(|line| !line.contains("uses no OpenMP")).collect();
        assert_eq!((status, new), (Some(7), Vec::new()), "run {turn}");
    }
}
