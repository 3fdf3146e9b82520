//! The control channel on real sockets: the listener, handshakes, and the links that come of them.
//!
//! A peer on the same host is tried by its Unix socket first: it carries the descriptors of the shared memory, and its end
//! tells that the peer has died. Otherwise each IP of the peer's address is tried by TCP, and the connection itself becomes
//! the link. All decisions are [`polyrail_core::wireup`]'s.

use super::handshake::{Half, Handshake, Place, Stream, Turn, UNSEALED};
use super::inbound::LinkInfo;
use super::wireup::{
    Attempt, Interest, TOKEN_RAIL, TOKEN_TCP, TOKEN_TIMER, TOKEN_TOP, TOKEN_UNIX, TOKEN_WATCHER, random,
};
use super::{Refused, Worker, sockets};
use crate::config::Rendezvous;
use crate::rail::Reach;
use crate::rail::connect::{Agreed, Joined, Prepared};
use crate::rail::set::{RailId, RailLink};
use crate::shm::cma;
use polyrail_core::cost::{self, Limits};
use polyrail_core::proto::{CREDIT_UNIT, PeerIdx, Route, Scheme};
use polyrail_core::wire::{Kind, Nonce, Reject, Versions};
use polyrail_core::wireup::{Incoming, Peer, PeerEvent, PeerState, Respond, Responder, Session};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// How long a stranger may take to say whom it wants, and how long what this side has to say may take to leave.
pub(super) const STRANGER_TIME: Duration = Duration::from_secs(5);
impl Worker {
    /// This process is its own first peer.
    pub(super) fn connect_self(&mut self) {
        let me = self.peer_of(self.wireup.id);
        self.core.peers[me.0 as usize].address = Some(self.address);
        let scheme = match (self.config.rendezvous, self.probe_self()) {
            (Rendezvous::Auto, true) => Scheme::Get,
            (Rendezvous::Put, true) => Scheme::Put,
            _ => Scheme::Fragments,
        };
        let window = (self.config.window as u64 / CREDIT_UNIT) as u32;
        let route = Route {
            eager_max: self.config.shm_eager,
            fragment: crate::shm::connect::FRAGMENT,
            scheme,
            window,
            immediate: true,
        };
        self.enter(me, (RailId::Loopback, crate::loopback::Loopback::LINK));
        self.connected(me, route);
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
        if let Err(why) = self.wireup.keys.of(&address) {
            self.unreachable(peer, &[why]);
            return Err(Refused::Gone);
        }
        let mut places = Vec::new();
        if self.config.rails.reaches(Reach::Network) {
            let all = sockets::places(&address, self.wireup.host, &self.config);
            places.extend(all.into_iter().rev().map(Place::Tcp));
        }
        if address.is_local() && address.host() == self.wireup.host {
            // the last is tried first
            places.extend(self.config.rails.reaching(Reach::Host).rev().map(Place::Unix));
        }
        self.wireup.begin();
        self.wireup.attempts.insert(peer, Attempt::new(places, &self.config));
        if let Err(failures) = self.wireup.dial(peer, &address) {
            self.unreachable(peer, &failures);
            return Err(Refused::Gone);
        }
        Ok(())
    }

    /// A round of the control channel; returns how much happened.
    pub(super) fn wire_up(&mut self) -> usize {
        let mut events = std::mem::take(&mut self.wireup.events);
        self.wireup.epoll.take(&mut events);
        self.core.counts.looks += 1;
        let mut happened = 0;
        for event in &events {
            match event.u64 {
                TOKEN_RAIL => {}
                TOKEN_TIMER => self.wireup.rang(),
                TOKEN_TOP => self.tell_watchers(),
                TOKEN_WATCHER => self.wireup.top.push(),
                TOKEN_TCP | TOKEN_UNIX => happened += self.accept(event.u64 == TOKEN_UNIX),
                token => happened += self.shake(token),
            }
        }
        self.wireup.events = events;
        if self.wireup.busy() {
            let (now, woken) = (Instant::now(), self.wireup.dozed);
            self.wireup.catch_up(now);
            self.wireup.seen(now, happened > 0);
            if self.wireup.is_late(now, woken) {
                self.check_deadlines(now);
            }
        }
        happened
    }

