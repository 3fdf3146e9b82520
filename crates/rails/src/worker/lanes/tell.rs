//! What is told of lanes: their names, and what changes of itself.

use super::super::events::{LaneName, Reason, What, end_at, numbered};
use super::open::end;
use super::{Lanes, Worker};
use crate::events::Side;
use crate::rail::set::RailLink;
use crate::top;
use polyrail_core::lanes::{Load, Pair, pairs};
use polyrail_core::proto::PeerIdx;
use polyrail_core::wire::offer::{Interface, InterfaceFlags, MAX_LANES};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Between two tellings of which lane small messages take; it may change with each message.
const CHOICES: Duration = Duration::from_millis(100);

impl Lanes {
    /// A lane's name: `ours` are this side's interfaces.
    pub(super) fn name(&self, at: usize, ours: &[Interface]) -> LaneName {
        let lane = &self.up[at];
        LaneName {
            number: Some(lane.number),
            near: lane.near.map(|at| end_at(ours, at)),
            far: lane.far.map(|at| end_at(&self.theirs, at)),
        }
    }

    /// The name of a lane that may be.
    pub(super) fn way_name(&self, at: usize, ours: &[Interface]) -> LaneName {
        let pair = &self.ways[at].pair;
        let (near, far) = (numbered(ours, pair.near), numbered(&self.theirs, pair.far));
        LaneName { number: None, near: Some(near), far: Some(far) }
    }

    /// Sequenced frames go by this lane from now on; the figures are those by which it was chosen for a frame of so many bytes.
    #[inline]
    pub(super) fn choose(&mut self, link: RailLink, loads: &[Load], len: usize) {
        let before = std::mem::replace(&mut self.current, link);
        if before == link {
            return;
        }
        let load = |link| {
            self.index(link).and_then(|at| Some((self.up[at].number, loads.get(at)?.arrival(len as u64))))
        };
        self.reason = match (load(link), load(before)) {
            (Some((_, now)), Some((lane, before))) => Reason::Earlier { now, lane, before },
            _ => Reason::Ended,
        };
    }

    /// The names of all lanes that are up.
    pub(in super::super) fn names(&self, ours: &[Interface]) -> Vec<LaneName> {
        (0..self.up.len()).map(|at| self.name(at, ours)).collect()
    }

    /// Where a lane was tried in vain, and has not come to be since.
    pub(in super::super) fn closed(&self, ours: &[Interface]) -> Vec<top::Closed> {
        let closed = |(at, why): (usize, &String)| {
            let LaneName { near, far, .. } = self.way_name(at, ours);
            let side = |end: Option<super::super::events::End>| end.map(|end| end.side()).unwrap_or_default();
            top::Closed { near: side(near), far: side(far), why: why.clone() }
        };
        let tried = self.ways.iter().enumerate().filter_map(|(at, way)| Some((at, way.why.as_ref()?)));
        tried.map(closed).collect()
    }
}

/// A pair of interfaces that has a lane, or has one as soon as there is use for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WayReport {
    /// This side's interface and IP.
    pub near: Side,
    /// The other side's.
    pub far: Side,
    /// Whether both are of one network; if not, a router would have to join them.
    pub direct: bool,
    /// The lesser of the speeds that both claim, in Mb/s; 0: unknown.
    pub speed: u32,
    /// Whether one of the two was down, or without carrier, when this side or the other looked.
    pub down: bool,
}

/// Where lanes to a peer go or would go, and which interfaces are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ways {
    /// Best first.
    pub pairs: Vec<WayReport>,
    /// Interfaces of this side without a lane: the name, and why.
    pub near_unused: Vec<(String, String)>,
    /// Likewise of the other side.
    pub far_unused: Vec<(String, String)>,
}

/// Interfaces of one side that are in no pair, and why; `used` are the numbers of those that are in one.
fn unused(these: &[Interface], others: &[Interface], used: &[u32], most: usize) -> Vec<(String, String)> {
    let is_loopback = |one: &Interface| one.flags.has(InterfaceFlags::LOOPBACK);
    let why = |one: &Interface| {
        let family = |ip: IpAddr| {
            others.iter().filter(|other| !is_loopback(other)).any(|other| {
                other.nets.iter().any(|net| net.ip().is_ipv4() == ip.is_ipv4() && net.ip() != ip)
            })
        };
        match () {
            () if is_loopback(one) => "it leads to its own host only",
            () if !one.nets.iter().any(|net| family(net.ip())) => {
                "the other side has no address that could be reached from its own"
            }
            () if used.len() >= most => "POLYRAIL_LANES allows no more",
            () => "the other side is not in its network, and has lanes in others",
        }
    };
    let left = these.iter().filter(|one| !used.contains(&one.index));
    left.map(|one| (one.name.to_string(), why(one).to_owned())).collect()
}

impl Worker {
    /// Where lanes to a peer go, or would go; nothing while no network leads to it, or if it runs on this host.
    pub fn ways(&self, peer: PeerIdx) -> Ways {
        let Some(info) = self.core.peers.get(peer.0 as usize) else { return Ways::default() };
        let elsewhere = info.address.is_some_and(|address| address.host() != self.wireup.host);
        let Some(lanes) = info.lanes.as_ref().filter(|_| elsewhere) else { return Ways::default() };
        let (ours, theirs, most) =
            (self.wireup.offer.interfaces(), &lanes.theirs, MAX_LANES.min(self.config.lanes));
        let ends = [ours, theirs].map(|side| side.iter().map(end).collect::<Vec<_>>());
        let found = pairs(&ends[0], &ends[1], &[], most);
        let (near, far): (Vec<u32>, Vec<u32>) = found.iter().map(|pair| (pair.near.0, pair.far.0)).unzip();
        let way = |pair: &Pair| WayReport {
            near: numbered(ours, pair.near).side(),
            far: numbered(theirs, pair.far).side(),
            direct: pair.direct,
            speed: pair.speed,
            down: pair.down,
        };
        Ways {
            pairs: found.iter().map(way).collect(),
            near_unused: unused(ours, theirs, &near, most),
            far_unused: unused(theirs, ours, &far, most),
        }
    }

    /// Tells what has changed since that was told last.
    pub(super) fn tell_changes(&mut self, peer: PeerIdx, lanes: &mut Lanes, now: Instant) {
        for at in 0..lanes.up.len() {
            let lane = &mut lanes.up[at];
            let (from, to) = (lane.told, lane.estimate.rate());
            // of a lane that stands still it is said soon enough whether it has ended
            let runs = lane.estimate.is_measured() && lane.stalled.is_none();
            if runs && (to / 2 >= from || from / 2 >= to) {
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
        let why = match lanes.up.iter().any(|lane| lane.number == from) {
            true => lanes.reason,
            false => Reason::Ended,
        };
        let name = lanes.name(at, self.wireup.offer.interfaces());
        self.event(peer, Some(name), What::ChoiceChanged { from, why });
    }
}
