//! The control channel's state: listeners, handshakes under way, and where peers are still to be tried.

use super::crowd::{Room, gives_way};
use super::handshake::{Half, Handshake, Place, Stream};
use super::secret::Keyring;
use super::sockets::{connect_tcp, connect_unix, interfaces, listeners, unix_name};
use super::timer::Timer;
use super::top::Top;
use crate::config::{Config, Rendezvous};
use crate::discover::{self, Interface};
use crate::error::Error;
use crate::keys::KeyPair;
use crate::rail::Reach;
use crate::rail::set::RailId;
use crate::shm::fdpass;
use crate::sys::Epoll;
use polyrail_core::frame::MAX_PAYLOAD;
use polyrail_core::proto::PeerIdx;
use polyrail_core::wire::offer::{Limits, MemoryProbe, Process};
use polyrail_core::wire::{Address, Features, HostId, Ip, Key, Kind, Nonce, Offer, PeerId, Versions};
use polyrail_core::wireup::{Initiate, Initiator, Peer, ResponderPhase};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

pub(super) const TOKEN_RAIL: u64 = u64::MAX;
pub(super) const TOKEN_TCP: u64 = u64::MAX - 1;
pub(super) const TOKEN_UNIX: u64 = u64::MAX - 2;
pub(super) const TOKEN_TIMER: u64 = u64::MAX - 3;
pub(super) const TOKEN_TOP: u64 = u64::MAX - 4;
pub(super) const TOKEN_WATCHER: u64 = u64::MAX - 5;
/// The layout of the segments that this side makes, as its offer tells it; who maps one checks the one in its header.
const SHM_LAYOUT: u16 = 1;
/// How long to wait before accepting where no descriptor is left, and at first before a place is tried again that had no time
/// or room; then twice as long each time, up to `AGAIN_MOST`.
const AGAIN: Duration = Duration::from_millis(100);
const AGAIN_MOST: Duration = Duration::from_secs(2);
/// While something is under way it is looked at as soon as something came of the last look, else after this.
const LOOK: Duration = Duration::from_micros(50);
/// How late a deadline may be seen.
const LATE: Duration = Duration::from_millis(5);
/// Rounds of progress after which all is looked at, whatever the clock says; and after which the clock is, where rounds are busy.
const ROUNDS: u64 = 256;
const CLOCK_ROUNDS: u64 = 16;
/// How long a peer that failed is not tried again.
const RECENT: Duration = Duration::from_secs(1);
/// Between two looks that are further apart than this the program did something else.
const PAUSE: Duration = Duration::from_millis(100);

/// Who shares this operating system and network namespace, and so this host's Unix sockets.
///
/// # Errors
/// When /proc is not there.
pub fn host_id() -> Result<HostId, Error> {
    use std::os::unix::fs::MetadataExt;
    let read = |path: &str, error| Error::system(format!("reading {path}"), error);
    let boot = "/proc/sys/kernel/random/boot_id";
    let boot_id = std::fs::read(boot).map_err(|e| read(boot, e))?;
    // a thread may be in a namespace of its own, and so are its sockets
    let net = "/proc/thread-self/ns/net";
    let inode = std::fs::metadata(net).map_err(|e| read(net, e))?.ino();
    let PeerId(id) = Key::derive(&boot_id, &inode.to_le_bytes()).id();
    let [a, b, c, d, e, f, g, h, ..] = id;
    Ok(HostId(u64::from_le_bytes([a, b, c, d, e, f, g, h]).max(1)))
}

/// Where a peer is still to be tried.
pub(super) struct Attempt {
    /// The next one last.
    pub places: Vec<Place>,
    /// Where the peer seemed to be, but had no time or room.
    pub again: Vec<Place>,
    /// Until when it must be reached.
    pub deadline: Instant,
    /// Until when it must be reached if it is there, but has not seen yet that an earlier session is dead.
    pub stale_deadline: Instant,
    /// When to go on if no handshake is under way.
    pub resume: Option<Instant>,
    /// How long to wait before the next round of places.
    pause: Duration,
    pub failures: Vec<String>,
}

impl Attempt {
    /// An attempt that begins now, at these places.
    pub fn new(places: Vec<Place>, config: &Config) -> Self {
        let now = Instant::now();
        let deadline = now + config.connect_timeout;
        Self {
            places,
            again: Vec::new(),
            deadline,
            // a dead link is seen after PEER_TIMEOUT, and by those who look at intervals a little later
            stale_deadline: deadline.max(now + 2 * config.peer_timeout),
            resume: None,
            pause: AGAIN,
            failures: Vec::new(),
        }
    }

