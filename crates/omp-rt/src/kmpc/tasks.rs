//! Tasks, task groups, task loops.

use core::ffi::{c_int, c_void};

use super::Ident;
use crate::team::offers::{self, Met};
use crate::team::tasks::{self, Around, Dependence, Event, Group, Reduction};
use crate::team::{self, here};
use crate::thread::{scratch, unscratch};

/// What a task's function is given: `kmp_task_t`, behind which are copies of variables.
#[repr(C)]
struct Task {
    shared: *mut c_void,
    routine: unsafe extern "C" fn(c_int, *mut Task) -> c_int,
    part: c_int,
    destroy: Option<unsafe extern "C" fn(c_int, *mut Task) -> c_int>,
    data: usize,
}

/// `kmp_depend_info_t`.
#[repr(C)]
struct Depend {
    address: usize,
    bytes: usize,
    kind: u8,
}

impl Depend {
    const IN: u8 = 1;
}

/// In front of a task, for us.
#[repr(C, align(16))]
struct Head {
    flags: c_int,
    /// An untied task has come to where another thread may go on with it.
    again: bool,
    bytes: usize,
    event: *mut Event,
    around: Around,
}

const FINAL: c_int = 2;
const DESTROY: c_int = 8;

/// # Safety
/// `task` is from `__kmpc_omp_task_alloc`.
unsafe fn head(task: *mut Task) -> *mut Head {
    task.cast::<Head>().wrapping_sub(1)
}

