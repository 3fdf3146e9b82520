//! Two transports between the same interfaces: the stand-in is opened where packets are lost over a distance, serves, and gives the way
//! back.

use polyrail_core::control::losses::Losses;
use polyrail_core::frame::Acked;
use polyrail_core::proto::{self, Bounds, PeerIdx, Route, Scheme};
use polyrail_core::session::{
    Action, Arrival, Config, Links, Packets, Pins, Planner, Reason, Retired, Seen, Serves, Session, ToPeer,
    UnackedFrame, What,
};
use polyrail_core::sim::Engine;
use polyrail_core::wire::offer::{Interface, InterfaceFlags, InterfaceName, Net};
use polyrail_core::wire::{SessionId, Transport};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;

/// Links of which the test says how they look.
#[derive(Default)]
struct Shown(BTreeMap<u32, Seen>, Vec<(u32, u64, u64)>);

impl Links<u32> for Shown {
    fn look(&self, link: u32) -> Option<Seen> {
        self.0.get(&link).copied()
    }
    fn queued(&self, link: u32) -> u64 {
        self.look(link).map_or(0, |seen| seen.queued)
    }
    fn given(&self, link: u32) -> u64 {
        self.look(link).map_or(0, |seen| seen.delivered + seen.queued)
    }
    fn wants_more(&self, _: u32) -> bool {
        true
    }
    fn confirm(&mut self, _: u32, _: &Acked) -> bool {
        true
    }
    fn tell_losses(&mut self, link: u32, losses: &Losses) {
        let (sent, lost) = losses.counts();
        self.1.push((link, sent, lost));
    }
    fn retire(&mut self, link: u32) -> Retired {
        self.0.remove(&link);
        Retired::default()
    }
    fn reclaim(&mut self, _: u32, _: &Acked) -> Option<VecDeque<UnackedFrame>> {
        Some(VecDeque::new())
    }
    fn close(&mut self, _: u32) {}
}

/// One side, and what it has asked for.
struct Side {
    session: Session<u32>,
    engine: Engine,
    peer: PeerIdx,
    links: Shown,
    now: u64,
    opens: Vec<(usize, u16, Transport)>,
    chosen: Vec<(u16, Reason)>,
}

fn interface(ip: &str) -> Interface {
    Interface {
        index: 1,
        speed: 1000,
        flags: InterfaceFlags(0),
        name: InterfaceName::new("net1").expect("a name"),
        nets: vec![Net::new(ip.parse().expect("an IP"), 24).expect("a net")],
    }
}

fn ends() -> (SocketAddr, SocketAddr) {
    ("10.0.1.1:7000".parse().expect("an address"), "10.0.1.2:7000".parse().expect("an address"))
}

impl Side {
    /// A session that has begun by TCP, whose lane looks so; `opens`: this side opens lanes.
    fn new(opens: bool, rtt: u64) -> Self {
        let planner = Planner {
            near: [interface("10.0.1.1")].into(),
            far: [interface("10.0.1.2")].into(),
            most: 16,
            between: vec![Transport::TCP],
            places: vec![],
        };
        let config = Config { stand_in: Some(Transport::UDP), connections: 1, ..Config::default() };
        let mut engine = Engine::new(proto::Config { window: 64, hash_seed: 1, bounds: Bounds::DEFAULT });
        let peer = engine.add_peer();
        let scheme = Scheme::Fragments;
        engine.connected(peer, Route { eager_max: 64, fragment: 64, scheme, window: 64, immediate: false });
        let session = Session::new(SessionId(1), config, opens.then_some(planner));
        let (links, opens, chosen) = (Shown::default(), vec![], vec![]);
        let mut side = Self { session, engine, peer, links, now: 0, opens, chosen };
        side.up(0, 0, Transport::TCP, None, rtt);
        side
    }

