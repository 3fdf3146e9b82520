//! Ways around the functions that are recorded: system calls that the program makes by number, and filters that forbid them.

use std::ffi::{c_int, c_long};

use polyrail_core::trace::note::{self, unseen};

use crate::next::next;
use crate::recorder;
use crate::sockets;
use crate::sys::{self, Text, quietly};

/// What tells of this program that not all of its calls are seen.
fn about(reason: u32) -> Text<1100> {
    let mut payload = Text::new();
    payload.push(&recorder::process().to_le_bytes()).push(&reason.to_le_bytes());
    let mut path = [0; 1000];
    let length = sys::program(&mut path);
    payload.push(&path[..length]);
    payload
}

/// Runs a call that may forbid system calls from then on; if it does, we make none any more.
fn forbidding<T: PartialEq + Default>(call: impl FnOnce() -> T) -> T {
    if !recorder::on() || recorder::sandboxed() {
        return call();
    }
    let about = quietly(|| about(unseen::SANDBOX));
    let result = call();
    if result == T::default() {
        recorder::sandbox();
        recorder::tell(note::UNSEEN, about.bytes());
    }
    result
}

/// See prctl(2). All arguments are passed on as the machine words that they are.
///
/// # Safety
/// As of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    let next = next!(prctl: fn(c_int, usize, usize, usize, usize) -> c_int);
    // SAFETY: the program's own call
    let call = || unsafe { next(option, a, b, c, d) };
    if option == libc::PR_SET_SECCOMP { forbidding(call) } else { call() }
}

/// See syscall(2): descriptors that end are forgotten, and what gets past the recorder is told.
///
/// # Safety
/// As of the C function. Arguments that were not given are whatever was in their registers, or on the stack.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let next = next!(syscall: fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long);
    // SAFETY: the program's own call
    let call = || unsafe { next(number, a, b, c, d, e, f) };
    if !recorder::on() {
        return call();
    }
    match number {
        libc::SYS_close => sockets::forget(a as c_int),
        libc::SYS_close_range => sockets::forget_range(a as u32, b as u32),
        libc::SYS_dup3 => sockets::forget(b as c_int),
        libc::SYS_seccomp if a != libc::SECCOMP_GET_ACTION_AVAIL as usize => return forbidding(call),
        libc::SYS_io_uring_setup => {
            quietly(|| recorder::tell(note::UNSEEN, about(unseen::IO_URING).bytes()));
        }
        _ => {}
    }
    call()
}
