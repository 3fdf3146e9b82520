//! Bbr: a model of the path, its rate and its shortest round trip, says how much is sent (draft-ietf-ccwg-bbr).
//!
//! In **startup** the rate doubles each round until it is found to be that of the path; **drain** empties the queue of that. From then on
//! cycles **probe for bandwidth**: *down* takes what is on its way below what the path holds, *cruise* keeps it there, *refill* fills the
//! path for a round, and *up* sends more than the rate until too much is lost or the rate is found not to grow. Now and then, **probing
//! the round trip**, it sends so little that queues empty.
//!
//! A router's mark is as losses that are too many (RFC 3168, 5; the draft has nothing of marks).
//!
//! It differs from the draft in this: what is lost bounds rate and flight only where it is more than [`bounds::too_many`], in each
//! round too, since else random losses would take the bounds down with each round of a long cruise; it leaves a quarter of the upper
//! bound free, not a seventh; *up* ends when a queue grows and the rate does not, rather than in its third such round, and where a queue
//! of others stands, any loss takes the short bound down: without these two, a Cubic that was there before it ends with a twentieth of
//! 1 Gb/s; what the draft draws at random comes from the time and what was delivered; a round trip that is hardly longer than the shortest
//! is as good as a probe for it; and where no more is sent at a time than fits into a round trip, trains tell the rate
//! ([`super::delivery`]), and are sent faster than it until they come more slowly than they left.

mod bounds;
mod filters;

use super::congestion::first_window;
use super::{Known, MicroProtocol, Sent, Settled, Shared, Time};
use bounds::{BETA, Bounds, LEAST, in_flight_at, too_many};
use filters::{ExtraAcked, FullPipe, MinRtt, Peak, Rounds};

/// Of the rate, what is sent, so that queues do not grow (BBR.PacingMarginPercent).
const MARGIN: f64 = 0.99;
/// Round trips of so many times the shortest are those of a queue; it *stands* where all of a round are so long.
const QUEUED: f64 = 1.25;
const STANDING: f64 = 1.5;
/// So many lost datagrams in a round may end startup (BBR.StartupFullLossCnt).
const STARTUP_LOSSES: u32 = 6;
/// How long the round trip is probed, in nanoseconds (BBR.ProbeRTTDuration).
const PROBE_RTT: Time = 200_000_000;
/// Bandwidth is probed for after so long, and up to so much longer, in nanoseconds (BBRPickProbeWait) ...
const PROBE_WAIT: (Time, Time) = (2_000_000_000, 1_000_000_000);
/// ... or after so many rounds at most, in which Reno's window would have grown as much (draft, 5.3.3.5.3).
const PROBE_ROUNDS: u64 = 63;
/// After a rest, what is sent of a rate that may be too low: what comes back in the first round trip tells.
const GUESS: f64 = 2.0;
/// The first pace, without any round trip known, takes this for one, in nanoseconds (draft, 5.6.2).
const UNKNOWN: Time = 1_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Phase {
    #[default]
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

impl Phase {
    /// Of the rate, what is sent; and of what the path holds, what may be on its way (draft, 2.4).
    fn gains(self) -> (f64, f64) {
        match self {
            Self::Startup => (2.77, 2.0),
            Self::Drain => (0.35, 2.0),
            Self::Down => (0.9, 2.0),
            Self::Cruise | Self::Refill => (1.0, 2.0),
            Self::Up => (1.25, 2.25),
            Self::ProbeRtt => (1.0, 0.5),
        }
    }

    fn probes_bandwidth(self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }

    fn cycles(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }
}

/// What the acknowledgements that come now are of (BBR.ack_phase: draft, 2.12).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Acks {
    #[default]
    Other,
    Refilling,
    /// What was sent more will be acknowledged next,
    Starting,
    /// and is now,
    Feedback,
    /// and is so the last time.
    Stopping,
}

/// What came in the present round of losses (draft, 5.5.10.1).
#[derive(Clone, Copy, Debug, Default)]
struct LossRound {
    end: u64,
    ends: bool,
    lost: u64,
    events: u32,
    marked: bool,
    rate: u64,
    came: u64,
    /// The shortest round trip in it, in nanoseconds; 0: none was measured.
    rtt: Time,
}

