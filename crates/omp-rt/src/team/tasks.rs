//! Tasks. The thread that meets a task carries it out at once, which OpenMP leaves free, unless others have nothing to do (`offers`): so dependences hold by themselves, but on what was offered.
//! Of those that are carried out at once only a detached task may still be unfinished when its body is through; then tasks that depend on it are put off. A program that has these offers none.

use core::cell::Cell;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering::*};

use super::frame::{Frame, here};
use super::offers;
use super::sync::Word;
use crate::thread::{scratch, unscratch};
use crate::{run, sys};

/// A task group.
pub struct Group {
    /// Its number, if any of its tasks was offered; 0: not yet, or all tasks of the region.
    pub number: Cell<u64>,
    elsewhere: bool,
    around: *const Group,
    items: Cell<*mut Item>,
    count: Cell<usize>,
    /// What [`Frame::reductions`] was before.
    reductions: *mut usize,
}

/// A variable that tasks of a group reduce (clang's).
struct Item {
    shared: *mut c_void,
    copy: *mut c_void,
    used: bool,
    spec: Reduction,
}

/// How clang describes such a variable.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Reduction {
    /// What is reduced into.
    pub shared: *mut c_void,
    /// What the program named.
    pub original: *mut c_void,
    /// Bytes.
    pub bytes: usize,
    /// Makes a copy what it begins as, given the original; null: zeroes.
    pub init: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    /// Destroys a copy.
    pub fini: Option<unsafe extern "C" fn(*mut c_void)>,
    /// Adds the second to the first.
    pub combine: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    /// Nothing of interest.
    pub flags: u32,
}

impl Group {
    /// On another thread than it was begun by.
    pub fn elsewhere(number: u64) -> Self {
        Self {
            number: Cell::new(number),
            elsewhere: true,
            around: core::ptr::null(),
            items: Cell::new(core::ptr::null_mut()),
            count: Cell::new(0),
            reductions: core::ptr::null_mut(),
        }
    }

    /// Whether another thread has begun it, or it is the region.
    pub fn is_elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// Whether it, or one around it, reduces.
    pub fn reduces(&self) -> bool {
        // SAFETY: groups around stay longer
        self.count.get() > 0 || unsafe { self.around.as_ref() }.is_some_and(Self::reduces)
    }
}

/// Carries out a task's body.
pub fn run(is_final: bool, body: impl FnOnce()) {
    let frame = here();
    let before = begin(frame, is_final);
    // SAFETY: this thread's own.
    let icvs = unsafe { *frame.icvs() };
    body();
    // SAFETY: as above.
    unsafe { *frame.icvs() = icvs };
    end(frame, before);
}

/// What is to be put back at a task's end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Around {
    task: (bool, bool),
    family: u64,
}

/// A task's body begins; gives what is to be put back at its end.
pub fn begin(frame: &Frame, is_final: bool) -> Around {
    let task = frame.task.get();
    frame.task.set((true, task.1 || is_final));
    Around { task, family: frame.offers.family.replace(0) }
}

/// It ends.
pub fn end(frame: &Frame, around: Around) {
    frame.task.set(around.task);
    frame.offers.family.set(around.family);
}

/// Waits for tasks that the present one has begun: `taskwait`.
pub fn wait() {
    wait_for_detached();
    offers::wait_for_children(here());
}

/// As well for those of the whole team, at a barrier.
pub fn arrive() {
    wait_for_detached();
    offers::arrive(here());
}

/// Waits for detached tasks of the calling thread's region, and carries out what was put off until then.
pub fn wait_for_detached() {
    let frame = here();
    loop {
        let left = frame.detached.load();
        match next_put_off(frame) {
            Some(body) => body(),
            None if left == 0 => return,
            None => frame.detached.until_not(left),
        }
    }
}

/// What `omp_fulfill_event` is given.
pub struct Event {
    waiting: *const Word,
    happened: AtomicBool,
}

