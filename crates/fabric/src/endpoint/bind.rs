//! What an endpoint is bound to, enabling it, its flags and aliases.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Endpoint, EpMember, EpObject, give};
use crate::av::AvObject;
use crate::domain::{Domain, Member};
use crate::ffi::*;
use crate::progress::Sinks;
use crate::{cntr, cq};

pub(super) unsafe extern "C" fn bind(fid: *mut fid, bfid: *mut fid, flags: u64) -> c_int {
    // SAFETY: open objects of C's.
    let (ours, class) = unsafe { (EpObject::ours(fid), (*bfid).fclass) };
    // SAFETY: an object of the class that it says.
    let bound = unsafe {
        match class {
            FI_CLASS_CQ => cq::member(bfid),
            FI_CLASS_CNTR => cntr::member(bfid),
            FI_CLASS_AV => AvObject::ours(bfid),
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

pub(super) unsafe extern "C" fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
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
