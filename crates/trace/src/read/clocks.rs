//! Time: from a host's ticks to its monotonic clock, and from there to the clock of the run's first host.
//!
//! Hosts' clocks are set beside each other by what TCP carried between them: a byte is received after it was sent, so each byte
//! bounds how far the clocks can be apart, one direction from below and the other from above. The error told is half of what is left between
//! the bounds. Hosts that share a kernel and a time namespace share a clock.

use std::collections::HashMap;
use std::io;

use super::Recorded;
use crate::model::{CallEvent, Class, Event, Events};

/// A host's ticks and its monotonic clock (nanoseconds), by pairs that were taken together.
#[derive(Debug, Default)]
pub struct Ticks(Vec<(u64, u64)>);

impl Ticks {
    /// A moment on both. One that goes backwards is left out.
    pub fn pair(&mut self, ticks: u64, monotonic: u64) {
        if self.0.last().is_none_or(|last| last.0 < ticks && last.1 < monotonic) {
            self.0.push((ticks, monotonic));
        }
    }

    /// The monotonic time of a moment; ticks are nanoseconds where nothing says otherwise.
    pub fn monotonic(&self, ticks: u64) -> u64 {
        let pairs = &self.0[..];
        if pairs.len() < 2 {
            return match pairs.first() {
                Some(only) => only.1.saturating_add_signed(ticks.wrapping_sub(only.0).cast_signed()),
                None => ticks,
            };
        }
        let next = pairs.partition_point(|pair| pair.0 <= ticks).clamp(1, pairs.len() - 1);
        let (from, to) = (pairs[next - 1], pairs[next]);
        let slope = (to.1 - from.1) as f64 / (to.0 - from.0) as f64;
        let away = (ticks.wrapping_sub(from.0).cast_signed()) as f64 * slope;
        from.1.saturating_add_signed(away as i64)
    }

    /// How long a number of ticks is, in nanoseconds.
    pub fn length(&self, ticks: u64) -> u64 {
        match (self.0.first(), self.0.last()) {
            (Some(first), Some(last)) if last.0 > first.0 => {
                (ticks as f64 * ((last.1 - first.1) as f64 / (last.0 - first.0) as f64)) as u64
            }
            _ => ticks,
        }
    }
}

/// A line from one clock to another: what to add, and how that changes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Aligned {
    offset: i64,
    drift: f64,
    from: u64,
}

impl Aligned {
    /// On the other clock.
    pub fn time(&self, at: u64) -> u64 {
        if self.offset == 0 && self.drift == 0.0 {
            return at;
        }
        let since = at.wrapping_sub(self.from).cast_signed() as f64;
        at.saturating_add_signed(self.offset + (since * self.drift) as i64)
    }
}

/// Sends and receives that are looked at, per socket and direction.
const LOOKED_AT: usize = 20_000;
/// Parts of the run in which bounds are found by themselves, to see clocks drift.
const PARTS: usize = 16;

/// When how many bytes had been sent (before the call) or received (after it) on a socket.
#[derive(Default)]
struct Flow {
    total: u64,
    steps: Vec<(u64, u64)>,
}

impl Flow {
    fn step(&mut self, bytes: u32, at: u64) {
        self.total += u64::from(bytes);
        if self.steps.len() < LOOKED_AT {
            self.steps.push((self.total, at));
        }
    }
}

/// Bounds on what must be added to clock B to get clock A: (moment on B, lowest) and (moment on B, highest).
#[derive(Default)]
struct Bounds {
    low: Vec<(u64, i64)>,
    high: Vec<(u64, i64)>,
}

