//! How values are cut that have repairs: what both sides know without a word (`docs/wire-datagrams.md`).

/// Values that have repairs have at most so many bytes ...
pub const MOST: usize = 1 << 20;
/// ... and so many parts ...
pub const PARTS: usize = 900;
/// ... of so many bytes at least: to make a value whole takes as long for a short one as for a long one, nearly.
pub const SHORTEST: usize = 256;
/// Repairs that there are of a value at least.
const LEAST: usize = 32;

/// How a value of some length is cut, and how many repairs there are of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code {
    total: usize,
    size: usize,
}

impl Code {
    /// The code of a value of `total` bytes in parts of `size`, of which the last may be shorter. None: there is none.
    pub fn of(total: usize, size: usize) -> Option<Self> {
        let fits = total <= MOST && size >= SHORTEST && size.is_multiple_of(2) && size < total;
        let code = Self { total, size };
        (fits && code.parts() <= PARTS).then_some(code)
    }

    /// Bytes of the value.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Bytes of a part, and of a repair.
    pub fn size(&self) -> usize {
        self.size
    }

    /// How many parts there are.
    pub fn parts(&self) -> usize {
        self.total.div_ceil(self.size)
    }

    /// How many repairs there are.
    pub fn repairs(&self) -> usize {
        LEAST.max(2 * self.parts().next_power_of_two())
    }

    /// Where a part lies.
    pub fn place(&self, number: usize) -> core::ops::Range<usize> {
        number * self.size..self.total.min((number + 1) * self.size)
    }
}
