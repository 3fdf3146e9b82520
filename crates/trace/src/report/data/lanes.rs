//! What each process did over time.

use super::super::OverTime;
use super::super::about::{About, shown};
use super::{SeriesData, column, packed, series, since};
use crate::analysis::flights::Flights;
use crate::analysis::timeline::{Lane, MPI_CLASSES, SOCKET_CLASSES};
use crate::analysis::{Analysis, ProcessTotals};
use crate::model::Run;
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct ProcessData<'a> {
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
    /// Over time: bytes sent, bytes received, socket calls.
    moved: [SeriesData; 3],
    lanes: Vec<LaneData>,
}

#[derive(Serialize)]
pub(super) struct LaneData {
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
    class: String,
    other: String,
    bytes: String,
    calls_in: String,
    error: String,
}

#[derive(Serialize)]
pub(super) struct TimelineData {
    bucket: u64,
    buckets: usize,
    classes: [&'static [&'static str]; 2],
}

pub(super) fn process<'a>(
    run: &Run,
    analysis: &Analysis,
    over_time: &OverTime,
    about: &'a About,
    index: usize,
) -> ProcessData<'a> {
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
        moved: {
            let (moved, calls) = &over_time.traffic.processes[index];
            [&moved.sent, &moved.received, calls].map(|each| series(run, each))
        },
        lanes: [1, 0]
            .into_iter()
            .filter(|&which| lanes[which].calls > 0)
            .map(|which| lane(run, analysis, &lanes[which], which == 1))
            .collect(),
    }
}

fn lane(run: &Run, analysis: &Analysis, lane: &Lane, mpi: bool) -> LaneData {
    let mut kept: Vec<_> = lane.longest.iter().map(|kept| kept.0).collect();
    kept.sort_unstable_by_key(|kept| kept.long.start);
    let each = || kept.iter().map(|kept| &kept.long);
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
        class: column(kept.iter(), |kept| [kept.class]),
        other: column(each(), |long| long.other.to_le_bytes()),
        bytes: column(each(), |long| (long.bytes as f64).to_le_bytes()),
        calls_in: column(each(), |long| long.calls.to_le_bytes()),
        error: column(each(), |long| long.error.to_le_bytes()),
    }
}

/// Messages between lanes; a lane is twice a process's number, one more of its MPI calls.
#[derive(Serialize)]
pub(super) struct FlightsData {
    seen: u64,
    kept: usize,
    start: String,
    took: String,
    from: String,
    to: String,
}

pub(super) fn flights(run: &Run, flights: &Flights) -> FlightsData {
    let mut kept: Vec<_> = flights.longest.iter().map(|flight| flight.0).collect();
    kept.sort_unstable_by_key(|flight| flight.start);
    let each = || kept.iter();
    FlightsData {
        seen: flights.seen,
        kept: kept.len(),
        start: column(each(), |flight| since(run, flight.start).to_le_bytes()),
        took: column(each(), |flight| (flight.took as f64).to_le_bytes()),
        from: column(each(), |flight| flight.lanes.0.to_le_bytes()),
        to: column(each(), |flight| flight.lanes.1.to_le_bytes()),
    }
}

pub(super) fn timeline(analysis: &Analysis) -> TimelineData {
    TimelineData {
        bucket: analysis.timeline.bucket,
        buckets: analysis.timeline.buckets,
        classes: [&SOCKET_CLASSES, &MPI_CLASSES],
    }
}
