//! Polyrail on real machines.

pub mod rail;
