//! What a peer leaves unsaid makes nothing grow without end.

use crate::session_support::Idle;
use polyrail_core::frame::{Acked, Frame, OpId};
use polyrail_core::proto::{self, Bounds};
use polyrail_core::session::{Arrival, Config, Loss, Partial, Pins, Session, ToPeer, Told};
use polyrail_core::sim::Engine;
use polyrail_core::wire::{SessionId, Transport};

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
        session.lane_up(0, arrival, &mut traffic, &mut Idle::default());
        session.handle_lost(0, link, Loss::Reset("cut".into()), &mut traffic, &mut Idle::default());
        while session.poll_action().is_some() {}
        opened += 1;
    }
    assert_eq!((opened, session.links().count()), (256, 256));
}

#[test]
fn who_ends_lanes_and_does_not_listen_to_what_came_by_them_gets_no_more_of_them() {
    // frames came with a gap
    let mut gap = Acked::default();
    assert!(gap.add(1));
    let mut links = Idle(gap);
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
        session.lane_up(0, arrival, &mut traffic, &mut links);
        let told = Told { number, acked: Acked::default(), retired: true };
        assert_eq!(session.handle_told(0, &told, &mut traffic, &mut links), Ok(()));
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