    fn up(&mut self, link: u32, number: u16, transport: Transport, path: Option<usize>, rtt: u64) {
        self.links.0.insert(link, Seen { rtt, min_rtt: rtt, ..Seen::default() });
        let pins = Pins::default();
        let ends = Some(ends());
        let arrival =
            Arrival { number, link, transport, path, ends, rtt, delivered: 0, pins, in_order: true };
        let mut traffic = ToPeer { engine: &mut self.engine, peer: self.peer };
        self.session.lane_up(self.now, arrival, &mut traffic, &mut self.links);
        self.follow();
    }

    fn follow(&mut self) {
        while let Some(action) = self.session.poll_action() {
            match action {
                Action::Open { path, number, way } => self.opens.push((path, number, way.transport)),
                Action::Event(_, What::Chosen { from, why }) => self.chosen.push((from, why)),
                _ => {}
            }
        }
    }

    /// For so long the lane by this link sends so many packets of a thousand bytes in a look, of which one in so many is lost.
    fn sends(&mut self, link: u32, time: u64, packets: u64, lost_in: u64) {
        let mut owed = 0;
        for _ in 0..time / (2 * MS) {
            self.now += 2 * MS;
            let seen = self.links.0.get_mut(&link).expect("it is up");
            seen.delivered += packets * 1000;
            seen.queued = 100 * packets * 1000;
            seen.packets.sent += packets;
            owed += packets;
            seen.packets.lost += owed / lost_in;
            owed %= lost_in;
            self.tick();
        }
        if let Some(seen) = self.links.0.get_mut(&link) {
            seen.queued = 0;
        }
    }

    fn tick(&mut self) {
        let mut traffic = ToPeer { engine: &mut self.engine, peer: self.peer };
        self.session.tick(self.now, true, &mut traffic, &mut self.links);
        self.follow();
    }

    fn yields(&self) -> Vec<bool> {
        self.session.lanes().iter().map(|lane| lane.yields()).collect()
    }

    /// The stand-in is up as it was asked for.
    fn open_as_asked(&mut self) {
        let (path, number, transport) = self.opens.pop().expect("it asked");
        assert_eq!(transport, Transport::UDP);
        self.up(number.into(), number, transport, Some(path), 20 * MS);
    }
}

/// Far more than any lossy path gets through by the usual transport.
const NONE: u64 = u64::MAX;

#[test]
fn where_nothing_is_lost_or_all_is_near_nobody_is_asked() {
    let mut clean = Side::new(true, 20 * MS);
    clean.sends(0, 20 * S, 100, NONE);
    assert_eq!(clean.opens, []);
    let mut near = Side::new(true, MS / 2);
    near.sends(0, 20 * S, 100, 100);
    // what a full queue loses at once
    near.sends(0, 26 * MS, 100, 5);
    near.sends(0, 20 * S, 100, NONE);
    assert_eq!(near.opens, []);
}

#[test]
fn a_path_that_loses_very_many_is_served_by_the_stand_in_however_near_it_is() {
    let mut side = Side::new(true, MS / 10);
    side.sends(0, 20 * S, 1, 60);
    assert_eq!(side.opens, [], "some");
    let mut side = Side::new(true, MS / 10);
    side.sends(0, 100 * MS, 1, 10);
    side.open_as_asked();
    assert_eq!(side.yields(), [true, false]);
    // it may have been a queue's, of whoever serves: it does for a minute, then for two
    for seconds in [60, 120] {
        assert_eq!(side.yields(), [true, false]);
        let began = side.now;
        while side.yields() == [true, false] && side.now < began + 200 * S {
            side.sends(1, 20 * MS, 1, 10);
        }
        let served = (side.now - began) / S;
        assert!((seconds - 1..seconds + 2).contains(&served), "{served} of {seconds}");
        side.sends(0, 300 * MS, 1, if seconds == 60 { 10 } else { NONE });
        assert_eq!(side.yields(), [seconds == 60, seconds != 60]);
    }
    side.sends(0, 20 * S, 1, NONE);
    assert_eq!(side.yields(), [false, true]);
}

