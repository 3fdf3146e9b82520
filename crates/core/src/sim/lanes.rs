//! Links of several lanes, which end, stall, slow down and come back: both ends have a [`Session`], and what it decides is carried
//! out by connections like those of real networks. A connection that breaks loses what is on its way, and its ends hear of that at
//! times of their own; one that an end gives up still delivers what that end sent before, or is reset.

mod conn;

use super::memory::Bytes;
use super::node::{Node, Ticket};
use super::rail::{MS, RailSpec, S, Time};
use super::world::{Happening, World, ends};
use crate::frame::Frame;
use crate::proto::PeerIdx;
use crate::session::{
    Action, Arrival, Carrier, Config, Links, Loss, Over, Pins, Planner, Sent, Session, ToPeer, UnackedFrame,
    Way,
};
use crate::wire::offer::{Interface, InterfaceFlags, InterfaceName, Net};
use crate::wire::{SessionId, Transport};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use conn::{Conn, Direction, EndState, Outlet};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

/// A session waits so long for a lane that any of the faults is over by then.
fn config(spec: &LaneSpec) -> Config {
    // measured so shortly that it is chance what helps: lanes are tried, rest and end at any time
    let (connections, slice, fed) = (spec.connections, 1, 1);
    Config { grace: 15 * S, patience: 30 * S, connections, slice, fed, ..Config::default() }
}
/// How often a driver looks at its lanes.
const TICK: Time = 2 * MS;
/// How long a driver lets the network take to connect.
const CONNECT: Time = S;

/// The lanes of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaneSpec {
    /// Each path's connections; the session begins with one over the first. Every other path is of a second transport, whose lanes
    /// go between no interfaces.
    pub paths: Vec<RailSpec>,
    /// Most connections over one path at a time.
    pub connections: usize,
    /// A receiver tells what came by a lane when so many frames have gathered; at least 2, or each such word would be answered by
    /// another.
    pub got: u64,
    /// Of a hundred connections that the accepting side has made, so many come to nothing on the other.
    pub stillborn: u8,
}

/// What befalls a link's lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LaneFault {
    /// The connection over a path breaks; its ends hear of it after so long each, the lower node first.
    Cut(Time, Time),
    /// Nothing arrives by a path for so long, nor is anybody told; no connection is made.
    Stall(Time),
    /// The session tries whether one more connection gets more through.
    Another,
    /// A side lets one of its lanes rest to see whether it is needed, or gives it up: the side, and which of them.
    Without(usize, usize, bool),
    /// A path moves so many bytes per second from now on.
    Slow(u64),
    /// Nothing arrives by a path ever again, and nobody is told; by the first path, which is the last resort, for a while.
    Silence,
}

/// How long the first path is silent at most.
const WHILE: Time = 300 * MS;
/// Never.
const NEVER: Time = Time::MAX / 2;

struct Side {
    session: Session<usize>,
    /// What may go by the lane in use before that is thought over.
    budget: u32,
}

/// What both ends of a link have in lanes. The lower node has opened it.
pub(super) struct LaneLink {
    spec: LaneSpec,
    sides: [Side; 2],
    conns: BTreeMap<usize, Conn>,
    /// Paths as they are now, and until when nothing arrives by them.
    paths: Vec<(RailSpec, Time)>,
    ticking: bool,
}

/// What happens to a link's lanes.
#[derive(Clone, Debug)]
pub(super) enum LaneHappening {
    /// So many bytes have left a side by a connection: there is room again.
    Departs(usize, usize, usize),
    /// Something arrives by a connection, at this side.
    Arrives(usize, usize),
    Tick,
    /// A side hears that a connection has ended.
    Told(usize, usize, Loss),
    /// The other side has closed it, after what it sent.
    Finished(usize, usize),
    /// A connection has been made: at the accepting side, and at the other.
    Accepted {
        path: usize,
        over: usize,
        number: u16,
    },
    Established {
        path: usize,
        conn: usize,
    },
    /// It was not.
    Refused {
        path: usize,
    },
}

fn host(path: usize, side: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, path as u8, side as u8 + 1).into()
}

/// The transport of a path.
fn transport(path: usize) -> Transport {
    if path.is_multiple_of(2) { Transport::TCP } else { Transport::TRIAL }
}

