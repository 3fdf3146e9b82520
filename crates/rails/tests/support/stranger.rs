//! Whoever connects to a worker by TCP and is not a worker: with or without the key, with any bytes.

use super::node::Node;
use polyrail_core::wire::offer::{Limits, Process};
use polyrail_core::wire::{
    Address, Features, HandshakeError, HostId, Ip, Key, Kind, Nonce, Offer, Reject, SessionId, Transport,
    Versions,
};
use polyrail_core::wireup::{Initiate, Initiator, InitiatorEvent, Session};
use polyrail_rails::sockets::unix;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
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
pub fn identity() -> Key {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut key = [0xab; 16];
    key[..8].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    Key::new(key).expect("not zero")
}

pub fn offer() -> Offer {
    let process = Process { pid: std::process::id(), uid: 0, host: HostId(2) };
    let mut offer = Offer::new(process, Limits::new(1 << 20, 1 << 20).expect("enough"));
    let layout = polyrail_rails::shm::segment::LAYOUT.to_le_bytes();
    assert!(offer.push_transport(Transport::SHM, &layout) && offer.push_transport(Transport::TCP, &[]));
    offer
}

/// The name of a worker's Unix socket.
pub fn unix_name(address: &[u8]) -> Vec<u8> {
    format!("polyrail-{}", Address::parse(address).expect("an address").id()).into_bytes()
}

/// What anybody can say who has seen a worker's identity.
pub fn hello(address: &[u8]) -> Vec<u8> {
    let key = Address::parse(address).expect("an address").key();
    let (from, versions, kind) = (identity().id(), Versions::OURS, Kind::Session);
    let (features, transport, nonce) = (Features(0), Transport::TCP, Nonce([3; 16]));
    let args = Initiate { key, from, versions, features, kind, transport, nonce };
    Initiator::new(args, offer()).poll_transmit().expect("HELLO").to_vec()
}

/// What came of a handshake: the connection, and the bytes that this side wrote, record by record.
pub struct Shaken {
    pub stream: TcpStream,
    pub outcome: Result<Session, HandshakeError>,
    pub wrote: Vec<Vec<u8>>,
    pub leftover: Vec<u8>,
    /// An address by which the worker may call it, though nobody listens there.
    pub address: Vec<u8>,
    /// The key of that address.
    pub own: Key,
}

/// Shakes hands with a worker as a peer would, in these versions.
pub fn shake(address: &[u8], versions: Versions) -> Shaken {
    shake_for(address, versions, Transport::TCP, offer()).expect("not rejected")
}

/// The same, by a TCP connection that is to become a link of this transport, with this offer.
pub fn shake_for(
    address: &[u8],
    versions: Versions,
    transport: Transport,
    offer: Offer,
) -> Result<Shaken, Reject> {
    shake_with(address, versions, Features(0), transport, offer)
}

/// The same as one that can so much.
pub fn shake_as(address: &[u8], versions: Versions, features: Features) -> Result<Shaken, Reject> {
    shake_with(address, versions, features, Transport::TCP, offer())
}

fn shake_with(
    address: &[u8],
    versions: Versions,
    features: Features,
    transport: Transport,
    offer: Offer,
) -> Result<Shaken, Reject> {
    let stream = connect(address);
    let key = Address::parse(address).expect("an address").key();
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).expect("noise");
    let own = identity();
    let ip = Ip::new(Ipv4Addr::LOCALHOST.into(), 0);
    let named = Address::new(&own, HostId(2), false, 9, ip).expect("an address").to_bytes().to_vec();
    let (from, kind) = (own.id(), Kind::Session);
    let args = Initiate { key, from, versions, features, kind, transport, nonce: Nonce(nonce) };
    drive(stream, Initiator::new(args, offer), named, own)
}

/// Opens a lane of a session, as the peer with this key.
pub fn shake_lane(address: &[u8], own: Key, session: SessionId, lane: u16) -> Result<TcpStream, Reject> {
    shake_lane_for_all(address, own, session, lane).map(|shaken| shaken.stream)
}

