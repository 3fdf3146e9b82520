//! The control channel on real sockets: the listener, handshakes, and the links that come of them.
//!
//! A peer on the same host is tried by its Unix socket first: it carries the descriptors of the shared memory, and its end
//! tells that the peer has died. Otherwise each IP of the peer's address is tried by TCP, and the connection itself becomes
//! the link. All decisions are [`polyrail_core::wireup`]'s.

use super::handshake::{Half, Handshake, Stream, Turn};
use super::inbound::{LinkInfo, RailId};
use super::wireup::{Attempt, TOKEN_RAIL, TOKEN_TCP, TOKEN_UNIX, random};
use super::{Refused, Worker};
use crate::config::Rendezvous;
use crate::rail::LinkId;
use crate::shm::doorbell::Bell;
use crate::shm::segment::Segment;
use crate::shm::{cma, fdpass};
use polyrail_core::proto::{CREDIT_UNIT, PeerIdx, Route, Scheme};
use polyrail_core::wire::{Features, Nonce, Reject, Versions};
use polyrail_core::wireup::{Incoming, Peer, PeerEvent, PeerState, Respond, Responder, Session};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

const MAX_STRANGERS: usize = 512;
/// How long a stranger may take to prove the key.
const STRANGER_TIME: Duration = Duration::from_secs(5);
/// Shared-memory fragments: what one slot's bulk payload takes.
const SHM_FRAGMENT: usize = 32 << 10;
/// TCP fragments: long enough to cost little, short enough to let others in between.
const TCP_FRAGMENT: usize = 256 << 10;

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
        let passed_over = self.wireup.attempts.remove(&peer).map(|attempt| attempt.failures).unwrap_or_default();
        let route = self.route_for(peer, session, unix);
        self.core.peers[peer.0 as usize].passed_over = passed_over;
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
}
