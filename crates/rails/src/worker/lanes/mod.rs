//! Several connections to one peer, used as one.
//!
//! The connection that began the session is lane 0. The side that opened it opens the others, one for each pair of interfaces
//! that reach each other, when there is something for them to do: a long message, many short ones, or a lane in doubt. A lane that fails is
//! retired on both sides, and what it had not delivered travels again by the others: see `docs/wire-frames.md`.
//!
//! Files: here, what is known of a peer's lanes, and how they come and go; `carry` what travels by which; `watch` how they are
//! doing; `tell` what is said of them; `open` where they may be and how they are opened.

mod carry;
mod open;
mod tell;
mod watch;

use super::events::{LaneName, Reason, What, interface_of};
use super::inbound::Incoming;
use super::{Worker, handshake::Half};
use crate::rail::set::{NO_LINK, RailLink};
use crate::rail::{Down, Span, UnackedFrame};
use polyrail_core::frame::Frame;
use polyrail_core::lanes::{Estimate, Load};
use polyrail_core::proto::PeerIdx;
use polyrail_core::wire::SessionId;
use polyrail_core::wire::offer::{Interface, MAX_LANES};
use polyrail_core::wireup::PeerEvent;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

pub(super) use open::{ANSWER, Way};
pub use tell::{WayReport, Ways};
pub use watch::LaneReport;

/// How long a session whose last lane ended by a word of the peer's kernel waits for another.
const GRACE: Duration = Duration::from_secs(2);

/// Of so many ended lanes it is remembered how they did.
const PAST_MAX: usize = 256;

/// One connection.
pub(super) struct Lane {
    /// Its number in the session.
    pub number: u16,
    pub link: RailLink,
    pub estimate: Estimate,
    /// Which of [`Lanes::ways`] it takes, where this side opens lanes.
    way: Option<usize>,
    near: Option<SocketAddr>,
    far: Option<SocketAddr>,
    /// Whether the user wants short messages, and the parts of long ones, to go by its interface.
    short: bool,
    long: bool,
    /// Bytes that the peer's kernel had acknowledged, and those that had not been, at the last look.
    delivered: u64,
    queued: u64,
    /// The peer's program does not take what waits.
    shut: bool,
    /// Since when nothing was acknowledged though something waits for it.
    stalled: Option<Instant>,
    /// Since when another lane would be through with what it holds much earlier.
    late: Option<Instant>,
    /// The rate that was told last, in bytes per second.
    told: u64,
}

impl Lane {
    fn load(&self, queued: usize) -> Load {
        self.estimate.load(queued as u64)
    }
}

/// A lane that has ended here, and of which the peer has not said yet what it had from it.
struct Retiring {
    number: u16,
    link: RailLink,
    name: LaneName,
    /// The peer closed it, and no word came before.
    closed: bool,
}

/// A payload of which only a part had come when its lane ended. Its frame comes again by another lane.
#[derive(Debug)]
pub(crate) struct Resume {
    pub frame: Frame,
    pub len: usize,
    pub incoming: Incoming,
    pub span: Span,
}

/// How far a sequenced frame is ahead of the one that the peer waits for. One that it has seen, but of which only a part came
/// before its lane ended, lies before that.
fn ahead(seq: u32, seen: u32) -> i32 {
    seq.wrapping_sub(seen).cast_signed()
}

/// Frames that are to be sent again.
#[derive(Default)]
struct Resend {
    free: VecDeque<UnackedFrame>,
    /// Those that take effect in order, by their numbers.
    sequenced: VecDeque<(u32, UnackedFrame)>,
}

impl Resend {
    fn is_empty(&self) -> bool {
        self.free.is_empty() && self.sequenced.is_empty()
    }

    /// Adds what a lane did not deliver; the peer has seen all before `seen`.
    fn add(&mut self, parcels: VecDeque<UnackedFrame>, seen: u32) {
        for parcel in parcels {
            let frame = Frame::parse(&parcel.bytes[..parcel.header]).map(|(frame, _)| frame).ok();
            match frame.and_then(|frame| frame.order()) {
                Some(order) => self.sequenced.push_back((order.seq, parcel)),
                // said again when the lane that carried it ended
                None if matches!(frame, Some(Frame::Retire { .. })) => {}
                None => self.free.push_back(parcel),
            }
        }
        // lanes end in any order, perhaps again before all of an earlier one has left
        self.sequenced.make_contiguous().sort_by_key(|(seq, _)| ahead(*seq, seen));
    }
}

