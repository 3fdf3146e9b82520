//! Values over asynchronous channels: the newest whole one is had, none twice and none behind a newer one, soon, and nothing grows.
//! Ages are pinned in `snapshots/micro_values.md`.

use crate::lanes_support::table::{Table, fill};
use crate::micro_support::values::Reader;
use crate::micro_support::{Line, MS, Net, S, US};
use crate::snapshot;
use Composition::{AsyncInterEth, AsyncIntraEth, AsyncPaced};
use polyrail_core::micro::{Composition, Time};

/// Where and what.
#[derive(Clone, Copy)]
struct Case {
    composition: Composition,
    line: Line,
    rtt: Time,
    len: usize,
    interval: Time,
}

impl Case {
    /// Six seconds of it, after two in which all begins.
    fn read(&self) -> (Reader, Net) {
        let mut net = Net::new(11, self.line, self.line);
        let a = net.join(self.composition);
        let mut reader = Reader { len: self.len, ..Reader::default() };
        reader.run(&mut net, a, self.interval, MS / 2, 2 * S);
        reader.ages.clear();
        reader.run(&mut net, a, self.interval, MS / 2, 8 * S);
        (reader, net)
    }

    /// The oldest that a value may be, in round trips, at this loss in percent: two and an interval for what fits a datagram, three and
    /// what an acknowledgement waits for what is short.
    fn most(&self, percent: u64) -> f64 {
        let interval = self.interval as f64 / self.rtt as f64;
        match (self.composition, self.len) {
            (AsyncPaced, ..=1000) => interval + 2.0,
            (AsyncPaced, ..=8192) => interval + 3.0 + MS as f64 / self.rtt as f64,
            (AsyncInterEth, ..=8192) if percent == 0 => interval + 2.0,
            (AsyncIntraEth, ..=8192) if percent == 0 => interval + 2.0,
            _ => f64::INFINITY,
        }
    }

    fn row(&self, table: &mut Table, percent: u64) {
        let (mut reader, net) = self.read();
        let trips = |age: Time| if age == Time::MAX { f64::INFINITY } else { age as f64 / self.rtt as f64 };
        let [p50, p99, max] = [500, 990, 1000].map(|at| trips(reader.age(at)));
        let had = reader.news as f64 * 100.0 / reader.given.len() as f64;
        let each = net.shared(0).counters.sent as f64 / reader.given.len() as f64;
        table.row(
            &format!("{} | {} | {percent}", self.len, self.interval / MS),
            &format!("{p50:.2} | {p99:.2} | {max:.2} | {had:.1} | {each:.1}"),
            &[("age", max, 0.0, self.most(percent))],
        );
    }
}

/// Bytes of a value, and intervals at which they are given, in milliseconds.
const SIZES: &[(usize, &[u64])] = &[
    (8, &[1, 10, 100]),
    (1000, &[1, 10, 100]),
    (8192, &[10, 100]),
    (1 << 16, &[10, 100]),
    (1 << 20, &[100, 500]),
];

fn ages(composition: Composition, mbit: u64, rtt: Time, longest: usize) -> Table {
    let ms = rtt as f64 / MS as f64;
    let title = format!("Ages with {}, in round trips of {ms} ms, on {mbit} Mb/s", composition.name());
    let columns = "| bytes | interval, ms | lost, % | p50 | p99 | max | values had, % | datagrams a value |";
    let mut table = Table::new(&title, columns);
    for (len, intervals) in SIZES.iter().filter(|(len, _)| *len <= longest) {
        for interval in *intervals {
            for percent in [0, 10, 50] {
                let line = Line::new(mbit, rtt).losing(percent * 10_000);
                let case = Case { composition, line, rtt, len: *len, interval: *interval * MS };
                case.row(&mut table, percent);
            }
        }
    }
    table
}

fn paced() -> Table {
    ages(AsyncPaced, 100, 20 * MS, 1 << 20)
}

fn paced_near() -> Table {
    ages(AsyncPaced, 1000, 200 * US, 1 << 16)
}

fn between_clusters() -> Table {
    ages(AsyncInterEth, 100, 20 * MS, 1 << 20)
}

fn within_a_cluster() -> Table {
    ages(AsyncIntraEth, 1000, 200 * US, 8192)
}

#[test]
fn values_are_as_young_as_before() {
    let (broken, text) = fill(&[paced, paced_near, between_clusters, within_a_cluster]);
    assert!(broken.is_empty(), "{broken}\n{text}");
    snapshot::check("micro_values.md", &text);
}

#[test]
fn short_values_are_never_older_than_two_round_trips_and_an_interval() {
    for (len, interval, percent) in [8, 1000]
        .into_iter()
        .flat_map(|len| [10, 100].map(|ms| (len, ms * MS)))
        .flat_map(|(len, interval)| [10, 30, 50].map(|percent| (len, interval, percent)))
    {
        for seed in 0..12 {
            let line = Line::new(100, 20 * MS).losing(percent * 10_000);
            let mut net = Net::new(seed * 77, line, line);
            let a = net.join(AsyncPaced);
            let mut reader = Reader { len, ..Reader::default() };
            reader.run(&mut net, a, interval, MS / 2, 2 * S);
            reader.ages.clear();
            reader.run(&mut net, a, interval, MS / 2, 12 * S);
            let most = reader.age(1000);
            assert!(most <= 40 * MS + interval, "{len} bytes, {percent} %, seed {seed}: {} ms", most / MS);
        }
    }
}
