//! Numbers, locks, `threadprivate`, memory, cancellation.

use core::ffi::{CStr, c_char, c_int, c_void};

use super::Ident;
use crate::api::memory;
use crate::sys;
use crate::team::{self, here, locks, may_fork, privates};

#[unsafe(no_mangle)]
extern "C" fn __kmpc_begin(_: *const Ident, _: c_int) {}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_end(_: *const Ident) {}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_global_thread_num(_: *const Ident) -> c_int {
    team::global() as c_int
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_global_num_threads(_: *const Ident) -> c_int {
    here().threads.get() as c_int
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_bound_thread_num(_: *const Ident) -> c_int {
    here().tid.get() as c_int
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_bound_num_threads(_: *const Ident) -> c_int {
    here().threads.get() as c_int
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_ok_to_fork(_: *const Ident) -> c_int {
    c_int::from(may_fork())
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_in_parallel(_: *const Ident) -> c_int {
    c_int::from(here().active.get() > 0)
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_get_taskid() -> u64 {
    core::ptr::from_ref(here()) as u64
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_get_parent_taskid() -> u64 {
    here().parent.get() as u64
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_get_target_offload() -> c_int {
    0 // disabled: targets are run by the host
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_pause_resource(_: c_int) -> c_int {
    0
}
/// `error` of the program: severity 1 warns, 2 ends it.
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_error(_: *const Ident, severity: c_int, message: *const c_char) {
    let text = if message.is_null() {
        c"the program says so"
    } else {
        // SAFETY: a string of the program.
        unsafe { CStr::from_ptr(message) }
    };
    let text = text.to_str().unwrap_or("the program says so");
    if severity == 2 {
        sys::stop("error", text);
    }
    sys::write(2, b"warning: ");
    sys::write(2, text.as_bytes());
    sys::write(2, b"\n");
}

// --- cancellation: never, as where OMP_CANCELLATION is false --------------------------------------

#[unsafe(no_mangle)]
extern "C" fn __kmpc_cancel(_: *const Ident, _: c_int, _: c_int) -> c_int {
    0
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_cancellationpoint(_: *const Ident, _: c_int, _: c_int) -> c_int {
    0
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_cancel_barrier(_: *const Ident, _: c_int) -> c_int {
    team::barrier();
    0
}

// --- locks ------------------------------------------------------------------------------------------

macro_rules! lock_entries {
    ($($name:ident: $does:expr;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(_: *const Ident, _: c_int, lock: *mut c_void) {
            let does: fn(u64) = $does;
            does(lock as u64);
        }
    )*};
}
lock_entries! {
    __kmpc_init_lock: |_| ();
    __kmpc_init_nest_lock: |_| ();
    __kmpc_destroy_lock: |_| ();
    __kmpc_destroy_nest_lock: |_| ();
    __kmpc_set_lock: locks::lock;
    __kmpc_unset_lock: locks::unlock;
    __kmpc_set_nest_lock: |key| { locks::lock_nested(key); };
    __kmpc_unset_nest_lock: locks::unlock_nested;
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_init_lock_with_hint(_: *const Ident, _: c_int, _: *mut c_void, _: usize) {}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_init_nest_lock_with_hint(_: *const Ident, _: c_int, _: *mut c_void, _: usize) {}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_test_lock(_: *const Ident, _: c_int, lock: *mut c_void) -> c_int {
    c_int::from(locks::try_lock(lock as u64))
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_test_nest_lock(_: *const Ident, _: c_int, lock: *mut c_void) -> c_int {
    locks::try_lock_nested(lock as u64) as c_int
}

// --- threadprivate ------------------------------------------------------------------------------------

#[unsafe(no_mangle)]
extern "C" fn __kmpc_threadprivate_register(
    _: *const Ident,
    data: *mut c_void,
    constructor: Option<privates::Constructor>,
    _: *const c_void,
    _: *const c_void,
) {
    privates::register(data, constructor);
}
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_threadprivate(
    _: *const Ident,
    _: c_int,
    data: *mut c_void,
    bytes: usize,
) -> *mut c_void {
    // SAFETY: the compiler's variable.
    unsafe { privates::copy(data, bytes) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_threadprivate_cached(
    _: *const Ident,
    _: c_int,
    data: *mut c_void,
    bytes: usize,
    _: *mut *mut *mut c_void,
) -> *mut c_void {
    // SAFETY: the compiler's variable.
    unsafe { privates::copy(data, bytes) }
}

// --- memory -------------------------------------------------------------------------------------------

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_alloc(_: c_int, bytes: usize, allocator: usize) -> *mut c_void {
    // SAFETY: as that.
    unsafe { memory::omp_alloc(bytes, allocator) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_aligned_alloc(
    _: c_int,
    align: usize,
    bytes: usize,
    allocator: usize,
) -> *mut c_void {
    // SAFETY: as that.
    unsafe { memory::omp_aligned_alloc(align, bytes, allocator) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_calloc(_: c_int, count: usize, bytes: usize, allocator: usize) -> *mut c_void {
    // SAFETY: as that.
    unsafe { memory::omp_calloc(count, bytes, allocator) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_realloc(
    _: c_int,
    at: *mut c_void,
    bytes: usize,
    allocator: usize,
    from: usize,
) -> *mut c_void {
    // SAFETY: as that.
    unsafe { memory::omp_realloc(at, bytes, allocator, from) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_free(_: c_int, at: *mut c_void, allocator: usize) {
    // SAFETY: as that.
    unsafe { memory::omp_free(at, allocator) };
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_init_allocator(
    _: c_int,
    space: usize,
    count: c_int,
    traits: *const [usize; 2],
) -> usize {
    memory::omp_init_allocator(space, count, traits)
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_destroy_allocator(_: c_int, _: usize) {}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_set_default_allocator(_: c_int, allocator: usize) {
    memory::omp_set_default_allocator(allocator);
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_get_default_allocator(_: c_int) -> usize {
    memory::omp_get_default_allocator()
}
macro_rules! libc_memory {
    ($($malloc:ident $calloc:ident $realloc:ident $free:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $malloc(bytes: usize) -> *mut c_void {
            // SAFETY: the C library's contract.
            unsafe { libc::malloc(bytes) }
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $calloc(count: usize, bytes: usize) -> *mut c_void {
            // SAFETY: the C library's contract.
            unsafe { libc::calloc(count, bytes) }
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $realloc(at: *mut c_void, bytes: usize) -> *mut c_void {
            // SAFETY: the C library's contract.
            unsafe { libc::realloc(at, bytes) }
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $free(at: *mut c_void) {
            // SAFETY: the C library's contract.
            unsafe { libc::free(at) }
        }
    )*};
}
libc_memory! {
    kmp_malloc kmp_calloc kmp_realloc kmp_free;
    kmpc_malloc kmpc_calloc kmpc_realloc kmpc_free;
}
#[unsafe(no_mangle)]
unsafe extern "C" fn kmp_aligned_malloc(bytes: usize, align: usize) -> *mut c_void {
    // SAFETY: the C library's contract.
    unsafe { libc::memalign(align, bytes) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn kmpc_aligned_malloc(bytes: usize, align: usize) -> *mut c_void {
    // SAFETY: the C library's contract.
    unsafe { libc::memalign(align, bytes) }
}
