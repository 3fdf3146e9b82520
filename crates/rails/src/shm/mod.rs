//! Shared memory between two processes of one host.

pub mod ring;
pub mod segment;
