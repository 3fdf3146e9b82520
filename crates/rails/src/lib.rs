//! Polyrail on real machines.

pub mod rail;
pub mod tcp;
