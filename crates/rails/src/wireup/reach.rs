//! Whom this side calls: the places where a peer may be, one after the other, until one of them answers.

use super::handshake::Role;
use super::{News, Token, Wireup, random};
use crate::config::Config;
use crate::error::Error;
use crate::list::{RailId, Reach};
use crate::rail::channel::Destination;
use crate::rail::connect::Sought;
use crate::set::Rails;
use polyrail_core::proto::PeerIdx;
use polyrail_core::wire::{Address, Kind, Nonce, PeerId, Versions};
use polyrail_core::wireup::{Initiate, Initiator, Peer, PeerEvent, PeerState};
use std::time::{Duration, Instant};

/// How long to wait at first before a place is tried again that had no time or room; then twice as long each time, up to
/// `AGAIN_MOST`. A place has at least so long to be reached.
const AGAIN: Duration = Duration::from_millis(100);
const AGAIN_MOST: Duration = Duration::from_secs(2);
/// How long a peer that failed is not tried again.
const RECENT: Duration = Duration::from_secs(1);
/// How long the network may take to connect a further lane before another attempt is worth more.
const LANE_CONNECT: Duration = Duration::from_secs(1);

/// Where a peer is still to be tried.
pub(super) struct Attempt {
    address: Address,
    /// The next one last, each with the rail that leads there.
    places: Vec<(RailId, Destination)>,
    /// Where the peer seemed to be, but had no time or room.
    again: Vec<(RailId, Destination)>,
    /// Until when it must be reached.
    deadline: Instant,
    /// Until when it must be reached if it is there, but has not seen yet that an earlier session is dead.
    stale_deadline: Instant,
    /// When to go on if no handshake is under way.
    pub resume: Option<Instant>,
    /// How long to wait before the next round of places.
    pause: Duration,
    /// There are places to which another rail leads than those that stand in.
    usual: bool,
    /// Somebody answered, and closed: other ways there hardly lead further, and have no long time.
    answered: bool,
    failures: Vec<String>,
}

impl Attempt {
    /// An attempt that begins now, at these places.
    fn new(address: Address, places: Vec<(RailId, Destination)>, config: &Config) -> Self {
        let now = Instant::now();
        let deadline = now + config.connect_timeout;
        let usual = places.iter().any(|(rail, _)| !rail.caps().stands_in);
        Self {
            address,
            places,
            again: Vec::new(),
            deadline,
            // a dead link is seen after PEER_TIMEOUT, and by those who look at intervals a little later
            stale_deadline: deadline.max(now + 2 * config.peer_timeout),
            resume: None,
            pause: AGAIN,
            usual,
            answered: false,
            failures: Vec::new(),
        }
    }

    /// The peer is at this place, and believes that a session with us lives. Another way would lead to the same answer.
    pub fn exists(&mut self, rail: RailId, destination: Destination) {
        self.deadline = self.stale_deadline;
        self.again.append(&mut self.places);
        self.again.push((rail, destination));
    }

    /// This place is worth another try.
    pub fn once_more(&mut self, rail: RailId, destination: Destination) {
        self.again.push((rail, destination));
    }

    /// Time passed that nobody is to answer for.
    pub fn move_on(&mut self, unseen: Duration) {
        self.deadline += unseen;
        self.stale_deadline += unseen;
        self.resume = self.resume.map(|at| at + unseen);
    }

    fn failed(&mut self, why: String) {
        if !self.failures.contains(&why) {
            self.failures.push(why);
        }
    }

    /// How long the next place may take to be reached, so that all have their turn.
    fn share(&self, now: Instant) -> Duration {
        let left = self.deadline.saturating_duration_since(now) / (self.places.len() as u32 + 1);
        if self.answered { left.min(LANE_CONNECT).max(AGAIN) } else { left.max(AGAIN) }
    }

    /// Somebody answered at a place, and closed the connection.
    pub fn was_answered(&mut self) {
        self.answered = true;
    }
}

impl Wireup {
    /// Whether a peer is being called.
    pub fn seeks(&self, peer: PeerIdx) -> bool {
        self.attempts.contains_key(&peer)
    }

