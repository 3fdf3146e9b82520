//! Loops and sections. A loop is told by its first value, the value behind its last and its step; parts are told alike.

use core::ffi::c_uint;

use crate::icv;
use crate::team::work::{self, Kind, Plan};
use crate::team::{self, here};

use super::tasks;

/// A loop over signed values.
pub fn signed(kind: Kind, ordered: bool, [begin, end, step]: [i64; 3], chunk: i64) -> Plan {
    let span = |from: i64, to: i64| to.wrapping_sub(from) as u64;
    let total = match step {
        1.. if begin < end => span(begin, end).div_ceil(step as u64),
        ..=-1 if begin > end => span(end, begin).div_ceil(step.unsigned_abs()),
        _ => 0,
    };
    Plan { kind, ordered, total, chunk: chunk.max(0) as u64, bounds: [begin, end, step].map(|v| v as u64) }
}

/// A loop over unsigned values, upwards or downwards.
fn unsigned(kind: Kind, ordered: bool, up: bool, [begin, end, step]: [u64; 3], chunk: u64) -> Plan {
    let total = match up {
        true if begin < end => (end - begin).div_ceil(step.max(1)),
        false if begin > end => (begin - end).div_ceil(step.wrapping_neg().max(1)),
        _ => 0,
    };
    Plan { kind, ordered, total, chunk, bounds: [begin, end, step] }
}

/// So many sections.
pub fn sections(count: c_uint) -> Plan {
    Plan { kind: Kind::Dynamic, ordered: false, total: u64::from(count), chunk: 1, bounds: [0; 3] }
}

/// The next part of the loop: whether there is one.
///
/// # Safety
/// The pointers are the compiler's. Signed or unsigned: the bits are the same.
unsafe fn next(begin: *mut u64, end: *mut u64) -> bool {
    work::chunk_done();
    let Some((first, count)) = work::next() else { return false };
    let work = here().work.get();
    let [low, high, step] = work.bounds();
    let at = |number: u64| low.wrapping_add(number.wrapping_mul(step));
    // SAFETY: as the caller says.
    unsafe {
        *begin = at(first);
        *end = if first + count == work.total() { high } else { at(first + count) };
    }
    true
}

fn start(plan: Plan, begin: *mut u64, end: *mut u64) -> bool {
    work::start(plan);
    // SAFETY: the compiler's pointers.
    unsafe { next(begin, end) }
}

