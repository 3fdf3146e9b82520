//! Shared memory between two real processes: each test starts this program again as its peer, with a part to play.
#![cfg(not(loom))]

use polyrail_rails::rail::RawIov;
use polyrail_rails::shm::cma::{self, CmaError, RemoteIov};
use polyrail_rails::shm::doorbell::{Bell, Doorbell};
use polyrail_rails::shm::ring::{Consumer, MAX_PAYLOAD, Producer, SendError, sleep_barrier};
use polyrail_rails::shm::segment::{self, Segment};
use polyrail_rails::sockets::unix;
use std::env;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(120);
const NAME: &str = "POLYRAIL_TEST_SOCKET";

/// Tries until it works; a test that waits for ever says what for.
fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        for _ in 0..1000 {
            if let Some(done) = attempt() {
                return done;
            }
        }
        assert!(start.elapsed() < LIMIT, "still no {what}");
        std::thread::yield_now();
    }
}

/// The peer, which does not outlive its test.
struct Peer(Child);

impl Peer {
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn succeeds(mut self) {
        assert!(self.0.wait().unwrap().success(), "the peer failed");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn socket(part: &str) -> String {
    format!("polyrail-{part}-{}", std::process::id())
}

/// Starts the peer in the test `part`, and connects to it.
fn start(part: &str) -> (Peer, OwnedFd) {
    let name = socket(part);
    let listener = unix::listen(name.as_bytes()).unwrap();
    let program = env::current_exe().unwrap();
    let child =
        Command::new(program).args(["--exact", part, "--nocapture"]).env(NAME, &name).spawn().unwrap();
    let peer = Peer(child);
    (peer, until("connection", || unix::accept(listener.as_fd()).ok()))
}

/// In the peer: its connection to the test that started it. None in the test itself.
fn called() -> Option<OwnedFd> {
    let name = env::var(NAME).ok()?;
    Some(unix::connect(name.as_bytes()).expect("the test listens"))
}

fn recv(stream: &OwnedFd, buffer: &mut [u8]) -> (usize, Vec<OwnedFd>) {
    let mut fds = Vec::new();
    let n = until("message", || unix::recv(stream.as_fd(), buffer, &mut fds).ok());
    (n, fds)
}

struct Ends {
    out: Producer,
    back: Consumer,
    ours: Doorbell,
    theirs: Bell,
}

fn say(stream: &OwnedFd, bytes: &[u8]) {
    assert_eq!(unix::send(stream.as_fd(), bytes, &[]).unwrap(), bytes.len());
}

/// Hands the peer our doorbell, and the memory if it is we who made it; takes the same from the peer.
fn exchange(stream: &OwnedFd, memory: Option<&OwnedFd>) -> (Doorbell, Bell, Option<OwnedFd>) {
    let ours = Doorbell::new().unwrap();
    let introduced = ours.introduce().unwrap();
    let mut fds: Vec<_> = introduced.iter().map(AsFd::as_fd).collect();
    fds.extend(memory.map(AsFd::as_fd));
    unix::send(stream.as_fd(), b"x", &fds).unwrap();
    let mut theirs = recv(stream, &mut [0]).1.into_iter();
    let mut next = || theirs.next().unwrap();
    (ours, Bell::new([next(), next()]).unwrap(), theirs.next())
}

fn offer(stream: &OwnedFd) -> Ends {
    let (segment, fd) = Segment::create().unwrap();
    let (ours, theirs, _) = exchange(stream, Some(&fd));
    let segment::Ends { producer: out, consumer: back, .. } = segment.split();
    Ends { out, back, ours, theirs }
}

fn accept(stream: &OwnedFd) -> Ends {
    let (ours, theirs, memory) = exchange(stream, None);
    let segment = Segment::open(memory.expect("the memory").as_fd()).unwrap();
    let segment::Ends { producer: out, consumer: back, .. } = segment.split();
    Ends { out, back, ours, theirs }
}

/// The frame number `i`: its number in the header, and a payload that depends on it, short mostly.
fn payload(i: u32, bytes: &mut Vec<u8>) {
    let len = match i % 1000 {
        0 => MAX_PAYLOAD,
        1..50 => i as usize % 3000,
        _ => i as usize % 40,
    };
    bytes.clear();
    bytes.resize(len, i as u8);
}

fn check(i: u32, back: &mut Consumer, expected: &mut Vec<u8>, found: &mut Vec<u8>) -> bool {
    let Some(frame) = back.peek() else { return false };
    let frame = frame.unwrap();
    payload(i, expected);
    found.clear();
    found.resize(frame.payload.len(), !(i as u8));
    frame.payload.copy_to(found);
    assert_eq!(frame.header, i.to_le_bytes());
    assert!(found == expected, "payload of frame {i}");
    back.release();
    true
}

#[test]
fn a_million_frames_there_and_back() {
    const FRAMES: u32 = 1_000_000;
    let echo = |mut ends: Ends| {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for i in 0..FRAMES {
            until("frame", || check(i, &mut ends.back, &mut a, &mut b).then_some(()));
            until("room", || ends.out.try_send(&i.to_le_bytes(), &[&a]).ok());
        }
    };
    if let Some(stream) = called() {
        return echo(accept(&stream));
    }
    let (peer, stream) = start("a_million_frames_there_and_back");
    let mut ends = offer(&stream);
    let (mut a, mut b, mut next) = (Vec::new(), Vec::new(), Vec::new());
    let (mut sent, mut received) = (0, 0);
    payload(sent, &mut next);
    until("echo", || {
        while sent < FRAMES {
            match ends.out.try_send(&sent.to_le_bytes(), &[&next]) {
                Ok(()) => sent += 1,
                Err(SendError::Full) => break,
                Err(e) => panic!("{e}"),
            }
            payload(sent, &mut next);
        }
        while check(received, &mut ends.back, &mut a, &mut b) {
            received += 1;
        }
        (received == FRAMES).then_some(())
    });
    peer.succeeds();
}

/// Sleeps until a frame is there, and takes it.
fn sleep_for(ends: &mut Ends) {
    loop {
        if let Some(frame) = ends.back.peek() {
            frame.unwrap();
            return ends.back.release();
        }
        ends.back.arm();
        ends.ours.board().sleeps(true);
        sleep_barrier();
        if !ends.back.has_frame() && !ends.ours.board().is_marked() {
            let mut poll = libc::pollfd { fd: ends.ours.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry.
            let woken = unsafe { libc::poll(&mut poll, 1, LIMIT.as_millis() as i32) };
            assert_eq!(woken, 1, "a wake-up was lost");
        }
        ends.back.disarm();
        ends.ours.board().sleeps(false);
        ends.ours.board().take(|_| {});
        ends.ours.drain();
    }
}

#[test]
fn sleepers_are_woken() {
    const TURNS: u32 = 20_000;
    let send = |ends: &mut Ends| {
        ends.out.try_send(b"turn", &[]).unwrap();
        if let Some(place) = ends.out.peer_sleeps() {
            ends.theirs.ring(place);
        }
    };
    if let Some(stream) = called() {
        let mut ends = accept(&stream);
        for _ in 0..TURNS {
            sleep_for(&mut ends);
            send(&mut ends);
        }
        return;
    }
    let (peer, stream) = start("sleepers_are_woken");
    let mut ends = offer(&stream);
    for _ in 0..TURNS {
        send(&mut ends);
        sleep_for(&mut ends);
    }
    peer.succeeds();
}

#[test]
fn killed_peer_leaves_nothing_behind() {
    const PART: &str = "killed_peer_leaves_nothing_behind";
    if let Some(stream) = called() {
        // Listens, sends and never stops.
        let _listener = unix::listen(format!("{}-peer", env::var(NAME).unwrap()).as_bytes()).unwrap();
        let mut ends = accept(&stream);
        loop {
            let _ = ends.out.try_send(b"more", &[&[1; 1000]]);
        }
    }
    let (mut peer, stream) = start(PART);
    let mut ends = offer(&stream);
    for _ in 0..1000 {
        until("frame", || ends.back.peek().map(drop));
        ends.back.release();
    }
    let sockets =
        || std::fs::read_to_string("/proc/net/unix").unwrap().contains(&format!("{}-peer", socket(PART)));
    assert!(sockets());
    peer.kill();
    assert!(!sockets());
    // What it sent before is whole, and the memory is still ours.
    while let Some(frame) = ends.back.peek() {
        assert_eq!(frame.unwrap().payload.len(), 1000);
        ends.back.release();
    }
    while ends.out.try_send(b"nobody there", &[&[1; 1000]]).is_ok() {}
    // A file of this memory would outlive a killed process; memory without a name cannot.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(maps.contains("/memfd:polyrail"), "{maps}");
    assert!(!maps.contains("/dev/shm/"), "{maps}");
    drop((stream, ends));
}

#[test]
fn memory_of_another_process() {
    const NONCE: u64 = 0x6e6f_6e63_6500_0001;
    const SIZE: usize = 3 << 20;
    if let Some(stream) = called() {
        let (nonce, mut data) = (Box::new(NONCE), vec![5u8; SIZE]);
        let addresses = [&raw const *nonce as u64, data.as_mut_ptr() as u64];
        say(&stream, &addresses.map(u64::to_le_bytes).concat());
        recv(&stream, &mut [0]);
        assert!(std::hint::black_box(&data).iter().all(|&b| b == 6));
        say(&stream, b"x");
        recv(&stream, &mut [0]);
        return;
    }
    let (mut peer, stream) = start("memory_of_another_process");
    let pid = peer.0.id() as i32;
    let mut addresses = [0; 16];
    assert_eq!(recv(&stream, &mut addresses).0, 16);
    let addr = |i: usize| u64::from_le_bytes(addresses[i..i + 8].try_into().unwrap());
    assert_eq!(cma::probe(pid, addr(0), NONCE), Ok(()));
    assert_eq!(cma::probe(pid, addr(0), NONCE + 1), Err(CmaError::Stranger));
    let mut data = vec![0u8; SIZE];
    let ours = [RawIov { base: data.as_mut_ptr(), len: SIZE }];
    let theirs = [RemoteIov { base: addr(8), len: SIZE }];
    // SAFETY: the range is the vector.
    assert_eq!(unsafe { cma::read(pid, &ours, &theirs) }, Ok(()));
    assert!(std::hint::black_box(&data).iter().all(|&b| b == 5));
    data.fill(6);
    // SAFETY: the range is the vector; the peer offered its own.
    assert_eq!(unsafe { cma::write(pid, &ours, &theirs) }, Ok(()));
    say(&stream, b"x");
    assert_eq!(recv(&stream, &mut [0]).0, 1, "the peer found what was written");
    peer.kill();
    assert_eq!(cma::probe(pid, addr(0), NONCE), Err(CmaError::Gone));
}

/// Needs root to become somebody else; others have nobody to be refused by.
#[test]
fn another_user_is_refused() {
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return polyrail_testing::lacking("root, to be somebody else");
    }
    let (parent, nonce) = (std::process::id() as i32, 1u64);
    let mut status = 0;
    // SAFETY: the child makes system calls only, as a fork of a program with threads must.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534);
            let refused = cma::probe(parent, &raw const nonce as u64, nonce) == Err(CmaError::Refused);
            libc::_exit(if refused { 0 } else { 1 });
        }
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
    }
    assert_eq!(status, 0);
}
