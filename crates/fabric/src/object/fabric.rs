//! The fabric object.

use std::ffi::{CStr, c_int, c_void};

use super::{Object, cntr, cq, domain, eq, head};
use crate::ffi::*;
use crate::limits::NAME;
use crate::log::log;
use crate::object;
use crate::registry::Children;

type FabricObject = Object<fid_fabric, Fabric>;

/// One open fabric.
#[derive(Debug)]
pub struct Fabric {
    /// The API version that the application asked for.
    pub api_version: u32,
    /// Open domains and event queues.
    pub children: Children,
}

/// `fi_provider::fabric`.
///
/// # Safety
/// As libfabric calls it: an attribute, and a place for the result.
pub unsafe extern "C" fn open(
    attr: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    // SAFETY: libfabric's attribute, or null.
    let Some(attr) = (unsafe { attr.as_ref() }) else { return -FI_EINVAL };
    // SAFETY: null or C's string.
    let name = (!attr.name.is_null()).then(|| unsafe { CStr::from_ptr(attr.name) });
    if name.is_some_and(|name| !name.to_bytes().eq_ignore_ascii_case(NAME.as_bytes())) {
        log!(FI_LOG_INFO, FI_LOG_FABRIC, "fabric {name:?}: there is only {NAME:?}");
        return -FI_ENODATA;
    }
    let new = Fabric { api_version: attr.api_version, children: Children::default() };
    let fid = head(FI_CLASS_FABRIC, context, &FID_OPS);
    let head = fid_fabric { fid, ops: &raw const OPS, api_version: attr.api_version };
    // SAFETY: a place for the result.
    unsafe { fabric.write(FabricObject::give(head, new)) };
    FI_SUCCESS
}

static FID_OPS: fi_ops = object::ops(close, object::no_bind, object::no_control);

static OPS: fi_ops_fabric = fi_ops_fabric {
    size: size_of::<fi_ops_fabric>(),
    domain,
    passive_ep,
    eq_open,
    wait_open,
    trywait,
    domain2: Some(domain2),
};

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: C closes what we gave it.
    if !unsafe { FabricObject::ours(fid) }.children.is_empty() {
        return -FI_EBUSY;
    }
    // SAFETY: as above; C uses it no more.
    drop(unsafe { FabricObject::take(fid) });
    FI_SUCCESS
}

unsafe extern "C" fn domain(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    dom: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as our caller says.
    unsafe { domain2(fabric, info, dom, 0, context) }
}

unsafe extern "C" fn domain2(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    dom: *mut *mut fid_domain,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        // FI_PEER: we import no one else's queues
        return -FI_ENOSYS;
    }
    // SAFETY: C's fabric, information and place.
    unsafe { domain::open(FabricObject::ours(fabric), fabric, info, dom, context) }
}

unsafe extern "C" fn passive_ep(
    _: *mut fid_fabric,
    _: *mut fi_info,
    _: *mut *mut fid_pep,
    _: *mut c_void,
) -> c_int {
    -FI_ENOSYS
}

unsafe extern "C" fn eq_open(
    fabric: *mut fid_fabric,
    attr: *mut fi_eq_attr,
    eq: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: C's fabric, attribute and place.
    unsafe { eq::open(FabricObject::ours(fabric), attr, eq, context) }
}

unsafe extern "C" fn wait_open(_: *mut fid_fabric, _: *mut fi_wait_attr, _: *mut *mut fid_wait) -> c_int {
    -FI_ENOSYS
}

/// Whether the application may wait on the descriptors of these objects: not while one of them has something.
unsafe extern "C" fn trywait(_: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int {
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: `count` open objects of C's, each of the class that it says.
        let ready = unsafe {
            let fid = fids.add(at).read();
            match (*fid).fclass {
                FI_CLASS_CQ => cq::try_wait(fid),
                FI_CLASS_CNTR => cntr::try_wait(fid),
                FI_CLASS_EQ => eq::of(fid).try_wait(),
                _ => return -FI_EINVAL,
            }
        };
        match ready {
            Ok(true) => {}
            Ok(false) => return -FI_EAGAIN,
            Err(error) => return -error.raw_os_error().unwrap_or(FI_EIO),
        }
    }
    FI_SUCCESS
}