/// Growth of the upper bound while more is sent (draft, 5.3.3.6).
#[derive(Clone, Copy, Debug, Default)]
struct Raise {
    /// Bytes that have to be acknowledged for a datagram more.
    each: u64,
    acked: u64,
    rounds: u32,
}

/// What is restored when losses were none (draft, 5.5.10.4).
#[derive(Clone, Copy, Debug)]
struct Undo {
    bounds: Bounds,
    phase: Phase,
}

/// See the file's head.
#[derive(Debug, Default)]
pub struct Bbr {
    phase: Phase,
    acks: Acks,
    rate: Peak,
    bounds: Bounds,
    rounds: Rounds,
    losses: LossRound,
    full: FullPipe,
    extra: ExtraAcked,
    rtt: MinRtt,
    raise: Raise,
    undo: Option<Undo>,
    /// The newest datagrams' acknowledgements tell how a probe for bandwidth went.
    samples: bool,
    cycle_at: Time,
    wait: Time,
    rounds_at_probe: u64,
    /// The window was full in this round, and in the one before.
    full_window: [bool; 2],
    /// When probing the round trip is over; 0: it waits for an empty queue.
    probe_rtt_until: Time,
    probe_rtt_rounds: u64,
    saved_window: u64,
    resting: bool,
    /// The rate is what was sent, when there was little: the path may be faster.
    guess: bool,
}

