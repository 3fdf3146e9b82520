//! What those micro-protocols have in common that say which datagrams came.

use super::{Arrived, NEVER, Outgoing, Shared, Time};
use crate::ranges::MAX;
use crate::wire::datagram::{ACK_HEAD, Ack, AckHead, DELAY_UNIT, STREAM_HEAD, write_ack};
use core::ops::Range;

/// So many datagrams are acknowledged at once; what is less may wait for something to go with.
const AT_ONCE: u32 = 2;
/// From such a round trip on, in nanoseconds, each is acknowledged when it comes.
const FAR: Time = 1_000_000;

/// Notes the number of a datagram that came; false if it came before. What has a number below `floor`, which is below all that are
/// remembered, counts as had.
pub(super) fn note_number(shared: &mut Shared, floor: &mut u64, number: u64) -> bool {
    let newest = shared.came.last().map(|last| last.end - 1);
    if number < *floor || newest.is_some_and(|newest| number <= newest && shared.came.has(number)) {
        shared.counters.doubled += 1;
        return false;
    }
    if newest.is_some_and(|newest| number < newest) {
        shared.counters.overtaken += 1;
    } else {
        shared.newest_at = shared.now;
    }
    shared.came.add(number..number + 1);
    if shared.came.len() > MAX {
        shared.came.keep_last(MAX);
        *floor = shared.came.first().map_or(0, |first| first.start);
    }
    true
}

/// What is owed to the other side, and what it said.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Acknowledging {
    /// Datagrams that want to be acknowledged and are not.
    owed: u32,
    /// Until when that is to be done.
    until: Time,
    at_once: bool,
    /// Datagrams that came with a mark.
    marked: u16,
    /// How many the other side says that it had.
    theirs: u16,
}

impl Acknowledging {
    /// A datagram came, whose number is noted.
    pub fn note(&mut self, shared: &Shared, arrived: &Arrived) {
        self.marked = self.marked.wrapping_add(u16::from(arrived.marked));
        if arrived.elicits {
            if self.owed == 0 {
                // over a distance nothing is gained by waiting, and whoever computes meanwhile acknowledges nothing
                let far = shared.shortest() >= FAR;
                self.until = if far { shared.now } else { shared.now + shared.ack_delay };
            }
            self.owed += 1;
            // a gap, or what comes behind its time, is news; an older gap stays one for good, since numbers are never used again
            let alone = shared.came.len() == 1;
            let follows =
                |last: &Range<u64>| last.end == arrived.number + 1 && (last.start < arrived.number || alone);
            let in_order = shared.came.last().is_some_and(follows);
            self.at_once |= self.owed >= AT_ONCE || !in_order || arrived.marked;
        }
    }

    /// Whether it is time to say it.
    pub fn urges(&self, shared: &Shared) -> bool {
        self.owed > 0 && (self.at_once || self.until <= shared.now)
    }

    /// Says it.
    pub fn write(&mut self, shared: &Shared, out: &mut Outgoing<'_>) {
        let Some(last) = shared.came.last().filter(|_| self.owed > 0) else { return };
        if out.to.room() < ACK_HEAD + if out.takes_data { STREAM_HEAD + 1 } else { 0 } {
            return;
        }
        let short = |n: u64| u16::try_from(n).unwrap_or(u16::MAX);
        let delay = short(shared.now.saturating_sub(shared.newest_at) / DELAY_UNIT);
        let below = last.end - 1 - last.start;
        let head =
            AckHead { delay, largest: (last.end - 1) as u32, below: short(below), marked: self.marked };
        let pairs = shared.came.iter().rev().zip(shared.came.iter().rev().skip(1));
        // what a range is too long for is remembered by the other side, or is told no more
        let pairs = pairs.map_while(|(above, range)| {
            Some((u16::try_from(above.start - range.end).ok()?, short(range.end - range.start)))
        });
        let whole = below <= u64::from(u16::MAX);
        write_ack(&mut out.to, &head, pairs.take(if whole { usize::MAX } else { 0 }));
        (self.owed, self.at_once) = (0, false);
    }

    /// Reads what the other side says.
    pub fn read(&mut self, shared: &mut Shared, ack: &Ack<'_>) {
        let Some(largest) = shared.expand(ack.largest) else {
            shared.broken = Some("it acknowledged what was never sent");
            return;
        };
        let mut start = largest.saturating_sub(u64::from(ack.below));
        let mut range = start..largest + 1;
        let mut ranges = ack.ranges();
        loop {
            shared.acknowledge(range);
            // of what was sent before that nothing is remembered
            let Some((gap, len)) = ranges.next().filter(|_| start > shared.flight.floor()) else { break };
            let Some(end) = start.checked_sub(u64::from(gap)) else { break };
            start = end.saturating_sub(u64::from(len));
            range = start..end;
        }
        let marked = ack.marked.wrapping_sub(self.theirs);
        // an acknowledgement that another has overtaken has less
        if marked < u16::MAX / 2 {
            self.theirs = ack.marked;
            shared.counters.marked += u64::from(marked);
        }
    }

    /// The same was read by another.
    pub fn read_like(&mut self, other: &Self) {
        self.theirs = other.theirs;
    }

    /// When it is to be said.
    pub fn due(&self) -> Time {
        if self.owed > 0 { self.until } else { NEVER }
    }
}
