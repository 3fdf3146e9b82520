//! `fi_atomic(3)`.

use std::ffi::{c_int, c_void};

use polyrail_core::frame::{AtomicKind, RemoteAddr};
use polyrail_rails::User;
use polyrail_rails::rail::RawIov;

use super::message::{check, number, total};
use super::{EpMember, EpObject};
use crate::ffi::*;
use crate::limits::{ATOMIC_MAX, IOV_LIMIT};
use crate::object::domain::atomic_code;
use crate::state::Sinks;
use crate::state::completion::mark;
use crate::state::endpoint::Endpoint;

pub static OPS: fi_ops_atomic = fi_ops_atomic {
    size: size_of::<fi_ops_atomic>(),
    write,
    writev,
    writemsg,
    inject,
    readwrite,
    readwritev,
    readwritemsg,
    compwrite,
    compwritev,
    compwritemsg,
    writevalid,
    readwritevalid,
    compwritevalid,
};

/// Local elements, in C's pieces.
#[derive(Clone, Copy)]
struct Elements {
    pieces: *const fi_ioc,
    count: usize,
}

impl Elements {
    const NONE: Self = Self { pieces: std::ptr::null(), count: 0 };

    /// Calls `f` with the same as bytes.
    ///
    /// # Errors
    /// -FI_EINVAL if there are too many pieces.
    ///
    /// # Safety
    /// There are `count` pieces.
    unsafe fn bytes<T>(self, size: usize, f: impl FnOnce(&[RawIov]) -> Result<T, c_int>) -> Result<T, c_int> {
        if self.count > IOV_LIMIT || (self.count > 0 && self.pieces.is_null()) {
            return Err(-FI_EINVAL);
        }
        let mut iov = [RawIov { base: std::ptr::null_mut(), len: 0 }; IOV_LIMIT];
        for (at, piece) in iov.iter_mut().enumerate().take(self.count) {
            // SAFETY: by the caller's promise.
            let ioc = unsafe { &*self.pieces.add(at) };
            *piece = RawIov { base: ioc.addr.cast(), len: ioc.count.checked_mul(size).ok_or(-FI_EINVAL)? };
        }
        f(&iov[..self.count])
    }
}

/// An atomic operation on remote memory.
struct Atomic {
    kind: AtomicKind,
    operands: Elements,
    compare: Elements,
    result: Elements,
    peer: fi_addr_t,
    at: RemoteAddr,
    /// Elements there.
    count: usize,
    datatype: fi_datatype,
    op: fi_op,
    flags: u64,
    context: *mut c_void,
}

impl Endpoint {
    /// # Safety
    /// C's pieces; operands and comparands are readable during the call, the result's memory stays writable until the completion.
    unsafe fn atomic(&mut self, a: &Atomic, sinks: &Sinks<'_>) -> Result<(), c_int> {
        let (mut code, size) = atomic_code(a.datatype, a.op, a.kind).ok_or(-FI_EOPNOTSUPP)?;
        let peer = self.peer(a.peer, sinks.avs)?;
        if a.count == 0 || a.count > ATOMIC_MAX / size {
            return Err(-FI_EINVAL);
        }
        let (bytes, reads) = (a.count * size, a.op == FI_ATOMIC_READ);
        let limit = if a.flags & FI_INJECT != 0 { self.limits.inject_atomic } else { self.limits.atomic };
        if bytes > limit {
            return Err(-FI_EMSGSIZE);
        }
        code.count = a.count as u32;
        let direction = if a.kind == AtomicKind::Update { FI_WRITE } else { FI_READ };
        let user = User { context: number(a.context), flags: FI_ATOMIC | direction | a.flags & mark::WANTED };
        let operands = if reads { Elements::NONE } else { a.operands };
        let all = |iov: &[RawIov], wanted: bool| match total(iov) == if wanted { bytes } else { 0 } {
            true => Ok(()),
            false => Err(-FI_EINVAL),
        };
        // SAFETY: by the caller's promise.
        unsafe {
            operands.bytes(size, |operands| {
                a.compare.bytes(size, |compare| {
                    a.result.bytes(size, |result| {
                        all(operands, !reads)?;
                        all(compare, a.kind == AtomicKind::Compare)?;
                        all(result, a.kind != AtomicKind::Update)?;
                        let issued = self.worker()?.atomic(peer, code, a.at, operands, compare, result, user);
                        issued.map(|_| ()).map_err(|why| self.refused(why, peer))
                    })
                })
            })
        }
    }
}

impl EpMember {
    /// # Safety
    /// As for [`Endpoint::atomic`].
    unsafe fn atomic(&self, mut a: Atomic) -> isize {
        self.call(|endpoint, sinks| {
            a.flags |= endpoint.tx_always;
            // SAFETY: by the caller's promise.
            unsafe { endpoint.atomic(&a, sinks) }
        })
    }
}

