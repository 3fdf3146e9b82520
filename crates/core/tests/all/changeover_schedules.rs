//! Random schedules over two sides that change their link's composition while they use it: paths that lose, double, reorder and die,
//! proposals that cross, sides that die between any two steps, a control channel that is cut. Synchronous data comes exactly once and in order, asynchronous at
//! most once and newest first, compositions are not mixed, and in the end both sides agree and all is there.

use crate::changeover_support::count::counts;
use crate::changeover_support::plan::plan;
use crate::changeover_support::world::carry_out;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};

/// So many schedules, unless PROPTEST_CASES says otherwise.
const SCHEDULES: u32 = 500;

#[test]
fn changes_lose_nothing_and_end_in_agreement() {
    let config = Config { failure_persistence: None, ..Config::default() };
    let cases = std::env::var_os("PROPTEST_CASES").map_or(SCHEDULES, |_| config.cases);
    let mut runner = TestRunner::new(Config { cases, ..config });
    let outcome = runner.run(&plan(), |plan| {
        carry_out(&plan);
        Ok::<(), TestCaseError>(())
    });
    let counts = counts().all();
    println!("{counts:?}");
    if let Err(TestError::Fail(why, plan)) = outcome {
        // without shrinking, so many were good
        panic!("{why}\nsuccesses: {}\n{plan:?}", counts[0].1);
    }
    // what is rare is not in a few hundred schedules
    let frequent = [
        "changes",
        "pieces",
        "values",
        "held",
        "crossed",
        "unable",
        "timed_out",
        "aborted",
        "rescues",
        "crashes",
    ];
    for (what, count) in counts {
        let expected = if frequent.contains(&what) { SCHEDULES } else { 40 * SCHEDULES };
        assert!(count > 0 || cases < expected, "no schedule had any {what}");
    }
}
