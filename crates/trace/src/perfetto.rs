//! The events as a Perfetto trace (<https://ui.perfetto.dev>): a track per thread, one more for its MPI calls, counters of
//! each TCP connection, marks for what was sent again, and arrows from sends to receives. Times are ns since the run's start.
//!
//! Only the few messages that this needs of Perfetto's `trace_packet.proto` are here, field by field with its numbers.

mod proto;

use crate::analysis::arrows::{Arrow, Arrows, Point};
use crate::model::{Call, Class, Event, KernelEventKind, Kind, Run};
use crate::whole::Whole;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use prost::Message as _;
use proto::*;
use std::collections::{HashMap, HashSet};
use std::io::{BufWriter, Error, Write as _};
use std::path::Path;

/// Numbers of tracks: processes, then threads, their MPI calls, sockets with their counters.
const COUNTERS: usize = 4;
/// Interned names of the numbers that belong to a call.
const NOTES: [&str; 7] = ["bytes", "connection", "error", "calls", "peer", "tag", "asked"];
/// Interned categories.
const CATEGORIES: [&str; 10] = [
    "send",
    "receive",
    "wait",
    "connection",
    "other",
    "mpi send",
    "mpi receive",
    "mpi wait",
    "mpi collective",
    "mpi other",
];
/// Interned name of a mark; calls have their own numbers below.
const AGAIN: u64 = 1001;
const TIMEOUT: u64 = 1002;
const MESSAGE: u64 = 1003;

/// Bytes of packets that are compressed together.
const TOGETHER: usize = 1 << 20;

fn category(class: Class) -> u64 {
    match class {
        Class::Send => 1,
        Class::Receive => 2,
        Class::Wait => 3,
        Class::Open | Class::Close => 4,
        Class::Other => 5,
        Class::MpiSend => 6,
        Class::MpiReceive => 7,
        Class::MpiWait => 8,
        Class::MpiCollective => 9,
        Class::MpiOneSided | Class::MpiOther => 10,
    }
}

/// A trace that is being written.
#[derive(Debug)]
pub struct Trace {
    file: BufWriter<Whole>,
    /// Packets that are not written yet.
    buffer: Vec<u8>,
    arrows: Arrows,
    drawn: u64,
    failed: Option<Error>,
    start: u64,
    threads: u64,
    mpi: u64,
    sockets: u64,
    /// Sockets whose counters were announced, with the values that were told last.
    counters: HashMap<u32, [Option<u64>; COUNTERS]>,
    names: Vec<(u64, String)>,
    packet: TracePacket,
    /// The beginning of a slice, likewise; notes of the next one are put there first.
    begin: TrackEvent,
}

