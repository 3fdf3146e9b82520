//! Networks with several ways of equal cost between two interfaces, of which a connection takes one by chance: how many lanes are
//! opened, how soon all good ways are in use, and what it costs where there is one way. Figures are pinned in `snapshots/paths.md`;
//! bounds are asserted beside them.

use crate::lanes_support::path::Spec;
use crate::lanes_support::sender::Work::{self, Messages, Stream};
use crate::lanes_support::table::{Table, fill};
use crate::lanes_support::{Bed, GIGABIT, RAIL, rail};
use crate::snapshot;
use polyrail_core::session::Config;
use polyrail_core::sim::{MS, S, Time, US};

/// Each network is tried with so many draws.
const SEEDS: u64 = 2;
const END: Time = 16 * S;
const ONE: Config = Config { connections: 1, ..DEFAULT };
const DEFAULT: Config = Config {
    grace: 2 * S,
    patience: 30 * S,
    stripe_min: 0,
    connections: 16,
    least: 1,
    slice: 20 * MS,
    fed: 16 << 10,
    stand_in: None,
};

type Ways = &'static [&'static [usize]];

fn ways(parts: &[u64]) -> Vec<Spec> {
    parts.iter().map(|part| rail(GIGABIT / part)).collect()
}

fn last(bed: &Bed, seconds: u64) -> f64 {
    bed.goodput(0, bed.now - seconds * S, bed.now)
}

fn lanes(bed: &Bed, who: usize) -> usize {
    bed.senders[who].conns.0.iter().filter(|conn| !conn.ended).count()
}

/// When a second begins, for the first time, in which so much gets through, in milliseconds.
fn reaches(bed: &Bed, rate: f64) -> f64 {
    let from = (0..(bed.now - S) / (100 * MS)).map(|step| step * 100 * MS);
    let mut good = from.filter(|from| bed.goodput(0, *from, from + S) >= rate);
    good.next().map_or(f64::INFINITY, |at| (at / MS) as f64)
}

