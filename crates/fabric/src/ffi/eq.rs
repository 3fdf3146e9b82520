//! Event queues, completion queues, counters, and what one waits on.

use core::ffi::{c_char, c_int, c_void};

use super::{fi_addr_t, fi_info, fid, fid_t};

pub type fi_wait_obj = u32;
pub const FI_WAIT_NONE: fi_wait_obj = 0;
pub const FI_WAIT_UNSPEC: fi_wait_obj = 1;
pub const FI_WAIT_SET: fi_wait_obj = 2;
pub const FI_WAIT_FD: fi_wait_obj = 3;
pub const FI_WAIT_MUTEX_COND: fi_wait_obj = 4;
pub const FI_WAIT_YIELD: fi_wait_obj = 5;
pub const FI_WAIT_POLLFD: fi_wait_obj = 6;

#[repr(C)]
pub struct fi_wait_attr {
    pub wait_obj: fi_wait_obj,
    pub flags: u64,
}

/// A wait set: deprecated, so only pointed to.
#[repr(C)]
pub struct fid_wait {
    _opaque: [u8; 0],
}

/// What `FI_GETWAIT` gives for [`FI_WAIT_POLLFD`]: `nfds` in room, out count.
#[repr(C)]
pub struct fi_wait_pollfd {
    pub change_index: u64,
    pub nfds: usize,
    pub fd: *mut libc::pollfd,
}

#[repr(C)]
pub struct fi_poll_attr {
    pub flags: u64,
}

/// A poll set: deprecated, so only pointed to.
#[repr(C)]
pub struct fid_poll {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct fi_eq_attr {
    pub size: usize,
    pub flags: u64,
    pub wait_obj: fi_wait_obj,
    pub signaling_vector: c_int,
    pub wait_set: *mut fid_wait,
}

// Events of an event queue.
pub const FI_NOTIFY: u32 = 0;
pub const FI_CONNREQ: u32 = 1;
pub const FI_CONNECTED: u32 = 2;
pub const FI_SHUTDOWN: u32 = 3;
pub const FI_MR_COMPLETE: u32 = 4;
pub const FI_AV_COMPLETE: u32 = 5;
pub const FI_JOIN_COMPLETE: u32 = 6;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct fi_eq_entry {
    pub fid: fid_t,
    pub context: *mut c_void,
    pub data: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct fi_eq_err_entry {
    pub fid: fid_t,
    pub context: *mut c_void,
    pub data: u64,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
}

/// The connection's data follows it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct fi_eq_cm_entry {
    pub fid: fid_t,
    pub info: *mut fi_info,
    pub data: [u8; 0],
}

#[repr(C)]
pub struct fi_ops_eq {
    pub size: usize,
    pub read: unsafe extern "C" fn(
        eq: *mut fid_eq,
        event: *mut u32,
        buf: *mut c_void,
        len: usize,
        flags: u64,
    ) -> isize,
    pub readerr: unsafe extern "C" fn(eq: *mut fid_eq, buf: *mut fi_eq_err_entry, flags: u64) -> isize,
    pub write: unsafe extern "C" fn(
        eq: *mut fid_eq,
        event: u32,
        buf: *const c_void,
        len: usize,
        flags: u64,
    ) -> isize,
    pub sread: unsafe extern "C" fn(
        eq: *mut fid_eq,
        event: *mut u32,
        buf: *mut c_void,
        len: usize,
        timeout: c_int,
        flags: u64,
    ) -> isize,
    pub strerror: unsafe extern "C" fn(
        eq: *mut fid_eq,
        prov_errno: c_int,
        err_data: *const c_void,
        buf: *mut c_char,
        len: usize,
    ) -> *const c_char,
}

#[repr(C)]
pub struct fid_eq {
    pub fid: fid,
    pub ops: *const fi_ops_eq,
}

pub type fi_cq_format = u32;
pub const FI_CQ_FORMAT_UNSPEC: fi_cq_format = 0;
pub const FI_CQ_FORMAT_CONTEXT: fi_cq_format = 1;
pub const FI_CQ_FORMAT_MSG: fi_cq_format = 2;
pub const FI_CQ_FORMAT_DATA: fi_cq_format = 3;
pub const FI_CQ_FORMAT_TAGGED: fi_cq_format = 4;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct fi_cq_entry {
    pub op_context: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct fi_cq_msg_entry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct fi_cq_data_entry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct fi_cq_tagged_entry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
}

/// `err_data` and `err_data_size` are the caller's buffer if the size is not 0 on entry.
/// `src_addr` exists only for newer applications: see the table in [`super`]. For an API below 1.5 the
/// struct ended before `err_data_size`, and `err_data` was for the provider to set.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct fi_cq_err_entry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
    pub olen: usize,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
    /// Since 1.20.
    pub src_addr: fi_addr_t,
}

