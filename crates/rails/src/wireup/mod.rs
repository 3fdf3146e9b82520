//! Connections until they are links: where this endpoint listens, handshakes, strangers, and attempts to reach peers.
//!
//! It knows no transport: a rail's [`Connector`](crate::rail::connect::Connector) listens and dials, and what comes of that is a
//! [`Channel`](crate::rail::channel::Channel). Whose rail the connection is of is said in the handshake. All decisions are
//! [`polyrail_core::wireup`]'s. It knows no worker either: who uses it takes [`News`] from it, one after the other, and answers
//! by calls.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | opening an endpoint, and a look at all that is under way |
//! | `accept.rs` | who calls: letting in, refusing |
//! | `reach.rs` | whom this side calls: places one after the other, until one answers |
//! | `shake.rs` | a handshake's turn, and what comes of it |
//! | `handshake.rs` | one handshake: bytes between a channel and core's machines |
//! | `crowd.rs` | how many strangers are kept, and which of them gives way |
//! | `clock.rs` | deadlines, and who sleeps is woken by them |
//! | `secret.rs` | what connections have to prove |
//! | `news.rs` | what is told of all this |

mod accept;
mod clock;
mod crowd;
mod handshake;
mod news;
mod reach;
mod secret;
mod shake;

pub use accept::Strangers;
pub(crate) use news::{Agreement, Met, News, Token};

use crate::config::Config;
use crate::discover::{self, Interface};
use crate::error::Error;
use crate::host::host_id;
use crate::keys::KeyPair;
use crate::list::{RailId, Reach};
use crate::rail::connect::Opening;
use crate::set::Rails;
use crate::sys::Epoll;
use clock::Clock;
use handshake::Handshake;
use polyrail_core::frame::MAX_PAYLOAD;
use polyrail_core::proto::PeerIdx;
use polyrail_core::wire::offer::{Limits, Process};
use polyrail_core::wire::{Address, Features, HostId, Ip, Key, Offer, PeerId};
use polyrail_core::wireup::{Peer, PeerEvent, PeerState};
use reach::Attempt;
use secret::Keyring;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Instant;

/// Descriptors that others watch along have the highest tokens, then come the listeners, by rail; handshakes count from 0.
const TOKEN_TIMER: u64 = u64::MAX >> 1;
const TOKEN_LISTENERS: u64 = TOKEN_TIMER - RailId::ALL.len() as u64;
/// The first token for what is watched along.
pub(crate) const TOKEN_OTHERS: u64 = TOKEN_TIMER + 1;

/// What is to be heard of a descriptor.
#[derive(Clone, Copy)]
pub(crate) enum Interest {
    None = 0,
    Read = libc::EPOLLIN as isize,
    Write = (libc::EPOLLIN | libc::EPOLLOUT) as isize,
}

/// An endpoint's control channel.
pub(crate) struct Wireup {
    config: Config,
    /// What connections to this endpoint prove.
    key: Key,
    keys: Keyring,
    pub id: PeerId,
    pub host: HostId,
    pub offer: Offer,
    /// Nobody is let in, or called, any more.
    pub closing: bool,
    epoll: Epoll,
    /// What the last look took, and how much of it has been seen to.
    events: Vec<libc::epoll_event>,
    seen: usize,
    /// The look is over when what it took, and the clock, have been seen to; so much came of it.
    looking: bool,
    happened: usize,
    /// Handshakes that are to have a turn.
    turns: VecDeque<Token>,
    news: VecDeque<News>,
    /// What becomes readable when somebody calls.
    listeners: Vec<(RawFd, u64)>,
    /// Why peers of this host do not reach it by all rails that they have in common: a sentence each.
    hindered: Vec<String>,
    /// Why peers of other sites may not be reached.
    unled: Vec<String>,
    handshakes: HashMap<Token, Handshake>,
    next: u64,
    peers: HashMap<PeerIdx, Peer>,
    attempts: HashMap<PeerIdx, Attempt>,
    /// When peers failed last, so that those who cannot be reached are not tried again at once.
    failed_at: HashMap<PeerIdx, Instant>,
    /// When the first connection to a peer was cut off while it was made, since there was a session with it last.
    cut_at: HashMap<PeerIdx, Instant>,
    strangers: Strangers,
    clock: Clock,
}

fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| Error::system("random numbers", io::Error::other(e)))?;
    Ok(bytes)
}

