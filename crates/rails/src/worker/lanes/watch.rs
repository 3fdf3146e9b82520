//! How the lanes are doing: estimates, lanes that do not answer, lanes to be opened again, sessions that have none left.

use super::{Lane, Worker};
use crate::rail::LinkStats;
use polyrail_core::lanes::Sample;
use polyrail_core::proto::PeerIdx;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How often it is looked.
const TICK: Duration = Duration::from_millis(5);
/// A lane that holds so much, in bytes, has more to do than it can.
const MANY: u64 = 64 << 10;
/// How long the peer's kernel may owe an answer on one lane while another works: this, and so many round trips.
const SILENT: (Duration, u32) = (Duration::from_millis(120), 3);

/// A lane that has not moved for so long is not slow: it repairs a loss, or is silent.
pub(super) const HICCUP: Duration = Duration::from_millis(50);

/// A lane as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneReport {
    /// Its number in the session.
    pub number: u16,
    /// This side's address and port.
    pub near: Option<SocketAddr>,
    /// The other side's.
    pub far: Option<SocketAddr>,
    /// Bytes per second that it gets through, as far as is known.
    pub rate: u64,
    /// Whether that was measured, not only claimed by the interfaces.
    pub measured: bool,
    /// Round trip, in nanoseconds.
    pub rtt: u64,
    /// Bytes that the peer's kernel has acknowledged.
    pub delivered: u64,
    /// Bytes on their way.
    pub queued: u64,
    /// Packets that were sent again.
    pub retransmitted: u32,
    /// Packets with data that were sent.
    pub packets: u32,
    /// Packets that count as lost at this moment.
    pub lost: u32,
    /// Bytes that came.
    pub received: u64,
    /// Whether small messages go by it now.
    pub current: bool,
}

impl Lane {
    /// Takes in what the kernel tells.
    pub(super) fn observe(&mut self, now: Instant, clock: u64, info: &LinkStats) {
        // what the peer's program does not take is not owed by its kernel, and says nothing of the lane; what cannot even be sent,
        // for want of a route, is. No packet is sent into less room than a whole one needs.
        let takes = info.unacked > 0 || info.peer_window > 0 && info.peer_window >= info.packet;
        self.shut = info.queued > 0 && !takes;
        self.estimate.sample(Sample {
            now: clock,
            delivered: info.delivered,
            queued: if self.shut { 0 } else { info.queued },
            rtt: u64::from(info.rtt) * 1000,
            min_rtt: u64::from(info.min_rtt) * 1000,
        });
        let owed = !self.shut && info.queued > 0 && info.delivered == self.delivered;
        self.stalled = owed.then(|| self.stalled.unwrap_or(now));
        (self.delivered, self.queued) = (info.delivered, info.queued);
    }

    /// Why it is of no use now, if it is not.
    fn fails(&self, now: Instant) -> Option<&'static str> {
        let bound = SILENT.0 + SILENT.1 * Duration::from_nanos(self.estimate.rtt());
        // one that others would have overtaken long ago is no better, as long as it is known how slow it is
        let late = SILENT.0 + SILENT.1 * Duration::from_nanos(self.estimate.min_rtt());
        if self.stalled.is_some_and(|since| now - since > bound) {
            Some("the peer's side does not answer on it")
        } else if self.late.is_some_and(|since| now - since > late) {
            Some("others would be through with what it holds long before it")
        } else {
            None
        }
    }
}

impl Worker {
    /// A look at all lanes, every few milliseconds.
    pub(in super::super) fn watch_lanes(&mut self) {
        let now = Instant::now();
        if now < self.next_look {
            return;
        }
        self.next_look = now + TICK;
        for at in 0..self.netted.len() {
            let Some(&peer) = self.netted.get(at) else { break };
            self.watch_peer(peer, now);
        }
        self.netted.retain(|peer| self.core.peers[peer.0 as usize].lanes.is_some());
        // rounds that move much are long: who connects, or asks, does not wait for many of them
        self.wire_up();
        self.settle();
    }

