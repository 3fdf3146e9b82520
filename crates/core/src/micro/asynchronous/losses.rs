//! What part of the datagrams is lost, and what follows for values.

/// What is measured is of about so many datagrams.
const MEMORY: u32 = 48;
/// Of a million values, so many may need more copies than are sent in the time.
const FAIL: f64 = 10e-6;
/// Of ten thousand values, one may lack more parts than repairs are sent in advance.
const LACKS: f64 = 1e-4;
/// What is smaller is counted in these: numbers have no place for what is much smaller.
const SMALL: f64 = 1e-200;
/// Most copies, at a loss of 56 %: where more is lost, more copies would not help for long.
const COPIES: u32 = 20;

/// The measure.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Losses {
    part: f64,
    seen: u32,
}

impl Losses {
    /// What is known of the path: so many datagrams were lost of so many that were sent.
    pub fn known((lost, sent): (u64, u64)) -> Self {
        let seen = u32::try_from(sent).unwrap_or(MEMORY).min(MEMORY);
        Self { part: lost as f64 / sent.max(1) as f64, seen }
    }

    /// What became of a datagram.
    pub fn note(&mut self, lost: bool) {
        self.seen = (self.seen + 1).min(MEMORY);
        let now = if lost { 1.0 } else { 0.0 };
        self.part += (now - self.part) / f64::from(self.seen.max(8));
    }

    /// So many copies, of which at least one will come: 1 where next to nothing is lost.
    pub fn copies(&self) -> u32 {
        if self.part < 0.002 {
            return 1;
        }
        let mut fails = self.part;
        let mut copies = 1;
        while fails > FAIL && copies < COPIES {
            (fails, copies) = (fails * self.part, copies + 1);
        }
        copies
    }

    /// So many repairs, with which so many parts are had almost surely, if so many repairs there are; none where next to nothing is lost.
    pub fn repairs(&self, parts: usize, most: usize) -> usize {
        if self.part < 0.002 {
            return 0;
        }
        // what was measured is of few datagrams: by chance it is too little by as much, in parts of a million
        let variance = (self.part * (1.0 - self.part) * 1e12 / f64::from(MEMORY)) as u64;
        let part = (self.part + variance.isqrt() as f64 / 1e6).min(0.65);
        // that the last of the parts is the one after so many lost ones (a negative binomial distribution), `tiny` times SMALL
        let (mut chance, mut tiny, mut sum) = (1.0, 0, 0.0);
        for _ in 0..parts {
            chance *= 1.0 - part;
            if chance < SMALL {
                (chance, tiny) = (chance / SMALL, tiny + 1);
            }
        }
        for repairs in 0..most {
            if tiny > 0 && chance > 1.0 {
                (chance, tiny) = (chance * SMALL, tiny - 1);
            }
            sum += if tiny > 0 { 0.0 } else { chance };
            if sum >= 1.0 - LACKS {
                return repairs;
            }
            chance *= part * (parts + repairs) as f64 / (repairs + 1) as f64;
        }
        most
    }

    /// Whether so little is lost that all repairs that there are make up for it, more likely than not.
    pub fn bear_repairs(&self) -> bool {
        self.part <= 0.6
    }

    /// Whether it is more likely than not that all of so many datagrams come.
    pub fn spares(&self, datagrams: u64) -> bool {
        self.part < 0.002 || self.part * (datagrams as f64) < 0.5
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::repair::PARTS;

    fn losing(percent: u32) -> Losses {
        let mut losses = Losses::default();
        (0..2000_u32).for_each(|n| losses.note(n.wrapping_mul(0x9e37_79b9) >> 16 < percent * 65_536 / 100));
        losses
    }

    #[test]
    fn repairs_follow_the_loss() {
        let repairs = |percent, parts| losing(percent).repairs(parts, 200);
        assert_eq!(repairs(0, 50), 0);
        assert!((2..=9).contains(&repairs(1, 50)), "{}", repairs(1, 50));
        assert!((12..=25).contains(&repairs(10, 50)), "{}", repairs(10, 50));
        assert!((75..=120).contains(&repairs(50, 50)), "{}", repairs(50, 50));
        assert!((14..=40).contains(&repairs(50, 4)), "{}", repairs(50, 4));
        assert_eq!(losing(100).repairs(50, 60), 60);
        assert!(
            (1050..1400).contains(&losing(50).repairs(PARTS, 2048)),
            "{}",
            losing(50).repairs(PARTS, 2048)
        );
    }

    #[test]
    fn copies_follow_the_loss() {
        let copies = |percent: u32| losing(percent).copies();
        assert_eq!(copies(0), 1);
        assert!((4..=9).contains(&copies(10)), "{}", copies(10));
        assert!((8..=14).contains(&copies(30)), "{}", copies(30));
        assert!((14..=20).contains(&copies(50)), "{}", copies(50));
    }
}
