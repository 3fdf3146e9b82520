//! `polyrail trace` and `polyrail report`: collects what recorders (`crates/preload`) wrote and what the kernel says about
//! TCP, keeps it in a directory (`docs/trace-format.md`), and makes sense of it.
//!
//! | module | does |
//! |---|---|
//! | [`analysis`] | what the events say: messages, who talks to whom and waits for whom, what TCP did |
//! | [`classify`] | what kind of program it is on the network, and what would help it |
//! | [`model`] | what a recorded run is: hosts, processes, sockets, and a stream of events |
//! | [`parquet`], [`perfetto`] | the same for notebooks and for the viewer of time lines |
//! | [`report`] | the page, the files and the text of `polyrail report` |
//!
//! Invariants:
//! - No unsafe code. Rings are read and acknowledged as files.
//! - What was recorded is readable however the recording ended; what is missing is counted and told.
//! - Files are bytes of another process: bounded, checked, fuzzed.
#![forbid(unsafe_code)]

pub mod analysis;
pub mod classify;
pub mod model;
pub mod parquet;
pub mod perfetto;
pub mod report;
mod units;
