//! The way of an MPI message: MPI_Send, send(), acknowledged.
//!
//! Bytes of a stream carry no names. A message's sends are taken to be the ones of the same process to the receiver's process from the
//! MPI call's start on, until they are as many bytes as the message has; what MPI adds (headers, a rendezvous' question) counts
//! like data, so that the last byte's time is a lower bound, off by those few bytes. Its acknowledgement is the first one that covers the
//! stream up to there: exact where the kernel's events told it (`tcp:tcp_probe`), else at most the distance of two samples late.

use super::histogram::Histogram;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

/// Messages or sends that wait for their counterpart, per pair of processes.
const WAITING: usize = 64;
/// Acknowledgements that are remembered, per socket.
const ACKNOWLEDGED: usize = 256;
/// Messages that are kept one by one.
const KEPT: usize = 200;

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
    /// Socket.
    pub socket: u32,
    /// Bytes of the message.
    pub bytes: u64,
    /// The tag.
    pub tag: i32,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    path: Path,
    left: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub socket: u32,
    pub start: u64,
    pub end: u64,
    pub bytes: u64,
    /// Bytes of the stream up to its end.
    pub offset: u64,
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
    waiting: VecDeque<(u64, Path)>,
    /// The newest sequence number, counted on beyond 32 bits.
    sequence: u64,
    last: Option<u64>,
}

/// The ways of all messages.
#[derive(Debug, Default)]
pub struct Paths {
    pairs: HashMap<(u32, u32), Pair>,
    sockets: HashMap<u32, Acknowledgements>,
    kept: BinaryHeap<Reverse<Path>>,
    /// The longest ones, longest first.
    pub longest: Vec<Path>,
    /// MPI messages whose sends were found.
    pub found: u64,
    /// MPI messages to another traced process whose sends were not found (shared memory, for instance).
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
        let pair = self.pairs.entry(path.processes).or_default();
        if pair.messages.len() == WAITING {
            pair.messages.pop_front();
            self.unfound += 1;
        }
        pair.messages.push_back(Message { path, left: path.bytes.max(1) });
        self.settle(path.processes);
    }

    pub(super) fn send(&mut self, processes: (u32, u32), sent: Sent) {
        let Some(pair) = self.pairs.get_mut(&processes) else {
            // MPI's own traffic before the first message, or that message's sends before its record
            self.pairs.entry(processes).or_default().sends.push_back(sent);
            return;
        };
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
                (path.first, path.socket) = (sent.start, sent.socket);
            }
            path.sent = path.sent.max(sent.end);
            message.left = message.left.saturating_sub(sent.bytes);
            if message.left == 0 {
                let path = *path;
                pair.messages.pop_front();
                self.sent(path, sent.offset);
            }
        }
    }

    fn sent(&mut self, path: Path, offset: u64) {
        self.found += 1;
        self.to_send.add(path.first.saturating_sub(path.start));
        self.sending.add(path.sent.saturating_sub(path.first));
        let socket = self.sockets.entry(path.socket).or_default();
        // kernel events may have come before this call's record
        if let Some(&(at, _, late)) =
            socket.known.iter().find(|known| known.1 >= offset && known.0 >= path.first)
        {
            return self.done(path, Some((at, late)));
        }
        if socket.waiting.len() == 4 * ACKNOWLEDGED
            && let Some((_, oldest)) = socket.waiting.pop_front()
        {
            self.done(oldest, None);
        }
        let socket = self.sockets.entry(path.socket).or_default();
        socket.waiting.push_back((offset, path));
    }

    /// The kernel's event: what was acknowledged before the segment at `at` was looked at, so by the one before.
    pub(super) fn probe(&mut self, socket: u32, at: u64, acknowledged: u32) {
        let about = self.sockets.entry(socket).or_default();
        let step = acknowledged.wrapping_sub(about.sequence as u32);
        if step < 1 << 31 {
            about.sequence += u64::from(step);
        }
        let moment = about.last.replace(at).unwrap_or(at);
        let sequence = about.sequence;
        self.known(socket, moment, sequence, 0);
    }

    /// A sample: so many bytes are acknowledged by now.
    pub(super) fn sample(&mut self, socket: u32, at: u64, acknowledged: u64, since: u64) {
        self.known(socket, at, acknowledged, at.saturating_sub(since));
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
            && let Some((_, path)) = about.waiting.pop_front()
        {
            self.done(path, Some((at.max(path.first), late)));
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
        let waiting: Vec<_> = self.sockets.values_mut().flat_map(|about| about.waiting.drain(..)).collect();
        waiting.into_iter().for_each(|(_, path)| self.done(path, None));
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
            socket: 0,
            bytes,
            tag: 7,
        }
    }

    fn sent(start: u64, end: u64, bytes: u64, offset: u64) -> Sent {
        Sent { socket: 4, start, end, bytes, offset }
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
                socket: 4,
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
    fn sequence_numbers_wrap() {
        let mut paths = Paths::default();
        for at in 0..20u64 {
            paths.probe(1, at, (at * (1 << 30)) as u32);
        }
        assert_eq!(paths.sockets[&1].sequence, 19 << 30);
    }
}
