//! Random work over sessions whose lanes are cut, stall, slow down and come back: nothing is lost, nothing comes twice, nothing hangs,
//! and nobody notices.
mod engine_support;

use engine_support::cases;
use engine_support::plan::{carry_out, lanes_plan};
use proptest::prelude::*;

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn lanes_that_fail_are_not_noticed(plan in lanes_plan()) {
        carry_out(&plan);
    }
}
