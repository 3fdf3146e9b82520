//! The process that a program is: rank 0's.

use core::ffi::c_int;
use core::sync::atomic::AtomicUsize;

use super::{is_spread, told};
use crate::symbols::real;
use crate::{run, sys};

/// Rank 0's, where this is a region on another rank.
fn programs() -> Option<libc::pid_t> {
    // SAFETY: written before regions
    (run::rank() > 0 && is_spread()).then(|| unsafe { (*told()).process })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn getpid() -> libc::pid_t {
    static REAL: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: the C library's function
    programs().unwrap_or_else(|| unsafe { real::<unsafe extern "C" fn() -> libc::pid_t>(c"getpid", &REAL)() })
}

/// A signal to the program itself is this rank's part of it; by number it could be somebody else's process here.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn kill(process: libc::pid_t, signal: c_int) -> c_int {
    static REAL: AtomicUsize = AtomicUsize::new(0);
    let process = if programs() == Some(process) { sys::process() } else { process };
    // SAFETY: the caller's
    unsafe { real::<unsafe extern "C" fn(libc::pid_t, c_int) -> c_int>(c"kill", &REAL)(process, signal) }
}
