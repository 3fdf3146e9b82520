//! The few figures that matter, by the kind of program.

use super::program::{Kind, Program, accepting, heavy};
use crate::analysis::Analysis;
use crate::analysis::connections::{Connection, Direction};
use crate::analysis::histogram::Histogram;
use crate::model::Run;
use crate::units;
use serde::Serialize;

/// A figure in large print.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Key {
    value: String,
    label: String,
    bad: bool,
}

fn key(value: impl Into<String>, label: impl Into<String>) -> Key {
    Key { value: value.into(), label: label.into(), bad: false }
}

/// Bytes and time of directions of connections, from the first byte's moment to the last's.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moved {
    pub bytes: u64,
    pub messages: u64,
    span: Option<(u64, u64)>,
}

impl Moved {
    pub fn of<'a>(directions: impl Iterator<Item = &'a Direction<'a>>) -> Moved {
        let mut all = Moved::default();
        for direction in directions {
            all.bytes = all.bytes.saturating_add(direction.flow.bytes);
            all.messages = all.messages.saturating_add(direction.flow.messages);
            let Some((start, end)) = direction.flow.span else { continue };
            let span = all.span.get_or_insert((start, end));
            *span = (span.0.min(start), span.1.max(end));
        }
        all
    }

    /// Bytes a second while something went.
    pub fn rate(&self) -> Option<f64> {
        let (start, end) = self.span?;
        (end > start).then(|| self.bytes as f64 / (end - start) as f64 * 1e9)
    }
}

fn rate(moved: Moved) -> String {
    moved.rate().map_or_else(|| "–".into(), |rate| format!("{}/s", units::bytes(rate)))
}

/// What went to and from the side that this program is of.
pub(super) fn in_and_out(run: &Run, program: &Program) -> (Moved, Moved) {
    let main = program.main(run);
    // of a server that is traced with its clients the server's side
    let ours = |connection: &Connection| {
        program.kind != Kind::Server
            || accepting(run, connection).is_none_or(|socket| socket == connection.sockets.0)
    };
    let there = main.iter().map(|one| if ours(one) { &one.there } else { &one.back });
    let back = main.iter().map(|one| if ours(one) { &one.back } else { &one.there });
    (Moved::of(back), Moved::of(there))
}

/// How many connections there were at once at most.
fn at_once(connections: &[&Connection]) -> usize {
    let mut turns: Vec<(u64, i32)> =
        connections.iter().flat_map(|one| [(one.span.0, 1), (one.span.1.max(one.span.0), -1)]).collect();
    // who leaves at the moment at which another one comes was there with him
    turns.sort_unstable_by_key(|(at, change)| (*at, -change));
    let mut now = 0i32;
    turns
        .iter()
        .map(|(_, change)| {
            now += change;
            now
        })
        .max()
        .unwrap_or(0)
        .max(0) as usize
}

fn answer_times(times: &Histogram, what: &str) -> Option<Key> {
    let (median, late) = (times.quantile(0.5)?, times.quantile(0.99)?);
    Some(key(units::ns(median as f64), format!("{what}, median; 99 % within {}", units::ns(late as f64))))
}

/// The row of figures of a program.
pub(super) fn keys(run: &Run, analysis: &Analysis, program: &Program, names: &[String]) -> Vec<Key> {
    let mut keys = match program.kind {
        Kind::Mpi => of_ranks(run, analysis, names),
        Kind::Transfer => of_transfer(program),
        Kind::Server => of_server(run, program),
        Kind::Client => of_client(run, analysis, program),
        Kind::Other => of_other(run, analysis, program),
    };
    keys.extend(troubles(run, program));
    keys
}

fn of_server(run: &Run, program: &Program) -> Vec<Key> {
    let main = program.main(run);
    let (got, gave) = in_and_out(run, program);
    let answers = &program.answers.given;
    let mut keys = Vec::new();
    if let Some(rate) = answers_a_second(run, program) {
        let label = format!("answers a second, {} in all", units::count(answers.count()));
        keys.push(key(units::count(rate as u64), label));
    }
    keys.extend(answer_times(answers, "from question to answer"));
    keys.push(key(
        units::count(main.len() as u64),
        format!("connections, {} at once at most", units::count(at_once(&main) as u64)),
    ));
    keys.push(key(rate(got), format!("in, {} in all", units::bytes(got.bytes as f64))));
    keys.push(key(rate(gave), format!("out, {} in all", units::bytes(gave.bytes as f64))));
    keys
}

