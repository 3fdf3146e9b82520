//! What travels by which lane.
//!
//! Control frames and messages take the lane that delivers them first. Sequenced frames stay with one lane while many of them are
//! not yet seen by the peer, so that none arrives too far ahead of its turn. Fragments are pulled: a lane that holds less than its
//! window takes the next, as long as what suits its speed, and no more than lets all lanes end together.

use super::resend::ahead;
use super::{Carrier, Lane, Links, Reason, Sent, Session, Time, Traffic};
use crate::frame::MAX_HEADER;
use crate::lanes::{Load, MS, USUAL, fastest, next_part, preferred};
use crate::proto::{REORDER_BYTES, REORDER_WINDOW};
use alloc::vec::Vec;

/// Sequenced frames may change lanes while so many are not yet seen.
const MAY_CHANGE: u32 = REORDER_WINDOW / 2;
/// So many may be unseen in all, if they have gone by several lanes: what the receiver holds back is bounded.
const MAY_WAIT: u32 = REORDER_WINDOW / 8 * 7;
/// So much may go by the lane last chosen before the choice is made anew, in bytes; and where there is but one, so that it is known
/// whether anything does.
const BUDGET: u32 = 16 << 10;
const PLENTY: u32 = 1 << 30;
/// How often estimates are brought up to date while something is sent.
const SAMPLE: Time = 2 * MS;
/// A long put is no stream, and is divided as if it were so long, in bytes.
const PUT: u64 = 1 << 20;

/// How full the lanes are.
#[derive(Debug, Default)]
pub(super) struct Fill {
    loads: Vec<Load>,
    full: Vec<bool>,
    /// The lanes as some frames see them: those that may not have them get nothing through.
    part: Vec<Load>,
}

impl Fill {
    /// Notes the lanes as they were at the last look.
    pub fn note<L: Copy>(&mut self, lanes: &[Lane<L>]) {
        self.part.clear();
        self.part.extend(lanes.iter().map(|lane| lane.load(lane.queued)));
    }

    pub fn noted(&self) -> &[Load] {
        &self.part
    }

    fn sent(&mut self, at: usize, len: usize) {
        self.loads[at].queued += (len + MAX_HEADER) as u64;
    }
}

/// What became of a frame that was to leave.
enum Given {
    Away,
    /// The lane is full.
    Full,
    /// Too many before it are not yet seen.
    TooEarly,
    /// There is another in its place.
    Otherwise,
}

impl<L: Copy + Eq + core::fmt::Debug> Session<L> {
    /// Whether one more sequenced frame may go by the lane in use without coming too far ahead of its turn.
    fn in_order(&self, traffic: &impl Traffic) -> bool {
        let unseen = traffic.unseen();
        if unseen < MAY_WAIT && traffic.unseen_bytes() < REORDER_BYTES {
            return true;
        }
        // else all that is not seen must have gone by this lane, and nothing overtake anything there
        let overtakes = self.lanes.iter().any(|lane| Some(lane.link) == self.current && !lane.in_order);
        !overtakes && traffic.next_seq().wrapping_sub(self.scattered) >= unseen
    }

    /// Bytes of short messages that may go by the lane in use before that is thought over. None of them while long ones wait besides.
    pub fn budget(&self, traffic: &impl Traffic) -> u32 {
        match self.takes_short(traffic) && !self.is_brisk(traffic) {
            true if self.is_wide() => BUDGET,
            true => PLENTY,
            false => 0,
        }
    }

    /// Whether one more short message may go by the lane in use, that being thought over.
    pub fn takes_short(&self, traffic: &impl Traffic) -> bool {
        !self.is_wide() || self.in_order(traffic)
    }

    /// How many nanoseconds later than by another lane short messages may arrive before they leave the one in use; none if they may not.
    fn leaves(&self, free: bool, traffic: &impl Traffic) -> Option<Time> {
        free.then(|| if self.is_brisk(traffic) { 0 } else { USUAL })
    }

    fn take_fill(&mut self, links: &impl Links<L>) -> Fill {
        let mut fill = core::mem::take(&mut self.fill);
        fill.loads.clear();
        let waited = core::mem::take(&mut self.waits);
        fill.loads.extend(self.lanes.iter_mut().map(|lane| {
            let queued = links.queued(lane.link);
            if queued == 0 && waited {
                lane.estimate.ran_dry(links.given(lane.link));
            }
            let mut load = lane.load(queued);
            if lane.yields {
                load.rate = 0;
            }
            load
        }));
        fill.full.clear();
        fill.full.resize(self.lanes.len(), false);
        fill
    }

    /// The lanes as short messages see them: those that rest, or that the user does not mean for them, get nothing through, unless no
    /// other is up.
    fn for_short(&self, fill: &mut Fill) {
        let pinned = self.lanes.iter().any(|lane| lane.takes_short());
        fill.part.clear();
        fill.part.extend_from_slice(&fill.loads);
        for (load, lane) in fill.part.iter_mut().zip(&self.lanes) {
            if pinned && !lane.takes_short() {
                load.rate = 0;
            }
        }
    }

