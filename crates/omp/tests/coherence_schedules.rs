//! Random OpenMP programs on several ranks, in random orders: stores, loads, locks, critical sections, `ordered`, barriers, atomic operations, locks of the program's own, flags
//! and flushes, `single`s that nobody waits for, loops that are shared out. Every read has what OpenMP's memory model allows, in the end all memories are equal, nothing
//! hangs, and no program without a race is refused.
//!
//! `PROPTEST_CASES=1000000 cargo test --release -p polyrail-omp --test coherence_schedules` runs a million; `COHERENCE_SEED=N` that one alone.
mod coherence_support;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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
    let (next, reads, races) = (AtomicU64::new(seeds.start), AtomicU64::new(0), AtomicU64::new(0));
    let failed: Mutex<Option<(u64, String)>> = Mutex::new(None);
    let work = || {
        while failed.lock().is_ok_and(|failed| failed.is_none()) {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= seeds.end {
                return;
            }
            let mut random = Random::new(seed);
            let plan = Plan::new(&mut random);
            let world = run(plan, random, thread);
            if let Err(wrong) = end(&world) {
                let why = format!("schedule {seed}: {wrong}\nsuccesses: {seed}\n{:#?}", world.plan);
                let mut failed = failed.lock().expect("nobody fails while having it");
                if failed.as_ref().is_none_or(|(other, _)| seed < *other) {
                    *failed = Some((seed, why));
                }
            }
            reads.fetch_add(world.oracle.borrow_mut().reads, Relaxed);
            races.fetch_add(u64::from(world.trouble.borrow_mut().is_some()), Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    if let Some((_, why)) = failed.into_inner().expect("nobody fails while having it") {
        panic!("{why}");
    }
    let (reads, races) = (reads.into_inner(), races.into_inner());
    println!("{} schedules, {reads} reads, {races} ended by a race or held up", seeds.end - seeds.start);
}
