//! Values of the asynchronous scheme, as frames: VALUE carries a value or a part of one, VALUE_HAD says which of a tag is there.
//!
//! Nobody waits. What is put stands in its tag's register until a lane has room, and is replaced by what is put later. A lane and a peer that
//! does not look hold little that is old: of each tag [`AHEAD`] values at most are on their way of which it is not known that they were
//! had, and no other beside one that is long. More than one, for else a tag would have one value in a round trip, and who looks seldom
//! would find the value that left just after the last look.
//!
//! A rail may have means of its own for values: it takes them whole, and gives back what it does not bring.
//!
//! Frames of values are in no order with messages, and take turns with them where both wait.

use super::peer::Route;
use super::types::{Next, Out, PeerIdx, Place, Queue, Receiver, Span};
use super::{Directive, Engine};
use crate::frame::Frame;
use crate::values::{Inbox, PutError, Register, Scheme, Taken, Time, Took, may_put};
use crate::wire::datagram::{Part, Value};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// Values of a tag that may be on their way at a time, if each fits a frame ...
const AHEAD: usize = 8;
/// ... and all have no more bytes than this.
const AHEAD_BYTES: u64 = 64 << 10;
const LENGTHS: &str = "it sent a value of two lengths";

/// The sending side of a tag.
#[derive(Debug)]
struct Leaving {
    register: Register,
    /// How much of the value has left; all of it if that is its span.
    left: u64,
    /// The newest of which anything has left, and the newest that was had.
    begun: Option<u64>,
    had: Option<u64>,
    /// Those that have left and are not known to have been had: which, and their bytes.
    ahead: VecDeque<(u64, u64)>,
    /// It stands in the queue.
    ready: bool,
}

impl Leaving {
    fn wants(&self) -> bool {
        self.left < self.register.span()
    }

    /// What the value counts for among those that are on their way.
    fn weight(&self, short: u64) -> u64 {
        let span = self.register.span();
        if span <= short { span } else { AHEAD_BYTES }
    }

    /// Whether something of the value may leave. Up to `short` it fits a frame.
    fn may_leave(&self, short: u64) -> bool {
        let bytes: u64 = self.ahead.iter().map(|(_, bytes)| bytes).sum();
        let beside = self.ahead.len() < AHEAD && bytes + self.weight(short) <= AHEAD_BYTES;
        self.wants() && (self.left > 0 || self.ahead.is_empty() || beside)
    }

    /// The value that waits takes the place of one of which nothing has left, or all.
    fn advance(&mut self) {
        if (self.left == 0 || !self.wants()) && self.register.advance() {
            self.left = 0;
        }
    }
}

/// The sending side of all tags.
#[derive(Debug, Default)]
struct Outbox {
    slots: BTreeMap<u64, u32>,
    tags: Vec<Leaving>,
    ready: VecDeque<u32>,
    held: usize,
}

impl Outbox {
    fn put(&mut self, short: u64, tag: u64, iteration: u64, bytes: &[u8]) -> Result<(), PutError> {
        let slot = self.slots.get(&tag).copied();
        let register = slot.map(|slot| &self.tags[slot as usize].register);
        may_put(register, (self.tags.len(), self.held), iteration, bytes.len())?;
        let slot = match slot {
            Some(slot) => {
                let register = &mut self.tags[slot as usize].register;
                self.held -= register.held();
                register.put(iteration, bytes);
                slot
            }
            None => {
                let register = Register::new(tag, iteration, bytes);
                let ahead = VecDeque::new();
                self.tags.push(Leaving { register, left: 0, begun: None, had: None, ahead, ready: false });
                let slot = self.tags.len() as u32 - 1;
                self.slots.insert(tag, slot);
                slot
            }
        };
        self.held += self.tags[slot as usize].register.held();
        self.arrange(short, slot);
        Ok(())
    }

