//! Programs that preloading cannot see are told of: never a recording as if nothing had happened. And programs elsewhere: in
//! namespaces of their own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use polyrail_trace::model::{Event, Events};

use super::support::{Traced, build, counts, is_root, program, trace, trace_with, tracing, until};

#[test]
fn static_programs() {
    let Some(program) = build("processes", &["-static"]) else {
        return polyrail_testing::lacking("a static C library");
    };
    let program = program.to_str().unwrap();
    let told = |traced: &Traced, times: &str| {
        assert_eq!(traced.status, Some(0), "{}", traced.stderr);
        let text = format!("{program} was run{times} and it is linked without the dynamic loader");
        assert!(traced.warnings().contains(&text), "{}", traced.warnings());
        assert!(
            traced.stderr.contains("a program was started that preloading cannot see"),
            "{}",
            traced.stderr
        );
    };
    told(&trace(&[program, "talk", "3"]), "");
    // started by a program that is seen
    told(&trace(&["sh", "-c", &format!("{program} talk 3; {program} talk 3; true")]), ", 2 times");
}

#[test]
fn programs_of_another_kind() {
    let place = tempfile::tempdir().unwrap();
    let foreign = place.path().join("foreign");
    // exit(7) by itself, for 32 bits
    let source = ".globl _start\n_start: movl $1, %eax\n movl $7, %ebx\n int $0x80\n";
    fs::write(place.path().join("foreign.s"), source).unwrap();
    let mut build = Command::new("cc");
    build.args(["-m32", "-nostdlib", "-static", "-o"]).arg(&foreign).arg(place.path().join("foreign.s"));
    if !build.output().is_ok_and(|output| output.status.success()) || Command::new(&foreign).status().is_err()
    {
        return polyrail_testing::lacking("a system that runs 32-bit programs");
    }
    let traced = trace(&["sh", "-c", &format!("{}; exit $?", foreign.display())]);
    assert_eq!(traced.status, Some(7));
    assert!(
        traced.warnings().contains("it is of another architecture than the recorder"),
        "{}",
        traced.warnings()
    );
}

#[test]
fn programs_with_more_rights() {
    if !is_root()
        || !Command::new("setpriv").arg("--version").output().is_ok_and(|output| output.status.success())
    {
        return polyrail_testing::lacking("root, who can make setuid programs");
    }
    let place = tempfile::tempdir().unwrap();
    let open =
        |path: &std::path::Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    open(place.path(), 0o777);
    let (privileged, library) =
        (place.path().join("privileged"), place.path().join("libpolyrail_preload.so"));
    fs::copy(program("processes"), &privileged).unwrap();
    open(&privileged, 0o4755);
    fs::copy(super::support::recorder().join("libpolyrail_preload.so"), &library).unwrap();
    let polyrail = place.path().join("polyrail");
    fs::copy(super::support::POLYRAIL, &polyrail).unwrap();
    open(&polyrail, 0o755);
    let as_nobody = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&polyrail);
        command.args(["trace", "-o"]).arg(place.path().join("run")).args(["--no-kernel", "--"]).args(words);
        let output = command.env("POLYRAIL_RECORDER_DIR", place.path()).output().unwrap();
        let copy = tempfile::tempdir().unwrap();
        fs::rename(place.path().join("run"), copy.path().join("run")).unwrap();
        Traced::of(output, copy)
    };
    let script = format!("{} talk 3", privileged.display());
    let traced = as_nobody(&["sh", "-c", &format!("{script}; true")]);
    assert_eq!(traced.status, Some(0), "{}", traced.stderr);
    assert!(traced.warnings().contains("it runs with another user's rights"), "{}", traced.warnings());
    let traced = as_nobody(&script.split(' ').collect::<Vec<_>>());
    assert!(traced.stderr.contains("nothing was recorded"), "{}", traced.stderr);
    // for root it gives no rights, and is seen
    trace(&[privileged.to_str().unwrap(), "talk", "3"]).check(1);
}

#[test]
fn programs_of_another_user() {
    let by_setpriv = ["setpriv", "--reuid", "65534", "--clear-groups", "/bin/sh", "-c", "exit 3"];
    if !is_root()
        || !Command::new("setpriv").arg("--version").output().is_ok_and(|output| output.status.success())
    {
        return polyrail_testing::lacking("root, who can become another user");
    }
    let traced = trace(&by_setpriv);
    assert_eq!(traced.status, Some(3), "{}", traced.stderr);
    let told = "/bin/sh was run and it runs as another user than the command, who may not use its session: its calls were recorded not at all";
    assert!(traced.warnings().contains(told), "{}", traced.warnings());
}

