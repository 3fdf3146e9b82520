//! The control channel's state: listeners, handshakes under way, and where peers are still to be tried.

use super::handshake::{Half, Handshake, Stream};
use super::sockets::{connect_tcp, interfaces, listen, unix_name};
use crate::config::{Config, Rendezvous};
use crate::discover::{self, Interface};
use crate::error::Error;
use crate::shm::fdpass;
use crate::tcp;
use polyrail_core::frame::MAX_PAYLOAD;
use polyrail_core::proto::PeerIdx;
use polyrail_core::wire::offer::{Limits, MemoryProbe, Process};
use polyrail_core::wire::{Address, Features, HostId, Ip, Key, Kind, Nonce, Offer, PeerId, Versions};
use polyrail_core::wireup::{Initiate, Initiator, Peer};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

pub(super) const TOKEN_RAIL: u64 = u64::MAX;
pub(super) const TOKEN_TCP: u64 = u64::MAX - 1;
pub(super) const TOKEN_UNIX: u64 = u64::MAX - 2;
/// Handshakes that strangers may have open at once; the oldest gives way.
const SHM_LAYOUT: u16 = 1;

/// When /proc is not there.
pub fn host_id() -> Result<HostId, Error> {
    use std::os::unix::fs::MetadataExt;
    let read = |path: &str, error| Error::system(format!("reading {path}"), error);
    let boot = "/proc/sys/kernel/random/boot_id";
    let boot_id = std::fs::read(boot).map_err(|e| read(boot, e))?;
    let net = "/proc/self/ns/net";
    let inode = std::fs::metadata(net).map_err(|e| read(net, e))?.ino();
    let PeerId(id) = Key::derive(&boot_id, &inode.to_le_bytes()).id();
    let [a, b, c, d, e, f, g, h, ..] = id;
    Ok(HostId(u64::from_le_bytes([a, b, c, d, e, f, g, h]).max(1)))
}

pub(super) fn tcp_config(config: &Config) -> tcp::Config {
    let quarter = (config.peer_timeout / 4).max(Duration::from_secs(1));
    tcp::Config {
        keepalive_idle: quarter,
        keepalive_interval: quarter,
        keepalive_count: 3,
        user_timeout: config.peer_timeout,
        congestion: config.congestion.clone(),
        ..tcp::Config::default()
    }
}

/// Where a peer is still to be tried.
pub(super) struct Attempt {
    pub unix: bool,
    pub ips: Vec<SocketAddr>,
    pub deadline: Instant,
    pub failures: Vec<String>,
}

/// The worker's control channel.
pub(super) struct Wireup {
    pub key: Key,
    pub id: PeerId,
    pub host: HostId,
    pub epoll: OwnedFd,
    pub tcp: Option<TcpListener>,
    pub unix: Option<OwnedFd>,
    pub handshakes: HashMap<u64, Handshake>,
    pub next: u64,
    pub peers: HashMap<PeerIdx, Peer>,
    pub attempts: HashMap<PeerIdx, Attempt>,
    /// The bytes that peers look for when they try to read this process's memory.
    pub probe: Box<u64>,
    pub offer: Offer,
    pub closing: bool,
    /// When peers failed last, so that those who cannot be reached are not tried again at once.
    pub failed_at: HashMap<PeerIdx, Instant>,
    /// Connections that did not prove the key.
    pub strangers_refused: u64,
}

pub(super) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| Error::system("random numbers", io::Error::other(e)))?;
    Ok(bytes)
}

