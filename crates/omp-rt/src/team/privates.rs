//! `threadprivate` of compilers that do without thread-local storage: copies by thread, found by the original's address.

use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, Ordering::*};

use super::frame::own;
use super::sync::Mutex;
use crate::sys;
use crate::thread::is_main;

/// A thread's copy of a variable.
pub struct Copy {
    original: usize,
    copy: *mut c_void,
    next: *mut Self,
}

/// Makes an object.
pub type Constructor = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

/// A variable: what it began as.
struct Variable {
    original: usize,
    constructor: Option<Constructor>,
    image: *mut c_void,
    next: *mut Self,
}

static VARIABLES: AtomicPtr<Variable> = AtomicPtr::new(core::ptr::null_mut());
static CHANGES: Mutex = Mutex::new();
static ROOM: Mutex = Mutex::new();

/// Memory that is never given back.
fn keep(bytes: usize) -> *mut c_void {
    use core::sync::atomic::AtomicUsize;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    static END: AtomicUsize = AtomicUsize::new(0);
    let bytes = bytes.next_multiple_of(64);
    ROOM.lock();
    if NEXT.load(Relaxed) + bytes > END.load(Relaxed) {
        let room = bytes.next_multiple_of(1 << 20);
        let at = sys::map(room) as usize;
        NEXT.store(at, Relaxed);
        END.store(at + room, Relaxed);
    }
    let at = NEXT.fetch_add(bytes, Relaxed);
    ROOM.unlock();
    at as *mut c_void
}

/// Keeps `value` for ever.
pub fn keep_value<T>(value: T) -> *mut T {
    let at = keep(size_of::<T>()).cast::<T>();
    // SAFETY: new memory, 64 bytes aligned.
    unsafe { at.write(value) };
    at
}

fn variable(original: *mut c_void, bytes: Option<usize>, constructor: Option<Constructor>) -> *mut Variable {
    CHANGES.lock();
    let mut at = VARIABLES.load(Acquire);
    // SAFETY: variables stay.
    while let Some(v) = unsafe { at.as_mut() } {
        if v.original == original as usize {
            break;
        }
        at = v.next;
    }
    if at.is_null() {
        let next = VARIABLES.load(Acquire);
        at = keep_value(Variable {
            original: original as usize,
            constructor,
            image: core::ptr::null_mut(),
            next,
        });
        VARIABLES.store(at, Release);
    }
    // SAFETY: under the mutex; the original has so many bytes.
    unsafe {
        if let (Some(bytes), true) = (bytes, (*at).image.is_null()) {
            (*at).image = keep(bytes);
            core::ptr::copy_nonoverlapping(original.cast::<u8>(), (*at).image.cast(), bytes);
        }
    }
    CHANGES.unlock();
    at
}

/// Whether there are any.
pub fn are_any() -> bool {
    !VARIABLES.load(Acquire).is_null()
}

/// Says how copies of `original` are made.
pub fn register(original: *mut c_void, constructor: Option<Constructor>) {
    variable(original, None, constructor);
}

/// The calling thread's copy of the variable of `bytes` at `original`; the main thread's is the original.
///
/// # Safety
/// The variable is there.
pub unsafe fn copy(original: *mut c_void, bytes: usize) -> *mut c_void {
    let variable = variable(original, Some(bytes), None);
    if is_main() {
        return original;
    }
    let own = own();
    let mut at = own.privates.get();
    // SAFETY: copies stay, and are this thread's alone.
    while let Some(copy) = unsafe { at.as_ref() } {
        if copy.original == original as usize {
            return copy.copy;
        }
        at = copy.next;
    }
    let copy = keep(bytes);
    // SAFETY: new memory of that size; the constructor is the compiler's.
    unsafe {
        match (*variable).constructor {
            Some(construct) => {
                construct(copy);
            }
            None => core::ptr::copy_nonoverlapping((*variable).image.cast::<u8>(), copy.cast(), bytes),
        }
    }
    own.privates.set(keep_value(Copy { original: original as usize, copy, next: own.privates.get() }));
    copy
}
