//! The use of several lanes as a control system: steps, dead and returning rails, competition, loss, distance. Figures are pinned
//! in `snapshots/control.md`; bounds are asserted beside them.

use crate::lanes_support::path::Spec;
use crate::lanes_support::sender::Work::{Messages, Stream};
use crate::lanes_support::table::{Table, fill};
use crate::lanes_support::{Bed, CLAIM, GIGABIT, RAIL, rail};
use crate::snapshot;
use polyrail_core::lanes::{Load, finish};
use polyrail_core::sim::{MS, S, Time, US};

/// What becomes of a path.
type Change = fn(&mut Spec);

fn ms(time: Time) -> f64 {
    time as f64 / MS as f64
}

/// Milliseconds; endless if it never was.
fn ms_or(time: Option<Time>) -> f64 {
    time.map_or(f64::INFINITY, ms)
}

fn median(mut times: Vec<Time>) -> Time {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(Time::MAX)
}

fn sum(specs: &[Spec]) -> f64 {
    specs.iter().map(|spec| spec.rate as f64).sum()
}

fn rails(parts: &[u64]) -> Vec<Spec> {
    parts.iter().map(|part| rail(GIGABIT / part)).collect()
}

/// Rails of constant rates, and a stream: all of it is used soon, and for good.
fn streams() -> Table {
    let columns =
        "| rails | sum | goodput / sum | settles in, ms | variation of shares | longest stall, ms | shares |";
    let mut table = Table::new("Streams", columns);
    let far = |delay| Spec { delay, buffer: 4 << 20, ..RAIL };
    let jitter: Vec<Spec> = vec![Spec { jitter: 500 * US, ..RAIL }; 4];
    // least goodput; how soon it is reached, in milliseconds; most variation of shares
    let near = (0.98, 100.0, 0.05);
    let coarse = (0.98, f64::INFINITY, 0.5);
    type Bounds = (f64, f64, f64);
    let beds: Vec<(&str, Vec<Spec>, Bounds)> = vec![
        ("1", rails(&[1]), near),
        ("1 : 1", rails(&[1; 2]), near),
        ("1 : 1 : 1", rails(&[1; 3]), near),
        ("1 : 1 : 1 : 1", rails(&[1; 4]), near),
        ("16 x 1", rails(&[1; 16]), near),
        ("4 x 1, jitter 0.5 ms", jitter, near),
        ("1 : 1/4", rails(&[1, 4]), near),
        ("1 : 1/10", rails(&[1, 10]), near),
        ("1 : 1/100", rails(&[1, 100]), (0.98, 100.0, 0.5)),
        ("1 : 1/2 : 1/4 : 1/8", rails(&[1, 2, 4, 8]), near),
        ("1/100 : 1/100", rails(&[100, 100]), coarse),
        ("1 : 1, 5 ms further", vec![RAIL, far(5 * MS)], (0.98, 200.0, 0.05)),
        ("1 : 1, 10 ms further", vec![RAIL, far(10 * MS)], (0.98, 400.0, 0.05)),
        ("1 : 1, 40 ms further", vec![RAIL, far(40 * MS)], (0.75, f64::INFINITY, f64::INFINITY)),
    ];
    for (name, specs, (least, soon, steady)) in beds {
        for (away, what) in [(0, ""), (4 * MS, ", looks every 4 ms")] {
            // one of each kind tells how much depends on how often it is looked
            if !what.is_empty() && (specs.len() > 2 || name.contains("further") != name.contains("10 ms")) {
                continue;
            }
            let mut bed = Bed::new(1, &specs, Stream);
            bed.senders[0].away = away;
            let (from, end) = if specs.len() > 4 { (S / 2, S) } else { (3 * S / 2, 2 * S) };
            bed.run(end);
            let all = sum(&specs);
            let part = bed.goodput(0, from, end) / all;
            let settles = ms_or(bed.settles(0, 0, end, all));
            let varies = (0..specs.len()).map(|path| bed.variation(0, path, from, end)).fold(0.0, f64::max);
            let shares: Vec<String> = (0..specs.len().min(4))
                .map(|path| format!("{:.3}", bed.rate(0, path, from, end) / bed.goodput(0, from, end)))
                .collect();
            let stall = ms(bed.stall[0]);
            table.row(
                &format!("{name}{what}"),
                &format!(
                    "{:.1} | {part:.3} | {settles:.0} | {varies:.3} | {stall:.1} | {}",
                    all / 1e6,
                    shares.join(" : ")
                ),
                &[
                    ("goodput / sum", part, least, 1.02),
                    ("settling time", settles, 0.0, soon),
                    ("variation of shares", varies, 0.0, steady),
                    ("stall", stall, 0.0, 60.0),
                ],
            );
        }
    }
    table
}

