//! `polyrail trace` and `polyrail report`: collects what recorders (`crates/preload`) wrote and what the kernel says about
//! TCP, keeps it in a directory (`docs/trace-format.md`), and makes sense of it.
//!
//! | module | does |
//! |---|---|
//! | [`collect`], `tcp` | empties recorders' rings into a file, and looks at their TCP connections meanwhile |
//! | [`options`] | what is to be recorded, and how much of it |
//! | [`session`] | the page that collector and recorders share |
//! | [`diag`] | the state of TCP connections, by inet_diag |
//! | [`unseen`] | programs that preloading does not see, recorded by the kernel |
//! | `attach` | programs that run already, followed by ptrace where the kernel's tracepoints cannot be had |
//! | [`kernel`] | what the kernel does to them, by its tracepoints, as root |
//! | [`host`] | what there is to say of a host |
//! | [`file`](mod@file), [`blocks`], `read` | the files, and one stream of events out of them |
//! | `pack`, `flight`, `whole` | compression of rows; the last seconds alone; files that are there whole or not at all |
//! | [`live`] | connections while they are recorded |
//! | [`model`] | what a recorded run is: hosts, processes, sockets, and a stream of events |
//! | [`analysis`] | what the events say: messages, who talks to whom and waits for whom, what TCP did |
//! | [`classify`] | what kind of program it is on the network, and what would help it |
//! | [`parquet`], [`perfetto`] | the same for notebooks and for the viewer of time lines |
//! | [`report`] | the page, the files and the text of `polyrail report` |
//!
//! Invariants:
//! - No unsafe code. Rings are read and acknowledged as files.
//! - What was recorded is readable however the recording ended; what is missing is counted and told.
//! - Files are bytes of another process: bounded, checked, fuzzed.
#![forbid(unsafe_code)]

pub mod analysis;
mod attach;
pub mod blocks;
pub mod classify;
pub mod collect;
pub mod diag;
pub mod file;
mod flight;
pub mod host;
pub mod kernel;
pub mod live;
pub mod model;
mod notes;
pub mod options;
mod pack;
pub mod parquet;
pub mod perfetto;
mod read;
mod records;
pub mod report;
pub mod session;
mod tcp;
pub mod units;
pub mod unseen;
mod whole;

pub use read::{Error, Recorded, open};
