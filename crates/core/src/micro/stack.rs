//! The driver of one composition: which event follows which.

use super::delivery::RateSample;
use super::episode::Episode;
use super::flight::{Fate, Sent};
use super::shared::{Acknowledged, Known, Settled, Shared};
use super::{Arrived, MicroProtocol, Names, Outgoing, PutError, Segment, Time, User};
use crate::values::Register;
use crate::wire::codec::Writer;
use crate::wire::datagram::{Ack, Chunk, HEADER, TAG, Value, write};
use alloc::vec::Vec;

/// How long either side may wait before it acknowledges, in nanoseconds.
pub const ACK_DELAY: Time = 1_000_000;

/// Where a channel begins, and what its path takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most bytes of a datagram; where the composition searches what the path takes, that ends with this.
    pub size: u32,
    /// Where this side's stream begins.
    pub start: u64,
    /// Bytes that the other side takes before they have their turn.
    pub window: u64,
    /// Bytes that this side takes before they have their turn.
    pub holds: u64,
    /// Where the other side's stream begins.
    pub receives_from: u64,
    /// What is known of round trips from an earlier channel on the path, in nanoseconds; 0: nothing.
    pub rtt: Time,
    /// What may be on its way at first, from an earlier channel on the path; 0: nothing is known.
    pub in_flight: u64,
    /// What an earlier channel found out of the path.
    pub path: Known,
    /// Datagrams that an earlier channel on the path lost, and those that it sent to be acknowledged.
    pub lost: (u64, u64),
}

/// A datagram that is to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Its number.
    pub number: u64,
    /// Bytes of chunks that were written.
    pub chunks: usize,
    /// The part of the stream whose bytes follow them; those of values are in the chunks already.
    pub segment: Segment,
    /// It asks whether the path takes datagrams of its size: it may not be cut on the way, and if the host does not take it, that is
    /// no error.
    pub probes_path: bool,
}

/// What became of a datagram that came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// It counts.
    Fresh,
    /// It came before, or does not count for another reason.
    Dropped,
}

/// One composition at work.
#[derive(Debug)]
pub struct Stack<M> {
    shared: Shared,
    list: M,
    episode: Episode,
    acked: Vec<Sent>,
    lost: Vec<Sent>,
}

impl<M: MicroProtocol + Names + Default> Stack<M> {
    /// A channel that begins now.
    pub fn new(now: Time, limits: &Limits) -> Self {
        let mut shared = Shared::new(now, limits.size, limits.start, limits.window, ACK_DELAY);
        if limits.rtt > 0 {
            shared.rtt.smoothed = limits.rtt;
            shared.rtt.variation = limits.rtt / 2;
        }
        shared.takes = limits.window;
        (shared.holds, shared.delivered) = (limits.holds, limits.receives_from);
        shared.known_flight = limits.in_flight;
        (shared.known_path, shared.lost_before) = (limits.path, limits.lost);
        let mut list = M::default();
        list.open(&mut shared);
        Self { shared, list, episode: Episode::default(), acked: Vec::new(), lost: Vec::new() }
    }

    /// What the micro-protocols share.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The stream has grown to this position.
    pub fn extend(&mut self, end: u64) {
        self.shared.end = self.shared.end.max(end);
    }

    /// Makes the next datagram, if one is to leave: behind the first `said` bytes of `room`, which are chunks already, it writes others.
    /// Where these have to leave (`must`), it does so whatever the send bits say. `room` takes the longest that the limits allow, or the
    /// path is not asked for that.
    pub fn poll_transmit(&mut self, now: Time, room: &mut [u8], said: usize, must: bool) -> Option<Transmit> {
        let Self { shared, list, .. } = self;
        shared.now = now;
        let (probe, data) = (shared.probes > 0, shared.has_data());
        let clear = list.allows(shared, shared.size);
        let takes_data = probe || data && clear;
        if data {
            shared.limited = false;
        } else {
            shared.dry_at = now;
            if clear && !shared.limited {
                shared.limited = true;
                shared.delivery.limit(shared.flight.bytes());
            }
        }
        let mut size = shared.size as usize;
        let probes_path = shared.path_probe > 0 && !takes_data && said == 0;
        if probes_path && room.len() < shared.path_probe as usize - HEADER - TAG {
            return None;
        }
        if probes_path {
            size = core::mem::take(&mut shared.path_probe) as usize;
        } else if !takes_data && !must && !list.urges(shared) {
            return None;
        }
        let most = (size - HEADER - TAG).min(room.len());
        let to = Writer::new(room.get_mut(said..most)?);
        let segment = Segment::default();
        let mut out = Outgoing { to, segment, takes_data, values: false, elicits: false, probes_path };
        list.to_net(shared, &mut out);
        if probe {
            shared.probes -= 1;
            if !out.elicits {
                write(&mut out.to, &Chunk::Ping);
                out.elicits = true;
            }
        }
        let Outgoing { to, segment, elicits, probes_path, .. } = out;
        let chunks = said + to.finish().unwrap_or(0);
        if chunks == 0 && segment.len == 0 {
            return None;
        }
        let size = (HEADER + chunks + segment.len as usize + TAG) as u32;
        let number = shared.flight.next();
        let mark = shared.delivery.mark(now, shared.flight.bytes(), size);
        let answered = elicits && shared.acknowledged != Acknowledged::Nothing;
        let fate = if answered { Fate::Flying } else { Fate::Settled };
        let sent = Sent { number, at: now, size, segment, probes_path, fate, mark };
        shared.flight.push(sent);
        shared.counters.sent += 1;
        shared.counters.asking += u64::from(answered);
        list.sent(shared, &sent);
        Some(Transmit { number, chunks, segment, probes_path })
    }

