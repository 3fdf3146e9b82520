//! The clock, the links, and what is on its way.

use super::lanes::{LaneHappening, LaneLink, LaneSpec};
use super::memory::Bytes;
use super::node::{Action, Engine, Node};
use super::rail::{RailSpec, Time, Wire, duration};
use super::rng::Rng;
use crate::frame::Frame;
use crate::proto::{Bounds, Config, Next, PeerIdx, Route, Scheme, Span};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// Whether processes may reach each other's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direct {
    /// Always.
    Granted,
    /// Never; who tries is refused.
    Refused,
    /// In so many of a hundred cases.
    Sometimes(u8),
}

/// Which rail takes the next frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spread {
    /// The first that has room.
    First,
    /// One after the other.
    Turns,
    /// Any.
    Random,
}

/// A link between two peers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Join {
    /// What both engines are told.
    pub route: Route,
    /// Its rails.
    pub rails: Vec<RailSpec>,
    /// Which rail takes the next frame.
    pub spread: Spread,
    /// Direct access to memory.
    pub direct: Direct,
    /// What a direct read or write costs apart from its bytes.
    pub direct_call: Time,
    /// Bytes per second of direct reads and writes.
    pub direct_bandwidth: u64,
    /// How much later the second peer learns that the link has ended.
    pub notice: Time,
    /// In place of rails: lanes, which may fail while the link goes on.
    pub lanes: Option<LaneSpec>,
}

impl Default for Join {
    fn default() -> Self {
        let route = Route {
            eager_max: 8 << 10,
            fragment: 32 << 10,
            scheme: Scheme::Fragments,
            window: 1 << 12,
            immediate: false,
        };
        Self {
            route,
            rails: vec![RailSpec::ETHERNET],
            spread: Spread::Turns,
            direct: Direct::Granted,
            direct_call: 1000,
            direct_bandwidth: 8_000_000_000,
            notice: 0,
            lanes: None,
        }
    }
}

/// Which direction of which link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Way {
    from: usize,
    to: usize,
}

pub(super) struct Link {
    join: Join,
    up: bool,
    /// Counts the lives of this link; what belongs to an earlier one is lost.
    pub(super) session: u32,
    /// Its lanes, if it has such.
    pub(super) lanes: Option<Box<LaneLink>>,
    /// For each rail, both directions: from the lower node first.
    wires: Vec<[Wire; 2]>,
    turn: usize,
    /// Which ends believe that the link is up: the lower node first.
    believed: [bool; 2],
}

/// A frame on its way.
struct Flight {
    way: Way,
    rail: usize,
    header: Vec<u8>,
    payload: Bytes,
    /// Whether its header arrives before the rest.
    long: bool,
    /// What is read from the sender's memory at departure.
    kept: Option<Span>,
}

type Plan = Box<dyn FnOnce(&mut World)>;

pub(super) enum Happening {
    Departs(u64),
    Begins(u64),
    Ends(u64),
    Job { node: usize, session: u32, action: Box<Action> },
    Noticed { node: usize, peer: usize, session: u32 },
    Planned(Plan),
    Lane { pair: (usize, usize), session: u32, what: LaneHappening },
}

/// Nodes, links, and a clock.
pub struct World {
    pub(super) nodes: Vec<Node>,
    now: Time,
    pub(super) rng: Rng,
    pub(super) links: BTreeMap<(usize, usize), Link>,
    agenda: BTreeMap<(Time, u64), Happening>,
    flights: BTreeMap<u64, Flight>,
    pub(super) count: u64,
    deaf: Option<usize>,
    /// Sessions that ended because no lane was left: at whom, with whom, and why.
    pub gone: Vec<(usize, usize, String)>,
}

pub(super) fn ends(a: usize, b: usize) -> (usize, usize) {
    (a.min(b), a.max(b))
}

impl World {
    /// A world of `nodes` processes without links, each knowing all others (and itself) by their numbers. `window`: eager
    /// credit that each grants its peers, in units.
    pub fn new(seed: u64, nodes: usize, window: u32) -> Self {
        Self::make(seed, nodes, window, false)
    }

    /// As [`World::new`], but buffers have lengths only.
    pub fn counting(seed: u64, nodes: usize, window: u32) -> Self {
        Self::make(seed, nodes, window, true)
    }

