//! The table of system calls: what their parameters point to, what they are called, which are about a process alone, which differ between ranks; and those of the program's that are made
//! for it.

use std::sync::OnceLock;

use crate::raw;

/// What a parameter of a system call points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    Value,
    /// A string that ends with zero.
    Text,
    /// The kernel reads as many bytes as another parameter says.
    In(usize),
    /// The kernel writes as many as another says.
    Out(usize),
    /// The kernel writes this many bytes.
    Fixed(usize),
}

use self::Parameter::{Fixed, In, Out, Text, Value};

/// Bytes of `struct stat`.
pub const STAT: usize = size_of::<libc::stat>();

/// The calls that rank 0 carries out, with their parameters (man pages, section 2).
pub fn parameters(number: i64, args: &[usize; 6]) -> Option<&'static [Parameter]> {
    Some(match number {
        libc::SYS_read | libc::SYS_getdents64 => &[Value, Out(2), Value],
        libc::SYS_write => &[Value, In(2), Value],
        libc::SYS_pread64 => &[Value, Out(2), Value, Value],
        libc::SYS_pwrite64 => &[Value, In(2), Value, Value],
        libc::SYS_open
        | libc::SYS_creat
        | libc::SYS_access
        | libc::SYS_mkdir
        | libc::SYS_chmod
        | libc::SYS_truncate => &[Text, Value, Value],
        libc::SYS_unlink | libc::SYS_rmdir | libc::SYS_chdir => &[Text],
        libc::SYS_rename | libc::SYS_link | libc::SYS_symlink => &[Text, Text],
        libc::SYS_openat
        | libc::SYS_faccessat
        | libc::SYS_faccessat2
        | libc::SYS_mkdirat
        | libc::SYS_unlinkat
        | libc::SYS_fchmodat => &[Value, Text, Value, Value],
        libc::SYS_renameat | libc::SYS_renameat2 => &[Value, Text, Value, Text, Value],
        libc::SYS_close
        | libc::SYS_fsync
        | libc::SYS_fdatasync
        | libc::SYS_dup
        | libc::SYS_fchdir
        | libc::SYS_umask => &[Value],
        libc::SYS_lseek
        | libc::SYS_dup2
        | libc::SYS_dup3
        | libc::SYS_ftruncate
        | libc::SYS_fchmod
        | libc::SYS_fadvise64 => &[Value, Value, Value, Value],
        libc::SYS_fallocate => &[Value, Value, Value, Value],
        libc::SYS_stat | libc::SYS_lstat => &[Text, Fixed(STAT)],
        libc::SYS_fstat => &[Value, Fixed(STAT)],
        libc::SYS_newfstatat => &[Value, Text, Fixed(STAT), Value],
        libc::SYS_statx => &[Value, Text, Value, Value, Fixed(256)],
        libc::SYS_getcwd => &[Out(1), Value],
        libc::SYS_readlink => &[Text, Out(2), Value],
        libc::SYS_readlinkat => &[Value, Text, Out(3), Value],
        libc::SYS_pipe => &[Fixed(8)],
        libc::SYS_pipe2 => &[Fixed(8), Value],
        // the C library sorts by how much memory there is
        libc::SYS_sysinfo => &[Fixed(size_of::<libc::sysinfo>())],
        libc::SYS_fcntl
            if matches!(
                args[1] as i32,
                libc::F_DUPFD
                    | libc::F_DUPFD_CLOEXEC
                    | libc::F_GETFD
                    | libc::F_SETFD
                    | libc::F_GETFL
                    | libc::F_SETFL
            ) =>
        {
            &[Value, Value, Value]
        }
        libc::SYS_ioctl if args[1] as u64 == libc::TCGETS => &[Value, Value, Fixed(60)],
        libc::SYS_ioctl if args[1] as u64 == libc::TIOCGWINSZ => &[Value, Value, Fixed(8)],
        libc::SYS_ioctl if args[1] as u64 == libc::FIONREAD => &[Value, Value, Fixed(4)],
        _ => return None,
    })
}

/// As [`parameters`], of calls that serial code on every rank makes: also of those that tell of the process or the system, where rank 0's answers are everybody's.
pub fn serial_parameters(number: i64, args: &[usize; 6]) -> Option<&'static [Parameter]> {
    if let Some(those) = parameters(number, args) {
        return Some(those);
    }
    Some(match number {
        libc::SYS_getpid
        | libc::SYS_gettid
        | libc::SYS_getppid
        | libc::SYS_getpgrp
        | libc::SYS_sync
        | libc::SYS_mmap
        | libc::SYS_exit_group => &[],
        libc::SYS_kill
        | libc::SYS_tkill
        | libc::SYS_tgkill
        | libc::SYS_writev
        | libc::SYS_pwritev
        | libc::SYS_readv
        | libc::SYS_preadv
        | libc::SYS_flock
        | libc::SYS_getpgid
        | libc::SYS_getsid
        | libc::SYS_getpriority
        | libc::SYS_fchown => &[Value],
        libc::SYS_utimensat => &[Value, Text],
        libc::SYS_getrandom => &[Out(1)],
        libc::SYS_clock_gettime | libc::SYS_clock_getres => &[Value, Fixed(16)],
        libc::SYS_gettimeofday => &[Fixed(16), Fixed(8)],
        libc::SYS_time => &[Fixed(8)],
        libc::SYS_times => &[Fixed(32)],
        libc::SYS_getrusage => &[Value, Fixed(144)],
        libc::SYS_sched_getaffinity => &[Value, Value, Out(1)],
        libc::SYS_uname => &[Fixed(390)],
        libc::SYS_getcpu => &[Fixed(4), Fixed(4)],
        libc::SYS_statfs => &[Text, Fixed(120)],
        libc::SYS_fstatfs => &[Value, Fixed(120)],
        _ => return None,
    })
}