    /// A datagram leaves that carries words and nothing of this channel's, and is not to be acknowledged: its number.
    pub fn note_words(&mut self, now: Time, size: u32) -> u64 {
        let shared = &mut self.shared;
        shared.now = now;
        let number = shared.flight.next();
        let mark = shared.delivery.mark(now, shared.flight.bytes(), size);
        let segment = Segment::default();
        let fate = Fate::Settled;
        shared.flight.push(Sent { number, at: now, size, segment, probes_path: false, fate, mark });
        shared.counters.sent += 1;
        number
    }

    /// The other side is known to have the stream up to here, though it has not said so.
    pub fn assume_had(&mut self, upto: u64) {
        self.shared.had.add(0..upto);
        self.shared.again.remove(0..upto);
    }

    /// Of so many datagrams the path lost so many, before this channel: as others found who know more.
    pub fn tell_losses(&mut self, sent: u64, lost: u64) {
        if self.shared.lost_before.1 < sent {
            self.shared.lost_before = (lost, sent);
        }
    }

    /// A datagram came; its chunks are handled next.
    pub fn handle_arrival(&mut self, now: Time, arrived: &Arrived) -> Received {
        self.shared.now = now;
        match self.list.from_net(&mut self.shared, arrived) {
            true => Received::Fresh,
            false => Received::Dropped,
        }
    }

    /// Bytes of the stream came.
    pub fn handle_stream<U: User>(&mut self, pos: u64, bytes: &[u8], user: &mut U) {
        if self.list.to_user(&mut self.shared, pos, bytes, user) {
            return;
        }
        // the network below is reliable, and keeps the order
        if pos != self.shared.delivered {
            self.shared.broken = Some("the network lost something, or changed the order");
            return;
        }
        self.shared.delivered += bytes.len() as u64;
        user.deliver(bytes);
    }

    /// Gives the newest value of a tag to be sent; never waits.
    ///
    /// # Errors
    /// Why it is not taken; nothing has changed then.
    pub fn put_value(&mut self, now: Time, tag: u64, iteration: u64, bytes: &[u8]) -> Result<(), PutError> {
        self.shared.now = now;
        self.list.put_value(&mut self.shared, tag, iteration, bytes)
    }

    /// Whether values are to leave, or may not have come.
    pub fn owes_values(&self) -> bool {
        self.list.owes_values()
    }

    /// The values that were given and are not known to have come, to be sent otherwise; the channel forgets all values.
    pub fn give_back(&mut self) -> Vec<Register> {
        self.list.give_back(&mut self.shared)
    }

    /// A part of a value came.
    pub fn handle_value<U: User>(&mut self, value: &Value<'_>, user: &mut U) {
        match M::HAS_VALUES {
            true => {
                self.list.value_from_net(&mut self.shared);
                user.value(value);
            }
            false => self.shared.broken = Some("it sent a value on a synchronous channel"),
        }
    }

    /// The other side says what it had.
    pub fn handle_ack(&mut self, ack: &Ack<'_>) {
        let in_flight = self.shared.flight.bytes();
        let marked = self.shared.counters.marked;
        self.list.ack_from_net(&mut self.shared, ack);
        if self.shared.newly_acked.is_empty() && marked == self.shared.counters.marked {
            return;
        }
        core::mem::swap(&mut self.acked, &mut self.shared.newly_acked);
        for sent in &self.acked {
            self.shared.delivery.acked(self.shared.now, sent);
            self.list.acked(&mut self.shared, sent);
            if sent.fate == Fate::Lost {
                self.shared.counters.spurious += 1;
                self.list.spurious(&mut self.shared, sent);
            }
        }
        self.list.detect(&mut self.shared);
        let marked = (self.shared.counters.marked - marked) as u32;
        self.settle(in_flight, marked);
    }

