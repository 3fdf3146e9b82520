//! Two workers in one process, over each rail: what users ask comes out right.

use polyrail_core::frame::{AtomicCode, AtomicKind, Matching, RemoteAddr};
use polyrail_core::proto::{Access, Delivery, Failure, Filter, PartSpec, PeerIdx};
use polyrail_rails::config::Rendezvous;
use polyrail_rails::rail::RawIov;
use polyrail_rails::{Config, Event, EventKind, Issued, Refused, User, Worker};
use std::time::{Duration, Instant};

const TIME: Duration = Duration::from_secs(20);

fn iov(bytes: &mut [u8]) -> RawIov {
    RawIov { base: bytes.as_mut_ptr(), len: bytes.len() }
}

fn user(context: u64) -> User {
    User { context, flags: 0 }
}

fn config(shm: bool) -> Config {
    Config { shm, tcp: !shm, ..Config::default() }
}

/// Two workers that know each other.
struct Pair {
    a: Worker,
    b: Worker,
    to_b: PeerIdx,
    to_a: PeerIdx,
}

impl Pair {
    fn new(config: Config) -> Self {
        let mut a = Worker::open(config.clone()).unwrap();
        let mut b = Worker::open(config).unwrap();
        let to_b = a.peer(&b.address()).unwrap();
        let to_a = b.peer(&a.address()).unwrap();
        Self { a, b, to_b, to_a }
    }

    /// Makes progress on both until each has given so many events.
    fn events(&mut self, of_a: usize, of_b: usize) -> (Vec<Event>, Vec<Event>) {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        let start = Instant::now();
        while a.len() < of_a || b.len() < of_b {
            self.a.progress();
            self.b.progress();
            a.extend(std::iter::from_fn(|| self.a.next_event()));
            b.extend(std::iter::from_fn(|| self.b.next_event()));
            assert!(start.elapsed() < TIME, "events missing: {a:?} of {of_a}, {b:?} of {of_b}");
        }
        (a, b)
    }
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31) + seed + (i >> 8)) as u8).collect()
}

fn any_tag() -> Filter {
    Filter { source: None, matching: Matching::Tag(0), ignore: u64::MAX }
}

const SIZES: [usize; 14] =
    [0, 1, 8, 31, 33, 100, 4096, 8192, 8193, 65536, 65537, 1 << 20, (1 << 20) + 1, 5_000_001];

fn messages(config: Config) {
    let mut p = Pair::new(config);
    for (i, len) in SIZES.into_iter().enumerate() {
        for expected in [true, false] {
            let mut sent = pattern(len, i);
            let mut got = vec![0xee; len];
            // SAFETY: both buffers outlive the events.
            unsafe {
                if expected {
                    p.b.recv(any_tag(), &[iov(&mut got)], user(7));
                }
                let tag = Matching::Tag(i as u64);
                let issued =
                    p.a.send(p.to_b, tag, Some(99), Delivery::Sent, &[iov(&mut sent)], user(1)).unwrap();
                if !expected {
                    let start = Instant::now();
                    while p.b.peek(&any_tag()).is_none() {
                        p.a.progress();
                        p.b.progress();
                        assert!(start.elapsed() < TIME);
                    }
                    p.b.recv(any_tag(), &[iov(&mut got)], user(7));
                }
                let (a, b) = p.events(usize::from(issued != Issued::Done), 1);
                assert!(a.iter().all(|e| e.kind == EventKind::Send && e.error.is_none()));
                let e = &b[0];
                assert_eq!((e.kind, e.user, e.data, e.error), (EventKind::Recv, user(7), Some(99), None));
                assert_eq!((e.len, e.got, e.matching), (len as u64, len as u64, tag));
                assert_eq!(e.peer, Some(p.to_a));
            }
            assert!(got == sent, "{len} bytes, expected {expected}");
        }
    }
}

#[test]
fn messages_over_shared_memory() {
    messages(config(true));
}

#[test]
fn messages_over_shared_memory_written_by_the_sender() {
    messages(Config { rendezvous: Rendezvous::Put, ..config(true) });
}

#[test]
fn messages_over_shared_memory_without_direct_access() {
    messages(Config { rendezvous: Rendezvous::Fragments, ..config(true) });
}

#[test]
fn messages_over_tcp() {
    messages(config(false));
}

