//! Two gateways on this host, whose sites have networks of loopback addresses: what programs say through them, and what becomes of it when
//! something fails. No rights are needed.

mod support;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use polyrail_rails::relay;
use serde_json::Value;

use support::{Gateway, PATIENCE, POLYRAIL, Sites, bytes, free_port, output, text, until};

#[test]
fn streams_of_all_lengths_are_whole_both_ways_at_once() {
    let sites = Sites::started();
    let (listener, at) = sites.listener();
    const STREAMS: u64 = 120;
    let length = |stream: u64, way: u64| match (stream + way) % 5 {
        0 => 0,
        1 => 1,
        2 => 65_512 + way as usize,
        3 => 300_000 + 7919 * stream as usize,
        _ => 100 * stream as usize,
    };
    let both = |mut socket: TcpStream, ours: u64, stream: Option<u64>| {
        // who connects says first which stream it is
        if let Some(stream) = stream {
            socket.write_all(&stream.to_le_bytes()).unwrap();
        }
        let stream = stream.unwrap_or_else(|| {
            let mut room = [0; 8];
            socket.read_exact(&mut room).unwrap();
            u64::from_le_bytes(room)
        });
        let mut reader = socket.try_clone().unwrap();
        let read = thread::spawn(move || {
            let mut got = Vec::new();
            // one of them reads slowly
            if stream == 7 {
                thread::sleep(Duration::from_millis(500));
            }
            reader.read_to_end(&mut got).unwrap();
            got
        });
        socket.write_all(&bytes(2 * stream + ours, length(stream, ours))).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        let theirs = 1 - ours;
        let wanted = bytes(2 * stream + theirs, length(stream, theirs));
        assert!(read.join().unwrap() == wanted, "stream {stream}, way {theirs}");
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::scope(|each| {
                for _ in 0..STREAMS {
                    let (socket, _) = listener.accept().unwrap();
                    socket.set_read_timeout(Some(PATIENCE)).unwrap();
                    each.spawn(|| both(socket, 1, None));
                }
            });
        });
        for stream in 0..STREAMS {
            let socket = sites.dial(at).unwrap();
            scope.spawn(move || both(socket, 0, Some(stream)));
        }
    });
    // nothing is counted that is not under way, from the first attempt to dial on
    until("nothing waits", || {
        [&sites.east, &sites.west].iter().all(|gateway| gateway.status()["sites"][0]["to_send"] == 0)
    });
    until("no stream is left", || {
        [&sites.east, &sites.west].iter().all(|gateway| gateway.status()["sites"][0]["streams"] == 0)
    });
    let site = &sites.east.status()["sites"][0];
    let sent: u64 = (0..STREAMS).map(|stream| 8 + length(stream, 0) as u64).sum();
    assert_eq!((site["asked"].as_u64(), site["sent"].as_u64()), (Some(STREAMS), Some(sent)), "{site}");
    assert_eq!((site["reset"].as_u64(), site["refused"].as_u64()), (Some(0), Some(0)), "{site}");
}

#[test]
fn what_is_not_to_be_had_is_refused_with_the_reason() {
    let mut sites = Sites::made();
    sites.east.start();
    let (listener, at) = sites.listener();
    // nobody knows yet where the west is
    assert_eq!(sites.dial(at).err(), Some(2));
    sites.west.start();
    until("the session stands", || sites.east.is_up());
    drop(sites.dial(at).unwrap());
    drop(listener);
    assert_eq!(sites.dial(at).err(), Some(5), "nobody listens there");
    assert_eq!(sites.dial("127.1.2.3:80".parse().unwrap()).err(), Some(2), "it is at no site");
    assert_eq!(sites.dial(sites.west.at).err(), Some(2), "a gateway's own door leads nowhere");
    sites.west.kill();
    until("the session is lost", || !sites.east.is_up());
    assert_eq!(sites.dial(at).err(), Some(3), "there is no way at the moment");
    // a gateway that began anew knows what is the west's before that is there
    sites.east.kill();
    sites.east.start();
    assert_eq!(sites.dial(at).err(), Some(3), "there is no way yet");
    let status = text(&output(&mut sites.east.command(&["status"])).stdout);
    assert!(status.contains("west is away: "), "{status}");
}

