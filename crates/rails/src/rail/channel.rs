//! A connection before it is a link: what a handshake needs of it, whatever carries it.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};

/// A stream of bytes, perhaps with descriptors beside them, to whoever is at its other end. Nothing of it waits: what cannot be
/// done now is `WouldBlock`.
pub trait Channel: Send {
    /// Sends bytes, and the descriptors along with the first of them where it can carry any.
    ///
    /// # Errors
    /// `WouldBlock`, or `NotConnected` while it is being made; anything else ended it.
    fn write(&mut self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<usize>;

    /// Receives bytes, and the descriptors that came with them; no bytes is the end.
    ///
    /// # Errors
    /// `WouldBlock`; anything else ended it.
    fn read(&mut self, bytes: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<usize>;

    /// What to watch for room and bytes.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Whether the other end is known to be there, once bytes were taken.
    fn stands(&self) -> bool {
        true
    }

    /// Where it comes from, when the other side opened it.
    fn source(&self) -> Source;

    /// What it is called in messages, when the other side opened it.
    fn name(&self) -> String;

    /// The descriptor, of which a link is to be made.
    fn into_fd(self: Box<Self>) -> OwnedFd;
}

/// Where a connection comes from, as far as that tells strangers apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// A host, or the network that one owns.
    Network(IpAddr),
    /// A user of this host.
    User(u32),
    /// The kernel does not say.
    Unknown,
}

impl Source {
    /// A host has all of 127.0.0.0/8 to call from, and as a rule a whole IPv6 network of 64 bits.
    pub fn at(ip: IpAddr) -> Self {
        Self::Network(match ip.to_canonical() {
            IpAddr::V4(v4) if v4.is_loopback() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(v6) if v6.is_loopback() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
            v4 => v4,
        })
    }
}

/// Which of these connections gives way: the oldest of the source that has most of them. Older ones have lower numbers.
pub fn gives_way<N: Copy + Ord>(all: impl Iterator<Item = (N, Source)>) -> Option<N> {
    let mut by_source: HashMap<Source, (usize, N)> = HashMap::new();
    for (number, source) in all {
        let (count, oldest) = by_source.entry(source).or_insert((0, number));
        *count += 1;
        *oldest = number.min(*oldest);
    }
    let most = by_source.into_values().max_by_key(|(count, oldest)| (*count, Reverse(*oldest)));
    most.map(|(_, oldest)| oldest)
}

/// Where a peer may be reached by a rail, as the rail itself says it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Destination {
    /// A socket's address; from one of this side's addresses, where that matters.
    Socket {
        /// Where to.
        to: SocketAddr,
        /// From which address, and by which interface.
        from: Option<(SocketAddr, Option<String>)>,
    },
    /// A socket's address at another site, to be connected by this site's gateway.
    Relayed {
        /// Where the gateway is called.
        gateway: SocketAddr,
        /// Where to.
        to: SocketAddr,
    },
    /// Somewhere that has a name.
    Named {
        /// What messages call it.
        called: &'static str,
        /// The name.
        name: Vec<u8>,
    },
}

impl std::fmt::Display for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Socket { to, .. } => to.fmt(f),
            Self::Relayed { gateway, to } => write!(f, "{to} by the gateway at {gateway}"),
            Self::Named { called, .. } => f.write_str(called),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_most_gives_way_and_of_its_own_the_oldest() {
        let net = |text: &str| Source::at(text.parse().expect("an IP"));
        let (many, few) = (net("10.0.0.1"), net("10.0.0.2"));
        let of = |all: &[(u64, Source)]| gives_way(all.iter().copied());
        assert_eq!(of(&[(3, many), (1, few), (4, many), (2, few), (5, many)]), Some(3));
        assert_eq!(of(&[(7, few), (6, many)]), Some(6), "alike: the oldest");
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn one_host_is_one_source_whichever_of_its_addresses_it_uses() {
        let net = |text: &str| Source::at(text.parse().expect("an IP"));
        assert_eq!(net("127.0.0.1"), net("127.9.9.9"));
        assert_eq!(net("127.0.0.1"), net("::1"));
        assert_eq!(net("2001:db8::1"), net("2001:db8::ffff:1:2:3"));
        assert_ne!(net("2001:db8::1"), net("2001:db8:0:1::1"));
        assert_eq!(net("::ffff:10.0.0.1"), net("10.0.0.1"));
        assert_ne!(net("10.0.0.1"), net("10.0.0.2"));
    }
}