/// An event that a task of the calling thread's region waits for.
pub fn event() -> *mut Event {
    let frame = here();
    frame.detached.add(1);
    super::privates::keep_value(Event { waiting: &frame.detached, happened: AtomicBool::new(false) })
}

/// Above an event's address, in what a program is given: the rank.
const RANK: u32 = 48;

/// `event` as the program gets it.
pub fn handle(event: *mut Event) -> *mut Event {
    event.map_addr(|at| at | run::rank() << RANK)
}

/// A variable that a task depends on, and whether it writes it.
pub type Dependence = (usize, bool);

/// A task that others may have to wait for.
pub struct Unfinished {
    depends: Vec<Dependence>,
    /// What it completes by, besides its body.
    event: *const Event,
    /// Not carried out yet.
    body: Option<Box<dyn FnOnce()>>,
}

impl Unfinished {
    fn is_over(&self) -> bool {
        // SAFETY: events stay
        self.body.is_none() && unsafe { self.event.as_ref() }.is_none_or(|event| event.happened.load(Acquire))
    }
    /// Whether a task with these dependences comes behind it.
    fn precedes(&self, depends: &[Dependence]) -> bool {
        depend(&self.depends, depends)
    }
}

/// Whether a task with the second dependences comes behind one with the first.
pub fn depend(first: &[Dependence], second: &[Dependence]) -> bool {
    first.iter().any(|one| second.iter().any(|other| one.0 == other.0 && (one.1 || other.1)))
}