    /// Sees to it that there is, or will be, a connection.
    ///
    /// # Errors
    /// There cannot be one: why, unless that was said a moment ago (`told`: it was said of the last attempt).
    pub fn connect(
        &mut self,
        peer: PeerIdx,
        theirs: PeerId,
        address: &Address,
        told: bool,
        rails: &mut Rails,
    ) -> Result<(), Option<String>> {
        let ours = self.id;
        let state = self.peers.entry(peer).or_insert_with(|| Peer::new(ours, theirs));
        let failed_before = state.state() == PeerState::Failed;
        if !state.connect() {
            return Ok(());
        }
        if failed_before && told && self.recently_failed(peer) {
            self.peers.get_mut(&peer).into_iter().for_each(|p| p.must(PeerEvent::Refused));
            return Err(None);
        }
        if let Err(why) = self.keys.of(address) {
            return Err(Some(self.unreachable(peer, &[why])));
        }
        let places = self.destinations(address, rails);
        self.begin();
        self.attempts.insert(peer, Attempt::new(*address, places, &self.config));
        self.dial(peer, rails).map_err(|failures| Some(self.unreachable(peer, &failures)))
    }

    /// Where a peer may be, the best last: what leads within this host goes before networks.
    fn destinations(&self, address: &Address, rails: &mut Rails) -> Vec<(RailId, Destination)> {
        let peer = Sought { address, here: self.host, settings: &self.config };
        let mut all = Vec::new();
        for rail in [Reach::Host, Reach::Network].into_iter().flat_map(|to| self.config.rails.reaching(to)) {
            all.extend(
                rails.connector(rail).destinations(&peer).into_iter().map(|destination| (rail, destination)),
            );
        }
        // another site is reached by its gateway alone, unless that rail itself knows of more
        let relayed = |one: &Destination| matches!(one, Destination::Relayed { .. });
        if let Some(by) = all.iter().find(|(_, one)| relayed(one)).map(|(by, _)| *by)
            && all.iter().all(|(rail, one)| *rail != by || relayed(one))
        {
            all.retain(|(_, one)| relayed(one));
        }
        all.reverse();
        all
    }

    /// Connects to the next place where a peer may be, or waits before trying again where it seemed to be. `Err`: all have
    /// been tried, and why they failed.
    fn dial(&mut self, peer: PeerIdx, rails: &mut Rails) -> Result<(), Vec<String>> {
        loop {
            let now = Instant::now();
            let Some(attempt) = self.attempts.get_mut(&peer) else { return Err(Vec::new()) };
            let deadline = now + attempt.share(now);
            let address = attempt.address;
            let usual = attempt.usual;
            attempt.resume = None;
            let Some((rail, destination)) = attempt.places.pop() else {
                if attempt.again.is_empty() || attempt.deadline <= now {
                    return Err(self.attempts.remove(&peer).map(|a| a.failures).unwrap_or_default());
                }
                attempt.places = std::mem::take(&mut attempt.again);
                attempt.resume = Some(now + attempt.pause);
                attempt.pause = AGAIN_MOST.min(2 * attempt.pause);
                return Ok(());
            };
            // the program may compute for long, but then it would have been reached by the usual rail
            let mute = rail.caps().stands_in && usual;
            let role = |initiator, destination| Role::First(initiator, peer, destination);
            let begun = self.open_to(rail, destination, &address, Kind::Session, deadline, role, rails);
            let why = match begun {
                Ok(token) => {
                    let handshake = self.handshakes.get_mut(&token);
                    handshake.into_iter().for_each(|handshake| handshake.mute = mute);
                    return Ok(());
                }
                Err(why) => why,
            };
            if let Some(attempt) = self.attempts.get_mut(&peer) {
                attempt.failed(why.to_string());
            }
        }
    }

    /// Begins a connection to a place, and a handshake on it.
    #[expect(clippy::too_many_arguments, reason = "what a connection is for, where it goes, and until when")]
    fn open_to(
        &mut self,
        rail: RailId,
        destination: Destination,
        address: &Address,
        kind: Kind,
        deadline: Instant,
        role: impl FnOnce(Box<Initiator>, Destination) -> Role,
        rails: &mut Rails,
    ) -> Result<Token, Error> {
        let called = destination.to_string();
        let failed = |error| Error::system(called.clone(), error);
        let transport = rail.transport().ok_or_else(|| Error::Address("no rail leads there".into()))?;
        let key = self.keys.of(address).map_err(Error::Address)?;
        let channel = rails.connector(rail).dial(&destination, &key).map_err(failed)?;
        let args = Initiate {
            key,
            from: self.id,
            versions: Versions::OURS,
            features: self.features(rail),
            kind,
            transport,
            nonce: Nonce(random()?),
        };
        let initiator = Box::new(Initiator::new(args, self.offer.clone()));
        self.add(rail, channel, role(initiator, destination), deadline).map_err(failed)
    }

