//! What a worker tells of itself: its last events, and the log.

use super::Worker;
use crate::events::{self, Figures, Kind, Level, Log, LogTo, Protocol, Record, Side, rfc3339, shortened};
use crate::list::{RailId, RailSet, Reach};
use crate::rail::control::{Cause, Change};
use crate::watched;
use polyrail_core::control::rules as suits;
use polyrail_core::cost::Explanation;
use polyrail_core::proto::{PeerIdx, Route, Scheme};
use polyrail_core::session::{self, Reason, Serves};
use polyrail_core::wire::offer::{Interface, InterfaceName};
use polyrail_core::wire::{HostId, PeerId};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;

/// Events that are kept, and how many of them may be such as come by themselves all the time.
const KEPT: usize = 64;
const KEPT_DEBUG: usize = 32;

/// One end of a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    interface: Option<InterfaceName>,
    ip: IpAddr,
    port: Option<u16>,
}

impl End {
    pub fn side(&self) -> Side {
        let address = match self.port {
            Some(port) => SocketAddr::new(self.ip, port).to_string(),
            None => self.ip.to_string(),
        };
        Side { interface: self.interface.map(|name| name.to_string()), address }
    }
}

/// Which of these interfaces an address belongs to.
pub(super) fn interface_of(all: &[Interface], ip: IpAddr) -> Option<&Interface> {
    all.iter().find(|one| one.nets.iter().any(|net| net.ip() == ip))
}

/// A connection's end at an address.
pub(super) fn end_at(all: &[Interface], at: SocketAddr) -> End {
    let interface = interface_of(all, at.ip()).map(|one| one.name);
    End { interface, ip: at.ip(), port: Some(at.port()) }
}

/// An interface by its number, and one of its addresses.
pub(super) fn numbered(all: &[Interface], (index, ip): (u32, IpAddr)) -> End {
    End { interface: all.iter().find(|one| one.index == index).map(|one| one.name), ip, port: None }
}

/// How a lane is called.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneName {
    /// None: it has not come to be.
    pub number: Option<u16>,
    pub near: Option<End>,
    pub far: Option<End>,
    /// None: it has not come to be, or has ended.
    pub rail: Option<RailId>,
    pub encrypted: bool,
}

/// What happened.
#[derive(Clone, Debug)]
pub(super) enum What {
    PeerUp {
        route: Route,
        by: RailId,
        /// Why by this rail, what was tried before it, and why messages travel as they do.
        rail: String,
        passed_over: Vec<String>,
        protocols: Option<Box<Explanation>>,
    },
    PeerGone(String),
    /// To one of its lanes.
    Lane(session::What),
    /// To the composition of one of its lanes.
    Composition(Change),
}

impl What {
    fn kind(&self) -> Kind {
        match self {
            Self::PeerUp { .. } => Kind::PeerUp,
            Self::PeerGone(_) => Kind::PeerGone,
            Self::Lane(session::What::Up { .. }) => Kind::LaneUp,
            Self::Lane(session::What::Down(_)) => Kind::LaneDown,
            Self::Lane(session::What::Refused(_)) => Kind::LaneRefused,
            Self::Lane(session::What::Resend { .. }) => Kind::LaneResend,
            Self::Lane(session::What::Chosen { .. }) => Kind::ChoiceChanged,
            Self::Lane(session::What::Rate { .. }) => Kind::EstimateChanged,
            Self::Composition(Change { refused: None, .. }) => Kind::CompositionChanged,
            Self::Composition(_) => Kind::CompositionRefused,
        }
    }

    fn describe(&self, record: &mut Record) {
        let why = match self {
            Self::PeerUp { route, by, rail, passed_over, protocols: explanation } => {
                record.rail = Some(by.name().into());
                record.protocols = protocols(route);
                let explained = explanation.as_ref().map(|found| found.to_string()).unwrap_or_default();
                let passed_over = passed_over.iter().map(String::as_str);
                // the first three lines say what and why; figures follow
                let why: Vec<&str> =
                    [&**rail].into_iter().chain(passed_over).chain(explained.lines().take(3)).collect();
                why.join("; ")
            }
            Self::PeerGone(why) => why.clone(),
            Self::Lane(what) => describe_lane(what, record),
            Self::Composition(change) => describe_change(change, record),
        };
        record.why = shortened(why);
    }
}

