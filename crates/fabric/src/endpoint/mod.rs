//! Endpoints: the object, its bindings, its life.
//!
//! Files: `bind` what it is bound to, enabling, aliases; `peers` addresses to peers and back; `message` sending and
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
mod peers;
mod rma;
mod tagged;

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use polyrail_core::frame::OpId;
use polyrail_core::proto::Envelope;
use polyrail_rails::rail::Reach;
use polyrail_rails::{Config, INJECT_MAX, Worker};

use crate::address::{Format, Source};
use crate::domain::{Domain, Member, State};
use crate::fabric;
use crate::ffi::*;
use crate::info::hints::Hints;
use crate::info::offer::MSG_MAX;
use crate::lock::Guard;
use crate::object::{self, Object, Slab, head};
use crate::progress::{Class, Sinks};
use crate::provider::log;

/// An endpoint, or an alias of one, as C has it.
pub struct EpMember {
    member: Member,
    /// Flags of operations that take none, of either direction.
    tx_flags: AtomicU64,
    rx_flags: AtomicU64,
    alias: bool,
}

type EpObject = Object<fid_ep, EpMember>;

/// What does not fit into a worker's `User`.
#[derive(Debug)]
pub struct Extra {
    /// The application's context.
    pub context: u64,
    /// First byte of a multi-receive buffer.
    pub base: u64,
    /// A copy that the operation sends from.
    _copy: Option<Box<[u8]>>,
}

/// Sizes that applications may lower.
#[derive(Clone, Copy, Debug)]
struct Limits {
    msg: usize,
    tagged: usize,
    rma: usize,
    atomic: usize,
    inject_msg: usize,
    inject_tagged: usize,
    inject_rma: usize,
    inject_atomic: usize,
}

/// One endpoint. Under its domain's lock.
pub struct Endpoint {
    /// There from `fi_enable` (or the first `fi_getname`) on.
    pub worker: Option<Worker>,
    enabled: bool,
    pub tx_cq: Option<usize>,
    pub rx_cq: Option<usize>,
    /// `FI_COMPLETION`, unless completions are selective.
    tx_always: u64,
    rx_always: u64,
    /// By [`crate::progress::Class`].
    pub counter: [Option<usize>; 6],
    pub extras: Slab<Extra>,
    /// Peers by `fi_addr_t`, as far as they have been used.
    peers: Vec<u32>,
    /// `fi_addr_t` by peer, as far as they have been asked for.
    numbers: Vec<fi_addr_t>,
    av: Option<usize>,
    /// Receives may name their source: untagged ones, tagged ones.
    directed: bool,
    directed_tagged: bool,
    sources: bool,
    pub source_err: bool,
    least_multi: u64,
    shared_memory: bool,
    limits: Limits,
    /// Contexts of receives by their operation's slot, for cancelling; an entry may be out of date.
    posted: Vec<(u64, u32)>,
    /// Messages claimed, by context.
    claims: HashMap<u64, (OpId, Envelope)>,
    /// The endpoint's own context.
    pub context: u64,
    caps: u64,
    pub format: Format,
    source: Source,
    aliases: usize,
}

impl Endpoint {
    /// The queues, each once.
    #[inline]
    pub fn queues(&self) -> impl Iterator<Item = usize> + use<> {
        let rx = self.rx_cq.filter(|_| self.rx_cq != self.tx_cq);
        self.tx_cq.into_iter().chain(rx)
    }

    /// The counters, perhaps several times.
    pub fn counters(&self) -> impl Iterator<Item = usize> + use<> {
        self.counter.into_iter().flatten()
    }

    /// The descriptor of its worker.
    pub fn wait_fd(&self) -> Option<RawFd> {
        self.worker.as_ref().map(Worker::wait_fd)
    }

    /// Whether a sleeper would be woken by what comes; false when there is something already.
    pub fn arm(&mut self) -> bool {
        self.worker.as_mut().is_none_or(Worker::arm)
    }

    /// Sees whether peers live, where giving the processor away lets long pass between two rounds of progress.
    pub fn look_around(&mut self) {
        if let Some(worker) = &mut self.worker {
            worker.look_around();
        }
    }

    /// Whether a call has to be followed up: somebody sleeps, or something is held back.
    #[inline]
    fn is_busy(&self, sinks: &Sinks<'_>, domain: &Domain) -> bool {
        sinks.awaited.any() || domain.auto().is_some() || self.worker.as_ref().is_some_and(Worker::holds_back)
    }

