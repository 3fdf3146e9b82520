//! Calls that move bytes.

use std::ffi::{c_int, c_uint, c_void};

use libc::{iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t, timespec};
use polyrail_core::trace::{Call, SocketFields};

use crate::next::next;
use crate::recorder::{self, now};
use crate::sockets::number;
use crate::sys::{Address, errno, quietly};

/// What a record says of a result: it, or minus the error number.
#[inline(always)]
pub fn outcome(result: i64) -> i32 {
    if result == -1 { -errno() } else { result.min(i64::from(i32::MAX)) as i32 }
}

/// Whether a call has just failed because it was given what is not memory: what the program's pointers point to must be left alone.
#[inline(always)]
pub fn faulted(result: ssize_t) -> bool {
    result == -1 && errno() == libc::EFAULT
}

/// Whether a call that does not block found nothing to do.
#[inline(always)]
fn nothing(result: i32) -> bool {
    result == -libc::EAGAIN
}

#[inline(always)]
fn moved(call: Call, start: u64, socket: u32, result: ssize_t, asked: size_t, extra: u16, address: u32) {
    let result = outcome(result as i64);
    let arg = asked.min(u32::MAX as usize) as u32;
    recorder::call(call, start, nothing(result), SocketFields { socket, result, arg, arg2: address, extra });
}

/// Bytes in a vector that a call has just used; 0 where the kernel could not read it.
///
/// # Safety
/// `parts` has `count` entries, unless `result` and the error number say otherwise.
unsafe fn total(parts: *const iovec, count: usize, result: ssize_t) -> usize {
    if parts.is_null() || count > 1024 || faulted(result) {
        return 0; // UIO_MAXIOV: the kernel refuses more
    }
    // SAFETY: as the caller says
    unsafe { std::slice::from_raw_parts(parts, count) }
        .iter()
        .fold(0, |sum, part| sum.saturating_add(part.iov_len))
}

/// The number of the address that a call named; 0 for none.
///
/// # Safety
/// `address` is null or readable for `length` bytes.
#[inline(always)]
unsafe fn named(address: *const sockaddr, length: usize) -> u32 {
    if address.is_null() || length == 0 {
        return 0;
    }
    // SAFETY: as the caller says
    let address = unsafe { Address::copy(address, length) };
    quietly(|| recorder::tell_address(&address))
}

macro_rules! moving {
    ($($(#[$meta:meta])* fn $name:ident($fd:ident: c_int $(, $argument:ident: $type:ty)*), $call:ident, $asked:expr, $extra:expr;)*) => {$(
        /// See its manual page; recorded.
        ///
        /// # Safety
        /// As of the C function.
        #[unsafe(no_mangle)]
        $(#[$meta])*
        pub unsafe extern "C-unwind" fn $name($fd: c_int $(, $argument: $type)*) -> ssize_t {
            let next = next!($name: fn(c_int $(, $type)*) -> ssize_t);
            let Some(socket) = number($fd) else {
                // SAFETY: the program's own call
                return unsafe { next($fd $(, $argument)*) };
            };
            let start = now();
            // SAFETY: the program's own call
            let result = unsafe { next($fd $(, $argument)*) };
            let asked = $asked;
            moved(Call::$call, start, socket, result, asked(result), $extra as u16, 0);
            result
        }
    )*};
}

moving! {
    fn send(fd: c_int, buffer: *const c_void, length: size_t, flags: c_int), Send, |_| length, flags;
    fn write(fd: c_int, buffer: *const c_void, length: size_t), Write, |_| length, 0;
    // SAFETY: the kernel has just read the vector, or the result says that it could not
    fn writev(fd: c_int, parts: *const iovec, count: c_int), WriteV, |result| unsafe { total(parts, count as usize, result) }, count;
    fn recv(fd: c_int, buffer: *mut c_void, length: size_t, flags: c_int), Recv, |_| length, flags;
    fn read(fd: c_int, buffer: *mut c_void, length: size_t), Read, |_| length, 0;
    // SAFETY: as above
    fn readv(fd: c_int, parts: *const iovec, count: c_int), ReadV, |result| unsafe { total(parts, count as usize, result) }, count;
    // what programs built with _FORTIFY_SOURCE call instead
    fn __recv_chk(fd: c_int, buffer: *mut c_void, length: size_t, size: size_t, flags: c_int), Recv, |_| length, flags;
    fn __read_chk(fd: c_int, buffer: *mut c_void, length: size_t, size: size_t), Read, |_| length, 0;
    fn sendfile(fd: c_int, from: c_int, offset: *mut off_t, length: size_t), SendFile, |_| length, 0;
    fn sendfile64(fd: c_int, from: c_int, offset: *mut off_t, length: size_t), SendFile, |_| length, 0;
}

/// See sendto(2); recorded.
///
/// # Safety
/// As of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    buffer: *const c_void,
    length: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_length: socklen_t,
) -> ssize_t {
    let next = next!(sendto: fn(c_int, *const c_void, size_t, c_int, *const sockaddr, socklen_t) -> ssize_t);
    let socket = number(fd);
    let start = if socket.is_some() { now() } else { 0 };
    // SAFETY: the program's own call
    let result = unsafe { next(fd, buffer, length, flags, to, to_length) };
    if let Some(socket) = socket {
        // SAFETY: the program's own address, of this length
        let to = if result >= 0 { unsafe { named(to, to_length as usize) } } else { 0 };
        moved(Call::SendTo, start, socket, result, length, flags as u16, to);
    }
    result
}

macro_rules! receiving_from {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// See recvfrom(2); recorded.
        ///
        /// # Safety
        /// As of the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            fd: c_int, buffer: *mut c_void, length: size_t, $($argument: $type,)*
            flags: c_int, from: *mut sockaddr, from_length: *mut socklen_t,
        ) -> ssize_t {
            let next =
                next!($name: fn(c_int, *mut c_void, size_t, $($type,)* c_int, *mut sockaddr, *mut socklen_t) -> ssize_t);
            let socket = number(fd);
            let start = if socket.is_some() { now() } else { 0 };
            // SAFETY: the program's own call
            let result = unsafe { next(fd, buffer, length, $($argument,)* flags, from, from_length) };
            if let Some(socket) = socket {
                // SAFETY: the kernel has filled `from`, and `from_length` says how much of it
                let from = if result >= 0 && !from.is_null() { unsafe { named(from, *from_length as usize) } } else { 0 };
                moved(Call::RecvFrom, start, socket, result, length, flags as u16, from);
            }
            result
        }
    )*};
}

