//! Connections, and what TCP did to them over time.

use super::super::OverTime;
use super::super::about::{About, shown};
use super::super::rails;
use super::{SeriesData, address, column, series, since};
use crate::analysis::Analysis;
use crate::analysis::connections::{Connection, Direction, Limits};
use crate::analysis::lanes::Lanes;
use crate::analysis::tcp::Point;
use crate::analysis::traffic::Series;
use crate::classify::{self, Classes};
use crate::model::Run;
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct ConnectionData<'a> {
    /// What carries it.
    kind: String,
    hosts: (String, String),
    names: (String, String),
    addresses: (String, String),
    span: (f64, f64),
    classes: Classes,
    min_rtt: Option<u32>,
    there: DirectionData<'a>,
    back: DirectionData<'a>,
}

#[derive(Serialize)]
pub(super) struct DirectionData<'a> {
    bytes: u64,
    sends: u64,
    messages: u64,
    rate: Option<f64>,
    limits: Option<[f64; 4]>,
    retransmissions: u64,
    spurious: u64,
    timeouts: u64,
    loss: Option<f64>,
    congestion: &'a str,
    mean_rtt: Option<f64>,
    mss: u32,
    collapses: u64,
    /// When, after how long a pause, from and to how many segments, and ns lost.
    restarts: Vec<(f64, u64, u32, u32, u64)>,
    full: Option<f64>,
    moved: Option<SeriesData>,
    series: Option<Windows>,
}

#[derive(Serialize)]
pub(super) struct Windows {
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

pub(super) fn connection<'a>(
    run: &Run,
    analysis: &Analysis,
    over_time: &OverTime,
    about: &About,
    lanes: &Lanes,
    connection: &Connection<'a>,
) -> ConnectionData<'a> {
    let name = |node: Option<u32>| node.map_or("?", |node| about.names[node as usize].as_str()).to_owned();
    let host = |node: Option<u32>| {
        let process = node.and_then(|node| run.processes.get(node as usize));
        let host = process.and_then(|process| run.hosts.get(process.host as usize));
        host.map_or_else(String::new, |host| shown(&host.name, 60))
    };
    let socket = &run.sockets[connection.sockets.0 as usize];
    ConnectionData {
        kind: rails::carrier(lanes, connection),
        hosts: (host(Some(connection.nodes.0)), host(connection.nodes.1)),
        names: (name(Some(connection.nodes.0)), name(connection.nodes.1)),
        addresses: (address(socket.local), address(socket.remote)),
        span: (since(run, connection.span.0), since(run, connection.span.1)),
        classes: classify::connection(analysis, connection),
        min_rtt: connection.min_rtt(),
        there: direction(run, &connection.there, over_time.direction(connection, true)),
        back: direction(run, &connection.back, over_time.direction(connection, false)),
    }
}

fn direction<'a>(run: &Run, direction: &Direction<'a>, moved: Option<&Series>) -> DirectionData<'a> {
    let tcp = direction.tcp;
    let parts = |limits: Limits| [limits.application, limits.network, limits.receiver, limits.buffer];
    DirectionData {
        bytes: direction.flow.bytes,
        sends: direction.flow.sends,
        messages: direction.flow.messages,
        rate: direction.busy_rate(),
        limits: direction.limits.map(parts),
        retransmissions: tcp.map_or(0, |tcp| tcp.retransmissions()),
        spurious: tcp.map_or(0, |tcp| tcp.spurious()),
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
        moved: moved.filter(|_| direction.flow.bytes > 0).map(|moved| series(run, moved)),
        series: tcp.filter(|tcp| !tcp.points.is_empty()).map(|tcp| {
            let each = || tcp.points.iter();
            let whole = |value: u64| u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes();
            Windows {
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