    /// The peer is at this place, and believes that a session with us lives. Another way would lead to the same answer.
    pub fn exists(&mut self, place: Place) {
        self.deadline = self.stale_deadline;
        self.again.append(&mut self.places);
        self.again.push(place);
    }

    pub fn failed(&mut self, why: String) {
        if !self.failures.contains(&why) {
            self.failures.push(why);
        }
    }

    /// How long the next place may take to be reached, so that all have their turn.
    fn share(&self, now: Instant) -> Duration {
        let left = self.deadline.saturating_duration_since(now) / (self.places.len() as u32 + 1);
        left.max(AGAIN)
    }
}

/// What is to be heard of a descriptor.
#[derive(Clone, Copy)]
pub(super) enum Interest {
    None = 0,
    Read = libc::EPOLLIN as isize,
    Write = (libc::EPOLLIN | libc::EPOLLOUT) as isize,
}

/// The Unix listeners, one for each rail within the host. A named endpoint's name can be known, and taken, by anybody: then what
/// leads over the network is left, and true is returned.
fn listen_unix(id: PeerId, config: &Config) -> Result<(Vec<(OwnedFd, RailId)>, bool), Error> {
    let (mut listeners, mut name_taken) = (Vec::new(), false);
    for rail in config.rails.reaching(Reach::Host) {
        match fdpass::listen(&unix_name(id, rail)) {
            Ok(listener) => listeners.push((listener, rail)),
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse && config.rails.reaches(Reach::Network) =>
            {
                name_taken = true;
            }
            Err(error) => return Err(Error::system("listening on a Unix socket", error)),
        }
    }
    Ok((listeners, name_taken))
}

/// The worker's control channel.
pub(super) struct Wireup {
    /// What connections to this endpoint prove.
    pub key: Key,
    pub keys: Keyring,
    pub id: PeerId,
    pub host: HostId,
    pub epoll: Epoll,
    /// What one look takes.
    pub events: Vec<libc::epoll_event>,
    /// Where peers on other hosts connect: one for all interfaces, or one each.
    pub tcp: Vec<TcpListener>,
    /// Which of them took a connection last.
    turn: usize,
    /// Where peers on this host connect, by each rail.
    unix: Vec<(OwnedFd, RailId)>,
    /// There is none because another process has its name.
    pub name_taken: bool,
    pub handshakes: HashMap<u64, Handshake>,
    pub next: u64,
    pub peers: HashMap<PeerIdx, Peer>,
    pub attempts: HashMap<PeerIdx, Attempt>,
    /// The bytes that peers look for when they try to read this process's memory.
    pub probe: Box<u64>,
    pub offer: Offer,
    /// Connections are to be encrypted.
    encrypt: bool,
    pub closing: bool,
    /// When peers failed last, so that those who cannot be reached are not tried again at once.
    pub failed_at: HashMap<PeerIdx, Instant>,
    /// Peers that nobody here has an address of, since they went; the oldest first.
    pub callers_gone: VecDeque<PeerIdx>,
    pub strangers: Strangers,
    pub top: Top,
    /// When this was looked at last.
    looked: Instant,
    /// When it is to be looked at again, while something is under way.
    next_look: Instant,
    /// When deadlines were compared with the clock last.
    walked: Instant,
    /// The worker's owner slept since then, to be woken by the next of them.
    pub dozed: bool,
    timer: Timer,
    /// Since no descriptor is left, nothing is accepted until then.
    deaf_until: Option<Instant>,
}

