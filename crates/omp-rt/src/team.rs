//! Threads of this process, their stacks, barriers, worksharing within the process.

use crate::remote::Region;

/// Runs this rank's share of a region's threads, all of them, and returns when they are through its end (its last barrier is an exchange).
/// Ranks above 0: called by the main thread for each region that rank 0 begins.
pub fn run(region: &Region<'_>) {
    let _ = region;
}

/// Has other ranks' stacks writable at `lo..hi`.
pub fn reserve_stack(lo: usize, hi: usize) {
    let _ = (lo, hi);
}
