//! Jobs whose hosts are of two sites, which reach each other by gateways alone: `scripts/lab run --sites`, with a real sshd on each host.

use std::process::{Command, Stdio};

use super::{MPIS, alone, built, root};

/// What each rank does: sums, and long messages between the first and the last, which are at different sites.
const PROGRAM: &str = "
import socket, sys
from mpi4py import MPI
world = MPI.COMM_WORLD
rank, last = world.rank, world.size - 1
names = world.allgather(socket.gethostname())
for length in (8, 100_000, 3_000_000):
    sent, got = bytes([rank + 1]) * length, bytearray(length)
    for turn in range(int(sys.argv[1])):
        if rank in (0, last):
            world.Sendrecv(sent, last - rank, 0, got, last - rank, 0)
            assert got == bytes([last - rank + 1]) * length
        assert world.allreduce(rank + turn) == sum(range(world.size)) + world.size * turn
        if turn == 20 and rank == 0 and len(sys.argv) > 2:
            open(sys.argv[2], 'w').close()
if rank == 0:
    print('hosts', *names)
";

/// Runs a job of four ranks in the lab with two sites of two hosts; its exit status, and what was said.
fn run(mpi: &str, options: &str, words: &str) -> (Option<i32>, String) {
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join("program.py");
    std::fs::write(&program, PROGRAM).unwrap();
    let hosts = match mpi {
        "mpich" => "-n 4 -hosts a,b,c,d -ppn 1 -launcher ssh -launcher-exec $POLYRAIL_LAB_SSH",
        _ => "-n 4 --host a,b,c,d --prtemca plm_ssh_agent $POLYRAIL_LAB_SSH",
    };
    let (built, root) = (built(), root());
    let lines = format!(
        "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 POLYRAIL={polyrail}
        scripts/lab gateways $POLYRAIL || exit 99
        (until [ -e $POLYRAIL_LAB/now ]; do sleep 0.1; done; scripts/lab gateway east $POLYRAIL) &
        timeout --kill-after=5 100 $POLYRAIL run {options} {hosts} -- {root}/.venv/{mpi}/bin/python {program} {words}
        status=$?
        sed 's/^/at the border: /' $POLYRAIL_LAB/west.log $POLYRAIL_LAB/east.log
        exit $status",
        root = root.display(),
        polyrail = built.join("polyrail").display(),
        program = program.display(),
    );
    let mut lab = Command::new(root.join("scripts/lab"));
    lab.args([
        "run",
        "--hosts",
        "4",
        "--rails",
        "0",
        "--sites",
        "relay:1000,delay=3ms",
        "--",
        "bash",
        "-c",
        &lines,
    ]);
    lab.env("POLYRAIL_LAB_RELAY", built.join("polyrail-lab-relay")).current_dir(&root).stdin(Stdio::null());
    let output = lab.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

/// Whether the lab can have two sites; else it is said why.
pub fn are_there() -> bool {
    let mut lab = Command::new(root().join("scripts/lab"));
    lab.args(["run", "--sites", "relay:0", "--", "true"])
        .env("POLYRAIL_LAB_RELAY", built().join("polyrail-lab-relay"));
    let output = lab.current_dir(root()).output().unwrap();
    if !output.status.success() {
        polyrail_testing::lacking(String::from_utf8_lossy(&output.stderr).trim());
    }
    output.status.success()
}

#[test]
fn jobs_have_hosts_of_two_sites() {
    let _alone = alone();
    if !are_there() {
        return;
    }
    for mpi in MPIS {
        // every rank says that it used Polyrail, also those of the other site
        let (status, said) = run(mpi, "--verbose", "3");
        assert!(status == Some(0) && said.contains("hosts a b c d"), "{mpi}: {status:?} {said}");
    }
}

#[test]
fn where_a_gateway_dies_the_job_is_told() {
    let _alone = alone();
    if !are_there() {
        return;
    }
    for mpi in MPIS {
        let (status, said) = run(mpi, "", "100000 $POLYRAIL_LAB/now");
        // PRRTE says so, and ends with status 0
        let told = status != Some(0) || said.contains("lost communication with a remote daemon");
        assert!(told && !matches!(status, Some(86 | 99 | 124 | 137) | None), "{mpi}: {status:?} {said}");
    }
}
