//! Data channels over paths that lose, double and reorder: all that is sent comes, once and in order, in bounded memory.

use crate::micro_support::{Line, MS, Net, S};
use polyrail_core::micro::Composition;
use proptest::prelude::*;

/// The compositions of the synchronous scheme over a network that loses.
fn synchronous() -> impl Iterator<Item = Composition> {
    Composition::ALL.iter().copied().filter(|one| one.micro_protocols().contains(&"ReliableFIFO"))
}

#[test]
fn all_comes_over_a_path_that_loses_one_in_a_hundred() {
    for composition in synchronous() {
        let line = Line::new(100, 20 * MS).losing(10_000);
        let mut net = Net::new(1, line, line);
        let a = net.join(composition);
        net.give(a, 4 << 20);
        let all = net.run_until_had(a + 1, 4 << 20, 100 * S);
        let sent = net.shared(a);
        println!("{composition:?}: {} ms, {:?}", net.now / MS, sent.counters);
        assert!(all, "{composition:?}: {:?}", sent.counters);
        assert!(!net.ends[a + 1].wrong);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn all_comes_whatever_the_path_does(
        seed: u64, loss in 0_u64..400_000, doubled in 0_u64..200_000, reordered in 0_u64..500_000,
        rtt in 0_u64..30, mbit in 0_u64..200, sends in proptest::collection::vec((0_usize..2, 1_u64..200_000), 1..12),
        which in 0_usize..16, mtu in 1200_u32..1473, mark_at in 0_u64..100_000,
    ) {
        let all: Vec<Composition> = synchronous().collect();
        let composition = all[which % all.len()];
        let mtu = if composition.micro_protocols().contains(&"PathMtu") { mtu } else { 1472 };
        let line = Line { loss, doubled, reordered, late: 40 * MS, mtu, mark_at, ..Line::new(mbit, rtt * MS) };
        let mut net = Net::new(seed, line, line);
        let a = net.join(composition);
        let mut totals = [0; 2];
        for (side, bytes) in sends {
            net.give(a + side, bytes);
            totals[side] += bytes;
            net.run(net.now + 5 * MS);
        }
        for (side, total) in totals.into_iter().enumerate() {
            let came = net.run_until_had(a + (side ^ 1), total, net.now + 1000 * S);
            prop_assert!(came, "{} of {} at {}: {:?}", net.ends[a + (side ^ 1)].had, total, net.now, net.shared(a + side).counters);
        }
        // what is acknowledged last takes a little longer
        net.run(net.now + 20 * S);
        for end in a..a + 2 {
            prop_assert!(!net.ends[end].wrong);
            prop_assert!(net.shared(end).is_delivered());
            prop_assert!(net.shared(end).flight.is_empty());
            prop_assert_eq!(net.shared(end).held, 0);
            prop_assert_eq!(net.ends[end].had, totals[(end - a) ^ 1]);
        }
    }
}
