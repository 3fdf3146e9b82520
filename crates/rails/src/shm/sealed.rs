//! Memory that processes of one host share: a memfd whose size is sealed.
//!
//! It has no name in any file system, so that nothing stays when its users are gone, however they went, and a full or missing
//! /dev/shm does not matter. Nobody can cut it short under the others' feet (SIGBUS).

use std::{
    fmt, io, mem,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    ptr::{self, NonNull},
};

const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Why such memory cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum MemoryError {
    /// A system call failed.
    System {
        /// Its name.
        call: &'static str,
        /// What it said.
        error: io::Error,
    },
    /// The descriptor is no such memory, or of another version.
    Foreign {
        /// What differs.
        what: &'static str,
        /// What it should be.
        expected: u64,
        /// What it is.
        found: u64,
    },
    /// Another process, or this one, opened it before.
    Taken,
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryError::System { call, error } => {
                let advice = match error.raw_os_error() {
                    Some(libc::EMFILE) => "; raise the limit of open files (ulimit -n)",
                    Some(libc::ENFILE) => "; raise the host's limit of open files (sysctl fs.file-max)",
                    Some(libc::ENOMEM) => {
                        "; no memory or address space is left (ulimit -v, the container's memory limit, sysctl vm.max_map_count)"
                    }
                    Some(libc::ENOSYS | libc::EPERM) => {
                        "; the kernel or the container's seccomp profile does not allow it"
                    }
                    _ => "",
                };
                write!(f, "shared memory: {call}: {error}{advice}")
            }
            MemoryError::Foreign { what, expected, found } => write!(
                f,
                "shared memory from the peer: {what} is {found:#x}, expected {expected:#x}; do both run the same version?"
            ),
            MemoryError::Taken => f.write_str("shared memory from the peer is in use by another process"),
        }
    }
}

impl std::error::Error for MemoryError {}

impl MemoryError {
    /// Whether it would be the same at another time: the kernel has no such memory, or this process may not have any.
    pub(super) fn is_for_good(&self) -> bool {
        let errno = if let Self::System { error, .. } = self { error.raw_os_error() } else { None };
        matches!(errno, Some(libc::ENOSYS | libc::EPERM | libc::EACCES))
    }
}

/// Some such memory, mapped for reading and writing until this is dropped.
pub struct Sealed {
    at: NonNull<u8>,
    size: usize,
}

// SAFETY: an address; what is there is accessed through the rules of who maps it.
unsafe impl Send for Sealed {}
// SAFETY: the same.
unsafe impl Sync for Sealed {}

impl Sealed {
    /// Makes `size` bytes, all zero. The descriptor is for the others' [`open`](Self::open).
    pub fn create(size: usize) -> Result<(Self, OwnedFd), MemoryError> {
        let fd = memfd()?;
        // SAFETY: plain calls on a descriptor that is ours.
        check("ftruncate", unsafe { libc::ftruncate(fd.as_raw_fd(), size as libc::off_t) })?;
        // SAFETY: the same.
        check("fcntl(F_ADD_SEALS)", unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
        Ok((Self::map(fd.as_raw_fd(), size)?, fd))
    }

    /// Maps what another process made, if it is what it should be: its seals and its size are looked at first. The descriptor may be
    /// closed then.
    pub fn open(fd: BorrowedFd<'_>, size: usize) -> Result<Self, MemoryError> {
        // SAFETY: a plain call on a valid descriptor; fails unless it is a memfd.
        let seals = check("fcntl(F_GET_SEALS)", unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) })?;
        same("seals", SEALS as u64, (seals & SEALS) as u64)?;
        let mut stat = mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the buffer is a stat.
        check("fstat", unsafe { libc::fstat(fd.as_raw_fd(), stat.as_mut_ptr()) })?;
        // SAFETY: filled by the call.
        same("size", size as u64, unsafe { stat.assume_init() }.st_size as u64)?;
        Self::map(fd.as_raw_fd(), size)
    }

    /// The same that nobody else can map.
    pub fn private(size: usize) -> Result<Self, MemoryError> {
        Self::map(-1, size)
    }

    /// Its first byte, on a page of its own.
    pub fn at(&self) -> NonNull<u8> {
        self.at
    }

    fn map(fd: RawFd, size: usize) -> Result<Self, MemoryError> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = if fd < 0 { libc::MAP_PRIVATE | libc::MAP_ANONYMOUS } else { libc::MAP_SHARED };
        // SAFETY: a new mapping at a place of the kernel's choice touches nothing that exists.
        let at = unsafe { libc::mmap(ptr::null_mut(), size, access, kind, fd, 0) };
        if at == libc::MAP_FAILED {
            return Err(last("mmap"));
        }
        let at = NonNull::new(at.cast()).expect("the kernel maps nothing at 0 unasked");
        Ok(Self { at, size })
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this size, and nobody holds a reference into it any more.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.size) };
    }
}

