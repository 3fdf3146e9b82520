//! Sockets of the control channel: where to listen, and how to connect without waiting.

use crate::config::Config;
use crate::discover::{self, Interface};
use crate::error::Error;
use polyrail_core::wire::PeerId;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

pub(super) fn unix_name(id: PeerId) -> Vec<u8> {
    let mut name = b"polyrail-".to_vec();
    for byte in id.0 {
        name.extend_from_slice(format!("{byte:02x}").as_bytes());
    }
    name
}

/// The network interfaces; an error if one is asked for by name that is not there.
pub(super) fn interfaces(config: &Config) -> Result<Vec<Interface>, Error> {
    let all = discover::interfaces(&config.interfaces)?;
    match config.interfaces.iter().find(|name| all.iter().all(|interface| interface.name != **name)) {
        Some(missing) => {
            let there: Vec<&str> = all.iter().map(|interface| interface.name.as_str()).collect();
            let why = format!("no interface is called {missing:?}; there are {}", there.join(", "));
            Err(Error::Setting { name: "POLYRAIL_INTERFACES", why })
        }
        None => Ok(all),
    }
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
