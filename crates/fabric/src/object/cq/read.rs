//! Reading completion queues: at once, blocking, and what went wrong.

use std::ffi::{c_char, c_int, c_void};
use std::{io, ptr};

use polyrail_rails::Rest;
use polyrail_rails::worker::is_looked_in;

use super::{CqMember, CqObject, poll, settle, workers};
use crate::error;
use crate::ffi::*;
use crate::lock::Guard;
use crate::state::State;
use crate::state::completion::Fault;
use crate::state::room::Room;
use crate::wait::{Deadline, sleep_on};

/// Rounds of a blocking read before it sleeps.
const SPIN: u32 = 20;

pub static OPS: fi_ops_cq =
    fi_ops_cq { size: size_of::<fi_ops_cq>(), read, readfrom, readerr, sread, sreadfrom, signal, strerror };

impl CqMember {
    /// Copies up to `count` entries to `buf`, and their senders to `sources` unless that is null. Negative: libfabric's
    /// number.
    ///
    /// # Safety
    /// `buf` has room for `count` entries of the queue's format, `sources` for as many.
    #[inline(always)]
    unsafe fn take(
        &self,
        state: &mut State,
        buf: *mut c_void,
        count: usize,
        sources: *mut fi_addr_t,
    ) -> isize {
        let cq = &mut state.cqs[self.member.key];
        // SAFETY: by the caller's promise.
        let room = unsafe { Room::new(buf.cast(), count, cq.entry_size(), sources) };
        let got = if cq.is_empty() {
            // SAFETY: by the caller's promise; it is taken back below.
            unsafe { cq.lend(room) };
            if poll(state, &self.member) {
                state.idle.busy();
            }
            let cq = &mut state.cqs[self.member.key];
            let got = cq.take_back(count);
            if got == 0
                && let Some(code) = cq.lack()
            {
                return code;
            }
            got
        } else {
            // SAFETY: by the caller's promise.
            match unsafe { cq.drain(room) } {
                Some(got) => got,
                None => return -(FI_EAVAIL as isize),
            }
        };
        if !sources.is_null() {
            for at in 0..got {
                // SAFETY: written above.
                unsafe { sources.add(at).write(state.source_of(sources.add(at).read())) };
            }
        }
        got as isize
    }

    /// [`CqMember::take`] with the lock, giving the processor away after many empty reads. Most reads show at once that there is nothing to
    /// read, and nothing else to do meanwhile: they need a look at memory and nothing else.
    ///
    /// # Safety
    /// As for [`CqMember::take`].
    #[inline(always)]
    unsafe fn read(&self, buf: *mut c_void, count: usize, sources: *mut fi_addr_t) -> isize {
        if let Some(mut state) = self.member.domain.at_once() {
            if self.is_empty(&mut state) {
                return -(FI_EAGAIN as isize);
            }
            drop(state);
            // SAFETY: by the caller's promise.
            return unsafe { self.read_some(buf, count, sources) };
        }
        // SAFETY: by the caller's promise.
        unsafe { self.read_shared(buf, count, sources) }
    }

    /// The same where several threads may be at it.
    ///
    /// # Safety
    /// As for [`CqMember::take`].
    #[inline(never)]
    unsafe fn read_shared(&self, buf: *mut c_void, count: usize, sources: *mut fi_addr_t) -> isize {
        let mut state = self.member.lock();
        self.member.domain.polled();
        if self.is_empty(&mut state) {
            return -(FI_EAGAIN as isize);
        }
        // SAFETY: by the caller's promise.
        unsafe { self.read_locked(state, buf, count, sources) }
    }

    /// Whether a look at memory shows that there is nothing, and it is not time to do something about that: for who looks in now and
    /// then, the worker says by the clock when it is.
    #[inline(always)]
    fn is_empty(&self, state: &mut State) -> bool {
        !is_looked_in() && state.skip(self.member.key) && state.idle.spins()
    }

