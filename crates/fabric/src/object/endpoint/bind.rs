//! What an endpoint is bound to, enabling it, its flags and aliases.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{EpMember, EpObject, give, message, open_worker};
use crate::domain::{Domain, Member};
use crate::ffi::*;
use crate::object::av::AvObject;
use crate::object::{cntr, cq};
use crate::state::Sinks;
use crate::state::av::Av;
use crate::state::cntr::Cntr;
use crate::state::cq::Cq;
use crate::state::endpoint::Endpoint;
use crate::state::slab::Key;

/// What an endpoint can be bound to.
enum Bound {
    Queue(Key<Cq>),
    Counter(Key<Cntr>),
    Addresses(Key<Av>),
}

fn of<T>(member: &Member<T>, kind: impl FnOnce(Key<T>) -> Bound) -> (&Arc<Domain>, Bound) {
    (&member.domain, kind(member.key))
}

pub(super) unsafe extern "C" fn bind(fid: *mut fid, bfid: *mut fid, flags: u64) -> c_int {
    // SAFETY: open objects of C's.
    let (ours, class) = unsafe { (EpObject::ours(fid), (*bfid).fclass) };
    // SAFETY: an object of the class that it says.
    let (domain, bound) = unsafe {
        match class {
            FI_CLASS_CQ => of(cq::member(bfid), Bound::Queue),
            FI_CLASS_CNTR => of(cntr::member(bfid), Bound::Counter),
            FI_CLASS_AV => of(AvObject::ours(bfid), Bound::Addresses),
            // no event of an endpoint is ever reported
            FI_CLASS_EQ => return FI_SUCCESS,
            _ => return -FI_EINVAL,
        }
    };
    if !Arc::ptr_eq(domain, &ours.member.domain) {
        return -FI_EDOMAIN;
    }
    let mut state = ours.member.lock();
    let (endpoint, mut sinks) = state.split(ours.member.key);
    if endpoint.enabled {
        return -FI_EOPBADSTATE;
    }
    let bound = match bound {
        Bound::Queue(cq) => endpoint.bind_queue(ours.member.key, cq, flags, &mut sinks),
        Bound::Counter(cntr) => endpoint.bind_counter(ours.member.key, cntr, flags, &mut sinks),
        Bound::Addresses(av) => endpoint.bind_addresses(ours.member.key, av, &mut sinks),
    };
    bound.map_or_else(|code| code, |()| FI_SUCCESS)
}

fn enable(
    endpoint: &mut Endpoint,
    key: Key<Endpoint>,
    domain: &Domain,
    sinks: &mut Sinks<'_>,
) -> Result<(), c_int> {
    endpoint.is_complete()?;
    open_worker(endpoint, key, domain, sinks)?;
    endpoint.enabled = true;
    Ok(())
}

pub(super) unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: C's endpoint.
    let ours = unsafe { EpObject::ours(fid) };
    match command {
        FI_ENABLE => {
            let mut state = ours.member.lock();
            let (endpoint, mut sinks) = state.split(ours.member.key);
            enable(endpoint, ours.member.key, &ours.member.domain, &mut sinks)
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
        let flags = given & !(FI_TRANSMIT | FI_RECV);
        place.store(flags, Ordering::Relaxed);
        if given & FI_TRANSMIT != 0 {
            let flags = message::of_all(flags, &ours.member.domain);
            ours.message_flags.store(flags, Ordering::Relaxed);
        }
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
    ours.member.lock().endpoints[ours.member.key].aliases += 1;
    let member = EpMember {
        member: Member::new(&ours.member.domain, ours.member.key),
        tx_flags: AtomicU64::new(tx),
        rx_flags: AtomicU64::new(rx),
        message_flags: AtomicU64::new(message::of_all(tx, &ours.member.domain)),
        alias: true,
    };
    // SAFETY: a place for the result.
    unsafe { place.write(give(member, context).cast()) };
    FI_SUCCESS
}