    /// Tells what was lost, and what all came to.
    fn settle(&mut self, in_flight: u64, marked: u32) {
        core::mem::swap(&mut self.lost, &mut self.shared.newly_lost);
        // of a probe of the path nothing follows but whether it takes such sizes
        let told = |sent: &&Sent| !sent.probes_path;
        let late = |sent: &&Sent| told(sent) && sent.fate == Fate::Lost;
        let undone =
            self.acked.iter().filter(late).fold(false, |undone, sent| undone | self.episode.came(sent.at));
        let now = self.shared.now;
        for sent in &self.lost {
            self.shared.counters.lost += 1;
            if told(&sent) {
                self.shared.delivery.lost += u64::from(sent.size);
                self.episode.lost(now, sent.at);
            }
            self.list.lost(&mut self.shared, sent);
        }
        let bytes = |list: &[Sent]| list.iter().filter(told).map(|sent| u64::from(sent.size)).sum();
        let newest = |list: &[Sent]| list.iter().filter(told).map(|sent| sent.at).max().unwrap_or(0);
        if marked > 0 {
            self.episode.marked(now, newest(&self.acked));
        }
        let sample = if self.acked.is_empty() {
            RateSample::default()
        } else {
            self.shared.delivery.sample(self.shared.shortest())
        };
        let rtt = if self.shared.rtt.measured_at == now { self.shared.rtt.latest } else { 0 };
        let settled = Settled {
            acked: bytes(&self.acked),
            lost: bytes(&self.lost),
            newest_lost_at: newest(&self.lost),
            newest_acked_at: newest(&self.acked),
            marked,
            persistent: self.shared.timeouts_before >= 2 && !self.lost.is_empty(),
            undone,
            in_flight,
            rtt: if self.acked.is_empty() { 0 } else { rtt },
            sample,
        };
        self.list.settled(&mut self.shared, &settled);
        if !self.acked.is_empty() {
            self.shared.timeouts_before = 0;
        }
        self.acked.clear();
        self.lost.clear();
        let keep = 2 * self.shared.rtt.smoothed + ACK_DELAY;
        self.shared.flight.forget_before(self.shared.now.saturating_sub(keep));
    }

    /// A timer may be due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.shared.now = now;
        if self.list.due(&self.shared) > now {
            return;
        }
        let in_flight = self.shared.flight.bytes();
        self.list.timeout(&mut self.shared);
        if !self.shared.newly_lost.is_empty() {
            self.settle(in_flight, 0);
        }
    }

    /// When the next timer is due.
    pub fn due(&self) -> Time {
        self.list.due(&self.shared)
    }

    /// Whether a datagram would leave now.
    pub fn wants_transmit(&mut self, now: Time) -> bool {
        self.shared.now = now;
        let data = self.shared.has_data() && self.list.allows(&self.shared, self.shared.size);
        data || self.shared.probes > 0 || self.shared.path_probe > 0 || self.list.urges(&self.shared)
    }

    /// The path takes datagrams of so many bytes, and no longer ones.
    pub fn set_size(&mut self, size: u32) {
        (self.shared.size, self.shared.most) = (size, size);
    }

    /// The next datagram leaves whatever the send bits say, and is to be acknowledged.
    pub fn ask(&mut self) {
        self.shared.probes = self.shared.probes.max(1);
    }

    /// Whether what is not answered is sent again soon, however often that was in vain.
    pub fn hurry(&mut self, hurried: bool) {
        self.shared.hurried = hurried;
    }

    /// The other side takes so many bytes before they have their turn.
    pub fn set_window(&mut self, window: u64) {
        self.shared.limit = self.shared.limit.max(self.shared.base().saturating_add(window));
        self.shared.takes = window;
    }

    /// What was given and never sent is another's from now on: where it begins.
    pub fn cut(&mut self) -> u64 {
        self.shared.end = self.shared.fresh.max(self.shared.start);
        self.shared.end
    }

    /// Nothing is given to the user before [`Stack::resume`].
    pub fn wait(&mut self) {
        self.shared.waits = true;
    }

    /// This side's stream begins here, for this channel; what is before is another's.
    pub fn begin_at(&mut self, start: u64) {
        let shared = &mut self.shared;
        (shared.start, shared.end, shared.fresh, shared.limit) = (start, start, start, start + shared.takes);
        shared.had = crate::ranges::Ranges::default();
        shared.had.add(0..start);
    }

    /// The channel before has brought all of the other side's stream up to here: what is beyond has its turn.
    pub fn resume<U: User>(&mut self, from: u64, user: &mut U) {
        self.shared.waits = false;
        self.shared.delivered = self.shared.delivered.max(from);
        self.list.resume(&mut self.shared, user);
    }

    /// The other side lacks this of what the channel before had to send: it is sent by this one.
    pub fn rescue(&mut self, range: core::ops::Range<u64>) {
        self.shared.had.remove(range.clone());
        self.shared.again.add(range);
    }

    /// What the other side does not have of what was given, to be sent by another channel: this one sends nothing of it any more, since
    /// what the other one has brought is not kept for this one.
    pub fn hand_over(&mut self) -> Vec<core::ops::Range<u64>> {
        let Shared { had, again, end, .. } = &mut self.shared;
        let lacking = had.gaps(0..*end).collect();
        had.add(0..*end);
        *again = crate::ranges::Ranges::default();
        lacking
    }
}
