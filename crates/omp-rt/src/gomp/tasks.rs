//! Tasks, task groups, task loops, and GCC's way of reducing in tasks.
//!
//! That way: the compiler describes the variables in an array of words, of which each thread has a part of memory of its own, where its tasks' copies are. Words:
//! 0 how many variables, 1 bytes of a thread's part, 2 alignment wanted, then where the memory is, 4 the description that was in force before,
//! 5 for us, 6 where the memory ends; from 7 on three for each variable: its address, where its copy is in a part, one for us.

use core::ffi::{c_int, c_long, c_uint, c_ulong, c_void};

use crate::team::offers::{self, Met};
use crate::team::tasks::{self, Dependence, begin_group, end_group, run};
use crate::team::{self, Frame, here, work};
use crate::thread::{scratch, unscratch};
use crate::{run, sys};

const FINAL: c_uint = 1 << 1;
const DEPEND: c_uint = 1 << 3;
const GRAIN: c_uint = 1 << 9;
const IF: c_uint = 1 << 10;
const NO_GROUP: c_uint = 1 << 11;
const REDUCTION: c_uint = 1 << 12;
const DETACH: c_uint = 1 << 13;
const STRICT: c_uint = 1 << 14;

type Body = extern "C" fn(*mut c_void);
type Copy = extern "C" fn(*mut c_void, *mut c_void);

/// Gives `body` a copy of `data`.
///
/// # Safety
/// The compiler's arguments.
unsafe fn with_copy(
    data: *mut c_void,
    copy: Option<Copy>,
    bytes: c_long,
    align: c_long,
    body: impl FnOnce(*mut c_void),
) {
    // SAFETY: as the caller says; it is given back.
    unsafe {
        let (at, own) = copied(data, copy, bytes, align);
        body(own);
        unscratch(at);
    }
}

/// A copy of `data`: what is to be given back, and where it is.
///
/// # Safety
/// The compiler's arguments.
unsafe fn copied(
    data: *mut c_void,
    copy: Option<Copy>,
    bytes: c_long,
    align: c_long,
) -> (*mut u8, *mut c_void) {
    let align = (align.max(1) as usize).next_power_of_two();
    let at = scratch(bytes.max(0) as usize + align);
    let own = (at as usize).next_multiple_of(align) as *mut c_void;
    // SAFETY: as the caller says; there is room.
    unsafe {
        match copy {
            Some(copy) => copy(own, data),
            None => core::ptr::copy_nonoverlapping(data.cast::<u8>(), own.cast(), bytes.max(0) as usize),
        }
    }
    (at, own)
}

/// Carries out a task that was offered.
unsafe extern "C" fn carry_out(function: usize, data: usize) {
    // SAFETY: the compiler's function, and what was copied for it
    let body = unsafe { core::mem::transmute::<usize, Body>(function) };
    body(data as *mut c_void);
}

#[allow(clippy::too_many_arguments, reason = "the compiler's")]
#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_task(
    body: Body,
    data: *mut c_void,
    copy: Option<Copy>,
    bytes: c_long,
    align: c_long,
    deferred: bool,
    flags: c_uint,
    depend: *const usize,
    _: c_int,
    event: *mut c_void,
) {
    let frame = here();
    // SAFETY: the compiler's arguments; a detached task finds its event first in its data.
    unsafe {
        let mut new = core::ptr::null_mut();
        if flags & DETACH != 0 {
            new = tasks::event();
            event.cast::<*mut tasks::Event>().write(tasks::handle(new));
            if !data.is_null() {
                data.cast::<*mut tasks::Event>().write(tasks::handle(new));
            }
        }
        let is_final = flags & FINAL != 0;
        let depends = if flags & DEPEND == 0 { Vec::new() } else { dependences(depend) };
        offers::wait_for_those(frame, &depends);
        if flags & DEPEND != 0 && deferred && frame.detached.load() > 0 {
            let (at, own) = copied(data, copy, bytes, align);
            tasks::depending(depends, new, move || {
                run(is_final, || body(own));
                unscratch(at);
            });
            return;
        }
        if flags & DEPEND != 0 {
            tasks::wait_for_detached();
        }
        if offers::may(frame, is_final || !deferred || flags & DETACH != 0) {
            let (at, own) = copied(data, copy, bytes, align);
            offer(frame, body, own, at, depends);
        } else {
            run(is_final, || match copy {
                Some(_) => with_copy(data, copy, bytes, align, |own| body(own)),
                None => body(data),
            });
        }
    }
}

