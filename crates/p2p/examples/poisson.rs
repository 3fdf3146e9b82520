//! Jacobi's method for -Lap u = 1 in a square, in slabs of rows: what a program of one's own needs of Polyrail, whole.
//!
//! `cargo run --release -p polyrail-p2p --example poisson [async]`. Four members, each a thread with an endpoint of its own, as processes on other machines
//! would be. All four calls are in `solve`; the scheme is chosen in `main`, and nothing else changes.

use polyrail_p2p::{Error, Founding, Job, Link, Peers, Received, Scheme, Settings};
use std::time::Duration;

const POINTS: usize = 128;
const MEMBERS: usize = 4;

/// One slab: its rows, with a row of each neighbour's around them.
fn solve(mut peers: Peers) -> Result<(u64, f64), Error> {
    let part = peers.parts()[0];
    let rows = POINTS / MEMBERS;
    let mut u = vec![vec![0.0_f64; POINTS + 2]; rows + 2];
    let h2 = 1.0 / ((POINTS + 1) * (POINTS + 1)) as f64;
    // the part beyond, our row next to it, and where its row belongs
    let above = part.checked_sub(1).map(|other| (other, 1, 0));
    let below =
        Some(part + 1).filter(|other| *other < peers.view().job.parts).map(|other| (other, rows, rows + 1));
    let mut bytes = vec![0; POINTS * 8];
    loop {
        for (other, row, _) in above.iter().chain(&below) {
            bytes.clear();
            bytes.extend(u[*row][1..=POINTS].iter().flat_map(|value| value.to_le_bytes()));
            peers.send(Link::new(part, *other), &bytes)?;
        }
        for (other, _, row) in above.iter().chain(&below) {
            // out of step there need not be anything new, and then the bytes are those of before
            if !matches!(peers.receive(Link::new(*other, part), &mut bytes)?, Received::New { .. }) {
                continue;
            }
            for (value, bytes) in u[*row][1..=POINTS].iter_mut().zip(bytes.chunks_exact(8)) {
                *value = f64::from_le_bytes(*bytes.first_chunk().expect("eight bytes"));
            }
        }
        let before = u.clone();
        let mut change = 0.0_f64;
        for y in 1..=rows {
            for x in 1..=POINTS {
                let around = before[y][x - 1] + before[y][x + 1] + before[y - 1][x] + before[y + 1][x];
                u[y][x] = (around + h2) / 4.0;
                change = change.max((u[y][x] - before[y][x]).abs());
            }
        }
        if let Some(verdict) = peers.converged(change)? {
            let most = before.iter().flatten().copied().fold(0.0, f64::max);
            peers.leave(Duration::from_secs(5));
            return Ok((verdict.iteration, most));
        }
    }
}

fn main() -> Result<(), Error> {
    let asynchronous = std::env::args().nth(1).is_some_and(|word| word == "async");
    let scheme = if asynchronous { Scheme::Asynchronous } else { Scheme::Synchronous };
    let job = Job { parts: MEMBERS as u32, scheme, tolerance: 1e-8, every: 16, keep: 0, task: Vec::new() };
    let founding = Founding::new(Settings::from_env()?)?;
    let address = founding.address();
    let members = std::thread::scope(|scope| {
        let join = || scope.spawn(move || solve(Peers::join(Settings::from_env()?, &address)?));
        let threads: Vec<_> = (1..MEMBERS).map(|_| join()).collect();
        let first = solve(founding.gather(job, MEMBERS - 1, |_| Ok(()))?);
        let rest = threads.into_iter().map(|thread| thread.join().expect("it ends"));
        std::iter::once(first).chain(rest).collect::<Result<Vec<_>, Error>>()
    })?;
    let most = members.iter().map(|(_, most)| *most).fold(0.0, f64::max);
    let iterations: Vec<_> = members.iter().map(|(iterations, _)| iterations).collect();
    println!("the largest value is {most:.4}, after {iterations:?} iterations");
    // of the solution between the points it is 0.07367
    assert!((most - 0.0737).abs() < 1e-3, "it is another solution");
    Ok(())
}