/// Messages one after the other: how near to the ideal, and whether all lanes end together.
fn messages() -> Table {
    let columns = "| rails | message, KiB | first, of ideal | median, of ideal | worst, of ideal | tail, median, ms | tail, worst, ms | by lane 1 |";
    let mut table = Table::new("Messages", columns);
    let far = |delay| Spec { delay, buffer: 4 << 20, ..RAIL };
    let beds: Vec<(&str, Vec<Spec>)> = vec![
        ("1 : 1", rails(&[1; 2])),
        ("4 x 1", rails(&[1; 4])),
        ("1 : 1/4", rails(&[1, 4])),
        ("1 : 1/10", rails(&[1, 10])),
        ("1 : 1/100", rails(&[1, 100])),
        ("1 : 1/2 : 1/4 : 1/8", rails(&[1, 2, 4, 8])),
        ("1 : 1, 2.5 ms further", vec![RAIL, far(2500 * US)]),
        ("1 : 1, 10 ms further", vec![RAIL, far(10 * MS)]),
    ];
    for (name, specs) in beds {
        for len in [256 << 10, 1 << 20, 4 << 20, 64 << 20] {
            let mut bed = Bed::new(1, &specs, Messages(len));
            let end = if len > 32 << 20 { 3 * S } else { S };
            bed.run(end);
            let loads: Vec<Load> =
                specs.iter().map(|s| Load { rate: s.rate, latency: s.delay, queued: 0 }).collect();
            let ideal = finish(&loads, len) as f64;
            let all = bed.messages(0, false, 0, end);
            let later: Vec<_> = all.iter().filter(|one| one.began > 300 * MS).collect();
            let first = ideal / all.first().map_or(Time::MAX, |one| one.took()) as f64;
            let usual = ideal / median(later.iter().map(|one| one.took()).collect()) as f64;
            let worst = ideal / later.iter().map(|one| one.took()).max().unwrap_or(Time::MAX) as f64;
            let tail = ms(median(later.iter().map(|one| one.tail()).collect()));
            let longest = ms(later.iter().map(|one| one.tail()).max().unwrap_or(0));
            let second: u64 = later.iter().map(|one| one.by[1].1).sum();
            let second = second as f64 / later.iter().map(|one| one.len as f64).sum::<f64>();
            table.row(
                name,
                &format!(
                    "{} | {first:.2} | {usual:.2} | {worst:.2} | {tail:.2} | {longest:.2} | {second:.3}",
                    len >> 10
                ),
                &[
                    ("median, of ideal", usual, if len < 1 << 20 { 0.45 } else { 0.85 }, 1.01),
                    ("worst, of ideal", worst, if len < 1 << 20 { 0.45 } else { 0.6 }, 1.01),
                    ("tail, median", tail, 0.0, if specs[1].delay > MS { 10.0 } else { 2.0 }),
                ],
            );
        }
    }
    table
}

