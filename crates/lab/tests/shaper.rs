//! The shaper under a simulated clock: what it promises of rate, delay, jitter, loss and order, whatever comes.

use std::time::Duration;

use polyrail_lab::settings::{Settings, apply};
use polyrail_lab::shaper::Shaper;
use proptest::prelude::*;

const MTU: usize = 1500;

fn settings(text: &str) -> Settings {
    apply(text, &Default::default()).unwrap()[0]
}

fn us(time: u64) -> Duration {
    Duration::from_micros(time)
}

/// A shaper, the clock, and which packet came out when.
struct Bench {
    shaper: Shaper<usize>,
    now: Duration,
    pushed: usize,
    wakes: usize,
    out: Vec<(Duration, usize)>,
}

impl Bench {
    fn new(text: &str) -> Self {
        let shaper = Shaper::new(settings(text), 7);
        Bench { shaper, now: Duration::ZERO, pushed: 0, wakes: 0, out: Vec::new() }
    }

    /// Lets time pass until `until`: the clock jumps from wake-up to wake-up.
    fn pass(&mut self, until: Duration) {
        while let Some(next) = self.shaper.next().filter(|next| *next <= until) {
            self.now = self.now.max(next);
            self.wakes += 1;
            while let Some(packet) = self.shaper.pop(self.now) {
                self.out.push((self.now, packet));
            }
        }
        self.now = until;
    }

    /// Packets of `bytes` bytes, one every `gap`; packets are numbered from 0.
    fn push(&mut self, count: usize, bytes: usize, gap: Duration) {
        for _ in 0..count {
            self.shaper.push(self.now, bytes, self.pushed);
            self.pushed += 1;
            self.pass(self.now + gap);
        }
    }

    fn finish(mut self) -> Self {
        self.pass(Duration::from_secs(10_000));
        assert_eq!(self.shaper.waiting(), 0);
        let c = self.shaper.counters();
        assert_eq!(c.packets as usize, self.out.len());
        assert_eq!(self.pushed as u64, c.packets + c.lost + c.overflowed + c.vanished, "{c:?}");
        self
    }

    fn in_order(&self) -> bool {
        self.out.is_sorted_by_key(|(_, packet)| *packet)
    }
}

#[test]
fn with_nothing_set_packets_come_out_as_they_come_in() {
    let mut bench = Bench::new("");
    bench.push(1000, MTU, us(1));
    let out = bench.finish().out;
    assert!(out.iter().enumerate().all(|(i, (time, packet))| *packet == i && *time == us(i as u64)));
}

#[test]
fn delay_is_exact() {
    let mut bench = Bench::new("delay=10ms");
    bench.push(1000, MTU, us(3));
    let out = bench.finish().out;
    assert_eq!(out.len(), 1000);
    assert!(out.iter().all(|(time, packet)| *time == us(10_000 + 3 * *packet as u64)));
}

#[test]
fn a_burst_leaves_at_once_and_the_rest_at_the_rate() {
    let mut bench = Bench::new("rate=1000");
    bench.push(600, MTU, Duration::ZERO);
    let bench = bench.finish();
    let burst = settings("rate=1000").burst() as usize / MTU;
    assert_eq!(bench.out.iter().filter(|(time, _)| time.is_zero()).count(), burst);
    // 125 bytes per microsecond
    let expected = ((600 * MTU) as f64 - settings("rate=1000").burst()) / 125e6;
    let took = bench.out.last().unwrap().0.as_secs_f64();
    assert!((took - expected).abs() < 1e-6, "{took} for {expected}");
    assert!(bench.in_order());
}

#[test]
fn without_a_burst_each_packet_takes_its_time_also_after_idle() {
    // 1 Mbit/s: 1250 bytes take 10 ms
    let mut bench = Bench::new("rate=1 burst=0 queue=1000000");
    bench.push(3, 1250, Duration::ZERO);
    bench.pass(us(100_000));
    bench.push(2, 2500, Duration::ZERO);
    let bench = bench.finish();
    let left: Vec<u128> = bench.out.iter().map(|(at, _)| at.as_millis()).collect();
    assert_eq!(left, [10, 20, 30, 120, 140]);
}

