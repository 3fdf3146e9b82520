//! The group to which a communicator's broadcasts go, as one of its ranks knows it, and what is told of it before.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use polyrail_core::coll::cast::{HEAD, Head, TAG, Window};
use polyrail_rails::multicast::{Ear, Key, Mouth, Network};

use crate::choice::Choice;

/// Networks that a group uses at most: fewer than there are bits that tell of them.
const NETWORKS: usize = 12;
/// Bytes of what a host tells: how many networks it has, and of each the number, the prefix, and what a packet carries.
pub const FACTS: usize = 1 + NETWORKS * 8;
/// Bytes of what is agreed: whether there is a group; its address, port and key; the bytes of a chunk; networks, as above.
pub const AGREED: usize = 1 + 4 + 2 + 32 + 2 + FACTS;
/// Least bytes of a chunk that are worth it.
const LEAST: u16 = 256;
/// Bytes that the root may be ahead: more are of no use.
pub const WINDOW: usize = 1 << 20;

/// When each network is tried after all have joined, in milliseconds, and for how long a host waits for one try of each: kernels tell switches of a group
/// some 10 ms after they joined it, and once more.
pub const TRIES: [u64; 6] = [0, 5, 15, 40, 80, 150];
const HEARING: Duration = Duration::from_millis(200);
/// Broadcasts after which networks that failed are looked for again.
const REOPENED: u32 = 256;

/// The group of a communicator's hosts.
pub enum Casts {
    /// Nobody has asked yet.
    Unasked,
    /// There is none.
    None,
    /// There is.
    Group(Box<Group>),
}

/// A group, as one of its ranks knows it.
pub struct Group {
    /// What its keys are made of.
    pub key: [u8; 32],
    /// Bytes of a chunk.
    pub chunk: usize,
    /// How far this rank is ahead of the others, where it is the root.
    pub window: Window,
    /// Broadcasts so far, by multicast or not.
    pub operation: u32,
    /// What this rank has found of its own ones.
    pub choice: Choice,
    /// Where it is heard, at a host's first rank.
    pub ear: Option<Ear>,
    /// Datagrams of a later broadcast than the one that was waited for.
    pub early: Vec<Vec<u8>>,
    /// Where it is.
    pub address: SocketAddrV4,
    /// On which networks, each with its place in what was agreed.
    pub networks: Vec<(u32, Network)>,
    mouths: Option<Vec<(u32, Mouth)>>,
}

impl Group {
    /// Chunks by which datagrams of several networks overtake each other: one may be much slower than another, but the root is no further ahead.
    pub fn slack(&self) -> u32 {
        if self.networks.len() > 1 { self.window.most() } else { 0 }
    }

    /// The next broadcast begins. Networks that failed are looked for again now and then.
    pub fn next(&mut self) {
        self.operation = self.operation.saturating_add(1);
        if self.operation.is_multiple_of(REOPENED) {
            self.mouths = None;
        }
    }

    /// What sends to it, on each network that still is there; none: this rank cannot send to all. What is taken out stays out for some hundred
    /// broadcasts.
    pub fn mouths(&mut self) -> &mut Vec<(u32, Mouth)> {
        self.mouths.get_or_insert_with(|| {
            let open = |(place, network): &(u32, _)| Some((*place, Mouth::open(self.address, network).ok()?));
            self.networks.iter().filter_map(open).collect()
        })
    }

    /// Sends a datagram on each network, by which others find out whether they hear it: the `again`th one.
    pub fn try_all(&mut self, again: u32) {
        let Some(key) = Key::of(&self.key, 0) else { return };
        for (place, mouth) in self.mouths() {
            let mut bytes = [0; HEAD + TAG];
            bytes[..HEAD].copy_from_slice(&Head { operation: 0, chunk: *place, rank: again }.to_bytes());
            key.seal(&mut bytes);
            // one that is not sent is not heard
            let _ = mouth.send(&bytes, bytes.len());
        }
    }

