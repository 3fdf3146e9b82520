//! Cross-memory attach: one process copies from and to another's memory by system call, in one copy and without the other's help.
//!
//! The kernel allows it between processes of one user that may trace each other. Addresses are the peer's, believed as they
//! come: a wrong one ends in [`CmaError::Fault`] here, never in a fault of the program.

use std::{fmt, io};

/// Local memory of an operation.
#[derive(Debug, Clone, Copy)]
pub struct LocalIov {
    /// Where it begins.
    pub ptr: *mut u8,
    /// Length in bytes.
    pub len: usize,
}

/// The peer's memory of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteIov {
    /// Where it begins in the peer's address space.
    pub addr: u64,
    /// Length in bytes.
    pub len: usize,
}

/// Why memory was not copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CmaError {
    /// The kernel does not let this process at that one's memory.
    Refused,
    /// There is no such process (any more), or it is another one.
    Gone,
    /// A range is not mapped, or not for this access. So many bytes were copied before it.
    Fault {
        /// Bytes copied.
        done: usize,
    },
    /// Another error of the system call.
    System(i32),
}

impl fmt::Display for CmaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CmaError::Refused => f.write_str(
                "the kernel refuses access to the peer's memory; both must run as one user, and ptrace_scope (sysctl \
                 kernel.yama) and the container must allow it",
            ),
            CmaError::Gone => f.write_str("the peer's process is gone"),
            CmaError::Fault { done } => write!(f, "memory that is not there, {done} bytes into the operation"),
            CmaError::System(errno) => write!(f, "cross-memory attach: {}", io::Error::from_raw_os_error(*errno)),
        }
    }
}

impl std::error::Error for CmaError {}

#[derive(Clone, Copy)]
enum Direction {
    Read,
    Write,
}

/// Entries per side and call: enough to make the call's own cost small, few enough for the stack. The kernel takes 1024.
const BATCH: usize = 64;
/// Bytes per call. The kernel stops at 2 GiB less a page; at this size the call's cost is long forgotten, and a process that
/// is told to stop does so soon.
const CALL: usize = 64 << 20;

/// Copies the peer's memory, range after range, into the local ranges, and says how many bytes that was: as many as the
/// shorter side holds. Blocks for the copy alone.
///
/// # Safety
/// The local ranges are valid for writing, and nothing else uses them meanwhile.
pub unsafe fn read(pid: i32, local: &[LocalIov], remote: &[RemoteIov]) -> Result<usize, CmaError> {
    // SAFETY: passed on to the caller.
    unsafe { transfer(Direction::Read, pid, local, remote) }
}

/// Copies the local ranges into the peer's memory; otherwise as [`read`].
///
/// # Safety
/// The local ranges are valid for reading, and nothing writes them meanwhile. The peer must have offered its ranges: its
/// program is not asked.
pub unsafe fn write(pid: i32, local: &[LocalIov], remote: &[RemoteIov]) -> Result<usize, CmaError> {
    // SAFETY: passed on to the caller.
    unsafe { transfer(Direction::Write, pid, local, remote) }
}

/// Whether `pid` is the process that said it holds `nonce` at `addr`, and lets us read it. Process numbers are reused, and
/// mean different processes in different namespaces; the nonce tells.
///
/// # Errors
/// [`CmaError::Gone`] if another value is there.
pub fn probe(pid: i32, addr: u64, nonce: u64) -> Result<(), CmaError> {
    let mut found = [0u8; 8];
    // SAFETY: the local range is the buffer.
    let done =
        unsafe { read(pid, &[LocalIov { ptr: found.as_mut_ptr(), len: 8 }], &[RemoteIov { addr, len: 8 }])? };
    if done == 8 && u64::from_ne_bytes(found) == nonce { Ok(()) } else { Err(CmaError::Gone) }
}

/// Where the kernel's ptrace_scope is 1, only ancestors may read a process's memory unless it says otherwise: this lets
/// every process of the same user at this one's. Says whether that was asked for; on kernels without the restriction there is nothing to ask.
pub fn permit_peers() -> bool {
    // SAFETY: an option that takes an integer.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY) == 0 }
}

unsafe fn transfer(
    direction: Direction,
    pid: i32,
    local: &[LocalIov],
    remote: &[RemoteIov],
) -> Result<usize, CmaError> {
    let mut here = Ranges::new(local.iter().map(|r| (r.ptr as u64, r.len)));
    let mut there = Ranges::new(remote.iter().map(|r| (r.addr, r.len)));
    let mut done = 0;
    loop {
        let (ours, theirs) = (here.batch(), there.batch());
        // Either side may be cut by its batch. The kernel copies what both sides hold.
        let (ours, theirs) = (ours.as_slice(), theirs.as_slice());
        if ours.is_empty() || theirs.is_empty() {
            return Ok(done);
        }
        let call = match direction {
            Direction::Read => libc::process_vm_readv,
            Direction::Write => libc::process_vm_writev,
        };
        let (n, m) = (ours.len() as libc::c_ulong, theirs.len() as libc::c_ulong);
        // SAFETY: the arrays are of these lengths. Local ranges are the caller's word; remote ones the kernel checks.
        let copied = unsafe { call(pid, ours.as_ptr(), n, theirs.as_ptr(), m, 0) };
        match usize::try_from(copied) {
            Err(_) => return Err(error(done)),
            Ok(0) => return Err(CmaError::Fault { done }),
            Ok(copied) => {
                here.advance(copied);
                there.advance(copied);
                done += copied;
            }
        }
    }
}

fn error(done: usize) -> CmaError {
    match io::Error::last_os_error().raw_os_error().unwrap_or(0) {
        libc::EPERM => CmaError::Refused,
        libc::ESRCH => CmaError::Gone,
        libc::EFAULT => CmaError::Fault { done },
        errno => CmaError::System(errno),
    }
}

