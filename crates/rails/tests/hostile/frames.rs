//! Peers that know the key and then say anything at all, over TCP.

use crate::support::alone::alone;
use crate::support::node::{Node, iov};
use crate::support::puppet::{Puppet, settings};
use crate::support::resident;
use crate::support::stranger::{Noise, Shaken, beside, is_ended, shake};
use polyrail_core::frame::{
    AtomicCode, AtomicKind, Frame, MAX_PAYLOAD, Matching, OpId, Order, PREFIX, RANGE, REGION_HEAD,
    RemoteAddr, Status, peek_lengths,
};
use polyrail_core::proto::Delivery;
use polyrail_core::wire::{Transport, Versions};
use polyrail_rails::EventKind;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const KEY: u64 = 5;
const REGION: usize = 300_000;

/// A worker with a region and a good peer.
pub struct Victim {
    pub node: Node,
    pub address: Vec<u8>,
    _good: Puppet,
    pub to_good: polyrail_core::proto::PeerIdx,
}

impl Victim {
    pub fn new() -> Self {
        Self::with("RAILS=tcp")
    }

    pub fn with(line: &str) -> Self {
        let mut node = Node::open(settings(line));
        let address = node.worker.address().to_vec();
        let mut good = Puppet::start("RAILS=tcp");
        good.ask("echo");
        let to_good = node.peer(&good.address);
        node.converse(to_good);
        node.region(KEY, REGION);
        Self { node, address, _good: good, to_good }
    }

    pub fn hostile(&mut self) -> Shaken {
        let shaken = beside(&mut self.node, || shake(&self.address, Versions::OURS));
        assert!(shaken.outcome.is_ok());
        shaken
    }
}

pub fn bytes(frame: Frame, payload: &[u8]) -> Vec<u8> {
    [&*frame.encode(payload.len()), payload].concat()
}

/// Frames as they might be, and as they must not.
pub struct Frames {
    noise: Noise,
    seq: u32,
}

impl Frames {
    pub fn new(seed: u64) -> Self {
        Self { noise: Noise(seed * 0x9e37_79b9), seq: 0 }
    }

    fn order(&mut self) -> Order {
        let seq = self.seq;
        match self.noise.below(12) {
            0 => return Order { seq: self.noise.next() as u32, credit: 0 },
            1 => return Order { seq: seq.wrapping_add(self.noise.below(20) as u32), credit: 0 },
            _ => self.seq = seq.wrapping_add(1),
        }
        let credit = if self.noise.below(20) == 0 { self.noise.next() as u32 } else { 0 };
        Order { seq, credit }
    }

    fn op(&mut self) -> OpId {
        OpId { slot: self.noise.below(8) as u32, generation: self.noise.below(4) as u32 }
    }

    fn matching(&mut self) -> Matching {
        if self.noise.below(2) == 0 { Matching::Message } else { Matching::Tag(self.noise.below(4)) }
    }

    fn number(&mut self) -> u64 {
        let near = [0, 1, 8, 4096, REGION as u64, 1 << 32, 1 << 63, u64::MAX];
        let n = near[self.noise.below(8) as usize];
        n.wrapping_add(self.noise.below(5)).wrapping_sub(2)
    }

    fn at(&mut self) -> RemoteAddr {
        RemoteAddr { key: KEY + self.noise.below(10) / 9, addr: self.number() % (2 * REGION as u64) }
    }

    fn status(&mut self) -> Status {
        [Status::Ok, Status::Access, Status::Range, Status::Unsupported, Status::Fault, Status::Cancelled]
            [self.noise.below(6) as usize]
    }

