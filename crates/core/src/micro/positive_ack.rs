//! PositiveAck: what came is said, soon, and with what else there is to say.

use super::{Arrived, MicroProtocol, NEVER, Outgoing, Shared, Time};
use crate::wire::datagram::{ACK_HEAD, Ack, AckHead, DELAY_UNIT, STREAM_HEAD, write_ack};
use core::ops::Range;

/// So many datagrams are acknowledged at once; what is less may wait for something to go with.
const AT_ONCE: u32 = 2;

/// Says which datagrams came, as ranges of their numbers, and reads what the other side says of that (selective acknowledgements: RFC 2018,
/// RFC 9000, 13.2).
#[derive(Debug, Default)]
pub struct PositiveAck {
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

impl MicroProtocol for PositiveAck {
    const NAME: &'static str = "PositiveAck";

    fn from_net(&mut self, shared: &mut Shared, arrived: &Arrived) -> bool {
        self.marked = self.marked.wrapping_add(u16::from(arrived.marked));
        if arrived.elicits {
            if self.owed == 0 {
                self.until = shared.now + shared.ack_delay;
            }
            self.owed += 1;
            // a gap, or what comes behind its time, is news; an older gap stays one for good, since numbers are never used again
            let alone = shared.came.len() == 1;
            let follows =
                |last: &Range<u64>| last.end == arrived.number + 1 && (last.start < arrived.number || alone);
            let in_order = shared.came.last().is_some_and(follows);
            self.at_once |= self.owed >= AT_ONCE || !in_order || arrived.marked;
        }
        true
    }

    fn urges(&self, shared: &Shared) -> bool {
        self.owed > 0 && (self.at_once || self.until <= shared.now)
    }

    fn to_net(&mut self, shared: &mut Shared, out: &mut Outgoing<'_>) {
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

    fn ack_from_net(&mut self, shared: &mut Shared, ack: &Ack<'_>) {
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

    fn due(&self, _shared: &Shared) -> Time {
        if self.owed > 0 { self.until } else { NEVER }
    }
}
