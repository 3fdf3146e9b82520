//! What the analysis says of a recording is what happened: programs that know what they did, in Python.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;

use polyrail_trace::Recorded;
use polyrail_trace::analysis::{Analysis, Analyst, Settings};
use polyrail_trace::model::{Call, Events, Kind, Run};
use tempfile::TempDir;

use super::support::{POLYRAIL, Traced, is_root, open, program, trace, tracing, until};

/// Before each program: nothing of it outlives a test that failed.
const BOUNDED: &str = "
import os, signal
signal.alarm(300)
plain_fork = os.fork
def bounded_fork():
    child = plain_fork()
    signal.alarm(300)
    return child
os.fork = bounded_fork
";

fn python(script: &str) -> Traced {
    let traced = trace(&["python3", "-c", &format!("{BOUNDED}{script}")]);
    assert_eq!(traced.status, Some(0), "{}", traced.stderr);
    traced
}

fn run(traced: &Traced) -> &Run {
    traced.recorded.run()
}

fn analysis(traced: &Traced) -> Analysis {
    analysis_by(traced, Settings::default())
}

fn analysis_by(traced: &Traced, settings: Settings) -> Analysis {
    let mut analyst = Analyst::new(run(traced), settings);
    traced.recorded.for_each(&mut |event| analyst.event(event)).unwrap();
    analyst.finish()
}

/// A connection lives from its first call to its last, whatever is told of it in between.
#[test]
fn a_socket_lives_from_its_first_call_to_its_last() {
    for traced in [
        trace(&[program("calls").to_str().unwrap()]),
        python(
            "
import socket, time
s = socket.create_server(('127.0.0.1', 0))
c = socket.create_connection(s.getsockname()); d, _ = s.accept()
c.sendall(b'x' * 1000); d.recv(1000)
time.sleep(0.2)
c.sendall(b'y'); d.recv(1)
c.close(); d.close(); s.close()
",
        ),
    ] {
        let sockets = &run(&traced).sockets;
        let mut used = 0;
        for call in traced.calls() {
            let Some(socket) = call.socket else { continue };
            let (first, last) = sockets[socket as usize].span;
            assert!(first <= call.start && call.start + call.took <= last, "{call:?}: {first} to {last}");
            used += 1;
        }
        assert!(used > 10, "{used}");
        let analysis = analysis(&traced);
        for connection in analysis.connections(run(&traced)).iter().filter(|one| one.kind == Kind::Tcp) {
            let flow = connection.there.flow.span.into_iter().chain(connection.back.flow.span);
            assert!(
                flow.into_iter().all(|(first, last)| connection.span.0 <= first && last <= connection.span.1)
            );
        }
    }
}

/// Both ends of a Unix connection are known, whoever made them.
#[test]
fn unix_connections_have_two_ends() {
    let traced = python(
        "
import os, socket, tempfile, threading
path = tempfile.mkdtemp() + '/s'
server = socket.socket(socket.AF_UNIX); server.bind(path); server.listen()
def serve(connection):
    while connection.recv(1000): pass
    connection.close()
clients = []
for _ in range(3):
    client = socket.socket(socket.AF_UNIX); client.connect(path); clients.append(client)
served = [threading.Thread(target=serve, args=(server.accept()[0],)) for _ in clients]
for thread in served: thread.start()
for number, client in enumerate(clients): client.sendall(b'x' * (1000 + number)); client.close()
for thread in served: thread.join()
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
    a, b = socket.socketpair(socket.AF_UNIX, kind)
    if os.fork() == 0:
        b.recv(10); b.send(b'back'); os._exit(0)
    b.close()
    a.send(b'there'); a.recv(10); os.wait(); a.close()
os.unlink(path); os.rmdir(os.path.dirname(path))
",
    );
    let (run, analysis) = (run(&traced), analysis(&traced));
    let mut unix: Vec<_> = analysis
        .connections(run)
        .into_iter()
        .filter(|one| one.kind == Kind::Unix && one.bytes() > 0)
        .collect();
    unix.sort_by_key(|one| (one.there.flow.bytes, one.back.flow.bytes));
    let bytes: Vec<_> = unix.iter().map(|one| one.bytes()).collect();
    assert_eq!(bytes, [9, 9, 9, 1000, 1001, 1002], "{unix:#?}");
    for one in &unix {
        let peer = one.sockets.1.expect("both are traced");
        assert_eq!(run.sockets[peer as usize].peer, Some(one.sockets.0));
        assert!(one.nodes.1.is_some_and(|node| (node as usize) < run.processes.len()), "{one:?}");
    }
    assert_eq!(analysis.outside, Vec::<String>::new());
}

