//! The domain object: all that its endpoints share, under one lock.
//!
//! One lock for all is what makes the rest simple: an operation takes it once, then touches endpoint, queue and counter as it
//! likes. It costs two atomic instructions when nobody else wants it, none with `FI_THREAD_DOMAIN`, and applications that use
//! several threads at full speed open a domain for each.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use polyrail_core::frame::{AtomicCode, AtomicKind};
use polyrail_rails::{Config, Idle, atomic};

use crate::address::Format;
use crate::auto::Auto;
use crate::av::{self, Av};
use crate::cntr::{self, Cntr};
use crate::cq::{self, Cq};
use crate::endpoint::{self, Endpoint};
use crate::eq::Eq;
use crate::fabric::{self, Fabric};
use crate::ffi::*;
use crate::info::hints::Hints;
use crate::info::offer::ATOMIC_MAX;
use crate::lock::{Guard, Lock};
use crate::mr::{self, Regions};
use crate::object::{self, Object, Slab, head};
use crate::provider::{self, log};
use crate::pusher::Pusher;
use crate::wait::Awaited;

type DomainObject = Object<fid_domain, Arc<Domain>>;

/// One open domain.
pub struct Domain {
    fabric: Arc<Fabric>,
    /// The API version that the application asked for.
    pub api_version: u32,
    /// How addresses are written.
    pub format: Format,
    /// Settings of its endpoints.
    pub config: Config,
    /// Regions are addressed by virtual address, not by offset.
    pub by_address: bool,
    /// We choose the keys of regions.
    pub own_keys: bool,
    state: Lock<State>,
    auto: Option<Auto>,
    pusher: Pusher,
    eq: OnceLock<(Arc<Eq>, bool)>,
    /// Rounds of progress that applications have asked for.
    polls: AtomicU64,
}

/// What is in a domain. Objects are known by their numbers.
#[derive(Default)]
pub struct State {
    pub endpoints: Slab<Endpoint>,
    pub cqs: Slab<Cq>,
    pub cntrs: Slab<Cntr>,
    pub avs: Slab<Av>,
    pub regions: Regions,
    pub awaited: Awaited,
    /// What reading empty queues does.
    pub idle: Idle,
}

impl std::fmt::Debug for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Domain").field("format", &self.format).finish_non_exhaustive()
    }
}

impl Domain {
    /// All that is in it.
    #[inline]
    pub fn lock(&self) -> Guard<'_, State> {
        self.state.lock()
    }

    /// The same, if it is certain that nobody else is at it.
    pub fn try_lock(&self) -> Option<Guard<'_, State>> {
        self.state.try_lock()
    }

    /// An application asks for progress: it needs no help at the moment. Called under the lock.
    #[inline]
    pub fn polled(&self) {
        if let Some(auto) = &self.auto {
            self.polls.store(self.polls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            auto.relieve();
        }
    }

    /// How often it has.
    pub fn polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
    }

    /// The thread that makes progress by itself, if there is one.
    pub fn auto(&self) -> Option<&Auto> {
        self.auto.as_ref()
    }

    /// The thread that sends what is held back.
    pub fn pusher(&self) -> &Pusher {
        &self.pusher
    }

    /// Ends both threads.
    pub fn stop(&self) {
        self.pusher.stop();
        if let Some(auto) = &self.auto {
            auto.stop();
        }
    }

    /// The event queue to which registrations are reported, if that was asked for.
    pub fn registrations(&self) -> Option<&Eq> {
        self.eq.get().filter(|(_, registrations)| *registrations).map(|(eq, _)| &**eq)
    }
}

/// An object of a domain, by its number there.
#[derive(Debug)]
pub struct Member {
    pub domain: Arc<Domain>,
    pub number: usize,
}

impl Member {
    pub fn new(domain: &Arc<Domain>, number: usize) -> Self {
        Self { domain: domain.clone(), number }
    }

    #[inline]
    pub fn lock(&self) -> Guard<'_, State> {
        self.domain.lock()
    }
}

