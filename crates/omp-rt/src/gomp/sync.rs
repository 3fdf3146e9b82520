//! Barriers, `single`, critical sections, cancellation.

use core::ffi::{CStr, c_char, c_int, c_void};

use crate::sys;
use crate::team::{self, locks, reduce, work};

#[unsafe(no_mangle)]
extern "C" fn GOMP_barrier() {
    team::barrier();
}
#[unsafe(no_mangle)]
extern "C" fn GOMP_barrier_cancel() -> bool {
    team::barrier();
    false
}
/// Never, as where OMP_CANCELLATION is false.
#[unsafe(no_mangle)]
extern "C" fn GOMP_cancel(_: c_int, _: bool) -> bool {
    false
}
#[unsafe(no_mangle)]
extern "C" fn GOMP_cancellation_point(_: c_int) -> bool {
    false
}
#[unsafe(no_mangle)]
extern "C" fn GOMP_single_start() -> bool {
    work::single(false)
}
/// Null for the thread that is to do it; the others get what it gives.
#[unsafe(no_mangle)]
extern "C" fn GOMP_single_copy_start() -> *mut c_void {
    if work::single(true) { core::ptr::null_mut() } else { reduce::copy(core::ptr::null_mut(), 0) }
}
#[unsafe(no_mangle)]
extern "C" fn GOMP_single_copy_end(data: *mut c_void) {
    // the caller's frame is above this one
    reduce::copy(data, &data as *const _ as usize);
}
#[unsafe(no_mangle)]
extern "C" fn GOMP_critical_start() {
    locks::lock(locks::UNNAMED);
}
#[unsafe(no_mangle)]
extern "C" fn GOMP_critical_end() {
    locks::unlock(locks::UNNAMED);
}
#[unsafe(no_mangle)]
extern "C" fn GOMP_critical_name_start(name: *mut c_void) {
    locks::lock(name as u64);
}
#[unsafe(no_mangle)]
extern "C" fn GOMP_critical_name_end(name: *mut c_void) {
    locks::unlock(name as u64);
}
#[unsafe(no_mangle)]
extern "C" fn GOMP_atomic_start() {
    locks::lock(locks::ATOMIC);
}
#[unsafe(no_mangle)]
extern "C" fn GOMP_atomic_end() {
    locks::unlock(locks::ATOMIC);
}
#[unsafe(no_mangle)]
extern "C" fn GOMP_ordered_start() {
    work::ordered();
}
/// The turn is passed on when the chunk is through.
#[unsafe(no_mangle)]
extern "C" fn GOMP_ordered_end() {}

/// `error` of the program, or of libgomp's plugins.
///
/// # Safety
/// A string of `bytes`, or with `usize::MAX` one that ends with a zero.
unsafe fn say(text: *const c_char, bytes: usize) -> &'static str {
    if text.is_null() {
        return "the program says so";
    }
    // SAFETY: as the caller says.
    let text = unsafe {
        match bytes {
            usize::MAX => CStr::from_ptr(text).to_bytes(),
            _ => core::slice::from_raw_parts(text.cast(), bytes),
        }
    };
    core::str::from_utf8(text).unwrap_or("the program says so")
}
#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_error(text: *const c_char, bytes: usize) -> ! {
    // SAFETY: the compiler's string.
    sys::stop("error", unsafe { say(text, bytes) })
}
#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_warning(text: *const c_char, bytes: usize) {
    sys::write(2, b"warning: ");
    // SAFETY: the compiler's string.
    sys::write(2, unsafe { say(text, bytes) }.as_bytes());
    sys::write(2, b"\n");
}
