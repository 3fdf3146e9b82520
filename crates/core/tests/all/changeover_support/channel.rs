//! A model of the data channel: what a side sends and receives, by the compositions that are alive.
//!
//! What is sent and what was delivered outlive compositions, links and the death of a side, as a program's checkpoint would.

use super::plan::Spec;
use polyrail_core::control::{Epoch, Latest, Piece, Stream, Time};
use std::collections::{BTreeMap, VecDeque};

/// So many pieces are not confirmed at most, and so many are kept out of order at most.
pub const WINDOW: usize = 8;
/// Asynchronous values have one of these tags.
pub const TAGS: usize = 2;

/// A composition that is alive on one side.
pub struct Channel {
    pub epoch: Epoch,
    pub spec: Spec,
    pub timer: Option<Time>,
    /// Rounds sent in vain.
    pub tries: u32,
    /// Its data travels within the new one.
    pub rescued: bool,
}

impl Channel {
    pub fn new(epoch: Epoch, spec: Spec) -> Self {
        Self { epoch, spec, timer: None, tries: 0, rescued: false }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub at: u64,
    pub len: u64,
    pub epoch: Epoch,
}

/// What a side sends.
#[derive(Default)]
pub struct Out {
    /// Messages of the program that are not sent yet.
    pub backlog: u32,
    /// The end of the stream so far.
    pub next: u64,
    pub acked: u64,
    pub unacked: VecDeque<Sent>,
    pub iterations: [u64; TAGS],
}

impl Out {
    /// The peer has all up to here.
    pub fn confirm(&mut self, upto: u64) {
        assert!(upto <= self.next, "what was never sent was confirmed");
        self.acked = self.acked.max(upto);
        while self.unacked.front().is_some_and(|sent| sent.at + sent.len <= self.acked) {
            self.unacked.pop_front();
        }
    }
}

/// What a side receives.
#[derive(Default)]
pub struct In {
    pub stream: Stream,
    latest: Latest,
    /// What the program got: judged by itself.
    pub got: u64,
    pub newest: [u64; TAGS],
    pub values: u64,
    /// Out of order.
    early: BTreeMap<u64, u64>,
    /// Of the new composition, until the old one is complete.
    held: BTreeMap<u64, u64>,
    held_values: BTreeMap<u32, u64>,
    /// The composition whose data is delivered, and those that are over.
    pub delivered: u32,
    over: Vec<u32>,
}

impl In {
    /// The link ends: what was not delivered is lost.
    pub fn reset(&mut self, first: u32) {
        self.over.push(self.delivered);
        self.delivered = first;
        self.early.clear();
        self.held.clear();
        self.held_values.clear();
    }

    pub fn is_over(&self, nonce: u32) -> bool {
        self.over.contains(&nonce)
    }

    pub fn data(&mut self, at: u64, len: u64) {
        self.take(at, len);
        while let Some((&at, &len)) = self.early.first_key_value() {
            if at > self.stream.next() {
                break;
            }
            self.early.remove(&at);
            self.take(at, len);
        }
    }

    fn take(&mut self, at: u64, len: u64) {
        match self.stream.offer(at, len) {
            Piece::New { skip } => {
                assert_eq!(at + skip, self.got, "synchronous data is not in order, or not exactly once");
                self.got = at + len;
            }
            Piece::Early if self.early.len() < WINDOW => _ = self.early.insert(at, len),
            Piece::Early | Piece::Doubled => {}
        }
    }

    pub fn value(&mut self, tag: u32, iteration: u64) {
        if self.latest.offer(tag, iteration) {
            let newest = &mut self.newest[tag as usize];
            assert!(iteration > *newest, "an asynchronous value is not newer than the one before");
            *newest = iteration;
            self.values += 1;
        }
    }

    pub fn hold(&mut self, at: u64, len: u64) {
        if self.held.len() < WINDOW {
            self.held.insert(at, len);
        }
    }

    pub fn hold_value(&mut self, tag: u32, iteration: u64) {
        let newest = self.held_values.entry(tag).or_default();
        *newest = iteration.max(*newest);
    }

    /// The old composition is over; what was held is delivered.
    pub fn resume(&mut self, old: u32, new: u32) {
        assert_eq!(self.delivered, old, "a composition is skipped");
        self.over.push(old);
        self.delivered = new;
        self.early.clear();
        for (at, len) in std::mem::take(&mut self.held) {
            self.data(at, len);
        }
        for (tag, iteration) in std::mem::take(&mut self.held_values) {
            self.value(tag, iteration);
        }
    }
}
