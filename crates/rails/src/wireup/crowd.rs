//! Connections to the listeners that have not proved the key: how many are kept, and which of them gives way.
//!
//! They may not take the descriptors that the program needs, and who sends many of them may not take the room of who sends
//! one: where there is no room, the oldest of the source that has most gives way. Whoever meant well calls again.

use super::Token;
use crate::rail::channel::{Channel, Source};
use polyrail_core::wireup::ResponderPhase;
use std::cmp::Reverse;
use std::collections::HashMap;
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
        Self::within(limit(), newest.saturating_sub(strangers))
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

/// How many descriptors this process may have; it may change that at any time.
fn limit() -> usize {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is ours.
    let told = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut now) } == 0;
    if told { usize::try_from(now.rlim_cur).unwrap_or(usize::MAX) } else { 1024 }
}

/// Which of these connections gives way: the oldest of the source that has most of them. Older ones have lower numbers.
pub(super) fn gives_way(all: impl Iterator<Item = (Token, Source)>) -> Option<Token> {
    let mut by_source: HashMap<Source, (usize, Token)> = HashMap::new();
    for (token, source) in all {
        let (count, oldest) = by_source.entry(source).or_insert((0, token));
        *count += 1;
        *oldest = token.min(*oldest);
    }
    let most = by_source.into_values().max_by_key(|(count, oldest)| (*count, Reverse(*oldest)));
    most.map(|(_, oldest)| oldest)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn net(text: &str) -> Source {
        Source::at(text.parse().expect("an IP"))
    }

    #[test]
    fn who_has_most_gives_way_and_of_its_own_the_oldest() {
        let (many, few) = (net("10.0.0.1"), net("10.0.0.2"));
        let of =
            |all: &[(u64, Source)]| gives_way(all.iter().map(|(token, source)| (Token(*token), *source)));
        assert_eq!(of(&[(3, many), (1, few), (4, many), (2, few), (5, many)]), Some(Token(3)));
        assert_eq!(of(&[(7, few), (6, many)]), Some(Token(6)), "alike: the oldest");
        assert_eq!(of(&[]), None);
    }

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
