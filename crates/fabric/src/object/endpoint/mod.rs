//! Endpoints: the object, its bindings, its life.
//!
//! Files: `bind` what it is bound to, enabling, aliases; `message` sending and
//! receiving, for the tables `msg` and `tagged`; `rma`; `atomic`; `options` what can be set, cancelling; `cm` names.
//!
//! A data call does this: take the domain's lock, find the peer, tell the worker; and if the operation is complete with that,
//! count it and push an entry. All others are completed by [`crate::progress`].

mod atomic;
mod bind;
mod cm;
mod message;
mod msg;
mod options;
mod rma;
mod tagged;

use std::ffi::{c_int, c_void};
use std::fmt::Display;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use polyrail_rails::list::Reach;
use polyrail_rails::{Config, Error, Linger, Worker};

use super::{Object, head, mr};
use crate::address::{Format, Source};
use crate::companion;
use crate::domain::{Domain, Member};
use crate::ffi::*;
use crate::info::hints::Hints;
use crate::lock::Guard;
use crate::log::{log, tell_once, tell_once_before_the_end};
use crate::object;
use crate::registry;
use crate::slurm;
use crate::state::completion::Class;
use crate::state::endpoint::Endpoint;
use crate::state::slab::Key;
use crate::state::{Sinks, State};
use crate::threads;

/// An endpoint, or an alias of one, as C has it.
pub struct EpMember {
    member: Member<Endpoint>,
    /// Flags of operations that take none, of either direction.
    tx_flags: AtomicU64,
    rx_flags: AtomicU64,
    /// What `tx_flags` are for messages.
    message_flags: AtomicU64,
    alias: bool,
}

type EpObject = Object<fid_ep, EpMember>;