    /// The lanes as the parts of long messages see them, of which `left` bytes are to be sent. Who is not asked has no part: the
    /// others would wait for it.
    fn for_long(&self, fill: &mut Fill, left: u64) {
        let pinned = self.lanes.iter().any(|lane| lane.takes_long());
        fill.part.clear();
        fill.part.extend_from_slice(&fill.loads);
        for (load, lane) in fill.part.iter_mut().zip(&self.lanes) {
            if pinned && !lane.takes_long() {
                load.rate = 0;
            }
        }
        if left < self.config.stripe_min
            && let Some(only) = fastest(&fill.part, left)
        {
            let others = fill.part.iter_mut().enumerate().filter(|(at, _)| *at != only);
            others.for_each(|(_, load)| load.rate = 0);
        }
    }

    /// Chooses anew by which lane short messages go.
    pub fn choose(&mut self, traffic: &impl Traffic, links: &impl Links<L>) {
        let mut fill = core::mem::take(&mut self.fill);
        fill.loads.clear();
        let link = match self.lanes.len() {
            0 => None,
            1 => Some(self.lanes[0].link),
            _ => {
                self.fill = fill;
                fill = self.take_fill(links);
                self.for_short(&mut fill);
                let free = traffic.unseen() < MAY_CHANGE && self.resend.is_empty();
                let stays = self.current.and_then(|link| self.index(link));
                preferred(&fill.part, stays, self.leaves(free, traffic), 0).map(|at| self.lanes[at].link)
            }
        };
        if self.current != link || !self.is_quiet() {
            self.scattered = traffic.next_seq();
        }
        self.take_lane(link, &fill.loads, 0);
        self.fill = fill;
    }

    /// Sequenced frames go by this lane from now on; the figures are those by which it was chosen for a frame of so many bytes.
    fn take_lane(&mut self, link: Option<L>, loads: &[Load], len: usize) {
        let before = core::mem::replace(&mut self.current, link);
        if before == link {
            return;
        }
        let arrival = |link: Option<L>| {
            let at = self.index(link?)?;
            Some((self.lanes[at].number, loads.get(at)?.arrival(len as u64)))
        };
        self.reason = match (arrival(link), arrival(before)) {
            (Some((_, now)), Some((lane, before))) => {
                self.yields_to_rival(lane).unwrap_or(Reason::Earlier { now, lane, before })
            }
            _ => Reason::Ended,
        };
    }

    /// Gives the lanes what waits for the peer. True: some of it waits for room.
    pub fn schedule<T: Traffic>(
        &mut self,
        now: Time,
        traffic: &mut T,
        carrier: &mut impl Carrier<L, T>,
    ) -> bool {
        if self.resend.is_empty() && self.words.is_empty() && traffic.waiting() == 0 {
            return false;
        }
        self.brisk.tick(now);
        if self.is_brisk(traffic) {
            let least = self.lanes.iter().map(|lane| lane.estimate.lasts()).min();
            self.brisk.look(now, least.unwrap_or(0));
        } else {
            self.brisk.rests();
        }
        self.hold_ahead(traffic);
        if now >= self.sampled + SAMPLE {
            self.sample(now, carrier);
        }
        let mut fill = self.take_fill(carrier);
        let said = self.send_words(carrier, &mut fill);
        // answers go past what has to wait for its turn: it may be one of them that the peer waits for
        let turn = self.send_again(traffic, carrier, &mut fill);
        let left = traffic.bulk_left();
        let waits = !self.send_frames(traffic, carrier, &mut fill, turn)
            || !self.send_bulk(traffic, carrier, &mut fill);
        self.fill = fill;
        if traffic.bulk_left() < left {
            self.sent_long(now);
        }
        self.waits = waits;
        self.brisk.end_look(now, waits && self.is_brisk(traffic));
        waits || !said
    }

    /// What was given to lanes is on its way only now. Else the time that sending took would count as one in which nobody looked.
    pub fn scheduled(&mut self, now: Time) {
        self.brisk.looked_until(now);
    }

    /// Has the lanes hold as much as is now good.
    pub(super) fn hold_ahead(&mut self, traffic: &impl Traffic) {
        let ahead = self.brisk.ahead().filter(|_| self.is_brisk(traffic));
        self.lanes.iter_mut().for_each(|lane| lane.estimate.hold(ahead));
    }

    /// Words about lanes. False: some of it waits.
    fn send_words<T: Traffic>(&mut self, carrier: &mut impl Carrier<L, T>, fill: &mut Fill) -> bool {
        while let Some(word) = self.words.0.front() {
            let Some(at) = fastest(&fill.loads, 0) else { return false };
            if !carrier.send_again(self.lanes[at].link, word) {
                return false;
            }
            fill.sent(at, word.len());
            self.words.0.pop_front();
        }
        true
    }