impl Trace {
    /// Begins the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn create(run: &Run, path: &Path) -> Result<Trace, Error> {
        let threads = 1 + run.processes.len() as u64;
        let mpi = threads + run.threads.len() as u64;
        let mut trace = Trace {
            file: BufWriter::with_capacity(1 << 18, Whole::create(path)?),
            buffer: Vec::with_capacity(TOGETHER + (1 << 12)),
            arrows: Arrows::new(run),
            drawn: 0,
            failed: None,
            start: run.span.0,
            threads,
            mpi,
            sockets: mpi + run.threads.len() as u64,
            counters: HashMap::new(),
            names: run.sockets.iter().map(|socket| (1 + u64::from(socket.process), name(socket))).collect(),
            packet: TracePacket {
                trusted_packet_sequence_id: Some(1),
                sequence_flags: Some(2),
                ..TracePacket::default()
            },
            begin: TrackEvent::default(),
        };
        trace.describe(run);
        trace.failed.take().map_or(Ok(trace), Err)
    }

    fn describe(&mut self, run: &Run) {
        let name = |iid, name: &str| InternedName { iid: Some(iid), name: Some(name.into()) };
        let calls = Call::ALL.iter().map(|call| name(1 + *call as u64, call.name()));
        let marks = [
            name(AGAIN, "sent again"),
            name(TIMEOUT, "sent again after a timeout"),
            name(MESSAGE, "message"),
        ];
        let value = |(n, (_, name)): (usize, &(u64, String))| InternedString {
            iid: Some(1 + n as u64),
            str: Some(name.clone().into_bytes()),
        };
        let interned = InternedData {
            event_categories: CATEGORIES.iter().zip(1..).map(|(c, iid)| name(iid, c)).collect(),
            event_names: calls.chain(marks).collect(),
            debug_annotation_names: NOTES.iter().zip(1..).map(|(note, iid)| name(iid, note)).collect(),
            debug_annotation_string_values: self.names.iter().enumerate().map(value).collect(),
        };
        self.write(&TracePacket {
            trusted_packet_sequence_id: Some(1),
            sequence_flags: Some(1),
            interned_data: Some(interned),
            ..TracePacket::default()
        });
        // hosts have process ids of their own, and the viewer knows only one machine
        let mut pids = HashSet::new();
        let unique = run.processes.iter().all(|process| pids.insert(process.pid));
        let pid = |index: u32| {
            let pid = if unique { run.processes[index as usize].pid } else { 1 + index };
            Some(i32::try_from(pid).unwrap_or(i32::MAX))
        };
        for (index, process) in run.processes.iter().enumerate() {
            let host = run.hosts.get(process.host as usize).map_or("?", |host| host.name.as_str());
            let program = process.command.first().map_or("?", String::as_str);
            let program = program.rsplit('/').next().unwrap_or(program);
            let title = match &process.mpi {
                Some(mpi) => format!("rank {} {program} on {host}", mpi.rank),
                None => format!("{program} on {host}, {}", process.pid),
            };
            let process = ProcessDescriptor {
                pid: pid(index as u32),
                cmdline: process.command.clone(),
                process_name: Some(title),
            };
            self.track(TrackDescriptor {
                uuid: Some(1 + index as u64),
                process: Some(process),
                ..Default::default()
            });
        }
        for (index, thread) in run.threads.iter().enumerate() {
            let tid = if unique { thread.tid } else { 1_000_000 + index as u32 };
            let descriptor = ThreadDescriptor {
                pid: pid(thread.process),
                tid: Some(i32::try_from(tid).unwrap_or(i32::MAX)),
                thread_name: Some(thread.name.clone()),
            };
            let uuid = self.threads + index as u64;
            self.track(TrackDescriptor { uuid: Some(uuid), thread: Some(descriptor), ..Default::default() });
            if run.processes[thread.process as usize].mpi.is_some() {
                self.track(TrackDescriptor {
                    uuid: Some(self.mpi + index as u64),
                    parent_uuid: Some(uuid),
                    name: Some("MPI".into()),
                    ..Default::default()
                });
            }
        }
    }

    fn track(&mut self, track: TrackDescriptor) {
        self.write(&TracePacket {
            trusted_packet_sequence_id: Some(1),
            track_descriptor: Some(track),
            ..TracePacket::default()
        });
    }

    /// A packet. An error is kept until the end.
    fn write(&mut self, packet: &TracePacket) {
        append(&mut self.buffer, packet);
        if self.buffer.len() >= TOGETHER {
            self.compress();
        }
    }

    fn compress(&mut self) {
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
        let packed = packed.write_all(&self.buffer).and_then(|()| packed.finish());
        self.buffer.clear();
        let written = packed.and_then(|packed| {
            let mut whole = Vec::with_capacity(packed.len() + 16);
            append(&mut whole, &TracePacket { compressed_packets: Some(packed), ..TracePacket::default() });
            self.file.write_all(&whole)
        });
        self.failed = self.failed.take().or(written.err());
    }

    /// Where an arrow begins and where it ends.
    fn arrow(&mut self, (from, to): Arrow) {
        self.drawn += 1;
        for (point, begins) in [(from, true), (to, false)] {
            let ids = |wanted: bool| if begins == wanted { vec![self.drawn] } else { Vec::new() };
            let mark = TrackEvent {
                kind: Some(3),
                track_uuid: Some(point.track),
                name_iid: Some(MESSAGE),
                flow_ids: ids(true),
                terminating_flow_ids: ids(false),
                ..TrackEvent::default()
            };
            self.event_packet(point.at, mark);
        }
    }

    /// An event's packet, in one that is used again and again; returns the event.
    fn event_packet(&mut self, at: u64, event: TrackEvent) -> TrackEvent {
        self.packet.timestamp = Some(at.saturating_sub(self.start));
        self.packet.track_event = Some(event);
        append(&mut self.buffer, &self.packet);
        if self.buffer.len() >= TOGETHER {
            self.compress();
        }
        self.packet.track_event.take().unwrap_or_default()
    }

    fn slice(&mut self, track: u64, start: u64, took: u64, call: Call) {
        let mut begin = std::mem::take(&mut self.begin);
        begin.kind = Some(1);
        begin.track_uuid = Some(track);
        begin.name_iid = Some(1 + call as u64);
        begin.category_iids.clear();
        begin.category_iids.push(category(call.class()));
        self.begin = self.event_packet(start, begin);
        self.begin.debug_annotations.clear();
        let end = TrackEvent { kind: Some(2), track_uuid: Some(track), ..TrackEvent::default() };
        self.event_packet(start.saturating_add(took), end);
    }

    fn counters(&mut self, socket: u32, at: u64, values: [Option<u64>; COUNTERS]) {
        let first = self.sockets + u64::from(socket) * (COUNTERS as u64 + 1);
        let told = self.announce(socket, first);
        // a counter keeps its value until another one is told
        let news: [Option<u64>; COUNTERS] =
            std::array::from_fn(|n| values[n].filter(|_| values[n] != told[n]));
        self.counters.insert(socket, std::array::from_fn(|n| values[n].or(told[n])));
        for (track, value) in (first..).zip(news).filter_map(|(track, value)| Some((track, value?))) {
            let counter_value = Some(i64::try_from(value).unwrap_or(i64::MAX));
            self.event_packet(
                at,
                TrackEvent { kind: Some(4), track_uuid: Some(track), counter_value, ..TrackEvent::default() },
            );
        }
    }

    /// Describes a socket's tracks once; returns what they told last.
    fn announce(&mut self, socket: u32, first: u64) -> [Option<u64>; COUNTERS] {
        if let Some(told) = self.counters.get(&socket) {
            return *told;
        }
        self.counters.insert(socket, [None; COUNTERS]);
        let (parent, name) = self.names[socket as usize].clone();
        let kinds =
            [("window", "segments"), ("threshold", "segments"), ("in flight", "bytes"), ("round trip", "us")];
        for (track, (what, unit)) in (first..).zip(kinds) {
            let counter = CounterDescriptor { unit_name: Some(unit.into()) };
            self.track(TrackDescriptor {
                uuid: Some(track),
                parent_uuid: Some(parent),
                name: Some(format!("{what}: {name}")),
                counter: Some(counter),
                ..Default::default()
            });
        }
        self.track(TrackDescriptor {
            uuid: Some(first + COUNTERS as u64),
            parent_uuid: Some(parent),
            name: Some(format!("sent again: {name}")),
            ..Default::default()
        });
        [None; COUNTERS]
    }

    /// Adds an event. What cannot be written is told by [`Trace::finish`].
    pub fn event(&mut self, run: &Run, event: &Event) {
        match event {
            Event::Call(call) => {
                let notes = &mut self.begin.debug_annotations;
                if call.bytes > 0 {
                    notes.push(DebugAnnotation::number(1, call.bytes.into()));
                }
                if let Some(socket) = call.socket {
                    notes.push(DebugAnnotation::string(2, 1 + u64::from(socket)));
                }
                if call.result < 0 {
                    notes.push(DebugAnnotation::number(3, i64::from(call.result).abs()));
                }
                if call.calls > 1 {
                    notes.push(DebugAnnotation::number(4, call.calls.into()));
                }
                let track = self.threads + u64::from(call.thread);
                self.slice(track, call.start, call.took, call.call);
                let [start, end] = ends(track, call.start, call.took);
                let mut found = Vec::new();
                self.arrows.call(run, call, start, end, &mut |arrow| found.push(arrow));
                found.into_iter().for_each(|arrow| self.arrow(arrow));
            }
            Event::Mpi(call) => {
                let notes = &mut self.begin.debug_annotations;
                notes.push(DebugAnnotation::number(1, i64::try_from(call.bytes).unwrap_or(i64::MAX)));
                if call.peer >= 0 {
                    notes.push(DebugAnnotation::number(5, call.peer.into()));
                    notes.push(DebugAnnotation::number(6, call.tag.into()));
                }
                let track = self.mpi + u64::from(call.thread);
                self.slice(track, call.start, call.took, call.call);
                let process = run.threads[call.thread as usize].process;
                if let Some(world) = &run.processes[process as usize].mpi {
                    let rank = i32::try_from(world.rank).unwrap_or(i32::MAX);
                    let [start, end] = ends(track, call.start, call.took);
                    let mut found = Vec::new();
                    self.arrows.mpi(rank, call, start, end, &mut |arrow| found.push(arrow));
                    found.into_iter().for_each(|arrow| self.arrow(arrow));
                }
            }
            Event::Tcp(sample) => {
                let flight = u64::from(sample.unacked) * u64::from(sample.mss);
                let values = [
                    Some(sample.cwnd.into()),
                    threshold(sample.ssthresh),
                    Some(flight),
                    Some(sample.rtt.into()),
                ];
                self.counters(sample.socket, sample.at, values);
            }
            Event::Kernel(event) => match event.what {
                KernelEventKind::Probe { snd_nxt, snd_una, cwnd, ssthresh, rtt, .. } => {
                    let flight = snd_nxt.wrapping_sub(snd_una);
                    let values =
                        [Some(cwnd.into()), threshold(ssthresh), Some(flight.into()), Some(rtt.into())];
                    self.counters(event.socket, event.at, values);
                }
                KernelEventKind::Retransmit { timeout } => {
                    let first = self.sockets + u64::from(event.socket) * (COUNTERS as u64 + 1);
                    self.announce(event.socket, first);
                    let mark = TrackEvent {
                        kind: Some(3),
                        track_uuid: Some(first + COUNTERS as u64),
                        name_iid: Some(if timeout { TIMEOUT } else { AGAIN }),
                        ..TrackEvent::default()
                    };
                    self.event_packet(event.at, mark);
                }
                KernelEventKind::State { .. } | KernelEventKind::Congestion { .. } => {}
            },
        }
    }

    /// Ends the file.
    ///
    /// # Errors
    /// Something could not be written, now or before.
    pub fn finish(mut self) -> Result<(), Error> {
        self.compress();
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.file.into_inner().map_err(|error| error.into_error())?.finish()
    }
}