    pub fn next(&mut self) -> Vec<u8> {
        let (op, to, len) = (self.op(), self.op(), self.number());
        let data = (self.noise.below(2) == 0).then_some(1);
        let region = self.noise.below(2) == 0;
        let sizes = [0, 0, 1, 8, 16, 100, 5000, 70_000];
        let size = sizes[self.noise.below(8) as usize];
        let ranges = 1 + self.noise.below(8) as u8;
        let listed = if region { REGION_HEAD + RANGE * usize::from(ranges) } else { 0 };
        let (frame, size) = match self.noise.below(23) {
            0 => {
                let (order, matching) = (self.order(), self.matching());
                (Frame::Eager { order, matching, data, ack: data.map(|_| op) }, size)
            }
            1 => {
                let (order, matching) = (self.order(), self.matching());
                (Frame::Rts { order, matching, data, len, op, readable: region }, listed)
            }
            2 => (Frame::Rtr { op, to, len, writable: region }, listed),
            3 => (Frame::Frag { to, offset: len }, size.max(1)),
            4 => (Frame::Ats { op, status: self.status() }, 0),
            5 => (Frame::Atp { to, status: self.status() }, 0),
            6 => (Frame::Ack { op, status: self.status() }, 0),
            7 | 8 => (Frame::Put { order: self.order(), op, to: self.at(), data, last: region }, size),
            9 => (Frame::PutRts { order: self.order(), op, to: self.at(), len }, listed.max(16)),
            10 => (Frame::Get { order: self.order(), op, from: self.at(), len, writable: region }, listed),
            11 => (Frame::GetData { op, offset: len }, size.max(1)),
            12 | 13 => {
                let kinds = [AtomicKind::Update, AtomicKind::Fetch, AtomicKind::Compare];
                let code = AtomicCode {
                    datatype: self.noise.below(18) as u8,
                    op: self.noise.below(22) as u8,
                    kind: kinds[self.noise.below(3) as usize],
                    count: [0, 1, 2, 1000, 40_000, u32::MAX][self.noise.below(6) as usize],
                };
                (Frame::Atomic { order: self.order(), op, at: self.at(), code }, size)
            }
            14 => (Frame::AtomicData { op }, size),
            15 => (Frame::Credit { credit: self.number() as u32 }, 0),
            16 => (Frame::Seen { seq: self.number() as u32 }, 0),
            17 => (Frame::Got { lane: self.noise.below(3) as u16, received: self.number() }, 0),
            18 => (Frame::Retire { lane: self.noise.below(3) as u16, received: self.noise.below(3) }, 0),
            19 => (
                Frame::LaneOpen { lane: self.noise.below(3) as u16, transport: Transport::UDP },
                size.min(512),
            ),
            20 => {
                let total = size as u32 + [0, 0, 1, 100_000][self.noise.below(4) as usize];
                let offset = (total - size as u32).min(self.noise.below(3) as u32);
                let (tag, iteration) = (self.noise.below(3), self.noise.below(50));
                match size {
                    0 => (Frame::Value { tag, iteration, total: 0, offset: 0 }, 0),
                    _ => (Frame::Value { tag, iteration, total, offset }, size),
                }
            }
            21 => (Frame::ValueHad { tag: self.noise.below(3), iteration: self.noise.below(3) }, 0),
            _ => {
                let header_len = (size as u16).min(40);
                (Frame::Am { order: self.order(), id: self.noise.below(3) as u16, header_len }, size)
            }
        };
        let mut payload = self.noise.bytes(size);
        if listed == size && listed > 0 && self.noise.below(8) > 0 {
            payload[..REGION_HEAD].copy_from_slice(&[ranges, 0, 0, 0, 0, 0, 0, 0]);
        }
        let mut bytes = bytes(frame, &payload);
        if self.noise.below(15) == 0 {
            let at = self.noise.below(bytes.len().min(48) as u64) as usize;
            bytes[at] ^= 1 << self.noise.below(8);
        }
        bytes
    }
}

