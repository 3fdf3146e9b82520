//! Where lanes may be, and how they are opened.

use super::super::connect::STRANGER_TIME;
use super::super::events::{What, interface_of};
use super::super::handshake::{Half, Handshake, Stream};
use super::super::sockets;
use super::super::wireup::random;
use super::Worker;
use polyrail_core::lanes::{End, Pair, pairs};
use polyrail_core::proto::PeerIdx;
use polyrail_core::wire::offer::{Interface, MAX_LANES};
use polyrail_core::wire::{Features, Kind, Nonce, Reject, SessionId, Versions};
use polyrail_core::wireup::{Initiate, Initiator, Session};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::{Duration, Instant};

/// How long the network may take to connect before another attempt is worth more.
const CONNECT: Duration = Duration::from_secs(1);
/// How long the peer's program may take to answer before another attempt is worth more.
pub(in super::super) const ANSWER: Duration = Duration::from_secs(5);
/// How long to wait before the next attempt where there was a lane before, at first and at most; and where there never was.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(500));
const NEVER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// ... at most, where an interface was down: it costs nothing to try.
const ASLEEP: Duration = Duration::from_secs(1);
/// Most pairs that are tried for one peer.
const MAX_WAYS: usize = 64;
/// What an interface is thought to do that does not say: 1 Gb/s, in Mb/s.
const UNKNOWN_SPEED: u32 = 1000;

pub(super) fn bytes_per_second(megabits: u32) -> u64 {
    u64::from(if megabits == 0 { UNKNOWN_SPEED } else { megabits }) * 125_000
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Idle,
    Opening,
    Up(u16),
}

/// A pair of interfaces between which there may be a lane.
pub(in super::super) struct Way {
    pub pair: Pair,
    state: State,
    /// The number of the lane that is being opened.
    opening: Option<u16>,
    /// There was a lane before.
    worked: bool,
    /// Nobody was reached: the interfaces may not be of one network after all.
    vain: bool,
    retry: Instant,
    pause: Duration,
    /// Why there is none.
    pub why: Option<String>,
}

impl Way {
    fn new(pair: Pair) -> Self {
        Self {
            pair,
            state: State::Idle,
            opening: None,
            worked: false,
            vain: false,
            retry: Instant::now(),
            pause: NEVER.0,
            why: None,
        }
    }

    pub(super) fn opened(&mut self, number: u16) {
        (self.state, self.worked, self.pause, self.why) = (State::Up(number), true, AGAIN.0, None);
        self.opening = None;
    }

    pub(super) fn ended(&mut self) {
        if matches!(self.state, State::Up(_)) {
            (self.state, self.retry) = (State::Idle, Instant::now());
        }
    }

    fn failed(&mut self, why: String) {
        self.state = State::Idle;
        self.retry = Instant::now() + self.pause;
        self.pause = (2 * self.pause).min(match self.worked {
            true => AGAIN.1,
            false if self.pair.down => ASLEEP,
            false => NEVER.1,
        });
        self.why = Some(why);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.state == State::Idle
    }

    /// When it is worth another attempt.
    pub(super) fn retry(&self) -> Option<Instant> {
        self.is_idle().then_some(self.retry)
    }
}

pub(super) fn end(interface: &Interface) -> End<'_> {
    let Interface { index, speed, flags, nets, .. } = interface;
    End { index: *index, speed: *speed, flags: *flags, nets }
}

