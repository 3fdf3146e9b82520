//! The functions behind ours: what the program would have called without this library.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the same name further along the loader's search order, looked up when it is first needed.
pub struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    /// Nothing is looked up yet.
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address; null if there is none.
    #[inline(always)]
    pub fn address(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if found.is_null() { self.find() } else { found }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: a C string; dlsym may be called at any time after the loader has mapped this library
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// Everything between a program and such a function is `C-unwind` and keeps nothing to drop: a thread that is cancelled in a call
/// is unwound through us.
///
/// `next!(read: fn(c_int, *mut c_void, size_t) -> ssize_t)`: the real function, as one that can be called.
macro_rules! next {
    ($name:ident: fn($($argument:ty),*) -> $result:ty) => {{
        static NEXT: $crate::next::Next = $crate::next::Next::new(
            // SAFETY: the literal ends with a zero and has no other
            unsafe { std::ffi::CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) }
        );
        let address = NEXT.address();
        if address.is_null() {
            // only where the C library is older than the function: its callers could not have been linked
            $crate::sys::set_errno(libc::ENOSYS);
            return -1 as _;
        }
        #[allow(unused_unsafe, reason = "used inside unsafe blocks too")]
        // SAFETY: the symbol of this name in the C library has this signature
        unsafe { std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C-unwind" fn($($argument),*) -> $result>(address) }
    }};
}
pub(crate) use next;
