//! The memory of a pair: one memfd with a header and two rings, one per direction.
//!
//! It has no name in any file system, so that nothing stays when both processes are gone, however they went, and a full
//! or missing /dev/shm does not matter. Its size is sealed: nobody can cut it short under the other's feet (SIGBUS).
//!
//! A pair takes [`SEGMENT_SIZE`] bytes (284 KiB) of address space in each process, and one descriptor while it is being set
//! up. Pages come on first touch, one for both processes: an idle pair has 3 (12 KiB), a pair that exchanged short messages
//! only has 7, one in full use has all 71.

use std::{
    fmt, io, mem,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr::{self, NonNull},
    sync::Arc,
    sync::atomic::{AtomicU32, Ordering},
};

use super::ring::{self, BULK, Consumer, Producer, RingMemory, SLOTS};

const MAGIC: u64 = u64::from_le_bytes(*b"polyrail");
/// To be raised with each change of what the two processes share.
pub const LAYOUT: u16 = 1;
const PAGE: usize = 4096;
const RING: usize = mem::size_of::<RingMemory>().next_multiple_of(PAGE);
/// Bytes of a pair's segment.
pub const SEGMENT_SIZE: usize = PAGE + 2 * RING;
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
struct Header {
    magic: u64,
    layout: u32,
    slots: u32,
    bulk: u32,
}

const HEADER: Header = Header { magic: MAGIC, layout: LAYOUT as u32, slots: SLOTS as u32, bulk: BULK as u32 };

#[repr(C)]
struct First {
    header: Header,
    /// Set by the one process that opens the segment.
    opened: AtomicU32,
}

/// Why a segment cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum SegmentError {
    /// A system call failed.
    System {
        /// Its name.
        call: &'static str,
        /// What it said.
        error: io::Error,
    },
    /// The descriptor is no segment of this version.
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

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SegmentError::System { call, error } => {
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
            SegmentError::Foreign { what, expected, found } => write!(
                f,
                "shared memory from the peer: {what} is {found:#x}, expected {expected:#x}; do both run the same version?"
            ),
            SegmentError::Taken => f.write_str("shared memory from the peer is in use by another process"),
        }
    }
}

impl std::error::Error for SegmentError {}

/// The process's view of a pair's memory, from which its two ends are made.
pub struct Segment {
    mapping: Mapping,
    /// The ring that this side sends by.
    ours: usize,
}

impl Segment {
    /// Makes the memory of a new pair. The descriptor is for the peer's [`open`](Self::open) and may be closed then.
    pub fn create() -> Result<(Segment, OwnedFd), SegmentError> {
        let fd = memfd()?;
        // SAFETY: plain calls on a descriptor that is ours.
        check("ftruncate", unsafe { libc::ftruncate(fd.as_raw_fd(), SEGMENT_SIZE as libc::off_t) })?;
        // SAFETY: the same.
        check("fcntl(F_ADD_SEALS)", unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
        let mapping = Mapping::new(&fd)?;
        // SAFETY: the mapping is larger than a header, and nobody else knows it yet.
        unsafe { mapping.0.cast::<Header>().write(HEADER) };
        Ok((Segment { mapping, ours: 0 }, fd))
    }

    /// Maps the memory that the peer made. Nothing in it is believed before it was checked, its size and seals first. The
    /// descriptor may be closed then.
    pub fn open(fd: BorrowedFd<'_>) -> Result<Segment, SegmentError> {
        // SAFETY: a plain call on a valid descriptor; fails unless it is a memfd.
        let seals = check("fcntl(F_GET_SEALS)", unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) })?;
        same("seals", SEALS as u64, (seals & SEALS) as u64)?;
        let mut stat = mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the buffer is a stat.
        check("fstat", unsafe { libc::fstat(fd.as_raw_fd(), stat.as_mut_ptr()) })?;
        // SAFETY: filled by the call.
        same("size", SEGMENT_SIZE as u64, unsafe { stat.assume_init() }.st_size as u64)?;
        let mapping = Mapping::new(&fd)?;
        // SAFETY: within the mapping; a volatile read takes one copy of what the peer may be changing.
        let header = unsafe { mapping.0.cast::<Header>().as_ptr().read_volatile() };
        same("magic", HEADER.magic, header.magic)?;
        same("layout", HEADER.layout.into(), header.layout.into())?;
        same("slots", HEADER.slots.into(), header.slots.into())?;
        same("bulk area", HEADER.bulk.into(), header.bulk.into())?;
        // SAFETY: within the mapping, aligned, and accessed atomically by everybody.
        let opened = unsafe { &(*mapping.0.cast::<First>().as_ptr()).opened };
        if opened.swap(1, Ordering::AcqRel) != 0 {
            return Err(SegmentError::Taken);
        }
        Ok(Segment { mapping, ours: 1 })
    }

    /// The two ends on this side; the memory stays mapped until both are dropped.
    pub fn split(self) -> (Producer, Consumer) {
        let ring = |i: usize| {
            // SAFETY: both rings are within the mapping.
            unsafe { self.mapping.0.byte_add(PAGE + i * RING).cast::<RingMemory>() }
        };
        let (out, back) = (ring(self.ours), ring(1 - self.ours));
        let keep = Arc::new(self.mapping);
        // SAFETY: a fresh memfd is zero; the mapping lives in `keep`; sides are made once each: by `create`, and by the
        // `open` that found `opened` unset.
        unsafe { (ring::producer(out, keep.clone()), ring::consumer(back, keep)) }
    }
}