/// The key of a new endpoint.
fn key_for(config: &Config) -> Result<Key, Error> {
    match (config.key, config.named) {
        (Some(key), _) => Ok(key),
        (None, Some(at)) => crate::named::named_key(at.port()),
        (None, None) => loop {
            if let Some(key) = Key::new(random()?) {
                break Ok(key);
            }
        },
    }
}

/// What is told to peers of this process and its interfaces, and of the rails.
fn offer_of(
    config: &Config,
    host: HostId,
    interfaces: &[Interface],
    rails: &mut Rails,
) -> Result<Offer, Error> {
    // SAFETY: plain calls without arguments.
    let (pid, uid) = unsafe { (libc::getpid() as u32, libc::geteuid()) };
    let limits = Limits::new(MAX_PAYLOAD as u32, config.window as u32)
        .ok_or_else(|| Error::Address("limits".to_owned()))?;
    let mut offer = Offer::new(Process { pid, uid, host }, limits);
    for rail in config.rails.iter() {
        let connector = rails.connector(rail);
        offer.probe = offer.probe.or(connector.probe(config));
        if let Some(transport) = rail.transport() {
            let said = offer.push_transport(transport, &connector.reached_by());
            debug_assert!(said, "{transport} says more of itself than an offer holds");
        }
    }
    let offered = interfaces.iter().filter(|one| one.obstacle.is_none() || one.dormant);
    for interface in offered.filter_map(Interface::offer) {
        // the best come first: what there is no room for is left out
        let _ = offer.push_interface(interface);
    }
    Ok(offer)
}

/// Where the rails of a new endpoint listen.
#[derive(Default)]
struct Heard {
    listeners: Vec<(RawFd, u64)>,
    hindered: Vec<String>,
    unled: Vec<String>,
    port: Option<u16>,
    local: bool,
}

impl Heard {
    fn open(
        config: &Config,
        (id, key): (PeerId, &Key),
        interfaces: &[Interface],
        rails: &mut Rails,
    ) -> Result<Self, Error> {
        let mut all = Self::default();
        // those of the network first: peers of this host may do without others where they have these
        for rail in [Reach::Network, Reach::Host].into_iter().flat_map(|reach| config.rails.reaching(reach)) {
            let opening = Opening { id, key, port: all.port, interfaces, settings: config };
            let one = rails.connector(rail).listen(&opening)?;
            let token = TOKEN_LISTENERS + rail as u64;
            all.listeners.extend(one.descriptors.into_iter().map(|fd| (fd, token)));
            all.hindered.extend(one.hindered);
            all.unled.extend(one.unled);
            all.port = all.port.or(one.port);
            all.local |= one.local;
        }
        Ok(all)
    }

    /// The endpoint's address.
    fn address(
        &self,
        key: &Key,
        host: HostId,
        config: &Config,
        interfaces: &[Interface],
    ) -> Result<Address, Error> {
        // a named endpoint is called by its port though no network leads to it
        let port = self.port.or(config.named.map(|at| at.port())).unwrap_or(0);
        let ips = match config.named.map(|at| at.ip()).filter(|ip| !ip.is_unspecified()) {
            _ if port == 0 => Vec::new(),
            Some(ip) => Ip::new(ip, 0).into_iter().collect(),
            None => discover::ips(interfaces),
        };
        Address::new(key, host, self.local, port, ips).map_err(|why| {
            Error::Address(match config.rails.reaches(Reach::Network) {
                true => format!("this machine has no network address ({why})"),
                false => "POLYRAIL_RAILS leaves out all rails by which this endpoint could be reached".into(),
            })
        })
    }
}

impl Wireup {
    /// Opens the listeners; also the endpoint's address.
    pub fn open(config: &Config, rails: &mut Rails) -> Result<(Self, Address), Error> {
        let key = key_for(config)?;
        let (id, host) = (key.id(), host_id()?);
        let keys = Keyring::open(config, host)?;
        let interfaces = discover::wanted(&config.interfaces)?;
        let proved = keys.own(key);
        let heard = Heard::open(config, (id, &proved), &interfaces, rails)?;
        let address = heard.address(&key, host, config, &interfaces)?;
        let wireup = Self {
            config: config.clone(),
            key: proved,
            keys,
            id,
            host,
            offer: offer_of(config, host, &interfaces, rails)?,
            closing: false,
            epoll: Epoll::new().map_err(|e| Error::system("epoll", e))?,
            events: Vec::with_capacity(32),
            seen: 0,
            looking: false,
            happened: 0,
            turns: VecDeque::new(),
            news: VecDeque::new(),
            listeners: heard.listeners,
            hindered: heard.hindered,
            unled: heard.unled,
            handshakes: HashMap::new(),
            next: 0,
            peers: HashMap::new(),
            attempts: HashMap::new(),
            failed_at: HashMap::new(),
            cut_at: HashMap::new(),
            strangers: Strangers::default(),
            clock: Clock::new().map_err(|e| Error::system("opening a timer", e))?,
        };
        wireup.watch(wireup.clock.fd(), TOKEN_TIMER)?;
        for (fd, token) in &wireup.listeners {
            wireup.watch(*fd, *token)?;
        }
        let address = wireup.keys.seal(address);
        Ok((wireup, address))
    }

