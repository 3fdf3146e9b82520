//! What travels by which lane.
//!
//! Control frames and messages take the lane that delivers them first. Sequenced frames stay with one lane while many of them are
//! not yet seen by the peer, so that none arrives too far ahead of its turn. Fragments are pulled: a lane that holds less than its
//! window takes the next, as long as what suits its speed, and no more than lets all lanes end together.

use super::watch::HICCUP;
use super::{Lane, Lanes, Worker, ahead};
use crate::rail::set::{NO_LINK, RailLink};
use crate::rail::{Full, RawIov, UnackedFrame};
use polyrail_core::frame::MAX_HEADER;
use polyrail_core::lanes::{Load, fastest, is_late, next_part, preferred};
use polyrail_core::proto::{Next, PeerIdx, REORDER_BYTES, REORDER_WINDOW};
use std::borrow::Cow;
use std::time::{Duration, Instant};

/// Sequenced frames may change lanes while so many are not yet seen.
const MAY_CHANGE: u32 = REORDER_WINDOW / 2;
/// So many may be unseen in all, if they have gone by several lanes: what the receiver holds back is bounded.
const MAY_WAIT: u32 = REORDER_WINDOW / 8 * 7;
/// So much may go by the lane last chosen before the choice is made anew, in bytes.
const BUDGET: usize = 16 << 10;
/// How often estimates are brought up to date while something is sent.
const SAMPLE: Duration = Duration::from_millis(2);

/// The lanes as short messages see them: those that the user does not mean for them get nothing through, unless no other is up.
fn for_short<'a>(loads: &'a [Load], lanes: &[Lane]) -> Cow<'a, [Load]> {
    if lanes.iter().all(|lane| lane.short) || lanes.iter().all(|lane| !lane.short) {
        return Cow::Borrowed(loads);
    }
    let seen = |(load, lane): (&Load, &Lane)| if lane.short { *load } else { Load { rate: 0, ..*load } };
    loads.iter().zip(lanes).map(seen).collect()
}

/// How full the lanes are.
struct Fill {
    loads: Vec<Load>,
    full: Vec<bool>,
}

/// What became of a frame that was to leave.
enum Carried {
    Away,
    /// The lane is full.
    Full,
    /// Too many before it are not yet seen.
    TooEarly,
    /// The engine has another in its place.
    Otherwise,
}

impl Fill {
    fn sent(&mut self, at: usize, len: usize) {
        self.loads[at].queued += (len + MAX_HEADER) as u64;
    }
}

impl Worker {
    /// Whether one more sequenced frame may go by the lane in use without coming too far ahead of its turn.
    fn in_order(&self, peer: PeerIdx, lanes: &Lanes) -> bool {
        let unseen = self.core.engine.unseen(peer);
        // all that is not seen went by this lane
        let alone = self.core.engine.next_seq(peer).wrapping_sub(lanes.scattered) >= unseen;
        unseen < MAY_WAIT && self.core.engine.unseen_bytes(peer) < REORDER_BYTES || alone
    }

    /// What may go by the lane in use before that is thought over.
    fn budget(&self, peer: PeerIdx, lanes: &Lanes) -> u32 {
        match (lanes.is_wide(), self.in_order(peer, lanes)) {
            (false, _) => u32::MAX,
            (true, true) => BUDGET as u32,
            (true, false) => 0,
        }
    }

    fn fill(&self, lanes: &Lanes) -> Fill {
        let loads = lanes.up.iter().map(|lane| lane.load(self.rails.queued(lane.link))).collect();
        Fill { loads, full: vec![false; lanes.up.len()] }
    }

    /// Chooses anew by which lane small messages go.
    pub(in super::super) fn choose_lane(&mut self, peer: PeerIdx) {
        let Some(mut lanes) = self.core.peers[peer.0 as usize].lanes.take() else { return };
        let lane = match &lanes.up[..] {
            [] => None,
            [only] => Some((only.link, Vec::new())),
            several => {
                let free = self.core.engine.unseen(peer) < MAY_CHANGE && lanes.resend.is_empty();
                let stays = lanes.index(lanes.current);
                let loads = self.fill(&lanes).loads;
                preferred(&for_short(&loads, several), stays, free, 0).map(|at| (several[at].link, loads))
            }
        };
        let (link, loads) = lane.unwrap_or((NO_LINK, Vec::new()));
        if lanes.current != link || !lanes.is_quiet() {
            lanes.scattered = self.core.engine.next_seq(peer);
        }
        lanes.choose(link, &loads, 0);
        self.put_back(peer, lanes);
    }

