//! The choice of protocols by cost: rails made up for the test, and what must hold of all rails.

use crate::snapshot;
use polyrail_core::cost::{DirectCosts, Far, Limits, Protocol, REFERENCE, RailCosts, route, time};
use polyrail_core::frame::MAX_PAYLOAD;
use polyrail_core::proto::{Route, Scheme};
use proptest::prelude::*;

const LIMITS: Limits = Limits::new(MAX_PAYLOAD, (2 << 20) / 64);
const EAGER: Protocol = Protocol::Eager;
const GET: Protocol = Protocol::Rendezvous(Scheme::Get);
const PUT: Protocol = Protocol::Rendezvous(Scheme::Put);
const FRAGMENTS: Protocol = Protocol::Rendezvous(Scheme::Fragments);

/// Asserts which protocol carries messages up to which length; the last one carries all longer ones.
fn assert_choice(costs: &RailCosts, limits: &Limits, expected: &[(u64, Protocol)]) {
    let (_, why) = route(costs, limits);
    let mut from = 0;
    for &(to, protocol) in expected {
        for len in
            [from, from + 1, to.saturating_sub(1), to].into_iter().filter(|len| (from..=to).contains(len))
        {
            assert_eq!(why.choice(len), protocol, "{len} bytes\n{why}");
        }
        from = to.saturating_add(1);
    }
}

#[test]
fn the_defaults_are_what_was_found_by_hand() {
    let tcp = Route {
        eager_max: 64 << 10,
        fragment: 256 << 10,
        scheme: Scheme::Fragments,
        window: LIMITS.window,
        immediate: false,
    };
    assert_eq!(route(&RailCosts::TCP, &LIMITS).0, tcp);
    let shm = Route { eager_max: 8 << 10, fragment: 32 << 10, immediate: true, ..tcp };
    assert_eq!(route(&RailCosts::SHM, &LIMITS).0, shm);
    let cma = RailCosts::SHM.with(DirectCosts::CMA);
    assert_eq!(route(&cma, &LIMITS).0, Route { scheme: Scheme::Get, ..shm });
}

#[test]
fn over_a_far_path_what_it_carries_in_few_round_trips_goes_eagerly() {
    let (_, why) = route(&RailCosts::TCP, &LIMITS);
    let ms = 1_000_000;
    let far = |rtt, rate| Far { rtt, rate, alone: false };
    assert_eq!(why.far_eager(far(900_000, 125_000_000)), 0, "near");
    assert_eq!(why.far_eager(far(20 * ms, 12_500_000)), 256 << 10);
    assert_eq!(why.far_eager(Far { alone: true, ..far(5 * ms, 12_500_000) }), 256 << 10, "by the only lane");
    assert_eq!(why.far_eager(far(20 * ms, 125_000_000)), 1 << 20, "no frame is longer");
    assert_eq!(why.far_eager(far(u64::MAX, u64::MAX)), 1 << 20);
    let (_, little) = route(&RailCosts::TCP, &Limits { window: (64 << 10) / 64, ..LIMITS });
    assert_eq!(little.far_eager(far(20 * ms, 125_000_000)), 32 << 10, "half of the credit");
    let (_, none) = route(&RailCosts::TCP, &Limits { window: 0, max_frame: 0, ..LIMITS });
    assert_eq!(none.far_eager(far(20 * ms, 125_000_000)), 0);
}

