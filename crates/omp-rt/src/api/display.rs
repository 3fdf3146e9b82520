//! `OMP_DISPLAY_ENV`, `omp_display_env`.

use core::ffi::c_int;
use core::fmt::Write;

use crate::sys::{self, Text};
use crate::{icv, run};

/// As the environment asks: on rank 0, before `main`.
pub fn begin() {
    let Some(text) = icv::variable(c"OMP_DISPLAY_ENV") else { return };
    let verbose = text.eq_ignore_ascii_case(b"verbose");
    if verbose || icv::is_true(text) {
        omp_display_env(c_int::from(verbose));
    }
}

#[unsafe(no_mangle)]
extern "C" fn omp_display_env(verbose: c_int) {
    // SAFETY: serial code's.
    let icvs = unsafe { &*icv::root() };
    let mut text = Text::<2048>::new();
    let truth = |on: bool| if on { "TRUE" } else { "FALSE" };
    let kind = match icvs.schedule & !icv::MONOTONIC {
        icv::DYNAMIC => "DYNAMIC",
        icv::GUIDED => "GUIDED",
        icv::AUTO => "AUTO",
        _ => "STATIC",
    };
    let bind = match icv::bind() {
        0 => "FALSE",
        1 => "TRUE",
        2 => "PRIMARY",
        3 => "CLOSE",
        _ => "SPREAD",
    };
    let mut line = |name: &str, value: core::fmt::Arguments<'_>| {
        let _ = writeln!(text, "  {name} = '{value}'");
    };
    line("_OPENMP", format_args!("201511"));
    line("OMP_DYNAMIC", format_args!("{}", truth(icvs.dynamic)));
    line("OMP_NESTED", format_args!("FALSE"));
    line("OMP_NUM_THREADS", format_args!("{}", icvs.threads[0]));
    match icvs.chunk {
        0 => line("OMP_SCHEDULE", format_args!("{kind}")),
        chunk => line("OMP_SCHEDULE", format_args!("{kind},{chunk}")),
    }
    line("OMP_PROC_BIND", format_args!("{bind}"));
    line("OMP_PLACES", format_args!(""));
    line("OMP_STACKSIZE", format_args!("{}", icv::stack_bytes()));
    line("OMP_WAIT_POLICY", format_args!("PASSIVE"));
    line("OMP_THREAD_LIMIT", format_args!("{}", icv::limit()));
    line("OMP_MAX_ACTIVE_LEVELS", format_args!("{}", icvs.active_levels));
    line("OMP_NUM_TEAMS", format_args!("{}", icvs.teams));
    line("OMP_TEAMS_THREAD_LIMIT", format_args!("{}", icvs.teams_limit));
    line("OMP_CANCELLATION", format_args!("FALSE"));
    line("OMP_DEFAULT_DEVICE", format_args!("{}", icvs.device));
    line("OMP_MAX_TASK_PRIORITY", format_args!("0"));
    line("OMP_DISPLAY_AFFINITY", format_args!("FALSE"));
    line("OMP_TARGET_OFFLOAD", format_args!("DISABLED"));
    if verbose != 0 {
        line("polyrail: ranks", format_args!("{}", run::size()));
        line("polyrail: threads of a rank", format_args!("{}", icv::threads()));
    }
    sys::write(2, b"\nOPENMP DISPLAY ENVIRONMENT BEGIN\n");
    sys::write(2, text.bytes());
    sys::write(2, b"OPENMP DISPLAY ENVIRONMENT END\n");
}
#[unsafe(no_mangle)]
unsafe extern "C" fn omp_display_env_(verbose: *const c_int) {
    // SAFETY: a Fortran argument.
    omp_display_env(unsafe { *verbose });
}
#[unsafe(no_mangle)]
unsafe extern "C" fn omp_display_env_8_(verbose: *const i64) {
    // SAFETY: a Fortran argument.
    omp_display_env(c_int::from(unsafe { *verbose } != 0));
}