#[test]
fn a_reset_is_a_reset_and_half_an_end_is_half() {
    let sites = Sites::started();
    let (listener, at) = sites.listener();
    let mut near = sites.dial(at).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    near.shutdown(Shutdown::Write).unwrap();
    assert_eq!(far.read(&mut [0; 1]).unwrap(), 0);
    far.write_all(b"still there").unwrap();
    let mut room = [0; 11];
    near.read_exact(&mut room).unwrap();
    assert_eq!(&room, b"still there");
    drop(far);
    assert_eq!(near.read(&mut room).unwrap(), 0);

    let mut near = sites.dial(at).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    far.write_all(b"x").unwrap();
    near.read_exact(&mut room[..1]).unwrap();
    near.write_all(b"unread").unwrap();
    far.peek(&mut room).unwrap();
    // a socket that is closed with something unread resets its connection
    drop(far);
    assert_eq!(near.read(&mut room).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    until("no stream is left", || sites.west.status()["sites"][0]["streams"] == 0);
}

#[test]
fn a_gateway_that_dies_resets_its_streams_and_the_next_carries_others() {
    let mut sites = Sites::started();
    let (listener, at) = sites.listener();
    for killed in ["west", "east", "east, as it was told"] {
        let mut near = sites.dial(at).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(b"x").unwrap();
        far.read_exact(&mut [0; 1]).unwrap();
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        match killed {
            "west" => sites.west.kill(),
            "east" => sites.east.kill(),
            _ => sites.east.end(),
        }
        for end in [&mut near, &mut far] {
            // never an end: nobody is to take what came so far for all
            let got = end.read(&mut [0; 1]);
            assert_eq!(got.unwrap_err().kind(), io::ErrorKind::ConnectionReset, "{killed}");
        }
        match killed {
            "west" => sites.west.start(),
            _ => sites.east.start(),
        }
        until("the session stands again", || sites.east.is_up() && sites.west.is_up());
        let mut near = sites.dial(at).unwrap();
        near.write_all(b"again").unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let mut room = [0; 5];
        far.read_exact(&mut room).unwrap();
        assert_eq!(&room, b"again");
    }
}

#[test]
fn who_does_not_read_holds_up_nobody_else_and_costs_little() {
    let sites = Sites::started();
    let (listener, at) = sites.listener();
    let mut stuck = sites.dial(at).unwrap();
    let (held, _) = listener.accept().unwrap();
    stuck.set_nonblocking(true).unwrap();
    let (mut sent, chunk, begun) = (0_u64, vec![7; 1 << 16], Instant::now());
    let mut last = Instant::now();
    // until nothing more is taken for a while
    while last.elapsed() < Duration::from_secs(1) && begun.elapsed() < PATIENCE {
        match stuck.write(&chunk) {
            Ok(some) => (sent, last) = (sent + some as u64, Instant::now()),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(10)),
            Err(why) => panic!("{why}"),
        }
    }
    assert!(sent > 0 && sent < 64 << 20, "{sent} bytes are under way to who does not read");
    let mut near = sites.dial(at).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    near.write_all(b"past it").unwrap();
    let mut room = [0; 7];
    far.read_exact(&mut room).unwrap();
    assert_eq!(&room, b"past it");
    let mut held = held;
    stuck.shutdown(Shutdown::Write).unwrap();
    let mut all = Vec::new();
    held.set_read_timeout(Some(PATIENCE)).unwrap();
    held.read_to_end(&mut all).unwrap();
    assert_eq!(all.len() as u64, sent);
}

