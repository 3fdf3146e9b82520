//! SequencedSegment: each datagram counts once, and it is known which came.

use super::acknowledging::note_number;
use super::{Arrived, MicroProtocol, Shared};

/// Remembers the numbers of datagrams that came. What has a number below all that are remembered counts as had.
#[derive(Debug, Default)]
pub struct SequencedSegment {
    floor: u64,
}

impl MicroProtocol for SequencedSegment {
    const NAME: &'static str = "SequencedSegment";

    fn from_net(&mut self, shared: &mut Shared, arrived: &Arrived) -> bool {
        note_number(shared, &mut self.floor, arrived.number)
    }
}
