//! Loops: clang tells the bounds (the last value included) and the step, and wants them narrowed to the thread's part.

use core::ffi::c_int;

use super::Ident;
use crate::team::work::{self, Kind, Plan};
use crate::team::{Frame, here};

/// A loop counter of the program: 4 or 8 bytes, with or without a sign. Arithmetic wraps, as the compiler's.
pub trait Counter: Copy + PartialOrd {
    /// With the sign kept, where there is one.
    fn widen(self) -> i64;
    /// The lower bytes.
    fn narrow(value: i64) -> Self;
}
macro_rules! counter {
    ($($t:ty)*) => {$(
        impl Counter for $t {
            fn widen(self) -> i64 {
                self as i64
            }
            fn narrow(value: i64) -> Self {
                value as Self
            }
        }
    )*};
}
counter!(i32 u32 i64 u64);

/// Iterations of `low..=high` by `step`.
fn trips<T: Counter>(low: T, high: T, step: i64) -> u64 {
    let span = |from: T, to: T| to.widen().wrapping_sub(from.widen()) as u64;
    match step {
        1.. if low <= high => span(low, high) / step as u64 + 1,
        ..=-1 if low >= high => span(high, low) / step.unsigned_abs() + 1,
        _ => 0,
    }
}

/// Iteration `number` of a loop from `low` by `step`.
fn value<T: Counter>(low: T, number: u64, step: i64) -> T {
    T::narrow(low.widen().wrapping_add((number as i64).wrapping_mul(step)))
}

/// `enum sched_type` without its modifiers, and whether the loop is ordered.
fn schedule(code: c_int) -> (c_int, bool) {
    // two bits of modifiers; numbers from 160 on are those from 32 on for loops that are not merged
    let code = code & !(3 << 29);
    let code = if code >= 160 { code - 128 } else { code };
    if (65..=72).contains(&code) { (code - 32, true) } else { (code, false) }
}
const CHUNKS: c_int = 33;
const GREEDY: c_int = 40;
const BALANCED: c_int = 41;
const STEAL: c_int = 44;
const ROUNDED: c_int = 45;
const TEAM_CHUNKS: c_int = 91;
const TEAM_BLOCKS: c_int = 92;

fn plan(code: c_int, chunk: i64, total: u64) -> Plan {
    let (code, ordered) = schedule(code);
    let kind = match code {
        CHUNKS | ROUNDED => Kind::Static,
        35 => Kind::Dynamic,
        36 | 42 | 43 | 46 | 39 => Kind::Guided,
        37 | 47 => Kind::Runtime,
        STEAL | GREEDY | BALANCED => Kind::Blocks,
        _ => Kind::Blocks,
    };
    Plan { kind, ordered, total, chunk: chunk.max(1) as u64, bounds: [0; 3] }
}

/// Who takes part in a static loop: the number, and of how many. A loop with dependences between iterations is thread 0's.
fn members(frame: &Frame, code: c_int) -> (u64, u64) {
    if matches!(code, TEAM_CHUNKS | TEAM_BLOCKS) {
        let (number, teams) = frame.league.get();
        return (number as u64, teams as u64);
    }
    (frame.tid.get() as u64, frame.threads.get() as u64)
}

/// Pointers to what a static loop is narrowed to.
struct Bounds<T> {
    last: *mut c_int,
    low: *mut T,
    high: *mut T,
    stride: *mut T,
}

