//! One process and many peers: what they take in memory and time, and what messages take that nobody has asked for.
//!
//! `cargo run --release -p polyrail-rails --example peers [PEERS [PROCESSES [UNEXPECTED]]]`. The peers are endpoints in
//! processes that the example starts. It prints a name and a number a line; `bench/run scale` reads them, and `bench/fi_peers.c`
//! does the same through libfabric.

use polyrail_rails::mailbox::{Done, Mailbox};
use polyrail_rails::{Address, Config, PeerIdx, Refused};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What is sent to a peer, and comes back from it.
const PING: u64 = 1;
/// Asks a peer for this many messages (the number is in the message), with tags from FIRST on.
const ASK: u64 = 2;
const FIRST: u64 = 1000;
const ROUNDS: u32 = 20;
const EMPTY: u32 = 10_000;
const TRIPS: u32 = 1000;
const CHUNKS: u32 = 20;
const LIMIT: Duration = Duration::from_secs(120);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: usize| args.get(at).map_or(default, |n| n.parse().expect("a number"));
    match args.first().map(String::as_str) {
        Some("peer") => be_peers(number(1, 1)),
        _ => hub(number(0, 1000), number(1, 4), number(2, 10_000)),
    }
}

fn open() -> Mailbox {
    Mailbox::open(Config::from_env().expect("settings")).unwrap_or_else(|why| {
        eprintln!("{why}");
        std::process::exit(1);
    })
}

fn send(mailbox: &mut Mailbox, to: PeerIdx, tag: u64, bytes: &Arc<[u8]>) {
    while let Err(refused) = mailbox.send(to, tag, bytes) {
        assert_eq!(refused, Refused::Again, "{:?}", mailbox.worker().why(to));
        mailbox.progress();
    }
}

/// Endpoints that answer, until standard input ends.
fn be_peers(count: usize) {
    // SAFETY: no memory is involved. Who stands still hears of no end of input.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let mut all: Vec<Mailbox> = (0..count).map(|_| open()).collect();
    for mailbox in &mut all {
        println!("{}", Address::parse(&mailbox.worker().address()).expect("our own").expose());
        mailbox.recv(None, PING, vec![0; 8]);
    }
    all[0].recv(None, ASK, vec![0; 8]);
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let ping: Arc<[u8]> = Arc::from([1; 8]);
    loop {
        for mailbox in &mut all {
            mailbox.progress();
            while let Some(done) = mailbox.next_done() {
                let Done::Received { from: Some(from), buffer, outcome: Ok(_) } = done else { continue };
                let asked = u64::from_le_bytes(buffer[..8].try_into().expect("eight bytes"));
                if asked == u64::from_le_bytes([1; 8]) {
                    mailbox.recv(None, PING, buffer);
                    send(mailbox, from, PING, &ping);
                    continue;
                }
                for tag in FIRST..FIRST + asked {
                    send(mailbox, from, tag, &ping);
                    mailbox.progress();
                }
                mailbox.recv(None, ASK, buffer);
                println!("sent");
            }
        }
    }
}

/// A process of peers.
struct Peers {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Peers {
    fn start(count: usize) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("own path"))
            .args(["peer", &count.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, out }
    }

    /// Has the process stand still, or go on.
    fn run(&self, on: bool) {
        let signal = if on { libc::SIGCONT } else { libc::SIGSTOP };
        // SAFETY: a child that was not waited for.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("a line");
        assert!(!line.is_empty(), "a process of peers ended early");
        line.trim().to_owned()
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        self.run(true);
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Memory of this process that is there, in bytes.
fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<f64>().ok()).expect("a number") * 1024.0
}

/// What this process has used of the processor, in seconds: other processes make no difference to it.
fn processor_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills a structure of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Waits for so many receives; the buffers.
fn await_received(mailbox: &mut Mailbox, count: usize) -> Vec<Vec<u8>> {
    let mut buffers = Vec::with_capacity(count);
    let deadline = Instant::now() + LIMIT;
    while buffers.len() < count {
        if mailbox.progress() == 0 {
            assert!(Instant::now() < deadline, "{} of {count} messages came", buffers.len());
        }
        while let Some(done) = mailbox.next_done() {
            match done {
                Done::Received { buffer, outcome: Ok(_), .. } => buffers.push(buffer),
                Done::Sent { outcome: Ok(()), .. } => {}
                failed => panic!("{failed:?}"),
            }
        }
    }
    buffers
}

/// A message to each of these peers, and back.
fn ping(mailbox: &mut Mailbox, peers: &[PeerIdx], buffers: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let message: Arc<[u8]> = Arc::from([1; 8]);
    for (peer, buffer) in peers.iter().zip(buffers) {
        mailbox.recv(Some(*peer), PING, buffer);
        send(mailbox, *peer, PING, &message);
    }
    await_received(mailbox, peers.len())
}

