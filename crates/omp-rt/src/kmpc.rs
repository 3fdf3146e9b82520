//! Entry points of LLVM's runtime (`__kmpc_*`), by what clang calls them for.
//!
//! Every function is given a place (`Ident`) and the calling thread's global number, which is not needed: a thread knows itself.

mod loops;
mod rest;
pub mod sync;
mod tasks;

use core::ffi::{c_int, c_void};

use crate::checkpoint;
use crate::floating::Floating;
use crate::region::{Region, microtask};
use crate::team::{self, Frame, here, leave, own};
use crate::thread::{scratch, unscratch};

/// `ident_t`: where in the source.
#[repr(C)]
pub struct Ident {
    words: [c_int; 4],
    text: *const u8,
}

/// Puts the arguments behind the third into an array and calls `$to(place, count, function, array, frame)`; `frame`: where the caller's stack begins.
macro_rules! variadic {
    ($name:ident, $to:path) => {
        /// Takes any number of arguments.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "push rbp",
                ".cfi_def_cfa_offset 16",
                ".cfi_offset rbp, -16",
                "mov rbp, rsp",
                ".cfi_def_cfa_register rbp",
                "mov eax, esi",
                "add rax, 4",
                "and rax, -2",
                "shl rax, 3",
                "sub rsp, rax",
                "mov [rsp], rcx",
                "mov [rsp + 8], r8",
                "mov [rsp + 16], r9",
                "mov ecx, 3",
                "2:",
                "cmp ecx, esi",
                "jge 3f",
                "mov rax, [rbp + rcx * 8 - 8]",
                "mov [rsp + rcx * 8], rax",
                "inc ecx",
                "jmp 2b",
                "3:",
                "mov rcx, rsp",
                "lea r8, [rbp + 16]",
                "call {to}",
                "leave",
                ".cfi_def_cfa rsp, 8",
                "ret",
                ".cfi_endproc",
                to = sym $to,
            )
        }
    };
}

variadic!(__kmpc_fork_call, fork);
variadic!(__kmpc_fork_teams, fork_teams);

/// A region: the arguments are pointers to what is shared and values of the rest.
unsafe extern "C" fn fork(place: *const Ident, count: c_int, function: usize, args: *const usize, sp: usize) {
    let asked = own().pushed.replace(0);
    let threads = team::size(asked);
    if threads == 1 {
        // SAFETY: as the compiler calls it.
        return unsafe { alone(function, count as usize, args) };
    }
    // SAFETY: the array is on the caller's stack.
    let args = unsafe { core::slice::from_raw_parts(args, count as usize) };
    // SAFETY: a constant of the program, if any.
    let place = unsafe { place.as_ref() }.map_or(0, |place| place.text as usize);
    team::fork(&Region { function, gomp: false, args, team: threads, place, floating: Floating::now() }, sp);
    checkpoint::point();
}

/// A team of one thread.
unsafe fn alone(function: usize, count: usize, args: *const usize) {
    serial(|| {
        let (global, number) = (team::global() as c_int, 0);
        // SAFETY: the compiler's function, with its arguments.
        unsafe { microtask(function, &global, &number, count, args) };
    });
}

/// Runs `body` as a team of one thread.
pub fn serial(body: impl FnOnce()) {
    let frame = Frame::inner(here(), None, 0, 1);
    // SAFETY: it is left before it is gone.
    let before = unsafe { team::enter(&frame) };
    body();
    team::tasks::wait();
    // SAFETY: where this thread was before.
    unsafe { team::enter(before) };
}

/// A league: its teams one after the other, each of the one thread that serial code is.
unsafe extern "C" fn fork_teams(
    _: *const Ident,
    count: c_int,
    function: usize,
    args: *const usize,
    _: usize,
) {
    let (teams, _) = own().league.replace((0, 0));
    let teams = team::league(teams);
    let frame = here();
    let around = frame.league.get();
    for number in 0..teams {
        frame.league.set((number, teams));
        let (global, zero) = (team::global() as c_int, 0);
        // SAFETY: the compiler's function, with its arguments.
        unsafe { microtask(function, &global, &zero, count as usize, args) };
    }
    frame.league.set(around);
}

/// A region if `condition`; one argument at most.
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_fork_call_if(
    place: *const Ident,
    count: c_int,
    function: usize,
    condition: c_int,
    args: *mut c_void,
) {
    let word = [args as usize];
    let sp = word.as_ptr() as usize;
    // SAFETY: as the compiler calls it.
    unsafe {
        if condition != 0 {
            fork(place, count, function, word.as_ptr(), sp);
        } else {
            own().pushed.set(0);
            alone(function, count as usize, word.as_ptr());
        }
    }
}

/// A team of one thread, whose body the caller runs.
#[unsafe(no_mangle)]
pub extern "C" fn __kmpc_serialized_parallel(_: *const Ident, _: c_int) {
    own().pushed.set(0);
    let frame = scratch(size_of::<Frame>()).cast::<Frame>();
    // SAFETY: new memory, which stays until the end of the region.
    unsafe {
        frame.write(Frame::inner(here(), None, 0, 1));
        team::enter(frame);
    }
}

/// Its end.
#[unsafe(no_mangle)]
pub extern "C" fn __kmpc_end_serialized_parallel(_: *const Ident, _: c_int) {
    team::tasks::wait();
    let frame = core::ptr::from_ref(here()).cast_mut();
    leave();
    // SAFETY: from `__kmpc_serialized_parallel`.
    unsafe { unscratch(frame.cast()) };
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_push_num_threads(_: *const Ident, _: c_int, threads: c_int) {
    own().pushed.set(threads.max(0) as usize);
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_push_num_threads_strict(
    place: *const Ident,
    thread: c_int,
    threads: c_int,
    _: c_int,
    _: *const u8,
) {
    __kmpc_push_num_threads(place, thread, threads);
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_pop_num_threads(_: *const Ident, _: c_int) {
    own().pushed.set(0);
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_push_proc_bind(_: *const Ident, _: c_int, _: c_int) {}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_push_num_teams(_: *const Ident, _: c_int, teams: c_int, threads: c_int) {
    own().league.set((teams.max(0) as usize, threads.max(0) as usize));
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_push_num_teams_51(_: *const Ident, _: c_int, _: c_int, teams: c_int, threads: c_int) {
    own().league.set((teams.max(0) as usize, threads.max(0) as usize));
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_set_thread_limit(_: *const Ident, _: c_int, _: c_int) {}
