//! System calls that touch neither `errno` nor anything else of the C library, and a lock on them: what `malloc` itself can use.

use core::arch::naked_asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};

/// A system call by number, from the one place that the filter of system calls lets everything through from (`calls`); the result is the
/// kernel's, errors are negative.
///
/// # Safety
/// That of the call.
#[unsafe(naked)]
unsafe extern "C" fn by_number(
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

/// Where [`call`]s come from, as the kernel tells a filter: the instruction behind the call.
pub fn place() -> usize {
    polyrail_omp_after_syscall as *const () as usize
}

/// A system call. What it returns: a value, or an error's number, negative.
///
/// # Safety
/// As the call.
pub unsafe fn call(number: libc::c_long, args: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = args;
    // SAFETY: the caller's; from the one place that the filter of system calls lets through
    unsafe { by_number(number, a, b, c, d, e, f) }
}

/// `mmap`, past our own. The address, or an error's number, negative.
///
/// # Safety
/// As `mmap`.
pub unsafe fn mmap(address: usize, bytes: usize, prot: i32, flags: i32, fd: i32, offset: i64) -> isize {
    let args = [address, bytes, prot as usize, flags as usize, fd as usize, offset as usize];
    // SAFETY: the caller's.
    unsafe { call(libc::SYS_mmap, args) }
}

/// How much of what is reserved is in core files.
const DUMPED: usize = 4 << 30;

/// Reserves `bytes` of memory at `address`, readable and writable, taken only when touched.
pub fn reserve(address: usize, bytes: usize) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: nothing that is mapped is replaced.
    let got = unsafe { mmap(address, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if got != address as isize {
        fail(
            "cannot reserve addresses: are they limited (ulimit -v), or must all be backed (vm.overcommit_memory=2)?",
        );
    }
    // the kernel looks at every page of what a core file is to hold
    advise(address, bytes, libc::MADV_DONTDUMP);
    advise(address, bytes.min(DUMPED), libc::MADV_DODUMP);
}

/// `madvise`, past our own. Advice that is not taken is no error.
pub fn advise(address: usize, bytes: usize, advice: i32) {
    // SAFETY: used with advice that changes no contents but of memory that we own.
    unsafe { call(libc::SYS_madvise, [address, bytes, advice as usize, 0, 0, 0]) };
}

/// Ends the process: no run can go on from here, and nothing can be allocated to say so elsewhere.
pub fn fail(why: &str) -> ! {
    for part in ["polyrail omp: ", why, "\n"] {
        // SAFETY: writes bytes that are there.
        unsafe { call(libc::SYS_write, [2, part.as_ptr() as usize, part.len(), 0, 0, 0]) };
    }
    // SAFETY: ends the process.
    unsafe { call(libc::SYS_exit_group, [127, 0, 0, 0, 0, 0]) };
    loop {
        core::hint::spin_loop();
    }
}

const FREE: u32 = 0;
const HELD: u32 = 1;
const AWAITED: u32 = 2;

/// A lock that needs nothing of the C library.
pub struct Lock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time has what is inside.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// Of `value`, free.
    pub const fn new(value: T) -> Self {
        Self { state: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }
    /// Has `f` work on it alone.
    #[inline]
    pub fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        self.acquire();
        // SAFETY: the lock is held.
        let result = f(unsafe { &mut *self.value.get() });
        self.release();
        result
    }
    /// Takes it; [`Lock::release`] gives it back.
    #[inline]
    pub fn acquire(&self) {
        if self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait();
        }
    }
    /// Gives it back.
    #[inline]
    pub fn release(&self) {
        if self.state.swap(FREE, Ordering::Release) == AWAITED {
            self.futex(libc::FUTEX_WAKE, 1);
        }
    }
    #[cold]
    fn wait(&self) {
        for _ in 0..100 {
            if self.state.load(Ordering::Relaxed) == FREE {
                break;
            }
            core::hint::spin_loop();
        }
        while self.state.swap(AWAITED, Ordering::Acquire) != FREE {
            self.futex(libc::FUTEX_WAIT, AWAITED);
        }
    }
    fn futex(&self, operation: i32, value: u32) {
        let operation = (operation | libc::FUTEX_PRIVATE_FLAG) as usize;
        // SAFETY: the word is there as long as the lock.
        unsafe { call(libc::SYS_futex, [self.state.as_ptr() as usize, operation, value as usize, 0, 0, 0]) };
    }
}
