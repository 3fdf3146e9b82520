//! `polyrail trace` and `polyrail report`: collects what recorders (`crates/preload`) wrote and what the kernel says about
//! TCP, keeps it in a directory (`docs/trace-format.md`), and makes sense of it.
//!
//! | module | does |
//! |---|---|
//! | [`diag`] | the state of TCP connections, by inet_diag |
//! | [`kernel`] | what the kernel does to them, by its tracepoints, as root |
//! | [`model`] | what a recorded run is: hosts, processes, sockets, and a stream of events |
//!
//! Invariants:
//! - No unsafe code. Rings are read and acknowledged as files.
//! - What was recorded is readable however the recording ended; what is missing is counted and told.
//! - Files are bytes of another process: bounded, checked, fuzzed.
#![forbid(unsafe_code)]

pub mod collect;
pub mod diag;
pub mod file;
pub mod host;
pub mod kernel;
pub mod live;
pub mod model;
mod notes;
mod read;
mod records;
pub mod tcp;

pub use read::{Error, Recorded, open};
