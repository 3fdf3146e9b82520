//! What TCP did: of each socket the time line of its congestion window at a bounded resolution, totals, and the times that
//! its window collapsed because nothing was sent for a while.

use crate::model::{KernelEvent, KernelEventKind, TcpSample};
use std::collections::VecDeque;

/// Bytes of a segment where nothing said how many: Ethernet's.
const USUAL_MSS: u32 = 1448;
/// The kernel's shortest retransmission timeout, taken where nothing said how long it is, in ns.
const USUAL_RTO: u64 = 200_000_000;
/// What `ssthresh` says before there is one.
const NO_THRESHOLD: u32 = 0x7fff_ffff;
/// Changes of the window that are remembered: those of a send that a megabyte of buffer holds up.
const RECENT: usize = 1024;
/// Restarts kept one by one.
const RESTARTS: usize = 200;

/// The state in a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// When it began.
    pub at: u64,
    /// Lowest congestion window in segments.
    pub cwnd_low: u32,
    /// Highest.
    pub cwnd_high: u32,
    /// Last slow-start threshold in segments; 0: none yet.
    pub ssthresh: u32,
    /// Most bytes in flight.
    pub flight: u64,
    /// Longest round-trip time in us.
    pub rtt: u32,
    /// Least room in the send buffer in bytes, and whether anything told it.
    pub free: Option<u32>,
    /// Last delivery rate in bytes a second.
    pub rate: u64,
    /// Segments sent again, and how many of them by a timeout.
    pub again: (u32, u32),
}

impl Point {
    fn join(&mut self, next: &Point) {
        self.cwnd_low = self.cwnd_low.min(next.cwnd_low);
        self.cwnd_high = self.cwnd_high.max(next.cwnd_high);
        self.ssthresh = next.ssthresh;
        self.flight = self.flight.max(next.flight);
        self.rtt = self.rtt.max(next.rtt);
        self.free = self.free.into_iter().chain(next.free).min();
        self.rate = next.rate;
        self.again = (self.again.0.saturating_add(next.again.0), self.again.1.saturating_add(next.again.1));
    }
}

/// A sending pause after which the window was smaller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Restart {
    /// When sending began again.
    pub at: u64,
    /// ns of pause before.
    pub idle: u64,
    /// Congestion window in segments before, and the first one seen after.
    pub window: (u32, u32),
    /// Bytes sent until the next pause.
    pub bytes: u64,
    /// ns that these bytes took longer than with the old window: missing round trips.
    pub lost: u64,
}

/// A socket's history.
#[derive(Clone, Debug, Default)]
pub struct TcpHistory {
    /// The time line; stretches grow with the length of the recording.
    pub points: Vec<Point>,
    /// How many observations were put together into one point at most.
    pub joined: u64,
    /// Observations of each kind: samples, arrived segments.
    pub seen: (u64, u64),
    /// The newest sample.
    pub last: Option<TcpSample>,
    /// When the first and the newest were taken.
    pub span: (u64, u64),
    /// Segments sent again, and timeouts, by the kernel's counters (highest seen).
    pub counted: (u32, u32),
    /// Likewise by kernel events.
    pub events: (u64, u64),
    /// Lowest round-trip time in us.
    pub min_rtt: Option<u32>,
    rtt: (u64, u64),
    /// Of the observations with a window, how many had at least nine tenths of it in flight.
    pub full: (u64, u64),
    /// Congestion control's name.
    pub congestion: String,
    /// Times that the congestion window collapsed after a pause: kept ones.
    pub restarts: Vec<Restart>,
    /// How many there were, and ns lost by them.
    pub restarted: (u64, u64),
    /// Pauses longer than a retransmission timeout after which sending began again.
    pub pauses: u64,
    mss: u32,
    rto: u64,
    pending: Point,
    in_pending: u64,
    recent: VecDeque<(u64, u32, bool)>,
    last_send: Option<u64>,
    pause: Option<(u64, u64, u64)>,
}

impl TcpHistory {
    /// Bytes of a segment.
    pub fn mss(&self) -> u32 {
        if self.mss == 0 { USUAL_MSS } else { self.mss }
    }