fn memfd() -> Result<OwnedFd, MemoryError> {
    let make = |flags| {
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"polyrail".as_ptr(), flags | libc::MFD_CLOEXEC) };
        // SAFETY: a new descriptor, ours alone.
        check("memfd_create", fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
    };
    // Hardened hosts refuse a memfd that could be executed; kernels before 6.3 do not know the flag that says so.
    match make(libc::MFD_NOEXEC_SEAL | libc::MFD_ALLOW_SEALING) {
        Err(MemoryError::System { error, .. }) if error.raw_os_error() == Some(libc::EINVAL) => {
            make(libc::MFD_ALLOW_SEALING)
        }
        made => made,
    }
}

fn check(call: &'static str, result: libc::c_int) -> Result<libc::c_int, MemoryError> {
    if result < 0 { Err(last(call)) } else { Ok(result) }
}

fn last(call: &'static str) -> MemoryError {
    MemoryError::System { call, error: io::Error::last_os_error() }
}

pub(super) fn same(what: &'static str, expected: u64, found: u64) -> Result<(), MemoryError> {
    if expected == found { Ok(()) } else { Err(MemoryError::Foreign { what, expected, found }) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    const SIZE: usize = 4096;

    #[test]
    fn it_cannot_be_cut_and_has_no_name() {
        let (_ours, fd) = Sealed::create(SIZE).unwrap();
        // SAFETY: plain calls on our descriptor.
        assert_eq!(unsafe { libc::ftruncate(fd.as_raw_fd(), 0) }, -1);
        let mut stat = mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the buffer is a stat, filled by the call.
        let links = unsafe {
            assert_eq!(libc::fstat(fd.as_raw_fd(), stat.as_mut_ptr()), 0);
            stat.assume_init().st_nlink
        };
        assert_eq!(links, 0, "a file without a name goes with its last user");
    }

    fn bare(size: usize, seals: libc::c_int) -> OwnedFd {
        let fd = memfd().unwrap();
        // SAFETY: plain calls on our descriptor.
        unsafe {
            assert_eq!(libc::ftruncate(fd.as_raw_fd(), size as libc::off_t), 0);
            assert_eq!(libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals), 0);
        }
        fd
    }

    #[test]
    fn foreign_descriptors_are_refused_with_the_reason() {
        let refused = |fd: OwnedFd| Sealed::open(fd.as_fd(), SIZE).err().expect("refused").to_string();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(refused(file.into()).contains("F_GET_SEALS"));
        assert!(refused(bare(SIZE, libc::F_SEAL_SHRINK)).contains("seals"));
        assert!(refused(bare(SIZE - 1, SEALS)).contains("size"));
        assert!(Sealed::open(bare(SIZE, SEALS).as_fd(), SIZE).is_ok());
    }

    #[test]
    fn errors_advise() {
        let error = io::Error::from_raw_os_error(libc::EMFILE);
        assert!(MemoryError::System { call: "memfd_create", error }.to_string().contains("ulimit -n"));
    }
}
