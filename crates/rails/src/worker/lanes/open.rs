//! How lanes are opened, and let in.

use super::super::connect::STRANGER_TIME;
use super::super::events::interface_of;
use super::super::handshake::{Half, Handshake, Stream};
use super::super::sockets;
use super::super::wireup::random;
use super::Worker;
use polyrail_core::lanes::Pair;
use polyrail_core::proto::PeerIdx;
use polyrail_core::wire::{Kind, Nonce, Reject, SessionId, Versions};
use polyrail_core::wireup::{Initiate, Initiator, Session};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::{Duration, Instant};

/// How long the network may take to connect before another attempt is worth more.
const CONNECT: Duration = Duration::from_secs(1);
/// How long the peer's program may take to answer before another attempt is worth more.
pub(in super::super) const ANSWER: Duration = Duration::from_secs(5);

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
        if self.wireup.closing {
            return Err("this endpoint is being closed".into());
        }
        let session = lanes.session.id();
        let scoped = |ip: IpAddr, port: u16| match ip {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => {
                SocketAddrV6::new(v6, port, 0, pair.near.0).into()
            }
            ip => SocketAddr::new(ip, port),
        };
        let (near, far) = (scoped(pair.near.1, 0), scoped(pair.far.1, address.port()));
        let device = self.near.iter().find(|one| one.index == pair.near.0);
        let stream = sockets::connect_from(near, device.map(|one| one.name.as_str()), far)
            .map(Stream::Tcp)
            .map_err(|error| error.to_string())?;
        let args = Initiate {
            key: self.wireup.keys.of(&address)?,
            from: self.wireup.id,
            versions: Versions::OURS,
            features: self.wireup.features(stream.rail()),
            kind: Kind::Lane { session, lane: number },
            nonce: Nonce(random().map_err(|error| error.to_string())?),
        };
        let (pair, offer) = self.wireup.offer(args.features).map_err(|error| error.to_string())?;
        let half = Half::Lane(Box::new(Initiator::new(args, offer)), peer, path);
        let added = self.wireup.add(stream, half, pair, Instant::now() + CONNECT);
        added.map(|_| ()).map_err(|error| error.to_string())
    }

    /// An attempt to open a lane has come to nothing; `reached`: somebody was there.
    pub(in super::super) fn lane_refused(&mut self, peer: PeerIdx, path: usize, why: String, reached: bool) {
        let now = self.clock();
        self.session(peer, |session, _, _| session.open_failed(now, path, why, reached));
        self.follow(peer);
    }

    /// A peer has proved the key on a connection that is to be one more lane.
    pub(in super::super) fn decide_lane(&mut self, token: u64, session: Session, id: SessionId, lane: u16) {
        let peer = self.by_id.get(&session.peer).copied();
        let lanes = peer.and_then(|peer| self.core.peers[peer.0 as usize].lanes.as_ref());
        let expected = lanes.is_some_and(|lanes| lanes.session.expects(id, lane));
        let offered = self.wireup.offer(session.features);
        let Some(handshake) = self.wireup.handshakes.get_mut(&token) else { return };
        let Half::Theirs(responder, decided) = &mut handshake.half else { return };
        let verdict = match (self.wireup.closing, expected, offered) {
            (true, ..) => Err(Reject::Closing),
            (false, false, _) => Err(Reject::NoSession),
            (false, true, Err(_)) => Err(Reject::NoResources),
            (false, true, Ok(offered)) => Ok(offered),
        };
        let (pair, offer) = match verdict {
            Ok(offered) => offered,
            Err(reason) => {
                let _ = responder.reject(reason);
                handshake.flush();
                self.wireup.handshakes.remove(&token);
                return;
            }
        };
        handshake.pair = pair;
        *decided = peer.map(|peer| (peer, session));
        let _ = responder.accept(&offer);
        handshake.deadline = Instant::now() + STRANGER_TIME;
        self.shake(token);
    }

    /// A connection has become one more lane.
    pub(in super::super) fn lane_established(
        &mut self,
        handshake: Handshake,
        session: &Session,
        leftover: &[u8],
    ) {
        let Kind::Lane { session: id, lane } = session.kind else { return };
        let Some(&peer) = self.by_id.get(&session.peer) else { return };
        let path = match handshake.half {
            Half::Lane(_, _, path) => Some(path),
            _ => None,
        };
        let lanes = self.core.peers[peer.0 as usize].lanes.as_ref();
        if !lanes.is_some_and(|lanes| lanes.session.is(id)) {
            return; // the session has ended in the meantime
        }
        if path.is_none()
            && let Ok(near) = handshake.stream.local_ip()
            && let Some(one) = interface_of(&self.near, near)
        {
            sockets::keep_to(&handshake.stream.fd(), one.name.as_str());
        }
        let rail = handshake.stream.rail();
        match (self.join(handshake, session, leftover), path) {
            (Ok(joined), path) => {
                self.lane_up(peer, lane, (rail, joined.link), path);
                self.settle();
            }
            (Err(why), Some(path)) => self.lane_refused(peer, path, why, true),
            (Err(_), None) => {
                self.session(peer, |session, _, _| session.accept_failed(lane));
            }
        }
    }
}
