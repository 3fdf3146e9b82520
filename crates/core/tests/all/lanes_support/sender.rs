//! A peer that sends: messages, a session that decides by which lane their parts go, and the connections under it. The decisions
//! are `polyrail_core::session`'s; what is here is what waits, and what the connections do.

use super::path::Path;
use super::tcp::Tcp;
use polyrail_core::frame::{Acked, Frame, OpId};
use polyrail_core::proto::{Place, Span};
use polyrail_core::session::{
    Action, Arrival, Carrier, Config, Links, MAX_LANES, Pins, Planner, Retired, Seen, Sent, Session, Told,
    Traffic, UnackedFrame, What, Which,
};
use polyrail_core::sim::{MS, Rng, S, Time};
use polyrail_core::wire::offer::{Interface, InterfaceFlags, InterfaceName, Net};
use polyrail_core::wire::{SessionId, Transport};
use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// How often the driver looks at its lanes.
const TICK: Time = 2 * MS;
/// How long the driver lets the network take to connect.
const CONNECT: Time = S;
/// A part of so many bytes is one for which more lanes are of use.
const LONG: u64 = 8 << 10;

/// A part of a message, or a small one.
#[derive(Clone, Copy, Debug)]
pub struct Fragment {
    pub message: usize,
    pub len: u64,
    small: bool,
    /// Where it ends in its connection's stream.
    end: u64,
}

/// What was sent, and when it arrived, by each path.
#[derive(Clone, Debug, Default)]
pub struct Message {
    pub len: u64,
    pub small: bool,
    pub began: Time,
    given: u64,
    got: u64,
    /// When it was complete.
    pub done: Option<Time>,
    /// When the last of it came by each path, and how much.
    pub by: Vec<(Time, u64)>,
}

impl Message {
    pub fn took(&self) -> Time {
        self.done.map_or(Time::MAX, |done| done - self.began)
    }

    /// Between the end of the lane that ended first and of the one that ended last.
    pub fn tail(&self) -> Time {
        let ends = || self.by.iter().filter(|(_, len)| *len > 0).map(|(at, _)| *at);
        ends().max().unwrap_or(0) - ends().min().unwrap_or(0)
    }
}

/// A connection over a path; the session's handle for it is its flow.
#[derive(Debug)]
pub struct Conn {
    pub path: usize,
    pub tcp: Tcp,
    /// Distinguishes its packets from those of others.
    pub flow: usize,
    /// It is a lane no more: what is on its way by it counts for nothing.
    pub ended: bool,
    fragments: VecDeque<Fragment>,
}

/// All connections.
#[derive(Debug, Default)]
pub struct Conns(pub Vec<Conn>);

impl Conns {
    fn of(&self, flow: usize) -> Option<&Conn> {
        self.0.iter().find(|conn| conn.flow == flow)
    }

    fn of_mut(&mut self, flow: usize) -> Option<&mut Conn> {
        self.0.iter_mut().find(|conn| conn.flow == flow)
    }

    /// The shortest round trip of those that are up.
    fn rtt(&self) -> Option<Time> {
        self.0.iter().filter(|conn| !conn.ended).map(|conn| conn.tcp.rtt).min()
    }
}

impl Links<usize> for Conns {
    fn look(&self, flow: usize) -> Option<Seen> {
        let Tcp { acked, rtt, min_rtt, .. } = self.of(flow)?.tcp;
        Some(Seen { delivered: acked, queued: self.queued(flow), rtt, min_rtt, ..Seen::default() })
    }
    fn queued(&self, flow: usize) -> u64 {
        self.of(flow).map_or(0, |conn| conn.tcp.queued())
    }
    fn given(&self, flow: usize) -> u64 {
        self.of(flow).map_or(0, |conn| conn.tcp.given)
    }
    fn wants_more(&self, _: usize) -> bool {
        true
    }
    fn confirm(&mut self, _: usize, _: &Acked) -> bool {
        true
    }
    fn retire(&mut self, flow: usize) -> Retired {
        if let Some(conn) = self.of_mut(flow) {
            conn.ended = true;
        }
        Retired::default()
    }
    fn reclaim(&mut self, flow: usize, _: &Acked) -> Option<VecDeque<UnackedFrame>> {
        Some(self.of_mut(flow)?.fragments.drain(..).map(unacked).collect())
    }
    fn close(&mut self, flow: usize) {
        self.0.retain(|conn| conn.flow != flow);
    }
}

