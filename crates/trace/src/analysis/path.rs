//! The way of an MPI message: MPI_Send, send() by one or several connections, acknowledged.
//!
//! Bytes of a stream carry no names. A message's sends are taken to be the ones of the same process to the receiver's process from the
//! MPI call's start on, until they are as many bytes as the message has; what MPI adds (headers, a rendezvous' question) counts
//! like data, so that the last byte's time is a lower bound, off by those few bytes. It is acknowledged when each of the connections that it
//! took is up to there: exact where the kernel's events told it (`tcp:tcp_probe`), else at most the distance of two samples late. What
//! goes through shared memory is acknowledged when the receiver takes it out, and what one process copies from the other's memory when
//! that is done.

use super::histogram::Histogram;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

/// Threads are read some hundred milliseconds apart: what happened is held so long, in ns, to be looked at in the order of time.
const HELD: u64 = 500_000_000;
/// But not more of it than this.
const MOST_HELD: usize = 1 << 18;
/// Messages or sends that wait for their counterpart, per pair of processes.
const WAITING: usize = 64;
/// Acknowledgements that are remembered, per socket.
const ACKNOWLEDGED: usize = 256;
/// Messages that are kept one by one.
const KEPT: usize = 200;
/// Connections of a message that are named.
const NAMED: usize = 4;

/// One message's way. Times are moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path {
    /// From the MPI call's start to the last thing known, in ns: what messages are ordered by.
    pub total: u64,
    /// The MPI call's start.
    pub start: u64,
    /// Its end.
    pub end: u64,
    /// Start of the first send.
    pub first: u64,
    /// End of the send that the last byte was given with.
    pub sent: u64,
    /// When all was acknowledged, and at most how much earlier it may have been.
    pub acknowledged: Option<(u64, u64)>,
    /// Number of the MPI function.
    pub call: u8,
    /// Sender and receiver (processes).
    pub processes: (u32, u32),
    /// Sockets that carried it, and how many bytes each; where there were more, the first ones.
    pub over: [Option<(u32, u64)>; NAMED],
    /// Bytes of the message.
    pub bytes: u64,
    /// The tag.
    pub tag: i32,
}

impl Path {
    fn add(&mut self, socket: u32, bytes: u64) {
        let place = self.over.iter_mut().find(|place| place.is_none_or(|(known, _)| known == socket));
        if let Some(place) = place {
            let before = place.map_or(0, |(_, bytes)| bytes);
            *place = Some((socket, before.saturating_add(bytes)));
        }
    }
}

#[derive(Clone, Debug)]
struct Message {
    path: Path,
    left: u64,
    /// Up to where each socket that carried some of it has to be acknowledged.
    marks: Vec<(u32, u64)>,
    /// When the last part arrived of which that is known already.
    arrived: Option<u64>,
}

/// A message all of which was sent.
#[derive(Debug)]
struct Flying {
    path: Path,
    /// Sockets that are not acknowledged up to there.
    left: usize,
    /// When the last one of the others was, and how late that may be.
    acknowledged: (u64, u64),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub socket: u32,
    pub start: u64,
    pub end: u64,
    pub bytes: u64,
    /// Bytes of the stream up to its end.
    pub offset: u64,
    /// With its end, the bytes are in the receiver's memory.
    pub arrived: bool,
}

#[derive(Debug, Default)]
struct Pair {
    messages: VecDeque<Message>,
    sends: VecDeque<Sent>,
}

#[derive(Debug, Default)]
struct Acknowledgements {
    /// Moment, bytes of the stream, and by how much it may be late.
    known: VecDeque<(u64, u64, u64)>,
    /// Messages that wait until so many bytes are acknowledged.
    waiting: VecDeque<(u64, u64)>,
    /// The newest sequence number, counted on beyond 32 bits.
    sequence: u64,
    last: Option<u64>,
}

#[derive(Debug)]
enum Happened {
    Message(Box<Path>),
    Sent((u32, u32), Sent),
    /// Bytes of a socket acknowledged, and by how much later than it says that may be.
    Known(u32, u64, u64),
    /// The first byte that was not acknowledged when a segment came.
    Probe(u32, u32),
}

#[derive(Debug)]
struct Held {
    at: u64,
    /// Of those at one moment, the first told.
    order: u64,
    what: Happened,
}

impl PartialEq for Held {
    fn eq(&self, other: &Held) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Held) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Held) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// The ways of all messages.
