//! Two transports over one pair of interfaces, of which one serves: the *usual* one, and a *stand-in*. That is for paths on which packets are lost over
//! a distance, for which the usual one slows down again and again, or very many again and again, each of which it may miss for long
//! ([`crate::control::rules`] has the limits); and for far ones where much is sent after rests, after each of which the usual one begins with little, or more would
//! be on its way than its buffers hold.
//!
//! Each side judges what it sends by. The side that opens lanes opens the stand-in's when it is wanted: when it is to serve, when so much comes
//! before its turn that the other side's packets must be lost, or when the usual transport has no lane and does not get one. Both lanes stay up
//! then, and the one that does not serve is given nothing: from one to the other nothing waits, and if the one ends the other is there.
//!
//! Nothing flutters: what serves does so for [`DWELL`] at least; a stand-in that gets less through than the usual one did is not
//! asked again for [`DISMISSED`], and twice as long each time. One that nobody used for [`UNUSED`] ends. What is lost over a near path may be the queue's of
//! whoever serves: there the usual one is tried again after [`TENURE`], and twice as long each time.

use super::lane::{Fared, Lane, Seen, Stand, Width};
use super::open::MAX_PATHS;
use super::path::{Path, Way};
use super::{Links, Reason, Session, Time};
use crate::control::losses::Losses;
use crate::control::rules::{DWELL, FAR, Limit, loss_limit};
use crate::lanes::{MS, S};
use crate::wire::Transport;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

/// How long a stand-in is not asked again that got less through, at first and at most, in nanoseconds.
const DISMISSED: (Time, Time) = (60 * S, 3600 * S);
/// Over a near path packets are lost so often that it is not one full queue.
const TIMES: u64 = 3;
/// How long a stand-in serves over a near path before the usual transport is tried again, at first and at most, in nanoseconds.
const TENURE: (Time, Time) = (60 * S, 3600 * S);
/// A stand-in that nobody used for so long ends, in nanoseconds.
const UNUSED: Time = 60 * S;
/// It has to get so much through of what the usual one did, in tenths: both are measured over moments.
const WORTH: u64 = 5;
/// Bytes of a packet, as far as what losses leave of a stream is concerned.
const PACKET: f64 = 1448.0;

/// So much, in bytes, that is sent after so long a rest, in nanoseconds, takes the usual transport a few round trips more (kernels begin with
/// ten packets, RFC 6928, again after a retransmission time-out without any, RFC 5681 4.1). Where those take so long, in nanoseconds, so many such
/// starts lately are one for the stand-in.
const START: (u64, Time) = (32 << 10, 200 * MS);
const SLOW: Time = 5 * MS;
const STARTS: Limit = Limit { enter: 2000, leave: 1000 };
/// What is longer ago than this counts half, in nanoseconds.
const LATELY: Time = 30 * S;

/// Where the usual transport's buffers are what keeps it from sending more for half of so much busy time, in nanoseconds, over a round trip
/// of [`SLOW`] and without a queue, it is narrow, as long as so many bytes are given in a round trip.
const NARROW: Time = S;
const MUCH: u64 = 512 << 10;
/// So much in a round trip, in bytes, is what buffers of kernels end at as they come: the other side may be kept from sending more.
const FULL: u64 = 2_750_000;

/// Why a transport serves between two interfaces, and not the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Serves {
    /// Packets are lost, so many of a million.
    Lossy(u32),
    /// Much is sent after rests.
    Starts,
    /// More would be on its way than the buffers of the other one hold.
    Narrow,
    /// Neither; so many of a million are lost.
    Plain(u32),
    /// More got through by it: bytes per second, and by the other.
    Faster(u64, u64),
}

/// The addresses that a pair of interfaces has.
type Ends = (IpAddr, IpAddr);

