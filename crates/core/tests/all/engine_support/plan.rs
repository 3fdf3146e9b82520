//! Random work for a random world; `run` carries it out.

use polyrail_core::frame::Status;
use polyrail_core::proto::{Bounds, Delivery, Route, Scheme};
use polyrail_core::sim::{Direct, Join, LaneFault, LaneSpec, MS, Overtaking, RailSpec, S, Spread, Time, US};
use proptest::collection::vec;
use proptest::prelude::*;

/// A length near a threshold.
#[derive(Clone, Copy, Debug)]
pub enum Size {
    Small(u64),
    Eager(i8),
    Fragments(u8, i8),
}

#[derive(Clone, Debug)]
pub enum Step {
    Send {
        from: usize,
        to: usize,
        tag: Option<u64>,
        size: Size,
        delivery: Delivery,
        short: bool,
        pieces: u64,
    },
    Recv {
        at: usize,
        from: Option<usize>,
        tag: Option<u64>,
        ignore: u64,
        room: Size,
        pieces: u64,
    },
    Multi {
        at: usize,
        from: Option<usize>,
        room: u64,
        least: u64,
    },
    Cancel(usize),
    Claim {
        at: usize,
        from: Option<usize>,
        tag: Option<u64>,
        ignore: u64,
    },
    Take(usize, Size),
    Put {
        from: usize,
        to: usize,
        sizes: Vec<Size>,
        data: bool,
        pieces: u64,
        wrong: Option<Status>,
    },
    Get {
        from: usize,
        to: usize,
        sizes: Vec<Size>,
        pieces: u64,
        wrong: Option<Status>,
    },
    Add {
        from: usize,
        to: usize,
        fetch: bool,
    },
    Swap {
        from: usize,
        to: usize,
    },
    Active {
        from: usize,
        to: usize,
    },
    Wait(Time),
    /// The link of a pair ends; the second is told so much later.
    Cut(usize, usize, Time),
    /// It comes up again.
    Rejoin(usize, usize),
    /// Something befalls the lanes of a pair that go by a path.
    Befall(usize, usize, usize, LaneFault),
    /// The region that peers write to is closed, and its key given to the same memory again.
    Renew(usize),
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub nodes: usize,
    pub window: u32,
    pub bounds: Bounds,
    /// One for each pair, self included; used in turn.
    pub joins: Vec<Join>,
    /// How many steps are made before links come up.
    pub early: usize,
    pub steps: Vec<Step>,
    /// Whether links end before all is done.
    pub lossy: bool,
}

pub const NODES: usize = 3;
/// What is not over by then never will be.
pub const HANGS: Time = 60 * S;

fn size() -> impl Strategy<Value = Size> {
    prop_oneof![
        2 => Just(Size::Small(0)),
        3 => (0..20u64).prop_map(Size::Small),
        4 => (-1..=1i8).prop_map(Size::Eager),
        4 => (1..5u8, -1..=1i8).prop_map(|(n, d)| Size::Fragments(n, d)),
        1 => (100..2000u64).prop_map(Size::Small),
    ]
}

fn node() -> impl Strategy<Value = usize> {
    0..NODES
}

fn tag() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![3 => (0..3u64).prop_map(Some), 1 => (0..3u64).prop_map(|t| Some(t << 62 | 1)), 2 => Just(None)]
}

fn ignore() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![0, 0, 0, 3, 3 << 62, u64::MAX])
}

fn delivery() -> impl Strategy<Value = Delivery> {
    prop::sample::select(vec![Delivery::Sent, Delivery::Soon, Delivery::Delivered, Delivery::Matched])
}

fn pieces() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![1, 1, 3, 9])
}

