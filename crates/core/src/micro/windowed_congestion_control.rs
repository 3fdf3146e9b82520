//! WindowedCongestionControl: no more is on its way than the window says.

use super::{MicroProtocol, Shared};

/// The gate; who sets the window is a micro-protocol of its own.
#[derive(Debug, Default)]
pub struct WindowedCongestionControl;

impl MicroProtocol for WindowedCongestionControl {
    const NAME: &'static str = "WindowedCongestionControl";

    fn allows(&self, shared: &Shared, size: u32) -> bool {
        let flies = shared.flight.bytes();
        // a window made small may be less than one datagram, once the path has turned out to take longer ones: without an answer it stays so
        flies == 0 || flies + u64::from(size) <= shared.window
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Fate, Segment, Sent};
    use super::*;

    #[test]
    fn a_datagram_may_leave_where_nothing_is_on_its_way() {
        let mut shared = Shared::new(0, 1200, 0, 1 << 30, 0);
        shared.window = 4 * 1200;
        let gate = WindowedCongestionControl;
        assert!(gate.allows(&shared, 8972), "however long datagrams have become");
        let (segment, mark) = (Segment { pos: 0, len: 1100 }, shared.delivery.mark(0, 0, 1200));
        for number in 0..4 {
            assert!(gate.allows(&shared, 1200), "{number}");
            shared.flight.push(Sent {
                number,
                at: 0,
                size: 1200,
                segment,
                probes_path: false,
                fate: Fate::Flying,
                mark,
            });
            assert!(!gate.allows(&shared, 8972));
        }
        assert!(!gate.allows(&shared, 1200));
    }
}