/// A task of `bytes`, and behind it room for `shared` bytes of pointers.
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_omp_task_alloc(
    _: *const Ident,
    _: c_int,
    flags: c_int,
    bytes: usize,
    shared: usize,
    routine: unsafe extern "C" fn(c_int, *mut Task) -> c_int,
) -> *mut Task {
    let own = bytes.next_multiple_of(16);
    let all = own + shared;
    let at = scratch(size_of::<Head>() + all).cast::<Head>();
    // SAFETY: new memory of that size.
    unsafe {
        let head =
            Head { flags, again: false, bytes: all, event: core::ptr::null_mut(), around: Around::default() };
        at.write(head);
        let task = at.add(1).cast::<Task>();
        let behind = task.cast::<u8>().add(own);
        let shared = if shared > 0 { behind.cast() } else { core::ptr::null_mut() };
        task.write(Task { shared, routine, part: 0, destroy: None, data: 0 });
        task
    }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_omp_target_task_alloc(
    place: *const Ident,
    thread: c_int,
    flags: c_int,
    bytes: usize,
    shared: usize,
    routine: unsafe extern "C" fn(c_int, *mut Task) -> c_int,
    _: i64,
) -> *mut Task {
    // SAFETY: as that.
    unsafe { __kmpc_omp_task_alloc(place, thread, flags, bytes, shared, routine) }
}

/// # Safety
/// `task` has been carried out.
unsafe fn finish(task: *mut Task) {
    // SAFETY: from `__kmpc_omp_task_alloc`.
    unsafe {
        destroy(task);
        unscratch(head(task).cast());
    }
}

/// # Safety
/// As `finish`.
unsafe fn destroy(task: *mut Task) {
    // SAFETY: from `__kmpc_omp_task_alloc`.
    unsafe {
        if (*head(task)).flags & DESTROY != 0
            && let Some(destroy) = (*task).destroy
        {
            destroy(0, task);
        }
    }
}

/// Carries out the parts of a task: clang has an untied one end where another thread may go on with it, having told by [`__kmpc_omp_task`] that it is to be called again. The thread
/// that has begun it goes on with it at once.
///
/// # Safety
/// The compiler's task.
unsafe fn parts(thread: c_int, task: *mut Task) {
    // SAFETY: as the caller says
    unsafe {
        ((*task).routine)(thread, task);
        rest(thread, task);
    }
}

/// As [`parts`], of a task whose first part has been carried out.
///
/// # Safety
/// As that.
unsafe fn rest(thread: c_int, task: *mut Task) {
    // SAFETY: as the caller says
    unsafe {
        while core::mem::replace(&mut (*head(task)).again, false) {
            ((*task).routine)(thread, task);
        }
    }
}

/// Carries out a task that was offered. The thread that offered it gives its memory back.
unsafe extern "C" fn carry_out(_: usize, task: usize) {
    let task = task as *mut Task;
    // SAFETY: the compiler's task.
    unsafe {
        parts(team::global() as c_int, task);
        destroy(task);
    }
}

/// Offers a task, or carries it out.
///
/// # Safety
/// The compiler's task.
unsafe fn meet(thread: c_int, task: *mut Task, depends: Vec<Dependence>) {
    let frame = here();
    // SAFETY: as the caller says
    unsafe {
        let (is_final, is_detached) = ((*head(task)).flags & FINAL != 0, !(*head(task)).event.is_null());
        let met = || {
            let (data, block) = (task as usize, head(task).cast());
            Met { function: 0, data, run: carry_out, block, depends }
        };
        if offers::may(frame, is_final || is_detached) && offers::offer(frame, met()) {
            return;
        }
        tasks::run(is_final, || parts(thread, task));
        finish(task);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_omp_task(_: *const Ident, thread: c_int, task: *mut Task) -> c_int {
    // SAFETY: the compiler's task.
    unsafe {
        match (*task).part {
            0 => meet(thread, task, Vec::new()),
            _ => (*head(task)).again = true,
        }
    }
    0
}
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_omp_task_parts(place: *const Ident, thread: c_int, task: *mut Task) -> c_int {
    // SAFETY: as that.
    unsafe { __kmpc_omp_task(place, thread, task) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_omp_task_with_deps(
    place: *const Ident,
    thread: c_int,
    task: *mut Task,
    count: c_int,
    depends: *const Depend,
    _: c_int,
    _: *const c_void,
) -> c_int {
    let frame = here();
    // SAFETY: the compiler's array and task, which stays until it is carried out.
    unsafe {
        let depends = (0..count as usize).map(|i| &*depends.add(i));
        let depends = depends.map(|depend| (depend.address, depend.kind != Depend::IN)).collect::<Vec<_>>();
        offers::wait_for_those(frame, &depends);
        if frame.detached.load() == 0 {
            tasks::wait_for_detached();
            meet(thread, task, depends);
        } else {
            tasks::depending(depends, (*head(task)).event, move || {
                __kmpc_omp_task(place, thread, task);
            });
        }
    }
    0
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_omp_wait_deps(
    _: *const Ident,
    _: c_int,
    _: c_int,
    _: *const c_void,
    _: c_int,
    _: *const c_void,
) {
    tasks::wait();
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_omp_taskwait_deps_51(
    _: *const Ident,
    _: c_int,
    _: c_int,
    _: *const c_void,
    _: c_int,
    _: *const c_void,
    _: c_int,
) {
    tasks::wait();
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_omp_reg_task_with_affinity(
    _: *const Ident,
    _: c_int,
    _: *mut Task,
    _: c_int,
    _: *const c_void,
) -> c_int {
    0
}
/// The caller carries the task out.
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_omp_task_begin_if0(_: *const Ident, _: c_int, task: *mut Task) {
    // SAFETY: the compiler's task.
    unsafe {
        let head = head(task);
        (*head).around = tasks::begin(here(), (*head).flags & FINAL != 0);
    }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_omp_task_complete_if0(_: *const Ident, thread: c_int, task: *mut Task) {
    // SAFETY: the compiler's task.
    unsafe {
        rest(thread, task);
        tasks::end(here(), (*head(task)).around);
        finish(task);
    }
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_omp_taskwait(_: *const Ident, _: c_int) -> c_int {
    tasks::wait();
    0
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_omp_taskyield(_: *const Ident, _: c_int, _: c_int) -> c_int {
    0
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_taskgroup(_: *const Ident, _: c_int) {
    tasks::begin_group();
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_end_taskgroup(_: *const Ident, _: c_int) {
    tasks::end_group();
}
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_task_allow_completion_event(
    _: *const Ident,
    _: c_int,
    task: *mut Task,
) -> *mut Event {
    // SAFETY: the compiler's task.
    let event = unsafe { &mut (*head(task)).event };
    if event.is_null() {
        *event = tasks::event();
    }
    tasks::handle(*event)
}

/// `task` with other iterations, of which `last` says whether they are the last.
type Copy = unsafe extern "C" fn(copy: *mut Task, task: *mut Task, last: c_int);

#[allow(clippy::too_many_arguments, reason = "the compiler's")]
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_taskloop_5(
    place: *const Ident,
    thread: c_int,
    task: *mut Task,
    _: c_int,
    low: *mut u64,
    high: *mut u64,
    step: i64,
    no_group: c_int,
    sizes: c_int,
    size: u64,
    exact: c_int,
    copy: Option<Copy>,
) {
    if no_group == 0 {
        tasks::begin_group();
    }
    // SAFETY: the compiler's task; bounds are in it.
    unsafe {
        let (begin, end) = (*low, *high);
        // compilers number iterations from 0 by 1; of none, the last is before the first
        let total = match step {
            1 => end.wrapping_sub(begin).wrapping_add(1),
            ..=0 => begin.wrapping_sub(end) / step.unsigned_abs().max(1) + 1,
            _ => end.wrapping_sub(begin) / step as u64 + 1,
        };
        let (low_at, high_at) = (low as usize - task as usize, high as usize - task as usize);
        let bytes = (*head(task)).bytes;
        let (least, count) = (if sizes == 1 { size } else { 0 }, if sizes == 2 { size } else { 0 });
        tasks::share(total, least, count, exact != 0, |first, iterations| {
            let own = scratch(size_of::<Head>() + bytes).cast::<Head>();
            own.write(Head {
                around: Around::default(),
                event: core::ptr::null_mut(),
                ..core::ptr::read(head(task))
            });
            let own = own.add(1).cast::<Task>();
            core::ptr::copy_nonoverlapping(task.cast::<u8>(), own.cast(), bytes);
            if !(*task).shared.is_null() {
                (*own).shared = own.cast::<u8>().add((*task).shared as usize - task as usize).cast();
            }
            let at = |number: u64| begin.wrapping_add(number.wrapping_mul(step as u64));
            own.cast::<u8>().add(low_at).cast::<u64>().write(at(first));
            own.cast::<u8>().add(high_at).cast::<u64>().write(at(first + iterations - 1));
            if let Some(copy) = copy {
                copy(own, task, c_int::from(first + iterations == total));
            }
            __kmpc_omp_task(place, thread, own);
        });
        finish(task);
    }
    if no_group == 0 {
        tasks::end_group();
    }
}
#[allow(clippy::too_many_arguments, reason = "the compiler's")]
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_taskloop(
    place: *const Ident,
    thread: c_int,
    task: *mut Task,
    condition: c_int,
    low: *mut u64,
    high: *mut u64,
    step: i64,
    no_group: c_int,
    sizes: c_int,
    size: u64,
    copy: Option<Copy>,
) {
    // SAFETY: as that.
    unsafe {
        __kmpc_taskloop_5(place, thread, task, condition, low, high, step, no_group, sizes, size, 0, copy)
    };
}

// --- reductions -----------------------------------------------------------------------------------

/// # Safety
/// `count` descriptions are at `data`.
unsafe fn descriptions(count: c_int, data: *const Reduction) -> *const Group {
    // SAFETY: as the caller says.
    let data = unsafe { core::slice::from_raw_parts(data, count.max(0) as usize) };
    tasks::reductions(data.iter().copied())
}
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_taskred_init(_: c_int, count: c_int, data: *const Reduction) -> *const Group {
    // SAFETY: the compiler's descriptions.
    unsafe { descriptions(count, data) }
}
/// A description of older compilers, without the original.
#[derive(Clone, Copy)]
#[repr(C)]
struct Older {
    shared: *mut c_void,
    bytes: usize,
    init: Option<unsafe extern "C" fn(*mut c_void)>,
    fini: Option<unsafe extern "C" fn(*mut c_void)>,
    combine: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    flags: u32,
}
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_task_reduction_init(_: c_int, count: c_int, data: *const Older) -> *const Group {
    // SAFETY: the compiler's descriptions. A function of one argument may be given two.
    unsafe {
        let data = core::slice::from_raw_parts(data, count.max(0) as usize);
        tasks::reductions(data.iter().map(|old| Reduction {
            shared: old.shared,
            original: core::ptr::null_mut(),
            bytes: old.bytes,
            init: core::mem::transmute::<
                Option<unsafe extern "C" fn(*mut c_void)>,
                Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
            >(old.init),
            fini: old.fini,
            combine: old.combine,
            flags: old.flags,
        }))
    }
}
/// Each thread of the team carries out its tasks itself, into its own copy of the region's or the loop's reduction.
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_taskred_modifier_init(
    _: *const Ident,
    _: c_int,
    _: c_int,
    count: c_int,
    data: *const Reduction,
) -> *const Group {
    tasks::begin_group();
    // SAFETY: the compiler's descriptions.
    unsafe { descriptions(count, data) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_task_reduction_modifier_init(
    _: *const Ident,
    thread: c_int,
    _: c_int,
    count: c_int,
    data: *const Older,
) -> *const Group {
    tasks::begin_group();
    // SAFETY: the compiler's descriptions.
    unsafe { __kmpc_task_reduction_init(thread, count, data) }
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_task_reduction_modifier_fini(_: *const Ident, _: c_int, _: c_int) {
    tasks::end_group();
}
#[unsafe(no_mangle)]
unsafe extern "C" fn __kmpc_task_reduction_get_th_data(
    _: c_int,
    group: *const Group,
    data: *mut c_void,
) -> *mut c_void {
    // SAFETY: the compiler's arguments.
    unsafe { tasks::copy_of(group, data) }
}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_proxy_task_completed(_: c_int, _: *mut Task) {}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_proxy_task_completed_ooo(_: *mut Task) {}
#[unsafe(no_mangle)]
extern "C" fn __kmpc_omp_has_task_team(_: c_int) -> c_int {
    0
}