fn wrong() -> impl Strategy<Value = Option<Status>> {
    prop::sample::select(vec![None, None, None, None, Some(Status::Access), Some(Status::Range)])
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => (node(), node(), tag(), size(), delivery(), any::<bool>(), pieces()).prop_map(
            |(from, to, tag, size, delivery, short, pieces)| Step::Send {
                from, to, tag, size, delivery, short, pieces
            }
        ),
        25 => (node(), prop::option::of(node()), tag(), ignore(), size(), pieces()).prop_map(
            |(at, from, tag, ignore, room, pieces)| Step::Recv { at, from, tag, ignore, room, pieces }
        ),
        3 => (node(), prop::option::of(node()), 0..1000u64, 0..200u64)
            .prop_map(|(at, from, room, least)| Step::Multi { at, from, room, least }),
        4 => (0..20usize).prop_map(Step::Cancel),
        4 => (node(), prop::option::of(node()), tag(), ignore())
            .prop_map(|(at, from, tag, ignore)| Step::Claim { at, from, tag, ignore }),
        4 => (0..5usize, size()).prop_map(|(nth, room)| Step::Take(nth, room)),
        8 => (node(), node(), vec(size(), 0..4), any::<bool>(), pieces(), wrong()).prop_map(
            |(from, to, sizes, data, pieces, wrong)| Step::Put { from, to, sizes, data, pieces, wrong }
        ),
        6 => (node(), node(), vec(size(), 0..4), pieces(), wrong())
            .prop_map(|(from, to, sizes, pieces, wrong)| Step::Get { from, to, sizes, pieces, wrong }),
        4 => (node(), node(), any::<bool>()).prop_map(|(from, to, fetch)| Step::Add { from, to, fetch }),
        2 => (node(), node()).prop_map(|(from, to)| Step::Swap { from, to }),
        3 => (node(), node()).prop_map(|(from, to)| Step::Active { from, to }),
        10 => prop_oneof![0..200u64, 0..20_000u64].prop_map(Step::Wait),
        2 => node().prop_map(Step::Renew),
    ]
}

fn rail() -> impl Strategy<Value = RailSpec> {
    let bandwidth = prop::sample::select(vec![100_000_000, 1_000_000_000, 10_000_000_000]);
    let latency = prop_oneof![1..100u64, 1..10_000u64];
    (latency, prop_oneof![Just(0), 0..5000u64], bandwidth, 1..2000usize, any::<bool>(), 0..300usize).prop_map(
        |(latency, jitter, bandwidth, queue, keeps, split)| RailSpec {
            latency,
            jitter,
            bandwidth,
            queue,
            keeps,
            split,
            overtaking: None,
        },
    )
}

fn joins() -> impl Strategy<Value = Join> {
    let scheme = prop::sample::select(vec![Scheme::Get, Scheme::Put, Scheme::Fragments]);
    let direct = prop::sample::select(vec![Direct::Granted, Direct::Refused, Direct::Sometimes(50)]);
    let spread = prop::sample::select(vec![Spread::First, Spread::Turns, Spread::Random]);
    (0..200usize, 1..100usize, scheme, vec(rail(), 1..4), direct, spread, any::<bool>()).prop_map(
        |(eager_max, fragment, scheme, rails, direct, spread, immediate)| Join {
            route: Route { eager_max, fragment, scheme, window: 0, immediate },
            rails,
            spread,
            direct,
            direct_call: 100,
            ..Join::default()
        },
    )
}

/// Few requests, and values of one operation or a little more; or more than any plan has.
fn bounds() -> impl Strategy<Value = Bounds> {
    let few = (1..5u32, 8..30u64).prop_map(|(requests, values)| Bounds {
        requests,
        values,
        announced: Bounds::DEFAULT.announced,
    });
    prop_oneof![3 => few, 1 => Just(Bounds::DEFAULT)]
}

pub fn plan() -> impl Strategy<Value = Plan> {
    let window = prop_oneof![0..8u32, 8..200u32];
    let early = prop_oneof![Just(0usize), 0..10usize];
    (any::<u64>(), window, bounds(), vec(joins(), 1..4), early, vec(step(), 0..60)).prop_map(
        |(seed, window, bounds, joins, early, steps)| {
            let (nodes, lossy) = (NODES, false);
            Plan { seed, nodes, window, bounds, joins, early, steps, lossy }
        },
    )
}

