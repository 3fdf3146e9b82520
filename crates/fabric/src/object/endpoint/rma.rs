//! `fi_rma(3)`.

use std::ffi::{c_int, c_void};

use libc::iovec;
use polyrail_core::frame::RemoteAddr;
use polyrail_core::proto::{PartSpec, PeerIdx};
use polyrail_rails::rail::RawIov;
use polyrail_rails::{Issued, Refused, User};

use super::message::{check, long, number, piece, pieces, total};
use super::{EpMember, EpObject};
use crate::ffi::*;
use crate::limits::RMA_IOV_LIMIT;
use crate::state::Sinks;
use crate::state::completion::mark;
use crate::state::endpoint::Endpoint;

pub static OPS: fi_ops_rma = fi_ops_rma {
    size: size_of::<fi_ops_rma>(),
    read,
    readv,
    readmsg,
    write,
    writev,
    writemsg,
    inject,
    writedata,
    injectdata,
};

/// A read or write of remote memory.
struct Rma<'a> {
    peer: fi_addr_t,
    iov: &'a [RawIov],
    at: &'a [PartSpec],
    data: Option<u64>,
    flags: u64,
    context: *mut c_void,
}

fn part(addr: u64, len: usize, key: u64) -> PartSpec {
    PartSpec { at: RemoteAddr { key, addr }, len: len as u64 }
}

impl Endpoint {
    /// # Safety
    /// The memory stays readable and unchanged until the completion, or during the call with `FI_INJECT`.
    unsafe fn put(&mut self, r: &Rma<'_>, sinks: &Sinks<'_>) -> Result<(), c_int> {
        let peer = self.peer(r.peer, sinks.avs)?;
        let inject = r.flags & FI_INJECT != 0;
        if total(r.iov) > if inject { self.limits.inject_rma } else { self.limits.rma } {
            return Err(-FI_EMSGSIZE);
        }
        let bytes = total(r.iov);
        let flags = FI_RMA | FI_WRITE | r.flags & mark::WANTED | long(bytes);
        let user = User { context: number(r.context), flags };
        // SAFETY: by the caller's promise.
        let issued = unsafe { self.worker()?.put(peer, r.iov, r.at, r.data, inject, user) };
        self.issued(bytes, issued, peer)
    }

    /// # Safety
    /// The memory stays writable, and nobody else's, until the completion.
    unsafe fn get(&mut self, r: &Rma<'_>, sinks: &Sinks<'_>) -> Result<(), c_int> {
        let peer = self.peer(r.peer, sinks.avs)?;
        if total(r.iov) > self.limits.rma {
            return Err(-FI_EMSGSIZE);
        }
        let bytes = total(r.iov);
        let flags = FI_RMA | FI_READ | r.flags & mark::WANTED | long(bytes);
        let user = User { context: number(r.context), flags };
        // SAFETY: by the caller's promise.
        let issued = unsafe { self.worker()?.get(peer, r.iov, r.at, user) };
        self.issued(bytes, issued, peer)
    }

    /// An event follows each that is issued.
    fn issued(&mut self, bytes: usize, issued: Result<Issued, Refused>, peer: PeerIdx) -> Result<(), c_int> {
        issued.map_err(|why| self.refused(why, peer))?;
        self.begins(bytes);
        Ok(())
    }
}

impl EpMember {
    /// # Safety
    /// As for [`Endpoint::put`].
    unsafe fn put(&self, mut r: Rma<'_>) -> isize {
        self.call(|endpoint, sinks| {
            r.flags |= endpoint.tx_always;
            // SAFETY: by the caller's promise.
            unsafe { endpoint.put(&r, sinks) }
        })
    }

    /// # Safety
    /// As for [`Endpoint::get`].
    unsafe fn get(&self, mut r: Rma<'_>) -> isize {
        self.call(|endpoint, sinks| {
            r.flags |= endpoint.tx_always;
            // SAFETY: by the caller's promise.
            unsafe { endpoint.get(&r, sinks) }
        })
    }
}

