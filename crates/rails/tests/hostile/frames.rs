//! Peers that know the key and then say anything at all, over TCP.

use crate::support::alone::alone;
use crate::support::node::{Node, iov};
use crate::support::puppet::{Puppet, settings};
use crate::support::resident;
use crate::support::stranger::{
    Noise, Shaken, beside, identity, is_ended, shake, shake_lane, shake_lane_for_all,
};
use polyrail_core::frame::{
    AtomicCode, AtomicKind, Frame, MAX_PAYLOAD, Matching, OpId, Order, PREFIX, RemoteAddr, Status,
    peek_lengths,
};
use polyrail_core::proto::{Delivery, REORDER_WINDOW};
use polyrail_core::wire::{Reject, SessionId, Versions};
use polyrail_rails::EventKind;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;

const KEY: u64 = 5;
const REGION: usize = 300_000;

/// A worker with a region and a good peer.
struct Victim {
    node: Node,
    address: Vec<u8>,
    _good: Puppet,
    to_good: polyrail_core::proto::PeerIdx,
}

impl Victim {
    fn new() -> Self {
        let mut node = Node::open(settings("RAILS=tcp"));
        let address = node.worker.address().to_vec();
        let mut good = Puppet::start("RAILS=tcp");
        good.ask("echo");
        let to_good = node.peer(&good.address);
        node.converse(to_good);
        node.region(KEY, REGION);
        Self { node, address, _good: good, to_good }
    }

    fn hostile(&mut self) -> Shaken {
        let shaken = beside(&mut self.node, || shake(&self.address, Versions::OURS));
        assert!(shaken.outcome.is_ok());
        shaken
    }
}

fn bytes(frame: Frame, payload: &[u8]) -> Vec<u8> {
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
        let listed = if region { 16 * (1 + self.noise.below(8) as usize) } else { 0 };
        let (frame, size) = match self.noise.below(20) {
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
            _ => {
                let header_len = (size as u16).min(40);
                (Frame::Am { order: self.order(), id: self.noise.below(3) as u16, header_len }, size)
            }
        };
        let payload = self.noise.bytes(size);
        let mut bytes = bytes(frame, &payload);
        if self.noise.below(15) == 0 {
            let at = self.noise.below(bytes.len().min(48) as u64) as usize;
            bytes[at] ^= 1 << self.noise.below(8);
        }
        bytes
    }
}

/// Writes what the worker takes, and reads what it says, so that neither waits for ever; false: it hung up.
fn offer_bytes(stream: &mut TcpStream, bytes: &[u8]) -> bool {
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
        let survived = beside(node, || {
            let open = (0..40).all(|_| offer_bytes(&mut hostile.stream, &frames.next()));
            drop(hostile);
            open
        });
        cut += u32::from(!survived);
        node.lost(peer, &node.worker.address_of(peer).expect("told before"));
    }
    assert!(cut > 20, "only {cut} were cut off: these frames are too tame");
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

#[test]
fn lies_about_lanes_end_the_session() {
    let mut victim = Victim::new();
    let lies = [
        Frame::Got { lane: 0, received: 1000 },
        Frame::Got { lane: 1, received: 0 },
        Frame::Retire { lane: 0, received: 1000 },
        Frame::Retire { lane: 7, received: 0 },
        Frame::Seen { seq: 77 },
    ];
    for lie in lies {
        let mut hostile = victim.hostile();
        let peer = victim.node.peer(&hostile.address);
        assert!(offer_bytes(&mut hostile.stream, &bytes(lie, &[])));
        let why = victim.node.lost(peer, &hostile.address);
        assert!(why.contains("broke the protocol"), "{lie:?}: {why}");
    }
    victim.node.converse(victim.to_good);
}