/// Which path a way is.
fn path_of(way: &Way) -> usize {
    match way.over {
        Over::Pair(pair) => pair.near.0 as usize - 1,
        Over::Place(number, _) => 2 * usize::from(number) + 1,
    }
}

/// The interfaces of the paths that go between some.
fn interfaces(paths: &[RailSpec], side: usize) -> Vec<Interface> {
    let interface = |(path, spec): (usize, &RailSpec)| Interface {
        index: path as u32 + 1,
        speed: (spec.bandwidth / 125_000).max(1) as u32,
        flags: InterfaceFlags::default(),
        name: InterfaceName::new(&format!("net{path}")).expect("a name"),
        nets: Net::new(host(path, side), 24).into_iter().collect(),
    };
    paths.iter().enumerate().step_by(2).map(interface).collect()
}

impl LaneLink {
    fn new(spec: &LaneSpec, id: u64) -> Self {
        let [near, far] = [0, 1].map(|side| interfaces(&spec.paths, side).into());
        let (most, places) = (spec.paths.len() + spec.connections - 1, spec.paths.len() / 2);
        let between = vec![Transport::TCP];
        let places = vec![(Transport::TRIAL, places as u16, 0)];
        let planner = Planner { near, far, most, between, places };
        let session = |planner| Session::new(SessionId(id), config(spec), planner);
        let side = |planner| Side { session: session(planner), budget: u32::MAX };
        let paths = spec.paths.iter().map(|path| (*path, 0)).collect();
        let sides = [side(Some(planner)), side(None)];
        Self { spec: spec.clone(), sides, conns: BTreeMap::new(), paths, ticking: false }
    }
}

impl World {
    /// What a link that is joined has in lanes.
    pub(super) fn begin_lanes(&mut self, spec: &LaneSpec) -> Box<LaneLink> {
        self.count += 1;
        Box::new(LaneLink::new(spec, self.count))
    }

    /// The first lane of a session.
    pub(super) fn first_lane(&mut self, pair: (usize, usize)) {
        let conn = self.new_conn(pair, None, 0, 0);
        for side in [0, 1] {
            self.lane_up(pair, side, conn, None);
        }
    }

    /// How many lanes an end of a link has.
    pub fn lanes(&self, at: usize, peer: usize) -> usize {
        let lanes = self.links.get(&ends(at, peer)).and_then(|link| link.lanes.as_ref());
        lanes.map_or(0, |lanes| lanes.sides[usize::from(at > peer)].session.lanes().len())
    }

    /// What lanes are in the middle of, for a test that failed.
    pub fn describe_lanes(&self) -> String {
        let mut text = String::new();
        for (pair, link) in &self.links {
            let Some(lanes) = &link.lanes else { continue };
            if !self.is_busy(*pair) {
                continue;
            }
            for (side, node, peer) in [(0, pair.0, pair.1), (1, pair.1, pair.0)] {
                let (engine, peer) = (&self.nodes[node].engine, PeerIdx(peer as u32));
                let (waits, unseen) = (engine.queued(peer), engine.unseen(peer));
                let session = &lanes.sides[side].session;
                text += &format!("\n{node} to {peer}: {waits} wait, {unseen} unseen, {session:?}");
            }
            for (id, conn) in &lanes.conns {
                let Conn { path, number, ends, broken, .. } = conn;
                text +=
                    &format!("\nconnection {id} by path {path}: lane {number}, {ends:?}, broken {broken}");
                for way in &conn.ways {
                    let Direction { had, sent, given, acked, received, told, .. } = way;
                    let (flies, waits) = (way.flights.len(), way.wire.waiting);
                    text += &format!(
                        "\n  {flies} fly, {waits} wait; had {had:?} sent {sent} given {given} acked {acked} received {received:?} told {told}"
                    );
                }
            }
        }
        text
    }