/// A datagram counts once, by its sender, also where the kernel gave the sender its name unasked.
#[test]
fn datagrams_count_once() {
    let traced = python(
        "
import os, socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); server.bind(('127.0.0.1', 0))
def client(connected, number):
    if os.fork() == 0:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        to = server.getsockname()
        if connected: s.connect(to)
        for i in range(20):
            s.send(b'x' * number) if connected else s.sendto(b'x' * number, to)
            s.recv(1000)
        s.close() if number % 2 else None
        os._exit(0)
for number in range(4): client(number % 2, 100 + number)
for i in range(80):
    data, who = server.recvfrom(1000)
    server.sendto(data[:10], who)
for i in range(4): os.wait()
server.close()
",
    );
    let (run, analysis) = (run(&traced), analysis(&traced));
    let there = 20 * (100 + 101 + 102 + 103);
    let cells = analysis.links.cells.iter().map(|(_, _, cell)| (cell.bytes, cell.messages));
    assert_eq!(cells.fold((0, 0), |sum, cell| (sum.0 + cell.0, sum.1 + cell.1)), (there + 800, 160));
    assert_eq!(analysis.outside, Vec::<String>::new());
    let rows: Vec<_> = analysis.connections(run).into_iter().filter(|one| one.kind == Kind::Udp).collect();
    assert_eq!(rows.iter().map(|one| one.bytes()).sum::<u64>(), there + 800);
    let udp = (0..run.sockets.len()).filter(|&socket| run.sockets[socket].kind == Kind::Udp);
    let heard = udp.map(|socket| analysis.sockets[socket].heard.0).sum::<u64>();
    assert_eq!(heard, there + 800, "nothing was lost");
}

/// A datagram goes to the socket that is connected to its sender, whoever else has the address: servers such as iperf3 connect the socket
/// that was called, and bind another for who comes next.
#[test]
fn datagrams_go_to_who_is_connected() {
    let traced = python(
        "
import socket
def bound(port):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(('', port))
    return s
for connects in (True, False):
    first = bound(0); port = first.getsockname()[1]
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if connects: client.connect(('127.0.0.1', port))
    send = client.send if connects else lambda data: client.sendto(data, ('127.0.0.1', port))
    send(b'hello')
    data, who = first.recvfrom(100)
    first.connect(who)
    second = bound(port)
    for _ in range(20): send(b'more'); first.recv(100)
    second.close(); first.close()
    third = bound(port)
    if not connects:
        for _ in range(3): send(b'again'); third.recv(100)
    third.close(); client.close()
",
    );
    let analysis = analysis(&traced);
    assert_eq!(analysis.unheard(run(&traced)), []);
    assert_eq!(analysis.outside, Vec::<String>::new());
}

/// What was never connected is no connection.
#[test]
fn sockets_that_were_never_connected_are_counted_apart() {
    let traced = python(
        "
import socket
for _ in range(50): socket.socket().close()
server = socket.create_server(('127.0.0.1', 0))
free = socket.create_server(('127.0.0.1', 0)); closed = free.getsockname(); free.close()
try: socket.create_connection(closed)
except ConnectionRefusedError: pass
else: raise SystemExit(1)
client = socket.create_connection(server.getsockname()); served, _ = server.accept()
client.close(); served.close(); server.close()
",
    );
    let (run, analysis) = (run(&traced), analysis(&traced));
    let tcp = analysis.connections(run).into_iter().filter(|one| one.kind == Kind::Tcp);
    assert_eq!(tcp.map(|one| one.sockets.1.is_some()).collect::<Vec<_>>(), [true], "one, that was silent");
    assert_eq!(analysis.never_connected(run), 51);
}