/// Sets all sources beside the clock of `first`.
pub fn align(recorded: &mut Recorded, first: usize) -> io::Result<()> {
    let domain = |at: usize| {
        let host = &recorded.sources[at].host;
        (host.boot.clone(), host.time)
    };
    let domains: Vec<_> = (0..recorded.sources.len()).map(domain).collect();
    let mut errors: Vec<Option<u64>> =
        domains.iter().map(|other| (*other == domains[first]).then_some(0)).collect();
    if errors.iter().any(Option::is_none) {
        let bounds = bounds(recorded, &domains, &domains[first])?;
        for (other, bounds) in bounds {
            let Some((aligned, error)) = solve(&bounds) else { continue };
            for at in (0..domains.len()).filter(|at| domains[*at] == other) {
                recorded.sources[at].aligned = aligned;
                errors[at] = Some(error);
            }
        }
    }
    for (at, source) in recorded.sources.iter().enumerate() {
        for host in source.hosts.values() {
            let host = &mut recorded.run.hosts[*host as usize];
            host.clock_error = errors[at];
            if errors[at].is_none() {
                recorded.run.warnings.push(format!(
                    "no TCP connection between {} and the first host was recorded: their clocks could not be set beside each other",
                    host.name
                ));
            }
        }
    }
    Ok(())
}

type Domain = (String, u64);

/// What connections with the first domain say about the others.
fn bounds(recorded: &Recorded, domains: &[Domain], first: &Domain) -> io::Result<HashMap<Domain, Bounds>> {
    // which clock a socket's times are of
    let mut clock = vec![usize::MAX; recorded.run.sockets.len()];
    for (at, source) in recorded.sources.iter().enumerate() {
        source.cookies.values().for_each(|socket| clock[*socket as usize] = at);
    }
    let mut flows: HashMap<u32, (Flow, Flow)> = HashMap::new();
    recorded.for_each(&mut |event| {
        if let Event::Call(CallEvent { call, start, took, socket: Some(socket), bytes: 1.., .. }) = event
            && let Event::Call(whole) = event
        {
            let (sent, received) = flows.entry(*socket).or_default();
            match call.class() {
                Class::Send => sent.step(whole.bytes, *start),
                Class::Receive => received.step(whole.bytes, start + took),
                _ => {}
            }
        }
    })?;
    let mut all: HashMap<Domain, Bounds> = HashMap::new();
    for (socket, (sent, received)) in &flows {
        let Some(peer) = recorded.run.sockets[*socket as usize].peer else { continue };
        let (ours, theirs) = (clock[*socket as usize], clock[peer as usize]);
        if ours == usize::MAX || theirs == usize::MAX || domains[ours] != *first || domains[theirs] == *first
        {
            continue;
        }
        let Some((their_sent, their_received)) = flows.get(&peer) else { continue };
        let bounds = all.entry(domains[theirs].clone()).or_default();
        // we sent at t, they had it at u: u + offset >= t
        for (t, u) in pairs(sent, their_received) {
            bounds.low.push((u, t.wrapping_sub(u).cast_signed()));
        }
        // they sent at u, we had it at t: u + offset <= t
        for (u, t) in pairs(their_sent, received) {
            bounds.high.push((u, t.wrapping_sub(u).cast_signed()));
        }
    }
    Ok(all)
}

/// For each receive, the send that its last byte was in: (sent, received).
fn pairs(sent: &Flow, received: &Flow) -> Vec<(u64, u64)> {
    let mut sends = sent.steps.iter();
    let mut send = sends.next();
    let mut found = Vec::new();
    for (total, at) in &received.steps {
        while send.is_some_and(|step| step.0 < *total) {
            send = sends.next();
        }
        let Some(step) = send else { break };
        found.push((step.1, *at));
    }
    found
}

