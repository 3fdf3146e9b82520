//! What leaves to a peer in pieces, and whose turn it is.

use crate::frame::OpId;
use alloc::collections::{BTreeMap, BTreeSet};

/// A large transfer that leaves in pieces, in no particular order relative to other frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    pub kind: StreamKind,
    pub next: u64,
    pub end: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum StreamKind {
    /// A send's bytes, to the receiver's operation.
    Fragments { send: OpId, to: OpId },
    /// A region's bytes, to the requester of a get.
    GetData { op: OpId, key: u64, generation: u32, addr: u64 },
}

impl Stream {
    fn left(&self) -> u64 {
        self.end - self.next
    }
}

/// All of a peer's. Piece by piece, in turn, the oldest is served and the one that has least left. So of many alike one ends after the other,
/// rather than all at the end, and a short one waits for no long one, nor that for ever for short ones.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// By their age: each has a number.
    list: BTreeMap<u64, Stream>,
    /// By what they have left.
    shortest: BTreeSet<(u64, u64)>,
    born: u64,
    /// Bytes that are still to leave.
    bulk: u64,
    /// Whose turn it is, until it was served.
    turn: u64,
    by_age: bool,
}

impl Streams {
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Bytes that are still to leave.
    pub fn bulk(&self) -> u64 {
        self.bulk
    }

    pub fn push(&mut self, stream: Stream) {
        if self.list.is_empty() {
            self.turn = self.born;
        }
        self.bulk += stream.left();
        self.shortest.insert((stream.left(), self.born));
        self.list.insert(self.born, stream);
        self.born += 1;
    }

    /// The one whose turn it is.
    pub fn first(&self) -> Option<&Stream> {
        self.list.get(&self.turn)
    }

    /// That one is not sent any more.
    pub fn drop_first(&mut self) {
        if let Some(first) = self.list.remove(&self.turn) {
            self.bulk -= first.left();
            self.shortest.remove(&(first.left(), self.turn));
            self.choose();
        }
    }

    /// So many bytes of that one have left. It, as it is now.
    pub fn left(&mut self, bytes: u64) -> Option<Stream> {
        let first = self.list.get_mut(&self.turn)?;
        self.shortest.remove(&(first.left(), self.turn));
        first.next += bytes;
        self.bulk -= bytes;
        let first = *first;
        match first.left() {
            0 => drop(self.list.remove(&self.turn)),
            left => drop(self.shortest.insert((left, self.turn))),
        }
        self.choose();
        Some(first)
    }

    fn choose(&mut self) {
        self.by_age = !self.by_age;
        let oldest = self.list.first_key_value().map(|(born, _)| *born);
        let shortest = self.shortest.first().map(|(_, born)| *born);
        self.turn = if self.by_age { oldest } else { shortest }.unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn stream(op: u32, len: u64) -> Stream {
        let kind =
            StreamKind::GetData { op: OpId { slot: op, generation: 0 }, key: 0, generation: 0, addr: 0 };
        Stream { kind, next: 0, end: len }
    }

    /// In which order they end, by pieces of ten bytes, and after how many.
    fn ends(streams: &mut Streams, pieces: usize) -> Vec<(u32, usize)> {
        let mut ended = Vec::new();
        for piece in 1..=pieces {
            let Some(bytes) = streams.first().map(|first| first.left().min(10)) else { break };
            let served = streams.left(bytes).expect("there is one");
            let StreamKind::GetData { op, .. } = served.kind else { panic!("it is none of these") };
            if served.left() == 0 {
                ended.push((op.slot, piece));
            }
        }
        ended
    }

    #[test]
    fn of_those_that_are_alike_one_ends_after_the_other() {
        let mut streams = Streams::default();
        (0..4).for_each(|op| streams.push(stream(op, 100)));
        assert_eq!(streams.bulk(), 400);
        assert_eq!(ends(&mut streams, 100), [(0, 10), (1, 20), (2, 30), (3, 40)]);
        assert_eq!((streams.bulk(), streams.len()), (0, 0));
    }

    #[test]
    fn short_ones_wait_for_no_long_one_nor_that_for_ever() {
        let mut streams = Streams::default();
        streams.push(stream(0, 500));
        ends(&mut streams, 10);
        let mut ended = Vec::new();
        for op in 1..20 {
            streams.push(stream(op, 40));
            ended.extend(ends(&mut streams, 8));
        }
        let long = ended.iter().position(|(op, _)| *op == 0).expect("it ends");
        assert!((9..12).contains(&long), "{ended:?}");
        assert!(ended[..long].iter().enumerate().all(|(at, (op, _))| *op == at as u32 + 1), "{ended:?}");
    }

    #[test]
    fn what_is_dropped_owes_nothing() {
        let mut streams = Streams::default();
        (0..3).for_each(|op| streams.push(stream(op, 30)));
        streams.left(10);
        streams.drop_first();
        assert_eq!((streams.bulk(), streams.len()), (60, 2));
        assert_eq!(ends(&mut streams, 100), [(1, 3), (2, 6)]);
    }
}