/// A traced server that serves so many clients, which are not traced; it writes its port to the file that it is told of. What was
/// found, and where it is.
fn served(server: &str, clients: usize, client: impl Fn(u16)) -> (TempDir, Recorded, Analysis) {
    let place = tempfile::tempdir().unwrap();
    let port = place.path().join("port");
    let script = format!(
        "{BOUNDED}
import os, socket, sys, time
def tell(server):
    with open(sys.argv[1] + '.new', 'w') as file: file.write(str(server.getsockname()[1]))
    os.rename(sys.argv[1] + '.new', sys.argv[1])
{server}"
    );
    let words = ["python3", "-c", &script, port.to_str().unwrap(), &clients.to_string()];
    let mut tracer = tracing(&place.path().join("run"), &["--no-kernel"]).args(words).spawn().unwrap();
    until("the server listens", || port.exists() || tracer.try_wait().unwrap().is_some());
    let port: u16 = std::fs::read_to_string(&port).expect("it listens").parse().unwrap();
    (0..clients).for_each(|_| client(port));
    assert!(tracer.wait().unwrap().success());
    let recorded = open(&place.path().join("run"));
    let mut analyst = Analyst::new(recorded.run(), Settings::default());
    recorded.for_each(&mut |event| analyst.event(event)).unwrap();
    let analysis = analyst.finish();
    (place, recorded, analysis)
}

/// Programs that are not traced are told apart by host, and by the port of their service, not by the ports that they happen to have.
#[test]
fn clients_that_are_not_traced_are_one_node() {
    const CLIENTS: usize = 20;
    let server = "
server = socket.create_server(('127.0.0.1', 0)); tell(server)
for _ in range(int(sys.argv[2])):
    served, _ = server.accept()
    served.sendall(served.recv(1000)); served.close()
";
    let (_place, recorded, analysis) = served(server, CLIENTS, |port| {
        let mut client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        client.write_all(b"hello").unwrap();
        client.read_exact(&mut [0; 5]).unwrap();
    });
    assert_eq!(analysis.outside.len(), 1, "{:?}", analysis.outside);
    let cells = analysis.links.cells.iter().map(|(_, _, cell)| (cell.bytes, cell.messages));
    assert_eq!(cells.collect::<Vec<_>>(), [(5 * CLIENTS as u64, CLIENTS as u64); 2]);
    assert_eq!(analysis.connections(recorded.run()).len(), CLIENTS);
    // one row for all, by the port that says something
    let text = summary(&recorded).to_string();
    let rows: Vec<&str> = text.lines().filter(|line| line.contains(" TCP python3")).collect();
    let service =
        recorded.run().sockets.iter().find(|socket| socket.listening).unwrap().local.unwrap().port();
    assert_eq!(rows.len(), 1, "{text}");
    assert!(rows[0].contains(&format!(":{service} – another program on ")), "{text}");
    assert!(rows[0].contains(&format!(", {CLIENTS} connections ")) && rows[0].ends_with("200 B"), "{text}");
}

/// A server of datagrams accepts no connections: it is one by being asked first, also where another thread answers, whose records
/// may be read before.
#[test]
fn clients_by_datagrams_are_one_node() {
    const CLIENTS: usize = 20;
    let server = "
import queue, threading
questions = queue.Queue()
def answer():
    while question := questions.get(): server.sendto(*question)
answers = threading.Thread(target=answer); answers.start()
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); server.bind(('127.0.0.1', 0)); tell(server)
for _ in range(int(sys.argv[2])): questions.put(server.recvfrom(1000))
questions.put(None); answers.join()
";
    let (_place, recorded, analysis) = served(server, CLIENTS, |port| {
        let client = std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        client.set_read_timeout(Some(std::time::Duration::from_secs(300))).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        client.send_to(b"hello", ("127.0.0.1", port)).unwrap();
        client.recv_from(&mut [0; 5]).unwrap();
    });
    let (sentence, finding) = summary(&recorded).headline;
    assert!(sentence.starts_with("A server"), "{sentence}");
    assert_eq!(finding, "Nothing on the network holds it up noticeably.");
    assert_eq!(analysis.outside.len(), 1, "{:?}", analysis.outside);
    let cells = analysis.links.cells.iter().map(|(_, _, cell)| (cell.bytes, cell.messages));
    assert_eq!(cells.collect::<Vec<_>>(), [(5 * CLIENTS as u64, CLIENTS as u64); 2]);
}

