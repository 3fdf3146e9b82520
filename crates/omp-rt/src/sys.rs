//! System calls of our own, futexes, ending the run with a reason.

use core::arch::naked_asm;
use core::ffi::CStr;
use core::fmt::{self, Write};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::raw;

/// Sleeps while `word` is `value`, or less.
pub fn wait(word: &AtomicU32, value: u32) {
    // SAFETY: a word that lives as long as the call
    unsafe {
        let word = word.as_ptr() as usize;
        raw::call(libc::SYS_futex, [word, libc::FUTEX_WAIT as usize, value as usize, 0, 0, 0]);
    }
}

/// Wakes up to `count` that wait for `word`, in this or another process.
pub fn wake(word: &AtomicU32, count: u32) {
    let count = count.min(i32::MAX as u32);
    // SAFETY: a word
    unsafe {
        raw::call(
            libc::SYS_futex,
            [word.as_ptr() as usize, libc::FUTEX_WAKE as usize, count as usize, 0, 0, 0],
        );
    }
}

/// Lets others run, for so many microseconds if that is not 0.
pub fn pause(microseconds: u32) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: i64::from(microseconds) * 1000 };
    // SAFETY: a time
    unsafe {
        match microseconds {
            0 => raw::call(libc::SYS_sched_yield, [0, 0, 0, 0, 0, 0]),
            _ => raw::call(libc::SYS_nanosleep, [&raw const time as usize, 0, 0, 0, 0, 0]),
        }
    };
}

/// The calling thread's number.
pub fn thread() -> i32 {
    // SAFETY: asks for a number
    unsafe { raw::call(libc::SYS_gettid, [0, 0, 0, 0, 0, 0]) as i32 }
}

/// This process's number.
pub fn process() -> i32 {
    // SAFETY: asks for a number
    unsafe { raw::call(libc::SYS_getpid, [0; 6]) as i32 }
}

/// Whether the calling thread is the process's first.
pub fn is_first_thread() -> bool {
    process() == thread()
}

/// Tells people.
pub fn say(text: &str) {
    write(2, format!("polyrail omp: {text}\n").as_bytes());
}

/// Who is told why a run ends, and ends it; a function, or null.
static TOLD: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// From now on `told` is told why the run ends, in place of people.
pub fn tell_of_the_end(told: Option<fn(&str)>) {
    TOLD.store(told.map_or(null_mut(), |told| told as *mut ()), Ordering::Release);
}

/// Ends the whole run with a reason for people. Where there is an agent, it prints that.
pub fn fail(reason: std::fmt::Arguments<'_>) -> ! {
    let text = reason.to_string();
    let told = TOLD.load(Ordering::Acquire);
    if told.is_null() {
        let line = format!("polyrail omp: {text}\n");
        // SAFETY: a buffer
        unsafe { raw::call(libc::SYS_write, [2, line.as_ptr() as usize, line.len(), 0, 0, 0]) };
    } else {
        // SAFETY: such a function, or null
        unsafe { core::mem::transmute::<*mut (), fn(&str)>(told)(&text) };
    }
    end(1)
}

/// Ends the run: `what` the program did, and `why` it cannot go on.
pub fn stop(what: &str, why: &str) -> ! {
    fail(format_args!("{what}: {why}"))
}

/// Ends this process at once.
pub fn end(status: i32) -> ! {
    loop {
        // SAFETY: it does not return
        unsafe { raw::call(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Calls `function(argument)` on the stack that ends at `top`, a multiple of 16, and comes back.
///
/// # Safety
/// The stack is writable and nobody else's; `function` does not unwind.
#[unsafe(naked)]
pub unsafe extern "C" fn on_stack(top: usize, function: extern "C" fn(usize), argument: usize) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

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

/// Writes all of `bytes` to `descriptor`, or as much as can be. Not by `write`, which may be a function of the program's.
pub fn write(descriptor: i32, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        // SAFETY: the bytes are there to be read
        let n = unsafe { libc::syscall(libc::SYS_write, descriptor, bytes.as_ptr(), bytes.len()) };
        if n <= 0 {
            return;
        }
        bytes = &bytes[n as usize..];
    }
}

/// What a file of this process's own kind says (`/proc`), whatever functions the program has by the names of system calls.
pub fn read(path: &CStr) -> Option<String> {
    let mut text = Vec::new();
    let mut part = [0_u8; 4096];
    // SAFETY: a path, and room
    unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let file = raw::call(libc::SYS_open, [path.as_ptr() as usize, flags as usize, 0, 0, 0, 0]);
        let descriptor = usize::try_from(file).ok()?;
        while let n @ 1.. =
            raw::call(libc::SYS_read, [descriptor, part.as_mut_ptr() as usize, part.len(), 0, 0, 0])
        {
            text.extend(&part[..n as usize]);
        }
        raw::call(libc::SYS_close, [descriptor, 0, 0, 0, 0, 0]);
    }
    String::from_utf8(text).ok()
}

/// All of a file, mapped to be read at `place` (0: where the kernel likes), until [`unmap`]; or an error's number, negative.
pub fn map_file(path: &CStr, place: usize) -> Result<&'static [u8], isize> {
    let mut stat = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: a path that ends with zero, a place for the answer; nothing that is mapped is replaced
    unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let file = raw::call(libc::SYS_open, [path.as_ptr() as usize, flags as usize, 0, 0, 0, 0]);
        let descriptor = usize::try_from(file).map_err(|_| file)?;
        let failed = raw::call(libc::SYS_fstat, [descriptor, stat.as_mut_ptr() as usize, 0, 0, 0, 0]);
        let bytes = stat.assume_init().st_size as usize;
        let flags = libc::MAP_PRIVATE | if place == 0 { 0 } else { libc::MAP_FIXED_NOREPLACE };
        let at = match failed {
            0 => raw::mmap(place, bytes.max(1), libc::PROT_READ, flags, file as i32, 0),
            error => error,
        };
        raw::call(libc::SYS_close, [descriptor, 0, 0, 0, 0, 0]);
        if at < 0 { Err(at) } else { Ok(core::slice::from_raw_parts(at as *const u8, bytes)) }
    }
}

/// What `look` makes of the bytes of a file; none if it cannot be read.
pub fn with_file<T>(path: &CStr, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
    let bytes = map_file(path, 0).ok()?;
    let found = look(bytes);
    unmap(bytes.as_ptr().cast_mut(), bytes.len().max(1));
    Some(found)
}

/// Zeroed memory of our own, which costs nothing until it is used.
pub fn map(bytes: usize) -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping where the kernel likes it
    let at = unsafe { raw::mmap(0, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if at < 0 {
        fail(format_args!("the system gives no more memory; lower OMP_STACKSIZE or the number of threads"));
    }
    at as *mut u8
}

/// Gives back what [`map`] gave.
pub fn unmap(at: *mut u8, bytes: usize) {
    // SAFETY: the caller has it from `map` and uses it no more
    unsafe { raw::call(libc::SYS_munmap, [at as usize, bytes, 0, 0, 0, 0]) };
}