/// What joins the hosts changes while a stream flows.
fn changes() -> Table {
    let columns = "| change | settles in, ms | then settles in, ms | goodput of ideal before, during, after | longest stall, ms |";
    let mut table = Table::new("Changes", columns);
    let beds: [(&str, Vec<Spec>, Change); 4] = [
        ("1 : 1, one at a tenth from 1 s to 2 s", rails(&[1, 1]), |s| s.rate /= 10),
        ("4 x 1, one at a tenth", rails(&[1; 4]), |s| s.rate /= 10),
        ("1 : 1, one at a hundredth", rails(&[1, 1]), |s| s.rate /= 100),
        ("1 : 1, one 30 ms further", vec![RAIL, Spec { buffer: 4 << 20, ..RAIL }], |s| s.delay += 30 * MS),
    ];
    for (name, specs, change) in beds {
        let mut bed = Bed::new(1, &specs, Stream);
        let last = specs.len() - 1;
        let mut changed = specs.clone();
        change(&mut changed[last]);
        bed.run(S);
        bed.paths[last].spec = changed[last];
        bed.run(2 * S);
        bed.paths[last].spec = specs[last];
        bed.run(3 * S);
        let (full, less) = (sum(&specs), sum(&changed));
        let down = ms_or(bed.settles(0, S, 2 * S, less));
        let up = ms_or(bed.settles(0, 2 * S, 3 * S, full));
        let parts = [(0, S, full), (S, 2 * S, less), (2 * S, 3 * S, full)];
        let parts = parts.map(|(from, to, ideal)| bed.goodput(0, from, to) / ideal);
        let texts = parts.map(|part| format!("{part:.3}")).join(", ");
        let stall = ms(bed.stall[0]);
        let near = changed[last].delay < MS;
        table.row(
            name,
            &format!("{down:.0} | {up:.0} | {texts} | {stall:.1}"),
            &[
                ("settling time", down, 0.0, if near { 100.0 } else { f64::INFINITY }),
                ("settling time when it is back", up, 0.0, if near { 100.0 } else { 1500.0 }),
                ("goodput before", parts[0], 0.98, 1.02),
                ("goodput during the change", parts[1], if near { 0.97 } else { 0.8 }, 1.02),
                ("goodput after", parts[2], 0.98, 1.02),
                ("stall", stall, 0.0, 10.0),
            ],
        );
    }
    table
}

/// The same for messages of 4 MiB: what is the worst that happens to one.
fn changes_under_messages() -> Table {
    let columns = "| change | median before, ms | worst in the first 0.5 s, ms | median then, ms | ideal then, ms | worst after it is back, ms | median at the end, ms |";
    let mut table = Table::new("Changes under messages of 4 MiB", columns);
    let beds: [(&str, Vec<Spec>, Change); 4] = [
        ("1 : 1, one at a tenth from 1 s to 2 s", rails(&[1, 1]), |s| s.rate /= 10),
        ("1 : 1, one at a hundredth", rails(&[1, 1]), |s| s.rate /= 100),
        ("1 : 1, one down", rails(&[1, 1]), |s| s.up = false),
        ("1 : 1, one with 30 % loss", rails(&[1, 1]), |s| s.loss = 30),
    ];
    for (name, specs, change) in beds {
        let len = 4 << 20;
        let mut bed = Bed::new(1, &specs, Messages(len));
        let mut changed = specs[1];
        change(&mut changed);
        bed.run(S);
        bed.paths[1].spec = changed;
        bed.run(2 * S);
        bed.paths[1].spec = specs[1];
        bed.run(4 * S);
        let rate = if changed.up && changed.loss == 0 { changed.rate } else { 0 };
        let loads = [RAIL.rate, rate].map(|rate| Load { rate, latency: RAIL.delay, queued: 0 });
        let took = |from, to| -> Vec<Time> {
            bed.messages(0, false, from, to).iter().map(|one| one.took()).collect()
        };
        let worst = |times: Vec<Time>| times.into_iter().max().unwrap_or(Time::MAX);
        let figures = [
            median(took(0, S)),
            worst(took(S - 50 * MS, S + S / 2)),
            median(took(S + S / 2, 2 * S)),
            finish(&loads, len),
            worst(took(2 * S, 4 * S)),
            median(took(7 * S / 2, 4 * S)),
        ];
        let figures = figures.map(ms);
        let [before, first, then, ideal, back, end] = figures;
        let texts = figures.map(|figure| format!("{figure:.1}"));
        table.row(
            name,
            &texts.join(" | "),
            &[
                ("worst after the change", first, 0.0, 450.0),
                // a lane that loses much is tried again and again, and each time a message waits until it is given up
                ("median then", then, 0.0, if changed.loss > 0 { 5.0 } else { 1.05 } * ideal),
                ("worst after it is back", back, 0.0, 40.0),
                ("median at the end", end, 0.0, 1.05 * before),
            ],
        );
    }
    table
}

