//! The figures of the page. What is many is packed into columns ([`super::page::packed`]); what is text is escaped by the page's code,
//! which never makes HTML of it.

use super::about::{About, shown};
use super::matrix::{Matrix, matrix};
use super::page::packed;
use crate::analysis::connections::{Connection, Direction, Limits};
use crate::analysis::histogram::Histogram;
use crate::analysis::path::Path;
use crate::analysis::tcp::Point;
use crate::analysis::timeline::{Lane, MPI_CLASSES, SOCKET_CLASSES};
use crate::analysis::{Analysis, CallTotals, ProcessTotals};
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
    sentence: &'a str,
    finding: &'a str,
    warnings: &'a [String],
    date_ms: f64,
    status: Option<i32>,
    span: f64,
    hosts: Vec<HostData>,
    classes: &'a Classes,
    like: Option<(&'static str, usize)>,
    mpi_classes: Option<Classes>,
    slots: (u64, u64),
    senders: usize,
    suggestions: &'a [Suggestion],
    totals: Totals,
    matrix: Matrix,
    histograms: [Histograms; 3],
    calls: Vec<CallData>,
    call_names: Vec<&'static str>,
    processes: Vec<ProcessData<'a>>,
    threads: Vec<(u32, u32, String)>,
    sockets: Vec<String>,
    timeline: TimelineData,
    connections: Vec<ConnectionData<'a>>,
    connections_left_out: (usize, u64),
    paths: PathsData,
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

#[derive(Serialize)]
struct ProcessData<'a> {
    name: &'a str,
    host: u32,
    pid: u32,
    command: String,
    rank: Option<u32>,
    status: Option<i32>,
    span: (f64, f64),
    sockets: [u64; 4],
    mpi: [u64; 6],
    calls: u64,
    bytes: (u64, u64),
    messages: u64,
    waited: u64,
    idle: u64,
    lanes: Vec<LaneData>,
}

#[derive(Serialize)]
struct LaneData {
    mpi: bool,
    calls: u64,
    kept: usize,
    /// ns of the shortest call that is kept.
    shortest: u64,
    /// By class: one byte per bucket.
    shares: Vec<String>,
    start: String,
    took: String,
    thread: String,
    call: String,
    other: String,
    bytes: String,
    calls_in: String,
    error: String,
}

#[derive(Serialize)]
struct TimelineData {
    bucket: u64,
    buckets: usize,
    classes: [&'static [&'static str]; 2],
}

#[derive(Serialize)]
struct ConnectionData<'a> {
    kind: &'static str,
    names: (String, String),
    addresses: (String, String),
    span: (f64, f64),
    classes: Classes,
    min_rtt: Option<u32>,
    there: DirectionData<'a>,
    back: DirectionData<'a>,
}

#[derive(Serialize)]
struct DirectionData<'a> {
    bytes: u64,
    sends: u64,
    messages: u64,
    rate: Option<f64>,
    limits: Option<[f64; 4]>,
    retransmissions: u64,
    timeouts: u64,
    loss: Option<f64>,
    congestion: &'a str,
    mean_rtt: Option<f64>,
    mss: u32,
    collapses: u64,
    /// When, after how long a pause, from and to how many segments, and ns lost.
    restarts: Vec<(f64, u64, u32, u32, u64)>,
    full: Option<f64>,
    series: Option<Series>,
}

#[derive(Serialize)]
struct Series {
    points: usize,
    joined: u64,
    seen: (u64, u64),
    at: String,
    cwnd_low: String,
    cwnd_high: String,
    ssthresh: String,
    flight: String,
    rtt: String,
    free: String,
    rate: String,
    again: String,
    timeouts: String,
}

#[derive(Serialize)]
struct PathsData {
    found: u64,
    unfound: u64,
    acknowledged: u64,
    to_send: Figures,
    sending: Figures,
    to_acknowledged: Figures,
    /// Call, sender, receiver, bytes, tag, start, then ns since the start: call's end, first send, last send's end, acknowledgement and its bound.
    longest: Vec<PathData>,
}

