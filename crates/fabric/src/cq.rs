//! Completion queues.
//!
//! Entries are kept in one form, which begins with each of C's forms, so that reading is copying a prefix. A queue grows when it
//! must: no completion is ever lost. Errors are apart; as long as there is one, a read says so first. What completes while an
//! empty queue is read goes straight to the reader. `read` has the calls.

mod read;

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::offset_of;
use std::os::fd::RawFd;
use std::sync::Arc;

use polyrail_core::proto::PeerIdx;

use crate::domain::{Domain, Member, State};
use crate::error::Why;
use crate::ffi::*;
use crate::object::{self, Object, head};
use crate::wait::Wait;

/// Most entries that are allocated in advance.
const ADVANCE: usize = 4096;
/// A completion queue as C has it.
pub struct CqMember {
    member: Member,
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

    /// Writes C's form of it, which has so many bytes. Each case is a few instructions; a copy of any length would be a call.
    ///
    /// # Safety
    /// `to` has room for `size` bytes.
    #[inline]
    unsafe fn write(&self, to: *mut u8, size: usize) {
        let from = std::ptr::from_ref(self);
        // SAFETY: by the caller's promise; an entry begins with each of the forms.
        unsafe {
            const WHOLE: usize = size_of::<fi_cq_tagged_entry>();
            match size {
                WHOLE => to.cast::<[u64; 6]>().write_unaligned(from.cast::<[u64; 6]>().read()),
                8 => to.cast::<[u64; 1]>().write_unaligned(from.cast::<[u64; 1]>().read()),
                24 => to.cast::<[u64; 3]>().write_unaligned(from.cast::<[u64; 3]>().read()),
                _ => to.cast::<[u64; 5]>().write_unaligned(from.cast::<[u64; 5]>().read()),
            }
        }
    }

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

/// The reader's room, during a read of an empty queue.
#[derive(Debug)]
struct Room {
    at: *mut u8,
    left: usize,
    /// Where senders go, if anywhere.
    sources: *mut fi_addr_t,
}

// SAFETY: there is room only during a read, on the thread that reads.
unsafe impl Send for Room {}

impl Room {
    const NONE: Self = Self { at: std::ptr::null_mut(), left: 0, sources: std::ptr::null_mut() };

    /// # Safety
    /// There is room for one more, of `size` bytes.
    #[inline]
    unsafe fn put(&mut self, entry: &Entry, size: usize) {
        // SAFETY: by the caller's promise.
        unsafe {
            entry.write(self.at, size);
            self.at = self.at.add(size);
            self.left -= 1;
            if !self.sources.is_null() {
                self.sources.write(entry.source);
                self.sources = self.sources.add(1);
            }
        }
    }
}

/// One completion queue. Under its domain's lock.
#[derive(Debug)]
pub struct Cq {
    room: Room,
    /// Bytes of one entry, as C wants it.
    entry: usize,
    /// Those that wait, behind `taken` others. Nobody waits when it is empty.
    entries: Vec<Entry>,
    taken: usize,
    faults: VecDeque<Fault>,
    /// Bound endpoints.
    pub users: Vec<usize>,
    pub wait: Wait,
    /// What `err_data` of the last error points to, for applications that gave no room.
    shown: Vec<u8>,
}

impl Cq {
    #[inline(always)]
    pub fn push(&mut self, entry: Entry) {
        if self.room.left > 0 {
            // SAFETY: there is.
            unsafe { self.room.put(&entry, self.entry) };
        } else {
            self.entries.push(entry);
        }
        self.wait.wake();
    }

    /// Moves as many entries to `room` as it takes; how many.
    ///
    /// # Safety
    /// There is as much room as it says.
    #[inline(always)]
    unsafe fn drain(&mut self, mut room: Room) -> usize {
        let waiting = &self.entries[self.taken..];
        let count = room.left.min(waiting.len());
        for entry in &waiting[..count] {
            // SAFETY: there is room.
            unsafe { room.put(entry, self.entry) };
        }
        self.taken += count;
        if self.taken == self.entries.len() {
            self.entries.clear();
            self.taken = 0;
        } else if self.taken > self.entries.len() / 2 {
            self.entries.drain(..self.taken);
            self.taken = 0;
        }
        count
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
    let wait = match Wait::new(object, &domain.lock().awaited) {
        Ok(wait) => wait,
        Err(code) => return code,
    };
    if let Some(attr) = attr
        && attr.format == FI_CQ_FORMAT_UNSPEC
    {
        attr.format = FI_CQ_FORMAT_TAGGED;
    }
    let new = Cq {
        room: Room::NONE,
        entry,
        entries: Vec::with_capacity(size.min(ADVANCE)),
        taken: 0,
        faults: VecDeque::new(),
        users: Vec::new(),
        wait,
        shown: Vec::new(),
    };
    let number = domain.lock().cqs.insert(new);
    let fid = head(FI_CLASS_CQ, context, &FID_OPS);
    let ours = CqMember { member: Member::new(domain, number) };
    // SAFETY: a place for the result.
    unsafe { cq.write(CqObject::give(fid_cq { fid, ops: &raw const read::OPS }, ours)) };
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

#[inline(always)]
fn poll(state: &mut State, member: &Member) -> bool {
    member.domain.polled();
    state.progress_all(|state| &state.cqs[member.number].users)
}