/// What is said of classes holds from the next word on, for streams that there are, too; a file that cannot be read changes nothing.
#[test]
fn limits_are_taken_without_a_restart() {
    const LEN: usize = 3_000_000;
    let sites = Sites::started();
    let (listener, at) = sites.listener();
    let mut east = sites.dial(at).unwrap();
    let (mut west, _) = listener.accept().unwrap();
    let path = sites.east.directory.join("site.toml");
    let before = std::fs::read_to_string(&path).unwrap();
    let classes = |limit: &str| {
        format!("{before}\n[[class]]\nname = \"slow\"\nports = [{}]\nlimit = \"{limit}\"\n", at.port())
    };
    let renew = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let pid = sites.east.process.as_ref().unwrap().id().to_string();
        assert!(output(Command::new("kill").args(["-HUP", &pid])).status.success());
    };
    // its command reads the file, too
    let page = |path: &str| String::from_utf8(relay::page(sites.east.at, path, PATIENCE).unwrap()).unwrap();
    let class = || serde_json::from_str::<Value>(&page("/status")).unwrap()["sites"][0]["classes"][0].clone();
    assert_eq!(class()["class"], "rest");
    renew(&classes("16M"));
    until("the class is there", || class()["class"] == "slow" && class()["limit"] == 16_000_000);
    let sent = bytes(3, LEN);
    let begun = Instant::now();
    let writer = thread::spawn(move || {
        east.write_all(&sent).unwrap();
        (east, sent)
    });
    let mut got = vec![0; LEN];
    west.set_read_timeout(Some(PATIENCE)).unwrap();
    west.read_exact(&mut got).unwrap();
    let (mut east, sent) = writer.join().unwrap();
    assert!(got == sent);
    // at 2 MB/s, but for what may go at once: it may be slower, where much else is done
    assert!(begun.elapsed() > Duration::from_secs(1), "{:?}", begun.elapsed());
    assert!(class()["sent"].as_u64() >= Some(LEN as u64), "{}", class());
    renew("site = \"east");
    until("the file is not taken", || sites.east.has_said("the file is not taken"));
    assert_eq!(class()["limit"], 16_000_000, "all stays as it was");
    renew(&classes("2G").replace("listen = [", "listen = [\"127.0.0.1:1\", "));
    until("the limit is another", || class()["limit"] == 2_000_000_000);
    until("what is not taken is told", || sites.east.has_said("what it says of listen is taken when"));
    let page = String::from_utf8(relay::page(sites.east.at, "/metrics", PATIENCE).unwrap()).unwrap();
    assert!(
        page.contains("polyrail_gateway_class_sent_bytes_total{site=\"west\",class=\"slow\"} "),
        "{page}"
    );
    east.write_all(b"on").unwrap();
    west.read_exact(&mut [0; 2]).unwrap();
}

#[test]
fn strangers_get_nowhere() {
    let sites = Sites::started();
    let (listener, at) = sites.listener();
    // a third site that trusts the west, and is not trusted
    let third = Sites::made();
    third.east.ask(&["trust", "--replace", &sites.west.ask(&["token"])]);
    let mut third = third;
    third.east.start();
    until("it was turned away", || {
        let why = third.east.status()["sites"][0]["why"].to_string();
        why.contains("denied") || why.contains("refused") || why.contains("key")
    });
    assert!(!third.east.is_up());
    // what is no call at all; and more of those who say nothing than are kept
    for said in [
        &b"\x16\x03\x01\x02\x00"[..],
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00",
        &[5; 4096],
    ] {
        let mut socket = TcpStream::connect(sites.east.at).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(said).unwrap();
        let mut answer = Vec::new();
        let end = socket.read_to_end(&mut answer);
        assert!(end.is_ok() || answer.is_empty(), "{answer:?}");
    }
    let silent: Vec<TcpStream> = (0..600).map(|_| TcpStream::connect(sites.east.at).unwrap()).collect();
    let mut near = sites.dial(at).unwrap();
    near.write_all(b"x").unwrap();
    listener.accept().unwrap().0.read_exact(&mut [0; 1]).unwrap();
    drop(silent);
}