pub type fi_cq_wait_cond = u32;
pub const FI_CQ_COND_NONE: fi_cq_wait_cond = 0;
/// The `cond` argument of `sread` is the wanted number of entries, as a pointer.
pub const FI_CQ_COND_THRESHOLD: fi_cq_wait_cond = 1;

#[repr(C)]
pub struct fi_cq_attr {
    pub size: usize,
    pub flags: u64,
    pub format: fi_cq_format,
    pub wait_obj: fi_wait_obj,
    pub signaling_vector: c_int,
    pub wait_cond: fi_cq_wait_cond,
    pub wait_set: *mut fid_wait,
}

#[repr(C)]
pub struct fi_ops_cq {
    pub size: usize,
    pub read: unsafe extern "C" fn(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize,
    pub readfrom: unsafe extern "C" fn(
        cq: *mut fid_cq,
        buf: *mut c_void,
        count: usize,
        src_addr: *mut fi_addr_t,
    ) -> isize,
    pub readerr: unsafe extern "C" fn(cq: *mut fid_cq, buf: *mut fi_cq_err_entry, flags: u64) -> isize,
    pub sread: unsafe extern "C" fn(
        cq: *mut fid_cq,
        buf: *mut c_void,
        count: usize,
        cond: *const c_void,
        timeout: c_int,
    ) -> isize,
    pub sreadfrom: unsafe extern "C" fn(
        cq: *mut fid_cq,
        buf: *mut c_void,
        count: usize,
        src_addr: *mut fi_addr_t,
        cond: *const c_void,
        timeout: c_int,
    ) -> isize,
    pub signal: unsafe extern "C" fn(cq: *mut fid_cq) -> c_int,
    pub strerror: unsafe extern "C" fn(
        cq: *mut fid_cq,
        prov_errno: c_int,
        err_data: *const c_void,
        buf: *mut c_char,
        len: usize,
    ) -> *const c_char,
}

#[repr(C)]
pub struct fid_cq {
    pub fid: fid,
    pub ops: *const fi_ops_cq,
}

pub type fi_cntr_events = u32;
pub const FI_CNTR_EVENTS_COMP: fi_cntr_events = 0;
pub const FI_CNTR_EVENTS_BYTES: fi_cntr_events = 1;

#[repr(C)]
pub struct fi_cntr_attr {
    pub events: fi_cntr_events,
    pub wait_obj: fi_wait_obj,
    pub wait_set: *mut fid_wait,
    pub flags: u64,
}

#[repr(C)]
pub struct fi_ops_cntr {
    pub size: usize,
    pub read: unsafe extern "C" fn(cntr: *mut fid_cntr) -> u64,
    pub readerr: unsafe extern "C" fn(cntr: *mut fid_cntr) -> u64,
    pub add: unsafe extern "C" fn(cntr: *mut fid_cntr, value: u64) -> c_int,
    pub set: unsafe extern "C" fn(cntr: *mut fid_cntr, value: u64) -> c_int,
    pub wait: unsafe extern "C" fn(cntr: *mut fid_cntr, threshold: u64, timeout: c_int) -> c_int,
    pub adderr: Option<unsafe extern "C" fn(cntr: *mut fid_cntr, value: u64) -> c_int>,
    pub seterr: Option<unsafe extern "C" fn(cntr: *mut fid_cntr, value: u64) -> c_int>,
}

#[repr(C)]
pub struct fid_cntr {
    pub fid: fid,
    pub ops: *const fi_ops_cntr,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<fi_eq_attr>() == 32);
    assert!(size_of::<fi_eq_entry>() == 24);
    assert!(size_of::<fi_eq_err_entry>() == 48);
    assert!(size_of::<fi_eq_cm_entry>() == 16);
    assert!(size_of::<fi_ops_eq>() == 48);
    assert!(size_of::<fid_eq>() == 32);
    assert!(size_of::<fi_cq_entry>() == 8);
    assert!(size_of::<fi_cq_msg_entry>() == 24);
    assert!(size_of::<fi_cq_data_entry>() == 40);
    assert!(size_of::<fi_cq_tagged_entry>() == 48);
    assert!(size_of::<fi_cq_err_entry>() == 88);
    assert!(core::mem::offset_of!(fi_cq_err_entry, src_addr) == 80); // its end in 1.17
    assert!(size_of::<fi_cq_attr>() == 40);
    assert!(size_of::<fi_ops_cq>() == 64);
    assert!(size_of::<fid_cq>() == 32);
    assert!(size_of::<fi_cntr_attr>() == 24);
    assert!(size_of::<fi_ops_cntr>() == 64);
    assert!(size_of::<fid_cntr>() == 32);
};