    /// Notes by which lane short messages go, and how much may before that is thought over.
    fn put_back(&mut self, peer: PeerIdx, lanes: Box<Lanes>) {
        let budget = self.budget(peer, &lanes);
        let info = &mut self.core.peers[peer.0 as usize];
        if budget != u32::MAX && info.budget == u32::MAX && !self.wide.contains(&peer) {
            self.wide.push(peer);
        }
        info.budget = budget;
        info.lane = lanes.index(lanes.current).map(|_| lanes.current);
        info.lanes = Some(lanes);
    }

    /// Gives the lanes of a peer what waits for it.
    pub(in super::super) fn carry(&mut self, peer: PeerIdx) {
        let Some(mut lanes) = self.core.peers[peer.0 as usize].lanes.take() else { return };
        if lanes.sampled.elapsed() >= SAMPLE {
            self.sample(&mut lanes);
        }
        let mut fill = self.fill(&lanes);
        // answers go past what has to wait for its turn: it may be one of them that the peer waits for
        let again = self.carry_parcels(peer, &mut lanes, &mut fill);
        let waits = !self.carry_frames(peer, &mut lanes, &mut fill, again)
            || !self.carry_bulk(peer, &mut lanes, &mut fill);
        self.put_back(peer, lanes);
        if waits {
            self.wait_for_room(peer);
        }
    }

    /// What lanes that ended did not deliver. False: some of it waits.
    fn carry_parcels(&mut self, peer: PeerIdx, lanes: &mut Lanes, fill: &mut Fill) -> bool {
        while let Some(parcel) = lanes.resend.free.front() {
            let Some(at) = fastest(&fill.loads, 0) else { return false };
            let Some(len) = self.carry_parcel(parcel, lanes.up[at].link) else { return false };
            fill.sent(at, len);
            lanes.resend.free.pop_front();
        }
        while let Some((seq, parcel)) = lanes.resend.sequenced.front() {
            if ahead(*seq, self.core.engine.seen(peer)) >= MAY_WAIT.cast_signed() {
                return false;
            }
            let Some(at) = lanes.index(lanes.current).or_else(|| fastest(&fill.loads, 0)) else {
                return false;
            };
            let link = lanes.up[at].link;
            let Some(len) = self.carry_parcel(parcel, link) else { return false };
            lanes.choose(link, &fill.loads, len);
            lanes.scattered = self.core.engine.next_seq(peer);
            fill.sent(at, len);
            lanes.resend.sequenced.pop_front();
        }
        true
    }

    /// Sends a frame again, as it was: how many bytes its payload has. None: the lane is full.
    fn carry_parcel(&mut self, parcel: &UnackedFrame, link: RailLink) -> Option<usize> {
        let (header, copied) = parcel.bytes.split_at(parcel.header);
        let mut iov = Vec::new();
        let len = match parcel.span {
            Some(span) => {
                if !crate::rail::Memory::resolve(&self.core.bufs, span, &mut iov) {
                    // its operation has ended: nobody reads this
                    iov.push(RawIov { base: self.zeros.as_ptr().cast_mut(), len: span.len });
                }
                span.len
            }
            None => {
                iov.push(RawIov { base: copied.as_ptr().cast_mut(), len: copied.len() });
                copied.len()
            }
        };
        // SAFETY: the parcel's bytes, memory of a live operation, or this worker's zeros.
        unsafe { self.rails.send(link, header, &iov, parcel.span) }.ok()?;
        Some(len)
    }

