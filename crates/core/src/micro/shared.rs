//! What the micro-protocols of one channel share.

use super::delivery::{Delivery, RateSample};
use super::flight::{Flight, Sent};
use super::{NEVER, Segment, Time};
use crate::ranges::{MAX, Ranges};
use alloc::vec::Vec;
use core::ops::Range;

/// Round trips.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rtt {
    /// The last that was measured, in nanoseconds.
    pub latest: Time,
    /// Smoothed; 0 before the first.
    pub smoothed: Time,
    /// How much they vary.
    pub variation: Time,
    /// The shortest.
    pub min: Time,
    /// When the last was measured.
    pub measured_at: Time,
}

/// What all that an acknowledgement or a timer brought comes to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settled {
    /// Bytes of datagrams that were acknowledged.
    pub acked: u64,
    /// Bytes of datagrams that count as lost now.
    pub lost: u64,
    /// When the newest of these left.
    pub newest_lost_at: Time,
    /// When the newest of those left that were acknowledged.
    pub newest_acked_at: Time,
    /// Datagrams that routers marked, as the other side counts them, since the last time.
    pub marked: u32,
    /// So long nothing came through that the path has to be measured anew (RFC 9002, 7.6).
    pub persistent: bool,
    /// All whose loss was taken for congestion came after all: there was none, before what is said here.
    pub undone: bool,
    /// The round trip that the acknowledgement measured, in nanoseconds; 0: none.
    pub rtt: Time,
    /// Bytes that were on their way before.
    pub in_flight: u64,
    /// How fast the other side gets what is sent.
    pub sample: RateSample,
}

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Datagrams that left.
    pub sent: u64,
    /// Of those, how many are to be acknowledged.
    pub asking: u64,
    /// Datagrams that came and were not had before.
    pub received: u64,
    /// Datagrams that came again.
    pub doubled: u64,
    /// Datagrams that came after one with a higher number.
    pub overtaken: u64,
    /// Datagrams that counted as lost.
    pub lost: u64,
    /// Of those, how many came after all.
    pub spurious: u64,
    /// Times that nothing was heard for so long that a probe was sent.
    pub timeouts: u64,
    /// Bytes of the stream that were sent again.
    pub again: u64,
    /// Marks of routers that the other side saw.
    pub marked: u64,
    /// Values that were given.
    pub values_put: u64,
    /// Of those, how many were replaced before anything of them was sent.
    pub values_replaced: u64,
    /// Parts of values that left.
    pub value_parts: u64,
}

/// What the other side says that it had.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Acknowledged {
    /// Nothing: the network below is reliable.
    #[default]
    Nothing,
    /// The stream.
    Stream,
    /// All that is sent.
    All,
}

/// What a channel found out of a path, for the one that takes its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Known {
    /// What the path carries, in bytes per second; 0: nothing is known.
    pub rate: u64,
    /// Its shortest round trip, in nanoseconds; 0: it is not known.
    pub shortest: Time,
    /// It may carry far more: the channel was still finding out.
    pub starting: bool,
    /// When it was last tried whether it carries more.
    pub probed_at: Time,
}

/// The state. Who writes what is said in brackets; the rest is the stack's.
#[derive(Debug)]
pub struct Shared {
    /// The time, in nanoseconds.
    pub now: Time,
    /// Most bytes of a datagram (PathMtu).
    pub size: u32,
    /// What `size` may become at most.
    pub most: u32,
    /// A datagram of so many bytes is to leave, to see whether it comes; 0: none is (PathMtu).
    pub path_probe: u32,
    /// Round trips (RTTEstimation).
    pub rtt: Rtt,
    /// How long the other side may wait before it acknowledges.
    pub ack_delay: Time,
    /// Most bytes that may be on their way (the congestion controller).
    pub window: u64,
    /// Bytes per second; 0: as fast as it goes (the congestion controller).
    pub pace: u64,
    /// What is on its way.
    pub flight: Flight,
    /// What was delivered.
    pub delivery: Delivery,
    /// The highest number that was acknowledged.
    pub largest_acked: Option<u64>,
    /// Datagrams that are to leave whatever the send bits say (Retransmit).
    pub probes: u32,
    /// Times in a row that nothing was heard (Retransmit).
    pub timeouts: u32,
    /// The same before the last acknowledgement (Retransmit).
    pub timeouts_before: u32,
    /// What is not answered is sent again soon, however often that was in vain (from the stack's user).
    pub hurried: bool,
    /// Datagrams that an earlier channel on the path lost, and those that it sent to be acknowledged (from the stack).
    pub lost_before: (u64, u64),
    /// Bytes that were on their way on this path before this channel; 0: that is not known.
    pub known_flight: u64,
    /// What an earlier channel found out of the path (from the stack).
    pub known_path: Known,
    /// What the path carries as a model of it says, in bytes per second; 0: there is none (from the controller).
    pub rate: u64,
    /// When it was last tried whether the path carries more than that (from the controller).
    pub probed_at: Time,

