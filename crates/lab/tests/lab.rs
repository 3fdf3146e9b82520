//! `scripts/lab` with relayed rails, as users run it. Each test starts a lab, whose command is this file's program again,
//! with the part of the test that happens `inside`. Skipped, and says so, without root or /dev/net/tun.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/lab");
const RELAY: &str = env!("CARGO_BIN_EXE_polyrail-lab-relay");

fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

/// Whether a lab with relayed rails can be made here; says why not.
#[track_caller]
fn possible() -> bool {
    let lacking = if fs::metadata("/proc/self").unwrap().uid() != 0 {
        "root"
    } else if File::options().read(true).write(true).open("/dev/net/tun").is_err() {
        "/dev/net/tun"
    } else {
        return true;
    };
    polyrail_testing::lacking(lacking);
    false
}

fn lab(directory: &Path, rails: &str) -> Command {
    let mut command = Command::new(SCRIPT);
    command.env("POLYRAIL_LAB_RELAY", RELAY).env("TMPDIR", directory).args(["run", "--rails", rails, "--"]);
    command
}

/// Runs the ignored test `part` as the command of a lab with `rails`.
#[track_caller]
fn inside(rails: &str, part: &str) {
    if !possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let output = lab(directory.path(), rails)
        .arg(program)
        .args(["--ignored", "--exact", part, "--nocapture"])
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "something is left");
}

