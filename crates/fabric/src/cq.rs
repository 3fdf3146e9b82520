//! Completion queues.
//!
//! Entries are kept in one form, which begins with each of C's forms, so that reading is copying a prefix. A queue grows when it
//! must: no completion is ever lost. Errors are apart; as long as there is one, a read says so first.

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::mem::offset_of;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use polyrail_core::proto::PeerIdx;

use crate::domain::{Domain, Member, State};
use crate::error::{self, Why};
use crate::ffi::*;
use crate::object::{self, Object, head};
use crate::wait::{Deadline, Wait, sleep_on};

/// Most entries that are allocated in advance.
const ADVANCE: usize = 4096;
/// Empty reads before the processor is given away: with more processes than processors, who spins keeps the one from running
/// that it waits for.
const PATIENCE: u32 = 200;
/// Rounds of a blocking read before it sleeps.
const SPIN: u32 = 20;

/// A completion queue as C has it.
pub struct CqMember {
    member: Member,
    /// Bytes of one entry, as C wants it.
    entry: usize,
    /// Empty reads in a row.
    empty: AtomicU32,
}

type CqObject = Object<fid_cq, CqMember>;

/// A completion: `fi_cq_tagged_entry`, and what only we know.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub context: u64,
    pub flags: u64,
    pub len: u64,
    pub buf: u64,
    pub data: u64,
    pub tag: u64,
    /// The sender: an endpoint's number and a peer's, or [`Entry::NO_SOURCE`].
    pub source: u64,
}

const _: () = {
    assert!(offset_of!(Entry, flags) == offset_of!(fi_cq_tagged_entry, flags));
    assert!(offset_of!(Entry, len) == offset_of!(fi_cq_tagged_entry, len));
    assert!(offset_of!(Entry, buf) == offset_of!(fi_cq_tagged_entry, buf));
    assert!(offset_of!(Entry, data) == offset_of!(fi_cq_tagged_entry, data));
    assert!(offset_of!(Entry, tag) == offset_of!(fi_cq_tagged_entry, tag));
    assert!(offset_of!(Entry, source) == size_of::<fi_cq_tagged_entry>());
};

impl Entry {
    pub const NO_SOURCE: u64 = u64::MAX;

    /// A sender, to be translated when it is asked for.
    #[inline]
    pub fn source(endpoint: usize, peer: PeerIdx) -> u64 {
        (endpoint as u64) << 32 | u64::from(peer.0)
    }
}

/// A completion in error.
#[derive(Clone, Debug, Default)]
pub struct Fault {
    pub entry: Entry,
    /// Bytes that did not fit.
    pub olen: u64,
    pub why: Why,
}

impl Fault {
    pub fn new(why: Why) -> Self {
        Self { why, ..Self::default() }
    }
}

/// One completion queue. Under its domain's lock.
#[derive(Debug)]
pub struct Cq {
    entries: VecDeque<Entry>,
    faults: VecDeque<Fault>,
    /// Bound endpoints.
    pub users: Vec<usize>,
    pub wait: Wait,
    /// What `err_data` of the last error points to, for applications that gave no room.
    shown: Vec<u8>,
}

impl Cq {
    #[inline]
    pub fn push(&mut self, entry: Entry) {
        self.entries.push_back(entry);
        self.wait.wake();
    }

    #[cold]
    pub fn push_fault(&mut self, fault: Fault) {
        self.faults.push_back(fault);
        self.wait.wake();
    }

    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.faults.is_empty()
    }

    /// An endpoint is closed: its peers' numbers mean nothing any more.
    pub fn forget(&mut self, endpoint: usize) {
        self.users.retain(|&user| user != endpoint);
        let faults = self.faults.iter_mut().map(|fault| &mut fault.entry);
        for entry in
            self.entries.iter_mut().chain(faults).filter(|entry| entry.source >> 32 == endpoint as u64)
        {
            entry.source = Entry::NO_SOURCE;
        }
    }
}

/// Bytes of one entry of a format.
fn entry_size(format: fi_cq_format) -> Option<usize> {
    Some(match format {
        FI_CQ_FORMAT_CONTEXT => size_of::<fi_cq_entry>(),
        FI_CQ_FORMAT_MSG => size_of::<fi_cq_msg_entry>(),
        FI_CQ_FORMAT_DATA => size_of::<fi_cq_data_entry>(),
        FI_CQ_FORMAT_UNSPEC | FI_CQ_FORMAT_TAGGED => size_of::<fi_cq_tagged_entry>(),
        _ => return None,
    })
}