    /// Lets something befall the lanes of a link that go by a path.
    pub fn befall(&mut self, a: usize, b: usize, path: usize, fault: LaneFault) {
        let pair = ends(a, b);
        let now = self.now();
        let Some(lanes) = self.links.get_mut(&pair).and_then(|link| link.lanes.as_mut()) else { return };
        let path = path % lanes.paths.len();
        match fault {
            LaneFault::Another => {
                self.ask(pair, 0, |session, _, _| session.try_another(now));
                self.follow(pair, 0);
            }
            LaneFault::Without(side, which, for_good) => {
                let side = side % 2;
                self.ask(pair, side, |session, _, _| {
                    let lanes = session.lanes();
                    let number = lanes.get(which % lanes.len().max(1)).map(|lane| lane.number());
                    number.into_iter().for_each(|number| session.try_without(now, number, for_good));
                });
                self.after(pair, side);
            }
            LaneFault::Stall(time) => lanes.paths[path].1 = lanes.paths[path].1.max(now + time),
            LaneFault::Silence if path > 0 => lanes.paths[path].1 = NEVER,
            LaneFault::Silence => lanes.paths[path].1 = lanes.paths[path].1.max(now + WHILE),
            LaneFault::Slow(rate) => {
                lanes.paths[path].0.bandwidth = rate;
                let of_it = lanes.conns.values_mut().filter(|conn| conn.path == path);
                of_it.for_each(|conn| conn.ways.iter_mut().for_each(|way| way.wire.spec.bandwidth = rate));
            }
            LaneFault::Cut(lower, upper) => {
                let of_it = lanes.conns.iter_mut().filter(|(_, conn)| conn.path == path && !conn.broken);
                let (mut cut, mut parts) = (vec![], vec![]);
                for (id, conn) in of_it {
                    conn.broken = true;
                    for side in [0, 1] {
                        let way = &mut conn.ways[1 - side];
                        let first = way.flights.front().filter(|first| first.long && !first.begun);
                        let stands = conn.ends[side] == EndState::Lane;
                        let header = first.and_then(|first| Frame::parse(&first.header).ok());
                        parts.extend(header.filter(|_| stands).map(|(frame, len)| (side, *id, frame, len)));
                        way.flights.clear();
                    }
                    cut.push(*id);
                }
                // of what was next, the header may have come
                for (side, id, frame, len) in parts {
                    let (node, peer) = if side == 0 { pair } else { (pair.1, pair.0) };
                    if self.rng.chance(50) {
                        self.nodes[node].begin(PeerIdx(peer as u32), id, frame, len);
                        self.settle(node);
                    }
                }
                for id in cut {
                    let told = |side| LaneHappening::Told(id, side, Loss::Reset("it was cut".into()));
                    self.plan_lane(pair, now + lower, told(0));
                    self.plan_lane(pair, now + upper, told(1));
                }
            }
        }
        self.wake(pair);
    }

    /// A connection `over` a path, which the session that opens it knows as `slot`.
    fn new_conn(&mut self, pair: (usize, usize), slot: Option<usize>, path: usize, number: u16) -> usize {
        self.count += 1;
        let id = self.count as usize;
        if let Some(lanes) = self.links.get_mut(&pair).and_then(|link| link.lanes.as_mut()) {
            let spec = lanes.paths[path].0;
            let ways = [Direction::new(spec), Direction::new(spec)];
            let ends = [EndState::Making; 2];
            lanes.conns.insert(id, Conn { slot, path, number, ways, ends, broken: false });
        }
        id
    }

    fn plan_lane(&mut self, pair: (usize, usize), at: Time, what: LaneHappening) {
        let session = self.links.get(&pair).map_or(0, |link| link.session);
        self.plan(at, Happening::Lane { pair, session, what });
    }

    /// Asks one end's session, and does what follows from that.
    fn ask<R>(
        &mut self,
        pair: (usize, usize),
        side: usize,
        ask: impl FnOnce(&mut Session<usize>, &mut ToPeer<'_, Ticket>, &mut Outlet<'_>) -> R,
    ) -> Option<R> {
        let (node, peer) = if side == 0 { pair } else { (pair.1, pair.0) };
        let now = self.now();
        let link = self.links.get_mut(&pair)?;
        let lanes = link.lanes.as_mut()?;
        let Node { engine, memory, torn, .. } = &mut self.nodes[node];
        let mut outlet = Outlet {
            conns: &mut lanes.conns,
            side,
            now,
            rng: &mut self.rng,
            memory,
            torn,
            plans: vec![],
            ended: vec![],
            returned: vec![],
        };
        let mut traffic = ToPeer { engine, peer: PeerIdx(peer as u32) };
        let session = &mut lanes.sides[side].session;
        let answer = ask(session, &mut traffic, &mut outlet);
        lanes.sides[side].budget = session.budget(&traffic);
        let Outlet { plans, ended, returned, .. } = outlet;
        returned.into_iter().for_each(|op| engine.returned(op));
        plans.into_iter().for_each(|(at, what)| self.plan_lane(pair, at, what));
        ended.into_iter().for_each(|(conn, reset)| self.given_up(pair, side, conn, reset));
        Some(answer)
    }

