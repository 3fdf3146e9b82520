use super::*;
use crate::kernel::Named;
use crate::model;
use proptest::prelude::*;

fn number(name: &str) -> usize {
    TABLE.iter().position(|(known, ..)| *known == name).unwrap()
}

/// Calls one after the other, 10 ns each; 3 is a socket, other descriptors are files unless a call opened them.
fn run(calls: &mut Calls, script: &[(&str, [u64; 6], i64)]) -> Vec<(Call, i32, u32, i32, u32)> {
    let mut out = Vec::new();
    for (at, (name, arguments, result)) in (0..).step_by(100).zip(script) {
        for (at, what) in
            [(at, What::Enter(number(name), *arguments)), (at + 10, What::Exit(number(name), *result))]
        {
            calls.handle(at, 8, what, &|_| Some(7), &|_, fd| (fd == 3).then_some(700), &mut |event| {
                assert_eq!((event.pid, event.tid, event.took), (7, 8, 10));
                out.push((event.call, event.fd, event.socket, event.result, event.arg));
            });
        }
    }
    out
}

#[test]
fn calls_on_sockets_are_told_and_others_are_not() {
    let out = run(
        &mut Calls::default(),
        &[
            ("read", [3, 0, 4096, 0, 0, 0], 100),
            ("read", [4, 0, 4096, 0, 0, 0], 100),
            ("socket", [2, 1, 0, 0, 0, 0], 5),
            ("connect", [5, 0, 16, 0, 0, 0], -115),
            ("sendto", [5, 0, 10, 0, 0, 0], 10),
            ("dup2", [5, 4, 0, 0, 0, 0], 4),
            ("write", [4, 0, 9, 0, 0, 0], 9),
            ("close", [4, 0, 0, 0, 0, 0], 0),
            ("write", [4, 0, 9, 0, 0, 0], 9),
            ("fcntl", [5, 4, 2048, 0, 0, 0], 0),
            ("poll", [0, 1, u64::from(u32::MAX), 0, 0, 0], 1),
            ("epoll_wait", [9, 0, 1, 20, 0, 0], 0),
            ("splice", [3, 0, 6, 0, 77, 0], 7),
            ("sendfile64", [5, 6, 0, 1 << 40, 0, 0], 1 << 30),
            ("read", [5, 0, 1, 0, 0, 0], -512),
            ("accept4", [3, 0, 0, 0, 0, 0], 11),
            ("close_range", [5, 5, 0, 0, 0, 0], 0),
            ("read", [5, 0, 1, 0, 0, 0], 1),
        ],
    );
    assert_eq!(
        out,
        [
            (Call::Read, 3, 1, 100, 4096),
            (Call::Socket, 5, 2, 5, 2),
            (Call::Connect, 5, 2, -115, 0),
            (Call::SendTo, 5, 2, 10, 10),
            (Call::Dup2, 5, 2, 4, 5),
            (Call::Write, 4, 2, 9, 9),
            (Call::Close, 4, 2, 0, 0),
            (Call::Poll, -1, 0, 1, u32::MAX),
            (Call::EpollWait, 9, 0, 0, 20),
            (Call::SpliceFrom, 3, 1, 7, 77),
            (Call::SendFile, 5, 2, 1 << 30, u32::MAX),
            (Call::Read, 5, 2, -4, 1),
            (Call::Accept4, 3, 1, 11, 0),
        ]
    );
}

#[test]
fn an_end_without_its_beginning_is_nothing() {
    let mut calls = Calls::default();
    let mut none = |event| panic!("{event:?}");
    let mut handle = |what| calls.handle(1, 8, what, &|_| None, &|_, _| Some(1), &mut none);
    handle(What::Exit(number("read"), 1));
    handle(What::Enter(number("read"), [3; 6]));
    handle(What::Exit(number("write"), 1));
    handle(What::Enter(number("read"), [3; 6]));
    handle(What::Gone);
    handle(What::Exit(number("read"), 1));
}

fn sock(sk: u64, what: SockWhat) -> What {
    What::Sock(SockEvent { sk, aside: false, what })
}

fn state(sk: u64, old: u8, new: u8, ports: (u16, u16)) -> What {
    let end = |port| Some(std::net::SocketAddr::from(([127, 0, 0, 1], port))).filter(|_| port != 0);
    let (local, remote) = (end(ports.0), end(ports.1));
    sock(sk, SockWhat::State(Change { sk, old, new, local, remote, mptcp: false }))
}

fn moved(sk: u64, result: i32) -> What {
    sock(sk, SockWhat::Moved { kind: model::Kind::Tcp, result })
}

