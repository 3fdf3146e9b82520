//! One lane: what is known of it, and whether it is of use.

use super::{SILENT, Time, Which};
use crate::control::losses::Look;
use crate::lanes::{Estimate, Load, MS, S, Sample};
use crate::wire::Transport;
use core::net::{IpAddr, SocketAddr};

/// What the user wants to go by a lane: both, unless settings say otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pins {
    /// Short messages.
    pub short: bool,
    /// Parts of long ones.
    pub long: bool,
}

impl Default for Pins {
    fn default() -> Self {
        Self { short: true, long: true }
    }
}

/// What a link's rail sees of it at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// Bytes that the peer's side has acknowledged, altogether.
    pub delivered: u64,
    /// Bytes that came, altogether.
    pub received: u64,
    /// Bytes that were given to the link and have not been acknowledged.
    pub queued: u64,
    /// Round trip, smoothed, in nanoseconds; 0: unknown.
    pub rtt: u64,
    /// The shortest round trip lately, in nanoseconds; 0: unknown.
    pub min_rtt: u64,
    /// What waits is not taken by the peer's program, and so owed by nobody else.
    pub shut: bool,
    /// How its packets fare.
    pub packets: Packets,
    /// What keeps it from sending more.
    pub width: Width,
    /// What is acknowledged, the peer's program acknowledges, not its kernel: one that computes is silent.
    pub by_program: bool,
}

/// Packets of a link, altogether; all 0 where its rail does not count them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Packets {
    /// Sent.
    pub sent: u64,
    /// Of those that were sent, lost.
    pub lost: u64,
    /// Come.
    pub came: u64,
    /// Of those that came, before their turn.
    pub early: u64,
}

/// Nanoseconds of a link, altogether; both 0 where its rail does not measure them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Width {
    /// Something was on its way, or to be sent.
    pub busy: u64,
    /// Of that time, no more was sent because no more fits its buffer.
    pub narrow: u64,
}

/// What has happened to a lane between two looks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fared {
    pub packets: Packets,
    pub width: Width,
    /// Bytes that it was given, and that came.
    pub given: u64,
    pub came: u64,
}

impl Width {
    /// What was measured since.
    fn since(&self, before: &Self) -> Self {
        Self {
            busy: self.busy.saturating_sub(before.busy),
            narrow: self.narrow.saturating_sub(before.narrow),
        }
    }
}

impl Packets {
    /// What was counted since.
    fn since(&self, before: &Self) -> Self {
        let Self { sent, lost, came, early } = *self;
        Self {
            sent: sent.saturating_sub(before.sent),
            lost: lost.saturating_sub(before.lost),
            came: came.saturating_sub(before.came),
            early: early.saturating_sub(before.early),
        }
    }
}

/// A lane whose peer's program is silent altogether is of use for so long, in nanoseconds: it may compute.
const COMPUTES: Time = 3 * S;

/// Between two looks so much time counts, in nanoseconds, where it is programs that answer: a program that looks seldom, because it computes,
/// has not read what has long come.
const GLANCE: Time = 30 * MS;

/// What is known of whether a lane is needed beside others of its pair of interfaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stand {
    /// Nothing yet.
    Unproven,
    /// Less gets through without it.
    Proven,
    /// It was opened to find that out.
    Trial,
    /// It is given nothing, to find that out.
    Resting,
    /// It is not, and ends when what it holds is through; since when.
    Leaving(Time),
}

/// A link with a role in a session.
#[derive(Clone, Debug)]
pub struct Lane<L> {
    pub(super) number: u16,
    pub(super) link: L,
    pub(super) transport: Transport,
    pub(super) path: Option<usize>,
    pub(super) ends: Option<(SocketAddr, SocketAddr)>,
    pub(super) estimate: Estimate,
    pub(super) pins: Pins,
    pub(super) in_order: bool,
    /// Bytes that the peer's side had acknowledged, and those that it had not, at the last look.
    delivered: u64,
    pub(super) queued: u64,
    /// The peer's program does not take what waits.
    shut: bool,
    /// Since when nothing was acknowledged though something waits for it.
    pub(super) stalled: Option<Time>,
    /// Since when another lane would be through with what it holds much earlier.
    pub(super) late: Option<Time>,
    /// The rate that was told last, in bytes per second.
    pub(super) told: u64,
    pub(super) stand: Stand,
    /// Bytes that it had delivered, received and been given when that was counted last.
    pub(super) counted: (u64, u64, u64),
    /// When that was more than before, last.
    pub(super) moved: Time,
    /// Its packets at the last look.
    packets: Packets,
    /// What of this side's is lost, and of the other's.
    pub(super) looks: [Look; 2],
    width: Width,
    /// A rival serves in its place: it is given nothing.
    pub(super) yields: bool,
    by_program: bool,
    /// When it was looked at last.
    looked: Time,
    /// Bytes that had come by it at the last look, and when the peer's program was heard by it last.
    received: u64,
    pub(super) heard: Time,
}

