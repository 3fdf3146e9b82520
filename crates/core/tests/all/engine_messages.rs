//! Messages, case by case: which way they go, what their completion promises, and what becomes of them when links end.

use crate::engine_support::{
    RAIL, ROUTE, any_tag, any_untagged, assert_clean, assert_idle, filter, join, mesh, message,
};
use crate::engine_support::{pattern, untagged};
use polyrail_core::frame::Frame;
use polyrail_core::proto::{Access, Delivery, Failure, Message, PartSpec, PeerIdx, Route, Scheme};
use polyrail_core::sim::{Bytes, Direct, Join, RailSpec, Spread, Time, Trace, US, What, World};

const SCHEMES: [Scheme; 3] = [Scheme::Get, Scheme::Put, Scheme::Fragments];

/// When node `at` was told of the end of its sends, in order of their ends.
fn sent(world: &World, at: usize) -> Vec<(Time, Result<(), Failure>)> {
    let sent = |what: &What| match what {
        What::Sent { result, .. } => Some(*result),
        _ => None,
    };
    world.node(at).events.iter().filter_map(|event| Some((event.at, sent(&event.what)?))).collect()
}

/// How the messages that node 1 handled came: eagerly, or announced.
fn ways(world: &World) -> Vec<&'static str> {
    let way = |trace: &Trace| match trace {
        Trace::Handled(_, Frame::Eager { .. }) => Some("eager"),
        Trace::Handled(_, Frame::Rts { readable: true, .. }) => Some("readable"),
        Trace::Handled(_, Frame::Rts { .. }) => Some("announced"),
        _ => None,
    };
    world.node(1).trace.iter().filter_map(|(_, trace)| way(trace)).collect()
}

#[test]
fn length_credit_and_promise_decide_the_way() {
    let matched = Message { delivery: Delivery::Matched, ..message(1) };
    let cases = [
        (Scheme::Fragments, message(1), 100, "eager"),
        (Scheme::Fragments, message(1), 101, "announced"),
        (Scheme::Get, message(1), 101, "readable"),
        (Scheme::Put, message(1), 101, "announced"),
        (Scheme::Get, matched, 1, "readable"),
        (Scheme::Get, matched, 0, "announced"),
        (Scheme::Get, message(1), 0, "eager"),
    ];
    for (scheme, message, len, way) in cases {
        for posted in [true, false] {
            let mut world = mesh(1, 2, &join(scheme));
            world.send(0, 1, message, pattern(len, len));
            if !posted {
                world.run();
            }
            world.recv(1, any_tag(), 1000);
            world.run();
            assert_eq!(ways(&world), [way], "{scheme:?} {len} {message:?}");
            assert_eq!(world.received(1), [&pattern(len, len)]);
            assert_clean(&world, 2);
        }
    }
    // 64 units of credit: 21 messages of three units, and the rest is announced
    let mut world = mesh(1, 2, &join(Scheme::Fragments));
    (0..30).for_each(|id| {
        world.send(0, 1, message(id), pattern(id, 100));
    });
    world.run();
    assert_eq!(ways(&world), [vec!["eager"; 21], vec!["announced"; 9]].concat());
    (0..30).for_each(|id| {
        world.recv(1, filter(Some(0), id), 100);
    });
    world.run();
    assert_clean(&world, 2);
}

#[test]
fn over_a_far_path_long_messages_do_not_wait_and_leave_credit_for_short_ones() {
    // 64 units of credit: a message of 2000 bytes takes 33, and a quarter is to be left; then short ones have the rest
    let mut world = mesh(1, 2, &join(Scheme::Fragments));
    let to = PeerIdx(1);
    world.engine(0).set_far_eager(to, 2000);
    assert_eq!(world.engine(0).eager_max(to), 2000);
    for (id, len) in [2000, 2000, 2001, 100, 100].into_iter().enumerate() {
        world.send(0, 1, message(id as u64), pattern(id as u64, len));
    }
    world.run();
    assert_eq!(ways(&world), ["eager", "announced", "announced", "eager", "eager"]);
    (0..5).for_each(|id| {
        world.recv(1, filter(Some(0), id), 3000);
    });
    world.run();
    assert_clean(&world, 2);
    world.engine(0).set_far_eager(to, 0);
    assert_eq!(world.engine(0).eager_max(to), 100);
}