impl EpMember {
    /// A data call: `f` with the endpoint, which is enabled; afterwards, who sleeps hears of what is to be done.
    fn call(&self, f: impl FnOnce(&mut Endpoint, &mut Sinks<'_>) -> Result<(), c_int>) -> isize {
        self.call_in(self.member.lock(), f)
    }

    #[inline(always)]
    fn call_in(
        &self,
        mut state: Guard<'_, State>,
        f: impl FnOnce(&mut Endpoint, &mut Sinks<'_>) -> Result<(), c_int>,
    ) -> isize {
        let (endpoint, mut sinks) = match self.enter(&mut state) {
            Ok(both) => both,
            Err(code) => return code,
        };
        let result = f(endpoint, &mut sinks);
        let busy = is_busy(endpoint, &sinks);
        self.leave(state, result, busy)
    }

    /// The beginning of a data call: the endpoint, if it is enabled.
    #[inline(always)]
    fn enter<'a>(&self, state: &'a mut State) -> Result<(&'a mut Endpoint, Sinks<'a>), isize> {
        state.idle.busy();
        let (endpoint, sinks) = state.split(self.member.key);
        if endpoint.enabled { Ok((endpoint, sinks)) } else { Err(-(FI_EOPBADSTATE as isize)) }
    }

    /// Its end: C's result. `busy` is what [`is_busy`] said.
    #[inline(always)]
    fn leave(&self, state: Guard<'_, State>, result: Result<(), c_int>, busy: bool) -> isize {
        if busy {
            self.follow_up(state);
        } else if let Some(state) = state.end_unless_shared() {
            // a thread that makes progress shares the lock
            self.leave_shared(state);
        }
        match result {
            Ok(()) => 0,
            Err(code) => refuse(code),
        }
    }

    #[inline(never)]
    fn leave_shared(&self, state: Guard<'_, State>) {
        if self.member.domain.auto().is_some() {
            self.follow_up(state);
        }
    }

    /// Who sleeps hears of what is to be done, and what was held back is not forgotten.
    #[inline(never)]
    fn follow_up(&self, mut state: Guard<'_, State>) {
        let domain = &self.member.domain;
        let (endpoint, mut sinks) = state.split(self.member.key);
        endpoint.after_call(&mut sinks);
        let holds_back = endpoint.holds_back();
        let began_long = std::mem::take(&mut endpoint.began_long);
        if let Some(auto) = domain.auto()
            && auto.is_asleep()
            && !endpoint.arm()
        {
            auto.kick();
        }
        if began_long {
            domain.note_owed(&mut state);
        }
        if holds_back {
            domain.note_held(&mut state);
        }
    }

    #[inline]
    fn tx_flags(&self) -> u64 {
        self.tx_flags.load(Ordering::Relaxed)
    }

    /// Flags of messages that take none.
    #[inline]
    fn message_flags(&self) -> u64 {
        self.message_flags.load(Ordering::Relaxed)
    }

    #[inline]
    fn rx_flags(&self) -> u64 {
        self.rx_flags.load(Ordering::Relaxed)
    }
}

/// Whether a call has to be followed up: somebody sleeps, something is held back, or is to go on while the application computes.
#[inline(always)]
fn is_busy(endpoint: &mut Endpoint, sinks: &Sinks<'_>) -> bool {
    sinks.awaited.any() || endpoint.began_long || endpoint.at_work().holds_back()
}

/// C's form of an error. Apart: it is not what is to be expected.
#[cold]
fn refuse(code: c_int) -> isize {
    code as isize
}

/// A worker for an endpoint that has none. What stands in the way is told, but for an address that the application has chosen:
/// it may try another one.
fn listening_worker(endpoint: &Endpoint, domain: &Domain) -> Result<Worker, c_int> {
    let failed = |why: &dyn Display, errno: Option<c_int>| {
        log!(FI_LOG_WARN, FI_LOG_EP_CTRL, "endpoint: {why}");
        -errno.unwrap_or(FI_EIO)
    };
    // who polls in vain rests where he polls (`crate::object::cq`), without the domain's lock
    let mut config = Config { yielding: false, sleep_after: None, ..domain.is.config.clone() };
    if !endpoint.shared_memory {
        config.rails = config.rails.without(Reach::Host);
    }
    match endpoint.source.with_port().map_err(|error| failed(&error, error.raw_os_error()))? {
        Source::Anywhere => {}
        Source::At(at) => config = config.listen_on(at),
        Source::Again(address) => (config.key, config.port) = (Some(address.key()), address.port()),
    }
    Worker::open(config).map_err(|error| {
        if endpoint.source == Source::Anywhere || matches!(error, Error::Setting { .. }) {
            tell_once_before_the_end(&error);
        }
        failed(&error, Some(error.errno()))
    })
}

/// Opens an endpoint's worker, and connects it with all that wants to know.
fn open_worker(
    endpoint: &mut Endpoint,
    key: Key<Endpoint>,
    domain: &Domain,
    sinks: &mut Sinks<'_>,
) -> Result<(), c_int> {
    if endpoint.worker.is_some() {
        return Ok(());
    }
    if let Some(why) = companion::missing() {
        tell_once_before_the_end(&why);
        log!(FI_LOG_WARN, FI_LOG_EP_CTRL, "endpoint: {why}");
        return Err(-libc::ELIBACC);
    }
    let mut worker = listening_worker(endpoint, domain)?;
    mr::offer_all(sinks.regions, &mut worker);
    worker.tell_reads(sinks.regions.counted || endpoint.counter[Class::RemoteRead as usize].is_some());
    if let Err(why) = polyrail_rails::report("libfabric provider") {
        log!(
            FI_LOG_WARN,
            FI_LOG_EP_CTRL,
            "polyrail run cannot be told that this process uses Polyrail: {why}"
        );
    }
    if let Some(warning) = slurm::strangers() {
        tell_once(&warning);
    }
    let fd = worker.wait_fd();
    let attached = domain.auto().map_or(Ok(()), |auto| auto.attach(fd)).and_then(|()| {
        endpoint.queues().try_for_each(|cq| sinks.cqs[cq].wait.attach(fd))?;
        endpoint.unique_counters().into_iter().try_for_each(|cntr| sinks.cntrs[cntr].wait.attach(fd))?;
        let others = sinks.cntrs.values_mut().filter(|cntr| cntr.regions > 0 && !cntr.users.contains(&key));
        others.into_iter().try_for_each(|cntr| cntr.wait.attach(fd))
    });
    attached.map_err(|error| -error.raw_os_error().unwrap_or(FI_EIO))?;
    endpoint.worker = Some(worker);
    Ok(())
}

/// `fi_endpoint`.
///
/// # Safety
/// `info` is C's, `ep` a place for the result.
pub unsafe fn open(
    domain: &Arc<Domain>,
    info: *mut fi_info,
    ep: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: by the caller's promise.
    let Some(info) = (unsafe { Hints::read(info) }) else { return -FI_EINVAL };
    if !matches!(info.ep.kind, FI_EP_UNSPEC | FI_EP_RDM) || info.ep.tx_ctx_cnt > 1 || info.ep.rx_ctx_cnt > 1 {
        return -FI_EINVAL;
    }
    let source = match &info.src_addr {
        None => Some(Source::Anywhere),
        Some(bytes) => Source::read(domain.is.format, bytes),
    };
    let Some(source) = source else { return -FI_EINVAL };
    // An endpoint without a name of its own still has an IP and port where addresses are written so.
    let source = match (source, domain.is.format) {
        (Source::Anywhere, Format::V4 | Format::V6) => {
            match Source::read(domain.is.format, &source.write(domain.is.format)) {
                Some(named) => named,
                None => return -FI_EINVAL,
            }
        }
        (source, _) => source,
    };
    let new = Endpoint::new(info.caps, domain.is.format, source, context.expose_provenance() as u64);
    let key = domain.lock().endpoints.insert(new);
    let member = EpMember {
        member: Member::new(domain, key),
        tx_flags: AtomicU64::new(info.tx.op_flags),
        rx_flags: AtomicU64::new(info.rx.op_flags),
        message_flags: AtomicU64::new(message::of_all(info.tx.op_flags, domain)),
        alias: false,
    };
    // SAFETY: a place for the result.
    unsafe { ep.write(give(member, context)) };
    FI_SUCCESS
}

fn give(member: EpMember, context: *mut c_void) -> *mut fid_ep {
    let head = fid_ep {
        fid: head(FI_CLASS_EP, context, &FID_OPS),
        ops: &raw const options::OPS,
        cm: &raw const cm::OPS,
        msg: &raw const msg::OPS,
        rma: &raw const rma::OPS,
        tagged: &raw const tagged::OPS,
        atomic: &raw const atomic::OPS,
        collective: ptr::null(),
    };
    EpObject::give(head, member)
}

static FID_OPS: fi_ops = object::ops(close, bind::bind, bind::control);

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: C closes what we gave it.
    let ours = unsafe { EpObject::ours(fid) };
    let (domain, key) = (&ours.member.domain, ours.member.key);
    let mut state = domain.lock();
    if ours.alias {
        state.endpoints[key].aliases -= 1;
    } else if state.endpoints[key].aliases > 0 {
        return -FI_EBUSY;
    } else if let Some(endpoint) = state.endpoints.remove(key.number) {
        let fd = endpoint.wait_fd();
        // of all, whatever it was bound to: nobody may have its key from now on
        for cq in state.cqs.values_mut() {
            cq.forget(key.number);
            fd.iter().for_each(|&fd| cq.wait.detach(fd));
        }
        for cntr in state.cntrs.values_mut() {
            cntr.users.retain(|&user| user != key);
            fd.iter().for_each(|&fd| cntr.wait.detach(fd));
        }
        for av in state.avs.values_mut() {
            av.users.retain(|&user| user != key);
        }
        drop(state);
        if let (Some(auto), Some(fd)) = (domain.auto(), fd) {
            auto.detach(fd);
        }
        if let Some(worker) = endpoint.worker {
            part(worker, domain);
        }
    }
    // SAFETY: as above; C uses it no more.
    drop(unsafe { EpObject::take(fid) });
    FI_SUCCESS
}

