//! Lanes of several transports in one session: where they may be, how they are asked for, and what answers mean that come too late.

use crate::session_support::Idle;
use polyrail_core::frame::{Acked, Frame};
use polyrail_core::proto::{self, Bounds, PeerIdx, Route, Scheme};
use polyrail_core::session::{Action, Arrival, Config, Over, Pins, Planner, Session, ToPeer, Told, Way};
use polyrail_core::sim::Engine;
use polyrail_core::wire::offer::{Interface, InterfaceFlags, InterfaceName, Net};
use polyrail_core::wire::{SessionId, Transport};

fn interface(index: u32, ip: &str) -> Interface {
    Interface {
        index,
        speed: 1000,
        flags: InterfaceFlags(0),
        name: InterfaceName::new(&format!("net{index}")).expect("a name"),
        nets: vec![Net::new(ip.parse().expect("an IP"), 24).expect("a net")],
    }
}

/// Two networks, two transports between their interfaces, and one with two places of its own.
fn planner(most: usize) -> Planner {
    Planner {
        near: [interface(1, "10.0.1.1"), interface(2, "10.0.2.1")].into(),
        far: [interface(1, "10.0.1.2"), interface(2, "10.0.2.2")].into(),
        most,
        between: vec![Transport::TCP, Transport::UDP],
        places: vec![(Transport::TRIAL, 2, 400)],
    }
}

fn shown(ways: &[Way]) -> Vec<String> {
    let over = |way: &Way| match way.over {
        Over::Pair(pair) => format!("{} {}-{}", way.transport, pair.near.0, pair.far.0),
        Over::Place(number, speed) => format!("{} {number} at {speed}", way.transport),
    };
    ways.iter().map(over).collect()
}

#[test]
fn each_transport_has_its_ways_and_those_tried_in_vain_count_for_it_alone() {
    let ways = planner(16).ways(&[]);
    let all =
        ["tcp 1-1", "tcp 2-2", "udp 1-1", "udp 2-2", "transport 240 0 at 400", "transport 240 1 at 400"];
    assert_eq!(shown(&ways), all);
    assert_eq!(shown(&planner(3).ways(&[])), all[..3]);
    let others = planner(16).ways(&ways[..2]);
    assert_eq!(shown(&others), [&["tcp 1-2", "tcp 2-1"], &all[2..]].concat());
    assert!(ways[0].is(&ways[0]) && !ways[0].is(&ways[2]) && !ways[4].is(&ways[5]));
}

/// A path, the number of the lane that is to take it, and where it goes.
type Asked = (usize, u16, Way);

/// A session that has begun by TCP, between the first interfaces, and asks for all other lanes.
fn asking() -> (Session<u32>, Engine, PeerIdx, Vec<Asked>) {
    let mut session = Session::new(SessionId(1), Config::default(), Some(planner(16)));
    let mut engine = Engine::new(proto::Config { window: 64, hash_seed: 1, bounds: Bounds::DEFAULT });
    let peer = engine.add_peer();
    let scheme = Scheme::Fragments;
    engine.connected(peer, Route { eager_max: 64, fragment: 64, scheme, window: 64, immediate: false });
    let end = |ip: &str| format!("{ip}:7000").parse().expect("a socket's address");
    let first = Arrival {
        number: 0,
        link: 0,
        transport: Transport::TCP,
        path: None,
        ends: Some((end("10.0.1.1"), end("10.0.1.2"))),
        rtt: 0,
        delivered: 0,
        pins: Pins::default(),
        in_order: true,
    };
    session.lane_up(0, first, &mut ToPeer { engine: &mut engine, peer }, &mut Idle::default());
    session.tick(0, true, &mut ToPeer { engine: &mut engine, peer }, &mut Idle::default());
    let actions = std::iter::from_fn(|| session.poll_action());
    let opens = actions.filter_map(|action| match action {
        Action::Open { path, number, way } => Some((path, number, way)),
        _ => None,
    });
    let opens = opens.collect();
    (session, engine, peer, opens)
}

fn said(engine: &mut Engine, peer: PeerIdx) -> Vec<Frame> {
    let mut all = Vec::new();
    while let Some(next) = engine.poll_transmit(peer, 0) {
        engine.transmitted(peer, &next);
        all.push(next.frame);
    }
    all
}

#[test]
fn the_lane_that_there_is_takes_the_way_of_its_transport_and_the_others_are_asked_for() {
    let (mut session, mut engine, peer, opens) = asking();
    let ways: Vec<Way> = opens.iter().map(|(.., way)| *way).collect();
    assert_eq!(shown(&ways)[0], "tcp 2-2");
    assert_eq!(ways.len(), 5);
    let (path, number, way) = opens[3];
    let arrival = Arrival {
        number,
        link: 9,
        transport: way.transport,
        path: Some(path),
        ends: None,
        rtt: 0,
        delivered: 0,
        pins: Pins::default(),
        in_order: true,
    };
    session.lane_up(1, arrival, &mut ToPeer { engine: &mut engine, peer }, &mut Idle::default());
    assert_eq!(session.lanes().len(), 2);
    let lane = &session.lanes()[1];
    assert_eq!((lane.number(), lane.ends(), lane.estimate().rate()), (number, None, 400 * 125_000));
}

