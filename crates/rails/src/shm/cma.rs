//! Cross-memory attach: one copy between the memories of two processes (`process_vm_readv(2)`).
//!
//! The kernel checks every remote address. What it cannot check is that a process number still means the same process: that is
//! what the probe is for, which looks for a random number at the place where the peer says that it lies.

use crate::rail::RawIov;
use std::fmt;
use std::io;

/// A range of another process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteIov {
    /// Virtual address there.
    pub base: u64,
    /// Bytes.
    pub len: usize,
}

/// Why the other process's memory was not reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CmaError {
    /// The kernel does not allow it: Yama's ptrace_scope, a container's seccomp filter, another user.
    Refused,
    /// There is no such process any more.
    Gone,
    /// The address is not mapped there.
    Fault,
    /// Another process has this number: the random bytes are not there.
    Stranger,
}

impl fmt::Display for CmaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => {
                "the kernel refuses cross-memory attach (sysctl kernel.yama.ptrace_scope, a container's seccomp profile)"
            }
            Self::Gone => "the process is gone, or in another PID namespace",
            Self::Fault => "the address is not mapped there",
            Self::Stranger => "another process has that number (another PID namespace)",
        })
    }
}

impl std::error::Error for CmaError {}

/// Most entries that the kernel takes in one call.
const MAX_IOV: usize = 1024;
/// Most bytes moved in one call, below the kernel's limit of 2^31 - 4096.
const MAX_BYTES: usize = 1 << 30;

type Call = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> isize;

/// Copies from the remote ranges to the local ones, as many bytes as the shorter side has.
///
/// # Errors
/// [`CmaError`]; some bytes may have been copied.
///
/// # Safety
/// The local memory is writable.
pub unsafe fn read(pid: i32, local: &[RawIov], remote: &[RemoteIov]) -> Result<(), CmaError> {
    // SAFETY: our caller's word.
    unsafe { copy(libc::process_vm_readv, pid, local, remote) }
}

/// Copies from the local ranges to the remote ones, as many bytes as the shorter side has.
///
/// # Errors
/// As [`read`].
///
/// # Safety
/// The local memory is readable.
pub unsafe fn write(pid: i32, local: &[RawIov], remote: &[RemoteIov]) -> Result<(), CmaError> {
    // SAFETY: our caller's word.
    unsafe { copy(libc::process_vm_writev, pid, local, remote) }
}

/// Where a copy stands in a list of ranges: how many bytes of which entry are done.
struct Cursor<'a, T> {
    ranges: &'a [T],
    done: usize,
}

impl<T: Copy> Cursor<'_, T> {
    fn fill(&self, out: &mut Vec<libc::iovec>, parts: impl Fn(T) -> (*mut libc::c_void, usize)) -> usize {
        out.clear();
        let (mut skip, mut total) = (self.done, 0);
        for range in self.ranges {
            if out.len() == MAX_IOV || total == MAX_BYTES {
                break;
            }
            let (base, len) = parts(*range);
            let take = (len - skip).min(MAX_BYTES - total);
            if take == 0 {
                // Or many empty ranges would pass for the end.
                skip = 0;
                continue;
            }
            out.push(libc::iovec { iov_base: base.wrapping_byte_add(skip), iov_len: take });
            (skip, total) = (0, total + take);
        }
        total
    }

    fn advance(&mut self, mut n: usize, len: impl Fn(T) -> usize) {
        while let Some((first, rest)) = self.ranges.split_first() {
            let left = len(*first) - self.done;
            if n < left {
                self.done += n;
                return;
            }
            (n, self.done, self.ranges) = (n - left, 0, rest);
        }
    }
}

unsafe fn copy(call: Call, pid: i32, local: &[RawIov], remote: &[RemoteIov]) -> Result<(), CmaError> {
    let (mut ours, mut theirs) = (Cursor { ranges: local, done: 0 }, Cursor { ranges: remote, done: 0 });
    let (mut a, mut b) = (Vec::new(), Vec::new());
    loop {
        let left = ours.fill(&mut a, |r| (r.base.cast(), r.len));
        let theirs_left = theirs.fill(&mut b, |r| (r.base as usize as *mut libc::c_void, r.len));
        if left == 0 || theirs_left == 0 {
            return Ok(());
        }
        // SAFETY: both lists are ours; the local memory is the caller's word, the remote one the kernel's to check.
        let n = unsafe { call(pid, a.as_ptr(), a.len() as _, b.as_ptr(), b.len() as _, 0) };
        match usize::try_from(n) {
            Ok(0) => return Err(CmaError::Fault),
            Ok(n) => {
                ours.advance(n, |r| r.len);
                theirs.advance(n, |r| r.len);
            }
            Err(_) => match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::ESRCH) => return Err(CmaError::Gone),
                Some(libc::EFAULT) => return Err(CmaError::Fault),
                _ => return Err(CmaError::Refused),
            },
        }
    }
}

