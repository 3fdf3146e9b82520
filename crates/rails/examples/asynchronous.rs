//! An asynchronous iteration: blocks of a system of equations are solved side by side, none waits for another, and one is ten times as slow.
//!
//! `cargo run --release -p polyrail-rails --example asynchronous [BLOCKS]`. It is 4 x[i] = 1 + x[i-1] + x[i+1], a thread and an endpoint for each
//! block. After each sweep a block puts the ends of what it has for its neighbours, and goes on with what is the newest of theirs; it
//! ends when all of them change by next to nothing. It prints a line for each block, and how far the equations are from being fulfilled.

use polyrail_rails::mailbox::{Mailbox, Scheme, Taken};
use polyrail_rails::{Config, PeerIdx};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

/// Unknowns of a block.
const LEN: usize = 2000;
/// Who changes by no more than this has a solution.
const ENOUGH: f64 = 1e-13;
/// The nearest unknown of a neighbour has been had if it is what the neighbour used, but for this.
const SAME: f64 = 1e-11;
/// What is put after a sweep: the nearest unknown, the largest change, and which unknown of the neighbour's it was made with.
const EDGE: u64 = 1;

/// A neighbour, and what is the newest of it.
struct Neighbour {
    peer: PeerIdx,
    edge: f64,
    change: f64,
    used: f64,
    age: Duration,
}

impl Neighbour {
    fn look(&mut self, mailbox: &mut Mailbox) {
        if let Taken::New { bytes, age, .. } = mailbox.take(self.peer, EDGE) {
            let number = |at| f64::from_le_bytes(*bytes[at..].first_chunk().expect("three numbers"));
            (self.edge, self.change, self.used) = (number(0), number(8), number(16));
            self.age = self.age.max(Duration::from_nanos(age));
        }
    }

    /// Whether it has come to its end with this unknown of ours.
    fn agrees(&self, ours: f64) -> bool {
        self.change <= ENOUGH && (self.used - ours).abs() <= SAME
    }
}

/// Sweeps once; the largest change.
fn sweep(x: &mut [f64], left: f64, right: f64) -> f64 {
    let (mut before, mut change) = (left, 0.0_f64);
    for i in 0..x.len() {
        let next = x.get(i + 1).copied().unwrap_or(right);
        let new = (1.0 + before + next) / 4.0;
        change = change.max((new - x[i]).abs());
        (before, x[i]) = (x[i], new);
    }
    change
}

fn solve(block: usize, addresses: &Mutex<Vec<Vec<u8>>>, all: &Barrier) -> Vec<f64> {
    let mut mailbox = Mailbox::open(Config::from_env().expect("settings")).expect("an endpoint");
    addresses.lock().expect("it is whole")[block] = mailbox.worker().address().to_vec();
    all.wait();
    let known = addresses.lock().expect("it is whole").clone();
    let mut meet = |of: Option<usize>| {
        let peer = mailbox.peer(known.get(of?)?).expect("an address");
        mailbox.set_scheme(peer, Scheme::Asynchronous);
        Some(Neighbour { peer, edge: 0.0, change: f64::MAX, used: 0.0, age: Duration::ZERO })
    };
    let mut beside = [meet(block.checked_sub(1)), meet(Some(block + 1))];
    let (mut x, mut sweeps, start) = (vec![0.0; LEN], 0_u64, Instant::now());
    loop {
        let edge = |at: &Option<Neighbour>| at.as_ref().map_or(0.0, |one| one.edge);
        let change = sweep(&mut x, edge(&beside[0]), edge(&beside[1]));
        if block == 1 {
            std::thread::sleep(Duration::from_micros(200));
        }
        sweeps += 1;
        for (neighbour, edge) in beside.iter_mut().zip([x[0], x[LEN - 1]]) {
            let Some(neighbour) = neighbour else { continue };
            let bytes = [edge, change, neighbour.edge].map(f64::to_le_bytes).concat();
            // who is gone has ended, and its last values are here
            let _ = mailbox.put(neighbour.peer, EDGE, sweeps, &bytes);
        }
        mailbox.progress();
        beside.iter_mut().flatten().for_each(|one| one.look(&mut mailbox));
        let mut ends = beside.iter().zip([x[0], x[LEN - 1]]);
        if change <= ENOUGH && ends.all(|(one, ours)| one.as_ref().is_none_or(|one| one.agrees(ours))) {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "no solution");
    }
    let oldest = beside.iter().flatten().map(|one| one.age).max().unwrap_or_default();
    println!(
        "block {block}: {sweeps} sweeps in {:?}; no value waited here for more than {oldest:?}",
        start.elapsed()
    );
    x
}

fn main() {
    let blocks = std::env::args().nth(1).map_or(4, |n| n.parse().expect("how many blocks"));
    let (addresses, all) = (Mutex::new(vec![Vec::new(); blocks]), Barrier::new(blocks));
    let x: Vec<f64> = std::thread::scope(|scope| {
        let solve = |block| {
            scope.spawn({
                let (addresses, all) = (&addresses, &all);
                move || solve(block, addresses, all)
            })
        };
        let threads: Vec<_> = (0..blocks).map(solve).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a solution")).collect()
    });
    let at = |i: usize| x.get(i).copied().unwrap_or(0.0);
    let wrong = |i: usize| (4.0 * x[i] - 1.0 - at(i.wrapping_sub(1)) - at(i + 1)).abs();
    let worst = (0..x.len()).map(wrong).fold(0.0, f64::max);
    println!("{} unknowns, wrong by {worst:e} at most", x.len());
    assert!(worst < 1e-9);
}