/// Writes what the worker takes, and reads what it says, so that neither waits for ever; false: it hung up.
pub fn offer_bytes(stream: &mut TcpStream, bytes: &[u8]) -> bool {
    stream.set_nonblocking(true).expect("a socket");
    let (mut rest, mut sink) = (bytes, [0; 65536]);
    while !rest.is_empty() {
        match stream.write(rest) {
            Ok(n) => rest = &rest[n..],
            Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(_) => return false,
        }
        while matches!(stream.read(&mut sink), Ok(n) if n > 0) {}
    }
    true
}

#[test]
fn any_frames_from_who_knows_the_key_do_no_harm() {
    let mut victim = Victim::new();
    for handler in 0..2 {
        victim.node.worker.on_active(handler, Box::new(|_, _, _| {}));
    }
    let mut cut = 0;
    for seed in 1..=120 {
        let mut hostile = victim.hostile();
        let node = &mut victim.node;
        // operations that its answers may name
        let peer = node.peer(&hostile.address);
        for (tag, len) in [(0, 100), (1, 100_000)] {
            node.recv(Some(peer), Some(tag), len);
            node.recv(None, Some(tag + 2), len);
            node.send_until(peer, tag, len, Delivery::Matched);
            node.send_until(peer, tag, len, Delivery::Delivered);
            node.put(peer, 1, 1, len);
            node.get(peer, 1, len);
        }
        node.add(peer, 1);
        let mut frames = Frames::new(seed);
        beside(node, || {
            let _ = (0..40).all(|_| offer_bytes(&mut hostile.stream, &frames.next()));
            drop(hostile);
        });
        // By its own word: all of them may have been written before the worker looks at the first.
        let why = node.lost(peer, &node.worker.address_of(peer).expect("told before"));
        cut += u32::from(!why.contains("no rail to it is left"));
    }
    assert!(cut > 60, "only {cut} were cut off: these frames are too tame");
    victim.node.converse(victim.to_good);
}

#[test]
fn a_stream_that_ends_anywhere_does_no_harm() {
    let mut victim = Victim::new();
    let order = |seq| Order { seq, credit: 0 };
    let op = OpId { slot: 1, generation: 1 };
    let at = RemoteAddr { key: KEY, addr: 0 };
    let stream = [
        bytes(Frame::Eager { order: order(0), matching: Matching::Tag(1), data: None, ack: None }, &[1; 50]),
        bytes(Frame::Put { order: order(1), op, to: at, data: None, last: true }, &[2; 20_000]),
        bytes(Frame::Get { order: order(2), op, from: at, len: 1000, writable: false }, &[]),
        bytes(Frame::Bye, &[]),
    ]
    .concat();
    for cut in (0..200).chain([5000, 20_100, stream.len() - 30, stream.len() - 1, stream.len()]) {
        let mut hostile = victim.hostile();
        let peer = victim.node.peer(&hostile.address);
        let receive = victim.node.recv(Some(peer), Some(9), 10);
        assert!(offer_bytes(&mut hostile.stream, &stream[..cut]));
        let address = hostile.address.clone();
        drop(hostile);
        victim.node.wait(receive);
        let why = victim.node.lost(peer, &address);
        assert_eq!(why.contains("closed its endpoint"), cut == stream.len(), "{cut}: {why}");
    }
    victim.node.converse(victim.to_good);
}

#[test]
fn impossible_lengths_are_cut_at_once() {
    let mut victim = Victim::new();
    let order = Order { seq: 0, credit: 0 };
    let eager = Frame::Eager { order, matching: Matching::Message, data: None, ack: None };
    for announced in [MAX_PAYLOAD as u32 + 1, u32::MAX] {
        let mut hostile = victim.hostile();
        let peer = victim.node.peer(&hostile.address);
        let mut header = bytes(eager, &[]);
        header[4..8].copy_from_slice(&announced.to_le_bytes());
        assert!(offer_bytes(&mut hostile.stream, &header));
        let why = victim.node.lost(peer, &hostile.address);
        assert!(why.contains("payload"), "{why}");
    }
    victim.node.converse(victim.to_good);
}

