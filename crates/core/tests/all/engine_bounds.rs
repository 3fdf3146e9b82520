//! What waits for a peer has bounds: honest engines keep to them and get on, liars are cut; and a region that ends, or whose key
//! is used again, is out of reach.

use crate::engine_support::fuzz::{KEY, WINDOW, drain, victim};
use crate::engine_support::{RAIL, any_tag, assert_clean, filter, join, mesh, message, pattern};
use polyrail_core::frame::{AtomicCode, AtomicKind, Frame, Matching, OpId, Order, RemoteAddr, Status};
use polyrail_core::proto::{
    Access, Bounds, Config, Delivery, Failure, Message, PartSpec, PeerIdx, Route, Scheme,
};
use polyrail_core::sim::{Bytes, Join, Node, RailSpec, What, World};

const FEW: Bounds = Bounds { requests: 3, values: 20, announced: 1 << 20 };
const SCHEMES: [Scheme; 3] = [Scheme::Get, Scheme::Put, Scheme::Fragments];

fn part(addr: u64, len: u64) -> PartSpec {
    PartSpec { at: RemoteAddr { key: KEY, addr }, len }
}

fn bounded(join: &Join, nodes: usize) -> World {
    let mut world = mesh(1, nodes, join);
    world.bound(FEW);
    for at in 0..nodes {
        world.register(at, KEY, 0, pattern(9, 4096), Access { read: true, write: true });
    }
    world
}

fn results(world: &World, at: usize) -> Vec<Result<(), Failure>> {
    let result = |what: &What| match *what {
        What::Rma { result, .. } | What::Sent { result, .. } => Some(result),
        _ => None,
    };
    world.node(at).events.iter().filter_map(|event| result(&event.what)).collect()
}

/// Everybody asks everybody (itself, too) for far more than may be outstanding, at once, over rails that hold a frame or two.
#[test]
fn who_has_more_to_ask_than_it_may_gets_it_all_though_everybody_does_so_at_once() {
    const EACH: u64 = 60;
    for scheme in SCHEMES {
        let rails = vec![RailSpec { latency: 1, queue: 1, ..RAIL }];
        let mut world = bounded(&Join { rails, ..join(scheme) }, 2);
        for round in 0..EACH {
            for (from, to) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
                world.put(from, to, &[part(0, 8), part(100, 300)], pattern(round, 308), Some(round));
                world.get(from, to, &[part(0, 200), part(0, 1)]);
                for kind in [AtomicKind::Update, AtomicKind::Fetch] {
                    world.atomic(from, to, RemoteAddr { key: KEY, addr: 0 }, kind, &[1]);
                }
                let message = Message { delivery: Delivery::Delivered, ..message(round) };
                world.send(from, to, message, pattern(round, 20));
                world.recv(to, any_tag(), 20);
            }
        }
        let (mut most, mut values) = (0, 0);
        while world.step() {
            for (at, peer) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
                let owed = world.node(at).engine.owed(PeerIdx(peer));
                (most, values) = (owed.requests.max(most), owed.values.max(values));
            }
        }
        assert!(
            most <= FEW.requests && (1..=FEW.values).contains(&values),
            "{most} requests, {values} bytes"
        );
        for at in 0..2 {
            assert_eq!(results(&world, at), vec![Ok(()); 2 * 5 * EACH as usize], "{scheme:?}");
        }
        assert_clean(&world, 2);
    }
}

/// One request of each kind from a peer.
fn requests(n: u32) -> [(Frame, Bytes); 6] {
    let order = Order { seq: n, credit: 0 };
    let (op, at) = (OpId { slot: n, generation: 0 }, RemoteAddr { key: KEY, addr: 0 });
    let code = AtomicCode { datatype: 7, op: 2, kind: AtomicKind::Fetch, count: 1 };
    let update = AtomicCode { kind: AtomicKind::Update, ..code };
    let bytes = |len| Bytes::Real(vec![1; len]);
    let list = Bytes::Real([1, 1u64 << 44, 100].iter().flat_map(|word| word.to_le_bytes()).collect());
    let matching = Matching::Message;
    [
        (Frame::Put { order, op, to: at, data: None, last: true }, bytes(8)),
        (Frame::PutRts { order, op, to: at, len: 100 }, list),
        (Frame::Get { order, op, from: at, len: 4000, writable: false }, bytes(0)),
        (Frame::Atomic { order, op, at, code }, bytes(8)),
        (Frame::Atomic { order, op, at, code: update }, bytes(8)),
        // the victim's buffer for any number of messages takes those without bytes for ever
        (Frame::Eager { order, matching, data: None, ack: Some(op) }, bytes(0)),
    ]
}