    fn make(seed: u64, nodes: usize, window: u32, counted: bool) -> Self {
        let mut rng = Rng::new(seed);
        let mut node =
            || Node::new(Config { window, hash_seed: rng.draw(), bounds: Bounds::DEFAULT }, nodes, counted);
        Self {
            nodes: (0..nodes).map(|_| node()).collect(),
            now: 0,
            rng,
            links: BTreeMap::new(),
            agenda: BTreeMap::new(),
            flights: BTreeMap::new(),
            count: 0,
            deaf: None,
            gone: vec![],
        }
    }

    /// Has all nodes keep to other bounds than those of the wire format. Before links come up.
    pub fn bound(&mut self, bounds: Bounds) {
        self.nodes.iter_mut().for_each(|node| node.engine.bound(bounds));
    }

    /// A process.
    pub fn node(&self, node: usize) -> &Node {
        &self.nodes[node]
    }

    /// A process's engine, to ask of it what no user would. [`World::run`] knows nothing of what that leads to.
    pub fn engine(&mut self, node: usize) -> &mut Engine {
        &mut self.nodes[node].engine
    }

    /// What time it is.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Bytes that a rail has carried from one node to another since the link came up.
    pub fn carried(&self, from: usize, to: usize, rail: usize) -> u64 {
        self.links.get(&ends(from, to)).map_or(0, |link| link.wires[rail][usize::from(from > to)].carried)
    }

    // ---- links ---------------------------------------------------------------------------------------------------------

    /// Joins two nodes, or a node with itself. A link that was there ends first.
    pub fn join(&mut self, a: usize, b: usize, join: &Join) {
        self.cut(a, b);
        self.notice(a, b);
        self.notice(b, a);
        let session = self.links.get(&ends(a, b)).map_or(0, |link| link.session + 1);
        let wires = join.rails.iter().map(|spec| [Wire::new(*spec), Wire::new(*spec)]).collect();
        let believed = [true, a != b];
        let lanes = join.lanes.as_ref().filter(|_| a != b).map(|spec| self.begin_lanes(spec));
        let has_lanes = lanes.is_some();
        let link = Link { join: join.clone(), up: true, session, lanes, wires, turn: 0, believed };
        self.links.insert(ends(a, b), link);
        if has_lanes {
            self.first_lane(ends(a, b));
        }
        for (node, peer) in [(a, b), (b, a)].into_iter().take(if a == b { 1 } else { 2 }) {
            self.nodes[node].engine.connected(PeerIdx(peer as u32), join.route);
            self.settle(node);
        }
    }

    /// Changes a rail while frames are on their way, both directions alike.
    pub fn alter(&mut self, a: usize, b: usize, rail: usize, change: impl Fn(&mut RailSpec)) {
        if let Some(link) = self.links.get_mut(&ends(a, b)) {
            link.wires[rail].iter_mut().for_each(|wire| change(&mut wire.spec));
        }
    }

    /// Changes how much later the second peer learns that the link has ended.
    pub fn alter_notice(&mut self, a: usize, b: usize, notice: Time) {
        if let Some(link) = self.links.get_mut(&ends(a, b)) {
            link.join.notice = notice;
        }
    }

    /// Ends a link. What is on its way is lost; `a` learns of it at once, `b` after [`Join::notice`], and what it sends until
    /// then is lost too.
    pub fn cut(&mut self, a: usize, b: usize) {
        let Some(link) = self.links.get_mut(&ends(a, b)) else { return };
        if !link.up {
            return;
        }
        link.up = false;
        link.lanes = None;
        let (session, later) = (link.session, self.now + link.join.notice);
        let way = ends(a, b);
        self.flights.retain(|_, flight| ends(flight.way.from, flight.way.to) != way);
        self.notice(a, b);
        self.plan(later, Happening::Noticed { node: b, peer: a, session });
    }

    /// A node learns that a link has ended.
    fn notice(&mut self, node: usize, peer: usize) {
        let Some(link) = self.links.get_mut(&ends(node, peer)) else { return };
        if core::mem::take(&mut link.believed[usize::from(node > peer)]) {
            self.nodes[node].down(PeerIdx(peer as u32));
            self.settle(node);
        }
    }

    // ---- time ----------------------------------------------------------------------------------------------------------

    pub(super) fn plan(&mut self, at: Time, what: Happening) {
        self.count += 1;
        self.agenda.insert((at.max(self.now), self.count), what);
    }

    fn clock(&mut self, time: Time) {
        self.now = self.now.max(time);
        self.nodes.iter_mut().for_each(|node| node.now = self.now);
    }

    /// Does something at a time to come.
    pub fn at(&mut self, time: Time, plan: impl FnOnce(&mut World) + 'static) {
        self.plan(time, Happening::Planned(Box::new(plan)));
    }