impl<T: Counter> Bounds<T> {
    /// # Safety
    /// The pointers are the compiler's.
    unsafe fn narrow(&self, code: c_int, step: i64, chunk: i64, (number, members): (u64, u64)) {
        // SAFETY: as the caller says.
        unsafe {
            let (low, high) = (*self.low, *self.high);
            let total = trips(low, high, step);
            let set_last = |last: bool| {
                if let Some(at) = self.last.as_mut() {
                    *at = c_int::from(last);
                }
            };
            if total == 0 {
                *self.stride = T::narrow(step);
                return set_last(false);
            }
            let chunk = (chunk.max(1) as u64).min(total);
            let span = match schedule(code).0 {
                CHUNKS | TEAM_CHUNKS => Some(chunk),
                // blocks of whole vectors
                ROUNDED => Some(total.div_ceil(members).next_multiple_of(chunk)),
                _ => None,
            };
            match span {
                Some(span) => {
                    *self.stride = value(T::narrow(0), span.wrapping_mul(members), step);
                    *self.low = value(low, span.wrapping_mul(number), step);
                    *self.high = value(low, span.wrapping_mul(number).wrapping_add(span - 1), step);
                    if schedule(code).0 == ROUNDED {
                        let first = span.saturating_mul(number);
                        *self.stride = T::narrow(total as i64);
                        if first >= total {
                            (*self.low, *self.high) = self.nothing(high, step);
                        } else if first + span > total {
                            *self.high = high;
                        }
                    } else if span.checked_mul(number).is_none_or(|first| first >= total) {
                        // what wraps would look like a part
                        (*self.low, *self.high) = self.nothing(high, step);
                    }
                    set_last(number == (total - 1) / span % members);
                }
                None => {
                    let (first, count) = work::block(total, number, members);
                    *self.stride = T::narrow(total as i64);
                    if count == 0 {
                        (*self.low, *self.high) = self.nothing(high, step);
                    } else {
                        *self.low = value(low, first, step);
                        *self.high = value(low, first + count - 1, step);
                    }
                    set_last(count > 0 && first + count == total);
                }
            }
        }
    }

    /// Bounds of no iteration: behind the end, or before it where there is nothing behind.
    fn nothing(&self, high: T, step: i64) -> (T, T) {
        let behind = T::narrow(high.widen().wrapping_add(step));
        if (step > 0) == (behind > high) {
            return (behind, high);
        }
        (high, T::narrow(high.widen().wrapping_sub(step)))
    }
}

fn narrow_for<T: Counter>(bounds: &Bounds<T>, code: c_int, step: i64, chunk: i64) {
    let frame = here();
    // SAFETY: the compiler's pointers.
    unsafe {
        if frame.doacross.get() && frame.threads.get() > 1 {
            let (low, high) = (*bounds.low, *bounds.high);
            let all = trips(low, high, step);
            *bounds.stride = T::narrow((all as i64).wrapping_mul(step));
            let mine = frame.tid.get() == 0;
            if let Some(last) = bounds.last.as_mut() {
                *last = c_int::from(mine && all > 0);
            }
            if !mine && all > 0 {
                (*bounds.low, *bounds.high) = bounds.nothing(high, step);
            }
            return;
        }
        bounds.narrow(code, step, chunk, members(frame, schedule(code).0));
    }
}

/// `distribute` and `for` in one: first the team's part, then the thread's; the team's end is told, too.
fn narrow_both<T: Counter>(bounds: &Bounds<T>, team_high: *mut T, code: c_int, step: i64, chunk: i64) {
    let frame = here();
    // SAFETY: the compiler's pointers.
    unsafe {
        let mut league_last = 0;
        let mut stride = *bounds.stride;
        let league =
            Bounds { last: &mut league_last, low: bounds.low, high: bounds.high, stride: &mut stride };
        league.narrow(TEAM_BLOCKS, step, 1, members(frame, TEAM_BLOCKS));
        *team_high = *bounds.high;
        bounds.narrow(code, step, chunk, (frame.tid.get() as u64, frame.threads.get() as u64));
        if let Some(last) = bounds.last.as_mut() {
            *last &= league_last;
        }
    }
}

/// A team's chunks of a league's loop.
fn narrow_team<T: Counter>(bounds: &Bounds<T>, step: i64, chunk: i64) {
    // SAFETY: the compiler's pointers.
    unsafe { bounds.narrow(TEAM_CHUNKS, step, chunk, members(here(), TEAM_CHUNKS)) };
}

fn begin<T: Counter>(code: c_int, low: T, high: T, step: i64, chunk: i64) {
    let mut plan = plan(code, chunk, trips(low, high, step));
    plan.bounds = [low.widen() as u64, 0, step as u64];
    if schedule(code).0 == 37 || schedule(code).0 == 47 {
        plan.chunk = 0;
    }
    work::start(plan);
}

/// # Safety
/// The pointers are the compiler's.
unsafe fn next<T: Counter>(last: *mut c_int, low: *mut T, high: *mut T, stride: *mut T) -> c_int {
    let Some((first, count)) = work::next() else {
        work::end();
        return 0;
    };
    let work = here().work.get();
    let [begin, _, step] = work.bounds();
    let begin = T::narrow(begin as i64);
    // SAFETY: as the caller says.
    unsafe {
        *low = value(begin, first, step as i64);
        *high = value(begin, first + count - 1, step as i64);
        if let Some(stride) = stride.as_mut() {
            *stride = T::narrow(step as i64);
        }
        if let Some(last) = last.as_mut() {
            *last = c_int::from(first + count == work.total());
        }
    }
    1
}