/// The same, where what the worker says at once is not to be lost.
pub fn shake_lane_for_all(address: &[u8], own: Key, session: SessionId, lane: u16) -> Result<Shaken, Reject> {
    let key = Address::parse(address).expect("an address").key();
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).expect("noise");
    let (kind, versions) = (Kind::Lane { session, lane }, Versions::OURS);
    let (features, transport) = (Features(0), Transport::TCP);
    let args = Initiate { key, from: own.id(), versions, features, kind, transport, nonce: Nonce(nonce) };
    drive(connect(address), Initiator::new(args, offer()), Vec::new(), own)
}

fn drive(
    mut stream: TcpStream,
    mut initiator: Initiator,
    address: Vec<u8>,
    own: Key,
) -> Result<Shaken, Reject> {
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
            Err(error) => {
                return Ok(Shaken { stream, outcome: Err(error), wrote, leftover: Vec::new(), address, own });
            }
        };
        while let Some(event) = initiator.poll_event() {
            match event {
                InitiatorEvent::NeedsKey => initiator.seal(None),
                InitiatorEvent::Proving => {}
                InitiatorEvent::Established(session) => {
                    let leftover = buffer[taken..n].to_vec();
                    return Ok(Shaken { stream, outcome: Ok(session), wrote, leftover, address, own });
                }
                InitiatorEvent::Rejected(reason) => return Err(reason),
            }
        }
    }
}

/// A peer by shared memory, seen from the side that connected.
pub struct ByMemory {
    pub control: OwnedFd,
    /// The segment and the worker's doorbell, if it accepted.
    pub fds: Vec<OwnedFd>,
    pub address: Vec<u8>,
    pub outcome: Result<Session, String>,
}

/// Shakes hands with a worker over its Unix socket, and gives it these descriptors.
pub fn shake_by_memory(address: &[u8], give: &[BorrowedFd<'_>]) -> ByMemory {
    shake_by_memory_offering(address, give, offer())
}

pub fn shake_by_memory_offering(address: &[u8], give: &[BorrowedFd<'_>], offer: Offer) -> ByMemory {
    let there = Address::parse(address).expect("an address");
    let control = unix::connect(&unix_name(address)).expect("the worker listens");
    let own = identity();
    let ip = Ip::new(Ipv4Addr::LOCALHOST.into(), 0);
    let address = Address::new(&own, HostId(2), false, 9, ip).expect("an address").to_bytes().to_vec();
    let args = Initiate {
        key: there.key(),
        from: own.id(),
        versions: Versions::OURS,
        features: Features(0),
        kind: Kind::Session,
        transport: Transport::SHM,
        nonce: Nonce([5; 16]),
    };
    let (mut initiator, mut proving) = (Initiator::new(args, offer), false);
    let (mut fds, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        while let Some(bytes) = initiator.poll_transmit().map(<[u8]>::to_vec) {
            let with = if std::mem::take(&mut proving) { give } else { &[] };
            let n = unix::send(control.as_fd(), &bytes, with).expect("room");
            initiator.transmitted(n);
        }
        let n = match unix::recv(control.as_fd(), &mut buffer, &mut fds) {
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                std::thread::yield_now();
                continue;
            }
            Err(e) => return ByMemory { control, fds, address, outcome: Err(e.to_string()) },
        };
        if n == 0 {
            return ByMemory { control, fds, address, outcome: Err("hung up".into()) };
        }
        initiator.handle_bytes(&buffer[..n]).expect("the worker's records");
        while let Some(event) = initiator.poll_event() {
            match event {
                InitiatorEvent::NeedsKey => initiator.seal(None),
                InitiatorEvent::Proving => proving = true,
                InitiatorEvent::Established(session) => {
                    return ByMemory { control, fds, address, outcome: Ok(session) };
                }
                InitiatorEvent::Rejected(reason) => {
                    return ByMemory { control, fds, address, outcome: Err(reason.to_string()) };
                }
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