fn describe_lane(what: &session::What, record: &mut Record) -> String {
    let micros = |ns: u64| ns.div_ceil(1000);
    let megabytes = |rate: u64| rate as f64 / 1e6;
    match *what {
        session::What::Down(ref why) | session::What::Refused(ref why) => why.clone(),
        session::What::Up { further } => {
            let encrypted = if record.encrypted == Some(true) { "; it is encrypted" } else { "" };
            let why = match (record.lane, further) {
                (Some(0), _) => "it began the session",
                (_, true) => "one more connection between the same interfaces",
                (_, false) => "one more pair of interfaces reaches the peer",
            };
            let by = record.rail.as_ref().map(|rail| format!(", by {rail}")).unwrap_or_default();
            format!("{why}{by}{encrypted}")
        }
        session::What::Resend { frames, bytes } => {
            (record.frames, record.bytes) = (Some(frames as u64), Some(bytes as u64));
            format!("the lane ended before the peer had these {frames} frames of {bytes} bytes")
        }
        session::What::Chosen { from, why } => {
            record.from_lane = Some(from);
            match why {
                Reason::Ended => "the lane before it has ended".into(),
                Reason::Rival { lane, why, rtt } => {
                    let (rtt, told) = (micros(rtt), serves(why));
                    format!("{told}, {rtt} us there and back: its transport serves, not that of lane {lane}")
                }
                Reason::Earlier { now, lane, before } => format!(
                    "a message is delivered in {} us by it, in {} us by lane {lane}",
                    micros(now),
                    micros(before)
                ),
            }
        }
        session::What::Rate { from, to } => {
            (record.from_bytes_per_s, record.to_bytes_per_s) = (Some(from), Some(to));
            let (from, to) = (megabytes(from), megabytes(to));
            format!("by what the peer acknowledges it gets {to:.1} MB/s through, not {from:.1}")
        }
    }
}

/// Why a transport serves.
fn serves(why: Serves) -> String {
    match why {
        Serves::Lossy(loss) | Serves::Plain(loss) => format!("{loss} of a million packets are lost"),
        Serves::Narrow => "more would be on its way than the other's buffers hold".into(),
        Serves::Starts => "much is sent after rests".into(),
        Serves::Faster(this, other) => {
            format!("it got {:.1} MB/s through, and the other {:.1}", this as f64 / 1e6, other as f64 / 1e6)
        }
    }
}

fn describe_change(change: &Change, record: &mut Record) -> String {
    let Change { from, to, cause, refused } = *change;
    record.from_composition = Some(from.name().into());
    record.to_composition = Some(to.name().into());
    record.by_peer = Some(cause == Cause::Peer);
    record.figures = match cause {
        Cause::Ours(reason) => figures(reason),
        Cause::First | Cause::Peer | Cause::Restless => None,
    };
    match refused {
        None => format!("{to} in place of {from}: {cause}", to = to.name(), from = from.name()),
        Some(why) => {
            format!(
                "{to} in place of {from} ({cause}) came to nothing: {why}",
                to = to.name(),
                from = from.name()
            )
        }
    }
}

/// The figures that decided.
fn figures(reason: suits::Reason) -> Option<Figures> {
    use suits::Reason::{Asynchronous, LongFat, Lossy, Near, Pinned, Plain};
    let micros = |ns: u64| Some(ns / 1000);
    let figures = match reason {
        Pinned | Asynchronous => return None,
        Lossy { loss, limit, rtt } => Figures {
            loss_per_million: Some(loss.into()),
            loss_limit_per_million: Some(limit),
            rtt_us: micros(rtt),
            ..Figures::default()
        },
        Near { loss, rtt } => {
            Figures { loss_per_million: Some(loss.into()), rtt_us: micros(rtt), ..Figures::default() }
        }
        LongFat { bytes, limit, loss } => Figures {
            loss_per_million: Some(loss.into()),
            in_flight_bytes: Some(bytes),
            in_flight_limit_bytes: Some(limit),
            ..Figures::default()
        },
        // where packets are lost nobody knows what could be under way
        Plain { bytes, loss } => Figures {
            loss_per_million: Some(loss.into()),
            in_flight_bytes: Some(bytes).filter(|bytes| *bytes > 0),
            ..Figures::default()
        },
    };
    Some(figures)
}

