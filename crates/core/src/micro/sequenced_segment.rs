//! SequencedSegment: each datagram counts once, and it is known which came.

use super::ranges::MAX;
use super::{Arrived, MicroProtocol, Shared};

/// Remembers the numbers of datagrams that came. What has a number below all that are remembered counts as had.
#[derive(Debug, Default)]
pub struct SequencedSegment {
    floor: u64,
}

impl MicroProtocol for SequencedSegment {
    const NAME: &'static str = "SequencedSegment";

    fn from_net(&mut self, shared: &mut Shared, arrived: &Arrived) -> bool {
        let number = arrived.number;
        let newest = shared.came.last().map(|last| last.end - 1);
        if number < self.floor || newest.is_some_and(|newest| number <= newest && shared.came.has(number)) {
            shared.counters.doubled += 1;
            return false;
        }
        if newest.is_some_and(|newest| number < newest) {
            shared.counters.overtaken += 1;
        } else {
            shared.newest_at = shared.now;
        }
        shared.came.add(number..number + 1);
        if shared.came.len() > MAX {
            shared.came.keep_last(MAX);
            self.floor = shared.came.first().map_or(0, |first| first.start);
        }
        true
    }
}