    /// What lanes that ended did not deliver. False: some of it waits.
    fn send_again<T: Traffic>(
        &mut self,
        traffic: &T,
        carrier: &mut impl Carrier<L, T>,
        fill: &mut Fill,
    ) -> bool {
        while let Some(unacked) = self.resend.free.front() {
            let Some(at) = fastest(&fill.loads, 0) else { return false };
            if !carrier.send_again(self.lanes[at].link, unacked) {
                return false;
            }
            fill.sent(at, unacked.len());
            self.resend.free.pop_front();
        }
        while let Some((seq, unacked)) = self.resend.sequenced.front() {
            if ahead(*seq, traffic.seen()) >= MAY_WAIT.cast_signed() {
                return false;
            }
            let stays = self.current.and_then(|link| self.index(link));
            let Some(at) = stays.or_else(|| fastest(&fill.loads, 0)) else { return false };
            let (link, len) = (self.lanes[at].link, unacked.len());
            if !carrier.send_again(link, unacked) {
                return false;
            }
            self.resend.sequenced.pop_front();
            self.take_lane(Some(link), &fill.loads, len);
            self.scattered = traffic.next_seq();
            fill.sent(at, len);
        }
        true
    }

    /// Gives a frame to a lane.
    fn give<T: Traffic>(
        &mut self,
        at: usize,
        next: &T::Next,
        traffic: &mut T,
        carrier: &mut impl Carrier<L, T>,
    ) -> Given {
        let sequenced = T::is_sequenced(next);
        if sequenced && !self.in_order(traffic) {
            return Given::TooEarly;
        }
        let link = self.lanes[at].link;
        match carrier.send(link, next, traffic) {
            sent @ (Sent::Away | Sent::Lent | Sent::Taken) => {
                match sent {
                    Sent::Lent => traffic.lent(next),
                    Sent::Taken => traffic.taken(next),
                    _ => traffic.transmitted(next),
                }
                if sequenced && self.current != Some(link) {
                    self.scattered = traffic.next_seq();
                }
                Given::Away
            }
            Sent::Full => Given::Full,
            Sent::Unlisted => {
                traffic.unlisted(next);
                Given::Otherwise
            }
        }
    }

    /// Control frames and, if they have their turn, messages. False: some wait for room.
    fn send_frames<T: Traffic>(
        &mut self,
        traffic: &mut T,
        carrier: &mut impl Carrier<L, T>,
        fill: &mut Fill,
        turn: bool,
    ) -> bool {
        let alone = self.is_sole() && !self.is_brisk(traffic);
        loop {
            let Some(next) = traffic.poll_transmit(0) else { return turn };
            let (len, sequenced) = (T::payload_len(&next), T::is_sequenced(&next));
            if sequenced && !turn {
                return false;
            }
            let free = !sequenced || traffic.unseen() < MAY_CHANGE;
            self.for_short(fill);
            let stays = self.current.and_then(|link| self.index(link));
            let Some(at) = preferred(&fill.part, stays, self.leaves(free, traffic), len as u64) else {
                return false;
            };
            // what is not urgent is not queued where it may have to wait for long
            if len > 0 && !alone && fill.loads[at].queued > self.lanes[at].estimate.window() {
                return false;
            }
            match self.give(at, &next, traffic, carrier) {
                Given::Away if sequenced => self.take_lane(Some(self.lanes[at].link), &fill.loads, len),
                Given::Away => {}
                Given::Otherwise => continue,
                Given::Full | Given::TooEarly => return false,
            }
            fill.sent(at, len);
        }
    }

    /// Long messages. False: some wait for room.
    fn send_bulk<T: Traffic>(
        &mut self,
        traffic: &mut T,
        carrier: &mut impl Carrier<L, T>,
        fill: &mut Fill,
    ) -> bool {
        // there is nothing to divide, and the lane knows best how much it takes
        let alone = self.is_sole() && !self.is_brisk(traffic);
        while traffic.waiting() > 0 {
            let left = match traffic.bulk_left() {
                0 => PUT,
                left => left,
            };
            self.for_long(fill, left);
            let room = |at: usize| {
                let lane = &self.lanes[at];
                let takes = fill.part[at].rate > 0 && !fill.full[at] && carrier.wants_more(lane.link);
                match takes {
                    true if alone => u64::MAX,
                    true => lane.estimate.room(fill.loads[at].queued),
                    false => 0,
                }
            };
            let Some((at, slice)) = next_part(&fill.part, left, room) else { return false };
            let Some(next) = traffic.poll_transmit(slice as usize) else { return true };
            match self.give(at, &next, traffic, carrier) {
                Given::Away => fill.sent(at, T::payload_len(&next)),
                Given::Otherwise => {}
                Given::Full => fill.full[at] = true,
                // a part of a long put
                Given::TooEarly => return false,
            }
        }
        true
    }
}
