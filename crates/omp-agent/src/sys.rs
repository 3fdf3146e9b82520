//! System calls.
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

use libc::{c_int, c_long, c_void};

/// Sleeps while `word` is `expected`, for `limit` at most, or until a signal. The word may be shared with other processes.
pub fn futex_wait(word: &AtomicU32, expected: u32, limit: Duration) {
    let limit = libc::timespec {
        tv_sec: limit.as_secs().cast_signed(),
        tv_nsec: c_long::from(limit.subsec_nanos().cast_signed()),
    };
    // SAFETY: a word and a time that outlive the call
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, &raw const limit) };
}

/// Wakes all who wait for `word` to change.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: a word that outlives the call
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, c_int::MAX) };
}

/// Lets others run.
pub fn give_way() {
    // SAFETY: no arguments
    unsafe { libc::sched_yield() };
}

/// Sleeps of microseconds last as long as they are asked to.
pub fn sleep_exactly() {
    // SAFETY: a number
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

/// What wakes this thread is worth interrupting who computes: it works for microseconds at a time, and says so (`sched_setattr(2)`, Linux 6.12; others take no notice).
pub fn work_briefly() {
    /// `struct sched_attr`, as it first was.
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    // SAFETY: numbers; what the kernel knows by its size, and only looks at
    unsafe {
        let nice = libc::getpriority(libc::PRIO_PROCESS, 0);
        // the kernel's least
        let attributes = Attributes { size: 48, nice, runtime: 100_000, ..Attributes::default() };
        libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0);
    }
}

/// A file in memory of `bytes`, of which nothing takes room before it is used.
///
/// # Errors
/// As the kernel says.
pub fn memory_file(bytes: usize) -> io::Result<File> {
    // SAFETY: a C string; a descriptor that nobody else has
    let file = unsafe {
        let fd = libc::memfd_create(c"polyrail-omp".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        File::from_raw_fd(fd)
    };
    file.set_len(bytes as u64)?;
    Ok(file)
}

/// Maps a file, shared, for the rest of this process's life.
///
/// # Errors
/// As the kernel says.
pub fn map(file: &File, bytes: usize) -> io::Result<*mut u8> {
    use std::os::fd::AsRawFd;
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE);
    // SAFETY: a new mapping of a file that is that long
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, file.as_raw_fd(), 0) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at.cast()) }
}

/// What a file has, mapped to be read.
pub struct Contents {
    at: *mut c_void,
    bytes: usize,
}

/// What is in the first `bytes` of a file, which nobody changes meanwhile.
///
/// # Errors
/// As the kernel says.
pub fn contents(file: &File, bytes: usize) -> io::Result<Contents> {
    use std::os::fd::AsRawFd;
    // SAFETY: a new mapping of a file; it is unmapped when nobody looks at it any more
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            bytes.max(1),
            libc::PROT_READ,
            libc::MAP_PRIVATE,
            file.as_raw_fd(),
            0,
        )
    };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Contents { at, bytes }) }
}

impl Contents {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped as long as this is there
        unsafe { std::slice::from_raw_parts(self.at.cast(), self.bytes) }
    }
}

impl Drop for Contents {
    fn drop(&mut self) {
        // SAFETY: this one's mapping
        unsafe { libc::munmap(self.at, self.bytes.max(1)) };
    }
}

/// Brings to the disk all that was written to the file systems of these files, or directories: also what was closed, renamed, or is somewhere else by now.
///
/// # Errors
/// Which it is, and as the kernel says. What is not there any more is none.
pub fn sync_around(paths: &[PathBuf]) -> Result<(), (PathBuf, io::Error)> {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;
    let mut done = BTreeSet::new();
    for path in paths {
        let directory = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
        let opened = File::open(directory).and_then(|file| Ok((file.metadata()?.dev(), file)));
        let (device, file) = match opened {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err((directory.to_owned(), error)),
        };
        // SAFETY: a descriptor that is open
        if done.insert(device) && unsafe { libc::syncfs(file.as_raw_fd()) } != 0 {
            return Err((directory.to_owned(), io::Error::last_os_error()));
        }
    }
    Ok(())
}

