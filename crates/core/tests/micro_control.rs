//! Congestion controllers over simulated paths: what they make of a line, how they share it, and how they go on after a rest. Figures are
//! pinned in `snapshots/micro_control.md`; bounds are asserted beside them.
mod micro_support;

use Composition::{SyncBbr, SyncCubic, SyncHtcp, SyncIllinois, SyncReno};
use micro_support::{Line, MS, Net, S, US};
use polyrail_core::micro::{Composition, Time};

const ALL: [Composition; 5] = [SyncReno, SyncCubic, SyncBbr, SyncIllinois, SyncHtcp];
const RATES: [u64; 2] = [100, 1000];
const ROUND_TRIPS: [Time; 3] = [100 * US, 20 * MS, 100 * MS];
const LOSSES: [u64; 4] = [0, 100, 1000, 10_000];
/// More than any test sends.
const MUCH: u64 = 1 << 40;

/// The part of the line that a stream has, from one time to another.
fn share(composition: Composition, mbit: u64, rtt: Time, loss: u64, from: Time, to: Time) -> f64 {
    let mut net = Net::new(7, Line::new(mbit, rtt).losing(loss), Line::new(mbit, rtt));
    let a = net.join(composition);
    net.give(a, MUCH);
    net.run(from);
    let before = net.ends[a + 1].had;
    net.run(to);
    (net.ends[a + 1].had - before) as f64 / (net.forth.rate as f64 * (to - from) as f64 / 1e9)
}

#[test]
fn lines() {
    let only = std::env::var("ONLY").unwrap_or_default();
    for composition in ALL.into_iter().filter(|one| one.name().contains(&only)) {
        for mbit in RATES {
            for rtt in ROUND_TRIPS {
                let start = std::time::Instant::now();
                let shares: Vec<String> = LOSSES
                    .iter()
                    .map(|loss| format!("{:.3}", share(composition, mbit, rtt, *loss, S, 4 * S)))
                    .collect();
                println!(
                    "{} {mbit} {} {} {:?}",
                    composition.name(),
                    rtt / US,
                    shares.join(" "),
                    start.elapsed()
                );
            }
        }
    }
}
