//! What the C library gives pointers to and keeps in its own data: here in memory that ranks share, so that who is handed it, or goes on with it, finds it.

use core::ffi::{CStr, c_char};
use core::sync::atomic::AtomicUsize;

use libc::{time_t, tm};

use super::STATICS;
use crate::alloc;
use crate::symbols::real;

/// In the runtime's shared memory.
#[repr(C)]
struct Statics {
    broken_down: tm,
    text: [c_char; TEXT],
    /// Where `strtok` goes on.
    rest: *mut c_char,
}
/// What `asctime_r` wants (POSIX).
const TEXT: usize = 32;
const _: () = assert!(STATICS + size_of::<Statics>() <= 64 << 10, "inside the shared page");

fn statics() -> *mut Statics {
    // SAFETY: inside the page
    unsafe { alloc::shared_page().add(STATICS).cast() }
}

unsafe extern "C" {
    fn tzset();
    fn asctime_r(from: *const tm, to: *mut c_char) -> *mut c_char;
    fn strtok_r(text: *mut c_char, ends: *const c_char, rest: *mut *mut c_char) -> *mut c_char;
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn localtime(time: *const time_t) -> *mut tm {
    // SAFETY: the caller's; room for the result
    unsafe {
        // `localtime_r` need not look for another time zone
        tzset();
        libc::localtime_r(time, &raw mut (*statics()).broken_down)
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn gmtime(time: *const time_t) -> *mut tm {
    // SAFETY: the caller's; room for the result
    unsafe { libc::gmtime_r(time, &raw mut (*statics()).broken_down) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn asctime(from: *const tm) -> *mut c_char {
    static REAL: AtomicUsize = AtomicUsize::new(0);
    type Real = unsafe extern "C" fn(*const tm) -> *mut c_char;
    let name: &CStr = c"asctime";
    // SAFETY: the caller's; room for the result
    unsafe {
        let text = asctime_r(from, (&raw mut (*statics()).text).cast());
        // years of more than four digits do not fit there
        if text.is_null() { real::<Real>(name, &REAL)(from) } else { text }
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn ctime(time: *const time_t) -> *mut c_char {
    // SAFETY: the caller's
    unsafe {
        let broken_down = localtime(time);
        if broken_down.is_null() { core::ptr::null_mut() } else { asctime(broken_down) }
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn strtok(text: *mut c_char, ends: *const c_char) -> *mut c_char {
    // SAFETY: the caller's
    unsafe { strtok_r(text, ends, &raw mut (*statics()).rest) }
}