/// A command of the lab that this runs in.
fn command(words: &str) -> String {
    let output = Command::new(SCRIPT).args(words.split(' ')).output().unwrap();
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Does `action` in the network of a host of the lab that this runs in. Sockets that it makes stay there.
fn on<T: Send>(host: &str, action: impl FnOnce() -> T + Send) -> T {
    let directory = std::env::var("POLYRAIL_LAB").expect("not inside a lab");
    let pid = fs::read_to_string(format!("{directory}/{host}/pid")).unwrap();
    let namespace = File::open(format!("/proc/{}/ns/net", pid.trim())).unwrap();
    thread::scope(|scope| {
        let inside = || {
            setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
            action()
        };
        scope.spawn(inside).join().unwrap()
    })
}

fn udp(rail: u8) -> [UdpSocket; 2] {
    let [a, b] = [("a", 1), ("b", 2)].map(|(host, number)| {
        on(host, || UdpSocket::bind(SocketAddr::from(([10, 77, rail, number], 7000))).unwrap())
    });
    a.connect(b.local_addr().unwrap()).unwrap();
    b.connect(a.local_addr().unwrap()).unwrap();
    for socket in [&a, &b] {
        socket.set_read_timeout(Some(ms(500))).unwrap();
    }
    [a, b]
}

/// One packet there and back; an error when it got lost, or the rail is down.
fn round_trip([a, b]: &[UdpSocket; 2]) -> io::Result<Duration> {
    let (start, mut buffer) = (Instant::now(), [0; 100]);
    a.send(b"there")?;
    b.recv(&mut buffer)?;
    b.send(b"back")?;
    a.recv(&mut buffer)?;
    Ok(start.elapsed())
}

/// Whether packets pass, be it after some time: neighbours may have to be found anew.
fn answers(ends: &[UdpSocket; 2]) -> bool {
    (0..5).any(|_| round_trip(ends).is_ok())
}

fn shortest_round_trip(ends: &[UdpSocket; 2]) -> Duration {
    (0..10).map(|_| round_trip(ends).unwrap()).min().unwrap()
}

#[test]
fn delay_is_what_was_asked_also_after_a_change() {
    inside("relay:1000,delay=10ms", "inside_delay");
}

#[test]
#[ignore = "runs inside a lab"]
fn inside_delay() {
    let ends = udp(0);
    let took = shortest_round_trip(&ends);
    assert!(took >= ms(20) && took < ms(30), "{took:?}");
    command("relay 0 a.delay=30ms b.delay=500us");
    let took = shortest_round_trip(&ends);
    assert!(took >= ms(30) && took < ms(40), "{took:?}");
    command("relay 0 delay=0");
    let took = shortest_round_trip(&ends);
    assert!(took < ms(10), "{took:?}");
}

#[test]
fn ways_of_equal_cost_are_chosen_by_ports() {
    inside("paths:0,0,100/30%", "inside_paths");
}

/// Packets that went from a host by each way of rail 0.
fn by_ways(host: &str) -> Vec<u64> {
    let text = command("stats 0");
    let of_it = text.lines().filter(|line| line.starts_with(&format!("{host}> way ")));
    of_it.map(|line| line.split(' ').nth(4).unwrap().parse().unwrap()).collect()
}

#[test]
#[ignore = "runs inside a lab"]
fn inside_paths() {
    const EACH: u64 = 1000;
    let b = on("b", || UdpSocket::bind("10.77.0.2:7000").unwrap());
    b.set_nonblocking(true).unwrap();
    // sends packets from a port of its own, and answers those that come; how many did
    let send = |packets: u64| -> u64 {
        let a = on("a", || UdpSocket::bind("10.77.0.1:0").unwrap());
        a.connect(b.local_addr().unwrap()).unwrap();
        let mut came = 0;
        for last in 0..packets {
            assert_eq!(a.send(b"there").unwrap(), 5);
            thread::sleep(if last + 1 == packets { ms(20) } else { Duration::from_micros(100) });
            while let Ok((_, from)) = b.recv_from(&mut [0; 100]) {
                came += 1;
                b.send_to(b"back", from).unwrap();
            }
        }
        came
    };
    // neighbours have to be found first, and some of their questions and answers by the last way are lost, too
    let warm = (0..60).any(|_| {
        let _: u64 = (0..10).map(|_| send(10)).sum();
        by_ways("a").iter().chain(&by_ways("b")).all(|packets| *packets >= 40)
    });
    assert!(warm, "all ways are used: {:?}, {:?}", by_ways("a"), by_ways("b"));
    let before = by_ways("a");
    let came: u64 = (0..40).map(|_| send(25)).sum();
    let used: Vec<u64> = by_ways("a").iter().zip(&before).map(|(now, then)| now - then).collect();
    // of what goes by the last, three of ten are lost; what neighbours ask each other counts, too
    let lost = (40 * 25u64).saturating_sub(came);
    assert!(lost > used[2] / 20 && lost < used[2] / 4 * 3 + 25, "{came} came of {used:?}");
    // one port takes one way; where neighbours ask each other just then and do not hear the answer, another port tells
    let used = || -> Vec<u64> {
        let before = by_ways("a");
        send(EACH);
        by_ways("a").iter().zip(&before).map(|(now, then)| now - then).collect()
    };
    let one =
        |used: &[u64]| used.iter().any(|packets| *packets >= EACH) && used.iter().sum::<u64>() < EACH + 100;
    assert!((0..5).any(|_| one(&used())), "one port takes one way: {:?}", used());
    command("path 0 2 50");
}

#[test]
fn loss_is_what_was_asked_and_counted() {
    inside("relay:0,a.loss=5%", "inside_loss");
}

#[test]
#[ignore = "runs inside a lab"]
fn inside_loss() {
    let (sent, mut arrived) = (5000, 0);
    let [a, b] = udp(0);
    // a few at a time, for the receiver's buffer; who comes late is counted with the next
    for chunk in 1..=sent / 50 {
        for _ in 0..50 {
            a.send(b"packet").unwrap();
        }
        b.set_read_timeout(Some(ms(if chunk == sent / 50 { 500 } else { 5 }))).unwrap();
        arrived += std::iter::from_fn(|| b.recv(&mut [0; 100]).ok()).count();
    }
    let stats = command("stats 0");
    assert!(stats.contains(&format!("lost {} ", sent - arrived)), "{arrived} of {sent} arrived, but {stats}");
    // the standard deviation is 15
    assert!((150..350).contains(&(sent - arrived)), "{arrived} of {sent} arrived");
}

#[test]
fn rails_go_down_and_come_back_in_mid_run() {
    inside("1000 relay:1000,delay=1ms", "inside_faults");
}

#[test]
#[ignore = "runs inside a lab"]
fn inside_faults() {
    for rail in [0, 1] {
        let ends = udp(rail);
        assert!(answers(&ends));
        command(&format!("rail {rail} down"));
        round_trip(&ends).unwrap_err();
        command(&format!("rail {rail} up"));
        command(&format!("rail {rail} up")); // it was up already
        assert!(answers(&ends));
        command(&format!("blackhole {rail} on"));
        let silence = round_trip(&ends).unwrap_err();
        assert_eq!(silence.kind(), ErrorKind::WouldBlock, "the sender is told nothing");
        assert!(!command(&format!("stats {rail}")).contains("a>b vanished 0"));
        command(&format!("blackhole {rail} off"));
        assert!(answers(&ends));
        command(&format!("rate {rail} 10"));
        assert!(answers(&ends));
    }
    for wrong in ["rail 0 sideways", "rail 2 down", "relay 0 loss=1%", "relay 1 loss=2", "rate 0"] {
        let output = Command::new(SCRIPT).args(wrong.split(' ')).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong}");
    }
}

