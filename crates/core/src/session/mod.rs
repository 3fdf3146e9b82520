//! One peer's session over several lanes: which of them are up and healthy, which carries what, what becomes of frames that a lane
//! did not deliver, and when and where lanes are opened again. A state machine: time, measurements, losses and the peer's words go
//! in; frames to say, links to send by, paths to open and events come out.
//!
//! A **lane** is a link of any rail with a role in the session; `L` is the driver's handle for one, so that one session may mix
//! rails. The lane that began the session is number 0. The side that opened it opens the others, one for each **path** (a transport, and
//! two interfaces that reach each other or what else its rail goes by), when there is something for them to do: a long message, many short ones, or a lane in doubt.
//!
//! A lane is reliable while it lives. Most are in order, too, so that one number says all that arrived by them: how many whole frames;
//! of one that is not, it is that and ranges ([`Acked`]). A sender's rail keeps what it sent until the peer says that it had it (GOT).
//! When a lane ends, both sides tell each other what they had (RETIRE), and what the peer has not had travels again, as it was, by the
//! others (`docs/wire-frames.md`).
//!
//! The driver gives each call what it needs of the outside: [`Traffic`], what waits to be sent to this peer and what is known of
//! its order (the protocol engine), and [`Links`], the duties of the links that the lanes stand on (the rails). Neither may
//! wait. After each call it carries out what [`Session::poll_action`] names.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | what is known of the session, how lanes come and go, what the peer says of them |
//! | `lane.rs` | one lane, and its health |
//! | `path.rs` | where a lane may be, and when opening one is worth an attempt |
//! | `open.rs` | planning paths, opening them, and what came of that |
//! | `schedule.rs` | what travels by which lane |
//! | `brisk.rs` | how little lanes are to hold where short messages are sent beside long ones |
//! | `price.rs` | whether less gets through for that |
//! | `spread.rs` | several lanes over one pair of interfaces: how many help, and which |
//! | `rivals.rs` | two transports over one pair of interfaces: which serves |
//! | `gauge.rs` | what all lanes get through, by which that is judged |
//! | `watch.rs` | the look every few milliseconds: estimates, lanes that fail, sessions that have none left |
//! | `resend.rs` | frames that ended lanes did not deliver |
//! | `words.rs` | what the two ends tell each other of their lanes |
//! | `numbers.rs` | which lane numbers are taken |
//! | `partial.rs` | payloads of which only a part came before their lane ended |
//! | `outside.rs` | what a session asks of engine and rails |
//!
//! Invariants:
//! - A frame is given to one lane at a time; it is given to another only after the peer has said, by RETIRE, that it was not had.
//! - Sequenced frames change lanes only while few of them are unseen, so that a receiver holds back a bounded number.
//! - No word waits for its own answer: control frames pass what waits for its turn, and a RETIRE that an ended lane may not have
//!   delivered is said again before anything that waits for the answer to it.
//! - Whatever the peer says or leaves unsaid, tables stay bounded: lanes by [`MAX_LANES`], ended ones, numbers and what is remembered
//!   by bounds of their own.

mod brisk;
mod gauge;
mod lane;
mod numbers;
mod open;
mod outside;
mod partial;
mod path;
mod price;
mod resend;
mod rivals;
mod schedule;
mod spread;
mod watch;
mod words;

pub use lane::{Lane, Packets, Pins, Seen, Width};
pub use open::Planner;
pub use outside::{Carrier, Links, Retired, Sent, ToPeer, Traffic};
pub use partial::Partial;
pub use path::{Over, Path, Way};
pub use resend::UnackedFrame;
pub use rivals::Serves;
pub use words::Told;

use self::brisk::Brisk;
use crate::cost::Far;
use crate::frame::{Acked, Frame};
use crate::lanes::{Estimate, MS, S};
use crate::wire::{SessionId, Transport};
use alloc::borrow::Cow;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use numbers::{Fate, Numbers};
use resend::Resend;
use rivals::Rivals;
use schedule::Fill;
use spread::Spread;
use words::Words;

/// Nanoseconds of any clock that does not jump.
pub type Time = u64;

/// The most lanes that a session has at a time.
pub const MAX_LANES: usize = 16;
/// Of so many ended lanes it is remembered how they did.
const PAST_MAX: usize = 256;
/// So many lanes may have ended without the peer's word of what it had, or without the peer's having taken this side's: whoever opens
/// more gets none.
const RETIRING_MAX: usize = 256;
/// What interfaces are thought to do that do not say: 1 Gb/s, in Mb/s.
const UNKNOWN_SPEED: u32 = 1000;
/// What breaks the protocol.
const IMPOSSIBLE: &str = "it spoke of a lane, or of frames, that never were";

