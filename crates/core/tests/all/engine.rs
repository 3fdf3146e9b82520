//! What an engine does, case by case: two or three peers on a simulated network.

use crate::engine_support::{RAIL, any_tag, assert_clean, join, mesh, message, pattern};
use polyrail_core::frame::{AtomicCode, AtomicKind, Frame, MAX_PAYLOAD, OpId, RemoteAddr, Status};
use polyrail_core::proto::{Access, Failure, Operation, Out, PartSpec, PeerIdx, RmaKind, Route, Scheme};
use polyrail_core::sim::{Bytes, Direct, Join, RailSpec, Spread, Trace, What, World};

const KEY: u64 = 7;

/// A world in which node 1 has 1000 bytes that others may read and write.
fn with_region(join: &Join) -> World {
    let mut world = mesh(1, 2, join);
    world.register(1, KEY, 0, pattern(1, 1000), Access { read: true, write: true });
    world
}

fn at(addr: u64, len: u64) -> PartSpec {
    PartSpec { at: RemoteAddr { key: KEY, addr }, len }
}

fn region(world: &World, addr: u64, len: usize) -> Bytes {
    world.node(1).read_region(KEY, addr, len as u64).unwrap()
}

/// What node 0 was told of its one-sided operations.
fn ended(world: &World) -> Vec<Result<Bytes, Failure>> {
    let ended = |what: &What| match what {
        What::Rma { bytes, result, .. } => Some(result.map(|()| bytes.clone())),
        _ => None,
    };
    world.node(0).events.iter().filter_map(|event| ended(&event.what)).collect()
}

#[test]
fn several_puts_and_gets_that_cannot_go_directly_are_carried() {
    for scheme in [Scheme::Get, Scheme::Put] {
        let mut world = with_region(&Join { direct: Direct::Refused, ..join(scheme) });
        for i in 0..3 {
            world.put(0, 1, &[at(i * 150, 150)], pattern(10 + i, 150), None);
        }
        world.get(0, 1, &[at(500, 150), at(700, 150)]);
        world.run();
        assert_eq!(ended(&world).iter().filter(|end| end.is_ok()).count(), 4, "{:?}", ended(&world));
        for i in 0..3 {
            assert_eq!(region(&world, i * 150, 150), pattern(10 + i, 150));
        }
        let got = [region(&world, 500, 150).real(), region(&world, 700, 150).real()].concat();
        assert!(ended(&world).contains(&Ok(Bytes::Real(got))));
        assert_clean(&world, 2);
    }
}

#[test]
fn what_is_in_too_many_pieces_to_list_is_carried() {
    for scheme in [Scheme::Get, Scheme::Put] {
        let mut world = with_region(&join(scheme));
        world.rma(0, 1, RmaKind::Put(None), &[at(0, 200)], pattern(2, 200), 9);
        world.rma(0, 1, RmaKind::Get, &[at(300, 200)], pattern(3, 200), 9);
        world.send_in_pieces(0, 1, message(5), pattern(4, 300), 9);
        world.recv_in_pieces(1, any_tag(), 300, 9);
        world.run();
        assert_eq!(region(&world, 0, 200), pattern(2, 200));
        assert!(ended(&world).contains(&Ok(region(&world, 300, 200))));
        assert_eq!(world.received(1), [&pattern(4, 300)]);
        assert_clean(&world, 2);
    }
}

/// A short way and a long one: what leaves second arrives first.
fn unequal(scheme: Scheme) -> Join {
    let slow = RailSpec { latency: 50_000, bandwidth: 1_000_000, ..RAIL };
    Join { rails: vec![slow, RAIL], spread: Spread::Turns, ..join(scheme) }
}

/// What node 1 was told that others did to its region: bytes, data, whether it was written.
fn remote(world: &World) -> Vec<(u64, Option<u64>, bool)> {
    let remote = |what: &What| match *what {
        What::Remote { len, data, write, key: KEY, .. } => Some((len, data, write)),
        _ => None,
    };
    world.node(1).events.iter().filter_map(|event| remote(&event.what)).collect()
}

