//! What is told of lanes: their names, and what changes of itself.

use super::super::events::{LaneName, Reason, What, interface_of, numbered};
use super::{Lanes, Worker};
use crate::top;
use polyrail_core::proto::PeerIdx;
use polyrail_core::wire::offer::Interface;
use std::time::{Duration, Instant};

/// Between two tellings of which lane small messages take; it may change with each message.
const CHOICES: Duration = Duration::from_millis(100);

impl Lanes {
    /// A lane's name: `ours` are this side's interfaces.
    pub(super) fn name(&self, at: usize, ours: &[Interface]) -> LaneName {
        let lane = &self.up[at];
        LaneName {
            number: Some(lane.number),
            near: lane.near.map(|at| interface_of(ours, at)),
            far: lane.far.map(|at| interface_of(&self.theirs, at)),
        }
    }

    /// The name of a lane that may be.
    pub(super) fn way_name(&self, at: usize, ours: &[Interface]) -> LaneName {
        let pair = &self.ways[at].pair;
        let (near, far) = (numbered(ours, pair.near), numbered(&self.theirs, pair.far));
        LaneName { number: None, near: Some(near), far: Some(far) }
    }

    /// The names of all lanes that are up.
    pub(in super::super) fn names(&self, ours: &[Interface]) -> Vec<LaneName> {
        (0..self.up.len()).map(|at| self.name(at, ours)).collect()
    }

    /// Where lanes were tried in vain.
    pub(in super::super) fn closed(&self, ours: &[Interface]) -> Vec<top::Closed> {
        let closed = |(at, why): (usize, &String)| {
            let LaneName { near, far, .. } = self.way_name(at, ours);
            let side = |end: Option<super::super::events::End>| end.map(|end| end.side()).unwrap_or_default();
            top::Closed { near: side(near), far: side(far), why: why.clone() }
        };
        let tried = self.ways.iter().enumerate().filter(|(_, way)| way.is_idle());
        tried.filter_map(|(at, way)| Some((at, way.why.as_ref()?))).map(closed).collect()
    }
}

impl Worker {
    /// Tells what has changed since that was told last.
    pub(super) fn tell_changes(&mut self, peer: PeerIdx, lanes: &mut Lanes, now: Instant) {
        for at in 0..lanes.up.len() {
            let lane = &mut lanes.up[at];
            let (from, to) = (lane.told, lane.estimate.rate());
            if lane.estimate.is_measured() && (to / 2 >= from || from / 2 >= to) {
                lane.told = to;
                let name = lanes.name(at, self.wireup.offer.interfaces());
                self.event(peer, Some(name), What::EstimateChanged { from, to });
            }
        }
        self.tell_choice(peer, lanes, now);
    }

    fn tell_choice(&mut self, peer: PeerIdx, lanes: &mut Lanes, now: Instant) {
        let Some(at) = lanes.index(lanes.current) else { return };
        let number = lanes.up[at].number;
        let from = match lanes.told {
            None => {
                lanes.told = Some((number, now));
                return;
            }
            Some((from, when)) if from != number && now - when >= CHOICES => from,
            Some(_) => return,
        };
        lanes.told = Some((number, now));
        let arrival = |at: usize| lanes.up[at].load(self.tcp.queued(lanes.up[at].link)).arrival(0);
        let why = match lanes.up.iter().position(|lane| lane.number == from) {
            None => Reason::Ended,
            Some(before) => Reason::Earlier { now: arrival(at), before: arrival(before) },
        };
        let name = lanes.name(at, self.wireup.offer.interfaces());
        self.event(peer, Some(name), What::ChoiceChanged { from, why });
    }
}
