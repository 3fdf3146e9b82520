//! Leagues, and targets, which the host carries out: there is no device.

use core::ffi::{c_int, c_uint, c_void};

use crate::api::memory;
use crate::team::{self, here};
use crate::thread::{scratch, unscratch};

type Body = extern "C" fn(*mut c_void);

/// A variable of which a target has a copy.
const COPIED: u16 = 12;

#[allow(clippy::too_many_arguments, reason = "the compiler's")]
#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_target_ext(
    _: c_int,
    body: Body,
    count: usize,
    addresses: *mut *mut c_void,
    bytes: *const usize,
    kinds: *const u16,
    _: c_uint,
    _: *mut *mut c_void,
    _: *mut *mut c_void,
) {
    // SAFETY: the compiler's arrays.
    unsafe {
        let copied = |i: &usize| *kinds.add(*i) & 0xff == COPIED;
        let room: usize = (0..count).filter(copied).map(|i| *bytes.add(i) + 4096).sum();
        let at = scratch(room);
        let mut next = at as usize;
        for i in (0..count).filter(copied) {
            // aligned as its kind says, by a power of two
            next = next.next_multiple_of(1 << (*kinds.add(i) >> 8).min(12));
            core::ptr::copy_nonoverlapping((*addresses.add(i)).cast::<u8>(), next as *mut u8, *bytes.add(i));
            *addresses.add(i) = next as *mut c_void;
            next += *bytes.add(i);
        }
        body(addresses.cast());
        unscratch(at);
    }
}
#[unsafe(no_mangle)]
extern "C" fn GOMP_target(
    _: c_int,
    body: Body,
    _: *const c_void,
    _: usize,
    addresses: *mut c_void,
    _: *const usize,
    _: *const u8,
) {
    body(addresses);
}
macro_rules! nothing_to_do {
    ($($name:ident)*) => {$(
        /// Host and target are one.
        #[unsafe(no_mangle)]
        extern "C" fn $name() {}
    )*};
}
nothing_to_do! {
    GOMP_target_data GOMP_target_data_ext GOMP_target_end_data GOMP_target_update GOMP_target_update_ext
    GOMP_target_enter_exit_data GOMP_offload_register GOMP_offload_register_ver GOMP_offload_unregister
    GOMP_offload_unregister_ver
}
#[unsafe(no_mangle)]
extern "C" fn GOMP_teams(_: c_uint, _: c_uint) {}
/// Whether there is a next team: the first time only.
#[unsafe(no_mangle)]
extern "C" fn GOMP_teams4(_: c_uint, _: c_uint, _: c_uint, first: bool) -> bool {
    first
}
/// A league on the host: its teams one after the other.
#[unsafe(no_mangle)]
extern "C" fn GOMP_teams_reg(body: Body, data: *mut c_void, teams: c_uint, _: c_uint, _: c_uint) {
    let frame = here();
    let teams = team::league(teams as usize);
    let around = frame.league.get();
    for number in 0..teams {
        frame.league.set((number, teams));
        body(data);
    }
    frame.league.set(around);
}
#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_alloc(align: usize, bytes: usize, allocator: usize) -> *mut c_void {
    // SAFETY: as that.
    unsafe { memory::omp_aligned_alloc(align, bytes, allocator) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_free(at: *mut c_void, allocator: usize) {
    // SAFETY: as that.
    unsafe { memory::omp_free(at, allocator) };
}