/// A thread's call with what happens inside it.
fn call(tid: u32, name: &str, arguments: [u64; 6], inside: Vec<What>, result: i64) -> Vec<(u32, What)> {
    let mut all = vec![(tid, What::Enter(number(name), arguments))];
    all.extend(inside.into_iter().map(|what| (tid, what)));
    all.push((tid, What::Exit(number(name), result)));
    all
}

/// What becomes of it where nobody can be looked at any more; then what is known of the sockets.
fn heard(script: Vec<Vec<(u32, What)>>) -> (Vec<SyscallEvent>, HashMap<u32, Named>, Calls) {
    let mut calls = Calls::new(true);
    let mut events = Vec::new();
    for (at, (tid, what)) in (1..).zip(script.into_iter().flatten()) {
        calls.handle(at, tid, what, &|_| None, &|_, _| None, &mut |event| events.push(event));
    }
    let mut names = HashMap::new();
    calls.names.tell(true, &mut |named| _ = names.insert(named.number, named));
    (events, names, calls)
}

const SOCKET: [u64; 6] = [2, 1 | libc::SOCK_CLOEXEC as u64, 0, 0, 0, 0];
const CLOSED: u8 = state::CLOSE;

/// Two connections one after the other by the same descriptors, and files beside them: by calls and events alone.
#[test]
fn a_program_that_is_gone_before_it_is_looked_at_has_its_connections() {
    let mut script = vec![
        call(8, "socket", SOCKET, vec![], 3),
        call(8, "listen", [3, 5, 0, 0, 0, 0], vec![state(0xf, CLOSED, state::LISTEN, (80, 0))], 0),
        vec![(8, What::New { tid: 9, thread: true })],
    ];
    for turn in 1..3u16 {
        let (client, server, port) = (0xa + u64::from(turn), 0xc + u64::from(turn), 5000 + turn);
        let arrives = vec![
            state(client, CLOSED, state::SYN_SENT, (0, 80)),
            state(server, state::LISTEN, 3, (80, 0)),
            state(server, 3, 1, (80, port)),
            state(client, state::SYN_SENT, 1, (port, 80)),
        ];
        script.extend([
            call(9, "socket", SOCKET, vec![], 4),
            call(9, "connect", [4, 0, 16, 0, 0, 0], arrives, -115),
            call(8, "accept4", [3, 0, 0, libc::SOCK_CLOEXEC as u64, 0, 0], vec![], 5),
            call(9, "write", [4, 0, 100, 0, 0, 0], vec![moved(client, 100)], 100),
            call(8, "read", [5, 0, 4096, 0, 0, 0], vec![moved(server, 100)], 100),
            call(9, "read", [6, 0, 4096, 0, 0, 0], vec![], 12),
            call(9, "close", [4, 0, 0, 0, 0, 0], vec![state(client, 1, state::FIN_WAIT1, (port, 80))], 0),
            call(8, "close", [5, 0, 0, 0, 0, 0], vec![state(server, 8, state::LAST_ACK, (80, port))], 0),
            vec![
                (0, sock(client, SockWhat::Destroyed { cookie: client })),
                (0, sock(server, SockWhat::Destroyed { cookie: server })),
            ],
        ]);
    }
    let (events, names, calls) = heard(script);
    assert!(events.iter().all(|event| event.pid == 8), "one process: {events:?}");
    let of = |wanted: Call| events.iter().filter(move |event| event.call == wanted);
    assert_eq!(of(Call::Read).count(), 2, "files are no sockets");
    let ends: Vec<_> = of(Call::Write).chain(of(Call::Read)).map(|event| names[&event.socket]).collect();
    let told: Vec<_> = ends
        .iter()
        .map(|named| (named.addresses.map(|(a, b)| (a.port(), b.port())).unwrap(), named.cookie))
        .collect();
    assert_eq!(told, [((5001, 80), 0xb), ((5002, 80), 0xc), ((80, 5001), 0xd), ((80, 5002), 0xe)]);
    let accepted: Vec<_> = of(Call::Accept4).map(|event| event.accepted).collect();
    assert_eq!(accepted, of(Call::Read).map(|event| event.socket).collect::<Vec<_>>());
    assert!(names.values().any(|named| named.listening));
    assert_eq!(calls.processes.len(), 2);
}

