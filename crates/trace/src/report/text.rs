//! What the command prints.

use super::about::About;
use super::against::Figure;
use super::data::why_refused;
use super::rails::{self, carrier};
use crate::analysis::Analysis;
use crate::analysis::connections::Connection;
use crate::analysis::lanes::Lanes;
use crate::classify::{self, Classes, Suggestion};
use crate::model::{Run, Socket};
use crate::units;
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Connections that the text lists, or groups of them.
const ROWS: usize = 20;

/// A report in short; as text what the command prints.
#[derive(Clone, Debug)]
pub struct Summary {
    /// What must be known before anything is believed.
    pub warnings: Vec<String>,
    /// What was not recorded though nothing went wrong: without rights, say.
    pub notes: Vec<String>,
    /// What this program is, and the most important finding.
    pub headline: (String, String),
    /// The classes of the whole.
    pub whole: Classes,
    /// The classes of an MPI program's own messages.
    pub mpi: Option<Classes>,
    /// What would help.
    pub suggestions: Vec<Suggestion>,
    /// The files that were written.
    pub files: Vec<PathBuf>,
    /// What it may be compared with another run by.
    pub figures: Vec<Figure>,
    totals: String,
    failures: Vec<String>,
    rows: Vec<(String, Classes, String)>,
    left_out: usize,
}

#[allow(clippy::too_many_arguments, reason = "a summary tells of all")]
pub(super) fn summary(
    run: &Run,
    analysis: &Analysis,
    connections: &[Connection],
    whole: &Classes,
    suggestions: &[Suggestion],
    about: &About,
    figures: Vec<Figure>,
    files: Vec<PathBuf>,
) -> Summary {
    let lanes = Lanes::new(run);
    let groups = groups(run, &lanes, connections);
    let row = |group: &Vec<&Connection>| {
        let mut tail = units::bytes(sum(group, |one| one.bytes()) as f64);
        let (again, spurious) = (sum(group, |one| one.retransmissions()), sum(group, |one| one.spurious()));
        if again > 0 {
            tail += &format!(", {} again", units::count(again));
        }
        if spurious > 0 {
            tail += &if spurious == again {
                " (for nothing)".into()
            } else {
                format!(" ({} for nothing)", units::count(spurious))
            };
        }
        let timeouts = sum(group, |one| one.timeouts());
        if timeouts > 0 {
            tail += &format!(", {}", units::many(timeouts, "timeout"));
        }
        (ends(run, about, &lanes, group), classify::between(analysis, group[0], group), tail)
    };
    let seen = analysis.seen;
    let bytes = analysis.links.cells.iter().fold(0u64, |sum, (_, _, cell)| sum.saturating_add(cell.bytes));
    let mpi = match seen.mpi {
        0 => String::new(),
        calls => format!(" and {}", units::many(calls, "MPI call")),
    };
    let totals = format!(
        "{}{mpi} of {}; {} and {}; {} in {} over {}",
        units::many(seen.calls, "socket call"),
        units::many(run.processes.len() as u64, "process"),
        units::many(seen.samples, "TCP sample"),
        units::many(seen.kernel, "kernel event"),
        units::bytes(bytes as f64),
        units::many(analysis.all.sizes.count(), "message"),
        units::many(connections.len() as u64, "connection"),
    );
    let idle = analysis.never_connected(run) as u64;
    let totals = match idle {
        0 => totals,
        _ => format!("{totals}; {} never connected", units::many(idle, "TCP socket")),
    };
    Summary {
        warnings: about.warnings.clone(),
        notes: about.notes.clone(),
        headline: (about.sentence.clone(), about.finding.clone()),
        whole: whole.clone(),
        mpi: classify::mpi(analysis),
        suggestions: suggestions.to_vec(),
        files,
        figures,
        totals,
        failures: [failures(run, analysis, about), rails::failures(run, about, &lanes)].concat(),
        rows: groups.iter().take(ROWS).map(row).collect(),
        left_out: groups.iter().skip(ROWS).map(Vec::len).sum(),
    }
}

/// The end that serves the other, where that is known: whether it is the first, and its port, if it has one.
fn service(run: &Run, connection: &Connection) -> Option<(bool, Option<u16>)> {
    let socket = |number: u32| &run.sockets[number as usize];
    let (one, other) = (socket(connection.sockets.0), connection.sockets.1.map(socket));
    let port = |address: Option<SocketAddr>| address.map(|address| address.port());
    if one.serves() {
        return Some((true, port(one.local)));
    }
    other.is_none_or(Socket::serves).then(|| (false, port(one.remote)))
}

/// Connections between the same two to one service, most bytes first: a client may have made thousands.
fn groups<'a, 'b>(
    run: &Run,
    lanes: &Lanes,
    connections: &'b [Connection<'a>],
) -> Vec<Vec<&'b Connection<'a>>> {
    let mut places = HashMap::new();
    let mut groups: Vec<Vec<&Connection>> = Vec::new();
    for (at, connection) in connections.iter().enumerate() {
        let (one, other) = (Some(connection.nodes.0), connection.nodes.1);
        let which = match service(run, connection) {
            Some((true, port)) => Ok((other, one, port)),
            Some((false, port)) => Ok((one, other, port)),
            // each is by itself
            None => Err(at),
        };
        let place = *places.entry((carrier(lanes, connection), which)).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Vec::new());
        }
        groups[place].push(connection);
    }
    groups.sort_by_cached_key(|group| std::cmp::Reverse(sum(group, |one| one.bytes())));
    groups
}

