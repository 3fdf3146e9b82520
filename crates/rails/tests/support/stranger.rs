//! Whoever connects to a worker by TCP and is not a worker: with or without the key, with any bytes.

use super::node::Node;
use polyrail_core::wire::offer::{Limits, Process};
use polyrail_core::wire::{Address, Features, HandshakeError, HostId, Ip, Key, Kind, Nonce, Offer, Versions};
use polyrail_core::wireup::{Initiate, Initiator, InitiatorEvent, Session};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Runs something on another thread while a node makes progress on this one.
pub fn beside<T: Send>(node: &mut Node, what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let other = scope.spawn(what);
        node.until("what goes on beside", |_| other.is_finished());
        other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

pub fn connect(address: &[u8]) -> TcpStream {
    let port = Address::parse(address).expect("an address").port();
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the worker listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a bound");
    stream.set_nodelay(true).expect("a socket");
    stream
}

/// Whether the other side ends the connection, whatever it says before.
pub fn is_ended(stream: &mut TcpStream) -> bool {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(e) => return e.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// An identity of its own for each.
fn identity() -> Key {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut key = [0xab; 16];
    key[..8].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    Key::new(key).expect("not zero")
}

pub fn offer() -> Offer {
    let process = Process { pid: std::process::id(), uid: 0, host: HostId(2) };
    Offer::new(process, Limits::new(1 << 20, 1 << 20).expect("enough"))
}

/// What came of a handshake: the connection, and the bytes that this side wrote, record by record.
pub struct Shaken {
    pub stream: TcpStream,
    pub outcome: Result<Session, HandshakeError>,
    pub wrote: Vec<Vec<u8>>,
    pub leftover: Vec<u8>,
    /// An address by which the worker may call it, though nobody listens there.
    pub address: Vec<u8>,
}

/// Shakes hands with a worker as a peer would, in these versions.
pub fn shake(address: &[u8], versions: Versions) -> Shaken {
    let stream = connect(address);
    let key = Address::parse(address).expect("an address").key();
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).expect("noise");
    let own = identity();
    let ip = Ip::new(Ipv4Addr::LOCALHOST.into(), 0);
    let named = Address::new(&own, HostId(2), false, 9, ip).expect("an address").to_bytes().to_vec();
    let (from, kind) = (own.id(), Kind::Session);
    let args = Initiate { key, from, versions, features: Features(0), kind, nonce: Nonce(nonce) };
    drive(stream, Initiator::new(args, offer()), named)
}

fn drive(mut stream: TcpStream, mut initiator: Initiator, address: Vec<u8>) -> Shaken {
    let (mut wrote, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let mut record = Vec::new();
        while let Some(bytes) = initiator.poll_transmit().map(<[u8]>::to_vec) {
            initiator.transmitted(bytes.len());
            record.extend(bytes);
        }
        if !record.is_empty() {
            stream.write_all(&record).expect("the worker reads");
            wrote.push(record);
        }
        let n = stream.read(&mut buffer).expect("the worker answers");
        assert!(n > 0, "the worker hung up");
        let taken = match initiator.handle_bytes(&buffer[..n]) {
            Ok(taken) => taken,
            Err(error) => return Shaken { stream, outcome: Err(error), wrote, leftover: Vec::new(), address },
        };
        while let Some(event) = initiator.poll_event() {
            match event {
                InitiatorEvent::Proving => {}
                InitiatorEvent::Established(session) => {
                    let leftover = buffer[taken..n].to_vec();
                    return Shaken { stream, outcome: Ok(session), wrote, leftover, address };
                }
                InitiatorEvent::Rejected(reason) => panic!("rejected: {reason}"),
            }
        }
    }
}

/// Noise that is the same each time.
pub struct Noise(pub u64);

impl Noise {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}
