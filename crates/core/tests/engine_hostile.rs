//! A peer that says anything at all: no panic, no overflow, nothing that is not its own is touched, and memory stays bounded.
mod engine_support;
mod frame_support;

use engine_support::fuzz::{KEY, WINDOW, any_stream, drain, victim};
use engine_support::{any_tag, any_untagged, assert_idle, cases, filter, join, mesh, message, pattern};
use frame_support::{frame, payload_near};
use polyrail_core::frame::{AtomicCode, AtomicKind, Frame, Matching, OpId, Order, RemoteAddr, Status};
use polyrail_core::proto::{
    Access, Config, Delivery, Message, PartSpec, PeerIdx, Region, RmaKind, Route, Scheme,
};
use polyrail_core::sim::{Bytes, Direct, Join, Node, What};
use proptest::collection::vec;
use proptest::prelude::*;

const LIAR: usize = 2;

/// A frame that an engine takes for the next one, if it is one with an order; sometimes it lies about that too.
fn in_turn(frame: Frame, next: &mut u32, lie: u8) -> Frame {
    let order = Order { seq: next.wrapping_add(u32::from(lie % 5) * u32::from(lie > 200)), credit: 0 };
    let mut frame = frame;
    match &mut frame {
        Frame::Eager { order: o, .. }
        | Frame::Rts { order: o, .. }
        | Frame::Put { order: o, .. }
        | Frame::PutRts { order: o, .. }
        | Frame::Get { order: o, .. }
        | Frame::Atomic { order: o, .. }
        | Frame::Am { order: o, .. } => {
            *o = if lie == 0 { *o } else { order };
            *next = next.wrapping_add(1);
        }
        _ => {}
    }
    frame
}

/// A list of memory that the liar claims to have.
fn region(len: usize, addrs: &[u64]) -> Bytes {
    let mut region = Region::default();
    for i in 0..len / 16 {
        region.push(addrs[i % addrs.len()], addrs[(i + 1) % addrs.len()]);
    }
    let mut bytes = [0; Region::MAX_BYTES];
    let len = region.encode(&mut bytes);
    Bytes::from(&bytes[..len])
}

fn payload(frame: &Frame, wish: usize, addrs: &[u64]) -> Bytes {
    let len = payload_near(frame, wish);
    match frame {
        Frame::Rts { .. } | Frame::Rtr { .. } | Frame::Get { .. } | Frame::PutRts { .. } => {
            region(len, addrs)
        }
        _ => Bytes::Real(vec![0xee; len]),
    }
}

#[derive(Clone, Debug)]
struct Lie {
    frame: Frame,
    wish: usize,
    addrs: Vec<u64>,
    /// Whether its payload comes later than its header, by this rail.
    split: Option<usize>,
    lie: u8,
}

fn lies(most: usize) -> impl Strategy<Value = Vec<Lie>> {
    let addr = prop_oneof![0..5000u64, (1u64 << 44)..(1 << 44) + 20_000, any::<u64>(), Just(u64::MAX)];
    let wish = prop_oneof![0..200usize, 0..5000usize];
    vec((frame(), wish, vec(addr, 1..4), prop::option::of(0..3usize), any::<u8>()), 0..most).prop_map(
        |lies| {
            let lie = |(frame, wish, addrs, split, lie)| Lie { frame, wish, addrs, split, lie };
            lies.into_iter().map(lie).collect()
        },
    )
}

/// Tells a node a lie, as a rail of the liar's link would: no other frame of that rail before the payload is there.
fn tell(node: &mut Node, lie: &Lie, next: &mut u32, open: &mut [Option<Bytes>; 3]) {
    let from = PeerIdx(LIAR as u32);
    let frame = in_turn(lie.frame, next, lie.lie);
    let payload = payload(&frame, lie.wish, &lie.addrs);
    assert!(Frame::parse(&frame.encode(payload.len() as usize)).is_ok(), "a lie that would never arrive");
    match lie.split {
        Some(rail) if !payload.is_empty() => {
            if let Some(before) = open[rail].take() {
                node.end(from, rail, before);
            }
            node.begin(from, rail, frame, payload.len() as usize);
            open[rail] = Some(payload);
        }
        _ => node.frame(from, &frame, payload),
    }
}

fn schemes() -> impl Strategy<Value = Scheme> {
    prop::sample::select(vec![Scheme::Get, Scheme::Put, Scheme::Fragments])
}

