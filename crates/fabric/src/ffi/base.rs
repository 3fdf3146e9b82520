//! What all objects share: `fid`, its operations, classes, control commands, versions, contexts.

use core::ffi::{c_char, c_int, c_void};

/// Major version of libfabric whose definitions these are.
pub const ABI_MAJOR: u32 = 2;
/// Minor version of libfabric whose definitions these are.
pub const ABI_MINOR: u32 = 5;

/// A version as libfabric passes it: major in the upper, minor in the lower 16 bits.
pub const fn FI_VERSION(major: u32, minor: u32) -> u32 {
    (major << 16) | minor
}

/// The major number of a version made by [`FI_VERSION`].
pub const fn FI_MAJOR(version: u32) -> u32 {
    version >> 16
}

/// The minor number of a version made by [`FI_VERSION`].
pub const fn FI_MINOR(version: u32) -> u32 {
    version & 0xffff
}

pub type fi_addr_t = u64;
pub type fid_t = *mut fid;

/// Longest name of an endpoint that MPICH stores, in bytes.
pub const FI_NAME_MAX: usize = 64;

pub const FI_ADDR_UNSPEC: fi_addr_t = u64::MAX;
pub const FI_ADDR_NOTAVAIL: fi_addr_t = u64::MAX;
pub const FI_KEY_NOTAVAIL: u64 = u64::MAX;
/// In `tx_ctx_cnt`, `rx_ctx_cnt`: the endpoint uses a shared context.
pub const FI_SHARED_CONTEXT: usize = usize::MAX;
/// In `auth_key_size`: the keys are in the address vector.
pub const FI_AV_AUTH_KEY: usize = usize::MAX;

pub const FI_CLASS_UNSPEC: usize = 0;
pub const FI_CLASS_FABRIC: usize = 1;
pub const FI_CLASS_DOMAIN: usize = 2;
pub const FI_CLASS_EP: usize = 3;
pub const FI_CLASS_SEP: usize = 4;
pub const FI_CLASS_RX_CTX: usize = 5;
pub const FI_CLASS_SRX_CTX: usize = 6;
pub const FI_CLASS_TX_CTX: usize = 7;
pub const FI_CLASS_STX_CTX: usize = 8;
pub const FI_CLASS_PEP: usize = 9;
pub const FI_CLASS_INTERFACE: usize = 10;
pub const FI_CLASS_AV: usize = 11;
pub const FI_CLASS_MR: usize = 12;
pub const FI_CLASS_EQ: usize = 13;
pub const FI_CLASS_CQ: usize = 14;
pub const FI_CLASS_CNTR: usize = 15;
pub const FI_CLASS_WAIT: usize = 16;
pub const FI_CLASS_POLL: usize = 17;
pub const FI_CLASS_CONNREQ: usize = 18;
pub const FI_CLASS_MC: usize = 19;
pub const FI_CLASS_NIC: usize = 20;
pub const FI_CLASS_AV_SET: usize = 21;
pub const FI_CLASS_MR_CACHE: usize = 22;
pub const FI_CLASS_MEM_MONITOR: usize = 23;
pub const FI_CLASS_PEER_CQ: usize = 24;
pub const FI_CLASS_PEER_SRX: usize = 25;
pub const FI_CLASS_LOG: usize = 26;
pub const FI_CLASS_PEER_AV: usize = 27;
pub const FI_CLASS_PEER_AV_SET: usize = 28;
pub const FI_CLASS_PEER_CNTR: usize = 29;
pub const FI_CLASS_PROFILE: usize = 30;

// Commands of `fi_ops::control`; the comment is what `arg` points to.
pub const FI_GETFIDFLAG: c_int = 0; // u64
pub const FI_SETFIDFLAG: c_int = 1; // u64
pub const FI_GETOPSFLAG: c_int = 2; // u64
pub const FI_SETOPSFLAG: c_int = 3; // u64
pub const FI_ALIAS: c_int = 4; // fi_alias
pub const FI_GETWAIT: c_int = 5; // the wait object
pub const FI_ENABLE: c_int = 6; // nothing
pub const FI_BACKLOG: c_int = 7; // c_int
pub const FI_GET_RAW_MR: c_int = 8; // fi_mr_raw_attr
pub const FI_MAP_RAW_MR: c_int = 9; // fi_mr_map_raw
pub const FI_UNMAP_KEY: c_int = 10; // u64
pub const FI_QUEUE_WORK: c_int = 11; // fi_deferred_work
pub const FI_CANCEL_WORK: c_int = 12; // fi_deferred_work
pub const FI_FLUSH_WORK: c_int = 13; // nothing
pub const FI_REFRESH: c_int = 14; // fi_mr_modify
pub const FI_DUP: c_int = 15; // *mut fid
pub const FI_GETWAITOBJ: c_int = 16; // fi_wait_obj
pub const FI_GET_VAL: c_int = 17; // fi_fid_var
pub const FI_SET_VAL: c_int = 18; // fi_fid_var
pub const FI_EXPORT_FID: c_int = 19; // fi_fid_export
pub const FI_GET_FD: c_int = 20; // c_int

/// Head of every object.
#[repr(C)]
pub struct fid {
    pub fclass: usize,
    pub context: *mut c_void,
    pub ops: *const fi_ops,
}

#[repr(C)]
pub struct fi_ops {
    pub size: usize,
    pub close: unsafe extern "C" fn(fid: *mut fid) -> c_int,
    pub bind: unsafe extern "C" fn(fid: *mut fid, bfid: *mut fid, flags: u64) -> c_int,
    pub control: unsafe extern "C" fn(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int,
    pub ops_open: unsafe extern "C" fn(
        fid: *mut fid,
        name: *const c_char,
        flags: u64,
        ops: *mut *mut c_void,
        context: *mut c_void,
    ) -> c_int,
    pub tostr: Option<unsafe extern "C" fn(fid: *const fid, buf: *mut c_char, len: usize) -> c_int>,
    pub ops_set: Option<
        unsafe extern "C" fn(
            fid: *mut fid,
            name: *const c_char,
            flags: u64,
            ops: *mut c_void,
            context: *mut c_void,
        ) -> c_int,
    >,
}

/// Argument of [`FI_ALIAS`].
#[repr(C)]
pub struct fi_alias {
    pub fid: *mut *mut fid,
    pub flags: u64,
}

/// Argument of [`FI_GET_VAL`] and [`FI_SET_VAL`].
#[repr(C)]
pub struct fi_fid_var {
    pub name: c_int,
    pub val: *mut c_void,
}

/// Argument of [`FI_EXPORT_FID`].
#[repr(C)]
pub struct fi_fid_export {
    pub fid: *mut *mut fid,
    pub flags: u64,
    pub context: *mut c_void,
}

/// Memory that the application lends to an operation in mode `FI_CONTEXT`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct fi_context {
    pub internal: [*mut c_void; 4],
}

/// Memory that the application lends to an operation in mode `FI_CONTEXT2`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct fi_context2 {
    pub internal: [*mut c_void; 8],
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<fid>() == 24);
    assert!(size_of::<fi_ops>() == 56);
    assert!(size_of::<fi_context>() == 32);
    assert!(size_of::<fi_context2>() == 64);
};
