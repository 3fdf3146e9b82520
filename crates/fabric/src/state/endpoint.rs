//! An endpoint: what it is bound to, what it may do, and what it knows of operations under way.

use std::collections::HashMap;
use std::ffi::c_int;
use std::os::fd::RawFd;

use polyrail_core::frame::OpId;
use polyrail_core::proto::Envelope;
use polyrail_rails::{INJECT_MAX, Worker};

use crate::address::{Format, Source};
use crate::ffi::*;
use crate::limits::{LONG, MSG_MAX, QUEUE};
use crate::state::Sinks;
use crate::state::av::Av;
use crate::state::cntr::Cntr;
use crate::state::completion::mark;
use crate::state::cq::Cq;
use crate::state::peers::Told;
use crate::state::slab::{Key, Slab};

/// What does not fit into a worker's `User`.
#[derive(Debug)]
pub struct Extra {
    /// The application's context.
    pub context: u64,
    /// First byte of a multi-receive buffer.
    pub base: u64,
    /// A copy that the operation sends from.
    pub _copy: Option<Box<[u8]>>,
}

/// Sizes that applications may lower.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub msg: usize,
    pub tagged: usize,
    pub rma: usize,
    pub atomic: usize,
    pub inject_msg: usize,
    pub inject_tagged: usize,
    pub inject_rma: usize,
    pub inject_atomic: usize,
}

impl Limits {
    const MOST: Self = Self {
        msg: MSG_MAX,
        tagged: MSG_MAX,
        rma: MSG_MAX,
        atomic: MSG_MAX,
        inject_msg: INJECT_MAX,
        inject_tagged: INJECT_MAX,
        inject_rma: INJECT_MAX,
        inject_atomic: INJECT_MAX,
    };

    /// The size that an option stands for, and how large it may be.
    fn of(&mut self, option: c_int) -> Option<(&mut usize, usize)> {
        Some(match option {
            FI_OPT_MAX_MSG_SIZE => (&mut self.msg, MSG_MAX),
            FI_OPT_MAX_TAGGED_SIZE => (&mut self.tagged, MSG_MAX),
            FI_OPT_MAX_RMA_SIZE => (&mut self.rma, MSG_MAX),
            FI_OPT_MAX_ATOMIC_SIZE => (&mut self.atomic, MSG_MAX),
            FI_OPT_INJECT_MSG_SIZE => (&mut self.inject_msg, INJECT_MAX),
            FI_OPT_INJECT_TAGGED_SIZE => (&mut self.inject_tagged, INJECT_MAX),
            FI_OPT_INJECT_RMA_SIZE => (&mut self.inject_rma, INJECT_MAX),
            FI_OPT_INJECT_ATOMIC_SIZE => (&mut self.inject_atomic, INJECT_MAX),
            _ => return None,
        })
    }
}

/// One endpoint.
pub struct Endpoint {
    /// There from `fi_enable` (or the first `fi_getname`) on.
    pub worker: Option<Worker>,
    pub enabled: bool,
    pub tx_cq: Option<Key<Cq>>,
    pub rx_cq: Option<Key<Cq>>,
    /// `FI_COMPLETION`, unless completions are selective.
    pub tx_always: u64,
    pub rx_always: u64,
    /// By [`crate::state::completion::Class`].
    pub counter: [Option<Key<Cntr>>; 6],
    pub extras: Slab<Extra>,
    /// Operations under way that are long, and whether one has just begun.
    pub long: usize,
    pub began_long: bool,
    /// Peers by `fi_addr_t`, as far as they have been used.
    pub peers: Vec<u32>,
    /// `fi_addr_t` by peer, as far as they have been asked for.
    pub numbers: Vec<fi_addr_t>,
    pub told: Told,
    pub av: Option<Key<Av>>,
    /// Receives may name their source: untagged ones, tagged ones.
    pub directed: bool,
    pub directed_tagged: bool,
    pub sources: bool,
    pub source_err: bool,
    pub least_multi: u64,
    pub shared_memory: bool,
    pub limits: Limits,
    /// Messages claimed, by context.
    pub claims: HashMap<u64, (OpId, Envelope)>,
    /// The endpoint's own context.
    pub context: u64,
    pub caps: u64,
    pub format: Format,
    pub source: Source,
    pub aliases: usize,
}

