//! Polyrail on real machines.

mod primitive;
pub mod rail;
pub mod shm;
