//! TransportDriver: the end of a stack where the network begins.

use super::{Arrived, MicroProtocol, Shared};

/// Counts what comes and goes. Everything else that P2PSAP's does (ports, sessions, the interface) is of the connection, which holds the
/// stack.
#[derive(Debug, Default)]
pub struct TransportDriver;

impl MicroProtocol for TransportDriver {
    const NAME: &'static str = "TransportDriver";

    fn from_net(&mut self, shared: &mut Shared, _arrived: &Arrived) -> bool {
        shared.counters.received += 1;
        true
    }
}