impl Endpoint {
    /// One that is not enabled. `caps` is what was asked for; 0 stands for everything that need not be asked for.
    pub fn new(caps: u64, format: Format, source: Source, context: u64) -> Self {
        let wanted = if caps == 0 { u64::MAX } else { caps };
        let has = |bits: u64| wanted & bits != 0;
        Self {
            worker: None,
            enabled: false,
            tx_cq: None,
            rx_cq: None,
            tx_always: 0,
            rx_always: 0,
            counter: [None; 6],
            extras: Slab::default(),
            long: 0,
            began_long: false,
            peers: Vec::new(),
            numbers: Vec::new(),
            told: Told::default(),
            av: None,
            directed: has(FI_DIRECTED_RECV),
            directed_tagged: has(FI_DIRECTED_RECV | FI_TAGGED_DIRECTED_RECV),
            sources: has(FI_SOURCE),
            source_err: caps & FI_SOURCE_ERR != 0,
            least_multi: 64,
            shared_memory: true,
            limits: Limits::MOST,
            claims: HashMap::new(),
            context,
            caps: wanted,
            format,
            source,
            aliases: 0,
        }
    }

    /// The queues, each once.
    #[inline]
    pub fn queues(&self) -> impl Iterator<Item = Key<Cq>> + use<> {
        let rx = self.rx_cq.filter(|_| self.rx_cq != self.tx_cq);
        self.tx_cq.into_iter().chain(rx)
    }

    /// The counters, perhaps several times.
    pub fn counters(&self) -> impl Iterator<Item = Key<Cntr>> + use<> {
        self.counter.into_iter().flatten()
    }

    /// The counters, each once.
    pub fn unique_counters(&self) -> Vec<Key<Cntr>> {
        let mut all: Vec<_> = self.counters().collect();
        all.sort_unstable_by_key(|cntr| cntr.number);
        all.dedup();
        all
    }

    /// An operation of so many bytes is under way.
    #[inline(always)]
    pub fn begins(&mut self, bytes: usize) {
        if bytes > LONG {
            self.long += 1;
            self.began_long = true;
        }
    }

    /// The descriptor of its worker.
    pub fn wait_fd(&self) -> Option<RawFd> {
        self.worker.as_ref().map(Worker::wait_fd)
    }

    /// Whether a sleeper would be woken by what comes; false when there is something already.
    pub fn arm(&mut self) -> bool {
        self.worker.as_mut().is_none_or(Worker::arm)
    }

    /// Whether something waits for company before it is sent.
    #[inline]
    pub fn holds_back(&self) -> bool {
        self.worker.as_ref().is_some_and(Worker::holds_back)
    }

    /// Sees whether peers live, where giving the processor away lets long pass between two rounds of progress.
    pub fn look_around(&mut self) {
        if let Some(worker) = &mut self.worker {
            worker.look_around();
        }
    }

    /// The worker of an enabled endpoint.
    #[inline]
    pub fn worker(&mut self) -> Result<&mut Worker, c_int> {
        self.worker.as_mut().ok_or(-FI_EOPBADSTATE)
    }
}

/// What it is bound to.
impl Endpoint {
    /// Has this direction's completions go to a queue.
    ///
    /// # Errors
    /// libfabric's number, negative.
    pub fn bind_queue(
        &mut self,
        endpoint: Key<Endpoint>,
        cq: Key<Cq>,
        flags: u64,
        sinks: &mut Sinks<'_>,
    ) -> Result<(), c_int> {
        if flags & !(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION) != 0
            || flags & (FI_TRANSMIT | FI_RECV) == 0
        {
            return Err(-FI_EBADFLAGS);
        }
        let taken = |wanted: u64, slot: &Option<Key<Cq>>| flags & wanted != 0 && slot.is_some();
        if taken(FI_TRANSMIT, &self.tx_cq) || taken(FI_RECV, &self.rx_cq) {
            return Err(-FI_EINVAL);
        }
        let always = if flags & FI_SELECTIVE_COMPLETION == 0 { FI_COMPLETION } else { 0 };
        if !self.queues().any(|bound| bound == cq) {
            self.attach(|fd| sinks.cqs[cq].wait.attach(fd))?;
            sinks.cqs[cq].users.push(endpoint);
        }
        if flags & FI_TRANSMIT != 0 {
            (self.tx_cq, self.tx_always) = (Some(cq), always);
        }
        if flags & FI_RECV != 0 {
            (self.rx_cq, self.rx_always) = (Some(cq), always);
        }
        Ok(())
    }

