//! What the recorder itself asks of the kernel, past the functions that it stands before.

use std::ffi::{CStr, c_int, c_long};

/// The calling thread's error number.
#[inline]
pub fn errno() -> c_int {
    // SAFETY: a thread always has one
    unsafe { *libc::__errno_location() }
}

/// Sets it.
#[inline]
pub fn set_errno(value: c_int) {
    // SAFETY: a thread always has one
    unsafe { *libc::__errno_location() = value };
}

/// A clock of the kernel, in nanoseconds.
pub fn nanoseconds(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a clock id and a place for the answer
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Runs `work` and leaves the error number as it was.
pub fn quietly<T>(work: impl FnOnce() -> T) -> T {
    let saved = errno();
    let result = work();
    set_errno(saved);
    result
}

/// Runs `work` while no signal handler runs in this thread.
pub fn undisturbed<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: sets of signals, for which zeros are values, that are filled before they are used
    unsafe {
        let (mut all, mut before) = std::mem::zeroed::<(libc::sigset_t, libc::sigset_t)>();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
        let result = work();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
}

/// Sleeps, by the kernel's own call: the C library's is one at which threads are cancelled.
pub fn nap(nanoseconds: u64) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds as i64 };
    // SAFETY: a time, and nowhere to tell what remained of it
    unsafe { libc::syscall(libc::SYS_nanosleep, &raw const time, std::ptr::null_mut::<libc::timespec>()) };
}

/// A descriptor that is closed again, by the kernel's own calls.
pub struct File(c_int);

impl File {
    /// `openat` with the flags of `libc::O_*`; `None` when it cannot be opened.
    pub fn open(path: &CStr, flags: c_int, mode: libc::mode_t) -> Option<File> {
        let flags = flags | libc::O_CLOEXEC;
        // SAFETY: a C string and numbers
        let fd = unsafe {
            libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags as c_long, mode as c_long)
        };
        (fd >= 0).then(|| File(fd as c_int))
    }

    /// Sets its length.
    pub fn truncate(&self, length: usize) -> bool {
        // SAFETY: numbers only
        unsafe { libc::syscall(libc::SYS_ftruncate, self.0 as c_long, length as c_long) == 0 }
    }

    /// Makes sure of room for its first `length` bytes.
    pub fn reserve(&self, length: usize) -> bool {
        // SAFETY: numbers only
        unsafe {
            libc::syscall(libc::SYS_fallocate, self.0 as c_long, 0 as c_long, 0 as c_long, length as c_long)
                == 0
        }
    }

    /// Maps its first `length` bytes, shared and writable; null when that fails.
    pub fn map(&self, length: usize) -> *mut u8 {
        let flags = libc::MAP_SHARED;
        // SAFETY: a new mapping at a place that the kernel chooses
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, self.0, 0)
        };
        if at == libc::MAP_FAILED { std::ptr::null_mut() } else { at.cast() }
    }

    /// Whether it is this process's user's and nobody else may write to it, and has so many bytes at least: another's could be cut short
    /// while it is mapped, which ends the program.
    pub fn is_own(&self, length: usize) -> bool {
        // SAFETY: an open descriptor and a place for the answer
        let stat = status(|stat| unsafe { libc::fstat(self.0, stat) });
        stat.is_some_and(|stat| is_own(&stat) && stat.st_size as u64 >= length as u64)
    }

    /// Whether nobody else holds a lock on it. Others may ask the same meanwhile.
    pub fn can_be_locked(&self) -> bool {
        let how = libc::LOCK_SH | libc::LOCK_NB;
        // SAFETY: numbers only
        unsafe { libc::syscall(libc::SYS_flock, self.0 as c_long, how as c_long) == 0 }
    }

    /// Reads from `offset`; how much there was.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> usize {
        // SAFETY: the buffer is writable for its length
        let got = unsafe {
            libc::syscall(
                libc::SYS_pread64,
                self.0 as c_long,
                buffer.as_mut_ptr(),
                buffer.len(),
                offset as c_long,
            )
        };
        got.max(0) as usize
    }

    /// Whether a program file gives rights that this process has not: the loader then ignores preloading.
    pub fn gives_rights(&self) -> bool {
        // SAFETY: an open descriptor and a place for the answer
        let Some(stat) = status(|stat| unsafe { libc::fstat(self.0, stat) }) else { return false };
        // SAFETY: both take nothing
        let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
        // SAFETY: a C string, and no place for the value: its length is asked for
        let capabilities = || unsafe {
            libc::fgetxattr(self.0, c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0
        };
        stat.st_mode & libc::S_ISUID != 0 && stat.st_uid != user
            || stat.st_mode & libc::S_ISGID != 0 && stat.st_gid != group
            || user != 0 && capabilities()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours
        unsafe { libc::syscall(libc::SYS_close, self.0 as c_long) };
    }
}

