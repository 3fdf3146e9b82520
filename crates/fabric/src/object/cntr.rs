//! The counter object.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::{Object, head};
use crate::domain::{Domain, Member};
use crate::ffi::*;
use crate::log::log;
use crate::object;
use crate::state::State;
use crate::state::cntr::Cntr;
use crate::state::endpoint::Endpoint;
use crate::state::slab::Key;
use crate::wait::{Deadline, Wait, sleep_on};

type CntrObject = Object<fid_cntr, Member<Cntr>>;

/// Rounds of a blocking wait before it sleeps.
const SPIN: u32 = 20;

/// `fi_cntr_open`.
///
/// # Safety
/// `attr` is C's or null; `cntr` is a place for the result.
pub unsafe fn open(
    domain: &Arc<Domain>,
    attr: *mut fi_cntr_attr,
    cntr: *mut *mut fid_cntr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: by the caller's promise.
    let (events, object, flags) = unsafe { attr.as_ref() }
        .map_or((FI_CNTR_EVENTS_COMP, FI_WAIT_NONE, 0), |attr| (attr.events, attr.wait_obj, attr.flags));
    if events != FI_CNTR_EVENTS_COMP {
        log!(FI_LOG_INFO, FI_LOG_CNTR, "counters count completions, not bytes");
        return -FI_EOPNOTSUPP;
    }
    if flags != 0 {
        // FI_PEER: we import no one else's counters
        return -FI_ENOSYS;
    }
    let wait = match Wait::new(object, &domain.lock().awaited) {
        Ok(wait) => wait,
        Err(code) => return code,
    };
    let key = domain.lock().cntrs.insert(Cntr::new(wait));
    let fid = head(FI_CLASS_CNTR, context, &FID_OPS);
    // SAFETY: a place for the result.
    unsafe { cntr.write(CntrObject::give(fid_cntr { fid, ops: &raw const OPS }, Member::new(domain, key))) };
    FI_SUCCESS
}

/// The counter that C has, and its domain.
///
/// # Safety
/// `fid` is an open counter.
pub unsafe fn member<'a>(fid: *mut fid) -> &'a Member<Cntr> {
    // SAFETY: by the caller's promise.
    unsafe { CntrObject::ours(fid) }
}

static FID_OPS: fi_ops = object::ops(close, object::no_bind, control);

static OPS: fi_ops_cntr = fi_ops_cntr {
    size: size_of::<fi_ops_cntr>(),
    read,
    readerr,
    add,
    set,
    wait,
    adderr: Some(adderr),
    seterr: Some(seterr),
};

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: C closes what we gave it.
    let member = unsafe { member(fid) };
    {
        let mut state = member.lock();
        let cntr = &state.cntrs[member.key];
        if !cntr.users.is_empty() || cntr.regions > 0 {
            return -FI_EBUSY;
        }
        state.cntrs.remove(member.key.number);
    }
    // SAFETY: as above; C uses it no more.
    drop(unsafe { CntrObject::take(fid) });
    FI_SUCCESS
}

/// The endpoints whose completions are counted: all, when it counts what peers do to a region.
fn users(state: &State, cntr: Key<Cntr>) -> Vec<Key<Endpoint>> {
    let cntr = &state.cntrs[cntr];
    if cntr.regions > 0 { state.endpoints.keys().collect() } else { cntr.users.clone() }
}

/// The descriptors of their workers.
fn workers(state: &State, cntr: Key<Cntr>) -> Vec<RawFd> {
    users(state, cntr).into_iter().filter_map(|user| state.endpoints[user].wait_fd()).collect()
}

unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: C's counter.
    let member = unsafe { member(fid) };
    let mut state = member.lock();
    // SAFETY: the command's argument.
    unsafe {
        match command {
            FI_GETWAIT => {
                let workers = workers(&state, member.key);
                object::wait::give(&mut state.cntrs[member.key].wait, arg, workers)
            }
            FI_GETWAITOBJ => {
                arg.cast::<fi_wait_obj>().write(state.cntrs[member.key].wait.object());
                FI_SUCCESS
            }
            FI_GETOPSFLAG => {
                arg.cast::<u64>().write(0);
                FI_SUCCESS
            }
            FI_SETOPSFLAG if arg.cast::<u64>().read() == 0 => FI_SUCCESS,
            _ => -FI_ENOSYS,
        }
    }
}

fn poll(state: &mut State, member: &Member<Cntr>) {
    member.domain.polled();
    if state.cntrs[member.key].regions == 0 {
        state.progress_all(|state| &state.cntrs[member.key].users);
    } else {
        users(state, member.key).into_iter().for_each(|user| _ = state.progress(user));
    }
}

