//! A path that loses: links by UDP change their composition, and both sides say what changed and why.

use crate::support::BOUND;
use crate::support::node::{End, Node};
use crate::support::path::Path;
use crate::support::puppet::settings;
use polyrail_core::control::rules::{LOSS, Reason};
use polyrail_core::micro::Composition;
use polyrail_core::proto::PeerIdx;
use polyrail_rails::events::{Kind, Record};
use polyrail_rails::list::RailId;
use polyrail_rails::rail::control::{Cause, Control};
use polyrail_rails::top::Lane;
use std::time::{Duration, Instant};

const LEN: usize = 1 << 20;

/// Sends a message from one to the other, in this one process.
fn send(a: &mut Node, b: &mut Node, to: PeerIdx) {
    let (sent, got) = (a.send(to, 5, LEN), b.recv(None, Some(5), LEN));
    let start = Instant::now();
    while a.end(sent).is_none() || b.end(got).is_none() {
        a.progress();
        b.progress();
        assert!(start.elapsed() < BOUND, "{}", a.why(to));
    }
    assert_eq!((a.end(sent), b.end(got)), (Some(End::Right), Some(End::Right)));
}

fn lane(node: &Node) -> Lane {
    node.worker.snapshot().peers[0].lanes[0].clone()
}

fn changes(node: &Node) -> Vec<Record> {
    let mut events = node.worker.snapshot().events;
    events.retain(|event| event.event == Kind::CompositionChanged);
    events
}

#[test]
fn a_path_that_loses_has_both_sides_change_and_say_why() {
    let [mut a, mut b] = [0, 1].map(|_| Node::open(settings("RAILS=udp")));
    let address = b.worker.address();
    let path = Path::start(&address, Duration::from_millis(5), 50);
    let to = a.peer(&path.address(&address));
    send(&mut a, &mut b, to);
    let start = Instant::now();
    while changes(&a).is_empty() || changes(&b).is_empty() {
        send(&mut a, &mut b, to);
        assert!(start.elapsed() < BOUND, "{:?}", a.worker.lanes(to));
    }
    let mut first = [&a, &b].map(|node| changes(node).remove(0));
    // who sends less may find out first all the same
    first.sort_by_key(|event| event.by_peer);
    let [ours, theirs] = &first;
    for event in &first {
        assert_eq!(event.from_composition.as_deref(), Some("sync-cubic"), "{event:?}");
        assert_eq!(event.to_composition.as_deref(), Some("sync-bbr"), "{event:?}");
        assert_eq!(event.lane, Some(0));
        assert!(event.why.starts_with("sync-bbr in place of sync-cubic: "), "{event:?}");
    }
    assert_eq!((ours.by_peer, theirs.by_peer), (Some(false), Some(true)));
    let figures = ours.figures.expect("figures");
    assert!(figures.loss_per_million >= Some(LOSS.enter) && figures.rtt_us >= Some(9_000), "{figures:?}");
    assert_eq!(figures.loss_limit_per_million, Some(LOSS.enter));
    assert!(ours.why.contains(&figures.loss_per_million.unwrap().to_string()), "{ours:?}");
    assert!(theirs.figures.is_none() && theirs.why.ends_with("the peer wanted it"), "{theirs:?}");
    for node in [&a, &b] {
        let lane = lane(node);
        let [rail, composition] = [&lane.rail, &lane.composition].map(Option::as_deref);
        assert_eq!((rail, composition), (Some("udp"), Some("sync-bbr")), "{lane:?}");
    }
}

#[test]
fn what_the_user_wants_stays_and_is_told_so() {
    let [mut a, mut b] = [0, 1].map(|_| Node::open(settings("RAILS=udp COMPOSITION=sync-illinois")));
    let address = b.worker.address();
    let path = Path::start(&address, Duration::from_millis(2), 50);
    let to = a.peer(&path.address(&address));
    let pinned = Control::Composition(Composition::SyncIllinois, Cause::Ours(Reason::Pinned));
    for _ in 0..3 {
        send(&mut a, &mut b, to);
        assert_eq!(a.worker.controls(to), [(RailId::Udp, pinned.clone())]);
    }
    for node in [&a, &b] {
        let lane = lane(node);
        let told = [&lane.composition, &lane.composition_why].map(Option::as_deref);
        assert_eq!(told, [Some("sync-illinois"), Some("the user wants it")]);
        assert!(changes(node).is_empty());
    }
}

#[test]
fn by_tcp_the_kernels_congestion_control_is_told() {
    let [mut a, mut b] = [0, 1].map(|_| Node::open(settings("RAILS=tcp CONGESTION=reno")));
    let to = a.peer(&b.worker.address());
    send(&mut a, &mut b, to);
    assert_eq!(a.worker.controls(to), [(RailId::Tcp, Control::Kernel("reno".into()))]);
    let lane = lane(&b);
    let [rail, control] = [&lane.rail, &lane.congestion_control].map(Option::as_deref);
    assert_eq!((rail, control), (Some("tcp"), Some("reno")));
    assert!(lane.composition.is_none() && lane.composition_why.is_none());
}

/// However often a link changes: both sides tell the same changes, and each of them who wanted it.
#[test]
fn each_change_is_told_by_both_sides_and_is_somebodys() {
    let mut a = Node::open(settings("RAILS=udp FAULTS=7:change"));
    let mut b = Node::open(settings("RAILS=udp"));
    let to = a.peer(&b.worker.address());
    let start = Instant::now();
    while changes(&a).len() < 6 {
        send(&mut a, &mut b, to);
        assert!(start.elapsed() < BOUND, "{:?}", changes(&a));
    }
    while changes(&b).len() < 6 {
        send(&mut a, &mut b, to);
        assert!(start.elapsed() < BOUND, "{:?}", changes(&b));
    }
    let told = |node: &Node| -> Vec<_> {
        changes(node).into_iter().map(|one| (one.from_composition, one.to_composition)).take(6).collect()
    };
    assert_eq!(told(&a), told(&b));
    assert!(changes(&a).iter().all(|one| one.by_peer == Some(false) && one.why.contains("POLYRAIL_FAULTS")));
    assert!(changes(&b).iter().all(|one| one.by_peer == Some(true)));
}
