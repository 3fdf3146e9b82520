//! Polyrail on real machines.