    /// An end has closed a connection: the other hears of it after what was sent, or at once if it is reset.
    fn given_up(&mut self, pair: (usize, usize), side: usize, id: usize, reset: bool) {
        let now = self.now();
        let Some(lanes) = self.links.get_mut(&pair).and_then(|link| link.lanes.as_mut()) else { return };
        // by one that is broken nobody hears anything
        let paths = &lanes.paths;
        let conn = lanes.conns.get_mut(&id).filter(|conn| !conn.broken && paths[conn.path].1 != NEVER);
        let Some(conn) = conn else { return };
        let way = &mut conn.ways[side];
        let soon = now + way.wire.spec.latency;
        if reset {
            way.flights.clear();
            let loss = Loss::Reset("the other side has reset it".into());
            self.plan_lane(pair, soon, LaneHappening::Told(id, 1 - side, loss));
        } else {
            let last = way.flights.back().map_or(soon, |last| last.ends.max(soon));
            self.plan_lane(pair, last, LaneHappening::Finished(id, 1 - side));
        }
    }

    /// Does what an end's session wants done.
    fn follow(&mut self, pair: (usize, usize), side: usize) {
        let (node, peer) = if side == 0 { pair } else { (pair.1, pair.0) };
        while let Some(action) = self.ask(pair, side, |session, _, _| session.poll_action()).flatten() {
            match action {
                Action::Forget(conn) => self.nodes[node].cut_short(PeerIdx(peer as u32), conn),
                Action::Open { path, number, way } => self.open(pair, path, number, path_of(&way)),
                Action::Abandon { path } => self.abandon(pair, path),
                Action::Event(..) => {}
                Action::Gone { why, .. } => {
                    self.gone.push((node, peer, why));
                    self.cut(node, peer);
                }
            }
        }
    }

    fn open(&mut self, pair: (usize, usize), path: usize, number: u16, over: usize) {
        let now = self.now();
        let Some(lanes) = self.links.get(&pair).and_then(|link| link.lanes.as_ref()) else { return };
        let (spec, stalled) = lanes.paths[over];
        match stalled > now {
            true => self.plan_lane(pair, now + CONNECT, LaneHappening::Refused { path }),
            false => {
                self.plan_lane(pair, now + 3 * spec.latency, LaneHappening::Accepted { path, over, number })
            }
        }
    }

    /// The side that opens drops a connection that it is making.
    fn abandon(&mut self, pair: (usize, usize), path: usize) {
        let Some(lanes) = self.links.get_mut(&pair).and_then(|link| link.lanes.as_mut()) else { return };
        let making = |conn: &&mut Conn| conn.slot == Some(path) && conn.ends[0] == EndState::Making;
        if let Some(conn) = lanes.conns.values_mut().find(making) {
            (conn.broken, conn.ends[0]) = (true, EndState::Closed);
            conn.ways.iter_mut().for_each(|way| way.flights.clear());
        }
    }

    fn lane_up(&mut self, pair: (usize, usize), side: usize, id: usize, path: Option<usize>) {
        let Some(lanes) = self.links.get_mut(&pair).and_then(|link| link.lanes.as_mut()) else { return };
        let Some(conn) = lanes.conns.get_mut(&id) else { return };
        conn.ends[side] = EndState::Lane;
        let RailSpec { latency, overtaking, .. } = conn.ways[0].wire.spec;
        let (number, over, rtt, in_order) = (conn.number, conn.path, 2 * latency, overtaking.is_none());
        let end = |side| SocketAddr::new(host(over, side), 7000);
        let (transport, pins) = (transport(over), Pins::default());
        let ends = (transport == Transport::TCP).then(|| (end(side), end(1 - side)));
        let arrival = Arrival { number, link: id, transport, path, ends, rtt, delivered: 0, pins, in_order };
        let now = self.now();
        self.ask(pair, side, |session, traffic, outlet| session.lane_up(now, arrival, traffic, outlet));
        self.after(pair, side);
        // what was sent before this end had it lies there
        self.arrive(pair, id, side);
    }