impl Conns {
    /// Whether the connection took it.
    fn give(&mut self, flow: usize, fragment: &Fragment) -> bool {
        let Some(conn) = self.of_mut(flow).filter(|conn| !conn.ended) else { return false };
        conn.tcp.given += fragment.len;
        conn.fragments.push_back(Fragment { end: conn.tcp.given, ..*fragment });
        true
    }
}

impl Carrier<usize, Queue> for Conns {
    fn send(&mut self, flow: usize, fragment: &Fragment, _: &Queue) -> Sent {
        if self.give(flow, fragment) { Sent::Away } else { Sent::Full }
    }
    fn send_again(&mut self, flow: usize, frame: &UnackedFrame) -> bool {
        self.give(flow, &fragment(frame))
    }
}

/// A fragment as a frame that was not acknowledged, and back: its message is the name of the operation.
fn unacked(one: Fragment) -> UnackedFrame {
    let to = OpId { slot: one.message as u32, generation: u32::from(one.small) };
    let header = Frame::Frag { to, offset: 0 }.encode(1).to_vec();
    let span = Span { place: Place::Discard, offset: 0, len: one.len as usize };
    UnackedFrame { header: header.len(), bytes: header, span: Some(span) }
}

fn fragment(frame: &UnackedFrame) -> Fragment {
    let Ok((Frame::Frag { to, .. }, _)) = Frame::parse(&frame.bytes) else {
        panic!("only fragments are sent")
    };
    let len = frame.span.map_or(0, |span| span.len as u64);
    Fragment { message: to.slot as usize, len, small: to.generation == 1, end: 0 }
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// There is always more.
    Stream,
    /// One message of so many bytes after the other.
    Messages(u64),
}

/// What waits, and what the session says by itself.
#[derive(Debug, Default)]
struct Queue {
    messages: Vec<Message>,
    waiting: VecDeque<usize>,
    /// Lanes that the session has retired, and not heard of.
    retired: Vec<u16>,
    /// A long part was sent.
    much: bool,
}

impl Queue {
    fn bulk(&self) -> Option<usize> {
        let at = self.messages.iter().rposition(|one| !one.small)?;
        (self.messages[at].given < self.messages[at].len).then_some(at)
    }
}

impl Traffic for Queue {
    type Next = Fragment;

    fn taken(&mut self, _next: &Fragment) {
        unreachable!("there are no values");
    }

    fn payload_len(next: &Fragment) -> usize {
        next.len as usize
    }
    fn is_sequenced(next: &Fragment) -> bool {
        next.small
    }
    fn unseen(&self) -> u32 {
        0
    }
    fn unseen_bytes(&self) -> u64 {
        0
    }
    fn next_seq(&self) -> u32 {
        0
    }
    fn seen(&self) -> u32 {
        0
    }
    fn waiting(&self) -> usize {
        self.waiting.len() + usize::from(self.bulk().is_some())
    }
    fn bulk_left(&self) -> u64 {
        self.bulk().map_or(0, |at| (self.messages[at].len - self.messages[at].given).min(1 << 30))
    }
    fn poll_transmit(&mut self, bulk: usize) -> Option<Fragment> {
        if let Some(&message) = self.waiting.front() {
            return Some(Fragment { message, len: self.messages[message].len, small: true, end: 0 });
        }
        let message = self.bulk().filter(|_| bulk > 0)?;
        Some(Fragment { message, len: self.bulk_left().min(bulk as u64), small: false, end: 0 })
    }
    fn transmitted(&mut self, next: &Fragment) {
        if next.small {
            self.waiting.pop_front();
        }
        self.messages[next.message].given += next.len;
        self.much |= next.len >= LONG;
    }
    fn lent(&mut self, _: &Fragment) {
        unreachable!("nothing is lent here");
    }
    fn unlisted(&mut self, _: &Fragment) {}
    fn say(&mut self, frame: Frame) {
        if let Frame::Retire { lane, .. } = frame {
            self.retired.push(lane);
        }
    }
    fn tell_seen(&mut self, _: bool) {}
}

