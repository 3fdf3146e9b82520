//! What links that ended had learnt of their paths: the next one to the same address begins with it.

use polyrail_core::control::context::Watcher;
use polyrail_core::micro::Time;
use std::collections::HashMap;
use std::net::IpAddr;

/// Of so many addresses that is remembered.
const MOST: usize = 256;
/// For so long, in nanoseconds: 10 minutes.
const LONG: Time = 600_000_000_000;

/// What is known of paths, by the address that they lead to.
#[derive(Debug, Default)]
pub(super) struct Known(HashMap<IpAddr, (Watcher, Time)>);

impl Known {
    /// A link to there has ended, and had this to say.
    pub(super) fn keep(&mut self, now: Time, to: IpAddr, watcher: &Watcher) {
        if self.0.len() >= MOST && !self.0.contains_key(&to) {
            let oldest = self.0.iter().min_by_key(|(_, (_, when))| *when).map(|(to, _)| *to);
            oldest.and_then(|to| self.0.remove(&to));
        }
        self.0.insert(to, (watcher.again(), now));
    }

    /// What a link to there begins with.
    pub(super) fn recall(&self, now: Time, to: IpAddr) -> Watcher {
        let found = self.0.get(&to).filter(|(_, when)| now <= when.saturating_add(LONG));
        found.map_or_else(Watcher::default, |(watcher, _)| *watcher)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn what_is_known_is_bounded_and_grows_old() {
        let mut known = Known::default();
        let at = |n: u32| IpAddr::from(Ipv4Addr::from(n));
        for n in 0..1000 {
            known.keep(Time::from(n), at(n), &Watcher::default());
        }
        assert_eq!(known.0.len(), MOST);
        assert!(known.0.contains_key(&at(999)) && !known.0.contains_key(&at(0)));
        known.keep(2000, at(999), &Watcher::default());
        assert_eq!((known.0.len(), known.0[&at(999)].1), (MOST, 2000));
    }
}
