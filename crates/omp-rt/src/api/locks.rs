//! `omp_lock_t`, `omp_nest_lock_t`: only their addresses are used.

use core::ffi::{c_int, c_void};

use crate::team::locks;

macro_rules! entries {
    ($($name:ident $fortran:ident = $does:expr;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(lock: *mut c_void) {
            let does: fn(u64) = $does;
            does(lock as u64);
        }
        #[unsafe(no_mangle)]
        extern "C" fn $fortran(lock: *mut c_void) {
            $name(lock);
        }
    )*};
}
entries! {
    omp_init_lock omp_init_lock_ = |_| ();
    omp_init_nest_lock omp_init_nest_lock_ = |_| ();
    omp_destroy_lock omp_destroy_lock_ = |_| ();
    omp_destroy_nest_lock omp_destroy_nest_lock_ = |_| ();
    omp_set_lock omp_set_lock_ = locks::lock;
    omp_unset_lock omp_unset_lock_ = locks::unlock;
    omp_set_nest_lock omp_set_nest_lock_ = |key| { locks::lock_nested(key); };
    omp_unset_nest_lock omp_unset_nest_lock_ = locks::unlock_nested;
    omp_init_lock_with_hint omp_init_lock_with_hint_ = |_| ();
    omp_init_nest_lock_with_hint omp_init_nest_lock_with_hint_ = |_| ();
}
#[unsafe(no_mangle)]
extern "C" fn omp_test_lock(lock: *mut c_void) -> c_int {
    c_int::from(locks::try_lock(lock as u64))
}
#[unsafe(no_mangle)]
extern "C" fn omp_test_lock_(lock: *mut c_void) -> c_int {
    omp_test_lock(lock)
}
#[unsafe(no_mangle)]
extern "C" fn omp_test_nest_lock(lock: *mut c_void) -> c_int {
    locks::try_lock_nested(lock as u64) as c_int
}
#[unsafe(no_mangle)]
extern "C" fn omp_test_nest_lock_(lock: *mut c_void) -> c_int {
    omp_test_nest_lock(lock)
}
