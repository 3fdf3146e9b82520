//! ControlAck: on a channel whose values nobody acknowledges, the control channel's share of the stream is.

use super::acknowledging::Acknowledging;
use super::shared::Acknowledged;
use super::{Arrived, MicroProtocol, Outgoing, Shared, Time};
use crate::wire::datagram::Ack;

/// As `PositiveAck`, but a datagram with values is not answered for.
#[derive(Debug, Default)]
pub struct ControlAck {
    acks: Acknowledging,
    /// What was owed before the last datagram came.
    before: Acknowledging,
}

impl MicroProtocol for ControlAck {
    const NAME: &'static str = "ControlAck";

    fn open(&mut self, shared: &mut Shared) {
        shared.acknowledged = Acknowledged::Stream;
    }

    fn from_net(&mut self, shared: &mut Shared, arrived: &Arrived) -> bool {
        self.before = self.acks;
        self.acks.note(shared, arrived);
        true
    }

    fn value_from_net(&mut self, _shared: &mut Shared) {
        self.acks = self.before;
    }

    fn urges(&self, shared: &Shared) -> bool {
        self.acks.urges(shared)
    }

    fn to_net(&mut self, shared: &mut Shared, out: &mut Outgoing<'_>) {
        self.acks.write(shared, out);
    }

    fn ack_from_net(&mut self, shared: &mut Shared, ack: &Ack<'_>) {
        self.acks.read(shared, ack);
        self.before.read_like(&self.acks);
    }

    fn due(&self, _shared: &Shared) -> Time {
        self.acks.due()
    }
}
