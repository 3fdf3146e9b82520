//! The figures of the page. What is many is packed into columns ([`super::page::packed`]); what is text is escaped by the page's code,
//! which never makes HTML of it. The names of its fields are those of `page/data.d.ts`, by which the page's code is checked.
//!
//! | module | makes |
//! |---|---|
//! | `connections` | connections, and what TCP did to them over time |
//! | `failures` | what failed |
//! | `lanes` | what each process did over time |
//! | `paths` | ways of MPI messages |

mod connections;
mod failures;
mod lanes;
mod paths;

pub(super) use failures::why_refused;

use super::OverTime;
use super::about::{About, shown};
use super::against::{Against, Compared};
use super::key::Key;
use super::matrix::{Matrix, matrix};
use super::page::packed;
use super::program::{Kind as ProgramKind, Program};
use super::rails;
use crate::analysis::connections::Connection;
use crate::analysis::histogram::Histogram;
use crate::analysis::lanes::Lanes;
use crate::analysis::traffic::Series;
use crate::analysis::{Analysis, CallTotals};
use crate::classify::{self, Classes, Suggestion};
use crate::model::{Call, Kind, Run};
use serde::Serialize;

/// Connections on the page, those with most bytes; the Parquet files have all.
const CONNECTIONS: usize = 300;
/// Sockets whose names are on the page.
const SOCKETS: usize = 20_000;

#[derive(Serialize)]
pub(super) struct Data<'a> {
    command: &'a str,
    kind: ProgramKind,
    keys: &'a [Key],
    sentence: &'a str,
    finding: &'a str,
    warnings: &'a [String],
    notes: &'a [String],
    date_ms: f64,
    status: Option<i32>,
    span: f64,
    hosts: Vec<HostData>,
    classes: &'a Classes,
    mpi_classes: Option<Classes>,
    own_classes: Option<Classes>,
    slots: (u64, u64),
    senders: usize,
    suggestions: &'a [Suggestion],
    totals: Totals,
    matrix: Matrix,
    histograms: [Histograms; 3],
    calls: Vec<CallData>,
    call_names: Vec<&'static str>,
    processes: Vec<lanes::ProcessData<'a>>,
    threads: Vec<(u32, u32, String)>,
    sockets: Vec<String>,
    timeline: lanes::TimelineData,
    flights: lanes::FlightsData,
    connections: Vec<connections::ConnectionData<'a>>,
    connections_left_out: (usize, u64),
    refused: Vec<failures::RefusedData>,
    unheard: Vec<failures::UnheardData>,
    paths: paths::PathsData,
    rails: Vec<rails::EventData>,
    against: Option<Vec<Compared>>,
}

#[derive(Serialize)]
struct HostData {
    name: String,
    kernel: String,
    processors: u32,
    clock_error: Option<u64>,
    kernel_events: bool,
}

#[derive(Serialize)]
struct Totals {
    calls: u64,
    records: u64,
    mpi: u64,
    samples: u64,
    kernel: u64,
    bytes: u64,
    messages: u64,
    mpi_messages: u64,
    connections: usize,
    retransmissions: u64,
    spurious: u64,
    timeouts: u64,
    lost: u64,
}

#[derive(Serialize)]
struct Histograms {
    name: &'static str,
    sizes: Vec<u64>,
    gaps: Vec<u64>,
    size: Figures,
    gap: Figures,
}

/// Count, median, 90th percentile, maximum.
#[derive(Serialize)]
struct Figures(u64, Option<u64>, Option<u64>, u64);

impl Figures {
    fn of(histogram: &Histogram) -> Figures {
        Figures(histogram.count(), histogram.quantile(0.5), histogram.quantile(0.9), histogram.max())
    }
}

#[derive(Serialize)]
struct CallData {
    name: &'static str,
    mpi: bool,
    calls: u64,
    inside: u64,
    longest: u64,
    bytes: u64,
    errors: u64,
}

fn column<T, const N: usize>(items: impl Iterator<Item = T>, bytes: impl Fn(T) -> [u8; N]) -> String {
    packed(&items.flat_map(bytes).collect::<Vec<u8>>())
}

/// Bytes over time, from `start` in steps of `bucket`.
#[derive(Serialize)]
struct SeriesData {
    start: f64,
    bucket: u64,
    values: String,
}

fn series(run: &Run, series: &Series) -> SeriesData {
    SeriesData {
        // the first bucket may begin before the run
        start: series.start() as f64 - run.span.0 as f64,
        bucket: series.bucket(),
        values: column(series.values().iter(), |value| (*value as f32).to_le_bytes()),
    }
}

