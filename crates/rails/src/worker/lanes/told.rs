//! What is told of lanes: their names, how they are, and where others may be.

use super::super::events::{LaneName, end_at, numbered};
use super::{Lanes, Worker};
use crate::events::Side;
use crate::list::RailId;
use crate::rail::control::Control;
use crate::set::RailLink;
use crate::top;
use polyrail_core::lanes::Pair;
use polyrail_core::proto::PeerIdx;
use polyrail_core::session::MAX_LANES;
use polyrail_core::session::{Lane, Way, Which};
use polyrail_core::wire::offer::{Interface, InterfaceFlags};
use std::net::{IpAddr, SocketAddr};

/// A lane as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneReport {
    /// Its number in the session.
    pub number: u16,
    /// Its rail.
    pub rail: RailId,
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
    /// The shortest that was seen, in nanoseconds; 0 where nobody keeps that.
    pub min_rtt: u64,
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
    /// Whether what travels by it is encrypted.
    pub encrypted: bool,
    /// How it is reliable and fair, where that can be told.
    pub control: Option<Control>,
}

impl Lanes {
    /// A lane's or a path's name, but for its rail and whether it is encrypted: `ours` are this side's interfaces.
    fn name(&self, which: Which, ours: &[Interface]) -> LaneName {
        match which {
            Which::Lane(number, ends) => LaneName {
                number: Some(number),
                near: ends.map(|(near, _)| end_at(ours, near)),
                far: ends.map(|(_, far)| end_at(&self.theirs, far)),
                rail: None,
                encrypted: false,
            },
            Which::Path(way) => {
                let pair = way.pair();
                LaneName {
                    number: None,
                    near: pair.map(|pair| numbered(ours, pair.near)),
                    far: pair.map(|pair| numbered(&self.theirs, pair.far)),
                    rail: None,
                    encrypted: false,
                }
            }
        }
    }

    /// The names of all lanes that are up.
    pub(in super::super) fn names(&self, ours: &[Interface]) -> Vec<LaneName> {
        self.session.lanes().iter().map(|lane| self.name(lane.which(), ours)).collect()
    }

    /// Where a lane was tried in vain, and has not come to be since.
    pub(in super::super) fn closed(&self, ours: &[Interface]) -> Vec<top::Closed> {
        let closed = |(way, why): (&Way, &str)| {
            let LaneName { near, far, .. } = self.name(Which::Path(*way), ours);
            let side = |end: Option<super::super::events::End>| end.map(|end| end.side()).unwrap_or_default();
            top::Closed { near: side(near), far: side(far), why: why.to_owned() }
        };
        let tried = self.session.paths().iter().filter_map(|path| Some((path.way(), path.why()?)));
        tried.map(closed).collect()
    }
}

/// A pair of interfaces that has a lane, or has one as soon as there is use for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathReport {
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
pub struct Paths {
    /// Best first.
    pub pairs: Vec<PathReport>,
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
    pub fn paths(&self, peer: PeerIdx) -> Paths {
        let Some(info) = self.core.peers.get(peer.0 as usize) else { return Paths::default() };
        let elsewhere = info.address.is_some_and(|address| address.host() != self.wireup.host);
        let Some(lanes) = info.lanes.as_ref().filter(|_| elsewhere) else { return Paths::default() };
        let (ours, theirs, most) = (&self.near, &lanes.theirs, MAX_LANES.min(self.config.lanes));
        let found: Vec<Pair> = lanes.planner.ways(&[]).iter().filter_map(Way::pair).copied().collect();
        let (near, far): (Vec<u32>, Vec<u32>) = found.iter().map(|pair| (pair.near.0, pair.far.0)).unzip();
        let path = |pair: &Pair| PathReport {
            near: numbered(ours, pair.near).side(),
            far: numbered(theirs, pair.far).side(),
            direct: pair.direct,
            speed: pair.speed,
            down: pair.down,
        };
        Paths {
            pairs: found.iter().map(path).collect(),
            near_unused: unused(ours, theirs, &near, most),
            far_unused: unused(theirs, ours, &far, most),
        }
    }

    /// The name of a peer's lane or path.
    pub(super) fn lane_name(&self, peer: PeerIdx, which: Which) -> Option<LaneName> {
        let lanes = self.core.peers[peer.0 as usize].lanes.as_ref()?;
        let of = |lane: &&Lane<RailLink>| matches!(which, Which::Lane(number, _) if number == lane.number());
        let link = lanes.session.lanes().iter().find(of).map(Lane::link);
        let sampled = link.and_then(|link| self.rails.sample(link));
        let encrypted = sampled.is_some_and(|stats| stats.encrypted);
        let rail = link.map(|(rail, _)| rail);
        Some(LaneName { rail, encrypted, ..lanes.name(which, &self.near) })
    }

    /// The lanes that lead to a peer now.
    pub fn lanes(&self, peer: PeerIdx) -> Vec<LaneReport> {
        let lanes = self.core.peers.get(peer.0 as usize).and_then(|info| info.lanes.as_ref());
        let Some(session) = lanes.map(|lanes| &lanes.session) else { return Vec::new() };
        let report = |lane: &Lane<RailLink>| {
            let info = self.rails.sample(lane.link()).unwrap_or_default();
            let (near, far) = lane.ends().unzip();
            LaneReport {
                number: lane.number(),
                rail: lane.link().0,
                near,
                far,
                rate: lane.estimate().rate(),
                measured: lane.estimate().is_measured(),
                rtt: u64::from(info.rtt) * 1000,
                min_rtt: u64::from(info.min_rtt) * 1000,
                delivered: info.delivered,
                queued: info.queued,
                retransmitted: info.retransmitted,
                packets: info.segments,
                lost: info.lost,
                received: info.received,
                current: session.current() == Some(lane.link()),
                encrypted: info.encrypted,
                control: self.rails.control(lane.link()),
            }
        };
        session.lanes().iter().map(report).collect()
    }

    /// How lanes to a peer are reliable and fair, by rail: as one that there is, or as one of that rail would begin.
    pub fn controls(&self, peer: PeerIdx) -> Vec<(RailId, Control)> {
        let Some(info) = self.core.peers.get(peer.0 as usize) else { return Vec::new() };
        let reached = info.lanes.iter().flat_map(|lanes| &lanes.reached);
        let now = self.lanes(peer);
        let of = |(rail, _): &(RailId, Vec<u8>)| {
            let lane = now.iter().find(|lane| lane.rail == *rail).and_then(|lane| lane.control.clone());
            Some((*rail, lane.or_else(|| self.rails.begins_by(*rail))?))
        };
        reached.filter_map(of).collect()
    }
}