#[test]
fn messages_match_in_order_by_whichever_rails_they_come() {
    let slow = RailSpec { latency: 100 * US, ..RAIL };
    for scheme in SCHEMES {
        let mut world =
            mesh(1, 2, &Join { rails: vec![slow, RAIL, RAIL], spread: Spread::Turns, ..join(scheme) });
        for id in 0..12 {
            world.send(0, 1, message(1), pattern(id, if id % 3 == 2 { 500 } else { 20 }));
        }
        (0..12).for_each(|_| {
            world.recv(1, any_tag(), 500);
        });
        world.run();
        let received: std::collections::BTreeMap<_, _> = world
            .node(1)
            .events
            .iter()
            .filter_map(|event| match &event.what {
                What::Received { op, bytes, .. } => Some((op.slot, bytes.clone())),
                _ => None,
            })
            .collect();
        // receives were posted in the order of their names
        for (id, bytes) in received.into_values().enumerate() {
            assert_eq!(bytes, pattern(id as u64, if id % 3 == 2 { 500 } else { 20 }), "{scheme:?} {id}");
        }
        assert_clean(&world, 2);
    }
}

#[test]
fn a_completion_keeps_its_promise_and_waits_for_no_more() {
    let mut world = mesh(1, 2, &join(Scheme::Fragments));
    for delivery in [Delivery::Sent, Delivery::Soon, Delivery::Delivered, Delivery::Matched] {
        world.send(0, 1, Message { delivery, ..message(1) }, pattern(1, 50));
    }
    world.run_until(900);
    assert_eq!(sent(&world, 0).len(), 1, "sent: before it arrives");
    world.run_until(50 * US);
    assert_eq!(sent(&world, 0).len(), 3, "delivered: though nobody receives it");
    (0..4).for_each(|_| {
        world.recv(1, any_tag(), 50);
    });
    world.run();
    assert_eq!(sent(&world, 0).len(), 4);
    assert!(sent(&world, 0)[3].0 > 50 * US, "matched: once it is received");
    assert_clean(&world, 2);
}

#[test]
fn a_message_longer_than_its_receive_is_cut() {
    for scheme in SCHEMES {
        for (len, room) in [(90, 10), (90, 0), (500, 70), (500, 0)] {
            for unexpected in [false, true] {
                let mut world = mesh(1, 2, &join(scheme));
                if !unexpected {
                    world.recv(1, any_tag(), room);
                }
                world.send(0, 1, message(1), pattern(1, len));
                world.run();
                if unexpected {
                    world.recv(1, any_tag(), room);
                }
                world.run();
                let what = &world.node(1).events[0].what;
                let What::Received { envelope: Some(envelope), bytes, .. } = what else { panic!("{what:?}") };
                assert_eq!((envelope.len, Some(bytes.clone())), (len, pattern(1, len).slice(0, room)));
                assert_clean(&world, 2);
            }
        }
    }
}

#[test]
fn a_message_that_finds_no_room_is_received_when_it_has_left() {
    let slow = RailSpec { latency: 1, bandwidth: 1_000_000, ..RAIL };
    let mut world = mesh(1, 2, &Join { rails: vec![slow], ..join(Scheme::Fragments) });
    world.recv(1, any_tag(), 0);
    world.send(0, 1, Message { delivery: Delivery::Delivered, ..message(1) }, pattern(1, 90));
    world.run();
    assert_eq!(sent(&world, 0).len(), 1);
    assert_clean(&world, 2);
}