#[test]
fn an_answer_that_comes_too_late_is_taken_back_and_one_to_nothing_is_a_lie() {
    let (mut session, mut engine, peer, opens) = asking();
    said(&mut engine, peer);
    let (path, number, _) = opens[4];
    session.open_failed(1, path, "the peer's program does not answer".into(), true);
    let mut decline = |number, has_it| {
        let heard = session.decline(number, has_it, &mut ToPeer { engine: &mut engine, peer });
        (heard.is_ok(), said(&mut engine, peer))
    };
    assert_eq!(decline(number, false), (true, vec![]), "it refused: there is nothing to take back");
    let retire = Frame::Retire { lane: number, received: 0 };
    assert_eq!(decline(number, true), (true, vec![retire]));
    assert_eq!(decline(0, true), (false, vec![]), "the lane that began the session");
    assert_eq!(decline(1000, true), (false, vec![]), "never asked for");
    let mut other: Session<u32> = Session::new(SessionId(1), Config::default(), None);
    let heard = other.decline(number, true, &mut ToPeer { engine: &mut engine, peer });
    assert!(heard.is_err(), "this side opens no lanes");
}

#[test]
fn that_a_lane_is_not_to_be_is_said_once() {
    let (mut session, mut engine, peer, opens) = asking();
    said(&mut engine, peer);
    let [(_, opening, _), (path, failed, _)] = [opens[3], opens[4]];
    session.open_failed(1, path, "the peer's program does not answer".into(), true);
    let mut told = |number, frames: u64| {
        let mut acked = Acked::default();
        (0..frames).for_each(|frame| assert!(acked.add(frame)));
        let told = Told { number, acked, retired: true };
        let mut traffic = ToPeer { engine: &mut engine, peer };
        let heard = session.handle_told(2, &told, &mut traffic, &mut Idle::default());
        let actions = std::iter::from_fn(|| session.poll_action());
        let given_up = actions.filter(|action| matches!(action, Action::Abandon { .. })).count();
        (heard.is_ok(), given_up, said(&mut engine, peer))
    };
    let retire = |lane| vec![Frame::Retire { lane, received: 0 }];
    assert_eq!(told(failed, 0), (true, 0, retire(failed)));
    assert_eq!(told(failed, 0), (true, 0, vec![]), "both sides have said it");
    assert_eq!(told(opening, 0), (true, 1, retire(opening)), "the opening ends, too");
    assert_eq!(told(opening, 0), (true, 0, vec![]), "both sides have said it");
    assert_eq!(told(opens[2].1, 1), (false, 0, vec![]), "nothing was ever sent by it");
    assert_eq!(told(1000, 0), (false, 0, vec![]), "never asked for");
    // an answer that crossed it finds it settled
    let heard = session.decline(failed, true, &mut ToPeer { engine: &mut engine, peer });
    assert_eq!((heard, said(&mut engine, peer)), (Ok(()), vec![]));
}

/// Where it is said how many lanes there are to be between two interfaces, so many are opened, one after the other, and no more.
#[test]
fn as_many_lanes_as_are_wanted_are_opened_without_a_trial() {
    let planner = Planner {
        near: [interface(1, "10.0.1.1")].into(),
        far: [interface(1, "10.0.1.2")].into(),
        most: 16,
        between: vec![Transport::TCP],
        places: Vec::new(),
    };
    let mut session = Session::new(SessionId(1), Config { least: 3, ..Config::default() }, Some(planner));
    let mut engine = Engine::new(proto::Config { window: 64, hash_seed: 1, bounds: Bounds::DEFAULT });
    let peer = engine.add_peer();
    let scheme = Scheme::Fragments;
    engine.connected(peer, Route { eager_max: 64, fragment: 64, scheme, window: 64, immediate: false });
    let end = |port: u16, ip: &str| format!("{ip}:{port}").parse().expect("a socket's address");
    let mut wanted = vec![(None, 0)];
    let mut opened = Vec::new();
    for step in 0..2000 {
        let now = step * 10_000_000;
        let to = &mut ToPeer { engine: &mut engine, peer };
        for (path, number) in std::mem::take(&mut wanted) {
            let arrival = Arrival {
                number,
                link: u32::from(number),
                transport: Transport::TCP,
                path,
                ends: Some((end(40_000 + number, "10.0.1.1"), end(7000, "10.0.1.2"))),
                rtt: 0,
                delivered: 0,
                pins: Pins::default(),
                in_order: true,
            };
            session.lane_up(now, arrival, to, &mut Idle::default());
        }
        session.tick(now, true, to, &mut Idle::default());
        while let Some(action) = session.poll_action() {
            if let Action::Open { path, number, .. } = action {
                opened.push((step, number));
                wanted.push((Some(path), number));
            }
        }
    }
    assert_eq!(session.lanes().len(), 3);
    assert!(matches!(opened[..], [(first, _), (second, _)] if first < second), "{opened:?}");
}
