//! Sockets of the control channel: where to listen, and how to connect without waiting.

use crate::config::Config;
use crate::error::Error;
use polyrail_core::wire::{Ip, PeerId};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

pub(super) fn unix_name(id: PeerId) -> Vec<u8> {
    let mut name = b"polyrail-".to_vec();
    for byte in id.0 {
        name.extend_from_slice(format!("{byte:02x}").as_bytes());
    }
    name
}

/// The IPs of this machine that peers may try, best first: what leads elsewhere before loopback, IPv4 before IPv6.
pub(super) fn own_ips(config: &Config) -> Result<Vec<Ip>, Error> {
    let mut all = if_addrs::get_if_addrs().map_err(|e| Error::system("listing network interfaces", e))?;
    if !config.interfaces.is_empty() {
        if let Some(missing) = config.interfaces.iter().find(|name| all.iter().all(|i| i.name != **name)) {
            let why = format!("no interface that is up is called {missing:?}");
            return Err(Error::Setting { name: "POLYRAIL_INTERFACES", why });
        }
        all.retain(|interface| config.interfaces.contains(&interface.name));
    }
    all.sort_by_key(|i| {
        let local = matches!(i.ip(), IpAddr::V6(v6) if v6.is_unicast_link_local());
        (i.is_loopback(), local, i.ip().is_ipv6())
    });
    Ok(all.iter().filter_map(|i| Ip::new(i.ip(), i.index.unwrap_or(0))).collect())
}

pub(super) fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(at)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Begins a connection; that it fails may only be known later.
pub(super) fn connect_tcp(at: SocketAddr) -> io::Result<TcpStream> {
    let family = if at.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: a plain call; the descriptor is ours.
    let fd = unsafe {
        let fd = libc::socket(family, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(fd)
    };
    let done = match at {
        SocketAddr::V4(v4) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: the address is of the family and length given.
            unsafe { libc::connect(fd.as_raw_fd(), (&raw const raw).cast(), size_of_val(&raw) as u32) }
        }
        SocketAddr::V6(v6) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: the address is of the family and length given.
            unsafe { libc::connect(fd.as_raw_fd(), (&raw const raw).cast(), size_of_val(&raw) as u32) }
        }
    };
    let error = io::Error::last_os_error();
    match done {
        0 => Ok(TcpStream::from(fd)),
        _ if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(TcpStream::from(fd)),
        _ => Err(error),
    }
}
