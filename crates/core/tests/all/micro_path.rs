//! How long datagrams become: the search for what the path takes, and what ends it.

use crate::micro_support::{Line, MS, Net, S, limits};
use polyrail_core::micro::{Composition, Limits};

const BASE: u32 = 1200;

/// A stream over a path that takes datagrams of so many bytes.
fn stream(mtu: u32) -> (Net, usize) {
    let line = Line { mtu, ..Line::new(100, 20 * MS) };
    let mut net = Net::new(3, line, line);
    let a = net.join(Composition::SyncCubic);
    net.give(a, 1 << 40);
    (net, a)
}

#[test]
fn the_upper_bound_is_right_after_a_round_trip() {
    let (mut net, a) = stream(1472);
    assert_eq!(net.shared(a).size, BASE);
    net.run(25 * MS);
    assert_eq!(net.shared(a).size, 1472);
}

#[test]
fn what_lies_between_is_found_nearly_and_its_probes_are_no_congestion() {
    for mtu in [1200, 1210, 1300, 1420, 1460, 1471] {
        let (mut net, a) = stream(mtu);
        net.run(10 * S);
        let shared = net.shared(a);
        assert!((mtu - 16..=mtu).contains(&shared.size.max(BASE)), "{} of {mtu}", shared.size);
        assert!(shared.size >= BASE);
        // window and pace are those of a stream that did not ask
        let had = net.ends[a + 1].had;
        assert!(had as f64 > 0.9 * 10.0 * 12.5e6, "{mtu}: {had}");
    }
}

#[test]
fn no_stream_waits_for_a_probe() {
    let mut times = Vec::new();
    for composition in [Composition::SyncReno, Composition::SyncCubic] {
        let line = Line { mtu: 1200, ..Line::new(100, 20 * MS) };
        let mut net = Net::new(3, line, line);
        let a = net.join(composition);
        if composition == Composition::SyncReno {
            // it does not search: it is told
            net.ends[a].channel.set_size(BASE);
        }
        net.give(a, 8 << 10);
        assert!(net.run_until_had(a + 1, 8 << 10, S));
        times.push(net.now);
    }
    assert!(times[1] <= times[0] + MS / 5, "{times:?}");
}

#[test]
fn a_path_that_takes_less_from_now_on_is_noticed() {
    for least in [1200, 1300] {
        let (mut net, a) = stream(1472);
        net.run(S);
        assert_eq!(net.shared(a).size, 1472);
        net.forth.mtu = least;
        let had = net.ends[a + 1].had;
        net.run(3 * S);
        assert!((BASE..=least).contains(&net.shared(a).size), "{}", net.shared(a).size);
        assert!(net.ends[a + 1].had > had + (1 << 20), "it goes on");
    }
}

#[test]
fn an_outage_is_no_short_path() {
    let (mut net, a) = stream(1472);
    net.run(S);
    net.forth.loss = 1_000_000;
    net.run(3 * S);
    net.forth.loss = 0;
    net.run(6 * S);
    assert_eq!(net.shared(a).size, 1472);
}

#[test]
fn random_losses_are_no_short_path() {
    let line = Line::new(100, 20 * MS).losing(100_000);
    let mut net = Net::new(5, line, line);
    let a = net.join(Composition::SyncBbr);
    net.give(a, 1 << 40);
    net.run(20 * S);
    assert_eq!(net.shared(a).size, 1472);
}

#[test]
fn who_never_sends_never_asks() {
    let (mut net, a) = stream(1472);
    net.run(S);
    assert_eq!(net.shared(a + 1).size, BASE);
    assert!(net.shared(a + 1).flight.is_empty() && net.shared(a + 1).flight.remembered() == 0);
}

#[test]
fn long_datagrams_are_used_where_they_pass_and_ethernets_where_not() {
    for (mtu, soon, within) in [(8972, 8972, 25 * MS), (1472, 1472, 200 * MS), (4000, 3980, 5 * S)] {
        let line = Line { mtu, ..Line::new(1000, 20 * MS) };
        let mut net = Net::new(3, line, line);
        let a = net.join_with(Composition::SyncCubic, &Limits { size: 8972, ..limits() });
        net.give(a, 1 << 40);
        net.run(within);
        assert!((soon..=mtu).contains(&net.shared(a).size), "{mtu}: {}", net.shared(a).size);
    }
}
