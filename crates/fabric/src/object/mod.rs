//! The objects that C holds: the C side of what is in [`crate::state`], and what all of them have in common.
//!
//! An object is a box that begins with libfabric's struct; C has its address, and gives it back in `close`. What several objects
//! share is in their domain, under its lock; the object itself holds only what never changes, so that `&` of it is enough.

mod av;
mod cntr;
mod cq;
mod domain;
mod endpoint;
mod eq;
pub mod fabric;
mod mr;
mod wait;

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int, c_void};
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