    /// Opens the worker, and connects it with all that wants to know.
    fn open_worker(&mut self, number: usize, domain: &Domain, sinks: &mut Sinks<'_>) -> Result<(), c_int> {
        if self.worker.is_some() {
            return Ok(());
        }
        let open = || {
            let mut config = Config { yielding: false, ..domain.config.clone() };
            if !self.shared_memory {
                config.rails = config.rails.without(Reach::Host);
            }
            match self.source.with_port().map_err(|error| (error.to_string(), error.raw_os_error()))? {
                Source::Anywhere => {}
                Source::At(at) => config = config.listen_on(at),
                Source::Again(address) => (config.key, config.port) = (Some(address.key()), address.port()),
            }
            Worker::open(config).map_err(|error| (error.to_string(), Some(error.errno())))
        };
        let mut worker = open().map_err(|(why, errno)| {
            log!(FI_LOG_WARN, FI_LOG_EP_CTRL, "endpoint: {why}");
            -errno.unwrap_or(FI_EIO)
        })?;
        sinks.regions.offer(&mut worker);
        worker.tell_reads(sinks.regions.counted || self.counter[Class::RemoteRead as usize].is_some());
        if let Err(why) = polyrail_rails::report("libfabric provider") {
            log!(
                FI_LOG_WARN,
                FI_LOG_EP_CTRL,
                "polyrail run cannot be told that this process uses Polyrail: {why}"
            );
        }
        let fd = worker.wait_fd();
        let attached = domain.auto().map_or(Ok(()), |auto| auto.attach(fd)).and_then(|()| {
            self.queues().try_for_each(|cq| sinks.cqs[cq].wait.attach(fd))?;
            self.unique_counters().into_iter().try_for_each(|cntr| sinks.cntrs[cntr].wait.attach(fd))?;
            let others =
                sinks.cntrs.values_mut().filter(|cntr| cntr.regions > 0 && !cntr.users.contains(&number));
            others.into_iter().try_for_each(|cntr| cntr.wait.attach(fd))
        });
        attached.map_err(|error| -error.raw_os_error().unwrap_or(FI_EIO))?;
        self.worker = Some(worker);
        Ok(())
    }

