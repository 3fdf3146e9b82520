//! `std::cout`, as the C++ library has it. The object is shared memory, also where the library has it; what it writes by is each process's own.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::symbols::{find, find_in};
use crate::{alloc, run};

/// Hands what was written to the system, or to the C library.
pub fn flush() {
    static COUT: AtomicUsize = AtomicUsize::new(0);
    static FLUSH: AtomicUsize = AtomicUsize::new(0);
    if let (Some(cout), Some(flush)) = (find(c"_ZSt4cout", &COUT), find(c"_ZNSo5flushEv", &FLUSH)) {
        // SAFETY: the object and its function, by their documented names
        unsafe {
            // a program that does not use it has it unconstructed: without a table of functions
            if *(cout as *const usize) != 0 {
                core::mem::transmute::<usize, extern "C" fn(usize) -> *mut c_void>(flush)(cout);
            }
        }
    }
}

/// The C++ library's standard streams, which say how numbers are written, wherever the program has them: from and to.
pub fn objects() -> impl Iterator<Item = (usize, usize)> {
    /// Of GCC's library: `std::istream` is longer by a count.
    const OUT: usize = 272;
    const IN: usize = OUT + 8;
    let all = [
        (c"_ZSt4cout", OUT),
        (c"_ZSt4cerr", OUT),
        (c"_ZSt4clog", OUT),
        (c"_ZSt3cin", IN),
        (c"_ZSt5wcout", OUT),
        (c"_ZSt5wcerr", OUT),
        (c"_ZSt5wclog", OUT),
        (c"_ZSt4wcin", IN),
    ];
    all.into_iter().filter_map(|(name, bytes)| find(name, &AtomicUsize::new(0)).map(|at| (at, at + bytes)))
}

/// Whether `std::cout` has become apart from the C library's streams in this process.
static APART: AtomicBool = AtomicBool::new(false);

/// Whether it has on rank 0: shared memory.
fn is_apart() -> &'static AtomicBool {
    const PLACE: usize = 32 << 10;
    // SAFETY: inside the runtime's shared memory, which begins as zeros
    unsafe { &*alloc::shared_page().add(PLACE).cast() }
}

/// A region begins: what `std::cout` writes by must be there, whose address rank 0's serial code may have put into it.
pub fn agree() {
    if run::rank() > 0 && !run::is_replicated() && !APART.load(Relaxed) && is_apart().load(Relaxed) {
        // SAFETY: nobody uses the streams meanwhile
        alloc::privately(|| unsafe { sync_with_stdio(false) });
    }
}

/// `std::ios_base::sync_with_stdio`.
#[cfg_attr(not(test), unsafe(export_name = "_ZNSt8ios_base15sync_with_stdioEb"))]
unsafe extern "C" fn sync_with_stdio(together: bool) -> bool {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let Some(next) = find_in(libc::RTLD_NEXT, c"_ZNSt8ios_base15sync_with_stdioEb", &NEXT) else {
        return true;
    };
    if !together && !APART.swap(true, Relaxed) && run::rank() == 0 {
        is_apart().store(true, Relaxed);
    }
    // SAFETY: the C++ library's function
    unsafe { core::mem::transmute::<usize, extern "C" fn(bool) -> bool>(next)(together) }
}
