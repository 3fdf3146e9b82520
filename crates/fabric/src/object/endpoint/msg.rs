//! `fi_msg(3)`.

use std::ffi::c_void;

use libc::iovec;
use polyrail_core::frame::Matching::Message;

use super::EpObject;
use super::message::{Recv, Send, check, piece, pieces};
use crate::ffi::*;

pub static OPS: fi_ops_msg = fi_ops_msg {
    size: size_of::<fi_ops_msg>(),
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
    context: *mut c_void,
) -> isize {
    // SAFETY: C's endpoint; its memory until the completion.
    unsafe {
        let ep = EpObject::ours(ep);
        let iov = &piece(buf, len);
        ep.recv(Recv { from: src_addr, matching: Message, ignore: 0, iov, flags: ep.rx_flags(), context })
    }
}

unsafe extern "C" fn recvv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    src_addr: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: C's endpoint and `count` pieces; its memory until the completion.
    unsafe {
        let ep = EpObject::ours(ep);
        let iov = match pieces(iov, count) {
            Ok(iov) => iov,
            Err(code) => return code as isize,
        };
        ep.recv_any(Recv { from: src_addr, matching: Message, ignore: 0, iov, flags: ep.rx_flags(), context })
    }
}

unsafe extern "C" fn recvmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    // SAFETY: C's endpoint and message; its memory until the completion.
    unsafe {
        let m = &*msg;
        // who only looks receives nothing
        let count = if flags & (FI_PEEK | FI_DISCARD) == 0 { m.iov_count } else { 0 };
        let iov = match check(flags).and_then(|()| pieces(m.msg_iov, count)) {
            Ok(iov) => iov,
            Err(code) => return code as isize,
        };
        EpObject::ours(ep).recv_any(Recv {
            from: m.addr,
            matching: Message,
            ignore: 0,
            iov,
            flags,
            context: m.context,
        })
    }
}

unsafe extern "C" fn send(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    dest_addr: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: C's endpoint; its memory until the completion.
    unsafe {
        let ep = EpObject::ours(ep);
        let iov = &piece(buf, len);
        ep.send(Send {
            to: dest_addr,
            matching: Message,
            data: None,
            iov,
            flags: ep.message_flags(),
            context,
        })
    }
}

unsafe extern "C" fn sendv(
    ep: *mut fid_ep,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    dest_addr: fi_addr_t,
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
            matching: Message,
            data: None,
            iov,
            flags: ep.message_flags(),
            context,
        })
    }
}

unsafe extern "C" fn sendmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize {
    // SAFETY: C's endpoint and message; its memory until the completion.
    unsafe {
        let m = &*msg;
        let iov = match check(flags).and_then(|()| pieces(m.msg_iov, m.iov_count)) {
            Ok(iov) => iov,
            Err(code) => return code as isize,
        };
        let data = (flags & FI_REMOTE_CQ_DATA != 0).then_some(m.data);
        EpObject::ours(ep).send_any(Send {
            to: m.addr,
            matching: Message,
            data,
            iov,
            flags,
            context: m.context,
        })
    }
}

unsafe extern "C" fn inject(ep: *mut fid_ep, buf: *const c_void, len: usize, dest_addr: fi_addr_t) -> isize {
    let (matching, iov, context) = (Message, &piece(buf, len), std::ptr::null_mut());
    // SAFETY: C's endpoint; its memory during the call.
    unsafe {
        EpObject::ours(ep).inject(Send {
            to: dest_addr,
            matching,
            data: None,
            iov,
            flags: FI_INJECT,
            context,
        })
    }
}

unsafe extern "C" fn senddata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    dest_addr: fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: C's endpoint; its memory until the completion.
    unsafe {
        let ep = EpObject::ours(ep);
        let iov = &piece(buf, len);
        ep.send(Send {
            to: dest_addr,
            matching: Message,
            data: Some(data),
            iov,
            flags: ep.message_flags(),
            context,
        })
    }
}

unsafe extern "C" fn injectdata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    dest_addr: fi_addr_t,
) -> isize {
    let (matching, iov, data, context) = (Message, &piece(buf, len), Some(data), std::ptr::null_mut());
    // SAFETY: C's endpoint; its memory during the call.
    unsafe {
        EpObject::ours(ep).inject(Send { to: dest_addr, matching, data, iov, flags: FI_INJECT, context })
    }
}
