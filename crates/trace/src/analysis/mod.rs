//! Makes sense of a recorded run in one pass over its events, in memory that does not grow with their number.
//!
//! | module | finds out |
//! |---|---|
//! | [`answers`] | how long answers take |
//! | `arrows` | which receive gets what which send gave |
//! | [`connections`] | both ends of each connection side by side |
//! | [`failures`] | connects that failed, datagrams that nobody received |
//! | [`flights`] | messages on their way, the slowest |
//! | [`lanes`] | which sockets are lanes of Polyrail's |
//! | [`messages`] | what a message is; its size, and the gap before it |
//! | [`nodes`] | who talks to whom, and how much |
//! | [`synchrony`] | who talks at the same time |
//! | [`timeline`] | what each process did when |
//! | [`traffic`] | bytes over time |
//! | [`tcp`] | what TCP did to each connection |
//! | [`path`] | how long an MPI message took to the socket, and to its acknowledgement |
//! | [`histogram`] | counts by size |

pub mod answers;
pub(crate) mod arrows;
pub mod connections;
pub mod failures;
pub mod flights;
pub mod histogram;
pub mod lanes;
pub mod messages;
pub mod nodes;
pub mod path;
pub mod synchrony;
pub mod tcp;
pub mod timeline;
pub mod traffic;

use crate::model::{Call, CallEvent, Class, Event, Kind, MpiEvent, Run, Socket, TcpSample};
use failures::Failures;
use messages::{Flow, Pattern, Piece};
use nodes::{Judged, Links, Nodes, Ranks};
use path::{Path, Paths, Sent};
use synchrony::{Concurrency, Synchrony};
use tcp::TcpHistory;
use timeline::{Long, Timeline};

/// How to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Sends that are less than so many ns apart are one message.
    pub message_gap: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { message_gap: 20_000 }
    }
}

/// All calls of one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallTotals {
    /// How many.
    pub calls: u64,
    /// ns inside.
    pub inside: u64,
    /// Longest, in ns.
    pub longest: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Calls that returned an error.
    pub errors: u64,
}

/// All calls of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessTotals {
    /// ns inside calls by class of socket calls ([`timeline::SOCKET_CLASSES`]).
    pub sockets: [u64; 4],
    /// ns inside calls by class of MPI calls ([`timeline::MPI_CLASSES`]).
    pub mpi: [u64; 6],
    /// Calls.
    pub calls: u64,
    /// Bytes sent and received.
    pub bytes: (u64, u64),
    /// Messages begun.
    pub messages: u64,
    /// ns of waiting that ended with bytes of somebody.
    pub waited: u64,
    /// ns of waiting that ended with something else: a timeout, room to send, a new connection.
    pub idle: u64,
}

/// Sender, receiver, and where their cell is among the links.
type Known = (u32, u32, u32);

/// A socket's two directions.
#[derive(Clone, Debug, Default)]
pub struct SocketTraffic {
    /// What was sent.
    pub sent: Flow,
    /// What was received; of datagrams only those of senders that were not traced.
    pub received: Flow,
    /// Bytes and number of datagrams that came from senders that were traced: these tell of them.
    pub heard: (u64, u64),
    /// Datagrams that it received without asking whom they came from, where nothing else says it.
    pub anonymous: u64,
    /// Datagrams that these sent to it.
    pub addressed: u64,
    /// Bytes that were put into shared memory, and taken out of it.
    through: (u64, u64),
    /// What TCP did.
    pub tcp: Option<Box<TcpHistory>>,
    /// Numbers of the pairs that it was used for: sending, receiving.
    pairs: (Option<Known>, Option<Known>),
}

/// How many events of each kind there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Socket calls; a run counts as many as it was.
    pub calls: u64,
    /// Records of socket calls.
    pub records: u64,
    /// MPI calls likewise.
    pub mpi: u64,
    /// Looks at TCP connections.
    pub samples: u64,
    /// Kernel events.
    pub kernel: u64,
    /// Socket calls that moved bytes, and how many, of which nobody knows by which connection.
    pub nameless: (u64, u64),
}

