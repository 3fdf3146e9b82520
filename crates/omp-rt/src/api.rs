//! What programs call themselves: `omp_*`, for C and, with a trailing underscore and pointers to arguments, for Fortran.

mod affinity;
pub mod display;
mod locks;
pub mod memory;
mod target;
mod vendor;

use core::ffi::c_int;

use crate::team::{here, tasks};
use crate::{icv, run};

/// `omp_get_max_threads() -> c_int = expression`, for C and Fortran.
macro_rules! queries {
    ($($name:ident $fortran:ident = $value:expr;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            let value: c_int = $value;
            value
        }
        #[unsafe(no_mangle)]
        extern "C" fn $fortran() -> c_int {
            $name()
        }
    )*};
}
pub(crate) use queries;

/// `omp_set_num_threads(c_int)`, for C, for Fortran, and for Fortran with integers of 8 bytes.
macro_rules! settings {
    ($($name:ident $fortran:ident $($fortran_8:ident)? = $set:expr;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(value: c_int) {
            let set: fn(c_int) = $set;
            set(value);
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $fortran(value: *const c_int) {
            // SAFETY: a Fortran argument.
            $name(unsafe { *value });
        }
        $(#[unsafe(no_mangle)]
        unsafe extern "C" fn $fortran_8(value: *const i64) {
            // SAFETY: a Fortran argument.
            $name(unsafe { *value }.clamp(i64::from(c_int::MIN), i64::from(c_int::MAX)) as c_int);
        })?
    )*};
}
pub(crate) use settings;

/// The calling task's variables.
fn icvs() -> &'static mut icv::Icvs {
    // SAFETY: this thread's own, or serial code's, which this is; nobody holds on to it.
    unsafe { &mut *here().icvs() }
}

/// The region around the caller at `level`, if there is one: its number there, and how many.
fn ancestor(level: c_int) -> Option<(usize, usize)> {
    let mut frame = here();
    if level < 0 || level as u32 > frame.level.get() {
        return None;
    }
    while frame.level.get() > level as u32 {
        // SAFETY: regions around stay longer.
        frame = unsafe { &*frame.parent.get() };
    }
    Some((frame.tid.get(), frame.threads.get()))
}

queries! {
    omp_get_num_threads omp_get_num_threads_ = here().threads.get() as c_int;
    omp_get_thread_num omp_get_thread_num_ = here().tid.get() as c_int;
    omp_get_max_threads omp_get_max_threads_ = (icvs().threads[0].max(1) as usize).min(icv::limit()) as c_int;
    omp_get_num_procs omp_get_num_procs_ = match run::size() {
        1 => icv::processors() as c_int,
        size => (size * icv::threads()) as c_int,
    };
    omp_in_parallel omp_in_parallel_ = c_int::from(here().active.get() > 0);
    omp_get_dynamic omp_get_dynamic_ = c_int::from(icvs().dynamic);
    omp_get_nested omp_get_nested_ = 0;
    omp_get_thread_limit omp_get_thread_limit_ = icv::limit() as c_int;
    omp_get_max_active_levels omp_get_max_active_levels_ = icvs().active_levels;
    omp_get_supported_active_levels omp_get_supported_active_levels_ = 1;
    omp_get_level omp_get_level_ = here().level.get() as c_int;
    omp_get_active_level omp_get_active_level_ = here().active.get() as c_int;
    omp_in_final omp_in_final_ = c_int::from(here().task.get() == (true, true));
    omp_in_explicit_task omp_in_explicit_task_ = c_int::from(here().task.get().0);
    omp_get_cancellation omp_get_cancellation_ = 0;
    omp_get_proc_bind omp_get_proc_bind_ = icv::bind();
    omp_get_max_task_priority omp_get_max_task_priority_ = 0;
    omp_get_num_teams omp_get_num_teams_ = here().league.get().1 as c_int;
    omp_get_team_num omp_get_team_num_ = here().league.get().0 as c_int;
    omp_get_max_teams omp_get_max_teams_ = icvs().teams;
    omp_get_teams_thread_limit omp_get_teams_thread_limit_ = icvs().teams_limit;
}

settings! {
    omp_set_num_threads omp_set_num_threads_ omp_set_num_threads_8_ =
        |threads| icvs().threads[0] = threads.clamp(1, 1 << 20) as u32;
    omp_set_dynamic omp_set_dynamic_ omp_set_dynamic_8_ = |on| icvs().dynamic = on != 0;
    omp_set_nested omp_set_nested_ omp_set_nested_8_ = |_| ();
    omp_set_max_active_levels omp_set_max_active_levels_ omp_set_max_active_levels_8_ =
        |levels| if levels >= 0 { icvs().active_levels = levels.min(1) };
    omp_set_num_teams omp_set_num_teams_ omp_set_num_teams_8_ = |teams| if teams >= 0 { icvs().teams = teams };
    omp_set_teams_thread_limit omp_set_teams_thread_limit_ omp_set_teams_thread_limit_8_ =
        |limit| if limit >= 0 { icvs().teams_limit = limit };
    ompc_set_num_threads ompc_set_num_threads_ = |threads| omp_set_num_threads(threads);
    ompc_set_dynamic ompc_set_dynamic_ = |on| omp_set_dynamic(on);
    ompc_set_nested ompc_set_nested_ = |_| ();
    ompc_set_max_active_levels ompc_set_max_active_levels_ = |levels| omp_set_max_active_levels(levels);
}