#[test]
fn a_path_that_loses_over_a_distance_is_served_by_the_stand_in() {
    let mut side = Side::new(true, 20 * MS);
    side.sends(0, 2 * S, 4, 1000);
    side.open_as_asked();
    assert_eq!(side.yields(), [true, false]);
    assert_eq!(side.session.current(), Some(1));
    // it is told why, once short messages have gone by it for a moment
    side.sends(1, S, 160, 1000);
    let [(0, Reason::Rival { lane: 0, why: Serves::Lossy(loss), rtt })] = side.chosen[..] else {
        panic!("{:?}", side.chosen)
    };
    assert!((500..2000).contains(&loss) && rtt == 20 * MS, "{loss} {rtt}");
    side.sends(1, 20 * S, 160, 1000);
    assert_eq!((side.yields(), side.opens.len()), (vec![true, false], 0));
}

#[test]
fn the_usual_transport_serves_again_where_nothing_is_lost_any_more_and_the_stand_in_ends() {
    let mut side = Side::new(true, 20 * MS);
    side.sends(0, 2 * S, 4, 1000);
    side.open_as_asked();
    side.sends(1, 12 * S, 160, 1000);
    assert_eq!(side.yields(), [true, false]);
    side.sends(1, 60 * S, 160, NONE);
    assert_eq!(side.yields(), [false, true]);
    side.sends(0, 70 * S, 160, NONE);
    assert_eq!(side.session.lanes().len(), 1, "nobody used it");
    assert_eq!(side.opens, []);
}

#[test]
fn a_stand_in_that_does_worse_is_dismissed_for_a_while() {
    let mut side = Side::new(true, 20 * MS);
    side.sends(0, 2 * S, 10, 1000);
    side.open_as_asked();
    side.sends(1, 7 * S, 1, 1000);
    assert_eq!(side.yields(), [true, false], "for ten seconds it has its chance");
    side.sends(1, 4 * S, 1, 1000);
    assert_eq!(side.yields(), [false, true]);
    side.sends(0, 50 * S, 10, 1000);
    assert_eq!(side.yields(), [false, true]);
    side.sends(0, 12 * S, 10, 1000);
    assert_eq!(side.yields(), [true, false], "then it is tried again");
}

#[test]
fn what_comes_before_its_turn_tells_the_side_that_opens_of_losses_on_the_way_to_it() {
    let mut side = Side::new(true, 20 * MS);
    for _ in 0..1000 {
        side.now += 2 * MS;
        let seen = side.links.0.get_mut(&0).expect("it is up");
        (seen.received, seen.queued) = (seen.received + 4000, 100);
        seen.packets =
            Packets { came: seen.packets.came + 4, early: seen.received / 400_000, ..seen.packets };
        side.tick();
    }
    side.open_as_asked();
    assert_eq!(side.yields(), [false, true], "what this side sends is not lost");
}

#[test]
fn a_stand_in_need_not_find_out_again_what_is_lost() {
    let mut side = Side::new(true, 20 * MS);
    side.sends(0, 2 * S, 10, 1000);
    side.open_as_asked();
    let [(link, sent, lost)] = side.links.1[..] else { panic!("{:?}", side.links.1) };
    assert!(link == 1 && sent >= 3000 && (900..1200).contains(&(sent / lost)), "{sent} {lost}");
    // where it is opened for another reason nothing is known
    let mut side = Side::new(true, 20 * MS);
    for _ in 0..10 {
        side.sends(0, 50 * MS, 10, NONE);
        side.now += S;
    }
    side.open_as_asked();
    assert_eq!(side.links.1, []);
}

#[test]
fn the_other_side_uses_it_by_its_own_figures() {
    let mut side = Side::new(false, 20 * MS);
    side.sends(0, 2 * S, 4, 1000);
    assert_eq!((side.opens.len(), side.yields()), (0, vec![false]));
    side.up(1, 1, Transport::UDP, None, 20 * MS);
    assert_eq!(side.yields(), [true, false]);
}