/// What a server waits for is its clients' business; what a client waits for is what a reader wants to know.
#[test]
fn a_server_is_not_held_up_by_clients_that_ask_nothing() {
    let server = "
server = socket.create_server(('127.0.0.1', 0)); tell(server)
served, _ = server.accept()
while asked := served.recv(1000): served.sendall(asked)
";
    let (_place, recorded, analysis) = served(server, 1, |port| {
        let mut client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        for _ in 0..5 {
            std::thread::sleep(std::time::Duration::from_millis(100));
            client.set_read_timeout(Some(std::time::Duration::from_secs(300))).unwrap();
            client.write_all(b"hello").unwrap();
            client.read_exact(&mut [0; 5]).unwrap();
        }
    });
    let waited = analysis.links.cells.iter().map(|(_, _, cell)| cell.waited).max();
    assert!(waited.is_some_and(|waited| waited > 400_000_000), "it did wait: {waited:?}");
    let finding = summary(&recorded).headline.1;
    assert_eq!(finding, "Nothing on the network holds it up noticeably.");

    let traced = python(
        "
import os, socket, time
server = socket.create_server(('127.0.0.1', 0))
if os.fork() == 0:
    client = socket.create_connection(server.getsockname())
    for _ in range(5): client.sendall(b'x'); client.recv(1)
    os._exit(0)
served, _ = server.accept()
for _ in range(5): served.recv(1); time.sleep(0.5); served.sendall(b'y')
os.wait()
",
    );
    let finding = summary(&traced.recorded).headline.1;
    assert!(finding.contains(" waits ") && finding.contains(" for "), "{finding}");
}

/// Who connects is not always who asks: a master's workers connect to it, and two programs may each have connected to the other.
#[test]
fn who_waits_for_answers_is_held_up_also_by_who_connected_to_it() {
    let master = "
server = socket.create_server(('127.0.0.1', 0)); tell(server)
served, _ = server.accept()
for _ in range(3): served.sendall(b'task'); served.recv(1000)
";
    let (_place, recorded, _) = served(master, 1, |port| {
        let mut worker = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        for _ in 0..3 {
            worker.read_exact(&mut [0; 4]).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(1000));
            worker.write_all(b"done").unwrap();
        }
    });
    let finding = summary(&recorded).headline.1;
    assert!(finding.contains(" waits "), "{finding}");

    let traced = python(
        "
import os, socket, time
mine = socket.create_server(('127.0.0.1', 0)); theirs = socket.create_server(('127.0.0.1', 0))
if os.fork() == 0:
    idle = socket.create_connection(mine.getsockname()); idle.sendall(b'x')
    served, _ = theirs.accept()
    for _ in range(3): served.recv(1); time.sleep(1); served.sendall(b'y')
    os._exit(0)
idle, _ = mine.accept(); idle.recv(1)
client = socket.create_connection(theirs.getsockname())
for _ in range(3): client.sendall(b'z'); client.recv(1)
os.wait()
",
    );
    let finding = summary(&traced.recorded).headline.1;
    assert!(finding.contains(" waits "), "{finding}");
}

/// A client may have connected a thousand times, by whatever sockets: one row says so.
#[test]
fn connections_to_one_unix_service_are_one_row() {
    const CLIENTS: usize = 20;
    let traced = python(
        "
import os, socket, tempfile
place = tempfile.mkdtemp(); name = place + '/s'
server = socket.socket(socket.AF_UNIX); server.bind(name); server.listen(50)
if os.fork() == 0:
    for _ in range(20):
        client = socket.socket(socket.AF_UNIX); client.connect(name); client.sendall(b'x' * 10); client.recv(10); client.close()
    os._exit(0)
for _ in range(20):
    served, _ = server.accept(); served.sendall(served.recv(10)); served.close()
os.wait(); os.unlink(name); os.rmdir(place)
",
    );
    let text = summary(&traced.recorded).to_string();
    let rows: Vec<&str> = text.lines().filter(|line| line.contains(" Unix python3")).collect();
    assert_eq!(rows.len(), 1, "{text}");
    assert!(rows[0].contains(&format!(", {CLIENTS} connections ")) && rows[0].ends_with("400 B"), "{text}");
}

/// The report in short.
fn summary(recorded: &Recorded) -> polyrail_trace::report::Summary {
    let place = tempfile::tempdir().unwrap();
    polyrail_trace::report::write(recorded, place.path(), &Default::default(), None).unwrap()
}