fn status(fill: impl FnOnce(*mut libc::stat) -> c_int) -> Option<libc::stat> {
    // SAFETY: plain numbers, for which zeros are values
    let mut stat = unsafe { std::mem::zeroed() };
    (fill(&mut stat) == 0).then_some(stat)
}

/// Whether it is this process's user's, and nobody else may write to it.
fn is_own(stat: &libc::stat) -> bool {
    // SAFETY: takes nothing
    stat.st_uid == unsafe { libc::geteuid() } && stat.st_mode & 0o022 == 0
}

/// The same of a directory, which is no link. Takes no descriptor: a program may have none left.
pub fn is_own_directory(path: &CStr) -> bool {
    // SAFETY: a C string, and a place for the answer
    let stat = status(|stat| unsafe { libc::lstat(path.as_ptr(), stat) });
    stat.is_some_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFDIR && is_own(&stat))
}

/// Whether a file is another user's than this process's, who is not root. One that cannot be reached is.
pub fn of_another_user(path: &CStr) -> bool {
    // SAFETY: takes nothing
    let user = unsafe { libc::geteuid() };
    // SAFETY: a C string, and a place for the answer
    user != 0
        && status(|stat| unsafe { libc::stat(path.as_ptr(), stat) }).is_none_or(|stat| stat.st_uid != user)
}

/// Path of the program that this process runs; its length.
pub fn program(path: &mut [u8]) -> usize {
    // SAFETY: a C string, and a buffer that is writable for its length
    unsafe { libc::readlink(c"/proc/self/exe".as_ptr(), path.as_mut_ptr().cast(), path.len()) }.max(0)
        as usize
}

/// How large a file of this process may become, in bytes.
pub fn file_size_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a place for the answer
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    limit.rlim_cur
}

/// The number behind a file, for namespaces' files in /proc; 0 where there is none.
pub fn inode(path: &CStr) -> u64 {
    // SAFETY: a C string and a place for the answer
    status(|stat| unsafe { libc::stat(path.as_ptr(), stat) }).map_or(0, |stat| stat.st_ino)
}

/// An option of a socket, as far as it fits; `None` with the error number in place when the kernel refuses.
pub fn socket_option(fd: c_int, level: c_int, name: c_int, value: &mut [u8]) -> Option<usize> {
    let mut length = value.len() as libc::socklen_t;
    // SAFETY: the buffer is writable for the length given
    let result = unsafe {
        libc::syscall(
            libc::SYS_getsockopt,
            fd as c_long,
            level as c_long,
            name as c_long,
            value.as_mut_ptr(),
            &mut length as *mut libc::socklen_t,
        )
    };
    (result == 0).then_some(length as usize)
}

/// An option that is a number.
pub fn socket_number(fd: c_int, level: c_int, name: c_int) -> Option<u32> {
    let mut bytes = [0; 4];
    socket_option(fd, level, name, &mut bytes)?;
    Some(u32::from_ne_bytes(bytes))
}

/// `getsockname` (`SYS_getsockname`) or `getpeername`: the address, zeros where there is none.
pub fn socket_name(call: c_long, fd: c_int) -> Address {
    let mut address = Address::default();
    let mut length = address.0.len() as libc::socklen_t;
    // SAFETY: the buffer is writable for the length given
    let result = unsafe {
        libc::syscall(call, fd as c_long, address.0.as_mut_ptr(), &mut length as *mut libc::socklen_t)
    };
    if result != 0 { Address::default() } else { address }
}

/// The kernel's number of what is behind a descriptor; 0 where it does not say.
pub fn number_of(fd: c_int) -> u64 {
    // SAFETY: a place for the answer
    status(|stat| unsafe { libc::fstat(fd, stat) }).map_or(0, |stat| stat.st_ino)
}