/// What was found out.
#[derive(Debug)]
pub struct Analysis {
    /// How many events there were.
    pub seen: Seen,
    /// Names of the other ends that were not traced; as nodes they follow the processes.
    pub outside: Vec<String>,
    /// Who talked to whom.
    pub links: Links,
    /// By [`Run::sockets`].
    pub sockets: Vec<SocketTraffic>,
    /// By [`Run::processes`].
    pub processes: Vec<ProcessTotals>,
    /// By the functions' numbers.
    pub calls: Vec<CallTotals>,
    /// What failed.
    failures: Failures,
    /// Who did what when.
    pub timeline: Timeline,
    /// Ways of MPI messages.
    pub paths: Paths,
    /// Messages of all sockets.
    pub all: Pattern,
    /// Messages of the directions of connections that together carry 95 % of the communication ([`Pattern::costs`]): what the program is
    /// judged by, lest connections that are idle all the time count.
    pub main: Pattern,
    /// Processes that send on these.
    pub senders: usize,
    /// Point-to-point messages of MPI.
    pub mpi: Pattern,
    /// What processes gave to collectives.
    pub collective: Pattern,
    /// ns of the short and long slots in which simultaneous messages were counted, and what came out for the whole.
    pub synchrony: ((u64, u64), Concurrency),
    /// Likewise by the links' cells.
    pub by_link: Vec<Concurrency>,
}

/// Takes events and finds out.
#[derive(Debug)]
pub struct Analyst<'a> {
    run: &'a Run,
    settings: Settings,
    nodes: Nodes,
    ranks: Ranks,
    synchrony: Synchrony,
    judged: Judged,
    /// By thread: ns of waiting of which it is not known yet what ended it.
    waiting: Vec<u64>,
    /// By socket: points that its time line may have.
    points: usize,
    found: Analysis,
}

/// Points of the time lines of all sockets together.
const POINTS: usize = 240_000;
/// Of one socket.
const SOCKET_POINTS: std::ops::RangeInclusive<usize> = 64..=6000;

/// How many datagrams a call has moved.
fn datagrams(call: &CallEvent) -> u64 {
    match call.call {
        Call::SendMMsg | Call::RecvMMsg => u64::try_from(call.result).unwrap_or(0),
        _ => call.calls.into(),
    }
}

/// Whether nobody knows whom a connection is with.
fn nameless(socket: &Socket) -> bool {
    socket.kind == Kind::Tcp && socket.remote.is_none() && socket.peer.is_none()
}

/// Sockets that are never connected are many in some programs, and have nothing to tell.
fn has_other_end(socket: &Socket) -> bool {
    socket.remote.is_some() || socket.peer.is_some() || socket.kind == Kind::Udp
}

/// Points that a socket's time line may have, where connected ones have so many.
fn points_of(socket: &Socket, connected: usize) -> usize {
    if has_other_end(socket) { connected } else { *SOCKET_POINTS.start() }
}

impl Analysis {
    /// The node at the other end of a socket, where bytes went.
    pub fn other_end(&self, socket: usize) -> Option<u32> {
        let pairs = &self.sockets[socket].pairs;
        pairs.0.map(|pair| pair.1).or(pairs.1.map(|pair| pair.0))
    }
}

impl<'a> Analyst<'a> {
    /// Knows the run, and none of its events.
    pub fn new(run: &'a Run, settings: Settings) -> Self {
        let connections =
            run.sockets.iter().filter(|socket| socket.kind == Kind::Tcp && has_other_end(socket)).count();
        let points = (POINTS / connections.max(1)).clamp(*SOCKET_POINTS.start(), *SOCKET_POINTS.end());
        let found = Analysis {
            seen: Seen::default(),
            outside: Vec::new(),
            links: Links::default(),
            sockets: vec![SocketTraffic::default(); run.sockets.len()],
            processes: vec![ProcessTotals::default(); run.processes.len()],
            calls: vec![CallTotals::default(); 256],
            failures: Failures::default(),
            timeline: Timeline::new(run),
            paths: Paths::default(),
            all: Pattern::default(),
            main: Pattern::default(),
            senders: 0,
            mpi: Pattern::default(),
            collective: Pattern::default(),
            synchrony: ((0, 0), Concurrency::default()),
            by_link: Vec::new(),
        };
        Analyst {
            run,
            settings,
            nodes: Nodes::new(run),
            ranks: Ranks::new(run),
            synchrony: Synchrony::default(),
            judged: Judged::new(run),
            waiting: vec![0; run.threads.len()],
            points,
            found,
        }
    }

