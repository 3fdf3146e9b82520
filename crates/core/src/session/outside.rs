//! What a session asks of the engine, and of the rails that its lanes are links of.

use super::{Seen, UnackedFrame};
use crate::control::losses::Losses;
use crate::frame::{Acked, Frame};
use crate::proto::{Engine, Next, PeerIdx, Receiver};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// What waits to be sent to one peer, and what is known of its order. Of the engine's methods those that a session needs, for
/// one peer: see [`Engine`] for what they mean.
pub trait Traffic {
    /// A frame that is to leave.
    type Next;

    /// Bytes of a frame's payload.
    fn payload_len(next: &Self::Next) -> usize;
    /// Whether it takes effect in order.
    fn is_sequenced(next: &Self::Next) -> bool;

    /// Sequenced frames that the peer is not known to have seen.
    fn unseen(&self) -> u32;
    /// Bytes of those of them that are parts of puts.
    fn unseen_bytes(&self) -> u64;
    /// The number of the next sequenced frame.
    fn next_seq(&self) -> u32;
    /// The sequenced frame that the peer waits for, as far as it has said.
    fn seen(&self) -> u32;
    /// How many frames or operations wait to leave.
    fn waiting(&self) -> usize;
    /// Bytes that large transfers still have to send.
    fn bulk_left(&self) -> u64;

    /// The next frame; `bulk`: how long a large fragment is wanted, in bytes, 0: none.
    fn poll_transmit(&mut self, bulk: usize) -> Option<Self::Next>;
    /// A lane has taken that frame.
    fn transmitted(&mut self, next: &Self::Next);
    /// A lane has taken that frame and keeps the place of its payload.
    fn lent(&mut self, next: &Self::Next);
    /// A lane has taken all of the value of which that frame is a part.
    fn taken(&mut self, next: &Self::Next);
    /// What that frame was to list cannot be listed.
    fn unlisted(&mut self, next: &Self::Next);
    /// Queues a frame of the session's own.
    fn say(&mut self, frame: Frame);
    /// Tells the peer what was seen of its sequenced frames, at once or when enough has gathered.
    fn tell_seen(&mut self, now: bool);
}

/// An engine's traffic with one peer.
pub struct ToPeer<'a, R: Receiver> {
    /// The engine.
    pub engine: &'a mut Engine<R>,
    /// The peer.
    pub peer: PeerIdx,
}

impl<R: Receiver> Traffic for ToPeer<'_, R> {
    type Next = Next;

    #[inline]
    fn payload_len(next: &Next) -> usize {
        next.payload_len()
    }
    #[inline]
    fn is_sequenced(next: &Next) -> bool {
        next.frame.order().is_some()
    }
    #[inline]
    fn unseen(&self) -> u32 {
        self.engine.unseen(self.peer)
    }
    fn unseen_bytes(&self) -> u64 {
        self.engine.unseen_bytes(self.peer)
    }
    fn next_seq(&self) -> u32 {
        self.engine.next_seq(self.peer)
    }
    fn seen(&self) -> u32 {
        self.engine.seen(self.peer)
    }
    #[inline]
    fn waiting(&self) -> usize {
        self.engine.queued(self.peer)
    }
    fn bulk_left(&self) -> u64 {
        self.engine.bulk_left(self.peer)
    }
    #[inline]
    fn poll_transmit(&mut self, bulk: usize) -> Option<Next> {
        self.engine.poll_transmit(self.peer, bulk)
    }
    #[inline]
    fn transmitted(&mut self, next: &Next) {
        self.engine.transmitted(self.peer, next);
    }
    fn lent(&mut self, next: &Next) {
        self.engine.lent(self.peer, next);
    }
    fn taken(&mut self, _next: &Next) {
        self.engine.value_taken(self.peer);
    }
    fn unlisted(&mut self, next: &Next) {
        self.engine.unlisted(self.peer, next);
    }
    fn say(&mut self, frame: Frame) {
        self.engine.say(self.peer, frame);
    }
    fn tell_seen(&mut self, now: bool) {
        self.engine.tell_seen(self.peer, now);
    }
}

/// What an ended link brought, and what of its last words may be lost.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Retired {
    /// Which whole frames came by it.
    pub received: Acked,
    /// The words that other lanes have ended (RETIRE) which it may not have delivered, oldest first.
    pub said: Vec<UnackedFrame>,
}

/// The links that lanes stand on, as their rails see them. A link stays known from the time it is a lane until
/// [`Links::close`]; once it has ended it takes nothing.
pub trait Links<L> {
    /// How a link is doing; none of one that has ended.
    fn look(&self, link: L) -> Option<Seen>;
    /// Bytes that were given to a link and have not been acknowledged by the peer's side.
    fn queued(&self, link: L) -> u64;
    /// Bytes that were given to a link, altogether.
    fn given(&self, link: L) -> u64;
    /// Whether a large frame would be taken now without queueing much behind what waits.
    fn wants_more(&self, link: L) -> bool;
    /// So much the path of a link loses, as another link by it found: the link need not find it out again.
    fn tell_losses(&mut self, _link: L, _losses: &Losses) {}
    /// The peer has had these frames by a link: what is kept of them may be forgotten. False: that cannot be.
    fn confirm(&mut self, link: L, acked: &Acked) -> bool;
    /// Ends a link, if it has not ended, so that the other side can tell this from the end of a process: by a reset. What was lent to it
    /// is copied and returned.
    fn retire(&mut self, link: L) -> Retired;
    /// What an ended link did not deliver, oldest first, if the peer had these frames; none when that cannot be.
    fn reclaim(&mut self, link: L, acked: &Acked) -> Option<VecDeque<UnackedFrame>>;
    /// Forgets a link.
    fn close(&mut self, link: L);
}

/// What became of a frame that was to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// The link has taken it.
    Away,
    /// The link has taken it, and keeps the place of a payload that its operation need not keep that long
    /// ([`Engine::may_lend`]).
    Lent,
    /// The link has taken all of the value of which the frame is a part, and brings it by means of its own.
    Taken,
    /// The link is full.
    Full,
    /// What it was to list cannot be listed.
    Unlisted,
}

/// Links that frames can be given to.
pub trait Carrier<L, T: Traffic>: Links<L> {
    /// Gives a frame of this traffic to a link.
    fn send(&mut self, link: L, next: &T::Next, traffic: &T) -> Sent;
    /// Gives a frame to a link again, as it was; false when that is full.
    fn send_again(&mut self, link: L, frame: &UnackedFrame) -> bool;
}