/// Calls `f` with C's message as ours. One remote range: each element is updated by itself, and so may each range be.
///
/// # Safety
/// `msg` is C's.
unsafe fn message(
    msg: *const fi_msg_atomic,
    flags: u64,
    kind: AtomicKind,
    compare: Elements,
    result: Elements,
    f: impl FnOnce(Atomic) -> isize,
) -> isize {
    // SAFETY: by the caller's promise.
    let m = unsafe { &*msg };
    // SAFETY: by the caller's promise.
    let Some(remote) = (unsafe { m.rma_iov.as_ref() }).filter(|_| m.rma_iov_count == 1) else {
        return -(FI_EINVAL as isize);
    };
    if check(flags).is_err() || flags & FI_REMOTE_CQ_DATA != 0 {
        return -(FI_EBADFLAGS as isize);
    }
    f(Atomic {
        kind,
        operands: Elements { pieces: m.msg_iov, count: m.iov_count },
        compare,
        result,
        peer: m.addr,
        at: RemoteAddr { key: remote.key, addr: remote.addr },
        count: remote.count,
        datatype: m.datatype,
        op: m.op,
        flags,
        context: m.context,
    })
}

/// One piece of elements.
fn one(addr: *const c_void, count: usize) -> fi_ioc {
    fi_ioc { addr: addr.cast_mut(), count }
}

/// Elements in all pieces.
///
/// # Safety
/// There are `count` pieces, if any.
unsafe fn elements(pieces: *const fi_ioc, count: usize) -> usize {
    // SAFETY: by the caller's promise.
    (0..count.min(IOV_LIMIT)).map(|at| unsafe { (*pieces.add(at)).count }).sum()
}

unsafe extern "C" fn write(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    desc: *mut c_void,
    dest_addr: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    let (ioc, mut desc) = (one(buf, count), desc);
    // SAFETY: C's endpoint and memory.
    unsafe { writev(ep, &raw const ioc, &raw mut desc, 1, dest_addr, addr, key, datatype, op, context) }
}

unsafe extern "C" fn writev(
    ep: *mut fid_ep,
    iov: *const fi_ioc,
    _desc: *mut *mut c_void,
    count: usize,
    peer: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: C's endpoint and memory.
    unsafe {
        let ep = EpObject::ours(ep);
        ep.atomic(Atomic {
            kind: AtomicKind::Update,
            operands: Elements { pieces: iov, count },
            compare: Elements::NONE,
            result: Elements::NONE,
            peer,
            at: RemoteAddr { key, addr },
            count: elements(iov, count),
            datatype,
            op,
            flags: ep.tx_flags(),
            context,
        })
    }
}

unsafe extern "C" fn writemsg(ep: *mut fid_ep, msg: *const fi_msg_atomic, flags: u64) -> isize {
    let none = Elements::NONE;
    // SAFETY: C's endpoint, message and memory.
    unsafe { message(msg, flags, AtomicKind::Update, none, none, |a| EpObject::ours(ep).atomic(a)) }
}

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    peer: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
) -> isize {
    let ioc = one(buf, count);
    let a = Atomic {
        kind: AtomicKind::Update,
        operands: Elements { pieces: &raw const ioc, count: 1 },
        compare: Elements::NONE,
        result: Elements::NONE,
        peer,
        at: RemoteAddr { key, addr },
        count,
        datatype,
        op,
        flags: FI_INJECT,
        context: std::ptr::null_mut(),
    };
    // SAFETY: C's endpoint; its memory during the call. No completion, so nothing is added to the flags.
    unsafe { EpObject::ours(ep).call(|endpoint, sinks| endpoint.atomic(&a, sinks)) }
}

unsafe extern "C" fn readwrite(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    desc: *mut c_void,
    result: *mut c_void,
    result_desc: *mut c_void,
    dest_addr: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    let (ioc, mut into) = (one(buf, count), one(result, count));
    let (mut desc, mut result_desc) = (desc, result_desc);
    // SAFETY: C's endpoint and memory.
    unsafe {
        let (desc, result_desc) = (&raw mut desc, &raw mut result_desc);
        let (ioc, into) = (&raw const ioc, &raw mut into);
        readwritev(ep, ioc, desc, 1, into, result_desc, 1, dest_addr, addr, key, datatype, op, context)
    }
}

