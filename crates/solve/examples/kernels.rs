//! How fast the sweeps of `polyrail solve` are on one core of this machine, beside memory itself.
//!
//! ```text
//! scripts/cargo run --release -p polyrail-solve --example kernels [-- POINTS [ROUNDS]]
//! ```
//!
//! All are measured in turn, several times, and the medians printed. Times are those that this thread computes, so that others who
//! compute here take less of the truth; they still share the memory. The triad (STREAM's: a = b + 3 c) goes through 24 bytes a point, and through 32 in fact,
//! because ordinary stores first read what they overwrite; it is counted by 32. A sweep alone goes through 24: it reads and writes u in place, and reads
//! the obstacle.

use nix::time::{ClockId, clock_gettime};
use polyrail_solve::block::Block;
use polyrail_solve::problem::{Instance, Problem};
use polyrail_solve::sweep::{distance, psor, richardson, richardson_many};
use polyrail_solve::values::Values;
use std::hint::black_box;

/// Sweeps that are done in one pass.
const DEEP: usize = 8;

/// What is measured: its name, bytes a point that it goes through at least, and how often it computes each point.
const KERNELS: [(&str, f64, usize); 6] = [
    ("triad", 32.0, 1),
    ("richardson", 24.0, 1),
    ("richardson, 8 sweeps", 24.0, DEEP),
    ("psor", 24.0, 1),
    ("psor, 8 iterations", 24.0, DEEP),
    ("distance", 16.0, 1),
];

fn main() {
    let mut numbers = std::env::args().skip(1).map(|number| number.parse::<usize>().ok());
    let mut number = |usual: usize| numbers.next().unwrap_or(Some(usual)).filter(|number| *number > 0);
    let (Some(n), Some(rounds)) = (number(255), number(7)) else {
        eprintln!(
            "kernels [POINTS [ROUNDS]]: points in each direction, and how often each is measured; from 1"
        );
        std::process::exit(2);
    };
    let problem = Problem { instance: Instance::A, n, dt: None };
    let mut block = Block::new(&problem, [1..n + 1, 1..n + 1, 1..n + 1]);
    let [mut a, b, c] = [0.0, 1.0, 2.0].map(|value| Values::from(vec![value; block.u.len()]));
    let points = (n * n * n) as f64;
    let mut found = KERNELS.map(|_| Vec::new());
    for _ in 0..rounds {
        for (kernel, found) in found.iter_mut().enumerate() {
            let begin = computed();
            match kernel {
                0 => triad(&mut a, &b, &c),
                1 => _ = black_box(richardson(&mut block)),
                2 => _ = black_box(richardson_many(&mut block, DEEP)),
                3 => _ = black_box(psor(&mut block, problem.omega(), 0..2)),
                4 => _ = black_box(psor(&mut block, problem.omega(), 0..2 * DEEP)),
                _ => _ = black_box(distance(&block)),
            }
            found.push((computed() - begin) * 1e9 / points / KERNELS[kernel].2 as f64);
        }
    }
    let medians = found.map(|mut found| {
        found.sort_by(f64::total_cmp);
        found[rounds / 2]
    });
    let stream = KERNELS[0].1 / medians[0];
    println!("{n} x {n} x {n} points, medians of {rounds}, one thread");
    println!("  {:<22}{:>12}{:>10}{:>18}", "", "NS A POINT", "GB/S", "SHARE OF TRIAD");
    for ((name, bytes, times), ns) in KERNELS.into_iter().zip(medians) {
        let rate = bytes / times as f64 / ns;
        println!("  {name:<22}{ns:>12.3}{rate:>10.1}{:>16.0} %", 100.0 * rate / stream);
    }
}

fn triad(a: &mut [f64], b: &[f64], c: &[f64]) {
    for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
        *a = b + 3.0 * c;
    }
    black_box(a);
}

/// Seconds that this thread has computed.
fn computed() -> f64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every kernel counts them");
    time.tv_sec() as f64 + time.tv_nsec() as f64 * 1e-9
}
