//! What the program has written and not yet handed to the system: C streams, Fortran units, `std::cout`.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::alloc;

/// The function or object `name` of whichever library has it; looked for once.
fn find(name: &CStr, known: &AtomicUsize) -> Option<usize> {
    const NONE: usize = 1;
    match known.load(Relaxed) {
        0 => {
            // SAFETY: a search by name.
            let found =
                alloc::privately(|| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }) as usize;
            known.store(found.max(NONE), Relaxed);
            Some(found).filter(|at| *at != 0)
        }
        NONE => None,
        at => Some(at),
    }
}

/// Gives standard input and output their buffers before anything is read or written, in this process's own memory: serial code that runs on every rank must find them
/// alike, whoever has used them in a region.
pub fn prepare() {
    unsafe extern "C" {
        static stdin: *mut libc::FILE;
        static stdout: *mut libc::FILE;
    }
    // SAFETY: the C library's streams, which nobody has used
    alloc::privately(|| unsafe {
        for (stream, descriptor) in [(stdin, 0), (stdout, 1)] {
            libc::setvbuf(stream, core::ptr::null_mut(), libc::_IOFBF, 0);
            if libc::isatty(descriptor) == 1 {
                libc::setvbuf(stream, core::ptr::null_mut(), libc::_IOLBF, 0);
            }
        }
    });
}

/// Hands everything to the system, so that what the program orders is in order.
pub fn flush() {
    static UNITS: AtomicUsize = AtomicUsize::new(0);
    static COUT: AtomicUsize = AtomicUsize::new(0);
    static FLUSH: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: the C library's, and those of the Fortran and C++ libraries by their documented names; a null unit means all of them.
    unsafe {
        if let (Some(cout), Some(flush)) = (find(c"_ZSt4cout", &COUT), find(c"_ZNSo5flushEv", &FLUSH))
            // a program that does not use it has it unconstructed: without a table of functions
            && *(cout as *const usize) != 0
        {
            core::mem::transmute::<usize, extern "C" fn(usize) -> *mut c_void>(flush)(cout);
        }
        if let Some(units) = find(c"_gfortran_flush_i4", &UNITS) {
            core::mem::transmute::<usize, extern "C" fn(*const c_int)>(units)(core::ptr::null());
        }
        libc::fflush(core::ptr::null_mut());
    }
}
