//! Sockets of the control channel: where to listen, where a peer may be, and how to connect without waiting.

use crate::config::{Config, Names};
use crate::discover::{self, Interface, Kind};
use crate::error::Error;
use crate::rail::Reach;
use crate::rail::set::{RailId, RailSet};
use crate::shm::fdpass;
use polyrail_core::wire::{Address, HostId, PeerId};
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// Connections that may wait to be accepted, if `net.core.somaxconn` allows: a job's processes all connect at once.
const BACKLOG: libc::c_int = 4096;

/// Where a rail listens for peers on this host: the first such rail by the endpoint's name, each other with its own behind.
pub(super) fn unix_name(id: PeerId, rail: RailId) -> Vec<u8> {
    let mut name = b"polyrail-".to_vec();
    for byte in id.0 {
        name.extend_from_slice(format!("{byte:02x}").as_bytes());
    }
    if RailSet::ALL.reaching(Reach::Host).next() != Some(rail) {
        name.extend_from_slice(format!("-{}", rail.caps().name).as_bytes());
    }
    name
}

/// Connects to the endpoint of this name, if it is this user's, root's, or whoever's when this is root: anybody can take a name.
pub(super) fn connect_unix(id: PeerId, rail: RailId) -> io::Result<OwnedFd> {
    let socket = fdpass::connect(&unix_name(id, rail))?;
    // SAFETY: a plain call without arguments.
    let me = unsafe { libc::geteuid() };
    match fdpass::peer_uid(socket.as_fd())? {
        owner if owner == me || owner == 0 || me == 0 => Ok(socket),
        owner => {
            let why = format!("user {owner} has its name");
            Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
        }
    }
}

