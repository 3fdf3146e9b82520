//! Where connections over IP are heard: one listener for all interfaces, or one for each; of one endpoint, or of several.

use super::ip::{bind_to, check, is_link_local, raw, socket};
use super::shared::{self, Part};
use crate::config::Names;
use crate::discover::{Interface, Kind};
use crate::error::Error;
use crate::rail::connect::Opening;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};

/// Connections that may wait to be accepted, if `net.core.somaxconn` allows: a job's processes all connect at once.
const BACKLOG: libc::c_int = 4096;

/// Listeners on one port.
pub(crate) struct Ports {
    all: Vec<TcpListener>,
    port: u16,
    /// Which of them took a connection last.
    turn: usize,
}

/// Listens where an endpoint's settings say.
///
/// # Errors
/// When the system does not let it.
pub(super) fn open(endpoint: &Opening<'_>) -> Result<Ports, Error> {
    let settings = endpoint.settings;
    let at = settings.named.map(|at| at.ip()).filter(|ip| !ip.is_unspecified());
    let port = endpoint.port.unwrap_or(settings.named.map_or(settings.port, |at| at.port()));
    let (all, port) = listeners(at, port, &settings.interfaces, endpoint.interfaces).map_err(|error| {
        let of = at.map_or(String::new(), |ip| format!(" of {ip}"));
        Error::system(format!("listening on TCP port {port}{of}"), error)
    })?;
    Ok(Ports { all, port, turn: 0 })
}

impl Ports {
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Listens no more; the port.
    pub fn close(&mut self) -> u16 {
        self.all.clear();
        self.port
    }

    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.all.iter().map(AsRawFd::as_raw_fd)
    }

    /// The next connection, nonblocking; none that waits is `EAGAIN`.
    pub fn accept(&mut self) -> io::Result<TcpStream> {
        // each in its turn, so that a crowd at one interface does not keep the others waiting
        for _ in 0..self.all.len() {
            self.turn = (self.turn + 1) % self.all.len();
            match self.all[self.turn].accept() {
                Ok((stream, _)) => return stream.set_nonblocking(true).map(|()| stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::from_raw_os_error(libc::EAGAIN))
    }
}

/// Where an endpoint is called.
#[derive(Default)]
pub(crate) enum Listeners {
    /// Nowhere yet.
    #[default]
    None,
    /// At a port of its own.
    Own(Ports),
    /// At one that it shares.
    Shared(Part),
}

impl Listeners {
    /// Listens where the endpoint's settings say; also the port.
    ///
    /// # Errors
    /// When the system does not let it.
    pub fn open(endpoint: &Opening<'_>) -> Result<(Self, u16), Error> {
        if let Some(shared) = &endpoint.settings.shared_port {
            return shared::join(shared, endpoint).map(|(part, port)| (Self::Shared(part), port));
        }
        let own = open(endpoint)?;
        let port = own.port();
        Ok((Self::Own(own), port))
    }

    /// What to watch.
    pub fn descriptors(&self) -> Vec<RawFd> {
        match self {
            Self::None => Vec::new(),
            Self::Own(ports) => ports.descriptors().collect(),
            Self::Shared(part) => part.descriptors().to_vec(),
        }
    }

    /// The next connection, nonblocking; none that waits is `EAGAIN`.
    pub fn accept(&mut self) -> io::Result<TcpStream> {
        match self {
            Self::None => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
            Self::Own(ports) => ports.accept(),
            Self::Shared(part) => part.accept(),
        }
    }
}

/// Nonblocking listeners on one port, which they may choose (0), of an address, of the interfaces that are chosen, or of all;
/// and that port.
///
/// Where several interfaces are in one network, the kernel would answer all calls by the first of them, and each caller expects
/// the answer where it called: there each interface has a listener of its own, with which the connections stay. So it has where
/// some are left out. What comes from this host itself comes by the loopback interface, which is never left out.
fn listeners(
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