    /// Which of the networks somebody's tries are heard on, one bit each.
    pub fn heard(&mut self) -> u16 {
        let (Some(key), Some(ear)) = (Key::of(&self.key, 0), &mut self.ear) else { return 0 };
        let (all, mut heard, begin) = ((1_u16 << self.networks.len()) - 1, 0, Instant::now());
        while heard != all && begin.elapsed() < HEARING {
            // what cannot be heard is not
            let _ = ear.receive(|datagram| {
                if let Some((Head { operation: 0, chunk, .. }, _)) = key.open(datagram) {
                    heard |= 1u16.checked_shl(chunk).unwrap_or(0);
                }
            });
            ear.wait(Duration::from_millis(1));
        }
        heard & all
    }

    /// Keeps the networks that all hear.
    pub fn keep(&mut self, heard: u16) {
        self.networks.retain(|(place, _)| heard.checked_shr(*place).is_some_and(|bits| bits & 1 == 1));
        self.mouths = None;
    }
}

/// Networks as bytes: how many, then each.
pub fn facts(networks: &[Network]) -> [u8; FACTS] {
    let mut bytes = [0; FACTS];
    let count = networks.len().min(NETWORKS);
    bytes[0] = count as u8;
    for (network, place) in networks.iter().zip(bytes[1..].chunks_exact_mut(8)) {
        place[..4].copy_from_slice(&network.number().to_le_bytes());
        place[4] = network.prefix;
        place[6..].copy_from_slice(&network.carries.to_le_bytes());
    }
    bytes
}

/// The same back: number, prefix, what a packet carries.
pub fn told(bytes: &[u8]) -> impl Iterator<Item = (u32, u8, u16)> + '_ {
    let count = usize::from(bytes.first().copied().unwrap_or(0));
    bytes.get(1..).unwrap_or(&[]).chunks_exact(8).take(count.min(NETWORKS)).map(|one| {
        let number = u32::from_le_bytes([one[0], one[1], one[2], one[3]]);
        (number, one[4], u16::from_le_bytes([one[6], one[7]]))
    })
}

/// What the first host finds for all: the networks that all have, and what their packets carry.
pub fn agree(all: &[[u8; FACTS]], networks: &[Network]) -> Option<[u8; AGREED]> {
    let mut carries = u16::MAX;
    let common: Vec<Network> = networks
        .iter()
        .filter(|network| {
            let same = |(number, prefix, _)| (number, prefix) == (network.number(), network.prefix);
            let of = |host: &[u8; FACTS]| told(host).find(|one| same(*one));
            let least = all.iter().map(of).try_fold(network.carries, |least, one| Some(least.min(one?.2)));
            carries = carries.min(least.unwrap_or(u16::MAX));
            least.is_some()
        })
        .copied()
        .collect();
    let chunk = carries.checked_sub((HEAD + TAG) as u16).filter(|chunk| *chunk >= LEAST)?;
    (!common.is_empty()).then_some(())?;
    let mut random = [0; 4 + 2 + 32];
    getrandom::fill(&mut random).ok()?;
    let mut agreed = [0; AGREED];
    agreed[0] = 1;
    agreed[1..39].copy_from_slice(&random);
    agreed[39..41].copy_from_slice(&chunk.to_le_bytes());
    agreed[41..].copy_from_slice(&facts(&common));
    Some(agreed)
}

