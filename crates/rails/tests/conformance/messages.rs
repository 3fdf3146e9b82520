//! Messages: they arrive once, whole, in order, where they are expected.

use crate::over;
use crate::pair::{Pair, SIZES, TIME, any_tag, iov, pattern, user};
use polyrail_core::frame::Matching;
use polyrail_core::proto::{Delivery, Failure, Filter};
use polyrail_rails::list::{RailSet, Reach};
use polyrail_rails::{Config, EventKind, Issued, Refused, Worker};
use std::time::Instant;

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
fn messages_of_all_sizes_arrive_expected_and_not() {
    over::all_ways(messages);
}

fn messages_to_itself(config: Config) {
    let mut a = Worker::open(config).unwrap();
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

#[test]
fn messages_to_itself_arrive() {
    over::all_ways(messages_to_itself);
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
        assert_eq!(b[0].error, None, "{:?} {:?}", p.a.why(p.to_b), p.b.why(p.to_a));
        assert_eq!((b[0].user.context, u64::from_le_bytes(got)), (i, i));
    }
}

#[test]
fn a_flood_of_unexpected_messages_keeps_its_order() {
    over::all(order_and_flood);
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
    over::all_ways(truncation);
}

#[test]
fn multi_receive_buffers_fill_up() {
    over::all(|config| {
        let mut p = Pair::new(config);
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
    });
}

/// More messages than a peer's credit is for, one after the other, from a side that makes no progress: it hears of more credit when it
/// needs some, so that nothing takes the long way, which would be left unfinished here.
#[test]
fn who_only_sends_hears_of_credit() {
    let rails = RailSet::ALL.without(Reach::Network);
    let config = Config { rails, ..Config::default() };
    let mut p = Pair::new(Config { window: config.window / 16, ..config });
    // SAFETY: the bytes are copied.
    let inject = |a: &mut Worker, to| unsafe { a.inject(to, Matching::Tag(1), None, &[iov(&mut [7; 8])]) };
    let (mut got, start) = ([0; 8], Instant::now());
    for n in 0..20_000 {
        // SAFETY: the buffer outlives the event.
        unsafe { p.b.recv(any_tag(), &[iov(&mut got)], user(n)) };
        while inject(&mut p.a, p.to_b).is_err() {
            // only until there is a connection
            p.a.progress();
            p.b.progress();
            assert!(start.elapsed() < TIME);
        }
        while p.b.next_event().is_none() {
            p.b.progress();
            assert!(start.elapsed() < TIME, "message {n} waits for the sender");
        }
        assert!(p.a.is_quiet(), "message {n} took the long way");
    }
}

/// Far more messages than there is credit for, from a side that makes progress only where it is told to: none that a receive does not want
/// yet holds up those behind it, and all come, in their order, to who takes one after the other.
#[test]
fn a_flood_comes_whole_and_in_order() {
    const COUNT: u64 = 40_000;
    over::all(|config| {
        let mut p = Pair::new(config);
        let start = Instant::now();
        for tag in 0..COUNT {
            // SAFETY: the bytes are copied.
            let inject = |a: &mut Worker, to| unsafe {
                a.inject(to, Matching::Tag(tag), None, &[iov(&mut tag.to_le_bytes())])
            };
            while inject(&mut p.a, p.to_b).is_err() {
                p.a.progress();
                p.b.progress();
                assert!(start.elapsed() < TIME);
            }
        }
        let mut receive = |filter| {
            let mut got = [0; 8];
            // SAFETY: the buffer outlives the event.
            unsafe { p.b.recv(filter, &[iov(&mut got)], user(0)) };
            let (_, events) = p.events(0, 1);
            assert_eq!(events[0].error, None);
            assert_eq!(events[0].matching, Matching::Tag(u64::from_le_bytes(got)));
            u64::from_le_bytes(got)
        };
        let last = Filter { matching: Matching::Tag(COUNT - 1), ignore: 0, ..any_tag() };
        assert_eq!(receive(last), COUNT - 1);
        for tag in 0..COUNT - 1 {
            assert_eq!(receive(any_tag()), tag);
        }
        while !p.a.is_quiet() {
            p.a.progress();
            p.b.progress();
            assert!(start.elapsed() < TIME);
        }
    });
}

/// Who looks for credit as it begins to send may hear of the end of an earlier send, and find no credit: the earlier one has its event all the same.
#[test]
fn a_send_whose_end_is_heard_as_another_begins_has_its_event() {
    let config = Config { rails: RailSet::ALL.without(Reach::Network), ..Config::default() };
    let mut p = Pair::new(Config { window: 1 << 16, ..config });
    let (mut sent, mut got) = (pattern(8192, 1), vec![0; 8192]);
    let tagged = |tag| Filter { source: None, matching: Matching::Tag(tag), ignore: 0 };
    // SAFETY: both buffers outlive the events.
    let mut send = |a: &mut Worker, to, tag, n| unsafe {
        a.send(to, Matching::Tag(tag), None, Delivery::Sent, &[iov(&mut sent)], user(n)).unwrap()
    };
    // the first makes the connection; the others use up all credit: nobody receives them
    assert!(matches!(send(&mut p.a, p.to_b, 1, 0), Issued::Pending(_)));
    p.events(1, 0);
    while send(&mut p.a, p.to_b, 1, 1) == Issued::Done {}
    for n in 2..100 {
        assert!(matches!(send(&mut p.a, p.to_b, 2, n), Issued::Pending(_)), "there is credit");
        // SAFETY: the buffer outlives the event.
        unsafe { p.b.recv(tagged(2), &[iov(&mut got)], user(n)) };
        // it asks for the message, and says that it has it; the sender makes no progress but what sending needs
        let start = Instant::now();
        while p.b.next_event().is_none() {
            p.b.progress();
            assert!(start.elapsed() < TIME, "message {n} waits for the sender");
        }
    }
    let (ended, _) = p.events(98, 0);
    let ended: Vec<u64> = ended.iter().map(|event| event.user.context).collect();
    assert_eq!(ended, (2..100).collect::<Vec<_>>());
}

#[test]
fn a_cancelled_receive_says_so() {
    let mut p = Pair::new(Config::default());
    let mut got = [0; 8];
    // SAFETY: the buffer outlives the event.
    unsafe { p.b.recv(any_tag(), &[iov(&mut got)], user(1)) };
    assert!(!p.b.cancel(|posted| *posted == user(2)));
    assert!(p.b.cancel(|posted| *posted == user(1)));
    assert!(!p.b.cancel(|posted| *posted == user(1)));
    let (_, b) = p.events(0, 1);
    assert_eq!(b[0].error, Some(Failure::Cancelled));
}
