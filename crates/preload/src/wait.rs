//! Calls that wait until something is possible.

use std::ffi::{c_int, c_void};

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};
use polyrail_core::trace::{Call, SocketFields};

use crate::io::{faulted, outcome};
use crate::next::next;
use crate::recorder::{self, now};
use crate::sockets::number;

/// Descriptors of a set that are looked at; of larger sets it is taken for granted that there are sockets among them.
const LOOKED_AT: usize = 32;

/// How long a wait may take, in milliseconds; for ever without a time.
///
/// # Safety
/// `time` is null or readable, unless `result` and the error number say otherwise.
unsafe fn milliseconds(time: *const timespec, result: c_int) -> u32 {
    // SAFETY: as the caller says
    match unsafe { time.as_ref() } {
        _ if faulted(result as isize) => 0,
        None => u32::MAX,
        Some(time) => (time.tv_sec.max(0) as u64 * 1000 + time.tv_nsec.max(0) as u64 / 1_000_000)
            .min(u32::MAX as u64 - 1) as u32,
    }
}

#[inline(always)]
fn waited(call: Call, start: u64, socket: u32, result: c_int, timeout: u32, descriptors: u64) {
    let result = outcome(i64::from(result));
    let arg2 = descriptors.min(u64::from(u32::MAX)) as u32;
    recorder::call(call, start, result == 0, SocketFields { socket, result, arg: timeout, arg2, extra: 0 });
}

/// Whether a set has sockets, and which if it has only one.
///
/// # Safety
/// `set` has `count` entries, unless `result` and the error number say otherwise.
unsafe fn sockets(set: *const pollfd, count: nfds_t, result: c_int) -> Option<u32> {
    if !recorder::on() || set.is_null() || count == 0 || faulted(result as isize) {
        return None;
    }
    if count as usize > LOOKED_AT {
        return Some(0);
    }
    // SAFETY: as the caller says
    let set = unsafe { std::slice::from_raw_parts(set, count as usize) };
    let first = set.iter().find_map(|entry| number(entry.fd))?;
    Some(if count == 1 { first } else { 0 })
}

/// The one that became ready, if only one did.
///
/// # Safety
/// `set` has `count` entries.
unsafe fn ready(set: *const pollfd, count: nfds_t, result: c_int, alone: u32) -> u32 {
    if result != 1 || count as usize > LOOKED_AT {
        return alone;
    }
    // SAFETY: as the caller says
    let set = unsafe { std::slice::from_raw_parts(set, count as usize) };
    set.iter().find(|entry| entry.revents != 0).and_then(|entry| number(entry.fd)).unwrap_or(0)
}

macro_rules! polling {
    ($($name:ident(set $(, $argument:ident: $type:ty)*), $call:ident, |$result:ident| $timeout:expr;)*) => {$(
        /// See poll(2); recorded where there are sockets in the set.
        ///
        /// # Safety
        /// As of the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(set: *mut pollfd, count: nfds_t $(, $argument: $type)*) -> c_int {
            let next = next!($name: fn(*mut pollfd, nfds_t $(, $type)*) -> c_int);
            let start = now();
            // SAFETY: the program's own call
            let $result = unsafe { next(set, count $(, $argument)*) };
            // SAFETY: the kernel has just read and filled the set, or the result says that it could not
            if let Some(alone) = unsafe { sockets(set, count, $result) } {
                // SAFETY: as above
                let socket = unsafe { ready(set, count, $result, alone) };
                waited(Call::$call, start, socket, $result, $timeout, count);
            }
            $result
        }
    )*};
}

polling! {
    poll(set, timeout: c_int), Poll, |result| timeout as u32;
    // SAFETY: null, or the kernel has just read the time, or the result says that it could not
    ppoll(set, timeout: *const timespec, mask: *const sigset_t), PPoll, |result| unsafe { milliseconds(timeout, result) };
    __poll_chk(set, timeout: c_int, size: size_t), Poll, |result| timeout as u32;
    __ppoll_chk(set, timeout: *const timespec, mask: *const sigset_t, size: size_t), PPoll,
        // SAFETY: as above
        |result| unsafe { milliseconds(timeout, result) };
}

/// See select(2); recorded where a set is given.
///
/// # Safety
/// As of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let next = next!(select: fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int);
    // SAFETY: null, or the program's own time; the call may change it, so it is read before
    let wait = unsafe { timeout.as_ref() }.map_or(u32::MAX, |time| {
        (time.tv_sec.max(0) as u64 * 1000 + time.tv_usec.max(0) as u64 / 1000) as u32
    });
    let start = now();
    // SAFETY: the program's own call
    let result = unsafe { next(count, read, write, except, timeout) };
    if recorder::on() && count > 0 {
        waited(Call::Select, start, 0, result, wait, count as u64);
    }
    result
}

/// See pselect(2); recorded where a set is given.
///
/// # Safety
/// As of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let next = next!(pselect: fn(c_int, *mut fd_set, *mut fd_set, *mut fd_set, *const timespec, *const sigset_t) -> c_int);
    let start = now();
    // SAFETY: the program's own call
    let result = unsafe { next(count, read, write, except, timeout, mask) };
    if recorder::on() && count > 0 {
        // SAFETY: null, or the kernel has just read it, or the result says that it could not
        let timeout = unsafe { milliseconds(timeout, result) };
        waited(Call::PSelect, start, 0, result, timeout, count as u64);
    }
    result
}

macro_rules! epoll_waiting {
    ($($name:ident(($($argument:ident: $type:ty),*)), $call:ident, |$result:ident| $timeout:expr;)*) => {$(
        /// See epoll_wait(2); recorded.
        ///
        /// # Safety
        /// As of the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(fd: c_int, events: *mut epoll_event, room: c_int, $($argument: $type),*) -> c_int {
            let next = next!($name: fn(c_int, *mut epoll_event, c_int, $($type),*) -> c_int);
            let start = now();
            // SAFETY: the program's own call
            let $result = unsafe { next(fd, events, room, $($argument),*) };
            if recorder::on() {
                waited(Call::$call, start, 0, $result, $timeout, room.max(0) as u64);
            }
            $result
        }
    )*};
}

epoll_waiting! {
    epoll_wait((timeout: c_int)), EpollWait, |result| timeout as u32;
    epoll_pwait((timeout: c_int, mask: *const sigset_t)), EpollPWait, |result| timeout as u32;
    // SAFETY: null, or the kernel has just read it, or the result says that it could not
    epoll_pwait2((timeout: *const timespec, mask: *const sigset_t)), EpollPWait2, |result| unsafe { milliseconds(timeout, result) };
}

/// See epoll_ctl(2); recorded for sockets.
///
/// # Safety
/// As of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_ctl(epoll: c_int, what: c_int, fd: c_int, event: *mut c_void) -> c_int {
    let next = next!(epoll_ctl: fn(c_int, c_int, c_int, *mut c_void) -> c_int);
    let socket = number(fd);
    let start = now();
    // SAFETY: the program's own call
    let result = unsafe { next(epoll, what, fd, event) };
    if let Some(socket) = socket {
        let fields = SocketFields {
            socket,
            result: outcome(i64::from(result)),
            arg: what as u32,
            arg2: epoll as u32,
            extra: 0,
        };
        recorder::call(Call::EpollCtl, start, false, fields);
    }
    result
}
