//! Rules of the data channel that were once broken, each by the least path that shows it.

use crate::micro_support::{Line, MS, Net, S};
use polyrail_core::micro::Composition;

const ALL: [Composition; 5] = [
    Composition::SyncReno,
    Composition::SyncCubic,
    Composition::SyncBbr,
    Composition::SyncIllinois,
    Composition::SyncHtcp,
];

#[test]
fn after_a_loss_every_second_datagram_is_acknowledged_as_before() {
    // one is lost in the middle of thousands
    let line = Line::new(100, 20 * MS);
    let mut net = Net::new(1, line, line);
    let a = net.join(Composition::SyncReno);
    net.give(a, 1 << 20);
    net.run(60 * MS);
    net.forth.loss = 1_000_000;
    net.run(61 * MS);
    net.forth.loss = 0;
    net.run(2 * S);
    let before = net.shared(a + 1).counters;
    net.give(a, 2 << 20);
    assert!(net.run_until_had(a + 1, 3 << 20, 10 * S));
    let after = net.shared(a + 1).counters;
    assert!(net.lost > 0);
    let (had, said) = (after.received - before.received, after.sent - before.sent);
    assert!(said * 10 <= had * 6, "{said} acknowledgements of {had}");
}

#[test]
fn who_only_acknowledges_keeps_nothing_of_that() {
    let line = Line::new(100, 20 * MS);
    let mut net = Net::new(1, line, line);
    let a = net.join(Composition::SyncReno);
    net.give(a, 8 << 20);
    assert!(net.run_until_had(a + 1, 8 << 20, 10 * S));
    assert!(net.shared(a + 1).counters.sent > 1000);
    assert!(net.shared(a + 1).flight.remembered() <= 1);
}

/// The most bytes that leave within so long, of a stream after its first second.
fn burst(composition: Composition, mbit: u64, within: u64) -> u64 {
    let line = Line::new(mbit, 20 * MS);
    let mut net = Net::new(1, line, line);
    let a = net.join(composition);
    net.give(a, 1 << 40);
    let from = if mbit > 1000 { 600 * MS } else { S };
    net.run(from);
    let (mut sent, mut most) = (std::collections::VecDeque::new(), 0);
    let (mut before, mut sum) = (net.shared(a).flight.next(), 0);
    while net.now < from + 200 * MS && net.step(2 * S) {
        let next = net.shared(a).flight.next();
        let fresh: u64 =
            (before..next).filter_map(|n| net.shared(a).flight.get(n)).map(|sent| u64::from(sent.size)).sum();
        before = next;
        sent.push_back((net.now, fresh));
        sum += fresh;
        while sent.front().is_some_and(|(at, _)| at + within < net.now) {
            sum -= sent.pop_front().expect("it is there").1;
        }
        most = most.max(sum);
    }
    most
}

#[test]
fn datagrams_leave_at_the_pace_and_not_in_heaps() {
    for mbit in [10, 100, 1000, 10_000] {
        // half a millisecond's bytes at a pace of up to a quarter more than the line, and a quantum
        let within = MS / 2;
        let line = mbit * 125_000 * within / S;
        let quantum = (mbit * 125_000 / 4000).clamp(2 * 1472, 1 << 16);
        let most = burst(Composition::SyncBbr, mbit, within);
        assert!(most <= line * 5 / 4 + quantum + 2 * 1472, "{mbit}: {most} of {line} and {quantum}");
    }
}

#[test]
fn after_a_rest_no_more_leaves_at_once_than_a_burst() {
    let line = Line::new(1000, 20 * MS);
    let mut net = Net::new(1, line, line);
    let a = net.join(Composition::SyncCubic);
    net.give(a, 64 << 20);
    assert!(net.run_until_had(a + 1, 64 << 20, 10 * S));
    net.run(net.now + S);
    let before = net.shared(a).flight.next();
    net.give(a, 4 << 20);
    let at_once = net.shared(a).flight.next() - before;
    assert!((10..=45).contains(&at_once), "{at_once}");
}

#[test]
fn datagrams_that_are_only_late_cost_no_window() {
    // one in fifty comes up to 8 ms after its time; none is lost
    for composition in ALL {
        let line = Line { reordered: 20_000, late: 8 * MS, ..Line::new(100, 20 * MS) };
        let mut net = Net::new(1, line, Line::new(100, 20 * MS));
        let a = net.join(composition);
        net.give(a, 1 << 40);
        net.run(S);
        let before = net.ends[a + 1].had;
        net.run(5 * S);
        let share = (net.ends[a + 1].had - before) as f64 / (4.0 * 12.5e6);
        println!("{composition:?} {share:.3} {:?}", net.shared(a).counters);
        assert!(share > 0.85, "{composition:?}: {share}");
    }
}

#[test]
fn marks_of_routers_keep_queues_short_without_losses() {
    for composition in ALL {
        let line = Line::new(100, 20 * MS);
        let line = Line { mark_at: line.queue / 2, ..line };
        let mut net = Net::new(1, line, line);
        let a = net.join(composition);
        net.give(a, 1 << 40);
        net.run(2 * S);
        let (lost, before) = (net.shared(a).counters.lost, net.ends[a + 1].had);
        net.run(12 * S);
        let share = (net.ends[a + 1].had - before) as f64 / (10.0 * 12.5e6);
        println!("{composition:?} {share:.3} {:?}", net.shared(a).counters);
        assert!(share > 0.85, "{composition:?}: {share}");
        assert_eq!(net.shared(a).counters.lost, lost, "{composition:?}");
        assert!(net.shared(a).counters.marked > 0);
    }
}

/// On a path that loses one in fifty, short messages one at a time: what is lost costs half a round trip, not two.
#[test]
fn what_is_short_is_repeated_where_packets_are_lost() {
    let line = Line::new(1000, 20 * MS).losing(20_000);
    let mut net = Net::new(5, line, line);
    let a = net.join(Composition::SyncBbr);
    net.give(a, 8 << 20);
    assert!(net.run_until_had(a + 1, 8 << 20, 100 * S));
    let mut took: Vec<u64> = (0..1000)
        .map(|n| {
            net.run(net.now + 100 * MS);
            let begun = net.now;
            net.give(a, 1000);
            assert!(net.run_until_had(a + 1, (8 << 20) + 1000 * (n + 1), net.now + S));
            net.now - begun
        })
        .collect();
    took.sort_unstable();
    assert!(took[990] <= 25 * MS, "{} us", took[990] / 1000);
    let again = net.shared(a).counters.again;
    assert!(again < 2_000_000, "each is sent twice at most, but for some: {again}");
}
