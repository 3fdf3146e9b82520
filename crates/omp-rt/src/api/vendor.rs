//! `kmp_*`: LLVM's own additions that programs may call, as far as they mean something here; and its exported data.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};

use super::{queries, settings};
use crate::icv;

static BLOCKTIME: AtomicI32 = AtomicI32::new(200);

queries! {
    kmp_get_blocktime kmp_get_blocktime_ = BLOCKTIME.load(Relaxed);
    kmp_get_stacksize kmp_get_stacksize_ = icv::stack_bytes().min(c_int::MAX as usize) as c_int;
    kmp_get_library kmp_get_library_ = 2;
    kmp_get_num_known_threads kmp_get_num_known_threads_ = crate::team::here().threads.get() as c_int;
    kmp_get_cancellation_status kmp_get_cancellation_status_ = 0;
    kmp_get_affinity_max_proc kmp_get_affinity_max_proc_ = icv::processors() as c_int;
}
settings! {
    kmp_set_blocktime kmp_set_blocktime_ = |value| BLOCKTIME.store(value, Relaxed);
    kmpc_set_blocktime kmpc_set_blocktime_ = |value| BLOCKTIME.store(value, Relaxed);
    kmp_set_stacksize kmp_set_stacksize_ = |_| ();
    kmpc_set_stacksize kmpc_set_stacksize_ = |_| ();
    kmp_set_library kmp_set_library_ = |_| ();
    kmpc_set_library kmpc_set_library_ = |_| ();
    kmp_set_disp_num_buffers kmp_set_disp_num_buffers_ = |_| ();
    kmpc_set_disp_num_buffers kmpc_set_disp_num_buffers_ = |_| ();
}
macro_rules! nothing_to_do {
    ($($name:ident)*) => {$(
        /// Nothing depends on it here.
        #[unsafe(no_mangle)]
        extern "C" fn $name() {}
    )*};
}
nothing_to_do! {
    kmp_set_library_serial kmp_set_library_serial_ kmp_set_library_throughput kmp_set_library_throughput_
    kmp_set_library_turnaround kmp_set_library_turnaround_ kmp_set_warnings_off kmp_set_warnings_off_
    kmp_set_warnings_on kmp_set_warnings_on_ kmp_set_defaults kmp_set_defaults_ kmpc_set_defaults
    kmp_set_stacksize_s kmp_set_stacksize_s_ kmpc_set_stacksize_s kmp_set_thread_affinity_mask_initial
}
#[unsafe(no_mangle)]
extern "C" fn kmp_get_stacksize_s() -> usize {
    icv::stack_bytes()
}
#[unsafe(no_mangle)]
extern "C" fn kmp_get_stacksize_s_() -> usize {
    icv::stack_bytes()
}

macro_rules! data {
    ($($name:ident)*) => {$(
        /// There to be linked against.
        #[unsafe(no_mangle)]
        pub static $name: [AtomicI32; 16] = [const { AtomicI32::new(0) }; 16];
    )*};
}
data! {
    _You_must_link_with_Intel_OpenMP_library _You_must_link_with_exactly_one_OpenMP_library __kmp_thread_pool
    kmp_a_debug kmp_b_debug kmp_c_debug kmp_d_debug kmp_e_debug kmp_f_debug kmp_diag kmp_mutex_impl_info
}
