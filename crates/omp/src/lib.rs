//! What the OpenMP runtime (`crates/omp-rt`, inside the program) and its agent (`crates/omp-agent`, beside it) share. No system call; memory is
//! allocated by exchange (a list of pages or two when blobs are merged), never by page.
//!
//! | module | does |
//! |---|---|
//! | [`code`] | where a program's file has code, and where nobody can tell |
//! | [`area`] | the mapping that both share: requests, exchanges, buffers |
//! | [`diff`](mod@diff) | which bytes of a page differ from its twin |
//! | [`blob`] | changed pages as they travel |
//! | [`merge`] | merging what several ranks changed |
//! | [`layout`] | the addresses that are the same in every process |
//!
//! Invariants:
//! - Bytes from another process are checked before use; nothing here panics on them.
pub mod area;
pub mod blob;
pub mod code;
pub mod diff;
pub mod layout;
pub mod merge;

/// Entry points of the compilers' runtimes, a line each: name, `works` or `refused`, and the construct or the reason, between tabs.
pub const ENTRIES: &str = include_str!("entries.txt");
