//! What failed.

use super::super::about::About;
use super::address;
use crate::analysis::Analysis;
use crate::model::Run;
use serde::Serialize;

/// Rows of what failed.
const FAILURES: usize = 200;

#[derive(Serialize)]
pub(super) struct RefusedData {
    process: String,
    to: String,
    why: String,
    times: u64,
}

#[derive(Serialize)]
pub(super) struct UnheardData {
    process: String,
    at: String,
    sent: u64,
    received: u64,
}

pub(super) fn refused(run: &Run, analysis: &Analysis, about: &About) -> Vec<RefusedData> {
    let all = analysis.refused(run).into_iter().take(FAILURES);
    all.map(|row| RefusedData {
        process: about.names[row.process as usize].clone(),
        to: address(row.to),
        why: why_refused(row.error),
        times: row.times,
    })
    .collect()
}

/// Why a connect failed, as people say it.
pub(in crate::report) fn why_refused(error: u32) -> String {
    match error {
        0 => "no connection came of it".into(),
        error => nix::errno::Errno::from_raw(error as i32).desc().to_lowercase(),
    }
}

pub(super) fn unheard(run: &Run, analysis: &Analysis, about: &About) -> Vec<UnheardData> {
    let all = analysis.unheard(run).into_iter().take(FAILURES);
    all.map(|row| {
        let socket = &run.sockets[row.socket as usize];
        UnheardData {
            process: about.names[socket.process as usize].clone(),
            at: address(socket.local),
            sent: row.sent,
            received: row.received,
        }
    })
    .collect()
}