    /// Mean round-trip time of all observations in us.
    pub fn mean_rtt(&self) -> Option<f64> {
        (self.rtt.1 > 0).then(|| self.rtt.0 as f64 / self.rtt.1 as f64)
    }

    /// Segments sent again: the kernel's own count where samples told it, else what its events showed.
    pub fn retransmissions(&self) -> u64 {
        u64::from(self.counted.0).max(self.events.0)
    }

    /// How many of them were sent again for nothing: the other side said that it had them.
    pub fn spurious(&self) -> u64 {
        self.last.map_or(0, |last| u64::from(last.dsack_dups)).min(self.retransmissions())
    }

    /// Retransmission timeouts likewise.
    pub fn timeouts(&self) -> u64 {
        u64::from(self.counted.1).max(self.events.1)
    }

    /// Retransmission timeout last seen, in ns.
    pub fn rto(&self) -> u64 {
        if self.rto == 0 { USUAL_RTO } else { self.rto }
    }

    pub(super) fn sample(&mut self, sample: &TcpSample, most: usize) {
        self.seen.0 += 1;
        self.span.0 = if self.last.is_none() { sample.at } else { self.span.0.min(sample.at) };
        self.span.1 = self.span.1.max(sample.at);
        let before = self.counted;
        self.counted = (self.counted.0.max(sample.total_retrans), self.counted.1.max(sample.total_rto));
        if sample.mss > 0 {
            self.mss = sample.mss;
        }
        if sample.rto > 0 {
            self.rto = u64::from(sample.rto) * 1000;
        }
        if let Some(least) = known(sample.min_rtt) {
            self.min_rtt = self.min_rtt.into_iter().chain([least]).min();
        }
        if sample.congestion[0] != 0 && !self.congestion.as_bytes().eq(name(&sample.congestion)) {
            self.congestion = String::from_utf8_lossy(name(&sample.congestion)).into_owned();
        }
        // what kernel events show is not shown twice
        let again = if self.events.0 > 0 {
            (0, 0)
        } else {
            (self.counted.0.saturating_sub(before.0), self.counted.1.saturating_sub(before.1))
        };
        // the kernel's last word and its samples are recorded by different ways
        if self.last.is_none_or(|last| last.at <= sample.at) {
            self.last = Some(*sample);
        }
        let flight = u64::from(sample.unacked) * u64::from(self.mss());
        let trouble = sample.ca_state >= 2;
        self.observe(
            most,
            trouble,
            Point {
                at: sample.at,
                cwnd_low: sample.cwnd,
                cwnd_high: sample.cwnd,
                ssthresh: threshold(sample.ssthresh),
                flight,
                rtt: sample.rtt,
                free: Some(sample.send_free),
                rate: if sample.delivery_rate == u64::MAX { 0 } else { sample.delivery_rate },
                again,
            },
        );
    }

    pub(super) fn event(&mut self, event: &KernelEvent, most: usize) {
        match event.what {
            KernelEventKind::Probe { snd_nxt, snd_una, cwnd, ssthresh, rtt, .. } => {
                self.seen.1 += 1;
                self.observe(
                    most,
                    false,
                    Point {
                        at: event.at,
                        cwnd_low: cwnd,
                        cwnd_high: cwnd,
                        ssthresh: threshold(ssthresh),
                        flight: u64::from(snd_nxt.wrapping_sub(snd_una)),
                        rtt,
                        free: None,
                        rate: self.pending.rate,
                        again: (0, 0),
                    },
                );
            }
            KernelEventKind::Retransmit { timeout } => {
                self.events.0 += 1;
                self.events.1 += u64::from(timeout);
                let again = (1, u32::from(timeout));
                let known = Point { at: event.at, again, ..self.state() };
                self.push(known, most);
            }
            KernelEventKind::State { .. } | KernelEventKind::Congestion { .. } => {}
        }
    }

    /// The newest state, to be shown where something happened that does not tell it.
    fn state(&self) -> Point {
        let last = if self.in_pending > 0 { Some(&self.pending) } else { self.points.last() };
        last.map_or_else(Point::default, |last| Point {
            cwnd_low: last.cwnd_high,
            flight: 0,
            rtt: 0,
            free: None,
            again: (0, 0),
            ..*last
        })
    }