/// `fi_cq_open`.
///
/// # Safety
/// `attr` is C's or null; `cq` is a place for the result.
pub unsafe fn open(
    domain: &Arc<Domain>,
    attr: *mut fi_cq_attr,
    cq: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: by the caller's promise.
    let attr = unsafe { attr.as_mut() };
    let (size, format, object, flags) = match &attr {
        Some(attr) => (attr.size, attr.format, attr.wait_obj, attr.flags),
        None => (0, FI_CQ_FORMAT_UNSPEC, FI_WAIT_NONE, 0),
    };
    if flags & !FI_AFFINITY != 0 {
        // FI_PEER: we import no one else's queues
        return -FI_ENOSYS;
    }
    let Some(entry) = entry_size(format) else { return -FI_EINVAL };
    let wait = match Wait::new(object) {
        Ok(wait) => wait,
        Err(code) => return code,
    };
    if let Some(attr) = attr
        && attr.format == FI_CQ_FORMAT_UNSPEC
    {
        attr.format = FI_CQ_FORMAT_TAGGED;
    }
    let new = Cq {
        entries: VecDeque::with_capacity(size.min(ADVANCE)),
        faults: VecDeque::new(),
        users: Vec::new(),
        wait,
        shown: Vec::new(),
    };
    let number = domain.lock().cqs.insert(new);
    let fid = head(FI_CLASS_CQ, context, &FID_OPS);
    let ours = CqMember { member: Member::new(domain, number), entry, empty: AtomicU32::new(0) };
    // SAFETY: a place for the result.
    unsafe { cq.write(CqObject::give(fid_cq { fid, ops: &raw const OPS }, ours)) };
    FI_SUCCESS
}

/// The number in its domain of the queue that C has.
///
/// # Safety
/// `fid` is an open completion queue.
pub unsafe fn member<'a>(fid: *mut fid) -> &'a Member {
    // SAFETY: by the caller's promise.
    &unsafe { CqObject::ours(fid) }.member
}

static FID_OPS: fi_ops = object::ops(close, object::no_bind, control);

static OPS: fi_ops_cq =
    fi_ops_cq { size: size_of::<fi_ops_cq>(), read, readfrom, readerr, sread, sreadfrom, signal, strerror };

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: C closes what we gave it.
    let member = unsafe { member(fid) };
    {
        let mut state = member.lock();
        if !state.cqs[member.number].users.is_empty() {
            return -FI_EBUSY;
        }
        state.cqs.remove(member.number);
    }
    // SAFETY: as above; C uses it no more.
    drop(unsafe { CqObject::take(fid) });
    FI_SUCCESS
}

/// The descriptors of the workers whose completions come here.
fn workers(state: &State, cq: usize) -> Vec<RawFd> {
    let users = state.cqs[cq].users.iter();
    users.filter_map(|&user| state.endpoints[user].wait_fd()).collect()
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: C's queue.
    let member = unsafe { member(fid) };
    let mut state = member.lock();
    match command {
        FI_GETWAIT => {
            let workers = workers(&state, member.number);
            // SAFETY: the command's argument.
            unsafe { state.cqs[member.number].wait.give(arg, workers) }
        }
        FI_GETWAITOBJ => {
            // SAFETY: the command's argument.
            unsafe { arg.cast::<fi_wait_obj>().write(state.cqs[member.number].wait.object()) };
            FI_SUCCESS
        }
        _ => -FI_ENOSYS,
    }
}

/// `fi_trywait`: whether the application may sleep on the descriptor.
///
/// # Safety
/// `fid` is an open completion queue.
///
/// # Errors
/// When there are no descriptors left.
pub unsafe fn try_wait(fid: *mut fid) -> io::Result<bool> {
    // SAFETY: by the caller's promise.
    let member = unsafe { member(fid) };
    let mut state = member.lock();
    let workers = workers(&state, member.number);
    state.cqs[member.number].wait.fd(workers)?;
    let ready = settle(&mut state, member);
    if ready {
        state.cqs[member.number].wait.arm();
    }
    Ok(ready)
}

