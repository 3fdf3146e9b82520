//! Rings in shared memory: made, made larger, given back.
//!
//! No page is written that the file system has not promised: it would end the program by SIGBUS where shared memory is full. A ring
//! reserves little at first, and more when it runs full.

use std::ptr::{copy_nonoverlapping, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use polyrail_core::trace::RECORD;
use polyrail_core::trace::ring::{self, FIXED, HEADER, MOST, START};

use crate::start::environment;
use crate::sys::{self, File, Text, quietly};

/// Whether the kernel can reserve pages of a mapping (`MADV_POPULATE_WRITE`, Linux 5.14).
static GROWS: AtomicBool = AtomicBool::new(false);

/// Finds out whether rings can grow. `page`: a page of our own.
pub fn look_whether_they_grow(page: *mut u8) {
    // SAFETY: advice about a mapped page; sysconf takes a number
    let grows = unsafe {
        libc::madvise(page.cast(), 4096, libc::MADV_POPULATE_WRITE) == 0
            && libc::sysconf(libc::_SC_PAGESIZE) == HEADER as i64
    };
    GROWS.store(grows, Ordering::Relaxed);
}

/// The atomic word at an offset of a mapped page.
///
/// # Safety
/// `page + at` is mapped, aligned and stays so.
pub unsafe fn word64<'a>(page: *mut u8, at: usize) -> &'a AtomicU64 {
    // SAFETY: as the caller says
    unsafe { AtomicU64::from_ptr(page.add(at).cast()) }
}

/// The same for 32 bits.
///
/// # Safety
/// `page + at` is mapped, aligned and stays so.
pub unsafe fn word32<'a>(page: *mut u8, at: usize) -> &'a AtomicU32 {
    // SAFETY: as the caller says
    unsafe { AtomicU32::from_ptr(page.add(at).cast()) }
}

fn bytes(slots: usize) -> usize {
    HEADER + slots * RECORD
}

/// A ring that is mapped for as many records as it may come to hold.
#[derive(Clone, Copy)]
pub struct Ring {
    /// Where it is; null: there is none.
    pub at: *mut u8,
    /// Records that it holds now.
    pub slots: usize,
    /// Records that it may come to hold.
    most: usize,
}

impl Ring {
    /// No ring.
    pub const NONE: Ring = Ring { at: null_mut(), slots: 0, most: 0 };

    /// Makes the calling thread's. `parent`: process id; `process`: number in the session. `None`: no room, no descriptor, no right.
    pub fn make(tid: i32, parent: u32, process: u64, ticks: u64) -> Option<Ring> {
        // SAFETY: takes nothing
        let pid = unsafe { libc::getpid() };
        let grows = GROWS.load(Ordering::Relaxed);
        let (mut most, limit) = (if grows { MOST } else { FIXED }, sys::file_size_limit());
        while most >= START && bytes(most) as u64 > limit {
            most /= 2; // a file beyond the limit would end the program by SIGXFSZ
        }
        let slots = if grows { START } else { most };
        if most < START {
            return None;
        }
        let mut path = Text::<400>::new();
        path.push(environment().directory()).push(b"/").number(pid as u64).push(b".").number(tid as u64);
        path.push(b".").number(ticks).push(b".ring");
        let file = File::open(path.c(), libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, 0o600)?;
        let at = if file.reserve(bytes(slots)) && file.truncate(bytes(most)) {
            file.map(bytes(most))
        } else {
            null_mut()
        };
        if at.is_null() {
            // SAFETY: a C string
            unsafe { libc::unlink(path.c().as_ptr()) };
            return None;
        }
        let ring = Ring { at, slots, most };
        ring.describe(pid, tid, parent, process, ticks);
        Some(ring)
    }

    fn describe(&self, pid: i32, tid: i32, parent: u32, process: u64, ticks: u64) {
        let Ring { at: ring, slots, most } = *self;
        let mut name = [0u8; 16];
        // SAFETY: `ring` is mapped for its header, reserved, and ours to advise on; `name` has the 16 bytes that PR_GET_NAME fills
        unsafe {
            libc::madvise(ring.cast(), bytes(most), libc::MADV_DONTFORK);
            libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr());
            copy_nonoverlapping(name.as_ptr(), ring.add(ring::AT_NAME), 16);
            let numbers = [
                (ring::AT_SLOTS, slots as u32),
                (ring::AT_PID, pid as u32),
                (ring::AT_TID, tid as u32),
                (ring::AT_PPID, parent),
            ];
            for (at, number) in numbers {
                word32(ring, at).store(number, Ordering::Relaxed);
            }
            let numbers = [
                (ring::AT_PID_NAMESPACE, sys::inode(c"/proc/self/ns/pid")),
                (ring::AT_NETWORK, sys::inode(c"/proc/self/ns/net")),
                (ring::AT_TICKS, ticks),
                (ring::AT_PROCESS, process),
            ];
            for (at, number) in numbers {
                word64(ring, at).store(number, Ordering::Relaxed);
            }
            word64(ring, ring::AT_MAGIC).store(ring::MAGIC, Ordering::Release);
        }
    }

    /// Makes it twice as large; false: it stays as it is for good.
    #[cold]
    pub fn grow(&mut self) -> bool {
        if self.slots >= self.most {
            return false;
        }
        let old = self.slots * RECORD;
        // SAFETY: the ring is mapped for `most` records, which are at least twice `slots`; the first half is reserved, and the second
        // once madvise has said so; only this thread writes either
        unsafe {
            let (first, second) = (self.at.add(HEADER), self.at.add(HEADER + old));
            if quietly(|| libc::madvise(second.cast(), old, libc::MADV_POPULATE_WRITE)) != 0 {
                self.most = self.slots;
                return false;
            }
            copy_nonoverlapping(first, second, old);
            self.slots *= 2;
            word32(self.at, ring::AT_SLOTS).store(self.slots as u32, Ordering::Release);
        }
        true
    }

    /// Ends it: nothing more is written to it.
    pub fn close(self) {
        // SAFETY: mapped by `make`; the thread, its only user here, has let go of it
        unsafe {
            word32(self.at, ring::AT_CLOSED).store(1, Ordering::Release);
            libc::munmap(self.at.cast(), bytes(self.most));
        }
    }

    /// In a child forked while this thread was writing a record: puts memory of its own where the parent's ring was, for what is left of
    /// that record.
    pub fn replace(&self) {
        let (access, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
        );
        // SAFETY: nothing is mapped there: the parent's ring was not given to this process (MADV_DONTFORK)
        unsafe { libc::mmap(self.at.cast(), bytes(self.most), access, kind, -1, 0) };
    }
}