#[test]
fn a_descriptor_that_is_closed_while_another_thread_uses_it_is_another_one_then() {
    let (begun, ended) = (What::Enter(number("read"), [4, 0, 9, 0, 0, 0]), What::Exit(number("read"), 5));
    let (events, ..) = heard(vec![
        vec![(8, What::New { tid: 9, thread: true })],
        call(8, "socket", SOCKET, vec![], 4),
        vec![(9, begun)],
        vec![(8, What::Enter(number("close"), [4, 0, 0, 0, 0, 0]))],
        call(10, "socket", SOCKET, vec![], 4),
        vec![(8, What::Exit(number("close"), 0)), (9, ended)],
        call(8, "write", [4, 0, 3, 0, 0, 0], vec![], 3),
    ]);
    let sockets: Vec<_> = events.iter().map(|event| (event.call, event.pid, event.socket)).collect();
    let expected = [(Call::Socket, 8, 1), (Call::Socket, 10, 2), (Call::Close, 8, 1), (Call::Read, 8, 1)];
    assert_eq!(sockets, expected);
}

#[test]
fn a_range_is_free_from_when_closing_it_begins() {
    let range = |flags: u32| What::Enter(number("close_range"), [3, u32::MAX.into(), flags.into(), 0, 0, 0]);
    let ended = || What::Exit(number("close_range"), 0);
    let write = |tid| call(tid, "write", [4, 0, 3, 0, 0, 0], vec![moved(tid.into(), 3)], 3);
    let (events, ..) = heard(vec![
        vec![(8, What::New { tid: 9, thread: true })],
        call(8, "socket", SOCKET, vec![], 4),
        vec![(8, range(0))],
        // another thread, before the call ends
        call(9, "socket", SOCKET, vec![], 4),
        vec![(8, ended())],
        write(9),
        // what the kernel refuses changes nothing
        vec![(8, range(1 << 9)), (8, What::Exit(number("close_range"), -22))],
        write(9),
    ]);
    let sockets: Vec<_> = events.iter().map(|event| event.socket).collect();
    assert_eq!(sockets, [1, 2, 2, 2]);
}

#[test]
fn what_was_known_before_events_were_lost_counts_no_more() {
    let mut calls = Calls::new(true);
    let mut events = Vec::new();
    let mut hear = |calls: &mut Calls, script: Vec<(u32, What)>| {
        for (tid, what) in script {
            calls.handle(1, tid, what, &|_| None, &|_, _| None, &mut |event| events.push(event));
        }
    };
    let write = || call(8, "write", [4, 0, 3, 0, 0, 0], vec![moved(1, 3)], 3);
    hear(&mut calls, call(8, "socket", SOCKET, vec![], 4));
    hear(&mut calls, vec![(8, What::Enter(number("read"), [4, 0, 9, 0, 0, 0]))]);
    calls.forget();
    // the end of another call than the one whose beginning was heard
    hear(&mut calls, vec![(8, What::Exit(number("read"), 5))]);
    hear(&mut calls, write());
    hear(&mut calls, write());
    let sockets: Vec<_> = events.iter().map(|event| (event.call, event.socket)).collect();
    assert_eq!(sockets, [(Call::Socket, 1), (Call::Write, 2), (Call::Write, 2)]);
}

/// Threads that stand still show what a descriptor is when a call begins: whatever is at its place when the call ends.
#[test]
fn of_threads_that_stand_still_descriptors_are_known_when_a_call_begins() {
    let mut calls = Calls::of_stops();
    let there = std::cell::Cell::new(Some(700));
    let mut events = Vec::new();
    let mut hear = |what| {
        let look = |_, _| there.get();
        calls.handle(1, 8, what, &|_| None, &look, &mut |event| events.push((event.call, event.socket)));
    };
    hear(What::Enter(number("recvfrom"), [3, 0, 9, 0, 0, 0]));
    there.set(None);
    hear(What::Exit(number("recvfrom"), 9));
    there.set(Some(700));
    hear(What::Enter(number("close"), [3, 0, 0, 0, 0, 0]));
    there.set(None);
    hear(What::Exit(number("close"), 0));
    // a file at its place, and a socket at another of which nothing was heard but its end
    hear(What::Enter(number("write"), [3, 0, 9, 0, 0, 0]));
    there.set(Some(701));
    hear(What::Exit(number("write"), 9));
    hear(What::Enter(number("close"), [5, 0, 0, 0, 0, 0]));
    hear(What::Exit(number("close"), 0));
    assert_eq!(events, [(Call::RecvFrom, 1), (Call::Close, 1), (Call::Close, 2)]);
}

