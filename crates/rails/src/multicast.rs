//! Multicast on the networks of this host: sockets that send to a group and that hear one, and the keys of what is sent
//! (`docs/wire-multicast.md`). What is sent when, `polyrail_core::coll::cast` decides.

use crate::config::{Config, Faults};
use crate::discover::{self, Kind};
use crate::error::Error;
use crate::keys::Chain;
use crate::sys::wait_for;
use crate::udp::socket::{Inbox, Socket, TRAIN, TRAIN_MAX};
use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce};
use polyrail_core::coll::cast::{HEAD, Head, TAG};
use polyrail_core::sim::Rng;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// Bytes of IP's and UDP's headers.
const PACKET: u32 = 28;
/// Bytes that packets of a network without a limit of its own have.
const MTU: u32 = 1500;

/// Of how many datagrams one is lost, where that is pretended.
const LOSE: u64 = 32;

/// A network of IPv4 that rails use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// This host's address in it.
    pub at: Ipv4Addr,
    /// Bits of addresses that all of it have in common.
    pub prefix: u8,
    /// Bytes of a datagram's content that it carries in one packet.
    pub carries: u16,
    /// The interface's number.
    pub index: u32,
}

impl Network {
    /// What its hosts' addresses have in common.
    pub fn number(&self) -> u32 {
        let bits = 32 - u32::from(self.prefix);
        u32::from(self.at).checked_shr(bits).map_or(0, |number| number << bits)
    }
}

/// The networks that rails may use, and that lead elsewhere; none where settings do not want multicast.
///
/// # Errors
/// When the kernel does not list interfaces.
pub fn networks(config: &Config) -> Result<Vec<Network>, Error> {
    let mut found: Vec<Network> = Vec::new();
    if !config.multicast {
        return Ok(found);
    }
    for interface in discover::interfaces(&config.interfaces)? {
        if interface.obstacle.is_some() || interface.kind == Kind::Loopback || interface.index == 0 {
            continue;
        }
        let mtu = if interface.mtu == 0 { MTU } else { interface.mtu };
        let carries = mtu.saturating_sub(PACKET).min(TRAIN as u32) as u16;
        let addresses = interface.nets.iter().filter_map(|net| match net.ip() {
            IpAddr::V4(at) => Some(Network { at, prefix: net.prefix(), carries, index: interface.index }),
            IpAddr::V6(_) => None,
        });
        // an interface joins a group once, by whatever address; and what leads to the same hosts twice is one network
        let Some(network) = addresses.min_by_key(|network| network.number()) else { continue };
        let same = |other: &Network| (other.number(), other.prefix) == (network.number(), network.prefix);
        if !found.iter().any(same) {
            found.push(network);
        }
    }
    Ok(found)
}

/// Where a group's datagrams are heard, on several networks.
pub struct Ear {
    socket: Socket,
    inbox: Inbox,
    /// What is pretended to be lost, and random numbers for it.
    faults: Option<(Faults, Rng)>,
}

impl Ear {
    /// Hears a group on these networks, with such faults as settings ask for.
    ///
    /// # Errors
    /// When the port is taken, or an interface cannot join.
    pub fn open(group: SocketAddrV4, networks: &[Network], config: &Config) -> io::Result<Self> {
        let socket = Socket::open(group.into())?;
        for network in networks {
            socket.join(*group.ip(), network.index)?;
        }
        let salt = networks.first().map_or(0, |network| u64::from(u32::from(network.at)));
        let pretends = config.faults.filter(|faults| faults.lose || faults.deaf || faults.lapse);
        let faults = pretends.map(|faults| (faults, Rng::new(faults.seed ^ salt)));
        Ok(Self { socket, inbox: Inbox::default(), faults })
    }

    /// Bytes of datagrams that the kernel keeps, about: it counts what it takes to keep them, too.
    pub fn room(&self) -> usize {
        self.socket.room() / 4
    }

    /// Gives what has come to `each`, datagram by datagram; whether there may be more.
    ///
    /// # Errors
    /// The kernel's, but for those that say that there is nothing.
    pub fn receive(&mut self, mut each: impl FnMut(&mut [u8])) -> io::Result<bool> {
        let more = match self.inbox.receive(&self.socket) {
            Ok(more) => more,
            Err(libc::EAGAIN | libc::EINTR) => return Ok(false),
            Err(code) => return Err(io::Error::from_raw_os_error(code)),
        };
        for at in 0..self.inbox.trains.len() {
            let length = self.inbox.trains[at].each;
            for datagram in self.inbox.bytes(at).chunks_mut(length) {
                let tries = Head::parse(datagram).is_some_and(|head| head.operation == 0);
                let is_lost = self.faults.as_mut().is_some_and(|(faults, random)| {
                    faults.deaf || !tries && (faults.lapse || random.below(LOSE) == 0)
                });
                if !is_lost {
                    each(datagram);
                }
            }
        }
        Ok(more)
    }

    /// Waits until there is something, at most so long.
    pub fn wait(&self, most: Duration) {
        wait_for(self.socket.fd(), libc::POLLIN, most);
    }
}

/// What sends to a group, on one network.
pub struct Mouth {
    socket: Socket,
    group: SocketAddrV4,
    /// The kernel, or the network's device, takes no trains; and how much of the last has left.
    singly: bool,
    left: usize,
}

impl Mouth {
    /// Sends to a group on a network, no further than its first router.
    ///
    /// # Errors
    /// When the network is not there any more.
    pub fn open(group: SocketAddrV4, network: &Network) -> io::Result<Self> {
        let socket = Socket::open(SocketAddrV4::new(network.at, 0).into())?;
        socket.casts_on(network.index)?;
        Ok(Self { socket, group, singly: false, left: 0 })
    }

