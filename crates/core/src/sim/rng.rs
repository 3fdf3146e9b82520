//! Random numbers that a seed determines.

/// A small generator (SplitMix64). The same seed gives the same numbers, for ever and everywhere.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Begins a sequence.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 when `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.draw()) * u128::from(end)) >> 64) as u64
    }

    /// Yes, in `percent` of a hundred cases.
    pub fn chance(&mut self, percent: u8) -> bool {
        self.below(100) < u64::from(percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_all_and_numbers_stay_in_range() {
        let ten = |seed| {
            let mut rng = Rng::new(seed);
            core::array::from_fn::<u64, 100, _>(|_| rng.below(10))
        };
        assert_eq!(ten(1), ten(1));
        assert_ne!(ten(1), ten(2));
        assert!((0..10).all(|n| ten(3).contains(&n)) && ten(3).iter().all(|n| *n < 10));
        let mut rng = Rng::new(4);
        assert!(rng.below(0) == 0 && !rng.chance(0) && rng.chance(100));
    }
}
