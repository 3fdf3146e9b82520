//! The completion queue object. `read` has the calls that read it.

mod read;

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::{Object, head};
use crate::domain::{Domain, Member};
use crate::ffi::*;
use crate::object;
use crate::state::State;
use crate::state::cq::Cq;
use crate::state::room::entry_size;
use crate::state::slab::Key;
use crate::wait::Wait;

/// A completion queue as C has it.
pub struct CqMember {
    member: Member<Cq>,
}

type CqObject = Object<fid_cq, CqMember>;

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
    let key = domain.lock().cqs.insert(Cq::new(entry, size, wait));
    let fid = head(FI_CLASS_CQ, context, &FID_OPS);
    let ours = CqMember { member: Member::new(domain, key) };
    // SAFETY: a place for the result.
    unsafe { cq.write(CqObject::give(fid_cq { fid, ops: &raw const read::OPS }, ours)) };
    FI_SUCCESS
}

/// The queue that C has, and its domain.
///
/// # Safety
/// `fid` is an open completion queue.
pub unsafe fn member<'a>(fid: *mut fid) -> &'a Member<Cq> {
    // SAFETY: by the caller's promise.
    &unsafe { CqObject::ours(fid) }.member
}

static FID_OPS: fi_ops = object::ops(close, object::no_bind, control);

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: C closes what we gave it.
    let member = unsafe { member(fid) };
    {
        let mut state = member.lock();
        if !state.cqs[member.key].users.is_empty() {
            return -FI_EBUSY;
        }
        state.cqs.remove(member.key.number);
    }
    // SAFETY: as above; C uses it no more.
    drop(unsafe { CqObject::take(fid) });
    FI_SUCCESS
}

/// The descriptors of the workers whose completions come here.
fn workers(state: &State, cq: Key<Cq>) -> Vec<RawFd> {
    let users = state.cqs[cq].users.iter();
    users.filter_map(|&user| state.endpoints[user].wait_fd()).collect()
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: C's queue.
    let member = unsafe { member(fid) };
    let mut state = member.lock();
    match command {
        FI_GETWAIT => {
            let workers = workers(&state, member.key);
            // SAFETY: the command's argument.
            unsafe { object::wait::give(&mut state.cqs[member.key].wait, arg, workers) }
        }
        FI_GETWAITOBJ => {
            // SAFETY: the command's argument.
            unsafe { arg.cast::<fi_wait_obj>().write(state.cqs[member.key].wait.object()) };
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
    let workers = workers(&state, member.key);
    state.cqs[member.key].wait.fd(workers)?;
    let ready = settle(&mut state, member);
    if ready {
        state.cqs[member.key].wait.arm();
    }
    Ok(ready)
}

/// Progress, then arms all endpoints. True when there is nothing, and something would wake a sleeper.
fn settle(state: &mut State, member: &Member<Cq>) -> bool {
    poll(state, member);
    let cq = &state.cqs[member.key];
    if !cq.is_empty() || !cq.users.iter().all(|&user| state.endpoints[user].arm()) {
        return false;
    }
    state.cqs[member.key].wait.lower();
    true
}

#[inline(always)]
fn poll(state: &mut State, member: &Member<Cq>) -> bool {
    member.domain.polled();
    state.progress_all(|state| &state.cqs[member.key].users)
}