#[test]
fn each_length_takes_the_protocol_that_is_fastest_for_it() {
    let end = u64::MAX;
    assert_choice(&RailCosts::TCP, &LIMITS, &[(64 << 10, EAGER), (end, FRAGMENTS)]);
    let cma = RailCosts::SHM.with(DirectCosts::CMA);
    assert_choice(&cma, &LIMITS, &[(8 << 10, EAGER), (end, GET)]);
    // a network card that reads remote memory at once
    let card = DirectCosts { call: 500, rate: 12_000_000_000, read: true, write: true };
    let wire =
        RailCosts { latency: 600, send: 100, recv: 100, copy: 8_000_000_000, wire: 12_000_000_000, ..cma };
    assert_choice(&wire.with(card), &LIMITS, &[(1 << 10, EAGER), (end, GET)]);
    // one that only writes
    let card = DirectCosts { read: false, ..card };
    assert_choice(&wire.with(card), &LIMITS, &[(4 << 10, EAGER), (end, PUT)]);
    // access that is slower than two copies in parallel
    let slow = DirectCosts { rate: 2_000_000_000, ..DirectCosts::CMA };
    assert_choice(&RailCosts::SHM.with(slow), &LIMITS, &[(8 << 10, EAGER), (end, FRAGMENTS)]);
    // a long way: what is announced first waits for two more of them
    let far = RailCosts { latency: 10_000_000, ..RailCosts::TCP };
    assert_choice(&far, &LIMITS, &[(512 << 10, EAGER), (end, FRAGMENTS)]);
    assert_choice(&far, &Limits::new(MAX_PAYLOAD, 1 << 20), &[(1 << 20, EAGER), (end, FRAGMENTS)]);
    assert_choice(&far, &Limits::new(32 << 10, 1 << 20), &[(32 << 10, EAGER), (end, FRAGMENTS)]);
    assert_choice(&far, &Limits::new(MAX_PAYLOAD, 0), &[(0, EAGER), (end, FRAGMENTS)]);
}

#[test]
fn what_was_set_is_kept_to_where_it_can_be() {
    let set = Limits { eager_max: Some(1000), fragment: Some(3000), scheme: Some(Scheme::Put), ..LIMITS };
    let cma = RailCosts::SHM.with(DirectCosts::CMA);
    let (chosen, why) = route(&cma, &set);
    assert_eq!((chosen.eager_max, chosen.fragment, chosen.scheme), (1000, 3000, Scheme::Put));
    assert_eq!(why.to_string().matches("was set").count(), 3, "{why}");
    // an eager limit beyond a quarter of the window is somebody's own choice, one beyond a frame is impossible
    let set = Limits { eager_max: Some(MAX_PAYLOAD + 1), fragment: Some(MAX_PAYLOAD + 1), ..set };
    let (chosen, why) = route(&RailCosts::TCP, &set);
    assert_eq!(
        (chosen.eager_max, chosen.fragment, chosen.scheme),
        (MAX_PAYLOAD, MAX_PAYLOAD, Scheme::Fragments)
    );
    assert!(why.to_string().contains("put was set, but there is no such access"), "{why}");
    let none = Limits { eager_max: Some(0), fragment: Some(0), ..LIMITS };
    assert_eq!((route(&cma, &none).0.eager_max, route(&cma, &none).0.fragment), (0, 1));
}

#[test]
fn explanations_are_as_pinned() {
    let far = RailCosts { latency: 10_000_000, ..RailCosts::TCP };
    let rails = [
        ("tcp", RailCosts::TCP),
        ("tcp, 10 ms away", far),
        ("shm", RailCosts::SHM),
        ("shm with direct access", RailCosts::SHM.with(DirectCosts::CMA)),
    ];
    let text: String =
        rails.iter().map(|(name, costs)| format!("{name}\n{}\n\n", route(costs, &LIMITS).1)).collect();
    snapshot::check("cost.txt", &text);
}

fn rate() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![1_000_000..100_000_000_000u64, 1..1000u64, Just(0), Just(u64::MAX), any::<u64>()]
}

fn ns() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![0..10_000u64, 0..100_000_000u64, Just(u64::MAX), any::<u64>()]
}

fn costs(
    ns: impl Strategy<Value = u64> + Clone,
    rate: impl Strategy<Value = u64> + Clone,
) -> impl Strategy<Value = RailCosts> {
    let direct = (ns.clone(), rate.clone(), any::<(bool, bool)>())
        .prop_map(|(call, rate, (read, write))| DirectCosts { call, rate, read, write });
    (ns.clone(), ns.clone(), ns, rate.clone(), rate, prop::option::of(direct), any::<bool>()).prop_map(
        |(latency, send, recv, copy, wire, direct, immediate)| RailCosts {
            latency,
            send,
            recv,
            copy,
            wire,
            direct,
            immediate,
        },
    )
}

fn any_costs() -> impl Strategy<Value = RailCosts> {
    costs(ns(), rate())
}

/// Costs as there may be.
fn usual_costs() -> impl Strategy<Value = RailCosts> {
    costs(1..1_000_000u64, 10_000_000..100_000_000_000u64)
}

