//! One connection of a lane, what of it is on its way, and how an end's session sees all of them.

use super::super::memory::{Bytes, Memory};
use super::super::node::Ticket;
use super::super::rail::{RailSpec, Time, Wire};
use super::super::rng::Rng;
use super::LaneHappening;
use crate::frame::{Acked, Frame, MAX_ACKED, OpId};
use crate::proto::{Next, Out, Place, Region, Span};
use crate::session::{Carrier, Links, Retired, Seen, Sent, ToPeer, UnackedFrame};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

/// So many frames a lane on which they overtake each other lets be on their way or unconfirmed: of these every second one may be
/// missing.
const WINDOW: u64 = 2 * MAX_ACKED as u64;

/// A frame on its way.
pub(super) struct Flight {
    /// Which of the connection's frames.
    pub number: u64,
    pub header: Vec<u8>,
    pub payload: Bytes,
    pub begins: Time,
    pub ends: Time,
    /// Its header arrives before the rest.
    pub long: bool,
    pub begun: bool,
}

/// One direction of a connection, and what its sender keeps.
pub(super) struct Direction {
    pub wire: Wire,
    /// What is on its way, what arrives first at the front.
    pub flights: VecDeque<Flight>,
    /// Frames that the peer is not known to have had, but for ranges, and those that it is known to have had.
    pub kept: VecDeque<UnackedFrame>,
    pub had: Acked,
    pub sent: u64,
    pub given: u64,
    pub acked: u64,
    /// At the receiver: whole frames, how many came since it told of them, and up to which it told that all did.
    pub received: Acked,
    pub untold: u64,
    pub told: u64,
}

impl Direction {
    pub fn new(spec: RailSpec) -> Self {
        let (flights, kept) = (VecDeque::new(), VecDeque::new());
        let wire = Wire::new(spec);
        let (had, received) = (Acked::default(), Acked::default());
        Self { wire, flights, kept, had, sent: 0, given: 0, acked: 0, received, untold: 0, told: 0 }
    }

    /// Forgets the first frames, up to one that is missing; false when that cannot be. A word that was overtaken means nothing. Notes
    /// which sends get back what they lent.
    pub fn confirm(&mut self, acked: &Acked, returned: &mut Vec<OpId>) -> bool {
        if self.had.covers(acked) {
            return true;
        }
        let in_order = self.wire.spec.overtaking.is_none();
        let other = !acked.covers(&self.had) || acked.end() > self.sent;
        if other || in_order && !acked.is_in_order() {
            return false;
        }
        let gone = self.kept.drain(..(acked.upto() - self.had.upto()) as usize);
        returned.extend(gone.filter_map(|unacked| lent(&unacked)));
        self.had = acked.clone();
        true
    }

    /// What the peer has not had that had these; none when that cannot be.
    pub fn reclaim(&mut self, acked: &Acked) -> Option<VecDeque<UnackedFrame>> {
        if !acked.covers(&self.had) || !self.confirm(acked, &mut vec![]) {
            return None;
        }
        let numbers = acked.upto()..;
        let kept = core::mem::take(&mut self.kept).into_iter().zip(numbers);
        Some(kept.filter(|(_, number)| !acked.has(*number)).map(|(unacked, _)| unacked).collect())
    }

    /// A frame has arrived. What the sender is to be told now, if a word about `got` frames, or of so many without a gap, is due.
    pub fn arrived(&mut self, flight: &Flight, got: u64) -> Option<Acked> {
        assert!(self.received.add(flight.number), "a frame comes once by a lane, and not too far ahead");
        self.untold += 1;
        self.acked += flight.header.len() as u64 + flight.payload.len();
        let tells = self.untold >= got || self.received.upto() - self.told >= got;
        tells.then(|| {
            (self.untold, self.told) = (0, self.received.upto());
            self.received.clone()
        })
    }

    /// Whether all frames that have not been confirmed can be spoken of.
    fn is_too_far(&self) -> bool {
        self.wire.spec.overtaking.is_some() && self.sent - self.had.upto() >= WINDOW
    }
}

