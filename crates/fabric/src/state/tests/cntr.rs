//! Counters.

use proptest::prelude::*;

use super::{Waiter, idle, runs};
use crate::ffi::{FI_EAVAIL, FI_SUCCESS};
use crate::state::cntr::Cntr;

#[derive(Clone, Debug)]
enum Step {
    Add(u64),
    Set(u64),
    AddError(u64),
    SetError(u64),
    /// A wait for so much begins.
    Wait(u64),
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..4u64, Just(u64::MAX), any::<u64>()]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        number().prop_map(Step::Add),
        number().prop_map(Step::Set),
        number().prop_map(Step::AddError),
        number().prop_map(Step::SetError),
        number().prop_map(Step::Wait),
    ]
}

fn apply(cntr: &mut Cntr, step: &Step) {
    match *step {
        Step::Add(n) => cntr.add(n),
        Step::Set(n) => cntr.set(n),
        Step::AddError(n) => cntr.add_error(n),
        Step::SetError(n) => cntr.set_error(n),
        Step::Wait(_) => {}
    }
}

proptest! {
    #![proptest_config(runs())]

    #[test]
    fn counts_and_ends_of_waits(steps in prop::collection::vec(step(), 0..40)) {
        let mut cntr = Cntr::new(idle());
        // 128 bits do not wrap here
        let (mut value, mut errors) = (0u128, 0u128);
        let wrapped = |n: u128| (n & u128::from(u64::MAX)) as u64;
        let mut waits = Vec::new();
        for step in &steps {
            apply(&mut cntr, step);
            match *step {
                Step::Add(n) => value += u128::from(n),
                Step::Set(n) => value = n.into(),
                Step::AddError(n) => errors += u128::from(n),
                Step::SetError(n) => errors = n.into(),
                Step::Wait(threshold) => waits.push((threshold, cntr.errors())),
            }
            prop_assert_eq!((cntr.value(), cntr.errors()), (wrapped(value), wrapped(errors)));
            for &(threshold, before) in &waits {
                let expected = match (wrapped(value) >= threshold, wrapped(errors) != before) {
                    (true, _) => Some(FI_SUCCESS),
                    (false, true) => Some(-FI_EAVAIL),
                    (false, false) => None,
                };
                prop_assert_eq!(cntr.outcome(threshold, before), expected);
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "needs epoll")]
fn every_change_wakes_who_waits() {
    let (wait, waiter) = Waiter::new();
    let mut cntr = Cntr::new(wait);
    for step in [Step::Add(1), Step::Set(1), Step::AddError(1), Step::SetError(0)] {
        waiter.is_woken_by(&mut cntr, |cntr| &mut cntr.wait, |cntr| apply(cntr, &step));
    }
}
