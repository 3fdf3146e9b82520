//! Retransmit: what is lost is sent again; what nobody answered for in time is lost.

use super::{MicroProtocol, NEVER, Outgoing, Segment, Sent, Shared, Time};

/// Before anything was measured an answer is waited for so long, in nanoseconds.
const UNKNOWN: Time = 100_000_000;
/// No timer is finer, in nanoseconds.
const GRAIN: Time = 1_000_000;
/// The wait for an answer doubles each time, so often ...
const DOUBLED: u32 = 10;
/// ... and up to this, in nanoseconds: the other side's program may compute.
const MOST: Time = 1_000_000_000;
/// The same in a handshake, which gets nowhere without an answer, and for which nobody waits long.
const HURRIED: Time = 200_000_000;

/// How long an answer is waited for (RFC 6298, RFC 9002, 6.2.1).
pub(super) fn patience(shared: &Shared) -> Time {
    let rtt = shared.rtt;
    let once = match rtt.smoothed {
        0 => UNKNOWN,
        smoothed => smoothed + (4 * rtt.variation).max(GRAIN) + shared.ack_delay,
    };
    let most = if shared.hurried { HURRIED } else { MOST };
    (once << shared.timeouts.min(DOUBLED)).min(most.max(once))
}

/// Proposes what is to be sent again for a datagram.
pub(super) fn offer_again(shared: &Shared, out: &mut Outgoing<'_>) {
    if let Some(first) = shared.again.first().filter(|_| out.takes_data) {
        let len = (first.end - first.start).min(u64::from(u32::MAX)) as u32;
        out.segment = Segment { pos: first.start, len };
    }
}

/// A part of the stream left, perhaps again.
pub(super) fn note_sent(shared: &mut Shared, sent: &Sent) {
    if sent.segment.len > 0 && sent.segment.pos < shared.fresh {
        shared.again.remove(sent.segment.pos..sent.segment.end());
        shared.counters.again += u64::from(sent.segment.len);
    }
}

/// What was lost, and did not come otherwise, is to be sent again.
pub(super) fn note_lost(shared: &mut Shared, sent: &Sent) {
    for range in shared.had.gaps(sent.segment.pos..sent.segment.end()) {
        shared.again.add(range);
    }
}

/// Something was acknowledged.
pub(super) fn note_acked(shared: &mut Shared) {
    if shared.timeouts > 0 {
        shared.timeouts_before = shared.timeouts;
    }
    (shared.timeouts, shared.probes) = (0, 0);
}

/// Keeps what parts of the stream are to be sent again, and has a timer for the oldest datagram that was not answered for.
#[derive(Debug, Default)]
pub struct Retransmit {
    /// When something was acknowledged last, or counted as lost by the timer.
    moved: Time,
}

impl Retransmit {
    fn expires(&self, shared: &Shared) -> Time {
        shared.flight.oldest().map_or(NEVER, |sent| sent.at.max(self.moved) + patience(shared))
    }
}

impl MicroProtocol for Retransmit {
    const NAME: &'static str = "Retransmit";

    fn to_net(&mut self, shared: &mut Shared, out: &mut Outgoing<'_>) {
        offer_again(shared, out);
    }

    fn sent(&mut self, shared: &mut Shared, sent: &Sent) {
        note_sent(shared, sent);
    }

    fn acked(&mut self, shared: &mut Shared, _sent: &Sent) {
        note_acked(shared);
        self.moved = shared.now;
    }

    fn lost(&mut self, shared: &mut Shared, sent: &Sent) {
        note_lost(shared, sent);
        if sent.segment.len == 0 && !sent.probes_path {
            // it asked whether the other side is there
            shared.probes = 1;
        }
    }

    fn timeout(&mut self, shared: &mut Shared) {
        if self.expires(shared) > shared.now {
            return;
        }
        let before = shared.now - patience(shared);
        shared.lose(|sent| sent.at <= before);
        shared.timeouts += 1;
        shared.counters.timeouts += 1;
        self.moved = shared.now;
    }

    fn due(&self, shared: &Shared) -> Time {
        self.expires(shared)
    }
}