/// The number of the socket that a Unix socket of this number is connected to; 0: none, or the kernel does not say. See sock_diag(7). A
/// socket that nobody has accepted yet has no number.
pub fn unix_peer(inode: u64) -> u64 {
    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    const SHOW_PEER: u32 = 4;
    const PEER: u16 = 2;
    /// Of the header of a message, and of what it says of a socket before its attributes.
    const HEADERS: usize = 16 + 16;
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: numbers only
    let fd = unsafe {
        libc::syscall(
            libc::SYS_socket,
            libc::AF_NETLINK as c_long,
            kind as c_long,
            libc::NETLINK_SOCK_DIAG as c_long,
        )
    };
    if fd < 0 {
        return 0;
    }
    let file = File(fd as c_int);
    // struct nlmsghdr, struct unix_diag_req
    let mut ask = [0; 16 + 24];
    let words = [
        (0, ask.len() as u32),
        (4, u32::from(SOCK_DIAG_BY_FAMILY) | (libc::NLM_F_REQUEST as u32) << 16),
        (16, libc::AF_UNIX as u32),
        (20, u32::MAX),
        (24, inode as u32),
        (28, SHOW_PEER),
        (32, u32::MAX),
        (36, u32::MAX),
    ];
    for (at, word) in words {
        ask[at..at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    let mut answer = [0; 256];
    // SAFETY: a buffer to read from, and one to write to; not the calls by which programs send and receive
    let got = unsafe {
        if libc::syscall(libc::SYS_write, file.0 as c_long, ask.as_ptr(), ask.len()) != ask.len() as c_long {
            return 0;
        }
        libc::syscall(libc::SYS_read, file.0 as c_long, answer.as_mut_ptr(), answer.len())
    };
    let answer = &answer[..got.max(0) as usize];
    let short = |at: usize| answer.get(at..at + 2).map_or(0, |two| u16::from_ne_bytes([two[0], two[1]]));
    if short(4) != SOCK_DIAG_BY_FAMILY {
        return 0;
    }
    let mut at = HEADERS;
    while at + 8 <= answer.len() && short(at) >= 4 {
        if short(at + 2) == PEER {
            return u64::from(short(at + 4)) | u64::from(short(at + 6)) << 16;
        }
        at += usize::from(short(at)).next_multiple_of(4);
    }
    0
}

/// The beginning of a `struct sockaddr`; zeros where there is none.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Address(pub [u8; polyrail_core::trace::note::ADDRESS_BYTES]);

impl Address {
    /// Copies what a program gave to or got from a call.
    ///
    /// # Safety
    /// `address` is null or readable for `length` bytes.
    pub unsafe fn copy(address: *const libc::sockaddr, length: usize) -> Address {
        let mut copy = Address::default();
        if !address.is_null() {
            let length = length.min(copy.0.len());
            // SAFETY: readable for `length` as the caller says; the copy is not smaller
            unsafe { std::ptr::copy_nonoverlapping(address.cast(), copy.0.as_mut_ptr(), length) };
        }
        copy
    }

    /// Whether there is one.
    pub fn is_some(&self) -> bool {
        self.0[..2] != [0, 0]
    }

    /// A number that stands for it in records, never 0 (FNV-1a).
    pub fn number(&self) -> u32 {
        let hash = self
            .0
            .iter()
            .fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
        hash.max(1)
    }
}

/// Text built without allocating, always ended by a zero; what does not fit is cut.
pub struct Text<const SIZE: usize> {
    bytes: [u8; SIZE],
    length: usize,
}

impl<const SIZE: usize> Text<SIZE> {
    /// Empty.
    pub const fn new() -> Self {
        Self { bytes: [0; SIZE], length: 0 }
    }

    /// Appends.
    pub fn push(&mut self, text: &[u8]) -> &mut Self {
        let room = SIZE - 1 - self.length;
        let text = &text[..text.len().min(room)];
        self.bytes[self.length..self.length + text.len()].copy_from_slice(text);
        self.length += text.len();
        self
    }

    /// Appends a number, in decimal.
    pub fn number(&mut self, mut number: u64) -> &mut Self {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.push(&digits[at..])
    }

    /// As C wants it.
    pub fn c(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }

    /// What was appended.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}