#[test]
fn messages_to_itself() {
    let mut a = Worker::open(Config::default()).unwrap();
    let me = a.peer(&a.address()).unwrap();
    for len in SIZES {
        let (mut sent, mut got) = (pattern(len, 3), vec![0; len]);
        // SAFETY: both buffers outlive the events.
        unsafe {
            a.send(me, Matching::Tag(1), None, Delivery::Sent, &[iov(&mut sent)], user(1)).unwrap();
            a.recv(any_tag(), &[iov(&mut got)], user(2));
        }
        let start = Instant::now();
        let mut received = false;
        while !received {
            a.progress();
            received = std::iter::from_fn(|| a.next_event()).any(|e| e.kind == EventKind::Recv);
            assert!(start.elapsed() < TIME);
        }
        assert!(sent == got, "{len} bytes");
    }
}

fn order_and_flood(config: Config) {
    let mut p = Pair::new(config);
    let count = 20_000u64;
    let mut sent = 0u64;
    let start = Instant::now();
    // more than the eager window, nothing received yet: it must neither block nor be lost
    while sent < count {
        let mut bytes = sent.to_le_bytes();
        // SAFETY: inject copies.
        match unsafe { p.a.inject(p.to_b, Matching::Tag(5), None, &[iov(&mut bytes)]) } {
            Ok(()) => sent += 1,
            Err(Refused::Again) => {
                p.a.progress();
                p.b.progress();
            }
            Err(Refused::Gone) => panic!("{:?}", p.a.why(p.to_b)),
        }
        assert!(start.elapsed() < TIME);
    }
    for i in 0..count {
        let mut got = [0; 8];
        // SAFETY: the buffer outlives the event.
        unsafe { p.b.recv(any_tag(), &[iov(&mut got)], user(i)) };
        let (_, b) = p.events(0, 1);
        assert_eq!((b[0].user.context, u64::from_le_bytes(got)), (i, i));
    }
}

#[test]
fn a_flood_of_unexpected_messages_keeps_its_order_over_shared_memory() {
    order_and_flood(config(true));
}

#[test]
fn a_flood_of_unexpected_messages_keeps_its_order_over_tcp() {
    order_and_flood(config(false));
}

fn truncation(config: Config) {
    let mut p = Pair::new(config);
    for len in [10, 5000, 60_000, 200_000] {
        let mut sent = pattern(len, 1);
        let mut got = vec![0; len / 2];
        // SAFETY: both buffers outlive the events.
        unsafe {
            p.b.recv(any_tag(), &[iov(&mut got)], user(1));
            let issued =
                p.a.send(p.to_b, Matching::Tag(1), None, Delivery::Sent, &[iov(&mut sent)], user(2)).unwrap();
            let (_, b) = p.events(usize::from(issued != Issued::Done), 1);
            assert_eq!((b[0].len, b[0].got), (len as u64, len as u64 / 2));
        }
        assert_eq!(got[..], sent[..len / 2]);
    }
}

#[test]
fn truncated_messages() {
    truncation(config(true));
    truncation(config(false));
}

fn one_sided(config: Config) {
    let mut p = Pair::new(config);
    for len in [1usize, 8, 100, 10_000, 300_000, 3_000_000] {
        let mut region = vec![0u8; len + 16];
        let mut local = pattern(len, 9);
        let mut back = vec![0u8; len];
        let access = Access { read: true, write: true };
        let at = PartSpec { at: RemoteAddr { key: 42, addr: 16 }, len: len as u64 };
        // SAFETY: all buffers outlive the events; the region is deregistered before it is dropped.
        unsafe {
            p.b.register(42, iov(&mut region), 0, access).unwrap();
            p.a.put(p.to_b, &[iov(&mut local)], &[at], Some(3), false, user(1)).unwrap();
            let (a, b) = p.events(1, 1);
            assert_eq!((a[0].kind, a[0].error), (EventKind::Put, None));
            assert!(b.iter().any(|e| e.kind == EventKind::RemoteWrite && (e.data == Some(3) || len > 8192)));
            p.a.get(p.to_b, &[iov(&mut back)], &[at], user(2)).unwrap();
            let (a, _) = p.events(1, 1);
            assert_eq!((a[0].kind, a[0].error), (EventKind::Get, None));
        }
        assert!(back == local && region[16..] == local[..], "{len} bytes");
        p.b.deregister(42);
        // SAFETY: the buffer outlives the event.
        unsafe { p.a.get(p.to_b, &[iov(&mut back)], &[at], user(2)).unwrap() };
        let (a, _) = p.events(1, 0);
        assert!(matches!(a[0].error, Some(Failure::Refused(_))), "{a:?}");
    }
}