/// An event, not yet in words.
struct Note {
    at: SystemTime,
    peer: PeerIdx,
    lane: Option<LaneName>,
    what: What,
}

/// A worker's last events, and its log.
pub(super) struct Notes {
    last: VecDeque<Note>,
    log: Option<Log>,
}

impl Notes {
    pub fn new(log: Option<&LogTo>) -> Self {
        Self { last: VecDeque::new(), log: log.and_then(Log::open) }
    }

    fn keep(&mut self, note: Note) {
        let is_debug = |note: &Note| note.what.kind().level() == Level::Debug;
        let many = self.last.iter().filter(|note| is_debug(note)).count() >= KEPT_DEBUG;
        let out = match (is_debug(&note) && many, self.last.len() >= KEPT) {
            (true, _) => self.last.iter().position(is_debug),
            // what matters stays longer
            (false, true) => Some(self.last.iter().position(is_debug).unwrap_or(0)),
            (false, false) => None,
        };
        out.map(|at| self.last.remove(at));
        self.last.push_back(note);
    }

    /// Whether one of them names this peer.
    pub fn name_peer(&self, peer: PeerIdx) -> bool {
        self.last.iter().any(|note| note.peer == peer)
    }
}

/// How messages travel, size by size.
pub(super) fn protocols(route: &Route) -> Vec<Protocol> {
    let (name, fragment_bytes) = match route.scheme {
        Scheme::Get => ("rget", None),
        Scheme::Put => ("rput", None),
        Scheme::Fragments => ("fragments", Some(route.fragment as u64)),
    };
    vec![
        Protocol { up_to_bytes: Some(route.eager_max as u64), name: "eager".into(), fragment_bytes: None },
        Protocol { up_to_bytes: None, name: name.into(), fragment_bytes },
    ]
}

