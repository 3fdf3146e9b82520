//! Which receive gets what which send gave: of streams by counting bytes, of MPI's point-to-point messages by their order.
//!
//! A stream's arrow goes from a send to the receive that takes its last byte. It is drawn only where a connection was recorded from its beginning and
//! no record was lost: elsewhere offsets say nothing. An MPI message's goes from the call that sends it to the call that receives it, where that
//! names sender and tag, and waits for it.

use std::collections::{HashMap, VecDeque};

use crate::model::{Call, CallEvent, Class, Kind, MpiEvent, Run};

/// Sends that wait for their receives, and the other way round, for one stream or one pair of ranks: an application far ahead of its peer, or
/// something that was not recorded.
const WAITING: usize = 1 << 16;

/// One end of an arrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    /// The event's track.
    pub track: u64,
    pub at: u64,
}

/// From where to where.
pub(crate) type Arrow = (Point, Point);

/// Two sides of one direction, each in order; they become known in any order.
#[derive(Debug, Default)]
struct Both {
    /// Offset behind each send, and where it was.
    sent: VecDeque<(u64, Point)>,
    received: VecDeque<(u64, Option<Point>)>,
    bytes: (u64, u64),
    broken: bool,
}

impl Both {
    fn send(&mut self, bytes: u64, from: Point, each: &mut dyn FnMut(Arrow)) {
        self.bytes.0 += bytes;
        self.sent.push_back((self.bytes.0, from));
        self.join(each);
    }

    fn receive(&mut self, bytes: u64, to: Option<Point>, each: &mut dyn FnMut(Arrow)) {
        self.bytes.1 += bytes;
        self.received.push_back((self.bytes.1, to));
        self.join(each);
    }

    fn join(&mut self, each: &mut dyn FnMut(Arrow)) {
        while let (Some((sent, from)), Some((received, to))) = (self.sent.front(), self.received.front()) {
            if received < sent {
                self.received.pop_front();
                continue;
            }
            // an arrow into the past says that they do not belong together
            self.broken |= to.is_some_and(|to| to.at < from.at);
            if let (Some(to), false) = (to, self.broken) {
                each((*from, *to));
            }
            self.sent.pop_front();
        }
        if self.broken || self.sent.len().max(self.received.len()) > WAITING {
            *self = Both { broken: true, ..Both::default() };
        }
    }
}

/// A message's ranks, tag and communicator: MPI keeps the order of those that agree in all.
type Envelope = (i32, i32, i32, u16);

#[derive(Debug, Default)]
pub(crate) struct Arrows {
    /// Records were lost: nothing is joined.
    lost: bool,
    /// By the socket that sends.
    streams: HashMap<u32, Both>,
    mpi: HashMap<Envelope, Both>,
    /// Ranks that have received from whoever sends: what they name otherwise is another message than it seems.
    wild: std::collections::HashSet<i32>,
}

impl Arrows {
    pub fn new(run: &Run) -> Arrows {
        Arrows { lost: run.threads.iter().any(|thread| thread.lost > 0), ..Arrows::default() }
    }

    /// A call on a socket, which begins and ends at these points.
    pub fn call(
        &mut self,
        run: &Run,
        call: &CallEvent,
        start: Point,
        end: Point,
        each: &mut dyn FnMut(Arrow),
    ) {
        let Some(socket) = call.socket.filter(|_| call.bytes > 0 && !self.lost && !call.call.is_direct())
        else {
            return;
        };
        let about = &run.sockets[socket as usize];
        let Some(peer) = about.peer.filter(|_| matches!(about.kind, Kind::Tcp | Kind::Unix | Kind::Memory))
        else {
            return;
        };
        if !about.begun && !run.sockets[peer as usize].begun {
            return;
        }
        match call.call.class() {
            Class::Send => {
                self.streams.entry(socket).or_default().send(call.bytes.into(), start, each);
            }
            Class::Receive => {
                self.streams.entry(peer).or_default().receive(call.bytes.into(), Some(end), each);
            }
            _ => {}
        }
    }