/// Whether `nonce` lies at `address` of process `pid`, that is: whether its memory can be reached, and it is the right one.
///
/// # Errors
/// [`CmaError`], saying why not.
pub fn probe(pid: i32, address: u64, nonce: u64) -> Result<(), CmaError> {
    let mut found = [0u8; 8];
    let local = RawIov { base: found.as_mut_ptr(), len: found.len() };
    // SAFETY: eight bytes of ours.
    unsafe { read(pid, &[local], &[RemoteIov { base: address, len: 8 }])? };
    if u64::from_le_bytes(found) == nonce { Ok(()) } else { Err(CmaError::Stranger) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn me() -> i32 {
        std::process::id() as i32
    }

    fn iov(bytes: &mut [u8]) -> RawIov {
        RawIov { base: bytes.as_mut_ptr(), len: bytes.len() }
    }

    #[test]
    fn copies_across_differently_cut_ranges() {
        let from: Vec<u8> = (0..=255).collect();
        let remote: Vec<_> = [(0, 100), (100, 0), (100, 56), (156, 100)]
            .map(|(at, len)| RemoteIov { base: from[at..].as_ptr() as u64, len })
            .into();
        let mut to = vec![0u8; 256];
        let (a, b) = to.split_at_mut(37);
        // SAFETY: our own vectors.
        unsafe { read(me(), &[iov(a), iov(b)], &remote).unwrap() };
        assert_eq!(to, from);
        to.reverse();
        let back = [iov(&mut to)];
        // SAFETY: our own vectors; `from` is written through its address as another process would.
        unsafe { write(me(), &back, &remote).unwrap() };
        let seen: Vec<u8> = (0..256).map(|i| std::hint::black_box(&from)[i]).collect();
        assert_eq!(seen, to);
    }

    #[test]
    fn many_ranges_take_several_calls() {
        let from: Vec<u8> = (0..5000u32).map(|i| i as u8).collect();
        let remote: Vec<_> = from.iter().map(|b| RemoteIov { base: &raw const *b as u64, len: 1 }).collect();
        let mut to = vec![0u8; 5000];
        // SAFETY: our own vectors.
        unsafe { read(me(), &[iov(&mut to)], &remote).unwrap() };
        assert_eq!(to, from);
    }

    #[test]
    fn empty_ranges_are_not_the_end() {
        let from = [1u8, 2, 3, 4];
        let mut remote = vec![RemoteIov { base: 8, len: 0 }; 2 * MAX_IOV];
        remote.push(RemoteIov { base: from.as_ptr() as u64, len: 4 });
        let mut to = [0; 3];
        // SAFETY: our own array.
        unsafe { read(me(), &[iov(&mut to)], &remote).unwrap() };
        assert_eq!(to, [1, 2, 3], "the shorter side ends the copy");
    }

    #[test]
    fn fault_in_the_middle_is_a_fault() {
        const PAGE: usize = 4096;
        let mut to = vec![0; 2 * PAGE];
        // SAFETY: a fresh mapping of two pages, of which the second is closed; unmapped when done.
        unsafe {
            let (rw, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let at = libc::mmap(std::ptr::null_mut(), 2 * PAGE, rw, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(at.byte_add(PAGE), PAGE, libc::PROT_NONE), 0);
            let remote = [RemoteIov { base: at as u64, len: 2 * PAGE }];
            assert_eq!(read(me(), &[iov(&mut to)], &remote), Err(CmaError::Fault));
            libc::munmap(at, 2 * PAGE);
        }
    }

    #[test]
    fn failures_say_what_they_are() {
        let nonce = Box::new(77u64);
        let at = &raw const *nonce as u64;
        assert_eq!(probe(me(), at, 77), Ok(()));
        assert_eq!(probe(me(), at, 78), Err(CmaError::Stranger));
        assert_eq!(probe(me(), 8, 77), Err(CmaError::Fault));
        assert_eq!(probe(i32::MAX, at, 77), Err(CmaError::Gone));
    }
}