#[test]
fn several_sites_dial_one_port() {
    let mut sites = Sites::made();
    let mut north = Gateway::new(sites.files.path().join("north"), [127, 0, 0, 1]);
    let token = north.init("north", (88, sites.net), &[]);
    north.say(&format!("\n[to.west]\nnetworks = [\"127.77.{}.0/24\"]\n", sites.net));
    north.ask(&["trust", &sites.west.ask(&["token"])]);
    sites.west.ask(&["trust", &token]);
    north.start();
    sites.east.start();
    sites.west.start();
    let both = |sites: &Sites, north: &Gateway| {
        until("both sessions stand", || sites.west.is_up() && sites.east.is_up() && north.is_up());
    };
    both(&sites, &north);
    let (listener, at) = sites.listener();
    let stream = |gateway: &Gateway| {
        let (near, far) = (gateway.dial(at).unwrap(), listener.accept().unwrap().0);
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        (near, far)
    };
    let said = |(near, far): &mut (TcpStream, TcpStream), what: u64| {
        near.write_all(&bytes(what, 100_000)).unwrap();
        let mut got = vec![0; 100_000];
        far.read_exact(&mut got).unwrap();
        got == bytes(what, 100_000)
    };
    let (mut of_east, mut of_north) = (stream(&sites.east), stream(&north));
    assert!(said(&mut of_east, 1) && said(&mut of_north, 2));
    let status = sites.west.status();
    let one = |n: usize| (&status["sites"][n]["site"], &status["sites"][n]["streams"]);
    assert_eq!((one(0), one(1)), ((&"east".into(), &1.into()), (&"north".into(), &1.into())));
    // one that goes and comes again is of no concern to the other
    north.kill();
    until("north is lost", || !sites.west.is_up());
    assert!(said(&mut of_east, 3));
    north.start();
    both(&sites, &north);
    assert!(said(&mut of_east, 4) && said(&mut stream(&north), 5));
    sites.west.end();
    sites.west.start();
    both(&sites, &north);
    assert!(said(&mut stream(&sites.east), 6) && said(&mut stream(&north), 7));
}

/// Whether the kernel shows nobody another's system calls; the test is skipped then.
#[track_caller]
fn is_lacking() -> bool {
    let why = polyrail_native::seccomp::try_out().err();
    if let Some(why) = &why {
        polyrail_testing::lacking(format_args!("system calls that are shown to others: {why}"));
    }
    why.is_some()
}

/// A program that connects in the ways that programs do, and says what it sees.
const PROGRAM: &str = r#"
import errno, select, socket, sys, threading
ip, port, refused = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def echo(s, what):
    s.sendall(what); got = b''
    while len(got) < len(what):
        got += s.recv(100)
    assert got == what, got
s = socket.create_connection((ip, port)); assert s.getpeername() == (ip, port); echo(s, b'blocking')
t = socket.socket(); t.setblocking(False)
try: t.connect((ip, port))
except BlockingIOError: select.select([], [t], [])
assert t.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0 and t.getpeername() == (ip, port)
t.setblocking(True); echo(t, b'not blocking')
v = socket.socket(socket.AF_INET6); v.connect(('::ffff:' + ip, port)); echo(v, b'by IPv6')
assert v.getpeername()[:2] == ('::ffff:' + ip, port), v.getpeername()
r = socket.socket()
assert r.connect_ex((ip, refused)) == errno.ECONNREFUSED
r.connect((ip, port)); echo(r, b'the same socket, connected after it was refused')
assert r.connect_ex((ip, port)) == errno.EISCONN
own = socket.create_server(('127.0.0.1', 0)); near = socket.create_connection(own.getsockname()); far, at = own.accept()
assert near.getpeername() == own.getsockname() and at == near.getsockname()
def many(n):
    s = socket.create_connection((ip, port)); echo(s, b'thread %d' % n)