fn limits() -> impl Strategy<Value = Limits> {
    let scheme =
        prop::sample::select(vec![None, Some(Scheme::Get), Some(Scheme::Put), Some(Scheme::Fragments)]);
    let set = || prop::option::weighted(0.3, prop_oneof![0..MAX_PAYLOAD, any::<usize>()]);
    (0..=MAX_PAYLOAD, any::<u32>(), set(), set(), scheme).prop_map(
        |(max_frame, window, eager_max, fragment, scheme)| Limits {
            max_frame,
            window,
            eager_max,
            fragment,
            scheme,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_rail_costs_the_route_is_a_valid_one(costs in any_costs(), limits in limits(), len in any::<u64>()) {
        let (route, why) = route(&costs, &limits);
        prop_assert!(route.eager_max <= limits.max_frame);
        prop_assert!((1..=limits.max_frame.max(1)).contains(&route.fragment));
        prop_assert_eq!((route.window, route.immediate), (limits.window, costs.immediate));
        let possible = |protocol| time(&costs, protocol, len, route.fragment as u64).is_some();
        prop_assert!(possible(Protocol::Rendezvous(route.scheme)));
        prop_assert!(possible(why.choice(len)) && !why.to_string().is_empty());
    }

    #[test]
    fn longer_messages_take_no_less_time(
        costs in any_costs(),
        lens in any::<(u64, u64)>(),
        small in any::<bool>(),
        fragment in 0..MAX_PAYLOAD as u64,
    ) {
        let scale = if small { 1 << 40 } else { 1 };
        let (short, long) = (lens.0.min(lens.1) / scale, lens.0.max(lens.1) / scale);
        for protocol in [EAGER, GET, PUT, FRAGMENTS] {
            let (short, long) = (time(&costs, protocol, short, fragment), time(&costs, protocol, long, fragment));
            prop_assert!(short <= long, "{protocol:?}: {short:?} {long:?}");
        }
    }

    /// Limits are powers of two; apart from that rounding, each length takes the faster way.
    #[test]
    fn the_choice_is_the_faster_one(costs in usual_costs()) {
        let (route, why) = route(&costs, &LIMITS);
        let rendezvous = Protocol::Rendezvous(route.scheme);
        let eager_max = route.eager_max as u64;
        if eager_max > 1 {
            prop_assert!(why.time(EAGER, eager_max * 2 / 3) <= why.time(rendezvous, eager_max * 2 / 3), "{why}");
        }
        if eager_max < u64::from(LIMITS.window) * 16 {
            prop_assert!(why.time(EAGER, eager_max * 3 / 2 + 2) >= why.time(rendezvous, eager_max * 3 / 2 + 2), "{why}");
        }
        for protocol in [GET, PUT, FRAGMENTS] {
            let other = why.time(protocol, REFERENCE);
            prop_assert!(other.is_none_or(|other| why.time(rendezvous, REFERENCE) <= Some(other)), "{why}");
        }
    }

    /// What makes the announcement dearer does not lower the eager limit, and the other way round.
    #[test]
    fn limits_move_with_costs(costs in usual_costs(), more in 1..100_000u64) {
        let eager = |costs: &RailCosts, scheme| route(costs, &Limits { scheme: Some(scheme), ..LIMITS }).0.eager_max;
        let farther = RailCosts { latency: costs.latency + more, ..costs };
        prop_assert!(eager(&farther, Scheme::Fragments) >= eager(&costs, Scheme::Fragments));
        if let Some(direct) = costs.direct.filter(|direct| direct.read) {
            let dearer = costs.with(DirectCosts { call: direct.call + more, ..direct });
            prop_assert!(eager(&dearer, Scheme::Get) >= eager(&costs, Scheme::Get));
            let faster = costs.with(DirectCosts { rate: direct.rate * 2, ..direct });
            prop_assert!(eager(&faster, Scheme::Get) <= eager(&costs, Scheme::Get));
        }
        let busier = RailCosts { send: costs.send + more, ..costs };
        prop_assert!(route(&busier, &LIMITS).0.fragment >= route(&costs, &LIMITS).0.fragment);
    }
}
