//! The memory region object.
//!
//! A region belongs to the domain; every endpoint's worker, present and future, lets its peers reach it.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use libc::iovec;
use polyrail_core::proto::Access;
use polyrail_rails::Worker;
use polyrail_rails::rail::RawIov;

use super::{Object, cntr, domain, head};
use crate::domain::Domain;
use crate::ffi::*;
use crate::log::log;
use crate::object;
use crate::state::State;
use crate::state::regions::{Region, Regions};

struct MrMember {
    domain: Arc<Domain>,
    key: u64,
}

type MrObject = Object<fid_mr, MrMember>;

/// Lets a new worker's peers reach all regions.
pub fn offer_all(regions: &Regions, worker: &mut Worker) {
    for (key, region) in regions.iter() {
        offer(worker, key, region);
    }
}

fn offer(worker: &mut Worker, key: u64, region: &Region) {
    if region.access == Access::default() {
        return;
    }
    // SAFETY: the application keeps the memory until it closes the region, which deregisters it.
    let taken = unsafe { worker.register(key, region.memory, region.base, region.access) };
    debug_assert!(taken.is_ok(), "keys are unique in a domain, which is where workers' regions come from");
}

pub static OPS: fi_ops_mr = fi_ops_mr { size: size_of::<fi_ops_mr>(), reg, regv, regattr };

static FID_OPS: fi_ops = object::ops(close, bind, control);

/// A registration as asked for.
struct Wanted {
    memory: RawIov,
    access: u64,
    key: u64,
    flags: u64,
    context: *mut c_void,
}

impl Wanted {
    /// # Safety
    /// `fid` is an open domain, `mr` a place for the result; the memory stays as long as the region.
    unsafe fn register(self, fid: *mut fid, mr: *mut *mut fid_mr) -> c_int {
        // SAFETY: by the caller's promise.
        let domain = unsafe { domain::of(fid) };
        if self.flags & !(FI_RMA_EVENT | FI_RMA_PMEM | FI_MR_SINGLE_USE | FI_HMEM_HOST_ALLOC) != 0 {
            return -FI_EBADFLAGS;
        }
        // All of the address space at once would lay the process open.
        if isize::try_from(self.memory.len).is_err() {
            log!(FI_LOG_INFO, FI_LOG_MR, "a region of {} bytes is more than there can be", self.memory.len);
            return -FI_EINVAL;
        }
        let access =
            Access { read: self.access & FI_REMOTE_READ != 0, write: self.access & FI_REMOTE_WRITE != 0 };
        let base = if domain.is.by_address { self.memory.base.expose_provenance() as u64 } else { 0 };
        let mut state = domain.lock();
        let key = if domain.is.own_keys { free_key(&state) } else { self.key };
        if state.regions.contains(key) {
            return -FI_ENOKEY;
        }
        let region = Region { memory: self.memory, base, access, counters: [None; 2] };
        for worker in state.endpoints.values_mut().filter_map(|endpoint| endpoint.worker.as_mut()) {
            offer(worker, key, &region);
        }
        state.regions.insert(key, region);
        if state.regions.are_reached() {
            domain.note_owed(&mut state);
        }
        drop(state);
        let head = fid_mr {
            fid: head(FI_CLASS_MR, self.context, &FID_OPS),
            // local memory needs no registration
            mem_desc: ptr::null_mut(),
            key,
        };
        let object = MrObject::give(head, MrMember { domain: domain.clone(), key });
        // SAFETY: a place for the result.
        unsafe { mr.write(object) };
        if let Some(eq) = domain.registrations() {
            eq.push_entry(FI_MR_COMPLETE, object.cast(), self.context, 0);
        }
        FI_SUCCESS
    }
}

/// A key that is not in use, and that nobody guesses.
fn free_key(state: &State) -> u64 {
    loop {
        let mut key = 0u64;
        // SAFETY: 8 writable bytes; so few are never given in part.
        unsafe { libc::getrandom((&raw mut key).cast(), 8, 0) };
        if key != FI_KEY_NOTAVAIL && !state.regions.contains(key) {
            return key;
        }
    }
}

unsafe extern "C" fn reg(
    fid: *mut fid,
    buf: *const c_void,
    len: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    mr: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    if offset != 0 {
        return -FI_EINVAL;
    }
    let memory = RawIov { base: buf.cast_mut().cast(), len };
    // SAFETY: as our caller says.
    unsafe { Wanted { memory, access, key: requested_key, flags, context }.register(fid, mr) }
}