    /// Where what is to be sent of the stream begins; what is before is sent for the channel before.
    pub start: u64,
    /// What the other side says that it had (who reads it: PositiveAck, DCCPAck, ControlAck).
    pub acknowledged: Acknowledged,
    /// When a part of a value is to leave; not later than now: at once; [`NEVER`]: none is (Asynchronous).
    pub value_at: Time,
    /// Bytes of the buffers of values that are to be sent (Asynchronous).
    pub values_held: usize,
    /// Bytes of the datagrams with values that left (Asynchronous).
    pub values_sent: u64,
    /// The same, of those of which it is known whether they came (Asynchronous).
    pub values_settled: u64,

    /// The end of what is to be sent of the stream.
    pub end: u64,
    /// The first position that was never sent (Resize).
    pub fresh: u64,
    /// The position up to which the other side takes any (Synchronous, Asynchronous).
    pub limit: u64,
    /// Bytes that the other side takes before they have their turn.
    pub takes: u64,
    /// What is to be sent again of the stream (Retransmit).
    pub again: Ranges,
    /// What the other side has of the stream.
    pub had: Ranges,

    /// The numbers of datagrams that came (SequencedSegment).
    pub came: Ranges,
    /// When the one with the highest number came (SequencedSegment).
    pub newest_at: Time,
    /// Bytes of the stream that this side takes before they have their turn.
    pub holds: u64,
    /// Bytes of the stream that came before their turn (ReliableFIFO).
    pub held: usize,
    /// Nothing is given to the user yet: the channel before has not brought all of its part.
    pub waits: bool,
    /// The position up to which the user has all of it (ReliableFIFO).
    pub delivered: u64,
    /// There is less on its way than might be because there is less to send.
    pub limited: bool,
    /// When there was last nothing to send; 0: never.
    pub dry_at: Time,
    /// The window grows until something is lost (the congestion controller).
    pub starting: bool,

    /// What is counted.
    pub counters: Counters,
    /// The other side contradicts itself: how.
    pub broken: Option<&'static str>,
    /// Numbers that were acknowledged, as far as is remembered.
    known: Ranges,
    /// What an acknowledgement brought and is not told yet.
    pub(super) newly_acked: Vec<Sent>,
    pub(super) newly_lost: Vec<Sent>,
}

impl Shared {
    /// Datagrams that were lost on the path, and those that were sent to be acknowledged.
    pub fn lost_of(&self) -> (u64, u64) {
        let Counters { lost, spurious, asking, .. } = self.counters;
        (self.lost_before.0 + lost.saturating_sub(spurious), self.lost_before.1 + asking)
    }

    /// A channel's state at its beginning: its stream begins here, and so much of it may be sent before anything is acknowledged.
    pub fn new(now: Time, size: u32, start: u64, window: u64, ack_delay: Time) -> Self {
        let mut had = Ranges::default();
        had.add(0..start);
        Self {
            now,
            size,
            most: size,
            path_probe: 0,
            rtt: Rtt::default(),
            ack_delay,
            window: u64::MAX,
            pace: 0,
            flight: Flight::default(),
            delivery: Delivery::default(),
            largest_acked: None,
            probes: 0,
            lost_before: (0, 0),
            timeouts: 0,
            timeouts_before: 0,
            hurried: false,
            known_flight: 0,
            known_path: Known::default(),
            rate: 0,
            probed_at: 0,
            start,
            acknowledged: Acknowledged::Nothing,
            value_at: NEVER,
            values_held: 0,
            values_sent: 0,
            values_settled: 0,
            end: start,
            fresh: start,
            limit: start + window,
            takes: window,
            again: Ranges::default(),
            had,
            came: Ranges::default(),
            newest_at: 0,
            holds: 0,
            held: 0,
            waits: false,
            delivered: 0,
            limited: false,
            dry_at: 0,
            starting: true,
            counters: Counters::default(),
            broken: None,
            known: Ranges::default(),
            newly_acked: Vec::new(),
            newly_lost: Vec::new(),
        }
    }