#[test]
fn a_full_queue_drops_newcomers() {
    let mut bench = Bench::new("rate=100 queue=15000");
    bench.push(1000, MTU, Duration::ZERO);
    let bench = bench.finish();
    let passed = settings("rate=100").burst() as usize / MTU + 10;
    assert_eq!(bench.shaper.counters().overflowed as usize, 1000 - passed);
    assert!(bench.out.iter().map(|(_, packet)| *packet).eq(0..passed));
}

#[test]
fn loss_is_as_often_as_asked_and_the_same_for_the_same_seed() {
    let survivors = || {
        let mut bench = Bench::new("loss=1%");
        bench.push(100_000, MTU, us(1));
        bench.finish().out
    };
    let out = survivors();
    // the standard deviation is 31
    let lost = 100_000 - out.len();
    assert!((850..1150).contains(&lost), "{lost} of 100000 lost");
    assert_eq!(out, survivors());
    // independent: about 1 % of the losses are followed by another one at once
    let holes: Vec<usize> =
        (0..100_000).filter(|i| out.binary_search_by_key(i, |(_, p)| *p).is_err()).collect();
    let pairs = holes.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
    assert!(pairs < 40, "{pairs} losses in pairs");
}

#[test]
fn a_packet_that_is_reordered_overtakes_all_under_way() {
    let mut bench = Bench::new("delay=10ms reorder=1%");
    bench.push(10_000, MTU, us(100));
    let bench = bench.finish();
    let overtook = bench.shaper.counters().overtook;
    assert!((60..140).contains(&overtook), "{overtook} of 10000 overtook");
    let early = bench.out.iter().filter(|(time, packet)| *time == us(100 * *packet as u64)).count();
    assert!((overtook..overtook + 3).contains(&(early as u64)), "{early} early, {overtook} overtook");
    // the others kept their order and their time
    let late: Vec<_> = bench.out.iter().filter(|(time, p)| *time > us(100 * *p as u64)).collect();
    assert!(late.iter().all(|(time, packet)| *time == us(10_000 + 100 * *packet as u64)));
}

#[test]
fn jitter_wanders_over_its_whole_range_around_the_delay_and_keeps_the_order() {
    let mut bench = Bench::new("delay=10ms jitter=2ms");
    bench.push(200_000, MTU, us(12));
    let bench = bench.finish();
    assert!(bench.in_order());
    let delays: Vec<f64> =
        bench.out.iter().map(|(time, p)| (*time - us(12 * *p as u64)).as_secs_f64() * 1e3).collect();
    let (low, high) = delays.iter().fold((f64::MAX, 0f64), |(low, high), d| (low.min(*d), high.max(*d)));
    let mean = delays.iter().sum::<f64>() / delays.len() as f64;
    assert!((8.0..8.2).contains(&low) && (11.8..=12.0001).contains(&high), "{low} to {high} ms");
    assert!((9.8..10.2).contains(&mean), "{mean} ms on average");
}

#[test]
fn a_new_rate_holds_for_what_already_waits() {
    let mut bench = Bench::new("rate=1 queue=1000000");
    bench.push(400, MTU, Duration::ZERO);
    bench.pass(us(1000));
    let left = bench.shaper.waiting();
    // 4 Mbit at 1 Mbit/s would take 4 s
    bench.shaper.configure(bench.now, settings("rate=1000 queue=1000000"));
    let bench = bench.finish();
    let took = bench.out.last().unwrap().0 - us(1000);
    let expected = Duration::from_secs_f64((left * MTU) as f64 / 125e6);
    assert!(took <= expected + us(20) && took >= expected - us(20), "{took:?} for {expected:?}");
}