/// `fi_trywait`: whether the application may sleep on the descriptor.
///
/// # Safety
/// `fid` is an open counter.
///
/// # Errors
/// When there are no descriptors left.
pub unsafe fn try_wait(fid: *mut fid) -> io::Result<bool> {
    // SAFETY: by the caller's promise.
    let member = unsafe { member(fid) };
    let mut state = member.lock();
    let workers = workers(&state, member.key);
    state.cntrs[member.key].wait.fd(workers)?;
    let before = state.cntrs[member.key].value();
    let ready = settle(&mut state, member) && state.cntrs[member.key].value() == before;
    if ready {
        state.cntrs[member.key].wait.arm();
    }
    Ok(ready)
}

/// Progress, then arms all endpoints: true when something would wake a sleeper.
fn settle(state: &mut State, member: &Member<Cntr>) -> bool {
    poll(state, member);
    if !users(state, member.key).into_iter().all(|user| state.endpoints[user].arm()) {
        return false;
    }
    state.cntrs[member.key].wait.lower();
    true
}

/// Calls `f` with the counter, after progress.
///
/// # Safety
/// `cntr` is an open counter.
unsafe fn after_progress<T>(cntr: *mut fid_cntr, f: impl FnOnce(&Cntr) -> T) -> T {
    // SAFETY: by the caller's promise.
    let member = unsafe { member(cntr.cast()) };
    let mut state = member.lock();
    poll(&mut state, member);
    f(&state.cntrs[member.key])
}

/// Changes the counter.
///
/// # Safety
/// `cntr` is an open counter.
unsafe fn change(cntr: *mut fid_cntr, f: impl FnOnce(&mut Cntr)) -> c_int {
    // SAFETY: by the caller's promise.
    let member = unsafe { member(cntr.cast()) };
    let mut state = member.lock();
    f(&mut state.cntrs[member.key]);
    FI_SUCCESS
}

unsafe extern "C" fn read(cntr: *mut fid_cntr) -> u64 {
    // SAFETY: C's counter.
    unsafe { after_progress(cntr, Cntr::value) }
}

unsafe extern "C" fn readerr(cntr: *mut fid_cntr) -> u64 {
    // SAFETY: C's counter.
    unsafe { after_progress(cntr, Cntr::errors) }
}

unsafe extern "C" fn add(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: C's counter.
    unsafe { change(cntr, |cntr| cntr.add(value)) }
}

unsafe extern "C" fn set(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: C's counter.
    unsafe { change(cntr, |cntr| cntr.set(value)) }
}

unsafe extern "C" fn adderr(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: C's counter.
    unsafe { change(cntr, |cntr| cntr.add_error(value)) }
}

unsafe extern "C" fn seterr(cntr: *mut fid_cntr, value: u64) -> c_int {
    // SAFETY: C's counter.
    unsafe { change(cntr, |cntr| cntr.set_error(value)) }
}

/// Works for counters without a wait object too: applications do not know better.
unsafe extern "C" fn wait(cntr: *mut fid_cntr, threshold: u64, timeout: c_int) -> c_int {
    // SAFETY: C's counter.
    let member = unsafe { member(cntr.cast()) };
    let (deadline, key) = (Deadline::after(timeout), member.key);
    let errors = member.lock().cntrs[key].errors();
    let mut rounds = 0;
    loop {
        let mut state = member.lock();
        poll(&mut state, member);
        let cntr = &state.cntrs[key];
        if let Some(code) = cntr.outcome(threshold, errors) {
            return code;
        }
        if deadline.passed() {
            return -FI_ETIMEDOUT;
        }
        rounds += 1;
        if rounds < SPIN {
            continue;
        }
        let before = (cntr.value(), cntr.errors());
        let settled = settle(&mut state, member);
        if !settled || (state.cntrs[key].value(), state.cntrs[key].errors()) != before {
            continue;
        }
        let workers = workers(&state, key);
        let fd = match state.cntrs[key].wait.fd(workers) {
            Ok(fd) => fd,
            Err(error) => return -error.raw_os_error().unwrap_or(FI_EIO),
        };
        state.cntrs[key].wait.enter();
        drop(state);
        let slept = sleep_on(fd, deadline.or_in(Deadline::LONGEST));
        member.lock().cntrs[key].wait.leave();
        if let Err(error) = slept {
            return -error.raw_os_error().unwrap_or(FI_EIO);
        }
    }
}
