//! Polyrail's own rails: which connections are its lanes, and what happened to them.

use super::about::{About, shown};
use super::data::kind;
use crate::analysis::connections::Connection;
use crate::analysis::lanes::Lanes;
use crate::model::{Kind, RailEvent, Run};
use crate::units;
use serde::Serialize;

/// Events on the page, first the ones that matter.
const EVENTS: usize = 1000;
/// Lines of the text.
const LINES: usize = 8;

/// What carries a connection: a lane's number and interface, or the kind of socket.
pub(super) fn carrier(lanes: &Lanes, connection: &Connection) -> String {
    carrier_of(lanes, connection.sockets, connection.kind)
}

/// The same of a socket, and the one at its other end.
pub(super) fn carrier_of(lanes: &Lanes, (one, other): (u32, Option<u32>), of: Kind) -> String {
    let Some(lane) = lanes.of(one).or_else(|| lanes.of(other?)) else { return kind(of).into() };
    let by = lane.interface.as_ref().map_or_else(String::new, |name| format!(" by {}", shown(name, 16)));
    let encrypted = if lane.encrypted { ", encrypted" } else { "" };
    format!("lane {}{by}{encrypted}", lane.number)
}

#[derive(Serialize)]
pub(super) struct EventData {
    at: f64,
    process: String,
    peer: String,
    event: String,
    /// What it happened to: a lane, or the rail of a peer.
    what: String,
    near: String,
    far: String,
    why: String,
}

/// What changes by itself all the time, as long as nothing is wrong.
fn is_ordinary(event: &RailEvent) -> bool {
    matches!(&*event.event, "choice_changed" | "estimate_changed")
}

fn peer(about: &About, lanes: &Lanes, event: &RailEvent) -> String {
    let process = lanes.process(&event.peer);
    process.map_or_else(
        || format!("endpoint {}", shown(&event.peer, 16)),
        |process| about.names[process as usize].clone(),
    )
}

fn what(event: &RailEvent) -> String {
    match (event.lane, &event.rail) {
        (Some(lane), _) => format!("lane {lane}"),
        (None, Some(rail)) => shown(rail, 16),
        (None, None) => String::new(),
    }
}

/// All events, or if there are too many, those that matter before those that come by themselves.
pub(super) fn events(run: &Run, about: &About, lanes: &Lanes) -> Vec<EventData> {
    let mut chosen: Vec<&RailEvent> =
        run.rails.iter().filter(|event| !is_ordinary(event)).take(EVENTS).collect();
    let room = EVENTS - chosen.len();
    chosen.extend(run.rails.iter().filter(|event| is_ordinary(event)).take(room));
    chosen.sort_by_key(|event| event.at);
    let end = |end: &Option<crate::model::RailEnd>| {
        end.as_ref().map_or_else(String::new, |end| match &end.interface {
            Some(interface) => format!("{} ({})", shown(&end.address, 60), shown(interface, 16)),
            None => shown(&end.address, 60),
        })
    };
    let row = |event: &&RailEvent| EventData {
        at: event.at.saturating_sub(run.span.0) as f64,
        process: about.names[event.process as usize].clone(),
        peer: peer(about, lanes, event),
        event: shown(&event.event, 32),
        what: what(event),
        near: end(&event.near),
        far: end(&event.far),
        why: shown(&event.why, 400),
    };
    chosen.iter().map(row).collect()
}

/// What went wrong, a line each.
pub(super) fn failures(run: &Run, about: &About, lanes: &Lanes) -> Vec<String> {
    let bad = |event: &&RailEvent| matches!(&*event.event, "lane_down" | "lane_refused" | "lane_resend");
    let line = |event: &RailEvent| {
        let said = match &*event.event {
            "lane_down" => "ended",
            "lane_refused" => "was refused",
            _ => "left something that travels again",
        };
        let at = event.at.saturating_sub(run.span.0) as f64;
        let lane = match (event.lane, event.near.as_ref().and_then(|near| near.interface.as_ref())) {
            (Some(lane), _) => format!("lane {lane}"),
            (None, Some(interface)) => format!("a lane by {}", shown(interface, 16)),
            (None, None) => "a lane".into(),
        };
        let process = &about.names[event.process as usize];
        let peer = peer(about, lanes, event);
        format!("{process}: {lane} to {peer} {said} after {}: {}", units::ns(at), shown(&event.why, 200))
    };
    let mut lines: Vec<String> = run.rails.iter().filter(bad).take(LINES).map(line).collect();
    let more = run.rails.iter().filter(bad).count().saturating_sub(LINES);
    if more > 0 {
        lines.push(format!(
            "and {} of lanes that ended or were refused",
            units::many(more as u64, "more event")
        ));
    }
    lines
}