    /// Has completions of these kinds counted.
    ///
    /// # Errors
    /// libfabric's number, negative.
    pub fn bind_counter(
        &mut self,
        endpoint: Key<Endpoint>,
        cntr: Key<Cntr>,
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
            self.attach(|fd| sinks.cntrs[cntr].wait.attach(fd))?;
            sinks.cntrs[cntr].users.push(endpoint);
        }
        for at in (0..6).filter(|&at| wanted(at)) {
            self.counter[at] = Some(cntr);
        }
        Ok(())
    }

    /// Has the peers of an address vector, once and for all.
    ///
    /// # Errors
    /// libfabric's number, negative.
    pub fn bind_addresses(
        &mut self,
        endpoint: Key<Endpoint>,
        av: Key<Av>,
        sinks: &mut Sinks<'_>,
    ) -> Result<(), c_int> {
        if self.av.is_some() {
            return Err(-FI_EINVAL);
        }
        self.av = Some(av);
        sinks.avs[av].users.push(endpoint);
        Ok(())
    }

    /// A name was asked for before: the worker is there already.
    fn attach(&self, attach: impl FnOnce(RawFd) -> std::io::Result<()>) -> Result<(), c_int> {
        let attached = self.wait_fd().map_or(Ok(()), attach);
        attached.map_err(|error| -error.raw_os_error().unwrap_or(FI_EIO))
    }

    /// Whether it is bound to all that it needs.
    ///
    /// # Errors
    /// libfabric's number, negative, of what is missing.
    pub fn is_complete(&self) -> Result<(), c_int> {
        let has = |kinds: u64, directions: u64| self.caps & kinds != 0 && self.caps & directions != 0;
        let sends = has(FI_MSG | FI_TAGGED, FI_SEND) || has(FI_RMA | FI_ATOMIC, FI_READ | FI_WRITE);
        // who never receives needs no queue for that: a receive is refused without one
        if self.av.is_none() {
            return Err(-FI_ENOAV);
        }
        if (sends && self.tx_cq.is_none()) || self.queues().next().is_none() {
            return Err(-FI_ENOCQ);
        }
        Ok(())
    }
}

/// What can be set and asked.
impl Endpoint {
    /// Shared memory is decided on when the worker is opened.
    pub fn permit_shared_memory(&mut self, permitted: bool) -> c_int {
        if self.worker.is_some() {
            return -FI_EOPBADSTATE;
        }
        self.shared_memory = permitted;
        FI_SUCCESS
    }

    pub fn option(&mut self, option: c_int) -> Result<usize, c_int> {
        match option {
            FI_OPT_MIN_MULTI_RECV => Ok(self.least_multi as usize),
            // connections of this kind of endpoint carry no data
            FI_OPT_CM_DATA_SIZE => Ok(0),
            FI_OPT_TX_SIZE | FI_OPT_RX_SIZE => Ok(QUEUE),
            _ => self.limits.of(option).map(|(limit, _)| *limit).ok_or(-FI_ENOPROTOOPT),
        }
    }

    pub fn set_option(&mut self, option: c_int, value: usize) -> Result<(), c_int> {
        if option == FI_OPT_MIN_MULTI_RECV {
            self.least_multi = value as u64;
            return Ok(());
        }
        let (limit, most) = self.limits.of(option).ok_or(-FI_ENOPROTOOPT)?;
        if value > most {
            return Err(-FI_EINVAL);
        }
        *limit = value;
        Ok(())
    }
}

/// Receives under way.
impl Endpoint {
    /// Takes the earliest receive with this context back, unless a message has matched it.
    pub fn cancel(&mut self, context: u64) -> bool {
        let (Some(worker), extras) = (&mut self.worker, &self.extras) else { return false };
        worker.cancel(|user| {
            let of_extra = || extras.get(user.context as usize).map(|extra| extra.context);
            let its = if user.flags & mark::EXTRA == 0 { Some(user.context) } else { of_extra() };
            its == Some(context)
        })
    }
}
