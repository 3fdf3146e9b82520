//! Shared memory between two processes of one host.

pub mod cma;
pub mod doorbell;
pub mod fdpass;
pub mod ring;
pub mod segment;