/// Calls `f` with C's message as ours.
///
/// # Safety
/// `msg` is C's.
unsafe fn message(msg: *const fi_msg_rma, flags: u64, f: impl FnOnce(Rma<'_>) -> isize) -> isize {
    // SAFETY: by the caller's promise.
    let m = unsafe { &*msg };
    // SAFETY: by the caller's promise.
    let iov = match check(flags).and_then(|()| unsafe { pieces(m.msg_iov, m.iov_count) }) {
        Ok(iov) => iov,
        Err(code) => return code as isize,
    };
    if m.rma_iov_count > RMA_IOV_LIMIT || (m.rma_iov_count > 0 && m.rma_iov.is_null()) {
        return -(FI_EINVAL as isize);
    }
    let mut at = [part(0, 0, 0); RMA_IOV_LIMIT];
    for (n, spec) in at.iter_mut().enumerate().take(m.rma_iov_count) {
        // SAFETY: by the caller's promise.
        let remote = unsafe { &*m.rma_iov.add(n) };
        *spec = part(remote.addr, remote.len, remote.key);
    }
    let at = &at[..m.rma_iov_count];
    if at.iter().map(|spec| spec.len).sum::<u64>() != total(iov) as u64 {
        return -(FI_EINVAL as isize);
    }
    let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(m.data);
    f(Rma { peer: m.addr, iov, at, data, flags, context: m.context })
}

unsafe extern "C" fn read(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    src_addr: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: C's endpoint; its memory until the completion.
    unsafe {
        let ep = EpObject::ours(ep);
        let (iov, at) = (&piece(buf, len), &[part(addr, len, key)]);
        ep.get(Rma { peer: src_addr, iov, at, data: None, flags: ep.tx_flags(), context })
    }
}

unsafe extern "C" fn readv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    src_addr: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: C's endpoint and `count` pieces; its memory until the completion.
    unsafe {
        let ep = EpObject::ours(ep);
        let iov = match pieces(iov, count) {
            Ok(iov) => iov,
            Err(code) => return code as isize,
        };
        let at = &[part(addr, total(iov), key)];
        ep.get(Rma { peer: src_addr, iov, at, data: None, flags: ep.tx_flags(), context })
    }
}

unsafe extern "C" fn readmsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: C's endpoint and message; its memory until the completion.
    unsafe { message(msg, flags, |rma| EpObject::ours(ep).get(rma)) }
}

unsafe extern "C" fn write(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    dest_addr: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: C's endpoint; its memory until the completion.
    unsafe {
        let ep = EpObject::ours(ep);
        let (iov, at) = (&piece(buf, len), &[part(addr, len, key)]);
        ep.put(Rma { peer: dest_addr, iov, at, data: None, flags: ep.tx_flags(), context })
    }
}

unsafe extern "C" fn writev(
    ep: *mut fid_ep,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    dest_addr: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: C's endpoint and `count` pieces; its memory until the completion.
    unsafe {
        let ep = EpObject::ours(ep);
        let iov = match pieces(iov, count) {
            Ok(iov) => iov,
            Err(code) => return code as isize,
        };
        let at = &[part(addr, total(iov), key)];
        ep.put(Rma { peer: dest_addr, iov, at, data: None, flags: ep.tx_flags(), context })
    }
}

unsafe extern "C" fn writemsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize {
    // SAFETY: C's endpoint and message; its memory until the completion.
    unsafe { message(msg, flags, |rma| EpObject::ours(ep).put(rma)) }
}

unsafe extern "C" fn writedata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    dest_addr: fi_addr_t,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: C's endpoint; its memory until the completion.
    unsafe {
        let ep = EpObject::ours(ep);
        let (iov, at) = (&piece(buf, len), &[part(addr, len, key)]);
        ep.put(Rma { peer: dest_addr, iov, at, data: Some(data), flags: ep.tx_flags(), context })
    }
}

/// Writes without a completion.
///
/// # Safety
/// C's endpoint and memory.
unsafe fn quietly(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: Option<u64>,
    peer: fi_addr_t,
    addr: u64,
    key: u64,
) -> isize {
    let (iov, at, context) = (&piece(buf, len), &[part(addr, len, key)], std::ptr::null_mut());
    let rma = Rma { peer, iov, at, data, flags: FI_INJECT, context };
    // SAFETY: by the caller's promise.
    unsafe { EpObject::ours(ep).call(|endpoint, sinks| endpoint.put(&rma, sinks)) }
}

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    dest_addr: fi_addr_t,
    addr: u64,
    key: u64,
) -> isize {
    // SAFETY: C's endpoint; its memory during the call.
    unsafe { quietly(ep, buf, len, None, dest_addr, addr, key) }
}

unsafe extern "C" fn injectdata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    dest_addr: fi_addr_t,
    addr: u64,
    key: u64,
) -> isize {
    // SAFETY: C's endpoint; its memory during the call.
    unsafe { quietly(ep, buf, len, Some(data), dest_addr, addr, key) }
}
