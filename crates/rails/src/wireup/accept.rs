//! Who calls: connections that listeners take, which of them are let in, and how few descriptors strangers get.

use super::crowd::Room;
use super::handshake::{Handshake, Role};
use super::{Interest, Token, Wireup, random};
use crate::keys::KeyPair;
use crate::list::RailId;
use crate::rail::Lanes;
use crate::rail::channel::{Channel, gives_way};
use crate::rail::connect::{Connector, Prepared};
use crate::set::Rails;
use polyrail_core::proto::PeerIdx;
use polyrail_core::wire::{Nonce, Offer, Reject, Versions};
use polyrail_core::wireup::{Incoming, Peer, Respond, Responder, ResponderPhase, Session};
use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// How long a stranger may take to say whom it wants, and how long what this side has to say may take to leave.
const STRANGER_TIME: Duration = Duration::from_secs(5);
/// How long to wait before accepting where no descriptor is left.
const AGAIN: Duration = Duration::from_millis(100);
/// Connections that a listener gives in one look.
const AT_ONCE: usize = 16;

/// Connections that came to nothing, because the other side did not prove the key or speaks another version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strangers {
    /// How many.
    pub refused: u64,
    /// Why the last one was refused.
    pub last: Option<String>,
}

/// Whether a connection can become a link of the rail whose listener took it, or by which it was opened: both sides mean that
/// rail's transport, and have it in forms that go together.
pub(super) fn agree(connector: &dyn Connector, rail: RailId, session: &Session) -> Result<(), String> {
    let meant = session.transport;
    if rail.transport() != Some(meant) {
        return Err(format!("it connected for {meant}, where {} answers", rail.name()));
    }
    let theirs = session.offer.reached_by(meant).ok_or_else(|| format!("it does not offer {meant}"))?;
    connector.agrees(theirs)
}

impl Wireup {
    /// Those that came to nothing.
    pub fn strangers(&self) -> &Strangers {
        &self.strangers
    }

    pub(super) fn refused(&mut self, why: String) {
        self.strangers.refused += 1;
        self.strangers.last = Some(why);
    }

