//! From what wire-up agreed with peers to links: whom to call, whom to let in, and what is known of a peer once it is connected.

use super::inbound::LinkInfo;
use super::state::ShortBy;
use super::top::TOKEN_TOP;
use super::{Refused, Worker};
use crate::config::Rendezvous;
use crate::far;
use crate::list::{RailSet, Reach};
use crate::rail::connect::Joined;
use crate::set::RailLink;
use crate::wireup::{Agreement, Met, News, Token};
use polyrail_core::cost::{self, Limits};
use polyrail_core::proto::{CREDIT_UNIT, PeerIdx, Route, Scheme};
use polyrail_core::wire::{Kind, Reject};
use polyrail_core::wireup::Session;

impl Worker {
    /// This process is its own first peer.
    pub(super) fn connect_self(&mut self) {
        let me = self.peer_of(self.wireup.id);
        self.core.peers[me.0 as usize].address = Some(self.address);
        for rail in RailSet::ALL.reaching(Reach::Process) {
            if let Some((link, route)) = self.rails.connector(rail).own(&self.config) {
                self.enter(me, (rail, link));
                self.connected(me, route);
            }
        }
    }

    /// Sees to it that there is, or will be, a connection.
    pub(super) fn connect(&mut self, peer: PeerIdx) -> Result<(), Refused> {
        self.stir();
        let info = &self.core.peers[peer.0 as usize];
        let Some(address) = info.address else { return Err(Refused::Gone) };
        let (id, told) = (info.id, info.why.is_some());
        self.wireup.connect(peer, id, &address, told, &mut self.rails).map_err(|why| {
            if let Some(why) = why {
                self.gone(peer, why);
            }
            Refused::Gone
        })
    }

    /// A round of the control channel; returns how much happened.
    pub(super) fn wire_up(&mut self) -> usize {
        self.core.counts.looks += 1;
        self.wireup.look();
        while let Some(news) = self.wireup.next_news(&mut self.rails) {
            self.hear(news);
        }
        if self.top.answers() {
            self.answer_watchers();
        }
        self.wireup.happened()
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Proven(token, session) => self.decide(token, session),
            News::Agreed(agreement) => self.established(*agreement),
            News::Lost(peer, why) => self.gone(peer, why),
            News::Cut(peer, why) => {
                let info = &self.core.peers[peer.0 as usize];
                let is_known = info.address.is_some() && info.why.is_none();
                if is_known && self.wireup.is_worth_a_call(peer) {
                    // an error of it is told of there
                    let _ = self.connect(peer);
                } else {
                    self.gone(peer, why);
                }
            }
            News::LaneRefused { peer, path, why, reached, forgotten } => {
                self.lane_refused(peer, path, why, reached);
                if forgotten && self.core.lane(peer).is_none() {
                    self.gone(peer, "it no longer knows the session".into());
                }
            }
            News::Ready(TOKEN_TOP) => self.tell_watchers(),
            // rails are looked at anyway, and those who are being answered at the end of each look
            News::Ready(_) => {}
        }
    }

    /// A peer has proved the key on a connection of its own.
    fn decide(&mut self, token: Token, session: Session) {
        if let Kind::Lane { session: id, lane } = session.kind {
            return self.decide_lane(token, session, id, lane);
        }
        let peer = self.peer_of(session.peer);
        let verdict = self.wireup.decide(token, peer, session, &mut self.rails);
        // it may have lost the session that there is: find out before it asks again (the end of shared memory is heard at once)
        if let (Err(Reject::Exists), Some(link)) = (verdict, self.core.lane(peer)) {
            self.rails.probe(link);
        }
        if verdict.is_err() && self.is_over(peer) {
            self.forget(peer);
        }
    }

    /// Both sides agree: the connection becomes a link.
    fn established(&mut self, agreement: Agreement) {
        let connector = self.rails.connector(agreement.met.rail);
        let (met, joined) = agreement.join(connector, &self.config);
        if let Kind::Lane { session, lane } = met.session.kind {
            return self.lane_established(&met, session, lane, joined);
        }
        let peer = self.peer_of(met.session.peer);
        match joined {
            Ok(joined) => self.begin_session(peer, &met, joined),
            Err(why) => self.wireup.try_next(peer, why, &mut self.rails),
        }
    }

    /// The first link to a peer stands.
    fn begin_session(&mut self, peer: PeerIdx, met: &Met, joined: Joined) {
        let Met { session, rail, opened, .. } = met;
        let (link, host) = ((*rail, joined.link), session.offer.process.host);
        let passed_over = self.wireup.established(peer, host == self.wireup.host);
        let route = self.route_for(peer, session, &joined);
        let info = &mut self.core.peers[peer.0 as usize];
        info.passed_over = passed_over;
        info.direct_refused = joined.direct_refused;
        self.event_peer_up(peer, route, *rail, host);
        if rail.caps().has_lanes() {
            let lanes = self.new_lanes(peer, session.id, *opened, &session.offer);
            self.core.peers[peer.0 as usize].lanes = Some(lanes);
            if !self.netted.contains(&peer) {
                self.netted.push(peer);
            }
            far::note(host, self.rails.sample(link).unwrap_or_default().min_rtt);
            self.lane_up(peer, 0, link, None);
        } else {
            self.enter(peer, link);
            self.rails.watch(link, (self.wireup.id, session.peer));
        }
        self.connected(peer, route);
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
        info.short = ShortBy::plainly(Some((rail, link)));
    }

    fn connected(&mut self, peer: PeerIdx, route: Route) {
        self.core.peers[peer.0 as usize].why = None;
        self.core.engine.connected(peer, route);
        self.settle();
    }
}
