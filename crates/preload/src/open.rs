//! Calls that begin, name, duplicate and end descriptors.

use std::ffi::{c_int, c_uint, c_void};

use libc::{sockaddr, socklen_t};
use polyrail_core::trace::{Call, SocketFields};

use crate::filter;
use crate::io::{faulted, outcome};
use crate::next::next;
use crate::recorder::{self, now};
use crate::sockets::{self, number};
use crate::sys::{Address, errno, quietly};

fn record(call: Call, start: u64, socket: u32, result: c_int, arg: u32, arg2: u32) {
    let fields = SocketFields { socket, result: outcome(i64::from(result)), arg, arg2, extra: 0 };
    recorder::call(call, start, false, fields);
}

/// See socket(2); recorded.
///
/// # Safety
/// As of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let next = next!(socket: fn(c_int, c_int, c_int) -> c_int);
    let start = now();
    // SAFETY: the program's own call
    let fd = unsafe { next(domain, kind, protocol) };
    if recorder::on() {
        let number = if fd >= 0 { sockets::opened(fd) } else { 0 };
        record(Call::Socket, start, number, fd, domain as u32, kind as u32);
    }
    fd
}

/// See socketpair(2); recorded.
///
/// # Safety
/// As of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn socketpair(
    domain: c_int,
    kind: c_int,
    protocol: c_int,
    pair: *mut c_int,
) -> c_int {
    let next = next!(socketpair: fn(c_int, c_int, c_int, *mut c_int) -> c_int);
    let start = now();
    // SAFETY: the program's own call
    let result = unsafe { next(domain, kind, protocol, pair) };
    if recorder::on() && result == 0 {
        // SAFETY: the kernel has just filled both
        let (first, second) = unsafe { (*pair, *pair.add(1)) };
        let number = sockets::opened(first);
        sockets::opened(second);
        record(Call::SocketPair, start, number, result, domain as u32, kind as u32);
    }
    result
}

/// The address that a call has just used; none where the kernel could not read it.
///
/// # Safety
/// `address` is readable for `length` bytes, unless `result` and the error number say otherwise.
unsafe fn used(address: *const sockaddr, length: socklen_t, result: c_int) -> Address {
    // the kernel looks at the length before the memory
    if result == -1 && (faulted(result as isize) || errno() == libc::EINVAL || errno() == libc::EBADF) {
        return Address::default();
    }
    // SAFETY: as the caller says
    unsafe { Address::copy(address, length as usize) }
}

macro_rules! named {
    ($($name:ident($($argument:ident: $type:ty),*), $call:ident, |$fd:ident, $result:ident| $then:expr;)*) => {$(
        /// See its manual page; recorded.
        ///
        /// # Safety
        /// As of the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($fd: c_int, $($argument: $type),*) -> c_int {
            let next = next!($name: fn(c_int $(, $type)*) -> c_int);
            let socket = number($fd);
            // one that is recorded or not by its names may get them now
            let start = if socket.is_some() || filter::by_port() { now() } else { 0 };
            // SAFETY: the program's own call
            let $result = unsafe { next($fd, $($argument),*) };
            if socket.is_some() || filter::by_port() && recorder::on() {
                let (arg, arg2): (u32, u32) = $then;
                if let Some(socket) = socket.or_else(|| number($fd)) {
                    record(Call::$call, start, socket, $result, arg, arg2);
                }
            }
            $result
        }
    )*};
}

named! {
    bind(address: *const sockaddr, length: socklen_t), Bind, |fd, result| {
        if result == 0 { sockets::changed(fd, None) }
        // SAFETY: the program's own address
        let address = unsafe { used(address, length, result) };
        (0, quietly(|| recorder::tell_address(&address)))
    };
    listen(backlog: c_int), Listen, |fd, result| {
        if result == 0 { sockets::changed(fd, None) }
        (backlog as u32, 0)
    };
    connect(address: *const sockaddr, length: socklen_t), Connect, |fd, result| {
        // SAFETY: as for bind
        let address = unsafe { used(address, length, result) };
        if result == 0 || errno() == libc::EINPROGRESS { sockets::changed(fd, Some(address)) }
        (0, quietly(|| recorder::tell_address(&address)))
    };
    shutdown(how: c_int), Shutdown, |fd, result| (how as u32, 0);
    getsockopt(level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t), GetSockOpt, |fd, result| {
        ((level as u32) << 16 | name as u32 & 0xffff, 0)
    };
    setsockopt(level: c_int, name: c_int, value: *const c_void, length: socklen_t), SetSockOpt, |fd, result| {
        // SAFETY: the program gave so many bytes, which the kernel could read unless it failed
        let number = if result == 0 && length >= 4 { unsafe { value.cast::<u32>().read_unaligned() } } else { 0 };
        ((level as u32) << 16 | name as u32 & 0xffff, number)
    };
    getsockname(address: *mut sockaddr, length: *mut socklen_t), GetSockName, |fd, result| (0, 0);
    getpeername(address: *mut sockaddr, length: *mut socklen_t), GetPeerName, |fd, result| (0, 0);
}

