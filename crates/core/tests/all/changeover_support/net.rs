//! A network of several paths, and its clock: what is under way, lost, doubled, overtaken.

use super::plan::{PATHS, Plan, Ways};
use polyrail_core::control::Time;
use polyrail_core::sim::Rng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub const US: Time = 1000;
pub const MS: Time = 1000 * US;

/// By which way a datagram goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Way {
    Control,
    Data(u8),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Body {
    Word { number: u16, bytes: Vec<u8> },
    WordAck { next: u16 },
    Data { epoch: u8, nonce: u32, at: u64, len: u64 },
    Value { epoch: u8, nonce: u32, tag: u32, iteration: u64 },
    Ack { epoch: u8, nonce: u32, upto: u64 },
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Datagram {
    /// Stands for the connection and its key: what is of another is refused.
    pub incarnation: u32,
    pub way: Way,
    pub body: Body,
}

/// What happens at a time.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Happens {
    Step(usize),
    Arrives {
        to: usize,
        datagram: Datagram,
    },
    Built {
        side: usize,
        incarnation: u32,
        epoch: u8,
        nonce: u32,
        path: u8,
        sync: bool,
        works: bool,
    },
    /// The handshake of a link that is made anew.
    Hello {
        to: usize,
        incarnation: u32,
    },
    /// A refused proposal may be made again.
    Retry,
}

pub struct Net {
    pub now: Time,
    pub rng: Rng,
    pub loss: u8,
    pub doubled: u8,
    jitter: Time,
    dead: [Ways; PATHS as usize],
    /// Until when the control channel is cut from each side.
    cut: [Time; 2],
    queue: BinaryHeap<Reverse<(Time, u64, Happens)>>,
    order: u64,
}

impl Net {
    pub fn new(plan: &Plan) -> Self {
        Self {
            now: 0,
            rng: Rng::new(plan.seed),
            loss: plan.loss,
            doubled: plan.doubled,
            jitter: Time::from(plan.jitter) * US,
            dead: [0; PATHS as usize],
            cut: [0; 2],
            queue: BinaryHeap::new(),
            order: 0,
        }
    }

    pub fn at(&mut self, time: Time, happens: Happens) {
        self.order += 1;
        self.queue.push(Reverse((time, self.order, happens)));
    }

    pub fn after(&mut self, time: Time, happens: Happens) {
        self.at(self.now + time, happens);
    }

    pub fn next_at(&self) -> Option<Time> {
        self.queue.peek().map(|Reverse((at, ..))| *at)
    }

    pub fn pop(&mut self) -> Option<Happens> {
        self.queue.pop().map(|Reverse((_, _, happens))| happens)
    }

    pub fn set_path(&mut self, path: u8, ways: Ways, alive: bool) {
        let dead = &mut self.dead[usize::from(path)];
        *dead = if alive { *dead & !ways } else { *dead | ways };
    }

    pub fn cut(&mut self, ways: Ways, until: Time) {
        for side in 0..2 {
            if ways & (1 << side) != 0 {
                self.cut[side] = until;
            }
        }
    }

    /// Whether a path works both ways.
    pub fn works(&self, path: u8) -> bool {
        self.dead[usize::from(path)] == 0
    }

    fn open(&self, from: usize, way: Way) -> bool {
        match way {
            Way::Control => self.cut[from] <= self.now,
            Way::Data(path) => self.dead[usize::from(path)] & (1 << from) == 0,
        }
    }

    pub fn send(&mut self, from: usize, datagram: Datagram) {
        if !self.open(from, datagram.way) {
            return;
        }
        let copies = 1 + u8::from(self.rng.chance(self.doubled));
        for _ in 0..copies {
            if !self.rng.chance(self.loss) {
                let takes = 300 * US + self.rng.below(self.jitter + 1);
                self.after(takes, Happens::Arrives { to: 1 - from, datagram: datagram.clone() });
            }
        }
    }

    /// Whether what arrives was not on a path that has died since.
    pub fn arrives(&self, to: usize, datagram: &Datagram) -> bool {
        self.open(1 - to, datagram.way)
    }
}