#[test]
fn one_buffer_takes_many_messages_until_it_is_full() {
    for scheme in SCHEMES {
        let mut world = mesh(1, 2, &join(scheme));
        world.send(0, 1, untagged(), pattern(0, 10));
        world.run();
        world.recv_multi(1, None, 400, 50);
        for (id, len) in [(1, 90), (2, 150), (3, 120), (4, 7)] {
            world.send(0, 1, untagged(), pattern(id, len));
        }
        world.run();
        let mut pieces: Vec<_> = world
            .node(1)
            .events
            .iter()
            .filter_map(|event| match &event.what {
                What::Received { bytes, offset, released, .. } => Some((*offset, bytes.clone(), *released)),
                _ => None,
            })
            .collect();
        assert_eq!(pieces.iter().map(|p| p.2).collect::<Vec<_>>(), [false, false, false, true]);
        pieces.sort_by_key(|piece| piece.0);
        let pieces: Vec<_> = pieces.into_iter().map(|(offset, bytes, _)| (offset, bytes)).collect();
        let expected =
            [(0, pattern(0, 10)), (10, pattern(1, 90)), (100, pattern(2, 150)), (250, pattern(3, 120))];
        assert_eq!(pieces, expected, "the last finds less than 50 bytes left");
        world.recv(1, any_untagged(), 7);
        world.run();
        assert_clean(&world, 2);
    }
    // just enough is enough
    let mut world = mesh(1, 2, &join(Scheme::Fragments));
    let buffer = world.recv_multi(1, None, 100, 50);
    world.send(0, 1, untagged(), pattern(0, 50));
    world.run();
    assert!(world.cancel(1, buffer));
}

#[test]
fn credit_travels_with_what_goes_back_anyway() {
    let mut world = mesh(1, 2, &join(Scheme::Fragments));
    for id in 0..40 {
        let (from, to) = (id as usize % 2, 1 - id as usize % 2);
        world.recv(to, any_tag(), 100);
        world.send(from, to, message(id), pattern(id, 100));
        world.run();
    }
    let frames = 20 * (24 + 100);
    assert_eq!(
        (world.carried(0, 1, 0), world.carried(1, 0, 0)),
        (frames, frames),
        "messages and nothing else"
    );
}

#[test]
fn what_is_taken_back_receives_nothing() {
    let mut world = mesh(1, 2, &join(Scheme::Get));
    let first = world.recv(1, any_tag(), 300);
    let second = world.recv(1, any_tag(), 300);
    assert!(world.cancel(1, first) && !world.cancel(1, first));
    world.send(0, 1, message(1), pattern(1, 300));
    world.run_until(RAIL.latency + 100);
    assert!(!world.cancel(1, second), "it has matched, though its bytes are still being read");
    world.run();
    assert_eq!(world.received(1), [&pattern(1, 300)]);
    assert_clean(&world, 2);
}

#[test]
fn a_shown_message_can_be_reserved() {
    for scheme in SCHEMES {
        for len in [0, 50, 500] {
            let mut world = mesh(1, 2, &join(scheme));
            for id in 0..3 {
                world.send(0, 1, message(1), pattern(id, len));
            }
            world.run();
            let (first, envelope) = world.claim(1, any_tag()).unwrap();
            let (second, _) = world.claim(1, any_tag()).unwrap();
            assert_eq!(envelope.len, len);
            world.recv(1, any_tag(), 500);
            world.run();
            world.recv_claimed(1, first, 500);
            world.discard(1, second);
            world.run();
            assert_eq!(world.received(1), [&pattern(2, len), &pattern(0, len)]);
            assert_clean(&world, 2);
        }
    }
}

#[test]
fn a_full_rail_stops_nothing_for_good() {
    let tiny = RailSpec { queue: 1, ..RAIL };
    for scheme in SCHEMES {
        let mut world = mesh(1, 2, &Join { rails: vec![tiny], ..join(scheme) });
        for id in 0..20 {
            let len = id * 30;
            world.send((id % 2) as usize, (1 - id % 2) as usize, message(id), pattern(id, len));
            world.recv((1 - id % 2) as usize, filter(None, id), len);
        }
        world.run();
        assert_eq!(world.received(0).len() + world.received(1).len(), 20);
        assert_clean(&world, 2);
    }
}

