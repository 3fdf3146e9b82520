//! What is sent arrives, identical and in order.

use std::collections::VecDeque;

use polyrail_core::frame::{Acked, Frame};
use polyrail_rails::rail::{Ack, Down, LaneRail, LinkId, Rail, Span};
use polyrail_rails::tcp::Config;
use proptest::prelude::*;

use crate::mock::{Side, numbered, pair, place, until};

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
            until(&mut a, &mut b, "room", |a, _| a.send(la, numbered(i as u64), &bytes) == Ok(()));
        }
        until(&mut a, &mut b, "nine frames", |_, b| b.mock.frames.len() == sizes.len());
        for (i, ((link, frame, bytes), &n)) in b.mock.frames.iter().zip(&sizes).enumerate() {
            assert_eq!((*link, *frame), (lb, numbered(i as u64)));
            assert!(*bytes == pattern(n, i as u64), "frame {i} of {n} bytes differs");
        }
        assert!(b.mock.begins > 0, "a megabyte goes straight to its place");
    }
}

#[test]
fn a_bye_makes_the_end_orderly() {
    let (mut a, la, mut b, lb) = pair("127.0.0.1", &Config::default());
    a.send(la, numbered(0), b"last words").expect("room");
    a.send(la, Frame::Bye, &[]).expect("room");
    // Bytes that arrive unread must not make the close destroy what was sent.
    b.send(lb, numbered(1), b"too late").expect("room");
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

/// Sends; false: full. What the rail has to copy is overwritten at once.
fn send(side: &mut Side, link: LinkId, way: &mut Way, len: usize, span: bool) -> bool {
    let bytes = pattern(len, way.count);
    let frame = numbered(way.count);
    let result = if span {
        let slot = side.mock.own(bytes.clone());
        side.send_span(link, frame, slot)
    } else {
        let mut copy = bytes.clone();
        let result = side.send(link, frame, &copy);
        copy.fill(0xdd);
        result
    };
    if result.is_ok() {
        way.payloads.push_back(bytes);
        way.count += 1;
    }
    result.is_ok()
}

/// Checks what has arrived.
fn check(side: &mut Side, way: &mut Way, arrived: &mut u64) {
    for (_, frame, bytes) in side.mock.frames.drain(..) {
        assert_eq!(frame, numbered(*arrived), "frames arrive in order");
        let want = way.payloads.pop_front().expect("nothing arrives that was not sent");
        assert!(bytes == want, "frame {arrived} of {} bytes differs", want.len());
        *arrived += 1;
    }
}

/// Tells the sender what came, where the rail says that it is time.
fn tell(receiver: &mut Side, sender: &mut Side, link: LinkId) {
    while let Some(Ack { received, .. }) = receiver.rail.take_ack() {
        assert!(sender.rail.acked(link, &received), "{received:?} came");
    }
}

/// What a link did not deliver is given back, frame by frame, as it was.
#[test]
fn what_was_not_delivered_comes_back() {
    for received in [0, 1, 17, 39, 40] {
        let (mut a, la, mut b, lb) = pair("127.0.0.1", &Config::default());
        let mut frames = Vec::new();
        for n in 0..40u64 {
            let bytes = pattern([0, 8, 4000, 9000, 70_000][n as usize % 5], n);
            let slot = (n % 3 == 0).then(|| a.mock.own(bytes.clone()));
            match slot {
                Some(slot) => a.send_span(la, numbered(n), slot).expect("room"),
                None => a.send(la, numbered(n), &bytes).expect("room"),
            }
            frames.push((numbered(n), bytes, slot));
            a.progress();
            b.progress();
        }
        until(&mut a, &mut b, "all", |_, b| b.mock.frames.len() == 40);
        assert!(a.rail.acked(la, &Acked::before(received / 2)) && !a.rail.acked(la, &Acked::before(41)));
        let mut gap = Acked::before(received / 2);
        assert!(gap.add(39) && !a.rail.acked(la, &gap), "nothing overtakes anything");
        assert_eq!(b.rail.retire(lb), Acked::before(40));
        a.rail.retire(la);
        let parcels = a.rail.reclaim(la, &Acked::before(received)).expect("so many were sent");
        assert_eq!(parcels.len() as u64, 40 - received);
        for (parcel, (frame, bytes, slot)) in parcels.iter().zip(&frames[received as usize..]) {
            let (header, copied) = parcel.bytes.split_at(parcel.header);
            assert_eq!(Frame::parse(header), Ok((*frame, bytes.len())));
            match parcel.span {
                Some(span) => {
                    let slot = slot.expect("only spans come back as such");
                    assert_eq!(span, Span { place: place(slot), offset: 0, len: bytes.len() });
                }
                None => assert_eq!(copied, bytes),
            }
        }
        assert!(a.rail.reclaim(la, &Acked::before(received + 1)).is_none(), "once");
    }
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
        tell(&mut a, &mut b, lb);
        tell(&mut b, &mut a, la);
    }
    until(&mut a, &mut b, "all frames", |a, b| {
        check(a, &mut left, &mut at_a);
        check(b, &mut right, &mut at_b);
        left.payloads.is_empty() && right.payloads.is_empty() && a.rail.idle(la) && b.rail.idle(lb)
    });
    assert!(a.mock.down.is_empty() && b.mock.down.is_empty());
    // whatever was told in between, both know how much came, and nothing is left to be sent again
    let [at_a, at_b] = [at_a, at_b].map(Acked::before);
    assert_eq!((a.rail.retire(la), b.rail.retire(lb)), (at_a.clone(), at_b.clone()));
    assert!(a.rail.reclaim(la, &at_b).is_some_and(|parcels| parcels.is_empty()));
    assert!(b.rail.reclaim(lb, &at_a).is_some_and(|parcels| parcels.is_empty()));
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
