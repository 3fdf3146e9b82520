//! Connections to the listeners that have not proved the key: how many are kept, and which of them gives way.
//!
//! They may not take the descriptors that the program needs, and who sends many of them may not take the room of who sends
//! one: where there is no room, the oldest of the source that has most gives way. Whoever meant well calls again.

use super::handshake::Stream;
use crate::shm::fdpass;
use polyrail_core::wireup::ResponderPhase;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;

/// Connections that have said nothing yet, and such that know whom they want but have not proved the key, at once, however
/// many descriptors there are.
const MAX_SILENT: usize = 512;
const MAX_UNPROVEN: usize = 4096;
/// So many of each are kept where next to no descriptor is left.
const LEAST: usize = 4;

/// Where a connection comes from, as far as that tells strangers apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Source {
    /// A host, or the network that one owns.
    Network(IpAddr),
    /// A user of this host.
    User(u32),
    /// The kernel does not say.
    Unknown,
}

impl Source {
    pub fn of(stream: &Stream) -> Self {
        match stream {
            Stream::Tcp(tcp) => tcp.peer_addr().map_or(Self::Unknown, |at| Self::at(at.ip())),
            Stream::Unix(fd, _) => {
                fdpass::peer_uid(std::os::fd::AsFd::as_fd(fd)).map_or(Self::Unknown, Self::User)
            }
        }
    }

    /// A host has all of 127.0.0.0/8 to call from, and as a rule a whole IPv6 network of 64 bits.
    fn at(ip: IpAddr) -> Self {
        Self::Network(match ip.to_canonical() {
            IpAddr::V4(v4) if v4.is_loopback() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(v6) if v6.is_loopback() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
            v4 => v4,
        })
    }
}

/// How many strangers are kept, by what they still owe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Room {
    silent: usize,
    unproven: usize,
}

impl Room {
    /// Room for `strangers` and one that just came, by whose descriptor it is seen how many others there are: the kernel gives
    /// the lowest that is free. All strangers together get a quarter of what the others leave.
    pub fn beside(stream: &Stream, strangers: usize) -> Self {
        let newest = stream.fd().as_raw_fd().max(0) as usize;
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
pub(super) fn gives_way(all: impl Iterator<Item = (u64, Source)>) -> Option<u64> {
    let mut by_source: HashMap<Source, (usize, u64)> = HashMap::new();
    for (token, source) in all {
        let (count, oldest) = by_source.entry(source).or_insert((0, token));
        *count += 1;
        *oldest = token.min(*oldest);
    }
    let most = by_source.into_values().max_by_key(|(count, oldest)| (*count, u64::MAX - oldest));
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
        let all = [(3, many), (1, few), (4, many), (2, few), (5, many)];
        assert_eq!(gives_way(all.into_iter()), Some(3));
        assert_eq!(gives_way([(7, few), (6, many)].into_iter()), Some(6), "alike: the oldest");
        assert_eq!(gives_way([].into_iter()), None);
    }

    #[test]
    fn one_host_is_one_source_whichever_of_its_addresses_it_uses() {
        assert_eq!(net("127.0.0.1"), net("127.9.9.9"));
        assert_eq!(net("127.0.0.1"), net("::1"));
        assert_eq!(net("2001:db8::1"), net("2001:db8::ffff:1:2:3"));
        assert_ne!(net("2001:db8::1"), net("2001:db8:0:1::1"));
        assert_eq!(net("::ffff:10.0.0.1"), net("10.0.0.1"));
        assert_ne!(net("10.0.0.1"), net("10.0.0.2"));
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