threads = [threading.Thread(target=many, args=(n,)) for n in range(20)]
[t.start() for t in threads]; [t.join() for t in threads]
print('all right'); sys.exit(7)
"#;

/// Sends back what comes, until there is nobody any more.
fn echo(listener: TcpListener) {
    thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            thread::spawn(move || io::copy(&mut socket.try_clone().unwrap(), &mut socket));
        }
    });
}

/// [`PROGRAM`], beside an echo at the other site and a port there that refuses.
fn program(sites: &Sites) -> [String; 6] {
    let (listener, at) = sites.listener();
    echo(listener);
    let refused = TcpListener::bind((at.ip(), 0)).unwrap().local_addr().unwrap().port();
    ["python3", "-c", PROGRAM, &at.ip().to_string(), &at.port().to_string(), &refused.to_string()]
        .map(str::to_owned)
}

#[test]
fn any_program_connects_as_ever() {
    if is_lacking() {
        return;
    }
    let sites = Sites::started();
    let program = program(&sites);
    let got = sites.wrap(&program.each_ref().map(String::as_str));
    assert_eq!(text(&got.stdout), "all right\n", "{}", text(&got.stderr));
    assert_eq!(got.status.code(), Some(7), "its own status");
    // all of them came through the gateway
    let site = &sites.east.status()["sites"][0];
    assert_eq!(site["asked"], 4 + 1 + 20 + 1 - 1, "{site}");
}

#[test]
fn so_it_does_while_it_is_recorded() {
    if is_lacking() {
        return;
    }
    let sites = Sites::started();
    let gateway = sites.east.at.to_string();
    let recording = sites.files.path().join("recording");
    // the recorder is in polyrail wrap as well, and has questions of its own for the kernel
    let got = output(
        Command::new("timeout")
            .env("POLYRAIL_RECORDER_DIR", polyrail_testing::built("-p polyrail-preload"))
            .args(["-k", "5", "60", POLYRAIL, "trace", "--no-kernel", "-o"])
            .arg(&recording)
            .args(["--", POLYRAIL, "wrap", "--gateway", &gateway, "--"])
            .args(program(&sites)),
    );
    assert_eq!(got.status.code(), Some(7), "{}{}", text(&got.stdout), text(&got.stderr));
    assert!(text(&got.stdout).contains("all right\n"), "{}", text(&got.stderr));
    assert_eq!(sites.east.status()["sites"][0]["asked"], 4 + 1 + 20 + 1 - 1);
}

/// Says whom it is connected with, as the gateway of its site knows.
const SERVER: &str = r#"
import socket, sys
for family, ip in ((socket.AF_INET, sys.argv[1]), (socket.AF_INET6, '::')):
    s = socket.socket(family); s.bind((ip, 0)); s.listen()
    print(s.getsockname()[1], flush=True)
    c, _ = s.accept()
    print(c.getpeername()[0], c.getpeername()[1], flush=True)
    c.sendall(b'k')
"#;
/// Connects from an address of its own.
const CLIENT: &str = r#"
import socket, sys
s = socket.socket(); s.bind((sys.argv[1], 0)); s.connect((sys.argv[2], int(sys.argv[3]))); assert s.recv(1) == b'k'
print(*s.getsockname(), flush=True)
"#;

