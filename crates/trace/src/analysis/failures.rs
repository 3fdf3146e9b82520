//! What went wrong, as programs saw it: connections that were refused or never answered, datagrams that nobody received.

use super::Analysis;
use crate::model::{CallEvent, Kind, Run};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Kinds of failed connects that are counted one by one.
const MOST: usize = 1000;

/// Error numbers of a connect that has not failed: it goes on, or is there (errno(3), of Linux).
const GOES_ON: [i32; 5] = [4, 11, 106, 114, 115];

/// Connects of one process to one address that failed for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Index into [`Run::processes`].
    pub process: u32,
    /// Whom it called, where the call named an address of the internet.
    pub to: Option<SocketAddr>,
    /// The error number; 0: a connect that was not waited for came to nothing.
    pub error: u32,
    /// How many.
    pub times: u64,
}

/// A datagram socket that did not receive all that was sent to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unheard {
    /// Index into [`Run::sockets`].
    pub socket: u32,
    /// Datagrams that traced processes sent to it.
    pub sent: u64,
    /// Those of them that it received.
    pub received: u64,
}

/// Connects that failed at once.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures {
    connects: BTreeMap<(u32, Option<SocketAddr>, u32), u64>,
}

impl Failures {
    pub fn connect(&mut self, process: u32, call: &CallEvent) {
        if call.result >= 0 || GOES_ON.contains(&-call.result) {
            return;
        }
        let error = call.result.unsigned_abs();
        let key = (process, call.to, error);
        // beyond that only the reasons
        let key = if self.connects.len() < MOST || self.connects.contains_key(&key) {
            key
        } else {
            (process, None, error)
        };
        let times = self.connects.entry(key).or_default();
        *times = times.saturating_add(call.calls.into());
    }
}

impl Analysis {
    /// Connects that failed, the most frequent first.
    pub fn refused(&self, run: &Run) -> Vec<Refused> {
        let mut all = self.failures.connects.clone();
        for (index, socket) in run.sockets.iter().enumerate() {
            // one that fails at once leaves the socket without a peer's name
            if socket.remote.is_some() && self.is_unconnected(run, index) {
                let times = all.entry((socket.process, socket.remote, 0)).or_default();
                *times = times.saturating_add(1);
            }
        }
        let rows = all.into_iter().map(|((process, to, error), times)| Refused { process, to, error, times });
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.times));
        rows
    }

    /// Datagram sockets that traced processes sent more than they received, those that miss most first.
    pub fn unheard(&self, run: &Run) -> Vec<Unheard> {
        let sockets =
            self.sockets.iter().enumerate().filter(|(index, _)| run.sockets[*index].kind == Kind::Udp);
        let rows = sockets.map(|(index, traffic)| Unheard {
            socket: index as u32,
            sent: traffic.addressed,
            // those of which nobody knows the sender may be theirs
            received: traffic.heard.1.saturating_add(traffic.anonymous),
        });
        let mut rows: Vec<_> = rows.filter(|row| row.sent > row.received).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.sent - row.received));
        rows
    }
}