/// The soft limit of a resource, and the hard one.
pub fn limit(resource: libc::__rlimit_resource_t) -> (u64, u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a place for the answer
    unsafe { libc::getrlimit(resource, &raw mut limit) };
    (limit.rlim_cur, limit.rlim_max)
}

/// Two random numbers.
///
/// # Errors
/// As the kernel says.
pub fn chance() -> io::Result<[u64; 2]> {
    let mut bytes = [[0; 8]; 2];
    // SAFETY: a place of that size
    match unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), 16, 0) } {
        16 => Ok(bytes.map(u64::from_ne_bytes)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Processors that this process may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Processors that this host has.
pub fn online() -> usize {
    // SAFETY: a number
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) as usize
}

/// This user, as files have it.
pub fn user() -> u32 {
    // SAFETY: no arguments
    unsafe { libc::geteuid() }
}

/// Whether files can be made in a directory.
pub fn is_writable(directory: &Path) -> bool {
    let Ok(path) = CString::new(directory.as_os_str().as_bytes()) else { return false };
    // SAFETY: a C string
    unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) == 0 }
}

/// The process that started this one; another once that has ended.
pub fn parent() -> i32 {
    // SAFETY: no arguments
    unsafe { libc::getppid() }
}

/// Ends this process at once, whatever its libraries have yet to do.
pub fn end(status: u8) -> ! {
    // SAFETY: it does not come back
    unsafe { libc::_exit(status.into()) }
}

/// Ends this process with `status` if it is still there after `seconds`; zero: not any more.
pub fn end_after(seconds: u32, status: u8) {
    END_STATUS.store(status.into(), Ordering::Relaxed);
    extern "C" fn end(_: c_int) {
        // SAFETY: allowed in signal handlers
        unsafe { libc::_exit(END_STATUS.load(Ordering::Relaxed)) }
    }
    handle(libc::SIGALRM, end as extern "C" fn(c_int) as usize);
    // SAFETY: a number
    unsafe { libc::alarm(seconds) };
}

static END_STATUS: AtomicI32 = AtomicI32::new(0);
static HAS_FORWARDED: AtomicU32 = AtomicU32::new(0);
static PROGRAM: AtomicI32 = AtomicI32::new(0);
static CHILD_ENDED: AtomicBool = AtomicBool::new(false);
const FORWARDED: [c_int; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

fn handle(signal: c_int, action: usize) {
    // SAFETY: zeros are an action; handlers do only what handlers may
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = action;
        // not restarted: a sleep ends when something has happened
        libc::sigaction(signal, &raw const new, std::ptr::null_mut());
    }
}

/// Signals to this process go to its program, on rank 0; elsewhere they mean nothing, since rank 0 decides when a run ends.
pub fn forward_signals(rank: usize, program: u32) {
    extern "C" fn forward(signal: c_int) {
        let program = PROGRAM.load(Ordering::Relaxed);
        HAS_FORWARDED.fetch_or(1 << signal, Ordering::Relaxed);
        if program > 0 {
            // SAFETY: allowed in signal handlers; forgotten as soon as the program has been waited for
            unsafe { libc::kill(program, signal) };
        }
    }
    PROGRAM.store(program.cast_signed(), Ordering::Relaxed);
    for signal in FORWARDED {
        handle(signal, if rank == 0 { forward as extern "C" fn(c_int) as usize } else { libc::SIG_IGN });
    }
}

/// Whether the program got this signal through this process: then whoever sent it knows.
pub fn has_forwarded(signal: i32) -> bool {
    HAS_FORWARDED.load(Ordering::Relaxed) & (1 << signal) != 0
}

/// From now on a child's end ends a sleep. To be called before the program starts.
pub fn watch_children() {
    extern "C" fn ended(_: c_int) {
        CHILD_ENDED.store(true, Ordering::Relaxed);
    }
    handle(libc::SIGCHLD, ended as extern "C" fn(c_int) as usize);
}

/// Whether a child may have ended since the last call.
pub fn child_may_have_ended() -> bool {
    CHILD_ENDED.swap(false, Ordering::Relaxed)
}

/// Signals are nobody's any more.
pub fn forget_program() {
    PROGRAM.store(0, Ordering::Relaxed);
}
