//! Two ends of a data channel, and a path between them that has a rate, a queue, a delay, and dice.

pub mod values;

use polyrail_core::micro::{
    Arrived, Composition, DataChannel, Limits, NEVER, PutError, Received, Shared, Time, User,
};
use polyrail_core::values::{Inbox, Took};
use polyrail_core::wire::datagram::{Chunk, Chunks, HEADER, TAG, Value};
use std::collections::{BTreeMap, VecDeque};
use std::sync::OnceLock;

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000_000_000;

/// Random numbers from a seed (xorshift64*).
#[derive(Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    /// True this often in a million.
    pub fn falls(&mut self, ppm: u64) -> bool {
        self.next() % 1_000_000 < ppm
    }
}

/// One direction of the path.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// Bytes per second; 0: no limit.
    pub rate: u64,
    /// Bytes that may wait for the rate.
    pub queue: u64,
    /// From one end to the other.
    pub delay: Time,
    /// In a million.
    pub loss: u64,
    pub doubled: u64,
    /// In a million; such a datagram comes later by up to `late`.
    pub reordered: u64,
    pub late: Time,
    /// Bytes that wait from which on datagrams are marked; 0: none.
    pub mark_at: u64,
    /// Longer datagrams do not come.
    pub mtu: u32,
}

impl Line {
    pub fn new(mbit: u64, rtt: Time) -> Self {
        let rate = mbit * 125_000;
        let queue = (rate * rtt / S).max(64 << 10);
        Self {
            rate,
            queue,
            delay: rtt / 2,
            loss: 0,
            doubled: 0,
            reordered: 0,
            late: 0,
            mark_at: 0,
            mtu: 1472,
        }
    }
    pub fn losing(self, loss: u64) -> Self {
        Self { loss, ..self }
    }
}

/// After so many bytes the stream repeats itself.
const PERIOD: usize = 65_521;

/// What of the stream stands at a range, which is shorter than a datagram.
pub fn bytes_at(pos: u64, len: usize) -> &'static [u8] {
    static ALL: OnceLock<Vec<u8>> = OnceLock::new();
    let byte = |at: usize| ((at % PERIOD) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    let all = ALL.get_or_init(|| (0..PERIOD + (1 << 16)).map(|at| byte(at) as u8).collect());
    let from = (pos % PERIOD as u64) as usize;
    &all[from..from + len]
}

struct Flying {
    number: u64,
    chunks: Vec<u8>,
    size: u32,
    marked: bool,
}

/// Who keeps values.
pub struct Keeper<'a> {
    pub now: Time,
    pub inbox: &'a mut Inbox,
}

impl User for Keeper<'_> {
    fn deliver(&mut self, _bytes: &[u8]) {
        panic!("a value is no part of the stream");
    }
    fn takes_values(&self) -> bool {
        true
    }
    fn value(&mut self, value: &Value<'_>) {
        assert_ne!(self.inbox.take_in(self.now, value), Took::Broken);
    }
}

/// One end of a channel: what it sends goes by one line.
pub struct End {
    pub channel: DataChannel,
    /// Values that came.
    pub inbox: Inbox,
    /// When its timer is due.
    due: Time,
    /// Who sends here looks only at multiples of this; 0: at once.
    pub looks: Time,
    /// What the user has had, and when which position was.
    pub had: u64,
    pub wrong: bool,
    pub times: VecDeque<(u64, Time)>,
    pub most_held: usize,
}

/// Several channels over two lines, one each way, shared by all: `ends[2 * n]` sends to `ends[2 * n + 1]`.
pub struct Net {
    pub now: Time,
    pub ends: Vec<End>,
    pub forth: Line,
    pub back: Line,
    free: [Time; 2],
    dice: Dice,
    wire: BTreeMap<(Time, u64), (usize, Flying)>,
    count: u64,
    room: Vec<u8>,
    spare: Vec<Vec<u8>>,
    /// Datagrams that a queue had no room for.
    pub overflowed: u64,
    pub lost: u64,
}

/// The next multiple of this.
fn seen(at: Time, looks: Time) -> Time {
    if looks == 0 || at == NEVER { at } else { at.next_multiple_of(looks) }
}

pub const WINDOW: u64 = 64 << 20;

pub fn limits() -> Limits {
    Limits {
        size: 1472,
        start: 0,
        window: WINDOW,
        holds: WINDOW,
        receives_from: 0,
        rtt: 0,
        in_flight: 0,
        path: polyrail_core::micro::Known::default(),
        lost: (0, 0),
    }
}

impl Net {
    pub fn new(seed: u64, forth: Line, back: Line) -> Self {
        Self {
            now: 0,
            ends: Vec::new(),
            forth,
            back,
            free: [0; 2],
            dice: Dice::new(seed),
            wire: BTreeMap::new(),
            count: 0,
            room: vec![0; 1 << 16],
            spare: Vec::new(),
            overflowed: 0,
            lost: 0,
        }
    }

    /// A channel, by the index of its first end.
    pub fn join(&mut self, composition: Composition) -> usize {
        self.join_with(composition, &limits())
    }

    /// The same within other limits.
    pub fn join_with(&mut self, composition: Composition, limits: &Limits) -> usize {
        let at = self.ends.len();
        for _ in 0..2 {
            self.ends.push(End {
                channel: DataChannel::new(composition, self.now, limits),
                inbox: Inbox::default(),
                due: NEVER,
                looks: 0,
                had: 0,
                wrong: false,
                times: VecDeque::new(),
                most_held: 0,
            });
        }
        at
    }