/// The next frame of a stream.
pub fn read_frame(stream: &mut impl Read) -> (Frame, Vec<u8>) {
    let mut prefix = [0; PREFIX];
    stream.read_exact(&mut prefix).expect("a frame");
    let (header, payload) = peek_lengths(&prefix).expect("a frame");
    let mut rest = vec![0; header + payload - PREFIX];
    stream.read_exact(&mut rest).expect("the rest of it");
    let all = [&prefix[..], &rest].concat();
    (Frame::parse(&all[..header]).expect("a header").0, all[header..].to_vec())
}

/// How many bytes the worker's process grows by while it is flooded, and why it ends the connection.
fn flood(mut next: impl FnMut(u32) -> Option<Vec<u8>> + Send) -> (usize, String) {
    let mut victim = Victim::new();
    let mut hostile = victim.hostile();
    let peer = victim.node.peer(&hostile.address);
    let before = resident();
    beside(&mut victim.node, || {
        let sent = (0..).map_while(&mut next).all(|bytes| offer_bytes(&mut hostile.stream, &bytes));
        assert!(!sent || is_ended(&mut hostile.stream), "it takes all of it");
    });
    let grown = resident().saturating_sub(before);
    let why = victim.node.lost(peer, &hostile.address);
    victim.node.converse(victim.to_good);
    (grown, why)
}

#[test]
fn messages_beyond_the_window_are_not_kept() {
    alone(|| {
        let payload = vec![7; 64 << 10];
        let (grown, why) = flood(|n| {
            let order = Order { seq: n, credit: 0 };
            let eager = Frame::Eager { order, matching: Matching::Tag(1), data: None, ack: None };
            (n < 4000).then(|| bytes(eager, &payload))
        });
        assert!(why.contains("credit"), "{why}");
        assert!(grown < 24 << 20, "{grown}");
    });
}

#[test]
fn frames_before_their_turn_are_not_kept_without_bound() {
    alone(|| {
        let payload = vec![7; MAX_PAYLOAD];
        let (grown, why) = flood(|n| {
            let order = Order { seq: 4000 - n, credit: 0 };
            let to = RemoteAddr { key: KEY, addr: 0 };
            let op = OpId { slot: 0, generation: 0 };
            (n < 600).then(|| bytes(Frame::Put { order, op, to, data: None, last: true }, &payload))
        });
        assert!(why.contains("turn"), "{why}");
        assert!(grown < 100 << 20, "{grown}");
    });
}

#[test]
fn an_atomic_returns_no_more_than_a_frame_carries() {
    let mut node = Node::open(settings("RAILS=tcp"));
    let mut memory = vec![0u8; 4 << 20];
    let access = polyrail_core::proto::Access { read: true, write: true };
    // SAFETY: the memory outlives the worker's use of it: it is deregistered below.
    unsafe { node.worker.register(KEY, iov(&mut memory), 0, access).expect("a free key") };
    let address = node.worker.address().to_vec();
    let mut hostile = beside(&mut node, || shake(&address, Versions::OURS));
    // FI_ATOMIC_READ = 10: no operands, as many results as are asked for
    let code = AtomicCode { datatype: 7, op: 10, kind: AtomicKind::Fetch, count: 400_000 };
    let (op, at) = (OpId { slot: 3, generation: 1 }, RemoteAddr { key: KEY, addr: 0 });
    let frame = Frame::Atomic { order: Order { seq: 0, credit: 0 }, op, at, code };
    let answer = beside(&mut node, || {
        hostile.stream.write_all(&bytes(frame, &[])).expect("the worker reads");
        let mut header = [0; 24];
        hostile.stream.read_exact(&mut header).expect("an answer");
        Frame::parse(&header)
    });
    assert_eq!(answer, Ok((Frame::Ack { op, status: Status::Unsupported }, 0)));
    node.worker.deregister(KEY);
}