    fn observe(&mut self, most: usize, trouble: bool, point: Point) {
        let cwnd = point.cwnd_low;
        if cwnd == 0 {
            return;
        }
        if point.rtt > 0 {
            self.rtt = (self.rtt.0 + u64::from(point.rtt), self.rtt.1 + 1);
            if self.min_rtt.is_none_or(|least| self.last.is_none() && point.rtt < least) {
                self.min_rtt = Some(point.rtt);
            }
        }
        let window = u64::from(cwnd) * u64::from(self.mss());
        self.full.0 += u64::from(point.flight >= window / 10 * 9);
        self.full.1 += 1;
        // a long send is told when it ends, after all that arrived meanwhile; where the window stays as it is there is nothing to keep
        if self.recent.back().is_none_or(|last| (last.1, last.2) != (cwnd, trouble)) {
            if self.recent.len() == RECENT {
                self.recent.pop_front();
            }
            self.recent.push_back((point.at, cwnd, trouble));
        }
        self.push(point, most);
    }

    /// Adds to the time line; when that is full, pairs of neighbours become one.
    fn push(&mut self, point: Point, most: usize) {
        if self.in_pending == 0 {
            self.pending = point;
        } else {
            self.pending.join(&point);
        }
        self.in_pending += 1;
        if self.in_pending < self.joined.max(1) {
            return;
        }
        self.points.push(self.pending);
        self.in_pending = 0;
        if self.points.len() >= most.max(2) {
            let mut pairs = std::mem::take(&mut self.points).into_iter();
            while let Some(mut first) = pairs.next() {
                pairs.next().inspect(|second| first.join(second));
                self.points.push(first);
            }
            self.joined = self.joined.max(1) * 2;
        }
    }

    /// Something was sent.
    pub(super) fn send(&mut self, start: u64, end: u64, bytes: u64) {
        let idle = self.last_send.map_or(0, |last| start.saturating_sub(last));
        self.last_send = Some(self.last_send.unwrap_or(0).max(end));
        if idle > self.rto() {
            self.resume();
            self.pauses += 1;
            self.pause = Some((start, idle, bytes));
        } else if let Some(pause) = &mut self.pause {
            pause.2 = pause.2.saturating_add(bytes);
            // the state after the pause is forgotten soon
            if self.recent.len() == RECENT && self.recent[RECENT / 8].0 > pause.0 {
                self.decide();
            }
        }
    }

    /// Ends the burst after a pause.
    fn resume(&mut self) {
        self.decide();
        self.pause = None;
    }

    /// Looks whether the window collapsed when sending began again.
    fn decide(&mut self) {
        let Some((at, idle, bytes)) = self.pause else { return };
        let before = self.recent.iter().rev().find(|seen| seen.0 < at).map(|seen| seen.1);
        // what follows within two round trips is still the answer to the pause
        let soon = at.saturating_add(self.rtt.0.checked_div(self.rtt.1).unwrap_or(0) * 2000 + 1_000_000);
        let after = || self.recent.iter().filter(|seen| seen.0 > at).enumerate();
        let after = || after().filter(|(nth, seen)| *nth == 0 || seen.0 <= soon).map(|(_, seen)| seen);
        let trouble = after().any(|seen| seen.2);
        let window = before.zip(after().map(|seen| seen.1).min());
        if let Some((before, after)) = window
            && !trouble
            && u64::from(after) * 10 <= u64::from(before) * 7
        {
            let rtt = self.mean_rtt().unwrap_or(0.0);
            let segments = bytes.div_ceil(u64::from(self.mss()));
            let rounds = rounds(segments, after, before).saturating_sub(rounds(segments, before, before));
            let lost = (rounds as f64 * rtt * 1000.0) as u64;
            let known = self.restarts.last().is_some_and(|last| last.at == at);
            let restart = Restart { at, idle, window: (before, after), bytes, lost };
            if known {
                let last = self.restarts.len() - 1;
                self.restarted.1 = self.restarted.1.saturating_sub(self.restarts[last].lost);
                self.restarts[last] = restart;
            } else {
                self.restarted.0 += 1;
                if self.restarts.len() == RESTARTS {
                    self.restarts.remove(0);
                }
                self.restarts.push(restart);
            }
            self.restarted.1 = self.restarted.1.saturating_add(lost);
        }
    }