unsafe extern "C" fn regv(
    fid: *mut fid,
    iov: *const iovec,
    count: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    mr: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    if count != 1 || iov.is_null() {
        return -FI_EINVAL;
    }
    // SAFETY: as our caller says.
    unsafe { reg(fid, (*iov).iov_base, (*iov).iov_len, access, offset, requested_key, flags, mr, context) }
}

unsafe extern "C" fn regattr(
    fid: *mut fid,
    attr: *const fi_mr_attr,
    flags: u64,
    mr: *mut *mut fid_mr,
) -> c_int {
    if flags & FI_MR_DMABUF != 0 {
        return -FI_EOPNOTSUPP;
    }
    // SAFETY: C's attribute; only fields that every version has are read.
    unsafe {
        if (*attr).iface != FI_HMEM_SYSTEM {
            log!(FI_LOG_INFO, FI_LOG_MR, "device memory (interface {}) is not supported", (*attr).iface);
            return -FI_EOPNOTSUPP;
        }
        let (iov, count) = ((*attr).mr_iov, (*attr).iov_count);
        regv(
            fid,
            iov,
            count,
            (*attr).access,
            (*attr).offset,
            (*attr).requested_key,
            flags,
            mr,
            (*attr).context,
        )
    }
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: C closes what we gave it.
    let MrMember { domain, key } = unsafe { MrObject::take(fid) };
    let mut state = domain.lock();
    let state = &mut *state;
    if let Some(region) = state.regions.remove(key) {
        for cntr in region.counters.into_iter().flatten() {
            state.cntrs[cntr].regions -= 1;
        }
    }
    for worker in state.endpoints.values_mut().filter_map(|endpoint| endpoint.worker.as_mut()) {
        worker.deregister(key);
    }
    FI_SUCCESS
}

/// Endpoints need no binding: regions are the domain's. Counters count what peers do.
unsafe extern "C" fn bind(fid: *mut fid, bfid: *mut fid, flags: u64) -> c_int {
    // SAFETY: open objects of C's.
    let (ours, class) = unsafe { (MrObject::ours(fid), (*bfid).fclass) };
    match class {
        FI_CLASS_EP => return FI_SUCCESS,
        FI_CLASS_CNTR => {}
        _ => return -FI_EINVAL,
    }
    if flags & !(FI_REMOTE_READ | FI_REMOTE_WRITE) != 0 {
        return -FI_EBADFLAGS;
    }
    // SAFETY: a counter.
    let cntr = unsafe { cntr::member(bfid) };
    if !Arc::ptr_eq(&cntr.domain, &ours.domain) {
        return -FI_EDOMAIN;
    }
    let mut state = ours.domain.lock();
    let state = &mut *state;
    state.regions.counted = true;
    for worker in state.endpoints.values_mut().filter_map(|endpoint| endpoint.worker.as_mut()) {
        worker.tell_reads(true);
    }
    let Some(region) = state.regions.get_mut(ours.key) else { return -FI_EINVAL };
    for (slot, flag) in region.counters.iter_mut().zip([FI_REMOTE_READ, FI_REMOTE_WRITE]) {
        if flags & flag != 0 {
            if slot.is_some() {
                return -FI_EINVAL;
            }
            *slot = Some(cntr.key);
            state.cntrs[cntr.key].regions += 1;
        }
    }
    FI_SUCCESS
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    match command {
        // Regions are enabled at once, and follow the page tables.
        FI_ENABLE | FI_REFRESH => FI_SUCCESS,
        // SAFETY: the command's argument.
        FI_GET_RAW_MR => unsafe { raw_key(fid, arg.cast()) },
        _ => -FI_ENOSYS,
    }
}

/// # Safety
/// `fid` is an open region, `attr` C's argument of `FI_GET_RAW_MR`.
unsafe fn raw_key(fid: *mut fid, attr: *mut fi_mr_raw_attr) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe {
        let MrMember { domain, key } = MrObject::ours(fid);
        let base = domain.lock().regions.get(*key).map_or(0, |region| region.base);
        let room = std::mem::replace(&mut *(*attr).key_size, size_of::<u64>());
        if !(*attr).base_addr.is_null() {
            (*attr).base_addr.write(base);
        }
        if room < size_of::<u64>() || (*attr).raw_key.is_null() {
            return -FI_ETOOSMALL;
        }
        (*attr).raw_key.cast::<u64>().write_unaligned(*key);
    }
    FI_SUCCESS
}
