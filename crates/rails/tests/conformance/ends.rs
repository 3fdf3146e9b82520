//! Links that end in the middle of everything: each operation ends once, right or with an error, and what arrives is right.

use crate::over;
use crate::support::BOUND;
use crate::support::node::{End, GONE, Node};
use polyrail_rails::Config;
use polyrail_rails::config::Faults;
use std::time::{Duration, Instant};

/// Receives that wait at any time.
const POSTED: usize = 16;
const LARGEST: usize = 300_000;
const REGION: usize = 200_000;

/// Operations of all kinds until links have ended so often; how many were begun.
fn run(config: Config, wanted: usize) -> usize {
    let (mut a, mut b) = (Node::open(config.clone()), Node::open(config));
    let to = a.peer(&b.worker.address());
    b.region(1, REGION);
    let mut posted: Vec<u64> = Vec::new();
    let (mut begun, mut lost) = (0, 0);
    let start = Instant::now();
    while lost < wanted {
        posted.retain(|id| b.end(*id).is_none());
        while posted.len() < POSTED {
            posted.push(b.recv(None, None, LARGEST));
        }
        let tag = begun as u64 + 2;
        let all = [
            a.send(to, tag, 100),
            a.send(to, tag + 1, LARGEST),
            a.get(to, 1, REGION),
            a.send(to, tag + 2, 20_000),
            a.get(to, 1, 100),
        ];
        begun += all.len();
        while all.iter().any(|id| a.end(*id).is_none()) {
            a.progress();
            b.progress();
            let left: Vec<_> = all.iter().map(|id| a.end(*id)).collect();
            assert!(start.elapsed() < BOUND, "does not end: {left:?}: {}", a.why(to));
        }
        let ends: Vec<End> = all.iter().filter_map(|id| a.end(*id)).collect();
        assert!(ends.iter().all(|end| [End::Right, GONE].contains(end)), "{ends:?}");
        assert!(posted.iter().all(|id| b.end(*id) != Some(End::Wrong)));
        lost += usize::from(ends.contains(&GONE));
    }
    begun
}

#[test]
fn links_that_end_at_any_frame_end_every_operation_once() {
    over::each(|config| {
        for seed in 0..6 {
            let faults = Faults { end: true, ..Faults::harmless(seed) };
            // a peer that is lost is tried again at once
            let config = Config { faults: Some(faults), linger: Duration::ZERO, ..config.clone() };
            assert!(run(config, 2) > 0);
        }
    });
}