#[derive(Debug, Default)]
pub struct Paths {
    held: BinaryHeap<Reverse<Held>>,
    /// How many were.
    order: u64,
    newest: u64,
    pairs: HashMap<(u32, u32), Pair>,
    sockets: HashMap<u32, Acknowledgements>,
    /// By number.
    flying: HashMap<u64, Flying>,
    kept: BinaryHeap<Reverse<Path>>,
    /// The longest ones, longest first.
    pub longest: Vec<Path>,
    /// MPI messages whose sends were found.
    pub found: u64,
    /// MPI messages to another traced process whose sends were not found (the shared memory of other libraries, for instance).
    pub unfound: u64,
    /// Messages whose acknowledgement was seen.
    pub acknowledged: u64,
    /// ns from the MPI call's start to the first send's start.
    pub to_send: Histogram,
    /// ns from there to the end of the last send.
    pub sending: Histogram,
    /// ns from there to the acknowledgement.
    pub to_acknowledged: Histogram,
}

impl Paths {
    pub(super) fn message(&mut self, path: Path) {
        self.hold(path.start, Happened::Message(Box::new(path)));
    }

    pub(super) fn send(&mut self, processes: (u32, u32), sent: Sent) {
        self.hold(sent.start, Happened::Sent(processes, sent));
    }

    /// The kernel's event: what was acknowledged before the segment at `at` was looked at, so by the one before.
    pub(super) fn probe(&mut self, socket: u32, at: u64, acknowledged: u32) {
        self.hold(at, Happened::Probe(socket, acknowledged));
    }

    /// So many bytes of a link through shared memory have been taken out.
    pub(super) fn taken(&mut self, socket: u32, at: u64, bytes: u64) {
        self.hold(at, Happened::Known(socket, bytes, 0));
    }

    /// A sample: so many bytes are acknowledged by now.
    pub(super) fn sample(&mut self, socket: u32, at: u64, acknowledged: u64, since: u64) {
        self.hold(at, Happened::Known(socket, acknowledged, at.saturating_sub(since)));
    }

    fn hold(&mut self, at: u64, what: Happened) {
        self.newest = self.newest.max(at);
        self.order += 1;
        self.held.push(Reverse(Held { at, order: self.order, what }));
        while let Some(Reverse(oldest)) = self.held.peek()
            && (oldest.at.saturating_add(HELD) < self.newest || self.held.len() > MOST_HELD)
        {
            self.look_at_oldest();
        }
    }

    fn look_at_oldest(&mut self) {
        let Some(Reverse(Held { at, what, .. })) = self.held.pop() else { return };
        match what {
            Happened::Message(path) => self.begun(*path),
            Happened::Sent(processes, sent) => self.gave(processes, sent),
            Happened::Known(socket, acknowledged, late) => self.known(socket, at, acknowledged, late),
            Happened::Probe(socket, acknowledged) => self.probed(socket, at, acknowledged),
        }
    }

    fn begun(&mut self, path: Path) {
        let pair = self.pairs.entry(path.processes).or_default();
        if pair.messages.len() == WAITING {
            pair.messages.pop_front();
            self.unfound += 1;
        }
        pair.messages.push_back(Message { path, left: path.bytes.max(1), marks: Vec::new(), arrived: None });
        self.settle(path.processes);
    }

    fn gave(&mut self, processes: (u32, u32), sent: Sent) {
        let pair = self.pairs.entry(processes).or_default();
        if pair.sends.len() == WAITING {
            pair.sends.pop_front();
        }
        pair.sends.push_back(sent);
        self.settle(processes);
    }

    fn settle(&mut self, processes: (u32, u32)) {
        while let Some(pair) = self.pairs.get_mut(&processes)
            && let Some(message) = pair.messages.front_mut()
        {
            while pair.sends.front().is_some_and(|sent| sent.start < message.path.start) {
                pair.sends.pop_front();
            }
            let Some(sent) = pair.sends.pop_front() else { return };
            let path = &mut message.path;
            if path.first == 0 {
                path.first = sent.start;
            }
            path.add(sent.socket, sent.bytes);
            path.sent = path.sent.max(sent.end);
            match message.marks.iter_mut().find(|mark| mark.0 == sent.socket) {
                _ if sent.arrived => message.arrived = message.arrived.max(Some(sent.end)),
                Some(mark) => mark.1 = sent.offset,
                None => message.marks.push((sent.socket, sent.offset)),
            }
            message.left = message.left.saturating_sub(sent.bytes);
            if message.left == 0
                && let Some(message) = pair.messages.pop_front()
            {
                self.sent(message);
            }
        }
    }

