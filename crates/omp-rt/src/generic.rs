//! Atomics of any size, which compilers leave to libatomic (clang's `atomic` of long double, `std::atomic` of structs): inside regions of several ranks
//! under a token, else libatomic's own.

mod sized;

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::team::{here, locks};
use crate::{alloc, sys};

/// libatomic's function.
fn next(name: &CStr, known: &AtomicUsize) -> usize {
    if known.load(Relaxed) == 0 {
        // SAFETY: a search by name.
        let found = alloc::privately(|| unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }) as usize;
        if found == 0 {
            sys::stop("an atomic of many bytes", "link the program with libatomic (-latomic)");
        }
        known.store(found, Relaxed);
    }
    known.load(Relaxed)
}

/// `$name(...)` under the token, or libatomic's.
macro_rules! atomics {
    ($($name:ident($($arg:ident: $t:ty),*) $(-> $r:ty)? = $text:literal $body:block)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $t),*) $(-> $r)? {
            if !here().spread() {
                static NEXT: AtomicUsize = AtomicUsize::new(0);
                // SAFETY: the function of that name.
                return unsafe {
                    let next: unsafe extern "C" fn($($t),*) $(-> $r)? = core::mem::transmute(next($text, &NEXT));
                    next($($arg),*)
                };
            }
            locks::lock(locks::ATOMIC);
            // SAFETY: the compiler's objects, of so many bytes.
            let result = unsafe { $body };
            locks::unlock(locks::ATOMIC);
            result
        }
    )*};
}
atomics! {
    __atomic_load(bytes: usize, at: *const c_void, to: *mut c_void, order: c_int) = c"__atomic_load" {
        core::ptr::copy_nonoverlapping(at.cast::<u8>(), to.cast(), bytes);
    }
    __atomic_store(bytes: usize, at: *mut c_void, from: *const c_void, order: c_int) = c"__atomic_store" {
        core::ptr::copy_nonoverlapping(from.cast::<u8>(), at.cast(), bytes);
    }
    __atomic_exchange(
        bytes: usize, at: *mut c_void, from: *const c_void, to: *mut c_void, order: c_int
    ) = c"__atomic_exchange" {
        core::ptr::copy_nonoverlapping(at.cast::<u8>(), to.cast(), bytes);
        core::ptr::copy_nonoverlapping(from.cast::<u8>(), at.cast(), bytes);
    }
    __atomic_compare_exchange(
        bytes: usize, at: *mut c_void, expected: *mut c_void, from: *const c_void, order: c_int, other: c_int
    ) -> bool = c"__atomic_compare_exchange" {
        let same = libc::memcmp(at, expected, bytes) == 0;
        let (from, to) = if same { (from, at) } else { (at.cast_const(), expected) };
        core::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast(), bytes);
        same
    }
}