    /// Begins a connection that is to be one more lane of a session.
    ///
    /// # Errors
    /// Why it cannot be begun.
    pub fn open_lane(
        &mut self,
        (peer, path): (PeerIdx, usize),
        (rail, destination): (RailId, Destination),
        address: &Address,
        kind: Kind,
        rails: &mut Rails,
    ) -> Result<(), String> {
        let role = |initiator, _| Role::Lane(initiator, peer, path);
        let deadline = Instant::now() + LANE_CONNECT;
        let begun = self.open_to(rail, destination, address, kind, deadline, role, rails);
        begun.map(|_| ()).map_err(|error| match error {
            // where it was to go is said by who tells of it
            Error::System { error, .. } => error.to_string(),
            Error::Address(why) => why,
            other => other.to_string(),
        })
    }

    /// Whether a peer whose connection was cut off while it was made is still worth a call: for as long as one that does not answer is.
    pub fn is_worth_a_call(&mut self, peer: PeerIdx) -> bool {
        self.cut_at.entry(peer).or_insert_with(Instant::now).elapsed() < self.config.connect_timeout
    }

    /// A link to a peer stands. What was tried before it, and why that failed; `here`: the peer is of this host.
    pub fn established(&mut self, peer: PeerIdx, here: bool) -> Vec<String> {
        if let Some(state) = self.peers.get_mut(&peer) {
            state.must(PeerEvent::Established);
        }
        self.cut_at.remove(&peer);
        let mut failures = self.attempts.remove(&peer).map(|attempt| attempt.failures).unwrap_or_default();
        if here {
            failures.extend(self.hindered.iter().cloned());
        }
        failures
    }

    /// One way to a peer has failed: the next.
    pub fn try_next(&mut self, peer: PeerIdx, why: String, rails: &mut Rails) {
        let state = self.peers.get_mut(&peer);
        let Some(attempt) = self.attempts.get_mut(&peer) else {
            state.into_iter().for_each(|state| state.must(PeerEvent::Lost));
            return self.news.push_back(News::Lost(peer, why));
        };
        attempt.failed(why);
        // back to the state in which a connection is being opened
        if let Some(state) = state
            && state.state() != PeerState::Connecting
        {
            state.must(PeerEvent::Lost);
            state.connect();
        }
        self.go_on(peer, rails);
    }

    fn go_on(&mut self, peer: PeerIdx, rails: &mut Rails) {
        if let Err(failures) = self.dial(peer, rails) {
            let why = self.unreachable(peer, &failures);
            self.news.push_back(News::Lost(peer, why));
        }
    }

    /// All ways to a peer have failed; in a sentence.
    fn unreachable(&mut self, peer: PeerIdx, failures: &[String]) -> String {
        if let Some(state) = self.peers.get_mut(&peer) {
            state.must(PeerEvent::Refused);
        }
        let why = match failures {
            [] => {
                "there is no way to it: no rail that both have is switched on, or its addresses lead nowhere from this host"
                    .to_owned()
            },
            some => some.join("; "),
        };
        let unled: String = self.unled.iter().map(|why| format!("; {why}")).collect();
        format!("cannot connect: {why}{unled}")
    }

    pub(super) fn resume_attempts(&mut self, now: Instant, rails: &mut Rails) {
        let due = |attempt: &Attempt| attempt.resume.is_some_and(|at| at <= now);
        let due: Vec<_> = self.attempts.iter().filter(|(_, a)| due(a)).map(|(peer, _)| *peer).collect();
        for peer in due {
            let Some(state) = self.peers.get_mut(&peer) else { continue };
            if state.state() != PeerState::Awaiting {
                self.go_on(peer, rails);
                continue;
            }
            state.must(PeerEvent::Deadline);
            self.give_up(peer);
            let why = "cannot connect: it connected at the same time, and then did not".into();
            self.news.push_back(News::Lost(peer, why));
        }
    }

    /// Drops the connection that this side has begun to a peer, if any, and all plans for others.
    pub(super) fn give_up(&mut self, peer: PeerIdx) {
        self.attempts.remove(&peer);
        self.handshakes.retain(|_, h| h.first() != Some(peer));
    }

    fn recently_failed(&self, peer: PeerIdx) -> bool {
        self.failed_at.get(&peer).is_some_and(|at| at.elapsed() < RECENT)
    }

    /// A peer has failed now. Those that did long ago are forgotten.
    pub fn has_failed(&mut self, peer: PeerIdx) {
        let now = Instant::now();
        if self.failed_at.len() == self.failed_at.capacity() {
            self.failed_at.retain(|_, at| now.duration_since(*at) < RECENT);
        }
        self.failed_at.insert(peer, now);
        self.cut_at.remove(&peer);
    }
}