#[test]
fn who_asks_and_takes_no_answers_is_cut_at_the_bound() {
    let (liar, why) =
        (PeerIdx(2), "it asked for more than it may have outstanding, and did not take the answers");
    for kind in 0..6 {
        for (requests_max, values) in [(10, 1 << 20), (1 << 20, 40)] {
            let mut node = victim(liar, Scheme::Fragments);
            node.engine.bound(Bounds { requests: requests_max, values, announced: 10 });
            drain(&mut node, liar, 1000);
            let taken = (0..100)
                .take_while(|n| {
                    let (frame, payload) = requests(*n)[kind].clone();
                    node.frame(liar, &frame, payload);
                    node.settle();
                    node.broken.is_empty()
                })
                .count();
            // 8 bytes each: the request after the sixth comes when the sixth is known to be too much
            let expected = match (requests_max, kind) {
                (10, _) => 10,
                (_, 3) => 6,
                _ => 100,
            };
            assert_eq!(taken, expected, "{kind}");
            assert_eq!(node.broken, vec![(liar, why); usize::from(taken < 100)], "{kind}");
            assert!(node.engine.queued(liar) <= taken + 1, "{kind}: {} wait", node.engine.queued(liar));
        }
    }
}

#[test]
fn who_takes_its_answers_may_ask_for_ever() {
    let liar = PeerIdx(2);
    let mut node = victim(liar, Scheme::Fragments);
    node.engine.bound(Bounds { requests: 1, values: 8, announced: 1 });
    drain(&mut node, liar, 1000);
    for n in 0..600 {
        let (frame, payload) = requests(n)[n as usize % 6].clone();
        node.frame(liar, &frame, payload);
        node.settle();
        node.end_jobs(true);
        assert_eq!(node.broken, [], "{n}");
        drain(&mut node, liar, 1000);
    }
}

/// A thousand long messages that no receive takes do not hold back the one behind them that a receive waits for.
#[test]
fn announced_messages_are_not_held_back() {
    for scheme in SCHEMES {
        let mut world = bounded(&join(scheme), 2);
        world.bound(Bounds { announced: 1001, ..FEW });
        const LEN: u64 = 20_000;
        let long = Message { delivery: Delivery::Matched, ..message(1) };
        for id in 0..1000 {
            world.send(0, 1, long, pattern(id, LEN));
        }
        world.send(0, 1, message(2), pattern(7, LEN));
        let wanted = world.recv(1, filter(None, 2), LEN);
        world.run();
        let got = |what: &What| matches!(what, What::Received { op, result: Ok(()), .. } if *op == wanted);
        assert!(world.node(1).events.iter().any(|event| got(&event.what)), "{scheme:?}");
        assert_eq!(world.node(1).engine.owed(PeerIdx(0)).announced, 1000);
        for _ in 0..1000 {
            world.recv(1, any_tag(), LEN);
        }
        world.run();
        assert_clean(&world, 2);
    }
}

#[test]
fn who_announces_beyond_the_bound_is_cut_with_the_setting_named() {
    let liar = PeerIdx(2);
    let mut node = victim(liar, Scheme::Fragments);
    node.engine.bound(Bounds { announced: 5, ..Bounds::DEFAULT });
    drain(&mut node, liar, 1000);
    // some match, and their answers are not taken: they count as well
    for n in 0..6 {
        let (order, matching) = (Order { seq: n, credit: 0 }, Matching::Tag(n.into()));
        let op = OpId { slot: n, generation: 0 };
        assert_eq!(node.broken, [], "{n}");
        let rts = Frame::Rts { order, matching, data: None, len: 1000, op, readable: false };
        node.frame(liar, &rts, Bytes::Counted(0));
    }
    assert!(matches!(node.broken[..], [(_, why)] if why.contains("POLYRAIL_ANNOUNCED")), "{:?}", node.broken);
}

