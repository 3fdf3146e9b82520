//! What a peer leaves unsaid makes nothing grow without end.

use polyrail_core::frame::{Acked, Frame, OpId};
use polyrail_core::proto::{self, Bounds, Engine};
use polyrail_core::session::{
    Arrival, Config, Links, Loss, Partial, Pins, Retired, Seen, Session, ToPeer, Told, UnackedFrame,
};
use polyrail_core::wire::{SessionId, Transport};
use std::collections::VecDeque;

/// Links of which nothing is ever heard.
struct Silent;

impl Links<u32> for Silent {
    fn look(&self, _: u32) -> Option<Seen> {
        None
    }
    fn queued(&self, _: u32) -> u64 {
        0
    }
    fn given(&self, _: u32) -> u64 {
        0
    }
    fn wants_more(&self, _: u32) -> bool {
        false
    }
    fn confirm(&mut self, _: u32, _: &Acked) -> bool {
        true
    }
    fn retire(&mut self, _: u32) -> Retired {
        Retired::default()
    }
    fn reclaim(&mut self, _: u32, _: &Acked) -> Option<VecDeque<UnackedFrame>> {
        Some(VecDeque::new())
    }
    fn close(&mut self, _: u32) {}
}

#[test]
fn who_opens_lanes_and_never_says_what_it_had_gets_no_more_of_them() {
    let id = SessionId(1);
    let mut session = Session::new(id, Config::default(), None);
    let mut engine = Engine::new(proto::Config { window: 64, hash_seed: 1, bounds: Bounds::DEFAULT });
    let peer = engine.add_peer();
    let mut opened = 0;
    for number in 0..1000u16 {
        if !session.expects(id, number) {
            break;
        }
        let (link, pins, in_order) = (u32::from(number), Pins::default(), true);
        let (transport, path) = (Transport::TCP, None);
        let arrival =
            Arrival { number, link, transport, path, ends: None, rtt: 0, delivered: 0, pins, in_order };
        let mut traffic = ToPeer { engine: &mut engine, peer };
        session.lane_up(0, arrival, &mut traffic, &mut Silent);
        session.handle_lost(0, link, Loss::Reset("cut".into()), &mut traffic, &mut Silent);
        while session.poll_action().is_some() {}
        opened += 1;
    }
    assert_eq!((opened, session.links().count()), (256, 256));
}

/// Links by which frames came with a gap, and that take nothing.
struct Gaps;

impl Links<u32> for Gaps {
    fn look(&self, _: u32) -> Option<Seen> {
        None
    }
    fn queued(&self, _: u32) -> u64 {
        0
    }
    fn given(&self, _: u32) -> u64 {
        0
    }
    fn wants_more(&self, _: u32) -> bool {
        false
    }
    fn confirm(&mut self, _: u32, _: &Acked) -> bool {
        true
    }
    fn retire(&mut self, _: u32) -> Retired {
        let mut received = Acked::default();
        assert!(received.add(1));
        Retired { received, said: Vec::new() }
    }
    fn reclaim(&mut self, _: u32, _: &Acked) -> Option<VecDeque<UnackedFrame>> {
        Some(VecDeque::new())
    }
    fn close(&mut self, _: u32) {}
}

#[test]
fn who_ends_lanes_and_does_not_listen_to_what_came_by_them_gets_no_more_of_them() {
    let id = SessionId(1);
    let mut session = Session::new(id, Config::default(), None);
    let mut engine = Engine::new(proto::Config { window: 64, hash_seed: 1, bounds: Bounds::DEFAULT });
    let peer = engine.add_peer();
    let mut opened = 0;
    for number in 0..1000u16 {
        if !session.expects(id, number) {
            break;
        }
        let (link, pins, in_order) = (u32::from(number), Pins::default(), false);
        let (transport, path) = (Transport::UDP, None);
        let arrival =
            Arrival { number, link, transport, path, ends: None, rtt: 0, delivered: 0, pins, in_order };
        let mut traffic = ToPeer { engine: &mut engine, peer };
        session.lane_up(0, arrival, &mut traffic, &mut Gaps);
        let told = Told { number, acked: Acked::default(), retired: true };
        assert_eq!(session.handle_told(0, &told, &mut traffic, &mut Gaps), Ok(()));
        while session.poll_action().is_some() {}
        opened += 1;
    }
    assert_eq!((opened, session.links().count()), (256, 0));
}

#[test]
fn parts_that_never_come_again_are_noticed() {
    let mut partial = Partial::default();
    let kept = |at: u64, partial: &mut Partial<()>| {
        partial.keep(Frame::Frag { to: OpId::default(), offset: at }, 1, ())
    };
    assert!((0..256).all(|at| kept(at, &mut partial)));
    assert!(!kept(256, &mut partial));
}