macro_rules! of_level {
    ($($name:ident $c:ident $fortran:ident $fortran_8:ident = $value:expr;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(level: c_int) -> c_int {
            let value: fn((usize, usize)) -> usize = $value;
            ancestor(level).map_or(-1, |found| value(found) as c_int)
        }
        #[unsafe(no_mangle)]
        extern "C" fn $c(level: c_int) -> c_int {
            $name(level)
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $fortran(level: *const c_int) -> c_int {
            // SAFETY: a Fortran argument.
            $name(unsafe { *level })
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $fortran_8(level: *const i64) -> c_int {
            // SAFETY: a Fortran argument.
            $name(c_int::try_from(unsafe { *level }).unwrap_or(-1))
        }
    )*};
}
of_level! {
    omp_get_ancestor_thread_num ompc_get_ancestor_thread_num omp_get_ancestor_thread_num_
        omp_get_ancestor_thread_num_8_ = |found| found.0;
    omp_get_team_size ompc_get_team_size omp_get_team_size_ omp_get_team_size_8_ = |found| found.1;
}

// --- schedules ----------------------------------------------------------------------------------------

#[unsafe(no_mangle)]
extern "C" fn omp_set_schedule(kind: c_int, chunk: c_int) {
    let plain = kind as u32 & !icv::MONOTONIC;
    if !(icv::STATIC..=icv::AUTO).contains(&plain) {
        return;
    }
    let least = c_int::from(matches!(plain, icv::DYNAMIC | icv::GUIDED));
    icvs().schedule = kind as u32;
    icvs().chunk = if chunk < 1 || plain == icv::AUTO { least } else { chunk };
}
#[unsafe(no_mangle)]
extern "C" fn ompc_set_schedule(kind: c_int, chunk: c_int) {
    omp_set_schedule(kind, chunk);
}
#[unsafe(no_mangle)]
unsafe extern "C" fn omp_set_schedule_(kind: *const c_int, chunk: *const c_int) {
    // SAFETY: Fortran arguments.
    unsafe { omp_set_schedule(*kind, *chunk) };
}
#[unsafe(no_mangle)]
unsafe extern "C" fn omp_set_schedule_8_(kind: *const c_int, chunk: *const i64) {
    // SAFETY: Fortran arguments.
    unsafe { omp_set_schedule(*kind, (*chunk).clamp(0, i64::from(c_int::MAX)) as c_int) };
}
#[unsafe(no_mangle)]
unsafe extern "C" fn omp_get_schedule(kind: *mut c_int, chunk: *mut c_int) {
    // SAFETY: the caller's variables.
    unsafe {
        *kind = icvs().schedule as c_int;
        *chunk = icvs().chunk;
    }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn omp_get_schedule_(kind: *mut c_int, chunk: *mut c_int) {
    // SAFETY: as that.
    unsafe { omp_get_schedule(kind, chunk) };
}
#[unsafe(no_mangle)]
unsafe extern "C" fn omp_get_schedule_8_(kind: *mut c_int, chunk: *mut i64) {
    // SAFETY: the caller's variables.
    unsafe {
        *kind = icvs().schedule as c_int;
        *chunk = i64::from(icvs().chunk);
    }
}

// --- time, events ---------------------------------------------------------------------------------------

#[unsafe(no_mangle)]
extern "C" fn omp_get_wtime() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills in the struct.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}
#[unsafe(no_mangle)]
extern "C" fn omp_get_wtime_() -> f64 {
    omp_get_wtime()
}
#[unsafe(no_mangle)]
extern "C" fn omp_get_wtick() -> f64 {
    1e-9
}
#[unsafe(no_mangle)]
extern "C" fn omp_get_wtick_() -> f64 {
    1e-9
}
#[unsafe(no_mangle)]
unsafe extern "C" fn omp_fulfill_event(event: *mut tasks::Event) {
    // SAFETY: an event of a task.
    unsafe { tasks::fulfill(event) };
}
#[unsafe(no_mangle)]
unsafe extern "C" fn omp_fulfill_event_(event: *const *mut tasks::Event) {
    // SAFETY: a Fortran argument, which is an event of a task.
    unsafe { tasks::fulfill(*event) };
}
#[unsafe(no_mangle)]
extern "C" fn omp_pause_resource(_: c_int, _: c_int) -> c_int {
    0
}
#[unsafe(no_mangle)]
extern "C" fn omp_pause_resource_(_: *const c_int, _: *const c_int) -> c_int {
    0
}
#[unsafe(no_mangle)]
extern "C" fn omp_pause_resource_all(_: c_int) -> c_int {
    0
}
#[unsafe(no_mangle)]
extern "C" fn omp_pause_resource_all_(_: *const c_int) -> c_int {
    0
}
/// There is no tool.
#[unsafe(no_mangle)]
extern "C" fn omp_control_tool(_: c_int, _: c_int, _: *mut core::ffi::c_void) -> c_int {
    -2
}
#[unsafe(no_mangle)]
extern "C" fn omp_control_tool_(_: *const c_int, _: *const c_int) -> c_int {
    -2
}