    /// Lets the next thing happen; false when nothing is left to happen.
    pub fn step(&mut self) -> bool {
        let Some(((at, _), what)) = self.agenda.pop_first() else { return false };
        self.clock(at);
        match what {
            Happening::Departs(flight) => self.departs(flight),
            Happening::Begins(flight) => self.begins(flight),
            Happening::Ends(flight) => self.ends(flight),
            Happening::Job { node, session, action } => self.job(node, session, *action),
            Happening::Noticed { node, peer, session } => {
                if self.links.get(&ends(node, peer)).is_some_and(|link| link.session == session) {
                    self.notice(node, peer);
                }
            }
            Happening::Planned(plan) => plan(self),
            Happening::Lane { pair, session, what } => {
                if self.links.get(&pair).is_some_and(|link| link.session == session) {
                    self.lane_happens(pair, what);
                }
            }
        }
        true
    }

    /// Lets everything happen that follows from what was begun.
    pub fn run(&mut self) {
        while self.step() {}
    }

    /// Lets everything happen that happens before `time`, and goes on to then.
    pub fn run_until(&mut self, time: Time) {
        while self.agenda.first_key_value().is_some_and(|((at, _), _)| *at < time) {
            self.step();
        }
        self.clock(time);
    }

    // ---- frames --------------------------------------------------------------------------------------------------------

    /// Lets a node do what its engine wants, now.
    pub(super) fn settle(&mut self, node: usize) {
        loop {
            let ready = self.nodes[node].settle();
            if ready.is_empty() {
                break;
            }
            ready.into_iter().for_each(|peer| self.pump(node, peer.0 as usize));
        }
        if !self.nodes[node].lane_news.is_empty() {
            self.hear_of_lanes(node);
            return self.settle(node);
        }
        for action in core::mem::take(&mut self.nodes[node].jobs) {
            let (Action::Read { peer, to: Span { len, .. }, .. }
            | Action::Write { peer, from: Span { len, .. }, .. }) = action
            else {
                continue;
            };
            let Some(link) = self.links.get(&ends(node, peer.0 as usize)) else { continue };
            let takes = link.join.direct_call + duration(len as u64, link.join.direct_bandwidth);
            let session = link.session;
            self.plan(self.now + takes, Happening::Job { node, session, action: Box::new(action) });
        }
        self.cut_broken(node);
    }

    /// Who breaks the protocol is cut off.
    fn cut_broken(&mut self, node: usize) {
        while let Some((peer, _)) = self.nodes[node].broken.get(self.nodes[node].judged) {
            let peer = peer.0 as usize;
            self.nodes[node].judged += 1;
            if self.links.get(&ends(node, peer)).is_some_and(|link| link.believed[usize::from(node > peer)]) {
                self.cut(node, peer);
            }
        }
    }

    /// Gives the rails to a peer as many frames as they take.
    fn pump(&mut self, node: usize, peer: usize) {
        let to = PeerIdx(peer as u32);
        if self.links.get(&ends(node, peer)).is_some_and(|link| link.lanes.is_some()) {
            return self.pump_lanes(node, peer);
        }
        loop {
            let Some(link) = self.links.get(&ends(node, peer)) else { return };
            let bulk = link.wires.iter().any(|rail| rail[usize::from(node > peer)].wants_more());
            let Some(next) = self.nodes[node].engine.poll_transmit(to, if bulk { usize::MAX } else { 0 })
            else {
                return;
            };
            let Some(payload) = self.nodes[node].load(to, &next) else { continue };
            match self.transmit(Way { from: node, to: peer }, &next, payload) {
                true => self.nodes[node].engine.transmitted(to, &next),
                false => return,
            }
        }
    }

    /// Gives a frame to the rails as if a node's engine had made it; false when they are full.
    pub fn inject(&mut self, from: usize, to: usize, frame: &Frame, payload: Bytes) -> bool {
        if self.links.get(&ends(from, to)).is_some_and(|link| link.lanes.is_some()) {
            return self.inject_lane(from, to, frame, &payload);
        }
        self.launch(Way { from, to }, frame, payload, None)
    }

    /// From now on a node hears nothing: what it says is what is injected.
    pub fn deafen(&mut self, node: usize) {
        self.deaf = Some(node);
    }

    /// Whether the link between two nodes is up.
    pub fn is_up(&self, a: usize, b: usize) -> bool {
        self.links.get(&ends(a, b)).is_some_and(|link| link.up)
    }