/// All lanes to one peer.
pub(super) struct Lanes {
    pub session: SessionId,
    /// Whether this side opens lanes.
    opens: bool,
    pub up: Vec<Lane>,
    retiring: Vec<Retiring>,
    /// What was learnt of lanes that have ended, by both ends: what takes their place knows it.
    past: BTreeMap<(Option<IpAddr>, Option<IpAddr>), Estimate>,
    /// What ended lanes did not deliver: it leaves before anything else, sequenced frames in their order.
    resend: Resend,
    theirs: Vec<Interface>,
    ways: Vec<Way>,
    planned: bool,
    /// The numbers that lanes have had lately, and whether they came about; and the next.
    spent: BTreeMap<u16, bool>,
    next: u16,
    /// Until when there must be a lane again, if there is none, and why there is none.
    lost: Option<(Instant, String)>,
    /// The peer says goodbye on one lane after the other.
    parting: bool,
    /// The lane that carries sequenced frames now; those before this one may have gone, or have to go, by others.
    current: RailLink,
    scattered: u32,
    sampled: Instant,
    /// Which lane small messages took when that was told last, and when it was.
    told: Option<(u16, Instant)>,
    /// Why the lane in use was chosen.
    reason: Reason,
}

impl Lanes {
    pub fn new(session: SessionId, opens: bool, theirs: Vec<Interface>) -> Self {
        Self {
            session,
            opens,
            up: Vec::new(),
            retiring: Vec::new(),
            past: BTreeMap::new(),
            resend: Resend::default(),
            theirs,
            ways: Vec::new(),
            planned: false,
            spent: BTreeMap::new(),
            next: 0,
            lost: None,
            parting: false,
            current: NO_LINK,
            scattered: 0,
            sampled: Instant::now(),
            told: None,
            reason: Reason::Ended,
        }
    }

    /// Whether more than the plainest case is at hand: frames go where the figures say.
    pub fn is_wide(&self) -> bool {
        self.up.len() > 1 || !self.is_quiet()
    }

    /// Whether there has been more than the lane that began the session, or is to be another in its place.
    pub fn had_several(&self) -> bool {
        self.spent.len() > 1 || self.is_wide()
    }

    /// A lane's number is used up: it is not used again before half of all have been.
    fn spend(&mut self, number: u16, came: bool) {
        self.spent.remove(&number.wrapping_add(1 << 15));
        self.spent.insert(number, came);
        self.next = number.wrapping_add(1);
    }

    /// A number for one more lane.
    fn next_number(&self) -> u16 {
        (0..=u16::MAX).map(|n| self.next.wrapping_add(n)).find(|n| self.is_free(*n)).unwrap_or(self.next)
    }

    fn is_free(&self, number: u16) -> bool {
        let numbers =
            self.up.iter().map(|lane| lane.number).chain(self.retiring.iter().map(|lane| lane.number));
        !self.spent.contains_key(&number) && !numbers.into_iter().any(|other| other == number)
    }

    /// Whether the peer may open a lane of this number.
    pub fn expects(&self, session: SessionId, number: u16) -> bool {
        let fresh = self.is_free(number) && self.up.len() < MAX_LANES;
        self.session == session && !self.opens && !self.parting && fresh
    }

    /// Whether nothing of what lanes did not deliver waits.
    pub fn is_quiet(&self) -> bool {
        self.resend.is_empty() && self.retiring.is_empty()
    }

    fn index(&self, link: RailLink) -> Option<usize> {
        self.up.iter().position(|lane| lane.link == link)
    }

    /// All links, also those that have ended.
    pub fn links(&self) -> impl Iterator<Item = RailLink> + '_ {
        self.up.iter().map(|lane| lane.link).chain(self.retiring.iter().map(|lane| lane.link))
    }
}

