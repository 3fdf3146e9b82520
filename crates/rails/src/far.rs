//! Which hosts are far, of those that this process has been connected to by a network: for who asks from outside of all calls, whatever endpoints do meanwhile.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use polyrail_core::cost;
use polyrail_core::wire::HostId;

/// Most hosts that are remembered.
const MOST: usize = 1 << 16;

/// The shortest round trip of each when a first link to it stood, in microseconds.
static SHORTEST: Mutex<BTreeMap<u64, u32>> = Mutex::new(BTreeMap::new());

/// A first link to a host stands, and this is the shortest of its round trips: the first ones after the handshake may have waited for a late
/// acknowledgement. All bits set: nobody knows.
pub(crate) fn note(host: HostId, shortest_us: u32) {
    let mut all = SHORTEST.lock().unwrap_or_else(PoisonError::into_inner);
    if shortest_us < u32::MAX && (all.len() < MOST || all.contains_key(&host.0)) {
        all.entry(host.0).and_modify(|least| *least = shortest_us.min(*least)).or_insert(shortest_us);
    }
}

/// Whether a round trip to a host is so long that it counts; none where no network has led to it.
pub fn is_far(host: HostId) -> Option<bool> {
    let all = SHORTEST.lock().unwrap_or_else(PoisonError::into_inner);
    all.get(&host.0).map(|shortest| cost::is_far(u64::from(*shortest) * 1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_round_trip_counts() {
        let host = HostId(0x7e57);
        assert_eq!(is_far(host), None);
        note(host, u32::MAX);
        assert_eq!(is_far(host), None);
        note(host, 20_000);
        assert_eq!(is_far(host), Some(true));
        note(host, 90);
        note(host, 20_000);
        assert_eq!(is_far(host), Some(false));
    }
}