#[allow(clippy::too_many_arguments, reason = "a page shows all that there is")]
pub(super) fn data<'a>(
    run: &'a Run,
    analysis: &'a Analysis,
    over_time: &'a OverTime,
    program: &'a Program<'a>,
    whole: &'a Classes,
    suggestions: &'a [Suggestion],
    about: &'a About,
    against: Option<&Against>,
) -> Data<'a> {
    let all = program.connections;
    let (shown_connections, others) = all.split_at(all.len().min(CONNECTIONS));
    let histograms = |name, pattern: &crate::analysis::messages::Pattern| Histograms {
        name,
        sizes: pattern.sizes.doublings(),
        gaps: pattern.gaps.doublings(),
        size: Figures::of(&pattern.sizes),
        gap: Figures::of(&pattern.gaps),
    };
    let rails = Lanes::new(run);
    let mut call_names = vec![""; 256];
    Call::ALL.iter().for_each(|call| call_names[*call as u8 as usize] = call.name());
    Data {
        command: &about.command,
        kind: program.kind,
        keys: &about.keys,
        sentence: &about.sentence,
        finding: &about.finding,
        warnings: &about.warnings,
        notes: &about.notes,
        date_ms: run.date as f64 / 1e6,
        status: run.status,
        span: since(run, run.span.1),
        hosts: run
            .hosts
            .iter()
            .map(|host| HostData {
                name: shown(&host.name, 60),
                kernel: shown(&host.kernel, 60),
                processors: host.processors,
                clock_error: host.clock_error,
                kernel_events: host.kernel_events,
            })
            .collect(),
        classes: whole,
        mpi_classes: classify::mpi(analysis),
        own_classes: classify::own(run, analysis, whole),
        slots: analysis.synchrony.0,
        senders: analysis.senders,
        suggestions,
        totals: totals(run, analysis, all),
        matrix: matrix(run, analysis, &about.names),
        histograms: [
            histograms("sockets", &analysis.all),
            histograms("MPI point-to-point", &analysis.mpi),
            histograms("MPI collectives", &analysis.collective),
        ],
        calls: Call::ALL
            .iter()
            .filter_map(|call| call_data(*call, &analysis.calls[*call as u8 as usize]))
            .collect(),
        call_names,
        processes: (0..run.processes.len())
            .map(|index| lanes::process(run, analysis, over_time, about, index))
            .collect(),
        threads: run.threads.iter().map(|t| (t.process, t.tid, shown(&t.name, 32))).collect(),
        sockets: (0..run.sockets.len().min(SOCKETS))
            .map(|socket| socket_name(run, analysis, about, socket))
            .collect(),
        timeline: lanes::timeline(analysis),
        flights: lanes::flights(run, &over_time.flights),
        connections: shown_connections
            .iter()
            .map(|c| connections::connection(run, analysis, over_time, about, &rails, c))
            .collect(),
        connections_left_out: (others.len(), others.iter().map(Connection::bytes).sum()),
        refused: failures::refused(run, analysis, about),
        unheard: failures::unheard(run, analysis, about),
        paths: paths::paths(run, analysis, &rails),
        rails: rails::events(run, about, &rails),
        against: against.map(Against::compared),
    }
}

/// ns since the run's start; exact below 104 days.
fn since(run: &Run, at: u64) -> f64 {
    at.saturating_sub(run.span.0) as f64
}

fn totals(run: &Run, analysis: &Analysis, connections: &[Connection]) -> Totals {
    let sum = |get: fn(&crate::analysis::nodes::Cell) -> u64| {
        analysis.links.cells.iter().fold(0u64, |sum, (_, _, cell)| sum.saturating_add(get(cell)))
    };
    Totals {
        calls: analysis.seen.calls,
        records: analysis.seen.records,
        mpi: analysis.seen.mpi,
        samples: analysis.seen.samples,
        kernel: analysis.seen.kernel,
        bytes: sum(|cell| cell.bytes),
        messages: sum(|cell| cell.messages),
        mpi_messages: sum(|cell| cell.mpi_messages),
        connections: connections.len(),
        retransmissions: connections.iter().map(Connection::retransmissions).sum(),
        spurious: connections.iter().map(Connection::spurious).sum(),
        timeouts: connections.iter().map(Connection::timeouts).sum(),
        lost: run.threads.iter().fold(0, |sum, thread| sum.saturating_add(thread.lost)),
    }
}

fn call_data(call: Call, totals: &CallTotals) -> Option<CallData> {
    let CallTotals { calls, inside, longest, bytes, errors } = *totals;
    (calls > 0).then(|| CallData {
        name: call.name(),
        mpi: call as u8 >= 128,
        calls,
        inside,
        longest,
        bytes,
        errors,
    })
}

fn address(address: Option<std::net::SocketAddr>) -> String {
    address.map_or_else(String::new, |address| address.to_string())
}

fn socket_name(run: &Run, analysis: &Analysis, about: &About, index: usize) -> String {
    let socket = &run.sockets[index];
    let other = analysis.other_end(index).map_or("", |node| about.names[node as usize].as_str());
    match (socket.kind, socket.remote) {
        (Kind::Unix, _) => format!("unix socket to {other}"),
        (Kind::Memory, _) => format!("shared memory with {other}"),
        (_, Some(remote)) if other.is_empty() => format!("{} to {remote}", kind(socket.kind)),
        (_, Some(remote)) => format!("{} to {other}, {remote}", kind(socket.kind)),
        (_, None) if socket.listening => {
            format!("{} listening at {}", kind(socket.kind), address(socket.local))
        }
        (_, None) => format!("{} socket {}", kind(socket.kind), address(socket.local)),
    }
}

pub(super) fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Tcp => "TCP",
        Kind::Udp => "UDP",
        Kind::Unix => "Unix",
        Kind::Memory => "shared memory",
        Kind::Other => "other",
    }
}
