//! Programs for which something is scarce or forbidden do what they would do anyway; what could not be recorded is told.

use std::process::Command;

use polyrail_trace::model::Events;

use super::support::{POLYRAIL, Traced, is_root, program, recorder, trace};

fn run(words: &[&str]) -> Traced {
    let program = program("limits");
    let mut command = vec![program.to_str().unwrap()];
    command.extend(words);
    let traced = trace(&command);
    assert_eq!(traced.status, Some(0), "{}", traced.stderr);
    traced
}

/// Runs a command traced in a mount namespace of its own, after `prepare` (shell; `$M` is a directory to mount on, `$RUN` the run's).
#[track_caller]
fn in_namespace(prepare: &str, words: &[&str]) -> Option<Traced> {
    if !is_root()
        || !Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success())
    {
        polyrail_skip::lacking("root, who may mount");
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let script = format!(
        "M=\"$1\" RUN=\"$1/run\"; POLYRAIL=\"$2\"; shift 2; mkdir $M/m; {prepare}
        $POLYRAIL trace -o $RUN --no-kernel -- \"$@\"; status=$?
        [ $RUN = $M/run ] || cp -r $RUN $M/run; exit $status"
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script, "sh"]).arg(directory.path()).arg(POLYRAIL).args(words);
    command.env("POLYRAIL_RECORDER_DIR", recorder());
    Some(Traced::of(command.output().unwrap(), directory))
}

#[test]
fn little_memory() {
    run(&["memory"]).check(1);
}

#[test]
fn files_that_must_be_small() {
    // room for a ring that does not grow; no room for one
    let small = run(&["files", "200000"]);
    small.check(1);
    assert_eq!(small.recorded.run().threads.len(), 3);
    let none = run(&["files", "100"]);
    assert!(none.warnings().contains("2 threads could not record"), "{}", none.warnings());
    assert_eq!(none.recorded.run().threads.len(), 1);
}

#[test]
fn no_descriptors_left() {
    // a thread without a descriptor for its ring: it records once there is one, and what is missing is told
    let traced = run(&["descriptors"]);
    let (pid, truth) = traced.truth().pop_first().unwrap();
    let seen = traced.counts(pid);
    assert!(seen["send"].0 > 10 && seen["send"].0 < truth["send"].0, "{seen:?}");
    assert!(traced.warnings().contains("1 threads could not record for some time"), "{}", traced.warnings());
}

#[test]
fn shared_memory_that_is_full() {
    let program = program("processes");
    let program = program.to_str().unwrap();
    // room for some rings, not for those of 200 processes
    let full = "mount -t tmpfs -o size=256k tmpfs /dev/shm;";
    let Some(traced) = in_namespace(full, &[program, "many", "200"]) else { return };
    assert_eq!(traced.status, Some(0), "{}", traced.stderr);
    assert!(traced.warnings().contains("threads could not record for some time"), "{}", traced.warnings());
    assert!(traced.stderr.contains("threads could not record for some time"));
    // a ring that grows until there is nothing more: is waited for, since it is small
    let traced = in_namespace(full, &[program, "busy", "400000"]).unwrap();
    assert_eq!(traced.status, Some(0), "{}", traced.stderr);
    let (pid, truth) = traced.truth().pop_first().unwrap();
    let lost: u64 = traced.recorded.run().threads.iter().map(|thread| thread.lost).sum();
    let seen = traced.counts(pid);
    assert!(
        lost < 800_000 && seen["send"].0 + seen["recv"].0 + lost >= truth["send"].0 + truth["recv"].0,
        "{lost} {seen:?}"
    );
    // none at all
    let traced =
        in_namespace("mount -t tmpfs -o size=8k tmpfs /dev/shm;", &[program, "busy", "100"]).unwrap();
    assert_eq!(traced.status, Some(0), "{}", traced.stderr);
    assert!(traced.warnings().contains("1 threads could not record"), "{}", traced.warnings());
    // a send and a receive each, at least
    let last = traced.stderr.lines().last().unwrap_or_default();
    let lost = last.split(", ").find_map(|part| part.strip_suffix(" lost")?.parse::<u64>().ok());
    assert!(lost.is_some_and(|lost| lost >= 200), "{last}");
}

#[test]
fn a_disk_that_is_full() {
    let program = program("processes");
    let full = "mount -t tmpfs -o size=300k tmpfs $M/m; RUN=$M/m/run;";
    // a call takes a byte and a half where each takes as long as the one before: on a quick and quiet machine
    let Some(traced) = in_namespace(full, &[program.to_str().unwrap(), "busy", "500000"]) else { return };
    assert_eq!(traced.status, Some(0), "{}", traced.stderr);
    assert!(
        traced.stderr.contains("No space left on device")
            && traced.stderr.contains("kB of what was recorded could not be written"),
        "{}",
        traced.stderr
    );
    assert!(traced.warnings().contains("the recording broke off"), "{}", traced.warnings());
    let seen: u64 = traced.calls().iter().map(|call| u64::from(call.calls)).sum();
    assert!(seen > 1000 && seen < 1_000_000, "{seen}");
}

#[test]
fn filters_of_system_calls() {
    for way in ["seccomp", "seccompnumber"] {
        let traced = run(&[way]);
        traced.check_at_least();
        assert!(traced.warnings().contains("filters its system calls (seccomp)"), "{}", traced.warnings());
    }
}

#[test]
fn another_root_directory() {
    if !is_root() {
        return polyrail_skip::lacking("root, who may chroot");
    }
    let place = tempfile::tempdir().unwrap();
    let traced = run(&["chroot", place.path().join("root").to_str().unwrap()]);
    assert!(traced.warnings().contains("1 threads could not record for some time"), "{}", traced.warnings());
    let pid = traced.recorded.run().processes[0].pid;
    assert_eq!(traced.counts(pid)["send"].0, 5);
}

#[test]
fn another_user() {
    if !is_root() {
        return polyrail_skip::lacking("root, who may become another user");
    }
    let traced = run(&["nobody"]);
    assert!(traced.warnings().contains("1 threads could not record for some time"), "{}", traced.warnings());
    let pid = traced.recorded.run().processes[0].pid;
    assert_eq!(traced.counts(pid)["send"].0, 50);
    // and a program that it becomes: told, without waiting, and it runs
    let copied = std::env::temp_dir().join(format!("polyrail-limits-{}", std::process::id()));
    std::fs::copy(program("limits"), &copied).unwrap();
    let traced = trace(&[copied.to_str().unwrap(), "nobody", "exec"]);
    std::fs::remove_file(copied).unwrap();
    assert_eq!(traced.status, Some(0), "{}", traced.stderr);
    assert_eq!(traced.truth().values().next().unwrap()["send"], (3, 300));
    let cannot = traced.stderr.contains("is not recorded: it runs as another user")
        || traced.stderr.contains("cannot be preloaded");
    assert!(cannot, "{}", traced.stderr);
}