impl Worker {
    /// Finds out between which interfaces there may be lanes to a peer, once there is use for more than one.
    pub(in super::super) fn plan_lanes(&mut self, peer: PeerIdx) {
        let elsewhere = |address: polyrail_core::wire::Address| address.host() != self.wireup.host;
        let info = &mut self.core.peers[peer.0 as usize];
        let reachable = info.address.is_some_and(elsewhere);
        let Some(lanes) = &mut info.lanes else { return };
        if std::mem::replace(&mut lanes.planned, true) || !lanes.opens || !reachable {
            return;
        }
        let ours: Vec<_> = self.wireup.offer.interfaces().iter().map(end).collect();
        let theirs: Vec<_> = lanes.theirs.iter().map(end).collect();
        lanes.ways =
            pairs(&ours, &theirs, &[], MAX_LANES.min(self.config.lanes)).into_iter().map(Way::new).collect();
        // the lane that there is takes one of them
        for lane in &mut lanes.up {
            let at = lanes.ways.iter().position(|way| {
                way.is_idle()
                    && lane.near.map(|at| at.ip()) == Some(way.pair.near.1)
                    && lane.far.map(|at| at.ip()) == Some(way.pair.far.1)
            });
            lane.way = at;
            if let Some(way) = at.and_then(|at| lanes.ways.get_mut(at)) {
                way.opened(lane.number);
            }
        }
    }

    /// Finds other pairs for interfaces that do not reach those they were to go with.
    fn plan_others(&mut self, peer: PeerIdx) {
        let Some(lanes) = &mut self.core.peers[peer.0 as usize].lanes else { return };
        let key = |pair: &Pair| (pair.near.0, pair.far.0);
        let in_vain = |way: &&Way| way.is_idle() && way.vain;
        let vain: Vec<_> = lanes.ways.iter().filter(in_vain).map(|way| key(&way.pair)).collect();
        let ours: Vec<_> = self.wireup.offer.interfaces().iter().map(end).collect();
        let theirs: Vec<_> = lanes.theirs.iter().map(end).collect();
        for pair in pairs(&ours, &theirs, &vain, MAX_LANES.min(self.config.lanes)) {
            let known = lanes.ways.iter().any(|way| key(&way.pair) == key(&pair));
            if !known && lanes.ways.len() < MAX_WAYS {
                lanes.ways.push(Way::new(pair));
            }
        }
    }

    /// Opens the lanes that are missing and worth an attempt now.
    pub(in super::super) fn open_lanes(&mut self, peer: PeerIdx) {
        self.plan_lanes(peer);
        let now = Instant::now();
        let Some(lanes) = &self.core.peers[peer.0 as usize].lanes else { return };
        if !lanes.opens || lanes.parting || self.wireup.closing {
            return;
        }
        let due = |way: &Way| way.retry().is_some_and(|at| at <= now);
        let due: Vec<usize> = (0..lanes.ways.len()).filter(|at| due(&lanes.ways[*at])).collect();
        for at in due {
            if let Err(why) = self.open_lane(peer, at) {
                self.lane_refused(peer, at, why, true);
            }
        }
    }

    fn open_lane(&mut self, peer: PeerIdx, at: usize) -> Result<(), String> {
        let info = &mut self.core.peers[peer.0 as usize];
        let (Some(address), Some(lanes)) = (info.address, &mut info.lanes) else { return Ok(()) };
        let pair = lanes.ways[at].pair;
        let scoped = |ip: IpAddr, port: u16| match ip {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => {
                SocketAddrV6::new(v6, port, 0, pair.near.0).into()
            }
            ip => SocketAddr::new(ip, port),
        };
        let (near, far) = (scoped(pair.near.1, 0), scoped(pair.far.1, address.port()));
        let device = self.wireup.offer.interfaces().iter().find(|one| one.index == pair.near.0);
        let stream = sockets::connect_from(near, device.map(|one| one.name.as_str()), far)
            .map_err(|error| error.to_string())?;
        let number = lanes.next_number();
        lanes.spend(number, false);
        lanes.ways[at].state = State::Opening;
        let args = Initiate {
            key: self.wireup.keys.of(&address)?,
            from: self.wireup.id,
            versions: Versions::OURS,
            features: Features(0),
            kind: Kind::Lane { session: lanes.session, lane: number },
            nonce: Nonce(random().map_err(|error| error.to_string())?),
        };
        let half = Half::Lane(Box::new(Initiator::new(args, self.wireup.offer.clone())), peer, at);
        lanes.ways[at].opening = Some(number);
        self.wireup
            .add(Stream::Tcp(stream), half, Instant::now() + CONNECT)
            .map(|_| ())
            .map_err(|error| error.to_string())
    }

