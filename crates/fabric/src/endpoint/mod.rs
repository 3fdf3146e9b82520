//! Endpoints: the object, its bindings, its life.
//!
//! Files: `peers` addresses to peers and back; `message` sending and receiving, for the tables `msg` and `tagged`; `rma`;
//! `atomic`; `options` what can be set, cancelling; `cm` names.
//!
//! A data call does this: take the domain's lock, find the peer, tell the worker; and if the operation is complete with that,
//! count it and push an entry. All others are completed by [`crate::progress`].

mod atomic;
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
use polyrail_rails::{Config, INJECT_MAX, Worker};

use crate::address::{Format, Source};
use crate::domain::{Domain, Member, State};
use crate::fabric;
use crate::ffi::*;
use crate::info::hints::Hints;
use crate::info::offer::MSG_MAX;
use crate::object::{self, Object, Slab, head};
use crate::progress::Sinks;
use crate::provider::log;
use crate::{cntr, cq};

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
    pub has_counters: bool,
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

    /// Opens the worker, and connects it with all that wants to know.
    fn open_worker(&mut self, number: usize, domain: &Domain, sinks: &mut Sinks<'_>) -> Result<(), c_int> {
        if self.worker.is_some() {
            return Ok(());
        }
        let open = || {
            let mut config = Config { yielding: false, ..domain.config.clone() };
            config.shm &= self.shared_memory;
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
    #[inline]
    fn call(&self, f: impl FnOnce(&mut Endpoint, &mut Sinks<'_>) -> Result<(), c_int>) -> isize {
        let mut state = self.member.lock();
        self.call_in(&mut state, f)
    }

    #[inline]
    fn call_in(
        &self,
        state: &mut State,
        f: impl FnOnce(&mut Endpoint, &mut Sinks<'_>) -> Result<(), c_int>,
    ) -> isize {
        let (endpoint, mut sinks) = state.split(self.member.number);
        if !endpoint.enabled {
            return -(FI_EOPBADSTATE as isize);
        }
        let result = f(endpoint, &mut sinks);
        endpoint.after_call(&mut sinks);
        if endpoint.worker.as_ref().is_some_and(Worker::holds_back) {
            self.member.domain.pusher().note(&self.member.domain);
        }
        if let Some(auto) = self.member.domain.auto()
            && auto.is_asleep()
            && !endpoint.arm()
        {
            auto.kick();
        }
        match result {
            Ok(()) => 0,
            Err(code) => code as isize,
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
        has_counters: false,
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

static FID_OPS: fi_ops = object::ops(close, bind, control);

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
            part(worker, domain.config.linger);
        }
    }
    // SAFETY: as above; C uses it no more.
    drop(unsafe { EpObject::take(fid) });
    FI_SUCCESS
}

/// Closes a worker once all that it sent has arrived, or the time is over. The peers that must answer may live in this very
/// process, and only this thread may be there to make progress for them.
fn part(mut worker: Worker, linger: Duration) {
    let deadline = Instant::now() + linger;
    while !worker.is_quiet() && Instant::now() < deadline {
        let mut moved = worker.progress() > 0;
        while worker.next_event().is_some() {}
        for domain in fabric::open_domains() {
            if let Some(mut state) = domain.try_lock() {
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

unsafe extern "C" fn bind(fid: *mut fid, bfid: *mut fid, flags: u64) -> c_int {
    // SAFETY: open objects of C's.
    let (ours, class) = unsafe { (EpObject::ours(fid), (*bfid).fclass) };
    // SAFETY: an object of the class that it says.
    let bound = unsafe {
        match class {
            FI_CLASS_CQ => cq::member(bfid),
            FI_CLASS_CNTR => cntr::member(bfid),
            FI_CLASS_AV => crate::av::AvObject::ours(bfid),
            // no event of an endpoint is ever reported
            FI_CLASS_EQ => return FI_SUCCESS,
            _ => return -FI_EINVAL,
        }
    };
    if !Arc::ptr_eq(&bound.domain, &ours.member.domain) {
        return -FI_EDOMAIN;
    }
    let mut state = ours.member.lock();
    let (endpoint, mut sinks) = state.split(ours.member.number);
    if endpoint.enabled {
        return -FI_EOPBADSTATE;
    }
    let bound = match class {
        FI_CLASS_CQ => endpoint.bind_queue(ours.member.number, bound.number, flags, &mut sinks),
        FI_CLASS_CNTR => endpoint.bind_counter(ours.member.number, bound.number, flags, &mut sinks),
        _ if endpoint.av.is_some() => Err(-FI_EINVAL),
        _ => {
            endpoint.av = Some(bound.number);
            sinks.avs[bound.number].users.push(ours.member.number);
            Ok(())
        }
    };
    bound.map_or_else(|code| code, |()| FI_SUCCESS)
}

impl Endpoint {
    fn bind_queue(
        &mut self,
        number: usize,
        cq: usize,
        flags: u64,
        sinks: &mut Sinks<'_>,
    ) -> Result<(), c_int> {
        if flags & !(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION) != 0
            || flags & (FI_TRANSMIT | FI_RECV) == 0
        {
            return Err(-FI_EBADFLAGS);
        }
        let taken = |wanted: u64, slot: &Option<usize>| flags & wanted != 0 && slot.is_some();
        if taken(FI_TRANSMIT, &self.tx_cq) || taken(FI_RECV, &self.rx_cq) {
            return Err(-FI_EINVAL);
        }
        let always = if flags & FI_SELECTIVE_COMPLETION == 0 { FI_COMPLETION } else { 0 };
        if !self.queues().any(|bound| bound == cq) {
            sinks.cqs[cq].users.push(number);
            self.attach(|fd| sinks.cqs[cq].wait.attach(fd))?;
        }
        if flags & FI_TRANSMIT != 0 {
            (self.tx_cq, self.tx_always) = (Some(cq), always);
        }
        if flags & FI_RECV != 0 {
            (self.rx_cq, self.rx_always) = (Some(cq), always);
        }
        Ok(())
    }

    fn bind_counter(
        &mut self,
        number: usize,
        cntr: usize,
        flags: u64,
        sinks: &mut Sinks<'_>,
    ) -> Result<(), c_int> {
        // in the order of `Class`
        const KINDS: [u64; 6] = [FI_SEND, FI_RECV, FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE];
        if flags & !KINDS.into_iter().fold(0, |all, kind| all | kind) != 0 {
            return Err(-FI_EBADFLAGS);
        }
        let wanted = |at: usize| flags & KINDS[at] != 0;
        if (0..6).any(|at| wanted(at) && self.counter[at].is_some()) {
            return Err(-FI_EINVAL);
        }
        if !self.counters().any(|bound| bound == cntr) {
            sinks.cntrs[cntr].users.push(number);
            self.attach(|fd| sinks.cntrs[cntr].wait.attach(fd))?;
        }
        for at in (0..6).filter(|&at| wanted(at)) {
            self.counter[at] = Some(cntr);
        }
        self.has_counters = true;
        Ok(())
    }

    /// A name was asked for before: the worker is there already.
    fn attach(&self, attach: impl FnOnce(RawFd) -> std::io::Result<()>) -> Result<(), c_int> {
        let attached = self.wait_fd().map_or(Ok(()), attach);
        attached.map_err(|error| -error.raw_os_error().unwrap_or(FI_EIO))
    }

    fn enable(&mut self, number: usize, domain: &Domain, sinks: &mut Sinks<'_>) -> Result<(), c_int> {
        let has = |kinds: u64, directions: u64| self.caps & kinds != 0 && self.caps & directions != 0;
        let sends = has(FI_MSG | FI_TAGGED, FI_SEND) || has(FI_RMA | FI_ATOMIC, FI_READ | FI_WRITE);
        // who never receives needs no queue for that: a receive is refused without one
        if self.av.is_none() {
            return Err(-FI_ENOAV);
        }
        if (sends && self.tx_cq.is_none()) || self.queues().next().is_none() {
            return Err(-FI_ENOCQ);
        }
        self.open_worker(number, domain, sinks)?;
        self.enabled = true;
        Ok(())
    }
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: C's endpoint.
    let ours = unsafe { EpObject::ours(fid) };
    match command {
        FI_ENABLE => {
            let mut state = ours.member.lock();
            let (endpoint, mut sinks) = state.split(ours.member.number);
            endpoint
                .enable(ours.member.number, &ours.member.domain, &mut sinks)
                .map_or_else(|code| code, |()| FI_SUCCESS)
        }
        // SAFETY: the command's argument.
        FI_GETOPSFLAG | FI_SETOPSFLAG => unsafe { op_flags(ours, command, arg.cast()) },
        // SAFETY: the command's argument.
        FI_ALIAS => unsafe { alias(ours, (*fid).context, arg.cast()) },
        _ => -FI_ENOSYS,
    }
}

/// # Safety
/// `flags` is the argument of `FI_GETOPSFLAG` or `FI_SETOPSFLAG`.
unsafe fn op_flags(ours: &EpMember, command: c_int, flags: *mut u64) -> c_int {
    // SAFETY: by the caller's promise.
    let given = unsafe { flags.read() };
    let place = match given & (FI_TRANSMIT | FI_RECV) {
        FI_TRANSMIT => &ours.tx_flags,
        FI_RECV => &ours.rx_flags,
        _ => return -FI_EINVAL,
    };
    if command == FI_SETOPSFLAG {
        place.store(given & !(FI_TRANSMIT | FI_RECV), Ordering::Relaxed);
    } else {
        // SAFETY: by the caller's promise.
        unsafe { flags.write(place.load(Ordering::Relaxed)) };
    }
    FI_SUCCESS
}

/// # Safety
/// `alias` is the argument of `FI_ALIAS`.
unsafe fn alias(ours: &EpMember, context: *mut c_void, alias: *mut fi_alias) -> c_int {
    // SAFETY: by the caller's promise.
    let (place, flags) = unsafe { ((*alias).fid, (*alias).flags) };
    let (mut tx, mut rx) = (ours.tx_flags(), ours.rx_flags());
    match flags & (FI_TRANSMIT | FI_RECV) {
        FI_TRANSMIT => tx = flags & !FI_TRANSMIT,
        FI_RECV => rx = flags & !FI_RECV,
        _ => return -FI_EINVAL,
    }
    ours.member.lock().endpoints[ours.member.number].aliases += 1;
    let member = EpMember {
        member: Member::new(&ours.member.domain, ours.member.number),
        tx_flags: AtomicU64::new(tx),
        rx_flags: AtomicU64::new(rx),
        alias: true,
    };
    // SAFETY: a place for the result.
    unsafe { place.write(give(member, context).cast()) };
    FI_SUCCESS
}
