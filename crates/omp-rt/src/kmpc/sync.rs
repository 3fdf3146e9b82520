//! Barriers, `single`, `master`, critical sections, reductions.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::Ident;
use crate::modules;
use crate::team::{self, here, locks, reduce, work};

#[unsafe(no_mangle)]
extern "C" fn __kmpc_barrier(_: *const Ident, _: c_int) {
    team::barrier();
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_barrier_master(_: *const Ident, _: c_int) -> c_int {
    team::barrier();
    c_int::from(here().tid.get() == 0)
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_end_barrier_master(_: *const Ident, _: c_int) {}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_barrier_master_nowait(place: *const Ident, thread: c_int) -> c_int {
    __kmpc_barrier_master(place, thread)
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_flush(_: *const Ident) {
    locks::flush();
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_master(_: *const Ident, _: c_int) -> c_int {
    c_int::from(here().tid.get() == 0)
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_end_master(_: *const Ident, _: c_int) {}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_masked(_: *const Ident, _: c_int, filter: c_int) -> c_int {
    c_int::from(here().tid.get() as c_int == filter)
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_end_masked(_: *const Ident, _: c_int) {}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_scope(_: *const Ident, _: c_int, _: *mut c_void) {}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_end_scope(_: *const Ident, _: c_int, _: *mut c_void) {}
/// Whether the program has any `copyprivate`: a `single` does not say that it will be one.
static COPIES: AtomicBool = AtomicBool::new(true);

/// Looks for it, before `main`.
pub fn begin() {
    COPIES.store(modules::shared().any(|module| module.names("__kmpc_copyprivate")), Relaxed);
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_single(_: *const Ident, _: c_int) -> c_int {
    c_int::from(work::single(COPIES.load(Relaxed)))
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_end_single(_: *const Ident, _: c_int) {
    team::here();
}

#[unsafe(no_mangle)]
extern "C" fn __kmpc_critical(_: *const Ident, _: c_int, lock: *mut c_void) {
    locks::lock(lock as u64);
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_critical_with_hint(_: *const Ident, _: c_int, lock: *mut c_void, _: u32) {
    locks::lock(lock as u64);
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_end_critical(_: *const Ident, _: c_int, lock: *mut c_void) {
    locks::unlock(lock as u64);
}

/// Gives `data` of the thread whose `did` is not 0 to all.
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_copyprivate(
    _: *const Ident,
    _: c_int,
    _: usize,
    data: *mut c_void,
    copy: unsafe extern "C" fn(*mut c_void, *mut c_void),
    did: c_int,
) {
    let floor = &data as *const _ as usize;
    let from = reduce::copy(if did != 0 { data } else { core::ptr::null_mut() }, floor);
    if did == 0 {
        // SAFETY: the compiler's function.
        unsafe { copy(data, from) };
    }
    reduce::copied();
}

/// Folds all threads' copies; 1 for the thread that is to add the result to the original, and then calls the end.
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_reduce_nowait(
    _: *const Ident,
    _: c_int,
    _: c_int,
    _: usize,
    data: *mut c_void,
    fold: reduce::Fold,
    _: *mut c_void,
) -> c_int {
    let floor = &data as *const _ as usize;
    // SAFETY: the compiler's arguments; this frame is below the caller's.
    c_int::from(unsafe { reduce::fold(data, fold, floor) })
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_end_reduce_nowait(_: *const Ident, _: c_int, _: *mut c_void) {}
/// As [`__kmpc_reduce_nowait`], and nobody goes on before the result is there.
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_reduce(
    _: *const Ident,
    _: c_int,
    _: c_int,
    _: usize,
    data: *mut c_void,
    fold: reduce::Fold,
    _: *mut c_void,
) -> c_int {
    let floor = &data as *const _ as usize;
    // SAFETY: the compiler's arguments; this frame is below the caller's.
    let chosen = unsafe { reduce::fold(data, fold, floor) };
    if !chosen {
        team::barrier();
    }
    c_int::from(chosen)
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_end_reduce(_: *const Ident, _: c_int, _: *mut c_void) {
    team::barrier();
}

/// Around an atomic that compilers have no instruction for.
#[unsafe(no_mangle)]
extern "C" fn __kmpc_atomic_start() {
    locks::lock(locks::ATOMIC);
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_atomic_end() {
    locks::unlock(locks::ATOMIC);
}
