//! Several connections to one peer, used as one: what stands between the peer's session ([`polyrail_core::session`], which decides)
//! and the rails, sockets and events of this worker.
//!
//! Files: here, how a session is asked and what it asks for is done; `open` how lanes are opened and let in; `words` those of rails
//! without streams; `told` what is said of them.

mod open;
mod told;
mod words;

use super::Worker;
use super::buffers::Posted;
use super::events::What;
use super::outlet::Outlet;
use super::state::ShortBy;
use crate::list::RailId;
use crate::rail::Down;
use crate::rail::connect::Ways;
use crate::set::{RailLink, Rails};
use polyrail_core::frame::{Acked, Frame};
use polyrail_core::proto::PeerIdx;
use polyrail_core::session::{
    Action, Arrival, Config, Lane, Loss, MAX_LANES, Pins, Planner, Session, ToPeer, Told,
};
use polyrail_core::wire::offer::Interface;
use polyrail_core::wire::{Offer, SessionId};
use std::sync::Arc;
use std::time::{Duration, Instant};
use words::Words;

pub use told::{LaneReport, PathReport, Paths};

/// How often lanes are looked at, at least; and how much more seldom for each peer that has lanes, and at most.
const TICK: Duration = Duration::from_millis(2);
const TICK_PEER: Duration = Duration::from_micros(20);
const TICK_MOST: Duration = Duration::from_millis(50);
/// How long a session whose last lane ended by a word of the peer's kernel waits for another.
const GRACE: Duration = Duration::from_secs(2);

/// The lanes to one peer.
pub(super) struct Lanes {
    pub session: Session<RailLink>,
    /// The other side's interfaces.
    theirs: Arc<[Interface]>,
    /// Where there may be lanes.
    planner: Planner,
    /// The rails that both sides have whose links may be lanes, and what the other side says of how it is reached by each.
    reached: Vec<(RailId, Vec<u8>)>,
    /// What of the session is under way in words.
    words: Words,
}