#[test]
fn when_the_one_that_serves_ends_the_other_is_there() {
    let mut side = Side::new(true, 20 * MS);
    side.sends(0, 2 * S, 4, 1000);
    side.open_as_asked();
    let mut traffic = ToPeer { engine: &mut side.engine, peer: side.peer };
    let loss = polyrail_core::session::Loss::Reset("it was cut".into());
    side.session.handle_lost(side.now, 1, loss, &mut traffic, &mut side.links);
    assert_eq!((side.yields(), side.session.current()), (vec![false], Some(0)));
}

#[test]
fn much_after_rests_over_a_distance_is_for_the_stand_in() {
    let starts = |rtt: u64, each: u64, packets: u64| {
        let mut side = Side::new(true, rtt);
        for _ in 0..10 {
            side.sends(0, 50 * MS, packets, NONE);
            // nobody looks while nothing happens
            side.now += each;
        }
        side.opens.len()
    };
    assert_eq!(starts(20 * MS, S, 10), 1);
    assert_eq!(starts(20 * MS, 100 * MS, 10), 0, "no rest");
    assert_eq!(starts(20 * MS, 120 * S, 10), 0, "seldom");
    assert_eq!(starts(2 * MS, S, 10), 0, "near");
}

#[test]
fn more_than_buffers_hold_is_for_the_stand_in() {
    let serves = |rtt: u64, narrow: u64, queue: u64, shut: bool, each: u64| {
        let mut side = Side::new(true, rtt);
        for _ in 0..1000 {
            side.now += 2 * MS;
            let seen = side.links.0.get_mut(&0).expect("it is up");
            (seen.rtt, seen.shut) = (rtt + queue, shut);
            (seen.delivered, seen.queued) = (seen.delivered + each, 50 * each);
            seen.width.busy += 2 * MS;
            seen.width.narrow += 2 * MS * narrow / 10;
            side.tick();
        }
        side.opens.len()
    };
    const MUCH: u64 = 60_000;
    assert_eq!(serves(100 * MS, 8, 0, false, MUCH), 1);
    assert_eq!(serves(100 * MS, 3, 0, false, MUCH), 0, "mostly something else holds it back");
    assert_eq!(serves(100 * MS, 8, 50 * MS, false, MUCH), 0, "the path is full");
    assert_eq!(serves(100 * MS, 8, 0, true, MUCH), 0, "the peer's program takes nothing");
    assert_eq!(serves(100 * MS, 8, 0, false, 3000), 0, "or little");
    assert_eq!(serves(2 * MS, 8, 0, false, MUCH), 0, "near");
}

#[test]
fn who_gets_as_much_as_buffers_hold_opens_a_stand_in_for_the_other_side() {
    let opens = |a_trip: u64| {
        let mut side = Side::new(true, 100 * MS);
        for _ in 0..1000 {
            side.now += 2 * MS;
            let seen = side.links.0.get_mut(&0).expect("it is up");
            (seen.received, seen.delivered) = (seen.received + a_trip / 50, seen.delivered + 1);
            seen.width.busy += 2 * MS;
            side.tick();
        }
        side.opens.len()
    };
    assert_eq!([3_000_000, 2_000_000, 1_000_000, 20_000].map(opens), [1, 0, 0, 0]);
}

#[test]
fn a_lane_that_the_peers_program_acknowledges_has_time_while_that_computes() {
    let mut side = Side::new(true, 20 * MS);
    side.sends(0, 2 * S, 4, 1000);
    side.open_as_asked();
    let stalls = |side: &mut Side, time: u64, heard: bool| {
        for _ in 0..time / (2 * MS) {
            side.now += 2 * MS;
            let udp = side.links.0.get_mut(&1).expect("it is up");
            (udp.queued, udp.by_program) = (1000, true);
            side.links.0.get_mut(&0).expect("it is up").received += u64::from(heard);
            side.tick();
            if side.session.lanes().len() == 1 {
                return true;
            }
        }
        false
    };
    assert!(!stalls(&mut side, 2 * S, false), "it may compute");
    assert!(stalls(&mut side, 200 * MS, true), "it does not");
}

