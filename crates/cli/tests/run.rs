//! `polyrail run` as a whole, with a launcher of our own in place of mpiexec: a shell script that starts the program
//! once per rank, and ranks that report by the shell's own TCP.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Starts its program for every rank up to `-n`, as Hydra would, and ends with the highest exit status.
const MPIEXEC: &str = r#"#!/bin/bash
if [ "$1" = --version ]; then printf 'HYDRA build details:\n    Version: 5.0.2\n'; exit; fi
shift; ranks=$1; shift
# by its table of jobs: a rank may have spoken before its number is in `pids`
trap 'kill $(jobs -p); exit 77' TERM
for ((rank = 0; rank < ranks; rank++)); do PMI_RANK=$rank PMI_SIZE=$ranks "$@" & pids+=($!); done
status=0
for pid in "${pids[@]}"; do wait $pid || status=$?; done
exit $status
"#;

/// What a rank does that uses the provider: `report [STATUS]`, or that does not: `report STATUS RANK...` for those.
const RANK: &str = r#"#!/bin/bash
IFS=, read -r token address _ <<< "$POLYRAIL_REPORT"
[[ " ${*:2} " = *" $PMI_RANK "* ]] ||
  echo "polyrail $token node $$ $PMI_RANK $PMI_SIZE shm" | "$(dirname "$0")/send" "$address"
exit "${1:-0}"
"#;

/// A rank that has an endpoint, by which it was connected with `$1` others.
const SILENT: &str = r#"#!/bin/bash
IFS=, read -r token address _ <<< "$POLYRAIL_REPORT"
for text in shm "carried $1 0 0 "; do
  echo "polyrail $token node $$ $PMI_RANK $PMI_SIZE $text" | "$(dirname "$0")/send" "$address"
done
"#;

struct Stage(TempDir);

impl Stage {
    fn new() -> Self {
        let stage = Self(tempfile::tempdir().unwrap());
        stage.put("mpiexec", MPIEXEC);
        stage.put("rank", RANK);
        // bash wants host and port apart, and no brackets
        stage.put(
            "send",
            "#!/bin/bash\nhost=${1%:*}; host=${host#[}; cat > \"/dev/tcp/${host%]}/${1##*:}\"\n",
        );
        stage.put("libpolyrail_fi.so", "");
        stage
    }

    fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        polyrail_testing::executable(&path, text);
        path
    }

    fn command(&self, words: &str) -> Command {
        self.by("mpich", "./mpiexec", words)
    }

    fn by(&self, mpi: &str, launcher: &str, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polyrail"));
        command.args(["run", "--mpi", mpi, "--mpiexec", launcher, "--provider-dir", "."]);
        command.args(words.split_whitespace()).current_dir(&self.0).stdin(Stdio::null());
        command
    }

    fn run(&self, words: &str) -> (Option<i32>, String, String) {
        let Output { status, stdout, stderr } = self.command(words).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code(), text(stdout), text(stderr))
    }
}

#[test]
fn all_ranks_that_report_make_no_noise() {
    let (status, stdout, stderr) = Stage::new().run("-n 3 ./rank");
    assert_eq!((status, stdout.as_str(), stderr.as_str()), (Some(0), "", ""));
}

#[test]
fn the_programs_own_status_is_handed_through() {
    let (status, _, stderr) = Stage::new().run("-n 2 ./rank 7");
    assert_eq!((status, stderr.as_str()), (Some(7), ""));
    let (status, _, stderr) = Stage::new().run("-n 2 ./rank 7 1");
    assert!(status == Some(7) && stderr.contains("only 1 of 2 ranks used Polyrail (not: 1)"), "{stderr}");
}

#[test]
fn a_program_that_ran_on_something_else_is_told_of_and_fails() {
    let (status, _, stderr) = Stage::new().run("-n 4 ./rank 0 1 2");
    assert!(status == Some(86) && stderr.contains("only 2 of 4 ranks used Polyrail (not: 1, 2)"), "{stderr}");
    let (status, _, stderr) = Stage::new().run("-n 2 true");
    assert!(status == Some(86) && stderr.contains("no rank used Polyrail"), "{stderr}");
}