impl Wireup {
    /// Opens the listeners; the endpoint's address.
    pub fn open(config: &Config) -> Result<(Self, Address), Error> {
        let key = match (config.key, config.named) {
            (Some(key), _) => key,
            (None, Some(at)) => crate::named::named_key(at.port())?,
            (None, None) => loop {
                if let Some(key) = Key::new(random()?) {
                    break key;
                }
            },
        };
        let id = key.id();
        let host = host_id()?;
        let port = config.named.map_or(config.port, |at| at.port());
        let (v4, v6) = (IpAddr::from([0, 0, 0, 0]), IpAddr::from([0; 16]));
        let wanted = config.named.map(|at| at.ip()).filter(|ip| !ip.is_unspecified());
        let listener = match wanted {
            Some(ip) => listen(SocketAddr::new(ip, port)),
            // one socket for both families where there is IPv6, else IPv4 alone
            None => listen(SocketAddr::new(v6, port)).or_else(|_| listen(SocketAddr::new(v4, port))),
        };
        let tcp = listener.map_err(|e| Error::system(format!("listening on TCP port {port}"), e))?;
        let port = tcp.local_addr().map_err(|e| Error::system("the listener's port", e))?.port();
        let unix = match config.shm {
            true => Some(
                fdpass::listen(&unix_name(id)).map_err(|e| Error::system("listening on a Unix socket", e))?,
            ),
            false => None,
        };
        let interfaces = interfaces(config)?;
        let ips = match wanted {
            Some(ip) => Ip::new(ip, 0).into_iter().collect(),
            None => discover::ips(&interfaces),
        };
        let address = Address::new(&key, host, unix.is_some(), port, ips)
            .map_err(|why| Error::Address(format!("this machine has no network address ({why})")))?;
        // SAFETY: a plain call; the descriptor is ours.
        let epoll = unsafe {
            let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            if fd < 0 {
                return Err(Error::system("epoll", io::Error::last_os_error()));
            }
            OwnedFd::from_raw_fd(fd)
        };
        let probe = Box::new(u64::from_le_bytes(random()?));
        // SAFETY: plain calls without arguments.
        let (pid, uid) = unsafe { (libc::getpid() as u32, libc::geteuid()) };
        let limits = Limits::new(MAX_PAYLOAD as u32, config.window as u32)
            .ok_or_else(|| Error::Address("limits".to_owned()))?;
        let mut offer = Offer::new(Process { pid, uid, host }, limits);
        if config.rendezvous != Rendezvous::Fragments {
            offer.probe = Some(MemoryProbe { address: &raw const *probe as u64, nonce: *probe });
        }
        offer.shm = config.shm.then_some(SHM_LAYOUT);
        for interface in interfaces.iter().filter(|one| one.obstacle.is_none()).filter_map(Interface::offer) {
            // the best come first: what there is no room for is left out
            let _ = offer.push_interface(interface);
        }
        let wireup = Self {
            key,
            id,
            host,
            epoll,
            tcp: Some(tcp),
            unix,
            handshakes: HashMap::new(),
            next: 0,
            peers: HashMap::new(),
            attempts: HashMap::new(),
            probe,
            offer,
            closing: false,
            failed_at: HashMap::new(),
            strangers_refused: 0,
        };
        if let Some(tcp) = &wireup.tcp {
            wireup.watch(tcp.as_raw_fd(), TOKEN_TCP)?;
        }
        if let Some(unix) = &wireup.unix {
            wireup.watch(unix.as_raw_fd(), TOKEN_UNIX)?;
        }
        Ok((wireup, address))
    }

    pub fn watch(&self, fd: RawFd, token: u64) -> Result<(), Error> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, false).map_err(|e| Error::system("epoll", e))
    }

    pub fn control(&self, what: libc::c_int, fd: RawFd, token: u64, writing: bool) -> io::Result<()> {
        let events = libc::EPOLLIN | if writing { libc::EPOLLOUT } else { 0 };
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        // SAFETY: both descriptors are open, the event is ours.
        match unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), what, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub fn wait_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Whether handshakes are under way: then each round of progress looks at them.
    pub fn busy(&self) -> bool {
        !self.handshakes.is_empty() || !self.attempts.is_empty()
    }

    pub fn add(&mut self, stream: Stream, half: Half, deadline: Instant) -> io::Result<u64> {
        let token = self.next;
        self.next += 1;
        let writing = matches!(half, Half::Ours(..));
        self.control(libc::EPOLL_CTL_ADD, stream.fd().as_raw_fd(), token, writing)?;
        let (outgoing, incoming) = (Vec::new(), Vec::new());
        let segment = None;
        let handshake =
            Handshake { stream, half, deadline, outgoing, incoming, segment, writing, proving: false };
        self.handshakes.insert(token, handshake);
        Ok(token)
    }

    /// The initiator for the next place where a peer may be. `Err`: all have been tried, and why they failed.
    pub fn dial(&mut self, peer: PeerIdx, address: &Address) -> Result<(), Vec<String>> {
        loop {
            let Some(attempt) = self.attempts.get_mut(&peer) else { return Err(Vec::new()) };
            let deadline = attempt.deadline;
            let opened = if attempt.unix {
                attempt.unix = false;
                fdpass::connect(&unix_name(address.id()))
                    .map(Stream::Unix)
                    .map_err(|e| format!("Unix socket: {e}"))
            } else if let Some(at) = attempt.ips.pop() {
                connect_tcp(at).map(Stream::Tcp).map_err(|e| format!("{at}: {e}"))
            } else {
                return Err(self.attempts.remove(&peer).map(|a| a.failures).unwrap_or_default());
            };
            let nonce = random().map(Nonce).map_err(|e| e.to_string());
            let begun = opened.and_then(|stream| Ok((stream, nonce?))).and_then(|(stream, nonce)| {
                let args = Initiate {
                    key: address.key(),
                    from: self.id,
                    versions: Versions::OURS,
                    features: Features(0),
                    kind: Kind::Session,
                    nonce,
                };
                let half = Half::Ours(Initiator::new(args, self.offer.clone()), peer);
                self.add(stream, half, deadline).map_err(|e| e.to_string())
            });
            match begun {
                Ok(_) => return Ok(()),
                Err(why) => {
                    if let Some(attempt) = self.attempts.get_mut(&peer) {
                        attempt.failures.push(why);
                    }
                }
            }
        }
    }

    pub fn our_handshake(&self, peer: PeerIdx) -> Option<u64> {
        self.handshakes
            .iter()
            .find(|(_, h)| matches!(&h.half, Half::Ours(_, p) if *p == peer))
            .map(|(token, _)| *token)
    }
}

impl Wireup {
    pub fn recently_failed(&self, peer: PeerIdx) -> bool {
        self.failed_at.get(&peer).is_some_and(|at| at.elapsed() < Duration::from_secs(1))
    }
}