/// A path of a network as it is, or a little worse.
fn path() -> impl Strategy<Value = RailSpec> {
    let bandwidth = prop::sample::select(vec![1_000_000, 125_000_000, 1_250_000_000]);
    let latency = prop_oneof![3 => US..200 * US, 1 => MS..20 * MS];
    let again = prop_oneof![US..MS, MS..50 * MS];
    let overtaking = (0..40u8, again).prop_map(|(lost, again)| Overtaking { lost, again });
    let overtaking = prop_oneof![2 => Just(None), 1 => overtaking.prop_map(Some)];
    (latency, prop_oneof![Just(0), 0..100 * US], bandwidth, 200..4000usize, 1..300usize, overtaking).prop_map(
        |(latency, jitter, bandwidth, queue, split, overtaking)| RailSpec {
            latency,
            jitter,
            bandwidth,
            queue,
            keeps: false,
            split,
            overtaking,
        },
    )
}

fn lane_fault() -> impl Strategy<Value = LaneFault> {
    let soon = || prop_oneof![2 => 0..MS, 1 => 0..50 * MS];
    prop_oneof![
        4 => (soon(), soon()).prop_map(|(a, b)| LaneFault::Cut(a, b)),
        3 => prop_oneof![MS..30 * MS, 100 * MS..400 * MS].prop_map(LaneFault::Stall),
        1 => prop::sample::select(vec![100_000, 10_000_000, 1_250_000_000]).prop_map(LaneFault::Slow),
        1 => Just(LaneFault::Silence),
        6 => Just(LaneFault::Another),
        2 => (0..2usize, 0..4usize, any::<bool>()).prop_map(|(a, b, c)| LaneFault::Without(a, b, c)),
    ]
}

/// A plan over sessions of lanes, that fail and come back while it is carried out. Nothing of that may be noticed.
pub fn lanes_plan() -> impl Strategy<Value = Plan> {
    let spec = (vec(path(), 1..4), 1..6usize, 2..20u64, prop::sample::select(vec![0u8, 0, 30]))
        .prop_map(|(paths, connections, got, stillborn)| LaneSpec { paths, connections, got, stillborn });
    let befall = (node(), node(), 0..4usize, lane_fault())
        .prop_map(|(a, b, path, fault)| Step::Befall(a, b, path, fault));
    let wait = prop_oneof![0..MS, 0..30 * MS].prop_map(Step::Wait);
    let more = prop_oneof![2 => befall, 1 => wait];
    (plan(), vec(spec, 1..3), vec((any::<prop::sample::Index>(), more), 0..12)).prop_map(
        |(mut plan, specs, more)| {
            for (join, spec) in plan.joins.iter_mut().zip(specs.iter().cycle()) {
                join.lanes = Some(spec.clone());
                join.route.immediate = false;
            }
            for (index, step) in more {
                let at = index.index(plan.steps.len() + 1);
                plan.steps.insert(at, step);
            }
            plan
        },
    )
}

/// A plan in which links end and come up again.
pub fn lossy_plan() -> impl Strategy<Value = Plan> {
    let cut = (node(), node(), 0..20_000u64).prop_map(|(a, b, notice)| Step::Cut(a, b, notice));
    let fault = prop_oneof![2 => cut, 1 => (node(), node()).prop_map(|(a, b)| Step::Rejoin(a, b))];
    (plan(), vec((any::<prop::sample::Index>(), fault), 1..6)).prop_map(|(mut plan, faults)| {
        for (index, fault) in faults {
            let at = index.index(plan.steps.len() + 1);
            plan.steps.insert(at, fault);
        }
        Plan { lossy: true, ..plan }
    })
}