    /// After something changed for a tag: its next value begins, and it stands in the queue if something may leave.
    fn arrange(&mut self, short: u64, slot: u32) {
        let one = &mut self.tags[slot as usize];
        one.advance();
        if one.may_leave(short) && !core::mem::replace(&mut one.ready, true) {
            self.ready.push_back(slot);
        }
    }

    /// What is to leave next: whose, and which part. Parts of what does not fit a frame have `bulk` bytes at most.
    fn next(&mut self, route: &Route, bulk: usize) -> Option<(u32, Frame, usize)> {
        let short = route.short();
        loop {
            let slot = *self.ready.front()?;
            let one = &mut self.tags[slot as usize];
            if !one.may_leave(short) {
                // the value was replaced by a longer one
                one.ready = false;
                self.ready.pop_front();
                continue;
            }
            let Register { tag, iteration, bytes, .. } = &one.register;
            let most = if bytes.len() as u64 <= short { short as usize } else { route.fragment.min(bulk) };
            let rest = bytes.len() - (one.left as usize).min(bytes.len());
            if most == 0 && rest > 0 {
                return None;
            }
            let (total, offset) = (bytes.len() as u32, one.left as u32);
            let frame = Frame::Value { tag: *tag, iteration: *iteration, total, offset };
            return Some((slot, frame, rest.min(most)));
        }
    }

    /// So many bytes of the value of the tag whose turn it is have left.
    fn left(&mut self, short: u64, len: usize) {
        let Some(slot) = self.ready.pop_front() else { return };
        let one = &mut self.tags[slot as usize];
        let iteration = one.register.iteration;
        (one.ready, one.begun) = (false, Some(iteration));
        one.left += (len as u64).max(1);
        if !one.wants() && one.had < Some(iteration) {
            let weight = one.weight(short);
            one.ahead.push_back((iteration, weight));
        }
        self.arrange(short, slot);
    }

    /// A rail has taken the value of the tag whose turn it is, and sees to it.
    fn taken(&mut self, short: u64) {
        let Some(slot) = self.ready.pop_front() else { return };
        let one = &mut self.tags[slot as usize];
        let iteration = Some(one.register.iteration);
        (one.ready, one.left) = (false, one.register.span());
        (one.begun, one.had) = (iteration, iteration);
        self.arrange(short, slot);
    }

    /// A rail that has taken this value does not bring it: unless there is a newer one it leaves again.
    fn returned(&mut self, short: u64, tag: u64, iteration: u64) {
        let Some(&slot) = self.slots.get(&tag) else { return };
        let one = &mut self.tags[slot as usize];
        if one.register.iteration == iteration && !one.wants() {
            (one.left, one.had) = (0, None);
        }
        self.arrange(short, slot);
    }

    /// The peer had this value. False: it was not sent.
    fn take_had(&mut self, short: u64, tag: u64, iteration: u64) -> bool {
        let Some(&slot) = self.slots.get(&tag) else { return false };
        let one = &mut self.tags[slot as usize];
        if one.begun < Some(iteration) {
            return false;
        }
        one.had = one.had.max(Some(iteration));
        while one.ahead.front().is_some_and(|(of, _)| *of <= iteration) {
            one.ahead.pop_front();
        }
        self.arrange(short, slot);
        true
    }
}

/// What there is of values between this side and a peer.
#[derive(Debug, Default)]
pub(super) struct Values {
    scheme: Scheme,
    out: Outbox,
    inbox: Inbox,
    /// What the peer is to be told that it came, by tag, and from which tag on that goes on.
    tell: BTreeMap<u64, u64>,
    tells_from: u64,
    /// The session has ended in which the values came.
    ended: bool,
    /// Messages have had their turn.
    turn: bool,
}

impl Values {
    /// How many frames wait to leave, or tags.
    pub fn queued(&self) -> usize {
        self.out.ready.len() + self.tell.len()
    }

    /// Whether values wait, if only for word of others.
    pub fn waits(&self) -> bool {
        self.out.tags.iter().any(Leaving::wants)
    }

    /// The session is over: what came may still be taken.
    pub fn end_session(&mut self) {
        (self.out, self.ended) = (Outbox::default(), true);
        self.tell.clear();
    }

