//! What is sent arrives, identical and in order.

use std::collections::VecDeque;

use polyrail_core::frame::Frame;
use polyrail_rails::rail::{Down, LinkId, Rail, Sent};
use polyrail_rails::tcp::Config;
use proptest::prelude::*;

use crate::mock::{Side, frag, pair, place, until};

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9).wrapping_add(seed) >> 5) as u8).collect()
}

#[test]
fn small_and_large_frames_arrive_in_order() {
    for host in ["127.0.0.1", "::1"] {
        let (mut a, la, mut b, lb) = pair(host, &Config::default());
        let sizes = [8, 0, 1 << 20, 100, 5000, 65536, 3, 9000, 1];
        for (i, &n) in sizes.iter().enumerate() {
            let bytes = pattern(n, i as u64);
            until(&mut a, &mut b, "room", |a, _| a.send(la, frag(i as u64), &bytes) == Ok(Sent::Done));
        }
        until(&mut a, &mut b, "nine frames", |_, b| b.mock.frames.len() == sizes.len());
        for (i, ((link, frame, bytes), &n)) in b.mock.frames.iter().zip(&sizes).enumerate() {
            assert_eq!((*link, *frame), (lb, frag(i as u64)));
            assert!(*bytes == pattern(n, i as u64), "frame {i} of {n} bytes differs");
        }
        assert!(b.mock.begins > 0, "a megabyte goes straight to its place");
    }
}

#[test]
fn a_bye_makes_the_end_orderly() {
    let (mut a, la, mut b, lb) = pair("127.0.0.1", &Config::default());
    a.send(la, frag(0), b"last words").expect("room");
    a.send(la, Frame::Bye, &[]).expect("room");
    // Bytes that arrive unread must not make the close destroy what was sent.
    b.send(lb, frag(1), b"too late").expect("room");
    until(&mut a, &mut b, "idle", |a, _| a.rail.idle(la));
    a.rail.close(la);
    until(&mut a, &mut b, "down", |_, b| !b.mock.down.is_empty());
    assert!(matches!(b.mock.down[..], [(l, Down::Orderly)] if l == lb));
    assert_eq!(b.mock.payloads(lb), [b"last words" as &[u8], b""]);
}

/// One step of a conversation.
#[derive(Clone, Debug)]
enum Step {
    Send { left: bool, len: usize, span: bool },
    Progress { left: bool },
}

fn lengths() -> impl Strategy<Value = usize> {
    // Around the limits inside the rail (joining, copying, beginning, staging) and anything else up to a frame's most.
    prop_oneof![
        4 => 0..200usize,
        2 => 900..1200usize,
        2 => 4000..4200usize,
        2 => 8000..8400usize,
        2 => 65_000..66_000usize,
        1 => 0..=1usize << 20,
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (any::<bool>(), lengths(), any::<bool>())
            .prop_map(|(left, len, span)| Step::Send { left, len, span }),
        2 => any::<bool>().prop_map(|left| Step::Progress { left }),
    ];
    prop::collection::vec(step, 1..60)
}

/// One direction: what was sent and must arrive.
#[derive(Default)]
struct Way {
    payloads: VecDeque<Vec<u8>>,
    count: u64,
}

/// Sends; false: full. What the rail says it need not see again is overwritten at once.
fn send(side: &mut Side, link: LinkId, way: &mut Way, len: usize, span: bool) -> bool {
    let bytes = pattern(len, way.count);
    let frame = frag(way.count);
    let result = if span {
        let slot = side.mock.own(bytes.clone());
        let result = side.send_span(link, frame, slot);
        if result != Ok(Sent::Kept) {
            side.mock.memory.insert(slot, vec![0xdd; len]);
        }
        result
    } else {
        let mut copy = bytes.clone();
        let result = side.send(link, frame, &copy);
        assert_ne!(result, Ok(Sent::Kept), "there is no span to keep");
        copy.fill(0xdd);
        result
    };
    if result.is_ok() {
        way.payloads.push_back(bytes);
        way.count += 1;
    }
    result.is_ok()
}

/// Checks what has arrived, and takes away the memory of sends that ended.
fn check(side: &mut Side, way: &mut Way, arrived: &mut u64) {
    for (_, frame, bytes) in side.mock.frames.drain(..) {
        assert_eq!(frame, frag(*arrived), "frames arrive in order");
        let want = way.payloads.pop_front().expect("nothing arrives that was not sent");
        assert!(bytes == want, "frame {arrived} of {} bytes differs", want.len());
        *arrived += 1;
    }
    for (_, span) in side.mock.sent.drain(..) {
        let (&slot, _) = side.mock.memory.iter().find(|(s, _)| place(**s) == span.place).expect("told once");
        assert_eq!(span, whole(slot, side.mock.memory[&slot].len()));
        side.mock.memory.remove(&slot);
    }
}

fn whole(slot: u32, len: usize) -> polyrail_rails::rail::Span {
    polyrail_rails::rail::Span { place: place(slot), offset: 0, len }
}

fn converse(host: &str, config: &Config, piece: usize, steps: Vec<Step>) {
    let (mut a, la, mut b, lb) = pair(host, config);
    (a.mock.piece, b.mock.piece) = (piece, piece);
    let (mut right, mut left) = (Way::default(), Way::default());
    let (mut at_a, mut at_b) = (0, 0);
    for step in steps {
        match step {
            Step::Send { left: true, len, span } => {
                until(&mut a, &mut b, "room", |a, _| send(a, la, &mut right, len, span));
            }
            Step::Send { left: false, len, span } => {
                until(&mut a, &mut b, "room", |_, b| send(b, lb, &mut left, len, span));
            }
            Step::Progress { left: true } => drop(a.progress()),
            Step::Progress { left: false } => drop(b.progress()),
        }
        check(&mut a, &mut left, &mut at_a);
        check(&mut b, &mut right, &mut at_b);
    }
    until(&mut a, &mut b, "all frames", |a, b| {
        check(a, &mut left, &mut at_a);
        check(b, &mut right, &mut at_b);
        left.payloads.is_empty() && right.payloads.is_empty() && a.rail.idle(la) && b.rail.idle(lb)
    });
    assert!(a.mock.down.is_empty() && b.mock.down.is_empty());
    for side in [&mut a, &mut b] {
        side.progress();
        check(side, &mut Way::default(), &mut 0);
        let kept = side.mock.memory.values().filter(|m| m.iter().any(|&b| b != 0xdd)).count();
        assert_eq!(kept, 0, "every span that was kept has been told as sent");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn conversations_arrive_identical_and_in_order(
        steps in steps(),
        v6 in any::<bool>(),
        // Tiny buffers force partial calls at every turn; the kernel rounds them up to a few KB.
        buffer in prop_oneof![3 => Just(None), 3 => Just(Some(20_000)), 1 => Just(Some(1))],
        unsent in prop_oneof![Just(None), Just(Some(4096))],
        piece in prop_oneof![Just(0), Just(700), Just(4096)],
    ) {
        let config = Config {
            send_buffer: buffer,
            recv_buffer: buffer,
            unsent_limit: unsent,
            ..Config::default()
        };
        converse(if v6 { "::1" } else { "127.0.0.1" }, &config, piece, steps);
    }
}
