//! The simulator itself: it repeats itself, it is as fast as its rails, and faults happen when they are said to.

use crate::engine_support::{any_tag, assert_clean, join, mesh, message, pattern};
use crate::snapshot;
use polyrail_core::proto::{Access, Failure, PartSpec, Route, Scheme};
use polyrail_core::sim::{Bytes, Direct, Join, MS, RailSpec, S, Spread, Time, Trace, US, What, World};

/// A rail of so many megabits per second, 50 us long.
fn ethernet(mbits: u64) -> RailSpec {
    RailSpec { latency: 50 * US, bandwidth: mbits * 125_000, queue: 256 << 10, ..RailSpec::ETHERNET }
}

fn joined(rails: &[u64]) -> Join {
    let route = Route {
        eager_max: 64 << 10,
        fragment: 64 << 10,
        scheme: Scheme::Fragments,
        window: 1 << 15,
        immediate: false,
    };
    Join { route, rails: rails.iter().map(|mbits| ethernet(*mbits)).collect(), ..Join::default() }
}

/// How long a message takes from node 0 to node 1, received in full.
fn takes(join: &Join, len: u64) -> Time {
    let mut world = World::counting(1, 2, join.route.window);
    world.join(0, 1, join);
    world.send(0, 1, message(1), Bytes::Counted(len));
    world.recv(1, any_tag(), len);
    world.run();
    assert_clean(&world, 2);
    let received = |what: &What| matches!(what, What::Received { .. });
    world.node(1).events.iter().find(|event| received(&event.what)).unwrap().at
}

#[test]
fn the_same_seed_gives_the_same_world() {
    let run = |seed| -> (Time, Vec<(Time, Trace)>) {
        let rail = RailSpec { jitter: 20 * US, ..ethernet(1000) };
        let mut world = mesh(
            seed,
            2,
            &Join {
                rails: vec![rail; 3],
                spread: Spread::Random,
                direct: Direct::Sometimes(50),
                ..join(Scheme::Get)
            },
        );
        for id in 0..50 {
            world.send(0, 1, message(id % 3), pattern(id, id * 17));
            world.recv(1, any_tag(), 1000);
        }
        world.run();
        assert_clean(&world, 2);
        (world.now(), world.node(1).trace.clone())
    };
    assert_eq!(run(5), run(5));
    assert_ne!(run(5), run(6));
}

/// Megabytes per second of single messages, by what joins the peers. Rails pull fragments when they have room.
#[test]
fn goodput_is_as_pinned() {
    let beds: [(&str, &[u64]); 6] = [
        ("1000", &[1000]),
        ("2 x 1000", &[1000; 2]),
        ("4 x 1000", &[1000; 4]),
        ("1000 + 250", &[1000, 250]),
        ("3 x 1000 + 250", &[1000, 1000, 1000, 250]),
        ("10000 + 10", &[10_000, 10]),
    ];
    let lens = [64 << 10, 256 << 10, 1 << 20, 4 << 20, 64 << 20];
    let mut table =
        String::from("| rails, Mb/s | 64 KiB | 256 KiB | 1 MiB | 4 MiB | 64 MiB | sum of rates |\n");
    table += "|---|---|---|---|---|---|---|\n";
    for (name, rails) in beds {
        table += &format!("| {name} |");
        for len in lens {
            let ns = takes(&joined(rails), len);
            table += &format!(" {:.1} |", len as f64 * 1000.0 / ns as f64);
        }
        table += &format!(" {:.1} |\n", rails.iter().sum::<u64>() as f64 / 8.0);
    }
    snapshot::check("goodput.md", &table);
}

#[test]
fn time_is_what_the_rail_takes() {
    let rail = RailSpec { queue: 1 << 30, ..ethernet(1000) };
    let join = Join { rails: vec![rail], ..joined(&[]) };
    let len = 10_000;
    let frame = 24 + len; // an eager header is 24 bytes
    assert_eq!(takes(&join, len), rail.latency + frame * 8);
}

#[test]
fn plans_rates_and_faults_happen_when_they_are_said_to() {
    let len = 50_000_000;
    let plain = takes(&joined(&[1000]), len);
    let mut world = World::counting(1, 2, 1 << 15);
    world.join(0, 1, &joined(&[1000]));
    world.send(0, 1, message(1), Bytes::Counted(len));
    world.recv(1, any_tag(), len);
    world.at(plain / 2, |world| world.alter(0, 1, 0, |rail| rail.bandwidth /= 10));
    world.run();
    assert!(
        (plain * 5..plain * 6).contains(&world.now()),
        "half at a tenth of the rate: {} {plain}",
        world.now()
    );
    assert_clean(&world, 2);

    let mut world = World::counting(1, 2, 1 << 15);
    world.join(0, 1, &Join { notice: 30 * MS, ..joined(&[1000, 1000]) });
    world.send(0, 1, message(1), Bytes::Counted(len));
    world.recv(1, any_tag(), len);
    world.at(S / 10, |world| world.cut(0, 1));
    world.run();
    let end = |at: usize| {
        let gone = |what: &What| match *what {
            What::Sent { result, .. } | What::Received { result, .. } => result == Err(Failure::PeerGone),
            _ => false,
        };
        world.node(at).events.iter().find(|event| gone(&event.what)).map(|event| event.at)
    };
    assert_eq!((end(0), end(1)), (Some(S / 10), Some(S / 10 + 30 * MS)));
    assert!(world.carried(0, 1, 0) > 10_000_000 && world.carried(0, 1, 1) > 10_000_000);
}

#[test]
fn direct_access_takes_its_time_and_may_be_refused() {
    let timed = |direct| {
        let direct_bandwidth = 1_000_000_000;
        let mut world = mesh(1, 2, &Join { direct, direct_call: 500, direct_bandwidth, ..join(Scheme::Get) });
        world.register(1, 1, 0, pattern(1, 900), Access { read: true, write: true });
        world.get(0, 1, &[PartSpec { at: polyrail_core::frame::RemoteAddr { key: 1, addr: 0 }, len: 900 }]);
        world.run();
        assert_clean(&world, 2);
        let What::Rma { bytes, result: Ok(()), .. } = &world.node(0).events[0].what else { panic!() };
        assert_eq!(*bytes, pattern(1, 900));
        world.now()
    };
    // GET with its list of one range, the access, ACK: each frame 1 us on its way
    assert_eq!(timed(Direct::Granted), (1000 + 48 + 24) + (500 + 900) + (1000 + 24));
    assert!(timed(Direct::Refused) > timed(Direct::Granted) + 2000);
}
