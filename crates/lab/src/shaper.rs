//! One direction of a rail. Time goes in with every call, packets come out when they are due; nothing here has a clock, a
//! socket or a packet's bytes, so that a simulated hour takes no time.
//!
//! ```text
//! push --loss--> queue --rate--> line (delay, jitter, reorder) --> pop
//!        |         |
//!      lost    overflowed
//! ```
//!
//! The queue is a token bucket: tokens are bytes that may leave at once, and are saved up to the burst while nothing waits. A change
//! of settings holds from the packets still in the queue on; what is already in the line arrives as it was going to, and what comes later does not overtake it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::settings::Settings;

/// What became of the packets of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that came out.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets lost by chance.
    pub lost: u64,
    /// Packets dropped because the queue was full.
    pub overflowed: u64,
    /// Packets that vanished in a black hole.
    pub vanished: u64,
    /// Packets that overtook others, if there were any under way.
    pub overtook: u64,
}

/// One direction of a rail; `P` is what stands for a packet.
pub struct Shaper<P> {
    settings: Settings,
    blackhole: bool,
    random: Random,
    wander: Wander,
    /// Bytes that may leave at `filled`.
    tokens: f64,
    filled: Duration,
    queue: VecDeque<Packet<P>>,
    queued: usize,
    /// In the order in which they come out, with the time before which they do not.
    line: VecDeque<(Duration, Packet<P>)>,
    counters: Counters,
}

struct Packet<P> {
    bytes: usize,
    content: P,
}

impl<P> Shaper<P> {
    /// A direction at time zero. The same `seed` and the same calls give the same packets.
    pub fn new(settings: Settings, seed: u64) -> Self {
        Shaper {
            settings,
            blackhole: false,
            random: Random(seed),
            wander: Wander::default(),
            tokens: settings.burst(),
            filled: Duration::ZERO,
            queue: VecDeque::new(),
            queued: 0,
            line: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// What it does to packets.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What became of packets so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Packets in the queue and in the line.
    pub fn waiting(&self) -> usize {
        self.queue.len() + self.line.len()
    }

    /// Whether so much waits for the rate that another packet would not leave sooner than after this time.
    pub fn congested(&self, time: Duration) -> bool {
        self.queued as f64 - self.tokens > self.settings.rate * time.as_secs_f64()
    }

    /// Changes what it does from `now` on.
    pub fn configure(&mut self, now: Duration, settings: Settings) {
        self.advance(now);
        self.fill(now);
        self.settings = settings;
    }

    /// Whether packets vanish from now on: those under way at once, and all that come.
    pub fn blackhole(&mut self, on: bool) {
        self.blackhole = on;
        if on {
            self.counters.vanished += self.waiting() as u64;
            self.queue.clear();
            self.queued = 0;
            self.line.clear();
        }
    }

    /// A packet of `bytes` bytes comes in. It is given back when it is dropped.
    pub fn push(&mut self, now: Duration, bytes: usize, content: P) -> Option<P> {
        if self.blackhole {
            self.counters.vanished += 1;
            return Some(content);
        }
        if self.random.happens(self.settings.loss) {
            self.counters.lost += 1;
            return Some(content);
        }
        self.advance(now);
        let packet = Packet { bytes, content };
        if self.settings.rate == 0.0 {
            self.depart(now, packet);
            return None;
        }
        if self.queued + bytes > self.settings.queue_limit() {
            self.counters.overflowed += 1;
            return Some(packet.content);
        }
        self.fill(now);
        self.queued += bytes;
        self.queue.push_back(packet);
        None
    }

    /// The next packet that is due by `now`.
    pub fn pop(&mut self, now: Duration) -> Option<P> {
        self.advance(now);
        self.line.front().filter(|(due, _)| *due <= now)?;
        let (_, packet) = self.line.pop_front()?;
        self.counters.packets += 1;
        self.counters.bytes += packet.bytes as u64;
        Some(packet.content)
    }

    /// When [`pop`](Self::pop) is worth a call again, if nothing is pushed meanwhile: no packet is due earlier.
    pub fn next(&self) -> Option<Duration> {
        let line = self.line.front().map(|(due, _)| *due);
        let shortest = if self.settings.reorder > 0.0 { Duration::ZERO } else { self.shortest() };
        let queue = self.queue.front().map(|head| self.leaves(head) + shortest);
        line.into_iter().chain(queue).min()
    }

    fn shortest(&self) -> Duration {
        self.settings.delay.saturating_sub(self.settings.jitter)
    }

    /// Moves what has left the queue by `now` into the line.
    fn advance(&mut self, now: Duration) {
        while let Some(time) = self.queue.front().map(|head| self.leaves(head)).filter(|time| *time <= now) {
            self.fill(time);
            let Some(head) = self.queue.pop_front() else { return };
            self.tokens -= head.bytes as f64;
            self.queued -= head.bytes;
            self.depart(time, head);
        }
    }

    /// When the head of the queue leaves it.
    fn leaves(&self, head: &Packet<P>) -> Duration {
        let missing = head.bytes as f64 - self.tokens;
        if missing <= 0.0 || self.settings.rate == 0.0 {
            return self.filled;
        }
        self.filled + Duration::from_secs_f64(missing / self.settings.rate)
    }

    fn fill(&mut self, now: Duration) {
        let gained = now.saturating_sub(self.filled).as_secs_f64() * self.settings.rate;
        // what waits leaves as soon as there is enough for it, be it longer than the burst
        let most = if self.queue.is_empty() { self.settings.burst() } else { f64::INFINITY };
        self.tokens = (self.tokens + gained).min(most);
        self.filled = self.filled.max(now);
    }

    fn depart(&mut self, now: Duration, packet: Packet<P>) {
        if self.random.happens(self.settings.reorder) {
            self.counters.overtook += u64::from(!self.line.is_empty());
            let place = self.line.partition_point(|(due, _)| *due <= now);
            self.line.insert(place, (now, packet));
            return;
        }
        let jitter = self.settings.jitter;
        let due = now + self.shortest() + jitter.mul_f64(1.0 + self.wander.at(now, jitter, &mut self.random));
        self.line.push_back((due, packet));
    }
}

/// Jitter as other people's traffic makes it: it wanders in straight lines between random points, four jitters apart, so
/// that it falls slower than time goes on and no packet overtakes another. Independent draws, put in order, would hold a
/// busy line at the longest delay.
#[derive(Default)]
struct Wander {
    from: f64,
    to: f64,
    start: Duration,
}

impl Wander {
    /// The deviation at time `now`, from -1 to 1.
    fn at(&mut self, now: Duration, jitter: Duration, random: &mut Random) -> f64 {
        let stretch = jitter * 4;
        if stretch.is_zero() {
            return 0.0;
        }
        let passed = now.saturating_sub(self.start);
        if passed >= stretch {
            self.from = self.to;
            self.to = random.between(-1.0, 1.0);
            self.start = now;
        }
        let way = now.saturating_sub(self.start).as_secs_f64() / stretch.as_secs_f64();
        (self.from + (self.to - self.from) * way).clamp(-1.0, 1.0)
    }
}

/// SplitMix64: small, and good enough for dice.
struct Random(u64);

impl Random {
    fn between(&mut self, low: f64, high: f64) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        low + (high - low) * ((mixed >> 11) as f64 / (1u64 << 53) as f64)
    }

    fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.between(0.0, 1.0) < probability
    }
}
