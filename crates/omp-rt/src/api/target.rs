//! Devices: there is none but the host.

use core::ffi::{c_int, c_void};

use super::{icvs, queries, settings};

queries! {
    omp_get_num_devices omp_get_num_devices_ = 0;
    omp_get_initial_device omp_get_initial_device_ = 0;
    omp_get_device_num omp_get_device_num_ = 0;
    omp_get_default_device omp_get_default_device_ = icvs().device;
    omp_is_initial_device omp_is_initial_device_ = 1;
}
settings! {
    omp_set_default_device omp_set_default_device_ omp_set_default_device_8_ = |device| icvs().device = device;
}

/// What the C library calls an argument that makes no sense.
const INVALID: c_int = 22;

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_target_alloc(bytes: usize, _: c_int) -> *mut c_void {
    // SAFETY: the C library's contract.
    unsafe { libc::malloc(bytes) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn omp_target_free(at: *mut c_void, _: c_int) {
    // SAFETY: the C library's contract.
    unsafe { libc::free(at) }
}
#[unsafe(no_mangle)]
extern "C" fn omp_target_is_present(_: *const c_void, _: c_int) -> c_int {
    1
}
#[unsafe(no_mangle)]
extern "C" fn omp_target_is_accessible(_: *const c_void, _: usize, _: c_int) -> c_int {
    1
}
#[unsafe(no_mangle)]
extern "C" fn omp_get_mapped_ptr(at: *const c_void, _: c_int) -> *mut c_void {
    at.cast_mut()
}
#[unsafe(no_mangle)]
unsafe extern "C" fn omp_target_memcpy(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    to_offset: usize,
    from_offset: usize,
    _: c_int,
    _: c_int,
) -> c_int {
    // SAFETY: the caller's memory.
    unsafe { core::ptr::copy(from.cast::<u8>().add(from_offset), to.cast::<u8>().add(to_offset), bytes) };
    0
}
#[unsafe(no_mangle)]
unsafe extern "C" fn omp_target_memcpy_async(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    to_offset: usize,
    from_offset: usize,
    to_device: c_int,
    from_device: c_int,
    _: c_int,
    _: *mut c_void,
) -> c_int {
    // SAFETY: as that.
    unsafe { omp_target_memcpy(to, from, bytes, to_offset, from_offset, to_device, from_device) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn omp_target_memset(at: *mut c_void, byte: c_int, bytes: usize, _: c_int) -> *mut c_void {
    // SAFETY: the caller's memory.
    unsafe { core::ptr::write_bytes(at.cast::<u8>(), byte as u8, bytes) };
    at
}
#[unsafe(no_mangle)]
extern "C" fn omp_target_associate_ptr(
    _: *const c_void,
    _: *const c_void,
    _: usize,
    _: usize,
    _: c_int,
) -> c_int {
    INVALID
}
#[unsafe(no_mangle)]
extern "C" fn omp_target_disassociate_ptr(_: *const c_void, _: c_int) -> c_int {
    INVALID
}
