//! Connections over IP: where a peer's listener may be, connecting without waiting, and what of that is a [`Channel`].

use crate::discover;
use crate::rail::channel::{Channel, Destination, Source};
use crate::rail::connect::Sought;
use polyrail_core::lanes::Pair;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub(super) fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// Where a peer's listener may be reached from here, best first. On another host, its loopback addresses would lead back to
/// this one, and its link-local addresses have to be tried on each of our own links.
pub(crate) fn destinations(peer: &Sought<'_>) -> Vec<Destination> {
    sockets(peer).into_iter().map(|to| Destination::Socket { to, from: None }).collect()
}

fn sockets(peer: &Sought<'_>) -> Vec<SocketAddr> {
    let address = peer.address;
    if address.host() == peer.here {
        return address.sockets().collect();
    }
    let mut links = Vec::new();
    if address.sockets().any(|at| is_link_local(at.ip())) {
        let all = discover::wanted(&peer.settings.interfaces).unwrap_or_default();
        let usable = all.iter().filter(|one| one.obstacle.is_none());
        links.extend(
            usable.filter(|one| one.nets.iter().any(|net| is_link_local(net.ip()))).map(|one| one.index),
        );
    }
    let mut places = Vec::new();
    for at in address.sockets().filter(|at| !at.ip().is_loopback()) {
        match at {
            SocketAddr::V6(v6) if is_link_local(at.ip()) => places.extend(links.iter().map(|link| {
                let mut v6 = v6;
                v6.set_scope_id(*link);
                SocketAddr::V6(v6)
            })),
            _ => places.push(at),
        }
    }
    places
}

/// The place of a connection between two interfaces: from this side's, which has this name, to a port of the other's.
pub(crate) fn destination_between(pair: &Pair, device: Option<String>, port: u16) -> Destination {
    let scoped = |ip: IpAddr, port: u16| match ip {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => SocketAddrV6::new(v6, port, 0, pair.near.0).into(),
        ip => SocketAddr::new(ip, port),
    };
    Destination::Socket { to: scoped(pair.far.1, port), from: Some((scoped(pair.near.1, 0), device)) }
}

/// An address as the system calls take it.
pub(crate) union Raw {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

pub(crate) fn raw(at: SocketAddr) -> (Raw, libc::socklen_t) {
    match at {
        SocketAddr::V4(v4) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                sin_zero: [0; 8],
            };
            (Raw { v4: raw }, size_of_val(&raw) as libc::socklen_t)
        }
        SocketAddr::V6(v6) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            (Raw { v6: raw }, size_of_val(&raw) as libc::socklen_t)
        }
    }
}

/// An address as a system call gave it; none if it is none of IP.
pub(crate) fn to_address(from: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let from: *const libc::sockaddr_storage = from;
    // SAFETY: the storage is as long as any address, and of the family that it says.
    unsafe {
        match i32::from((*from).ss_family) {
            libc::AF_INET => {
                let v4 = &*from.cast::<libc::sockaddr_in>();
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Some(SocketAddr::new(ip.into(), u16::from_be(v4.sin_port)))
            }
            libc::AF_INET6 => {
                let v6 = &*from.cast::<libc::sockaddr_in6>();
                let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
                Some(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

/// The address of this side of a socket.
pub(crate) fn local_address(fd: &impl AsRawFd) -> io::Result<SocketAddr> {
    // SAFETY: all zeros is an address of no family.
    let mut at: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut len = size_of_val(&at) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes.
    check(unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut at).cast(), &mut len) })?;
    to_address(&at).ok_or_else(|| io::ErrorKind::Unsupported.into())
}

pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub(super) fn socket(at: SocketAddr) -> io::Result<OwnedFd> {
    let family = if at.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: a plain call; the descriptor is new and ours.
    unsafe {
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        Ok(OwnedFd::from_raw_fd(check(libc::socket(family, kind, 0))?))
    }
}

/// Keeps a connection to one interface, so that it takes the way that it is there for: routes know destinations only. One that a
/// listener of an interface took stays with that. Where the kernel does not allow it, the address alone decides.
pub(crate) fn keep_to(fd: &impl AsRawFd, device: &str) {
    if !is_bound(fd) {
        let _ = bind_to(fd, device);
    }
}

pub(super) fn bind_to(fd: &impl AsRawFd, device: &str) -> io::Result<()> {
    let (name, len) = (device.as_ptr().cast(), device.len() as libc::socklen_t);
    // SAFETY: the option's value is the name's bytes.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_BINDTODEVICE, name, len) })?;
    Ok(())
}

/// Whether a socket keeps to some interface.
fn is_bound(fd: &impl AsRawFd) -> bool {
    let mut name = [0u8; libc::IF_NAMESIZE];
    let mut len = name.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes.
    let result = unsafe {
        let out = name.as_mut_ptr().cast();
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_BINDTODEVICE, out, &mut len)
    };
    result == 0 && len > 0
}

/// Begins a connection to a place; that it fails may only be known later.
pub(crate) fn connect(destination: &Destination) -> io::Result<TcpStream> {
    let (to, from) = match destination {
        Destination::Socket { to, from } => (to, from),
        Destination::Relayed { gateway, .. } => (gateway, &None),
        Destination::Named { .. } => return Err(io::ErrorKind::Unsupported.into()),
    };
    let fd = socket(*to)?;
    if let Some((from, device)) = from {
        if let Some(device) = device {
            keep_to(&fd, device);
        }
        let (raw, len) = raw(*from);
        // SAFETY: the address is of the length given.
        check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const raw).cast(), len) })?;
    }
    begin(fd, *to)
}

fn begin(fd: OwnedFd, at: SocketAddr) -> io::Result<TcpStream> {
    let (raw, len) = raw(at);
    // SAFETY: the address is of the length given.
    match check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const raw).cast(), len) }) {
        Err(e) if e.raw_os_error() != Some(libc::EINPROGRESS) => Err(e),
        _ => Ok(fd.into()),
    }
}

/// A connection over IP. It carries no descriptors.
impl Channel for TcpStream {
    fn write(&mut self, bytes: &[u8], _descriptors: &[BorrowedFd<'_>]) -> io::Result<usize> {
        Write::write(self, bytes)
    }

    fn read(&mut self, bytes: &mut [u8], _descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
        Read::read(self, bytes)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn source(&self) -> Source {
        self.peer_addr().map_or(Source::Unknown, |at| Source::at(at.ip()))
    }

    fn name(&self) -> String {
        self.peer_addr().map_or("a connection".into(), |at| at.to_string())
    }

    fn into_fd(self: Box<Self>) -> OwnedFd {
        (*self).into()
    }
}
