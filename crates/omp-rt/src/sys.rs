//! System calls of our own, futexes, ending the run with a reason.

use core::fmt::{self, Write};
use core::sync::atomic::AtomicU32;

/// Text on the stack, cut where the room ends.
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }
    /// What was written.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl<const N: usize> Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let n = text.len().min(N - self.len);
        self.bytes[self.len..self.len + n].copy_from_slice(&text.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}

/// Writes all of `bytes` to `descriptor`, or as much as can be.
pub fn write(descriptor: i32, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        // SAFETY: the bytes are there to be read.
        let n = unsafe { libc::write(descriptor, bytes.as_ptr().cast(), bytes.len()) };
        if n <= 0 {
            return;
        }
        bytes = &bytes[n as usize..];
    }
}

/// Ends the run: `name` is what the program did, `why` what is to be done about it.
pub fn fail(name: &str, why: &str) -> ! {
    let mut text = Text::<1024>::new();
    let _ = writeln!(text, "polyrail omp: {name}: {why}");
    write(2, text.bytes());
    // SAFETY: ends the process at once; the program's own handlers are not to run in the middle of it.
    unsafe { libc::_exit(1) }
}

/// Ends the run because the program needs the entry point `name`, which cannot be right here.
pub fn refuse(name: &str) -> ! {
    fail(name, crate::refused::why(name))
}

/// Sleeps while `word` is `value`, or less.
pub fn wait(word: &AtomicU32, value: u32) {
    // SAFETY: the word is there; a private futex without a time limit.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            value,
            core::ptr::null::<libc::timespec>(),
        )
    };
}

/// Wakes up to `threads` that sleep on `word`.
pub fn wake(word: &AtomicU32, threads: u32) {
    let threads = threads.min(i32::MAX as u32);
    // SAFETY: only the address counts.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, threads)
    };
}

/// Zeroed memory of our own, which costs nothing until it is used.
pub fn map(bytes: usize) -> *mut u8 {
    // SAFETY: a new mapping where the kernel likes it.
    let at = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if at == libc::MAP_FAILED {
        fail("memory", "the system gives no more of it; lower OMP_STACKSIZE or the number of threads");
    }
    at.cast()
}

/// Gives back what [`map`] gave.
pub fn unmap(at: *mut u8, bytes: usize) {
    // SAFETY: the caller has it from `map` and uses it no more.
    unsafe { libc::munmap(at.cast(), bytes) };
}
