//! Which pages were written, as the kernel knows it: asynchronous write protection of userfaultfd, listed and renewed by `PAGEMAP_SCAN` (Linux 6.7).
//!
//! A page counts as written from the first write after it was listed on. Memory that was never touched has no marks, so that huge pages stay possible for it, and is
//! listed once at most: when a neighbour was touched, which gave both a page table. A huge page is listed as a whole once, and falls into small ones with the
//! first write after that. Only `WRITTEN` is asked for: the kernel is five times faster then.

use crate::raw;

const USER_MODE_ONLY: usize = 1;
const UFFD_API: u64 = 0xaa;
const FEATURE_WP_ASYNC: u64 = 1 << 15;
const IOCTL_API: usize = 0xc018_aa3f;
const IOCTL_REGISTER: usize = 0xc020_aa00;
const IOCTL_WRITEPROTECT: usize = 0xc018_aa06;
const IOCTL_SCAN: usize = 0xc060_6610;
const REGISTER_WP: u64 = 2;
const SCAN_PROTECT: u64 = 1;
const SCAN_CHECK: u64 = 2;
const WRITTEN: u64 = 1 << 1;

/// Descriptors from here on, out of the way of what programs count on.
const DESCRIPTORS: usize = 1001;
/// Ranges that the kernel lists at a time.
const LISTED: usize = 1024;

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}
const _: () = assert!(size_of::<Scan>() == 96, "the kernel knows it by its size");

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Listed {
    start: u64,
    end: u64,
    categories: u64,
}

/// The kernel's help.
pub struct Watch {
    uffd: usize,
    pagemap: usize,
    listed: Box<[Listed; LISTED]>,
}

fn ioctl<T>(fd: usize, request: usize, argument: &mut T) -> isize {
    // SAFETY: each request is called with the structure that it is documented with.
    unsafe { raw::call(libc::SYS_ioctl, [fd, request, (&raw mut *argument) as usize, 0, 0, 0]) }
}
/// Moves a descriptor out of the way.
fn away(fd: isize) -> Option<usize> {
    let fd = usize::try_from(fd).ok()?;
    // SAFETY: descriptors of our own.
    unsafe {
        let moved = raw::call(libc::SYS_fcntl, [fd, libc::F_DUPFD_CLOEXEC as usize, DESCRIPTORS, 0, 0, 0]);
        raw::call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
        usize::try_from(moved).ok()
    }
}

impl Watch {
    /// If the kernel has it.
    pub fn new() -> Option<Self> {
        // SAFETY: new descriptors; the path ends with a zero.
        let (uffd, pagemap) = unsafe {
            let flags = USER_MODE_ONLY | (libc::O_CLOEXEC | libc::O_NONBLOCK) as usize;
            let uffd = away(raw::call(libc::SYS_userfaultfd, [flags, 0, 0, 0, 0, 0]))?;
            let path = c"/proc/self/pagemap".as_ptr() as usize;
            let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
            (uffd, away(raw::call(libc::SYS_openat, [libc::AT_FDCWD as usize, path, flags, 0, 0, 0]))?)
        };
        let mut api = [UFFD_API, FEATURE_WP_ASYNC, 0];
        if ioctl(uffd, IOCTL_API, &mut api) != 0 {
            return None;
        }
        let listed = Box::new([Listed { start: 0, end: 0, categories: 0 }; LISTED]);
        let mut watch = Self { uffd, pagemap, listed };
        // A kernel that has the one need not have the other.
        watch.scan(0, 0, |_, _| {}).then_some(watch)
    }
    /// Begins to watch mapped memory. Whether it can be.
    pub fn add(&self, from: usize, to: usize) -> bool {
        let mut register = [from as u64, (to - from) as u64, REGISTER_WP, 0];
        ioctl(self.uffd, IOCTL_REGISTER, &mut register) == 0
    }
    /// Lists what was written since it was last listed, in order of addresses. Whether the kernel did it.
    pub fn scan(&mut self, from: usize, to: usize, mut f: impl FnMut(usize, usize)) -> bool {
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            flags: SCAN_PROTECT | SCAN_CHECK,
            start: from as u64,
            end: to as u64,
            vec: self.listed.as_mut_ptr() as u64,
            vec_len: LISTED as u64,
            category_mask: WRITTEN,
            return_mask: WRITTEN,
            ..Scan::default()
        };
        loop {
            let Ok(count) = usize::try_from(ioctl(self.pagemap, IOCTL_SCAN, &mut scan)) else { return false };
            self.listed[..count].iter().for_each(|listed| f(listed.start as usize, listed.end as usize));
            if scan.walk_end >= scan.end {
                return true;
            }
            scan.start = scan.walk_end;
        }
    }
    /// Lets pages be written without a fault each, until they are listed next.
    pub fn release(&self, from: usize, to: usize) {
        let mut range = [from as u64, (to - from) as u64, 0];
        // What it cannot do here, faults do.
        let _ = ioctl(self.uffd, IOCTL_WRITEPROTECT, &mut range);
    }
}
