//! Allocators: all memory is alike, so an allocator is an alignment.

use core::ffi::{c_int, c_void};

use crate::team::here;

/// The first handle that is not predefined; the logarithm of an alignment is added to it.
const ALIGNED: usize = 0x1000;
/// The trait that is an alignment.
const ALIGNMENT: usize = 2;

/// Handles and memory spaces, as C++ and Fortran programs of clang's find them.
macro_rules! constants {
    ($($name:ident = $value:expr;)*) => {$(
        /// A handle.
        #[unsafe(no_mangle)]
        pub static $name: usize = $value;
    )*};
}
constants! {
    omp_null_allocator = 0;
    omp_default_mem_alloc = 1;
    omp_large_cap_mem_alloc = 2;
    omp_const_mem_alloc = 3;
    omp_high_bw_mem_alloc = 4;
    omp_low_lat_mem_alloc = 5;
    omp_cgroup_mem_alloc = 6;
    omp_pteam_mem_alloc = 7;
    omp_thread_mem_alloc = 8;
    llvm_omp_target_host_mem_alloc = 100;
    llvm_omp_target_shared_mem_alloc = 101;
    llvm_omp_target_device_mem_alloc = 102;
    kmp_max_mem_alloc = 1024;
    omp_default_mem_space = 0;
    omp_large_cap_mem_space = 1;
    omp_const_mem_space = 2;
    omp_high_bw_mem_space = 3;
    omp_low_lat_mem_space = 4;
    llvm_omp_target_host_mem_space = 100;
    llvm_omp_target_shared_mem_space = 101;
    llvm_omp_target_device_mem_space = 102;
}

fn alignment(allocator: usize) -> usize {
    if (ALIGNED..ALIGNED + 48).contains(&allocator) { 1 << (allocator - ALIGNED) } else { 16 }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_alloc(bytes: usize, allocator: usize) -> *mut c_void {
    // SAFETY: as that.
    unsafe { omp_aligned_alloc(1, bytes, allocator) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_aligned_alloc(align: usize, bytes: usize, allocator: usize) -> *mut c_void {
    let align = align.max(alignment(allocator));
    if bytes == 0 {
        return core::ptr::null_mut();
    }
    // SAFETY: the C library's contract.
    unsafe { if align <= 16 { libc::malloc(bytes) } else { libc::memalign(align, bytes) } }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_calloc(count: usize, bytes: usize, allocator: usize) -> *mut c_void {
    // SAFETY: as that.
    unsafe { omp_aligned_calloc(1, count, bytes, allocator) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_aligned_calloc(
    align: usize,
    count: usize,
    bytes: usize,
    allocator: usize,
) -> *mut c_void {
    let Some(all) = count.checked_mul(bytes) else { return core::ptr::null_mut() };
    // SAFETY: new memory of that size.
    unsafe {
        let at = omp_aligned_alloc(align, all, allocator);
        if !at.is_null() {
            core::ptr::write_bytes(at.cast::<u8>(), 0, all);
        }
        at
    }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_realloc(
    at: *mut c_void,
    bytes: usize,
    allocator: usize,
    _: usize,
) -> *mut c_void {
    // SAFETY: the C library's contract.
    unsafe {
        let align = alignment(allocator);
        let new = libc::realloc(at, bytes);
        if new.is_null() || new.addr().is_multiple_of(align) {
            return new;
        }
        let aligned = libc::memalign(align, bytes);
        if !aligned.is_null() {
            core::ptr::copy_nonoverlapping(new.cast::<u8>(), aligned.cast(), bytes);
        }
        libc::free(new);
        aligned
    }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn omp_free(at: *mut c_void, _: usize) {
    // SAFETY: the C library's contract.
    unsafe { libc::free(at) };
}
#[unsafe(no_mangle)]
pub extern "C" fn omp_init_allocator(_: usize, count: c_int, traits: *const [usize; 2]) -> usize {
    let traits = match count {
        // SAFETY: so many pairs of a key (of 4 bytes) and a value.
        1.. => unsafe { core::slice::from_raw_parts(traits, count as usize) },
        _ => &[],
    };
    let align =
        traits.iter().find(|[key, _]| *key as u32 as usize == ALIGNMENT).map_or(1, |[_, value]| *value);
    ALIGNED + align.max(1).next_power_of_two().trailing_zeros().min(40) as usize
}
#[unsafe(no_mangle)]
extern "C" fn omp_destroy_allocator(_: usize) {}
#[unsafe(no_mangle)]
pub extern "C" fn omp_set_default_allocator(allocator: usize) {
    // SAFETY: this thread's own.
    unsafe { (*here().icvs()).allocator = allocator };
}
#[unsafe(no_mangle)]
pub extern "C" fn omp_get_default_allocator() -> usize {
    // SAFETY: this thread's own.
    unsafe { (*here().icvs()).allocator }
}

// --- Fortran ----------------------------------------------------------------------------------------

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_init_allocator_(
    space: *const usize,
    count: *const c_int,
    traits: *const [usize; 2],
) -> usize {
    // SAFETY: Fortran arguments.
    unsafe { omp_init_allocator(*space, *count, traits) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn omp_init_allocator_8_(
    space: *const usize,
    count: *const i64,
    traits: *const [usize; 2],
) -> usize {
    // SAFETY: Fortran arguments.
    unsafe { omp_init_allocator(*space, *count as c_int, traits) }
}
#[unsafe(no_mangle)]
extern "C" fn omp_destroy_allocator_(_: *const usize) {}
#[unsafe(no_mangle)]
unsafe extern "C" fn omp_set_default_allocator_(allocator: *const usize) {
    // SAFETY: a Fortran argument.
    omp_set_default_allocator(unsafe { *allocator });
}
#[unsafe(no_mangle)]
extern "C" fn omp_get_default_allocator_() -> usize {
    omp_get_default_allocator()
}