/// The network interfaces; an error if one is asked for by name that is not there.
pub(super) fn interfaces(config: &Config) -> Result<Vec<Interface>, Error> {
    let all = discover::interfaces(&config.interfaces)?;
    match config.interfaces.wanted().find(|name| all.iter().all(|interface| interface.name != **name)) {
        Some(missing) => {
            let there: Vec<&str> = all.iter().map(|interface| interface.name.as_str()).collect();
            let why = format!("no interface is called {missing:?}; there are {}", there.join(", "));
            Err(Error::Setting { name: "POLYRAIL_INTERFACES", why })
        }
        None => Ok(all),
    }
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// Where a peer's listener may be reached from here, best first. On another host, its loopback addresses would lead back to
/// this one, and its link-local addresses have to be tried on each of our own links.
pub(super) fn places(address: &Address, here: HostId, config: &Config) -> Vec<SocketAddr> {
    if address.host() == here {
        return address.sockets().collect();
    }
    let mut links = Vec::new();
    if address.sockets().any(|at| is_link_local(at.ip())) {
        let all = interfaces(config).unwrap_or_default();
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

/// An address as the system calls take it.
union Raw {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

fn raw(at: SocketAddr) -> (Raw, libc::socklen_t) {
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

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn socket(at: SocketAddr) -> io::Result<OwnedFd> {
    let family = if at.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: a plain call; the descriptor is new and ours.
    unsafe {
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        Ok(OwnedFd::from_raw_fd(check(libc::socket(family, kind, 0))?))
    }
}

/// Nonblocking listeners on one port, which they may choose (0), of an address, of the interfaces that are chosen, or of all;
/// and that port.
///
/// Where several interfaces are in one network, the kernel would answer all calls by the first of them, and each caller expects
/// the answer where it called: there each interface has a listener of its own, with which the connections stay. So it has where
/// some are left out. What comes from this host itself comes by the loopback interface, which is never left out.
pub(super) fn listeners(
    at: Option<IpAddr>,
    port: u16,
    chosen: &Names,
    all: &[Interface],
) -> io::Result<(Vec<TcpListener>, u16)> {
    if let Some(ip) = at {
        return with_port(vec![listen(SocketAddr::new(ip, port), None)?]);
    }
    if !chosen.is_empty() {
        let meant = |one: &&Interface| one.kind == Kind::Loopback || chosen.has(&one.name);
        let meant: Vec<&Interface> = all.iter().filter(meant).collect();
        return try_again(|| listen_on_each(port, &meant)).or_else(|error| match error.raw_os_error() {
            Some(libc::EADDRINUSE) => Err(error),
            // the kernel does not let it
            _ => try_again(|| listen_at_each(port, &meant)),
        });
    }
    if all.iter().any(|one| is_crowded(one, all)) {
        let each = try_again(|| listen_on_each(port, &all.iter().collect::<Vec<_>>()));
        // where the kernel does not let it, the first interfaces alone are of use
        if each.is_ok() {
            return each;
        }
    }
    with_port(vec![listen_anywhere(port, None)?])
}

/// That some other program has a port that the first got on the interface of another is chance.
fn try_again<T>(listen: impl Fn() -> io::Result<T>) -> io::Result<T> {
    (0..7).find_map(|_| listen().ok()).map_or_else(listen, Ok)
}

fn with_port(all: Vec<TcpListener>) -> io::Result<(Vec<TcpListener>, u16)> {
    let first = all.first().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let port = first.local_addr()?.port();
    Ok((all, port))
}

fn listen_on_each(mut port: u16, all: &[&Interface]) -> io::Result<(Vec<TcpListener>, u16)> {
    let mut each = Vec::new();
    for one in all {
        let listener = listen_anywhere(port, Some(&one.name))?;
        port = listener.local_addr()?.port();
        each.push(listener);
    }
    with_port(each)
}

/// A listener at each address that the interfaces have now.
fn listen_at_each(mut port: u16, all: &[&Interface]) -> io::Result<(Vec<TcpListener>, u16)> {
    let mut each = Vec::new();
    for ip in all.iter().flat_map(|one| one.ips()) {
        let at = match ip.addr() {
            IpAddr::V6(v6) => SocketAddrV6::new(v6, port, 0, ip.scope()).into(),
            v4 => SocketAddr::new(v4, port),
        };
        match listen(at, None) {
            Ok(listener) => {
                port = listener.local_addr()?.port();
                each.push(listener);
            }
            // it is not in use yet, or no more
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {}
            Err(error) => return Err(error),
        }
    }
    with_port(each)
}

/// A listener on all addresses: one socket for both families where there is IPv6, else IPv4 alone.
fn listen_anywhere(port: u16, device: Option<&str>) -> io::Result<TcpListener> {
    let (v4, v6) = (IpAddr::from([0, 0, 0, 0]), IpAddr::from([0; 16]));
    listen(SocketAddr::new(v6, port), device).or_else(|error| match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL) => listen(SocketAddr::new(v4, port), device),
        _ => Err(error),
    })
}

/// Whether another interface is in the same network.
fn is_crowded(one: &Interface, all: &[Interface]) -> bool {
    let others = all.iter().filter(|other| other.index != one.index && other.kind != Kind::Loopback);
    let nets: Vec<_> = others.flat_map(|other| &other.nets).collect();
    let mut told = one.nets.iter().filter(|net| !is_link_local(net.ip()));
    one.kind != Kind::Loopback && told.any(|net| nets.iter().any(|other| other.contains(net.ip())))
}

/// A nonblocking listener, perhaps of one device. On the unspecified IPv6 it takes IPv4 too, whatever the system's default.
fn listen(at: SocketAddr, device: Option<&str>) -> io::Result<TcpListener> {
    let fd = socket(at)?;
    if let Some(device) = device {
        bind_to(&fd, device)?;
    }
    let set = |level, name, value: libc::c_int| {
        let len = size_of_val(&value) as libc::socklen_t;
        // SAFETY: the option's value is an int.
        check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len) })
    };
    set(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
    if at.is_ipv6() {
        set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0)?;
    }
    let (raw, len) = raw(at);
    // SAFETY: the address is of the length given.
    unsafe {
        check(libc::bind(fd.as_raw_fd(), (&raw const raw).cast(), len))?;
        check(libc::listen(fd.as_raw_fd(), BACKLOG))?;
    }
    Ok(fd.into())
}

/// Keeps a connection to one interface, so that it takes the way that it is there for: routes know destinations only. One that a
/// listener of an interface took stays with that. Where the kernel does not allow it, the address alone decides.
pub(super) fn keep_to(fd: &impl AsRawFd, device: &str) {
    if !is_bound(fd) {
        let _ = bind_to(fd, device);
    }
}

fn bind_to(fd: &impl AsRawFd, device: &str) -> io::Result<()> {
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

/// Begins a connection from one of this side's addresses, over its interface.
pub(super) fn connect_from(from: SocketAddr, device: Option<&str>, to: SocketAddr) -> io::Result<TcpStream> {
    let fd = socket(to)?;
    if let Some(device) = device {
        keep_to(&fd, device);
    }
    let (raw, len) = raw(from);
    // SAFETY: the address is of the length given.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const raw).cast(), len) })?;
    begin(fd, to)
}

/// Begins a connection; that it fails may only be known later.
pub(super) fn connect_tcp(at: SocketAddr) -> io::Result<TcpStream> {
    begin(socket(at)?, at)
}

fn begin(fd: OwnedFd, at: SocketAddr) -> io::Result<TcpStream> {
    let (raw, len) = raw(at);
    // SAFETY: the address is of the length given.
    match check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const raw).cast(), len) }) {
        Err(e) if e.raw_os_error() != Some(libc::EINPROGRESS) => Err(e),
        _ => Ok(fd.into()),
    }
}