    fn next_told(&self) -> Option<Frame> {
        let next = self.tell.range(self.tells_from..).next().or_else(|| self.tell.first_key_value());
        next.map(|(&tag, &iteration)| Frame::ValueHad { tag, iteration })
    }

    fn take_in(&mut self, now: Time, value: &Value<'_>) -> Result<bool, &'static str> {
        let iteration = match self.inbox.take_in(now, value) {
            Took::Broken => return Err(LENGTHS),
            Took::Part => return Ok(false),
            Took::Whole => value.iteration,
            Took::Dropped => match self.inbox.newest(value.tag) {
                Some(newest) => newest.unwrap_or(0).max(value.iteration),
                None => return Ok(false),
            },
        };
        let told = self.tell.entry(value.tag).or_default();
        *told = iteration.max(*told);
        Ok(true)
    }
}

impl Route {
    /// Longest value that fits a frame that any lane takes at once.
    fn short(&self) -> u64 {
        self.eager_max.min(self.fragment) as u64
    }
}

impl<R: Receiver> Engine<R> {
    fn values(&mut self, peer: PeerIdx) -> &mut Values {
        self.peers[peer.0 as usize].values.get_or_insert_default()
    }

    /// By which scheme this side sends to a peer, from now on. What was put before and has not left still leaves.
    pub fn set_scheme(&mut self, peer: PeerIdx, scheme: Scheme) {
        self.values(peer).scheme = scheme;
    }

    /// By which scheme this side sends to a peer.
    pub fn scheme(&self, peer: PeerIdx) -> Scheme {
        self.peers[peer.0 as usize].values.as_ref().map_or(Scheme::default(), |values| values.scheme)
    }

    /// Gives a peer a value: the newest of its tag, which replaces what has not left. It leaves once the peer is connected, and is forgotten if
    /// that is lost.
    ///
    /// # Errors
    /// Why it is not taken; nothing has happened then.
    pub fn put_value(
        &mut self,
        peer: PeerIdx,
        tag: u64,
        iteration: u64,
        bytes: &[u8],
    ) -> Result<(), PutError> {
        if self.scheme(peer) == Scheme::Synchronous {
            return Err(PutError::Synchronous);
        }
        let short = self.route(peer).short();
        self.values(peer).out.put(short, tag, iteration, bytes)?;
        self.name_for_values(peer);
        Ok(())
    }

    fn name_for_values(&mut self, peer: PeerIdx) {
        let p = &self.peers[peer.0 as usize];
        if p.connected && p.values.as_ref().is_some_and(|values| values.queued() > 0) {
            self.name(peer);
        }
    }

    /// The newest value of a tag that has come from a peer.
    pub fn take_value(&mut self, peer: PeerIdx, now: Time, tag: u64) -> Taken<'_> {
        match &mut self.peers[peer.0 as usize].values {
            Some(values) => values.inbox.take(now, tag),
            None => Taken::Nothing,
        }
    }

    /// Whether a value of a tag that has come from a peer was not taken yet.
    pub fn has_value(&self, peer: PeerIdx, tag: u64) -> bool {
        self.peers[peer.0 as usize].values.as_ref().is_some_and(|values| values.inbox.has_new(tag))
    }

