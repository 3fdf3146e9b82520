//! System calls of our own, futexes, ending the run with a reason.

use core::arch::naked_asm;
use core::sync::atomic::AtomicU32;
use core::time::Duration;
use std::ptr::null;

use crate::agent;

/// A system call by number, from the one place that the filter of system calls lets everything through from ([`crate::calls`]); the result is the
/// kernel's, errors are negative.
///
/// # Safety
/// That of the call.
#[unsafe(naked)]
pub unsafe extern "C" fn raw(
    number: i64,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> isize {
    naked_asm!(
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        "syscall",
        ".globl polyrail_omp_after_syscall",
        ".hidden polyrail_omp_after_syscall",
        "polyrail_omp_after_syscall:",
        "ret"
    )
}

unsafe extern "C" {
    fn polyrail_omp_after_syscall();
}

/// Where [`raw`]'s calls come from, as the kernel tells a filter: the instruction behind the call.
pub fn raw_place() -> usize {
    polyrail_omp_after_syscall as *const () as usize
}

/// Sleeps while `word` is `value`, at most `most`; may return without reason.
pub fn wait(word: &AtomicU32, value: u32, most: Option<Duration>) {
    let time = most.map(|most| libc::timespec {
        tv_sec: most.as_secs() as i64,
        tv_nsec: i64::from(most.subsec_nanos()),
    });
    let limit = time.as_ref().map_or(null(), |time| time as *const libc::timespec);
    // SAFETY: a word and a time that live as long as the call
    unsafe {
        let word = word.as_ptr() as usize;
        raw(libc::SYS_futex, word, libc::FUTEX_WAIT as usize, value as usize, limit as usize, 0, 0);
    }
}

/// Wakes up to `count` that wait for `word`, in this or another process.
pub fn wake(word: &AtomicU32, count: u32) {
    // SAFETY: a word
    unsafe {
        raw(libc::SYS_futex, word.as_ptr() as usize, libc::FUTEX_WAKE as usize, count as usize, 0, 0, 0);
    }
}

/// Ends the whole run with a reason for people. The agent prints it; without an agent this does.
pub fn fail(reason: std::fmt::Arguments<'_>) -> ! {
    let text = reason.to_string();
    if agent::attached() {
        agent::fail(&text);
    } else {
        let line = format!("polyrail omp: {text}\n");
        // SAFETY: a buffer
        unsafe { raw(libc::SYS_write, 2, line.as_ptr() as usize, line.len(), 0, 0, 0) };
    }
    end(1)
}

/// Ends this process at once.
pub fn end(status: i32) -> ! {
    loop {
        // SAFETY: it does not return
        unsafe { raw(libc::SYS_exit_group, status as usize, 0, 0, 0, 0, 0) };
    }
}

/// Ends the run because an entry point that was called cannot be right on several machines, or is not known.
pub fn refuse(name: &str) -> ! {
    fail(format_args!("{name} is not supported; polyrail omp --check tells what a program uses"))
}

/// Runs `f(argument)` on a stack that ends at `top` (16-byte aligned), and comes back.
///
/// # Safety
/// The stack is writable and nobody else's; `f` does not unwind.
#[unsafe(naked)]
pub unsafe extern "C" fn on_stack(top: usize, f: unsafe extern "C" fn(usize), argument: usize) {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        "ret"
    )
}