/// How a session is to behave.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How long it waits for another lane when the last ended by a word of the peer's kernel, in nanoseconds.
    pub grace: Time,
    /// How long when the network is silent, in nanoseconds.
    pub patience: Time,
    /// Messages shorter than this are not divided, in bytes.
    pub stripe_min: u64,
    /// Most lanes between two interfaces; 1: never another beside one.
    pub connections: usize,
    /// Lanes between two interfaces that are always there, whatever they bring: where others share the way, each is given a share.
    pub least: usize,
    /// How long is measured at least before the next look at what gets through, in nanoseconds.
    pub slice: Time,
    /// All lanes together hold at least so much while there is more to send than they take, in bytes.
    pub fed: u64,
    /// A transport that serves in place of another between two interfaces, where that loses.
    pub stand_in: Option<Transport>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            grace: 2 * S,
            patience: 30 * S,
            stripe_min: 0,
            connections: MAX_LANES,
            least: 1,
            slice: 20 * MS,
            fed: 16 << 10,
            stand_in: None,
        }
    }
}

/// A link that has become a lane.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<L> {
    /// Its number in the session.
    pub number: u16,
    /// The driver's handle.
    pub link: L,
    /// Whose link it is.
    pub transport: Transport,
    /// Which path it takes, where this side opened it.
    pub path: Option<usize>,
    /// This side's address and the other's.
    pub ends: Option<(SocketAddr, SocketAddr)>,
    /// Round trip as far as it is known, in nanoseconds.
    pub rtt: u64,
    /// Bytes that count as delivered so far: of the handshake.
    pub delivered: u64,
    /// What the user wants to go by it.
    pub pins: Pins,
    /// Its rail delivers frames in the order in which they were given to it.
    pub in_order: bool,
}

/// How a lane's connection ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Loss {
    /// The peer said goodbye on it.
    Orderly,
    /// The peer closed it without a word.
    Closed(String),
    /// The peer's kernel cut it.
    Reset(String),
    /// The network is silent, or leads nowhere.
    Silent(String),
}

/// A lane or a path, as events name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// A lane: its number, this side's address, the other side's.
    Lane(u16, Option<(SocketAddr, SocketAddr)>),
    /// A lane that has not come to be.
    Path(Way),
}

/// Why short messages take another lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The one before has ended.
    Ended,
    /// A byte given to it arrives earlier: nanoseconds by it, and by the one before.
    Earlier {
        /// By the lane that is taken now.
        now: u64,
        /// The lane before it.
        lane: u16,
        /// By that.
        before: u64,
    },
    /// Another transport serves between its interfaces now.
    Rival {
        /// The lane before it.
        lane: u16,
        /// Why.
        why: Serves,
        /// The path's round trip, in nanoseconds.
        rtt: u64,
    },
}

/// What has happened to a lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// It can be used. Whether it is one more between interfaces that have another.
    Up {
        /// It is.
        further: bool,
    },
    /// It has ended, and why.
    Down(String),
    /// It did not come to be, and why.
    Refused(String),
    /// It ended before the peer had these frames, which are sent again.
    Resend {
        /// How many.
        frames: usize,
        /// Their bytes.
        bytes: usize,
    },
    /// Short messages take it.
    Chosen {
        /// The lane before.
        from: u16,
        /// Why.
        why: Reason,
    },
    /// It gets more through, or less, by more than a factor of two: bytes per second.
    Rate {
        /// As it was told last.
        from: u64,
        /// Now.
        to: u64,
    },
}

/// What the driver is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action<L> {
    /// A link is no lane any more: nothing that came by it counts from now on. Of a payload of which only a part came the place is
    /// kept ([`Partial`]): its frame comes again.
    Forget(L),
    /// Make a link by this path, as the lane of this number; [`Session::lane_up`] or [`Session::open_failed`] follows.
    Open {
        /// Which path.
        path: usize,
        /// The lane's number.
        number: u16,
        /// Between what, and by which transport.
        way: Way,
    },
    /// Drop what is being made by this path, and say nothing more of it.
    Abandon {
        /// Which path.
        path: usize,
    },
    /// Tell whoever wants to know.
    Event(Which, What),
    /// The session has ended: every operation with the peer comes to nothing.
    Gone {
        /// Why, as a sentence about the peer.
        why: String,
        /// Whether the peer said so itself.
        orderly: bool,
    },
}