unsafe extern "C" fn readwritev(
    ep: *mut fid_ep,
    iov: *const fi_ioc,
    _desc: *mut *mut c_void,
    count: usize,
    resultv: *mut fi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    peer: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: C's endpoint and memory.
    unsafe {
        let ep = EpObject::ours(ep);
        ep.atomic(Atomic {
            kind: AtomicKind::Fetch,
            operands: Elements { pieces: iov, count },
            compare: Elements::NONE,
            result: Elements { pieces: resultv, count: result_count },
            peer,
            at: RemoteAddr { key, addr },
            // a read may come without operands
            count: elements(resultv, result_count),
            datatype,
            op,
            flags: ep.tx_flags(),
            context,
        })
    }
}

unsafe extern "C" fn readwritemsg(
    ep: *mut fid_ep,
    msg: *const fi_msg_atomic,
    resultv: *mut fi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    let result = Elements { pieces: resultv, count: result_count };
    // SAFETY: C's endpoint, message and memory.
    unsafe {
        message(msg, flags, AtomicKind::Fetch, Elements::NONE, result, |a| EpObject::ours(ep).atomic(a))
    }
}

unsafe extern "C" fn compwrite(
    ep: *mut fid_ep,
    buf: *const c_void,
    count: usize,
    desc: *mut c_void,
    compare: *const c_void,
    compare_desc: *mut c_void,
    result: *mut c_void,
    result_desc: *mut c_void,
    dest_addr: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    let (ioc, with, mut into) = (one(buf, count), one(compare, count), one(result, count));
    let (mut desc, mut compare_desc, mut result_desc) = (desc, compare_desc, result_desc);
    // SAFETY: C's endpoint and memory.
    unsafe {
        let (desc, compare_desc, result_desc) = (&raw mut desc, &raw mut compare_desc, &raw mut result_desc);
        let (ioc, with, into) = (&raw const ioc, &raw const with, &raw mut into);
        compwritev(
            ep,
            ioc,
            desc,
            1,
            with,
            compare_desc,
            1,
            into,
            result_desc,
            1,
            dest_addr,
            addr,
            key,
            datatype,
            op,
            context,
        )
    }
}

unsafe extern "C" fn compwritev(
    ep: *mut fid_ep,
    iov: *const fi_ioc,
    _desc: *mut *mut c_void,
    count: usize,
    comparev: *const fi_ioc,
    _compare_desc: *mut *mut c_void,
    compare_count: usize,
    resultv: *mut fi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    peer: fi_addr_t,
    addr: u64,
    key: u64,
    datatype: fi_datatype,
    op: fi_op,
    context: *mut c_void,
) -> isize {
    // SAFETY: C's endpoint and memory.
    unsafe {
        let ep = EpObject::ours(ep);
        ep.atomic(Atomic {
            kind: AtomicKind::Compare,
            operands: Elements { pieces: iov, count },
            compare: Elements { pieces: comparev, count: compare_count },
            result: Elements { pieces: resultv, count: result_count },
            peer,
            at: RemoteAddr { key, addr },
            count: elements(iov, count),
            datatype,
            op,
            flags: ep.tx_flags(),
            context,
        })
    }
}

unsafe extern "C" fn compwritemsg(
    ep: *mut fid_ep,
    msg: *const fi_msg_atomic,
    comparev: *const fi_ioc,
    _compare_desc: *mut *mut c_void,
    compare_count: usize,
    resultv: *mut fi_ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    let compare = Elements { pieces: comparev, count: compare_count };
    let result = Elements { pieces: resultv, count: result_count };
    // SAFETY: C's endpoint, message and memory.
    unsafe { message(msg, flags, AtomicKind::Compare, compare, result, |a| EpObject::ours(ep).atomic(a)) }
}

/// # Safety
/// `count` is null or a place for the answer.
unsafe fn valid(kind: AtomicKind, datatype: fi_datatype, op: fi_op, count: *mut usize) -> c_int {
    let Some((_, size)) = atomic_code(datatype, op, kind) else { return -FI_EOPNOTSUPP };
    if !count.is_null() {
        // SAFETY: by the caller's promise.
        unsafe { count.write(ATOMIC_MAX / size) };
    }
    FI_SUCCESS
}

unsafe extern "C" fn writevalid(
    _: *mut fid_ep,
    datatype: fi_datatype,
    op: fi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: as our caller says.
    unsafe { valid(AtomicKind::Update, datatype, op, count) }
}

unsafe extern "C" fn readwritevalid(
    _: *mut fid_ep,
    datatype: fi_datatype,
    op: fi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: as our caller says.
    unsafe { valid(AtomicKind::Fetch, datatype, op, count) }
}

unsafe extern "C" fn compwritevalid(
    _: *mut fid_ep,
    datatype: fi_datatype,
    op: fi_op,
    count: *mut usize,
) -> c_int {
    // SAFETY: as our caller says.
    unsafe { valid(AtomicKind::Compare, datatype, op, count) }
}
