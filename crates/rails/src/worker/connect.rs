//! The control channel on real sockets: the listener, handshakes, and the links that come of them.
//!
//! A peer on the same host is tried by its Unix socket first: it carries the descriptors of the shared memory, and its end
//! tells that the peer has died. Otherwise each IP of the peer's address is tried by TCP, and the connection itself becomes
//! the link. All decisions are [`polyrail_core::wireup`]'s.

use super::inbound::{LinkInfo, RailId};
use super::{PeerInfo, Refused, Worker};
use crate::config::{Config, Rendezvous};
use crate::error::Error;
use crate::rail::{Down, LinkId, Rail};
use crate::shm::doorbell::Bell;
use crate::shm::segment::Segment;
use crate::shm::{cma, fdpass};
use crate::tcp;
use polyrail_core::frame::{Frame, MAX_PAYLOAD};
use polyrail_core::proto::{CREDIT_UNIT, PeerIdx, Route, Scheme};
use polyrail_core::wire::{
    Address, Features, HostId, Ip, Key, Kind, Nonce, Offer, PeerId, Reject, Versions,
    offer::{Limits, MemoryProbe, Process},
};
use polyrail_core::wireup::{
    Incoming, Initiate, Initiator, InitiatorEvent, Peer, PeerEvent, PeerState, Respond, Responder,
    ResponderEvent, Session,
};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// The outer epoll set's tokens: rails, listeners, handshakes.
pub(super) const TOKEN_RAIL: u64 = u64::MAX;
const TOKEN_TCP: u64 = u64::MAX - 1;
const TOKEN_UNIX: u64 = u64::MAX - 2;
/// Handshakes that strangers may have open at once; the oldest gives way.
const MAX_STRANGERS: usize = 512;
/// How long a stranger may take to prove the key.
const STRANGER_TIME: Duration = Duration::from_secs(5);
/// Shared-memory fragments: what one slot's bulk payload takes.
const SHM_FRAGMENT: usize = 32 << 10;
/// TCP fragments: long enough to cost little, short enough to let others in between.
const TCP_FRAGMENT: usize = 256 << 10;
const SHM_LAYOUT: u16 = 1;

/// Who shares this operating system and network namespace, and so this host's Unix sockets.
///
/// # Errors
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

/// A connection that is not a link yet.
enum Stream {
    Tcp(TcpStream),
    Unix(OwnedFd),
}

impl Stream {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(fd) => fd.as_fd(),
        }
    }

    fn write(&mut self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(fd) => fdpass::send(fd.as_fd(), bytes, fds),
        }
    }

    fn read(&mut self, bytes: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(bytes),
            Self::Unix(fd) => fdpass::recv(fd.as_fd(), bytes, fds),
        }
    }

    fn into_fd(self) -> OwnedFd {
        match self {
            Self::Tcp(stream) => stream.into(),
            Self::Unix(fd) => fd,
        }
    }
}

enum Half {
    Ours(Initiator, PeerIdx),
    Theirs(Box<Responder>, Option<(PeerIdx, Session)>),
}

/// One handshake.
struct Handshake {
    stream: Stream,
    half: Half,
    deadline: Instant,
    /// Descriptors to go with the next bytes.
    outgoing: Vec<OwnedFd>,
    /// Descriptors that came.
    incoming: Vec<OwnedFd>,
    /// The segment that this side made for a peer that it accepts.
    segment: Option<Segment>,
    writing: bool,
    /// PROOF is on its way: the peer may count on this connection.
    proving: bool,
}

/// Where a peer is still to be tried.
struct Attempt {
    unix: bool,
    ips: Vec<SocketAddr>,
    deadline: Instant,
    failures: Vec<String>,
}

/// The worker's control channel.
pub(super) struct Wireup {
    key: Key,
    id: PeerId,
    host: HostId,
    epoll: OwnedFd,
    tcp: Option<TcpListener>,
    unix: Option<OwnedFd>,
    handshakes: HashMap<u64, Handshake>,
    next: u64,
    peers: HashMap<PeerIdx, Peer>,
    attempts: HashMap<PeerIdx, Attempt>,
    /// The bytes that peers look for when they try to read this process's memory.
    probe: Box<u64>,
    offer: Offer,
    closing: bool,
    /// When peers failed last, so that those who cannot be reached are not tried again at once.
    failed_at: HashMap<PeerIdx, Instant>,
    /// Connections that did not prove the key.
    strangers_refused: u64,
}

fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| Error::system("random numbers", io::Error::other(e)))?;
    Ok(bytes)
}

fn unix_name(id: PeerId) -> Vec<u8> {
    let mut name = b"polyrail-".to_vec();
    for byte in id.0 {
        name.extend_from_slice(format!("{byte:02x}").as_bytes());
    }
    name
}

/// The IPs of this machine that peers may try, best first: what leads elsewhere before loopback, IPv4 before IPv6.
fn own_ips(config: &Config) -> Result<Vec<Ip>, Error> {
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

fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(at)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
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
        let ips = match wanted {
            Some(ip) => Ip::new(ip, 0).into_iter().collect(),
            None => own_ips(config)?,
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

    fn control(&self, what: libc::c_int, fd: RawFd, token: u64, writing: bool) -> io::Result<()> {
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

    fn add(&mut self, stream: Stream, half: Half, deadline: Instant) -> io::Result<u64> {
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
    fn dial(&mut self, peer: PeerIdx, address: &Address) -> Result<(), Vec<String>> {
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

    fn our_handshake(&self, peer: PeerIdx) -> Option<u64> {
        self.handshakes
            .iter()
            .find(|(_, h)| matches!(&h.half, Half::Ours(_, p) if *p == peer))
            .map(|(token, _)| *token)
    }
}

/// Begins a connection; that it fails may only be known later.
fn connect_tcp(at: SocketAddr) -> io::Result<TcpStream> {
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

/// What became of a handshake's turn.
enum Turn {
    Wait,
    Proven(Session),
    Done(Session, Vec<u8>),
    Rejected(Reject),
    Failed(String),
}

impl Handshake {
    /// Sends and receives what can be, and tells the machine. Returns how it stands.
    fn turn(&mut self, doorbell: BorrowedFd<'_>) -> Turn {
        let mut buffer = [0; 4096];
        loop {
            if let Some(wait) = self.flush() {
                return wait;
            }
            if let Half::Theirs(responder, decided) = &mut self.half {
                match responder.poll_event() {
                    Some(ResponderEvent::Authenticated(session)) => return Turn::Proven(session),
                    Some(ResponderEvent::Established) => {
                        return match decided.take() {
                            Some((_, session)) => Turn::Done(session, Vec::new()),
                            None => Turn::Failed("it was accepted twice".into()),
                        };
                    }
                    None => {}
                }
            }
            let n = match self.stream.read(&mut buffer, &mut self.incoming) {
                Ok(0) => {
                    return Turn::Failed(
                        "it closed the connection; if it is there, its key is another".into(),
                    );
                }
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Turn::Wait,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Turn::Failed(e.to_string()),
            };
            let taken = match &mut self.half {
                Half::Ours(initiator, _) => initiator.handle_bytes(&buffer[..n]),
                Half::Theirs(responder, _) => responder.handle_bytes(&buffer[..n]),
            };
            let taken = match taken {
                Ok(taken) => taken,
                Err(why) => {
                    self.flush();
                    return Turn::Failed(why.to_string());
                }
            };
            if let Half::Ours(initiator, _) = &mut self.half {
                while let Some(event) = initiator.poll_event() {
                    match event {
                        InitiatorEvent::Proving => {
                            self.proving = true;
                            if let (Stream::Unix(_), Ok(fd)) = (&self.stream, doorbell.try_clone_to_owned()) {
                                self.outgoing.push(fd);
                            }
                        }
                        InitiatorEvent::Established(session) => {
                            return Turn::Done(session, buffer[taken..n].to_vec());
                        }
                        InitiatorEvent::Rejected(reason) => return Turn::Rejected(reason),
                    }
                }
            } else if taken < n {
                return Turn::Failed("it spoke out of turn".into());
            }
        }
    }

    /// Writes what the machine has to say. Something is returned when it cannot all be written.
    fn flush(&mut self) -> Option<Turn> {
        loop {
            let bytes = match &self.half {
                Half::Ours(initiator, _) => initiator.poll_transmit(),
                Half::Theirs(responder, _) => responder.poll_transmit(),
            };
            let Some(bytes) = bytes else { return None };
            let fds: Vec<BorrowedFd<'_>> = self.outgoing.iter().map(AsFd::as_fd).collect();
            match self.stream.write(bytes, &fds) {
                Ok(n) => {
                    self.outgoing.clear();
                    match &mut self.half {
                        Half::Ours(initiator, _) => initiator.transmitted(n),
                        Half::Theirs(responder, _) => responder.transmitted(n),
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected) => {
                    return Some(Turn::Wait);
                }
                Err(e) => return Some(Turn::Failed(e.to_string())),
            }
        }
    }

    fn wants_write(&self) -> bool {
        match &self.half {
            Half::Ours(initiator, _) => initiator.poll_transmit().is_some(),
            Half::Theirs(responder, _) => responder.poll_transmit().is_some(),
        }
    }
}

impl Worker {
    /// This process is its own first peer.
    pub(super) fn connect_self(&mut self) {
        let me = self.peer_of(self.wireup.id);
        self.core.peers[me.0 as usize].address = Some(self.address);
        // SAFETY: a plain call without arguments.
        self.core.peers[me.0 as usize].pid = Some(unsafe { libc::getpid() });
        let scheme = match (self.config.rendezvous, self.probe_self()) {
            (Rendezvous::Auto, true) => Scheme::Get,
            (Rendezvous::Put, true) => Scheme::Put,
            _ => Scheme::Fragments,
        };
        let window = (self.config.window as u64 / CREDIT_UNIT) as u32;
        let route = Route {
            eager_max: self.config.shm_eager,
            fragment: SHM_FRAGMENT,
            scheme,
            window,
            immediate: true,
        };
        self.up(me, RailId::Loopback, crate::loopback::Loopback::LINK, route);
    }

    /// Whether this process may read its own memory as if it were another's.
    fn probe_self(&self) -> bool {
        let at = &raw const *self.wireup.probe as u64;
        cma::probe(std::process::id() as i32, at, *self.wireup.probe).is_ok()
    }

    /// Sees to it that there is, or will be, a connection.
    pub(super) fn connect(&mut self, peer: PeerIdx) -> Result<(), Refused> {
        let info = &self.core.peers[peer.0 as usize];
        let Some(address) = info.address else { return Err(Refused::Gone) };
        let (ours, theirs) = (self.wireup.id, info.id);
        let state = self.wireup.peers.entry(peer).or_insert_with(|| Peer::new(ours, theirs));
        let failed_before = state.state() == PeerState::Failed;
        if !state.connect() {
            return Ok(());
        }
        if failed_before && info.why.is_some() && self.wireup.recently_failed(peer) {
            let _ = self.wireup.peers.get_mut(&peer).map(|p| p.on(PeerEvent::Refused));
            return Err(Refused::Gone);
        }
        let unix = self.config.shm && address.is_local() && address.host() == self.wireup.host;
        let mut ips: Vec<SocketAddr> = if self.config.tcp { address.sockets().collect() } else { Vec::new() };
        ips.reverse();
        let deadline = Instant::now() + self.config.connect_timeout;
        self.wireup.attempts.insert(peer, Attempt { unix, ips, deadline, failures: Vec::new() });
        if let Err(failures) = self.wireup.dial(peer, &address) {
            self.unreachable(peer, &failures);
            return Err(Refused::Gone);
        }
        Ok(())
    }

    /// A round of the control channel; returns how much happened.
    pub(super) fn wire_up(&mut self) -> usize {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
        let fd = self.wireup.epoll.as_raw_fd();
        // SAFETY: the array has room for what is asked.
        let n = unsafe { libc::epoll_wait(fd, events.as_mut_ptr(), 32, 0) }.max(0) as usize;
        let mut happened = 0;
        for event in events.iter().take(n) {
            match event.u64 {
                TOKEN_RAIL => {}
                TOKEN_TCP | TOKEN_UNIX => happened += self.accept(event.u64 == TOKEN_UNIX),
                token => happened += self.shake(token),
            }
        }
        if self.wireup.busy() {
            self.check_deadlines();
        }
        happened
    }

    fn accept(&mut self, unix: bool) -> usize {
        let mut accepted = 0;
        for _ in 0..16 {
            let stream = if unix {
                self.wireup.unix.as_ref().map(|l| fdpass::accept(l.as_fd()).map(Stream::Unix))
            } else {
                self.wireup.tcp.as_ref().map(|l| l.accept().map(|(s, _)| Stream::Tcp(s)))
            };
            let Some(Ok(stream)) = stream else { break };
            accepted += 1;
            if let Stream::Tcp(s) = &stream
                && s.set_nonblocking(true).is_err()
            {
                continue;
            }
            if self.wireup.handshakes.len() >= MAX_STRANGERS {
                self.drop_oldest_stranger();
            }
            let Ok(nonce) = random().map(Nonce) else { continue };
            let args =
                Respond { key: self.wireup.key, versions: Versions::OURS, features: Features(0), nonce };
            let half = Half::Theirs(Box::new(Responder::new(args)), None);
            let deadline = Instant::now() + STRANGER_TIME;
            if let Ok(token) = self.wireup.add(stream, half, deadline) {
                self.shake(token);
            }
        }
        accepted
    }

    fn drop_oldest_stranger(&mut self) {
        let oldest = self
            .wireup
            .handshakes
            .iter()
            .filter(|(_, h)| matches!(&h.half, Half::Theirs(_, None)))
            .min_by_key(|(_, h)| h.deadline)
            .map(|(token, _)| *token);
        if let Some(token) = oldest {
            self.wireup.handshakes.remove(&token);
        }
    }

    fn shake(&mut self, token: u64) -> usize {
        let Some(handshake) = self.wireup.handshakes.get_mut(&token) else { return 0 };
        let turn = handshake.turn(self.shm.doorbell().as_fd());
        if let Half::Ours(_, peer) = &handshake.half
            && handshake.proving
            && let Some(state) = self.wireup.peers.get_mut(peer)
            && state.state() == PeerState::Connecting
        {
            let _ = state.on(PeerEvent::Proving);
        }
        match turn {
            Turn::Wait => {
                let (writing, fd) = (handshake.wants_write(), handshake.stream.fd().as_raw_fd());
                if writing != handshake.writing {
                    handshake.writing = writing;
                    let _ = self.wireup.control(libc::EPOLL_CTL_MOD, fd, token, writing);
                }
                return 0;
            }
            Turn::Proven(session) => self.decide(token, session),
            Turn::Done(session, leftover) => self.established(token, &session, &leftover),
            Turn::Rejected(reason) => self.rejected(token, reason),
            Turn::Failed(why) => self.handshake_failed(token, &why),
        }
        1
    }

    /// A peer has proved the key on a connection of its own.
    fn decide(&mut self, token: u64, session: Session) {
        let peer = self.peer_of(session.peer);
        let (ours, theirs) = (self.wireup.id, session.peer);
        if ours == theirs {
            self.wireup.handshakes.remove(&token);
            return;
        }
        let state = self.wireup.peers.entry(peer).or_insert_with(|| Peer::new(ours, theirs));
        let verdict = if self.wireup.closing { Incoming::Reject(Reject::Closing) } else { state.incoming() };
        if let Incoming::Accept { drop_ours: true } = verdict {
            if let Some(own) = self.wireup.our_handshake(peer) {
                self.wireup.handshakes.remove(&own);
            }
            self.wireup.attempts.remove(&peer);
        }
        let Some(handshake) = self.wireup.handshakes.get_mut(&token) else { return };
        let Half::Theirs(responder, decided) = &mut handshake.half else { return };
        if let Incoming::Reject(reason) = verdict {
            let _ = responder.reject(reason);
            handshake.flush();
            self.wireup.handshakes.remove(&token);
            return;
        }
        if let Stream::Unix(_) = handshake.stream {
            let made = Segment::create().map_err(|e| e.to_string()).and_then(|made| {
                Ok((made, self.shm.doorbell().as_fd().try_clone_to_owned().map_err(|e| e.to_string())?))
            });
            match made {
                Ok(((segment, memory), bell)) => {
                    handshake.segment = Some(segment);
                    handshake.outgoing = vec![memory, bell];
                }
                Err(_) => {
                    // the other side falls back to TCP
                    let _ = responder.reject(Reject::NoResources);
                    handshake.flush();
                    self.wireup.handshakes.remove(&token);
                    let _ = self.wireup.peers.get_mut(&peer).map(|p| p.on(PeerEvent::Lost));
                    return;
                }
            }
        }
        *decided = Some((peer, session));
        let _ = responder.accept(&self.wireup.offer);
        handshake.deadline = Instant::now() + STRANGER_TIME;
        self.shake(token);
    }

    /// Both sides agree: the connection becomes a link.
    fn established(&mut self, token: u64, session: &Session, leftover: &[u8]) {
        let Some(mut handshake) = self.wireup.handshakes.remove(&token) else { return };
        let peer = self.peer_of(session.peer);
        let _ = self.wireup.control(libc::EPOLL_CTL_DEL, handshake.stream.fd().as_raw_fd(), 0, false);
        let unix = matches!(handshake.stream, Stream::Unix(_));
        let linked = match unix {
            true => self.link_shm(&mut handshake).map(|ends| (ends, handshake.stream)).and_then(
                |((ends, bell), stream)| {
                    self.shm.adopt(ends, bell, stream.into_fd()).map_err(|e| e.to_string())
                },
            ),
            false => self.tcp.adopt(handshake.stream.into_fd(), leftover).map_err(|e| e.to_string()),
        };
        let link = match linked {
            Ok(link) => link,
            Err(why) => return self.try_next(peer, why),
        };
        if let Some(state) = self.wireup.peers.get_mut(&peer) {
            let _ = state.on(PeerEvent::Established);
        }
        self.wireup.attempts.remove(&peer);
        let route = self.route_for(peer, session, unix);
        self.up(peer, if unix { RailId::Shm } else { RailId::Tcp }, link, route);
    }

    fn link_shm(
        &self,
        handshake: &mut Handshake,
    ) -> Result<((crate::shm::ring::Producer, crate::shm::ring::Consumer), Bell), String> {
        let mut fds = std::mem::take(&mut handshake.incoming).into_iter();
        let missing = || "the descriptors of the shared memory did not come along".to_owned();
        let segment = match handshake.segment.take() {
            Some(made_here) => made_here,
            None => Segment::open(fds.next().ok_or_else(missing)?.as_fd()).map_err(|e| e.to_string())?,
        };
        let bell = Bell::new(fds.next().ok_or_else(missing)?).map_err(|e| e.to_string())?;
        Ok((segment.split(), bell))
    }

    /// How messages travel on a new link.
    fn route_for(&mut self, peer: PeerIdx, session: &Session, shm: bool) -> Route {
        let window = (u64::from(session.offer.limits.eager_window()) / CREDIT_UNIT) as u32;
        let most = session.offer.limits.max_frame() as usize;
        if !shm {
            let (eager_max, fragment) = (self.config.tcp_eager.min(most), TCP_FRAGMENT.min(most));
            return Route { eager_max, fragment, scheme: Scheme::Fragments, window, immediate: false };
        }
        let pid = session.offer.process.pid as i32;
        let reached = match (self.config.rendezvous, session.offer.probe) {
            (Rendezvous::Fragments, _) | (_, None) => Err("switched off".to_owned()),
            (_, Some(probe)) => cma::probe(pid, probe.address, probe.nonce).map_err(|e| e.to_string()),
        };
        let info = &mut self.core.peers[peer.0 as usize];
        let scheme = match reached {
            Ok(()) => {
                info.pid = Some(pid);
                if self.config.rendezvous == Rendezvous::Put { Scheme::Put } else { Scheme::Get }
            }
            Err(why) => {
                info.direct_refused = Some(why);
                Scheme::Fragments
            }
        };
        let (eager_max, fragment) = (self.config.shm_eager.min(most), SHM_FRAGMENT.min(most));
        Route { eager_max, fragment, scheme, window, immediate: true }
    }

    fn up(&mut self, peer: PeerIdx, rail: RailId, link: LinkId, route: Route) {
        let links = &mut self.core.links[rail as usize];
        if links.len() <= link.0 as usize {
            links.resize_with(link.0 as usize + 1, || None);
        }
        links[link.0 as usize] = Some(LinkInfo { peer, incoming: None });
        let info = &mut self.core.peers[peer.0 as usize];
        info.lane = Some((rail, link));
        info.why = None;
        self.core.engine.connected(peer, route);
        self.settle();
    }

    fn rejected(&mut self, token: u64, reason: Reject) {
        let Some(Handshake { half: Half::Ours(_, peer), .. }) = self.wireup.handshakes.remove(&token) else {
            return;
        };
        if reason == Reject::Simultaneous {
            // the peer's own connection comes; the attempt's deadline bounds the wait
            if let Some(state) = self.wireup.peers.get_mut(&peer) {
                let _ = state.rejected(reason);
            }
            return;
        }
        self.try_next(peer, format!("it refused: {reason}"));
    }

    fn handshake_failed(&mut self, token: u64, why: &str) {
        let Some(handshake) = self.wireup.handshakes.remove(&token) else { return };
        match handshake.half {
            Half::Ours(_, peer) => self.try_next(peer, why.to_owned()),
            Half::Theirs(_, Some((peer, _))) => {
                let lost = self.wireup.peers.get_mut(&peer).map(|p| p.on(PeerEvent::Lost));
                if let Some(Ok(_)) = lost {
                    self.gone(peer, format!("the connection ended while it was made: {why}"));
                }
            }
            Half::Theirs(_, None) => self.wireup.strangers_refused += 1,
        }
    }

    /// One way to a peer has failed: the next.
    fn try_next(&mut self, peer: PeerIdx, why: String) {
        if let Some(attempt) = self.wireup.attempts.get_mut(&peer) {
            attempt.failures.push(why);
            let Some(address) = self.core.peers[peer.0 as usize].address else { return };
            // back to the state in which a connection is being opened
            if let Some(state) = self.wireup.peers.get_mut(&peer)
                && state.state() != PeerState::Connecting
            {
                let _ = state.on(PeerEvent::Lost);
                state.connect();
            }
            if let Err(failures) = self.wireup.dial(peer, &address) {
                self.unreachable(peer, &failures);
            }
        } else {
            if let Some(state) = self.wireup.peers.get_mut(&peer) {
                let _ = state.on(PeerEvent::Lost);
            }
            self.gone(peer, why);
        }
    }

    fn unreachable(&mut self, peer: PeerIdx, failures: &[String]) {
        if let Some(state) = self.wireup.peers.get_mut(&peer) {
            let _ = state.on(PeerEvent::Refused);
        }
        let why = match failures {
            [] => "there is no way to it: no rail that both have is switched on".to_owned(),
            some => some.join("; "),
        };
        self.gone(peer, format!("cannot connect: {why}"));
    }

    /// The peer is lost: every operation with it ends.
    fn gone(&mut self, peer: PeerIdx, why: String) {
        let info = &mut self.core.peers[peer.0 as usize];
        let named = describe(info);
        info.why = Some(format!("{named}: {why}"));
        info.pid = None;
        self.wireup.failed_at.insert(peer, Instant::now());
        if let Some((rail, link)) = info.lane.take() {
            self.core.links[rail as usize][link.0 as usize] = None;
            match rail {
                RailId::Loopback => {}
                RailId::Shm => self.shm.close(link),
                RailId::Tcp => self.tcp.close(link),
            }
        }
        self.blocked.retain(|p| *p != peer);
        self.core.engine.peer_down(peer);
        self.settle();
    }

    /// Links that ended, or are cut because their peer broke the protocol.
    pub(super) fn bury(&mut self) {
        for (rail, link, why) in std::mem::take(&mut self.core.cut) {
            let why = Down::Protocol(format!("it broke the protocol: {why}"));
            self.core.downs.push((rail, link, why));
        }
        for (rail, link, why) in std::mem::take(&mut self.core.downs) {
            let Some(peer) = self.core.link(rail, link).map(|info| info.peer) else { continue };
            if let Some(state) = self.wireup.peers.get_mut(&peer) {
                let orderly = matches!(why, Down::Orderly);
                let _ = state.on(if orderly { PeerEvent::Bye } else { PeerEvent::Lost });
            }
            let why = match why {
                Down::Orderly => "it has closed its endpoint".to_owned(),
                Down::Lost(error) => format!("the connection was lost: {error}"),
                Down::Protocol(what) => what,
            };
            self.gone(peer, why);
        }
    }

    fn check_deadlines(&mut self) {
        let now = Instant::now();
        let late: Vec<u64> = self
            .wireup
            .handshakes
            .iter()
            .filter(|(_, h)| h.deadline <= now)
            .map(|(token, _)| *token)
            .collect();
        for token in late {
            self.handshake_failed(token, "no answer in time");
        }
        let late: Vec<PeerIdx> =
            self.wireup.attempts.iter().filter(|(_, a)| a.deadline <= now).map(|(peer, _)| *peer).collect();
        for peer in late {
            let Some(attempt) = self.wireup.attempts.remove(&peer) else { continue };
            if let Some(token) = self.wireup.our_handshake(peer) {
                self.wireup.handshakes.remove(&token);
            }
            if let Some(state) = self.wireup.peers.get_mut(&peer) {
                let _ = state.on(PeerEvent::Deadline);
            }
            let mut failures = attempt.failures;
            failures.push(format!("not connected within {:?}", self.config.connect_timeout));
            self.unreachable(peer, &failures);
        }
    }

    /// Says goodbye to all peers once what was sent has left, or at the deadline.
    pub(super) fn say_bye(&mut self, deadline: Instant) {
        if self.wireup.closing {
            return;
        }
        self.config.yielding = true;
        while Instant::now() < deadline && !self.all_quiet() {
            if self.progress() == 0 {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        self.wireup.closing = true;
        let links: Vec<_> = self.core.peers.iter().filter_map(|info| info.lane).collect();
        let header = Frame::Bye.encode(0);
        for (rail, link) in &links {
            // SAFETY: no payload.
            unsafe {
                let _ = match rail {
                    RailId::Loopback => Ok(crate::rail::Sent::Done),
                    RailId::Shm => self.shm.send(*link, &header, &[], None),
                    RailId::Tcp => self.tcp.send(*link, &header, &[], None),
                };
            }
        }
        self.tcp.flush(&self.core.bufs);
        self.part(&links, deadline);
    }

    /// Waits, at most until the deadline, until the peers' kernels have all that was sent, then closes: a TCP connection that
    /// is closed with bytes unread would take what is still on its way with it.
    fn part(&mut self, links: &[(RailId, LinkId)], deadline: Instant) {
        let on_the_way =
            |worker: &Self| links.iter().any(|(rail, link)| *rail == RailId::Tcp && !worker.tcp.idle(*link));
        while on_the_way(self) && Instant::now() < deadline {
            if self.progress() == 0 {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        for (rail, link) in links {
            match rail {
                RailId::Loopback => self.loopback.close(*link),
                RailId::Shm => self.shm.close(*link),
                RailId::Tcp => self.tcp.close(*link),
            }
        }
    }

    /// Whether nothing waits to leave, and nobody waits for an answer that this side owes.
    pub(super) fn all_quiet(&self) -> bool {
        (0..self.core.peers.len() as u32).map(PeerIdx).all(|peer| {
            let idle = match self.core.lane(peer) {
                Some((RailId::Tcp, link)) => self.tcp.idle(link),
                _ => true,
            };
            idle && (self.core.engine.is_quiet(peer)
                || self.core.peers[peer.0 as usize].lane.is_none()
                    && !self.wireup.attempts.contains_key(&peer))
        })
    }
}

impl Wireup {
    fn recently_failed(&self, peer: PeerIdx) -> bool {
        self.failed_at.get(&peer).is_some_and(|at| at.elapsed() < Duration::from_secs(1))
    }
}

fn describe(info: &PeerInfo) -> String {
    let at: Vec<String> =
        info.address.iter().flat_map(|a| a.sockets().map(|s| s.to_string()).collect::<Vec<_>>()).collect();
    let short: String = info.id.0.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    if at.is_empty() { format!("peer {short}") } else { format!("peer {short} at {}", at.join(", ")) }
}
