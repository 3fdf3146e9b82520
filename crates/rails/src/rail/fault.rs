//! A rail that wraps another and pretends what networks and peers do to it: no room, frames that come late or in parts, links that
//! end. What happens follows from a seed alone: no clock, no privilege.
//!
//! Each rail of the set stands in one of these. Without a plan it passes everything on.

mod hold;

use self::hold::{Held, Holding};
use super::control::{Change, Control};
use super::direct::{Direct, DirectError, Transfer};
use super::{Ack, Caps, Full, LaneRail, LinkId, LinkStats, Memory, Rail, RawIov, Sink, Span, UnackedFrame};
use crate::config::{Config, Faults};
use polyrail_core::control::losses::Losses;
use polyrail_core::frame::{Acked, Frame, OpId, PlainEager};
use polyrail_core::proto::PeerIdx;
use polyrail_core::sim::Rng;
use polyrail_core::values::Scheme;
use polyrail_core::wire::PeerId;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::time::Instant;

/// Of so many frames to a link, one finds it full, and so do some after it.
const FULL_ONE_IN: u64 = 6;
const FULL_FOR: u64 = 4;
/// A frame waits for less than so many rounds; most do not.
const LATE: u64 = 4;
/// A link ends before so many frames were given to it.
const LAST: u64 = 400;

/// What is pretended of one link.
#[derive(Default)]
struct Pretended {
    /// So many more attempts to send find it full.
    full: u64,
    /// Frames that were given to it, and after which it ends.
    sent: u64,
    last: u64,
    /// Frames that have come and are not told yet.
    held: VecDeque<Held>,
    /// The first of them is told in parts: where its payload goes, and how much of it is there.
    begun: Option<(Span, usize)>,
}

/// A plan for all links of a rail.
struct Plan {
    faults: Faults,
    rng: Rng,
    /// A link that is to end is still to come.
    lane: bool,
    links: HashMap<LinkId, Pretended>,
}

impl Plan {
    fn link(&mut self, link: LinkId) -> &mut Pretended {
        let (rng, end, lane) = (&mut self.rng, self.faults.end, &mut self.lane);
        self.links.entry(link).or_insert_with(|| {
            let last = if std::mem::take(lane) || end { 1 + rng.below(LAST) } else { u64::MAX };
            Pretended { last, ..Pretended::default() }
        })
    }

    /// Whether the link is to seem full. A goodbye has no other try.
    fn is_full(&mut self, link: LinkId, header: &[u8]) -> bool {
        if !self.faults.full || Frame::parse(header).is_ok_and(|(frame, _)| frame == Frame::Bye) {
            return false;
        }
        let drawn = self.rng.below(FULL_ONE_IN * FULL_FOR);
        let pretended = self.link(link);
        if pretended.full == 0 && drawn < FULL_FOR {
            pretended.full = 1 + drawn;
        } else {
            pretended.full = pretended.full.saturating_sub(1);
        }
        pretended.full > 0
    }

    /// One more frame is given to a link: whether it ends with that.
    fn ends(&mut self, link: LinkId) -> bool {
        let pretended = self.link(link);
        pretended.sent += 1;
        pretended.sent == pretended.last
    }

    /// Frames that have come by a link and were not told.
    fn untold(&self, link: LinkId) -> u64 {
        self.links.get(&link).map_or(0, |pretended| pretended.held.len() as u64)
    }

    fn holds(&self) -> bool {
        self.links.values().any(|pretended| !pretended.held.is_empty())
    }
}

/// A rail, and what is pretended of it.
pub struct Fault<R> {
    /// The rail itself.
    pub rail: R,
    plan: Option<Box<Plan>>,
}

