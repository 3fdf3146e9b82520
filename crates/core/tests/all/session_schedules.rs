//! Random work over sessions whose lanes are cut, stall, slow down and come back: nothing is lost, nothing comes twice, nothing hangs,
//! and nobody notices.

use crate::engine_support::plan::lanes_plan;
use crate::engine_support::run::carry_out;
use crate::engine_support::{RAIL, any_untagged, assert_clean, cases, untagged};
use polyrail_core::proto::Route;
use polyrail_core::sim::{Bytes, Join, LaneSpec, MS, Overtaking, RailSpec, World};
use proptest::prelude::*;

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn lanes_that_fail_are_not_noticed(plan in lanes_plan()) {
        carry_out(&plan);
    }
}

/// The receiver of a lane on which frames overtake each other holds back no more than its peer may send out of turn, though that is the
/// only lane; and what came by it is said, however many gaps there are.
#[test]
fn one_lane_that_is_not_in_order_does_not_run_too_far_ahead() {
    const MESSAGES: u64 = 6000;
    let overtaking = Some(Overtaking { lost: 5, again: 100 * MS });
    let path = RailSpec { queue: 1 << 24, overtaking, ..RAIL };
    let lanes = Some(LaneSpec { paths: vec![path], connections: 1, got: 16, stillborn: 0 });
    let route = Route { window: 1 << 20, ..Join::default().route };
    let mut world = World::new(1, 2, route.window);
    world.join(0, 1, &Join { route, lanes, ..Join::default() });
    for _ in 0..MESSAGES {
        world.recv(1, any_untagged(), 8);
    }
    for n in 0..MESSAGES {
        world.send(0, 1, untagged(), Bytes::Real(n.to_le_bytes().into()));
    }
    world.run();
    assert_eq!(world.gone, []);
    assert_clean(&world, 2);
    assert_eq!(world.node(1).engine.in_flight(), [0; 5], "all came");
}