/// What a peer says of a lane.
pub(super) enum LaneNews {
    /// It had these frames from this one.
    Had(Told),
    /// It asks for one, or answers to that.
    Word(Frame, Vec<u8>),
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Worker {
    /// A session over a network begins, with a connection that this side has opened or the other.
    pub(super) fn new_lanes(
        &mut self,
        peer: PeerIdx,
        id: SessionId,
        opened: bool,
        offer: &Offer,
    ) -> Box<Lanes> {
        let theirs: Arc<[Interface]> = offer.interfaces().into();
        let reached = self.reached(offer);
        let elsewhere = self.core.peers[peer.0 as usize]
            .address
            .is_some_and(|address| address.host() != self.wireup.host);
        let most = if elsewhere { MAX_LANES.min(self.config.lanes) } else { 0 };
        let planner = self.planner(theirs.clone(), &reached, most);
        let config = Config {
            grace: nanos(GRACE.min(self.config.peer_timeout)),
            patience: nanos(self.config.peer_timeout),
            stripe_min: self.config.stripe_min as u64,
            connections: self.config.connections,
            least: self.config.connections_least,
            stand_in: self.stand_in(&reached).and_then(RailId::transport),
            ..Config::default()
        };
        let session = Session::new(id, config, opened.then(|| planner.clone()));
        Box::new(Lanes { session, theirs, planner, reached, words: Words::default() })
    }

    /// The rails whose links may be lanes to a peer, and what it says of each.
    fn reached(&mut self, offer: &Offer) -> Vec<(RailId, Vec<u8>)> {
        let its = |(transport, theirs): (_, &[u8])| {
            let rail = RailId::of_transport(transport)?;
            let fits = self.config.rails.has(rail)
                && rail.caps().has_lanes()
                && self.rails.connector(rail).agrees(theirs).is_ok();
            fits.then(|| (rail, theirs.to_vec()))
        };
        offer.transports().filter_map(its).collect()
    }

    /// The rail that serves in place of another between interfaces, if both sides have both.
    fn stand_in(&mut self, reached: &[(RailId, Vec<u8>)]) -> Option<RailId> {
        let stands_in = |rail: RailId| rail.caps().stands_in;
        let between = |rails: &mut Rails, rail: RailId, theirs: &[u8]| {
            !stands_in(rail) && matches!(rails.connector(rail).ways(theirs), Ways::Interfaces)
        };
        let usual = reached.iter().any(|(rail, theirs)| between(&mut self.rails, *rail, theirs));
        reached.iter().map(|(rail, _)| *rail).find(|rail| usual && stands_in(*rail))
    }

    /// Where there may be lanes.
    fn planner(&mut self, far: Arc<[Interface]>, reached: &[(RailId, Vec<u8>)], most: usize) -> Planner {
        let (mut between, mut places) = (Vec::new(), Vec::new());
        let stand_in = self.stand_in(reached);
        let mut rails = reached.iter().map(|(rail, _)| *rail);
        let alone = rails.find(|rail| self.rails.connector(*rail).leads_alone(&far));
        let used = |rail: RailId| Some(rail) != stand_in && alone.is_none_or(|alone| alone == rail);
        for (rail, theirs) in reached.iter().filter(|(rail, _)| used(*rail)) {
            let Some(transport) = rail.transport() else { continue };
            match self.rails.connector(*rail).ways(theirs) {
                Ways::Interfaces => between.push(transport),
                Ways::Places(count, speed) => places.push((transport, count, speed)),
            }
        }
        Planner { near: self.near.clone(), far, most, between, places }
    }

    /// Nanoseconds of the clock by which lanes are measured.
    pub(super) fn clock(&self) -> u64 {
        self.core.clock()
    }

    /// Asks a peer's session; `None` without one. What it wants done is done next by [`Worker::follow`].
    pub(super) fn session<R>(
        &mut self,
        peer: PeerIdx,
        ask: impl FnOnce(&mut Session<RailLink>, &mut ToPeer<'_, Posted>, &mut Outlet<'_>) -> R,
    ) -> Option<R> {
        let lanes = self.core.peers[peer.0 as usize].lanes.as_mut()?;
        let mut outlet = Outlet {
            rails: &mut self.rails,
            bufs: &self.core.bufs,
            cut: &mut self.core.cut,
            reads_told: self.core.reads_told,
            iov: &mut self.iov,
            zeros: &self.zeros,
        };
        let mut traffic = ToPeer { engine: &mut self.core.engine, peer };
        Some(ask(&mut lanes.session, &mut traffic, &mut outlet))
    }

    /// Does what a session wants done, and notes by which lane short messages go and how much may before that is thought over.
    fn follow(&mut self, peer: PeerIdx) {
        while let Some(action) = self.session(peer, |session, _, _| session.poll_action()).flatten() {
            match action {
                Action::Forget(link) => self.forget_lane(peer, link),
                Action::Open { path, number, way } => {
                    if let Err(why) = self.open_lane(peer, path, number, &way) {
                        let now = self.clock();
                        self.session(peer, |session, _, _| session.open_failed(now, path, why, false));
                    }
                }
                Action::Abandon { path } => self.abandon_lane(peer, path),
                Action::Event(which, what) => {
                    let name = self.lane_name(peer, which);
                    self.event(peer, name, What::Lane(what));
                }
                Action::Gone { why, orderly } => {
                    if orderly {
                        self.wireup.ended(peer, true);
                    }
                    self.gone(peer, why);
                }
            }
        }
        self.take_back();
        self.notice_short(peer);
        let Some((now, speaks)) = self.session(peer, |session, traffic, _| {
            let budget = session.budget(traffic);
            let short = ShortBy {
                lane: session.current(),
                budget,
                granted: budget,
                takes: session.takes_short(traffic),
                wide: session.is_wide(),
            };
            (short, session.has_words())
        }) else {
            return;
        };
        if speaks {
            // the engine does not know, and so does not name the peer
            self.wait_for_room(peer);
        }
        let before = std::mem::replace(&mut self.core.peers[peer.0 as usize].short, now);
        if now.wide && !before.wide && !self.wide.contains(&peer) {
            self.wide.push(peer);
        }
    }

    /// Tells the session if short messages were sent since its lane was last thought over.
    fn notice_short(&mut self, peer: PeerIdx) {
        let short = &self.core.peers[peer.0 as usize].short;
        if short.budget != short.granted {
            let now = self.clock();
            self.session(peer, |session, _, _| session.sent_short(now));
        }
    }

    /// Chooses anew by which lane short messages go, for one of them.
    pub(super) fn choose_lane(&mut self, peer: PeerIdx) {
        let now = self.clock();
        self.session(peer, |session, traffic, outlet| {
            session.sent_short(now);
            session.choose(traffic, outlet);
        });
        self.follow(peer);
    }

    /// Gives the lanes of a peer what waits for it.
    pub(super) fn schedule(&mut self, peer: PeerIdx) {
        let now = self.clock();
        let waits = self.session(peer, |session, traffic, outlet| session.schedule(now, traffic, outlet));
        if waits == Some(true) {
            let now = self.clock();
            self.session(peer, |session, _, _| session.scheduled(now));
        }
        self.follow(peer);
        if waits == Some(true) {
            self.wait_for_room(peer);
        }
    }

    /// A connection has become a link that is a lane of the peer's session.
    pub(super) fn lane_up(&mut self, peer: PeerIdx, number: u16, link: RailLink, path: Option<usize>) {
        let ends = self.rails.ends(link);
        let stats = self.rails.sample(link).unwrap_or_default();
        self.enter(peer, link);
        let interface = ends.and_then(|(near, _)| super::events::interface_of(&self.near, near.ip()));
        let name = interface.map_or("", |one| one.name.as_str());
        let pins = Pins { short: self.config.short_over.has(name), long: self.config.long_over.has(name) };
        let rtt = u64::from(stats.rtt) * 1000;
        let (Some(transport), in_order) = (link.0.transport(), link.0.caps().in_order) else { return };
        let arrival =
            Arrival { number, link, transport, path, ends, rtt, delivered: stats.delivered, pins, in_order };
        self.rails.set_scheme(link, self.core.engine.scheme(peer));
        let now = self.clock();
        self.session(peer, |session, traffic, outlet| session.lane_up(now, arrival, traffic, outlet));
        self.pace_lanes(peer);
        self.follow(peer);
        self.pump(peer);
    }

    /// Has the lanes between two interfaces share what the nearer one may send.
    fn pace_lanes(&mut self, peer: PeerIdx) {
        let Some(lanes) = &self.core.peers[peer.0 as usize].lanes else { return };
        let ips = |lane: &Lane<RailLink>| lane.ends().map(|(near, far)| (near.ip(), far.ip()));
        for lane in lanes.session.lanes() {
            let interface = ips(lane).and_then(|(near, _)| super::events::interface_of(&self.near, near));
            if let Some(rate) = interface.and_then(|one| self.config.caps.of(one.name.as_str())) {
                let beside = lanes.session.lanes().iter().filter(|other| ips(other) == ips(lane)).count();
                self.rails.pace(lane.link(), rate / beside.max(1) as u64);
            }
        }
    }

    /// A link is no lane any more; of a payload that had come in part, the place is kept for the frame that will bring it again.
    fn forget_lane(&mut self, peer: PeerIdx, link: RailLink) {
        self.pace_lanes(peer);
        let Some(mut info) = self.core.forget_link(link) else { return };
        if let Some((incoming, frame, len, span)) = info.incoming.take() {
            let partial = &mut self.core.peers[peer.0 as usize].partial;
            if !partial.keep(frame, len, (incoming, span)) {
                self.gone(
                    peer,
                    "it broke the protocol: what ended lanes brought in part never comes again".into(),
                );
            }
        }
    }

    /// Tells a peer what came by one of its lanes.
    pub(super) fn tell_got(&mut self, peer: PeerIdx, link: RailLink, received: &Acked) {
        self.session(peer, |session, traffic, _| session.tell_got(link, received, traffic));
        if !received.is_in_order() {
            self.follow(peer);
        }
    }

    /// What peers have had from their lanes, as they told.
    pub(super) fn hear_of_lanes(&mut self) {
        let now = self.clock();
        for (peer, news) in std::mem::take(&mut self.core.lane_news) {
            let told = match news {
                LaneNews::Had(told) => told,
                LaneNews::Word(frame, word) => {
                    self.hear_word(peer, &frame, &word);
                    continue;
                }
            };
            let heard = self
                .session(peer, |session, traffic, outlet| session.handle_told(now, &told, traffic, outlet));
            self.follow(peer);
            match heard {
                Some(Err(why)) => self.gone(peer, format!("it broke the protocol: {why}")),
                Some(Ok(())) if told.retired => self.pump(peer),
                _ => {}
            }
        }
    }

    /// A lane's connection has ended by itself.
    pub(super) fn lane_lost(&mut self, peer: PeerIdx, link: RailLink, why: &Down) {
        let loss = match why {
            Down::Orderly => Loss::Orderly,
            Down::Protocol(what) => return self.gone(peer, what.clone()),
            Down::Lost(error) => {
                let by_peer = [libc::ECONNRESET, libc::ECONNABORTED, libc::EPIPE];
                let text = error.to_string();
                match error.raw_os_error() {
                    _ if error.kind() == std::io::ErrorKind::UnexpectedEof => Loss::Closed(text),
                    Some(code) if !by_peer.contains(&code) => Loss::Silent(text),
                    _ => Loss::Reset(text),
                }
            }
        };
        let now = self.clock();
        self.session(peer, |session, traffic, outlet| session.handle_lost(now, link, loss, traffic, outlet));
        self.follow(peer);
        if self.core.peers[peer.0 as usize].lanes.is_none() {
            return;
        }
        if matches!(why, Down::Orderly) {
            self.core.peers[peer.0 as usize].partial.clear();
        }
    }

    /// A look at all lanes, every few milliseconds.
    pub(super) fn watch_lanes(&mut self) {
        let now = Instant::now();
        if now < self.next_look {
            return;
        }
        self.next_look = now + (TICK + TICK_PEER * self.netted.len() as u32).min(TICK_MOST);
        // what came in time is not late because it is looked at now
        self.hear_of_lanes();
        self.tell_changes();
        let clock = self.clock();
        let (others, mut busy) = (self.busy_peers.saturating_sub(1), 0);
        for at in 0..self.netted.len() {
            let Some(&peer) = self.netted.get(at) else { break };
            let much = self.carries_much(peer);
            self.session(peer, |session, traffic, outlet| {
                session.set_others(others);
                session.tick(clock, much, traffic, outlet);
                busy += usize::from(session.moves_much());
            });
            self.follow(peer);
            self.reach_far(peer);
            self.look_at_words(peer, clock);
        }
        self.busy_peers = busy;
        self.netted.retain(|peer| self.core.peers[peer.0 as usize].lanes.is_some());
        // rounds that move much are long: who connects, or asks, does not wait for many of them
        self.wire_up();
        self.settle();
    }

    /// Where a round trip is long, longer messages go eagerly, that would wait for one otherwise, and who sends does not wait for it.
    fn reach_far(&mut self, peer: PeerIdx) {
        let info = &mut self.core.peers[peer.0 as usize];
        let Some(lanes) = &info.lanes else { return };
        let reach = lanes.session.reach();
        info.pace.set_rtt(Duration::from_nanos(reach.map_or(0, |far| far.rtt)));
        self.core.engine.set_far(peer, reach.is_some_and(|far| far.is_long()));
        if let (None, Some(why)) = (self.config.tcp_eager, &info.explanation) {
            self.core.engine.set_far_eager(peer, reach.map_or(0, |far| why.far_eager(far)));
        }
    }

    /// Notes what has become of lanes' compositions.
    fn tell_changes(&mut self) {
        while let Some((link, change)) = self.rails.take_change() {
            let info = self.core.links[link.0 as usize].get(link.1.0 as usize).and_then(Option::as_ref);
            let Some(peer) = info.map(|info| info.peer) else { continue };
            let Some(lanes) = &self.core.peers[peer.0 as usize].lanes else { continue };
            let lane = lanes.session.lanes().iter().find(|lane| lane.link() == link);
            let Some(which) = lane.map(Lane::which) else { continue };
            let name = self.lane_name(peer, which);
            self.event(peer, name, What::Composition(change));
        }
    }

    /// Whether a peer is sent, or sends, long messages or many.
    fn carries_much(&self, peer: PeerIdx) -> bool {
        let Some(lanes) = &self.core.peers[peer.0 as usize].lanes else { return false };
        let much = |(rail, link): RailLink| {
            let info = self.core.links[rail as usize].get(link.0 as usize).and_then(Option::as_ref);
            info.is_some_and(|info| info.much)
        };
        lanes.session.lanes().iter().any(|lane| much(lane.link()))
    }

    /// Until when a look is due even if nothing happens; none while there is nothing to see.
    pub(super) fn lanes_due(&mut self) -> Option<Instant> {
        let mut first = None;
        for at in 0..self.netted.len() {
            let peer = self.netted[at];
            let due = self.session(peer, |session, _, outlet| session.due(outlet)).flatten();
            let words =
                self.core.peers[peer.0 as usize].lanes.as_ref().and_then(|lanes| lanes.words.deadline());
            first = [first, due, words].into_iter().flatten().min();
        }
        first.map(|due| (self.core.began + Duration::from_nanos(due)).max(self.next_look))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
