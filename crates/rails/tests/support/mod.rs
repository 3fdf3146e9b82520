//! What the tests of faults, hostile strangers and many peers share: workers with their buffers, and real processes to kill.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub mod alone;
pub mod net;
pub mod node;
pub mod path;
pub mod proxy;
pub mod puppet;
pub mod seccomp;
pub mod stranger;

use std::time::Duration;

/// Longest that anything may take before it counts as a hang, on a machine at load 16, too.
pub const BOUND: Duration = Duration::from_secs(120);

/// The descriptors that this process has open.
pub fn descriptors() -> usize {
    // one of them is the directory's own
    std::fs::read_dir("/proc/self/fd").expect("proc is mounted").count() - 1
}

/// Limits how many descriptors this process may have, or lets it have more, as far as the system lets it; how many.
pub fn limit_descriptors(most: usize) -> usize {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structures are ours.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut now), 0);
        now.rlim_cur = now.rlim_max.min(most as libc::rlim_t);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &now), 0);
    }
    now.rlim_cur as usize
}

/// Whether this process may do what only root may. If not, says that the test is skipped.
#[track_caller]
pub fn root(what_for: &str) -> bool {
    // SAFETY: a plain call without arguments.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        polyrail_testing::lacking(format_args!("root, for {what_for}"));
    }
    root
}

/// Bytes of memory that this process has in use.
pub fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("proc is mounted");
    pages.split(' ').nth(1).and_then(|n| n.parse::<usize>().ok()).expect("a number") * 4096
}