/// Whoever opens a lane must name the session, and may not open them without end.
#[test]
fn lanes_are_opened_by_who_knows_the_session_and_not_without_end() {
    let mut victim = Victim::new();
    let mut hostile = victim.hostile();
    let session = hostile.outcome.as_ref().expect("a session").id;
    let address = victim.address.clone();
    let mut lane =
        |own, session, number| beside(&mut victim.node, || shake_lane(&address, own, session, number));
    let other = lane(identity(), session, 1).expect_err("somebody else's session");
    assert_eq!(other, Reject::NoSession);
    let guess = SessionId(session.0 ^ 1);
    assert_eq!(lane(hostile.own, guess, 1).expect_err("a guess"), Reject::NoSession);
    let open: Vec<_> = (1..16).map(|n| lane(hostile.own, session, n).expect("a lane")).collect();
    assert_eq!(lane(hostile.own, session, 5).expect_err("used"), Reject::NoSession);
    assert_eq!(lane(hostile.own, session, 16).expect_err("too many"), Reject::NoSession);
    // they all carry frames, and all end together
    let peer = victim.node.peer(&hostile.address);
    victim.node.until("all lanes", |node| node.worker.lanes(peer).len() == 16);
    assert!(offer_bytes(&mut hostile.stream, &bytes(Frame::Seen { seq: 9 }, &[])));
    victim.node.lost(peer, &hostile.address);
    for mut stream in open {
        beside(&mut victim.node, || assert!(is_ended(&mut stream)));
    }
    victim.node.converse(victim.to_good);
}

/// The next frame of a stream.
fn read_frame(stream: &mut impl Read) -> (Frame, Vec<u8>) {
    let mut prefix = [0; PREFIX];
    stream.read_exact(&mut prefix).expect("a frame");
    let (header, payload) = peek_lengths(&prefix).expect("a frame");
    let mut rest = vec![0; header + payload - PREFIX];
    stream.read_exact(&mut rest).expect("the rest of it");
    let all = [&prefix[..], &rest].concat();
    (Frame::parse(&all[..header]).expect("a header").0, all[header..].to_vec())
}

/// A lane ends of whose many messages nobody has said yet that they were seen; the word comes only after the peer's own that it
/// gives the lane up too, as when it was lost with the lane. What is to come again waits for it; answers do not.
#[test]
fn a_lane_is_given_up_before_it_is_known_what_was_seen() {
    const COUNT: u64 = REORDER_WINDOW as u64 + 1000;
    let mut victim = Victim::new();
    let mut odd = victim.hostile();
    let peer = victim.node.peer(&odd.address);
    for tag in 0..COUNT {
        assert!(victim.node.inject(peer, tag, 8), "{}", victim.node.why(peer));
    }
    let session = odd.outcome.as_ref().expect("a session").id;
    let mut other = beside(&mut victim.node, || {
        let mut first = odd.leftover.chain(&mut odd.stream);
        (0..COUNT).for_each(|_| drop(read_frame(&mut first)));
        shake_lane(&victim.address, odd.own, session, 1).expect("a lane")
    });
    victim.node.until("both lanes", |node| node.worker.lanes(peer).len() == 2);
    let (seen, lane) = (COUNT as u32 - 1, 0);
    beside(&mut victim.node, || {
        assert!(offer_bytes(&mut other, &bytes(Frame::Retire { lane, received: COUNT - 1 }, &[])));
        other.set_nonblocking(false).expect("a socket");
        assert_eq!(read_frame(&mut other).0, Frame::Retire { lane, received: 0 });
        assert!(offer_bytes(&mut other, &bytes(Frame::Seen { seq: seen }, &[])));
        other.set_nonblocking(false).expect("a socket");
        let (again, _) = read_frame(&mut other);
        assert!(again.order().is_some_and(|order| order.seq == seen), "{again:?}");
    });
    victim.node.converse(victim.to_good);
}