    /// Datagrams of a length that may be sent at once.
    pub fn train(length: usize) -> usize {
        (TRAIN / length.max(1)).clamp(1, TRAIN_MAX)
    }

    /// Sends datagrams of a length, of which the last may be shorter. False: the device takes no more now; the same bytes are to be given again.
    ///
    /// # Errors
    /// The kernel's, but for those that pass.
    pub fn send(&mut self, bytes: &[u8], each: usize) -> io::Result<bool> {
        while self.left < bytes.len() {
            let rest = &bytes[self.left..];
            let now = if self.singly { &rest[..each.min(rest.len())] } else { rest };
            match self.socket.send(self.group.into(), now, each) {
                Ok(()) => self.left += now.len(),
                Err(libc::EAGAIN | libc::EINTR | libc::ENOBUFS) => return Ok(false),
                Err(libc::EIO | libc::EINVAL) if now.len() > each => self.singly = true,
                Err(code) => {
                    self.left = 0;
                    return Err(io::Error::from_raw_os_error(code));
                }
            }
        }
        self.left = 0;
        Ok(true)
    }

    /// Whether the device has sent what it took.
    pub fn is_empty(&self) -> bool {
        self.socket.unsent() == 0
    }

    /// Waits until the device takes more, at most so long.
    pub fn wait(&self, most: Duration) {
        wait_for(self.socket.fd(), libc::POLLOUT, most);
    }
}

/// The key of one broadcast.
pub struct Key {
    key: LessSafeKey,
    mask: [u8; 12],
}

impl Key {
    /// From a group's key; none where the cipher cannot be set up.
    pub fn of(group: &[u8; 32], operation: u32) -> Option<Self> {
        let mut label = *b"polyrail multicast\0\0\0\0";
        label[18..].copy_from_slice(&operation.to_le_bytes());
        let (key, mask) = Chain(*group).branch(&label)?.key()?;
        Some(Self { key, mask })
    }

    fn nonce(&self, head: &[u8]) -> Nonce {
        let mut nonce = self.mask;
        nonce.iter_mut().zip(&head[HEAD - 12..HEAD]).for_each(|(byte, of)| *byte ^= of);
        Nonce::assume_unique_for_key(nonce)
    }

    /// Encrypts a datagram between its head and the room for the tag at its end. Each head once only.
    pub fn seal(&self, datagram: &mut [u8]) {
        let (bytes, tag) = datagram.split_at_mut(datagram.len() - TAG);
        let (head, content) = bytes.split_at_mut(HEAD);
        // a datagram is never too long for the cipher
        if let Ok(made) = self.key.seal_in_place_separate_tag(self.nonce(head), Aad::from(&*head), content) {
            tag.copy_from_slice(made.as_ref());
        }
    }

    /// Opens a datagram in place: which it is, and its chunk; none: it is not of this key.
    pub fn open<'a>(&self, datagram: &'a mut [u8]) -> Option<(Head, &'a [u8])> {
        let (head, content) = datagram.split_at_mut_checked(HEAD)?;
        let found = Head::parse(head)?;
        let opened = self.key.open_in_place(self.nonce(head), Aad::from(&*head), content).ok()?;
        Some((found, opened))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn sealed(key: &Key, head: Head, content: &[u8]) -> Vec<u8> {
        let mut bytes = head.to_bytes().to_vec();
        bytes.extend(content);
        bytes.extend([0; TAG]);
        key.seal(&mut bytes);
        bytes
    }

    #[test]
    fn what_was_sealed_opens_under_its_key_only() {
        let key = Key::of(&[7; 32], 3).unwrap();
        let head = Head { operation: 3, chunk: 9, rank: 2 };
        let bytes = sealed(&key, head, b"hello");
        assert_eq!(key.open(&mut bytes.clone()), Some((head, &b"hello"[..])));
        assert!(Key::of(&[7; 32], 4).unwrap().open(&mut bytes.clone()).is_none(), "of another broadcast");
        assert!(Key::of(&[8; 32], 3).unwrap().open(&mut bytes.clone()).is_none(), "of another group");
        for at in 0..bytes.len() {
            let mut forged = bytes.clone();
            forged[at] ^= 1;
            assert!(key.open(&mut forged).is_none(), "byte {at}");
            assert!(key.open(&mut bytes[..at].to_vec()).is_none(), "{at} bytes");
        }
        let other = sealed(&key, Head { chunk: 10, ..head }, b"hello");
        assert_ne!(other[HEAD..], bytes[HEAD..], "a nonce of its own");
    }

    /// The bytes of docs/wire-multicast.md, computed by `tests/seal_golden.py`.
    #[test]
    fn golden() {
        let key = Key::of(&std::array::from_fn(|n| n as u8), 7).unwrap();
        let bytes = sealed(&key, Head { operation: 7, chunk: 0x203, rank: 5 }, b"hello");
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(include_str!("../../../docs/wire-multicast.md").contains(&text), "{text}");
    }

    #[test]
    fn networks_have_the_numbers_of_their_prefixes() {
        let of = |prefix| Network { at: Ipv4Addr::new(10, 77, 3, 9), prefix, carries: 1472, index: 1 };
        assert_eq!(of(24).number(), u32::from(Ipv4Addr::new(10, 77, 3, 0)));
        assert_eq!((of(32).number(), of(0).number()), (u32::from(of(32).at), 0));
    }
}