#[test]
fn a_put_is_acknowledged_when_all_of_it_is_there() {
    let mut world = with_region(&unequal(Scheme::Fragments));
    world.put(0, 1, &[at(100, 250)], pattern(2, 250), None);
    while ended(&world).is_empty() {
        assert!(world.step());
    }
    assert_eq!(region(&world, 100, 250), pattern(2, 250));
    assert_eq!(remote(&world), [(250, None, true)]);
    world.run();
    assert_clean(&world, 2);
}

#[test]
fn immediate_data_comes_after_all_that_was_put_before_it() {
    for scheme in [Scheme::Fragments, Scheme::Get] {
        let mut world = with_region(&Join { direct_call: 1_000_000, ..unequal(scheme) });
        world.put(0, 1, &[at(0, 250), at(300, 200)], pattern(2, 450), None);
        world.put(0, 1, &[at(600, 0)], pattern(3, 0), Some(5));
        while !remote(&world).iter().any(|(_, data, _)| *data == Some(5)) {
            assert!(world.step());
        }
        let there = [region(&world, 0, 250).real(), region(&world, 300, 200).real()].concat();
        assert_eq!(Bytes::Real(there), pattern(2, 450));
        world.run();
        assert_clean(&world, 2);
    }
}

#[test]
fn the_target_is_told_how_much_was_read_once_it_was() {
    for scheme in [Scheme::Fragments, Scheme::Get] {
        let mut world = with_region(&join(scheme));
        world.get(0, 1, &[at(0, 900)]);
        world.run_until(RAIL.latency + 50);
        assert_eq!(remote(&world), []);
        world.run();
        assert_eq!(remote(&world), [(900, None, false)]);
        assert_clean(&world, 2);
    }
}

#[test]
fn a_region_that_goes_away_in_the_middle_of_a_get_is_an_error_not_zeros() {
    let mut world = with_region(&join(Scheme::Fragments));
    world.get(0, 1, &[at(0, 1000)]);
    world.at(RAIL.latency + 400, |world| drop(world.deregister(1, KEY)));
    world.run();
    assert_eq!(ended(&world), [Err(Failure::Refused(Status::Access))]);
    assert_eq!(remote(&world), []);
}

#[test]
fn what_is_still_being_read_or_written_for_a_peer_that_is_gone_is_answered_to_nobody() {
    for put in [true, false] {
        let mut world = with_region(&Join { direct_call: 1_000_000, ..join(Scheme::Get) });
        if put {
            world.put(0, 1, &[at(0, 200)], pattern(2, 200), None);
        } else {
            world.get(0, 1, &[at(0, 200)]);
        }
        world.run_until(500_000);
        world.cut(0, 1);
        world.run();
        assert_eq!(ended(&world), [Err(Failure::PeerGone)]);
        assert_eq!(remote(&world), []);
        assert_clean(&world, 2);
    }
}

/// Peers that read are helped by their sender, each with its own message only.
#[test]
fn who_was_told_of_a_send_and_nobody_else_is_to_read_it_and_until_it_has() {
    let mut world = mesh(1, 3, &Join { direct_call: 1_000_000, ..join(Scheme::Get) });
    let send = world.send(0, 1, message(5), pattern(4, 300));
    world.recv(1, any_tag(), 300);
    world.run_until(500_000);
    let names = (0..3).filter_map(|generation| world.engine(1).announced(OpId { slot: 0, generation }));
    assert_eq!(names.collect::<Vec<_>>(), [send]);
    let reads = |world: &mut World| [1, 2].map(|peer| world.engine(0).is_read_by(PeerIdx(peer), send));
    assert_eq!(reads(&mut world), [true, false]);
    world.run();
    assert_eq!(reads(&mut world), [false, false]);
    assert_eq!(world.received(1), [&pattern(4, 300)]);
    assert_clean(&world, 3);
}

#[test]
fn more_values_than_a_frame_holds_are_not_returned() {
    let mut world = with_region(&join(Scheme::Fragments));
    let code = AtomicCode { datatype: 7, op: 2, kind: AtomicKind::Fetch, count: 1 << 20 };
    let op = OpId { slot: 3, generation: 4 };
    let operation = Operation { key: KEY, addr: 0, code, op };
    let engine = world.engine(1);
    assert_eq!(engine.operated(PeerIdx(0), &operation, Ok(MAX_PAYLOAD + 1)), None);
    let next = engine.poll_transmit(PeerIdx(0), usize::MAX).unwrap();
    assert_eq!((next.frame, next.payload), (Frame::Ack { op, status: Status::Unsupported }, Out::Nothing));
}