/// SEGMENT_SIZE bytes of shared memory, unmapped on drop.
struct Mapping(NonNull<u8>);

// SAFETY: an address; what is there is accessed through the rings' own rules.
unsafe impl Send for Mapping {}
// SAFETY: the same.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(fd: &impl AsRawFd) -> Result<Mapping, SegmentError> {
        // SAFETY: a new mapping at a place of the kernel's choice touches nothing that exists.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                SEGMENT_SIZE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(last("mmap"));
        }
        Ok(Mapping(NonNull::new(at.cast()).expect("the kernel maps nothing at 0 unasked")))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this size, and nobody holds a reference into it any more.
        unsafe { libc::munmap(self.0.as_ptr().cast(), SEGMENT_SIZE) };
    }
}

fn memfd() -> Result<OwnedFd, SegmentError> {
    let make = |flags| {
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"polyrail".as_ptr(), flags | libc::MFD_CLOEXEC) };
        // SAFETY: a new descriptor, ours alone.
        check("memfd_create", fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
    };
    // Hardened hosts refuse a memfd that could be executed; kernels before 6.3 do not know the flag that says so.
    match make(libc::MFD_NOEXEC_SEAL | libc::MFD_ALLOW_SEALING) {
        Err(SegmentError::System { error, .. }) if error.raw_os_error() == Some(libc::EINVAL) => {
            make(libc::MFD_ALLOW_SEALING)
        }
        made => made,
    }
}

fn check(call: &'static str, result: libc::c_int) -> Result<libc::c_int, SegmentError> {
    if result < 0 { Err(last(call)) } else { Ok(result) }
}

fn last(call: &'static str) -> SegmentError {
    SegmentError::System { call, error: io::Error::last_os_error() }
}

fn same(what: &'static str, expected: u64, found: u64) -> Result<(), SegmentError> {
    if expected == found { Ok(()) } else { Err(SegmentError::Foreign { what, expected, found }) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn both_directions_carry_frames() {
        let (ours, fd) = Segment::create().unwrap();
        let theirs = Segment::open(fd.as_fd()).unwrap();
        drop(fd);
        let ((mut p0, mut c0), (mut p1, mut c1)) = (ours.split(), theirs.split());
        p0.try_send(b"there", &[b"1"]).unwrap();
        p1.try_send(b"back", &[b"2"]).unwrap();
        assert_eq!(c1.peek().unwrap().unwrap().header, b"there");
        drop((p0, c1, p1));
        assert_eq!(c0.peek().unwrap().unwrap().header, b"back", "each end keeps the memory");
    }

    #[test]
    fn second_opening_is_refused() {
        let (_ours, fd) = Segment::create().unwrap();
        let _theirs = Segment::open(fd.as_fd()).unwrap();
        assert!(matches!(Segment::open(fd.as_fd()), Err(SegmentError::Taken)));
    }

    #[test]
    fn segment_cannot_be_cut_and_has_no_name() {
        let (_ours, fd) = Segment::create().unwrap();
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

    #[test]
    fn memory_is_taken_by_use() {
        let (ours, fd) = Segment::create().unwrap();
        let pages = || {
            let mut stat = mem::MaybeUninit::<libc::stat>::uninit();
            // SAFETY: the buffer is a stat, filled by the call.
            unsafe {
                assert_eq!(libc::fstat(fd.as_raw_fd(), stat.as_mut_ptr()), 0);
                stat.assume_init().st_blocks as usize * 512 / PAGE
            }
        };
        let ((mut p0, mut c0), (mut p1, mut c1)) = (ours.split(), Segment::open(fd.as_fd()).unwrap().split());
        assert_eq!(pages(), 3, "idle");
        let mut exchange = |payload: &[u8]| {
            for _ in 0..SLOTS {
                p0.try_send(b"there", &[payload]).unwrap();
                p1.try_send(b"back", &[payload]).unwrap();
                for c in [&mut c0, &mut c1] {
                    let mut sink = vec![0; payload.len()];
                    c.peek().unwrap().unwrap().payload.copy_to(&mut sink);
                    c.release();
                }
            }
        };
        exchange(&[1; 8]);
        assert_eq!(pages(), 7, "short messages");
        exchange(&[1; ring::MAX_PAYLOAD]);
        assert_eq!((pages(), SEGMENT_SIZE), (71, 71 * PAGE), "full use");
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
        let refused = |fd: OwnedFd| Segment::open(fd.as_fd()).err().expect("refused").to_string();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(refused(file.into()).contains("F_GET_SEALS"));
        assert!(refused(bare(SEGMENT_SIZE, libc::F_SEAL_SHRINK)).contains("seals"));
        assert!(refused(bare(SEGMENT_SIZE - 1, SEALS)).contains("size"));
        assert!(refused(bare(SEGMENT_SIZE, SEALS)).contains("magic"));
    }

    #[test]
    fn errors_advise() {
        let error = io::Error::from_raw_os_error(libc::EMFILE);
        assert!(SegmentError::System { call: "memfd_create", error }.to_string().contains("ulimit -n"));
    }
}
