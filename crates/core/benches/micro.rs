//! Nanoseconds per segment of a data channel in memory: made, taken, and half an acknowledgement made, read and taken; and per crossing
//! of a micro-protocol by one of these. Its bytes are not touched.
//!
//! `cargo bench -p polyrail-core --bench micro`. Each figure is the best of several batches, because the machine may be shared: what others
//! do can only add.
use polyrail_core::micro::{Arrived, Composition, DataChannel, Known, Limits, Time, Transmit};
use polyrail_core::wire::datagram::{Chunk, Chunks, HEADER, TAG};
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;

const BATCH: u64 = 2_000;
const BATCHES: usize = 300;
const SIZE: u32 = 1472;
/// Nanoseconds from one segment to the next, and to the acknowledgement.
const APART: Time = 12_000;
/// Segments on their way; each that is lost is one in so many.
const ON_THEIR_WAY: [u64; 2] = [8, 1000];

struct Pair {
    sender: DataChannel,
    receiver: DataChannel,
    now: Time,
    room: Vec<u8>,
    bytes: Vec<u8>,
    /// What is on its way.
    way: VecDeque<Transmit>,
    depth: u64,
    lose: u64,
    taken: u64,
}

impl Pair {
    fn new(composition: Composition, depth: u64, lose: u64) -> Self {
        let limits = Limits {
            size: SIZE,
            start: 0,
            window: 1 << 40,
            holds: 1 << 40,
            receives_from: 0,
            rtt: depth * APART,
            in_flight: 4 * depth * u64::from(SIZE),
            path: Known::default(),
            lost: (0, 0),
        };
        let channel = || DataChannel::new(composition, 0, &limits);
        let (sender, receiver) = (channel(), channel());
        let mut all = Self {
            sender,
            receiver,
            now: 1,
            room: vec![0; 2048],
            bytes: vec![7; 2048],
            way: Default::default(),
            depth,
            lose,
            taken: 0,
        };
        all.sender.extend(1 << 40);
        all
    }

    /// One segment leaves, if it may, and the oldest comes, if there are enough.
    fn step(&mut self) {
        self.now += APART;
        self.sender.handle_timeout(self.now);
        if let Some(made) = self.sender.poll_transmit(self.now, &mut self.room, 0, false) {
            self.way.push_back(made);
        }
        if self.way.len() as u64 >= self.depth {
            self.take();
        }
    }

    fn take(&mut self) {
        let Some(Transmit { number, segment, .. }) = self.way.pop_front() else { return };
        if self.lose > 0 && number % self.lose == self.lose - 1 {
            return;
        }
        self.taken += 1;
        let arrived = Arrived { number, size: SIZE, elicits: true, marked: false };
        self.receiver.handle_arrival(self.now, &arrived);
        if segment.len > 0 {
            let bytes = &self.bytes[..segment.len as usize];
            self.receiver.handle_stream(segment.pos, bytes, &mut |bytes: &[u8]| {
                black_box(bytes);
            });
        }
        while let Some(made) = self.receiver.poll_transmit(self.now, &mut self.room, 0, false) {
            let arrived = Arrived {
                number: made.number,
                size: (HEADER + TAG + made.chunks) as u32,
                elicits: false,
                marked: false,
            };
            self.sender.handle_arrival(self.now, &arrived);
            for chunk in Chunks::new(&self.room[..made.chunks]) {
                if let Ok(Chunk::Ack(ack)) = chunk {
                    self.sender.handle_ack(&ack);
                }
            }
        }
    }
}

/// The least time per segment that came, in nanoseconds.
fn best(composition: Composition, depth: u64, lose: u64) -> f64 {
    let mut pair = Pair::new(composition, depth, lose);
    let mut batch = || {
        let (start, before) = (Instant::now(), pair.taken);
        (0..BATCH).for_each(|_| pair.step());
        start.elapsed().as_nanos() as f64 / (pair.taken - before).max(1) as f64
    };
    (0..BATCHES).map(|_| batch()).fold(f64::INFINITY, f64::min)
}

fn main() {
    // a segment goes down one side and up the other, and half an acknowledgement likewise
    let crossings = |composition: Composition| composition.micro_protocols().len() as f64 * 3.0;
    println!(
        "{:<20}{:>10}{:>14}{:>14}{:>16}{:>16}",
        "ns per segment", "protocols", "8 on the way", "1000", "1000, 1 % lost", "ns per crossing"
    );
    for composition in Composition::ALL.iter().copied() {
        let [near, far] = ON_THEIR_WAY.map(|depth| best(composition, depth, 0));
        let lossy = best(composition, ON_THEIR_WAY[1], 100);
        println!(
            "{:<20}{:>10}{near:>14.1}{far:>14.1}{lossy:>16.1}{:>16.2}",
            composition.name(),
            composition.micro_protocols().len(),
            near / crossings(composition)
        );
    }
}