/// An identity in short.
pub(super) fn short(id: PeerId) -> String {
    id.0.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

impl Worker {
    /// Notes that something happened to a peer, or to one of its lanes.
    pub(super) fn event(&mut self, peer: PeerIdx, lane: Option<LaneName>, what: What) {
        let note = Note { at: SystemTime::now(), peer, lane, what };
        if let Some(log) = &self.notes.log
            && note.what.kind().level() <= log.level
            && !log.write(&self.record(&note).line())
        {
            self.notes.log = None;
        }
        watched::event(|| self.record(&note).line());
        self.notes.keep(note);
    }

    /// Notes that a peer is connected, by which rail, and why so.
    pub(super) fn event_peer_up(&mut self, peer: PeerIdx, route: Route, by: RailId, host: HostId) {
        let info = &self.core.peers[peer.0 as usize];
        let rail = match (by.reach() == Reach::Host, host == self.wireup.host) {
            (true, _) => "it runs on this host".to_owned(),
            (false, false) => "it runs on another host".into(),
            (false, true) if !self.config.rails.reaches(Reach::Host) => {
                let left_out: Vec<_> = RailSet::ALL.reaching(Reach::Host).map(RailId::name).collect();
                format!("POLYRAIL_RAILS leaves {} out", left_out.join(" and "))
            }
            (false, true) => "it runs on this host, but shared memory was not to be had".into(),
        };
        let (protocols, passed_over) = (info.explanation.map(Box::new), info.passed_over.clone());
        self.event(peer, None, What::PeerUp { route, by, rail, passed_over, protocols });
    }

    /// The last events, oldest first.
    pub(super) fn events(&self) -> Vec<Record> {
        self.notes.last.iter().map(|note| self.record(note)).collect()
    }

    fn record(&self, note: &Note) -> Record {
        let info = &self.core.peers[note.peer.0 as usize];
        let sockets = info.address.iter().flat_map(|at| at.sockets().collect::<Vec<_>>());
        let end = |end: Option<End>| end.map(|end| end.side());
        let up = note.lane.filter(|_| note.what.kind() == Kind::LaneUp);
        let mut record = Record {
            v: events::VERSION,
            time: rfc3339(note.at),
            level: note.what.kind().level(),
            event: note.what.kind(),
            pid: std::process::id(),
            host: events::host_name(),
            endpoint: short(self.wireup.id),
            peer: short(info.id),
            peer_addresses: sockets.map(|at| at.to_string()).collect(),
            lane: note.lane.and_then(|lane| lane.number),
            near: end(note.lane.and_then(|lane| lane.near)),
            far: end(note.lane.and_then(|lane| lane.far)),
            rail: up.and_then(|lane| lane.rail).map(|rail| rail.name().to_owned()),
            encrypted: up.map(|lane| lane.encrypted),
            ..Record::default()
        };
        note.what.describe(&mut record);
        record
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use polyrail_core::control::Refusal;
    use polyrail_core::micro::Composition;

    fn note(at: u64, what: What) -> Note {
        let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(at);
        Note { at, peer: PeerIdx(0), lane: None, what }
    }

    #[test]
    fn what_matters_is_kept_longest() {
        let mut notes = Notes::new(None);
        let seconds = |notes: &Notes, kind: Kind| {
            let of_it = notes.last.iter().filter(|note| note.what.kind() == kind);
            of_it
                .map(|note| note.at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs())
                .collect::<Vec<_>>()
        };
        for at in 0..1000 {
            notes.keep(note(at, What::Lane(session::What::Up { further: false })));
            for _ in 0..10 {
                notes.keep(note(at, What::Lane(session::What::Rate { from: 1, to: 2 })));
            }
            if at == 20 {
                assert_eq!(seconds(&notes, Kind::LaneUp), (0..=20).collect::<Vec<_>>());
                assert_eq!(seconds(&notes, Kind::EstimateChanged).len(), KEPT_DEBUG);
            }
            assert!(notes.last.len() <= KEPT);
        }
        assert_eq!(seconds(&notes, Kind::LaneUp).last(), Some(&999));
        assert!(seconds(&notes, Kind::LaneUp).len() >= KEPT - KEPT_DEBUG);
    }

    #[test]
    fn each_event_has_its_reason() {
        let ended = session::What::Chosen { from: 2, why: Reason::Ended };
        let earlier = Reason::Earlier { now: 90_000, lane: 2, before: 2_000_100 };
        for (what, why) in [
            (session::What::Up { further: false }, "one more pair of interfaces reaches the peer"),
            (session::What::Up { further: true }, "one more connection between the same interfaces"),
            (session::What::Down("it was cut".into()), "it was cut"),
            (
                session::What::Resend { frames: 2, bytes: 100 },
                "the lane ended before the peer had these 2 frames of 100 bytes",
            ),
            (ended, "the lane before it has ended"),
            (
                session::What::Chosen { from: 2, why: earlier },
                "a message is delivered in 90 us by it, in 2001 us by lane 2",
            ),
            (
                session::What::Rate { from: 125_000_000, to: 31_250_000 },
                "by what the peer acknowledges it gets 31.2 MB/s through, not 125.0",
            ),
        ] {
            let mut record = Record { lane: Some(1), ..Record::default() };
            What::Lane(what).describe(&mut record);
            assert_eq!(record.why, why);
        }
        let (from, to) = (Composition::SyncBbr, Composition::SyncCubic);
        let changed = |cause, refused| What::Composition(Change { from, to, cause, refused });
        let few = suits::Reason::Plain { bytes: 0, loss: 40 };
        let near = suits::Reason::Near { loss: 40, rtt: 900_000 };
        for (what, why, loss) in [
            (
                changed(Cause::Ours(few), None),
                "sync-cubic in place of sync-bbr: 40 of a million packets are lost, what could be under way at a time is not known",
                Some(40),
            ),
            (
                changed(Cause::Ours(near), Some(Refusal::TimedOut)),
                "sync-cubic in place of sync-bbr (one site: round trip 900 us, 40 of a million packets are lost) came to nothing: \
                 the peer did not answer in time",
                Some(40),
            ),
            (changed(Cause::Peer, None), "sync-cubic in place of sync-bbr: the peer wanted it", None),
        ] {
            let mut record = Record::default();
            what.describe(&mut record);
            assert_eq!(record.why, why);
            let said = record.figures.and_then(|figures| figures.loss_per_million);
            assert_eq!((record.by_peer, said), (Some(loss.is_none()), loss));
        }
        let rail = Some("udp".into());
        let mut record = Record { lane: Some(0), rail, encrypted: Some(true), ..Record::default() };
        What::Lane(session::What::Up { further: false }).describe(&mut record);
        assert_eq!(record.why, "it began the session, by udp; it is encrypted");
    }
}