#[test]
fn a_shorter_delay_does_not_turn_the_order() {
    let mut bench = Bench::new("delay=10ms");
    bench.push(10, MTU, us(10));
    bench.shaper.configure(bench.now, settings("delay=1ms"));
    bench.push(10, MTU, us(10));
    bench.push(1, MTU, us(20_000));
    bench.push(1, MTU, us(0));
    let bench = bench.finish();
    assert!(bench.in_order());
    // as soon as the order allows
    assert_eq!(bench.out[10].0, bench.out[9].0);
    assert_eq!(bench.out[21].0, us(20_200 + 1000));
}

#[test]
fn a_black_hole_takes_what_is_under_way_and_what_comes() {
    let mut bench = Bench::new("rate=100 delay=10ms");
    bench.push(100, MTU, us(1));
    bench.shaper.blackhole(true);
    assert_eq!((bench.shaper.waiting(), bench.shaper.next()), (0, None));
    bench.push(50, MTU, us(1));
    bench.shaper.blackhole(false);
    bench.push(5, MTU, us(1));
    let bench = bench.finish();
    assert_eq!(bench.shaper.counters().vanished, 150);
    assert!(bench.out.iter().map(|(_, packet)| *packet).eq(150..155));
}

/// Any settings without reordering.
fn any_settings() -> impl Strategy<Value = Settings> {
    let rate = prop_oneof![Just(0.0), 1e4..1e9];
    (rate, 0..200_000usize, 0..20_000u64, 0.0..1.0, prop_oneof![Just(0.0), 0.0..0.5]).prop_map(
        |(rate, queue, delay, share, loss)| Settings {
            rate,
            queue,
            burst: (queue % 3 == 0).then_some(queue as f64 / 30.0),
            delay: us(delay),
            jitter: us(delay).mul_f64(share),
            loss,
            reorder: 0.0,
        },
    )
}

proptest! {
    #[test]
    fn whatever_comes_and_changes_order_time_and_number_hold(
        phases in prop::collection::vec((any_settings(), 0..60usize, 40..9000usize, 0..500u64), 1..5),
    ) {
        let mut bench = Bench::new("");
        let mut arrivals = Vec::new();
        for (settings, count, bytes, gap) in &phases {
            bench.shaper.configure(bench.now, *settings);
            arrivals.extend((0..*count).map(|i| bench.now + us(*gap * i as u64)));
            bench.push(*count, *bytes, us(*gap));
        }
        let shortest = phases.iter().map(|(s, ..)| s.delay - s.jitter).min().unwrap();
        let bench = bench.finish();
        prop_assert!(bench.in_order());
        prop_assert!(bench.out.is_sorted());
        prop_assert!(bench.out.iter().all(|(time, packet)| *time >= arrivals[*packet] + shortest));
        // one for the queue, one for the line
        prop_assert!(bench.wakes <= 2 * bench.pushed, "{} wake-ups for {} packets", bench.wakes, bench.pushed);
    }

    #[test]
    fn no_span_of_time_sees_more_than_the_rate_and_a_burst(
        rate in 1e5..1e9, arrivals in prop::collection::vec((40..9000usize, 0..300u64), 1..200),
    ) {
        let limits = Settings { rate, queue: 10_000_000, delay: us(500), ..Settings::default() };
        let mut bench = Bench::new("");
        bench.shaper.configure(Duration::ZERO, limits);
        for (bytes, gap) in &arrivals {
            bench.push(1, *bytes, us(*gap));
        }
        let bench = bench.finish();
        prop_assert_eq!(bench.out.len(), arrivals.len());
        for (i, (first, _)) in bench.out.iter().enumerate() {
            let mut sum = 0;
            for (time, packet) in &bench.out[i..] {
                sum += arrivals[*packet].0;
                let allowed = limits.burst() + rate * (*time - *first).as_secs_f64() + 1.0;
                prop_assert!(sum as f64 <= allowed, "{sum} bytes in {:?}, not {allowed}", *time - *first);
            }
        }
    }
}