/// Progress, then arms all endpoints. True when there is nothing, and something would wake a sleeper.
fn settle(state: &mut State, member: &Member) -> bool {
    poll(state, member);
    let cq = &state.cqs[member.number];
    if !cq.is_empty() || !cq.users.iter().all(|&user| state.endpoints[user].arm()) {
        return false;
    }
    state.cqs[member.number].wait.lower();
    true
}

#[inline]
fn poll(state: &mut State, member: &Member) -> bool {
    member.domain.polled();
    state.progress_all(|state| &state.cqs[member.number].users)
}

impl CqMember {
    /// Copies up to `count` entries to `buf`, and their senders to `sources` unless that is null. Negative: libfabric's
    /// number.
    ///
    /// # Safety
    /// `buf` has room for `count` entries of the queue's format, `sources` for as many.
    #[inline]
    unsafe fn take(
        &self,
        state: &mut State,
        buf: *mut c_void,
        count: usize,
        sources: *mut fi_addr_t,
    ) -> isize {
        let cq = &mut state.cqs[self.member.number];
        if cq.is_empty() {
            poll(state, &self.member);
        }
        let cq = &mut state.cqs[self.member.number];
        if !cq.faults.is_empty() {
            return -(FI_EAVAIL as isize);
        }
        if cq.entries.is_empty() {
            return -(FI_EAGAIN as isize);
        }
        let count = count.min(cq.entries.len());
        for (at, entry) in cq.entries.iter().take(count).enumerate() {
            // SAFETY: C's room; an entry begins with C's form of it.
            unsafe {
                ptr::copy_nonoverlapping(
                    ptr::from_ref(entry).cast::<u8>(),
                    buf.cast::<u8>().add(at * self.entry),
                    self.entry,
                );
                if !sources.is_null() {
                    sources.add(at).write(entry.source);
                }
            }
        }
        cq.entries.drain(..count);
        if !sources.is_null() {
            for at in 0..count {
                // SAFETY: written above.
                unsafe { sources.add(at).write(source_of(state, sources.add(at).read())) };
            }
        }
        count as isize
    }

    /// [`CqMember::take`] with the lock, giving the processor away after many empty reads.
    ///
    /// # Safety
    /// As for [`CqMember::take`].
    #[inline]
    unsafe fn read(&self, buf: *mut c_void, count: usize, sources: *mut fi_addr_t) -> isize {
        // SAFETY: by the caller's promise.
        let got = unsafe { self.take(&mut self.member.lock(), buf, count, sources) };
        if got == -(FI_EAGAIN as isize) {
            self.idle();
        } else {
            self.empty.store(0, Ordering::Relaxed);
        }
        got
    }

    #[inline]
    fn idle(&self) {
        let empty = self.empty.load(Ordering::Relaxed);
        if empty < PATIENCE {
            self.empty.store(empty + 1, Ordering::Relaxed);
        } else if self.member.domain.config.yielding {
            std::thread::yield_now();
        }
    }

    /// A blocking read.
    ///
    /// # Safety
    /// As for [`CqMember::take`].
    unsafe fn sleep(&self, buf: *mut c_void, count: usize, sources: *mut fi_addr_t, timeout: c_int) -> isize {
        let (deadline, number) = (Deadline::after(timeout), self.member.number);
        let mut rounds = 0;
        loop {
            let mut state = self.member.lock();
            if !state.cqs[number].wait.blocks() {
                return -(FI_EINVAL as isize);
            }
            // SAFETY: by the caller's promise.
            let got = unsafe { self.take(&mut state, buf, count, sources) };
            if got != -(FI_EAGAIN as isize) || state.cqs[number].wait.take_interrupt() || deadline.passed() {
                return got;
            }
            rounds += 1;
            if rounds < SPIN || !settle(&mut state, &self.member) {
                continue;
            }
            let workers = workers(&state, number);
            let fd = match state.cqs[number].wait.fd(workers) {
                Ok(fd) => fd,
                Err(error) => return -(error.raw_os_error().unwrap_or(FI_EIO) as isize),
            };
            state.cqs[number].wait.enter();
            drop(state);
            let slept = sleep_on(fd, deadline.or_in(Deadline::LONGEST));
            self.member.lock().cqs[number].wait.leave();
            if let Err(error) = slept {
                return -(error.raw_os_error().unwrap_or(FI_EIO) as isize);
            }
        }
    }
}