proptest! {
    #![proptest_config(cases(300))]

    /// Random frames in turn, at an engine that has sends, receives and one-sided operations for them to hit.
    #[test]
    fn whatever_a_peer_says_does_no_harm(scheme in schemes(), lies in lies(80), leave in 0..4usize) {
        let liar = PeerIdx(LIAR as u32);
        let mut node = victim(liar, scheme);
        let route = node.engine.route(liar);
        let (mut next, mut open) = (0, [const { None }; 3]);
        for lie in &lies {
            drain(&mut node, liar, leave);
            tell(&mut node, lie, &mut next, &mut open);
            node.settle();
        }
        drain(&mut node, liar, 1000);
        let most = node.most_stashed.values().copied().max().unwrap_or(0);
        prop_assert!(most <= u64::from(WINDOW) * 64, "{most} bytes stashed");
        // its end is an end
        node.engine.peer_down(liar);
        node.settle();
        let [sends, _, _, rmas, puts] = node.engine.in_flight();
        prop_assert_eq!([sends, rmas, puts], [0; 3]);
        node.engine.connected(liar, route);
        drain(&mut node, liar, 10);
    }

    /// The same as bytes of a stream, some of them changed.
    #[test]
    fn any_stream_does_no_harm(mode in any::<u8>(), lies in lies(40), changed in vec((0..1usize << 12, any::<u8>()), 0..3)) {
        let (mut stream, mut next) = (vec![mode], 0);
        for lie in &lies {
            let frame = in_turn(lie.frame, &mut next, lie.lie);
            let payload = payload(&frame, lie.wish, &lie.addrs);
            stream.extend_from_slice(&frame.encode(payload.len() as usize));
            stream.extend_from_slice(payload.real());
        }
        for (at, to) in changed {
            let at = at % stream.len();
            stream[at] = to;
        }
        any_stream(&stream);
    }

    /// Two honest nodes and a liar: what the honest ones say to each other is as if there were no liar.
    #[test]
    fn what_a_peer_says_touches_nobody_else(
        seed in any::<u64>(),
        scheme in schemes(),
        lies in lies(40),
        sizes in vec(prop_oneof![0..20u64, 90..110u64, 100..600u64], 1..15),
    ) {
        let direct = Direct::Sometimes(70);
        let mut world = mesh(seed, 3, &Join { direct, ..join(scheme) });
        for at in 0..2 {
            world.register(at, KEY, 0, pattern(at as u64, 4096), Access { read: true, write: true });
        }
        let mut ops = vec![];
        let (mut next, mut lies) = ([0; 2], lies.iter());
        world.deafen(LIAR);
        for (id, &len) in sizes.iter().enumerate() {
            let (from, to) = (id % 2, 1 - id % 2);
            let honest = filter(Some(from), 1000 + id as u64);
            let early = id % 3 == 0;
            if early {
                ops.push((to, world.recv(to, honest, len), id));
            }
            let delivery = [Delivery::Sent, Delivery::Delivered, Delivery::Matched][id % 3];
            let matching = Matching::Tag(1000 + id as u64);
            let sent = Message { matching, delivery, ..message(0) };
            world.send(from, to, sent, pattern(id as u64, len));
            for lie in lies.by_ref().take(3) {
                if !world.is_up(LIAR, to) {
                    world.join(LIAR, to, &join(scheme));
                    next[to] = 0;
                }
                let frame = in_turn(lie.frame, &mut next[to], lie.lie);
                let payload = payload(&frame, lie.wish, &lie.addrs);
                world.inject(LIAR, to, &frame, payload);
            }
            world.run_until(world.now() + 700);
            if !early {
                ops.push((to, world.recv(to, honest, len), id));
            }
        }
        world.run();
        for (at, op, id) in ops {
            let got = world.node(at).events.iter().find_map(|event| match &event.what {
                What::Received { op: of, bytes, result: Ok(()), .. } if *of == op => Some(bytes.clone()),
                _ => None,
            });
            prop_assert_eq!(got, Some(pattern(id as u64, sizes[id])), "message {}", id);
        }
        for at in 0..2 {
            let blamed: Vec<_> = world.node(at).broken.iter().filter(|(peer, _)| peer.0 != LIAR as u32).collect();
            prop_assert!(blamed.is_empty(), "{:?}", blamed);
            let sent = |what: &What| matches!(what, What::Sent { result: Ok(()), .. });
            let done = world.node(at).events.iter().filter(|event| sent(&event.what)).count();
            prop_assert_eq!(done, sizes.iter().enumerate().filter(|(id, _)| id % 2 == at).count());
            world.cut(at, LIAR);
        }
        world.run();
        // what came whole from the liar may still be received, and is all that is left
        for at in 0..2 {
            while world.peek(at, &any_tag()).is_some() {
                world.recv(at, any_tag(), 10);
            }
            while world.peek(at, &any_untagged()).is_some() {
                world.recv(at, any_untagged(), 10);
            }
            assert_idle(&world, at);
        }
    }
}

/// A send, a put and a fetching atomic that have not left, a receive, and their names.
fn reluctant() -> (Node, [OpId; 4]) {
    let mut node = Node::new(Config { window: WINDOW, hash_seed: 1 }, 2, false);
    let peer = PeerIdx(1);
    node.engine.connected(peer, Route { scheme: Scheme::Get, window: WINDOW, ..Route::default() });
    let send = node.engine.send(peer, Message { len: 10, ..message(1) });
    let recv = node.engine.new_recv(10);
    node.engine.post(recv, any_tag());
    // parts have names of their own; the first of each table is called the same
    node.engine.rma(peer, RmaKind::Put(None), &[PartSpec { at: AT, len: 10 }]);
    node.engine.rma(peer, RmaKind::Atomic { code: FETCH, operands: 8 }, &[PartSpec { at: AT, len: 8 }]);
    (node, [send, OpId { slot: 0, generation: 0 }, OpId { slot: 1, generation: 0 }, recv])
}

