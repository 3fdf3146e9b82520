//! An [`Offer`] as a `fi_info` in the host's memory.

use std::ffi::{CString, c_char, c_void};
use std::ptr::{self, NonNull};

use polyrail_rails::INJECT_MAX;

use super::Ends;
use super::offer::{Offer, PROTOCOL, PROTOCOL_VERSION};
use crate::ffi::host::Host;
use crate::ffi::*;
use crate::limits::{ERR_DATA_MAX, IOV_LIMIT, MSG_MAX, NAME, RMA_IOV_LIMIT, VERSION};
use crate::registry::Open;

const MANY: usize = 1 << 15;
const DOMAIN_CAPS: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;

/// C's copy of a string; null without memory.
fn c_string(text: &str) -> *mut c_char {
    let text = CString::new(text).unwrap_or_default();
    // SAFETY: a C string; the copy is C's to free.
    unsafe { libc::strdup(text.as_ptr()) }
}

/// C's copy of bytes; null without memory.
fn c_bytes(bytes: &[u8]) -> *mut c_void {
    // SAFETY: a new allocation, as long as what is copied.
    unsafe {
        let copy = libc::malloc(bytes.len());
        if !copy.is_null() {
            ptr::copy_nonoverlapping(bytes.as_ptr(), copy.cast(), bytes.len());
        }
        copy
    }
}

/// The whole answer; nothing without memory. libfabric adds the provider's name.
pub fn fill(host: &Host, version: u32, offer: &Offer, ends: &Ends, open: Open) -> Option<NonNull<fi_info>> {
    let info = host.allocinfo()?;
    let (fabric_name, domain_name) = (c_string(NAME), c_string(NAME));
    // SAFETY: the host has just allocated all these structs, zeroed, each as long as its own version of it; only fields that
    // this version has are written.
    let whole = unsafe {
        let i = info.as_ptr();
        (*i).caps = offer.caps;
        (*i).addr_format = offer.format.number();
        (*i).src_addr = c_bytes(&ends.src);
        (*i).src_addrlen = ends.src.len();
        if let Some(dest) = &ends.dest {
            (*i).dest_addr = c_bytes(dest);
            (*i).dest_addrlen = dest.len();
        }
        transmit(&mut *(*i).tx_attr, offer);
        receive(&mut *(*i).rx_attr, offer);
        endpoint(&mut *(*i).ep_attr, offer);
        (*(*i).fabric_attr).fabric = open.fabric;
        (*(*i).fabric_attr).name = fabric_name;
        (*(*i).fabric_attr).prov_version = VERSION;
        (*(*i).fabric_attr).api_version = version;
        domain((*i).domain_attr, offer, host.version());
        (*(*i).domain_attr).domain = open.domain;
        (*(*i).domain_attr).name = domain_name;
        !fabric_name.is_null()
            && !domain_name.is_null()
            && !(*i).src_addr.is_null()
            && (ends.dest.is_none() || !(*i).dest_addr.is_null())
    };
    if !whole {
        // SAFETY: the host's, with C's strings, and nobody has seen it.
        unsafe { host.freeinfo(info.as_ptr()) };
        return None;
    }
    Some(info)
}

fn transmit(t: &mut fi_tx_attr, offer: &Offer) {
    t.caps = offer.tx_caps;
    t.op_flags = offer.tx_flags;
    t.msg_order = offer.order;
    t.inject_size = INJECT_MAX;
    t.size = offer.tx_size;
    t.iov_limit = IOV_LIMIT;
    t.rma_iov_limit = RMA_IOV_LIMIT;
}

fn receive(r: &mut fi_rx_attr, offer: &Offer) {
    r.caps = offer.rx_caps;
    r.op_flags = offer.rx_flags;
    r.msg_order = offer.order;
    r.size = offer.rx_size;
    r.iov_limit = IOV_LIMIT;
}

fn endpoint(e: &mut fi_ep_attr, offer: &Offer) {
    e.r#type = FI_EP_RDM;
    e.protocol = PROTOCOL;
    e.protocol_version = PROTOCOL_VERSION;
    e.max_msg_size = MSG_MAX;
    e.max_order_raw_size = usize::MAX;
    e.max_order_war_size = usize::MAX;
    e.max_order_waw_size = usize::MAX;
    e.mem_tag_format = offer.tag_format;
    e.tx_ctx_cnt = 1;
    e.rx_ctx_cnt = 1;
}

/// # Safety
/// `d` was allocated by a host of this version.
unsafe fn domain(d: *mut fi_domain_attr, offer: &Offer, host_version: u32) {
    // SAFETY: fields of every version, by the caller's promise.
    unsafe {
        (*d).threading = offer.threading;
        (*d).control_progress = offer.control_progress;
        (*d).data_progress = offer.data_progress;
        (*d).resource_mgmt = FI_RM_ENABLED;
        (*d).av_type = offer.av_type;
        (*d).mr_mode = offer.mr_mode;
        (*d).mr_key_size = 8;
        (*d).cq_data_size = 8;
        (*d).cq_cnt = MANY;
        (*d).ep_cnt = MANY;
        (*d).tx_ctx_cnt = MANY;
        (*d).rx_ctx_cnt = MANY;
        (*d).max_ep_tx_ctx = 1;
        (*d).max_ep_rx_ctx = 1;
        (*d).cntr_cnt = MANY;
        (*d).mr_iov_limit = 1;
        (*d).caps = DOMAIN_CAPS;
        (*d).max_err_data = ERR_DATA_MAX;
        (*d).mr_cnt = 1 << 20;
    }
    if host_version >= FI_VERSION(2, 5) {
        // SAFETY: fields of 2.5.
        unsafe {
            (*d).max_cntr_value = u64::MAX;
            (*d).max_err_cntr_value = u64::MAX;
        }
    }
}