impl Worker {
    /// A connection has become a link that is a lane of the peer's session.
    pub(super) fn lane_up(&mut self, peer: PeerIdx, number: u16, link: RailLink, way: Option<usize>) {
        let ends = self.rails.ends(link);
        let info = self.rails.sample(link).unwrap_or_default();
        self.enter(peer, link);
        let Some(lanes) = &mut self.core.peers[peer.0 as usize].lanes else { return };
        let speed = way.and_then(|way| lanes.ways.get(way)).map_or(0, |way| way.pair.speed);
        // what interfaces claim counts for less than what others of the same pair of hosts do
        let known = lanes.up.iter().map(|lane| &lane.estimate).filter(|one| one.is_measured());
        let rate = known.map(Estimate::rate).max().unwrap_or(u64::MAX).min(open::bytes_per_second(speed));
        let (near, far) = ends.unzip();
        let near_ip = near.map(|at| at.ip());
        let rtt = u64::from(info.rtt) * 1000;
        let past = lanes.past.get(&(near_ip, far.map(|at| at.ip())));
        let estimate = past.map_or_else(|| Estimate::new(rate, rtt), |past| past.again(rtt));
        let estimate = estimate.from(self.began.elapsed().as_nanos() as u64, info.delivered);
        let interface = near_ip.and_then(|ip| interface_of(self.wireup.offer.interfaces(), ip));
        let name = interface.map_or("", |one| one.name.as_str());
        let (short, long) = (self.config.short_over.has(name), self.config.long_over.has(name));
        if let Some(rate) = self.config.caps.of(name) {
            self.rails.pace(link, rate);
        }
        lanes.up.push(Lane {
            number,
            link,
            estimate,
            way,
            near,
            far,
            short,
            long,
            delivered: info.delivered,
            queued: 0,
            shut: false,
            stalled: None,
            late: None,
            told: estimate.rate(),
        });
        let name = lanes.name(lanes.up.len() - 1, self.wireup.offer.interfaces());
        lanes.spend(number, true);
        lanes.lost = None;
        if let Some(way) = way.and_then(|way| lanes.ways.get_mut(way)) {
            way.opened(number);
        }
        self.event(peer, Some(name), What::LaneUp);
        self.choose_lane(peer);
        if number > 0 {
            self.core.engine.tell_seen(peer, true);
        }
        self.pump(peer);
    }

    /// Ends a lane here: what it brought counts, the rest has to come by another, and the peer is told so.
    pub(super) fn retire_lane(&mut self, peer: PeerIdx, at: usize, why: &str) {
        let Some(lanes) = &mut self.core.peers[peer.0 as usize].lanes else { return };
        let name = lanes.name(at, self.wireup.offer.interfaces());
        let Lane { number, link, way, estimate, near, far, .. } = lanes.up.remove(at);
        if lanes.past.len() >= PAST_MAX {
            lanes.past.clear();
        }
        lanes.past.insert((near.map(|at| at.ip()), far.map(|at| at.ip())), estimate);
        lanes.retiring.push(Retiring { number, link, name, closed: false });
        if let Some(way) = way.and_then(|way| lanes.ways.get_mut(way)) {
            way.ended();
        }
        if lanes.up.is_empty() {
            lanes.lost = Some((Instant::now() + GRACE.min(self.config.peer_timeout), why.to_owned()));
        }
        let received = self.rails.retire(link);
        // the peer sends nothing again that it lost until it hears of that loss from us: it has to hear it by another lane
        for frame in self.rails.kept(link).into_iter().filter(|frame| matches!(frame, Frame::Retire { .. })) {
            self.core.engine.say(peer, frame);
        }
        self.forget_link(peer, link);
        self.event(peer, Some(name), What::LaneDown(why.to_owned()));
        self.core.engine.say(peer, Frame::Retire { lane: number, received });
        // what is to come again may have to wait until the peer knows this
        self.core.engine.tell_seen(peer, true);
        self.choose_lane(peer);
    }

    /// A link is no more; of a payload that had come in part, the place is kept for the frame that will bring it again.
    fn forget_link(&mut self, peer: PeerIdx, link: RailLink) {
        let Some(mut info) = self.core.forget_link(link) else { return };
        if let Some((incoming, frame, len, span)) = info.incoming.take() {
            self.core.peers[peer.0 as usize].resume.push(Resume { frame, len, incoming, span });
        }
    }

    /// Tells a peer what came by one of its lanes.
    pub(super) fn tell_got(&mut self, peer: PeerIdx, link: RailLink, received: u64) {
        let lanes = self.core.peers[peer.0 as usize].lanes.as_ref();
        let lane = lanes.and_then(|lanes| lanes.index(link).map(|at| lanes.up[at].number));
        if let Some(lane) = lane {
            self.core.engine.say(peer, Frame::Got { lane, received });
        }
    }

    /// What the peer has had from its lanes, as it told.
    pub(super) fn hear_of_lanes(&mut self) {
        for (peer, number, received, retired) in std::mem::take(&mut self.core.lane_news) {
            if let Err(why) = self.lane_news(peer, number, received, retired) {
                self.gone(peer, format!("it broke the protocol: {why}"));
            }
        }
    }