/// A lane that has ended here, and of which the peer has not said yet what it had from it.
#[derive(Debug)]
struct Retiring<L> {
    number: u16,
    link: L,
    which: Which,
    /// The peer closed it, and no word came before.
    closed: bool,
}

/// The lanes to one peer (see the module's documentation).
#[derive(Debug)]
pub struct Session<L> {
    id: SessionId,
    config: Config,
    /// What this side needs to open lanes, if it does.
    planner: Option<Planner>,
    lanes: Vec<Lane<L>>,
    retiring: Vec<Retiring<L>>,
    /// What was learnt of lanes that have ended, by both ends: what takes their place knows it.
    past: BTreeMap<Past, Estimate>,
    /// What ended lanes did not deliver: it leaves before anything else, sequenced frames in their order.
    resend: Resend,
    /// What is to be said of lanes and has a payload: it leaves before even that.
    words: Words,
    paths: Vec<Path>,
    planned: bool,
    numbers: Numbers,
    /// Until when there must be a lane again, if there is none, and why there is none.
    lost: Option<(Time, String)>,
    /// The peer says goodbye on one lane after the other.
    parting: bool,
    /// The lane that carries sequenced frames now; those before this one may have gone, or have to go, by others.
    current: Option<L>,
    scattered: u32,
    sampled: Time,
    /// Which lane small messages took when that was told last, and when it was.
    told: Option<(u16, Time)>,
    /// Why the lane in use was chosen.
    reason: Reason,
    actions: VecDeque<Action<L>>,
    /// Room for figures, kept between calls.
    fill: Fill,
    spread: Spread,
    rivals: Rivals,
    /// Some of what was to be sent at the last look waits for room.
    waits: bool,
    brisk: Brisk,
    /// When something long was first given to a lane since the last look.
    sent_long: Option<Time>,
}

impl<L: Copy + Eq + core::fmt::Debug> Session<L> {
    /// A session without lanes; it has one as soon as [`Session::lane_up`] is called. With a planner this side opens lanes.
    pub fn new(id: SessionId, config: Config, planner: Option<Planner>) -> Self {
        Self {
            id,
            config,
            planner,
            lanes: Vec::new(),
            retiring: Vec::new(),
            past: BTreeMap::new(),
            resend: Resend::default(),
            words: Words::default(),
            paths: Vec::new(),
            planned: false,
            numbers: Numbers::default(),
            lost: None,
            parting: false,
            current: None,
            scattered: 0,
            sampled: 0,
            told: None,
            reason: Reason::Ended,
            actions: VecDeque::new(),
            fill: Fill::default(),
            spread: Spread::default(),
            rivals: Rivals::default(),
            waits: false,
            brisk: Brisk::default(),
            sent_long: None,
        }
    }

    /// The lanes that are up.
    pub fn lanes(&self) -> &[Lane<L>] {
        &self.lanes
    }

    /// The paths by which lanes may be opened, or are.
    pub fn paths(&self) -> &[Path] {
        &self.paths
    }

