//! `fi_tagged(3)`.

use std::ffi::c_void;

use libc::iovec;
use polyrail_core::frame::Matching;

use super::EpObject;
use super::message::{Recv, Send, check, piece, pieces};
use crate::ffi::*;

pub static OPS: fi_ops_tagged = fi_ops_tagged {
    size: size_of::<fi_ops_tagged>(),
    recv,
    recvv,
    recvmsg,
    send,
    sendv,
    sendmsg,
    inject,
    senddata,
    injectdata,
};

unsafe extern "C" fn recv(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    src_addr: fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: C's endpoint; its memory until the completion.
    unsafe {
        let ep = EpObject::ours(ep);
        if ep.recv_at_once(src_addr, tag, ignore, piece(buf, len), context) {
            return 0;
        }
        ep.recv_piece(src_addr, tag, ignore, piece(buf, len), context)
    }
}

unsafe extern "C" fn recvv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    src_addr: fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: C's endpoint and `count` pieces; its memory until the completion.
    unsafe {
        let ep = EpObject::ours(ep);
        let iov = match pieces(iov, count) {
            Ok(iov) => iov,
            Err(code) => return code as isize,
        };
        ep.recv_any(Recv {
            from: src_addr,
            matching: Matching::Tag(tag),
            ignore,
            iov,
            flags: ep.rx_flags(),
            context,
        })
    }
}

unsafe extern "C" fn recvmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize {
    // SAFETY: C's endpoint and message; its memory until the completion.
    unsafe {
        let m = &*msg;
        // who only looks receives nothing
        let count = if flags & (FI_PEEK | FI_DISCARD) == 0 { m.iov_count } else { 0 };
        let iov = match check(flags).and_then(|()| pieces(m.msg_iov, count)) {
            Ok(iov) => iov,
            Err(code) => return code as isize,
        };
        let (matching, ignore) = (Matching::Tag(m.tag), m.ignore);
        EpObject::ours(ep).recv_any(Recv { from: m.addr, matching, ignore, iov, flags, context: m.context })
    }
}

unsafe extern "C" fn send(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    dest_addr: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: C's endpoint; its memory until the completion.
    unsafe { EpObject::ours(ep).send_plain(dest_addr, tag, None, piece(buf, len), Some(context)) }
}

unsafe extern "C" fn sendv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    dest_addr: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: C's endpoint and `count` pieces; its memory until the completion.
    unsafe {
        let ep = EpObject::ours(ep);
        let iov = match pieces(iov, count) {
            Ok(iov) => iov,
            Err(code) => return code as isize,
        };
        ep.send_any(Send {
            to: dest_addr,
            matching: Matching::Tag(tag),
            data: None,
            iov,
            flags: ep.message_flags(),
            context,
        })
    }
}

unsafe extern "C" fn sendmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize {
    // SAFETY: C's endpoint and message; its memory until the completion.
    unsafe {
        let m = &*msg;
        let iov = match check(flags).and_then(|()| pieces(m.msg_iov, m.iov_count)) {
            Ok(iov) => iov,
            Err(code) => return code as isize,
        };
        let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(m.data);
        let matching = Matching::Tag(m.tag);
        EpObject::ours(ep).send_any(Send { to: m.addr, matching, data, iov, flags, context: m.context })
    }
}

unsafe extern "C" fn inject(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    dest_addr: fi_addr_t,
    tag: u64,
) -> isize {
    // SAFETY: C's endpoint; its memory during the call.
    unsafe { EpObject::ours(ep).send_plain(dest_addr, tag, None, piece(buf, len), None) }
}

unsafe extern "C" fn senddata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    dest_addr: fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: C's endpoint; its memory until the completion.
    unsafe { EpObject::ours(ep).send_plain(dest_addr, tag, Some(data), piece(buf, len), Some(context)) }
}

unsafe extern "C" fn injectdata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    dest_addr: fi_addr_t,
    tag: u64,
) -> isize {
    // SAFETY: C's endpoint; its memory during the call.
    unsafe { EpObject::ours(ep).send_plain(dest_addr, tag, Some(data), piece(buf, len), None) }
}