receiving_from! {
    recvfrom();
    __recvfrom_chk(size: size_t);
}

macro_rules! messages {
    ($($name:ident, $pointer:ty, $call:ident;)*) => {$(
        /// See its manual page; recorded.
        ///
        /// # Safety
        /// As of the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(fd: c_int, message: $pointer, flags: c_int) -> ssize_t {
            let next = next!($name: fn(c_int, $pointer, c_int) -> ssize_t);
            let socket = number(fd);
            let start = if socket.is_some() { now() } else { 0 };
            // SAFETY: the program's own call
            let result = unsafe { next(fd, message, flags) };
            if let Some(socket) = socket {
                // SAFETY: the kernel has just used the message, unless it says that it could not (EFAULT)
                let (asked, address) = if faulted(result) { (0, 0) } else { unsafe {
                    let message = &*message;
                    let address = if result >= 0 { named(message.msg_name.cast(), message.msg_namelen as usize) } else { 0 };
                    (total(message.msg_iov, message.msg_iovlen as usize, result), address)
                } };
                moved(Call::$call, start, socket, result, asked, flags as u16, address);
            }
            result
        }
    )*};
}

messages! {
    sendmsg, *const msghdr, SendMsg;
    recvmsg, *mut msghdr, RecvMsg;
}

/// Records a call for many messages: `result` is their number, `arg` the bytes of all.
///
/// # Safety
/// `messages` has `result` filled entries, if that is positive.
unsafe fn many(call: Call, start: u64, socket: u32, messages: *const mmsghdr, result: c_int, flags: c_int) {
    let result = outcome(i64::from(result));
    let (mut bytes, mut arg2) = (0u64, 0);
    if result > 0 {
        // SAFETY: as the caller says
        let messages = unsafe { std::slice::from_raw_parts(messages, result as usize) };
        bytes = messages.iter().map(|message| u64::from(message.msg_len)).sum();
        let first = &messages[0].msg_hdr;
        // SAFETY: the kernel has just read or filled the name
        arg2 = unsafe { named(first.msg_name.cast(), first.msg_namelen as usize) };
    }
    let arg = bytes.min(u64::from(u32::MAX)) as u32;
    recorder::call(
        call,
        start,
        nothing(result),
        SocketFields { socket, result, arg, arg2, extra: flags as u16 },
    );
}

/// See sendmmsg(2); recorded.
///
/// # Safety
/// As of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    let next = next!(sendmmsg: fn(c_int, *mut mmsghdr, c_uint, c_int) -> c_int);
    let socket = number(fd);
    let start = if socket.is_some() { now() } else { 0 };
    // SAFETY: the program's own call
    let result = unsafe { next(fd, messages, count, flags) };
    if let Some(socket) = socket {
        // SAFETY: so many entries were filled
        unsafe { many(Call::SendMMsg, start, socket, messages, result, flags) };
    }
    result
}

/// See recvmmsg(2); recorded.
///
/// # Safety
/// As of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    let next = next!(recvmmsg: fn(c_int, *mut mmsghdr, c_uint, c_int, *mut timespec) -> c_int);
    let socket = number(fd);
    let start = if socket.is_some() { now() } else { 0 };
    // SAFETY: the program's own call
    let result = unsafe { next(fd, messages, count, flags, timeout) };
    if let Some(socket) = socket {
        // SAFETY: so many entries were filled
        unsafe { many(Call::RecvMMsg, start, socket, messages, result, flags) };
    }
    result
}

/// See splice(2); recorded where one end is a socket.
///
/// # Safety
/// As of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn splice(
    from: c_int,
    from_offset: *mut i64,
    to: c_int,
    to_offset: *mut i64,
    length: size_t,
    flags: c_uint,
) -> ssize_t {
    let next = next!(splice: fn(c_int, *mut i64, c_int, *mut i64, size_t, c_uint) -> ssize_t);
    let ends = [(number(from), Call::SpliceFrom), (number(to), Call::SpliceTo)];
    let start = now();
    // SAFETY: the program's own call
    let result = unsafe { next(from, from_offset, to, to_offset, length, flags) };
    for (socket, call) in ends {
        if let Some(socket) = socket {
            moved(call, start, socket, result, length, flags as u16, 0);
        }
    }
    result
}