/// How often much was moved after a rest, one way.
#[derive(Clone, Copy, Debug)]
struct Starts {
    /// When something was on its way last.
    busy: Time,
    /// When that began after a rest, if it may still become a start, and how many bytes have come since.
    began: Option<(Time, u64)>,
    /// Starts, in thousandths, as of when: those long ago count little.
    count: (u64, Time),
}

impl Starts {
    fn new(now: Time) -> Self {
        Self { busy: now, began: None, count: (0, now) }
    }

    /// So many bytes were moved since the last time, the shortest round trip being this. Large messages are
    /// announced by short ones.
    fn note(&mut self, now: Time, moved: u64, rtt: Time) {
        if moved == 0 {
            return;
        }
        if now >= self.busy + START.1 {
            self.began = Some((now, 0));
        }
        self.busy = now;
        self.began = self
            .began
            .map(|(began, bytes)| (began, bytes + moved))
            .filter(|(began, _)| now <= began + 4 * rtt);
        if self.began.is_some_and(|(_, bytes)| bytes >= START.0) {
            self.began = None;
            self.count = (self.lately(now) + 1000, now);
        }
    }

    /// Starts lately, in thousandths.
    fn lately(&self, now: Time) -> u64 {
        let (count, then) = self.count;
        let ago = now.saturating_sub(then);
        // a half for each whole time, and what lies between two of them in a line
        let halves = u32::try_from(ago / LATELY).unwrap_or(u32::MAX);
        let whole = count.checked_shr(halves).unwrap_or(0);
        whole - whole / 2 * (ago % LATELY) / LATELY
    }
}

/// Whether the usual transport's buffers are too small for a path.
#[derive(Clone, Copy, Debug, Default)]
struct Narrowness {
    measured: Width,
    is_narrow: bool,
    /// What was given and came, and since when.
    given: u64,
    came: u64,
    since: Time,
    /// When much was given in a round trip, last.
    much: Option<Time>,
    theirs: bool,
}

impl Narrowness {
    fn note(&mut self, now: Time, fared: &Fared, seen: &Seen, rtt: Time) {
        if rtt < SLOW {
            return;
        }
        let queue = seen.rtt > seen.min_rtt + seen.min_rtt / 8 + MS;
        if !queue && !seen.shut {
            self.measured.busy += fared.width.busy;
            self.measured.narrow += fared.width.narrow;
        }
        if self.measured.busy >= NARROW {
            let Width { busy, narrow } = core::mem::take(&mut self.measured);
            self.is_narrow = narrow >= busy / 2;
        }
        (self.given, self.came) = (self.given + fared.given, self.came + fared.came);
        let time = now.saturating_sub(self.since);
        if time >= NARROW {
            let a_trip = |bytes: u64| u128::from(bytes) * u128::from(rtt) / u128::from(time);
            if a_trip(self.given) >= MUCH.into() {
                self.much = Some(now);
            }
            self.theirs = a_trip(self.came) >= FULL.into();
            (self.given, self.came, self.since) = (0, 0, now);
        }
    }

    /// What this side sends is more than the usual transport's buffers hold.
    fn ours(&self, now: Time) -> bool {
        self.is_narrow && self.much.is_some_and(|much| now <= much + LATELY)
    }
}

/// What is known of one pair of interfaces.
#[derive(Debug)]
struct Rivalry {
    ends: Ends,
    /// What this side's packets fare like, and, as far as it can be told, the other side's.
    ours: Losses,
    theirs: Losses,
    /// The shortest round trip, in nanoseconds; 0: unknown.
    rtt: Time,
    /// Starts after rests: of what this side sends, and of what comes.
    starts: [Starts; 2],
    narrow: Narrowness,
    why: Serves,
    /// The stand-in serves, and since when that is so, or is not.
    stands_in: bool,
    since: Time,
    /// What the usual transport got through when the stand-in took its place, in bytes per second; 0: unknown.
    before: u64,
    /// Until when the stand-in is not asked again, and for how long it will not be the next time.
    dismissed: (Time, Time),
    /// How long it serves over a near path.
    tenure: Time,
    /// The stand-in's lane.
    lane: Option<u16>,
    /// What came by the stand-in, and when that was more than before, last.
    heard: (u64, Time),
}

