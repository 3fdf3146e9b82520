//! Decisions only: wire formats, tag matching, protocols, wireup, and a simulator to test them.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod cost;
pub mod frame;
pub mod matching;
pub mod proto;
pub mod sim;
pub mod slab;
pub mod state;
pub mod wire;
pub mod wireup;