/// What is left of a list of ranges.
#[derive(Clone)]
struct Ranges<I> {
    rest: I,
    /// The range that an earlier call left in the middle.
    current: (u64, usize),
}

impl<I: Iterator<Item = (u64, usize)> + Clone> Ranges<I> {
    fn new(rest: I) -> Self {
        Ranges { rest, current: (0, 0) }
    }

    /// The next ranges, as many as one call takes. Nothing is taken yet.
    fn batch(&self) -> Batch {
        let mut batch = Batch { entries: [NONE; BATCH], len: 0 };
        let mut room = CALL;
        for (addr, len) in std::iter::once(self.current).chain(self.rest.clone()) {
            if batch.len == BATCH || room == 0 {
                break;
            }
            let len = len.min(room);
            if len > 0 {
                batch.entries[batch.len] = libc::iovec { iov_base: addr as *mut libc::c_void, iov_len: len };
                batch.len += 1;
                room -= len;
            }
        }
        batch
    }

    fn advance(&mut self, mut bytes: usize) {
        while bytes >= self.current.1 {
            bytes -= self.current.1;
            match self.rest.next() {
                Some(range) => self.current = range,
                None => {
                    self.current = (0, 0);
                    return;
                }
            }
        }
        self.current = (self.current.0 + bytes as u64, self.current.1 - bytes);
    }
}

const NONE: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

struct Batch {
    entries: [libc::iovec; BATCH],
    len: usize,
}

impl Batch {
    fn as_slice(&self) -> &[libc::iovec] {
        &self.entries[..self.len]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::ptr;

    fn me() -> i32 {
        std::process::id() as i32
    }

    fn local(bytes: &mut [u8]) -> LocalIov {
        LocalIov { ptr: bytes.as_mut_ptr(), len: bytes.len() }
    }

    fn remote(bytes: &[u8]) -> RemoteIov {
        RemoteIov { addr: bytes.as_ptr() as u64, len: bytes.len() }
    }

    #[test]
    fn ranges_are_cut_to_fit_each_other() {
        let from: Vec<u8> = (0..10_000).map(|i| (i % 251) as u8).collect();
        let mut to = vec![0; 10_000];
        let theirs: Vec<_> = from.chunks(7).map(remote).collect();
        let ours: Vec<_> = to.chunks_mut(13).map(local).collect();
        assert!(theirs.len() > 1024 && ours.len() > BATCH);
        // SAFETY: the ranges are the vectors'.
        assert_eq!(unsafe { read(me(), &ours, &theirs) }, Ok(10_000));
        assert_eq!(from, to);
        to.fill(0);
        // SAFETY: the ranges are the vectors', sides swapped.
        let done = unsafe {
            let theirs: Vec<_> = ours.iter().map(|r| RemoteIov { addr: r.ptr as u64, len: r.len }).collect();
            let ours: Vec<_> =
                from.chunks(7).map(|r| LocalIov { ptr: r.as_ptr().cast_mut(), len: r.len() }).collect();
            write(me(), &ours, &theirs)
        };
        assert_eq!((done, from), (Ok(10_000), to));
    }

    #[test]
    fn shorter_side_ends_the_copy() {
        let from = [1, 2, 3, 4];
        let mut to = [0; 3];
        let ranges = [remote(&from[..0]), remote(&from[..1]), remote(&from[..0]), remote(&from[1..])];
        // SAFETY: the range is the array.
        assert_eq!(unsafe { read(me(), &[local(&mut to)], &ranges) }, Ok(3));
        assert_eq!(to, [1, 2, 3]);
        // SAFETY: nothing is copied.
        assert_eq!(unsafe { read(me(), &[], &ranges) }, Ok(0));
    }

    #[test]
    fn more_than_one_call_takes() {
        const SIZE: usize = 2 * CALL + 4097;
        let mut from = vec![0; SIZE];
        for i in (0..SIZE).step_by(4096) {
            from[i] = (i / 4096 % 255) as u8;
        }
        let mut to = vec![1; SIZE];
        // SAFETY: the range is the vector.
        assert_eq!(unsafe { read(me(), &[local(&mut to)], &[remote(&from)]) }, Ok(SIZE));
        assert!(from == to);
    }

    #[test]
    fn fault_says_how_far_it_came() {
        const PAGE: usize = 4096;
        let mut to = vec![0; 3 * PAGE];
        // SAFETY: a fresh mapping of two pages, of which the second is closed; unmapped before it goes out of scope.
        unsafe {
            let (rw, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let at = libc::mmap(ptr::null_mut(), 2 * PAGE, rw, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(at.byte_add(PAGE), PAGE, libc::PROT_NONE), 0);
            let ranges = [RemoteIov { addr: at as u64 + 96, len: 2 * PAGE - 96 }];
            assert_eq!(read(me(), &[local(&mut to)], &ranges), Err(CmaError::Fault { done: PAGE - 96 }));
            libc::munmap(at, 2 * PAGE);
        }
    }

    #[test]
    fn probe_tells_processes_apart() {
        let nonce = Box::new(0x1234_5678_9abc_def0_u64);
        let addr = &raw const *nonce as u64;
        assert_eq!(probe(me(), addr, *nonce), Ok(()));
        assert_eq!(probe(me(), addr, 1), Err(CmaError::Gone));
        assert_eq!(probe(me(), 8, 1), Err(CmaError::Fault { done: 0 }));
        assert_eq!(
            probe(i32::MAX, addr, *nonce),
            Err(CmaError::Gone),
            "above every limit of process numbers"
        );
    }
}
