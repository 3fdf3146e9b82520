//! Event queues: what happened to control operations. Ours are all synchronous, so that there is little to report: address
//! insertions of applications that want it so, and what applications write themselves.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error;
use crate::fabric::Fabric;
use crate::ffi::*;
use crate::object::{self, Object, head};
use crate::wait::{Deadline, Wait, sleep_on};

type EqObject = Object<fid_eq, Arc<Eq>>;

/// One event queue.
#[derive(Debug)]
pub struct Eq {
    inner: Mutex<Inner>,
    writable: bool,
    fabric: Arc<Fabric>,
}

#[derive(Debug)]
struct Inner {
    /// Events with their bytes.
    events: VecDeque<(u32, Vec<u8>)>,
    errors: VecDeque<Failed>,
    wait: Wait,
}

#[derive(Debug)]
struct Failed {
    fid: usize,
    context: usize,
    data: u64,
    err: c_int,
}

impl Inner {
    fn is_empty(&self) -> bool {
        self.events.is_empty() && self.errors.is_empty()
    }
}

impl Eq {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The event queue that C has.
    ///
    /// # Safety
    /// `fid` is an open event queue.
    pub unsafe fn of(fid: *mut fid) -> Arc<Self> {
        // SAFETY: by the caller's promise.
        unsafe { EqObject::ours(fid) }.clone()
    }

    fn push(&self, event: u32, bytes: Vec<u8>) {
        let mut inner = self.lock();
        inner.events.push_back((event, bytes));
        inner.wait.raise();
    }

    /// A control operation that is done.
    pub fn push_entry(&self, event: u32, fid: *mut fid, context: *mut c_void, data: u64) {
        let entry = [fid.expose_provenance() as u64, context.expose_provenance() as u64, data];
        self.push(event, entry.map(u64::to_ne_bytes).concat());
    }

    /// A control operation that failed.
    pub fn push_error(&self, fid: *mut fid, context: *mut c_void, data: u64, err: c_int) {
        let mut inner = self.lock();
        inner.errors.push_back(Failed {
            fid: fid.expose_provenance(),
            context: context.expose_provenance(),
            data,
            err,
        });
        inner.wait.raise();
    }

    /// `fi_trywait`: whether the application may sleep on the descriptor.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub fn try_wait(&self) -> std::io::Result<bool> {
        let mut inner = self.lock();
        inner.wait.fd([])?;
        Ok(inner.is_empty())
    }
}

const _: () = assert!(size_of::<fi_eq_entry>() == 24, "push_entry writes its three words");

/// `fi_eq_open`.
///
/// # Safety
/// `attr` is C's or null; `eq` is a place for the result.
pub unsafe fn open(
    fabric: &Arc<Fabric>,
    attr: *mut fi_eq_attr,
    eq: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: by the caller's promise.
    let (object, flags) =
        unsafe { attr.as_ref() }.map_or((FI_WAIT_NONE, 0), |attr| (attr.wait_obj, attr.flags));
    let wait = match Wait::new(object) {
        Ok(wait) => wait,
        Err(code) => return code,
    };
    let inner = Mutex::new(Inner { events: VecDeque::new(), errors: VecDeque::new(), wait });
    let new = Arc::new(Eq { inner, writable: flags & FI_WRITE != 0, fabric: fabric.clone() });
    fabric.enter();
    let fid = head(FI_CLASS_EQ, context, &FID_OPS);
    // SAFETY: a place for the result.
    unsafe { eq.write(EqObject::give(fid_eq { fid, ops: &raw const OPS }, new)) };
    FI_SUCCESS
}

static FID_OPS: fi_ops = object::ops(close, object::no_bind, control);

static OPS: fi_ops_eq = fi_ops_eq { size: size_of::<fi_ops_eq>(), read, readerr, write, sread, strerror };

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: C closes what we gave it.
    let eq = unsafe { EqObject::ours(fid) };
    if Arc::strong_count(eq) > 1 {
        return -FI_EBUSY;
    }
    // SAFETY: as above; C uses it no more.
    unsafe { EqObject::take(fid) }.fabric.leave();
    FI_SUCCESS
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: C's event queue, and the command's argument.
    unsafe {
        let mut inner = EqObject::ours(fid).lock();
        match command {
            FI_GETWAIT => {
                let code = inner.wait.give(arg, []);
                if !inner.is_empty() {
                    inner.wait.raise();
                }
                code
            }
            FI_GETWAITOBJ => {
                arg.cast::<fi_wait_obj>().write(inner.wait.object());
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
    let mut inner = unsafe { EqObject::ours(eq) }.lock();
    if !inner.errors.is_empty() {
        return -(FI_EAVAIL as isize);
    }
    let Some((kind, bytes)) = inner.events.front() else { return -(FI_EAGAIN as isize) };
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
        inner.events.pop_front();
        if inner.is_empty() {
            inner.wait.lower();
        }
    }
    size as isize
}

unsafe extern "C" fn readerr(eq: *mut fid_eq, buf: *mut fi_eq_err_entry, flags: u64) -> isize {
    // SAFETY: C's event queue.
    let mut inner = unsafe { EqObject::ours(eq) }.lock();
    let Some(failed) = inner.errors.front() else { return -(FI_EAGAIN as isize) };
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
        inner.errors.pop_front();
        if inner.is_empty() {
            inner.wait.lower();
        }
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
    let eq = unsafe { EqObject::ours(eq) };
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
            let mut inner = unsafe { EqObject::ours(eq) }.lock();
            if !inner.wait.blocks() {
                return -(FI_EINVAL as isize);
            }
            match inner.wait.fd([]) {
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
