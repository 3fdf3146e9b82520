//! The domain object.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use polyrail_core::frame::{AtomicCode, AtomicKind};
use polyrail_rails::atomic;

use super::fabric::Fabric;
use super::{Object, av, cntr, cq, endpoint, eq, head, mr};
use crate::address::Format;
use crate::domain::{Domain, Progress, Wanted};
use crate::ffi::*;
use crate::info::hints::Hints;
use crate::limits::ATOMIC_MAX;
use crate::log::{log, tell_once_before_the_end};
use crate::registry::{self, Child};
use crate::{object, settings};

/// A domain as C has it.
pub struct DomainMember {
    domain: Arc<Domain>,
    /// Its fabric stays open as long.
    _child: Child,
}

type DomainObject = Object<fid_domain, DomainMember>;

/// The domain that C has.
///
/// # Safety
/// `fid` is an open domain, not closed before `'a` ends.
pub unsafe fn of<'a, P>(fid: *const P) -> &'a Arc<Domain> {
    // SAFETY: by the caller's promise.
    &unsafe { DomainObject::ours(fid) }.domain
}

/// `fi_domain`.
///
/// # Safety
/// `info` is C's, `dom` a place for the result, `fabric_address` that of the open fabric.
pub unsafe fn open(
    fabric: &Fabric,
    fabric_address: *mut fid_fabric,
    info: *mut fi_info,
    dom: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: by the caller's promise.
    let Some(info) = (unsafe { Hints::read(info) }) else { return -FI_EINVAL };
    let Some(format) = Format::of(info.addr_format) else { return -FI_EINVAL };
    let (mode, basic) = (info.domain.mr_mode, info.domain.mr_mode == FI_MR_BASIC);
    let config = match settings::read() {
        Ok(config) => config,
        Err(why) => {
            log!(FI_LOG_WARN, FI_LOG_DOMAIN, "{why}");
            tell_once_before_the_end(&why);
            return -why.errno();
        }
    };
    let progress = match [info.domain.data_progress, info.domain.control_progress].contains(&FI_PROGRESS_AUTO)
    {
        true => Progress::Automatic,
        false if config.background => Progress::Owed,
        false => Progress::Application,
    };
    let wanted = Wanted {
        api_version: fabric.api_version,
        format,
        config,
        by_address: basic || mode & FI_MR_VIRT_ADDR != 0,
        own_keys: basic || mode & FI_MR_PROV_KEY != 0,
        progress,
    };
    // SAFETY: that is what the application promises by this threading.
    let domain = match unsafe { Domain::open(wanted, info.domain.threading == FI_THREAD_DOMAIN) } {
        Ok(domain) => domain,
        Err(error) => {
            log!(FI_LOG_WARN, FI_LOG_DOMAIN, "automatic progress: {error}");
            return -error.raw_os_error().unwrap_or(FI_EIO);
        }
    };
    let fid = head(FI_CLASS_DOMAIN, context, &FID_OPS);
    let ours = DomainMember { domain: domain.clone(), _child: fabric.children.enter() };
    let address = DomainObject::give(fid_domain { fid, ops: &raw const OPS, mr: &raw const mr::OPS }, ours);
    registry::register(fabric_address, address, &domain);
    // SAFETY: a place for the result.
    unsafe { dom.write(address) };
    FI_SUCCESS
}

static FID_OPS: fi_ops = object::ops(close, bind, control);

static OPS: fi_ops_domain = fi_ops_domain {
    size: size_of::<fi_ops_domain>(),
    av_open,
    cq_open,
    endpoint,
    scalable_ep,
    cntr_open,
    poll_open,
    stx_ctx,
    srx_ctx,
    query_atomic: Some(query_atomic),
    query_collective: Some(query_collective),
    endpoint2: Some(endpoint2),
};

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: C closes what we gave it.
    let domain = unsafe { of(fid) };
    if !domain.lock().is_empty() {
        return -FI_EBUSY;
    }
    domain.stop();
    registry::unregister(fid);
    // SAFETY: as above; C uses it no more.
    drop(unsafe { DomainObject::take(fid) });
    FI_SUCCESS
}

unsafe extern "C" fn bind(fid: *mut fid, bfid: *mut fid, flags: u64) -> c_int {
    // SAFETY: open objects of C's.
    let (domain, class) = unsafe { (of(fid), (*bfid).fclass) };
    if class != FI_CLASS_EQ || flags & !FI_REG_MR != 0 {
        return -FI_EINVAL;
    }
    // SAFETY: an event queue.
    let eq = unsafe { eq::of(bfid) };
    if domain.report_to(eq, flags & FI_REG_MR != 0) { FI_SUCCESS } else { -FI_EINVAL }
}

