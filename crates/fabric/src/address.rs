//! The addresses that applications see.
//!
//! | `addr_format` | a peer's address | where an endpoint listens (`src_addr`) |
//! |---|---|---|
//! | `FI_FORMAT_UNSPEC` | the 64 bytes of [`polyrail_core::wire::Address`] | the same where it can be, else 64 bytes that only this process reads ([`Source`]) |
//! | `FI_SOCKADDR_IN`, `FI_SOCKADDR_IN6` | IP and port of a *named* endpoint, whose key is derived from the user's secret | the same |
//!
//! The first is the rule: such an address carries a random key, and who is not given it cannot connect.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener};

use polyrail_core::wire::Address;
use polyrail_rails::Error;
use polyrail_rails::named::named_address;

use crate::ffi::{FI_FORMAT_UNSPEC, FI_SOCKADDR_IN, FI_SOCKADDR_IN6};

/// Bytes of an address in our own format.
pub const OWN: usize = Address::LEN;

/// How a domain's addresses are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    Own,
    V4,
    V6,
}

impl Format {
    /// Of `fi_info::addr_format`, as we return it.
    pub fn of(addr_format: u32) -> Option<Self> {
        match addr_format {
            FI_FORMAT_UNSPEC => Some(Self::Own),
            FI_SOCKADDR_IN => Some(Self::V4),
            FI_SOCKADDR_IN6 => Some(Self::V6),
            _ => None,
        }
    }

    pub fn number(self) -> u32 {
        match self {
            Self::Own => FI_FORMAT_UNSPEC,
            Self::V4 => FI_SOCKADDR_IN,
            Self::V6 => FI_SOCKADDR_IN6,
        }
    }

    /// Bytes of one address.
    pub fn size(self) -> usize {
        match self {
            Self::Own => OWN,
            Self::V4 => size_of::<libc::sockaddr_in>(),
            Self::V6 => size_of::<libc::sockaddr_in6>(),
        }
    }

    /// The peer that the bytes of one address name.
    ///
    /// # Errors
    /// When they are no address of this format, or nobody can connect to it.
    pub fn peer(self, bytes: &[u8]) -> Result<Address, Error> {
        if self == Self::Own {
            return Address::parse(bytes).map_err(|why| Error::Address(why.to_string()));
        }
        named_address(self.socket(bytes).ok_or_else(|| Error::Address("not a socket address".into()))?)
    }

    /// How this format writes an endpoint's address: its first IP of the family.
    pub fn write(self, address: &Address) -> Option<Vec<u8>> {
        match self {
            Self::Own => Some(address.to_bytes().to_vec()),
            Self::V4 => address.sockets().find(SocketAddr::is_ipv4).map(write_socket),
            Self::V6 => address.sockets().find(SocketAddr::is_ipv6).map(write_socket),
        }
    }

    /// The socket address that the bytes are; none if they are not of this format.
    fn socket(self, bytes: &[u8]) -> Option<SocketAddr> {
        read_socket(bytes).filter(|at| at.is_ipv4() == (self == Self::V4))
    }
}

/// `struct sockaddr_in` or `sockaddr_in6`.
pub fn read_socket(bytes: &[u8]) -> Option<SocketAddr> {
    let family = libc::c_int::from(u16::from_ne_bytes(*bytes.first_chunk()?));
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    match family {
        libc::AF_INET => {
            let ip: [u8; 4] = *bytes.get(4..)?.first_chunk()?;
            bytes.get(..16).map(|_| SocketAddr::new(Ipv4Addr::from(ip).into(), port))
        }
        libc::AF_INET6 => {
            let flow = u32::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
            let ip: [u8; 16] = *bytes.get(8..)?.first_chunk()?;
            let scope = u32::from_ne_bytes(*bytes.get(24..)?.first_chunk()?);
            Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, flow, scope).into())
        }
        _ => None,
    }
}

/// The bytes of `struct sockaddr_in` or `sockaddr_in6`.
pub fn write_socket(at: SocketAddr) -> Vec<u8> {
    let family = if at.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 } as u16;
    let mut bytes = [family.to_ne_bytes(), at.port().to_be_bytes()].concat();
    match at {
        SocketAddr::V4(v4) => {
            bytes.extend(v4.ip().octets());
            bytes.extend([0; 8]);
        }
        SocketAddr::V6(v6) => {
            bytes.extend(v6.flowinfo().to_ne_bytes());
            bytes.extend(v6.ip().octets());
            bytes.extend(v6.scope_id().to_ne_bytes());
        }
    }
    bytes
}

