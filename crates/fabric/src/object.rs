//! What all objects that C holds have in common.
//!
//! An object is a box that begins with libfabric's struct; C has its address, and gives it back in `close`. What several objects
//! share is in their domain, under its lock; the object itself holds only what never changes, so that `&` of it is enough.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_void};
use std::ops::{Index, IndexMut};
use std::ptr;

use crate::ffi::{FI_ENOSYS, fi_ops, fid};

/// libfabric's struct, then ours. C writes to its own (a context, say), never at the same time as we read.
#[repr(C)]
pub struct Object<F, T> {
    head: UnsafeCell<F>,
    ours: T,
}

impl<F, T> Object<F, T> {
    /// Gives the object to C.
    pub fn give(head: F, ours: T) -> *mut F {
        Box::into_raw(Box::new(Self { head: UnsafeCell::new(head), ours })).cast()
    }

    /// Ours of the object that C has at `head`.
    ///
    /// # Safety
    /// `head` came from [`Object::give`] of the same types (perhaps as the `fid` that it begins with), and is not closed before
    /// `'a` ends.
    #[inline]
    pub unsafe fn ours<'a, P>(head: *const P) -> &'a T {
        // SAFETY: by the caller's promise.
        unsafe { &(*head.cast::<Self>()).ours }
    }

    /// Takes the object back from C.
    ///
    /// # Safety
    /// As for [`Object::ours`], and nobody uses it any more.
    pub unsafe fn take<P>(head: *mut P) -> T {
        // SAFETY: by the caller's promise.
        unsafe { Box::from_raw(head.cast::<Self>()) }.ours
    }
}

/// Things by number. A number is free again once its thing is removed.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub fn insert(&mut self, thing: T) -> usize {
        match self.free.pop() {
            Some(at) => {
                self.slots[at] = Some(thing);
                at
            }
            None => {
                self.slots.push(Some(thing));
                self.slots.len() - 1
            }
        }
    }

    pub fn remove(&mut self, at: usize) -> Option<T> {
        let thing = self.slots.get_mut(at)?.take();
        self.free.extend(thing.is_some().then_some(at));
        thing
    }

    pub fn get(&self, at: usize) -> Option<&T> {
        self.slots.get(at)?.as_ref()
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The numbers in use.
    pub fn keys(&self) -> impl Iterator<Item = usize> + '_ {
        self.slots.iter().enumerate().filter_map(|(at, slot)| slot.as_ref().map(|_| at))
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().flatten()
    }
}

/// For numbers that an open object holds: its thing is there until the object is closed.
impl<T> Index<usize> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, at: usize) -> &T {
        self.slots[at].as_ref().expect("it is in use")
    }
}

impl<T> IndexMut<usize> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut T {
        self.slots[at].as_mut().expect("it is in use")
    }
}

/// The `fid` at the beginning of a new object.
pub fn head(class: usize, context: *mut c_void, ops: &'static fi_ops) -> fid {
    fid { fclass: class, context, ops: ptr::from_ref(ops) }
}

/// Writes `bytes` to `at`, at most `room` of them, and how many there are to `len`.
///
/// # Safety
/// `at` is writable for `room` bytes.
pub unsafe fn copy_out(bytes: &[u8], at: *mut u8, room: usize) {
    if !at.is_null() {
        // SAFETY: by the caller's promise.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len().min(room)) };
    }
}

/// `fi_ops::bind` of what binds nothing.
pub unsafe extern "C" fn no_bind(_: *mut fid, _: *mut fid, _: u64) -> c_int {
    -FI_ENOSYS
}

/// `fi_ops::control` of what has no commands.
pub unsafe extern "C" fn no_control(_: *mut fid, _: c_int, _: *mut c_void) -> c_int {
    -FI_ENOSYS
}

/// `fi_ops::ops_open`: there are no provider-specific operations.
pub unsafe extern "C" fn no_ops(
    _: *mut fid,
    _: *const c_char,
    _: u64,
    _: *mut *mut c_void,
    _: *mut c_void,
) -> c_int {
    -FI_ENOSYS
}

/// Object operations with these three of their own.
pub const fn ops(
    close: unsafe extern "C" fn(*mut fid) -> c_int,
    bind: unsafe extern "C" fn(*mut fid, *mut fid, u64) -> c_int,
    control: unsafe extern "C" fn(*mut fid, c_int, *mut c_void) -> c_int,
) -> fi_ops {
    fi_ops { size: size_of::<fi_ops>(), close, bind, control, ops_open: no_ops, tostr: None, ops_set: None }
}
