//! Probing: who hears nothing asks, before it takes anything for lost.

use super::retransmit::{note_acked, note_lost, note_sent, offer_again, patience};
use super::{Fate, MicroProtocol, NEVER, Outgoing, Segment, Sent, Shared, Time};

/// Datagrams that ask for an answer each time (RFC 9002, 6.2.4).
const PROBES: u32 = 2;

/// In the place of Retransmit where losses are known by what came later: its timer has something sent that will be answered, and the
/// answer tells what is lost (tail loss probes: RFC 8985, 7; probe timeouts: RFC 9002, 6.2).
#[derive(Debug, Default)]
pub struct Probing {
    /// When a datagram that is to be acknowledged left last, or something was acknowledged.
    moved: Time,
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
    }

    fn lost(&mut self, shared: &mut Shared, sent: &Sent) {
        note_lost(shared, sent);
    }

    fn timeout(&mut self, shared: &mut Shared) {
        if self.due(shared) > shared.now {
            return;
        }
        shared.timeouts += 1;
        shared.counters.timeouts += 1;
        shared.probes = PROBES;
        self.moved = shared.now;
    }

    fn due(&self, shared: &Shared) -> Time {
        if shared.flight.is_empty() { NEVER } else { self.moved + patience(shared) }
    }
}