/// An endpoint that was opened has carried nothing yet.
#[test]
fn ranks_by_whose_endpoints_nothing_went_are_told_of() {
    let stage = Stage::new();
    stage.put("silent", SILENT);
    let with = |words: &str, nolocal: &str| {
        let output = stage.command(words).env("MPIR_CVAR_NOLOCAL", nolocal).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, stderr) = with("-n 2 ./silent 0", "0");
    assert!(status == Some(86) && stderr.contains("MPIR_CVAR_NOLOCAL=0"), "{stderr}");
    let (status, stderr) = with("-n 2 ./silent 0", "1");
    assert!(status == Some(0) && stderr.contains("note: no message went by Polyrail"), "{stderr}");
    for (words, nolocal) in [("-n 2 ./silent 1", "0"), ("-n 1 ./silent 0", "1")] {
        assert_eq!(with(words, nolocal), (Some(0), String::new()), "{words}");
    }
}

/// Slurm's launcher as far as this goes: it knows two protocols, and its tasks find its numbers.
const SRUN: &str = r#"#!/bin/bash
case $1 in
--version) echo 'slurm 22.05.8'; exit ;;
--mpi=list) printf 'MPI plugin types are...\n\tnone\n\tpmi2\n'; exit ;;
esac
echo "srun $* ${SLURM_EXPORT_ENV:-}" >&2
while [[ $1 == -* ]]; do case $1 in -n) ranks=$2; shift 2 ;; -N) shift 2 ;; *) shift ;; esac; done
for ((rank = 0; rank < ranks; rank++)); do PMI_RANK=$rank PMI_SIZE=$ranks "$@" & done
wait
"#;

/// Its tasks are counted like any launcher's ranks, and told of each other by the protocol that their MPI speaks.
#[test]
fn slurms_launcher_is_one_of_them() {
    let stage = Stage::new();
    stage.put("srun", SRUN);
    stage.put("silent", SILENT);
    let run = |mpi: &str, words: &str, export: Option<&str>| {
        let mut command = stage.by(mpi, "./srun", words);
        command.env_remove("SLURM_MPI_TYPE").env_remove("SLURM_EXPORT_ENV");
        if let Some(export) = export {
            command.env("SLURM_EXPORT_ENV", export);
        }
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, stderr) = run("mpich", "-N 1 -n 2 -- ./rank", None);
    assert_eq!((status, stderr.as_str()), (Some(0), "srun --mpi=pmi2 -N 1 -n 2 ./rank \n"));
    let (status, stderr) = run("mpich", "-n 3 -- ./rank 0 1", Some("NONE"));
    assert!(stderr.starts_with("srun --mpi=pmi2 -n 3 ./rank 0 1 ALL\n"), "{stderr}");
    assert!(status == Some(86) && stderr.contains("only 2 of 3 ranks used Polyrail (not: 1)"), "{stderr}");
    // jobs of their own
    let (status, stderr) = run("mpich", "-n 2 --mpi=none -- ./silent 0", None);
    assert!(
        status == Some(86) && stderr.contains("with --mpi=none each task may be a job of its own"),
        "{stderr}"
    );
    let (status, stderr) = run("openmpi", "-n 2 ./rank", None);
    assert!(status == Some(125) && stderr.contains("by pmix") && stderr.contains("none, pmi2"), "{stderr}");
}

/// What the launcher, or the program, has said is the reason; there is nothing to guess.
#[test]
fn a_launcher_that_refuses_is_not_explained() {
    let stage = Stage::new();
    stage.put("fails", "#!/bin/sh\necho 'there are not enough slots' >&2; exit 3\n");
    let (status, _, stderr) = stage.run("-n 2 ./fails");
    assert!(status == Some(3) && stderr.contains("not enough slots"), "{stderr}");
    assert!(stderr.contains("ended with status 3 before any rank") && !stderr.contains("Likely"), "{stderr}");
}