    pub(super) fn finish(&mut self) {
        self.resume();
        if self.in_pending > 0 {
            self.points.push(self.pending);
            self.in_pending = 0;
        }
        self.joined = self.joined.max(1);
    }
}

/// Round trips to send segments with a window that doubles until it is `most`.
fn rounds(segments: u64, window: u32, most: u32) -> u64 {
    let (mut left, mut window, mut rounds) = (segments, u64::from(window.max(1)), 0);
    while window < u64::from(most) && left > 0 {
        left = left.saturating_sub(window);
        window = (window * 2).min(u64::from(most));
        rounds += 1;
    }
    rounds + left.div_ceil(window)
}

/// A number of the kernel's where it has one: it says 0, or more than can be, where it has not.
pub(crate) fn known(number: u32) -> Option<u32> {
    (1..NO_THRESHOLD).contains(&number).then_some(number)
}

fn threshold(ssthresh: u32) -> u32 {
    known(ssthresh).unwrap_or(0)
}

fn name(bytes: &[u8; 16]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: u64, cwnd: u32) -> TcpSample {
        TcpSample { at, cwnd, mss: 1000, rtt: 20_000, rto: 220_000, unacked: cwnd, ..TcpSample::default() }
    }

    #[test]
    fn rounds_of_slow_start() {
        assert_eq!(rounds(100, 100, 100), 1);
        // 10, 20, 40, 80
        assert_eq!(rounds(100, 10, 100), 4);
        assert_eq!(rounds(1000, 10, 100), 4 + 9);
        assert_eq!(rounds(0, 10, 100), 0);
    }

    #[test]
    fn a_pause_that_costs_the_window_is_found() {
        let mut tcp = TcpHistory::default();
        tcp.send(0, 1_000, 100_000);
        tcp.sample(&sample(500_000_000, 100), 100);
        tcp.send(1_000_000_000, 1_000_000_500, 100_000);
        tcp.sample(&sample(1_000_100_000, 10), 100);
        tcp.finish();
        assert_eq!(tcp.pauses, 1);
        assert_eq!(tcp.restarted, (1, 60_000_000));
        let restart = Restart {
            at: 1_000_000_000,
            idle: 999_999_000,
            window: (100, 10),
            bytes: 100_000,
            lost: 60_000_000,
        };
        assert_eq!(tcp.restarts, [restart]);
    }

    #[test]
    fn a_pause_that_does_not_cost_it_is_not() {
        let mut tcp = TcpHistory::default();
        tcp.send(0, 1_000, 100_000);
        tcp.sample(&sample(500_000_000, 100), 100);
        tcp.send(1_000_000_000, 1_000_000_500, 100_000);
        tcp.sample(&sample(1_000_100_000, 100), 100);
        tcp.send(1_100_000_000, 1_100_000_500, 100_000);
        tcp.sample(&sample(1_100_100_000, 10), 100);
        tcp.finish();
        // the second, shorter pause ends a burst in no other way than by time
        assert_eq!(tcp.pauses, 1);
    }

    #[test]
    fn points_are_bounded_and_keep_the_extremes() {
        let mut tcp = TcpHistory::default();
        (0..1000).for_each(|n| tcp.sample(&sample(n, if n == 777 { 3 } else { 50 }), 64));
        tcp.finish();
        assert!(tcp.points.len() <= 64 && tcp.joined == 16, "{} {}", tcp.points.len(), tcp.joined);
        assert_eq!(tcp.points.iter().map(|point| point.cwnd_low).min(), Some(3));
        assert_eq!(tcp.full, (1000, 1000));
    }

    #[test]
    fn retransmissions_are_counted_once() {
        let mut tcp = TcpHistory::default();
        tcp.sample(&sample(1, 10), 100);
        tcp.event(
            &KernelEvent { socket: 0, at: 2, what: KernelEventKind::Retransmit { timeout: true } },
            100,
        );
        tcp.sample(&TcpSample { total_retrans: 1, total_rto: 1, ..sample(3, 1) }, 100);
        tcp.finish();
        assert_eq!((tcp.retransmissions(), tcp.timeouts()), (1, 1));
        assert_eq!(tcp.points.iter().map(|point| point.again.0).sum::<u32>(), 1);
    }
}