/// A connection that is being made.
#[derive(Debug)]
struct Opening {
    since: Time,
    /// Which of the session's paths, and which of the bed's.
    path: usize,
    over: usize,
    number: u16,
    /// The first packet was answered: else the kernel asks again after a second.
    answered: bool,
}

#[derive(Debug)]
pub struct Sender {
    session: Session<usize>,
    pub conns: Conns,
    queue: Queue,
    work: Work,
    /// A small message, so often and so long.
    pub small: Option<(Time, u64)>,
    /// How long its program does something else in between.
    pub away: Time,
    /// It looks all the time for so long, then does something else for so long, if so.
    pub phases: Option<(Time, Time)>,
    opening: Vec<Opening>,
    /// Words of the peer about lanes that were retired, on their way.
    answers: VecDeque<(Time, u16)>,
    acted: Time,
    looked: Time,
    last_small: Time,
    begins: Time,
    /// Paths given up, and those opened again: when, and which.
    pub retired: Vec<(Time, usize)>,
    pub opened: Vec<(Time, usize)>,
    /// When connections were begun.
    pub attempts: Vec<Time>,
    lost: BTreeSet<usize>,
    ways: Vec<Vec<usize>>,
    draws: Rng,
}

fn host(path: usize, side: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, path as u8, side).into()
}

fn interfaces(claims: &[u64], side: u8) -> Vec<Interface> {
    let interface = |(path, claim): (usize, &u64)| Interface {
        index: path as u32 + 1,
        speed: (claim / 125_000) as u32,
        flags: InterfaceFlags::default(),
        name: InterfaceName::new(&format!("net{path}")).unwrap(),
        nets: vec![Net::new(host(path, side), 24).unwrap()],
    };
    claims.iter().enumerate().map(interface).collect()
}

impl Sender {
    /// `claims` are what the interfaces claim, in bytes per second, and `ways` the paths that a connection between two of them may
    /// take. There is a lane between the first, as a session has that has just begun.
    pub fn new(
        work: Work,
        claims: &[u64],
        ways: Vec<Vec<usize>>,
        config: Config,
        paths: &[Path],
        flow: usize,
    ) -> Self {
        let planner = Planner {
            near: interfaces(claims, 1).into(),
            far: interfaces(claims, 2).into(),
            most: if config.connections > 1 { MAX_LANES } else { claims.len() },
            between: vec![Transport::TCP],
            places: Vec::new(),
        };
        let session = Session::new(SessionId(7), config, Some(planner));
        let mut sender = Self {
            session,
            conns: Conns::default(),
            queue: Queue::default(),
            work,
            small: None,
            away: 0,
            phases: None,
            opening: Vec::new(),
            answers: VecDeque::new(),
            acted: 0,
            looked: 0,
            last_small: 0,
            begins: 0,
            retired: Vec::new(),
            opened: Vec::new(),
            attempts: Vec::new(),
            lost: BTreeSet::new(),
            ways,
            draws: Rng::new(flow as u64 + paths[0].seed),
        };
        sender.connect(0, 0, None, 0, paths, flow);
        sender
    }

    pub fn messages(&self) -> &[Message] {
        &self.queue.messages
    }

    /// A connection stands.
    fn connect(
        &mut self,
        now: Time,
        over: usize,
        path: Option<usize>,
        number: u16,
        paths: &[Path],
        flow: usize,
    ) {
        let ways = &self.ways[over];
        let way = ways[self.draws.below(ways.len() as u64) as usize];
        let rtt = 2 * paths[way].spec.delay;
        let (tcp, fragments) = (Tcp::new(now, rtt), VecDeque::new());
        self.conns.0.push(Conn { path: way, tcp, flow, ended: false, fragments });
        let end = |side| SocketAddr::new(host(over, side), 7000);
        let (ends, pins) = (Some((end(1), end(2))), Pins::default());
        let (transport, in_order) = (Transport::TCP, true);
        let arrival =
            Arrival { number, link: flow, transport, path, ends, rtt, delivered: 0, pins, in_order };
        self.session.lane_up(now, arrival, &mut self.queue, &mut self.conns);
    }