macro_rules! loops {
    ($($kind:expr, $ordered:expr => $($start:ident)* / $($ull:ident)*;)*) => {$(
        $(#[unsafe(no_mangle)]
        extern "C" fn $start(low: i64, high: i64, step: i64, chunk: i64, begin: *mut u64, end: *mut u64) -> bool {
            start(signed($kind, $ordered, [low, high, step], chunk), begin, end)
        })*
        $(#[unsafe(no_mangle)]
        extern "C" fn $ull(up: bool, low: u64, high: u64, step: u64, chunk: u64, begin: *mut u64, end: *mut u64) -> bool {
            start(unsigned($kind, $ordered, up, [low, high, step], chunk), begin, end)
        })*
    )*};
}
loops! {
    Kind::Static, false => GOMP_loop_static_start / GOMP_loop_ull_static_start;
    Kind::Dynamic, false => GOMP_loop_dynamic_start GOMP_loop_nonmonotonic_dynamic_start
        / GOMP_loop_ull_dynamic_start GOMP_loop_ull_nonmonotonic_dynamic_start;
    Kind::Guided, false => GOMP_loop_guided_start GOMP_loop_nonmonotonic_guided_start
        / GOMP_loop_ull_guided_start GOMP_loop_ull_nonmonotonic_guided_start;
    Kind::Static, true => GOMP_loop_ordered_static_start / GOMP_loop_ull_ordered_static_start;
    Kind::Dynamic, true => GOMP_loop_ordered_dynamic_start / GOMP_loop_ull_ordered_dynamic_start;
    Kind::Guided, true => GOMP_loop_ordered_guided_start / GOMP_loop_ull_ordered_guided_start;
}
macro_rules! runtime_loops {
    ($($ordered:expr => $($start:ident)* / $($ull:ident)*;)*) => {$(
        $(#[unsafe(no_mangle)]
        extern "C" fn $start(low: i64, high: i64, step: i64, begin: *mut u64, end: *mut u64) -> bool {
            start(signed(Kind::Runtime, $ordered, [low, high, step], 0), begin, end)
        })*
        $(#[unsafe(no_mangle)]
        extern "C" fn $ull(up: bool, low: u64, high: u64, step: u64, begin: *mut u64, end: *mut u64) -> bool {
            start(unsigned(Kind::Runtime, $ordered, up, [low, high, step], 0), begin, end)
        })*
    )*};
}
runtime_loops! {
    false => GOMP_loop_runtime_start GOMP_loop_nonmonotonic_runtime_start GOMP_loop_maybe_nonmonotonic_runtime_start
        / GOMP_loop_ull_runtime_start GOMP_loop_ull_nonmonotonic_runtime_start
        GOMP_loop_ull_maybe_nonmonotonic_runtime_start;
    true => GOMP_loop_ordered_runtime_start / GOMP_loop_ull_ordered_runtime_start;
}
macro_rules! next_entries {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(begin: *mut u64, end: *mut u64) -> bool {
            // SAFETY: the compiler's pointers.
            unsafe { next(begin, end) }
        }
    )*};
}
next_entries! {
    GOMP_loop_static_next GOMP_loop_dynamic_next GOMP_loop_guided_next GOMP_loop_runtime_next
    GOMP_loop_ordered_static_next GOMP_loop_ordered_dynamic_next GOMP_loop_ordered_guided_next
    GOMP_loop_ordered_runtime_next
    GOMP_loop_nonmonotonic_dynamic_next GOMP_loop_nonmonotonic_guided_next GOMP_loop_nonmonotonic_runtime_next
    GOMP_loop_maybe_nonmonotonic_runtime_next
    GOMP_loop_ull_static_next GOMP_loop_ull_dynamic_next GOMP_loop_ull_guided_next GOMP_loop_ull_runtime_next
    GOMP_loop_ull_ordered_static_next GOMP_loop_ull_ordered_dynamic_next GOMP_loop_ull_ordered_guided_next
    GOMP_loop_ull_ordered_runtime_next
    GOMP_loop_ull_nonmonotonic_dynamic_next GOMP_loop_ull_nonmonotonic_guided_next
    GOMP_loop_ull_nonmonotonic_runtime_next GOMP_loop_ull_maybe_nonmonotonic_runtime_next
}

// --- loops with reductions of tasks, or with memory that the team shares --------------------------

fn kind(schedule: i64) -> Kind {
    match schedule as u32 & !icv::MONOTONIC {
        0 => Kind::Runtime,
        icv::DYNAMIC => Kind::Dynamic,
        icv::GUIDED => Kind::Guided,
        icv::AUTO => Kind::Blocks,
        _ => Kind::Static,
    }
}

/// # Safety
/// The compiler's arguments.
unsafe fn start_with(
    plan: Plan,
    begin: *mut u64,
    end: *mut u64,
    reductions: *mut usize,
    memory: *mut *mut u8,
) -> bool {
    work::start(plan);
    // SAFETY: as the caller says.
    unsafe {
        tasks::share(reductions, memory);
        begin.is_null() || next(begin, end)
    }
}
macro_rules! starts_with {
    ($($name:ident $ull:ident $ordered:expr;)*) => {$(
        #[allow(clippy::too_many_arguments, reason = "the compiler's")]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            low: i64,
            high: i64,
            step: i64,
            schedule: i64,
            chunk: i64,
            begin: *mut u64,
            end: *mut u64,
            reductions: *mut usize,
            memory: *mut *mut u8,
        ) -> bool {
            let plan = signed(kind(schedule), $ordered, [low, high, step], chunk);
            // SAFETY: the compiler's arguments.
            unsafe { start_with(plan, begin, end, reductions, memory) }
        }
        #[allow(clippy::too_many_arguments, reason = "the compiler's")]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $ull(
            up: bool,
            low: u64,
            high: u64,
            step: u64,
            schedule: i64,
            chunk: u64,
            begin: *mut u64,
            end: *mut u64,
            reductions: *mut usize,
            memory: *mut *mut u8,
        ) -> bool {
            let plan = unsigned(kind(schedule), $ordered, up, [low, high, step], chunk);
            // SAFETY: the compiler's arguments.
            unsafe { start_with(plan, begin, end, reductions, memory) }
        }
    )*};
}
starts_with! {
    GOMP_loop_start GOMP_loop_ull_start false;
    GOMP_loop_ordered_start GOMP_loop_ull_ordered_start true;
}

