//! Rules of the data channel that were once broken, each by the least path that shows it.
mod micro_support;

use micro_support::{Line, MS, Net, S};
use polyrail_core::micro::Composition;

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