/// A group of what was agreed, at one rank, with those of the networks that it knows; its ear is none yet.
pub fn join(agreed: &[u8; AGREED], own: &[Network]) -> Option<Group> {
    (agreed[0] == 1).then_some(())?;
    let chunk = u16::from_le_bytes([agreed[39], agreed[40]]);
    (chunk >= LEAST).then_some(())?;
    let [a, b, c, d, low, high] = *agreed[1..].first_chunk()?;
    // 239.192.0.0/14 is for what stays within an organization (RFC 2365); a port that no program is given by itself, mostly
    let address = Ipv4Addr::new(239, 192 | a & 3, b, c.wrapping_add(d));
    let port = 20_000 + u16::from_le_bytes([low, high]) % 12_000;
    let chosen = (0..).zip(told(&agreed[41..])).filter_map(|(place, (number, prefix, _))| {
        let its = own.iter().find(|own| (own.number(), own.prefix) == (number, prefix));
        Some((place, *its?))
    });
    Some(Group {
        key: *agreed[7..].first_chunk()?,
        chunk: usize::from(chunk),
        window: Window::new(1),
        operation: 0,
        choice: Choice::default(),
        ear: None,
        early: Vec::new(),
        address: SocketAddrV4::new(address, port),
        networks: chosen.collect(),
        mouths: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(at: [u8; 4], prefix: u8, carries: u16) -> Network {
        Network { at: at.into(), prefix, carries, index: u32::from(at[2]) }
    }

    #[test]
    fn hosts_agree_on_what_all_have() {
        let first = [
            network([10, 0, 1, 1], 24, 1472),
            network([10, 0, 2, 1], 24, 8972),
            network([10, 0, 3, 1], 24, 1472),
        ];
        let second = [
            network([10, 0, 3, 2], 24, 1472),
            network([10, 0, 1, 2], 24, 1472),
            network([10, 0, 2, 2], 16, 8972),
        ];
        let third = [network([10, 0, 1, 3], 24, 1400), network([10, 0, 3, 3], 24, 1472)];
        let agreed = agree(&[facts(&second), facts(&third)], &first).unwrap();
        for (own, host) in [(&first[..], 1), (&second[..], 2), (&third[..], 3)] {
            let group = join(&agreed, own).unwrap();
            let at: Vec<_> = group.networks.iter().map(|(_, network)| network.at.octets()).collect();
            assert_eq!(at, [[10, 0, 1, host], [10, 0, 3, host]]);
            assert_eq!(group.chunk, 1400 - HEAD - TAG);
            let [a, b, ..] = group.address.ip().octets();
            assert!(a == 239 && (192..=195).contains(&b) && (20_000..32_000).contains(&group.address.port()));
            assert_eq!(group.address, join(&agreed, &first).unwrap().address);
        }
        assert_ne!(agree(&[facts(&second)], &first).unwrap()[1..39], agreed[1..39], "a key of its own");
        let mut group = join(&agreed, &first).unwrap();
        group.keep(0b10);
        assert_eq!(
            group.networks.iter().map(|(_, one)| one.at.octets()).collect::<Vec<_>>(),
            [[10, 0, 3, 1]]
        );
        // a rank that has fewer keeps the same
        let mut group = join(&agreed, &third[1..]).unwrap();
        group.keep(0b10);
        assert_eq!(group.networks[0].1.at.octets(), [10, 0, 3, 3]);
    }

    #[test]
    fn without_a_network_of_all_there_is_none() {
        let own = [network([10, 0, 1, 1], 24, 1472)];
        assert!(agree(&[facts(&own), facts(&[])], &own).is_none());
        assert!(agree(&[facts(&own)], &[]).is_none());
        let narrow = [network([10, 0, 1, 2], 24, 200)];
        assert!(agree(&[facts(&narrow)], &own).is_none(), "its packets carry too little");
        assert!(join(&[0; AGREED], &own).is_none());
        let mut agreed = [0; AGREED];
        agreed[0] = 1;
        assert!(join(&agreed, &own).is_none(), "chunks of nothing");
    }

    #[test]
    fn any_bytes_are_read() {
        let mut bytes = [0xff; FACTS];
        assert_eq!(told(&bytes).count(), NETWORKS);
        bytes[0] = 3;
        assert_eq!(told(&bytes).count(), 3);
        assert_eq!(told(&[]).count() + told(&[9]).count() + told(&[9; 8]).count(), 0);
        let many: Vec<_> = (0..40).map(|n| network([10, 0, n, 1], 24, 1472)).collect();
        assert_eq!(told(&facts(&many)).count(), NETWORKS);
        let mut agreed = [0xff; AGREED];
        agreed[0] = 1;
        assert!(join(&agreed, &many).unwrap().networks.is_empty());
    }
}