/// Something that differs between channels (splitmix64).
fn scatter(of: u64) -> u64 {
    let mut bits = of.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

impl Bbr {
    /// Bytes per second that the model says.
    fn bandwidth(&self) -> u64 {
        self.rate.get().min(self.bounds.low_rate)
    }

    /// So many times what the path holds at a rate.
    fn holds(&self, shared: &Shared, rate: u64, gain: f64) -> u64 {
        if self.rtt.min == 0 || rate == 0 {
            return first_window(shared);
        }
        (gain * rate as f64 * self.rtt.min as f64 / 1e9) as u64
    }

    /// The same, with what sending in bursts needs (BBRInflight, BBRQuantizationBudget).
    fn in_flight(&self, shared: &Shared, rate: u64, gain: f64) -> u64 {
        let size = u64::from(shared.size);
        let quantum = (shared.pace / 1000).clamp(2 * size, 1 << 16);
        let more = if self.phase == Phase::Up { 2 * size } else { 0 };
        self.holds(shared, rate, gain).max(3 * quantum).max(LEAST * size) + more
    }

    fn target(&self, shared: &Shared) -> u64 {
        self.holds(shared, self.bandwidth(), 1.0).min(shared.window)
    }

    fn window_is_full(&self) -> bool {
        self.full_window[0] || self.full_window[1]
    }

    // Signals: draft, 5.5.

    fn note_delivery(&mut self, shared: &Shared, settled: &Settled) {
        let sample = settled.sample;
        let losses = &mut self.losses;
        losses.rate = losses.rate.max(sample.rate);
        losses.came = losses.came.max(sample.delivered);
        if settled.rtt > 0 && (losses.rtt == 0 || settled.rtt < losses.rtt) {
            losses.rtt = settled.rtt;
        }
        losses.marked |= settled.marked > 0;
        losses.ends = sample.prior_delivered >= losses.end;
        if losses.ends {
            losses.end = shared.delivery.delivered;
        }
        self.rounds.note(shared, settled);
        if self.rounds.begins {
            self.full_window = [false, self.full_window[0]];
        }
        if sample.rate > 0 && (sample.rate >= self.rate.get() || !sample.limited) {
            self.guess = sample.limited && !sample.narrow && (self.guess || sample.rate > self.rate.get());
            self.rate.note(sample.rate);
        }
    }

    /// After a round with more losses than chance has, what comes is what goes (draft, 5.5.10.3).
    fn note_congestion(&mut self, shared: &Shared, settled: &Settled) {
        if !self.losses.ends {
            return;
        }
        let losses = self.losses;
        let round = losses.came + losses.lost;
        if !self.phase.probes_bandwidth() && (losses.marked || too_many(losses.lost, round, shared.size)) {
            self.bounds.lower(shared.window, self.rate.get(), losses.came, losses.rate);
        }
        let stands = losses.rtt as f64 > STANDING * self.rtt.min as f64;
        if !self.phase.probes_bandwidth() && losses.lost > 0 && stands {
            // it is others' queue, and has overflowed: they give way, too
            self.bounds.low = self.bounds.low.min((shared.window as f64 * BETA) as u64);
        }
        self.losses = LossRound {
            rate: settled.sample.rate,
            came: settled.sample.delivered,
            end: losses.end,
            ends: true,
            ..LossRound::default()
        };
    }

    /// Startup ends when the pipe is full, or losses say so (draft, 5.3.1.3).
    fn check_startup(&mut self, shared: &Shared, settled: &Settled) {
        let losses = self.losses;
        if self.losses.ends
            && !self.full.reached
            && losses.events >= STARTUP_LOSSES
            && too_many(losses.lost, losses.came + losses.lost, shared.size)
        {
            self.full.reached = true;
            self.bounds.high = self.holds(shared, self.rate.get(), 1.0).max(losses.came);
        }
        self.full.note(&self.rounds, settled);
        if self.phase == Phase::Startup && self.full.reached {
            self.phase = Phase::Drain;
        }
        if self.phase == Phase::Drain
            && shared.flight.bytes() <= self.in_flight(shared, self.bandwidth(), 1.0)
        {
            self.go_down(shared);
        }
    }

    // The cycle: draft, 5.3.3.

    fn go_down(&mut self, shared: &Shared) {
        self.losses = LossRound { end: self.losses.end, ..LossRound::default() };
        self.raise.each = u64::MAX;
        let dice = scatter(shared.now ^ shared.delivery.delivered);
        self.rounds_at_probe = self.rounds.count - (dice & 1).min(self.rounds.count);
        self.wait = PROBE_WAIT.0 + (dice >> 1) % PROBE_WAIT.1;
        (self.cycle_at, self.acks, self.phase) = (shared.now, Acks::Stopping, Phase::Down);
        self.rounds.begin(shared);
    }

    fn refill(&mut self, shared: &Shared) {
        self.bounds.lift();
        self.raise = Raise::default();
        (self.acks, self.phase) = (Acks::Refilling, Phase::Refill);
        self.rounds.begin(shared);
    }

    fn go_up(&mut self, shared: &Shared, rate: u64) {
        self.samples = true;
        (self.acks, self.phase, self.cycle_at) = (Acks::Starting, Phase::Up, shared.now);
        self.rounds.begin(shared);
        self.full.reset(rate);
        self.raise_faster(shared);
    }

    fn may_probe(&self, shared: &Shared) -> bool {
        let datagrams = self.target(shared) / u64::from(shared.size);
        shared.now > self.cycle_at + self.wait
            || self.rounds.count - self.rounds_at_probe >= datagrams.clamp(1, PROBE_ROUNDS)
    }

    fn may_cruise(&self, shared: &Shared) -> bool {
        let in_flight = shared.flight.bytes();
        in_flight <= self.bounds.with_headroom(shared)
            && in_flight <= self.in_flight(shared, self.rate.get(), 1.0)
    }

    fn may_go_down(&mut self, shared: &Shared, settled: &Settled) -> bool {
        if self.window_is_full() && shared.window >= self.bounds.high {
            // the bound, not the path, is what keeps the rate from growing
            self.full.reset(settled.sample.rate);
        }
        let queued = shared.rtt.latest as f64 > QUEUED * self.rtt.min as f64;
        self.full.now || queued && self.full.rounds > 0
    }

    fn cycle(&mut self, shared: &Shared, settled: &Settled) {
        if !self.full.reached {
            return;
        }
        self.adapt_high(shared, settled);
        let phase = self.phase;
        match phase {
            Phase::Down | Phase::Cruise if self.may_probe(shared) => self.refill(shared),
            Phase::Down if self.may_cruise(shared) => self.phase = Phase::Cruise,
            Phase::Refill if self.rounds.begins => self.go_up(shared, settled.sample.rate),
            Phase::Up if self.may_go_down(shared, settled) => self.go_down(shared),
            _ => {}
        }
    }

    /// The upper bound by what acknowledgements say (BBRAdaptLongTermModel).
    fn adapt_high(&mut self, shared: &Shared, settled: &Settled) {
        if self.acks == Acks::Starting && self.rounds.begins {
            self.acks = Acks::Feedback;
        }
        if self.acks == Acks::Stopping && self.rounds.begins {
            (self.acks, self.samples) = (Acks::Other, false);
            if self.phase.cycles() && !settled.sample.limited {
                self.rate.advance();
            }
        }
        let sample = settled.sample;
        if settled.marked > 0 || too_many(sample.lost, sample.in_flight, shared.size) {
            if self.samples {
                self.bound_high(shared, sample.in_flight, sample.limited);
            }
            return;
        }
        if self.bounds.high == u64::MAX {
            return;
        }
        self.bounds.high = self.bounds.high.max(sample.in_flight);
        if self.phase == Phase::Up {
            self.raise_high(shared, settled);
        }
    }

    /// Too much was lost of what was sent while probing (BBRHandleInflightTooHigh).
    fn bound_high(&mut self, shared: &Shared, in_flight: u64, limited: bool) {
        self.samples = false;
        if !limited {
            self.bounds.high = in_flight.max((self.target(shared) as f64 * BETA) as u64);
        }
        if self.phase == Phase::Up {
            self.go_down(shared);
        }
    }

    fn raise_high(&mut self, shared: &Shared, settled: &Settled) {
        if self.window_is_full() && shared.window >= self.bounds.high {
            self.raise.acked += settled.acked;
            if let Some(more) = self.raise.acked.checked_div(self.raise.each) {
                self.raise.acked -= more * self.raise.each;
                self.bounds.high += more * u64::from(shared.size);
            }
        }
        if self.rounds.begins {
            self.raise_faster(shared);
        }
    }

    /// With each round twice as many datagrams more (BBRRaiseInflightLongtermSlope).
    fn raise_faster(&mut self, shared: &Shared) {
        self.raise.each = (shared.window >> self.raise.rounds).max(u64::from(shared.size));
        self.raise.rounds = (self.raise.rounds + 1).min(30);
    }

    // Probing the round trip: draft, 5.3.4.

    fn probe_rtt(&mut self, shared: &mut Shared, settled: &Settled) {
        self.rtt.note(shared.now, settled.rtt);
        if self.phase != Phase::ProbeRtt && self.rtt.stale && !self.resting {
            self.saved_window = self.saved_window.max(shared.window);
            (self.phase, self.acks, self.probe_rtt_until) = (Phase::ProbeRtt, Acks::Stopping, 0);
            self.rounds.begin(shared);
        }
        if self.phase == Phase::ProbeRtt {
            self.in_probe_rtt(shared);
        }
        self.resting = false;
    }

    fn in_probe_rtt(&mut self, shared: &mut Shared) {
        let in_flight = shared.flight.bytes();
        shared.delivery.limit(in_flight);
        if self.probe_rtt_until == 0 {
            if in_flight <= self.probe_rtt_window(shared) {
                self.probe_rtt_until = shared.now + PROBE_RTT;
                self.probe_rtt_rounds = self.rounds.count + 1;
                self.rounds.begin(shared);
            }
        } else if self.rounds.count >= self.probe_rtt_rounds && shared.now > self.probe_rtt_until {
            self.end_probe_rtt(shared);
        }
    }

    fn end_probe_rtt(&mut self, shared: &mut Shared) {
        self.rtt.measured(shared.now);
        shared.window = shared.window.max(core::mem::take(&mut self.saved_window));
        self.bounds.lift();
        if self.full.reached {
            self.go_down(shared);
            self.phase = Phase::Cruise;
        } else {
            self.phase = Phase::Startup;
        }
    }

    fn probe_rtt_window(&self, shared: &Shared) -> u64 {
        self.holds(shared, self.bandwidth(), 0.5).max(LEAST * u64::from(shared.size))
    }

    // Pace and window: draft, 5.6.

    fn set_pace(&self, shared: &mut Shared, gain: f64) {
        shared.rate = self.bandwidth();
        if !matches!(self.phase, Phase::Refill | Phase::Up) {
            shared.probed_at = self.cycle_at;
        }
        let rate = match self.rate.get() {
            0 if shared.rtt.smoothed == 0 => return,
            0 => shared.window as f64 * 1e9 / shared.rtt.smoothed as f64,
            _ => self.bandwidth() as f64,
        };
        let pace = (gain * MARGIN * rate) as u64;
        if self.full.reached || pace > shared.pace {
            shared.pace = pace.max(1);
        }
    }

    fn set_window(&self, shared: &mut Shared, acked: u64) {
        let size = u64::from(shared.size);
        let most = self.in_flight(shared, self.bandwidth(), self.phase.gains().1) + self.extra.get();
        if self.full.reached {
            shared.window = (shared.window + acked).min(most);
        } else if shared.window < most || shared.delivery.delivered < first_window(shared) {
            shared.window += acked;
        }
        let mut cap = self.bounds.low;
        match self.phase {
            Phase::ProbeRtt => {
                cap = cap.min(self.bounds.with_headroom(shared)).min(self.probe_rtt_window(shared));
            }
            Phase::Cruise => cap = cap.min(self.bounds.with_headroom(shared)),
            phase if phase.cycles() => cap = cap.min(self.bounds.high),
            _ => {}
        }
        shared.window = shared.window.min(cap).max(LEAST * size);
    }

    fn undo(&mut self) {
        let Some(undo) = self.undo.take() else { return };
        let bounds = &mut self.bounds;
        bounds.high = bounds.high.max(undo.bounds.high);
        bounds.low = bounds.low.max(undo.bounds.low);
        bounds.low_rate = bounds.low_rate.max(undo.bounds.low_rate);
        (self.losses.lost, self.losses.events) = (0, 0);
        if undo.phase == Phase::Startup && self.phase == Phase::Drain {
            (self.phase, self.full.reached) = (Phase::Startup, false);
            self.full.reset(0);
        }
    }
}

impl MicroProtocol for Bbr {
    const NAME: &'static str = "Bbr";

    fn open(&mut self, shared: &mut Shared) {
        shared.window = first_window(shared);
        shared.starting = true;
        let rtt = if shared.rtt.smoothed > 0 { shared.rtt.smoothed } else { UNKNOWN };
        shared.pace = (2.77 * shared.window as f64 * 1e9 / rtt as f64) as u64;
        self.extra.restart(shared.now);
        let Known { rate, shortest, starting, probed_at } = shared.known_path;
        if rate > 0 && shortest > 0 {
            // another of its kind has found out what the path is like, or was about to
            self.rate.note(rate);
            self.rtt.note(shared.now, shortest);
            (self.full.reached, shared.starting) = (!starting, starting);
            if !starting {
                self.go_down(shared);
                (self.phase, self.cycle_at) = (Phase::Cruise, probed_at);
            }
            self.set_pace(shared, self.phase.gains().0);
            shared.window = self.in_flight(shared, rate, 2.0);
        }
    }

    fn sent(&mut self, shared: &mut Shared, sent: &Sent) {
        let size = u64::from(sent.size);
        if sent.mark.in_flight == size && shared.delivery.delivered > 0 {
            // after a rest (draft, 5.4.1)
            self.resting = true;
            self.extra.restart(shared.now);
            if self.phase.cycles() {
                self.set_pace(shared, if self.guess { GUESS } else { 1.0 });
            }
        }
        self.full_window[0] |= shared.flight.bytes() + u64::from(shared.size) > shared.window;
    }

    fn lost(&mut self, shared: &mut Shared, sent: &Sent) {
        if sent.probes_path {
            return;
        }
        if self.losses.lost == 0 {
            self.losses.end = shared.delivery.delivered;
            self.undo = Some(Undo { bounds: self.bounds, phase: self.phase });
        }
        self.losses.lost += u64::from(sent.size);
        self.losses.events += 1;
        let lost = shared.delivery.lost - sent.mark.lost;
        if self.samples && too_many(lost, sent.mark.in_flight, shared.size) {
            let in_flight = in_flight_at(sent.mark.in_flight, lost, sent.size);
            self.bound_high(shared, in_flight, sent.mark.limited);
        }
    }

    fn settled(&mut self, shared: &mut Shared, settled: &Settled) {
        if settled.undone {
            self.undo();
        }
        if settled.acked > 0 {
            self.note_delivery(shared, settled);
            let (bandwidth, starting) = (self.bandwidth(), !self.full.reached);
            self.extra.note(shared.now, settled.acked, bandwidth, shared.window, &self.rounds, starting);
            self.check_startup(shared, settled);
            self.note_congestion(shared, settled);
            self.cycle(shared, settled);
            self.probe_rtt(shared, settled);
        }
        if settled.persistent {
            self.saved_window = self.saved_window.max(shared.window);
            shared.window = shared.flight.bytes() + u64::from(shared.size);
        }
        self.set_pace(shared, self.phase.gains().0);
        self.set_window(shared, settled.acked);
        shared.starting = !self.full.reached;
    }
}
