//! Entry points of GCC's runtime (`GOMP_*`), by what gcc and gfortran call them for.

mod loops;
mod sync;
mod target;
mod tasks;

use core::ffi::{c_uint, c_void};

use crate::checkpoint;
use crate::floating::Floating;
use crate::kmpc::{__kmpc_end_serialized_parallel, __kmpc_serialized_parallel, serial};
use crate::region::Region;
use crate::team::work::{self, Kind, PLAN, Plan};
use crate::team::{self, here};

/// A region's function.
type Body = extern "C" fn(*mut c_void);

/// A region, which begins with `plan` if there is one. `sp`: the caller's frames are above.
fn fork(
    body: Body,
    data: *mut c_void,
    threads: c_uint,
    plan: Option<Plan>,
    reductions: *mut usize,
    sp: usize,
) {
    let team = team::size(threads as usize);
    if team == 1 {
        return serial(|| {
            here().reductions.set(reductions);
            if let Some(plan) = plan {
                work::start(plan);
            }
            body(data);
        });
    }
    let mut words = [data as usize; PLAN + 1];
    let args = match plan {
        Some(plan) => {
            words[1..].copy_from_slice(&plan.words());
            &words[..]
        }
        None => {
            words[1] = reductions as usize;
            &words[..1 + usize::from(!reductions.is_null())]
        }
    };
    team::fork(
        &Region { function: body as usize, gomp: true, args, team, place: 0, floating: Floating::now() },
        sp,
    );
    // the caller has still to fold what tasks reduce, which is in the runtime's memory
    if reductions.is_null() {
        checkpoint::point();
    }
}

/// Has `$to` get where the caller's stack begins as its sixth argument.
macro_rules! with_stack {
    ($($name:ident $to:path;)*) => {$(
        /// See the function that it goes on with.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!("lea r9, [rsp + 8]", "jmp {to}", to = sym $to)
        }
    )*};
}
/// As [`with_stack`], as the ninth argument.
macro_rules! with_stack_9 {
    ($($name:ident $to:path;)*) => {$(
        /// See the function that it goes on with.
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
                "lea rax, [rbp + 16]",
                "push rax",
                "push rax",
                "push [rbp + 24]",
                "push [rbp + 16]",
                "call {to}",
                "leave",
                ".cfi_def_cfa rsp, 8",
                "ret",
                ".cfi_endproc",
                to = sym $to,
            )
        }
    )*};
}

with_stack! {
    GOMP_parallel parallel;
    GOMP_parallel_reductions parallel_reductions;
    GOMP_parallel_sections parallel_sections;
}
with_stack_9! {
    GOMP_parallel_loop_static parallel_static;
    GOMP_parallel_loop_dynamic parallel_dynamic;
    GOMP_parallel_loop_nonmonotonic_dynamic parallel_dynamic;
    GOMP_parallel_loop_guided parallel_guided;
    GOMP_parallel_loop_nonmonotonic_guided parallel_guided;
    GOMP_parallel_loop_runtime parallel_runtime;
    GOMP_parallel_loop_nonmonotonic_runtime parallel_runtime;
    GOMP_parallel_loop_maybe_nonmonotonic_runtime parallel_runtime;
}

extern "C" fn parallel(body: Body, data: *mut c_void, threads: c_uint, _: c_uint, _: usize, sp: usize) {
    fork(body, data, threads, None, core::ptr::null_mut(), sp);
}

/// A region with `reduction(task, ...)`, which `data` begins with the description of.
unsafe extern "C" fn parallel_reductions(
    body: Body,
    data: *mut c_void,
    threads: c_uint,
    _: c_uint,
    _: usize,
    sp: usize,
) -> c_uint {
    let team = team::size(threads as usize);
    // SAFETY: the compiler's description.
    let reductions = unsafe {
        let reductions = *data.cast::<*mut usize>();
        tasks::room(reductions, team);
        reductions
    };
    tasks::within_rank(team);
    fork(body, data, threads, None, reductions, sp);
    team as c_uint
}

extern "C" fn parallel_sections(
    body: Body,
    data: *mut c_void,
    threads: c_uint,
    count: c_uint,
    _: c_uint,
    sp: usize,
) {
    fork(body, data, threads, Some(loops::sections(count)), core::ptr::null_mut(), sp);
}

macro_rules! parallel_loops {
    ($($name:ident $kind:expr;)*) => {$(
        #[allow(clippy::too_many_arguments, reason = "the compiler's")]
        extern "C" fn $name(
            body: Body,
            data: *mut c_void,
            threads: c_uint,
            begin: i64,
            end: i64,
            step: i64,
            chunk: i64,
            _: c_uint,
            sp: usize,
        ) {
            let plan = loops::signed($kind, false, [begin, end, step], chunk);
            fork(body, data, threads, Some(plan), core::ptr::null_mut(), sp);
        }
    )*};
}
parallel_loops! {
    parallel_static Kind::Static;
    parallel_dynamic Kind::Dynamic;
    parallel_guided Kind::Guided;
    parallel_runtime Kind::Runtime;
}

// --- what compilers before GCC 4.9 call: the caller runs the body itself, so it is a team of one -------

#[unsafe(no_mangle)]
extern "C" fn GOMP_parallel_start(_: Body, _: *mut c_void, _: c_uint) {
    __kmpc_serialized_parallel(core::ptr::null(), 0);
}
#[unsafe(no_mangle)]
extern "C" fn GOMP_parallel_end() {
    __kmpc_end_serialized_parallel(core::ptr::null(), 0);
}
#[unsafe(no_mangle)]
extern "C" fn GOMP_parallel_sections_start(_: Body, _: *mut c_void, _: c_uint, count: c_uint) {
    __kmpc_serialized_parallel(core::ptr::null(), 0);
    work::start(loops::sections(count));
}
macro_rules! old_loops {
    ($($name:ident $kind:expr;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(_: Body, _: *mut c_void, _: c_uint, begin: i64, end: i64, step: i64, chunk: i64) {
            __kmpc_serialized_parallel(core::ptr::null(), 0);
            work::start(loops::signed($kind, false, [begin, end, step], chunk));
        }
    )*};
}
old_loops! {
    GOMP_parallel_loop_static_start Kind::Static;
    GOMP_parallel_loop_dynamic_start Kind::Dynamic;
    GOMP_parallel_loop_guided_start Kind::Guided;
    GOMP_parallel_loop_runtime_start Kind::Runtime;
}
