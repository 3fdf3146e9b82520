//! A connection as kernels have it, as far as it matters here: window (cubic), selective acknowledgement, one probe of the tail,
//! timeouts that back off, and delivery in order.

use super::path::{Path, Segment};
use polyrail_core::sim::{MS, Time};
use std::collections::{BTreeMap, VecDeque};

/// What travels as one: three packets, as network cards split and join them.
const MSS: u64 = 3 * 1448;
/// Shortest retransmission timeout.
const RTO: Time = 200 * MS;

#[derive(Debug)]
pub struct Tcp {
    /// Bytes that the sender gave, sent, and knows to have arrived in order.
    pub given: u64,
    next: u64,
    pub acked: u64,
    pub rtt: Time,
    pub min_rtt: Time,
    /// On their way, in the order in which they left, and what is to leave again.
    pub sent: VecDeque<Segment>,
    lost: VecDeque<(u64, u64)>,
    flight: u64,
    number: u64,
    window: f64,
    threshold: f64,
    /// Since when the window grows, and where it was when something was lost.
    growth: Option<(Time, f64)>,
    /// Losses of packets before this one are of an event that is known.
    known: u64,
    /// When something was heard, or sent again, last; timeouts since; whether the tail was probed.
    heard: Time,
    backoff: u32,
    probed: bool,
    pub retransmitted: u64,
    /// At the receiver: bytes in order, pieces beyond, acknowledgements on their way (when, of what, all before).
    pub came: u64,
    pieces: BTreeMap<u64, u64>,
    acks: VecDeque<(Time, Segment, u64)>,
}

impl Tcp {
    pub fn new(now: Time, rtt: Time) -> Self {
        Self {
            given: 0,
            next: 0,
            acked: 0,
            rtt,
            min_rtt: rtt,
            sent: VecDeque::new(),
            lost: VecDeque::new(),
            flight: 0,
            number: 0,
            window: 10.0 * 1448.0,
            threshold: f64::INFINITY,
            growth: None,
            known: 0,
            heard: now,
            backoff: 0,
            probed: false,
            retransmitted: 0,
            came: 0,
            pieces: BTreeMap::new(),
            acks: VecDeque::new(),
        }
    }

    /// Bytes that were given and are not acknowledged.
    pub fn queued(&self) -> u64 {
        self.given - self.acked
    }

    /// The receiver's side.
    pub fn arrive(&mut self, now: Time, segment: Segment, delay: Time) {
        let end = segment.start + segment.len;
        if end > self.came {
            let piece = self.pieces.entry(segment.start).or_default();
            *piece = end.max(*piece);
        }
        while let Some(first) = self.pieces.first_entry().filter(|first| *first.key() <= self.came) {
            self.came = self.came.max(first.remove());
        }
        self.acks.push_back((now + delay, segment, self.came));
    }

    /// The sender's side: acknowledgements, timers, and what may leave. Whether something was acknowledged.
    pub fn pass(&mut self, now: Time, flow: usize, path: &mut Path) -> bool {
        let before = self.acked;
        while let Some((_, segment, came)) = self.acks.front().copied().filter(|(at, ..)| *at <= now) {
            self.acks.pop_front();
            if path.spec.up {
                self.acknowledged(now, segment, came);
            }
        }
        self.timers(now, flow, path);
        while self.flight + MSS <= self.window as u64 {
            let piece = match self.lost.pop_front() {
                Some((start, len)) if start + len <= self.acked => continue,
                Some((start, len)) => {
                    self.retransmitted += 1;
                    (start, len)
                }
                None if self.next < self.given => (self.next, MSS.min(self.given - self.next)),
                None => break,
            };
            self.next = self.next.max(piece.0 + piece.1);
            self.leave(now, flow, piece, path);
        }
        self.acked > before
    }

    fn leave(&mut self, now: Time, flow: usize, (start, len): (u64, u64), path: &mut Path) {
        if self.sent.is_empty() {
            self.heard = now;
        }
        let segment = Segment { flow, number: self.number, left: now, start, len };
        self.number += 1;
        self.flight += len;
        self.sent.push_back(segment);
        path.put(segment);
    }

    fn acknowledged(&mut self, now: Time, segment: Segment, came: u64) {
        (self.heard, self.backoff, self.probed) = (now, 0, false);
        let sample = now - segment.left;
        self.rtt = (7 * self.rtt + sample) / 8;
        self.min_rtt = self.min_rtt.min(sample);
        self.acked = self.acked.max(came);
        // packets do not overtake each other: what left before this one and is not acknowledged is lost
        let mut losses = false;
        while let Some(first) = self.sent.front().copied().filter(|one| one.number <= segment.number) {
            self.sent.pop_front();
            self.flight -= first.len;
            if first.number < segment.number && first.start + first.len > came {
                self.lost.push_back((first.start, first.len));
                losses |= first.number >= self.known;
            }
            // the probe itself was what had been lost
            losses |=
                first.number < segment.number && first.start == segment.start && first.number >= self.known;
        }
        if losses {
            self.known = self.number;
            self.shrink();
        } else {
            self.grow(now, segment.len as f64);
        }
    }

    fn shrink(&mut self) {
        self.growth = None;
        self.threshold = (self.window * 0.7).max(2.0 * MSS as f64);
        self.window = self.threshold;
    }

    fn grow(&mut self, now: Time, acked: f64) {
        // who does not use the window does not widen it
        if self.window > 2.0 * self.flight as f64 + 8.0 * MSS as f64 {
            return;
        }
        if self.window < self.threshold {
            self.window += acked;
            return;
        }
        let most = self.threshold / 0.7 / MSS as f64;
        let (since, reno) = *self.growth.get_or_insert((now, self.window));
        let t = (now - since) as f64 * 1e-9;
        let from = t - cube_root(most * 0.3 / 0.4);
        let cubic = (0.4 * from * from * from + most) * MSS as f64;
        let reno = reno + 0.5 * MSS as f64 * acked / self.window;
        self.growth = Some((since, reno));
        self.window = self.window.max(cubic.min(self.window + acked)).max(reno);
    }

    fn timers(&mut self, now: Time, flow: usize, path: &mut Path) {
        let Some(last) = self.sent.back().copied() else { return };
        let silent = now - self.heard.max(if self.probed { 0 } else { last.left });
        if !self.probed && self.backoff == 0 && silent > 2 * self.rtt + 2 * MS {
            self.probed = true;
            self.retransmitted += 1;
            self.leave(now, flow, (last.start, last.len), path);
        } else if now - self.heard > (RTO + 2 * self.rtt) << self.backoff.min(8) {
            self.lost =
                self.sent.drain(..).map(|one| (one.start, one.len)).chain(self.lost.drain(..)).collect();
            self.shrink();
            (self.flight, self.window, self.heard) = (0, MSS as f64, now);
            self.known = self.number;
            self.backoff += 1;
        }
    }
}

/// By Newton's method: the system's own function is not the same everywhere.
fn cube_root(of: f64) -> f64 {
    (0..60).fold(of.max(1.0), |x, _| x - (x - of / (x * x)) / 3.0)
}
