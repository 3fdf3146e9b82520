//! The event queue object.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use super::fabric::Fabric;
use super::{Object, head, wait};
use crate::ffi::*;
use crate::registry::Child;
use crate::state::eq::Eq;
use crate::wait::{Awaited, Deadline, Wait, sleep_on};
use crate::{error, object};

/// An event queue as C has it.
struct EqMember {
    eq: Arc<Eq>,
    /// Its fabric stays open as long.
    _child: Child,
}

type EqObject = Object<fid_eq, EqMember>;

/// The event queue that C has.
///
/// # Safety
/// `fid` is an open event queue.
pub unsafe fn of<P>(fid: *const P) -> Arc<Eq> {
    // SAFETY: by the caller's promise.
    unsafe { EqObject::ours(fid) }.eq.clone()
}

/// `fi_eq_open`.
///
/// # Safety
/// `attr` is C's or null; `eq` is a place for the result.
pub unsafe fn open(
    fabric: &Fabric,
    attr: *mut fi_eq_attr,
    eq: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: by the caller's promise.
    let (object, flags) =
        unsafe { attr.as_ref() }.map_or((FI_WAIT_NONE, 0), |attr| (attr.wait_obj, attr.flags));
    let wait = match Wait::new(object, &Awaited::default()) {
        Ok(wait) => wait,
        Err(code) => return code,
    };
    let new = Arc::new(Eq::new(wait, flags & FI_WRITE != 0));
    let ours = EqMember { eq: new, _child: fabric.children.enter() };
    let fid = head(FI_CLASS_EQ, context, &FID_OPS);
    // SAFETY: a place for the result.
    unsafe { eq.write(EqObject::give(fid_eq { fid, ops: &raw const OPS }, ours)) };
    FI_SUCCESS
}

static FID_OPS: fi_ops = object::ops(close, object::no_bind, control);

static OPS: fi_ops_eq = fi_ops_eq { size: size_of::<fi_ops_eq>(), read, readerr, write, sread, strerror };

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: C closes what we gave it.
    let ours = unsafe { EqObject::ours(fid) };
    if Arc::strong_count(&ours.eq) > 1 {
        return -FI_EBUSY;
    }
    // SAFETY: as above; C uses it no more.
    drop(unsafe { EqObject::take(fid) });
    FI_SUCCESS
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: C's event queue, and the command's argument.
    unsafe {
        let mut events = EqObject::ours(fid).eq.lock();
        match command {
            FI_GETWAIT => {
                let code = wait::give(&mut events.wait, arg, []);
                if !events.is_empty() {
                    events.wait.raise();
                }
                code
            }
            FI_GETWAITOBJ => {
                arg.cast::<fi_wait_obj>().write(events.wait.object());
                FI_SUCCESS
            }
            _ => -FI_ENOSYS,
        }
    }
}

unsafe extern "C" fn read(
    eq: *mut fid_eq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    flags: u64,
) -> isize {
    // SAFETY: C's event queue.
    let mut events = unsafe { EqObject::ours(eq) }.eq.lock();
    if !events.failed.is_empty() {
        return -(FI_EAVAIL as isize);
    }
    let Some((kind, bytes)) = events.done.front() else { return -(FI_EAGAIN as isize) };
    if len < bytes.len() {
        return -(FI_ETOOSMALL as isize);
    }
    let size = bytes.len();
    // SAFETY: C's places.
    unsafe {
        event.write(*kind);
        object::copy_out(bytes, buf.cast(), len);
    }
    if flags & FI_PEEK == 0 {
        events.done.pop_front();
        events.settle();
    }
    size as isize
}

unsafe extern "C" fn readerr(eq: *mut fid_eq, buf: *mut fi_eq_err_entry, flags: u64) -> isize {
    // SAFETY: C's event queue.
    let mut events = unsafe { EqObject::ours(eq) }.eq.lock();
    let Some(failed) = events.failed.front() else { return -(FI_EAGAIN as isize) };
    let entry = fi_eq_err_entry {
        fid: ptr::with_exposed_provenance_mut(failed.fid),
        context: ptr::with_exposed_provenance_mut(failed.context),
        data: failed.data,
        err: failed.err,
        prov_errno: 0,
        err_data: ptr::null_mut(),
        err_data_size: 0,
    };
    // SAFETY: C's place.
    unsafe { buf.write(entry) };
    if flags & FI_PEEK == 0 {
        events.failed.pop_front();
        events.settle();
    }
    size_of::<fi_eq_err_entry>() as isize
}

unsafe extern "C" fn write(
    eq: *mut fid_eq,
    event: u32,
    buf: *const c_void,
    len: usize,
    _flags: u64,
) -> isize {
    // SAFETY: C's event queue.
    let eq = &unsafe { EqObject::ours(eq) }.eq;
    if !eq.writable || (buf.is_null() && len > 0) {
        return -(FI_EINVAL as isize);
    }
    let bytes = match len {
        0 => Vec::new(),
        // SAFETY: C's bytes.
        _ => unsafe { std::slice::from_raw_parts(buf.cast::<u8>(), len) }.to_vec(),
    };
    eq.push(event, bytes);
    len as isize
}

unsafe extern "C" fn sread(
    eq: *mut fid_eq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    timeout: c_int,
    flags: u64,
) -> isize {
    let deadline = Deadline::after(timeout);
    loop {
        // SAFETY: as our caller says.
        let got = unsafe { read(eq, event, buf, len, flags) };
        if got != -(FI_EAGAIN as isize) || deadline.passed() {
            return got;
        }
        let fd = {
            // SAFETY: C's event queue.
            let mut events = unsafe { EqObject::ours(eq) }.eq.lock();
            if !events.wait.blocks() {
                return -(FI_EINVAL as isize);
            }
            match events.wait.fd([]) {
                Ok(fd) => fd,
                Err(error) => return -(error.raw_os_error().unwrap_or(FI_EIO) as isize),
            }
        };
        if let Err(error) = sleep_on(fd, deadline) {
            return -(error.raw_os_error().unwrap_or(FI_EIO) as isize);
        }
    }
}

unsafe extern "C" fn strerror(
    _: *mut fid_eq,
    prov_errno: c_int,
    err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: as our caller says.
    unsafe { error::sentence(prov_errno, err_data, buf, len) }
}