impl Rivalry {
    fn new(ends: Ends, now: Time) -> Self {
        let (ours, theirs) = (Losses::default(), Losses::default());
        Self {
            ends,
            ours,
            theirs,
            rtt: 0,
            starts: [Starts::new(now); 2],
            narrow: Narrowness::default(),
            why: Serves::Plain(0),
            stands_in: false,
            since: now,
            before: 0,
            dismissed: (0, DISMISSED.0),
            tenure: TENURE.0,
            lane: None,
            heard: (0, now),
        }
    }

    /// The stand-in's lane is this one: another than before has yet to show what it does.
    fn follow(&mut self, now: Time, lane: Option<u16>) {
        if lane.is_some() && core::mem::replace(&mut self.lane, lane) != lane && self.stands_in {
            self.since = now;
        }
    }

    /// Why the stand-in is to serve, if it is; it has lower limits while it does.
    fn calls_for_it(&self, now: Time) -> Option<Serves> {
        let loss = self.ours.per_million().unwrap_or(0);
        let has_served = self.is_near() && self.stands_in && now >= self.since + self.tenure;
        if self.is_lossy(&self.ours, self.stands_in) && !has_served {
            return Some(Serves::Lossy(loss));
        }
        if self.is_slow_to_start(&self.starts[0], now) {
            return Some(Serves::Starts);
        }
        self.narrow.ours(now).then_some(Serves::Narrow)
    }

    /// Whether the usual transport begins with little again and again.
    fn is_slow_to_start(&self, starts: &Starts, now: Time) -> bool {
        starts.lately(now) >= STARTS.value(self.stands_in) && self.rtt >= SLOW
    }

    /// Whether a path with such losses is one for the stand-in.
    fn is_lossy(&self, losses: &Losses, serves: bool) -> bool {
        let many = losses.per_million().is_some_and(|loss| u64::from(loss) >= loss_limit(self.rtt, serves));
        many && (!self.is_near() || losses.times() >= TIMES)
    }

    /// Whether the path is so near that losses alone do not tell what loses.
    fn is_near(&self) -> bool {
        self.rtt < FAR.enter
    }

    /// Whether there is to be a lane of the stand-in.
    fn wants_it(&self, now: Time) -> bool {
        // one loss in a train has all that follow come early, which are many where the other side sends much
        let theirs = !self.is_near() && self.is_lossy(&self.theirs, false) || self.narrow.theirs;
        self.stands_in || theirs || self.is_slow_to_start(&self.starts[1], now)
    }

    /// Whether the other one is to serve from now on; `usual` and `other` are what the lanes get through, where that was measured.
    fn judge(&mut self, now: Time, usual: Option<u64>, other: Option<u64>) -> bool {
        let called = self.calls_for_it(now);
        if !self.stands_in {
            let Some(why) = called.filter(|_| now >= self.dismissed.0) else { return false };
            // what the usual one got through before the first loss is not what it would get from now on
            let most = match why {
                // a near path's losses may have been the queue's
                Serves::Lossy(loss) if !self.is_near() => usual_rate(loss, self.rtt),
                _ => u64::MAX,
            };
            (self.before, self.why) = (usual.unwrap_or(0).min(most), why);
        } else {
            let worse = other.filter(|rate| *rate < self.before / 10 * WORTH);
            if now < self.since + DWELL || called.is_some() && worse.is_none() {
                return false;
            }
            self.why = match worse {
                Some(rate) => Serves::Faster(self.before, rate),
                None => Serves::Plain(self.ours.per_million().unwrap_or(0)),
            };
            if self.is_near() {
                // what was lost by the stand-in tells nothing of the usual one
                (self.ours, self.tenure) = (Losses::default(), TENURE.1.min(2 * self.tenure));
            }
            if worse.is_some() {
                self.dismissed = (now + self.dismissed.1, DISMISSED.1.min(2 * self.dismissed.1));
            }
        }
        (self.stands_in, self.since) = (!self.stands_in, now);
        true
    }
}