    /// Becomes readable when there is something to look at.
    pub fn wait_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Watches a descriptor along with all this. [`News::Ready`] tells of tokens from [`TOKEN_OTHERS`] on.
    pub fn watch(&self, fd: RawFd, token: u64) -> Result<(), Error> {
        self.watch_for(fd, token, Interest::Read).map_err(|e| Error::system("epoll", e))
    }

    /// The same, for other things than to be readable.
    pub fn watch_for(&self, fd: RawFd, token: u64, interest: Interest) -> io::Result<()> {
        self.epoll.add(fd, interest as libc::c_int, token)
    }

    /// Watches a listener, which is silent while no descriptor is left.
    pub fn watch_listener(&mut self, fd: RawFd, token: u64) -> Result<(), Error> {
        self.listeners.push((fd, token));
        self.watch(fd, token)
    }

    /// Begins a look at all that is under way: [`Wireup::next_news`] goes on with it.
    pub fn look(&mut self) {
        self.epoll.take(&mut self.events);
        (self.seen, self.looking, self.happened) = (0, true, 0);
    }

    /// What has happened, one after the other; none when the look is over.
    pub fn next_news(&mut self, rails: &mut Rails) -> Option<News> {
        loop {
            if let Some(news) = self.news.pop_front() {
                return Some(news);
            }
            if let Some(token) = self.turns.pop_front() {
                self.happened += self.shake(token, rails);
            } else if let Some(event) = self.events.get(self.seen) {
                let token = event.u64;
                self.seen += 1;
                self.handle_event(token, rails);
            } else if std::mem::take(&mut self.looking) {
                self.look_at_clock(rails);
            } else {
                return None;
            }
        }
    }

    /// How much came of the last look.
    pub fn happened(&self) -> usize {
        self.happened
    }

    fn handle_event(&mut self, token: u64, rails: &mut Rails) {
        match token {
            TOKEN_TIMER => self.clock.rang(),
            TOKEN_OTHERS.. => self.news.push_back(News::Ready(token)),
            TOKEN_LISTENERS.. => {
                let rail = RailId::ALL[(token - TOKEN_LISTENERS) as usize];
                self.happened += self.accept(rail, rails);
            }
            token => self.happened += self.shake(Token(token), rails),
        }
    }

    /// What this side can do, and wants, on a connection that is to be a link of this rail.
    fn features(&self, rail: RailId) -> Features {
        match (rail.caps().seals, self.config.encrypt) {
            (true, true) => Features::CAN_SEAL.with(Features::WANTS_SEAL),
            (true, false) => Features::CAN_SEAL,
            (false, _) => Features::default(),
        }
    }

    /// This side's offer to who connected, with a fresh key in it where the two agreed to encrypt the connection.
    fn offer_for(&self, features: Features) -> Result<(Option<KeyPair>, Offer), Error> {
        let pair = features.has(Features::CAN_SEAL).then(KeyPair::new).transpose()?;
        let mut offer = self.offer.clone();
        offer.seal = pair.as_ref().map(KeyPair::public);
        Ok((pair, offer))
    }

    /// A session with a peer, or the attempt at one, has ended; in good order or not.
    pub fn ended(&mut self, peer: PeerIdx, orderly: bool) {
        if let Some(state) = self.peers.get_mut(&peer) {
            // it may have said goodbye before
            if state.state() != PeerState::Closed {
                state.must(if orderly { PeerEvent::Bye } else { PeerEvent::Lost });
            }
        }
    }

    /// Whether there is nothing between a peer and this side.
    pub fn is_over(&self, peer: PeerIdx) -> bool {
        let state = self.peers.get(&peer).map(Peer::state);
        matches!(state, None | Some(PeerState::Idle | PeerState::Closed | PeerState::Failed))
    }

    /// Forgets a peer that [is over](Self::is_over).
    pub fn forget(&mut self, peer: PeerIdx) {
        self.peers.remove(&peer);
        self.cut_at.remove(&peer);
    }
}