    /// A lane that is being opened is not to come about.
    pub(super) fn abandon_lane(&mut self, peer: PeerIdx, number: u16) {
        let Some(lanes) = &self.core.peers[peer.0 as usize].lanes else { return };
        let opening = |way: &Way| way.state == State::Opening && way.opening == Some(number);
        let Some(at) = lanes.ways.iter().position(opening) else { return };
        self.wireup
            .handshakes
            .retain(|_, h| !matches!(h.half, Half::Lane(_, of, way) if of == peer && way == at));
        self.lane_refused(peer, at, "the peer gave it up".into(), false);
    }

    /// An attempt to open a lane has come to nothing; `vain`: nobody was reached.
    pub(in super::super) fn lane_refused(&mut self, peer: PeerIdx, at: usize, why: String, vain: bool) {
        let Some(lanes) = &mut self.core.peers[peer.0 as usize].lanes else { return };
        let Some(way) = lanes.ways.get_mut(at) else { return };
        let news = way.why.as_deref() != Some(&why);
        way.failed(why.clone());
        way.vain = vain && !way.worked;
        if let Some(number) = way.opening.take().filter(|_| vain) {
            // nobody has heard of it
            lanes.spent.remove(&number);
        }
        if way.vain {
            self.plan_others(peer);
        }
        let Some(lanes) = &self.core.peers[peer.0 as usize].lanes else { return };
        if news {
            let name = lanes.way_name(at, self.wireup.offer.interfaces());
            self.event(peer, Some(name), What::LaneRefused(why));
        }
    }

    /// A peer has proved the key on a connection that is to be one more lane.
    pub(in super::super) fn decide_lane(&mut self, token: u64, session: Session, id: SessionId, lane: u16) {
        let peer = self.by_id.get(&session.peer).copied();
        let lanes = peer.and_then(|peer| self.core.peers[peer.0 as usize].lanes.as_ref());
        let expected = lanes.is_some_and(|lanes| lanes.expects(id, lane));
        let Some(handshake) = self.wireup.handshakes.get_mut(&token) else { return };
        let Half::Theirs(responder, decided) = &mut handshake.half else { return };
        let reason = match (self.wireup.closing, expected) {
            (true, _) => Some(Reject::Closing),
            (false, false) => Some(Reject::NoSession),
            (false, true) => None,
        };
        if let Some(reason) = reason {
            let _ = responder.reject(reason);
            handshake.flush();
            self.wireup.handshakes.remove(&token);
            return;
        }
        *decided = peer.map(|peer| (peer, session));
        let _ = responder.accept(&self.wireup.offer);
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
        let way = match handshake.half {
            Half::Lane(_, _, way) => Some(way),
            _ => None,
        };
        let lanes = self.core.peers[peer.0 as usize].lanes.as_ref();
        if !lanes.is_some_and(|lanes| lanes.session == id) {
            return; // the session has ended in the meantime
        }
        if way.is_none()
            && let Ok(near) = handshake.stream.local_ip()
            && let Some(one) = interface_of(self.wireup.offer.interfaces(), near)
        {
            sockets::keep_to(&handshake.stream.fd(), one.name.as_str());
        }
        let rail = handshake.stream.rail();
        match (self.join(handshake, session, leftover), way) {
            (Ok(joined), way) => {
                self.lane_up(peer, lane, (rail, joined.link), way);
                self.settle();
            }
            (Err(why), Some(way)) => self.lane_refused(peer, way, why, false),
            (Err(_), None) => {
                // the other side has it, and will hear that it came to nothing
                if let Some(lanes) = &mut self.core.peers[peer.0 as usize].lanes {
                    lanes.spend(lane, false);
                }
            }
        }
    }
}