/// What a stream gets through at most that loses so many of a million packets, in bytes per second: twice what Mathis et al. say (1997).
fn usual_rate(loss: u32, rtt: Time) -> u64 {
    // hundredths of the root of losses of a million
    let root = (u64::from(loss.max(1)) * 10_000).isqrt();
    (2.44 * PACKET * 1e9 / rtt.max(1) as f64 * 100_000.0 / root as f64) as u64
}

/// What is known of all pairs of interfaces that lanes go between.
#[derive(Debug, Default)]
pub(super) struct Rivals(Vec<Rivalry>);

impl Rivals {
    fn of(&self, ends: Ends) -> Option<&Rivalry> {
        self.0.iter().find(|one| one.ends == ends)
    }

    /// How the packets of a lane fared since that was said last.
    pub fn note<L: Copy>(&mut self, lane: &mut Lane<L>, fared: &Fared, seen: &Seen, now: Time) {
        let (Some(ends), Fared { packets, given, came, .. }) = (lane.ips(), *fared) else { return };
        let at = self.0.iter().position(|one| one.ends == ends).unwrap_or(self.0.len());
        if at == MAX_PATHS || seen.min_rtt == 0 {
            return;
        }
        if at == self.0.len() {
            self.0.push(Rivalry::new(ends, now));
        }
        let one = &mut self.0[at];
        one.rtt = if one.rtt == 0 { seen.min_rtt } else { one.rtt.min(seen.min_rtt) };
        let counts = (packets.sent, packets.lost);
        // round trips of a lane that is not used say nothing of the queue of the other
        if (counts != (0, 0) || !lane.yields)
            && let Some(counts) = lane.looks[0].add(now, counts, seen.rtt, seen.min_rtt)
        {
            one.ours.count(now, counts);
        }
        one.starts[0].note(now, given, one.rtt);
        one.starts[1].note(now, came, one.rtt);
        one.narrow.note(now, fared, seen, one.rtt);
        // the other side's queues are not known; if it was one of them, the stand-in is opened in vain
        if let Some(counts) = lane.looks[1].add(now, (packets.came, packets.early), 0, 0) {
            one.theirs.count(now, counts);
        }
    }
}

impl<L: Copy + Eq + core::fmt::Debug> Session<L> {
    /// Whether this transport is one that stands in for another.
    pub(super) fn is_stand_in(&self, transport: Transport) -> bool {
        self.config.stand_in == Some(transport)
    }

    /// What the usual transport has found out of losses between these addresses, for a stand-in.
    pub(super) fn losses_known(
        &self,
        transport: Transport,
        ends: Option<(SocketAddr, SocketAddr)>,
    ) -> Option<Losses> {
        let (near, far) = ends.filter(|_| self.is_stand_in(transport))?;
        let losses = self.rivals.of((near.ip(), far.ip()))?.ours;
        losses.per_million().map(|_| losses)
    }

    /// The lane between these addresses, of the stand-in or of the usual transport.
    fn between(&self, ends: Ends, stands_in: bool) -> Option<&Lane<L>> {
        let its = |lane: &&Lane<L>| lane.ips() == Some(ends) && self.is_stand_in(lane.transport) == stands_in;
        self.lanes.iter().filter(|lane| !lane.is_leaving()).find(its)
    }

