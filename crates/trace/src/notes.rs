//! Notes of recorders, checked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use polyrail_core::trace::note;

use crate::model::Kind;

const AF_UNIX: u16 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const SOCK_STREAM: u16 = 1;
const SOCK_DGRAM: u16 = 2;
const IPPROTO_TCP: u16 = 6;
const IPPROTO_UDP: u16 = 17;

/// A little-endian number at an offset; 0 beyond the end.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u32_at(bytes, at) as u16
}

/// An address of the internet families, as in `struct sockaddr`; an IPv4 address inside IPv6 becomes what it is.
pub fn address(bytes: &[u8]) -> Option<SocketAddr> {
    let port = || Some(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?));
    match bytes.get(..2).map(|family| u16::from_le_bytes([family[0], family[1]]))? {
        AF_INET => {
            let ip: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::from(ip)), port()?))
        }
        AF_INET6 => {
            let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            Some(SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port()?))
        }
        _ => None,
    }
}

/// A [`note::SOCKET`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketNote {
    /// The process's number for it.
    pub number: u32,
    /// The kernel's number for it.
    pub cookie: u64,
    /// What carries it.
    pub kind: Kind,
    /// Whether it listens.
    pub listening: bool,
    /// Its name.
    pub local: Option<SocketAddr>,
    /// Its peer.
    pub remote: Option<SocketAddr>,
}

impl SocketNote {
    /// Whether it is of TCP.
    pub fn is_tcp(&self) -> bool {
        self.kind == Kind::Tcp
    }
}

/// A [`note::UNIX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnixNote {
    /// The process's number for the socket.
    pub number: u32,
    /// Whether it is one of the two ends of a connection, rather than sends to whom others may send, too.
    pub connects: bool,
    /// The kernel's number for it.
    pub inode: u64,
    /// For its peer; 0: none, or not known.
    pub peer: u64,
}

/// `None`: too short.
pub fn unix(payload: &[u8]) -> Option<UnixNote> {
    const SOCK_SEQPACKET: u32 = 5;
    (payload.len() >= note::UNIX_BYTES).then(|| UnixNote {
        number: u32_at(payload, 0),
        connects: [u32::from(SOCK_STREAM), SOCK_SEQPACKET].contains(&u32_at(payload, 4)),
        inode: u64_at(payload, 8),
        peer: u64_at(payload, 16),
    })
}

/// A [`note::LINK`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkNote {
    /// The process's number for it, among those of its sockets.
    pub number: u32,
    /// Its name at this end.
    pub near: u64,
    /// And at the other.
    pub far: u64,
}

/// `None`: too short.
pub fn link(payload: &[u8]) -> Option<LinkNote> {
    (payload.len() >= note::LINK_BYTES).then(|| LinkNote {
        number: u32_at(payload, 0),
        near: u64_at(payload, 8),
        far: u64_at(payload, 16),
    })
}

/// `None`: too short.
pub fn socket(payload: &[u8]) -> Option<SocketNote> {
    if payload.len() < note::SOCKET_BYTES {
        return None;
    }
    let (domain, kind, protocol) = (u16_at(payload, 16), u16_at(payload, 18), u16_at(payload, 20));
    let kind = match (domain, kind, protocol) {
        (AF_INET | AF_INET6, SOCK_STREAM, IPPROTO_TCP) => Kind::Tcp,
        (AF_INET | AF_INET6, SOCK_DGRAM, IPPROTO_UDP) => Kind::Udp,
        (AF_UNIX, ..) => Kind::Unix,
        _ => Kind::Other,
    };
    let (local, remote) = payload[24..].split_at(note::ADDRESS_BYTES);
    Some(SocketNote {
        number: u32_at(payload, 0),
        cookie: u64_at(payload, 8),
        kind,
        listening: u16_at(payload, 22) != 0,
        local: address(local).filter(|address| address.port() != 0),
        remote: address(remote).filter(|address| address.port() != 0),
    })
}

/// An address as [`address`] reads it.
pub fn sockaddr(address: SocketAddr) -> [u8; note::ADDRESS_BYTES] {
    let mut bytes = [0; note::ADDRESS_BYTES];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) => {
            bytes[..2].copy_from_slice(&AF_INET.to_le_bytes());
            bytes[4..8].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            bytes[..2].copy_from_slice(&AF_INET6.to_le_bytes());
            bytes[8..24].copy_from_slice(&ip.octets());
        }
    }
    bytes
}

/// A [`note::SOCKET`]'s payload, as [`socket`] reads it.
pub fn socket_payload(told: &SocketNote) -> [u8; note::SOCKET_BYTES] {
    let (domain, kind, protocol) = match told.kind {
        Kind::Tcp => (AF_INET, SOCK_STREAM, IPPROTO_TCP),
        Kind::Udp => (AF_INET, SOCK_DGRAM, IPPROTO_UDP),
        Kind::Unix => (AF_UNIX, SOCK_STREAM, 0),
        // which is no socket
        Kind::Memory | Kind::Other => (0, 0, 0),
    };
    let mut payload = [0; note::SOCKET_BYTES];
    payload[..4].copy_from_slice(&told.number.to_le_bytes());
    payload[4..8].copy_from_slice(&(-1i32).to_le_bytes());
    payload[8..16].copy_from_slice(&told.cookie.to_le_bytes());
    for (at, word) in [(16, domain), (18, kind), (20, protocol), (22, u16::from(told.listening))] {
        payload[at..at + 2].copy_from_slice(&word.to_le_bytes());
    }
    let names = [told.local, told.remote].map(|name| name.map_or([0; note::ADDRESS_BYTES], sockaddr));
    payload[24..].copy_from_slice(names.as_flattened());
    payload
}

/// Words ended by zeros.
pub fn words(bytes: &[u8]) -> Vec<String> {
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_comes_back_as_it_was_told() {
        for (local, kind) in [("10.1.2.3:80", Kind::Tcp), ("[fe80::1]:5", Kind::Udp)] {
            let told = SocketNote {
                number: 3,
                cookie: 1 << 40,
                kind,
                listening: false,
                local: local.parse().ok(),
                remote: "192.168.0.1:65535".parse().ok(),
            };
            assert_eq!(socket(&socket_payload(&told)), Some(told));
        }
        assert_eq!(socket(&[0; 20]), None);
    }

    #[test]
    fn ipv4_inside_ipv6_is_ipv4() {
        let bytes = sockaddr("[::ffff:10.0.0.1]:9".parse().unwrap());
        assert_eq!(address(&bytes), "10.0.0.1:9".parse().ok());
    }
}