/// How often a server answers, while it does.
pub(super) fn answers_a_second(run: &Run, program: &Program) -> Option<f64> {
    let (_, gave) = in_and_out(run, program);
    let (start, end) = gave.span?;
    let answers = program.answers.given.count();
    (answers > 1 && end > start).then(|| answers as f64 / (end - start) as f64 * 1e9)
}

fn of_client(run: &Run, analysis: &Analysis, program: &Program) -> Vec<Key> {
    let main = program.main(run);
    let (got, gave) = in_and_out(run, program);
    let mut keys = vec![key(
        units::count(main.len() as u64),
        format!("connections, {} at once at most", units::count(at_once(&main) as u64)),
    )];
    keys.extend(answer_times(&program.answers.got, "until it is answered"));
    keys.push(key(rate(got), format!("in, {} in all", units::bytes(got.bytes as f64))));
    keys.push(key(rate(gave), format!("out, {} in all", units::bytes(gave.bytes as f64))));
    keys.push(waiting(run, analysis));
    keys
}

/// Which limit took most of the time that a sender had something to send.
fn limited_by(direction: &Direction) -> Option<(&'static str, f64)> {
    let limits = direction.limits?;
    let all = limits.application + limits.network + limits.receiver + limits.buffer;
    let parts = [
        ("the application: nothing to send", limits.application),
        ("the network: window, pacing or path", limits.network),
        ("the receiver's window", limits.receiver),
        ("the send buffer", limits.buffer),
    ];
    let (name, most) = parts.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    (all > 0.0).then(|| (name, most / all))
}

fn of_transfer(program: &Program) -> Vec<Key> {
    let carrying = || program.connections.iter().filter(|connection| connection.bytes() > 0);
    let moved = Moved::of(carrying().map(|one| heavy(one).0));
    let mut keys = vec![
        key(
            rate(moved),
            moved.rate().map_or_else(|| "goodput".into(), |rate| format!("goodput, {}", units::rate(rate))),
        ),
        key(
            units::bytes(moved.bytes as f64),
            format!("moved by {}", units::many(carrying().count() as u64, "connection")),
        ),
    ];
    let Some(first) = program.connections.first() else { return keys };
    if let Some((name, share)) = limited_by(heavy(first).0) {
        keys.push(key(units::percent(share), format!("of the time limited by {name}")));
    }
    if let Some(least) = first.min_rtt() {
        let mean = heavy(first).0.tcp.and_then(|tcp| tcp.mean_rtt());
        let label = mean.map_or_else(String::new, |mean| format!(", mean {}", units::ns(mean * 1e3)));
        keys.push(key(units::ns(f64::from(least) * 1e3), format!("round trip at least{label}")));
    }
    if program.connections.iter().all(|connection| connection.retransmissions() == 0) {
        keys.push(key("0", "segments sent again"));
    }
    keys
}

