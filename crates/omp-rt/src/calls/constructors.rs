//! What constructors do on ranks above 0, before regions begin. They run for the sake of the libraries' state in this process; what they do to files and to the output is
//! rank 0's to do, and was done once it says so: doing it again would put lines twice, or cut a file that rank 0's `main` already writes.
//!
//! What is written goes nowhere, since files are opened for it as `/dev/null`, which takes descriptors as on rank 0. Nobody uses these later: regions' calls are rank 0's.

use core::ffi::CStr;

use crate::{raw, serial};

/// Calls that change files, and say that they have.
const CHANGES: [i64; 34] = [
    libc::SYS_unlink,
    libc::SYS_unlinkat,
    libc::SYS_rmdir,
    libc::SYS_mkdir,
    libc::SYS_mkdirat,
    libc::SYS_mknod,
    libc::SYS_mknodat,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_link,
    libc::SYS_linkat,
    libc::SYS_symlink,
    libc::SYS_symlinkat,
    libc::SYS_truncate,
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_utimensat,
    libc::SYS_futimesat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    // rank 0 holds it, and for long
    libc::SYS_flock,
    libc::SYS_sync,
];

/// A system call of a constructor.
///
/// # Safety
/// That of the call.
pub unsafe fn call(number: i64, args: &[usize; 6]) -> isize {
    let [a, b, c, d, e, f] = *args;
    let nowhere = |flags: usize| {
        let flags = libc::O_RDWR as usize | flags & libc::O_CLOEXEC as usize;
        // SAFETY: a path
        unsafe { raw::call(libc::SYS_open, [c"/dev/null".as_ptr() as usize, flags, 0, 0, 0, 0]) }
    };
    let printed = serial::to_write(number, args).filter(|_| matches!(a, 1 | 2));
    match number {
        _ if let Some(bytes) = printed => bytes as isize,
        // SAFETY: what the kernel would read
        libc::SYS_open if unsafe { is_written(a, b) } => nowhere(b),
        // SAFETY: as above
        libc::SYS_openat if unsafe { is_written(b, c) } => nowhere(c),
        libc::SYS_creat => nowhere(0),
        libc::SYS_dup if matches!(a, 1 | 2) => nowhere(0),
        libc::SYS_fcntl if matches!(a, 1 | 2) && b as i32 == libc::F_DUPFD => nowhere(0),
        libc::SYS_fcntl if matches!(a, 1 | 2) && b as i32 == libc::F_DUPFD_CLOEXEC => {
            nowhere(libc::O_CLOEXEC as usize)
        }
        libc::SYS_fcntl if matches!(b as i32, libc::F_SETLK | libc::F_SETLKW) => 0,
        libc::SYS_fcntl if matches!(b as i32, libc::F_OFD_SETLK | libc::F_OFD_SETLKW) => 0,
        // done to memory that has a descriptor, and nothing to `/dev/null`
        // SAFETY: the caller's
        libc::SYS_ftruncate | libc::SYS_fallocate => unsafe { raw::call(number, [a, b, c, d, e, f]) }.max(0),
        // who copies does it by reading and writing instead
        libc::SYS_openat2 | libc::SYS_sendfile | libc::SYS_copy_file_range => -libc::ENOSYS as isize,
        _ if CHANGES.contains(&number) => 0,
        // SAFETY: the caller's
        _ => unsafe { raw::call(number, [a, b, c, d, e, f]) },
    }
}

/// Whether a file is opened for writing, which is none of the system's: devices and shared memory are used otherwise, too.
unsafe fn is_written(path: usize, flags: usize) -> bool {
    let flags = flags as i32;
    if path == 0 || flags & libc::O_PATH != 0 {
        return false;
    }
    // SAFETY: the caller's
    let path = unsafe { CStr::from_ptr(path as *const libc::c_char) }.to_bytes();
    (flags & libc::O_ACCMODE != libc::O_RDONLY || flags & (libc::O_CREAT | libc::O_TRUNC) != 0)
        && !path.starts_with(b"/dev/")
        && !path.starts_with(b"/proc/")
}
