//! Random programs without races, whose output does not depend on the order in which threads come.
pub mod c;
pub mod fortran;
pub mod tasks;

/// xorshift64*.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// From this number.
    pub fn new(seed: u64) -> Self {
        // numbers that follow each other are to begin unlike each other
        let mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Self((mixed ^ mixed >> 31) | 1)
    }

    /// Below `below`, which is not 0.
    pub fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 20) as usize % below
    }

    /// One in so many times.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of them.
    pub fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

/// A program.
#[derive(Debug)]
pub struct Source {
    /// What it is.
    pub text: String,
    /// Threads order memory by flags: each rank has one.
    pub flushes: bool,
}