/// A peer that never says what it has had: what is kept for it to be sent again has a bound.
#[test]
fn answers_that_are_never_confirmed_are_not_kept_without_bound() {
    alone(|| {
        let mut victim = Victim::new();
        let mut hostile = victim.hostile();
        // FI_ATOMIC_READ = 10, 16 KiB of FI_UINT64 = 7
        let code = AtomicCode { datatype: 7, op: 10, kind: AtomicKind::Fetch, count: 2048 };
        let (op, at) = (OpId { slot: 3, generation: 1 }, RemoteAddr { key: KEY, addr: 0 });
        let (count, before) = (60_000, resident());
        let most = beside(&mut victim.node, || {
            let mut answers = hostile.stream.try_clone().expect("a descriptor");
            let had = Arc::new(AtomicU32::new(0));
            let counter = Arc::clone(&had);
            let reading = std::thread::spawn(move || {
                let mut most = 0;
                for n in 0..count {
                    let mut answer = vec![0; 16 + (16 << 10)];
                    if answers.read_exact(&mut answer).is_err() {
                        break;
                    }
                    counter.store(n, Ordering::Relaxed);
                    most = if n % 100 == 0 { resident().max(most) } else { most };
                }
                most
            });
            (0..count).all(|seq| {
                // it takes its answers, as it must (`bounds`): what is left is what it does not confirm
                while seq > had.load(Ordering::Relaxed) + 1000 && !reading.is_finished() {
                    std::thread::sleep(Duration::from_micros(50));
                }
                let frame = Frame::Atomic { order: Order { seq, credit: 0 }, op, at, code };
                hostile.stream.write_all(&bytes(frame, &[])).is_ok()
            });
            reading.join().expect("it reads")
        });
        let grown = most.saturating_sub(before);
        // 96 MiB unconfirmed, the copies' growth, and 16 MiB on their way
        assert!(grown < 400 << 20, "{} MiB", grown >> 20);
        victim.node.converse(victim.to_good);
    });
}

/// Memory that was read, as the event says, may be written: the peer gets what was there before, however late it takes it.
#[test]
fn what_was_read_is_not_looked_at_again() {
    const LEN: usize = 16 << 20;
    let mut node = Node::open(settings("RAILS=tcp"));
    let mut memory = vec![1u8; LEN];
    let access = polyrail_core::proto::Access { read: true, write: true };
    // SAFETY: the memory outlives the worker's use of it: it is deregistered below.
    unsafe { node.worker.register(KEY, iov(&mut memory), 0, access).expect("a free key") };
    let address = node.worker.address().to_vec();
    let mut slow = beside(&mut node, || shake(&address, Versions::OURS));
    let (op, from) = (OpId { slot: 3, generation: 1 }, RemoteAddr { key: KEY, addr: 0 });
    let get = Frame::Get { order: Order { seq: 0, credit: 0 }, op, from, len: LEN as u64, writable: false };
    slow.stream.write_all(&bytes(get, &[])).expect("room");
    let mut got = Vec::new();
    let mut buffer = vec![0; 16 << 10];
    slow.stream.set_nonblocking(true).expect("a socket");
    loop {
        node.worker.progress();
        if let Some(event) = node.worker.next_event() {
            assert_eq!(event.kind, EventKind::RemoteRead);
            break;
        }
        if let Ok(n) = slow.stream.read(&mut buffer) {
            got.extend_from_slice(&buffer[..n]);
        }
    }
    memory.fill(2);
    beside(&mut node, || {
        slow.stream.set_nonblocking(false).expect("a socket");
        while got.len() < LEN + LEN / MAX_PAYLOAD * 24 {
            let n = slow.stream.read(&mut buffer).expect("the rest");
            got.extend_from_slice(&buffer[..n]);
        }
    });
    let mut all = &got[..];
    while !all.is_empty() {
        let (frame, payload) = read_frame(&mut all);
        assert!(payload.iter().all(|byte| *byte == 1), "{frame:?} brings what was written later");
    }
    node.worker.deregister(KEY);
}