    /// An end's session was asked: what follows, and what may be sent now.
    fn after(&mut self, pair: (usize, usize), side: usize) {
        self.follow(pair, side);
        let (node, peer) = if side == 0 { pair } else { (pair.1, pair.0) };
        self.pump_lanes(node, peer);
        self.settle(node);
        self.wake(pair);
    }

    /// Gives the lanes to a peer what waits for it.
    pub(super) fn pump_lanes(&mut self, node: usize, peer: usize) {
        let (pair, side, now) = (ends(node, peer), usize::from(node > peer), self.now());
        self.ask(pair, side, |session, traffic, outlet| match session.schedules(traffic) {
            true => {
                session.schedule(now, traffic, outlet);
            }
            false => {
                let Some(link) = session.current() else { return };
                plainly(link, traffic, outlet);
            }
        });
        self.follow(pair, side);
        self.wake(pair);
    }

    /// Gives a frame to the lane that short messages take, as if the engine had made it; false when it has to wait.
    pub(super) fn inject_lane(&mut self, from: usize, to: usize, frame: &Frame, payload: &Bytes) -> bool {
        let (pair, side) = (ends(from, to), usize::from(from > to));
        let budget =
            self.links.get(&pair).and_then(|link| link.lanes.as_ref()).map(|lanes| lanes.sides[side].budget);
        if budget.is_some_and(|budget| u64::from(budget) < payload.len() + 64) {
            self.ask(pair, side, |session, traffic, outlet| session.choose(traffic, outlet));
            self.follow(pair, side);
        }
        let now = self.now();
        let sent = self.ask(pair, side, |session, traffic, outlet| {
            let Some(link) = session.current().filter(|_| session.takes_short(traffic)) else { return false };
            session.sent_short(now);
            let header = frame.encode(payload.len() as usize).to_vec();
            let bytes = [&header[..], payload.real()].concat();
            let unacked = UnackedFrame { bytes, header: header.len(), span: None };
            outlet.launch(link, &header, payload.clone(), unacked)
        });
        self.wake(pair);
        sent == Some(true)
    }

    /// Whatever happened, somebody looks before long while anything is under way.
    fn wake(&mut self, pair: (usize, usize)) {
        let (now, busy) = (self.now(), self.is_busy(pair));
        let Some(lanes) = self.links.get_mut(&pair).and_then(|link| link.lanes.as_mut()) else { return };
        if busy && !core::mem::replace(&mut lanes.ticking, true) {
            self.plan_lane(pair, now + TICK, LaneHappening::Tick);
        }
    }

    /// Whether something of a link is under way that does not happen by itself.
    fn is_busy(&self, pair: (usize, usize)) -> bool {
        let Some(lanes) = self.links.get(&pair).and_then(|link| link.lanes.as_ref()) else { return false };
        let waits = |node: usize, peer: usize| self.nodes[node].engine.queued(PeerIdx(peer as u32)) > 0;
        let unsettled = |side: &Side| !side.session.is_quiet() || side.session.lanes().is_empty();
        // connections that broke are heard of, one way or the other
        let flies = |conn: &Conn| conn.ways.iter().any(|way| !way.flights.is_empty());
        // what is lent comes back by rounds of progress, if not by words
        let lends = |node: usize| self.nodes[node].engine.has_lent();
        waits(pair.0, pair.1)
            || lends(pair.0)
            || lends(pair.1)
            || waits(pair.1, pair.0)
            || lanes.sides.iter().any(unsettled)
            || lanes.conns.values().any(flies)
    }

