//! Random OpenMP programs on several ranks, in random orders: stores, loads, locks, critical sections, `ordered`, barriers, atomic operations, locks of the program's own, flags
//! and flushes, `single`s that nobody waits for, loops that are shared out. Every read has what OpenMP's memory model allows, in the end all memories are equal, nothing
//! hangs, and no program without a race is refused.
//!
//! `PROPTEST_CASES=1000000 cargo test --release -p polyrail-omp --test coherence_schedules` runs a million; `COHERENCE_SEED=N` that one alone.
mod coherence_support;

use coherence_support::plan::Plan;
use coherence_support::program::{end, thread};
use coherence_support::random::Random;
use coherence_support::world::run;

/// So many schedules, unless PROPTEST_CASES says otherwise.
const SCHEDULES: u64 = 2000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn every_read_is_one_that_the_memory_model_allows() {
    let seeds = match number("COHERENCE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("PROPTEST_CASES").unwrap_or(SCHEDULES),
    };
    let (mut reads, mut found) = (0, 0);
    for seed in seeds.clone() {
        let mut random = Random::new(seed);
        let plan = Plan::new(&mut random);
        let world = run(plan, random, thread);
        if let Err(wrong) = end(&world) {
            panic!("schedule {seed}: {wrong}\nsuccesses: {seed}\n{:#?}", world.plan);
        }
        reads += world.oracle.borrow_mut().reads;
        found += u64::from(world.trouble.borrow_mut().is_some());
    }
    println!("{} schedules, {reads} reads, {found} races found", seeds.count());
}