    pub fn shared(&self, end: usize) -> &Shared {
        self.ends[end].channel.shared()
    }

    fn send(&mut self, from: usize, flying: Flying) {
        let way = from % 2;
        let line = if way == 0 { self.forth } else { self.back };
        if flying.size > line.mtu || self.dice.falls(line.loss) {
            self.lost += 1;
            return;
        }
        let wire_size = u64::from(flying.size) + 28;
        let (mut leaves, mut marked) = (self.now, false);
        if line.rate > 0 {
            let waits = self.free[way].saturating_sub(self.now);
            let queued = (u128::from(waits) * u128::from(line.rate) / u128::from(S)) as u64;
            if queued + wire_size > line.queue {
                self.overflowed += 1;
                return;
            }
            marked = line.mark_at > 0 && queued > line.mark_at;
            leaves = self.free[way].max(self.now) + wire_size * S / line.rate;
            self.free[way] = leaves;
        }
        let late = if self.dice.falls(line.reordered) { self.dice.next() % line.late.max(1) } else { 0 };
        let again = self.dice.falls(line.doubled);
        let mut flying = Flying { marked, ..flying };
        let doubled = if again { flying.chunks.clone() } else { Vec::new() };
        for n in 0..=u64::from(again) {
            self.count += 1;
            let chunks = if n == 0 { std::mem::take(&mut flying.chunks) } else { doubled.clone() };
            let copy = Flying { chunks, ..flying };
            let comes = seen(leaves + line.delay + late + n * 10 * US, self.ends[from ^ 1].looks);
            self.wire.insert((comes, self.count), (from ^ 1, copy));
        }
    }

    fn pump(&mut self, at: usize) {
        let now = self.now;
        self.ends[at].channel.handle_timeout(now);
        while let Some(made) = self.ends[at].channel.poll_transmit(now, &mut self.room, 0, false) {
            let mut chunks = self.spare.pop().unwrap_or_default();
            chunks.clear();
            chunks.extend_from_slice(&self.room[..made.chunks]);
            chunks.extend_from_slice(bytes_at(made.segment.pos, made.segment.len as usize));
            let size = (chunks.len() + HEADER + TAG) as u32;
            self.send(at, Flying { number: made.number, chunks, size, marked: false });
        }
        self.ends[at].due = seen(self.ends[at].channel.due(), self.ends[at].looks);
    }

    fn arrive(&mut self, at: usize, flying: &Flying) {
        let now = self.now;
        let end = &mut self.ends[at];
        let chunks = Chunks::new(&flying.chunks).map(|chunk| chunk.expect("a chunk"));
        let elicits = chunks.clone().any(|chunk| !matches!(chunk, Chunk::Ack(_)));
        let arrived = Arrived { number: flying.number, size: flying.size, elicits, marked: flying.marked };
        if end.channel.handle_arrival(now, &arrived) == Received::Dropped {
            return;
        }
        for chunk in chunks {
            match chunk {
                Chunk::Ack(ack) => end.channel.handle_ack(&ack),
                Chunk::Value(value) => {
                    let mut keeper = Keeper { now, inbox: &mut end.inbox };
                    end.channel.handle_value(&value, &mut keeper);
                }
                Chunk::Stream { pos, bytes, .. } => {
                    let (had, wrong) = (&mut end.had, &mut end.wrong);
                    end.channel.handle_stream(pos, bytes, &mut |bytes: &[u8]| {
                        *wrong |= bytes != bytes_at(*had, bytes.len());
                        *had += bytes.len() as u64;
                    });
                    end.times.push_back((end.had, now));
                    end.most_held = end.most_held.max(end.channel.shared().held);
                }
                _ => {}
            }
        }
        assert_eq!(end.channel.shared().broken, None);
    }

    /// Gives one end more to send.
    pub fn give(&mut self, end: usize, bytes: u64) {
        let given = self.ends[end].channel.shared().end;
        self.ends[end].channel.extend(given + bytes);
        self.pump(end);
    }

    /// Gives one end a value.
    pub fn put(&mut self, end: usize, tag: u64, iteration: u64, bytes: &[u8]) -> Result<(), PutError> {
        let put = self.ends[end].channel.put_value(self.now, tag, iteration, bytes);
        self.pump(end);
        put
    }

    /// One event; false if there is none before this time.
    pub fn step(&mut self, until: Time) -> bool {
        let due = |end: &End| end.due;
        let timer = self.ends.iter().map(due).min().unwrap_or(NEVER).max(self.now);
        let arrival = self.wire.first_key_value().map_or(NEVER, |((at, _), _)| *at);
        let next = timer.min(arrival);
        if next > until || next == NEVER {
            self.now = self.now.max(until.min(next));
            return false;
        }
        self.now = next;
        if arrival <= timer {
            let (_, (to, flying)) = self.wire.pop_first().expect("it was there");
            self.arrive(to, &flying);
            self.spare.push(flying.chunks);
            self.pump(to);
        } else {
            for at in 0..self.ends.len() {
                if self.ends[at].due <= self.now {
                    self.pump(at);
                }
            }
        }
        true
    }

    /// Until this end has had so much, or until this time: whether it has.
    pub fn run_until_had(&mut self, end: usize, bytes: u64, until: Time) -> bool {
        while self.ends[end].had < bytes {
            if !self.step(until) {
                return false;
            }
        }
        true
    }

    pub fn run(&mut self, until: Time) {
        while self.step(until) {}
    }
}
