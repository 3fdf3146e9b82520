//! Signals that the runtime lives by, breakpoints and trapped system calls, stay its own, whatever handlers a program sets: the Fortran library sets one for nearly
//! every signal when a program starts, to say where it came from. Nor does any thread block them, as programs do that block all: the kernel ends a process that comes to
//! a breakpoint, or to a trapped call, while their signals are blocked.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Mutex;

use libc::{SIG_ERR, sigaction as Action, sighandler_t, sigset_t};

use crate::raw;

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
        // whoever started the program may have blocked it
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaddset(&raw mut action.sa_mask, signal);
        mask(libc::SIG_UNBLOCK, &raw const action.sa_mask, core::ptr::null_mut());
    }
}

/// Whether a signal is the runtime's.
pub fn is_ours(signal: c_int) -> bool {
    signal < 64 && KEPT.load(Relaxed) >> signal & 1 == 1
}

fn all_believed() -> std::sync::MutexGuard<'static, [Option<Action>; 64]> {
    BELIEVED.lock().unwrap_or_else(|broken| broken.into_inner())
}

/// What the program believes to have set, for a checkpoint: for each signal a byte, and what it has set.
pub fn believed() -> Vec<u8> {
    let mut bytes = Vec::new();
    for (signal, action) in all_believed().iter().enumerate() {
        if let Some(action) = action {
            bytes.push(signal as u8);
            // SAFETY: a structure that is all bytes
            bytes.extend(unsafe {
                core::slice::from_raw_parts(core::ptr::from_ref(action).cast::<u8>(), size_of::<Action>())
            });
        }
    }
    bytes
}

/// Puts it back.
pub fn believe(bytes: &[u8]) {
    for one in bytes.chunks_exact(1 + size_of::<Action>()) {
        // SAFETY: so many bytes, which were such a structure
        let action = unsafe { one[1..].as_ptr().cast::<Action>().read_unaligned() };
        all_believed()[usize::from(one[0]) % 64] = Some(action);
    }
}

/// The kernel's; its error.
unsafe fn mask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int {
    // SAFETY: the caller's; the kernel's set is the first word of the C library's
    -unsafe { raw::call(libc::SYS_rt_sigprocmask, [how as usize, new as usize, old as usize, 8, 0, 0]) }
        as c_int
}

/// Without what is not to be blocked: the runtime's signals, and the C library's own.
fn blockable(mut set: sigset_t) -> sigset_t {
    for signal in (1..64).filter(|signal| KEPT.load(Relaxed) >> signal & 1 == 1) {
        // SAFETY: a set and a signal
        unsafe { libc::sigdelset(&raw mut set, signal) };
    }
    let words: *mut u64 = (&raw mut set).cast();
    // SAFETY: a set is words of a bit for each signal, from 1 on
    unsafe { *words &= !(3 << (FIRST_OF_LIBRARY - 1)) };
    set
}

/// Of two signals that glibc cancels threads and sets user ids by, which it does not let programs block.
const FIRST_OF_LIBRARY: c_int = 32;

/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pthread_sigmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int {
    // SAFETY: the program's arguments, either may be null
    unsafe {
        let blocked = new.as_ref().filter(|_| how != libc::SIG_UNBLOCK).map(|new| blockable(*new));
        mask(how, blocked.as_ref().map_or(new, core::ptr::from_ref), old)
    }
}

/// As the C library's.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn sigprocmask(how: c_int, new: *const sigset_t, old: *mut sigset_t) -> c_int {
    // SAFETY: the program's arguments; errno is the thread's
    unsafe {
        match pthread_sigmask(how, new, old) {
            0 => 0,
            error => {
                *libc::__errno_location() = error;
                -1
            }
        }
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
    // SAFETY: the program's arguments, either may be null; all zero is the system's default
    unsafe {
        if !(0..64).contains(&signal) || KEPT.load(Relaxed) >> signal & 1 == 0 {
            let new = new.as_ref().map(|new| Action { sa_mask: blockable(new.sa_mask), ..*new });
            return __sigaction(signal, new.as_ref().map_or(core::ptr::null(), core::ptr::from_ref), old);
        }
        let believed = &mut all_believed()[signal as usize];
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
