//! What programs call.
#![cfg_attr(test, allow(dead_code, reason = "tests are served by the C library's"))]

use super::{allocate_in, choose, free as give_back, owner, reallocate};
use crate::heap;
use polyrail_omp::layout::PAGE;

fn out_of_memory() -> usize {
    error(libc::ENOMEM);
    0
}
pub fn error(number: i32) {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() = number };
}
pub fn last_error() -> i32 {
    // SAFETY: the calling thread's own.
    unsafe { *libc::__errno_location() }
}
fn got(block: usize) -> usize {
    if block == 0 { out_of_memory() } else { block }
}

/// Defines functions that pass on who called them as one more argument: `$register` is where the platform has that argument.
macro_rules! knowing_the_caller {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty = $body:ident, $register:literal;)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            core::arch::naked_asm!(concat!("mov ", $register, ", qword ptr [rsp]"), "jmp {}", sym $body)
        }
    )*};
}
pub(crate) use knowing_the_caller;
knowing_the_caller! {
    malloc(bytes: usize) -> usize = malloc_for, "rsi";
    calloc(count: usize, bytes: usize) -> usize = calloc_for, "rdx";
    realloc(block: usize, bytes: usize) -> usize = realloc_for, "rdx";
    memalign(align: usize, bytes: usize) -> usize = memalign_for, "rdx";
    aligned_alloc(align: usize, bytes: usize) -> usize = memalign_for, "rdx";
    posix_memalign(block: *mut usize, align: usize, bytes: usize) -> i32 = posix_memalign_for, "rcx";
    valloc(bytes: usize) -> usize = valloc_for, "rsi";
    pvalloc(bytes: usize) -> usize = pvalloc_for, "rsi";
}

unsafe extern "C" fn malloc_for(bytes: usize, caller: usize) -> usize {
    got(allocate_in(choose(caller), 16, bytes).0)
}
unsafe extern "C" fn calloc_for(count: usize, bytes: usize, caller: usize) -> usize {
    let Some(bytes) = count.checked_mul(bytes) else { return out_of_memory() };
    zeroed(choose(caller), 16, bytes)
}
/// A block of zeros.
pub fn zeroed(base: usize, align: usize, bytes: usize) -> usize {
    let (block, zero) = allocate_in(base, align, bytes);
    if block != 0 && !zero {
        // SAFETY: the block has so many bytes.
        unsafe { core::ptr::write_bytes(block as *mut u8, 0, bytes) };
    }
    got(block)
}
unsafe extern "C" fn realloc_for(block: usize, bytes: usize, caller: usize) -> usize {
    if block == 0 {
        return got(allocate_in(choose(caller), 16, bytes).0);
    }
    // SAFETY: the caller's block.
    unsafe {
        if bytes == 0 {
            give_back(block);
            return 0;
        }
        got(reallocate(block, 16, bytes, caller))
    }
}
unsafe extern "C" fn memalign_for(align: usize, bytes: usize, caller: usize) -> usize {
    let Some(align) = align.checked_next_power_of_two() else {
        error(libc::EINVAL);
        return 0;
    };
    got(allocate_in(choose(caller), align, bytes).0)
}
unsafe extern "C" fn posix_memalign_for(to: *mut usize, align: usize, bytes: usize, caller: usize) -> i32 {
    if !align.is_power_of_two() || !align.is_multiple_of(8) {
        return libc::EINVAL;
    }
    match allocate_in(choose(caller), align, bytes).0 {
        0 => libc::ENOMEM,
        block => {
            // SAFETY: the caller says where it wants it.
            unsafe { *to = block };
            0
        }
    }
}
unsafe extern "C" fn valloc_for(bytes: usize, caller: usize) -> usize {
    got(allocate_in(choose(caller), PAGE, bytes).0)
}
unsafe extern "C" fn pvalloc_for(bytes: usize, caller: usize) -> usize {
    match bytes.checked_next_multiple_of(PAGE) {
        Some(bytes) => got(allocate_in(choose(caller), PAGE, bytes).0),
        None => out_of_memory(),
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn free(block: usize) {
    // SAFETY: the caller's block.
    unsafe { give_back(block) };
}
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn cfree(block: usize) {
    // SAFETY: the caller's block.
    unsafe { give_back(block) };
}
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn malloc_usable_size(block: usize) -> usize {
    // SAFETY: the caller's block.
    if owner(block) == 0 { 0 } else { unsafe { heap::usable(block) } }
}
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn malloc_trim(_: usize) -> i32 {
    0
}
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn mallopt(_: i32, _: i32) -> i32 {
    1
}
/// `struct mallinfo`: nothing is known.
#[repr(C)]
pub struct Info([i32; 10]);
/// `struct mallinfo2`.
#[repr(C)]
pub struct Info2([usize; 10]);
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn mallinfo() -> Info {
    Info([0; 10])
}
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn mallinfo2() -> Info2 {
    Info2([0; 10])
}

/// The program break stays: what is behind it is not shared.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn sbrk(by: isize) -> usize {
    if by != 0 {
        out_of_memory();
        return usize::MAX;
    }
    // SAFETY: asks only.
    unsafe { crate::raw::call(libc::SYS_brk, [0; 6]) as usize }
}
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn brk(_: usize) -> i32 {
    error(libc::ENOMEM);
    -1
}

/// A copy of `bytes` bytes and a zero, the caller's whatever the C library's own memory is at this time.
unsafe fn copy_of(text: *const u8, bytes: usize) -> usize {
    let base = super::choose(0);
    let block = got(allocate_in(base, 16, bytes + 1).0);
    if block != 0 {
        // SAFETY: the caller's text is so long, and the block is longer.
        unsafe {
            core::ptr::copy_nonoverlapping(text, block as *mut u8, bytes);
            *((block + bytes) as *mut u8) = 0;
        }
    }
    block
}
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn strdup(text: *const u8) -> usize {
    // SAFETY: the caller's text ends with a zero.
    unsafe { copy_of(text, libc::strlen(text.cast())) }
}
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn strndup(text: *const u8, most: usize) -> usize {
    // SAFETY: the caller's text ends with a zero or is at least so long.
    unsafe { copy_of(text, libc::strnlen(text.cast(), most)) }
}