/// Whether no other thread of this process could be at anything, but ours, which take locks that they share.
fn is_only_thread() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() <= 1 + threads::ours())
}

/// Closes a worker once all that it sent has arrived, or the time is over ([`Linger`]). The peers that must answer may live in this very
/// process, and only this thread may be there to make progress for them.
fn part(mut worker: Worker, own: &Arc<Domain>) {
    let mut linger = Linger::new(own.is.config.linger);
    let alone = is_only_thread();
    if alone {
        let others = registry::open_domains();
        others.iter().for_each(|domain| domain.lock().addresses().for_each(|address| linger.beside(address)));
    }
    while !worker.is_quiet() && linger.goes_on(&mut worker) {
        let mut moved = worker.progress() > 0;
        while worker.next_event().is_some() {}
        for domain in registry::open_domains() {
            let ours = alone || Arc::ptr_eq(&domain, own);
            if let Some(mut state) = domain.try_lock().or_else(|| ours.then(|| domain.lock())) {
                moved |= state.progress_everywhere();
            }
        }
        if !moved {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    if let Err(why) = polyrail_rails::report_end(|| worker.snapshot().carried()) {
        log!(FI_LOG_WARN, FI_LOG_EP_CTRL, "polyrail run cannot be told what went by this endpoint: {why}");
    }
    let left = linger.left(&worker);
    worker.close(left);
}
