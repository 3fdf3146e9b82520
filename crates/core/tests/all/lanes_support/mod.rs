//! Several lanes to one peer as a control system, with a clock of its own: paths, connections, and senders whose sessions decide.

pub mod path;
pub mod sender;
pub mod table;
pub mod tcp;

use path::{Path, Spec};
use polyrail_core::session::Config;
use polyrail_core::sim::{MS, S, Time, US};
use sender::{Message, Sender, Work};

/// The clock's step.
const STEP: Time = 25 * US;
/// What was delivered is noted for so long at a time.
pub const BIN: Time = 10 * MS;
/// 1 Gb/s, in bytes per second.
pub const GIGABIT: u64 = 125_000_000;

/// 10 Gb/s.
pub const CLAIM: u64 = 10 * GIGABIT;

/// A local network: 1 Gb/s, 100 us, buffers for 4 ms.
pub const RAIL: Spec =
    Spec { rate: GIGABIT, delay: 50 * US, jitter: 0, buffer: GIGABIT / 250, loss: 0, up: true };

/// The same at another rate.
pub fn rail(rate: u64) -> Spec {
    Spec { rate, buffer: (rate / 250).max(64 << 10), ..RAIL }
}

pub struct Bed {
    pub paths: Vec<Path>,
    pub senders: Vec<Sender>,
    pub now: Time,
    flows: usize,
    /// Bytes that came in order, of each sender, by each path, in each bin.
    pub bins: Vec<Vec<Vec<u64>>>,
    /// The longest time in which a sender got nothing through.
    pub stall: Vec<Time>,
    quiet: Vec<Time>,
}

impl Bed {
    /// One sender; the interfaces claim what those of virtual machines do, whatever the paths can do.
    pub fn new(seed: u64, specs: &[Spec], work: Work) -> Self {
        let claims = vec![CLAIM; specs.len()];
        Self::claiming(seed, specs, work, &claims)
    }

    /// One sender; the interfaces claim something else.
    pub fn claiming(seed: u64, specs: &[Spec], work: Work, claims: &[u64]) -> Self {
        let mut bed = Self::empty(seed, specs);
        bed.add(work, claims);
        bed
    }

    /// One sender; between two interfaces a connection takes any of these paths, by chance.
    pub fn fabric(seed: u64, specs: &[Spec], ways: &[&[usize]], work: Work, config: Config) -> Self {
        let mut bed = Self::empty(seed, specs);
        bed.add_fabric(ways, work, config);
        bed
    }

    /// One sender more that has these ways.
    pub fn add_fabric(&mut self, ways: &[&[usize]], work: Work, config: Config) {
        let ways: Vec<_> = ways.iter().map(|of| of.to_vec()).collect();
        self.add_with(work, &vec![CLAIM; ways.len()], ways, config);
    }

    fn empty(seed: u64, specs: &[Spec]) -> Self {
        let path = |(at, spec): (usize, &Spec)| Path::new(*spec, seed * 1000 + at as u64);
        let paths: Vec<Path> = specs.iter().enumerate().map(path).collect();
        Self {
            paths,
            senders: Vec::new(),
            now: 0,
            flows: 0,
            bins: Vec::new(),
            stall: Vec::new(),
            quiet: Vec::new(),
        }
    }

    /// One sender more, on the first paths.
    pub fn add(&mut self, work: Work, claims: &[u64]) {
        let ways = (0..claims.len()).map(|path| vec![path]).collect();
        self.add_with(work, claims, ways, Config { connections: 1, ..Config::default() });
    }

    fn add_with(&mut self, work: Work, claims: &[u64], ways: Vec<Vec<usize>>, config: Config) {
        self.senders.push(Sender::new(work, claims, ways, config, &self.paths, self.flows));
        self.flows += 1;
        self.bins.push(vec![Vec::new(); self.paths.len()]);
        self.stall.push(0);
        self.quiet.push(self.now);
    }