#[test]
fn what_is_sent_before_there_is_a_link_waits_for_it() {
    let mut world = World::new(1, 2, ROUTE.window);
    for id in 0..3 {
        world.send(0, 1, message(id), pattern(id, id * 100));
        world.recv(1, filter(Some(0), id), 1000);
    }
    world.run();
    assert_eq!((world.received(1).len(), sent(&world, 0).len()), (0, 0));
    world.join(0, 1, &join(Scheme::Put));
    world.run();
    assert_eq!(world.received(1).len(), 3);
    assert_clean(&world, 2);
}

#[test]
fn when_a_link_ends_all_that_needs_it_ends_and_the_rest_lives() {
    for scheme in SCHEMES {
        for cut in (0..6000).step_by(250) {
            let mut world = mesh(1, 3, &Join { notice: 300, ..join(scheme) });
            world.recv(1, filter(Some(0), 7), 10);
            world.recv_multi(1, Some(0), 1000, 1);
            for id in 0..4 {
                world.send(0, 1, message(id), pattern(id, 90 * id));
                world.recv(1, any_tag(), 1000);
            }
            world.send(2, 1, message(5), pattern(5, 300));
            world.run_until(cut);
            world.cut(0, 1);
            world.run();
            world.recv(1, any_tag(), 1000);
            world.run();
            let ends = sent(&world, 0);
            assert_eq!(ends.len(), 4, "{scheme:?} cut at {cut}");
            let gone = ends.iter().filter(|(_, end)| *end == Err(Failure::PeerGone)).count();
            assert!(gone > 0 || cut > 3000);
            assert!(world.received(1).contains(&&pattern(5, 300)), "the other link lives");
            // receives from anybody are still posted, those from the peer that is gone are not
            let left = world.node(1).engine.in_flight();
            assert_eq!((left[0], left[2..].iter().sum::<usize>()), (0, 0));
            assert_idle(&world, 0);
            let told = |what: &What| {
                matches!(what, What::Received { envelope: None, result: Err(Failure::PeerGone), .. })
            };
            assert_eq!(world.node(1).events.iter().filter(|event| told(&event.what)).count(), 2);
        }
    }
}

#[test]
fn lengths_beyond_32_bits_are_lengths() {
    const LEN: u64 = 5 << 30;
    for scheme in SCHEMES {
        for direct in [Direct::Granted, Direct::Refused] {
            let route =
                Route { eager_max: 1 << 16, fragment: 1 << 20, scheme, window: 4096, immediate: false };
            let rail = RailSpec { queue: 8 << 20, ..RailSpec::ETHERNET };
            let join = Join { route, rails: vec![rail; 2], direct, ..Join::default() };
            let mut world = World::counting(1, 2, 4096);
            world.join(0, 1, &join);
            world.register(1, 3, 0, Bytes::Counted(2 * LEN), Access { read: true, write: true });
            world.send(0, 1, message(1), Bytes::Counted(LEN + 1));
            world.recv(1, any_tag(), 2 * LEN);
            world.send(0, 1, message(2), Bytes::Counted(LEN));
            world.recv(1, filter(None, 2), LEN - 1);
            let at = |addr, len| PartSpec { at: polyrail_core::frame::RemoteAddr { key: 3, addr }, len };
            world.put(0, 1, &[at(LEN - 1, LEN), at(0, 1)], Bytes::Counted(LEN + 1), None);
            world.get(0, 1, &[at(1, LEN), at(LEN + 1, 5)]);
            world.run();
            let lens: Vec<u64> = world.received(1).iter().map(|bytes| bytes.len()).collect();
            assert!(lens.contains(&(LEN + 1)) && lens.contains(&(LEN - 1)), "{lens:?}");
            let done = |what: &What| matches!(what, What::Rma { result: Ok(()), .. });
            assert_eq!(world.node(0).events.iter().filter(|event| done(&event.what)).count(), 2);
            assert_clean(&world, 2);
        }
    }
}
