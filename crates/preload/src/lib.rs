//! The recorder of `polyrail trace`: a library that the loader puts before all others (`LD_PRELOAD`), and that writes each call on a
//! socket to a ring of the calling thread in shared memory. `crates/trace` reads the rings.
//!
//! | module | does |
//! |---|---|
//! | `start` | begins in a process, starts a collector where a host has none, ends in order |
//! | `recorder` | records, runs of calls that found nothing, forks |
//! | `filter` | which programs, functions and connections are recorded |
//! | `ring` | the memory that records are written to |
//! | `room` | waits for the collector where that memory is full |
//! | `sockets` | which descriptor is which socket |
//! | `open`, `io`, `wait` | the socket calls |
//! | `mpi` | MPI's functions, by its profiling interface |
//! | `rails` | what Polyrail's own rails tell of shared memory |
//! | `raw` | system calls by number, and filters of them |
//! | `rights` | threads of a process that becomes another user keep their rings |
//! | `exec` | programs that this one starts are recorded too |
//! | `next`, `sys` | the real functions; system calls of our own |
//!
//! Invariants:
//! - A record takes no lock, no allocation and no system call. What happens once per thread, socket or process may make system calls.
//! - The program's results, error numbers and descriptors are what they would be without us: no descriptor stays open. A full ring
//!   waits for the collector, for a bounded time and not again while it does not come; then it loses records and counts them.
//! - Works in signal handlers (a record that interrupts another is counted as lost), after `fork`, in children of `vfork`, at exit.
//! - Records of a thread stand in the order in which the calls ended.
#![allow(
    clippy::missing_safety_doc,
    reason = "all exported functions are the C library's, with its contracts"
)]

mod exec;
mod filter;
mod io;
mod mpi;
mod next;
mod open;
mod rails;
mod raw;
mod recorder;
mod rights;
mod ring;
mod room;
mod sockets;
mod start;
mod sys;
mod wait;