macro_rules! entries {
    ($t:ty, $s:ty, $static:ident, $dist:ident, $team:ident, $init:ident, $dist_init:ident, $next:ident, $fini:ident) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $static(
            _: *const Ident,
            _: c_int,
            code: c_int,
            last: *mut c_int,
            low: *mut $t,
            high: *mut $t,
            stride: *mut $t,
            step: $s,
            chunk: $s,
        ) {
            narrow_for(&Bounds { last, low, high, stride }, code, i64::from(step), i64::from(chunk));
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $dist(
            _: *const Ident,
            _: c_int,
            code: c_int,
            last: *mut c_int,
            low: *mut $t,
            high: *mut $t,
            team_high: *mut $t,
            stride: *mut $t,
            step: $s,
            chunk: $s,
        ) {
            narrow_both(
                &Bounds { last, low, high, stride },
                team_high,
                code,
                i64::from(step),
                i64::from(chunk),
            );
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $team(
            _: *const Ident,
            _: c_int,
            last: *mut c_int,
            low: *mut $t,
            high: *mut $t,
            stride: *mut $t,
            step: $s,
            chunk: $s,
        ) {
            narrow_team(&Bounds { last, low, high, stride }, i64::from(step), i64::from(chunk));
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $init(
            _: *const Ident,
            _: c_int,
            code: c_int,
            low: $t,
            high: $t,
            step: $s,
            chunk: $s,
        ) {
            begin(code, low, high, i64::from(step), i64::from(chunk));
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $dist_init(
            _: *const Ident,
            _: c_int,
            code: c_int,
            last: *mut c_int,
            mut low: $t,
            mut high: $t,
            step: $s,
            chunk: $s,
        ) {
            let mut stride = 0;
            let bounds = Bounds { last, low: &mut low, high: &mut high, stride: &mut stride };
            // SAFETY: pointers to variables here.
            unsafe { bounds.narrow(TEAM_BLOCKS, i64::from(step), 1, members(here(), TEAM_BLOCKS)) };
            begin(code, low, high, i64::from(step), i64::from(chunk));
        }
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $next(
            _: *const Ident,
            _: c_int,
            last: *mut c_int,
            low: *mut $t,
            high: *mut $t,
            stride: *mut $s,
        ) -> c_int {
            // SAFETY: the compiler's pointers.
            unsafe { next::<$t>(last, low, high, stride.cast()) }
        }
        #[unsafe(no_mangle)]
        extern "C" fn $fini(_: *const Ident, _: c_int) {
            work::iterated();
        }
    };
}
entries!(
    i32,
    i32,
    __kmpc_for_static_init_4,
    __kmpc_dist_for_static_init_4,
    __kmpc_team_static_init_4,
    __kmpc_dispatch_init_4,
    __kmpc_dist_dispatch_init_4,
    __kmpc_dispatch_next_4,
    __kmpc_dispatch_fini_4
);
entries!(
    u32,
    i32,
    __kmpc_for_static_init_4u,
    __kmpc_dist_for_static_init_4u,
    __kmpc_team_static_init_4u,
    __kmpc_dispatch_init_4u,
    __kmpc_dist_dispatch_init_4u,
    __kmpc_dispatch_next_4u,
    __kmpc_dispatch_fini_4u
);
entries!(
    i64,
    i64,
    __kmpc_for_static_init_8,
    __kmpc_dist_for_static_init_8,
    __kmpc_team_static_init_8,
    __kmpc_dispatch_init_8,
    __kmpc_dist_dispatch_init_8,
    __kmpc_dispatch_next_8,
    __kmpc_dispatch_fini_8
);
entries!(
    u64,
    i64,
    __kmpc_for_static_init_8u,
    __kmpc_dist_for_static_init_8u,
    __kmpc_team_static_init_8u,
    __kmpc_dispatch_init_8u,
    __kmpc_dist_dispatch_init_8u,
    __kmpc_dispatch_next_8u,
    __kmpc_dispatch_fini_8u
);

#[unsafe(no_mangle)]
extern "C" fn __kmpc_for_static_fini(_: *const Ident, _: c_int) {}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_dispatch_deinit(_: *const Ident, _: c_int) {}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_ordered(_: *const Ident, _: c_int) {
    work::ordered();
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_end_ordered(_: *const Ident, _: c_int) {
    work::end_ordered();
}

// sections as newer compilers have them: the number of each section in turn
#[unsafe(no_mangle)]
extern "C" fn __kmpc_sections_init(_: *const Ident, _: c_int) -> c_int {
    work::start(Plan { kind: Kind::Dynamic, ordered: false, total: 1 << 31, chunk: 1, bounds: [0; 3] });
    __kmpc_next_section(core::ptr::null(), 0, 0)
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_next_section(_: *const Ident, _: c_int, _: c_int) -> c_int {
    work::next().map_or(-1, |(section, _)| section as c_int)
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_end_sections(_: *const Ident, _: c_int) {
    work::end();
}

/// A dimension of a loop whose iterations depend on each other.
#[unsafe(no_mangle)]
extern "C" fn __kmpc_doacross_init(_: *const Ident, _: c_int, _: c_int, _: *const [i64; 3]) {
    // thread 0 does all of it, in order: then what an iteration waits for has been done
    here().doacross.set(true);
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_doacross_wait(_: *const Ident, _: c_int, _: *const i64) {}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_doacross_post(_: *const Ident, _: c_int, _: *const i64) {}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_doacross_fini(_: *const Ident, _: c_int) {
    here().doacross.set(false);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The iterations of a member's part: a block, or chunks by the stride as compiled code goes through them.
    fn values<T: Counter>(low: T, high: T, stride: T, end: T, step: i64, chunked: bool) -> Vec<i64> {
        let before = |a: T, b: T| if step > 0 { a <= b } else { a >= b };
        let (mut low, mut high, mut got) = (low, high, Vec::new());
        loop {
            let last = if before(high, end) { high } else { end };
            let count = trips(low, last, step);
            got.extend((0..count).map(|i| value(low, i, step).widen()));
            let next = T::narrow(low.widen().wrapping_add(stride.widen()));
            if !chunked || count == 0 || !before(next, end) || before(next, low) {
                return got;
            }
            (low, high) = (next, T::narrow(high.widen().wrapping_add(stride.widen())));
        }
    }

    fn check<T: Counter>(low: T, high: T, step: i64) {
        let all: Vec<i64> = (0..trips(low, high, step)).map(|i| value(low, i, step).widen()).collect();
        for (code, chunk) in [(34, 1), (33, 1), (33, 3), (33, 1000), (45, 4), (91, 2), (92, 1)] {
            for members in 1..9 {
                let (mut got, mut lasts) = (Vec::new(), Vec::new());
                for number in 0..members {
                    let (mut l, mut h, mut s, mut last) = (low, high, T::narrow(1), 7);
                    let bounds = Bounds { last: &mut last, low: &mut l, high: &mut h, stride: &mut s };
                    // SAFETY: pointers to variables here.
                    unsafe { bounds.narrow(code, step, chunk, (number, members)) };
                    let mine = values(l, h, s, high, step, matches!(code, 33 | 91));
                    lasts.extend((last == 1).then_some(mine.last().copied()));
                    got.extend(mine);
                }
                got.sort_unstable();
                let mut sorted = all.clone();
                sorted.sort_unstable();
                assert_eq!(got, sorted, "schedule {code}, {chunk}; {members} members");
                assert_eq!(lasts, all.last().map(|last| Some(*last)).into_iter().collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn parts_of_static_loops_make_the_whole_of_them() {
        for n in [0, 1, 2, 3, 7, 8, 30] {
            check(0i32, n - 1, 1);
            check(n * 3, 2, -3);
            check(i64::from(n) - 50, 40, 7);
        }
        // compilers number iterations from 0, so that nothing wraps at the ends of a type
        check(i32::MAX - 800, i32::MAX - 780, 1);
        check(4_000_000_000u32, 4_000_000_040, 3);
        check(1020u32, 1000, -1);
        check(u64::MAX / 2 - 9, u64::MAX / 2 + 9, 2);
        check(i64::MIN + 1, i64::MIN + 20, 4);
    }
}
