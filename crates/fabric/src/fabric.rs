//! The fabric object, and what is open in this process.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::cntr;
use crate::cq;
use crate::domain::{self, Domain};
use crate::eq::{self, Eq};
use crate::ffi::*;
use crate::object::{self, Object, head};
use crate::provider::{NAME, log};

type FabricObject = Object<fid_fabric, Arc<Fabric>>;

/// One open fabric.
#[derive(Debug)]
pub struct Fabric {
    /// The API version that the application asked for.
    pub api_version: u32,
    /// Open domains and event queues.
    children: AtomicUsize,
}

impl Fabric {
    /// Something has been opened in it.
    pub fn enter(&self) {
        self.children.fetch_add(1, Ordering::Relaxed);
    }

    /// Something has been closed.
    pub fn leave(&self) {
        self.children.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The objects that `fi_getinfo` refers to.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    pub fabric: *mut fid_fabric,
    pub domain: *mut fid_domain,
}

/// An open domain; the addresses are those that C knows it and its fabric by.
struct OpenDomain {
    fabric: usize,
    address: usize,
    domain: Weak<Domain>,
}

static OPEN: Mutex<Vec<OpenDomain>> = Mutex::new(Vec::new());

/// Remembers an open domain.
pub fn register(fabric: *mut fid_fabric, address: *mut fid_domain, domain: &Arc<Domain>) {
    let entry = OpenDomain {
        fabric: fabric.expose_provenance(),
        address: address.expose_provenance(),
        domain: Arc::downgrade(domain),
    };
    OPEN.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
}

/// Forgets a domain.
pub fn unregister(address: *mut fid) {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner).retain(|open| open.address != address.addr());
}

/// The open domain at this address, or, for 0, the first that is open, if any.
///
/// # Errors
/// If there is no domain at this address.
pub fn open_domain(address: usize) -> Result<Open, String> {
    let all = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let found = all.iter().find(|open| address == 0 || open.address == address);
    match found {
        Some(open) => Ok(Open {
            fabric: ptr::with_exposed_provenance_mut(open.fabric),
            domain: ptr::with_exposed_provenance_mut(open.address),
        }),
        None if address == 0 => Ok(Open { fabric: ptr::null_mut(), domain: ptr::null_mut() }),
        None => Err("the domain is not one of ours".into()),
    }
}

/// The domains open in this process.
pub fn open_domains() -> Vec<Arc<Domain>> {
    let all = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().filter_map(|open| open.domain.upgrade()).collect()
}

/// Ends what runs by itself in domains that were never closed.
pub fn stop_all() {
    for domain in open_domains() {
        domain.stop();
    }
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
    let new = Arc::new(Fabric { api_version: attr.api_version, children: AtomicUsize::new(0) });
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
    if unsafe { FabricObject::ours(fid) }.children.load(Ordering::Relaxed) > 0 {
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
                FI_CLASS_EQ => Eq::of(fid).try_wait(),
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