impl<R: Rail> Fault<R> {
    /// Wraps a rail; without faults it is as before.
    pub fn new(rail: R, faults: Option<Faults>) -> Self {
        let plan = |faults: Faults| {
            let salt = R::CAPS.id.name().bytes().fold(0, |sum: u64, byte| sum * 31 + u64::from(byte));
            let (rng, lane) = (Rng::new(faults.seed ^ salt), faults.lane && R::CAPS.has_lanes());
            Box::new(Plan { faults, rng, lane, links: HashMap::new() })
        };
        Self { rail, plan: faults.map(plan) }
    }

    /// Whether a frame finds no room, as the plan has it.
    #[cold]
    #[inline(never)]
    fn refuses(&mut self, link: LinkId, header: &[u8]) -> bool {
        let Some(plan) = &mut self.plan else { return false };
        if plan.is_full(link, header) {
            return true;
        }
        match (plan.ends(link), plan.faults.end) {
            (true, true) => self.rail.cut(link),
            (true, false) => self.rail.reset(link),
            (false, _) => {}
        }
        false
    }

    #[cold]
    #[inline(never)]
    fn progress_late<S: Sink + ?Sized>(&mut self, sink: &mut S) -> usize {
        let Some(plan) = &mut self.plan else { return 0 };
        let came = self.rail.progress(&mut Holding { sink: &mut *sink, plan, passes: !R::CAPS.in_order });
        let told = plan.tell(sink);
        // who waits for what is held is to come again
        came.max(told).max(usize::from(plan.holds()))
    }
}

impl<R: Rail> Direct for Fault<R> {
    fn start(&mut self, transfer: Transfer) -> Result<(), Transfer> {
        self.rail.start(transfer)
    }

    fn poll<M: Memory + ?Sized>(
        &mut self,
        mem: &M,
        budget: &mut usize,
    ) -> Option<(Transfer, Result<(), DirectError>)> {
        self.rail.poll(mem, budget)
    }

    fn transfers(&self) -> usize {
        self.rail.transfers()
    }
}

/// What came, but for the last frames, which are held: of a rail that is not in order none are.
fn but_for(received: Acked, held: u64) -> Acked {
    if held == 0 { received } else { received.without_last(held) }
}

impl<R: Rail> LaneRail for Fault<R> {
    fn reset(&mut self, link: LinkId) {
        self.rail.reset(link);
    }

    fn sample(&self, link: LinkId) -> Option<LinkStats> {
        self.rail.sample(link)
    }

    fn ends(&self, link: LinkId) -> Option<(SocketAddr, SocketAddr)> {
        self.rail.ends(link)
    }

    fn control(&self, link: LinkId) -> Option<Control> {
        self.rail.control(link)
    }

    fn take_change(&mut self) -> Option<(LinkId, Change)> {
        self.rail.take_change()
    }

    fn given(&self, link: LinkId) -> u64 {
        self.rail.given(link)
    }

    fn queued(&self, link: LinkId) -> usize {
        self.rail.queued(link)
    }

    fn copied(&self, link: LinkId) -> usize {
        self.rail.copied(link)
    }

    /// What is held has not come.
    fn take_ack(&mut self) -> Option<Ack> {
        let ack = self.rail.take_ack()?;
        let held = self.plan.as_ref().map_or(0, |plan| plan.untold(ack.link));
        Some(Ack { received: but_for(ack.received, held), ..ack })
    }

    fn acked(&mut self, link: LinkId, frames: &Acked) -> bool {
        self.rail.acked(link, frames)
    }

    fn take_returned(&mut self) -> Option<OpId> {
        self.rail.take_returned()
    }

    fn copy_lent<M: Memory + ?Sized>(&mut self, link: LinkId, send: Option<OpId>, mem: &M) {
        self.rail.copy_lent(link, send, mem);
    }

    /// What is held has not come, and will not.
    fn retire(&mut self, link: LinkId) -> Acked {
        let held = self.plan.as_ref().map_or(0, |plan| plan.untold(link));
        if let Some(plan) = &mut self.plan {
            plan.links.remove(&link);
        }
        but_for(self.rail.retire(link), held)
    }

