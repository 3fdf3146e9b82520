//! Numbers of compositions wrap, on both sides, while data is under way.

use crate::changeover_support::count::counts;
use crate::changeover_support::plan::{Plan, Step};
use crate::changeover_support::world::carry_out;
use std::sync::atomic::Ordering::Relaxed;

#[test]
fn a_link_changes_a_thousand_times() {
    let changes = (0..1000_usize).flat_map(|n| {
        let propose = Step::Propose { side: n / 3 % 2, path: (n % 3) as u8, sync: n % 7 > 0 };
        [(20_000, propose), (500, Step::Send { side: n % 2, count: 2 })]
    });
    carry_out(&Plan {
        seed: 1,
        loss: 0,
        doubled: 10,
        jitter: 1000,
        tries: 10,
        cannot: 0,
        stay_dead: false,
        steps: changes.collect(),
    });
    assert_eq!(counts().changes.load(Relaxed), 2000, "each on both sides");
}