// --- loops whose iterations depend on each other: thread 0's, in order -----------------------------

/// # Safety
/// `counts[0]` is the number of iterations of the outermost loop.
unsafe fn doacross(count: u64, begin: *mut u64, end: *mut u64) -> bool {
    here().doacross.set(true);
    start(
        Plan { kind: Kind::Blocks, ordered: false, total: count, chunk: 1, bounds: [0, count, 1] },
        begin,
        end,
    )
}
macro_rules! doacross {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(_: c_uint, counts: *const u64, _: i64, begin: *mut u64, end: *mut u64) -> bool {
            // SAFETY: the compiler's arguments.
            unsafe { doacross(*counts, begin, end) }
        }
    )*};
}
doacross! {
    GOMP_loop_doacross_static_start GOMP_loop_doacross_dynamic_start GOMP_loop_doacross_guided_start
    GOMP_loop_ull_doacross_static_start GOMP_loop_ull_doacross_dynamic_start GOMP_loop_ull_doacross_guided_start
}
macro_rules! doacross_runtime {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(_: c_uint, counts: *const u64, begin: *mut u64, end: *mut u64) -> bool {
            // SAFETY: the compiler's arguments.
            unsafe { doacross(*counts, begin, end) }
        }
    )*};
}
doacross_runtime!(GOMP_loop_doacross_runtime_start GOMP_loop_ull_doacross_runtime_start);
macro_rules! doacross_with {
    ($($name:ident)*) => {$(
        #[allow(clippy::too_many_arguments, reason = "the compiler's")]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            _: c_uint,
            counts: *const u64,
            _: i64,
            _: i64,
            begin: *mut u64,
            end: *mut u64,
            reductions: *mut usize,
            memory: *mut *mut u8,
        ) -> bool {
            here().doacross.set(true);
            // SAFETY: the compiler's arguments.
            unsafe {
                let bounds = [0, *counts, 1];
                let plan = Plan { kind: Kind::Blocks, ordered: false, total: *counts, chunk: 1, bounds };
                start_with(plan, begin, end, reductions, memory)
            }
        }
    )*};
}
doacross_with!(GOMP_loop_doacross_start GOMP_loop_ull_doacross_start);
macro_rules! nothing_to_do {
    ($($name:ident)*) => {$(
        /// Iterations are done in order.
        #[unsafe(no_mangle)]
        extern "C" fn $name() {}
    )*};
}
nothing_to_do!(GOMP_doacross_post GOMP_doacross_wait GOMP_doacross_ull_post GOMP_doacross_ull_wait);

// --- ends ---------------------------------------------------------------------------------------------

#[unsafe(no_mangle)]
extern "C" fn GOMP_loop_end_nowait() {
    work::chunk_done();
    work::end();
    here().doacross.set(false);
}
#[unsafe(no_mangle)]
extern "C" fn GOMP_loop_end() {
    // what the threads share of the loop may be needed until all are through
    work::chunk_done();
    team::barrier();
    work::end();
    here().doacross.set(false);
}
#[unsafe(no_mangle)]
extern "C" fn GOMP_loop_end_cancel() -> bool {
    GOMP_loop_end();
    false
}

#[unsafe(no_mangle)]
extern "C" fn GOMP_sections_start(count: c_uint) -> c_uint {
    work::start(sections(count));
    GOMP_sections_next()
}
#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_sections2_start(
    count: c_uint,
    reductions: *mut usize,
    memory: *mut *mut u8,
) -> c_uint {
    work::start(sections(count));
    // SAFETY: the compiler's arguments.
    unsafe { tasks::share(reductions, memory) };
    GOMP_sections_next()
}
#[unsafe(no_mangle)]
extern "C" fn GOMP_sections_next() -> c_uint {
    work::next().map_or(0, |(section, _)| section as c_uint + 1)
}
#[unsafe(no_mangle)]
extern "C" fn GOMP_sections_end() {
    GOMP_loop_end();
}
#[unsafe(no_mangle)]
extern "C" fn GOMP_sections_end_nowait() {
    GOMP_loop_end_nowait();
}
#[unsafe(no_mangle)]
extern "C" fn GOMP_sections_end_cancel() -> bool {
    GOMP_loop_end();
    false
}
#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_scope_start(reductions: *mut usize) {
    work::start(sections(0));
    // SAFETY: the compiler's arguments.
    unsafe { tasks::share(reductions, core::ptr::null_mut()) };
    work::end();
}