/// Offers a task with a copy of its data, which is in `block`, or carries it out.
///
/// # Safety
/// The compiler's function, and its data.
unsafe fn offer(frame: &Frame, body: Body, own: *mut c_void, block: *mut u8, depends: Vec<Dependence>) {
    let met =
        Met { function: body as *const () as usize, data: own as usize, run: carry_out, block, depends };
    if !offers::offer(frame, met) {
        run(false, || body(own));
        // SAFETY: this thread's, and nobody uses it any more
        unsafe { unscratch(block) };
    }
}

/// # Safety
/// GCC's description: how many, how many of them are written, their addresses, those written first. Or a zero, how many, how many of three kinds that write,
/// how many that read, and then addresses, at last of descriptions of one each.
unsafe fn dependences(depend: *const usize) -> Vec<Dependence> {
    const IN: usize = 1;
    // SAFETY: as the caller says.
    unsafe {
        let at = |i: usize| *depend.add(i);
        if at(0) > 0 {
            return (0..at(0)).map(|i| (at(2 + i), i < at(1))).collect();
        }
        let (count, written, read) = (at(1), at(2) + at(3), at(4));
        let plain = (0..written + read).map(|i| (at(5 + i), i < written));
        let described = (written + read..count).map(|i| {
            let object = at(5 + i) as *const usize;
            (*object, *object.add(1) != IN)
        });
        plain.chain(described).collect()
    }
}

macro_rules! taskloop {
    ($name:ident, $t:ty, $up:expr) => {
        #[allow(clippy::too_many_arguments, reason = "the compiler's")]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            body: Body,
            data: *mut c_void,
            copy: Option<Copy>,
            bytes: c_long,
            align: c_long,
            flags: c_uint,
            tasks: c_ulong,
            _: c_int,
            begin: $t,
            end: $t,
            step: $t,
        ) {
            let up: bool = $up(flags, step);
            let (span, stride) = if up {
                (if begin < end { end.wrapping_sub(begin) } else { 0 }, step)
            } else {
                (if begin > end { begin.wrapping_sub(end) } else { 0 }, (0 as $t).wrapping_sub(step))
            };
            let total = (span as u64).div_ceil((stride as u64).max(1));
            if flags & NO_GROUP == 0 {
                begin_group();
            }
            // SAFETY: the compiler's arguments; data begins with the bounds, then the description of reductions.
            unsafe {
                if flags & REDUCTION != 0 {
                    GOMP_taskgroup_reduction_register(*data.cast::<*mut usize>().add(2));
                }
                let (least, count) = if flags & GRAIN != 0 { (tasks, 0) } else { (0, tasks) };
                crate::team::tasks::share(total, least, count, flags & STRICT != 0, |first, iterations| {
                    let at = |number: u64| begin.wrapping_add((number as $t).wrapping_mul(step));
                    let last = first + iterations == total;
                    let bounds = [at(first), if last { end } else { at(first + iterations) }];
                    let (at, own) = copied(data, copy, bytes, align);
                    own.cast::<[$t; 2]>().write(bounds);
                    let (frame, is_final) = (here(), flags & FINAL != 0);
                    if offers::may(frame, is_final || flags & IF == 0) {
                        offer(frame, body, own, at, Vec::new());
                    } else {
                        run(is_final, || body(own));
                        unscratch(at);
                    }
                });
            }
            if flags & NO_GROUP == 0 {
                end_group();
            }
        }
    };
}
taskloop!(GOMP_taskloop, i64, |_, step: i64| step > 0);
taskloop!(GOMP_taskloop_ull, u64, |flags: c_uint, _| flags & (1 << 8) != 0);

#[unsafe(no_mangle)]
extern "C" fn GOMP_taskwait() {
    tasks::wait();
}
#[unsafe(no_mangle)]
extern "C" fn GOMP_taskwait_depend(_: *mut *mut c_void) {
    tasks::wait();
}
#[unsafe(no_mangle)]
extern "C" fn GOMP_taskwait_depend_nowait(_: *mut *mut c_void) {
    tasks::wait();
}
#[unsafe(no_mangle)]
extern "C" fn GOMP_taskyield() {}
#[unsafe(no_mangle)]
extern "C" fn GOMP_taskgroup_start() {
    begin_group();
}
#[unsafe(no_mangle)]
extern "C" fn GOMP_taskgroup_end() {
    end_group();
}

// --- reductions -----------------------------------------------------------------------------------