#[test]
fn a_lane_that_this_program_does_not_look_at_has_time_for_that_too() {
    let mut side = Side::new(true, 20 * MS);
    side.sends(0, 2 * S, 4, 1000);
    side.open_as_asked();
    let mut rest = |heard: u64| {
        let udp = side.links.0.get_mut(&1).expect("it is up");
        (udp.queued, udp.by_program) = (1000, true);
        side.tick();
        side.now += S;
        side.links.0.get_mut(&0).expect("it is up").received += heard;
        side.tick();
        side.session.lanes().len()
    };
    assert_eq!(rest(1000), 2, "what has come since is not read yet");
    assert!((0..8).any(|_| rest(1000) == 1), "nor will it ever be");
}

#[test]
fn another_lane_of_a_stand_in_has_its_chance_too() {
    let mut side = Side::new(true, 20 * MS);
    side.sends(0, 2 * S, 10, 1000);
    side.open_as_asked();
    side.sends(1, 9 * S, 10, 1000);
    let mut traffic = ToPeer { engine: &mut side.engine, peer: side.peer };
    let loss = polyrail_core::session::Loss::Reset("it was cut".into());
    side.session.handle_lost(side.now, 1, loss, &mut traffic, &mut side.links);
    side.follow();
    side.sends(0, 200 * MS, 10, 1000);
    side.open_as_asked();
    let link = u32::from(side.session.lanes()[1].number());
    side.sends(link, 5 * S, 2, 1000);
    assert_eq!(side.yields(), [true, false]);
    side.sends(link, 6 * S, 2, 1000);
    assert_eq!(side.yields(), [false, true]);
}

#[test]
fn a_lane_whose_peers_program_is_silent_for_long_is_left_for_one_that_its_kernel_acknowledges() {
    let mut side = Side::new(true, 20 * MS);
    side.sends(0, 2 * S, 4, 1000);
    side.open_as_asked();
    for _ in 0..2000 {
        side.now += 2 * MS;
        if let Some(udp) = side.links.0.get_mut(&1) {
            (udp.queued, udp.by_program) = (1000, true);
        }
        side.tick();
    }
    assert_eq!(side.session.lanes().len(), 1);
}

#[test]
fn where_the_usual_transport_is_cut_off_the_stand_in_is_opened_and_serves_until_that_is_back() {
    let mut side = Side::new(true, MS);
    side.sends(0, S, 100, NONE);
    side.links.0.remove(&0);
    let mut traffic = ToPeer { engine: &mut side.engine, peer: side.peer };
    let loss = polyrail_core::session::Loss::Reset("something on the way ended it".into());
    side.session.handle_lost(side.now, 0, loss, &mut traffic, &mut side.links);
    side.follow();
    let asked: Vec<Transport> = side.opens.iter().map(|(.., transport)| *transport).collect();
    assert_eq!(asked, [Transport::TCP, Transport::UDP]);
    let (path, number, _) = side.opens[1];
    side.up(7, number, Transport::UDP, Some(path), MS);
    assert_eq!((side.yields(), side.session.current()), (vec![false], Some(7)));
    // the other is tried again, and is there
    let (path, number, _) = side.opens[0];
    side.session.open_failed(side.now, path, "reset".into(), false);
    side.opens.clear();
    side.sends(7, 2 * S, 100, NONE);
    let (again, ..) = side.opens.pop().expect("it asked again");
    assert_eq!(again, path);
    side.up(8, number + 10, Transport::TCP, Some(path), MS);
    assert_eq!(side.yields(), [true, false]);
}