    /// The payload of a VALUE, for which [`Directive::Value`] has asked.
    ///
    /// # Errors
    /// How it contradicts what came before.
    pub fn take_in_value(
        &mut self,
        peer: PeerIdx,
        now: Time,
        frame: &Frame,
        bytes: &[u8],
    ) -> Result<(), &'static str> {
        let Frame::Value { tag, iteration, total, offset } = *frame else { return Ok(()) };
        if self.values(peer).take_in(now, &Value { tag, iteration, total, part: Part::At(offset), bytes })? {
            self.name_for_values(peer);
        }
        Ok(())
    }

    /// A part of a value came by means of a rail's own, which says by itself what it brought.
    ///
    /// # Errors
    /// How it contradicts what came before.
    pub fn hear_value(&mut self, peer: PeerIdx, now: Time, value: &Value<'_>) -> Result<(), &'static str> {
        match self.values(peer).inbox.take_in(now, value) {
            Took::Broken => Err(LENGTHS),
            Took::Whole | Took::Part | Took::Dropped => Ok(()),
        }
    }

    /// A rail has taken all of the value of which [`Engine::poll_transmit`] named a frame, and sees to it by means of its own.
    pub fn value_taken(&mut self, peer: PeerIdx) {
        let short = self.route(peer).short();
        let values = self.values(peer);
        values.turn = false;
        values.out.taken(short);
    }

    /// A rail that has taken a value does not bring it.
    pub fn value_returned(&mut self, peer: PeerIdx, tag: u64, iteration: u64) {
        let short = self.route(peer).short();
        self.values(peer).out.returned(short, tag, iteration);
        self.name_for_values(peer);
    }

    /// The bytes that [`Place::Value`] means, of the value that is being sent to a peer.
    pub fn value_bytes(&self, peer: PeerIdx, slot: u32) -> Option<&[u8]> {
        let values = self.peers.get(peer.0 as usize)?.values.as_ref()?;
        values.out.tags.get(slot as usize).map(|one| &one.register.bytes[..])
    }

    /// Values that a peer is still to be told of: at most one of each tag.
    pub fn untold_values(&self, peer: PeerIdx) -> usize {
        self.peers[peer.0 as usize].values.as_ref().map_or(0, |values| values.tell.len())
    }

    pub(super) fn on_value_had(&mut self, peer: PeerIdx, tag: u64, iteration: u64) -> Directive {
        let short = self.route(peer).short();
        if !self.values(peer).out.take_had(short, tag, iteration) {
            return Directive::Broken("it had a value that it was not sent");
        }
        self.name_for_values(peer);
        Directive::Done
    }

    /// The next VALUE_HAD, which waits for nothing.
    pub(super) fn next_told(&self, peer: PeerIdx) -> Option<Next> {
        let frame = self.peers[peer.0 as usize].values.as_ref()?.next_told()?;
        Some(Next { frame, payload: Out::Nothing, from: Queue::Told })
    }

    /// The next VALUE, if it is the turn of one: where messages wait, too, only in their `turn`.
    pub(super) fn next_value(&mut self, peer: PeerIdx, bulk: usize, turn: bool) -> Option<Next> {
        let p = &mut self.peers[peer.0 as usize];
        let values: &mut Box<Values> = p.values.as_mut().filter(|values| !turn || values.turn)?;
        let (slot, frame, len) = values.out.next(&p.route, bulk)?;
        let Frame::Value { offset, .. } = frame else { return None };
        let span = Span { place: Place::Value(peer, slot), offset: u64::from(offset), len };
        Some(Next { frame, payload: Out::Bytes(span), from: Queue::Values })
    }

    pub(super) fn value_left(&mut self, peer: PeerIdx, len: usize) {
        let short = self.route(peer).short();
        let values = self.values(peer);
        values.turn = false;
        values.out.left(short, len);
    }

    pub(super) fn value_told(&mut self, peer: PeerIdx, frame: &Frame) {
        let Frame::ValueHad { tag, iteration } = *frame else { return };
        let values = self.values(peer);
        if values.tell.get(&tag) == Some(&iteration) {
            values.tell.remove(&tag);
        }
        values.tells_from = tag.wrapping_add(1);
    }
}

impl super::peer::Peer {
    /// A message has left: where values wait, it is their turn.
    #[inline]
    pub fn message_left(&mut self) {
        if let Some(values) = &mut self.values {
            values.turn = true;
        }
    }

    /// A session begins: what came in the one before is forgotten.
    pub fn begin_values(&mut self) {
        if let Some(values) = self.values.as_mut().filter(|values| values.ended) {
            (values.inbox, values.ended) = (Inbox::default(), false);
        }
    }
}
