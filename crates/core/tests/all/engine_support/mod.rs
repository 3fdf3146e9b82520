//! Worlds for engine tests, and what must hold of each when all is over.

pub mod fuzz;
pub mod oracle;
pub mod plan;
pub mod run;

pub use fuzz::{message, pattern};

use polyrail_core::frame::{Matching, OpId};
use polyrail_core::proto::{Filter, Message, Owed, PeerIdx, Place, Route, Scheme};
use polyrail_core::sim::{Join, RailSpec, World};
use proptest::prelude::ProptestConfig;

/// So many cases, unless PROPTEST_CASES says otherwise.
pub fn cases(cases: u32) -> ProptestConfig {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() { config } else { ProptestConfig { cases, ..config } }
}

/// Thresholds that small messages reach.
pub const ROUTE: Route =
    Route { eager_max: 100, fragment: 64, scheme: Scheme::Fragments, window: 64, immediate: false };

/// A rail on which lengths matter: 1 us, 1 byte per nanosecond.
pub const RAIL: RailSpec = RailSpec {
    latency: 1000,
    jitter: 0,
    bandwidth: 1_000_000_000,
    queue: 1000,
    keeps: true,
    split: 16,
    overtaking: None,
};

pub fn join(scheme: Scheme) -> Join {
    Join { route: Route { scheme, ..ROUTE }, rails: vec![RAIL], ..Join::default() }
}

/// Nodes that are all joined alike, each with itself too.
pub fn mesh(seed: u64, nodes: usize, join: &Join) -> World {
    let mut world = World::new(seed, nodes, join.route.window);
    for a in 0..nodes {
        for b in a..nodes {
            world.join(a, b, join);
        }
    }
    world
}

pub fn untagged() -> Message {
    Message { matching: Matching::Message, ..message(0) }
}

pub fn filter(source: Option<usize>, tag: u64) -> Filter {
    Filter { source: source.map(|peer| PeerIdx(peer as u32)), matching: Matching::Tag(tag), ignore: 0 }
}

pub fn any_tag() -> Filter {
    Filter { source: None, matching: Matching::Tag(0), ignore: u64::MAX }
}

pub fn any_untagged() -> Filter {
    Filter { source: None, matching: Matching::Message, ignore: 0 }
}

/// Nothing is left over, nothing was torn, nobody was blamed.
pub fn assert_clean(world: &World, nodes: usize) {
    for at in 0..nodes {
        let node = world.node(at);
        assert_eq!(node.broken, vec![], "node {at} blames somebody");
        assert_eq!(
            node.torn, 0,
            "node {at} sent bytes of an operation that had ended, or ended one too early"
        );
        assert_eq!(node.memory.overwritten, 0, "node {at} received bytes twice");
        assert_idle(world, at);
        for peer in 0..nodes {
            let peer = PeerIdx(peer as u32);
            assert!(node.engine.is_quiet(peer), "node {at} is not done with {peer}");
            assert_eq!(node.engine.owed(peer), Owed::default(), "node {at} owes {peer}");
        }
    }
}

/// No operation is left in any table.
pub fn assert_idle(world: &World, at: usize) {
    let node = world.node(at);
    assert!(
        node.engine.in_flight().iter().all(|n| *n == 0),
        "node {at}: in flight {:?}",
        node.engine.in_flight()
    );
    assert_eq!(node.unfinished(), [0; 3], "node {at}: held, incoming, stashed");
    let op = OpId::default();
    for place in [Place::Send(op), Place::Recv(op), Place::Rma(op), Place::Stash(op)] {
        assert_eq!(node.memory.count(place), 0, "node {at} keeps a buffer like {place:?}");
    }
}