    fn lane_news(
        &mut self,
        peer: PeerIdx,
        number: u16,
        received: u64,
        retired: bool,
    ) -> Result<(), &'static str> {
        const IMPOSSIBLE: &str = "it spoke of a lane, or of frames, that never were";
        let Some(lanes) = &mut self.core.peers[peer.0 as usize].lanes else { return Ok(()) };
        let up = lanes.up.iter().position(|lane| lane.number == number);
        if !retired {
            // of a lane that ended in the meantime the last word is still to come
            return match up {
                Some(at) if !self.rails.acked(lanes.up[at].link, received) => Err(IMPOSSIBLE),
                None if !lanes.spent.contains_key(&number) => Err(IMPOSSIBLE),
                _ => Ok(()),
            };
        }
        if let Some(at) = up {
            self.retire_lane(peer, at, "the peer gave it up");
        }
        let Some(lanes) = &mut self.core.peers[peer.0 as usize].lanes else { return Ok(()) };
        let Some(at) = lanes.retiring.iter().position(|lane| lane.number == number) else {
            match lanes.spent.get(&number) {
                // said again
                Some(true) => return Ok(()),
                // the other side took a lane for open whose opening came to nothing here
                Some(false) if received == 0 => {}
                _ => return Err(IMPOSSIBLE),
            }
            self.abandon_lane(peer, number);
            self.core.engine.say(peer, Frame::Retire { lane: number, received: 0 });
            return Ok(());
        };
        let Retiring { link, name, .. } = lanes.retiring.remove(at);
        let parcels = self.rails.reclaim(link, received);
        self.rails.close(link);
        let parcels = parcels.ok_or(IMPOSSIBLE)?;
        let bytes = parcels.iter().map(|one| one.bytes.len() + one.span.map_or(0, |span| span.len)).sum();
        let frames = parcels.len();
        lanes.resend.add(parcels, self.core.engine.seen(peer));
        if frames > 0 {
            self.event(peer, Some(name), What::LaneResend { frames, bytes });
        }
        self.choose_lane(peer);
        self.pump(peer);
        Ok(())
    }

    /// A lane's connection has ended by itself.
    pub(super) fn lane_lost(&mut self, peer: PeerIdx, link: RailLink, why: &Down) {
        let Some(lanes) = &mut self.core.peers[peer.0 as usize].lanes else { return };
        let Some(at) = lanes.index(link) else { return };
        let (text, soon) = match why {
            Down::Orderly => {
                lanes.parting = true;
                ("it has closed its endpoint".to_owned(), true)
            }
            Down::Protocol(what) => return self.gone(peer, what.clone()),
            Down::Lost(error) => {
                let by_peer = [libc::ECONNRESET, libc::ECONNABORTED, libc::EPIPE];
                let told = error.raw_os_error().is_none_or(|code| by_peer.contains(&code));
                (format!("the connection was lost: {error}"), told)
            }
        };
        let last = lanes.up.len() == 1;
        let opening =
            self.wireup.handshakes.values().any(|h| matches!(h.half, Half::Lane(_, p, _) if p == peer));
        let Some(lanes) = &self.core.peers[peer.0 as usize].lanes else { return };
        if lanes.parting {
            return self.lane_closed(peer, at, text);
        }
        let crossed = lanes.retiring.iter().any(|lane| !lane.closed);
        // a process that ends closes all its connections; one that retires a lane has another, unless this side just retired that
        let closed = matches!(why, Down::Lost(e) if e.kind() == std::io::ErrorKind::UnexpectedEof);
        if last && closed && !opening && !crossed {
            return self.gone(peer, text);
        }
        self.retire_lane(peer, at, &text);
        if let Some(lanes) = &mut self.core.peers[peer.0 as usize].lanes {
            if let Some(retiring) = lanes.retiring.last_mut() {
                retiring.closed = closed;
            }
            if let Some((until, _)) = lanes.lost.as_mut().filter(|_| !soon) {
                // the network is silent: it may take as long as any other silence
                *until = Instant::now() + self.config.peer_timeout;
            }
        }
        self.open_lanes(peer);
    }

    /// The peer closes in good order, lane by lane.
    fn lane_closed(&mut self, peer: PeerIdx, at: usize, why: String) {
        let Some(lanes) = &mut self.core.peers[peer.0 as usize].lanes else { return };
        let name = lanes.name(at, self.wireup.offer.interfaces());
        let lane = lanes.up.remove(at);
        let last = lanes.up.is_empty();
        self.event(peer, Some(name), What::LaneDown(why.clone()));
        self.forget_link(peer, lane.link);
        self.core.peers[peer.0 as usize].resume.clear();
        self.rails.close(lane.link);
        if last {
            if let Some(state) = self.wireup.peers.get_mut(&peer) {
                let _ = state.on(PeerEvent::Bye);
            }
            self.gone(peer, why);
        } else {
            self.choose_lane(peer);
        }
    }
}
