//! Every call is counted, with its bytes, and belongs to the right sockets.

use std::collections::BTreeSet;

use polyrail_trace::model::{Call, Events, Kind};

use super::support::{Counts, assert_same, build, program, trace, trace_with};

#[test]
fn every_call_and_byte_is_recorded() {
    let program = program("calls");
    let traced = trace(&[program.to_str().unwrap()]);
    assert_eq!(traced.status, Some(3), "{}", traced.stderr);
    traced.check(1);
    traced.check_no_warnings();
    assert_eq!(traced.recorded.run().processes[0].status, Some(3));

    let traced = trace_with(&["--no-kernel", "--every-call"], &[program.to_str().unwrap()], |_| {});
    traced.check(1);
    assert!(traced.calls().iter().all(|call| call.calls == 1));
}

#[test]
fn the_same_of_programs_whose_reads_are_checked() {
    let program = build("calls", &["-O2", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"]).unwrap();
    let symbols = std::fs::read(&program).unwrap();
    assert!(symbols.windows(10).any(|part| part == b"__recv_chk"), "the compiler checks nothing");
    let traced = trace(&[program.to_str().unwrap()]);
    assert_eq!(traced.status, Some(3), "{}", traced.stderr);
    traced.check(1);
}

#[test]
fn ends_of_a_connection_are_each_others_peers() {
    let traced = trace(&[program("calls").to_str().unwrap()]);
    let run = traced.recorded.run();
    let mut connections = 0;
    for (index, socket) in run.sockets.iter().enumerate() {
        if socket.kind == Kind::Tcp && !socket.listening && socket.remote.is_some() {
            let peer = socket.peer.expect("it was traced too");
            let other = &run.sockets[peer as usize];
            assert_eq!(other.peer, Some(index as u32));
            assert_eq!((other.local, other.remote), (socket.remote, socket.local));
            connections += 1;
        }
    }
    assert!(connections == 4 || connections == 8, "{connections}");
    // what one sends the other receives, byte by byte
    let mut moved = vec![(0u64, 0u64); run.sockets.len()];
    for call in traced.calls() {
        let Some(socket) = call.socket else { continue };
        let moved = &mut moved[socket as usize];
        match call.call.class() {
            polyrail_trace::model::Class::Send => moved.0 += u64::from(call.bytes),
            polyrail_trace::model::Class::Receive => moved.1 += u64::from(call.bytes),
            _ => {}
        }
    }
    for (socket, moved_here) in run.sockets.iter().zip(&moved) {
        // of one pair of Unix sockets nobody takes what was sent
        if let (Some(peer), Kind::Tcp) = (socket.peer, socket.kind) {
            assert_eq!(moved_here.0, moved[peer as usize].1);
        }
    }
    // datagrams name whom they go to
    let sent = traced.calls().into_iter().filter(|call| call.call == Call::SendMMsg).collect::<Vec<_>>();
    assert!(
        !sent.is_empty() && sent.iter().all(|call| call.to.is_some_and(|to| to.ip().is_loopback())),
        "{sent:?}"
    );
}

/// Python's sockets, with a truth that does not come from the program: the kernel's calls, as strace saw them in the same run.
#[test]
fn a_python_program_as_strace_sees_it() {
    const PROGRAM: &str = "
import socket, threading, os
s = socket.create_server(('127.0.0.1', 0))
def serve():
    c, _ = s.accept()
    while True:
        d = c.recv(4096)
        if not d: break
        c.sendall(d)
    c.close()
t = threading.Thread(target=serve); t.start()
c = socket.create_connection(s.getsockname())
for i in range(200):
    c.sendall(b'x' * (i + 1)); n = 0
    while n < i + 1: n += len(c.recv(4096))
c.close(); t.join(); s.close()
a, b = socket.socketpair()
a.sendmsg([b'ab', b'cde']); b.recvmsg(10)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(('127.0.0.1', 0))
u.sendto(b'hello', u.getsockname()); u.recvfrom(100)
if os.fork() == 0:
    a.send(b'from the child'); os._exit(0)
os.wait(); b.recv(100)
";
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("strace");
    let calls = "trace=sendto,recvfrom,sendmsg,recvmsg,connect,accept4,accept,bind,listen,socketpair";
    let words = ["strace", "-f", "-o", log.to_str().unwrap(), "-e", calls, "python3", "-c", PROGRAM];
    if !std::process::Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .status()
        .is_ok_and(|status| status.success())
    {
        return polyrail_testing::lacking("a strace that may trace");
    }
    let traced = trace(&words);
    assert_eq!(traced.status, Some(0), "{}", traced.stderr);
    let (mut truth, mut to_nscd) = (Counts::new(), BTreeSet::new());
    for line in std::fs::read_to_string(log).unwrap().lines() {
        // PID NAME(...) = RESULT, or both halves of one that was interrupted
        let Some((name, result)) =
            line.split_once(' ').and_then(|(_, rest)| rest.trim_start().split_once(['(', ' ']))
        else {
            continue;
        };
        let pid = line.split(' ').next().unwrap_or_default();
        // the C library's own, to nscd, are not the program's: a python3 that is a script starts processes that ask for users
        let unix = name == "connect" && result.contains("AF_UNIX");
        if result.contains("<unfinished") {
            if unix {
                to_nscd.insert(pid.to_owned());
            }
            continue;
        }
        let name = if name == "<..." { result.split(' ').next().unwrap_or_default() } else { name };
        if unix || name == "connect" && to_nscd.remove(pid) {
            continue;
        }
        let Some((_, result)) = line.rsplit_once(" = ") else { continue };
        let bytes: i64 = result.split(' ').next().unwrap().parse().unwrap_or(0);
        // the C library's send is the kernel's sendto
        let count = truth.entry(name.into()).or_default();
        *count = (count.0 + 1, count.1 + bytes.max(0) as u64);
    }
    let pids: Vec<u32> = traced.recorded.run().processes.iter().map(|process| process.pid).collect();
    let mut recorded = Counts::new();
    for (name, (calls, bytes)) in pids.iter().flat_map(|pid| traced.counts(*pid)) {
        let name = match name.as_str() {
            "send" => "sendto",
            "recv" => "recvfrom",
            other => other,
        };
        let count = recorded.entry(name.into()).or_default();
        *count = (count.0 + calls, count.1 + bytes);
    }
    recorded.retain(|name, _| calls.contains(name.as_str()));
    assert_same(&truth, &recorded, 0, &traced.stderr);
}