/// The send that has lent a frame's payload to its connection.
fn lent(unacked: &UnackedFrame) -> Option<OpId> {
    match (unacked.frame(), unacked.span) {
        (Some(Frame::Eager { ack: None, .. }), Some(Span { place: Place::Send(op), .. })) => Some(op),
        _ => None,
    }
}

/// How an end of a connection sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum EndState {
    /// It does not stand yet.
    Making,
    Lane,
    /// It takes nothing more.
    Ended,
    /// Nothing of it is known any more.
    Closed,
}

pub(super) struct Conn {
    /// How the session that opened it calls its path; none of the first.
    pub slot: Option<usize>,
    pub path: usize,
    pub number: u16,
    /// From the lower node, and to it.
    pub ways: [Direction; 2],
    pub ends: [EndState; 2],
    pub broken: bool,
}

/// The connections as one end's session sees them.
pub(super) struct Outlet<'a> {
    pub conns: &'a mut BTreeMap<usize, Conn>,
    pub side: usize,
    pub now: Time,
    pub rng: &'a mut Rng,
    pub memory: &'a mut Memory,
    pub torn: &'a mut u64,
    /// What follows from it.
    pub plans: Vec<(Time, LaneHappening)>,
    /// Connections that were ended, and whether by a reset.
    pub ended: Vec<(usize, bool)>,
    /// Sends that have back what they lent.
    pub returned: Vec<OpId>,
}

impl Outlet<'_> {
    pub fn way(&self, conn: usize) -> Option<&Direction> {
        Some(&self.conns.get(&conn)?.ways[self.side])
    }

    /// Gives a frame to a connection; false when that is full.
    pub fn launch(&mut self, id: usize, header: &[u8], payload: Bytes, unacked: UnackedFrame) -> bool {
        let Some(conn) = self.conns.get_mut(&id) else { return false };
        if conn.ends[self.side] != EndState::Lane {
            return false;
        }
        let size = header.len() + payload.len() as usize;
        let way = &mut conn.ways[self.side];
        if way.is_too_far() {
            return false;
        }
        let Some(times) = way.wire.accept(self.now, size, self.rng) else { return false };
        let number = way.sent;
        way.kept.push_back(unacked);
        way.sent += 1;
        way.given += size as u64;
        let whole = way.wire.spec.overtaking.is_some();
        let long = !whole && payload.len() as usize >= way.wire.spec.split.max(1);
        let (begins, ends) = (times.begins, times.ends);
        if !conn.broken && conn.ends[1 - self.side] < EndState::Ended {
            let flight =
                Flight { number, header: header.to_vec(), payload, begins, ends, long, begun: false };
            // in the order in which they arrive
            let at = way.flights.partition_point(|other| other.ends <= ends);
            way.flights.insert(at, flight);
        }
        self.plans.push((times.left, LaneHappening::Departs(id, self.side, size)));
        self.plans.push((if long { begins } else { ends }, LaneHappening::Arrives(id, 1 - self.side)));
        true
    }

    /// Copies what a send has lent to a connection, or what all have.
    pub fn copy(&mut self, id: usize, send: Option<OpId>) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        for unacked in &mut conn.ways[self.side].kept {
            let Some(op) = lent(unacked).filter(|op| send.is_none_or(|send| send == *op)) else { continue };
            let Some(span) = unacked.span.take() else { continue };
            let bytes = self.memory.read(span);
            *self.torn += u64::from(bytes.is_none());
            unacked.bytes.extend_from_slice(bytes.unwrap_or(Bytes::Real(vec![0xdd; span.len])).real());
            self.returned.push(op);
        }
    }

    pub fn read_or_tear(&mut self, span: crate::proto::Span) -> Bytes {
        self.memory.read(span).unwrap_or_else(|| {
            *self.torn += 1;
            Bytes::Real(vec![0xdd; span.len])
        })
    }
}