#[test]
fn put_and_get_over_shared_memory() {
    one_sided(config(true));
    one_sided(Config { rendezvous: Rendezvous::Fragments, ..config(true) });
}

#[test]
fn put_and_get_over_tcp() {
    one_sided(config(false));
}

#[test]
fn atomics() {
    for shm in [true, false] {
        let mut p = Pair::new(config(shm));
        let mut region = vec![0u8; 64];
        let access = Access { read: true, write: true };
        // FI_UINT64 = 7, FI_SUM = 2
        let code = AtomicCode { datatype: 7, op: 2, kind: AtomicKind::Fetch, count: 1 };
        // SAFETY: all buffers outlive the events.
        unsafe {
            p.b.register(1, iov(&mut region), 0, access).unwrap();
            for i in 0..10u64 {
                let (mut five, mut before) = (5u64.to_le_bytes(), [0; 8]);
                let at = RemoteAddr { key: 1, addr: 8 };
                let (operand, result) = ([iov(&mut five)], [iov(&mut before)]);
                p.a.atomic(p.to_b, code, at, &operand, &[], &result, user(i)).unwrap();
                let (a, _) = p.events(1, 0);
                assert_eq!(
                    (a[0].kind, a[0].error),
                    (EventKind::Atomic, None),
                    "{:?} {:?}",
                    p.a.why(p.to_b),
                    p.b.why(p.to_a)
                );
                assert_eq!(u64::from_le_bytes(before), 5 * i);
            }
        }
    }
}

#[test]
fn multi_receive_buffers_fill_up() {
    for shm in [true, false] {
        let mut p = Pair::new(config(shm));
        let mut buffer = vec![0u8; 1000];
        // SAFETY: the buffer outlives the events; inject copies.
        unsafe {
            p.b.recv_multi(None, iov(&mut buffer), 100, user(9));
            for i in 0..5u8 {
                while p.a.inject(p.to_b, Matching::Message, None, &[iov(&mut [i; 190])]).is_err() {
                    p.a.progress();
                    p.b.progress();
                }
            }
        }
        let (_, b) = p.events(0, 5);
        let offsets: Vec<_> = b.iter().map(|e| (e.offset, e.got, e.released)).collect();
        let expected =
            [(0, 190, false), (190, 190, false), (380, 190, false), (570, 190, false), (760, 190, true)];
        assert_eq!(offsets, expected);
        assert!((0..5).all(|i| buffer[190 * i..190 * (i + 1)].iter().all(|byte| *byte == i as u8)));
    }
}

#[test]
fn a_cancelled_receive_says_so() {
    let mut p = Pair::new(config(true));
    let mut got = [0; 8];
    // SAFETY: the buffer outlives the event.
    let op = unsafe { p.b.recv(any_tag(), &[iov(&mut got)], user(1)) };
    assert!(p.b.cancel(op));
    assert!(!p.b.cancel(op));
    let (_, b) = p.events(0, 1);
    assert_eq!(b[0].error, Some(Failure::Cancelled));
}

#[test]
fn both_ends_connect_at_once() {
    for shm in [true, false] {
        for _ in 0..20 {
            let mut p = Pair::new(config(shm));
            let (mut x, mut y, mut gx, mut gy) = ([1; 8], [2; 8], [0; 8], [0; 8]);
            // SAFETY: all buffers outlive the events.
            unsafe {
                p.a.recv(any_tag(), &[iov(&mut gx)], user(1));
                p.b.recv(any_tag(), &[iov(&mut gy)], user(1));
                p.a.send(p.to_b, Matching::Tag(1), None, Delivery::Sent, &[iov(&mut x)], user(2)).unwrap();
                p.b.send(p.to_a, Matching::Tag(1), None, Delivery::Sent, &[iov(&mut y)], user(2)).unwrap();
            }
            p.events(2, 2);
            assert_eq!((gx, gy), (y, x));
        }
    }
}

#[test]
fn a_peer_that_is_not_there_ends_the_operation_with_a_reason() {
    for shm in [true, false] {
        let gone = Worker::open(config(shm)).unwrap().address();
        let mut a = Worker::open(config(shm)).unwrap();
        let peer = a.peer(&gone).unwrap();
        let mut bytes = [0; 8];
        // SAFETY: the buffer outlives the event.
        unsafe { a.send(peer, Matching::Tag(1), None, Delivery::Sent, &[iov(&mut bytes)], user(4)).unwrap() };
        let start = Instant::now();
        let event = loop {
            a.progress();
            if let Some(event) = a.next_event() {
                break event;
            }
            assert!(start.elapsed() < TIME);
        };
        assert_eq!((event.user.context, event.error), (4, Some(Failure::PeerGone)));
        assert!(a.why(peer).unwrap().contains("cannot connect"), "{:?}", a.why(peer));
    }
}