macro_rules! accepting {
    ($($name:ident($($argument:ident: $type:ty),*), $call:ident;)*) => {$(
        /// See accept(2); recorded.
        ///
        /// # Safety
        /// As of the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(fd: c_int, $($argument: $type),*) -> c_int {
            let next = next!($name: fn(c_int $(, $type)*) -> c_int);
            let listener = number(fd);
            let start = if listener.is_some() { now() } else { 0 };
            // SAFETY: the program's own call
            let new = unsafe { next(fd, $($argument),*) };
            if let Some(listener) = listener {
                let socket = if new >= 0 { sockets::opened(new) } else { 0 };
                let result = outcome(i64::from(new));
                let fields = SocketFields { socket: listener, result, arg: 0, arg2: socket, extra: 0 };
                recorder::call(Call::$call, start, result == -libc::EAGAIN, fields);
            } else if new >= 0 {
                sockets::forget(new);
            }
            new
        }
    )*};
}

accepting! {
    accept(address: *mut sockaddr, length: *mut socklen_t), Accept;
    accept4(address: *mut sockaddr, length: *mut socklen_t, flags: c_int), Accept4;
}

/// See close(2); recorded for sockets, after the kernel's last word on the connection.
///
/// # Safety
/// As of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    let next = next!(close: fn(c_int) -> c_int);
    if !recorder::on() || recorder::borrowed() {
        // SAFETY: the program's own call
        return unsafe { next(fd) };
    }
    let socket = number(fd);
    if let Some(socket) = socket {
        quietly(|| sockets::last_word(fd, socket));
    }
    // before: another thread may get the number as soon as it is free
    sockets::forget(fd);
    let start = now();
    // SAFETY: the program's own call
    let result = unsafe { next(fd) };
    if let Some(socket) = socket {
        record(Call::Close, start, socket, result, fd as u32, 0);
    }
    result
}

/// See fclose(3): the descriptor ends inside the C library.
///
/// # Safety
/// As of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fclose(file: *mut libc::FILE) -> c_int {
    let next = next!(fclose: fn(*mut libc::FILE) -> c_int);
    if recorder::on() && !file.is_null() && !recorder::borrowed() {
        // SAFETY: the program's own stream
        let fd = quietly(|| unsafe { libc::fileno(file) });
        sockets::forget(fd);
    }
    // SAFETY: the program's own call
    unsafe { next(file) }
}

/// See close_range(2).
///
/// # Safety
/// As of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let next = next!(close_range: fn(c_uint, c_uint, c_int) -> c_int);
    if recorder::on() && !recorder::borrowed() {
        sockets::forget_range(first, last);
    }
    // SAFETY: the program's own call
    unsafe { next(first, last, flags) }
}

/// See closefrom(3).
///
/// # Safety
/// As of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn closefrom(first: c_int) {
    if recorder::on() && !recorder::borrowed() {
        sockets::forget_range(first.max(0) as c_uint, c_uint::MAX);
    }
    let next = || -> c_int {
        let next = next!(closefrom: fn(c_int) -> c_int); // nothing, in truth
        // SAFETY: the program's own call
        unsafe { next(first) }
    };
    next();
}

macro_rules! duplicating {
    ($($name:ident($($argument:ident: $type:ty),*), $call:ident;)*) => {$(
        /// See dup(2); recorded for sockets.
        ///
        /// # Safety
        /// As of the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(old: c_int, $($argument: $type),*) -> c_int {
            let next = next!($name: fn(c_int $(, $type)*) -> c_int);
            let start = now();
            // SAFETY: the program's own call
            let new = unsafe { next(old, $($argument),*) };
            if new >= 0 && recorder::on() && !recorder::borrowed() {
                duplicated(Call::$call, start, old, new);
            }
            new
        }
    )*};
}

duplicating! {
    dup(), Dup;
    dup2(new: c_int), Dup2;
    dup3(new: c_int, flags: c_int), Dup3;
}

fn duplicated(call: Call, start: u64, old: c_int, new: c_int) {
    if old == new {
        return;
    }
    match number(old) {
        Some(socket) => {
            sockets::alias(old, new);
            record(call, start, socket, new, old as u32, 0);
        }
        None => sockets::forget(new),
    }
}

macro_rules! controlling {
    ($($name:ident;)*) => {$(
        /// See fcntl(2); duplicates of sockets are recorded. The third argument is passed on as the machine word that it is.
        ///
        /// # Safety
        /// As of the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(fd: c_int, command: c_int, argument: usize) -> c_int {
            let next = next!($name: fn(c_int, c_int, usize) -> c_int);
            let duplicates = matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) && recorder::on();
            let start = if duplicates { now() } else { 0 };
            // SAFETY: the program's own call; on the supported processors a variadic integer or pointer travels like a named one
            let result = unsafe { next(fd, command, argument) };
            if duplicates && result >= 0 && !recorder::borrowed() {
                duplicated(Call::FcntlDup, start, fd, result);
            }
            result
        }
    )*};
}

controlling! {
    fcntl;
    fcntl64;
}