#[test]
fn who_accepts_sees_its_real_peer() {
    if is_lacking() {
        return;
    }
    let sites = Sites::started();
    let (ip, from) = (format!("127.77.{}.5", sites.net), format!("127.66.{}.3", sites.net));
    let at = sites.west.at.to_string();
    let mut server = Command::new(POLYRAIL)
        .args(["wrap", "--gateway", &at, "--", "python3", "-c", SERVER, &ip])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(server.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    for before in ["", "::ffff:"] {
        let port = said.next().unwrap();
        let got = sites.wrap(&["python3", "-c", CLIENT, &from, &ip, &port]);
        assert!(got.status.success(), "{}", text(&got.stderr));
        assert_eq!(said.next().unwrap(), format!("{before}{}", text(&got.stdout).trim()));
    }
    assert!(server.wait().unwrap().success());
}

#[test]
fn a_static_program_is_seen_too() {
    if is_lacking() {
        return;
    }
    let sites = Sites::started();
    let (listener, at) = sites.listener();
    echo(listener);
    let files = tempfile::tempdir().unwrap();
    let (source, program) = (files.path().join("p.c"), files.path().join("p"));
    let code = r#"
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
int main(int n, char **a) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(a[2]))};
    char room[3] = "";
    inet_pton(AF_INET, a[1], &to.sin_addr);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(s, (struct sockaddr *)&to, sizeof to)) return perror("connect"), 1;
    if (write(s, "ok", 2) != 2 || read(s, room, 2) < 1) return 2;
    puts(room);
    return 0;
}
"#;
    std::fs::write(&source, code).unwrap();
    let built = output(Command::new("cc").args(["-static", "-o"]).args([&program, &source]));
    assert!(built.status.success(), "{}", text(&built.stderr));
    let got = sites.wrap(&[program.to_str().unwrap(), &at.ip().to_string(), &at.port().to_string()]);
    assert_eq!(text(&got.stdout), "ok\n", "{}", text(&got.stderr));
    assert_eq!(sites.east.status()["sites"][0]["asked"], 1);
}

#[test]
fn what_a_program_leaves_running_is_wrapped_too() {
    if is_lacking() {
        return;
    }
    let sites = Sites::started();
    let (listener, at) = sites.listener();
    echo(listener);
    let late = format!(
        "import socket, time; time.sleep(1); s = socket.create_connection(('{}', {})); s.sendall(b'x'); assert s.recv(1) == b'x'; print('late')",
        at.ip(),
        at.port()
    );
    let got = sites.wrap(&["sh", "-c", "python3 -c \"$1\" & exit 3", "sh", &late]);
    assert_eq!((text(&got.stdout).as_str(), got.status.code()), ("late\n", Some(3)), "{}", text(&got.stderr));
    assert_eq!(sites.east.status()["sites"][0]["asked"], 1);
}