/// The line that keeps within the bounds, and by how much it may be wrong. One offset if that is possible; else the clocks drift.
fn solve(bounds: &Bounds) -> Option<(Aligned, u64)> {
    let lowest = bounds.low.iter().map(|bound| bound.1).max()?;
    let highest = bounds.high.iter().map(|bound| bound.1).min()?;
    let whole = Aligned { offset: middle(lowest, highest), drift: 0.0, from: 0 };
    if lowest <= highest {
        return Some((whole, highest.abs_diff(lowest) / 2));
    }
    let moments = bounds.low.iter().chain(&bounds.high).map(|bound| bound.0);
    let (from, to) = (moments.clone().min()?, moments.max()?);
    let part = |at: u64| ((at - from) as u128 * PARTS as u128 / ((to - from) as u128 + 1)) as usize;
    let mut parts = [(i64::MIN, i64::MAX); PARTS];
    bounds.low.iter().for_each(|(at, low)| parts[part(*at)].0 = parts[part(*at)].0.max(*low));
    bounds.high.iter().for_each(|(at, high)| parts[part(*at)].1 = parts[part(*at)].1.min(*high));
    let width = (to - from) as f64 / PARTS as f64;
    let points: Vec<(f64, f64, u64)> = parts
        .iter()
        .enumerate()
        .filter(|(_, (low, high))| *low != i64::MIN && *high != i64::MAX)
        .map(|(at, (low, high))| ((at as f64 + 0.5) * width, middle(*low, *high) as f64, high.abs_diff(*low)))
        .collect();
    if points.len() < 2 {
        return Some((whole, highest.abs_diff(lowest)));
    }
    let count = points.len() as f64;
    let (mean_x, mean_y) =
        (points.iter().map(|p| p.0).sum::<f64>() / count, points.iter().map(|p| p.1).sum::<f64>() / count);
    let spread: f64 = points.iter().map(|p| (p.0 - mean_x).powi(2)).sum();
    let drift = points.iter().map(|p| (p.0 - mean_x) * (p.1 - mean_y)).sum::<f64>() / spread;
    let aligned = Aligned { offset: (mean_y - drift * mean_x) as i64, drift, from };
    let off =
        points.iter().map(|p| (p.1 - (mean_y + drift * (p.0 - mean_x))).abs() as u64 + p.2 / 2).max()?;
    Some((aligned, off))
}

fn middle(low: i64, high: i64) -> i64 {
    ((i128::from(low) + i128::from(high)) / 2) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_nanoseconds_between_and_beyond_the_pairs() {
        let mut ticks = Ticks::default();
        assert_eq!(ticks.monotonic(77), 77);
        ticks.pair(3_000, 1_000_000);
        assert_eq!(ticks.monotonic(3_500), 1_000_500);
        ticks.pair(6_000, 1_001_000);
        ticks.pair(5_000, 9); // backwards: left out
        ticks.pair(9_000, 1_004_000); // slower from here on
        for (from, to) in
            [(3_000, 1_000_000), (4_500, 1_000_500), (6_000, 1_001_000), (7_500, 1_002_500), (0, 999_000)]
        {
            assert_eq!(ticks.monotonic(from), to, "{from}");
        }
        assert_eq!(ticks.length(600), 400);
    }

    fn flow(steps: &[(u32, u64)]) -> Flow {
        let mut flow = Flow::default();
        steps.iter().for_each(|(bytes, at)| flow.step(*bytes, *at));
        flow
    }

    #[test]
    fn a_receive_is_paired_with_the_send_of_its_last_byte() {
        let sent = flow(&[(10, 100), (10, 200), (10, 300)]);
        let received = flow(&[(5, 1100), (15, 1200), (10, 1300), (1, 1400)]);
        assert_eq!(pairs(&sent, &received), [(100, 1100), (200, 1200), (300, 1300)]);
    }

    #[test]
    fn clocks_that_are_apart_are_set_beside_each_other_within_the_bound() {
        // clock A = clock B + 1000; 30 there, 50 back
        let mut bounds = Bounds::default();
        for at in 0..10u64 {
            let b = 5_000 + at * 100;
            bounds.low.push((b + 30, 1000 - 30));
            bounds.high.push((b, 1000 + 50));
        }
        let (aligned, error) = solve(&bounds).unwrap();
        assert_eq!(error, 40);
        assert!(aligned.time(5_000).abs_diff(6_000) <= error);
    }

    #[test]
    fn clocks_that_drift_are_followed() {
        // A = B * 1.0001 + 1000, over a second: no single offset fits
        let mut bounds = Bounds::default();
        let other = |b: u64| b as i64 + 1000 + (b as f64 * 1e-4) as i64;
        for at in 0..1000u64 {
            let b = at * 1_000_000;
            bounds.low.push((b, other(b) - b as i64 - 2000));
            bounds.high.push((b, other(b) - b as i64 + 2000));
        }
        let (aligned, error) = solve(&bounds).unwrap();
        assert!(error < 12_000, "{error}");
        for b in [0, 500_000_000, 999_000_000] {
            assert!(aligned.time(b).abs_diff(other(b) as u64) <= error, "{b}");
        }
    }
}