    fn sent(&mut self, message: Message) {
        let Message { path, marks, arrived, .. } = message;
        let number = self.found;
        self.found += 1;
        self.to_send.add(path.first.saturating_sub(path.start));
        self.sending.add(path.sent.saturating_sub(path.first));
        let mut flying = Flying { path, left: 0, acknowledged: (arrived.unwrap_or(0), 0) };
        for (socket, offset) in marks {
            let about = self.sockets.entry(socket).or_default();
            // kernel events may have come before this call's record
            let known = about.known.iter().find(|known| known.1 >= offset && known.0 >= path.first);
            if let Some(&(at, _, late)) = known {
                flying.acknowledged = flying.acknowledged.max((at, late));
                continue;
            }
            let oldest =
                (about.waiting.len() == 4 * ACKNOWLEDGED).then(|| about.waiting.pop_front()).flatten();
            about.waiting.push_back((offset, number));
            flying.left += 1;
            if let Some(oldest) = oldest.and_then(|(_, number)| self.flying.remove(&number)) {
                self.done(oldest.path, None);
            }
        }
        match flying.left {
            0 => self.done(path, Some(flying.acknowledged)),
            _ => drop(self.flying.insert(number, flying)),
        }
    }

    fn probed(&mut self, socket: u32, at: u64, acknowledged: u32) {
        let about = self.sockets.entry(socket).or_default();
        let step = acknowledged.wrapping_sub(about.sequence as u32);
        if step < 1 << 31 {
            about.sequence += u64::from(step);
        }
        let moment = about.last.replace(at).unwrap_or(at);
        let sequence = about.sequence;
        self.known(socket, moment, sequence, 0);
    }

    fn known(&mut self, socket: u32, at: u64, acknowledged: u64, late: u64) {
        let about = self.sockets.entry(socket).or_default();
        if about.known.back().is_none_or(|known| known.1 < acknowledged) {
            if about.known.len() == ACKNOWLEDGED {
                about.known.pop_front();
            }
            about.known.push_back((at, acknowledged, late));
        }
        while let Some(about) = self.sockets.get_mut(&socket)
            && about.waiting.front().is_some_and(|(offset, _)| *offset <= acknowledged)
            && let Some((_, number)) = about.waiting.pop_front()
        {
            let Some(flying) = self.flying.get_mut(&number) else { continue };
            flying.left -= 1;
            flying.acknowledged = flying.acknowledged.max((at.max(flying.path.first), late));
            if flying.left == 0
                && let Some(flying) = self.flying.remove(&number)
            {
                self.done(flying.path, Some(flying.acknowledged));
            }
        }
    }

    fn done(&mut self, mut path: Path, acknowledged: Option<(u64, u64)>) {
        path.acknowledged = acknowledged;
        if let Some((at, _)) = acknowledged {
            self.acknowledged += 1;
            self.to_acknowledged.add(at.saturating_sub(path.sent));
        }
        let last = acknowledged.map_or(path.sent, |(at, _)| at.max(path.sent));
        path.total = last.max(path.end).saturating_sub(path.start);
        self.kept.push(Reverse(path));
        if self.kept.len() > KEPT {
            self.kept.pop();
        }
    }