/// Keys are at most 8 bytes here, so that a raw key is the key.
unsafe extern "C" fn control(_: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    match command {
        FI_MAP_RAW_MR => {
            // SAFETY: the command's argument.
            let Some(map) = (unsafe { arg.cast::<fi_mr_map_raw>().as_ref() }) else { return -FI_EINVAL };
            if map.key_size != size_of::<u64>() || map.raw_key.is_null() || map.key.is_null() {
                return -FI_EINVAL;
            }
            // SAFETY: 8 bytes of key, and a place for one.
            unsafe { map.key.write(map.raw_key.cast::<u64>().read_unaligned()) };
            FI_SUCCESS
        }
        FI_UNMAP_KEY => FI_SUCCESS,
        _ => -FI_ENOSYS,
    }
}

unsafe extern "C" fn av_open(
    domain: *mut fid_domain,
    attr: *mut fi_av_attr,
    av: *mut *mut fid_av,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as our caller says.
    unsafe { av::open(of(domain), attr, av, context) }
}

unsafe extern "C" fn cq_open(
    domain: *mut fid_domain,
    attr: *mut fi_cq_attr,
    cq: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as our caller says.
    unsafe { cq::open(of(domain), attr, cq, context) }
}

unsafe extern "C" fn cntr_open(
    domain: *mut fid_domain,
    attr: *mut fi_cntr_attr,
    cntr: *mut *mut fid_cntr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as our caller says.
    unsafe { cntr::open(of(domain), attr, cntr, context) }
}

unsafe extern "C" fn endpoint(
    domain: *mut fid_domain,
    info: *mut fi_info,
    ep: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as our caller says.
    unsafe { endpoint2(domain, info, ep, 0, context) }
}

unsafe extern "C" fn endpoint2(
    domain: *mut fid_domain,
    info: *mut fi_info,
    ep: *mut *mut fid_ep,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        return -FI_ENOSYS;
    }
    // SAFETY: as our caller says.
    unsafe { endpoint::open(of(domain), info, ep, context) }
}

unsafe extern "C" fn scalable_ep(
    _: *mut fid_domain,
    _: *mut fi_info,
    _: *mut *mut fid_ep,
    _: *mut c_void,
) -> c_int {
    -FI_ENOSYS
}

unsafe extern "C" fn poll_open(_: *mut fid_domain, _: *mut fi_poll_attr, _: *mut *mut fid_poll) -> c_int {
    -FI_ENOSYS
}

unsafe extern "C" fn stx_ctx(
    _: *mut fid_domain,
    _: *mut fi_tx_attr,
    _: *mut *mut fid_stx,
    _: *mut c_void,
) -> c_int {
    -FI_ENOSYS
}

unsafe extern "C" fn srx_ctx(
    _: *mut fid_domain,
    _: *mut fi_rx_attr,
    _: *mut *mut fid_ep,
    _: *mut c_void,
) -> c_int {
    -FI_ENOSYS
}

unsafe extern "C" fn query_collective(
    _: *mut fid_domain,
    _: fi_collective_op,
    _: *mut fi_collective_attr,
    _: u64,
) -> c_int {
    -FI_ENOSYS
}

/// The code of an atomic operation, if it is one that is done here: with it, the bytes in one element.
pub fn atomic_code(datatype: fi_datatype, op: fi_op, kind: AtomicKind) -> Option<(AtomicCode, usize)> {
    let code =
        AtomicCode { datatype: u8::try_from(datatype).ok()?, op: u8::try_from(op).ok()?, kind, count: 0 };
    let size = atomic::element_size(code.datatype)?;
    atomic::supported(code).then_some((code, size))
}

unsafe extern "C" fn query_atomic(
    _: *mut fid_domain,
    datatype: fi_datatype,
    op: fi_op,
    attr: *mut fi_atomic_attr,
    flags: u64,
) -> c_int {
    let kind = match flags {
        0 => AtomicKind::Update,
        FI_FETCH_ATOMIC => AtomicKind::Fetch,
        FI_COMPARE_ATOMIC => AtomicKind::Compare,
        FI_TAGGED => return -FI_EOPNOTSUPP,
        _ => return -FI_EINVAL,
    };
    let Some((_, size)) = atomic_code(datatype, op, kind) else { return -FI_EOPNOTSUPP };
    if !attr.is_null() {
        // SAFETY: a place for the answer.
        unsafe { attr.write(fi_atomic_attr { count: ATOMIC_MAX / size, size }) };
    }
    FI_SUCCESS
}