    pub fn run(&mut self, until: Time) {
        while self.now < until {
            self.now += STEP;
            self.step();
        }
    }

    /// Runs, and alters the paths on the way.
    pub fn run_with(&mut self, until: Time, every: Time, mut alter: impl FnMut(Time, &mut [Path])) {
        while self.now < until {
            alter(self.now, &mut self.paths);
            self.run((self.now + every).min(until));
        }
    }

    fn step(&mut self) {
        let (now, all) = (self.now, self.paths.len());
        let bin = (now / BIN) as usize;
        for (at, path) in self.paths.iter_mut().enumerate() {
            path.pass(now, STEP);
            while let Some(segment) = path.take(now) {
                let mut conns = self.senders.iter_mut().enumerate().filter_map(|(who, sender)| {
                    let conn = sender.conns.0.iter().position(|c| !c.ended && c.flow == segment.flow)?;
                    Some((who, conn, sender))
                });
                let Some((who, conn, sender)) = conns.next() else { continue };
                let tcp = &mut sender.conns.0[conn].tcp;
                let before = tcp.came;
                tcp.arrive(now, segment, path.spec.delay);
                let new = tcp.came - before;
                if new > 0 {
                    let bins = &mut self.bins[who][at];
                    bins.resize(bins.len().max(bin + 1), 0);
                    bins[bin] += new;
                    self.stall[who] = self.stall[who].max(now - self.quiet[who]);
                    self.quiet[who] = now;
                    sender.arrived(now, conn, all);
                }
            }
        }
        for sender in &mut self.senders {
            for conn in sender.conns.0.iter_mut().filter(|conn| !conn.ended) {
                conn.tcp.pass(now, conn.flow, &mut self.paths[conn.path]);
            }
            sender.act(now, &self.paths, &mut self.flows);
        }
    }

    /// Bytes per second that a sender gets through by a path, in a span of time.
    pub fn rate(&self, who: usize, path: usize, from: Time, to: Time) -> f64 {
        let bins = (from / BIN) as usize..(to / BIN) as usize;
        let sum: u64 = bins.map(|bin| self.bins[who][path].get(bin).copied().unwrap_or(0)).sum();
        sum as f64 * S as f64 / (to - from) as f64
    }

    /// The same by all paths.
    pub fn goodput(&self, who: usize, from: Time, to: Time) -> f64 {
        (0..self.paths.len()).map(|path| self.rate(who, path, from, to)).sum()
    }

    /// How long after `from` the goodput reaches 0.95 of `ideal` for good, that is until `to`; means of 100 ms. None: never.
    pub fn settles(&self, who: usize, from: Time, to: Time, ideal: f64) -> Option<Time> {
        let good = |at: Time| self.goodput(who, at, at + 10 * BIN) >= 0.95 * ideal;
        let last_bad = (from / BIN..=to / BIN - 10).rev().map(|bin| bin * BIN).find(|at| !good(*at));
        let settled = last_bad.map_or(0, |at| at + BIN - from);
        (from + settled + 20 * BIN < to).then_some(settled)
    }

    /// How much a path's share of the goodput varies: coefficient of variation, means of 50 ms.
    pub fn variation(&self, who: usize, path: usize, from: Time, to: Time) -> f64 {
        let wide = 5 * BIN;
        let spans = (0..(to - from) / wide).map(|i| from + i * wide);
        let shares: Vec<f64> = spans
            .map(|at| self.rate(who, path, at, at + wide) / self.goodput(who, at, at + wide).max(1.0))
            .collect();
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        let variance = shares.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / shares.len() as f64;
        variance.sqrt() / mean.max(1e-9)
    }

    /// Complete messages that began in a span of time: small ones, or the others.
    pub fn messages(&self, who: usize, small: bool, from: Time, to: Time) -> Vec<&Message> {
        let all = self.senders[who].messages().iter();
        all.filter(|one| one.small == small && one.done.is_some() && (from..to).contains(&one.began))
            .collect()
    }
}