#[test]
fn go_programs() {
    let place = tempfile::tempdir().unwrap();
    let source = "package main\nimport \"net\"\nfunc main() { l, _ := net.Listen(\"tcp\", \"127.0.0.1:0\"); c, _ := net.Dial(\"tcp\", \
                  l.Addr().String()); c.Write([]byte(\"x\")); c.Close() }\n";
    fs::write(place.path().join("main.go"), source).unwrap();
    let mut go = Command::new("go");
    go.args(["build", "-o", "program", "main.go"])
        .current_dir(&place)
        .env("CGO_ENABLED", "0")
        .env("GO111MODULE", "off");
    go.env("GOCACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/go")).env("GOFLAGS", "-p=2");
    if !go.output().is_ok_and(|output| output.status.success()) {
        return polyrail_testing::lacking("a Go compiler");
    }
    let program = place.path().join("program");
    for words in [vec![program.to_str().unwrap()], vec!["sh", "-c", &format!("{}; true", program.display())]]
    {
        let traced = trace(&words);
        assert_eq!(traced.status, Some(0), "{}", traced.stderr);
        assert!(
            traced.warnings().contains("it is linked without the dynamic loader"),
            "{}",
            traced.warnings()
        );
        assert!(traced.stderr.contains("preloading cannot see"), "{}", traced.stderr);
    }
}

/// Whether `unshare` works with these flags; says so if not.
#[track_caller]
pub fn may_unshare(flags: &[&str]) -> bool {
    let may = is_root()
        && Command::new("unshare").args(flags).arg("true").status().is_ok_and(|status| status.success());
    if !may {
        polyrail_testing::lacking("root, who may make namespaces");
    }
    may
}

/// Runs it by `unshare` with these flags; `None`: not allowed.
#[track_caller]
fn unshared(flags: &[&str], words: &[&str]) -> Option<Traced> {
    let mut all = vec!["unshare"];
    all.extend(flags);
    all.extend(words);
    may_unshare(flags).then(|| trace(&all))
}

#[test]
fn processes_in_a_namespace_of_process_ids() {
    let program = program("processes");
    let program = program.to_str().unwrap();
    let Some(traced) = unshared(&["-pf", "--mount-proc"], &[program, "fork", "5"]) else { return };
    assert_eq!(traced.status, Some(0), "{}", traced.stderr);
    assert_eq!(traced.truth().len(), 6);
    traced.check(6);
    traced.check_no_warnings();
}

/// The kernel knows them by other numbers than they tell: nobody else is taken for them.
#[test]
fn static_programs_in_a_namespace_of_process_ids() {
    let Some(program) = build("processes", &["-static"]) else {
        return polyrail_testing::lacking("a static C library");
    };
    if !may_unshare(&["-pf", "--mount-proc"]) {
        return;
    }
    // somebody who is not recorded, and whose number the program has in its namespace
    let talks = "
import signal, socket, sys
signal.alarm(300)
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
print('ready', flush=True)
while True: a.send(b'x'); b.recv(1)
";
    let mut other = Command::new("python3").args(["-c", talks]).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 5];
    std::io::Read::read_exact(other.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let (number, program) = (other.id(), program.display());
    let script =
        format!("echo {} >/proc/sys/kernel/ns_last_pid && {program} talk 3; sleep 0.2; true", number - 1);
    let traced = trace_with(&[], &["unshare", "-pf", "--mount-proc", "sh", "-c", &script], |_| {});
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(traced.status, Some(0), "{}", traced.stderr);
    if !traced.stdout.starts_with(&format!("{number} ")) {
        return polyrail_testing::lacking("a kernel that lets root choose numbers of processes");
    }
    assert!(traced.warnings().contains("its calls were recorded not at all"), "{}", traced.warnings());
    let talked = |command: &[String]| command.iter().any(|word| word.contains("socketpair"));
    let processes = &traced.recorded.run().processes;
    assert!(!processes.iter().any(|process| talked(&process.command)), "{processes:?}");
}