/// MPI would only say that a domain cannot be opened, in each rank.
#[test]
fn settings_are_looked_at_before_anything_starts() {
    let stage = Stage::new();
    let with = |name: &str, value: &str| {
        let output = stage.command("-n 1 ./rank").env(name, value).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, stderr) = with("POLYRAIL_RAILS", "foo");
    assert!(status == Some(125) && stderr.contains("POLYRAIL_RAILS") && stderr.contains("foo"), "{stderr}");
    let (status, stderr) = with("POLYRAIL_RIALS", "tcp");
    assert!(status == Some(0) && stderr.contains("did you mean POLYRAIL_RAILS?"), "{stderr}");
}

#[test]
fn the_environment_reaches_the_ranks() {
    let stage = Stage::new();
    let (_, stdout, _) = stage.run("-n 1 env");
    let dir = stage.0.path().canonicalize().unwrap();
    for line in ["FI_PROVIDER=polyrail", "MPIR_CVAR_CH4_NETMOD=ofi", "MPIR_CVAR_NOLOCAL=1"] {
        assert!(stdout.lines().any(|l| l == line), "{line} is not in\n{stdout}");
    }
    let path = stdout.lines().find_map(|line| line.strip_prefix("FI_PROVIDER_PATH=")).unwrap();
    assert_eq!(PathBuf::from(path).canonicalize().unwrap(), dir);

    let tuned =
        stage.command("-n 1 env").env("MPIR_CVAR_NOLOCAL", "0").env("FI_PROVIDER", "tcp").output().unwrap();
    let stdout = String::from_utf8(tuned.stdout).unwrap();
    assert!(
        stdout.contains("\nMPIR_CVAR_NOLOCAL=0\n") || stdout.starts_with("MPIR_CVAR_NOLOCAL=0\n"),
        "{stdout}"
    );
    assert!(!stdout.contains("FI_PROVIDER=tcp"), "{stdout}");
}

#[test]
fn what_is_printed_for_other_launchers_sets_the_same() {
    let stage = Stage::new();
    let (status, exports, _) = stage.run("--print-env mpich");
    assert_eq!(status, Some(0));
    let shell = Command::new("bash").args(["-c", &format!("{exports} env")]).output().unwrap();
    let stdout = String::from_utf8(shell.stdout).unwrap();
    assert!(stdout.contains("FI_PROVIDER=polyrail\n") && !stdout.contains("POLYRAIL_REPORT"), "{stdout}");
    let (status, stdout, _) = stage.run("--dry-run -n 2 ./rank");
    assert!(status == Some(0) && stdout.contains("./mpiexec -n 2 ./rank"), "{stdout}");
}

#[test]
fn what_cannot_start_says_why() {
    let stage = Stage::new();
    for (words, why) in [("", "no program given"), ("-n 2 -ppn 1 ./rank", "put -- before the program")] {
        let (status, _, stderr) = stage.run(words);
        assert!(status == Some(125) && stderr.contains(why), "{words}: {stderr}");
    }
}

#[test]
fn signals_reach_the_launcher() {
    let stage = Stage::new();
    stage.put("wait", "#!/bin/bash\necho up\nexec sleep 60\n");
    let start = Instant::now();
    let mut child =
        stage.command("-n 1 ./wait").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    // the launcher's own answer to the signal, not this command's death by it
    assert_eq!(child.wait().unwrap().code(), Some(77));
    assert!(start.elapsed() < Duration::from_secs(30));
}

#[test]
fn who_is_killed_takes_the_launcher_along() {
    let stage = Stage::new();
    stage.put("wait", "#!/bin/bash\necho up\nexec sleep 600\n");
    let mut child =
        stage.command("-n 1 ./wait").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    child.kill().unwrap();
    child.wait().unwrap();
    // launcher and ranks hold the other end
    let (done, over) = mpsc::channel();
    std::thread::spawn(move || done.send(out.read_to_end(&mut Vec::new())));
    assert!(over.recv_timeout(Duration::from_secs(60)).is_ok(), "the job goes on");
}