const AT: RemoteAddr = RemoteAddr { key: KEY, addr: 0 };
const FETCH: AtomicCode = AtomicCode { datatype: 7, op: 2, kind: AtomicKind::Fetch, count: 1 };

/// Frames that nobody honest sends now, and what is said of each.
#[test]
fn lies_are_named() {
    type Lie = fn([OpId; 4]) -> Frame;
    let (matching, data, len) = (Matching::Tag(1), None, 10);
    let early: [(Lie, &str); 12] = [
        (|[op, ..]| Frame::Ats { op, status: Status::Ok }, "it ended a message before it was sent"),
        (|[op, ..]| Frame::Ats { op, status: Status::Cancelled }, "it ended a message before it was sent"),
        (
            |[op, ..]| Frame::Rtr { op, to: op, len: 9, writable: false },
            "it was ready to receive what was not announced",
        ),
        (
            |[op, ..]| Frame::Rtr { op, to: op, len: 11, writable: false },
            "it asked for bytes of a message that it was not sent",
        ),
        (|[_, op, ..]| Frame::Ack { op, status: Status::Ok }, "it answered before it was asked"),
        (|[_, op, ..]| Frame::Ack { op, status: Status::Fault }, "it answered before it was asked"),
        (|[_, op, ..]| Frame::GetData { op, offset: 0 }, "it answered what was not asked"),
        (|[_, op, ..]| Frame::AtomicData { op }, "it answered what was not asked"),
        (|[.., op, _]| Frame::AtomicData { op }, "it answered what was not asked"),
        (|[.., to]| Frame::Frag { to, offset: 0 }, "a fragment belongs to no message of its own"),
        (|[.., to]| Frame::Atp { to, status: Status::Ok }, "it ended a message that it was not asked for"),
        (|_| Frame::Credit { credit: 1 }, "it returned credit that it never had"),
    ];
    for (lie, why) in early {
        let (mut node, names) = reluctant();
        let frame = lie(names);
        node.frame(PeerIdx(1), &frame, Bytes::Real(vec![1; payload_near(&frame, 1)]));
        assert_eq!(node.broken, [(PeerIdx(1), why)], "{frame:?}");
        // the same from a peer that has nothing to do with it
        let (mut node, names) = reluctant();
        node.engine.connected(PeerIdx(0), Route::default());
        node.frame(PeerIdx(0), &lie(names), Bytes::Real(vec![1; payload_near(&frame, 1)]));
        drain(&mut node, PeerIdx(1), 100);
        assert_eq!(node.events, [], "{frame:?} from a stranger ended something");
    }
    let order = |seq| Order { seq, credit: 0 };
    let begun: [(&[Frame], &str); 4] = [
        (
            &[
                Frame::Rts { order: order(0), matching, data, len, op: STRAY, readable: false },
                Frame::Atp { to: FIRST, status: Status::Ok },
            ],
            "it ended a message that it was not asked for",
        ),
        (
            &[
                Frame::Rts { order: order(0), matching, data, len, op: STRAY, readable: false },
                Frame::Frag { to: FIRST, offset: 10 },
            ],
            "a fragment lies outside its message",
        ),
        (
            &[
                Frame::Put { order: order(0), op: STRAY, to: AT, data, last: false },
                Frame::Put { order: order(1), op: FIRST, to: AT, data, last: true },
            ],
            "it began a put before the one before it had ended",
        ),
        (
            &[Frame::Am { order: order(4096), id: 1, header_len: 0 }],
            "a sequence number lies outside the window",
        ),
    ];
    for (frames, why) in begun {
        let (mut node, _) = reluctant();
        for frame in frames {
            node.frame(PeerIdx(1), frame, Bytes::Real(vec![1; payload_near(frame, 1)]));
        }
        assert_eq!(node.broken, [(PeerIdx(1), why)], "{frames:?}");
    }
}

const STRAY: OpId = OpId { slot: 77, generation: 0 };
const FIRST: OpId = OpId { slot: 0, generation: 0 };

/// Answers to operations that have ended may be late; nobody is blamed for them.
#[test]
fn late_answers_are_no_lies() {
    let (mut node, _) = reluctant();
    let (op, to, status) = (STRAY, STRAY, Status::Ok);
    let late = [
        Frame::Ats { op, status },
        Frame::Atp { to, status },
        Frame::Ack { op, status },
        Frame::Rtr { op, to, len: 1, writable: false },
        Frame::Frag { to, offset: 0 },
        Frame::GetData { op, offset: 0 },
        Frame::AtomicData { op },
    ];
    for frame in late {
        node.frame(PeerIdx(1), &frame, Bytes::Real(vec![1; payload_near(&frame, 1)]));
    }
    assert_eq!((node.broken, node.events), (vec![], vec![]));
}
