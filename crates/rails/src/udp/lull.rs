//! How often sockets are looked at while something long comes or goes: datagram by datagram, each would wake whoever sleeps, and have an
//! acknowledgement of its own, which wakes the other side.
//!
//! A lull is a small part of a round trip, so that who sends hardly notices; on near paths there is none. Short messages of other peers that come
//! by UDP wait, too: where all are near TCP serves.

use crate::sys::Epoll;
use polyrail_core::micro::Time;
use std::os::fd::RawFd;

/// Bytes that are still to come of a payload that counts as long; and bytes that are on their way.
const LONG: (usize, u64) = (32 << 10, 128 << 10);
/// So much of the shortest round trip, in parts, and no longer, in nanoseconds; one that would be shorter than the second is none.
const PART: u64 = 20;
const LENGTH: (Time, Time) = (1_000_000, 75_000);

/// Whether sockets are left alone, and until when.
#[derive(Debug, Default)]
pub(super) struct Lull {
    /// Links that something long comes or goes by.
    links: usize,
    /// When sockets are looked at next; 0: always.
    until: Time,
    /// The sockets wake nobody.
    hushed: bool,
}

impl Lull {
    /// Something has come by a link, of which so many bytes are still to come, and by which so many are on their way; what was noted of the
    /// link is brought up to date.
    pub(super) fn note(&mut self, now: Time, rest: usize, on_way: u64, rtt: Time, noted: &mut bool) {
        let length = (rtt / PART).min(LENGTH.0);
        let long = (rest >= LONG.0 || on_way >= LONG.1) && length >= LENGTH.1;
        match (std::mem::replace(noted, long), long) {
            (false, true) => self.links += 1,
            (true, false) => self.links -= 1,
            _ => {}
        }
        self.until = if self.links > 0 { now + length.max(LENGTH.1) } else { 0 };
    }

    /// A link has ended.
    pub(super) fn forget(&mut self, noted: &mut bool) {
        self.links -= usize::from(std::mem::take(noted));
        self.until = if self.links > 0 { self.until } else { 0 };
    }

    /// Whether sockets are left alone now.
    pub(super) fn holds(&self, now: Time) -> bool {
        now < self.until
    }

    /// Whether the sockets wake nobody, and are told of to nobody.
    pub(super) fn hushed(&self) -> bool {
        self.hushed
    }

    /// Whether something long is coming.
    pub(super) fn any(&self) -> bool {
        self.links > 0
    }

    /// When sockets are to be looked at though they wake nobody.
    pub(super) fn due(&self) -> Option<Time> {
        self.hushed.then_some(self.until)
    }

    /// Somebody is about to sleep: sockets wake him, or not.
    pub(super) fn arm(&mut self, now: Time, epoll: &Epoll, sockets: impl Iterator<Item = RawFd>) {
        let hushed = self.holds(now);
        if self.hushed != hushed {
            let events = if hushed { 0 } else { libc::EPOLLIN };
            // a socket that still wakes is looked at too early, and no harm is done
            let mut told = true;
            (0..).zip(sockets).for_each(|(token, fd)| told &= epoll.change(fd, events, token).is_ok());
            self.hushed = hushed && told;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MS: Time = 1_000_000;

    #[test]
    fn there_is_a_lull_while_something_long_comes_or_goes_over_a_far_path() {
        let mut lull = Lull::default();
        let (mut one, mut other) = (false, false);
        lull.note(0, 1 << 20, 0, 20 * MS, &mut one);
        assert!(lull.any() && lull.holds(999_999) && !lull.holds(1_000_000));
        lull.note(10 * MS, 0, 1 << 20, 20 * MS, &mut other);
        lull.note(10 * MS + 1, 1000, 1000, 20 * MS, &mut one);
        assert!(lull.any() && lull.holds(11 * MS));
        lull.forget(&mut other);
        assert!(!lull.any() && !lull.holds(11 * MS) && !one && !other);
        lull.forget(&mut other);
        lull.note(12 * MS, 1 << 20, 1 << 20, MS, &mut one);
        assert!(!lull.any(), "near");
    }
}