    fn kept(&self, link: LinkId) -> Vec<UnackedFrame> {
        self.rail.kept(link)
    }

    fn reclaim(&mut self, link: LinkId, frames: &Acked) -> Option<VecDeque<UnackedFrame>> {
        self.rail.reclaim(link, frames)
    }

    fn tell_losses(&mut self, link: LinkId, losses: &Losses) {
        self.rail.tell_losses(link, losses);
    }

    fn set_scheme(&mut self, link: LinkId, scheme: Scheme) {
        self.rail.set_scheme(link, scheme);
    }

    fn put_value(&mut self, link: LinkId, peer: PeerIdx, which: (u64, u64), bytes: &[u8]) -> bool {
        self.rail.put_value(link, peer, which, bytes)
    }

    fn take_returned_value(&mut self) -> Option<(PeerIdx, u64, u64)> {
        self.rail.take_returned_value()
    }

    fn pace(&mut self, link: LinkId, rate: u64) {
        self.rail.pace(link, rate);
    }
}

impl<R: Rail> Rail for Fault<R> {
    const CAPS: Caps = R::CAPS;

    fn open(config: &Config) -> io::Result<Self> {
        Ok(Self::new(R::open(config)?, config.faults))
    }

    #[inline]
    unsafe fn send(
        &mut self,
        link: LinkId,
        header: &[u8],
        iov: &[RawIov],
        span: Option<Span>,
    ) -> Result<(), Full> {
        if self.plan.is_some() && self.refuses(link, header) {
            return Err(Full);
        }
        // SAFETY: our caller's word.
        unsafe { self.rail.send(link, header, iov, span) }
    }

    #[inline(always)]
    unsafe fn try_eager(&mut self, link: LinkId, eager: PlainEager, piece: RawIov) -> bool {
        // SAFETY: our caller's word.
        self.plan.is_none() && unsafe { self.rail.try_eager(link, eager, piece) }
    }

    #[inline]
    fn wants_more(&self, link: LinkId) -> bool {
        self.rail.wants_more(link)
    }

    #[inline(always)]
    fn holds_back(&self) -> bool {
        self.rail.holds_back()
    }

    #[inline]
    fn flush<M: Memory + ?Sized>(&mut self, mem: &M) {
        self.rail.flush(mem);
    }

    #[inline]
    fn links(&self) -> usize {
        self.rail.links()
    }

    #[inline]
    fn progress<S: Sink + ?Sized>(&mut self, sink: &mut S) -> usize {
        match self.plan {
            None => self.rail.progress(sink),
            Some(_) => self.progress_late(sink),
        }
    }

    #[inline(always)]
    fn skip(&mut self) -> bool {
        self.plan.is_none() && self.rail.skip()
    }

    fn look_around(&mut self) {
        self.rail.look_around();
    }

    fn in_bulk(&self) -> bool {
        self.rail.in_bulk()
    }

    fn wait_fd(&self) -> Option<RawFd> {
        self.rail.wait_fd()
    }

    fn arm(&mut self) -> bool {
        self.rail.arm() && !self.plan.as_ref().is_some_and(|plan| plan.holds())
    }

    fn due(&self) -> Option<Instant> {
        self.rail.due()
    }

    fn close(&mut self, link: LinkId) {
        if let Some(plan) = &mut self.plan {
            plan.links.remove(&link);
        }
        self.rail.close(link);
    }

    fn idle(&self, link: LinkId) -> bool {
        self.rail.idle(link)
    }

    fn traffic(&self, link: LinkId) -> Option<(u64, u64)> {
        self.rail.traffic(link)
    }

    fn watch(&mut self, link: LinkId, ends: (PeerId, PeerId)) {
        self.rail.watch(link, ends);
    }

    fn probe(&mut self, link: LinkId) {
        self.rail.probe(link);
    }

    fn cut(&mut self, link: LinkId) {
        self.rail.cut(link);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