fn sum(group: &[&Connection], of: fn(&Connection) -> u64) -> u64 {
    group.iter().fold(0u64, |sum, one| sum.saturating_add(of(one)))
}

/// What joins whom.
fn ends(run: &Run, about: &About, lanes: &Lanes, group: &[&Connection]) -> String {
    let connection = group[0];
    let service = service(run, connection).filter(|_| group.len() > 1);
    let name = |node: Option<u32>| node.map_or("?", |node| about.names[node as usize].as_str());
    let end = |first: bool, node: Option<u32>, address: Option<SocketAddr>| match address {
        // the name of what is not traced may hold it already
        Some(address)
            if service.is_none_or(|(at, _)| at == first)
                && !name(node).ends_with(&format!(", port {}", address.port())) =>
        {
            format!("{}:{}", name(node), address.port())
        }
        _ => name(node).to_owned(),
    };
    let socket = &run.sockets[connection.sockets.0 as usize];
    let (one, other) =
        (end(true, Some(connection.nodes.0), socket.local), end(false, connection.nodes.1, socket.remote));
    let number = match group.len() {
        1 => String::new(),
        number => format!(", {}", units::many(number as u64, "connection")),
    };
    format!("{} {one} – {other}{number}", carrier(lanes, connection))
}

/// Kinds of failures that the text lists.
const FAILURES: usize = 5;

fn failures(run: &Run, analysis: &Analysis, about: &About) -> Vec<String> {
    let mut lines = Vec::new();
    let refused = analysis.refused(run);
    for row in refused.iter().take(FAILURES) {
        let to = row.to.map_or_else(String::new, |to| format!(" to {to}"));
        let name = &about.names[row.process as usize];
        lines.push(format!(
            "{name}: {}{to} failed: {}",
            units::many(row.times, "connect"),
            why_refused(row.error)
        ));
    }
    if refused.len() > FAILURES {
        let more = refused[FAILURES..].iter().fold(0u64, |all, row| all.saturating_add(row.times));
        lines.push(format!("and {} more", units::many(more, "failed connect")));
    }
    for row in analysis.unheard(run).iter().take(FAILURES) {
        let socket = &run.sockets[row.socket as usize];
        let at = socket.local.map_or_else(String::new, |local| format!(" at port {}", local.port()));
        lines.push(format!(
            "{}{at} received {} of {} that were sent to it",
            about.names[socket.process as usize],
            units::count(row.received),
            units::many(row.sent, "datagram"),
        ));
    }
    lines
}

fn class(class: Option<impl ToString>) -> String {
    class.map_or_else(|| "-".into(), |class| class.to_string())
}

fn both(values: Option<(u64, u64)>, show: fn(f64) -> String) -> String {
    values.map_or_else(
        || "-".into(),
        |(median, high)| format!("{} / {}", show(median as f64), show(high as f64)),
    )
}

fn line(f: &mut fmt::Formatter, width: usize, name: &str, classes: &Classes, tail: &str) -> fmt::Result {
    writeln!(
        f,
        "  {name:width$}  {:9} {:17}  {:7} {:19}  {:9} {:>9}  {tail}",
        class(classes.frequency),
        both(classes.gap_by_time.zip(classes.gap.map(|gap| gap.0)), units::ns),
        class(classes.size),
        both(classes.size_by_cost.zip(classes.bytes.map(|bytes| bytes.0)), units::bytes),
        class(classes.synchrony),
        units::count(classes.messages),
    )
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for warning in &self.warnings {
            writeln!(f, "WARNING: {warning}")?;
        }
        if !self.warnings.is_empty() {
            writeln!(f)?;
        }
        writeln!(f, "{}\n{}\n\n{}\n", self.headline.0, self.headline.1, self.totals)?;
        for line in &self.failures {
            writeln!(f, "  {line}")?;
        }
        if !self.failures.is_empty() {
            writeln!(f)?;
        }
        let width = self.rows.iter().map(|row| row.0.chars().count()).max().unwrap_or(0).max(15);
        writeln!(
            f,
            "  {:width$}  {:27}  {:27}  {:9} {:>9}  bytes",
            "", "frequency (by time / p50)", "size (by cost / p50)", "synchrony", "messages"
        )?;
        line(f, width, "the whole", &self.whole, "")?;
        if let Some(mpi) = &self.mpi {
            line(f, width, "as MPI messages", mpi, "")?;
        }
        for (name, classes, tail) in &self.rows {
            line(f, width, name, classes, tail)?;
        }
        if self.left_out > 0 {
            writeln!(f, "  and {} with fewer bytes", units::many(self.left_out as u64, "connection"))?;
        }
        if let Some((senders, pairs)) = self.whole.together {
            writeln!(
                f,
                "\nWhen one sends, {} of the processes send at about the same time, over {} of all pairs.",
                units::percent(senders),
                units::percent(pairs)
            )?;
        }
        for suggestion in &self.suggestions {
            write!(f, "\n* {}", suggestion.title)?;
            if let Some(lost) = suggestion.lost {
                write!(f, " (about {})", units::ns(lost as f64))?;
            }
            writeln!(f, "\n  {}\n  How: {}", suggestion.reason, suggestion.how)?;
        }
        writeln!(f)?;
        for note in &self.notes {
            writeln!(f, "Note: {note}")?;
        }
        if !self.notes.is_empty() {
            writeln!(f)?;
        }
        self.files.iter().try_for_each(|file| writeln!(f, "{}", file.display()))
    }
}
