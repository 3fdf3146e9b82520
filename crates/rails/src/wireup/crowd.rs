//! Connections to the listeners that have not proved the key: how many are kept, and which of them gives way.
//!
//! They may not take the descriptors that the program needs, and who sends many of them may not take the room of who sends
//! one: where there is no room, the oldest of the source that has most gives way. Whoever meant well calls again.

use crate::rail::channel::Channel;
use crate::sys::descriptor_limit;
use polyrail_core::wireup::ResponderPhase;
use std::os::fd::AsRawFd;

/// Connections that have said nothing yet, and such that know whom they want but have not proved the key, at once, however
/// many descriptors there are.
const MAX_SILENT: usize = 512;
const MAX_UNPROVEN: usize = 4096;
/// So many of each are kept where next to no descriptor is left.
const LEAST: usize = 4;

/// How many strangers are kept, by what they still owe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Room {
    silent: usize,
    unproven: usize,
}

impl Room {
    /// Room for `strangers` and one that just came, by whose descriptor it is seen how many others there are: the kernel gives
    /// the lowest that is free. All strangers together get a quarter of what the others leave.
    pub fn beside(channel: &dyn Channel, strangers: usize) -> Self {
        let newest = channel.fd().as_raw_fd().max(0) as usize;
        Self::within(descriptor_limit(), newest.saturating_sub(strangers))
    }

    fn within(limit: usize, others: usize) -> Self {
        let each = (limit.saturating_sub(others) / 8).max(LEAST);
        Self { silent: each.min(MAX_SILENT), unproven: each.min(MAX_UNPROVEN) }
    }

    /// How many strangers that owe this are kept.
    pub fn of(&self, phase: ResponderPhase) -> usize {
        if phase == ResponderPhase::AwaitHello { self.silent } else { self.unproven }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn strangers_get_a_quarter_of_what_is_left() {
        let total = |limit, others| {
            let room = Room::within(limit, others);
            room.silent + room.unproven
        };
        assert_eq!(total(1024, 0), 256);
        assert_eq!(total(1024, 824), 50);
        assert_eq!(total(1024, 2000), 2 * LEAST);
        assert_eq!(total(1 << 20, 100), MAX_SILENT + MAX_UNPROVEN);
    }
}