/// Rails that come and go, or lose packets.
fn faults() -> Table {
    let columns =
        "| fault | goodput of the good rail | by the other | longest stall, ms | lanes retired, opened |";
    let mut table = Table::new("Faults under a stream", columns);
    let mut row = |name: &str, bed: &Bed, from: Time, to: Time, least: f64| {
        let good = bed.rate(0, 0, from, to) / GIGABIT as f64;
        let all = bed.goodput(0, from, to) / GIGABIT as f64;
        let other = all - good;
        let (stall, sender) = (ms(bed.stall[0]), &bed.senders[0]);
        let lanes = (sender.retired.len(), sender.opened.len());
        table.row(
            name,
            &format!("{all:.3} | {other:.3} | {stall:.1} | {}, {}", lanes.0, lanes.1),
            &[("goodput", all, least, 2.02), ("good rail", good, 0.98, 1.02), ("stall", stall, 0.0, 20.0)],
        );
    };
    for (loss, least) in [(1, 1.5), (5, 1.2), (30, 0.98)] {
        let mut bed = Bed::new(7, &[RAIL, Spec { loss, ..RAIL }], Stream);
        bed.run(3 * S);
        row(&format!("{loss} % loss"), &bed, S, 3 * S, least);
    }
    for (name, period) in [("flaps every 1 s", S), ("flaps every 100 ms", S / 10)] {
        let mut bed = Bed::new(1, &rails(&[1, 1]), Stream);
        bed.run_with(5 * S, period, |now, paths| paths[1].spec.up = (now / period) % 2 == 0);
        row(name, &bed, S, 5 * S, 1.2);
    }
    for (name, period) in [("at a tenth every other 1 s", S), ("at a tenth every other 100 ms", S / 10)] {
        let mut bed = Bed::new(1, &rails(&[1, 1]), Stream);
        bed.run_with(5 * S, period, |now, paths| {
            paths[1].spec.rate = if (now / period) % 2 == 0 { GIGABIT } else { GIGABIT / 10 };
        });
        row(name, &bed, S, 5 * S, 1.45);
    }
    table
}

/// A rail is silent for a while: how long messages of 1 MiB wait at most, and when the rail is in use again.
fn blackholes() -> Table {
    let columns = "| silent for, ms | longest message, ms | given up after, ms | used again after, ms | goodput of the good rail meanwhile |";
    let mut table = Table::new("A rail that is silent, under messages of 1 MiB", columns);
    for silence in [20, 60, 150, 300, 1000].map(|ms| ms * MS) {
        let mut bed = Bed::new(1, &rails(&[1, 1]), Messages(1 << 20));
        let (from, to) = (S, S + silence);
        bed.run(from);
        bed.paths[1].spec.up = false;
        bed.run(to);
        bed.paths[1].spec.up = true;
        let end = to + 2 * S;
        bed.run(end);
        let longest = bed.messages(0, false, 0, end).iter().map(|one| one.took()).max();
        let given_up = bed.senders[0].retired.iter().map(|(at, _)| ms(at - from)).next();
        let used = (to / (10 * MS)..end / (10 * MS)).map(|bin| bin * 10 * MS);
        let used = used.clone().find(|at| bed.rate(0, 1, *at, at + 50 * MS) > GIGABIT as f64 / 2.0);
        let used = ms_or(used.map(|at| at - to));
        let good = bed.rate(0, 0, from, to) / GIGABIT as f64;
        let longest = ms_or(longest);
        let text = given_up.map_or("-".to_owned(), |after| format!("{after:.0}"));
        table.row(
            &format!("{}", silence / MS),
            &format!("{longest:.0} | {text} | {used:.0} | {good:.3}"),
            &[
                ("longest message", longest, 0.0, 300.0),
                ("given up after", given_up.unwrap_or(0.0), 0.0, 150.0),
                ("used again after", used, 0.0, 1600.0),
            ],
        );
    }
    table
}

