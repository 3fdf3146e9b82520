//! Whether a broadcast is worth sending by multicast: as it was measured, for each length, by who sends it.

use std::time::Duration;

/// What is lost at the host that lacks most, of all that it gets, from which on multicast is not worth it; and how often in a row.
const LOSSY: f64 = 0.25;
const PATIENCE: u32 = 3;
/// The same that says that it does not reach others at all: that is to be seen twice.
const DEAF: f64 = 0.9;
/// Broadcasts of a length after which what was slower is tried again, first and at last: it may have become faster.
const AGAIN: [u32; 2] = [64, 4096];

/// Why a broadcast goes as it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chosen {
    /// By multicast.
    Cast,
    /// From host to host, which is faster, or is measured.
    Line,
    /// The same: multicast loses too much, or reaches nobody.
    Lossy,
    /// The same: it is too long for multicast, or this rank cannot send to the group.
    Unable,
}

/// How long broadcasts take, in seconds.
#[derive(Clone, Copy, Default)]
struct Mean {
    count: u32,
    value: f64,
}

impl Mean {
    /// What it is, if it is known. The first one finds nothing ready: it does not count.
    fn get(&self) -> Option<f64> {
        (self.count > 2).then_some(self.value)
    }

    /// What hinders others for a moment makes one longer, and nothing makes one shorter than it takes: what is short is believed sooner. What was
    /// found otherwise is seldom tried again.
    fn add(&mut self, now: f64) {
        self.count = self.count.saturating_add(1);
        let weight = if now < self.value { 0.5 } else { 0.1 };
        self.value = match self.count {
            0..=2 => now,
            3 => self.value.min(now),
            _ => self.value + (now - self.value) * weight,
        };
    }
}

/// What was found of broadcasts of about a length.
#[derive(Clone, Copy, Default)]
struct Found {
    cast: Mean,
    line: Mean,
    /// Since both are known; until what was slower is tried again.
    count: u32,
    again: u32,
}

/// What a rank has found of its own broadcasts in a communicator.
pub struct Choice {
    found: [Found; usize::BITS as usize],
    bad: u32,
    /// Broadcasts since it was given up.
    since: u32,
}

impl Default for Choice {
    fn default() -> Self {
        Self { found: [Found::default(); usize::BITS as usize], bad: 0, since: 0 }
    }
}

impl Choice {
    /// How the next one of so many bytes goes.
    pub fn choose(&mut self, bytes: usize) -> Chosen {
        if self.bad >= PATIENCE {
            self.since += 1;
            if self.since < AGAIN[1] {
                return Chosen::Lossy;
            }
            (self.since, self.bad) = (0, PATIENCE - 1);
            return Chosen::Cast;
        }
        let found = &mut self.found[class(bytes)];
        let (Some(cast), Some(line)) = (found.cast.get(), found.line.get()) else {
            return if found.cast.get().is_none() { Chosen::Cast } else { Chosen::Line };
        };
        found.count += 1;
        let mut faster = cast <= line;
        if found.count >= found.again.max(AGAIN[0]) {
            (found.count, found.again) = (0, (found.again.max(AGAIN[0]) * 2).min(AGAIN[1]));
            faster = !faster;
        }
        if faster { Chosen::Cast } else { Chosen::Line }
    }

    /// One went by multicast until all hosts had all, in so long; so much was lost.
    pub fn was_cast(&mut self, bytes: usize, took: Duration, lost: f64) {
        if lost >= DEAF {
            self.bad += PATIENCE - 1;
        } else {
            self.bad = if lost >= LOSSY { self.bad + 1 } else { 0 };
        }
        self.found[class(bytes)].cast.add(took.as_secs_f64());
    }

    /// One left for the next host in so long; the last of so many has it as much later as pieces of so many bytes take from one to the other.
    pub fn went_along(&mut self, bytes: usize, took: Duration, hosts: usize, piece: usize) {
        let piece = piece.min(bytes) as f64 / bytes.max(1) as f64;
        let took = took.as_secs_f64() * (1.0 + hosts.saturating_sub(2) as f64 * piece);
        self.found[class(bytes)].line.add(took);
    }
}

fn class(bytes: usize) -> usize {
    bytes.max(1).ilog2() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn both_are_measured_then_the_faster_goes_and_the_other_is_tried_seldom() {
        let mut choice = Choice::default();
        let bytes = 1 << 20;
        for took in [100 * MS, 30 * MS, 9 * MS] {
            assert_eq!(choice.choose(bytes), Chosen::Cast);
            choice.was_cast(bytes, took, 0.0);
        }
        for took in [MS, 20 * MS, 8 * MS] {
            assert_eq!(choice.choose(bytes), Chosen::Line);
            // 8 hosts, 4 pieces: two and a half times as long at the last
            choice.went_along(bytes, took, 8, 256 << 10);
        }
        let mut lines = 0;
        for _ in 0..1000 {
            match choice.choose(bytes) {
                Chosen::Cast => choice.was_cast(bytes, 9 * MS, 0.0),
                _ => {
                    lines += 1;
                    choice.went_along(bytes, 8 * MS, 8, 256 << 10);
                }
            }
        }
        assert!((3..=5).contains(&lines), "{lines}");
        assert_eq!(choice.choose(1 << 16), Chosen::Cast, "of another length");
        // one that took long for another reason decides nothing
        choice.was_cast(bytes, 40 * MS, 0.0);
        assert_eq!(choice.choose(bytes), Chosen::Cast);
        // what was slower has become faster: it is found as it is tried again
        let mut casts = 0;
        while casts < 20_000 && choice.choose(bytes) == Chosen::Cast {
            choice.was_cast(bytes, 9 * MS, 0.0);
            casts += 1;
        }
        choice.went_along(bytes, MS, 8, 256 << 10);
        while choice.choose(bytes) == Chosen::Cast {
            casts += 1;
        }
        choice.went_along(bytes, MS, 8, 256 << 10);
        assert_eq!(choice.choose(bytes), Chosen::Line);
        assert!(casts < 20_000, "{casts}");
    }

    #[test]
    fn what_loses_is_given_up() {
        let mut choice = Choice::default();
        for lost in [0.3, 0.3, 0.1, 0.3, 0.3] {
            choice.was_cast(1 << 20, MS, lost);
            assert_ne!(choice.choose(1 << 20), Chosen::Lossy);
        }
        choice.was_cast(1 << 20, MS, 0.3);
        assert_eq!(choice.choose(1 << 14), Chosen::Lossy);
        let mut choice = Choice::default();
        choice.was_cast(1 << 20, MS, 1.0);
        assert_eq!(choice.choose(1 << 20), Chosen::Cast, "once");
        choice.was_cast(1 << 20, MS, 1.0);
        assert_eq!(choice.choose(1 << 20), Chosen::Lossy, "nobody hears it");
        while choice.choose(1 << 20) == Chosen::Lossy {}
        choice.was_cast(1 << 20, MS, 0.0);
        assert_ne!(choice.choose(1 << 20), Chosen::Lossy, "somebody has mended the network");
    }
}