const PART: usize = 1;
const MEMORY: usize = 2;
const BEFORE: usize = 4;
const OWN: usize = 5;
const MEMORY_END: usize = 6;

/// Refuses where a region's threads' parts would be on several ranks.
pub fn within_rank(threads: usize) {
    if threads > 1 && threads >= run::size() && run::size() > 1 {
        sys::stop(
            "parallel reduction(task, ...) built by gcc",
            "it keeps the threads' parts in memory of one process; build with clang, or run with -n 1",
        );
    }
}

/// Gives `threads` their parts.
///
/// # Safety
/// A description.
pub unsafe fn room(description: *mut usize, threads: usize) {
    // SAFETY: as the caller says.
    unsafe {
        let bytes = *description.add(PART) * threads;
        let at = sys::map(bytes.max(1)) as usize;
        *description.add(MEMORY) = at;
        *description.add(MEMORY_END) = at + bytes;
        *description.add(BEFORE) = 0;
        *description.add(OWN) = 1;
    }
}

/// # Safety
/// A description with memory.
unsafe fn enforce(description: *mut usize) {
    let frame = here();
    // SAFETY: as the caller says.
    unsafe { *description.add(BEFORE) = frame.reductions.replace(description) as usize };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_taskgroup_reduction_register(description: *mut usize) {
    // SAFETY: the compiler's description.
    unsafe {
        room(description, here().threads.get());
        enforce(description);
    }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_taskgroup_reduction_unregister(description: *mut usize) {
    // SAFETY: the compiler's description, with memory of `room`.
    unsafe {
        let (at, end) = (*description.add(MEMORY), *description.add(MEMORY_END));
        sys::unmap(at as *mut u8, (end - at).max(1));
    }
}

/// What the threads of a team share of the present loop: parts for `reductions`, and `*memory` bytes, whose place is put there.
///
/// # Safety
/// The compiler's arguments, either may be null.
pub unsafe fn share(reductions: *mut usize, memory: *mut *mut u8) {
    // SAFETY: as the caller says.
    unsafe {
        let frame = here();
        let bytes = if memory.is_null() { 0 } else { *memory as usize };
        let alone = frame.team.get().is_none();
        let parts =
            if reductions.is_null() || alone { 0 } else { *reductions.add(PART) * frame.threads.get() };
        let parts_room = parts.next_multiple_of(4096);
        if parts + bytes > 0 {
            let at = work::memory(parts_room + bytes);
            if !memory.is_null() {
                *memory = at.add(parts_room);
            }
            if parts > 0 {
                *reductions.add(MEMORY) = at as usize;
                *reductions.add(MEMORY_END) = at as usize + parts;
                *reductions.add(OWN) = 0;
            }
        }
        if !reductions.is_null() {
            begin_group();
            if alone {
                room(reductions, 1);
            }
            enforce(reductions);
        }
    }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_workshare_task_reduction_unregister(cancelled: bool) {
    let description = here().reductions.get();
    end_group();
    // SAFETY: the description in force, from `share`.
    unsafe {
        if *description.add(OWN) == 1 {
            GOMP_taskgroup_reduction_unregister(description);
        }
    }
    if !cancelled {
        team::barrier();
    }
}

/// Puts the calling thread's copies in place of what `pointers` lead to, and behind them the originals of the first `originals`.
#[unsafe(no_mangle)]
unsafe extern "C" fn GOMP_task_reduction_remap(count: usize, originals: usize, pointers: *mut usize) {
    let frame = here();
    let number = frame.tid.get();
    for at in 0..count {
        // SAFETY: the compiler's arrays; descriptions in force stay.
        unsafe {
            let address = *pointers.add(at);
            let mut description = frame.reductions.get();
            while !description.is_null() {
                let (part, memory, end) =
                    (*description.add(PART), *description.add(MEMORY), *description.add(MEMORY_END));
                let copied = (memory..end).contains(&address);
                let entries = (0..*description).map(|i| description.add(7 + 3 * i));
                let found = entries.map(|e| (*e, *e.add(1))).find(|(original, offset)| {
                    if copied { (address - memory) % part == *offset } else { *original == address }
                });
                if let Some((original, offset)) = found {
                    *pointers.add(at) = memory + number * part + offset;
                    if at < originals {
                        *pointers.add(count + at) = original;
                    }
                    break;
                }
                if copied {
                    *pointers.add(at) = memory + number * part + (address - memory) % part;
                    break;
                }
                description = *description.add(BEFORE) as *mut usize;
            }
        }
    }
}
