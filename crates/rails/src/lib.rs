//! Polyrail on real machines.

mod primitive;
pub mod shm;