/// Two senders, of which both have the first rail and one has a second one.
fn competition() -> Table {
    let columns =
        "| senders | total / sum | first, of the shared rail | variation of that | second's own rail |";
    let mut table = Table::new("Competition for a rail", columns);
    for (name, both) in [("one has a rail of its own", false), ("both have both rails", true)] {
        let claims = [CLAIM; 2];
        let mut bed = Bed::claiming(1, &rails(&[1, 1]), Stream, &claims[..if both { 2 } else { 1 }]);
        bed.add(Stream, &claims);
        let (from, to) = (S, 3 * S);
        bed.run(to);
        let total = (bed.goodput(0, from, to) + bed.goodput(1, from, to)) / (2.0 * GIGABIT as f64);
        let first = bed.rate(0, 0, from, to) / (bed.rate(0, 0, from, to) + bed.rate(1, 0, from, to));
        let wide = 200 * MS;
        let parts: Vec<f64> = (0..(to - from) / wide)
            .map(|i| (from + i * wide, from + (i + 1) * wide))
            .map(|(a, b)| bed.rate(0, 0, a, b) / (bed.rate(0, 0, a, b) + bed.rate(1, 0, a, b)))
            .collect();
        let mean = parts.iter().sum::<f64>() / parts.len() as f64;
        let varies =
            (parts.iter().map(|p| (p - mean).powi(2)).sum::<f64>() / parts.len() as f64).sqrt() / mean;
        let own = bed.rate(1, 1, from, to) / GIGABIT as f64;
        table.row(
            name,
            &format!("{total:.3} | {first:.3} | {varies:.3} | {own:.3}"),
            &[
                ("total / sum", total, 0.95, 1.02),
                ("first's part", first, 0.35, 0.65),
                ("variation", varies, 0.0, 0.25),
                ("own rail", own, if both { 0.0 } else { 0.98 }, 1.02),
            ],
        );
    }
    table
}

/// Small messages beside a stream, and alone: how long they take, and what is left to the stream.
fn small_messages() -> Table {
    let columns = "| rails | beside | median, us | 99 of 100, us | worst, us | by lane 0 | goodput / sum |";
    let mut table = Table::new("Small messages", columns);
    let far = Spec { delay: 50 * 50 * US, buffer: 4 << 20, ..RAIL };
    let beds: Vec<(&str, Vec<Spec>)> = vec![
        ("1", rails(&[1])),
        ("1 : 1", rails(&[1, 1])),
        ("1 : 1/10", rails(&[1, 10])),
        ("1 : 1/100", rails(&[1, 100])),
        ("1 : 1, 50 times the latency", vec![RAIL, far]),
    ];
    for (name, specs) in beds {
        for (beside, work, away) in [
            ("nothing", None, 0),
            ("1 MiB messages", Some(Messages(1 << 20)), 0),
            ("a stream", Some(Stream), 0),
            ("a stream, looks every 4 ms", Some(Stream), 4 * MS),
        ] {
            let mut bed = Bed::new(1, &specs, work.unwrap_or(Messages(0)));
            bed.senders[0].small = Some((MS, 64));
            bed.senders[0].away = away;
            // what lanes get through is measured before they hold little
            let (from, to) = (3 * S / 2, 2 * S);
            bed.run(to);
            let mut all = bed.messages(0, true, from, to);
            all.sort_by_key(|one| one.took());
            let us = |time: Time| time / US;
            let at = |part: usize| us(all[(all.len() - 1) * part / 100].took());
            let nearest = all.iter().filter(|one| one.by[0].1 > 0).count() as f64 / all.len() as f64;
            let worst = at(100) as f64;
            let part = bed.goodput(0, from, to) / sum(&specs);
            let (most, least, carried) = match (work, away) {
                (None, _) => (125.0, 1.0, 0.0),
                (Some(Stream), 0) => (500.0, 0.0, 0.95),
                (Some(_), 0) => (500.0, 0.0, 0.0),
                // who looks so seldom has them wait for that, and for what keeps lanes busy meanwhile
                _ => (15_000.0, 0.0, 0.9),
            };
            table.row(
                name,
                &format!("{beside} | {} | {} | {worst} | {nearest:.3} | {part:.3}", at(50), at(99)),
                &[
                    ("worst", worst, 0.0, most),
                    ("by lane 0", nearest, least, 1.0),
                    ("goodput", part, carried, 1.01),
                ],
            );
        }
    }
    table
}