    /// All links, also those that have ended and are not closed.
    pub fn links(&self) -> impl Iterator<Item = L> + '_ {
        self.lanes.iter().map(|lane| lane.link).chain(self.retiring.iter().map(|lane| lane.link))
    }

    /// The lane that short messages take.
    pub fn current(&self) -> Option<L> {
        self.current
    }

    /// How far the lane in use leads; none where the user said by which lanes short and long messages go.
    pub fn reach(&self) -> Option<Far> {
        let pinned = self.lanes.iter().any(|lane| lane.pins != Pins::default());
        let estimate = &self.lanes[self.index(self.current?)?].estimate;
        let alone = self.lanes.len() == 1;
        (!pinned).then(|| Far { rtt: estimate.min_rtt(), rate: estimate.rate(), alone })
    }

    /// The number of an up lane.
    pub fn number(&self, link: L) -> Option<u16> {
        self.index(link).map(|at| self.lanes[at].number)
    }

    /// Whether more than the plainest case is at hand, which is one lane that is in order: frames go where the figures say, and as
    /// many as the peer holds back that come before their turn ([`Session::schedule`]).
    pub fn is_wide(&self) -> bool {
        let plain = matches!(&self.lanes[..], [] | [Lane { in_order: true, .. }]);
        !plain || !self.is_quiet() || self.has_words()
    }

    /// A short message was sent by the lane in use.
    pub fn sent_short(&mut self, now: Time) {
        self.brisk.sent(now);
    }

    /// A part of a long message was sent by the lane in use, which takes as much as it can.
    pub fn sent_long(&mut self, now: Time) {
        self.sent_long.get_or_insert(now);
    }

    /// Whether what waits is given to lanes by the figures ([`Session::schedule`]). Else the only lane takes as much as it can.
    pub fn schedules(&self, traffic: &impl Traffic) -> bool {
        self.is_wide() || self.is_brisk(traffic)
    }

    /// Whether lanes hold little of long messages, so that short ones do not wait: who has long ones to send is to come by often.
    pub fn holds_little(&self) -> bool {
        self.brisk.is_on()
    }

    /// Whether short messages are sent beside long ones.
    fn is_brisk(&self, traffic: &impl Traffic) -> bool {
        self.holds_little() && traffic.bulk_left() > 0
    }

    /// Whether frames may come before their turn: there has been more than the lane that began the session, or is to be another in its
    /// place, or one is not in order.
    pub fn had_several(&self) -> bool {
        self.numbers.several() || self.is_wide()
    }

    /// Whether nothing of what lanes did not deliver waits.
    pub fn is_quiet(&self) -> bool {
        self.resend.is_empty() && self.retiring.is_empty()
    }

    /// Whether the peer may open a lane of this number.
    pub fn expects(&self, session: SessionId, number: u16) -> bool {
        let fresh = self.is_free(number) && !self.has_no_room(session);
        self.id == session && self.planner.is_none() && !self.parting && fresh
    }

    /// Whether this is the session of this name, and has no room for one more lane.
    pub fn has_no_room(&self, session: SessionId) -> bool {
        let waits = self.retiring.len() >= RETIRING_MAX || self.words.0.len() >= RETIRING_MAX;
        self.id == session && (waits || self.lanes.len() >= MAX_LANES)
    }

    /// Whether this is the session of this name.
    pub fn is(&self, session: SessionId) -> bool {
        self.id == session
    }

    /// The session's name, by which the peer knows it too.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// What the driver is to do next.
    pub fn poll_action(&mut self) -> Option<Action<L>> {
        self.actions.pop_front()
    }

    fn is_free(&self, number: u16) -> bool {
        let mut taken =
            self.lanes.iter().map(|lane| lane.number).chain(self.retiring.iter().map(|lane| lane.number));
        !self.numbers.is_spent(number) && !taken.any(|other| other == number)
    }

    fn index(&self, link: L) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.link == link)
    }

    fn event(&mut self, which: Which, what: What) {
        self.actions.push_back(Action::Event(which, what));
    }

    /// A link has become a lane; there may be something to send by it.
    pub fn lane_up(
        &mut self,
        now: Time,
        arrival: Arrival<L>,
        traffic: &mut impl Traffic,
        links: &mut impl Links<L>,
    ) {
        let Arrival { number, link, transport, path, ends, rtt, delivered, pins, in_order } = arrival;
        let claimed = path.and_then(|path| self.paths.get(path)).map_or(0, |path| path.way().speed());
        let claimed = u64::from(if claimed == 0 { UNKNOWN_SPEED } else { claimed }) * 125_000;
        // what interfaces claim counts for less than what others of the same pair of hosts do
        // but for that of a rival, which is to do better
        let rivals = |lane: &&Lane<L>| {
            lane.transport != transport
                && ends.is_some()
                && lane.ips() == ends.map(|(near, far)| (near.ip(), far.ip()))
        };
        let known = self
            .lanes
            .iter()
            .filter(|lane| !rivals(lane))
            .map(|lane| &lane.estimate)
            .filter(|one| one.is_measured());
        // what is learnt of one lane between two interfaces says nothing of the next beside it
        let alone =
            !self.lanes.iter().any(|lane| past_key(lane.transport, lane.ends) == past_key(transport, ends));
        let past = self.past.get(&past_key(transport, ends)).filter(|_| alone);
        let estimate = match (past, known.max_by_key(|one| one.rate())) {
            (Some(past), _) => past.again(rtt),
            (None, Some(fastest)) => fastest.beside(claimed, rtt),
            (None, None) => Estimate::new(claimed, rtt),
        };
        let mut lane =
            Lane::new(number, link, transport, path, ends, estimate.from(now, delivered), delivered, pins);
        lane.in_order = in_order;
        (lane.stand, lane.moved) = (self.stand_of_new(now, path), now);
        lane.counted.1 = links.look(link).map_or(0, |seen| seen.received);
        let which = lane.which();
        self.lanes.push(lane);
        self.numbers.spend(number, true);
        self.lost = None;
        if let Some(path) = path.and_then(|path| self.paths.get_mut(path)) {
            path.opened(number);
        }
        self.lanes_changed(now);
        self.set_rivals();
        if let Some(losses) = self.losses_known(transport, ends) {
            links.tell_losses(link, &losses);
        }
        self.event(which, What::Up { further: !alone });
        self.choose(traffic, links);
        if number > 0 {
            traffic.tell_seen(true);
        }
    }

    /// Ends a lane here: what it brought counts, the rest has to come by another, and the peer is told so.
    fn retire(
        &mut self,
        now: Time,
        at: usize,
        why: Cow<'_, str>,
        traffic: &mut impl Traffic,
        links: &mut impl Links<L>,
    ) {
        // which path it takes has to be known as long as it is there: one that worked is tried again sooner
        self.plan(now);
        let lane = self.lanes.remove(at);
        let (number, link, which) = (lane.number, lane.link, lane.which());
        if self.past.len() >= PAST_MAX {
            self.past.clear();
        }
        let its = |other: &Lane<L>| past_key(other.transport, other.ends);
        if !self.lanes.iter().any(|other| its(other) == its(&lane)) {
            self.past.insert(its(&lane), lane.estimate);
        }
        self.retiring.push(Retiring { number, link, which, closed: false });
        // one that lost its path to another, and recovered, has it again
        let heir =
            |other: &&mut Lane<L>| other.path.is_none() && other.ends.is_some() && its(other) == its(&lane);
        match (lane.path, self.lanes.iter_mut().find(heir)) {
            (Some(path), Some(heir)) => {
                heir.path = Some(path);
                self.paths[path].opened(heir.number);
            }
            (Some(path), None) => self.path_ended(now, path),
            (None, _) => {}
        }
        self.lane_missed(now, lane.stand);
        self.lanes_changed(now);
        self.set_rivals();
        if self.lanes.is_empty() {
            self.lost = Some((now + self.config.grace.min(self.config.patience), why.clone().into_owned()));
        }
        let Retired { received, said } = links.retire(link);
        // the peer sends nothing again that it lost until it hears of that loss from us: it has to hear it by another lane
        said.iter().for_each(|word| self.say_again(word, traffic));
        self.actions.push_back(Action::Forget(link));
        self.event(which, What::Down(why.into_owned()));
        self.say_acked(Frame::Retire { lane: number, received: received.upto() }, &received, traffic);
        // what is to come again may have to wait until the peer knows this
        traffic.tell_seen(true);
        self.choose(traffic, links);
    }

    /// Tells the peer what came by a lane. What came by one that has ended it hears by RETIRE.
    pub fn tell_got(&mut self, link: L, acked: &Acked, traffic: &mut impl Traffic) {
        if let Some(lane) = self.number(link) {
            self.words.forget_got(lane);
            self.say_acked(Frame::Got { lane, received: acked.upto() }, acked, traffic);
        }
    }

    /// Whether something is to be said of lanes that only [`Session::schedule`] says.
    pub fn has_words(&self) -> bool {
        !self.words.is_empty()
    }

    /// Says GOT or RETIRE, with the ranges that there are.
    fn say_acked(&mut self, frame: Frame, acked: &Acked, traffic: &mut impl Traffic) {
        match acked.is_in_order() {
            true => traffic.say(frame),
            false => self.words.push(&frame, &acked.payload()),
        }
    }

    /// Says RETIRE once more, of which it is not known whether it was heard.
    fn say_again(&mut self, word: &UnackedFrame, traffic: &mut impl Traffic) {
        match word.frame() {
            Some(frame) if word.bytes.len() == word.header => traffic.say(frame),
            _ => self.words.0.push_back(word.clone()),
        }
    }

    /// The peer said what it had from a lane (GOT), or that it takes nothing more from it (RETIRE). There may be something to send.
    ///
    /// # Errors
    /// What of it cannot be: the peer broke the protocol.
    pub fn handle_told(
        &mut self,
        now: Time,
        told: &Told,
        traffic: &mut impl Traffic,
        links: &mut impl Links<L>,
    ) -> Result<(), &'static str> {
        let Told { number, ref acked, retired } = *told;
        let up = self.lanes.iter().position(|lane| lane.number == number);
        if !retired {
            // of a lane that ended in the meantime the last word is still to come
            return match up {
                Some(at) if !links.confirm(self.lanes[at].link, acked) => Err(IMPOSSIBLE),
                None if !self.numbers.is_spent(number) => Err(IMPOSSIBLE),
                _ => Ok(()),
            };
        }
        if let Some(at) = up {
            self.lane_refuted(now, at);
            self.retire(now, at, "the peer gave it up".into(), traffic, links);
        }
        let Some(at) = self.retiring.iter().position(|lane| lane.number == number) else {
            match self.numbers.fate(number) {
                // said again
                Some(Fate::Came | Fate::Settled) => return Ok(()),
                // the other side took a lane for open whose opening came to nothing here
                Some(Fate::Tried) if acked.end() == 0 => {}
                _ => return Err(IMPOSSIBLE),
            }
            self.abandon(now, number);
            self.numbers.settle(number);
            traffic.say(Frame::Retire { lane: number, received: 0 });
            return Ok(());
        };
        let Retiring { link, which, .. } = self.retiring.remove(at);
        let frames = links.reclaim(link, acked);
        links.close(link);
        let frames = frames.ok_or(IMPOSSIBLE)?;
        let (count, bytes) = (frames.len(), frames.iter().map(UnackedFrame::len).sum());
        self.resend.add(frames, traffic.seen());
        if count > 0 {
            self.event(which, What::Resend { frames: count, bytes });
        }
        self.choose(traffic, links);
        Ok(())
    }

    /// A lane's connection has ended by itself.
    pub fn handle_lost(
        &mut self,
        now: Time,
        link: L,
        loss: Loss,
        traffic: &mut impl Traffic,
        links: &mut impl Links<L>,
    ) {
        let Some(at) = self.index(link) else { return };
        let lost = |why: &str| format!("the connection was lost: {why}");
        let (text, soon, closed) = match &loss {
            Loss::Orderly => ("it has closed its endpoint".into(), true, false),
            Loss::Closed(why) => (lost(why), true, true),
            Loss::Reset(why) => (lost(why), true, false),
            Loss::Silent(why) => (lost(why), false, false),
        };
        self.parting |= loss == Loss::Orderly;
        if self.parting {
            return self.lane_closed(at, text, traffic, links);
        }
        let last = self.lanes.len() == 1;
        let opening = self.paths.iter().any(Path::is_opening);
        let crossed = self.retiring.iter().any(|lane| !lane.closed);
        // a process that ends closes all its connections; who gives a lane up resets it, or has another, unless this side just
        // retired that
        if last && closed && !opening && !crossed {
            self.actions.push_back(Action::Gone { why: text, orderly: false });
            return;
        }
        self.retire(now, at, text.into(), traffic, links);
        if let Some(retiring) = self.retiring.last_mut() {
            retiring.closed = closed;
        }
        if let Some((until, _)) = self.lost.as_mut().filter(|_| !soon) {
            // the network is silent: it may take as long as any other silence
            *until = now + self.config.patience;
        }
        self.open_paths(now);
    }

    /// The peer closes in good order, lane by lane.
    fn lane_closed(&mut self, at: usize, why: String, traffic: &mut impl Traffic, links: &mut impl Links<L>) {
        let lane = self.lanes.remove(at);
        self.event(lane.which(), What::Down(why.clone()));
        self.actions.push_back(Action::Forget(lane.link));
        links.close(lane.link);
        if self.lanes.is_empty() {
            self.actions.push_back(Action::Gone { why, orderly: true });
        } else {
            self.set_rivals();
            self.choose(traffic, links);
        }
    }

    /// A lane that the peer opened came to nothing on this side, though the peer has it: it will hear so.
    pub fn accept_failed(&mut self, number: u16) {
        self.numbers.spend(number, false);
    }
}

/// What a lane and the one that takes its place have in common.
type Past = (Transport, Option<IpAddr>, Option<IpAddr>);

fn past_key(transport: Transport, ends: Option<(SocketAddr, SocketAddr)>) -> Past {
    let (near, far) = ends.unzip();
    (transport, near.map(|at| at.ip()), far.map(|at| at.ip()))
}

/// A lane on which the peer's side owes an answer so long, and so many round trips, is of no use while another works.
const SILENT: (Time, u64) = (120 * MS, 3);