    /// Until when a look is due even if nothing happens; none while there is nothing to see.
    pub(in super::super) fn lanes_due(&self) -> Option<Instant> {
        let due = |peer: &PeerIdx| {
            let lanes = self.core.peers[peer.0 as usize].lanes.as_ref()?;
            let busy = lanes.lost.is_some()
                || lanes.up.iter().any(|lane| lane.stalled.is_some() || self.moves(lane));
            if busy {
                return Some(self.next_look);
            }
            let retries = lanes.ways.iter().filter_map(super::Way::retry);
            retries.filter(|_| lanes.opens).min().map(|at| at.max(self.next_look))
        };
        self.netted.iter().filter_map(due).min()
    }

    /// Whether a lane had something on its way at the last look, or was given something since.
    fn moves(&self, lane: &Lane) -> bool {
        lane.queued > 0 || self.rails.given(lane.link) != lane.delivered + lane.queued
    }

    fn watch_peer(&mut self, peer: PeerIdx, now: Instant) {
        let Some(mut lanes) = self.core.peers[peer.0 as usize].lanes.take() else { return };
        let much = |(rail, link): crate::rail::set::RailLink| {
            let links = &self.core.links[rail as usize];
            links.get(link.0 as usize).and_then(Option::as_ref).is_some_and(|info| info.much)
        };
        // more lanes are of use to who sends or receives long messages or many, or has a lane in doubt
        let wanted = lanes.planned || lanes.up.iter().any(|lane| much(lane.link) || lane.queued >= MANY);
        if lanes.up.iter().any(|lane| self.moves(lane)) {
            self.sample(&mut lanes);
        }
        self.tell_changes(peer, &mut lanes, now);
        let failing = lanes.up.iter().enumerate().find_map(|(at, lane)| Some((at, lane.fails(now)?)));
        let another = |at: usize| {
            let answers = |lane: &Lane| lane.stalled.is_none_or(|since| now - since < SILENT.0 / 2);
            lanes.up.iter().enumerate().any(|(i, lane)| i != at && answers(lane))
        };
        let retires = failing.filter(|(at, _)| another(*at));
        let lost = lanes.lost.as_ref().filter(|(until, _)| *until <= now).map(|(_, why)| why.clone());
        let opens = lanes.opens && (wanted || failing.is_some() || lanes.lost.is_some());
        if opens
            && let Some((at, _)) = failing.filter(|(at, _)| !another(*at))
            && let Some(way) = lanes.up[at].way.take().and_then(|way| lanes.ways.get_mut(way))
        {
            // a fresh connection goes on earlier than one that backs off
            way.ended();
        }
        self.core.peers[peer.0 as usize].lanes = Some(lanes);
        if let Some(why) = lost {
            return self.gone(peer, format!("no rail to it is left ({why})"));
        }
        if let Some((at, why)) = retires {
            self.retire_lane(peer, at, why);
        }
        if opens {
            self.open_lanes(peer);
        }
    }

    /// The lanes that lead to a peer now.
    pub fn lanes(&self, peer: PeerIdx) -> Vec<LaneReport> {
        let lanes = self.core.peers.get(peer.0 as usize).and_then(|info| info.lanes.as_ref());
        let report = |lane: &Lane, current| {
            let info = self.rails.sample(lane.link).unwrap_or_default();
            LaneReport {
                number: lane.number,
                near: lane.near,
                far: lane.far,
                rate: lane.estimate.rate(),
                measured: lane.estimate.is_measured(),
                rtt: u64::from(info.rtt) * 1000,
                delivered: info.delivered,
                queued: info.queued,
                retransmitted: info.retransmitted,
                packets: info.segments,
                lost: info.lost,
                received: info.received,
                current,
            }
        };
        lanes.map_or_else(Vec::new, |lanes| {
            lanes.up.iter().map(|lane| report(lane, lane.link == lanes.current)).collect()
        })
    }
}