fn of_ranks(run: &Run, analysis: &Analysis, names: &[String]) -> Vec<Key> {
    let ranks = || run.processes.iter().zip(&analysis.processes).filter(|(process, _)| process.mpi.is_some());
    let life: f64 = ranks().map(|(process, _)| process.span.1.saturating_sub(process.span.0) as f64).sum();
    let share = |classes: &[usize]| {
        let inside: f64 = ranks()
            .map(|(_, totals)| classes.iter().map(|&class| totals.mpi[class] as f64).sum::<f64>())
            .sum();
        units::percent((inside / life.max(1.0)).min(1.0))
    };
    let mut keys = vec![
        key(share(&[0, 1, 2, 3, 4, 5]), "of their time in MPI calls"),
        key(share(&[1, 2]), "in calls that wait or receive"),
        key(share(&[3]), "in collectives"),
        key(units::count(analysis.seen.mpi), "MPI calls"),
    ];
    let is_rank = |node: u32| run.processes.get(node as usize).is_some_and(|process| process.mpi.is_some());
    let cells =
        || analysis.links.cells.iter().filter(|(from, to, _)| from != to && is_rank(*from) && is_rank(*to));
    let by_mpi = cells().any(|(.., cell)| cell.mpi_bytes > 0);
    let bytes = |cell: &crate::analysis::nodes::Cell| if by_mpi { cell.mpi_bytes } else { cell.bytes };
    if let Some((from, to, cell)) =
        cells().max_by_key(|(.., cell)| bytes(cell)).filter(|(.., cell)| bytes(cell) > 0)
    {
        let way = if by_mpi { "" } else { " by sockets" };
        keys.push(key(
            format!("{} → {}", names[*from as usize], names[*to as usize].trim_start_matches("rank ")),
            format!("busiest pair, {}{way}", units::bytes(bytes(cell) as f64)),
        ));
    }
    keys
}

fn of_other(run: &Run, analysis: &Analysis, program: &Program) -> Vec<Key> {
    let moved = Moved::of(program.connections.iter().flat_map(|one| [&one.there, &one.back]));
    vec![
        key(
            units::count(run.processes.len() as u64),
            if run.processes.len() == 1 { "process" } else { "processes" },
        ),
        key(
            units::count(program.connections.len() as u64),
            if program.connections.len() == 1 { "connection" } else { "connections" },
        ),
        key(units::bytes(moved.bytes as f64), "through sockets"),
        key(units::count(analysis.seen.calls), "socket calls"),
        waiting(run, analysis),
    ]
}

fn waiting(run: &Run, analysis: &Analysis) -> Key {
    let life: f64 =
        run.processes.iter().map(|process| process.span.1.saturating_sub(process.span.0) as f64).sum();
    let waited: f64 = analysis.processes.iter().map(|totals| totals.waited as f64).sum();
    let share = waited / life.max(1.0);
    match share {
        share if share <= 1.0 => key(units::percent(share), "of the processes' time waiting for others"),
        // several threads at once
        _ => key(units::ns(waited), "waited for others, in all threads"),
    }
}

/// What should not be, where it was.
fn troubles(run: &Run, program: &Program) -> Vec<Key> {
    let all = || program.connections.iter();
    let again: u64 = all().map(Connection::retransmissions).sum();
    let spurious: u64 = all().map(Connection::spurious).sum();
    let timeouts: u64 = all().map(Connection::timeouts).sum();
    let lost = run.threads.iter().fold(0u64, |sum, thread| sum.saturating_add(thread.lost));
    let mut keys = Vec::new();
    let mut add = |is: bool, bad: bool, value: String, label: String| {
        if is {
            keys.push(Key { value, label, bad });
        }
    };
    let of_nothing =
        if spurious > 0 { format!(", {} for nothing", units::count(spurious)) } else { String::new() };
    add(again > 0, again > spurious, units::count(again), format!("segments sent again{of_nothing}"));
    add(timeouts > 0, true, units::count(timeouts), "retransmission timeouts".into());
    add(lost > 0, true, units::count(lost), "records lost".into());
    if let Some(status @ (..=-1 | 1..)) = run.status {
        add(true, true, status.to_string(), "exit status".into());
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::messages::Flow;

    #[test]
    fn connections_at_once() {
        let flow = Flow::default();
        let direction = Direction { from: None, flow: &flow, tcp: None, socket: None, limits: None };
        let connection = |from, to| Connection {
            sockets: (0, None),
            kind: crate::model::Kind::Tcp,
            nodes: (0, None),
            there: direction,
            back: direction,
            span: (from, to),
        };
        let all = [
            connection(0, 10),
            connection(5, 20),
            connection(10, 12),
            connection(30, 30),
            connection(40, 35),
        ];
        assert_eq!(at_once(&all.iter().collect::<Vec<_>>()), 3);
        assert_eq!(at_once(&[]), 0);
    }
}