    /// The position up to which the other side has all of the stream.
    pub fn base(&self) -> u64 {
        self.had.first().filter(|first| first.start == 0).map_or(0, |first| first.end)
    }

    /// The path's shortest round trip that is known, by this channel or the one before it, in nanoseconds; 0: none.
    pub fn shortest(&self) -> Time {
        match (self.rtt.min, self.known_path.shortest) {
            (0, known) => known,
            (found, 0) => found,
            (found, known) => found.min(known),
        }
    }

    /// What the channel that takes this one's place is told of the path.
    pub fn known(&self) -> Known {
        let Self { rate, starting, probed_at, .. } = *self;
        Known { rate, shortest: self.shortest(), starting, probed_at }
    }

    /// Whether all that was given has been acknowledged.
    pub fn is_delivered(&self) -> bool {
        self.base() >= self.end
    }

    /// Whether there is something of the stream that may be sent.
    pub fn has_stream(&self) -> bool {
        !self.again.is_empty() || self.fresh < self.end.min(self.limit)
    }

    /// The same, or of values.
    pub fn has_data(&self) -> bool {
        self.has_stream() || self.value_at <= self.now
    }

    /// The sender of the stream may be ahead of what the other side has in order by what that keeps for its turn.
    pub fn let_ahead(&mut self) {
        self.limit = self.limit.max(self.base().saturating_add(self.takes));
    }

    /// The number of which the lowest 32 bits are these, among those that were sent; none if there is no such.
    pub fn expand(&self, low: u32) -> Option<u64> {
        let next = self.flight.next();
        let near = (next & !0xffff_ffff) | u64::from(low);
        if near < next { Some(near) } else { near.checked_sub(1 << 32) }
    }

    /// Datagrams with these numbers were acknowledged, perhaps not for the first time.
    pub fn acknowledge(&mut self, range: Range<u64>) {
        let range = range.start.max(self.flight.floor())..range.end.min(self.flight.next());
        if range.is_empty()
            || self
                .known
                .iter()
                .next_back()
                .is_some_and(|last| last.start <= range.start && range.end <= last.end)
        {
            return;
        }
        if self
            .known
            .at_or_after(range.start)
            .is_some_and(|known| known.start <= range.start && range.end <= known.end)
        {
            return;
        }
        let mut at = range.start;
        while at < range.end {
            // what is known already is skipped in one step
            match self.known.at_or_after(at) {
                Some(known) if known.start <= at => at = known.end,
                known => {
                    let to = known.map_or(range.end, |known| known.start.min(range.end));
                    (at..to).for_each(|number| self.settle(number));
                    at = to;
                }
            }
        }
        self.known.add(range.clone());
        self.known.keep_last(MAX);
        self.largest_acked = self.largest_acked.max(Some(range.end - 1));
    }

    fn settle(&mut self, number: u64) {
        let Some(sent) = self.flight.settle(number) else { return };
        self.had.add(sent.segment.pos..sent.segment.end());
        if !self.again.is_empty() {
            // it was late, or sent twice: what of it has not been sent again need not be
            self.again.remove(sent.segment.pos..sent.segment.end());
        }
        self.newly_acked.push(sent);
    }

    /// Datagrams on their way count as lost, from the oldest on, as long as this holds of them.
    pub fn lose(&mut self, is_lost: impl FnMut(&Sent) -> bool) {
        let lost = &mut self.newly_lost;
        self.flight.lose_while(is_lost, |sent| lost.push(sent));
    }

    /// What of a range the other side has not acknowledged: by no sending of it.
    pub fn missing(&self, segment: Segment) -> impl Iterator<Item = Range<u64>> + '_ {
        self.had.gaps(segment.pos..segment.end())
    }
}