    pub(super) fn lane_happens(&mut self, pair: (usize, usize), what: LaneHappening) {
        let now = self.now();
        match what {
            LaneHappening::Departs(id, side, size) => {
                let lanes = self.links.get_mut(&pair).and_then(|link| link.lanes.as_mut());
                if let Some(conn) = lanes.and_then(|lanes| lanes.conns.get_mut(&id)) {
                    conn.ways[side].wire.waiting -= size;
                    let (node, peer) = if side == 0 { pair } else { (pair.1, pair.0) };
                    self.pump_lanes(node, peer);
                    self.settle(node);
                }
            }
            LaneHappening::Arrives(id, side) => self.arrive(pair, id, side),
            LaneHappening::Told(id, side, loss) => self.told(pair, id, side, loss),
            LaneHappening::Finished(id, side) => {
                let lanes = self.links.get(&pair).and_then(|link| link.lanes.as_ref());
                let way = lanes.and_then(|lanes| lanes.conns.get(&id)).map(|conn| &conn.ways[1 - side]);
                match way.and_then(|way| way.flights.back()) {
                    Some(last) => {
                        let at = last.ends.max(now + MS);
                        self.plan_lane(pair, at, LaneHappening::Finished(id, side));
                    }
                    None => self.told(pair, id, side, Loss::Closed("it was closed".into())),
                }
            }
            LaneHappening::Accepted { path, over, number } => self.accepted(pair, path, over, number),
            LaneHappening::Established { path, conn } => self.established(pair, path, conn),
            LaneHappening::Refused { path } => self.refused(pair, path, "no answer in time", false),
            LaneHappening::Tick => {
                if let Some(lanes) = self.links.get_mut(&pair).and_then(|link| link.lanes.as_mut()) {
                    lanes.ticking = false;
                }
                for side in [0, 1] {
                    self.ask(pair, side, |session, traffic, outlet| session.tick(now, true, traffic, outlet));
                    self.follow(pair, side);
                    let (node, peer) = if side == 0 { pair } else { (pair.1, pair.0) };
                    self.pump_lanes(node, peer);
                    self.copy_lent(node);
                    self.settle(node);
                }
                self.wake(pair);
            }
        }
    }

    /// A round of a process's progress, who goes to sleep in one of eight.
    fn copy_lent(&mut self, node: usize) {
        let sleeps = self.rng.chance(12);
        self.nodes[node].engine.wait(sleeps);
        while let Some((peer, op)) = self.nodes[node].engine.poll_copy() {
            let (pair, side) = (ends(node, peer.0 as usize), usize::from(node > peer.0 as usize));
            self.ask(pair, side, |session, _, outlet| {
                session.links().for_each(|conn| outlet.copy(conn, Some(op)));
            });
            self.nodes[node].engine.returned(op);
        }
    }

    fn told(&mut self, pair: (usize, usize), id: usize, side: usize, loss: Loss) {
        let now = self.now();
        self.ask(pair, side, |session, traffic, outlet| session.handle_lost(now, id, loss, traffic, outlet));
        self.after(pair, side);
    }

    fn refused(&mut self, pair: (usize, usize), path: usize, why: &str, reached: bool) {
        let (now, why) = (self.now(), String::from(why));
        self.ask(pair, 0, |session, _, _| session.open_failed(now, path, why, reached));
        self.after(pair, 0);
    }

    fn accepted(&mut self, pair: (usize, usize), path: usize, over: usize, number: u16) {
        let now = self.now();
        let Some(lanes) = self.links.get(&pair).and_then(|link| link.lanes.as_ref()) else { return };
        let (spec, stalled) = lanes.paths[over];
        let id = lanes.sides[0].session.id();
        if !lanes.sides[0].session.paths().get(path).is_some_and(|path| path.is_opening()) {
            return; // it was given up meanwhile
        }
        if stalled > now {
            return self.plan_lane(pair, now + CONNECT, LaneHappening::Refused { path });
        }
        if !lanes.sides[1].session.expects(id, number) {
            return self.refused(pair, path, "it refused", true);
        }
        let conn = self.new_conn(pair, Some(path), over, number);
        self.plan_lane(pair, now + spec.latency, LaneHappening::Established { path, conn });
        self.lane_up(pair, 1, conn, None);
    }