#[test]
fn reset_ends_the_connections_of_one_rail() {
    inside("0 relay:0", "inside_reset");
}

#[test]
#[ignore = "runs inside a lab"]
fn inside_reset() {
    let mut connections = [0u8, 1].map(|rail| {
        let address = SocketAddr::from(([10, 77, rail, 2], 7000));
        let listener = on("b", || TcpListener::bind(address).unwrap());
        let stream = on("a", || TcpStream::connect(address).unwrap());
        (stream, listener.accept().unwrap().0, listener)
    });
    for rail in [1, 0] {
        let (a, b, listener) = &mut connections[rail];
        a.write_all(b"a").unwrap();
        b.read_exact(&mut [0]).unwrap();
        command(&format!("reset {rail}"));
        for end in [a, b] {
            let error = end.read(&mut [0]).unwrap_err().kind();
            assert!([ErrorKind::ConnectionReset, ErrorKind::ConnectionAborted].contains(&error), "{error}");
        }
        let address = listener.local_addr().unwrap();
        on("a", || TcpStream::connect(address).expect("who listens goes on"));
    }
}

#[test]
fn a_record_has_the_packets_of_a_rail() {
    inside("relay:0", "inside_pcap");
}

#[test]
#[ignore = "runs inside a lab"]
fn inside_pcap() {
    let path = std::env::var("POLYRAIL_LAB").unwrap() + "/record.pcap";
    let ends = udp(0);
    round_trip(&ends).unwrap();
    command(&format!("pcap 0 {path}"));
    round_trip(&ends).unwrap();
    command("pcap 0 off");
    round_trip(&ends).unwrap();
    let record = fs::read(&path).unwrap();
    // a file header; each packet has 16 bytes of its own, 20 of IP, 8 of UDP
    assert_eq!(record.len(), 24 + 44 + 5 + 44 + 4);
    assert!(record.ends_with(b"back"));
    assert_eq!(record[24 + 16 + 28..][..5], *b"there");
}

/// Processes, other than this one, that inherited `mark` in their environment, and their network namespaces.
fn marked(mark: &str) -> Vec<(u32, u64)> {
    let processes =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    processes
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| {
                environment.split(|byte| *byte == 0).any(|word| word == mark.as_bytes())
            })
        })
        .filter_map(|pid| Some((pid, fs::metadata(format!("/proc/{pid}/ns/net")).ok()?.ino())))
        .collect()
}

#[test]
fn nothing_outlives_a_lab_that_is_killed() {
    if !possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let ready = directory.path().join("ready");
    let mark = format!("{}", directory.path().display());
    let mut script = lab(directory.path(), "0 relay:0 relay:0,delay=1ms")
        .args(["sh", "-c", "touch $0; sleep 1000"])
        .arg(&ready)
        .env("POLYRAIL_LAB_TEST", &mark)
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !ready.exists() {
        assert!(Instant::now() < deadline && script.try_wait().unwrap().is_none(), "the lab did not start");
        thread::sleep(ms(10));
    }
    let mark = format!("POLYRAIL_LAB_TEST={mark}");
    let before = marked(&mark);
    let namespaces: HashSet<u64> = before.iter().map(|(_, namespace)| *namespace).collect();
    // the login node, a and b; the script's own is this process's
    assert_eq!(namespaces.len(), 4, "{before:?}");
    script.kill().unwrap();
    script.wait().unwrap();
    while !marked(&mark).is_empty() {
        assert!(Instant::now() < deadline, "left: {:?} of {before:?}", marked(&mark));
        thread::sleep(ms(10));
    }
}