#[test]
fn a_network_namespace_is_a_host_of_its_own_and_looked_into() {
    const PROGRAM: &str = "ip link set lo up && exec python3 -c '
import socket, time, os, sys
l = socket.create_server((\"127.0.0.1\", 0))
c = socket.create_connection(l.getsockname()); s, _ = l.accept()
while not os.path.exists(sys.argv[1]):
    c.sendall(b\"x\" * 1000); s.recv(1000); time.sleep(0.02)
' $1";
    if !may_unshare(&["-n"]) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (run, seen) = (place.path().join("run"), place.path().join("seen"));
    let mut command = tracing(&run, &["--no-kernel"]);
    command.args(["unshare", "-n", "sh", "-c", PROGRAM, "sh"]).arg(&seen);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // which it goes on for
    until("its connection is looked at", || looks(&run) > 5);
    fs::write(&seen, "").unwrap();
    let traced = Traced::of(child.wait_with_output().unwrap(), place);
    assert_eq!(traced.status, Some(0), "{}", traced.stderr);
    let run = traced.recorded.run();
    assert!(run.hosts.iter().any(|host| host.name.contains(", network ")), "{:?}", run.hosts);
}

/// Looks at connections that have sent something, in a recording that is still being written.
fn looks(run: &Path) -> usize {
    let mut looks = 0;
    if let Ok(recorded) = polyrail_trace::open(&[run.to_owned()]) {
        let each = &mut |event: &Event| {
            looks += usize::from(matches!(event, Event::Tcp(sample) if sample.bytes_acked > 1000));
        };
        recorded.for_each(each).unwrap();
    }
    looks
}

#[test]
fn another_shared_memory_is_another_host() {
    // a container: its own /dev/shm, where a collector of its own is started
    let program = program("processes");
    let script = format!("mount -t tmpfs -o size=8m tmpfs /dev/shm; {} fork 3", program.display());
    let Some(traced) = unshared(&["-m"], &["sh", "-c", &script]) else { return };
    assert_eq!(traced.status, Some(0), "{}", traced.stderr);
    assert_eq!(traced.truth().len(), 4);
    let seen = traced.truth().keys().all(|pid| !traced.counts(*pid).is_empty());
    assert!(seen || traced.stderr.contains("is not recorded"), "{}", traced.stderr);
    // the shell, mount, and those of the other collector, if that was done in the time that it is given
    let all = |traced: &Traced| traced.stderr.contains("records of 6 processes");
    let again = || unshared(&["-m"], &["sh", "-c", &script]).expect("as before");
    assert!(!seen || all(&traced) || (0..10).any(|_| all(&again())), "{}", traced.stderr);
}

#[test]
fn what_is_chosen_is_chosen_on_other_hosts_too() {
    let program = program("processes");
    let script = format!("mount -t tmpfs -o size=8m tmpfs /dev/shm; {} fork 3", program.display());
    let words = ["unshare", "-m", "sh", "-c", &script];
    if !is_root() {
        return polyrail_testing::lacking("root, who can make mount namespaces");
    }
    let traced = trace_with(&["--no-kernel", "--last", "1h", "--call", "send"], &words, |_| {});
    assert_eq!(traced.status, Some(0), "{}", traced.stderr);
    let truth = traced.truth();
    assert_eq!(truth.len(), 4);
    if traced.stderr.contains("is not recorded") {
        return polyrail_testing::by_chance("no collector could be started in time");
    }
    // the other collector writes when it has nothing to do
    until("all is written", || {
        let recorded = traced.again();
        assert!(!recorded.run().hosts.iter().any(|host| host.kernel_events), "--no-kernel");
        truth.iter().all(|(pid, truth)| {
            let counts = counts(&recorded, |process| process == *pid);
            assert!(counts.keys().all(|name| name == "send"), "{counts:?}");
            counts.get("send") == Some(&truth["send"])
        })
    });
}

#[test]
fn calls_that_get_past_the_recorder_are_told() {
    // io_uring by number, from a program that needs no library for it
    let code =
        "import ctypes; c = ctypes.CDLL(None); b = ctypes.create_string_buffer(120); c.syscall(425, 4, b)";
    let traced = trace_with(&["--no-kernel"], &["python3", "-c", code], |_| {});
    assert!(traced.warnings().contains("uses io_uring"), "{}", traced.warnings());
}