/// Of what is told again and again only the latest is kept, however long the peer reads nothing.
#[test]
fn totals_do_not_gather() {
    let (peer, config) = (PeerIdx(0), Config { window: WINDOW, hash_seed: 1, bounds: FEW });
    let mut node = Node::new(config, 1, false);
    node.engine.connected(peer, Route::default());
    for n in 0..1000 {
        node.engine.say(peer, Frame::Got { lane: 3, received: n });
        node.engine.say(peer, Frame::Got { lane: 4, received: 2 * n });
        node.engine.say(peer, Frame::Seen { seq: n as u32 });
    }
    let (order, matching) = (|seq| Order { seq, credit: 0 }, Matching::Tag(1));
    for seq in 0..1000 {
        let ticket = node.ticket(100, 1);
        node.engine.post(any_tag(), ticket);
        let eager = Frame::Eager { order: order(seq), matching, data: None, ack: None };
        node.frame(peer, &eager, Bytes::Real(vec![1; 100]));
        node.settle();
    }
    assert_eq!(node.engine.queued(peer), 4);
    // told while a rail takes it: the later total is still to be said
    let next = node.engine.poll_transmit(peer, 0).expect("a note");
    node.engine.say(peer, Frame::Got { lane: 3, received: 1000 });
    node.engine.transmitted(peer, &next);
    let told = drain(&mut node, peer, 10);
    let expected = [
        Frame::Got { lane: 3, received: 1000 },
        Frame::Got { lane: 4, received: 1998 },
        Frame::Seen { seq: 999 },
    ];
    assert_eq!(told[..3], expected);
    let [Frame::Credit { credit }] = told[3..] else { panic!("{told:?}") };
    assert!(credit <= 3000 && credit > 3000 - WINDOW / 4, "{credit}");
}

/// Where the bytes of a put are on their way, its region is closed, and its key given to other memory: whatever is said of the
/// put, that memory is untouched, and a put that is said to be done is done.
#[test]
fn what_is_put_into_a_region_that_is_closed_meanwhile_goes_nowhere_else() {
    // the last frame is as long as the others: it, too, has a beginning and an end
    const LEN: u64 = 64 * 14;
    for scheme in SCHEMES {
        let (mut done, mut refused) = (0, 0);
        for at in (0..6000).step_by(50) {
            for write in [false, true] {
                let mut world = bounded(&Join { direct_call: 2000, ..join(scheme) }, 2);
                world.put(0, 1, &[part(0, LEN)], pattern(2, LEN), Some(1));
                world.run_until(at);
                let before = world.deregister(1, KEY).expect("the region").slice(0, LEN);
                world.register(1, KEY, 0, Bytes::Real(vec![0; 4096]), Access { read: true, write });
                let ended = results(&world, 0);
                world.run();
                let now = world.node(1).read_region(KEY, 0, LEN);
                let untouched = now == Some(Bytes::Real(vec![0; LEN as usize]));
                let told = |what: &What| matches!(what, What::Remote { data: Some(1), .. });
                let told = world.node(1).events.iter().any(|event| told(&event.what));
                match results(&world, 0)[..] {
                    // done before, or begun after
                    [Ok(())] => {
                        done += 1;
                        assert!(told && (before == Some(pattern(2, LEN)) || now == Some(pattern(2, LEN))));
                    }
                    [Err(Failure::Refused(Status::Access))] => {
                        refused += 1;
                        assert!(untouched && !told && ended.is_empty(), "{scheme:?} at {at}");
                    }
                    ref other => panic!("{scheme:?} at {at}: {other:?}"),
                }
                assert!(untouched || write, "{scheme:?} at {at}");
            }
        }
        assert!(done > 2 && refused > 2, "{scheme:?}: {done} {refused}");
    }
}

/// The same of a get: it brings bytes of the region that it found, or an error.
#[test]
fn what_is_got_comes_from_one_registration() {
    const LEN: u64 = 900;
    for scheme in SCHEMES {
        let mut refused = 0;
        for at in (0..6000).step_by(50) {
            // rails that copy: what they read from memory later, of a region that is closed, is zeros
            let rails = vec![RailSpec { keeps: false, ..RAIL }];
            let mut world = bounded(&Join { rails, direct_call: 2000, ..join(scheme) }, 2);
            world.get(0, 1, &[part(0, LEN)]);
            world.run_until(at);
            world.deregister(1, KEY);
            world.register(1, KEY, 0, pattern(5, 4096), Access { read: true, write: true });
            world.run();
            let (old, new) = (pattern(9, 4096).slice(0, LEN), pattern(5, 4096).slice(0, LEN));
            for event in &world.node(0).events {
                let What::Rma { ref bytes, result, .. } = event.what else { continue };
                let whole = Some(bytes.clone()) == old || Some(bytes.clone()) == new;
                assert!(whole || result == Err(Failure::Refused(Status::Access)), "{scheme:?} at {at}");
                refused += u32::from(result.is_err());
            }
        }
        assert!(refused > 2 || scheme != Scheme::Fragments, "{refused}");
    }
}