#[derive(Serialize)]
struct PathData(&'static str, u32, u32, u64, i32, f64, u64, u64, u64, Option<(u64, u64)>);

fn column<T, const N: usize>(items: impl Iterator<Item = T>, bytes: impl Fn(T) -> [u8; N]) -> String {
    packed(&items.flat_map(bytes).collect::<Vec<u8>>())
}

pub(super) fn data<'a>(
    run: &'a Run,
    analysis: &'a Analysis,
    connections: &'a [Connection<'a>],
    whole: &'a Classes,
    suggestions: &'a [Suggestion],
    about: &'a About,
) -> Data<'a> {
    let (shown_connections, others) = connections.split_at(connections.len().min(CONNECTIONS));
    let histograms = |name, pattern: &crate::analysis::messages::Pattern| Histograms {
        name,
        sizes: pattern.sizes.doublings(),
        gaps: pattern.gaps.doublings(),
        size: Figures::of(&pattern.sizes),
        gap: Figures::of(&pattern.gaps),
    };
    let mut call_names = vec![""; 256];
    Call::ALL.iter().for_each(|call| call_names[*call as u8 as usize] = call.name());
    Data {
        command: &about.command,
        sentence: &about.sentence,
        finding: &about.finding,
        warnings: &about.warnings,
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
        like: whole.like(),
        mpi_classes: classify::mpi(analysis),
        slots: analysis.synchrony.0,
        senders: analysis.senders,
        suggestions,
        totals: totals(run, analysis, connections),
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
        processes: (0..run.processes.len()).map(|index| process(run, analysis, about, index)).collect(),
        threads: run.threads.iter().map(|t| (t.process, t.tid, shown(&t.name, 32))).collect(),
        sockets: (0..run.sockets.len().min(SOCKETS))
            .map(|socket| socket_name(run, analysis, about, socket))
            .collect(),
        timeline: TimelineData {
            bucket: analysis.timeline.bucket,
            buckets: analysis.timeline.buckets,
            classes: [&SOCKET_CLASSES, &MPI_CLASSES],
        },
        connections: shown_connections.iter().map(|c| connection(run, analysis, about, c)).collect(),
        connections_left_out: (others.len(), others.iter().map(Connection::bytes).sum()),
        paths: paths(run, analysis),
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

fn process<'a>(run: &Run, analysis: &Analysis, about: &'a About, index: usize) -> ProcessData<'a> {
    let process = &run.processes[index];
    let ProcessTotals { sockets, mpi, calls, bytes, messages, waited, idle } = analysis.processes[index];
    let lanes = &analysis.timeline.lanes[index * 2..index * 2 + 2];
    ProcessData {
        name: &about.names[index],
        host: process.host,
        pid: process.pid,
        command: shown(&process.command.join(" "), 200),
        rank: process.mpi.as_ref().map(|mpi| mpi.rank),
        status: process.status,
        span: (since(run, process.span.0), since(run, process.span.1)),
        sockets,
        mpi,
        calls,
        bytes,
        messages,
        waited,
        idle,
        lanes: [1, 0]
            .into_iter()
            .filter(|&which| lanes[which].calls > 0)
            .map(|which| lane(run, analysis, &lanes[which], which == 1))
            .collect(),
    }
}

fn lane(run: &Run, analysis: &Analysis, lane: &Lane, mpi: bool) -> LaneData {
    let mut kept: Vec<_> = lane.longest.iter().map(|long| long.0).collect();
    kept.sort_unstable_by_key(|long| long.start);
    let each = || kept.iter();
    LaneData {
        mpi,
        calls: lane.calls,
        kept: kept.len(),
        shortest: each().map(|long| long.took).min().unwrap_or(0),
        shares: analysis
            .timeline
            .shares(lane)
            .iter()
            .map(|shares| if shares.is_empty() { String::new() } else { packed(shares) })
            .collect(),
        start: column(each(), |long| since(run, long.start).to_le_bytes()),
        took: column(each(), |long| (long.took as f64).to_le_bytes()),
        thread: column(each(), |long| long.thread.to_le_bytes()),
        call: column(each(), |long| [long.call]),
        other: column(each(), |long| long.other.to_le_bytes()),
        bytes: column(each(), |long| (long.bytes as f64).to_le_bytes()),
        calls_in: column(each(), |long| long.calls.to_le_bytes()),
        error: column(each(), |long| long.error.to_le_bytes()),
    }
}

fn address(address: Option<std::net::SocketAddr>) -> String {
    address.map_or_else(String::new, |address| address.to_string())
}

