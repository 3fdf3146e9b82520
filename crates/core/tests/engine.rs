//! What an engine does, case by case: two or three peers on a simulated network.
mod engine_support;

use engine_support::{RAIL, ROUTE, assert_clean, join, mesh, pattern};
use polyrail_core::frame::RemoteAddr;
use polyrail_core::proto::{Access, Failure, PartSpec, Place, RmaKind, Route, Scheme, Span};
use polyrail_core::sim::{Bytes, Direct, Join, What, World};

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
    world.node(1).memory.read(Span { place: Place::Region(KEY), offset: addr, len }).unwrap()
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
        world.send_in_pieces(0, 1, engine_support::message(5), pattern(4, 300), 9);
        world.recv_in_pieces(1, engine_support::any_tag(), 300, 9);
        world.run();
        assert_eq!(region(&world, 0, 200), pattern(2, 200));
        assert!(ended(&world).contains(&Ok(region(&world, 300, 200))));
        assert_eq!(world.received(1), [&pattern(4, 300)]);
        assert_clean(&world, 2);
    }
}