impl<L: Copy> Lane<L> {
    #[expect(clippy::too_many_arguments, reason = "what a lane begins with")]
    pub(super) fn new(
        number: u16,
        link: L,
        transport: Transport,
        path: Option<usize>,
        ends: Option<(SocketAddr, SocketAddr)>,
        estimate: Estimate,
        delivered: u64,
        pins: Pins,
    ) -> Self {
        let told = estimate.rate();
        let (queued, shut, stalled, late, in_order) = (0, false, None, None, true);
        let (stand, counted, moved, packets, yields) =
            (Stand::Unproven, (delivered, 0, 0), 0, Packets::default(), false);
        Self {
            number,
            link,
            transport,
            path,
            ends,
            estimate,
            pins,
            in_order,
            delivered,
            queued,
            shut,
            stalled,
            late,
            told,
            stand,
            counted,
            moved,
            packets,
            looks: Default::default(),
            width: Width::default(),
            yields,
            by_program: false,
            looked: 0,
            received: 0,
            heard: 0,
        }
    }

    /// Whether nothing is to be given to it while there is another.
    fn rests(&self) -> bool {
        self.yields || matches!(self.stand, Stand::Resting | Stand::Leaving(_))
    }

    pub(super) fn takes_short(&self) -> bool {
        self.pins.short && !self.rests()
    }

    pub(super) fn takes_long(&self) -> bool {
        self.pins.long && !self.rests()
    }

    pub(super) fn is_leaving(&self) -> bool {
        matches!(self.stand, Stand::Leaving(_))
    }

    /// Its number in the session.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The driver's handle for its link.
    pub fn link(&self) -> L {
        self.link
    }

    /// This side's address, and the other's.
    pub fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.ends
    }

    /// The addresses that it goes between.
    pub(super) fn ips(&self) -> Option<(IpAddr, IpAddr)> {
        self.ends.map(|(near, far)| (near.ip(), far.ip()))
    }

    /// Whether another serves in its place, of another transport between the same interfaces.
    pub fn yields(&self) -> bool {
        self.yields
    }

    /// What it is thought to do.
    pub fn estimate(&self) -> &Estimate {
        &self.estimate
    }

    /// As events name it.
    pub fn which(&self) -> Which {
        Which::Lane(self.number, self.ends)
    }

    pub(super) fn load(&self, queued: u64) -> Load {
        self.estimate.load(queued)
    }

    /// Takes in what its rail sees; what has happened since the last time.
    pub(super) fn observe(&mut self, now: Time, seen: &Seen) -> Fared {
        // what the peer's program does not take is not owed by its kernel, and says nothing of the lane
        self.shut = seen.shut;
        self.estimate.sample(Sample {
            now,
            delivered: seen.delivered,
            queued: if self.shut { 0 } else { seen.queued },
            rtt: seen.rtt,
            min_rtt: seen.min_rtt,
        });
        let owed = !self.shut && seen.queued > 0 && seen.delivered == self.delivered;
        self.by_program = seen.by_program;
        let gap = now.saturating_sub(core::mem::replace(&mut self.looked, now));
        let unseen = if self.by_program { gap.saturating_sub(GLANCE) } else { 0 };
        self.stalled = owed.then(|| self.stalled.map_or(now, |since| (since + unseen).min(now)));
        let came = seen.received.saturating_sub(self.received);
        if came > 0 || self.by_program && seen.delivered != self.delivered {
            (self.received, self.heard) = (seen.received, now);
        }
        let given = (seen.delivered + seen.queued).saturating_sub(self.delivered + self.queued);
        (self.delivered, self.queued) = (seen.delivered, seen.queued);
        // a packet that turns out not to have been lost is not lost again: what is sent twice in vain may be found out a look later
        let lost = seen.packets.lost.max(self.packets.lost);
        let counted = Packets { lost, ..seen.packets };
        let packets = counted.since(&core::mem::replace(&mut self.packets, counted));
        let width = seen.width.since(&core::mem::replace(&mut self.width, seen.width));
        Fared { packets, width, given, came }
    }

    /// Whether it holds back for less than this.
    pub(super) fn stalls_less(&self, now: Time, than: Time) -> bool {
        self.stalled.is_none_or(|since| now.saturating_sub(since) < than)
    }

    /// Whether what its program does not take is all that holds it up.
    pub(super) fn is_shut(&self) -> bool {
        self.shut
    }

    /// Whether it had something on its way at the last look, or was given something since; `given` is all that it was given.
    pub(super) fn moves(&self, given: u64) -> bool {
        self.queued > 0 || given != self.delivered + self.queued
    }

    /// Why it is of no use now, if it is not; when the peer's program was heard last, by any lane.
    pub(super) fn fails(&self, now: Time, heard: Time) -> Option<&'static str> {
        let bound = SILENT.0 + SILENT.1 * self.estimate.rtt();
        // of a program that is not heard at all it is not known whether it computes
        let computes = self.by_program && self.stalled.is_some_and(|since| heard <= since + bound / 2);
        let bound = if computes { bound.max(COMPUTES) } else { bound };
        // one that others would have overtaken long ago is no better, as long as it is known how slow it is
        let late = SILENT.0 + SILENT.1 * self.estimate.min_rtt();
        if !self.stalls_less(now, bound + 1) {
            Some("the peer's side does not answer on it")
        } else if self.late.is_some_and(|since| now.saturating_sub(since) > late) {
            Some("others would be through with what it holds long before it")
        } else {
            None
        }
    }
}