/// `fi_domain`.
///
/// # Safety
/// `info` is C's, `dom` a place for the result, `fabric_address` that of the open fabric.
pub unsafe fn open(
    fabric: &Arc<Fabric>,
    fabric_address: *mut fid_fabric,
    info: *mut fi_info,
    dom: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    // SAFETY: by the caller's promise.
    let Some(info) = (unsafe { Hints::read(info) }) else { return -FI_EINVAL };
    let Some(format) = Format::of(info.addr_format) else { return -FI_EINVAL };
    let (mode, basic) = (info.domain.mr_mode, info.domain.mr_mode == FI_MR_BASIC);
    let config = match provider::settings() {
        Ok(config) => config,
        Err(why) => {
            log!(FI_LOG_WARN, FI_LOG_DOMAIN, "{why}");
            return -why.errno();
        }
    };
    let auto = [info.domain.data_progress, info.domain.control_progress].contains(&FI_PROGRESS_AUTO);
    let auto = match auto.then(Auto::new).transpose() {
        Ok(auto) => auto,
        Err(error) => {
            log!(FI_LOG_WARN, FI_LOG_DOMAIN, "automatic progress: {error}");
            return -error.raw_os_error().unwrap_or(FI_EIO);
        }
    };
    let state = State { idle: Idle::new(config.yielding, config.sleep_after), ..State::default() };
    let state = match info.domain.threading {
        // SAFETY: the application serialises its calls, and a thread of ours has the lock shared before it begins.
        FI_THREAD_DOMAIN if auto.is_none() => unsafe { Lock::private(state) },
        _ => Lock::new(state),
    };
    let new = Arc::new(Domain {
        fabric: fabric.clone(),
        api_version: fabric.api_version,
        format,
        config,
        by_address: basic || mode & FI_MR_VIRT_ADDR != 0,
        own_keys: basic || mode & FI_MR_PROV_KEY != 0,
        state,
        auto,
        pusher: Pusher::default(),
        eq: OnceLock::new(),
        polls: AtomicU64::new(0),
    });
    if let Some(auto) = &new.auto
        && let Err(error) = auto.start(&new)
    {
        log!(FI_LOG_WARN, FI_LOG_DOMAIN, "a thread for automatic progress: {error}");
        return -error.raw_os_error().unwrap_or(FI_EIO);
    }
    fabric.enter();
    let fid = head(FI_CLASS_DOMAIN, context, &FID_OPS);
    let address =
        DomainObject::give(fid_domain { fid, ops: &raw const OPS, mr: &raw const mr::OPS }, new.clone());
    fabric::register(fabric_address, address, &new);
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
    let domain = unsafe { DomainObject::ours(fid) };
    {
        let state = domain.lock();
        let empty = state.endpoints.is_empty() && state.cqs.is_empty() && state.cntrs.is_empty();
        if !(empty && state.avs.is_empty() && state.regions.is_empty()) {
            return -FI_EBUSY;
        }
    }
    domain.stop();
    fabric::unregister(fid);
    // SAFETY: as above; C uses it no more.
    unsafe { DomainObject::take(fid) }.fabric.leave();
    FI_SUCCESS
}

unsafe extern "C" fn bind(fid: *mut fid, bfid: *mut fid, flags: u64) -> c_int {
    // SAFETY: open objects of C's.
    let (domain, class) = unsafe { (DomainObject::ours(fid), (*bfid).fclass) };
    if class != FI_CLASS_EQ || flags & !FI_REG_MR != 0 {
        return -FI_EINVAL;
    }
    // SAFETY: an event queue.
    let eq = unsafe { Eq::of(bfid) };
    match domain.eq.set((eq, flags & FI_REG_MR != 0)) {
        Ok(()) => FI_SUCCESS,
        Err(_) => -FI_EINVAL,
    }
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
    unsafe { av::open(DomainObject::ours(domain), attr, av, context) }
}

unsafe extern "C" fn cq_open(
    domain: *mut fid_domain,
    attr: *mut fi_cq_attr,
    cq: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as our caller says.
    unsafe { cq::open(DomainObject::ours(domain), attr, cq, context) }
}

unsafe extern "C" fn cntr_open(
    domain: *mut fid_domain,
    attr: *mut fi_cntr_attr,
    cntr: *mut *mut fid_cntr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as our caller says.
    unsafe { cntr::open(DomainObject::ours(domain), attr, cntr, context) }
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
    unsafe { endpoint::open(DomainObject::ours(domain), info, ep, context) }
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