#[test]
fn an_orderly_close_loses_nothing_and_is_told() {
    for shm in [true, false] {
        let mut p = Pair::new(config(shm));
        for i in 0..100u64 {
            let mut bytes = i.to_le_bytes();
            // SAFETY: inject copies.
            while unsafe { p.a.inject(p.to_b, Matching::Tag(i), None, &[iov(&mut bytes)]) }.is_err() {
                p.a.progress();
                p.b.progress();
            }
        }
        let Pair { a, mut b, to_a, .. } = p;
        drop(a);
        let mut got = [0; 8];
        for i in 0..100 {
            let filter = Filter { source: Some(to_a), matching: Matching::Tag(i), ignore: 0 };
            // SAFETY: the buffer outlives the event.
            unsafe { b.recv(filter, &[iov(&mut got)], user(i)) };
            let start = Instant::now();
            loop {
                b.progress();
                if let Some(event) = b.next_event() {
                    assert_eq!((event.user.context, event.error), (i, None));
                    break;
                }
                assert!(start.elapsed() < TIME);
            }
        }
    }
}

/// Bytes that a round of progress may move directly, and a slice more.
const ROUND_MOST: usize = 3 << 20;

#[test]
fn a_long_message_read_directly_holds_neither_progress_nor_the_short_ones_behind_it() {
    for rendezvous in [Rendezvous::Auto, Rendezvous::Put] {
        let mut p = Pair::new(Config { rendezvous, ..config(true) });
        let (mut sent, mut got) = (pattern(64 << 20, 1), vec![0; 64 << 20]);
        let (mut short, mut there) = (pattern(100, 2), vec![0; 100]);
        // SAFETY: all buffers outlive the events.
        unsafe {
            p.b.recv(any_tag(), &[iov(&mut got)], user(1));
            p.b.recv(any_tag(), &[iov(&mut there)], user(2));
            p.a.send(p.to_b, Matching::Tag(1), None, Delivery::Sent, &[iov(&mut sent)], user(3)).unwrap();
            p.a.send(p.to_b, Matching::Tag(2), None, Delivery::Sent, &[iov(&mut short)], user(4)).unwrap();
        }
        let (start, mut order, mut rounds) = (Instant::now(), Vec::new(), 0);
        while order.len() < 2 {
            p.a.progress();
            p.b.progress();
            rounds += 1;
            order.extend(std::iter::from_fn(|| p.b.next_event()).map(|event| event.user.context));
            assert!(start.elapsed() < TIME);
        }
        if p.a.direct_refused(p.to_b).or(p.b.direct_refused(p.to_a)).is_some() {
            println!("skipped: cross-memory attach is refused here");
            return;
        }
        assert_eq!(order, [2, 1], "the short message passes");
        assert!(rounds > sent.len() / ROUND_MOST, "{rounds} rounds for {} bytes", sent.len());
        assert!(got == sent && there == short);
    }
}

#[test]
fn a_direct_transfer_whose_peer_goes_in_the_middle_ends_once() {
    let mut p = Pair::new(config(true));
    let (mut sent, mut got) = (pattern(64 << 20, 1), vec![0; 64 << 20]);
    // SAFETY: all buffers outlive the events and the workers.
    unsafe {
        p.b.recv(any_tag(), &[iov(&mut got)], user(1));
        p.a.send(p.to_b, Matching::Tag(1), None, Delivery::Sent, &[iov(&mut sent)], user(3)).unwrap();
    }
    let start = Instant::now();
    while !p.b.is_connected(p.to_a) || p.b.is_quiet() {
        p.a.progress();
        p.b.progress();
        assert!(start.elapsed() < TIME);
    }
    // begun and not over; nobody lingers
    p.a.close(Duration::ZERO);
    let mut ends = Vec::new();
    for _ in 0..1000 {
        p.b.progress();
        ends.extend(std::iter::from_fn(|| p.b.next_event()).map(|event| event.error));
    }
    while ends.is_empty() {
        p.b.progress();
        ends.extend(std::iter::from_fn(|| p.b.next_event()).map(|event| event.error));
        assert!(start.elapsed() < TIME);
    }
    assert_eq!(ends.len(), 1, "{ends:?}");
}