    /// Judges by which transport to send. True: that has changed.
    pub(super) fn judge_rivals(&mut self, now: Time, links: &impl Links<L>) -> bool {
        if self.config.stand_in.is_none() {
            return false;
        }
        let mut rivals = core::mem::take(&mut self.rivals);
        let rate = |lane: Option<&Lane<L>>| {
            lane.map(|lane| &lane.estimate).filter(|one| one.is_measured()).map(|one| one.rate())
        };
        let mut changed = false;
        for one in &mut rivals.0 {
            let lanes = [false, true].map(|stands_in| self.between(one.ends, stands_in));
            one.follow(now, lanes[1].map(|lane| lane.number));
            changed |= one.judge(now, rate(lanes[0]), rate(lanes[1]));
            if let ([Some(_), Some(lane)], false, true) = (lanes, one.wants_it(now), self.planner.is_some()) {
                let received = links.look(lane.link).map_or(0, |seen| seen.received);
                if received != one.heard.0 {
                    one.heard = (received, now);
                } else if now > one.since.max(one.heard.1) + UNUSED {
                    let number = lane.number;
                    let its = self.lanes.iter_mut().filter(|lane| lane.number == number);
                    its.for_each(|lane| lane.stand = Stand::Leaving(now));
                }
            }
        }
        self.rivals = rivals;
        if changed {
            self.set_rivals();
        }
        changed
    }

    /// Says of each lane whether another serves in its place.
    pub(super) fn set_rivals(&mut self) {
        if self.config.stand_in.is_none() {
            return;
        }
        for at in 0..self.lanes.len() {
            let Some(ends) = self.lanes[at].ips() else { continue };
            let mine = self.is_stand_in(self.lanes[at].transport);
            let serves = self.rivals.of(ends).is_some_and(|one| one.stands_in) == mine;
            self.lanes[at].yields = !serves && self.between(ends, !mine).is_some();
        }
    }

    /// Whether all goes by one of several lanes.
    pub(super) fn is_sole(&self) -> bool {
        self.lanes.len() > 1 && self.lanes.iter().filter(|lane| !lane.yields).count() == 1
    }

    /// Why this lane is left for its rival, if it is.
    pub(super) fn yields_to_rival(&self, number: u16) -> Option<Reason> {
        let lane = self.lanes.iter().find(|lane| lane.number == number && lane.yields)?;
        let one = self.rivals.of(lane.ips()?)?;
        Some(Reason::Rival { lane: number, why: one.why, rtt: one.rtt })
    }

    /// Whether a stand-in is to be opened that is not.
    pub(super) fn wants_stand_in(&self, now: Time) -> bool {
        let missing = |one: &Rivalry| one.wants_it(now) && self.between(one.ends, true).is_none();
        self.config.stand_in.is_some() && self.rivals.0.iter().any(missing)
    }

    /// Sees to it that there are paths for the stand-ins that are wanted, and none for others.
    pub(super) fn call_stand_ins(&mut self, now: Time) {
        let Some(transport) = self.config.stand_in else { return };
        for at in 0..self.paths.len() {
            let path = &self.paths[at];
            let Some(pair) = path.way().pair().filter(|_| !path.is_further() && !path.stands_in()) else {
                continue;
            };
            let fails = self.lost.is_some() || path.is_idle() && path.why().is_some();
            let asked = self.rivals.of((pair.near.1, pair.far.1)).is_some_and(|one| one.wants_it(now));
            let way = Way { transport, ..*path.way() };
            let its = |path: &Path| path.stands_in() && path.way().is(&way);
            match self.paths.iter().position(its) {
                Some(at) => self.paths[at].want(fails || asked),
                None if (fails || asked) && self.paths.len() < MAX_PATHS => {
                    let ends = (pair.near.1, pair.far.1);
                    self.add_stand_in(now, way, ends);
                }
                None => {}
            }
        }
    }

    /// Adds the path of a stand-in; the session may have begun by it.
    fn add_stand_in(&mut self, now: Time, way: Way, ends: Ends) {
        let mut path = Path::standing_in(way, now);
        let at = self.paths.len();
        let its = |lane: &&mut Lane<L>| {
            lane.path.is_none() && lane.transport == way.transport && lane.ips() == Some(ends)
        };
        if let Some(lane) = self.lanes.iter_mut().find(its) {
            path.opened(lane.number);
            lane.path = Some(at);
        }
        self.paths.push(path);
    }
}