    pub(super) fn finish(&mut self) {
        while !self.held.is_empty() {
            self.look_at_oldest();
        }
        let waiting: Vec<_> = self.flying.drain().map(|(_, flying)| flying.path).collect();
        waiting.into_iter().for_each(|path| self.done(path, None));
        self.unfound += self.pairs.values().map(|pair| pair.messages.len() as u64).sum::<u64>();
        self.longest = self.kept.drain().map(|path| path.0).collect();
        self.longest.sort_unstable_by(|a, b| b.cmp(a));
        self.pairs.clear();
        self.sockets.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(start: u64, end: u64, bytes: u64) -> Path {
        Path {
            total: 0,
            start,
            end,
            first: 0,
            sent: 0,
            acknowledged: None,
            call: 130,
            processes: (0, 1),
            over: [None; NAMED],
            bytes,
            tag: 7,
        }
    }

    fn sent(start: u64, end: u64, bytes: u64, offset: u64) -> Sent {
        Sent { socket: 4, start, end, bytes, offset, arrived: false }
    }

    #[test]
    fn whichever_record_comes_first() {
        for call_first in [true, false] {
            let mut paths = Paths::default();
            paths.send((0, 1), sent(5, 6, 40, 40)); // before the message: not its own
            if call_first {
                paths.message(path(100, 300, 1000));
            }
            paths.send((0, 1), sent(120, 130, 24, 64));
            paths.send((0, 1), sent(150, 200, 1000, 1064));
            if !call_first {
                paths.message(path(100, 300, 1000));
            }
            paths.probe(4, 250, 64);
            paths.probe(4, 400, 64);
            paths.probe(4, 500, 1064);
            paths.finish();
            let expected = Path {
                total: 300,
                first: 120,
                sent: 200,
                acknowledged: Some((400, 0)),
                over: [Some((4, 1024)), None, None, None],
                ..path(100, 300, 1000)
            };
            assert_eq!(paths.longest, [expected], "{call_first}");
            assert_eq!((paths.found, paths.unfound, paths.acknowledged), (1, 0, 1));
            assert_eq!(paths.to_acknowledged.quantile(0.5), Some(200));
        }
    }

    #[test]
    fn samples_have_a_bound_and_silence_is_told() {
        let mut paths = Paths::default();
        paths.message(path(100, 110, 8));
        paths.send((0, 1), sent(101, 105, 32, 32));
        paths.sample(4, 1000, 32, 90);
        paths.message(path(2000, 2010, 8));
        paths.send((0, 1), sent(2001, 2005, 32, 64));
        paths.message(path(3000, 3010, 8));
        paths.finish();
        assert_eq!(paths.longest[0].acknowledged, Some((1000, 910)));
        assert_eq!(paths.longest[1].acknowledged, None);
        assert_eq!((paths.found, paths.unfound, paths.acknowledged), (2, 1, 1));
    }

    #[test]
    fn a_message_is_acknowledged_when_all_its_lanes_are() {
        for first in [4, 5] {
            let mut paths = Paths::default();
            paths.message(path(100, 300, 1000));
            for (socket, start) in [(4, 110), (5, 120), (4, 130)] {
                paths.send((0, 1), Sent { socket, ..sent(start, start + 5, 400, 1000 * start) });
            }
            paths.probe(first, 140, 0);
            paths.sample(first, 150, 130_000, 150);
            paths.sample(9 - first, 180, 130_000, 150);
            paths.finish();
            assert_eq!(paths.longest[0].over, [Some((4, 800)), Some((5, 400)), None, None]);
            assert_eq!((paths.longest[0].acknowledged, paths.acknowledged), (Some((180, 30)), 1));
        }
    }

    /// The order in which threads are read is not that of time.
    #[test]
    fn messages_find_their_own_sends_whichever_thread_is_read_first() {
        let of_sender = [(0, 8, 0), (1000, 100_000, 1), (2000, 8, 2)];
        for reader_first in [true, false] {
            let mut paths = Paths::default();
            let read = Sent { arrived: true, ..sent(1500, 1600, 100_000, 0) };
            if reader_first {
                paths.send((0, 1), read);
            }
            for (start, bytes, tag) in of_sender {
                if bytes == 8 {
                    paths.send((0, 1), Sent { arrived: true, ..sent(start + 10, start + 20, bytes, 0) });
                }
                paths.message(Path { tag, ..path(start, start + 700, bytes) });
            }
            if !reader_first {
                paths.send((0, 1), read);
            }
            paths.finish();
            let firsts: Vec<_> = paths.longest.iter().map(|path| (path.tag, path.first)).collect();
            assert_eq!((firsts.len(), paths.found), (3, 3));
            assert!([(0, 10), (1, 1500), (2, 2010)].iter().all(|path| firsts.contains(path)), "{firsts:?}");
        }
    }

    #[test]
    fn what_is_copied_from_the_senders_memory_has_arrived() {
        let mut paths = Paths::default();
        paths.message(path(100, 300, 1000));
        paths.send((0, 1), Sent { arrived: true, ..sent(120, 220, 1000, 0) });
        paths.finish();
        assert_eq!((paths.longest[0].sent, paths.longest[0].acknowledged), (220, Some((220, 0))));
    }

    #[test]
    fn sequence_numbers_wrap() {
        let mut paths = Paths::default();
        for at in 0..20u64 {
            paths.probed(1, at, (at * (1 << 30)) as u32);
        }
        assert_eq!(paths.sockets[&1].sequence, 19 << 30);
    }
}