    /// An MPI call of a process of this rank.
    pub fn mpi(&mut self, rank: i32, call: &MpiEvent, start: Point, end: Point, each: &mut dyn FnMut(Arrow)) {
        use Call::{MpiIrecv, MpiRecv};
        if self.lost {
            return;
        }
        match call.call.class() {
            Class::MpiSend if call.peer >= 0 => {
                let envelope = (rank, call.peer, call.tag, call.comm);
                self.mpi.entry(envelope).or_default().send(1, start, each);
            }
            Class::MpiReceive if [MpiRecv, MpiIrecv].contains(&call.call) => {
                if call.peer == -1 || call.tag < 0 {
                    self.wild.insert(rank);
                }
                if call.peer >= 0 && !self.wild.contains(&rank) {
                    // what is only asked for arrives at another time
                    let to = (call.call == MpiRecv).then_some(end);
                    let envelope = (call.peer, rank, call.tag, call.comm);
                    self.mpi.entry(envelope).or_default().receive(1, to, each);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(at: u64) -> Point {
        Point { track: 0, at }
    }

    #[test]
    fn a_send_goes_to_who_takes_its_last_byte() {
        let mut arrows = Vec::new();
        let mut both = Both::default();
        let mut each = |(from, to): Arrow| arrows.push((from.at, to.at));
        both.send(10, at(1), &mut each);
        both.receive(4, Some(at(5)), &mut each);
        both.receive(10, Some(at(6)), &mut each); // the rest, and some of the next two
        both.send(3, at(2), &mut each);
        both.send(5, at(3), &mut each);
        both.receive(4, Some(at(7)), &mut each);
        assert_eq!(arrows, [(1, 6), (2, 6), (3, 7)]);
        assert!(both.sent.is_empty() && !both.broken);
    }

    #[test]
    fn what_does_not_fit_together_is_left() {
        let mut arrows = 0;
        let mut both = Both::default();
        both.receive(8, Some(at(5)), &mut |_| arrows += 1);
        both.send(8, at(6), &mut |_| arrows += 1);
        both.send(8, at(7), &mut |_| arrows += 1);
        both.receive(8, Some(at(9)), &mut |_| arrows += 1);
        assert_eq!(arrows, 0);
        let mut both = Both::default();
        for number in 0..WAITING as u64 + 5 {
            both.send(1, at(number), &mut |_| arrows += 1);
        }
        assert!(both.broken && both.sent.is_empty());
    }

    proptest! {
        #[test]
        fn every_send_has_one_arrow_in_any_order_of_reading(
            sends in prop::collection::vec(1u64..50, 1..30), cuts in prop::collection::vec(1u64..50, 1..80), order in any::<u64>(),
        ) {
            let whole: u64 = sends.iter().sum();
            let mut left = whole;
            let mut receives: Vec<u64> = cuts.iter().map(|cut| { let some = left.min(*cut); left -= some; some }).collect();
            receives.push(left);
            let (mut both, mut arrows) = (Both::default(), Vec::new());
            let (mut sends, mut receives) = (sends.iter().enumerate(), receives.iter().enumerate());
            for turn in 0..200 {
                let mut each = |(from, to): Arrow| arrows.push((from.at, to.at));
                if order >> (turn % 64) & 1 == 0 {
                    if let Some((number, bytes)) = sends.next() { both.send(*bytes, at(number as u64), &mut each); }
                } else if let Some((number, bytes)) = receives.next() {
                    both.receive(*bytes, Some(at(1000 + number as u64)), &mut each);
                }
            }
            let mut each = |(from, to): Arrow| arrows.push((from.at, to.at));
            sends.for_each(|(number, bytes)| both.send(*bytes, at(number as u64), &mut each));
            let mut each = |(from, to): Arrow| arrows.push((from.at, to.at));
            receives.for_each(|(number, bytes)| both.receive(*bytes, Some(at(1000 + number as u64)), &mut each));
            let from: Vec<u64> = arrows.iter().map(|arrow| arrow.0).collect();
            prop_assert_eq!(from.len() as u64, both.bytes.0.min(from.len() as u64));
            prop_assert!(from.windows(2).all(|two| two[0] + 1 == two[1]));
            prop_assert!(arrows.windows(2).all(|two| two[0].1 <= two[1].1));
            prop_assert!(both.sent.is_empty());
        }
    }
}