/// Microseconds to one peer and back, in the best of some chunks: who else runs shall not count.
fn round_trip(mailbox: &mut Mailbox, peer: PeerIdx) -> f64 {
    let mut buffers = vec![vec![0; 8]];
    let mut chunk = || {
        let begun = Instant::now();
        for _ in 0..TRIPS {
            buffers = ping(mailbox, &[peer], std::mem::take(&mut buffers));
        }
        begun.elapsed().as_secs_f64() * 1e6 / f64::from(TRIPS)
    };
    (0..CHUNKS).map(|_| chunk()).fold(f64::MAX, f64::min)
}

fn hub(count: usize, processes: usize, unexpected: usize) {
    let mut started: Vec<(Peers, usize)> = (0..processes)
        .map(|n| count / processes + usize::from(n < count % processes))
        .filter(|share| *share > 0)
        .map(|share| (Peers::start(share), share))
        .collect();
    let mut mailbox = open();
    started.iter().for_each(|(others, _)| others.run(false));
    let mut near = Peers::start(1);
    let near_address = near.line().parse::<Address>().expect("an address").to_bytes();
    let near_peer = mailbox.peer(&near_address).expect("an address");
    println!("round_trip_alone_us {}", round_trip(&mut mailbox, near_peer));
    near.run(false);
    started.iter().for_each(|(others, _)| others.run(true));
    let mut addresses: Vec<Address> = Vec::new();
    for (process, share) in &mut started {
        addresses.extend((0..*share).map(|_| process.line().parse::<Address>().expect("an address")));
    }
    let mut buffers: Vec<Vec<u8>> = (0..count).map(|_| vec![0; 8]).collect();

    // SAFETY: gives freed memory back, so that it does not hide what peers take.
    unsafe { libc::malloc_trim(0) };
    let (before, begun) = (resident(), Instant::now());
    let peers: Vec<PeerIdx> =
        addresses.iter().map(|address| mailbox.peer(&address.to_bytes()).expect("an address")).collect();
    let known = resident();
    buffers = ping(&mut mailbox, &peers, buffers);
    println!("first_message_to_all_s {}", begun.elapsed().as_secs_f64());
    println!("memory_per_known_peer_bytes {}", (known - before) / count as f64);
    println!("memory_per_connected_peer_bytes {}", (resident() - before) / count as f64);

    let begun = Instant::now();
    for _ in 0..ROUNDS {
        buffers = ping(&mut mailbox, &peers, buffers);
    }
    println!(
        "round_trip_with_all_us {}",
        begun.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS) / count as f64
    );
    let begun = processor_time();
    for _ in 0..EMPTY {
        mailbox.progress();
    }
    println!("progress_without_work_cpu_us {}", (processor_time() - begun) * 1e6 / f64::from(EMPTY));
    started.iter().for_each(|(others, _)| others.run(false));
    near.run(true);
    println!("round_trip_with_one_us {}", round_trip(&mut mailbox, near_peer));
    near.run(false);
    started.iter().for_each(|(others, _)| others.run(true));

    for (order, name) in [(false, "as_sent"), (true, "last_first")] {
        let before = resident();
        ask_for(&mut mailbox, peers[0], unexpected, &mut started[0].0);
        if !order {
            println!("memory_per_unexpected_message_bytes {}", (resident() - before) / unexpected as f64);
        }
        let begun = Instant::now();
        for n in 0..unexpected as u64 {
            let tag = if order { FIRST + unexpected as u64 - 1 - n } else { FIRST + n };
            mailbox.recv(Some(peers[0]), tag, vec![0; 8]);
        }
        await_received(&mut mailbox, unexpected);
        println!("receive_unexpected_{name}_us {}", begun.elapsed().as_secs_f64() * 1e6 / unexpected as f64);
    }
}

/// Has a peer send so many messages, and makes progress until they are all here.
fn ask_for(mailbox: &mut Mailbox, peer: PeerIdx, count: usize, process: &mut Peers) {
    send(mailbox, peer, ASK, &Arc::from((count as u64).to_le_bytes()));
    let sent = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(process.line(), "sent");
            sent.store(true, Ordering::Release);
        });
        let deadline = Instant::now() + LIMIT;
        let mut quiet = Instant::now();
        while !sent.load(Ordering::Acquire) || quiet.elapsed() < Duration::from_millis(100) {
            if mailbox.progress() > 0 || !sent.load(Ordering::Acquire) {
                quiet = Instant::now();
            }
            assert!(Instant::now() < deadline, "the messages did not all leave");
        }
    });
}