    fn unique_counters(&self) -> Vec<usize> {
        let mut all: Vec<_> = self.counters().collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

impl EpMember {
    /// A data call: `f` with the endpoint, which is enabled; afterwards, who sleeps hears of what is to be done.
    fn call(&self, f: impl FnOnce(&mut Endpoint, &mut Sinks<'_>) -> Result<(), c_int>) -> isize {
        let mut state = self.member.lock();
        self.call_in(&mut state, f)
    }

    fn call_in(
        &self,
        state: &mut Guard<'_, State>,
        f: impl FnOnce(&mut Endpoint, &mut Sinks<'_>) -> Result<(), c_int>,
    ) -> isize {
        let (endpoint, mut sinks) = match self.enter(state) {
            Ok(both) => both,
            Err(code) => return code,
        };
        let result = f(endpoint, &mut sinks);
        let busy = endpoint.is_busy(&sinks, &self.member.domain);
        self.leave(state, result, busy)
    }

    /// The beginning of a data call: the endpoint, if it is enabled.
    #[inline(always)]
    fn enter<'a>(&self, state: &'a mut State) -> Result<(&'a mut Endpoint, Sinks<'a>), isize> {
        state.idle.busy();
        let (endpoint, sinks) = state.split(self.member.number);
        if endpoint.enabled { Ok((endpoint, sinks)) } else { Err(-(FI_EOPBADSTATE as isize)) }
    }

    /// Its end: C's result. `busy` is what [`Endpoint::is_busy`] said.
    #[inline(always)]
    fn leave(&self, state: &mut Guard<'_, State>, result: Result<(), c_int>, busy: bool) -> isize {
        if busy {
            self.follow_up(state);
        }
        match result {
            Ok(()) => 0,
            Err(code) => code as isize,
        }
    }

    /// Who sleeps hears of what is to be done, and what was held back is not forgotten.
    #[inline(never)]
    fn follow_up(&self, state: &mut Guard<'_, State>) {
        let domain = &self.member.domain;
        let (endpoint, mut sinks) = state.split(self.member.number);
        endpoint.after_call(&mut sinks);
        let holds_back = endpoint.worker.as_ref().is_some_and(Worker::holds_back);
        if let Some(auto) = domain.auto()
            && auto.is_asleep()
            && !endpoint.arm()
        {
            auto.kick();
        }
        if holds_back {
            domain.pusher().note(domain, state);
        }
    }

    #[inline]
    fn tx_flags(&self) -> u64 {
        self.tx_flags.load(Ordering::Relaxed)
    }

    #[inline]
    fn rx_flags(&self) -> u64 {
        self.rx_flags.load(Ordering::Relaxed)
    }
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
        Some(bytes) => Source::read(domain.format, bytes),
    };
    let Some(source) = source else { return -FI_EINVAL };
    // An endpoint without a name of its own still has an IP and port where addresses are written so.
    let source = match (source, domain.format) {
        (Source::Anywhere, Format::V4 | Format::V6) => {
            match Source::read(domain.format, &source.write(domain.format)) {
                Some(named) => named,
                None => return -FI_EINVAL,
            }
        }
        (source, _) => source,
    };
    let caps = if info.caps == 0 { u64::MAX } else { info.caps };
    let has = |bits: u64| caps & bits != 0;
    let new = Endpoint {
        worker: None,
        enabled: false,
        tx_cq: None,
        rx_cq: None,
        tx_always: 0,
        rx_always: 0,
        counter: [None; 6],
        extras: Slab::default(),
        peers: Vec::new(),
        numbers: Vec::new(),
        av: None,
        directed: has(FI_DIRECTED_RECV),
        directed_tagged: has(FI_DIRECTED_RECV | FI_TAGGED_DIRECTED_RECV),
        sources: has(FI_SOURCE),
        source_err: info.caps & FI_SOURCE_ERR != 0,
        least_multi: 64,
        shared_memory: true,
        limits: Limits {
            msg: MSG_MAX,
            tagged: MSG_MAX,
            rma: MSG_MAX,
            atomic: MSG_MAX,
            inject_msg: INJECT_MAX,
            inject_tagged: INJECT_MAX,
            inject_rma: INJECT_MAX,
            inject_atomic: INJECT_MAX,
        },
        posted: Vec::new(),
        claims: HashMap::new(),
        context: context.expose_provenance() as u64,
        caps,
        format: domain.format,
        source,
        aliases: 0,
    };
    let number = domain.lock().endpoints.insert(new);
    let member = EpMember {
        member: Member::new(domain, number),
        tx_flags: AtomicU64::new(info.tx.op_flags),
        rx_flags: AtomicU64::new(info.rx.op_flags),
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
    let (domain, number) = (&ours.member.domain, ours.member.number);
    let mut state = domain.lock();
    if ours.alias {
        state.endpoints[number].aliases -= 1;
    } else if state.endpoints[number].aliases > 0 {
        return -FI_EBUSY;
    } else if let Some(endpoint) = state.endpoints.remove(number) {
        let fd = endpoint.wait_fd();
        for cq in endpoint.queues() {
            state.cqs[cq].forget(number);
            fd.iter().for_each(|&fd| state.cqs[cq].wait.detach(fd));
        }
        for cntr in endpoint.unique_counters() {
            state.cntrs[cntr].users.retain(|&user| user != number);
        }
        fd.iter().for_each(|&fd| state.cntrs.values_mut().for_each(|cntr| cntr.wait.detach(fd)));
        if let Some(av) = endpoint.av {
            state.avs[av].users.retain(|&user| user != number);
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

/// Whether no other thread of this process could be at anything.
fn is_only_thread() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1)
}

/// Closes a worker once all that it sent has arrived, or the time is over. The peers that must answer may live in this very
/// process, and only this thread may be there to make progress for them.
fn part(mut worker: Worker, own: &Arc<Domain>) {
    let deadline = Instant::now() + own.config.linger;
    let alone = is_only_thread();
    while !worker.is_quiet() && Instant::now() < deadline {
        let mut moved = worker.progress() > 0;
        while worker.next_event().is_some() {}
        for domain in fabric::open_domains() {
            let ours = alone || Arc::ptr_eq(&domain, own);
            if let Some(mut state) = domain.try_lock().or_else(|| ours.then(|| domain.lock())) {
                let all: Vec<_> = state.endpoints.keys().collect();
                moved |= all.into_iter().fold(false, |moved, endpoint| state.progress(endpoint) | moved);
            }
        }
        if !moved {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    worker.close(deadline.saturating_duration_since(Instant::now()));
}
