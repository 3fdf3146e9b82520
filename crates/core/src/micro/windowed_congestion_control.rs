//! WindowedCongestionControl: no more is on its way than the window says.

use super::{MicroProtocol, Shared};

/// The gate; who sets the window is a micro-protocol of its own.
#[derive(Debug, Default)]
pub struct WindowedCongestionControl;

impl MicroProtocol for WindowedCongestionControl {
    const NAME: &'static str = "WindowedCongestionControl";

    fn allows(&self, shared: &Shared, size: u32) -> bool {
        shared.flight.bytes() + u64::from(size) <= shared.window
    }
}