/// A sender as the application knows it.
fn source_of(state: &mut State, source: u64) -> fi_addr_t {
    if source == Entry::NO_SOURCE {
        return FI_ADDR_NOTAVAIL;
    }
    let (endpoint, sinks) = state.split((source >> 32) as usize);
    endpoint.source_of(PeerIdx(source as u32), sinks.avs)
}

unsafe extern "C" fn read(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize {
    // SAFETY: C's queue and room.
    unsafe { CqObject::ours(cq).read(buf, count, ptr::null_mut()) }
}

unsafe extern "C" fn readfrom(
    cq: *mut fid_cq,
    buf: *mut c_void,
    count: usize,
    src_addr: *mut fi_addr_t,
) -> isize {
    // SAFETY: C's queue and room.
    unsafe { CqObject::ours(cq).read(buf, count, src_addr) }
}

unsafe extern "C" fn sread(
    cq: *mut fid_cq,
    buf: *mut c_void,
    count: usize,
    _cond: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: C's queue and room. The condition is an optimisation that we do not need.
    unsafe { CqObject::ours(cq).sleep(buf, count, ptr::null_mut(), timeout) }
}

unsafe extern "C" fn sreadfrom(
    cq: *mut fid_cq,
    buf: *mut c_void,
    count: usize,
    src_addr: *mut fi_addr_t,
    _cond: *const c_void,
    timeout: c_int,
) -> isize {
    // SAFETY: as in `sread`.
    unsafe { CqObject::ours(cq).sleep(buf, count, src_addr, timeout) }
}

unsafe extern "C" fn signal(cq: *mut fid_cq) -> c_int {
    // SAFETY: C's queue.
    let member = &unsafe { CqObject::ours(cq) }.member;
    let mut state = member.lock();
    let wait = &mut state.cqs[member.number].wait;
    if !wait.blocks() {
        return -FI_EINVAL;
    }
    wait.interrupt();
    FI_SUCCESS
}

/// Writes as much of the error entry as the application's version of it has.
unsafe extern "C" fn readerr(cq: *mut fid_cq, buf: *mut fi_cq_err_entry, _flags: u64) -> isize {
    // SAFETY: C's queue.
    let member = &unsafe { CqObject::ours(cq) }.member;
    let version = member.domain.api_version;
    let mut state = member.lock();
    let mut fault = state.cqs[member.number].faults.pop_front();
    if fault.is_none() {
        poll(&mut state, member);
        fault = state.cqs[member.number].faults.pop_front();
    }
    let Some(Fault { entry, olen, why }) = fault else { return -(FI_EAGAIN as isize) };
    // SAFETY: C's place, an entry of its version; no reference to the whole is made.
    unsafe {
        (*buf).op_context = ptr::with_exposed_provenance_mut(entry.context as usize);
        (*buf).flags = entry.flags;
        (*buf).len = entry.len as usize;
        (*buf).buf = ptr::with_exposed_provenance_mut(entry.buf as usize);
        (*buf).data = entry.data;
        (*buf).tag = entry.tag;
        (*buf).olen = olen as usize;
        (*buf).err = why.err;
        (*buf).prov_errno = why.prov_errno;
        let sized = version >= FI_VERSION(1, 5);
        if why.data.is_empty() {
            if sized {
                (*buf).err_data_size = 0;
            }
        } else if sized && (*buf).err_data_size > 0 && !(*buf).err_data.is_null() {
            let len = why.data.len().min((*buf).err_data_size);
            let room = (*buf).err_data.cast::<u8>();
            ptr::copy_nonoverlapping(why.data.as_ptr(), room, len);
            if len < why.data.len() && why.err != FI_EADDRNOTAVAIL {
                // a sentence that was cut still ends
                room.add(len - 1).write(0);
            }
            (*buf).err_data_size = len;
        } else {
            let shown = &mut state.cqs[member.number].shown;
            *shown = why.data;
            (*buf).err_data = shown.as_mut_ptr().cast();
            if sized {
                (*buf).err_data_size = shown.len();
            }
        }
        if version >= FI_VERSION(1, 20) {
            (*buf).src_addr = FI_ADDR_NOTAVAIL;
        }
    }
    1
}

unsafe extern "C" fn strerror(
    _: *mut fid_cq,
    prov_errno: c_int,
    err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: as our caller says.
    unsafe { error::sentence(prov_errno, err_data, buf, len) }
}
