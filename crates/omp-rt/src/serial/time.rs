//! Functions of the C library that the kernel's page answers without a system call: in serial code of several ranks they make the call, so that rank 0's time is everybody's.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::{aside, record};
use crate::alloc::exports::error;
use crate::raw;
use crate::run::runs_replicated;

/// The C library's functions, once they are looked for.
static REAL: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];
const NAMES: [&CStr; 3] = [c"clock_gettime", c"gettimeofday", c"time"];
const NUMBERS: [i64; 3] = [libc::SYS_clock_gettime, libc::SYS_gettimeofday, libc::SYS_time];

/// Finds the C library's own.
pub fn find() {
    for (name, real) in NAMES.iter().zip(&REAL) {
        // SAFETY: a search by name
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        real.store(found as usize, Relaxed);
    }
}

fn ask(which: usize, args: [usize; 2]) -> usize {
    let real = REAL[which].load(Relaxed);
    if !runs_replicated() && real != 0 {
        type Real = unsafe extern "C" fn(usize, usize) -> usize;
        // SAFETY: functions of at most two words, with the caller's arguments
        return unsafe { core::mem::transmute::<usize, Real>(real)(args[0], args[1]) };
    }
    let args = [args[0], args[1], 0, 0, 0, 0];
    let result = match runs_replicated() {
        true => aside(|| record::call(NUMBERS[which], &args)),
        // SAFETY: the caller's arguments
        false => unsafe { raw::call(NUMBERS[which], args) },
    };
    if (-4095..0).contains(&result) {
        error(-result as i32);
        return usize::MAX;
    }
    result as usize
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn clock_gettime(clock: c_int, time: *mut c_void) -> c_int {
    ask(0, [clock as usize, time as usize]) as c_int
}
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn gettimeofday(time: *mut c_void, zone: *mut c_void) -> c_int {
    ask(1, [time as usize, zone as usize]) as c_int
}
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn time(time: *mut c_void) -> i64 {
    ask(2, [time as usize, 0]) as i64
}
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn timespec_get(time: *mut c_void, base: c_int) -> c_int {
    const TIME_UTC: c_int = 1;
    if base == TIME_UTC && clock_gettime(libc::CLOCK_REALTIME, time) == 0 { base } else { 0 }
}
