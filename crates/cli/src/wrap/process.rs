//! What can be seen and done of a process whose system call waits: its memory, its descriptors.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use nix::libc;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// Longest address of a socket, in bytes.
const ADDRESS_MAX: usize = size_of::<libc::sockaddr_storage>();

/// A duplicate of a descriptor of the process that this thread is one of.
///
/// # Errors
/// It has none of that number, or may not be looked into.
pub fn descriptor(thread: u32, fd: i32) -> io::Result<OwnedFd> {
    // of the thread itself, from Linux 6.9 on: its process's first thread may have ended
    let itself = |number: i32| Pid::from_raw(number).ok_or(io::ErrorKind::NotFound.into());
    let of_thread = itself(thread.cast_signed())
        .and_then(|thread| Ok(pidfd_open(thread, PidfdFlags::from_bits_retain(libc::PIDFD_THREAD))?));
    let opened = of_thread.or_else(|_: io::Error| {
        let status = fs::read_to_string(format!("/proc/{thread}/status"))?;
        let number = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
        Ok::<_, io::Error>(pidfd_open(itself(number.unwrap_or(0))?, PidfdFlags::empty())?)
    })?;
    Ok(pidfd_getfd(opened, fd, PidfdGetfdFlags::empty())?)
}

/// Bytes of a process's memory.
fn read(thread: u32, address: u64, room: &mut [u8]) -> io::Result<()> {
    OpenOptions::new().read(true).open(format!("/proc/{thread}/mem"))?.read_exact_at(room, address)
}

/// The address that a call was given; none if it is not of the internet's.
///
/// # Errors
/// The memory cannot be read.
pub fn address(thread: u32, at: u64, len: u64) -> io::Result<Option<SocketAddr>> {
    let mut room = [0; ADDRESS_MAX];
    let len = usize::try_from(len).unwrap_or(ADDRESS_MAX).min(ADDRESS_MAX);
    read(thread, at, &mut room[..len])?;
    Ok(parse(&room[..len]))
}

fn parse(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(*bytes.first_chunk()?);
    let port = u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]);
    match i32::from(family) {
        libc::AF_INET => {
            let ip: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some(SocketAddrV4::new(ip.into(), port).into())
        }
        libc::AF_INET6 => {
            let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            let scope =
                bytes.get(24..28).map_or(0, |scope| u32::from_ne_bytes(scope.try_into().unwrap_or_default()));
            Some(SocketAddrV6::new(ip.into(), port, 0, scope).into())
        }
        _ => None,
    }
}

fn bytes(at: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(28);
    match at {
        SocketAddr::V4(at) => {
            bytes.extend((libc::AF_INET as u16).to_ne_bytes());
            bytes.extend(at.port().to_be_bytes());
            bytes.extend(at.ip().octets());
            bytes.extend([0; 8]);
        }
        SocketAddr::V6(at) => {
            bytes.extend((libc::AF_INET6 as u16).to_ne_bytes());
            bytes.extend(at.port().to_be_bytes());
            bytes.extend([0; 4]);
            bytes.extend(at.ip().octets());
            bytes.extend(at.scope_id().to_ne_bytes());
        }
    }
    bytes
}

/// The memory of the process that this thread is one of, to be written. It stays that process's, whoever has the number later.
///
/// # Errors
/// It may not be looked into.
pub fn memory(thread: u32) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(format!("/proc/{thread}/mem"))
}

/// Writes an address where a call wants it, and its length where that stands (`getpeername(2)`).
///
/// # Errors
/// The memory cannot be written.
pub fn write_address(memory: &File, at: u64, length_at: u64, address: SocketAddr) -> io::Result<()> {
    let mut room = [0; 4];
    memory.read_exact_at(&mut room, length_at)?;
    let bytes = bytes(address);
    let fits = usize::try_from(u32::from_ne_bytes(room)).unwrap_or(0).min(bytes.len());
    memory.write_all_at(&bytes[..fits], at)?;
    memory.write_all_at(&(bytes.len() as u32).to_ne_bytes(), length_at)
}

/// How a socket of IPv6 calls an address.
pub fn as_v6(at: SocketAddr) -> SocketAddr {
    match at.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), at.port()),
        IpAddr::V6(_) => at,
    }
}

/// How a socket of IPv4 calls an address, if it can.
pub fn as_v4(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip().to_canonical(), at.port())
}

/// Whether an address stands for none in particular.
pub fn is_unspecified(at: SocketAddr) -> bool {
    matches!(at.ip().to_canonical(), IpAddr::V4(Ipv4Addr::UNSPECIFIED) | IpAddr::V6(Ipv6Addr::UNSPECIFIED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_as_the_kernel_has_them() {
        for text in ["10.1.0.5:80", "[2001:db8::1]:443", "[fe80::1%3]:7"] {
            let at: SocketAddr = text.parse().unwrap();
            assert_eq!(parse(&bytes(at)), Some(at));
        }
        assert_eq!(parse(&[1, 0, b'/', b'x']), None, "a Unix socket's");
        assert_eq!(parse(&bytes("10.1.0.5:80".parse().unwrap())[..7]), None, "one that is cut");
        assert_eq!(as_v6("10.1.0.5:80".parse().unwrap()), "[::ffff:10.1.0.5]:80".parse().unwrap());
    }

    #[test]
    fn this_process_can_be_looked_into() {
        let (at, thread) = (bytes("10.1.0.5:80".parse().unwrap()), std::process::id());
        let found = address(thread, at.as_ptr().addr() as u64, at.len() as u64).unwrap();
        assert_eq!(found, Some("10.1.0.5:80".parse().unwrap()));
        assert!(address(thread, 8, 16).is_err(), "memory that is not there");
        assert!(descriptor(thread, 0).is_ok() && descriptor(thread, 9999).is_err());
    }
}