/// Small messages beside a stream where lanes that hold little would carry little: what is left to the stream, against what it gets
/// without them.
fn small_messages_at_a_price() -> Table {
    let columns = "| where | goodput / sum | without small messages | median, us |";
    let mut table = Table::new("Small messages where it costs much to hold little", columns);
    let jitter = |time| Spec { jitter: time, ..RAIL };
    let deep = Spec { buffer: 4 * RAIL.buffer, ..RAIL };
    type Case = (&'static str, Spec, bool, Time, Option<(Time, Time)>);
    let cases: Vec<Case> = vec![
        ("beside another's stream", RAIL, true, 0, None),
        ("beside another's stream, buffers for 16 ms", deep, true, 0, None),
        ("jitter of 0.2 ms", jitter(200 * US), false, 0, None),
        ("jitter of 2 ms", jitter(2 * MS), false, 0, None),
        ("looks every 0.3 ms", RAIL, false, 300 * US, None),
        ("looks every 1.1 ms", RAIL, false, 1100 * US, None),
        ("looks every 2 ms", RAIL, false, 2 * MS, None),
        ("looks every 8 ms", RAIL, false, 8 * MS, None),
        ("looks every 30 ms", RAIL, false, 30 * MS, None),
        ("looks for 15 ms, then not for 5", RAIL, false, 0, Some((15 * MS, 5 * MS))),
    ];
    for (name, spec, shared, away, phases) in cases {
        let (from, to) = (S, 3 * S);
        let run = |small: bool| {
            let mut bed = Bed::new(1, &[spec], Stream);
            if shared {
                bed.add(Stream, &[CLAIM]);
            }
            let sender = &mut bed.senders[0];
            (sender.small, sender.away, sender.phases) = (small.then_some((MS, 64)), away, phases);
            bed.run(to);
            let mut all: Vec<_> = bed.messages(0, true, from, to).iter().map(|one| one.took()).collect();
            all.sort_unstable();
            (bed.goodput(0, from, to) / spec.rate as f64, all.get(all.len() / 2).map_or(0, |time| time / US))
        };
        let ((with, median), (without, _)) = (run(true), run(false));
        table.row(
            name,
            &format!("{with:.3} | {without:.3} | {median}"),
            &[
                ("of what it gets without", with / without, 0.75, 1.5),
                ("without", without, if shared { 0.4 } else { 0.9 }, 1.01),
            ],
        );
    }
    table
}

#[test]
fn control_is_as_pinned() {
    let parts: [fn() -> Table; 9] = [
        streams,
        messages,
        changes,
        changes_under_messages,
        faults,
        blackholes,
        competition,
        small_messages,
        small_messages_at_a_price,
    ];
    let (broken, text) = fill(&parts);
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        snapshot::check("control.md", &text);
    }
    assert!(broken.is_empty(), "bounds that do not hold:\n{broken}\n{text}");
    snapshot::check("control.md", &text);
}
