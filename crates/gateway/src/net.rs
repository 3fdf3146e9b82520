//! Addresses of sites: networks, what a connection is wanted to, and ranges by which overlapping ones are told apart.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Longest name of a host, in bytes (RFC 1035).
const NAME_MAX: usize = 253;

/// Addresses that begin alike: `10.1.0.0/16`.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Network {
    first: IpAddr,
    prefix: u8,
}

/// An address as one number, and how many bits it has.
fn number(ip: IpAddr) -> (u128, u8) {
    match ip {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()), 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    }
}

/// The bits that do not belong to the prefix.
fn rest(prefix: u8, bits: u8) -> u128 {
    match bits - prefix {
        128 => u128::MAX,
        free => (1 << free) - 1,
    }
}

/// What IPv6 sockets call an IPv4 address is that.
pub fn plain(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

impl Network {
    /// The one with this address and so many bits of prefix.
    ///
    /// # Errors
    /// A sentence: the prefix is too long, or the address has bits beyond it.
    pub fn new(first: IpAddr, prefix: u8) -> Result<Self, String> {
        let (value, bits) = number(first);
        if prefix > bits {
            return Err(format!("{first}/{prefix}: a prefix of more than {bits} bits"));
        }
        let beyond = value & rest(prefix, bits);
        if beyond != 0 {
            let it = Self { first, prefix }.at(value - beyond);
            return Err(format!("{first}/{prefix} begins in the middle; {it}/{prefix} has it"));
        }
        Ok(Self { first, prefix })
    }

    fn at(&self, value: u128) -> IpAddr {
        match self.first {
            IpAddr::V4(_) => Ipv4Addr::from_bits(value as u32).into(),
            IpAddr::V6(_) => Ipv6Addr::from_bits(value).into(),
        }
    }

    /// Whether an address is one of these.
    pub fn has(&self, ip: IpAddr) -> bool {
        let ((value, bits), (first, ours)) = (number(plain(ip)), number(self.first));
        bits == ours && value & !rest(self.prefix, bits) == first
    }

    /// How many bits its addresses begin with alike.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Whether one address is in both.
    pub fn meets(&self, other: &Self) -> bool {
        self.has(other.first) || other.has(self.first)
    }

    /// Whether all of it is in another.
    pub fn is_within(&self, other: &Self) -> bool {
        self.prefix >= other.prefix && other.has(self.first)
    }

    /// Why no site can say that it has this: it is every host's own, or nearly everything.
    pub fn is_nobodys(&self) -> Option<&'static str> {
        const OWN: [(&str, &str); 6] = [
            ("127.0.0.0/8", "each host has those for itself"),
            ("169.254.0.0/16", "those are of one link"),
            ("224.0.0.0/4", "those are of groups"),
            ("::1/128", "each host has that for itself"),
            ("fe80::/10", "those are of one link"),
            ("ff00::/8", "those are of groups"),
        ];
        // nobody's site is so large
        let least = if self.first.is_ipv4() { 7 } else { 15 };
        if self.prefix < least {
            return Some("that is nearly everything");
        }
        let own = OWN.iter().filter_map(|(text, why)| Some((text.parse::<Self>().ok()?, why)));
        own.filter(|(network, _)| self.meets(network)).map(|(_, why)| *why).next()
    }

    /// The address that stands in another network of the same size where `ip` stands in this.
    pub fn mapped(&self, ip: IpAddr, to: &Self) -> Option<IpAddr> {
        let (value, bits) = number(plain(ip));
        let same = self.has(ip) && self.prefix == to.prefix && number(to.first).1 == bits;
        same.then(|| to.at(number(to.first).0 | value & rest(self.prefix, bits)))
    }

    /// Whether two have as many addresses.
    pub fn is_as_large_as(&self, other: &Self) -> bool {
        self.prefix == other.prefix && number(self.first).1 == number(other.first).1
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (ip, prefix) = match text.split_once('/') {
            Some((ip, prefix)) => (ip, Some(prefix)),
            None => (text, None),
        };
        let bad = || format!("{text:?} is no network, as 10.1.0.0/16 or 2001:db8::/32 are");
        let first: IpAddr = ip.parse().map_err(|_| bad())?;
        let prefix = match prefix {
            Some(prefix) => prefix.parse().map_err(|_| bad())?,
            None => number(first).1,
        };
        Self::new(first, prefix)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl TryFrom<String> for Network {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

/// Whom a connection is wanted with: an address, or a name that the other site knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Target {
    /// An address and a port.
    At(SocketAddr),
    /// A name and a port.
    Named(String, u16),
}

impl Target {
    /// The one with this name.
    ///
    /// # Errors
    /// A sentence: no host can have that name.
    pub fn named(name: &str, port: u16) -> Result<Self, String> {
        if let Ok(ip) = name.parse::<IpAddr>() {
            return Ok(Self::At((plain(ip), port).into()));
        }
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        match !name.is_empty() && name.len() <= NAME_MAX && name.chars().all(fits) {
            true => Ok(Self::Named(name.to_ascii_lowercase(), port)),
            false => Err("no host can have such a name".into()),
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(at) = text.parse::<SocketAddr>() {
            return Ok(Self::At((plain(at.ip()), at.port()).into()));
        }
        let bad = || "no host and port, as 10.1.0.5:80 or node5:80 are".to_owned();
        let (name, port) = text.rsplit_once(':').ok_or_else(bad)?;
        Self::named(name, port.parse().map_err(|_| bad())?)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(at) => write!(f, "{at}"),
            Self::Named(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

impl TryFrom<String> for Target {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        target.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    #[test]
    fn networks_are_read_and_bad_ones_named() {
        for text in ["10.1.0.0/16", "0.0.0.0/0", "::/0", "2001:db8::/32", "10.0.0.1/32"] {
            assert_eq!(network(text).to_string(), text);
        }
        assert_eq!(network("10.0.0.1").to_string(), "10.0.0.1/32");
        for (text, said) in [
            ("10.1.0.0/33", "more than 32 bits"),
            ("10.1.0.5/16", "10.1.0.0/16 has it"),
            ("ten/8", "is no network"),
            ("10.0.0.0/x", "is no network"),
        ] {
            let why = text.parse::<Network>().unwrap_err();
            assert!(why.contains(said), "{why}");
        }
    }

    #[test]
    fn an_address_is_found_whatever_its_family_calls_it() {
        let ours = network("10.1.0.0/16");
        assert!(ours.has("10.1.255.3".parse().unwrap()) && ours.has("::ffff:10.1.0.1".parse().unwrap()));
        assert!(!ours.has("10.2.0.0".parse().unwrap()) && !ours.has("::a01:1".parse().unwrap()));
        assert!(ours.meets(&network("10.0.0.0/8")) && network("10.0.0.0/8").meets(&ours));
        assert!(!ours.meets(&network("10.2.0.0/16")) && !network("0.0.0.0/0").meets(&network("::/0")));
    }

    #[test]
    fn what_nobody_can_have_is_nobodys() {
        for text in
            ["127.0.0.0/8", "127.1.0.0/16", "0.0.0.0/0", "::/0", "224.0.0.0/24", "fe80::/64", "96.0.0.0/6"]
        {
            assert!(network(text).is_nobodys().is_some(), "{text}");
        }
        for text in ["10.0.0.0/8", "192.168.7.0/24", "2001:db8::/32", "fd00::/16", "128.0.0.0/8"] {
            assert_eq!(network(text).is_nobodys(), None, "{text}");
        }
        assert!(network("10.1.0.0/16").is_within(&network("10.0.0.0/8")));
        assert!(!network("10.0.0.0/8").is_within(&network("10.1.0.0/16")));
    }

    #[test]
    fn what_overlaps_is_mapped() {
        let (seen, theirs) = (network("10.200.0.0/16"), network("10.1.0.0/16"));
        assert_eq!(seen.mapped("10.200.3.4".parse().unwrap(), &theirs), Some("10.1.3.4".parse().unwrap()));
        assert_eq!(seen.mapped("10.201.3.4".parse().unwrap(), &theirs), None);
        assert_eq!(seen.mapped("10.200.3.4".parse().unwrap(), &network("10.1.0.0/24")), None);
    }

    #[test]
    fn targets_are_read_and_bad_ones_refused() {
        for text in ["10.1.0.5:80", "[2001:db8::1]:80", "node5.east:22"] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        assert_eq!("[::ffff:10.1.0.5]:80".parse::<Target>().unwrap().to_string(), "10.1.0.5:80");
        for text in ["", ":80", "node5", "node5:70000", "a b:1", "a/b:1", &format!("{}:1", "a".repeat(300))] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn mapping_there_and_back_is_nothing(ip in any::<u32>(), prefix in 0u8..=32, a in any::<u32>(), b in any::<u32>()) {
            let at = |value: u32| Network::new(Ipv4Addr::from_bits(value & !rest(prefix, 32) as u32).into(), prefix).unwrap();
            let (a, b) = (at(a), at(b));
            let ip = IpAddr::from(Ipv4Addr::from_bits(number(a.first).0 as u32 | ip & rest(prefix, 32) as u32));
            prop_assert!(a.has(ip));
            let there = a.mapped(ip, &b).unwrap();
            prop_assert!(b.has(there));
            prop_assert_eq!(b.mapped(there, &a), Some(ip));
        }
    }
}