/// Who waits for himself waits for nobody, nor who waits for somebody who has not come.
#[test]
fn waiting_for_nobody_is_idleness() {
    let traced = python(
        "
import os, select, socket, threading, time
server = socket.create_server(('127.0.0.1', 0))
if os.fork() == 0:
    time.sleep(0.4)
    client = socket.create_connection(server.getsockname()); client.sendall(b'x'); client.recv(1)
    os._exit(0)
select.select([server], [], [])
served, _ = server.accept(); served.recv(1); served.sendall(b'y'); os.wait()
a, b = socket.socketpair()
thread = threading.Thread(target=lambda: (time.sleep(0.2), a.sendall(b'z'))); thread.start()
b.recv(1); thread.join()
",
    );
    let (run, analysis) = (run(&traced), analysis(&traced));
    let connections = analysis.connections(run);
    let life = connections.iter().map(|one| one.span.1 - one.span.0).max().unwrap();
    let parent = run.processes.iter().position(|process| process.parent.is_none()).unwrap() as u32;
    let mut seen = (false, false);
    for (from, to, cell) in &analysis.links.cells {
        if from == to {
            assert_eq!(cell.waited, 0);
            seen.0 = true;
        } else {
            assert!(cell.waited <= life, "{from} {to}: {} of {life}", cell.waited);
            seen.1 |= *to == parent;
        }
    }
    assert_eq!(seen, (true, true));
    assert!(analysis.processes[parent as usize].idle > 0);
}

/// A server that is started as root forks, gives up its rights, and only then makes its first call.
#[test]
fn who_gives_up_rights_is_recorded() {
    if !is_root() {
        return polyrail_testing::lacking("root, who may become another user");
    }
    let traced = python(
        "
import os, socket
if os.fork() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    a, b = socket.socketpair()
    for i in range(2000): a.send(b'x'); b.recv(1)
    os._exit(0)
assert os.wait()[1] == 0
",
    );
    assert_eq!(run(&traced).warnings, Vec::<String>::new());
    let calls = traced.calls();
    let sends = calls.iter().filter(|call| call.call == Call::Send);
    assert_eq!(sends.map(|call| call.bytes).sum::<u32>(), 2000);
}

/// Recordings of two runs are compared, and not taken for one.
#[test]
fn two_runs_are_compared_and_not_merged() {
    let place = tempfile::tempdir().unwrap();
    let run = |name: &str, times: u32| {
        let script = format!(
            "
import socket
a, b = socket.socketpair()
for _ in range({times}): a.sendall(b'x' * 1000); b.recv(1000)
"
        );
        let path = place.path().join(name);
        let done = tracing(&path, &["--no-kernel"]).args(["python3", "-c", &script]).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        path.to_str().unwrap().to_owned()
    };
    let (one, other) = (run("one", 30), run("other", 10));
    let report = |words: &[&str]| {
        let done = Command::new(POLYRAIL).arg("report").args(words).output().unwrap();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        (done.status.code(), text(&done.stdout), text(&done.stderr))
    };
    let (status, _, why) = report(&[&one, &other]);
    assert!(status == Some(1) && why.contains("recordings of two runs"), "{why}");
    assert!(!Path::new(&one).join("report.html").exists());
    // nor where they were put into one folder, of which the files are named then
    let both = place.path().join("both");
    fs::create_dir(&both).unwrap();
    for run in [&one, &other] {
        for file in fs::read_dir(run).unwrap().map(|file| file.unwrap().path()) {
            if file.extension().is_some_and(|end| end == "trace") {
                let name = format!(
                    "{}-{}",
                    Path::new(run).file_name().unwrap().display(),
                    file.file_name().unwrap().display()
                );
                fs::copy(&file, both.join(name)).unwrap();
            }
        }
    }
    let (status, _, why) = report(&[both.to_str().unwrap()]);
    assert!(status == Some(1) && why.contains("recordings of two runs"), "{why}");
    assert!(why.contains("/both/one-") && why.contains("/both/other-"), "{why}");
    let (status, text, why) = report(&[&one, "--against", &other, "--no-perfetto"]);
    assert_eq!(status, Some(0), "{why}");
    let row = |name: &str| {
        let found = text.lines().filter_map(|line| line.trim_start().strip_prefix(name)).next_back();
        found.unwrap_or_else(|| panic!("no {name} in\n{text}")).split_whitespace().collect::<Vec<_>>()
    };
    assert_eq!(row("send: calls"), ["30", "10", "3.00"]);
    assert_eq!(row("bytes "), ["30", "kB", "10", "kB", "3.00"]);
    let written = |directory: &str| Path::new(directory).join("report.html").exists();
    assert!(written(&one) && !written(&other));
}

