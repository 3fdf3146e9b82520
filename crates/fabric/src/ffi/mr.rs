//! Memory regions.

use core::ffi::{c_int, c_void};

use libc::iovec;

use super::{fi_addr_t, fid, fid_av};

#[repr(C)]
pub struct fid_mr {
    pub fid: fid,
    pub mem_desc: *mut c_void,
    pub key: u64,
}

pub type fi_hmem_iface = u32;
pub const FI_HMEM_SYSTEM: fi_hmem_iface = 0;
pub const FI_HMEM_CUDA: fi_hmem_iface = 1;
pub const FI_HMEM_ROCR: fi_hmem_iface = 2;
pub const FI_HMEM_ZE: fi_hmem_iface = 3;
pub const FI_HMEM_NEURON: fi_hmem_iface = 4;
pub const FI_HMEM_SYNAPSEAI: fi_hmem_iface = 5;

/// Since 1.20.
#[repr(C)]
pub struct fi_mr_dmabuf {
    pub fd: c_int,
    pub offset: u64,
    pub len: usize,
    pub base_addr: *mut c_void,
}

/// Since 1.20.
#[repr(C)]
pub struct fi_mr_auth_key {
    pub av: *mut fid_av,
    pub src_addr: fi_addr_t,
}

/// The fields from `hmem_data` on exist only for newer applications: see the table in [`super`].
#[repr(C)]
pub struct fi_mr_attr {
    /// With the flag `FI_MR_DMABUF` it is a `*const fi_mr_dmabuf`.
    pub mr_iov: *const iovec,
    pub iov_count: usize,
    pub access: u64,
    pub offset: u64,
    pub requested_key: u64,
    pub context: *mut c_void,
    pub auth_key_size: usize,
    pub auth_key: *mut u8,
    pub iface: fi_hmem_iface,
    /// In C a union: a `c_int` in its first bytes, by `iface`.
    pub device: u64,
    /// Since 1.19.
    pub hmem_data: *mut c_void,
    /// Since 1.22.
    pub page_size: usize,
    /// Since 2.0.
    pub base_mr: *const fid_mr,
    /// Since 2.0.
    pub sub_mr_cnt: usize,
}

/// Argument of `FI_REFRESH`.
#[repr(C)]
pub struct fi_mr_modify {
    pub flags: u64,
    pub attr: fi_mr_attr,
}

/// Argument of `FI_GET_RAW_MR`.
#[repr(C)]
pub struct fi_mr_raw_attr {
    pub flags: u64,
    pub base_addr: *mut u64,
    pub raw_key: *mut u8,
    pub key_size: *mut usize,
}

/// Argument of `FI_MAP_RAW_MR`.
#[repr(C)]
pub struct fi_mr_map_raw {
    pub flags: u64,
    pub base_addr: u64,
    pub raw_key: *mut u8,
    pub key_size: usize,
    pub key: *mut u64,
}

#[repr(C)]
pub struct fi_ops_mr {
    pub size: usize,
    pub reg: unsafe extern "C" fn(
        fid: *mut fid,
        buf: *const c_void,
        len: usize,
        access: u64,
        offset: u64,
        requested_key: u64,
        flags: u64,
        mr: *mut *mut fid_mr,
        context: *mut c_void,
    ) -> c_int,
    pub regv: unsafe extern "C" fn(
        fid: *mut fid,
        iov: *const iovec,
        count: usize,
        access: u64,
        offset: u64,
        requested_key: u64,
        flags: u64,
        mr: *mut *mut fid_mr,
        context: *mut c_void,
    ) -> c_int,
    pub regattr: unsafe extern "C" fn(
        fid: *mut fid,
        attr: *const fi_mr_attr,
        flags: u64,
        mr: *mut *mut fid_mr,
    ) -> c_int,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<fid_mr>() == 40);
    assert!(size_of::<fi_mr_attr>() == 112);
    assert!(core::mem::offset_of!(fi_mr_attr, hmem_data) == 80); // its end in 1.17
    assert!(size_of::<fi_mr_modify>() == 120);
    assert!(size_of::<fi_mr_raw_attr>() == 32);
    assert!(size_of::<fi_mr_map_raw>() == 40);
    assert!(size_of::<fi_ops_mr>() == 32);
};
