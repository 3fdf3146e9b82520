//! What an application asks for, copied out of C's structs. Absent parts are zero, which is how C says "whatever".

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::ffi::*;

/// A `fi_info`. The fields are those of the same name.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    pub caps: u64,
    pub addr_format: u32,
    pub src_addr: Option<Vec<u8>>,
    pub dest_addr: Option<Vec<u8>>,
    pub tx: Tx,
    pub rx: Rx,
    pub ep: Ep,
    pub domain: Domain,
    pub fabric: Fabric,
}

/// Of `fi_tx_attr`.
#[derive(Clone, Debug, Default)]
pub struct Tx {
    pub caps: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub inject_size: usize,
    pub size: usize,
    pub iov_limit: usize,
    pub rma_iov_limit: usize,
}

/// Of `fi_rx_attr`.
#[derive(Clone, Debug, Default)]
pub struct Rx {
    pub caps: u64,
    pub op_flags: u64,
    pub msg_order: u64,
    pub comp_order: u64,
    pub total_buffered_recv: usize,
    pub size: usize,
    pub iov_limit: usize,
}

/// Of `fi_ep_attr`.
#[derive(Clone, Debug, Default)]
pub struct Ep {
    pub kind: fi_ep_type,
    pub protocol: u32,
    pub protocol_version: u32,
    pub max_msg_size: usize,
    pub mem_tag_format: u64,
    pub tx_ctx_cnt: usize,
    pub rx_ctx_cnt: usize,
    pub auth_key_size: usize,
}

/// Of `fi_domain_attr`. The open domain is an address, only to be compared.
#[derive(Clone, Debug, Default)]
pub struct Domain {
    pub domain: usize,
    pub name: Option<String>,
    pub threading: fi_threading,
    pub control_progress: fi_progress,
    pub data_progress: fi_progress,
    pub resource_mgmt: fi_resource_mgmt,
    pub av_type: fi_av_type,
    pub mr_mode: c_int,
    pub mr_key_size: usize,
    pub cq_data_size: usize,
    pub cq_cnt: usize,
    pub ep_cnt: usize,
    pub tx_ctx_cnt: usize,
    pub rx_ctx_cnt: usize,
    pub max_ep_tx_ctx: usize,
    pub max_ep_rx_ctx: usize,
    pub max_ep_stx_ctx: usize,
    pub max_ep_srx_ctx: usize,
    pub cntr_cnt: usize,
    pub mr_iov_limit: usize,
    pub caps: u64,
    pub auth_key_size: usize,
    pub max_err_data: usize,
    pub mr_cnt: usize,
}

/// Of `fi_fabric_attr`.
#[derive(Clone, Debug, Default)]
pub struct Fabric {
    pub name: Option<String>,
    pub prov_version: u32,
}

