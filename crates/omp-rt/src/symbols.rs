//! Functions and objects of libraries, looked for by name.

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::{alloc, sys};

/// The function `name` of the library that would have it without this one; looked for once.
pub fn next(name: &CStr, known: &AtomicUsize) -> Option<usize> {
    find_in(libc::RTLD_NEXT, name, known)
}
/// The function or object `name` of whichever library has it; looked for once.
pub fn find(name: &CStr, known: &AtomicUsize) -> Option<usize> {
    find_in(libc::RTLD_DEFAULT, name, known)
}
/// As those, from `place` on.
pub fn find_in(place: *mut c_void, name: &CStr, known: &AtomicUsize) -> Option<usize> {
    const NONE: usize = 1;
    match known.load(Relaxed) {
        0 => {
            // SAFETY: a search by name.
            let found = alloc::privately(|| unsafe { libc::dlsym(place, name.as_ptr()) }) as usize;
            known.store(found.max(NONE), Relaxed);
            Some(found).filter(|at| *at != 0)
        }
        NONE => None,
        at => Some(at),
    }
}

/// The library's function of that name.
pub fn real<F: Copy>(name: &CStr, known: &AtomicUsize) -> F {
    const { assert!(size_of::<F>() == size_of::<usize>(), "a function") };
    let Some(found) = next(name, known) else {
        sys::stop(&name.to_string_lossy(), "no library has this function")
    };
    // SAFETY: the function of that name, whose type the caller says
    unsafe { core::mem::transmute_copy(&found) }
}