/// What a call is called, of those that are likely to be told of.
pub fn name(number: i64) -> Option<&'static str> {
    macro_rules! names {
        ($($name:ident)*) => {
            match number {
                $(libc::$name => Some(&stringify!($name)[4..]),)*
                _ => None,
            }
        };
    }
    names! {
        SYS_read SYS_write SYS_open SYS_close SYS_stat SYS_fstat SYS_lstat SYS_poll SYS_lseek SYS_mmap SYS_ioctl SYS_pread64 SYS_pwrite64 SYS_readv SYS_writev
        SYS_access SYS_pipe SYS_select SYS_dup SYS_dup2 SYS_getpid SYS_sendfile SYS_fcntl SYS_flock SYS_fsync SYS_truncate SYS_ftruncate SYS_getdents64 SYS_getcwd
        SYS_chdir SYS_rename SYS_mkdir SYS_rmdir SYS_creat SYS_unlink SYS_readlink SYS_chmod SYS_umask SYS_gettimeofday SYS_getrusage SYS_times SYS_gettid SYS_time
        SYS_clock_gettime SYS_getrandom SYS_openat SYS_newfstatat SYS_unlinkat SYS_renameat SYS_faccessat SYS_faccessat2 SYS_statx SYS_kill SYS_tgkill
        SYS_exit_group SYS_sched_getaffinity SYS_getcpu SYS_uname SYS_sysinfo SYS_getppid SYS_statfs SYS_fstatfs SYS_utimensat SYS_execve SYS_socket SYS_dup3 SYS_wait4 SYS_waitid SYS_vfork SYS_fork SYS_pidfd_open SYS_connect SYS_accept SYS_accept4 SYS_bind SYS_listen
        SYS_sendto SYS_recvfrom SYS_sendmsg SYS_recvmsg SYS_shutdown SYS_socketpair SYS_setsockopt SYS_getsockopt SYS_getsockname SYS_getpeername SYS_ppoll SYS_pselect6
        SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_wait SYS_eventfd2 SYS_shmget SYS_shmat SYS_shmctl SYS_memfd_create SYS_mq_open SYS_semget SYS_semop SYS_setpgid
        SYS_setsid SYS_chown SYS_fchown SYS_symlink SYS_link SYS_inotify_init1 SYS_timer_create SYS_setitimer SYS_alarm SYS_pause SYS_copy_file_range SYS_splice
    }
}

/// Calls that are about this process alone.
pub const OWN: [i64; 53] = [
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_exit,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getpgrp,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_getcpu,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_time,
    libc::SYS_times,
    libc::SYS_getrusage,
    libc::SYS_getrandom,
    libc::SYS_arch_prctl,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_getrlimit,
    libc::SYS_membarrier,
    libc::SYS_kill,
    libc::SYS_tgkill,
    libc::SYS_restart_syscall,
    libc::SYS_uname,
];

/// Calls whose results differ between ranks, which serial code that runs on all of them is not to see.
pub const DIFFER: [i64; 16] = [
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpgrp,
    libc::SYS_sched_getaffinity,
    libc::SYS_getcpu,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_time,
    libc::SYS_times,
    libc::SYS_getrusage,
    libc::SYS_getrandom,
    libc::SYS_kill,
    libc::SYS_tgkill,
    libc::SYS_uname,
];

/// Bytes that the kernel wrote there.
pub fn written(parameter: Parameter, args: &[usize; 6], result: isize) -> Option<usize> {
    match parameter {
        Out(length) => Some((result.max(0) as usize).min(args[length])),
        Fixed(bytes) => Some(if result < 0 { 0 } else { bytes }),
        _ => None,
    }
}

/// Makes a call for the program.
pub type Made = unsafe fn(i64, &[usize; 6]) -> isize;

/// Who makes the program's calls, once that is not the calling thread at once.
static MADE: OnceLock<Made> = OnceLock::new();

/// The program's calls are made by `made` from now on; said once.
pub fn made_by(made: Made) {
    let _ = MADE.set(made);
}

/// A system call of the program's, by whom it is to be made.
///
/// # Safety
/// That of the call.
pub unsafe fn call(number: i64, args: &[usize; 6]) -> isize {
    // SAFETY: the caller's
    unsafe {
        match MADE.get() {
            Some(made) => made(number, args),
            None => raw::call(number, *args),
        }
    }
}
