//! PositiveAck: what came is said, soon, and with what else there is to say.

use super::acknowledging::Acknowledging;
use super::shared::Acknowledged;
use super::{Arrived, MicroProtocol, Outgoing, Shared, Time};
use crate::wire::datagram::Ack;

/// Says which datagrams came, as ranges of their numbers, and reads what the other side says of that (selective acknowledgements: RFC 2018,
/// RFC 9000, 13.2).
#[derive(Debug, Default)]
pub struct PositiveAck(Acknowledging);

impl MicroProtocol for PositiveAck {
    const NAME: &'static str = "PositiveAck";

    fn open(&mut self, shared: &mut Shared) {
        shared.acknowledged = Acknowledged::All;
    }

    fn from_net(&mut self, shared: &mut Shared, arrived: &Arrived) -> bool {
        self.0.note(shared, arrived);
        true
    }

    fn urges(&self, shared: &Shared) -> bool {
        self.0.urges(shared)
    }

    fn to_net(&mut self, shared: &mut Shared, out: &mut Outgoing<'_>) {
        self.0.write(shared, out);
    }

    fn ack_from_net(&mut self, shared: &mut Shared, ack: &Ack<'_>) {
        self.0.read(shared, ack);
    }

    fn due(&self, _shared: &Shared) -> Time {
        self.0.due()
    }
}
