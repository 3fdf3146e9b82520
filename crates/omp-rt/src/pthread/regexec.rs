//! Regular expressions: the C library lets several threads use one at a time, by a lock inside it, which knows of one process.

use core::ffi::c_int;
use core::sync::atomic::AtomicUsize;

use super::concerns;
use super::refused::version;
use crate::symbols::real;
use crate::team::locks;

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn regexec(
    expression: usize,
    text: usize,
    count: usize,
    matches: usize,
    flags: c_int,
) -> c_int {
    static REAL: AtomicUsize = AtomicUsize::new(0);
    version(c"regexec", c"GLIBC_2.3.4", &REAL);
    type Real = unsafe extern "C" fn(usize, usize, usize, usize, c_int) -> c_int;
    let real: Real = real(c"regexec", &REAL);
    // what it keeps of the expression, so that it is faster the next time, is where the first word leads
    // SAFETY: the caller's arguments
    let is_shared = concerns(expression) || concerns(unsafe { *(expression as *const usize) });
    if is_shared {
        locks::lock(expression as u64);
    }
    // SAFETY: the caller's arguments
    let result = unsafe { real(expression, text, count, matches, flags) };
    if is_shared {
        locks::unlock(expression as u64);
    }
    result
}
