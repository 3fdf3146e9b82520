//! What a peer may have outstanding, so that nothing that waits for it grows without bound.
//!
//! A **request** is a frame that its receiver answers by itself, whatever its user does: the last PUT of a put, PUT_RTS, GET,
//! ATOMIC, and EAGER that asks for ATS. The requester has at most [`Bounds::requests`] without an answer at one peer, whose
//! answers return at most [`Bounds::values`] bytes of values; what is beyond stays in its own queue. The target counts what it
//! has been asked and has not handed the answer of to a rail: never more than what the requester counts, for whom requests and
//! answers on their way are outstanding, too. So who exceeds the bound at the target has broken the protocol, and is cut.
//!
//! This cannot deadlock, even if both sides do it to each other: nobody ever stops reading, answers never wait behind requests
//! (`Engine::poll_transmit` names them first), and a request is answered without any other frame's having to come. A side that
//! holds requests back thus waits only for its peer to make progress, as it does for room on a link.
//!
//! Announcements (RTS) are different: their answer waits for a receive, which may wait for a message behind them, so that
//! holding one back for ever could stop a correct program. The engine never holds them back, and the driver only for a
//! while; a receiver cuts who has announced more than
//! [`Bounds::announced`] messages that it has not answered.

use crate::frame::{Frame, MAX_PAYLOAD};

/// What one peer may have outstanding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Requests without an answer. Both sides keep to it.
    pub requests: u32,
    /// Bytes of values that the answers to atomic operations among them bring; no less than one frame carries. Both sides
    /// keep to it.
    pub values: u64,
    /// Announced messages without an answer. The receiver's own affair.
    pub announced: u32,
}

impl Bounds {
    /// What the wire format says of requests (`docs/wire-frames.md`), and a million announced messages.
    pub const DEFAULT: Self = Self { requests: 32768, values: 16 << 20, announced: 1 << 20 };
}

impl Default for Bounds {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Most bytes of values that the answer to a request of so many brings: they come in one frame.
pub(super) fn values(len: u64) -> u32 {
    len.min(MAX_PAYLOAD as u64) as u32
}

/// The requester's side: what a peer has not answered.
#[derive(Debug, Default)]
pub(super) struct Asked {
    requests: u32,
    values: u64,
    /// A request waits until there are fewer.
    held: bool,
}

impl Asked {
    /// Whether a request whose answer brings so many bytes of values may leave. If not, [`Asked::answered`] says when it may.
    #[inline]
    pub fn has_room(&mut self, values: u32, bounds: &Bounds) -> bool {
        let room =
            self.requests < bounds.requests && self.values.saturating_add(u64::from(values)) <= bounds.values;
        self.held |= !room;
        room
    }

    #[inline]
    pub fn left(&mut self, values: u32) {
        self.requests += 1;
        self.values += u64::from(values);
    }

    /// A request has its answer. True: another one waits for that.
    #[inline]
    pub fn answered(&mut self, values: u32) -> bool {
        self.requests = self.requests.saturating_sub(1);
        self.values = self.values.saturating_sub(u64::from(values));
        core::mem::take(&mut self.held)
    }
}

/// What an answer to a peer settles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Settles {
    /// Nothing that is counted.
    Nothing,
    /// A request.
    Request,
    /// An announced message.
    Announced,
}

/// The target's side: what a peer has asked for, and no rail has taken the answer to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Owed {
    /// Requests.
    pub requests: u32,
    /// Bytes of values that are kept for it.
    pub values: u64,
    /// Messages that it has announced.
    pub announced: u32,
}

impl Owed {
    /// A frame takes effect; why the peer is to be cut, if it must not.
    #[inline]
    pub(super) fn take(&mut self, frame: &Frame, bounds: &Bounds) -> Result<(), &'static str> {
        match frame {
            Frame::Eager { ack: Some(_), .. }
            | Frame::Put { last: true, .. }
            | Frame::PutRts { .. }
            | Frame::Get { .. }
            | Frame::Atomic { .. } => self.take_request(bounds),
            Frame::Rts { .. } => {
                self.announced += 1;
                let room = self.announced <= bounds.announced;
                room.then_some(()).ok_or(
                    "it announced more messages than POLYRAIL_ANNOUNCED allows and no receive has taken",
                )
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn too_much() -> &'static str {
        "it asked for more than it may have outstanding, and did not take the answers"
    }

    fn take_request(&mut self, bounds: &Bounds) -> Result<(), &'static str> {
        self.requests += 1;
        // values are known when the operation is done: it is the request after them that is refused
        let room = self.requests <= bounds.requests && self.values <= bounds.values;
        room.then_some(()).ok_or_else(Self::too_much)
    }

    /// The answer to a request that was taken brings so many bytes of values, which are kept until it has left.
    pub(super) fn keep(&mut self, values: usize) {
        self.values += values as u64;
    }

    /// A rail has taken an answer, with so many bytes of values.
    #[inline]
    pub(super) fn settle(&mut self, what: Settles, values: usize) {
        // an answer may be to a question of an earlier session, of which nothing is counted any more
        match what {
            Settles::Nothing => {}
            Settles::Request => self.requests = self.requests.saturating_sub(1),
            Settles::Announced => self.announced = self.announced.saturating_sub(1),
        }
        self.values = self.values.saturating_sub(values as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: Bounds = Bounds { requests: 2, values: 20, announced: 1 };

    #[test]
    fn who_asks_keeps_to_both_bounds_and_is_told_when_there_is_room_again() {
        let mut asked = Asked::default();
        assert!(asked.has_room(20, &FEW));
        asked.left(20);
        assert!(asked.has_room(0, &FEW) && !asked.has_room(1, &FEW));
        asked.left(0);
        assert!(!asked.has_room(0, &FEW));
        assert!(asked.answered(20) && !asked.answered(0), "told once");
        assert!(asked.has_room(20, &FEW));
    }

    #[test]
    fn who_is_asked_counts_until_the_answer_has_left() {
        let mut owed = Owed::default();
        assert!(owed.take_request(&FEW).is_ok() && owed.take_request(&FEW).is_ok());
        owed.settle(Settles::Request, 0);
        owed.keep(20);
        assert!(owed.take_request(&FEW).is_ok());
        (0..2).for_each(|_| owed.settle(Settles::Request, 10));
        assert_eq!(owed, Owed::default());
        (0..2).for_each(|_| assert!(owed.take_request(&FEW).is_ok()));
        assert!(owed.take_request(&FEW).is_err(), "a third request");
        let mut owed = Owed { values: 21, ..Owed::default() };
        assert!(owed.take_request(&FEW).is_err(), "values");
    }
}
