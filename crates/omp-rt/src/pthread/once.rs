//! What is done once by whichever thread comes first: variables of functions that C++ initializes, `pthread_once`, and what is left to be done when the program ends.
//!
//! A thread that finds the mark does not ask anybody, so the mark may only come to a rank behind what was made. The marks that compilers and the C library look at are set when
//! that has been told; until then another one stands beside them, which is looked at under a lock.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering::*};

use super::concerns;
use crate::symbols::real;
use crate::team::locks;
use crate::{alloc, ask, run, thread};

/// The mark that compilers look at: the first byte (Itanium C++ ABI, 3.3.3).
fn mark<'a>(guard: usize) -> &'a AtomicU8 {
    // SAFETY: the caller's guard, which is eight bytes
    unsafe { &*(guard as *const AtomicU8) }
}
/// A byte that the C++ libraries leave alone.
fn made<'a>(guard: usize) -> &'a AtomicU8 {
    const PLACE: usize = 7;
    // SAFETY: the caller's guard, which is eight bytes
    unsafe { &*((guard + PLACE) as *const AtomicU8) }
}

/// 1 if the calling thread is to initialize the variable, and has the lock until it says what came of that.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn __cxa_guard_acquire(guard: usize) -> c_int {
    if concerns(guard) {
        if mark(guard).load(Acquire) == 1 {
            return 0;
        }
        locks::lock(guard as u64);
        if mark(guard).load(Acquire) == 0 && made(guard).load(Acquire) == 0 {
            return 1;
        }
        locks::unlock(guard as u64);
        mark(guard).store(1, Release);
        return 0;
    }
    static REAL: AtomicUsize = AtomicUsize::new(0);
    type Real = unsafe extern "C-unwind" fn(usize) -> c_int;
    // SAFETY: the caller's
    unsafe { real::<Real>(c"__cxa_guard_acquire", &REAL)(guard) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn __cxa_guard_release(guard: usize) {
    if concerns(guard) {
        made(guard).store(1, Release);
        locks::unlock(guard as u64);
        return mark(guard).store(1, Release);
    }
    static REAL: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: the caller's
    unsafe { real::<unsafe extern "C-unwind" fn(usize)>(c"__cxa_guard_release", &REAL)(guard) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn __cxa_guard_abort(guard: usize) {
    if concerns(guard) {
        return locks::unlock(guard as u64);
    }
    static REAL: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: the caller's
    unsafe { real::<unsafe extern "C-unwind" fn(usize)>(c"__cxa_guard_abort", &REAL)(guard) }
}

type Routine = extern "C-unwind" fn();

/// Of `pthread_once_t` and `once_flag`: what the C library leaves there when it is done.
const DONE: u32 = 2;
/// That, before it has been told.
const MADE: u32 = 1 << 30;

/// Gives the lock back, also if the routine leaves by an exception.
struct Locked(u64);
impl Drop for Locked {
    fn drop(&mut self) {
        locks::unlock(self.0);
    }
}

fn once(control: usize, routine: Routine) {
    // SAFETY: the caller's
    let state = unsafe { &*(control as *const AtomicU32) };
    if state.load(Acquire) == DONE {
        return;
    }
    {
        let _locked = {
            locks::lock(control as u64);
            Locked(control as u64)
        };
        if state.load(Acquire) == 0 {
            routine();
            state.store(MADE, Release);
        }
    }
    state.store(DONE, Release);
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn pthread_once(control: usize, routine: Routine) -> c_int {
    if concerns(control) {
        once(control, routine);
        return 0;
    }
    static REAL: AtomicUsize = AtomicUsize::new(0);
    type Real = unsafe extern "C-unwind" fn(usize, Routine) -> c_int;
    // SAFETY: the caller's
    unsafe { real::<Real>(c"pthread_once", &REAL)(control, routine) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn call_once(control: usize, routine: Routine) {
    if concerns(control) {
        return once(control, routine);
    }
    static REAL: AtomicUsize = AtomicUsize::new(0);
    type Real = unsafe extern "C-unwind" fn(usize, Routine);
    // SAFETY: the caller's
    unsafe { real::<Real>(c"call_once", &REAL)(control, routine) }
}

type Exit = unsafe extern "C" fn(usize, usize, usize) -> c_int;

fn at_exit() -> Exit {
    static REAL: AtomicUsize = AtomicUsize::new(0);
    real(c"__cxa_atexit", &REAL)
}

/// What is to be done when the program ends is rank 0's, which alone ends as the program does.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn __cxa_atexit(function: usize, argument: usize, object: *mut c_void) -> c_int {
    if run::is_inside() && run::rank() > 0 && thread::current().spread.get() {
        let question: Vec<u8> =
            [function, argument, object as usize].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let answer = ask::rank_0(ask::EXIT, &question);
        return answer.first_chunk().map_or(-1, |result| c_int::from_ne_bytes(*result));
    }
    // SAFETY: the caller's
    unsafe { at_exit()(function, argument, object as usize) }
}

/// Rank 0's server thread: has a function called at the end.
pub fn register(question: &[u8]) -> Option<Vec<u8>> {
    let [function, argument, object] = *question.as_chunks().0 else { return None };
    let [function, argument, object] = [function, argument, object].map(usize::from_ne_bytes);
    // SAFETY: the program's function, which is at the same address on all ranks
    let result = alloc::privately(|| unsafe { at_exit()(function, argument, object) });
    Some(result.to_ne_bytes().to_vec())
}