/// Where an endpoint is to listen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Anywhere, under a random key: only who is given its address reaches it.
    Anywhere,
    /// There, under a key derived from the user's secret: the user's other processes reach it by IP and port. Port 0 stands for
    /// a free one, an unspecified IP for all.
    At(SocketAddr),
    /// At this very address, which was an endpoint's of this process before.
    Again(Address),
}

impl Source {
    const MAGIC: [u8; 4] = *b"PRl1";

    /// As `fi_info::src_addr`.
    pub fn write(self, format: Format) -> Vec<u8> {
        match (self, format) {
            // one address, that of a named endpoint, for those who listen there and those who connect
            (Self::At(at), Format::Own) => match named_address(at) {
                Ok(address) => address.to_bytes().to_vec(),
                Err(_) => padded(&[&Self::MAGIC[..], &write_socket(at)].concat()),
            },
            (Self::At(at), _) => write_socket(at),
            (Self::Again(address), _) => address.to_bytes().to_vec(),
            (Self::Anywhere, Format::Own) => padded(&Self::MAGIC),
            (Self::Anywhere, Format::V4) => write_socket((Ipv4Addr::UNSPECIFIED, 0).into()),
            (Self::Anywhere, Format::V6) => write_socket((Ipv6Addr::UNSPECIFIED, 0).into()),
        }
    }

    /// From `fi_info::src_addr`.
    pub fn read(format: Format, bytes: &[u8]) -> Option<Self> {
        if format != Format::Own {
            return format.socket(bytes).map(Self::At);
        }
        if let Ok(address) = Address::parse(bytes) {
            let at = address.sockets().next()?;
            let named = named_address(at).is_ok_and(|named| named == address);
            return Some(if named { Self::At(at) } else { Self::Again(address) });
        }
        let rest = bytes.strip_prefix(&Self::MAGIC).filter(|_| bytes.len() == OWN)?;
        Some(read_socket(rest).map_or(Self::Anywhere, Self::At))
    }

    /// The same with a port: a named endpoint's key depends on it, so it must be known before it listens.
    ///
    /// # Errors
    /// When nobody can listen there.
    pub fn with_port(self) -> std::io::Result<Self> {
        match self {
            Self::At(at) if at.port() == 0 => Ok(Self::At(TcpListener::bind(at)?.local_addr()?)),
            other => Ok(other),
        }
    }
}

fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut all = vec![0; OWN];
    all[..bytes.len()].copy_from_slice(bytes);
    all
}

/// The `n`th IP after this one, for symmetric insertion.
pub fn ip_after(ip: IpAddr, n: usize) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(v4) => u32::from(v4).checked_add(u32::try_from(n).ok()?).map(|v| Ipv4Addr::from(v).into()),
        IpAddr::V6(v6) => u128::from(v6).checked_add(n as u128).map(|v| Ipv6Addr::from(v).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_come_back() {
        let v4 = SocketAddr::from(([10, 1, 2, 3], 4711));
        let v6 = SocketAddr::V6(SocketAddrV6::new("fe80::1".parse().unwrap(), 80, 7, 3));
        for (format, source) in [
            (Format::Own, Source::Anywhere),
            // nobody can connect there, so that it is no named endpoint's address
            (Format::Own, Source::At(([0, 0, 0, 0], 80).into())),
            (Format::Own, Source::At("[::]:80".parse().unwrap())),
            (Format::V4, Source::At(v4)),
            (Format::V6, Source::At(v6)),
        ] {
            let bytes = source.write(format);
            assert_eq!(bytes.len(), format.size());
            assert_eq!(Source::read(format, &bytes), Some(source));
        }
        assert_eq!(Source::read(Format::V4, &write_socket(v6)), None);
        assert_eq!(Source::read(Format::Own, &[0; OWN]), None);
        assert_eq!(Source::read(Format::Own, b"PRl1"), None);
        let any = Source::Anywhere.write(Format::V4);
        assert_eq!(Source::read(Format::V4, &any), Some(Source::At(([0, 0, 0, 0], 0).into())));
    }

    #[test]
    fn a_socket_address_is_that_of_c() {
        assert_eq!(
            write_socket(([127, 0, 0, 1], 0x1234).into()),
            [2, 0, 0x12, 0x34, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]
        );
        for bytes in [&[][..], &[2], &[2, 0, 0, 0, 1, 2, 3, 4], &[10; 27], &[0; 28]] {
            assert_eq!(read_socket(bytes), None);
        }
    }

    #[test]
    fn ips_count_on() {
        assert_eq!(ip_after([10, 0, 0, 255].into(), 1), Some([10, 0, 1, 0].into()));
        assert_eq!(ip_after([255; 4].into(), 1), None);
        assert_eq!(ip_after(Ipv6Addr::LOCALHOST.into(), 2), Some("::3".parse().unwrap()));
    }
}