/// A copy of a C string, if there is one.
///
/// # Safety
/// `text` is null or a C string.
unsafe fn string(text: *const c_char) -> Option<String> {
    // SAFETY: by the caller's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// A copy of an address, if there is one.
///
/// # Safety
/// `address` is null or readable for `len` bytes.
unsafe fn bytes(address: *const c_void, len: usize) -> Option<Vec<u8>> {
    let there = !address.is_null() && len > 0;
    // SAFETY: by the caller's promise.
    there.then(|| unsafe { std::slice::from_raw_parts(address.cast::<u8>(), len) }.to_vec())
}

impl Hints {
    /// Copies what we look at; nothing for null.
    ///
    /// # Safety
    /// `info` is null or a `fi_info` that some version of libfabric allocated.
    pub unsafe fn read(info: *const fi_info) -> Option<Self> {
        // SAFETY: `fi_info` and all but one of the structs that it leads to have been the same since 1.17, so that they are
        // whole, and C does not change them meanwhile.
        unsafe {
            let info = info.as_ref()?;
            Some(Self {
                caps: info.caps,
                addr_format: info.addr_format,
                src_addr: bytes(info.src_addr, info.src_addrlen),
                dest_addr: bytes(info.dest_addr, info.dest_addrlen),
                tx: info.tx_attr.as_ref().map(Tx::read).unwrap_or_default(),
                rx: info.rx_attr.as_ref().map(Rx::read).unwrap_or_default(),
                ep: info.ep_attr.as_ref().map(Ep::read).unwrap_or_default(),
                domain: if info.domain_attr.is_null() {
                    Domain::default()
                } else {
                    Domain::read(info.domain_attr)
                },
                fabric: if info.fabric_attr.is_null() {
                    Fabric::default()
                } else {
                    Fabric::read(info.fabric_attr)
                },
            })
        }
    }
}

impl Tx {
    fn read(a: &fi_tx_attr) -> Self {
        Self {
            caps: a.caps,
            op_flags: a.op_flags,
            msg_order: a.msg_order,
            comp_order: a.comp_order,
            inject_size: a.inject_size,
            size: a.size,
            iov_limit: a.iov_limit,
            rma_iov_limit: a.rma_iov_limit,
        }
    }
}

impl Rx {
    fn read(a: &fi_rx_attr) -> Self {
        Self {
            caps: a.caps,
            op_flags: a.op_flags,
            msg_order: a.msg_order,
            comp_order: a.comp_order,
            total_buffered_recv: a.total_buffered_recv,
            size: a.size,
            iov_limit: a.iov_limit,
        }
    }
}

impl Ep {
    fn read(a: &fi_ep_attr) -> Self {
        Self {
            kind: a.r#type,
            protocol: a.protocol,
            protocol_version: a.protocol_version,
            max_msg_size: a.max_msg_size,
            mem_tag_format: a.mem_tag_format,
            tx_ctx_cnt: a.tx_ctx_cnt,
            rx_ctx_cnt: a.rx_ctx_cnt,
            auth_key_size: a.auth_key_size,
        }
    }
}

impl Domain {
    /// # Safety
    /// `a` is a `fi_domain_attr` of some version: no reference to the whole of it is made, and no late field is read.
    unsafe fn read(a: *const fi_domain_attr) -> Self {
        // SAFETY: fields of every version, by the caller's promise; the name is null or C's string.
        unsafe {
            Self {
                domain: (*a).domain.addr(),
                name: string((*a).name),
                threading: (*a).threading,
                control_progress: (*a).control_progress,
                data_progress: (*a).data_progress,
                resource_mgmt: (*a).resource_mgmt,
                av_type: (*a).av_type,
                mr_mode: (*a).mr_mode,
                mr_key_size: (*a).mr_key_size,
                cq_data_size: (*a).cq_data_size,
                cq_cnt: (*a).cq_cnt,
                ep_cnt: (*a).ep_cnt,
                tx_ctx_cnt: (*a).tx_ctx_cnt,
                rx_ctx_cnt: (*a).rx_ctx_cnt,
                max_ep_tx_ctx: (*a).max_ep_tx_ctx,
                max_ep_rx_ctx: (*a).max_ep_rx_ctx,
                max_ep_stx_ctx: (*a).max_ep_stx_ctx,
                max_ep_srx_ctx: (*a).max_ep_srx_ctx,
                cntr_cnt: (*a).cntr_cnt,
                mr_iov_limit: (*a).mr_iov_limit,
                caps: (*a).caps,
                auth_key_size: (*a).auth_key_size,
                max_err_data: (*a).max_err_data,
                mr_cnt: (*a).mr_cnt,
            }
        }
    }
}

impl Fabric {
    /// # Safety
    /// `a` is a `fi_fabric_attr`.
    unsafe fn read(a: *const fi_fabric_attr) -> Self {
        // SAFETY: by the caller's promise; the name is null or C's string.
        unsafe { Self { name: string((*a).name), prov_version: (*a).prov_version } }
    }
}