#[test]
fn credit_comes_back_though_nothing_else_goes_that_way() {
    let mut world = mesh(1, 2, &join(Scheme::Fragments));
    (0..40).for_each(|_| {
        world.recv(1, any_tag(), 100);
    });
    for id in 0..40 {
        world.send(0, 1, message(id), pattern(id, 100));
        world.run();
    }
    // the window holds 21 such messages: without credit returned the rest would be announced instead
    let eager = |trace: &&(u64, Trace)| matches!(trace.1, Trace::Handled(_, Frame::Eager { .. }));
    assert_eq!(world.node(1).trace.iter().filter(eager).count(), 40);
    assert_clean(&world, 2);
}

#[test]
fn what_an_earlier_session_left_behind_returns_no_credit_to_the_next() {
    let join = join(Scheme::Fragments);
    let mut world = mesh(1, 2, &join);
    (0..10).for_each(|id| {
        world.send(0, 1, message(id), pattern(id, 90));
    });
    world.run();
    world.join(0, 1, &join);
    for id in 0..10 {
        world.recv(1, any_tag(), 100);
        world.send(1, 0, message(id), pattern(id, 9));
        world.run();
        world.recv(0, any_tag(), 100);
        world.run();
    }
    assert_eq!(world.received(1).len(), 10, "whole messages outlive their session");
    assert_clean(&world, 2);
}

#[test]
fn a_peer_that_comes_and_goes_fills_no_more_memory() {
    let join = join(Scheme::Fragments);
    let mut world = mesh(1, 2, &join);
    for session in 0..10 {
        (0..21).for_each(|id| {
            world.send(0, 1, message(1), pattern(100 * session + id, 100));
        });
        world.run();
        world.join(0, 1, &join);
    }
    world.run();
    assert_eq!(world.node(1).unfinished()[2], 21);
    (0..21).for_each(|_| {
        world.recv(1, any_tag(), 100);
    });
    world.run();
    let oldest: Vec<_> = (0..21).map(|id| pattern(id, 100)).collect();
    assert_eq!(world.received(1), oldest.iter().collect::<Vec<_>>());
    assert_clean(&world, 2);
}

#[test]
fn who_sends_more_than_it_has_credit_for_is_cut_off() {
    for held in [false, true] {
        let mut world = World::new(1, 2, 10);
        world.join(
            0,
            1,
            &Join { route: Route { window: 20, ..join(Scheme::Fragments).route }, ..Join::default() },
        );
        if held {
            // nothing is in its turn until this one comes, which never left
            world
                .engine(0)
                .try_eager(PeerIdx(1), 0, polyrail_core::proto::Delivery::Sent)
                .expect("nothing waits")
                .sent();
        }
        (0..5).for_each(|id| assert!(world.send_now(0, 1, message(id), &pattern(id, 100))));
        world.run();
        assert_eq!(world.node(1).broken, [(PeerIdx(0), "it sent more than it had credit for")]);
        assert_eq!(world.node(1).most_stashed.get(&PeerIdx(0)), if held { None } else { Some(&300) });
        let down = |at: usize| matches!(world.node(at).events.last().unwrap().what, What::Down { .. });
        assert!(down(0) && down(1));
    }
}

#[test]
fn a_frame_held_for_one_session_is_not_handled_in_the_next() {
    let join = unequal(Scheme::Fragments);
    let mut world = mesh(1, 2, &join);
    // the first goes the long way, the second is held, and the link ends just when the first arrives
    for id in 0..2 {
        world.send(0, 1, message(id), pattern(id, 10));
    }
    world.run_until(join.rails[0].latency);
    world.join(0, 1, &join);
    world.send(0, 1, message(9), pattern(9, 10));
    world.recv(1, any_tag(), 100);
    world.run();
    assert_eq!(world.received(1), [&pattern(9, 10)]);
    assert_clean(&world, 2);
}
