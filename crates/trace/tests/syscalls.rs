//! Socket calls of a program that preloading cannot see. Needs root, and a C compiler with a static C library; without them
//! the test says so and passes.

use std::collections::HashSet;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use polyrail_core::trace::Call;
use polyrail_trace::kernel::{Named, SyscallEvent, Syscalls, Unavailable};
use polyrail_trace::model::Kind;

/// Parent and child of one static program talk over loopback TCP: 5 times 1000 bytes there and 10 back, then the child ends
/// with 3. It also uses files, which are no sockets.
const PROGRAM: &str = r#"
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
static void all(int fd, int n) { char b[1000]; while (n > 0) { int r = read(fd, b, n); if (r <= 0) _exit(9); n -= r; } }
int main(int count, char **words) {
    char bytes[1000] = {0};
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof a;
    int file = open("/dev/zero", O_RDWR), listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&a, sizeof a) || listen(listener, 1) || getsockname(listener, (void *)&a, &length)) return 8;
    int child = fork();
    if (child == 0) {
        int s = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(s, (void *)&a, sizeof a)) _exit(7);
        for (int i = 0; i < 5; i++) { if (send(s, bytes, 1000, 0) != 1000) _exit(6); all(s, 10); write(file, bytes, 5); }
        while (access(words[1], F_OK)) usleep(1000);
        close(s);
        _exit(3);
    }
    int s = accept(listener, 0, 0), status;
    for (int i = 0; i < 5; i++) { all(s, 1000); if (write(s, bytes, 10) != 10) return 5; read(file, bytes, 7); }
    wait(&status);
    return WEXITSTATUS(status);
}
"#;

fn compiled(directory: &Path) -> Option<std::path::PathBuf> {
    let (source, program) = (directory.join("talk.c"), directory.join("talk"));
    std::fs::write(&source, PROGRAM).unwrap();
    let built = Command::new("cc").args(["-static", "-O1", "-w", "-o"]).args([&program, &source]).status();
    built.is_ok_and(|status| status.success()).then_some(program)
}

#[test]
fn a_static_program_and_its_child_are_recorded() {
    let mut syscalls = match Syscalls::open() {
        Ok(syscalls) => syscalls,
        Err(why @ (Unavailable::Root | Unavailable::NoTracefs(_) | Unavailable::NoEvents(_))) => {
            return polyrail_testing::lacking(format_args!("tracepoints: {why}"));
        }
        Err(why) => panic!("{why}"),
    };
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compiled(directory.path()) else {
        return polyrail_testing::lacking("a compiler that makes static programs");
    };
    // As a recorder does it: a process that writes its own id, and becomes the program.
    let seen = directory.path().join("seen");
    let script =
        format!("echo $$ >>{} && exec {} {}", syscalls.pids().display(), program.display(), seen.display());
    let mut child = Command::new("sh").args(["-c", &script]).process_group(0).spawn().unwrap();
    let (mut events, mut names) = (Vec::<SyscallEvent>::new(), Vec::<Named>::new());
    let begin = Instant::now();
    let mut status = None;
    let mut turns = 0;
    // and a while longer
    while turns < 30 {
        syscalls.drain(&mut |event| events.push(event)).unwrap();
        syscalls.names(&mut |named| names.push(named));
        // the child keeps its end of the connection until both have names
        if names.iter().filter(|named| named.addresses.is_some()).count() >= 2 {
            std::fs::write(&seen, "").unwrap();
        }
        status = status.or(child.try_wait().unwrap());
        turns += u32::from(status.is_some());
        if begin.elapsed() > Duration::from_secs(20) {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert_eq!(syscalls.lost(), 0);
    let parent = child.id();
    let pids: HashSet<u32> = events.iter().map(|event| event.pid).collect();
    assert!(pids.contains(&parent) && pids.len() == 2, "{pids:?} without anybody else");
    let of = |parents: bool, call: Call| -> Vec<&SyscallEvent> {
        events.iter().filter(|e| (e.pid == parent) == parents && e.call == call).collect()
    };
    let sum = |events: Vec<&SyscallEvent>| events.iter().map(|event| event.result).sum::<i32>();
    for call in [Call::Socket, Call::Bind, Call::Listen, Call::Accept] {
        assert_eq!(of(true, call).len(), 1, "{call:?}: {events:#?}");
    }
    assert_eq!(of(false, Call::Connect).iter().map(|event| event.result).collect::<Vec<_>>(), [0]);
    assert_eq!((sum(of(true, Call::Read)), sum(of(true, Call::Write))), (5000, 50));
    assert_eq!((sum(of(false, Call::SendTo)), sum(of(false, Call::Read))), (5000, 50));
    assert_eq!((of(false, Call::Write).len(), of(false, Call::Close).len()), (0, 1), "files are no sockets");
    assert!(of(false, Call::SendTo).iter().all(|event| event.arg == 1000 && event.took > 0));
    let used: HashSet<u32> =
        [of(true, Call::Read), of(false, Call::Read)].concat().iter().map(|event| event.socket).collect();
    assert_eq!(used.len(), 2, "one socket on each side");
    let ends: Vec<&Named> = names.iter().filter(|named| used.contains(&named.number)).collect();
    assert_eq!(ends.len(), 2, "{names:?}");
    assert!(ends.iter().all(|end| end.kind == Kind::Tcp && end.cookie != 0));
    let (a, b) = (ends[0].addresses.unwrap(), ends[1].addresses.unwrap());
    assert_eq!((a.0, a.1), (b.1, b.0), "each other's ends");
}

/// `cargo test --release -p polyrail-trace --test syscalls -- --ignored --nocapture`: what a system call costs a process that is
/// not recorded, and what opening and closing take.
#[test]
#[ignore = "a measurement"]
fn what_it_costs_others() {
    let call = || {
        let begin = Instant::now();
        for _ in 0..1_000_000 {
            // not recorded in any case: the way into the kernel alone
            std::hint::black_box(std::os::unix::process::parent_id());
        }
        begin.elapsed().as_nanos() / 1_000_000
    };
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        without.push(call());
        let begin = Instant::now();
        let syscalls = Syscalls::open().unwrap();
        let open = begin.elapsed();
        with.push(call());
        let begin = Instant::now();
        drop(syscalls);
        println!("opened in {open:?}, closed in {:?}", begin.elapsed());
    }
    without.sort();
    with.sort();
    println!("getppid: {} ns, {} ns while Syscalls is open", without[2], with[2]);
    let begin = Instant::now();
    let kernel = polyrail_trace::kernel::Kernel::open().unwrap();
    let open = begin.elapsed();
    let begin = Instant::now();
    std::fs::write(kernel.path().join("events/tcp/tcp_probe/filter"), "sock_cookie != 1 && sock_cookie != 2")
        .unwrap();
    let first = begin.elapsed();
    let begin = Instant::now();
    std::fs::write(kernel.path().join("events/tcp/tcp_probe/filter"), "sock_cookie != 1 && sock_cookie != 3")
        .unwrap();
    let again = begin.elapsed();
    let begin = Instant::now();
    drop(kernel);
    println!(
        "Kernel: opened in {open:?}, filter {first:?}, another {again:?}, closed in {:?}",
        begin.elapsed()
    );
}