    fn accept(&mut self, unix: bool) -> usize {
        let mut accepted = 0;
        while accepted < 16 {
            let stream = if unix { self.wireup.accept_unix() } else { self.wireup.accept_tcp() };
            let Some(stream) = stream else { break };
            accepted += 1;
            match stream.map_err(|e| e.raw_os_error()) {
                Ok(stream) => self.greet(stream),
                Err(Some(libc::EAGAIN)) => return accepted - 1,
                Err(Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)) => {
                    if !self.wireup.dismiss_any() {
                        self.wireup.be_deaf();
                        return accepted - 1;
                    }
                }
                // this connection is no good; the next one may be
                Err(_) => {}
            }
        }
        accepted
    }

    fn greet(&mut self, stream: Stream) {
        if let Stream::Tcp(s) = &stream
            && s.set_nonblocking(true).is_err()
        {
            return;
        }
        self.wireup.make_room(&stream);
        let Ok(nonce) = random().map(Nonce) else { return };
        let args = Respond {
            key: self.wireup.key,
            versions: Versions::OURS,
            features: self.wireup.features(stream.rail()),
            nonce,
        };
        let half = Half::Theirs(Box::new(Responder::new(args)), None);
        let deadline = Instant::now() + STRANGER_TIME;
        if let Ok(token) = self.wireup.add(stream, half, None, deadline) {
            self.shake(token);
        }
    }

    pub(super) fn shake(&mut self, token: u64) -> usize {
        let Some(handshake) = self.wireup.handshakes.get_mut(&token) else { return 0 };
        let reached = handshake.reached;
        let turn = handshake.turn(self.rails.connector(handshake.stream.rail()));
        if handshake.reached && !reached {
            // from here on it only has to find the time
            let lane = matches!(handshake.half, Half::Lane(..));
            let time = if lane { super::lanes::ANSWER } else { self.config.answer_timeout };
            handshake.deadline = Instant::now() + time;
        }
        if let Some(peer) = handshake.ours()
            && handshake.proving
            && let Some(state) = self.wireup.peers.get_mut(&peer)
            && state.state() == PeerState::Connecting
        {
            let _ = state.on(PeerEvent::Proving);
        }
        match turn {
            Turn::Wait => {
                let (writing, fd) = (handshake.wants_write(), handshake.stream.fd().as_raw_fd());
                if std::mem::replace(&mut handshake.writing, writing) != writing {
                    let interest = if writing { Interest::Write } else { Interest::Read };
                    self.wireup.hears(fd, token, interest);
                }
                return 0;
            }
            Turn::Proven(session) => self.decide(token, session),
            Turn::Done(session, leftover) => self.established(token, &session, &leftover),
            Turn::Rejected(reason) => self.rejected(token, reason),
            Turn::Cut(why) => self.handshake_failed(token, &why, true),
            Turn::Denied(why) if handshake.stranger().is_none() => {
                let why = format!("{why}{}", self.wireup.keys.doubt());
                self.handshake_failed(token, &why, false);
            }
            Turn::Denied(why) | Turn::Failed(why) => self.handshake_failed(token, &why, false),
        }
        1
    }

    /// A peer has proved the key on a connection of its own.
    fn decide(&mut self, token: u64, session: Session) {
        if let Kind::Lane { session: id, lane } = session.kind {
            return self.decide_lane(token, session, id, lane);
        }
        let Some(handshake) = self.wireup.handshakes.get_mut(&token) else { return };
        // what a link takes is made first: then nothing has to be taken back when it cannot be had
        let made = self.rails.connector(handshake.stream.rail()).prepare().ok();
        let made = made.zip(self.wireup.offer(session.features).ok());
        let peer = self.peer_of(session.peer);
        let (ours, theirs) = (self.wireup.id, session.peer);
        let state = self.wireup.peers.entry(peer).or_insert_with(|| Peer::new(ours, theirs));
        let verdict = match (self.wireup.closing, &made) {
            (true, _) => Incoming::Reject(Reject::Closing),
            // the other side falls back to TCP
            (_, None) => Incoming::Reject(Reject::NoResources),
            _ => state.incoming(),
        };
        match (verdict, self.core.lane(peer)) {
            (Incoming::Accept, _) => self.wireup.give_up(peer),
            // it may have lost that session: find out before it asks again (the end of shared memory is heard at once)
            (Incoming::Reject(Reject::Exists), Some(link)) => self.rails.probe(link),
            _ => {}
        }
        let Some(handshake) = self.wireup.handshakes.get_mut(&token) else { return };
        let Half::Theirs(responder, decided) = &mut handshake.half else { return };
        if let Incoming::Reject(reason) = verdict {
            let _ = responder.reject(reason);
            handshake.flush();
            self.wireup.handshakes.remove(&token);
            return;
        }
        let Some((Prepared { descriptors, kept }, (pair, offer))) = made else { return };
        (handshake.kept, handshake.outgoing, handshake.pair) = (kept, descriptors, pair);
        *decided = Some((peer, session));
        let _ = responder.accept(&offer);
        handshake.deadline = Instant::now() + STRANGER_TIME;
        self.shake(token);
    }

    /// Both sides agree: the connection becomes a link.
    fn established(&mut self, token: u64, session: &Session, leftover: &[u8]) {
        let Some(handshake) = self.wireup.handshakes.remove(&token) else { return };
        let fd = handshake.stream.fd().as_raw_fd();
        self.wireup.epoll.remove(fd);
        if let Kind::Lane { .. } = session.kind {
            return self.lane_established(handshake, session, leftover);
        }
        let peer = self.peer_of(session.peer);
        let opened = matches!(handshake.half, Half::Ours(..));
        let rail = handshake.stream.rail();
        let joined = match self.join(handshake, session, leftover) {
            Ok(joined) => joined,
            Err(why) => return self.try_next(peer, why),
        };
        let link = (rail, joined.link);
        if let Some(state) = self.wireup.peers.get_mut(&peer) {
            let _ = state.on(PeerEvent::Established);
        }
        let mut passed_over =
            self.wireup.attempts.remove(&peer).map(|attempt| attempt.failures).unwrap_or_default();
        if self.wireup.name_taken && session.offer.process.host == self.wireup.host {
            passed_over
                .push("no shared memory: another process has taken this endpoint's Unix socket".into());
        }
        let route = self.route_for(peer, session, &joined);
        let info = &mut self.core.peers[peer.0 as usize];
        info.passed_over = passed_over;
        info.direct_refused = joined.direct_refused;
        self.event_peer_up(peer, route, rail, session.offer.process.host);
        if rail.caps().lanes {
            let lanes = self.new_lanes(peer, session.id, opened, session.offer.interfaces());
            self.core.peers[peer.0 as usize].lanes = Some(lanes);
            if !self.netted.contains(&peer) {
                self.netted.push(peer);
            }
            self.lane_up(peer, 0, link, None);
        } else {
            self.enter(peer, link);
        }
        self.connected(peer, route);
    }

    /// Makes a link of a connection on which both sides agree.
    pub(super) fn join(
        &mut self,
        handshake: Handshake,
        session: &Session,
        leftover: &[u8],
    ) -> Result<Joined, String> {
        let keys = handshake.keys(session)?;
        let Handshake { stream, incoming: descriptors, kept, .. } = handshake;
        let connector = self.rails.connector(stream.rail());
        let (connection, settings) = (stream.into_fd(), &self.config);
        let offer = &session.offer;
        connector.adopt(Agreed { connection, leftover, descriptors, kept, offer, keys, settings })
    }

    /// How messages travel on a new link.
    fn route_for(&mut self, peer: PeerIdx, session: &Session, joined: &Joined) -> Route {
        let limits = Limits {
            max_frame: session.offer.limits.max_frame() as usize,
            window: (u64::from(session.offer.limits.eager_window()) / CREDIT_UNIT) as u32,
            eager_max: Some(joined.eager_max),
            fragment: Some(joined.fragment),
            scheme: (self.config.rendezvous == Rendezvous::Put).then_some(Scheme::Put),
        };
        let (route, explanation) = cost::route(&joined.costs, &limits);
        self.core.peers[peer.0 as usize].explanation = Some(explanation);
        route
    }

    /// A link leads to this peer, and short messages take it.
    pub(super) fn enter(&mut self, peer: PeerIdx, (rail, link): RailLink) {
        let links = &mut self.core.links[rail as usize];
        if links.len() <= link.0 as usize {
            links.resize_with(link.0 as usize + 1, || None);
        }
        links[link.0 as usize] = Some(LinkInfo { peer, incoming: None, much: false });
        let info = &mut self.core.peers[peer.0 as usize];
        (info.lane, info.budget) = (Some((rail, link)), u32::MAX);
    }

    fn connected(&mut self, peer: PeerIdx, route: Route) {
        self.core.peers[peer.0 as usize].why = None;
        self.core.engine.connected(peer, route);
        self.settle();
    }

    fn rejected(&mut self, token: u64, reason: Reject) {
        let (peer, place) = match self.wireup.handshakes.remove(&token).map(|handshake| handshake.half) {
            Some(Half::Ours(_, peer, place)) => (peer, place),
            Some(Half::Lane(_, peer, way)) => {
                self.lane_refused(peer, way, format!("it refused: {reason}"), true);
                // the peer has forgotten the session
                if reason == Reject::NoSession && self.core.lane(peer).is_none() {
                    self.gone(peer, "it no longer knows the session".into());
                }
                return;
            }
            _ => return,
        };
        let attempt = self.wireup.attempts.get_mut(&peer);
        match reason {
            Reject::Simultaneous => {
                if let Some(state) = self.wireup.peers.get_mut(&peer) {
                    let _ = state.rejected(reason);
                }
                // the peer's own connection comes, or we do not wait for it for ever
                if let Some(attempt) = attempt {
                    attempt.resume = Some(Instant::now() + self.config.connect_timeout);
                }
                return;
            }
            // the end of the earlier session is news that it has not heard yet
            Reject::Exists => {
                if let Some(attempt) = attempt {
                    attempt.exists(place);
                }
            }
            Reject::Unsealed => return self.try_next(peer, format!("{place}: {reason}: {UNSEALED}")),
            _ => {}
        }
        self.try_next(peer, format!("{place}: it refused: {reason}"));
    }

    /// `again`: the same place is worth another try.
    fn handshake_failed(&mut self, token: u64, why: &str, again: bool) {
        let Some(handshake) = self.wireup.handshakes.remove(&token) else { return };
        match handshake.half {
            Half::Ours(_, peer, place) => {
                if let Some(attempt) = self.wireup.attempts.get_mut(&peer)
                    && again
                {
                    attempt.again.push(place);
                }
                self.try_next(peer, format!("{place}: {why}"));
            }
            Half::Lane(_, peer, way) => self.lane_refused(peer, way, why.to_owned(), handshake.reached),
            Half::Theirs(_, Some((_, session))) if session.kind != Kind::Session => {}
            Half::Theirs(_, Some((peer, _))) => {
                let lost = self.wireup.peers.get_mut(&peer).map(|p| p.on(PeerEvent::Lost));
                if let Some(Ok(_)) = lost {
                    self.gone(peer, format!("the connection ended while it was made: {why}"));
                }
            }
            Half::Theirs(_, None) => {
                let from = match &handshake.stream {
                    Stream::Tcp(s) => s.peer_addr().map_or("a connection".into(), |at| at.to_string()),
                    Stream::Unix(..) => "a Unix socket".into(),
                };
                self.wireup.refused(format!("{from}: {why}"));
            }
        }
    }

    /// One way to a peer has failed: the next.
    fn try_next(&mut self, peer: PeerIdx, why: String) {
        let address = self.core.peers[peer.0 as usize].address;
        let state = self.wireup.peers.get_mut(&peer);
        let (Some(attempt), Some(address)) = (self.wireup.attempts.get_mut(&peer), address) else {
            let _ = state.map(|state| state.on(PeerEvent::Lost));
            return self.gone(peer, why);
        };
        attempt.failed(why);
        // back to the state in which a connection is being opened
        if let Some(state) = state
            && state.state() != PeerState::Connecting
        {
            let _ = state.on(PeerEvent::Lost);
            state.connect();
        }
        if let Err(failures) = self.wireup.dial(peer, &address) {
            self.unreachable(peer, &failures);
        }
    }

    fn unreachable(&mut self, peer: PeerIdx, failures: &[String]) {
        if let Some(state) = self.wireup.peers.get_mut(&peer) {
            let _ = state.on(PeerEvent::Refused);
        }
        let why = match failures {
            [] => {
                "there is no way to it: no rail that both have is switched on, or its addresses lead nowhere from this host"
                    .to_owned()
            },
            some => some.join("; "),
        };
        self.gone(peer, format!("cannot connect: {why}"));
    }

    fn check_deadlines(&mut self, now: Instant) {
        self.wireup.hear(now);
        self.wireup.top.expire(now);
        let late: Vec<_> = self.wireup.handshakes.iter().filter(|(_, h)| h.deadline <= now).collect();
        let late: Vec<_> = late.into_iter().map(|(token, h)| (*token, h.reached)).collect();
        for (token, reached) in late {
            let why = match reached {
                true => "it is there, but does not answer; does its program make progress?",
                false => "no answer in time",
            };
            self.handshake_failed(token, why, false);
        }
        let due = |attempt: &Attempt| attempt.resume.is_some_and(|at| at <= now);
        let due: Vec<_> =
            self.wireup.attempts.iter().filter(|(_, a)| due(a)).map(|(peer, _)| *peer).collect();
        for peer in due {
            let Some(state) = self.wireup.peers.get_mut(&peer) else { continue };
            if state.state() != PeerState::Awaiting {
                self.resume(peer);
                continue;
            }
            let _ = state.on(PeerEvent::Deadline);
            self.wireup.give_up(peer);
            self.unreachable(peer, &["it connected at the same time, and then did not".into()]);
        }
    }

    fn resume(&mut self, peer: PeerIdx) {
        if let Some(address) = self.core.peers[peer.0 as usize].address
            && let Err(failures) = self.wireup.dial(peer, &address)
        {
            self.unreachable(peer, &failures);
        }
    }
}