/// Carries out a task that depends on others: now or, if these are not over, when [`wait_for_detached`] finds that they are. `event`: what it completes by, or null.
///
/// # Safety
/// The body can be carried out until the region's next [`wait_for_detached`].
pub unsafe fn depending(depends: Vec<Dependence>, event: *const Event, body: impl FnOnce()) {
    // SAFETY: this thread's own
    let list = unsafe { &mut *here().unfinished.get() };
    list.retain(|task| !task.is_over());
    if !list.iter().any(|task| task.precedes(&depends)) {
        if !event.is_null() {
            list.push(Unfinished { depends, event, body: None });
        }
        return body();
    }
    let body: Box<dyn FnOnce() + '_> = Box::new(body);
    // SAFETY: it is called while what it refers to is there, says the caller
    let body = unsafe { core::mem::transmute::<Box<dyn FnOnce() + '_>, Box<dyn FnOnce()>>(body) };
    list.push(Unfinished { depends, event, body: Some(body) });
}

/// The first task that was put off and can be carried out.
fn next_put_off(frame: &Frame) -> Option<Box<dyn FnOnce()>> {
    // SAFETY: this thread's own
    let list = unsafe { &mut *frame.unfinished.get() };
    list.retain(|task| !task.is_over());
    if list.is_empty() {
        **list = Vec::new();
    }
    let free = |at: &usize| {
        list[*at].body.is_some() && !list[..*at].iter().any(|before| before.precedes(&list[*at].depends))
    };
    let at = (0..list.len()).find(free)?;
    list[at].body.take()
}

/// The event has happened.
///
/// # Safety
/// It is from [`handle`], and has not happened before.
pub unsafe fn fulfill(event: *mut Event) {
    if event.addr() >> RANK != run::rank() {
        sys::stop(
            "omp_fulfill_event",
            "the detached task is another rank's; fulfill it in the thread that met it, or run with -n 1",
        );
    }
    let event = event.map_addr(|at| at & ((1 << RANK) - 1));
    // SAFETY: regions wait for their events before they end.
    let waiting = unsafe { &*(*event).waiting };
    // SAFETY: events stay.
    unsafe { (*event).happened.store(true, Release) };
    waiting.add(u32::MAX);
}

// --- groups ---------------------------------------------------------------------------------------

/// A group begins.
pub fn begin_group() {
    let frame = here();
    let group = scratch(size_of::<Group>()).cast::<Group>();
    let value = Group {
        number: Cell::new(0),
        elsewhere: false,
        around: frame.groups.get(),
        items: Cell::new(core::ptr::null_mut()),
        count: Cell::new(0),
        reductions: frame.reductions.get(),
    };
    // SAFETY: new memory.
    unsafe { group.write(value) };
    frame.groups.set(group);
}

/// The innermost group ends: reductions are combined.
pub fn end_group() {
    wait_for_detached();
    let frame = here();
    offers::wait_for_group(frame);
    // SAFETY: the group is this thread's, from `begin_group`; so are the items.
    unsafe {
        let Some(group) = frame.groups.get().as_ref() else { return };
        frame.groups.set(group.around);
        frame.reductions.set(group.reductions);
        for at in (0..group.count.get()).rev() {
            let item = &*group.items.get().add(at);
            if item.used {
                if let Some(combine) = item.spec.combine {
                    combine(item.shared, item.copy);
                }
                if let Some(fini) = item.spec.fini {
                    fini(item.copy);
                }
            }
            unscratch(item.copy.cast());
        }
        if !group.items.get().is_null() {
            unscratch(group.items.get().cast());
        }
        unscratch(core::ptr::from_ref(group).cast_mut().cast());
    }
}

/// The innermost group's tasks reduce these; what tells the group.
pub fn reductions(specs: impl ExactSizeIterator<Item = Reduction>) -> *const Group {
    let frame = here();
    // SAFETY: as in `end_group`.
    let Some(group) = (unsafe { frame.groups.get().as_ref() }) else { return core::ptr::null() };
    let count = specs.len();
    let items = scratch(count * size_of::<Item>()).cast::<Item>();
    for (at, spec) in specs.enumerate() {
        let copy = scratch(spec.bytes + 64).cast();
        // SAFETY: within the memory just had.
        unsafe { items.add(at).write(Item { shared: spec.shared, copy, used: false, spec }) };
    }
    group.items.set(items);
    group.count.set(count);
    group
}

/// The copy that tasks work on of the variable at `data`, in `group` or (null) the innermost that has it.
///
/// # Safety
/// The compiler's arguments.
pub unsafe fn copy_of(group: *const Group, data: *mut c_void) -> *mut c_void {
    let mut at = if group.is_null() { here().groups.get() } else { group };
    // SAFETY: groups around stay longer; the functions are the compiler's.
    unsafe {
        while let Some(group) = at.as_ref() {
            for i in 0..group.count.get() {
                let item = &mut *group.items.get().add(i);
                if [item.shared, item.copy, item.spec.original].contains(&data) {
                    if !core::mem::replace(&mut item.used, true) {
                        match item.spec.init {
                            Some(init) => {
                                let original = item.spec.original;
                                init(item.copy, if original.is_null() { item.shared } else { original });
                            }
                            None => core::ptr::write_bytes(item.copy.cast::<u8>(), 0, item.spec.bytes),
                        }
                    }
                    return item.copy;
                }
            }
            at = group.around;
        }
    }
    data
}

/// Shares out `total` iterations in tasks: calls `task` with each one's first iteration and how many. `size`: iterations of a task at least; `tasks`: how many of them
/// (0: not said, both); `exact`: as many iterations as `size` says.
pub fn share(total: u64, size: u64, tasks: u64, exact: bool, mut task: impl FnMut(u64, u64)) {
    if size > 0 && exact {
        let mut first = 0;
        while first < total {
            task(first, size.min(total - first));
            first += size;
        }
        return;
    }
    let count = match (size, tasks) {
        (0, 0) => (here().threads.get() as u64).min(total),
        (0, tasks) => tasks.min(total),
        (size, _) => (total / size).max(1),
    };
    for number in 0..count {
        let (first, iterations) = super::work::block(total, number, count);
        task(first, iterations);
    }
}