impl Links<usize> for Outlet<'_> {
    fn look(&self, conn: usize) -> Option<Seen> {
        let way = self.way(conn).filter(|_| self.conns[&conn].ends[self.side] == EndState::Lane)?;
        let rtt = 2 * way.wire.spec.latency;
        let (delivered, queued) = (way.acked, way.given - way.acked);
        let received = self.conns[&conn].ways[1 - self.side].acked;
        Some(Seen { delivered, received, queued, rtt, min_rtt: rtt, ..Seen::default() })
    }
    fn queued(&self, conn: usize) -> u64 {
        self.way(conn).map_or(0, |way| way.given - way.acked)
    }
    fn given(&self, conn: usize) -> u64 {
        self.way(conn).map_or(0, |way| way.given)
    }
    fn wants_more(&self, conn: usize) -> bool {
        self.way(conn).is_some_and(|way| way.wire.wants_more())
    }
    fn confirm(&mut self, conn: usize, acked: &Acked) -> bool {
        let conn = self.conns.get_mut(&conn);
        conn.is_none_or(|conn| conn.ways[self.side].confirm(acked, &mut self.returned))
    }
    fn retire(&mut self, id: usize) -> Retired {
        self.copy(id, None);
        let Some(conn) = self.conns.get_mut(&id) else { return Retired::default() };
        if conn.ends[self.side] == EndState::Lane {
            conn.ends[self.side] = EndState::Ended;
            // what is on its way to this side is read by nobody
            conn.ways[1 - self.side].flights.clear();
            self.ended.push((id, true));
        }
        let word = |unacked: &&UnackedFrame| matches!(unacked.frame(), Some(Frame::Retire { .. }));
        let said = conn.ways[self.side].kept.iter().filter(word).cloned().collect();
        Retired { received: conn.ways[1 - self.side].received.clone(), said }
    }
    fn reclaim(&mut self, conn: usize, acked: &Acked) -> Option<VecDeque<UnackedFrame>> {
        self.conns.get_mut(&conn)?.ways[self.side].reclaim(acked)
    }
    fn close(&mut self, id: usize) {
        if let Some(conn) = self.conns.get_mut(&id) {
            if conn.ends[self.side] == EndState::Lane {
                self.ended.push((id, false));
            }
            conn.ends[self.side] = EndState::Closed;
        }
    }
}

impl Carrier<usize, ToPeer<'_, Ticket>> for Outlet<'_> {
    fn send(&mut self, conn: usize, next: &Next, traffic: &ToPeer<'_, Ticket>) -> Sent {
        let payload = match next.payload {
            Out::Nothing => Bytes::Real(vec![]),
            Out::Bytes(span) => self.read_or_tear(span),
            Out::Addresses(span) => {
                let Some(region) = self.memory.list(traffic.engine.at(span)) else { return Sent::Unlisted };
                let mut bytes = [0; Region::MAX_BYTES];
                let len = region.encode(&mut bytes);
                Bytes::from(&bytes[..len])
            }
        };
        let header = next.frame.encode(payload.len() as usize).to_vec();
        let lent = traffic.engine.may_lend(next, 1);
        let span = next.lasting().or(lent);
        let mut bytes = header.clone();
        if span.is_none() {
            bytes.extend_from_slice(payload.real());
        }
        let unacked = UnackedFrame { bytes, header: header.len(), span };
        match self.launch(conn, &header, payload, unacked) {
            true if lent.is_some() => Sent::Lent,
            true => Sent::Away,
            false => Sent::Full,
        }
    }

    fn send_again(&mut self, conn: usize, frame: &UnackedFrame) -> bool {
        let (header, copied) = frame.bytes.split_at(frame.header);
        // of an operation that has ended nobody reads the bytes
        let payload = match frame.span {
            Some(span) => self.memory.read(span).unwrap_or_else(|| Bytes::Real(vec![0xee; span.len])),
            None => Bytes::from(copied),
        };
        self.launch(conn, header, payload, frame.clone())
    }
}
