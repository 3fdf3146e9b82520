//! A way between two hosts: a FIFO that a rate empties, and the distance. What does not fit is dropped, as a token bucket does.

use polyrail_core::sim::{Rng, Time};
use std::collections::VecDeque;

/// What a path is like now.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Bytes per second.
    pub rate: u64,
    /// One way, in nanoseconds.
    pub delay: Time,
    /// Most additional delay, drawn for each packet; packets keep their order.
    pub jitter: Time,
    /// Bytes that wait for departure at most.
    pub buffer: u64,
    /// Of a hundred packets, so many are lost.
    pub loss: u8,
    /// Else nothing arrives, and nobody is told.
    pub up: bool,
}

/// A packet.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Which connection.
    pub flow: usize,
    /// The how-manieth that this connection sends.
    pub number: u64,
    /// When it left.
    pub left: Time,
    pub start: u64,
    pub len: u64,
}

#[derive(Debug)]
pub struct Path {
    pub spec: Spec,
    waits: VecDeque<Segment>,
    held: u64,
    /// What may depart, in bytes.
    credit: f64,
    flies: VecDeque<(Time, Segment)>,
    rng: Rng,
    pub seed: u64,
}

impl Path {
    pub fn new(spec: Spec, seed: u64) -> Self {
        Self {
            spec,
            waits: VecDeque::new(),
            held: 0,
            credit: 0.0,
            flies: VecDeque::new(),
            rng: Rng::new(seed),
            seed,
        }
    }

    /// Takes a packet, or drops it.
    pub fn put(&mut self, segment: Segment) {
        if self.held + segment.len <= self.spec.buffer {
            self.held += segment.len;
            self.waits.push_back(segment);
        }
    }

    /// Lets `step` nanoseconds pass.
    pub fn pass(&mut self, now: Time, step: Time) {
        self.credit += self.spec.rate as f64 * step as f64 * 1e-9;
        while let Some(segment) = self.waits.front().copied().filter(|one| one.len as f64 <= self.credit) {
            self.waits.pop_front();
            self.held -= segment.len;
            self.credit -= segment.len as f64;
            if self.spec.up && !self.rng.chance(self.spec.loss) {
                let last = self.flies.back().map_or(0, |(at, _)| *at);
                let at = now + self.spec.delay + self.rng.below(self.spec.jitter);
                self.flies.push_back((at.max(last), segment));
            }
        }
        if self.waits.is_empty() {
            self.credit = 0.0;
        }
    }

    /// A packet that has arrived.
    pub fn take(&mut self, now: Time) -> Option<Segment> {
        self.flies.front().filter(|(at, _)| *at <= now)?;
        self.flies.pop_front().map(|(_, segment)| segment)
    }
}