/// What fails is told: connects by their reason, datagrams that nobody took.
#[test]
fn failures_are_listed() {
    let traced = python(
        "
import select, socket
free = socket.create_server(('127.0.0.1', 0)); closed = free.getsockname(); free.close()
for _ in range(3):
    try: socket.create_connection(closed)
    except ConnectionRefusedError: pass
s = socket.socket(); s.setblocking(False); s.connect_ex(closed); select.select([], [s], []); s.close()
a = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); a.bind(('127.0.0.1', 0))
b = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(10): b.sendto(b'x' * i, a.getsockname())
for _ in range(4): a.recvfrom(100)
a.close(); b.close()
print(closed[1])
",
    );
    let (run, analysis) = (run(&traced), analysis(&traced));
    let closed = Some(format!("127.0.0.1:{}", traced.stdout.trim()).parse().unwrap());
    let refused: Vec<_> =
        analysis.refused(run).into_iter().map(|row| (row.to, row.error, row.times)).collect();
    assert_eq!(refused, [(closed, nix::errno::Errno::ECONNREFUSED as u32, 3), (closed, 0, 1)]);
    let unheard: Vec<_> = analysis.unheard(run).into_iter().map(|row| (row.sent, row.received)).collect();
    assert_eq!(unheard, [(10, 4)]);
    let place = tempfile::tempdir().unwrap();
    let text = polyrail_trace::report::write(&traced.recorded, place.path(), &Default::default(), None)
        .unwrap()
        .to_string();
    assert!(
        text.contains("3 connects to 127.0.0.1") && text.contains("received 4 of 10 datagrams"),
        "{text}"
    );
}

/// What was only looked at is received once, by the call that takes it.
#[test]
fn what_is_peeked_at_is_received_once() {
    let traced = python(
        "
import socket
s = socket.create_server(('127.0.0.1', 0))
c = socket.create_connection(s.getsockname()); d, _ = s.accept()
c.sendall(b'x' * 100)
for _ in range(5): d.recv(100, socket.MSG_PEEK)
d.recv(100)
a, b = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in '12']
a.bind(('127.0.0.1', 0)); b.sendto(b'x' * 7, a.getsockname())
a.recvfrom(100, socket.MSG_PEEK); a.recvfrom(100)
",
    );
    let (run, analysis) = (run(&traced), analysis(&traced));
    let received = |kind: Kind| {
        let sockets = run.sockets.iter().zip(&analysis.sockets).filter(|(socket, _)| socket.kind == kind);
        sockets.map(|(_, traffic)| traffic.received.bytes + traffic.heard.0).sum::<u64>()
    };
    assert_eq!((received(Kind::Tcp), received(Kind::Udp)), (100, 7));
    assert_eq!(analysis.unheard(run).len(), 0);
}

/// A stream of sends is as many messages, and what decides the class is shown.
#[test]
fn a_stream_of_sends_is_many_messages() {
    let traced = python(
        "
import socket, threading
a, b = socket.socketpair()
def drain():
    while b.recv(65536): pass
t = threading.Thread(target=drain); t.start()
for _ in range(20000): a.send(b'12345678')
a.close(); t.join()
",
    );
    // however long a busy machine leaves it waiting between two sends
    let analysis = analysis_by(&traced, Settings { message_gap: 3_600_000_000_000 });
    let sent: u64 = analysis.sockets.iter().map(|socket| socket.sent.messages).sum();
    assert_eq!(sent, 20_000);
    let classes = polyrail_trace::classify::whole(&analysis);
    assert_eq!(classes.size, Some(polyrail_trace::classify::Size::Small));
    assert_eq!((classes.size_by_cost, classes.bytes), (Some(8), Some((8, 8))));
}

/// A forked process is what its parent was then, however much it does at once.
#[test]
fn a_forked_process_has_its_parents_name() {
    for _ in 0..5 {
        let traced = python(
            "
import os, socket
for _ in range(3):
    if os.fork() == 0:
        a, b = socket.socketpair()
        for _ in range(3000): a.send(b'x'); b.recv(1)
        os._exit(0)
for _ in range(3): os.wait()
",
        );
        let run = run(&traced);
        let busy: std::collections::BTreeSet<u32> =
            traced.calls().iter().map(|call| run.threads[call.thread as usize].process).collect();
        assert_eq!(busy.len(), 3);
        for process in busy {
            let command = &run.processes[process as usize].command;
            assert!(command.iter().any(|word| word.contains("socketpair")), "{command:?}");
        }
    }
}
