//! Several lanes to one peer: which to open, what each can do, and what each is to carry. Pure functions and figures; the
//! driver has the sockets and the clock.
//!
//! - [`pair`]: which interface of this side with which of the other's.
//! - [`estimate`]: how fast a lane is and how long it takes, from what has been acknowledged.
//! - [`choose`]: which lane takes what is next.
//! - [`share`]: the lane that delivers a message first, and how much of a long one each lane is to carry so that all of them
//!   end together.

pub mod choose;
pub mod estimate;
pub mod pair;
pub mod share;

pub use choose::{USUAL, is_late, next_part, preferred};
pub use estimate::{Estimate, Sample};
pub use pair::{End, Pair, pairs};
pub use share::{Load, fastest, finish};

/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;
/// Nanoseconds in a second.
pub const S: u64 = 1_000_000_000;
