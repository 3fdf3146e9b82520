//! Signals that the runtime lives by, breakpoints and trapped system calls, stay its own, whatever handlers a program sets: the Fortran library sets one for nearly
//! every signal when a program starts, to say where it came from.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Mutex;

use libc::{SIG_ERR, sigaction as Action, sighandler_t};

unsafe extern "C" {
    /// The C library's own name of `sigaction`.
    fn __sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int;
}

/// Signals that are ours, a bit each.
static KEPT: AtomicU64 = AtomicU64::new(0);
/// What the program believes to have set for them.
static BELIEVED: Mutex<[Option<Action>; 64]> = Mutex::new([None; 64]);

type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// Has `handler` for `signal` from now on, which can be interrupted by the same.
pub fn keep(signal: c_int, handler: Handler, flags: c_int) {
    KEPT.fetch_or(1 << signal, Relaxed);
    // SAFETY: a handler of the right kind, which stays
    unsafe {
        let mut action: Action = core::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = flags | libc::SA_SIGINFO | libc::SA_NODEFER;
        __sigaction(signal, &raw const action, core::ptr::null_mut());
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    // SAFETY: the program's arguments, either may be null; all zero is the system's default
    unsafe {
        if !(0..64).contains(&signal) || KEPT.load(Relaxed) >> signal & 1 == 0 {
            return __sigaction(signal, new, old);
        }
        let believed = &mut BELIEVED.lock().unwrap_or_else(|broken| broken.into_inner())[signal as usize];
        if let Some(old) = old.as_mut() {
            *old = believed.unwrap_or(core::mem::zeroed());
        }
        *believed = new.as_ref().copied().or(*believed);
    }
    0
}

/// As the C library's, by [`sigaction`].
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t {
    // SAFETY: the program's handler
    unsafe {
        let (mut new, mut old): (Action, Action) = (core::mem::zeroed(), core::mem::zeroed());
        new.sa_sigaction = handler;
        new.sa_flags = libc::SA_RESTART;
        if libc::sigaddset(&raw mut new.sa_mask, signal) != 0
            || sigaction(signal, &raw const new, &raw mut old) != 0
        {
            return SIG_ERR;
        }
        old.sa_sigaction
    }
}
