//! DuplicateAck: what others have overtaken so often is lost.

use super::{MicroProtocol, Sent, Shared};

/// A datagram after which so many came counts as lost (RFC 5681, 3.2; RFC 9002, 6.1.1), at first ...
const THRESHOLD: u64 = 3;
/// ... and at most, where datagrams were found to be only late.
const MOST: u64 = 256;

/// Counts, by numbers, what came after a datagram that did not.
#[derive(Debug)]
pub struct DuplicateAck {
    threshold: u64,
}

impl Default for DuplicateAck {
    fn default() -> Self {
        Self { threshold: THRESHOLD }
    }
}

impl MicroProtocol for DuplicateAck {
    const NAME: &'static str = "DuplicateAck";

    fn detect(&mut self, shared: &mut Shared) {
        let Some(largest) = shared.largest_acked else { return };
        let threshold = self.threshold;
        shared.lose(|sent| sent.number + threshold <= largest);
    }

    fn spurious(&mut self, shared: &mut Shared, sent: &Sent) {
        let late = shared.largest_acked.unwrap_or(0).saturating_sub(sent.number);
        self.threshold = self.threshold.max(late + 1).min(MOST);
    }
}
