//! Merging what several ranks changed.

/// Two ranks wrote different values to one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Where.
    pub address: u64,
    /// Who, and what (the eight bytes around it, aligned, as each has them; where several, the first two in order of ranks).
    pub ranks: [u32; 2],
    /// See `ranks`.
    pub values: [u64; 2],
    /// What it was before.
    pub before: u64,
}
