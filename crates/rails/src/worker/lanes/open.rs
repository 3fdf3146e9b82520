//! How lanes are opened, and let in.

use super::Worker;
use crate::list::{RailSet, Reach};
use crate::rail::channel::Place;
use crate::rail::connect::Joined;
use crate::wireup::{Met, Token};
use polyrail_core::lanes::Pair;
use polyrail_core::proto::PeerIdx;
use polyrail_core::wire::{Kind, Reject, SessionId};
use polyrail_core::wireup::Session;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

impl Worker {
    /// Begins to open a lane by a path.
    pub(super) fn open_lane(
        &mut self,
        peer: PeerIdx,
        path: usize,
        number: u16,
        pair: &Pair,
    ) -> Result<(), String> {
        let info = &self.core.peers[peer.0 as usize];
        let (Some(address), Some(lanes)) = (info.address, &info.lanes) else { return Ok(()) };
        let session = lanes.session.id();
        let scoped = |ip: IpAddr, port: u16| match ip {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => {
                SocketAddrV6::new(v6, port, 0, pair.near.0).into()
            }
            ip => SocketAddr::new(ip, port),
        };
        let device = self.near.iter().find(|one| one.index == pair.near.0);
        let place = Place::Socket {
            to: scoped(pair.far.1, address.port()),
            from: Some((scoped(pair.near.1, 0), device.map(|one| one.name.to_string()))),
        };
        let Some(rail) = RailSet::ALL.reaching(Reach::Network).next() else { return Ok(()) };
        let kind = Kind::Lane { session, lane: number };
        self.wireup.open_lane((peer, path), (rail, place), &address, kind, &mut self.rails)
    }

    /// An attempt to open a lane has come to nothing; `reached`: somebody was there.
    pub(in super::super) fn lane_refused(&mut self, peer: PeerIdx, path: usize, why: String, reached: bool) {
        let now = self.clock();
        self.session(peer, |session, _, _| session.open_failed(now, path, why, reached));
        self.follow(peer);
    }

    /// A peer has proved the key on a connection that is to be one more lane.
    pub(in super::super) fn decide_lane(&mut self, token: Token, session: Session, id: SessionId, lane: u16) {
        let peer = self.by_id.get(&session.peer).copied();
        let lanes = |peer: &PeerIdx| self.core.peers[peer.0 as usize].lanes.as_ref();
        let expected = peer.filter(|peer| lanes(peer).is_some_and(|lanes| lanes.session.expects(id, lane)));
        match (self.wireup.closing, expected) {
            (true, _) => self.wireup.refuse(token, Reject::Closing),
            (false, None) => self.wireup.refuse(token, Reject::NoSession),
            (false, Some(peer)) => self.wireup.decide_lane(token, peer, session, &mut self.rails),
        }
    }

    /// A connection has become one more lane, or could not.
    pub(in super::super) fn lane_established(
        &mut self,
        met: &Met,
        id: SessionId,
        lane: u16,
        joined: Result<Joined, String>,
    ) {
        let peer = self.by_id.get(&met.session.peer).copied();
        let lanes = |peer: &PeerIdx| self.core.peers[peer.0 as usize].lanes.as_ref();
        let stands = peer.filter(|peer| lanes(peer).is_some_and(|lanes| lanes.session.is(id)));
        match (stands, joined, met.path) {
            (Some(peer), Ok(joined), path) => {
                self.lane_up(peer, lane, (met.rail, joined.link), path);
                self.settle();
            }
            (Some(peer), Err(why), Some(path)) => self.lane_refused(peer, path, why, true),
            (Some(peer), Err(_), None) => {
                self.session(peer, |session, _, _| session.accept_failed(lane));
            }
            // the session has ended in the meantime
            (None, Ok(joined), _) => self.rails.close((met.rail, joined.link)),
            (None, Err(_), _) => {}
        }
    }
}
