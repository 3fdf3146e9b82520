//! What an atomic operation that rank 0 carries out for another rank is ordered by: the log, which has what the asking thread wrote before it, and then what rank 0 did.
//!
//! Rank 0's memory is where all such operations happen, and its own threads have theirs, and plain stores, there at any time. So it takes over what is told of *before* it
//! changes the place, and tells what it has changed *behind* what it found there: whatever one of its threads stored before it stored that. Neither needs to know of it.

use super::{catch_up, is_inside, log, publish};

/// As it travels with an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Between {
    /// What the log has up to there comes before the operation.
    pub behind: u64,
    /// What rank 0 knew is to be told.
    pub asks: bool,
    /// It is a store that others may rely on already, who know what was published with it.
    pub tells: bool,
}

impl Between {
    /// As bytes.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.behind.to_ne_bytes());
        bytes[8] = self.asks.into();
        bytes[9] = self.tells.into();
        bytes
    }

    /// The reverse, and what follows.
    pub fn from_bytes(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (own, rest) = bytes.split_first_chunk::<16>()?;
        let behind = u64::from_ne_bytes(*own.first_chunk()?);
        Some((Self { behind, asks: own[8] != 0, tells: own[9] != 0 }, rest))
    }
}

/// Tells others what this rank changed; up to where the log then has all that it knows.
pub fn publish_all() -> u64 {
    if !is_inside() {
        return 0;
    }
    let mut log = log();
    publish(&mut log);
    log.known()
}

/// Takes over what others told, up to there at least.
pub fn see(position: u64) {
    if position > 0 {
        let mut log = log();
        if log.applied < position {
            catch_up(&mut log);
        }
    }
}