/// What a frame's header says takes effect before its payload is whole: a lane may end between the two. The frame comes again
/// though it was seen.
#[test]
fn a_frame_that_was_seen_and_is_not_whole_comes_again() {
    let mut victim = Victim::new();
    let mut odd = victim.hostile();
    let peer = victim.node.peer(&odd.address);
    for tag in 0..3 {
        assert!(victim.node.inject(peer, tag, 10_000), "{}", victim.node.why(peer));
    }
    let session = odd.outcome.as_ref().expect("a session").id;
    let mut other = beside(&mut victim.node, || {
        let mut first = odd.leftover.chain(&mut odd.stream);
        (0..3).for_each(|_| drop(read_frame(&mut first)));
        shake_lane(&victim.address, odd.own, session, 1).expect("a lane")
    });
    victim.node.until("both lanes", |node| node.worker.lanes(peer).len() == 2);
    beside(&mut victim.node, || {
        // of the second message only a part has come
        let words = [bytes(Frame::Seen { seq: 2 }, &[]), bytes(Frame::Retire { lane: 0, received: 1 }, &[])];
        assert!(offer_unread(&mut other, &words.concat()));
        let mut again = std::iter::from_fn(|| Some(read_frame(&mut other)))
            .filter_map(|(frame, payload)| Some((frame.order()?.seq, payload.len())));
        assert_eq!((again.next(), again.next()), (Some((1, 10_000)), Some((2, 10_000))));
    });
    victim.node.converse(victim.to_good);
}

/// Two lanes fail at once, and either side loses its word of the one with the other. The word is given again: else both would
/// wait for each other.
#[test]
fn the_end_of_a_lane_is_told_again_when_the_word_was_lost_with_another() {
    let mut victim = Victim::new();
    for in_order in [false, true] {
        let Shaken { mut stream, outcome, leftover, own, address, .. } = victim.hostile();
        let peer = victim.node.peer(&address);
        let session = outcome.expect("a session").id;
        let node = &mut victim.node;
        let open = |number| shake_lane(&victim.address, own, session, number).expect("a lane");
        let second = beside(node, || open(1));
        node.until("both lanes", |node| node.worker.lanes(peer).len() == 2);
        reset_connection(second);
        let word = beside(node, || read_frame(&mut leftover.chain(&mut stream)).0);
        assert_eq!(word, Frame::Retire { lane: 1, received: 0 });
        // it came, but this side had given lane 0 up before
        if in_order {
            drop(stream)
        } else {
            reset_connection(stream)
        }
        node.until("the loss of both", |node| node.worker.lanes(peer).is_empty());
        let told = beside(node, || {
            let all = shake_lane_for_all(&victim.address, own, session, 2);
            let Shaken { stream: mut third, leftover, .. } = all.expect("a lane");
            // and the word of that went by lane 1: it waits until lane 1 is known to have ended on both sides
            assert!(offer_unread(&mut third, &bytes(Frame::Retire { lane: 1, received: 0 }, &[])));
            let mut third = leftover.chain(&mut third);
            let mut words = [read_frame(&mut third).0, read_frame(&mut third).0];
            words.sort_by_key(|word| if let Frame::Retire { lane, .. } = word { *lane } else { u16::MAX });
            words
        });
        assert_eq!(told, [0, 1].map(|lane| Frame::Retire { lane, received: 0 }));
    }
    victim.node.converse(victim.to_good);
}

/// Ends a connection by a reset.
fn reset_connection(stream: TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the option is read, and is of the length that is named.
    let set = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
    assert_eq!(set, 0);
}

/// Writes all of it, and reads nothing.
fn offer_unread(stream: &mut TcpStream, bytes: &[u8]) -> bool {
    stream.set_nonblocking(false).expect("a socket");
    stream.write_all(bytes).is_ok()
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
            let reading = std::thread::spawn(move || {
                let mut most = 0;
                for n in 0..count {
                    let mut answer = vec![0; 16 + (16 << 10)];
                    if answers.read_exact(&mut answer).is_err() {
                        break;
                    }
                    most = if n % 100 == 0 { resident().max(most) } else { most };
                }
                most
            });
            (0..count).all(|seq| {
                let frame = Frame::Atomic { order: Order { seq, credit: 0 }, op, at, code };
                hostile.stream.write_all(&bytes(frame, &[])).is_ok()
            });
            reading.join().expect("it reads")
        });
        let grown = most.saturating_sub(before);
        // what one round asks for, 160 MiB, is answered in any case
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
