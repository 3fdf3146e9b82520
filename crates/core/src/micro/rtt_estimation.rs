//! RTTEstimation: how long an answer takes.

use super::{MicroProtocol, Shared};
use crate::wire::datagram::{Ack, DELAY_UNIT};

/// Round trips by RFC 6298, as RFC 9002, 5, has it for acknowledgements that say how long they waited.
#[derive(Debug, Default)]
pub struct RTTEstimation;

impl MicroProtocol for RTTEstimation {
    const NAME: &'static str = "RTTEstimation";

    fn ack_from_net(&mut self, shared: &mut Shared, ack: &Ack<'_>) {
        let largest = shared.largest_acked;
        // it says when that came, not the others
        let Some(sent) = shared.newly_acked.iter().find(|sent| Some(sent.number) == largest) else { return };
        let latest = shared.now.saturating_sub(sent.at).max(1);
        let rtt = &mut shared.rtt;
        (rtt.latest, rtt.measured_at) = (latest, shared.now);
        if rtt.min == 0 || latest < rtt.min {
            rtt.min = latest;
        }
        let delay = (u64::from(ack.delay) * DELAY_UNIT).min(shared.ack_delay);
        let sample = if latest >= rtt.min + delay { latest - delay } else { latest };
        if rtt.smoothed == 0 {
            (rtt.smoothed, rtt.variation) = (sample, sample / 2);
        } else {
            rtt.variation = (3 * rtt.variation + rtt.smoothed.abs_diff(sample)) / 4;
            rtt.smoothed = (7 * rtt.smoothed + sample) / 8;
        }
    }
}