    /// Bytes that a connection has put in order at the receiver since the last call complete fragments.
    pub fn arrived(&mut self, now: Time, at: usize, all: usize) {
        // the receiver says that it has all, and the next one is agreed upon
        let answer = self.conns.rtt().unwrap_or(0);
        let Conn { path, fragments, tcp, .. } = &mut self.conns.0[at];
        while let Some(one) = fragments.front().copied().filter(|one| one.end <= tcp.came) {
            fragments.pop_front();
            let message = &mut self.queue.messages[one.message];
            message.by.resize(all, (0, 0));
            message.by[*path] = (now, message.by[*path].1 + one.len);
            message.got += one.len;
            if message.got >= message.len {
                message.done = Some(now);
                if !message.small {
                    self.begins = now + answer;
                }
            }
        }
    }

    pub fn act(&mut self, now: Time, paths: &[Path], flows: &mut usize) {
        let computes = |(looks, computes): (Time, Time)| now % (looks + computes) >= looks;
        if now < self.acted + self.away || self.phases.is_some_and(computes) {
            return;
        }
        self.acted = now;
        self.create(now);
        self.hear(now);
        self.open(now, paths, flows);
        if now >= self.looked + TICK {
            self.looked = now;
            self.session.tick(now, self.queue.much, &mut self.queue, &mut self.conns);
        }
        self.session.schedule(now, &mut self.queue, &mut self.conns);
        self.carry_out(now, paths);
    }

    fn create(&mut self, now: Time) {
        let Queue { messages, waiting, .. } = &mut self.queue;
        let idle = messages.iter().rev().find(|one| !one.small).is_none_or(|one| one.done.is_some());
        if let Work::Messages(len) = self.work
            && len > 0
            && idle
            && now >= self.begins
        {
            messages.push(Message { len, began: now, ..Message::default() });
        }
        if let Work::Stream = self.work
            && messages.is_empty()
        {
            messages.push(Message { len: u64::MAX, began: now, ..Message::default() });
        }
        if let Some((pause, len)) = self.small
            && now >= self.last_small + pause
        {
            self.last_small = now;
            self.session.sent_short(now);
            waiting.push_back(messages.len());
            messages.push(Message { len, small: true, began: now, ..Message::default() });
        }
    }

    /// What the other side had from a lane is known once the other side has said so, by another.
    fn hear(&mut self, now: Time) {
        for lane in std::mem::take(&mut self.queue.retired) {
            let Some(rtt) = self.conns.rtt() else {
                self.queue.retired.push(lane);
                continue;
            };
            self.answers.push_back((now + rtt, lane));
        }
        while let Some((_, lane)) = self.answers.front().copied().filter(|(at, _)| *at <= now) {
            self.answers.pop_front();
            let told = Told { number: lane, acked: Acked::default(), retired: true };
            let heard = self.session.handle_told(now, &told, &mut self.queue, &mut self.conns);
            assert_eq!(heard, Ok(()));
        }
    }

    fn open(&mut self, now: Time, paths: &[Path], flows: &mut usize) {
        for Opening { since, path, over, number, answered } in std::mem::take(&mut self.opening) {
            let spec = paths[self.ways[over][0]].spec;
            if now >= since + 6 * spec.delay && answered && spec.up {
                self.connect(now, over, Some(path), number, paths, *flows);
                *flows += 1;
                if self.lost.contains(&over) {
                    self.opened.push((now, over));
                }
            } else if now >= since + CONNECT {
                self.session.open_failed(now, path, "no answer in time".into(), false);
            } else {
                self.opening.push(Opening { since, path, over, number, answered });
            }
        }
    }

    fn carry_out(&mut self, now: Time, paths: &[Path]) {
        while let Some(action) = self.session.poll_action() {
            match action {
                Action::Open { path, number, way } => {
                    let over = way.pair().expect("interfaces").near.0 as usize - 1;
                    let answered = paths[self.ways[over][0]].spec.up;
                    self.attempts.push(now);
                    self.opening.push(Opening { since: now, path, over, number, answered });
                }
                Action::Abandon { path } => self.opening.retain(|one| one.path != path),
                Action::Event(Which::Lane(_, Some((near, _))), What::Down(_)) => {
                    let IpAddr::V4(ip) = near.ip() else { continue };
                    let path = usize::from(ip.octets()[2]);
                    self.lost.insert(path);
                    self.retired.push((now, path));
                }
                Action::Gone { why, .. } => panic!("the session ended: {why}"),
                Action::Event(..) | Action::Forget(_) => {}
            }
        }
    }
}