    fn transmit(&mut self, way: Way, next: &Next, payload: Bytes) -> bool {
        let span = next.lasting();
        self.launch(way, &next.frame, payload, span)
    }

    fn launch(&mut self, way: Way, frame: &Frame, payload: Bytes, span: Option<Span>) -> bool {
        let Some(link) = self.links.get_mut(&ends(way.from, way.to)) else { return false };
        if !link.up || self.deaf == Some(way.to) {
            return true;
        }
        let header = frame.encode(payload.len() as usize).to_vec();
        let size = header.len() + payload.len() as usize;
        let rails = link.wires.len();
        let first = match link.join.spread {
            Spread::First => 0,
            Spread::Turns => link.turn,
            Spread::Random => self.rng.below(rails as u64) as usize,
        };
        let side = usize::from(way.from > way.to);
        let accepted = (0..rails).map(|i| (first + i) % rails).find_map(|rail| {
            let times = link.wires[rail][side].accept(self.now, size, &mut self.rng)?;
            Some((rail, times))
        });
        let Some((rail, times)) = accepted else { return false };
        link.turn = (rail + 1) % rails;
        let spec = link.wires[rail][side].spec;
        let kept = span.filter(|_| spec.keeps);
        let long = payload.len() as usize >= spec.split.max(1);
        self.count += 1;
        let flight = self.count;
        self.flights.insert(flight, Flight { way, rail, header, payload, long, kept });
        self.plan(times.left, Happening::Departs(flight));
        if long {
            self.plan(times.begins, Happening::Begins(flight));
        }
        self.plan(times.ends, Happening::Ends(flight));
        true
    }

    /// The last byte has left: there is room for more, and the memory is the sender's again.
    fn departs(&mut self, flight: u64) {
        let Some(Flight { way, rail, header, payload, kept, .. }) = self.flights.get_mut(&flight) else {
            return;
        };
        let (way, size) = (*way, header.len() + payload.len() as usize);
        if let Some(span) = kept.take() {
            *payload = self.nodes[way.from].read_or_tear(span);
        }
        if let Some(link) = self.links.get_mut(&ends(way.from, way.to)) {
            link.wires[*rail][usize::from(way.from > way.to)].waiting -= size;
        }
        self.settle(way.from);
        self.pump(way.from, way.to);
        self.settle(way.from);
    }

    fn begins(&mut self, flight: u64) {
        let Some(Flight { way, rail, header, .. }) = self.flights.get(&flight) else { return };
        let (way, rail) = (*way, *rail);
        if let Ok((frame, len)) = Frame::parse(header) {
            self.nodes[way.to].begin(PeerIdx(way.from as u32), rail, frame, len);
        }
        self.settle(way.to);
    }

    fn ends(&mut self, flight: u64) {
        let Some(Flight { way, rail, header, payload, long, .. }) = self.flights.remove(&flight) else {
            return;
        };
        let peer = PeerIdx(way.from as u32);
        let node = &mut self.nodes[way.to];
        match Frame::parse(&header) {
            Err(_) => node.broken.push((peer, "what it sent is no frame")),
            Ok(_) if long => node.end(peer, rail, payload),
            Ok((frame, _)) => node.frame(peer, &frame, payload),
        }
        self.settle(way.to);
    }

    /// A direct read or write takes place, if it may.
    fn job(&mut self, node: usize, session: u32, action: Action) {
        let (Action::Read { peer, job, .. } | Action::Write { peer, job, .. }) = action else { return };
        let Some(link) = self.links.get(&ends(node, peer.0 as usize)) else { return };
        let granted = match link.join.direct {
            Direct::Granted => true,
            Direct::Refused => false,
            Direct::Sometimes(percent) => self.rng.chance(percent),
        };
        let there = granted && link.up && link.session == session;
        let ok = there && self.reach(node, peer.0 as usize, &action).is_some();
        self.nodes[node].engine.job_done(peer, job, ok);
        self.settle(node);
    }

    fn reach(&mut self, node: usize, peer: usize, action: &Action) -> Option<()> {
        let done = match action {
            Action::Read { from, to, .. } => {
                let bytes = self.nodes[peer].memory.read_listed(from, to.len as u64)?;
                self.nodes[node].memory.write(*to, &bytes)
            }
            Action::Write { from, to, .. } => {
                let bytes = self.nodes[node].memory.read(*from)?;
                self.nodes[peer].memory.write_listed(to, &bytes)
            }
            _ => false,
        };
        done.then_some(())
    }
}