    /// Takes connections from a rail's listeners; how many.
    pub(super) fn accept(&mut self, rail: RailId, rails: &mut Rails) -> usize {
        let mut accepted = 0;
        while accepted < AT_ONCE {
            let taken = rails.connector(rail).accept();
            accepted += 1;
            match taken.map_err(|e| (e.kind(), e.raw_os_error())) {
                Ok(channel) => self.greet(rail, channel),
                Err((io::ErrorKind::WouldBlock, _)) => return accepted - 1,
                Err((_, Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))) => {
                    if !self.dismiss_any() {
                        self.pause_accept();
                        return accepted - 1;
                    }
                }
                // this connection is no good; the next one may be
                Err(_) => {}
            }
        }
        accepted
    }

    fn greet(&mut self, rail: RailId, channel: Box<dyn Channel>) {
        self.make_room(&*channel);
        let Ok(nonce) = random().map(Nonce) else { return };
        let args = Respond { key: self.key, versions: Versions::OURS, features: self.features(rail), nonce };
        let role = Role::Accepting(Box::new(Responder::new(args)), None);
        let deadline = Instant::now() + STRANGER_TIME;
        if let Ok(token) = self.add(rail, channel, role, deadline) {
            self.turns.push_back(token);
        }
    }

    pub(super) fn add(
        &mut self,
        rail: RailId,
        channel: Box<dyn Channel>,
        role: Role,
        deadline: Instant,
    ) -> io::Result<Token> {
        self.begin();
        let token = Token(self.next);
        self.next += 1;
        let handshake = Handshake::new(rail, channel, role, deadline);
        let interest = if handshake.writing { Interest::Write } else { Interest::Read };
        self.watch_for(handshake.channel.fd().as_raw_fd(), token.0, interest)?;
        self.handshakes.insert(token, handshake);
        Ok(token)
    }

    /// No descriptor is left for what wants to connect: it waits in the listeners' queues.
    pub fn pause_accept(&mut self) {
        self.begin();
        self.clock.paused_until = Some(Instant::now() + AGAIN);
        self.hear_listeners(Interest::None);
    }

    /// Listens again, if it is time.
    pub(super) fn resume_accept(&mut self, now: Instant) {
        if self.clock.paused_until.is_some_and(|until| until <= now) {
            self.clock.paused_until = None;
            self.hear_listeners(Interest::Read);
        }
    }

    fn hear_listeners(&self, interest: Interest) {
        for (fd, token) in &self.listeners {
            self.hear(*fd, *token, interest);
        }
    }

    /// Hears other things of a descriptor than before.
    pub(super) fn hear(&self, fd: i32, token: u64, interest: Interest) {
        // one that is watched stays so: this cannot fail
        let _ = self.epoll.change(fd, interest as libc::c_int, token);
    }

    /// Makes room for one more stranger, which has a descriptor already.
    fn make_room(&mut self, newcomer: &dyn Channel) {
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
    fn dismiss_any(&mut self) -> bool {
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

    /// A peer has proved the key on a connection of its own, to begin a session: it is let in, or told why not.
    pub fn decide(
        &mut self,
        token: Token,
        peer: PeerIdx,
        session: Session,
        rails: &mut Rails,
    ) -> Result<(), Reject> {
        let Some(rail) = self.handshakes.get(&token).map(|handshake| handshake.rail) else { return Ok(()) };
        let fits = agree(rails.connector(rail), rail, &session);
        // what a link takes is made first: then nothing has to be taken back when it cannot be had
        let made = rails.connector(rail).prepare().ok().zip(self.offer_for(session.features).ok());
        let (ours, theirs) = (self.id, session.peer);
        let state = self.peers.entry(peer).or_insert_with(|| Peer::new(ours, theirs));
        let verdict = match (self.closing, fits, &made) {
            (true, ..) => Incoming::Reject(Reject::Closing),
            // the other side falls back to another transport
            (_, Err(_), _) => Incoming::Reject(Reject::NoTransport),
            (_, _, None) => Incoming::Reject(Reject::NoResources),
            _ => state.incoming(),
        };
        let (Incoming::Accept, Some((prepared, said))) = (verdict, made) else {
            let Incoming::Reject(reason) = verdict else { return Ok(()) };
            self.refuse(token, reason);
            return Err(reason);
        };
        self.give_up(peer);
        if let Some(handshake) = self.handshakes.get_mut(&token) {
            let Prepared { descriptors, kept } = prepared;
            (handshake.kept, handshake.outgoing) = (kept, descriptors);
        }
        self.let_in(token, peer, session, said);
        Ok(())
    }

    /// A peer has proved the key on a connection that is to be one more lane of a session that there is: it is let in, or told
    /// why not.
    pub fn decide_lane(&mut self, token: Token, peer: PeerIdx, session: Session, rails: &mut Rails) {
        let Some(rail) = self.handshakes.get(&token).map(|handshake| handshake.rail) else { return };
        let fits =
            agree(rails.connector(rail), rail, &session).is_ok() && rail.caps().lanes == Lanes::ByStream;
        match (fits, self.offer_for(session.features)) {
            (true, Ok(said)) => self.let_in(token, peer, session, said),
            (false, _) => self.refuse(token, Reject::NoTransport),
            (true, Err(_)) => self.refuse(token, Reject::NoResources),
        }
    }

    /// Accepts a peer that has proved the key.
    fn let_in(
        &mut self,
        token: Token,
        peer: PeerIdx,
        session: Session,
        (pair, offer): (Option<KeyPair>, Offer),
    ) {
        let Some(handshake) = self.handshakes.get_mut(&token) else { return };
        let Role::Accepting(responder, decided) = &mut handshake.role else { return };
        *decided = Some((peer, session));
        handshake.pair = pair;
        let accepted = responder.accept(&offer);
        debug_assert!(accepted.is_ok(), "{accepted:?}");
        handshake.deadline = Instant::now() + STRANGER_TIME;
        self.turns.push_back(token);
    }

    /// Refuses a peer that has proved the key.
    pub fn refuse(&mut self, token: Token, reason: Reject) {
        let Some(mut handshake) = self.handshakes.remove(&token) else { return };
        let Role::Accepting(responder, _) = &mut handshake.role else { return };
        let refused = responder.reject(reason);
        debug_assert!(refused.is_ok(), "{refused:?}");
        handshake.flush();
    }
}