    fn established(&mut self, pair: (usize, usize), path: usize, id: usize) {
        let (now, percent) = (self.now(), self.rng.below(100) as u8);
        let Some(lanes) = self.links.get_mut(&pair).and_then(|link| link.lanes.as_mut()) else { return };
        let stillborn = percent < lanes.spec.stillborn;
        let Some(conn) = lanes.conns.get_mut(&id) else { return };
        if conn.ends[0] == EndState::Closed {
            // it was abandoned: the other side hears that
            let loss = Loss::Reset("the other side has reset it".into());
            return self.plan_lane(pair, now, LaneHappening::Told(id, 1, loss));
        }
        if conn.broken || stillborn || conn.ends[1] >= EndState::Ended {
            (conn.broken, conn.ends[0]) = (true, EndState::Closed);
            conn.ways.iter_mut().for_each(|way| way.flights.clear());
            let loss = Loss::Reset("the other side has reset it".into());
            self.plan_lane(pair, now + MS, LaneHappening::Told(id, 1, loss));
            return self.refused(pair, path, "it ended while it was made", true);
        }
        self.lane_up(pair, 0, id, Some(path));
    }

    /// What has arrived by a connection at one of its ends.
    fn arrive(&mut self, pair: (usize, usize), id: usize, side: usize) {
        let (node, peer) = if side == 0 { pair } else { (pair.1, pair.0) };
        let (now, from) = (self.now(), PeerIdx(peer as u32));
        loop {
            let Some(lanes) = self.links.get_mut(&pair).and_then(|link| link.lanes.as_mut()) else { return };
            let got = lanes.spec.got;
            let Some(conn) = lanes.conns.get_mut(&id) else { return };
            if conn.ends[side] != EndState::Lane {
                return;
            }
            let stalled = lanes.paths[conn.path].1;
            let way = &mut conn.ways[1 - side];
            let Some(flight) = way.flights.front_mut() else { return };
            let due = if flight.long && !flight.begun { flight.begins } else { flight.ends };
            if stalled == NEVER {
                return;
            }
            if due.max(stalled) > now {
                return self.plan_lane(pair, due.max(stalled), LaneHappening::Arrives(id, side));
            }
            let Ok((frame, len)) = Frame::parse(&flight.header) else { return };
            if flight.long && !flight.begun {
                flight.begun = true;
                self.nodes[node].begin(from, id, frame, len);
                self.settle(node);
                continue;
            }
            let Some(flight) = way.flights.pop_front() else { return };
            let tells = way.arrived(&flight, got);
            match flight.long {
                true => self.nodes[node].end(from, id, flight.payload),
                false => self.nodes[node].frame_by(from, &frame, flight.payload),
            }
            let several = self.ask(pair, side, |session, _, _| session.had_several()) == Some(true);
            if let Some(acked) = tells {
                self.ask(pair, side, |session, traffic, _| session.tell_got(id, &acked, traffic));
                self.pump_lanes(node, peer);
            }
            self.settle(node);
            if several {
                self.nodes[node].engine.tell_seen(from, false);
                self.settle(node);
            }
            self.wake(pair);
        }
    }

    /// What peers said of their lanes.
    pub(super) fn hear_of_lanes(&mut self, node: usize) {
        for (peer, told) in core::mem::take(&mut self.nodes[node].lane_news) {
            let (peer_at, now) = (peer.0 as usize, self.now());
            let (pair, side) = (ends(node, peer_at), usize::from(node > peer_at));
            let heard = self
                .ask(pair, side, |session, traffic, outlet| session.handle_told(now, &told, traffic, outlet));
            match heard {
                None => self.nodes[node].broken.push((peer, "no lane has a number here")),
                Some(Err(why)) => self.nodes[node].broken.push((peer, why)),
                Some(Ok(())) => {
                    self.follow(pair, side);
                    self.pump_lanes(node, peer_at);
                }
            }
        }
    }
}

/// With one lane, and nothing left of others, frames leave in the order in which they wait.
fn plainly(link: usize, traffic: &mut ToPeer<'_, Ticket>, outlet: &mut Outlet<'_>) {
    loop {
        let bulk = if outlet.wants_more(link) { usize::MAX } else { 0 };
        let Some(next) = crate::session::Traffic::poll_transmit(traffic, bulk) else { return };
        match outlet.send(link, &next, traffic) {
            Sent::Away => crate::session::Traffic::transmitted(traffic, &next),
            Sent::Lent => crate::session::Traffic::lent(traffic, &next),
            Sent::Taken => crate::session::Traffic::taken(traffic, &next),
            Sent::Full => return,
            Sent::Unlisted => crate::session::Traffic::unlisted(traffic, &next),
        }
    }
}
