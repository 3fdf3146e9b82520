//! Random work on random networks: whatever is asked of engines, MPI's rules hold and nothing is left over.

use crate::engine_support::cases;
use crate::engine_support::plan::{lossy_plan, plan};
use crate::engine_support::run::carry_out;
use proptest::prelude::*;

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn everything_asked_for_is_done_by_the_rules(plan in plan()) {
        carry_out(&plan);
    }

    #[test]
    fn links_that_end_take_nothing_else_with_them(plan in lossy_plan()) {
        carry_out(&plan);
    }
}