fn least(of: &[f64]) -> f64 {
    of.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(of: &[f64]) -> f64 {
    of.iter().copied().fold(0.0, f64::max)
}

fn middle(of: &[f64]) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// A stream over several ways. All good ones are in use soon, and stay so.
fn several() -> Table {
    let columns = "| ways | good ones, MB/s | 0.9 of them after, median, ms | worst, ms | of them in the last 8 s, worst | lanes in the end, most | opened in all, most |";
    let mut table = Table::new("Several ways, a stream", columns);
    let lossy = |loss| {
        let mut all = ways(&[4; 4]);
        all[3].loss = loss;
        all
    };
    let jitter = vec![Spec { jitter: 500 * US, ..rail(GIGABIT / 4) }; 4];
    const FOUR: Ways = &[&[0, 1, 2, 3]];
    const PAIRS: Ways = &[&[0, 1], &[2, 3]];
    const EIGHT: Ways = &[&[0, 1, 2, 3, 4, 5, 6, 7]];
    // ways, how many of them are good, how soon at worst
    let beds: Vec<(&str, Vec<Spec>, Ways, f64, f64)> = vec![
        ("1 : 1", ways(&[4; 2]), &[&[0, 1]], 2.0, 4000.0),
        ("1 : 1 : 1 : 1", ways(&[4; 4]), FOUR, 4.0, 8000.0),
        ("1 : 1 : 1 : 1/10", ways(&[4, 4, 4, 40]), FOUR, 3.0, 8000.0),
        ("1 : 1 : 1 : 1, one loses 30 %", lossy(30), FOUR, 3.0, 8000.0),
        ("1 : 1 : 1 : 1, jitter 0.5 ms", jitter, FOUR, 4.0, 12_000.0),
        ("two pairs of interfaces, each 1 : 1", ways(&[4; 4]), PAIRS, 4.0, 12_000.0),
        ("8 x 1", ways(&[8; 8]), EIGHT, 8.0, f64::INFINITY),
    ];
    for (name, specs, between, good, soon) in beds {
        let good = good * specs[0].rate as f64;
        let mut figures: [Vec<f64>; 4] = Default::default();
        for seed in 1..=SEEDS {
            let mut bed = Bed::fabric(seed, &specs, between, Stream, DEFAULT);
            bed.run(END);
            let attempts = bed.senders[0].attempts.len() as f64;
            let found = [reaches(&bed, 0.9 * good), last(&bed, 8) / good, lanes(&bed, 0) as f64, attempts];
            figures.iter_mut().zip(found).for_each(|(all, one)| all.push(one));
        }
        let [soon_at, part, lanes, opened] = &figures;
        let text = [middle(soon_at), most(soon_at)].map(|at| format!("{at:.0}")).join(" | ");
        let (part, lanes, opened) = (least(part), most(lanes), most(opened));
        table.row(
            name,
            &format!("{:.1} | {text} | {part:.3} | {lanes} | {opened}", good / 1e6),
            &[
                ("0.9 at worst", most(soon_at), 0.0, soon),
                ("in the last 8 s", part, if specs.len() > 4 { 0.75 } else { 0.9 }, 1.4),
                ("lanes", lanes, 1.0, specs.len() as f64 + 1.0),
                ("opened", opened, 1.0, 45.0),
            ],
        );
    }
    table
}

/// One way: nothing is lost by finding that out, and one lane is left.
fn single() -> Table {
    let columns = "| way, work | goodput, of one connection's, worst | lanes in the end, most | opened in all, most | in the second half |";
    let mut table = Table::new("One way", columns);
    let far = Spec { delay: 10 * MS, buffer: 1 << 20, ..RAIL };
    let beds: Vec<(&str, Spec, Work, f64)> = vec![
        ("1 Gb/s, a stream", RAIL, Stream, 20.0),
        ("1 % loss, a stream", Spec { loss: 1, ..RAIL }, Stream, 40.0),
        ("messages of 64 MiB", RAIL, Messages(64 << 20), 20.0),
        ("messages of 1 MiB", RAIL, Messages(1 << 20), 40.0),
        ("messages of 64 KiB", RAIL, Messages(64 << 10), 0.0),
        ("20 ms there and back, a stream", far, Stream, 0.0),
    ];
    for (name, spec, work, bound) in beds {
        let mut figures: [Vec<f64>; 4] = Default::default();
        for seed in 1..=2 {
            let run = |config| {
                let mut bed = Bed::fabric(seed, &[spec], &[&[0]], work, config);
                bed.run(END);
                bed
            };
            let (bed, one) = (run(DEFAULT), run(ONE));
            assert!(one.senders[0].attempts.is_empty() && lanes(&one, 0) == 1, "{name}: one is one");
            let attempts = &bed.senders[0].attempts;
            let late = attempts.iter().filter(|at| **at > END / 2).count() as f64;
            let part = bed.goodput(0, 0, END) / one.goodput(0, 0, END);
            let found = [part, lanes(&bed, 0) as f64, attempts.len() as f64, late];
            figures.iter_mut().zip(found).for_each(|(all, one)| all.push(one));
        }
        let (part, lanes) = (least(&figures[0]), most(&figures[1]));
        let (opened, late) = (most(&figures[2]), most(&figures[3]));
        table.row(
            name,
            &format!("{part:.3} | {lanes} | {opened} | {late}"),
            &[
                ("goodput", part, 0.98, 1.4),
                ("lanes", lanes, 1.0, 3.0),
                ("opened", opened, 0.0, bound),
                // fewer and fewer, but where some were found to help
                ("in the second half", late, 0.0, bound / 4.0),
            ],
        );
    }
    table
}

/// Ways that become bad, and good again, under a stream.
fn changes() -> Table {
    let columns = "| change of one way of four, from 8 s on | of what is good then, in the last 5 s, worst | lanes in the end, most |";
    let mut table = Table::new("Ways that change", columns);
    type Change = fn(&mut Spec);
    let beds: [(&str, Change, f64); 3] = [
        ("at a tenth", |spec| spec.rate /= 10, 3.0),
        ("30 % loss", |spec| spec.loss = 30, 3.0),
        ("silent", |spec| spec.up = false, 3.0),
    ];
    for (name, change, good) in beds {
        let (mut parts, mut left) = (Vec::new(), Vec::new());
        for seed in 1..=SEEDS {
            let specs = ways(&[4; 4]);
            let mut bed = Bed::fabric(seed, &specs, &[&[0, 1, 2, 3]], Stream, DEFAULT);
            bed.run(8 * S);
            change(&mut bed.paths[3].spec);
            bed.run(END);
            parts.push(last(&bed, 5) / (good * specs[0].rate as f64));
            left.push(lanes(&bed, 0) as f64);
        }
        let (part, left) = (least(&parts), most(&left));
        table.row(
            name,
            &format!("{part:.3} | {left}"),
            &[("goodput", part, 0.9, 1.4), ("lanes", left, 1.0, 5.0)],
        );
    }
    table
}

/// Several senders that share one way: who asks for more gets it at the others' cost, and is not to.
fn sharing() -> Table {
    let columns = "| senders of one way | all, of it | least share, of an equal one | most | the same with one connection each | lanes in the end, most | opened, most |";
    let mut table = Table::new("A way that is shared", columns);
    for (name, senders, jitter) in
        [("2", 2, 0), ("2, jitter 0.5 ms", 2, 500 * US), ("4, jitter 0.5 ms", 4, 500 * US)]
    {
        let run = |config| {
            let mut bed = Bed::fabric(1, &[Spec { jitter, ..RAIL }], &[&[0]], Stream, config);
            (1..senders).for_each(|_| bed.add_fabric(&[&[0]], Stream, config));
            bed.run(END);
            let equal = GIGABIT as f64 / senders as f64;
            let shares: Vec<f64> = (0..senders).map(|who| bed.goodput(who, 4 * S, END) / equal).collect();
            (bed, shares)
        };
        let ((bed, shares), (_, plain)) = (run(DEFAULT), run(ONE));
        let all = shares.iter().sum::<f64>() / senders as f64;
        let left: Vec<f64> = (0..senders).map(|who| lanes(&bed, who) as f64).collect();
        let opened: Vec<f64> = bed.senders.iter().map(|one| one.attempts.len() as f64).collect();
        let (left, opened) = (most(&left), most(&opened));
        let [shares, plain] = [shares, plain].map(|all| format!("{:.2} | {:.2}", least(&all), most(&all)));
        table.row(
            name,
            &format!("{all:.3} | {shares} | {} | {left} | {opened}", plain.replace(" |", " to")),
            &[("all", all, 0.98, 1.02), ("lanes", left, 1.0, 6.0), ("opened", opened, 0.0, 40.0)],
        );
    }
    table
}

#[test]
fn as_many_lanes_as_help() {
    let parts: [fn() -> Table; 4] = [several, single, changes, sharing];
    let (broken, text) = fill(&parts);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        snapshot::check("paths.md", &text);
    }
    assert!(broken.is_empty(), "bounds that do not hold:\n{broken}\n{text}");
    snapshot::check("paths.md", &text);
}
