//! Ways of MPI messages.

use super::super::rails;
use super::{Figures, since};
use crate::analysis::Analysis;
use crate::analysis::lanes::Lanes;
use crate::analysis::path::Path;
use crate::model::{Call, Kind, Run};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct PathsData {
    found: u64,
    unfound: u64,
    acknowledged: u64,
    to_send: Figures,
    sending: Figures,
    to_acknowledged: Figures,
    /// Call, sender, receiver, bytes, tag, start, then ns since the start: call's end, first send, last send's end, acknowledgement and its
    /// bound; then what carried it, with the bytes.
    longest: Vec<PathData>,
}

#[derive(Serialize)]
pub(super) struct PathData(
    &'static str,
    u32,
    u32,
    u64,
    i32,
    f64,
    u64,
    u64,
    u64,
    Option<(u64, u64)>,
    Vec<(String, u64)>,
);

pub(super) fn paths(run: &Run, analysis: &Analysis, lanes: &Lanes) -> PathsData {
    let paths = &analysis.paths;
    let over = |&(socket, bytes): &(u32, u64)| {
        let kind = run.sockets.get(socket as usize).map_or(Kind::Other, |socket| socket.kind);
        (rails::carrier_of(lanes, (socket, None), kind), bytes)
    };
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
            path.over.iter().flatten().map(over).collect(),
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