#[test]
fn what_is_left_running_ends_with_a_signal_to_wrap() {
    if is_lacking() {
        return;
    }
    let sites = Sites::started();
    let at = sites.east.at.to_string();
    let mut wrapped = Command::new(POLYRAIL)
        .args(["wrap", "--gateway", &at, "--", "sh", "-c", "sleep 300 >/dev/null 2>&1 & echo $!"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut left = String::new();
    BufReader::new(wrapped.stdout.take().unwrap()).read_line(&mut left).unwrap();
    let mut said = String::new();
    BufReader::new(wrapped.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("not all that it started"), "{said}");
    assert!(output(Command::new("kill").arg(wrapped.id().to_string())).status.success());
    assert_eq!(wrapped.wait().unwrap().code(), Some(128 + 15));
    output(Command::new("kill").arg(left.trim()));
}

/// As launchers call it: whatever is wrong with the gateway, the program runs; and who waits for it waits for no more than that.
#[test]
fn for_launchers_programs_run_whatever_is_known_of_gateways() {
    let files = tempfile::tempdir().unwrap();
    let config = files.path().join("polyrail.toml");
    let run = |says: &str, script: &str| {
        std::fs::write(&config, says).unwrap();
        let mut command = Command::new(POLYRAIL);
        command.args(["wrap", "--if-known", "--", "sh", "-c", script]).env("POLYRAIL_CONFIG", &config);
        let got = output(command.env_remove("POLYRAIL_GATEWAY"));
        (got.status.code(), text(&got.stdout), text(&got.stderr))
    };
    assert_eq!(run("", "echo ran; exit 3"), (Some(3), "ran\n".into(), String::new()));
    for bad in
        [format!("127.0.0.1:{}", free_port()), "nobody.invalid:1080".into(), format!("[::1]:{}", free_port())]
    {
        let (status, said, told) = run(&format!("gateway = {bad:?}"), "echo ran; exit 3");
        assert!(
            status == Some(3) && said == "ran\n" && told.contains("no other site is reached"),
            "{bad}: {told}"
        );
    }
    if is_lacking() {
        return;
    }
    let sites = Sites::started();
    let known = format!("gateway = {:?}", sites.east.at.to_string());
    // what it leaves running is wrapped on, and holds nobody up: it waits for what is done when the program has ended
    let (listener, at) = sites.listener();
    let sign = files.path().join("ended");
    let left = format!(
        "for n in {{1..600}}; do [ -e {sign} ] && break; sleep 0.1; done; [ -e {sign} ] && word=late || word=never; exec 3<>/dev/tcp/{}/{}; echo $word >&3",
        at.ip(),
        at.port(),
        sign = sign.display()
    );
    let (status, ..) = run(&known, &format!("exec bash -c '({left}) >/dev/null 2>&1 & exit 4'"));
    std::fs::write(&sign, "").unwrap();
    assert_eq!(status, Some(4));
    let (mut heard, mut said) = (listener.accept().unwrap().0, String::new());
    heard.read_to_string(&mut said).unwrap();
    assert_eq!(said, "late\n");
    // within another, that one serves
    let inner = format!("'{POLYRAIL}' wrap --if-known -- sh -c 'exit 5'");
    assert_eq!(run(&known, &inner).0, Some(5));
}

#[test]
fn what_cannot_be_wrapped_says_why() {
    if is_lacking() {
        return;
    }
    let none = free_port();
    let got = output(Command::new(POLYRAIL).args([
        "wrap",
        "--gateway",
        &format!("127.0.0.1:{none}"),
        "--",
        "true",
    ]));
    assert_eq!(got.status.code(), Some(125));
    assert!(text(&got.stderr).contains("no gateway answers"), "{}", text(&got.stderr));
    let sites = Sites::started();
    let got = sites.wrap(&["/there/is/none"]);
    assert_eq!(got.status.code(), Some(125));
    assert!(text(&got.stderr).contains("/there/is/none: No such file"), "{}", text(&got.stderr));
    let got = sites.wrap(&["sh", "-c", "kill -TERM $$"]);
    assert_eq!(got.status.code(), Some(128 + 15));
    let at = sites.east.at.to_string();
    let got = output(Command::new(POLYRAIL).args(["wrap", "--gateway", &at, "--doctor", "--", "sh"]));
    let said = text(&got.stdout);
    assert!(got.status.success() && said.contains("seccomp user notification"), "{said}");
    assert!(said.contains(&format!("127.77.{}.0/24 is at site west", sites.net)), "{said}");
}

#[test]
fn what_operators_write_wrong_is_told() {
    let sites = Sites::made();
    let said = |gateway: &Gateway, args: &[&str]| {
        let got = output(&mut gateway.command(args));
        assert!(!got.status.success(), "{args:?}");
        text(&got.stderr)
    };
    let own = sites.east.ask(&["token"]);
    assert!(said(&sites.east, &["trust", &own]).contains("own token"));
    assert!(said(&sites.east, &["trust", "nonsense"]).contains("no token of a site"));
    assert!(said(&sites.east, &["trust", &own[..own.len() - 3]]).contains("damaged"));
    assert!(said(&sites.east, &["init", "--site", "east"]).contains("File exists"));
    assert!(said(&sites.east, &["status"]).contains("no gateway answers"));
    let other = Sites::made();
    assert!(said(&sites.east, &["trust", &other.west.ask(&["token"])]).contains("--replace"));
    let file = sites.east.directory.join("site.toml");
    std::fs::write(&file, std::fs::read_to_string(&file).unwrap().replace("listen", "lissen")).unwrap();
    assert!(said(&sites.east, &[]).contains("unknown field `lissen`"));
}