    /// [`CqMember::read_locked`] with the lock.
    ///
    /// # Safety
    /// As for [`CqMember::take`].
    #[inline(never)]
    unsafe fn read_some(&self, buf: *mut c_void, count: usize, sources: *mut fi_addr_t) -> isize {
        // SAFETY: by the caller's promise.
        unsafe { self.read_locked(self.member.lock(), buf, count, sources) }
    }

    /// [`CqMember::read`] where there may be something.
    ///
    /// # Safety
    /// As for [`CqMember::take`].
    #[inline(always)]
    unsafe fn read_locked(
        &self,
        mut state: Guard<'_, State>,
        buf: *mut c_void,
        count: usize,
        sources: *mut fi_addr_t,
    ) -> isize {
        state.idle.begins();
        // SAFETY: by the caller's promise.
        let got = unsafe { self.take(&mut state, buf, count, sources) };
        if got == -(FI_EAGAIN as isize) && !is_looked_in() {
            let in_bulk = state.idle.naps_in_bulk() && state.in_bulk(self.member.key);
            match if in_bulk { state.idle.nap_in_bulk() } else { state.idle.rest() } {
                Rest::Spin => {}
                rest => {
                    let slept = self.rest(state, rest);
                    if slept {
                        // not the application's next read: it may give the processor away before that
                        // SAFETY: by the caller's promise.
                        return unsafe { self.take(&mut self.member.lock(), buf, count, sources) };
                    }
                }
            }
        }
        got
    }

    /// Gives the processor away, without the lock. True: it slept, or was about to when something came.
    #[cold]
    fn rest(&self, mut state: Guard<'_, State>, rest: Rest) -> bool {
        let sleeps = matches!(rest, Rest::Sleep(_));
        match rest {
            Rest::Sleep(most) => {
                if settle(&mut state, &self.member) {
                    // what wakes it, and why it could not sleep, does not matter
                    let _ = self.doze(state, Deadline::within(most));
                } else {
                    drop(state);
                }
            }
            _ => {
                drop(state);
                std::thread::yield_now();
            }
        }
        let state = &mut *self.member.lock();
        if state.idle.resumed() {
            for &user in &state.cqs[self.member.key].users {
                state.endpoints[user].look_around();
            }
        }
        sleeps
    }

    /// Sleeps, without the lock, once all is [settled](settle).
    fn doze(&self, mut state: Guard<'_, State>, deadline: Deadline) -> io::Result<()> {
        let key = self.member.key;
        let workers = workers(&state, key);
        let wait = &mut state.cqs[key].wait;
        let fd = wait.fd(workers)?;
        wait.enter();
        drop(state);
        let slept = sleep_on(fd, deadline);
        self.member.lock().cqs[key].wait.leave();
        slept
    }

    /// A blocking read.
    ///
    /// # Safety
    /// As for [`CqMember::take`].
    unsafe fn sleep(&self, buf: *mut c_void, count: usize, sources: *mut fi_addr_t, timeout: c_int) -> isize {
        let (deadline, key) = (Deadline::after(timeout), self.member.key);
        let mut rounds = 0;
        loop {
            let mut state = self.member.lock();
            if !state.cqs[key].wait.blocks() {
                return -(FI_EINVAL as isize);
            }
            // SAFETY: by the caller's promise.
            let got = unsafe { self.take(&mut state, buf, count, sources) };
            if got != -(FI_EAGAIN as isize) || state.cqs[key].wait.take_interrupt() || deadline.passed() {
                return got;
            }
            rounds += 1;
            if rounds < SPIN || !settle(&mut state, &self.member) {
                continue;
            }
            if let Err(error) = self.doze(state, deadline.or_in(Deadline::LONGEST)) {
                return -(error.raw_os_error().unwrap_or(FI_EIO) as isize);
            }
        }
    }
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
    let wait = &mut state.cqs[member.key].wait;
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
    let version = member.domain.is.api_version;
    let mut state = member.lock();
    let mut fault = state.cqs[member.key].take_fault();
    if fault.is_none() {
        poll(&mut state, member);
        fault = state.cqs[member.key].take_fault();
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
            let shown = state.cqs[member.key].show(why.data);
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
