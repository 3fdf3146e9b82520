//! Programs for which something is scarce or forbidden do what they would do anyway; what could not be recorded is told.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use polyrail_core::trace::ring::session;
use polyrail_trace::collect::Collector;
use polyrail_trace::model::Events;
use polyrail_trace::options::Options;

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
        polyrail_testing::lacking("root, who may mount");
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
        return polyrail_testing::lacking("root, who may chroot");
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
        return polyrail_testing::lacking("root, who may become another user");
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

/// A page that somebody else may cut short would end the program that maps it.
#[test]
fn sessions_of_others_are_not_used() {
    let place = tempfile::tempdir().unwrap();
    let session = |name: &str, page: &[u8]| {
        let directory = place.path().join(name);
        fs::create_dir(&directory).unwrap();
        fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
        fs::write(directory.join("session"), page).unwrap();
        fs::set_permissions(directory.join("session"), Permissions::from_mode(0o600)).unwrap();
        directory
    };
    let mut page = vec![0; session::SIZE];
    page[..8].copy_from_slice(&session::MAGIC.to_le_bytes());
    let said = |directory: &Path| {
        let mut command = Command::new(program("processes"));
        command.args(["busy", "10"]).env("POLYRAIL_TRACE", directory);
        let ended = command.env("LD_PRELOAD", recorder().join("libpolyrail_preload.so")).output().unwrap();
        assert!(ended.status.success(), "{:?}", ended.status);
        String::from_utf8_lossy(&ended.stderr).into_owned()
    };
    assert_eq!(said(&session("good", &page)), "");
    let short = session("short", &page[..100]);
    let linked = session("linked", &page);
    fs::rename(linked.join("session"), linked.join("page")).unwrap();
    std::os::unix::fs::symlink("page", linked.join("session")).unwrap();
    let open = session("open", &page);
    fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
    let written = session("written", &page);
    fs::set_permissions(written.join("session"), Permissions::from_mode(0o666)).unwrap();
    for directory in [&short, &linked, &open, &written] {
        let said = said(directory);
        assert!(said.contains("is another user's, or others may write to it"), "{directory:?}: {said}");
    }
    let begin = |directory: &Path| {
        Collector::begin(directory, &place.path().join("run"), Options::default()).map(Collector::end)
    };
    let refused = begin(&open).expect_err("others may write there").to_string();
    assert!(refused.contains("not this user's, or others may write to it"), "{refused}");
    if !is_root() {
        return polyrail_testing::lacking("root, who may give files to another user");
    }
    let given = session("given", &page);
    std::os::unix::fs::chown(given.join("session"), Some(65534), None).unwrap();
    assert!(said(&given).contains("another user's"));
    std::os::unix::fs::chown(&given, Some(65534), None).unwrap();
    begin(&given).expect_err("another user's");
}

/// Command lines and addresses are nobody else's business.
#[test]
fn what_is_recorded_is_its_users_alone() {
    let place = tempfile::tempdir().unwrap();
    let run = place.path().join("new/run");
    let words = ["-c", "umask 0; exec \"$@\"", "sh", POLYRAIL, "trace", "--no-kernel", "-o"];
    let mut command = Command::new("sh");
    command.args(words).arg(&run).args(["--", "true"]).env("POLYRAIL_RECORDER_DIR", recorder());
    assert!(command.status().unwrap().success());
    assert!(Command::new(POLYRAIL).arg("report").arg(&run).stdout(Stdio::null()).status().unwrap().success());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&run), 0o700);
    let files: Vec<_> = fs::read_dir(&run).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() > 5, "{files:?}");
    files.iter().for_each(|file| assert_eq!(mode(file), 0o600, "{file:?}"));
}
