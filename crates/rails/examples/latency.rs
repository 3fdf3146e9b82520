//! Half round trip and message rate between two processes, over the rail that a user would get.
//!
//! `cargo run --release -p polyrail-rails --example latency [BYTES]`: the example starts itself a second time as the peer.

use polyrail_core::frame::Matching;
use polyrail_core::proto::{Delivery, Filter, PeerIdx};
use polyrail_rails::rail::RawIov;
use polyrail_rails::{Config, EventKind, Issued, User, Worker};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

const ROUNDS: u64 = 200_000;
const WINDOW: u64 = 64;
const USER: User = User { context: 0, flags: 0 };

/// A worker, and the ends of operations that nobody has waited for yet.
struct Side {
    worker: Worker,
    sent: u64,
    received: u64,
}

impl Side {
    fn progress(&mut self) {
        self.worker.progress();
        while let Some(event) = self.worker.next_event() {
            assert!(event.error.is_none(), "{event:?}");
            self.sent += u64::from(event.kind == EventKind::Send);
            self.received += u64::from(event.kind == EventKind::Recv);
        }
    }

    fn wait(&mut self, sent: u64, received: u64) {
        while self.sent < sent || self.received < received {
            self.progress();
        }
        self.sent -= sent;
        self.received -= received;
    }

    /// Sends; how many events will follow.
    fn send(&mut self, to: PeerIdx, bytes: &mut [u8]) -> u64 {
        let iov = RawIov { base: bytes.as_mut_ptr(), len: bytes.len() };
        loop {
            // SAFETY: the bytes live until the event, for which the caller waits.
            match unsafe { self.worker.send(to, Matching::Tag(1), None, Delivery::Sent, &[iov], USER) } {
                Ok(issued) => return u64::from(issued != Issued::Done),
                Err(_) => self.progress(),
            }
        }
    }

    fn post(&mut self, bytes: &mut [u8]) {
        let iov = RawIov { base: bytes.as_mut_ptr(), len: bytes.len() };
        let filter = Filter { source: None, matching: Matching::Tag(1), ignore: 0 };
        // SAFETY: the bytes live until the event, for which the caller waits.
        unsafe { self.worker.recv(filter, &[iov], USER) };
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    text.trim()
        .as_bytes()
        .chunks(2)
        .map(|b| u8::from_str_radix(std::str::from_utf8(b).expect("hex"), 16).expect("hex"))
        .collect()
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let len: usize = args.get(1).map_or(8, |n| n.parse().expect("a number of bytes"));
    let leads = args.len() < 3;
    let mut worker = Worker::open(Config::from_env().expect("settings")).expect("a worker");
    let mut child = None;
    let peer = if leads {
        let exe = std::env::current_exe().expect("own path");
        let mut started = Command::new(exe)
            .args([args.get(1).map_or("8", |n| n), "peer"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the peer");
        writeln!(started.stdin.take().expect("piped"), "{}", hex(&worker.address())).expect("write");
        let mut line = String::new();
        BufReader::new(started.stdout.take().expect("piped")).read_line(&mut line).expect("read");
        child = Some(started);
        worker.peer(&unhex(&line)).expect("an address")
    } else {
        println!("{}", hex(&worker.address()));
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).expect("read");
        worker.peer(&unhex(&text)).expect("an address")
    };
    let (mut out, mut into) = (vec![1u8; len], vec![0u8; len]);
    let mut side = Side { worker, sent: 0, received: 0 };
    let rounds = ROUNDS / (1 + len as u64 / 1000);
    let mut begun = Instant::now();
    for i in 0..rounds + rounds / 10 {
        if i == rounds / 10 {
            begun = Instant::now();
        }
        side.post(&mut into);
        if leads {
            let sent = side.send(peer, &mut out);
            side.wait(sent, 1);
        } else {
            side.wait(0, 1);
            let sent = side.send(peer, &mut out);
            side.wait(sent, 0);
        }
    }
    let latency = begun.elapsed().as_secs_f64() / rounds as f64 / 2.0;
    let begun = Instant::now();
    let windows = rounds / WINDOW + 1;
    for _ in 0..windows {
        if leads {
            side.post(&mut into[..0]);
            let sent = (0..WINDOW).map(|_| side.send(peer, &mut out)).sum();
            side.wait(sent, 1);
        } else {
            (0..WINDOW).for_each(|_| side.post(&mut into));
            side.wait(0, WINDOW);
            let sent = side.send(peer, &mut []);
            side.wait(sent, 0);
        }
    }
    let each = begun.elapsed().as_secs_f64() / (windows * WINDOW) as f64;
    let worker = side.worker;
    if let Some(mut child) = child {
        let rail = worker.route(peer).map_or("none", |(rail, _)| rail);
        println!(
            "{rail}: {len} bytes: {:.3} us, {:.2} M messages/s, {:.0} MB/s",
            latency * 1e6,
            1e-6 / each,
            len as f64 / each / 1e6
        );
        drop(worker);
        child.wait().expect("the peer ends");
    }
}
