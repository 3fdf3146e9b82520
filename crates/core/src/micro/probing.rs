//! Probing: who hears nothing asks, before it takes anything for lost.

use super::retransmit::{note_acked, note_lost, note_sent, offer_again, patience};
use super::{Fate, MicroProtocol, NEVER, Outgoing, Segment, Sent, Shared, Time};

/// Datagrams that ask for an answer each time (RFC 9002, 6.2.4).
const PROBES: u32 = 2;

/// On a path that loses one datagram in so many, so many having been lost, what is short is sent twice: the second time after half a round trip in
/// which nothing was heard. What is lost costs half a round trip then, and what is not costs as many bytes again (a code for one datagram is
/// its repetition). Not where round trips are shorter than this, in nanoseconds.
const LOSSY: (u64, u64) = (2000, 3);
const SHORT: u64 = 4 << 10;
const FAR: Time = 1_000_000;

/// In the place of Retransmit where losses are known by what came later: its timer has something sent that will be answered, and the
/// answer tells what is lost (tail loss probes: RFC 8985, 7; probe timeouts: RFC 9002, 6.2).
#[derive(Debug, Default)]
pub struct Probing {
    /// When a datagram that is to be acknowledged left last, or something was acknowledged.
    moved: Time,
    /// What is under way was sent twice.
    repeated: bool,
}

impl Probing {
    /// When what is under way is sent again without waiting for longer.
    fn repeats_at(&self, shared: &Shared) -> Time {
        let (lost, sent) = shared.lost_of();
        let lossy = lost >= LOSSY.1 && lost * LOSSY.0 >= sent;
        let short = shared.flight.bytes() <= SHORT && !shared.has_data();
        match !self.repeated && lossy && short && shared.shortest() >= FAR && shared.timeouts == 0 {
            true => self.moved + shared.rtt.smoothed / 2,
            false => NEVER,
        }
    }
}

impl MicroProtocol for Probing {
    const NAME: &'static str = "Probing";

    fn to_net(&mut self, shared: &mut Shared, out: &mut Outgoing<'_>) {
        offer_again(shared, out);
        if out.takes_data && out.segment.len == 0 && shared.probes > 0 && !shared.has_data() {
            // the oldest that may be lost: if it is, the probe is not in vain
            let oldest = shared.flight.oldest().map_or_else(Segment::default, |sent| sent.segment);
            let missing = shared.missing(oldest).next();
            out.segment = missing.map_or_else(Segment::default, |range| Segment {
                pos: range.start,
                len: (range.end - range.start) as u32,
            });
        }
    }

    fn sent(&mut self, shared: &mut Shared, sent: &Sent) {
        if sent.fate == Fate::Flying {
            self.moved = shared.now;
        }
        note_sent(shared, sent);
    }

    fn acked(&mut self, shared: &mut Shared, _sent: &Sent) {
        note_acked(shared);
        self.moved = shared.now;
        self.repeated = false;
    }

    fn lost(&mut self, shared: &mut Shared, sent: &Sent) {
        note_lost(shared, sent);
    }

    fn timeout(&mut self, shared: &mut Shared) {
        if self.due(shared) > shared.now {
            return;
        }
        if self.repeats_at(shared) <= shared.now {
            self.repeated = true;
            shared.probes = 1;
            return;
        }
        shared.timeouts += 1;
        shared.counters.timeouts += 1;
        shared.probes = PROBES;
        if shared.hurried {
            // it may be that nothing which the other side says counts before it has all
            for range in shared.had.gaps(shared.start..shared.fresh) {
                shared.again.add(range);
            }
        }
        self.moved = shared.now;
    }

    fn due(&self, shared: &Shared) -> Time {
        match shared.flight.is_empty() {
            true => NEVER,
            false => self.repeats_at(shared).min(self.moved + patience(shared)),
        }
    }
}
