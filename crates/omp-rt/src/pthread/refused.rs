//! What makes threads wait for each other in ways that do not reach other ranks.

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::{concerns, has_own_threads};
use crate::symbols::real;
use crate::{alloc, run, sys, thread};

const WHY: &str = "in a parallel region, between threads of several ranks, which only OpenMP's constructs, mutexes and locks synchronize: \
                   use these, or run with -n 1";

/// The function, in the version that programs of today mean: the C library has older ones of conditions.
pub fn version(name: &CStr, version: &CStr, known: &AtomicUsize) {
    if known.load(Relaxed) == 0 {
        // SAFETY: a search by name
        let found =
            alloc::privately(|| unsafe { libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()) });
        known.store(found as usize, Relaxed);
    }
}

macro_rules! refused {
    ($($name:ident = $text:literal $(in $version:literal)?;)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C-unwind" fn $name(object: usize, b: usize, c: usize, d: usize) -> c_int {
            if concerns(object) {
                sys::stop(stringify!($name), WHY);
            }
            static REAL: AtomicUsize = AtomicUsize::new(0);
            $(version($text, $version, &REAL);)?
            type Real = unsafe extern "C-unwind" fn(usize, usize, usize, usize) -> c_int;
            // SAFETY: the caller's arguments, to the function of that name
            unsafe { real::<Real>($text, &REAL)(object, b, c, d) }
        }
    )*};
}
refused! {
    pthread_cond_wait = c"pthread_cond_wait" in c"GLIBC_2.3.2";
    pthread_cond_timedwait = c"pthread_cond_timedwait" in c"GLIBC_2.3.2";
    pthread_cond_clockwait = c"pthread_cond_clockwait";
    pthread_cond_signal = c"pthread_cond_signal" in c"GLIBC_2.3.2";
    pthread_cond_broadcast = c"pthread_cond_broadcast" in c"GLIBC_2.3.2";
    pthread_barrier_wait = c"pthread_barrier_wait";
    pthread_rwlock_timedrdlock = c"pthread_rwlock_timedrdlock";
    pthread_rwlock_timedwrlock = c"pthread_rwlock_timedwrlock";
    pthread_rwlock_clockrdlock = c"pthread_rwlock_clockrdlock";
    pthread_rwlock_clockwrlock = c"pthread_rwlock_clockwrlock";
    sem_wait = c"sem_wait";
    sem_trywait = c"sem_trywait";
    sem_timedwait = c"sem_timedwait";
    sem_clockwait = c"sem_clockwait";
    sem_post = c"sem_post";
    cnd_wait = c"cnd_wait";
    cnd_timedwait = c"cnd_timedwait";
    cnd_signal = c"cnd_signal";
    cnd_broadcast = c"cnd_broadcast";
}

/// A thread that a region starts is of none: other ranks would get neither what it writes when it should be there, nor a place for what it allocates.
macro_rules! starts {
    ($($name:ident = $text:literal;)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C" fn $name(thread: usize, b: usize, c: usize, d: usize) -> c_int {
            if run::is_inside() && run::rank() > 0 && thread::current().spread.get() {
                sys::stop(
                    stringify!($name),
                    "in a parallel region, on another rank than 0: start threads in serial code, or run with -n 1",
                );
            }
            // the runtime's own are none of the program's
            if !alloc::is_privately() && run::rank() == 0 {
                has_own_threads().store(true, Relaxed);
            }
            static REAL: AtomicUsize = AtomicUsize::new(0);
            type Real = unsafe extern "C" fn(usize, usize, usize, usize) -> c_int;
            // SAFETY: the caller's arguments, to the function of that name
            let result = unsafe { real::<Real>($text, &REAL)(thread, b, c, d) };
            if result == 0 && !alloc::is_privately() {
                UNJOINED.fetch_add(1, Relaxed);
            }
            result
        }
    )*};
}

/// Threads that the program has made and not joined: the C library knows of them, also when they have ended.
static UNJOINED: AtomicUsize = AtomicUsize::new(0);

/// Whether there are any.
pub fn are_unjoined() -> bool {
    UNJOINED.load(Relaxed) > 0
}

macro_rules! joins {
    ($($name:ident = $text:literal;)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C-unwind" fn $name(thread: usize, b: usize) -> c_int {
            static REAL: AtomicUsize = AtomicUsize::new(0);
            type Real = unsafe extern "C-unwind" fn(usize, usize) -> c_int;
            // SAFETY: the caller's arguments, to the function of that name
            let result = unsafe { real::<Real>($text, &REAL)(thread, b) };
            if result == 0 {
                let _ = UNJOINED.fetch_update(Relaxed, Relaxed, |unjoined| unjoined.checked_sub(1));
            }
            result
        }
    )*};
}
joins! {
    pthread_join = c"pthread_join";
    pthread_detach = c"pthread_detach";
    thrd_join = c"thrd_join";
    thrd_detach = c"thrd_detach";
}

starts! {
    pthread_create = c"pthread_create";
    thrd_create = c"thrd_create";
}