    /// Takes an event.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::Call(call) => self.call(call),
            Event::Mpi(call) => self.mpi(call),
            Event::Tcp(sample) => self.sample(sample),
            Event::Kernel(event) => {
                self.found.seen.kernel += 1;
                let tcp = self.found.sockets[event.socket as usize].tcp.get_or_insert_default();
                let points = points_of(&self.run.sockets[event.socket as usize], self.points);
                tcp.event(event, points);
                if let crate::model::KernelEventKind::Probe { snd_una, .. } = event.what {
                    self.found.paths.probe(event.socket, event.at, snd_una);
                }
            }
        }
    }

    fn sample(&mut self, sample: &TcpSample) {
        self.found.seen.samples += 1;
        let tcp = self.found.sockets[sample.socket as usize].tcp.get_or_insert_default();
        let since = if tcp.last.is_some() { tcp.span.1 } else { 0 };
        tcp.sample(sample, points_of(&self.run.sockets[sample.socket as usize], self.points));
        self.found.paths.sample(sample.socket, sample.at, sample.bytes_acked, since);
    }

    fn call(&mut self, call: &CallEvent) {
        let process = self.run.threads[call.thread as usize].process;
        let class = call.call.class();
        let moved = if matches!(class, Class::Send | Class::Receive) { u64::from(call.bytes) } else { 0 };
        let error = if call.result < 0 { call.result.unsigned_abs() } else { 0 };
        self.found.seen.records += 1;
        self.found.seen.calls += u64::from(call.calls);
        self.count(call.call, call.calls, call.inside, moved, error);
        if moved > 0 && call.socket.is_none_or(|socket| nameless(&self.run.sockets[socket as usize])) {
            let (calls, bytes) = &mut self.found.seen.nameless;
            (*calls, *bytes) = (*calls + u64::from(call.calls), bytes.saturating_add(moved));
        }
        let lane = timeline::lane_class(class).1;
        let totals = &mut self.found.processes[process as usize];
        totals.calls += u64::from(call.calls);
        totals.sockets[lane] = totals.sockets[lane].saturating_add(call.inside);
        self.found.timeline.call(
            process,
            false,
            lane,
            Long {
                took: call.took,
                start: call.start,
                thread: call.thread,
                call: call.call as u8,
                other: call.socket.map_or(0, |socket| socket + 1),
                bytes: moved,
                calls: call.calls,
                error,
            },
        );
        // a thread that asks again and again inside MPI does nothing else
        let waited = if call.in_mpi { call.took } else { call.inside };
        match (class, call.socket) {
            (Class::Send, Some(socket)) => self.send(call, process, socket, waited),
            (Class::Receive, Some(socket)) if call.call.is_direct() => {
                self.read_directly(call, process, socket);
            }
            (Class::Receive, Some(socket)) => self.receive(call, process, socket, waited),
            (Class::Open, _) if call.call == Call::Connect => self.found.failures.connect(process, call),
            (Class::Wait, _) | (Class::Receive, None) => {
                let waiting = &mut self.waiting[call.thread as usize];
                *waiting = waiting.saturating_add(waited);
            }
            _ => {}
        }
    }

    fn send(&mut self, call: &CallEvent, process: u32, socket: u32, took: u64) {
        let run = self.run;
        let about = &run.sockets[socket as usize];
        let traffic = &mut self.found.sockets[socket as usize];
        let end = call.start.saturating_add(call.took);
        let waited = std::mem::take(&mut self.waiting[call.thread as usize]);
        let unfinished = traffic.sent.unfinished();
        self.found.timeline.waited(call.thread, if unfinished { 0 } else { timeline::NOTHING });
        if call.bytes == 0 && call.result < 0 {
            traffic.sent.refused();
            return self.idle(process, waited);
        }
        self.nodes.used(socket, process);
        let datagram = about.kind == Kind::Udp;
        if let Some(receiver) = self.nodes.receiver(run, socket, call.to, call.start) {
            let addressed = &mut self.found.sockets[receiver as usize].addressed;
            *addressed = addressed.saturating_add(datagrams(call));
        }
        let traffic = &mut self.found.sockets[socket as usize];
        let stream = matches!(about.kind, Kind::Tcp | Kind::Unix | Kind::Memory);
        let short = stream && call.bytes < call.asked && call.call != Call::SendFile;
        let bytes = u64::from(call.bytes);
        let piece = Piece {
            thread: call.thread,
            start: call.start,
            end,
            bytes,
            short,
            whole: datagram || call.call == Call::ShmPut,
            chosen: true,
        };
        let begun = traffic.sent.piece(piece, self.settings.message_gap);
        if let Some(tcp) = &mut traffic.tcp {
            tcp.send(call.start, end, bytes);
        } else if about.kind == Kind::Tcp {
            traffic.tcp.get_or_insert_default().send(call.start, end, bytes);
        }
        let memory = about.kind == Kind::Memory;
        if memory && !call.call.is_direct() {
            traffic.through.0 = traffic.through.0.saturating_add(bytes.max(1));
        }
        let offset = if memory { traffic.through.0 } else { traffic.sent.bytes };
        let totals = &mut self.found.processes[process as usize];
        totals.bytes.0 = totals.bytes.0.saturating_add(bytes);
        totals.messages += begun;
        let Some(other) = self.nodes.other(run, socket, call.to, call.start) else {
            return self.idle(process, waited);
        };
        let link = self.link(socket, false, process, other);
        let cell = &mut self.found.links.cells[link].2;
        cell.bytes = cell.bytes.saturating_add(bytes);
        cell.sends += u64::from(call.calls);
        let room = if unfinished { waited } else { 0 };
        cell.sending = cell.sending.saturating_add(took).saturating_add(room);
        if begun > 0 {
            cell.messages += begun;
            if self.judged.by(process, other) {
                self.synchrony.message(link, process as usize, call.start);
            }
        }
        self.idle(process, waited - room);
        if call.call.is_direct()
            && let Some(totals) = self.found.processes.get_mut(other as usize)
        {
            totals.bytes.1 = totals.bytes.1.saturating_add(bytes);
        }
        if call.in_mpi && stream && (other as usize) < run.processes.len() {
            // of a socket, an empty message is at least a header
            let bytes = if memory { bytes.max(1) } else { bytes };
            let arrived = call.call.is_direct();
            let sent = Sent { socket, start: call.start, end, bytes, offset, arrived };
            self.found.paths.send((process, other), sent);
        }
    }

    /// Bytes are copied from another process's memory: that one has sent them, though it did nothing.
    fn read_directly(&mut self, call: &CallEvent, process: u32, socket: u32) {
        let run = self.run;
        let Some(other) = self.nodes.other(run, socket, None, call.start) else { return };
        let bytes = u64::from(call.bytes);
        let end = call.start.saturating_add(call.took);
        let piece = Piece {
            thread: call.thread,
            start: call.start,
            end,
            bytes,
            short: false,
            whole: false,
            chosen: true,
        };
        let peer = run.sockets[socket as usize].peer;
        let traffic = &mut self.found.sockets[peer.unwrap_or(socket) as usize];
        let flow = if peer.is_some() { &mut traffic.sent } else { &mut traffic.received };
        let begun = flow.piece(piece, self.settings.message_gap);
        let link = self.link(peer.unwrap_or(socket), peer.is_none(), other, process);
        let cell = &mut self.found.links.cells[link].2;
        cell.bytes = cell.bytes.saturating_add(bytes);
        cell.sends += u64::from(call.calls);
        cell.messages += begun;
        let totals = &mut self.found.processes[process as usize];
        totals.bytes.1 = totals.bytes.1.saturating_add(bytes);
        if let Some(totals) = self.found.processes.get_mut(other as usize) {
            totals.bytes.0 = totals.bytes.0.saturating_add(bytes);
            totals.messages += begun;
            let sent = Sent { socket, start: call.start, end, bytes, offset: 0, arrived: true };
            self.found.paths.send((other, process), sent);
        }
    }

    fn receive(&mut self, call: &CallEvent, process: u32, socket: u32, took: u64) {
        let waiting = &mut self.waiting[call.thread as usize];
        *waiting = waiting.saturating_add(took);
        // what was only looked at is received by another call
        if call.result < 0 || call.peeked {
            return;
        }
        let waited = std::mem::take(waiting);
        let run = self.run;
        let about = &run.sockets[socket as usize];
        let traffic = &mut self.found.sockets[socket as usize];
        let bytes = u64::from(call.bytes);
        // of datagrams, and of messages in shared memory, some are empty
        let moved = bytes > 0 || matches!(about.kind, Kind::Udp | Kind::Memory);
        if moved {
            self.nodes.used(socket, process);
        }
        let other = self.nodes.other(run, socket, call.to, call.start);
        // who does not ask whom a datagram came from has asked somebody for it
        let asked = || traffic.pairs.0.map(|(_, to, _)| to).filter(|_| about.kind == Kind::Udp);
        let other = other.or_else(asked);
        let traced = other.is_some_and(|other| (other as usize) < run.processes.len());
        let mut begun = 0;
        if moved {
            let end = call.start.saturating_add(call.took);
            traffic.sent.turn(end);
            if about.kind == Kind::Memory {
                traffic.through.1 = traffic.through.1.saturating_add(bytes.max(1));
                if let Some(sender) = about.peer {
                    self.found.paths.taken(sender, end, traffic.through.1);
                }
            }
            let whole = about.kind == Kind::Udp;
            if whole && traced {
                traffic.heard.0 = traffic.heard.0.saturating_add(bytes);
                traffic.heard.1 = traffic.heard.1.saturating_add(datagrams(call));
            } else {
                if whole && other.is_none() {
                    traffic.anonymous = traffic.anonymous.saturating_add(datagrams(call));
                }
                // a receive may wait long for a part of a message: what counts is when it got something
                let piece =
                    Piece { thread: call.thread, start: end, end, bytes, short: false, whole, chosen: false };
                begun = traffic.received.piece(piece, self.settings.message_gap);
            }
            let totals = &mut self.found.processes[process as usize];
            totals.bytes.1 = totals.bytes.1.saturating_add(bytes);
        }
        let Some(other) = other else {
            self.found.timeline.waited(call.thread, timeline::NOTHING);
            return self.idle(process, waited);
        };
        let link = self.link(socket, true, other, process);
        // before there was a connection nobody was waited for who had come, and who waits for himself waits for nobody
        let end = call.start.saturating_add(call.took);
        let since = if other == process { 0 } else { end.saturating_sub(about.span.0) };
        let due = waited.min(since);
        self.found.timeline.waited(call.thread, if due > 0 { about.span.0 } else { timeline::NOTHING });
        self.idle(process, waited - due);
        let cell = &mut self.found.links.cells[link].2;
        cell.waited = cell.waited.saturating_add(due);
        if about.awaits_questions() {
            cell.unasked = cell.unasked.saturating_add(due);
        }
        let totals = &mut self.found.processes[process as usize];
        totals.waited = totals.waited.saturating_add(due);
        // what an untraced program sent is known only from what arrived
        if !traced && bytes > 0 {
            cell.bytes = cell.bytes.saturating_add(bytes);
            cell.sends += u64::from(call.calls);
            cell.messages += begun;
        }
    }

    /// The cell from one node to another, remembered by socket.
    fn link(&mut self, socket: u32, receiving: bool, from: u32, to: u32) -> usize {
        let pairs = &mut self.found.sockets[socket as usize].pairs;
        let known = if receiving { &mut pairs.1 } else { &mut pairs.0 };
        match *known {
            Some((f, t, index)) if (f, t) == (from, to) => index as usize,
            _ => {
                let index = self.found.links.find(from, to);
                *known = Some((from, to, index as u32));
                index
            }
        }
    }

    fn idle(&mut self, process: u32, waited: u64) {
        let totals = &mut self.found.processes[process as usize];
        totals.idle = totals.idle.saturating_add(waited);
    }

    fn count(&mut self, call: Call, calls: u32, inside: u64, bytes: u64, error: u32) {
        let totals = &mut self.found.calls[call as u8 as usize];
        totals.calls += u64::from(calls);
        totals.inside = totals.inside.saturating_add(inside);
        totals.longest = totals.longest.max(inside);
        totals.bytes = totals.bytes.saturating_add(bytes);
        totals.errors += if error > 0 { u64::from(calls) } else { 0 };
    }

    fn mpi(&mut self, call: &MpiEvent) {
        let process = self.run.threads[call.thread as usize].process;
        let class = call.call.class();
        self.found.seen.mpi += u64::from(call.calls);
        self.count(call.call, call.calls, call.took, call.bytes, 0);
        let lane = timeline::lane_class(class).1;
        let totals = &mut self.found.processes[process as usize];
        totals.mpi[lane] = totals.mpi[lane].saturating_add(call.took);
        let other = self.ranks.find(self.run, process, call.peer);
        self.found.timeline.call(
            process,
            true,
            lane,
            Long {
                took: call.took,
                start: call.start,
                thread: call.thread,
                call: call.call as u8,
                other: u32::try_from(call.peer).map_or(0, |peer| peer.saturating_add(1)),
                bytes: call.bytes,
                calls: call.calls,
                error: 0,
            },
        );
        if class == Class::MpiCollective {
            self.found.collective.message(call.bytes);
        }
        let Some(other) = other else { return };
        let end = call.start.saturating_add(call.took);
        match class {
            Class::MpiSend => {
                let cell = self.found.links.cell(process, other);
                cell.mpi_send(&mut self.found.mpi, call.start, end, call.bytes);
                // a message to oneself takes no socket
                if other == process {
                    return;
                }
                self.found.paths.message(Path {
                    total: 0,
                    start: call.start,
                    end,
                    first: 0,
                    sent: 0,
                    acknowledged: None,
                    call: call.call as u8,
                    processes: (process, other),
                    over: [None; 4],
                    bytes: call.bytes,
                    tag: call.tag,
                });
            }
            Class::MpiReceive | Class::MpiWait => {
                let cell = self.found.links.cell(other, process);
                cell.mpi_waited = cell.mpi_waited.saturating_add(call.took);
            }
            _ => {}
        }
    }

    /// Puts the messages of all sockets together.
    fn judge(&mut self) {
        let found = &mut self.found;
        let mut flows = Vec::new();
        for (socket, about) in found.sockets.iter().zip(&self.run.sockets) {
            if about.kind == Kind::Other {
                continue;
            }
            flows.push((&socket.sent, socket.pairs.0));
            if about.peer.is_none() {
                flows.push((&socket.received, socket.pairs.1));
            }
        }
        flows.iter().for_each(|(flow, _)| found.all.merge(&flow.pattern));
        flows.retain(|(_, pair)| pair.is_some_and(|(from, to, _)| self.judged.by(from, to)));
        let cost = |flow: &Flow| flow.pattern.costs().iter().sum::<f64>();
        let whole: f64 = flows.iter().map(|(flow, _)| cost(flow)).sum();
        flows.sort_by(|a, b| cost(b.0).total_cmp(&cost(a.0)));
        let mut carried = 0.0;
        let mut senders = std::collections::HashSet::new();
        for (flow, pair) in flows {
            if carried < 0.95 * whole {
                carried += cost(flow);
                found.main.merge(&flow.pattern);
                senders.extend(pair.map(|(from, ..)| from));
            }
        }
        found.senders = senders.len();
    }

    /// No more events.
    pub fn finish(mut self) -> Analysis {
        for (index, waited) in std::mem::take(&mut self.waiting).into_iter().enumerate() {
            self.idle(self.run.threads[index].process, waited);
            self.found.timeline.waited(index as u32, timeline::NOTHING);
        }
        for socket in &mut self.found.sockets {
            socket.sent.close();
            socket.received.close();
            if let Some(tcp) = &mut socket.tcp {
                tcp.finish();
            }
        }
        self.judge();
        self.found.paths.finish();
        // the gap that a connection spends half its time in
        let gap = self.found.main.gaps.weighted_quantile(0.5).unwrap_or(0);
        let (slot, whole, by_link) = self.synchrony.finish(gap);
        (self.found.synchrony, self.found.by_link) = ((slot, whole), by_link);
        self.found.outside = self.nodes.outside;
        self.found
    }
}