#[test]
fn what_does_not_outlive_exec_is_not_taken_for_a_socket_after_it() {
    const KEPT: [u64; 6] = [2, 1, 0, 0, 0, 0];
    let cloexec = u64::from(libc::CLOSE_RANGE_CLOEXEC);
    let (events, ..) = heard(vec![
        call(8, "socket", KEPT, vec![], 4),
        call(8, "socket", KEPT, vec![], 5),
        call(8, "socket", SOCKET, vec![], 6),
        call(8, "close_range", [5, 5, cloexec, 0, 0, 0], vec![], 0),
        // does nothing, also not to the flag
        call(8, "dup2", [6, 6, 0, 0, 0, 0], vec![], 6),
        vec![(8, What::Exec { path: "/bin/x".into(), before: 8 })],
        call(8, "close", [4, 0, 0, 0, 0, 0], vec![], 0),
        call(8, "close", [5, 0, 0, 0, 0, 0], vec![], 0),
        call(8, "close", [6, 0, 0, 0, 0, 0], vec![], 0),
    ]);
    let closed: Vec<_> =
        events.iter().filter(|event| event.call == Call::Close).map(|event| event.fd).collect();
    assert_eq!(closed, [4]);
}

#[test]
fn children_and_programs_have_what_they_inherit() {
    let fork = || vec![(8, What::New { tid: 20, thread: false })];
    let exec = || vec![(20, What::Exec { path: "/bin/x".into(), before: 20 })];
    let (events, _, calls) = heard(vec![
        call(8, "socket", SOCKET, vec![], 4),
        fork(),
        call(20, "dup3", [4, 0, 0, 0, 0, 0], vec![], 0),
        exec(),
        call(20, "write", [0, 0, 3, 0, 0, 0], vec![moved(1, 3)], 3),
        call(20, "write", [4, 0, 3, 0, 0, 0], vec![], 3),
        // one of which nothing is known, which is the same by what is said by it
        call(20, "write", [7, 0, 2, 0, 0, 0], vec![moved(1, 2)], 2),
        // another
        call(20, "write", [6, 0, 2, 0, 0, 0], vec![moved(2, 2)], 2),
        // a file of which the kernel's own socket tells
        call(20, "write", [5, 0, 2, 0, 0, 0], vec![moved(3, 200)], 2),
        vec![(20, What::Gone)],
    ]);
    let sockets: Vec<_> = events.iter().map(|event| (event.pid, event.fd, event.socket)).collect();
    assert_eq!(sockets, [(8, 4, 1), (20, 4, 1), (20, 0, 1), (20, 7, 1), (20, 6, 2)]);
    let programs: Vec<_> = calls.programs.iter().map(|p| (p.pid, p.parent, p.path.as_str())).collect();
    assert_eq!(programs, [(20, 8, ""), (20, 8, "/bin/x")]);
    assert_eq!((calls.processes.len(), calls.threads.len(), calls.parents.len()), (1, 1, 0));
}

proptest! {
    #[test]
    fn any_calls_can_be_told(
        steps in proptest::collection::vec((0..TABLE.len(), any::<[u64; 6]>(), any::<i64>(), 0u32..3, 0u8..10, any::<(u8, u8, bool)>()), 0..100),
        small in any::<bool>(),
        moves in any::<bool>(),
        stops in any::<bool>(),
    ) {
        let mut calls = if stops { Calls::of_stops() } else { Calls::new(moves) };
        for (at, (call, mut arguments, mut result, tid, step, (old, new, thread))) in (0..).zip(steps) {
            if small {
                arguments = arguments.map(|argument| argument % 5);
                result %= 8;
            }
            let what = match step {
                0 | 1 => What::Enter(call, arguments),
                2 | 3 => What::Exit(call, result),
                4 => What::Exec { path: String::new(), before: u32::from(old % 3) },
                5 => What::New { tid: u32::from(old % 3), thread },
                6 => state(arguments[0] % 5, old % 13, new % 13, (u16::from(old % 3), u16::from(new % 3))),
                7 => moved(arguments[0] % 5, result as i32),
                8 => sock(arguments[0] % 5, SockWhat::Destroyed { cookie: arguments[1] }),
                _ => What::Gone,
            };
            calls.handle(at, tid, what, &|_| None, &|_, fd| (fd % 2 == 0).then_some(fd as u64), &mut |_| {});
            calls.descriptors.settle(at, &mut calls.names, &|_, fd| Some(fd as u64), || at);
            prop_assert!(calls.begun.len() <= 3 && calls.closed.len() <= 3 && calls.processes.len() <= 3);
            prop_assert!(calls.parents.len() <= 3 && calls.threads.len() <= 3);
            prop_assert_eq!(calls.threads.values().sum::<u32>() as usize, calls.processes.len());
        }
        calls.names.tell(true, &mut |_| {});
    }
}