/// Appends a packet as the field 1 that a trace consists of.
fn append(buffer: &mut Vec<u8>, packet: &TracePacket) {
    buffer.push(0x0a);
    packet.encode_length_delimited(buffer).expect("a vector has room for it");
}

/// A slice's first moment, and its last one inside.
fn ends(track: u64, start: u64, took: u64) -> [Point; 2] {
    [start, start.saturating_add(took.saturating_sub(1))].map(|at| Point { track, at })
}

fn threshold(segments: u32) -> Option<u64> {
    (segments < 0x7fff_ffff).then_some(segments.into())
}

fn name(socket: &crate::model::Socket) -> String {
    let kind = match socket.kind {
        Kind::Tcp => "tcp",
        Kind::Udp => "udp",
        Kind::Unix => "unix",
        Kind::Memory => "shared memory",
        Kind::Other => "other",
    };
    let show =
        |address: Option<std::net::SocketAddr>| address.map_or("?".into(), |address| address.to_string());
    format!("{kind} {} > {}", show(socket.local), show(socket.remote))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CallEvent, KernelEvent, Process, Socket, TcpSample, Thread};

    #[derive(Clone, PartialEq, prost::Message)]
    struct Whole {
        #[prost(message, repeated, tag = "1")]
        packet: Vec<TracePacket>,
    }

    fn read(path: &Path) -> Whole {
        let outer = Whole::decode(&std::fs::read(path).unwrap()[..]).unwrap();
        let mut bytes = Vec::new();
        for packet in outer.packet {
            let packed = packet.compressed_packets.unwrap();
            std::io::Read::read_to_end(&mut flate2::read::ZlibDecoder::new(&packed[..]), &mut bytes).unwrap();
        }
        Whole::decode(&bytes[..]).unwrap()
    }

    fn sample(at: u64, cwnd: u32) -> Event {
        Event::Tcp(TcpSample { at, cwnd, ssthresh: 0x7fff_ffff, rtt: 50, ..TcpSample::default() })
    }

    #[test]
    fn what_is_written_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let run = Run {
            span: (1000, 9000),
            processes: vec![Process { pid: 7, ..Process::default() }],
            threads: vec![Thread { tid: 8, ..Thread::default() }],
            sockets: vec![Socket { kind: Kind::Tcp, ..Socket::default() }],
            ..Run::default()
        };
        let mut trace = Trace::create(&run, &path).unwrap();
        trace.event(
            &run,
            &Event::Call(CallEvent {
                thread: 0,
                call: Call::Send,
                start: 1500,
                took: 250,
                inside: 250,
                calls: 1,
                socket: Some(0),
                result: 99,
                bytes: 99,
                asked: 99,
                to: None,
                in_mpi: false,
                peeked: false,
            }),
        );
        trace.event(&run, &sample(2000, 10));
        trace.event(&run, &sample(3000, 10));
        trace.event(&run, &sample(4000, 12));
        let what = KernelEventKind::Retransmit { timeout: true };
        trace.event(&run, &Event::Kernel(KernelEvent { socket: 0, at: 5000, what }));
        trace.finish().unwrap();
        let whole = read(&path);
        let events: Vec<_> =
            whole.packet.iter().filter_map(|p| Some((p.timestamp?, p.track_event.as_ref()?))).collect();
        let (thread, sockets) = (2, 4);
        let seen: Vec<_> = events
            .iter()
            .map(|(at, e)| (*at, e.kind.unwrap(), e.track_uuid.unwrap(), e.counter_value))
            .collect();
        assert_eq!(
            seen,
            [
                (500, 1, thread, None),
                (750, 2, thread, None),
                (1000, 4, sockets, Some(10)),
                (1000, 4, sockets + 2, Some(0)),
                (1000, 4, sockets + 3, Some(50)),
                (3000, 4, sockets, Some(12)),
                (4000, 3, sockets + 4, None),
            ]
        );
        let notes = &events[0].1.debug_annotations;
        assert_eq!(notes[..], [DebugAnnotation::number(1, 99), DebugAnnotation::string(2, 1)]);
        let tracks: Vec<_> = whole.packet.iter().filter_map(|p| p.track_descriptor.as_ref()?.uuid).collect();
        assert_eq!(tracks, [1, 2, 4, 5, 6, 7, 8]);
        let interned = whole.packet.iter().find_map(|p| p.interned_data.as_ref()).unwrap();
        assert!(interned.event_names.iter().any(|name| name.iid == Some(MESSAGE)));
        let name = events[0].1.name_iid;
        assert_eq!(
            interned.event_names.iter().find(|n| n.iid == name).unwrap().name.as_deref(),
            Some("send")
        );
    }

    #[test]
    fn an_arrow_goes_from_the_send_to_the_receive() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let end = |peer| Socket { kind: Kind::Tcp, peer: Some(peer), begun: peer == 1, ..Socket::default() };
        let run = Run {
            span: (0, 9000),
            processes: vec![Process::default(), Process::default()],
            threads: vec![Thread::default(), Thread { process: 1, ..Thread::default() }],
            sockets: vec![end(1), end(0)],
            ..Run::default()
        };
        let call = |thread, call, start, bytes| {
            Event::Call(CallEvent {
                thread,
                call,
                start,
                took: 100,
                inside: 100,
                calls: 1,
                socket: Some(thread),
                result: bytes as i32,
                bytes,
                asked: bytes,
                to: None,
                in_mpi: false,
                peeked: false,
            })
        };
        let mut trace = Trace::create(&run, &path).unwrap();
        // as files are read: who receives may come first
        trace.event(&run, &call(1, Call::Recv, 500, 8));
        trace.event(&run, &call(0, Call::Send, 200, 5));
        trace.event(&run, &call(0, Call::Send, 350, 3));
        trace.finish().unwrap();
        let whole = read(&path);
        let marks = whole.packet.iter().filter_map(|p| Some((p.timestamp?, p.track_event.as_ref()?)));
        let marks: Vec<_> = marks
            .filter(|(_, event)| event.name_iid == Some(MESSAGE))
            .map(|(at, event)| {
                (at, event.track_uuid.unwrap(), event.flow_ids.clone(), event.terminating_flow_ids.clone())
            })
            .collect();
        let (sender, receiver) = (3, 4);
        assert_eq!(
            marks,
            [
                (200, sender, vec![1], vec![]),
                (599, receiver, vec![], vec![1]),
                (350, sender, vec![2], vec![]),
                (599, receiver, vec![], vec![2]),
            ]
        );
    }
}
