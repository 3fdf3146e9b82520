//! What part of the datagrams is lost, and what follows for values.

/// What is measured is of about so many datagrams.
const MEMORY: u32 = 48;
/// Of a million values, so many may need more copies than are sent in the time.
const FAIL: f64 = 10e-6;
/// Most copies, at a loss of 56 %: where more is lost, more copies would not help for long.
const COPIES: u32 = 20;

/// The measure.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Losses {
    part: f64,
    seen: u32,
}

impl Losses {
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

    /// Whether it is more likely than not that all of so many datagrams come.
    pub fn spares(&self, datagrams: u64) -> bool {
        self.part < 0.002 || self.part * (datagrams as f64) < 0.5
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_follow_the_loss() {
        let copies = |percent: u32| {
            let mut losses = Losses::default();
            (0..2000_u32)
                .for_each(|n| losses.note(n.wrapping_mul(0x9e37_79b9) >> 16 < percent * 65_536 / 100));
            losses.copies()
        };
        assert_eq!(copies(0), 1);
        assert!((4..=9).contains(&copies(10)), "{}", copies(10));
        assert!((8..=14).contains(&copies(30)), "{}", copies(30));
        assert!((14..=20).contains(&copies(50)), "{}", copies(50));
    }
}