/// Connections that came to nothing, because the other side did not prove the key or speaks another version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strangers {
    /// How many.
    pub refused: u64,
    /// Why the last one was refused.
    pub last: Option<String>,
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
        let keys = Keyring::open(config, host)?;
        let port = config.named.map_or(config.port, |at| at.port());
        let wanted = config.named.map(|at| at.ip()).filter(|ip| !ip.is_unspecified());
        let interfaces = interfaces(config)?;
        let (tcp, port) = match config.rails.reaches(Reach::Network) {
            true => listeners(wanted, port, &config.interfaces, &interfaces).map_err(|e| {
                let of = wanted.map_or(String::new(), |ip| format!(" of {ip}"));
                Error::system(format!("listening on TCP port {port}{of}"), e)
            })?,
            // a named endpoint is called by its port though it is reached by shared memory
            false => (Vec::new(), config.named.map_or(0, |at| at.port())),
        };
        let (unix, name_taken) = listen_unix(id, config)?;
        let ips = match wanted {
            _ if port == 0 => Vec::new(),
            Some(ip) => Ip::new(ip, 0).into_iter().collect(),
            None => discover::ips(&interfaces),
        };
        let address = Address::new(&key, host, !unix.is_empty(), port, ips).map_err(|why| {
            Error::Address(match config.rails.reaches(Reach::Network) {
                true => format!("this machine has no network address ({why})"),
                false => "POLYRAIL_RAILS leaves tcp out, and shared memory is not to be used here".into(),
            })
        })?;
        let epoll = Epoll::new().map_err(|e| Error::system("epoll", e))?;
        let probe = Box::new(u64::from_le_bytes(random()?));
        // SAFETY: plain calls without arguments.
        let (pid, uid) = unsafe { (libc::getpid() as u32, libc::geteuid()) };
        let limits = Limits::new(MAX_PAYLOAD as u32, config.window as u32)
            .ok_or_else(|| Error::Address("limits".to_owned()))?;
        let mut offer = Offer::new(Process { pid, uid, host }, limits);
        if config.rendezvous != Rendezvous::Fragments {
            offer.probe = Some(MemoryProbe { address: &raw const *probe as u64, nonce: *probe });
        }
        offer.shm = config.rails.reaches(Reach::Host).then_some(SHM_LAYOUT);
        let timer = Timer::new().map_err(|e| Error::system("opening a timer", e))?;
        let offered = interfaces.iter().filter(|one| one.obstacle.is_none() || one.dormant);
        for interface in offered.filter_map(Interface::offer) {
            // the best come first: what there is no room for is left out
            let _ = offer.push_interface(interface);
        }
        let wireup = Self {
            key: keys.own(key),
            keys,
            id,
            host,
            epoll,
            events: Vec::with_capacity(32),
            tcp,
            turn: 0,
            unix,
            name_taken,
            handshakes: HashMap::new(),
            next: 0,
            peers: HashMap::new(),
            attempts: HashMap::new(),
            probe,
            offer,
            encrypt: config.encrypt,
            closing: false,
            failed_at: HashMap::new(),
            callers_gone: VecDeque::new(),
            strangers: Strangers::default(),
            top: Top::open(id),
            looked: Instant::now(),
            next_look: Instant::now(),
            walked: Instant::now(),
            dozed: false,
            timer,
            deaf_until: None,
        };
        wireup.watch(wireup.timer.fd(), TOKEN_TIMER)?;
        for (fd, token) in wireup.listeners() {
            wireup.watch(fd, token)?;
        }
        let address = wireup.keys.seal(address);
        Ok((wireup, address))
    }

    pub fn watch(&self, fd: RawFd, token: u64) -> Result<(), Error> {
        self.epoll.add(fd, Interest::Read as libc::c_int, token).map_err(|e| Error::system("epoll", e))
    }

    /// Hears other things of a descriptor than before.
    pub fn hears(&self, fd: RawFd, token: u64, interest: Interest) {
        // one that is watched stays so: this cannot fail
        let _ = self.epoll.change(fd, interest as libc::c_int, token);
    }

    pub fn wait_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Whether to look in this round of progress; an idle one has time for the clock.
    #[inline]
    pub fn due(&self, round: u64, idle: bool) -> bool {
        if self.dozed || round.is_multiple_of(ROUNDS) {
            return true;
        }
        (idle || round.is_multiple_of(CLOCK_ROUNDS)) && self.waits() && self.next_look <= Instant::now()
    }

    /// All was looked at, and something came of it or not.
    pub fn seen(&mut self, now: Instant, happened: bool) {
        self.next_look = if happened { now } else { now + LOOK };
    }

    /// Whether it is time to look which deadlines have passed: that is a walk through all that is under way.
    pub fn is_late(&mut self, now: Instant, woken: bool) -> bool {
        let late = woken || self.walked + LATE <= now;
        if late {
            self.walked = now;
        }
        late
    }

    /// Whether there is something to look at by the clock.
    pub fn busy(&self) -> bool {
        self.dozed || self.waits()
    }

    /// Whether something is under way that has a deadline.
    fn waits(&self) -> bool {
        !self.handshakes.is_empty()
            || !self.attempts.is_empty()
            || self.deaf_until.is_some()
            || self.top.deadline().is_some()
    }

    fn deadline(&self) -> Option<Instant> {
        let handshakes = self.handshakes.values().map(|h| h.deadline);
        let attempts = self.attempts.values().filter_map(|a| a.resume);
        handshakes.chain(attempts).chain(self.deaf_until).chain(self.top.deadline()).min()
    }

    /// The worker's owner will sleep: the descriptor wakes it in time for the next deadline, here or of the rails.
    pub fn doze(&mut self, rails: Option<Instant>) {
        self.dozed = true;
        if let Some(at) = self.deadline().into_iter().chain(rails).min() {
            self.timer.wake_at(at);
        }
    }

    pub fn rang(&mut self) {
        self.timer.rang();
    }

    /// Time in which nobody looked, nor slept to be woken, is no peer's fault: all deadlines move with it.
    pub fn catch_up(&mut self, now: Instant) {
        let unseen = now - std::mem::replace(&mut self.looked, now);
        if std::mem::take(&mut self.dozed) || unseen < PAUSE {
            return;
        }
        self.handshakes.values_mut().for_each(|h| h.deadline += unseen);
        for attempt in self.attempts.values_mut() {
            attempt.deadline += unseen;
            attempt.stale_deadline += unseen;
            attempt.resume = attempt.resume.map(|at| at + unseen);
        }
    }

    /// No descriptor is left for what wants to connect: it waits in the listeners' queues.
    pub fn be_deaf(&mut self) {
        self.begin();
        self.deaf_until = Some(Instant::now() + AGAIN);
        for fd in self.listeners() {
            self.hears(fd.0, fd.1, Interest::None);
        }
    }

    /// Listens again, if it is time.
    pub fn hear(&mut self, now: Instant) {
        if self.deaf_until.is_some_and(|until| until <= now) {
            self.deaf_until = None;
            for fd in self.listeners() {
                self.hears(fd.0, fd.1, Interest::Read);
            }
        }
    }

    /// The next connection from another host; none that waits is `EAGAIN`.
    pub fn accept_tcp(&mut self) -> Option<io::Result<Stream>> {
        let none_yet = |tried: &io::Result<Stream>| {
            tried.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        };
        // each in its turn, so that a crowd at one interface does not keep the others waiting
        for _ in 0..self.tcp.len() {
            self.turn = (self.turn + 1) % self.tcp.len();
            let tried = self.tcp[self.turn].accept().map(|(stream, _)| Stream::Tcp(stream));
            if !none_yet(&tried) {
                return Some(tried);
            }
        }
        None
    }

    /// The next connection from this host; none that waits is `EAGAIN`.
    pub fn accept_unix(&mut self) -> Option<io::Result<Stream>> {
        let mut none = None;
        for (listener, rail) in &self.unix {
            match fdpass::accept(listener.as_fd()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => none = Some(Err(error)),
                tried => return Some(tried.map(|fd| Stream::Unix(fd, *rail))),
            }
        }
        none
    }

    fn listeners(&self) -> impl Iterator<Item = (RawFd, u64)> {
        let tcp = self.tcp.iter().map(|l| (l.as_raw_fd(), TOKEN_TCP));
        let unix = self.unix.iter().map(|(l, _)| (l.as_raw_fd(), TOKEN_UNIX));
        tcp.chain(unix).chain(self.top.fd().map(|fd| (fd, TOKEN_TOP)))
    }

    /// What waits from now on was not waited for before.
    pub fn begin(&mut self) {
        if !self.waits() {
            self.looked = Instant::now();
        }
    }

    pub fn add(
        &mut self,
        stream: Stream,
        half: Half,
        pair: Option<KeyPair>,
        deadline: Instant,
    ) -> io::Result<u64> {
        self.begin();
        let token = self.next;
        self.next += 1;
        let handshake = Handshake { pair, ..Handshake::new(stream, half, deadline) };
        let interest = if handshake.writing { Interest::Write } else { Interest::Read };
        self.epoll.add(handshake.stream.fd().as_raw_fd(), interest as libc::c_int, token)?;
        self.handshakes.insert(token, handshake);
        Ok(token)
    }

    /// Makes room for one more stranger, which has a descriptor already.
    pub fn make_room(&mut self, newcomer: &Stream) {
        let phases = [ResponderPhase::AwaitHello, ResponderPhase::AwaitProof];
        let count =
            |all: &Self, phase| all.handshakes.values().filter(|h| h.stranger() == Some(phase)).count();
        let counts = phases.map(|phase| count(self, phase));
        let room = Room::beside(newcomer, counts.iter().sum());
        for (phase, count) in phases.into_iter().zip(counts) {
            for _ in room.of(phase)..count + 1 {
                self.dismiss(phase);
            }
        }
    }

    /// No descriptor is left: a stranger gives way, best one that has said nothing yet. False when there is none.
    pub fn dismiss_any(&mut self) -> bool {
        self.dismiss(ResponderPhase::AwaitHello) || self.dismiss(ResponderPhase::AwaitProof)
    }

    /// Drops a stranger in this phase; false when there is none.
    fn dismiss(&mut self, phase: ResponderPhase) -> bool {
        let strangers = self.handshakes.iter().filter(|(_, h)| h.stranger() == Some(phase));
        let chosen = gives_way(strangers.map(|(token, h)| (*token, h.source)));
        let gone = chosen.and_then(|token| self.handshakes.remove(&token)).is_some();
        if gone {
            self.refused("it took its time, and others waited for its place".into());
        }
        gone
    }

    pub fn refused(&mut self, why: String) {
        self.strangers.refused += 1;
        self.strangers.last = Some(why);
    }

    /// Connects to the next place where a peer may be, or waits before trying again where it seemed to be. `Err`: all have
    /// been tried, and why they failed.
    pub fn dial(&mut self, peer: PeerIdx, address: &Address) -> Result<(), Vec<String>> {
        loop {
            let now = Instant::now();
            let Some(attempt) = self.attempts.get_mut(&peer) else { return Err(Vec::new()) };
            let deadline = now + attempt.share(now);
            attempt.resume = None;
            let Some(place) = attempt.places.pop() else {
                if attempt.again.is_empty() || attempt.deadline <= now {
                    return Err(self.attempts.remove(&peer).map(|a| a.failures).unwrap_or_default());
                }
                attempt.places = std::mem::take(&mut attempt.again);
                attempt.resume = Some(now + attempt.pause);
                attempt.pause = AGAIN_MOST.min(2 * attempt.pause);
                return Ok(());
            };
            let begun = self.open_to(place, peer, address, deadline);
            let Err(why) = begun else { return Ok(()) };
            if let Some(attempt) = self.attempts.get_mut(&peer) {
                attempt.failed(why.to_string());
            }
        }
    }

    fn open_to(
        &mut self,
        place: Place,
        peer: PeerIdx,
        address: &Address,
        deadline: Instant,
    ) -> Result<(), Error> {
        let failed = |error| Error::system(place.to_string(), error);
        let stream = match place {
            Place::Unix(rail) => connect_unix(address.id(), rail).map(|fd| Stream::Unix(fd, rail)),
            Place::Tcp(at) => connect_tcp(at).map(Stream::Tcp),
        };
        let stream = stream.map_err(failed)?;
        let args = Initiate {
            key: self.keys.of(address).map_err(Error::Address)?,
            from: self.id,
            versions: Versions::OURS,
            features: self.features(stream.rail()),
            kind: Kind::Session,
            nonce: Nonce(random()?),
        };
        let (pair, offer) = self.offer(args.features)?;
        let half = Half::Ours(Box::new(Initiator::new(args, offer)), peer, place);
        self.add(stream, half, pair, deadline).map_err(failed)?;
        Ok(())
    }

    /// What this side can do, and wants, on a connection that is to be a link of this rail.
    pub fn features(&self, rail: RailId) -> Features {
        match (rail.caps().seals, self.encrypt) {
            (true, true) => Features::CAN_SEAL.with(Features::WANTS_SEAL),
            (true, false) => Features::CAN_SEAL,
            (false, _) => Features::default(),
        }
    }

    /// This side's offer, with a fresh key in it for a connection that may be encrypted.
    pub fn offer(&self, features: Features) -> Result<(Option<KeyPair>, Offer), Error> {
        let pair = features.has(Features::CAN_SEAL).then(KeyPair::new).transpose()?;
        let mut offer = self.offer.clone();
        offer.seal = pair.as_ref().map(KeyPair::public);
        Ok((pair, offer))
    }

    /// Drops the connection that this side has begun to a peer, if any, and all plans for others.
    pub fn give_up(&mut self, peer: PeerIdx) {
        self.attempts.remove(&peer);
        self.handshakes.retain(|_, h| h.ours() != Some(peer));
    }

    pub fn recently_failed(&self, peer: PeerIdx) -> bool {
        self.failed_at.get(&peer).is_some_and(|at| at.elapsed() < RECENT)
    }

    /// A peer has failed now. Those that did long ago are forgotten.
    pub fn failed(&mut self, peer: PeerIdx) {
        let now = Instant::now();
        if self.failed_at.len() == self.failed_at.capacity() {
            self.failed_at.retain(|_, at| now.duration_since(*at) < RECENT);
        }
        self.failed_at.insert(peer, now);
    }
}