    /// Gives a frame to a lane.
    fn carry_frame(&mut self, peer: PeerIdx, lanes: &mut Lanes, link: RailLink, next: &Next) -> Carried {
        let sequenced = next.frame.order().is_some();
        if sequenced && !self.in_order(peer, lanes) {
            return Carried::TooEarly;
        }
        match self.transmit(link, next) {
            Some(Ok(())) => {
                self.core.engine.transmitted(peer, next);
                if sequenced && lanes.current != link {
                    lanes.scattered = self.core.engine.next_seq(peer);
                }
                Carried::Away
            }
            Some(Err(Full)) => Carried::Full,
            None => {
                self.core.engine.unlisted(peer, next);
                Carried::Otherwise
            }
        }
    }

    /// Control frames and, if they have their turn, messages. False: some wait for room.
    fn carry_frames(&mut self, peer: PeerIdx, lanes: &mut Lanes, fill: &mut Fill, turn: bool) -> bool {
        loop {
            let Some(next) = self.core.engine.poll_transmit(peer, 0) else { return turn };
            let len = next.payload_len();
            let sequenced = next.frame.order().is_some();
            if sequenced && !turn {
                return false;
            }
            let free = !sequenced || self.core.engine.unseen(peer) < MAY_CHANGE;
            let loads = for_short(&fill.loads, &lanes.up);
            let Some(at) = preferred(&loads, lanes.index(lanes.current), free, len as u64) else {
                return false;
            };
            // what is not urgent is not queued where it may have to wait for long
            if len > 0 && fill.loads[at].queued > lanes.up[at].estimate.window() {
                return false;
            }
            match self.carry_frame(peer, lanes, lanes.up[at].link, &next) {
                Carried::Away if sequenced => lanes.choose(lanes.up[at].link, &fill.loads, len),
                Carried::Away => {}
                Carried::Otherwise => continue,
                Carried::Full | Carried::TooEarly => return false,
            }
            fill.sent(at, len);
        }
    }

    /// Long messages. False: some wait for room.
    fn carry_bulk(&mut self, peer: PeerIdx, lanes: &mut Lanes, fill: &mut Fill) -> bool {
        while self.core.engine.queued(peer) > 0 {
            // a long put is no stream, and is divided as if it were so long
            let left = match self.core.engine.bulk_left(peer) {
                0 => 1 << 20,
                left => left,
            };
            let meant = lanes.up.iter().any(|lane| lane.long);
            // who is not asked has no part: the others would wait for it
            let mut loads = fill.loads.clone();
            for (load, lane) in loads.iter_mut().zip(&lanes.up) {
                load.rate = if lane.long || !meant { load.rate } else { 0 };
            }
            if left < self.config.stripe_min as u64
                && let Some(only) = fastest(&loads, left)
            {
                loads
                    .iter_mut()
                    .enumerate()
                    .filter(|(at, _)| *at != only)
                    .for_each(|(_, load)| load.rate = 0);
            }
            let room = |at: usize| {
                let lane = &lanes.up[at];
                let takes = loads[at].rate > 0 && !fill.full[at] && self.rails.wants_more(lane.link);
                if takes { lane.estimate.room(fill.loads[at].queued) } else { 0 }
            };
            let Some((at, slice)) = next_part(&loads, left, room) else { return false };
            let Some(next) = self.core.engine.poll_transmit(peer, slice as usize) else { return true };
            match self.carry_frame(peer, lanes, lanes.up[at].link, &next) {
                Carried::Away => fill.sent(at, next.payload_len()),
                Carried::Otherwise => {}
                Carried::Full => fill.full[at] = true,
                // a part of a long put
                Carried::TooEarly => return false,
            }
        }
        true
    }

    /// Brings the estimates up to date.
    pub(super) fn sample(&mut self, lanes: &mut Lanes) {
        let now = Instant::now();
        lanes.sampled = now;
        let clock = now.duration_since(self.began).as_nanos() as u64;
        for lane in &mut lanes.up {
            let Some(info) = self.rails.sample(lane.link) else { continue };
            lane.observe(now, clock, &info);
        }
        let loads: Vec<_> = lanes.up.iter().map(|lane| lane.estimate.load(lane.queued)).collect();
        for (at, lane) in lanes.up.iter_mut().enumerate() {
            let moves = !lane.shut && lane.stalled.is_none_or(|since| now - since < HICCUP);
            lane.late = (moves && is_late(&loads, at)).then(|| lane.late.unwrap_or(now));
        }
    }
}