fn socket_name(run: &Run, analysis: &Analysis, about: &About, index: usize) -> String {
    let socket = &run.sockets[index];
    let other = analysis.other_end(index).map_or("", |node| about.names[node as usize].as_str());
    match (socket.kind, socket.remote) {
        (Kind::Unix, _) => format!("unix socket to {other}"),
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
        Kind::Other => "other",
    }
}

fn connection<'a>(
    run: &Run,
    analysis: &Analysis,
    about: &About,
    connection: &Connection<'a>,
) -> ConnectionData<'a> {
    let name = |node: Option<u32>| node.map_or("?", |node| about.names[node as usize].as_str()).to_owned();
    let socket = &run.sockets[connection.sockets.0 as usize];
    ConnectionData {
        kind: kind(connection.kind),
        names: (name(Some(connection.nodes.0)), name(connection.nodes.1)),
        addresses: (address(socket.local), address(socket.remote)),
        span: (since(run, connection.span.0), since(run, connection.span.1)),
        classes: classify::connection(analysis, connection),
        min_rtt: connection.min_rtt(),
        there: direction(run, &connection.there),
        back: direction(run, &connection.back),
    }
}

fn direction<'a>(run: &Run, direction: &Direction<'a>) -> DirectionData<'a> {
    let tcp = direction.tcp;
    let parts = |limits: Limits| [limits.application, limits.network, limits.receiver, limits.buffer];
    DirectionData {
        bytes: direction.flow.bytes,
        sends: direction.flow.sends,
        messages: direction.flow.messages,
        rate: direction.busy_rate(),
        limits: direction.limits.map(parts),
        retransmissions: tcp.map_or(0, |tcp| tcp.retransmissions()),
        timeouts: tcp.map_or(0, |tcp| tcp.timeouts()),
        loss: direction.loss(),
        congestion: tcp.map_or("", |tcp| &tcp.congestion),
        mean_rtt: tcp.and_then(|tcp| tcp.mean_rtt()),
        mss: tcp.map_or(0, |tcp| tcp.mss()),
        collapses: tcp.map_or(0, |tcp| tcp.restarted.0),
        restarts: tcp.map_or_else(Vec::new, |tcp| {
            let data = |r: &crate::analysis::tcp::Restart| {
                (since(run, r.at), r.idle, r.window.0, r.window.1, r.lost)
            };
            tcp.restarts.iter().map(data).collect()
        }),
        full: tcp.filter(|tcp| tcp.full.1 > 0).map(|tcp| tcp.full.0 as f64 / tcp.full.1 as f64),
        series: tcp.filter(|tcp| !tcp.points.is_empty()).map(|tcp| {
            let each = || tcp.points.iter();
            let whole = |value: u64| u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes();
            Series {
                points: tcp.points.len(),
                joined: tcp.joined,
                seen: tcp.seen,
                at: column(each(), |p: &Point| since(run, p.at).to_le_bytes()),
                cwnd_low: column(each(), |p| p.cwnd_low.to_le_bytes()),
                cwnd_high: column(each(), |p| p.cwnd_high.to_le_bytes()),
                ssthresh: column(each(), |p| p.ssthresh.to_le_bytes()),
                flight: column(each(), |p| whole(p.flight)),
                rtt: column(each(), |p| p.rtt.to_le_bytes()),
                free: column(each(), |p| p.free.unwrap_or(u32::MAX).to_le_bytes()),
                rate: column(each(), |p| (p.rate as f32).to_le_bytes()),
                again: column(each(), |p| p.again.0.to_le_bytes()),
                timeouts: column(each(), |p| p.again.1.to_le_bytes()),
            }
        }),
    }
}

fn paths(run: &Run, analysis: &Analysis) -> PathsData {
    let paths = &analysis.paths;
    let data = |path: &Path| {
        let after = |at: u64| at.saturating_sub(path.start);
        PathData(
            Call::from_number(path.call).map_or("?", Call::name),
            path.processes.0,
            path.processes.1,
            path.bytes,
            path.tag,
            since(run, path.start),
            after(path.end),
            after(path.first),
            after(path.sent),
            path.acknowledged.map(|(at, late)| (after(at), late)),
        )
    };
    PathsData {
        found: paths.found,
        unfound: paths.unfound,
        acknowledged: paths.acknowledged,
        to_send: Figures::of(&paths.to_send),
        sending: Figures::of(&paths.sending),
        to_acknowledged: Figures::of(&paths.to_acknowledged),
        longest: paths.longest.iter().map(data).collect(),
    }
}
