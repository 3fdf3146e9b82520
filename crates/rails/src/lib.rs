//! Polyrail on real machines.

pub mod atomic;
pub mod config;
pub mod discover;
pub mod error;
pub mod loopback;
pub mod mailbox;
pub mod named;
mod primitive;
pub mod rail;
pub mod report;
pub mod shm;
pub mod tcp;
pub mod worker;

pub use config::Config;
pub use error::Error;
/// Words of `core` that this crate's users need.
pub use polyrail_core::{
    proto::{Failure, PeerIdx, Route, Scheme},
    wire::{Address, AddressError, Versions},
};
pub use report::report;
pub use worker::{ATOMIC_MAX, Event, EventKind, INJECT_MAX, Idle, Issued, Refused, Rest, User, Worker};
