//! What the tests of faults, hostile strangers and many peers share: workers with their buffers, and real processes to kill.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub mod alone;
pub mod net;
pub mod node;
pub mod proxy;
pub mod puppet;

use std::time::Duration;

/// Longest that anything may take before it counts as a hang.
pub const BOUND: Duration = Duration::from_secs(40);

/// The descriptors that this process has open.
pub fn descriptors() -> usize {
    // one of them is the directory's own
    std::fs::read_dir("/proc/self/fd").expect("proc is mounted").count() - 1
}

/// Whether this process may do what only root may. If not, says that the test is skipped.
pub fn root(what_for: &str) -> bool {
    // SAFETY: a plain call without arguments.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        println!("skipped: {what_for} needs root");
    }
    root
}
