//! A kernel that refuses certain calls, as it does in containers: a seccomp filter on the calling thread and what it starts.

use std::io;

const fn statement(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// From now on these calls, at most eight, fail with this error. Nothing takes it back.
pub fn refuse(calls: &[libc::c_long], errno: i32) -> io::Result<()> {
    let allow = statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW);
    let mut filter = [allow; 11];
    // the call's number is the first word of what the filter sees
    filter[0] = statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0);
    let n = calls.len();
    for (i, call) in calls.iter().enumerate() {
        filter[1 + i] =
            statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, (n - i) as u8, 0, *call as u32);
    }
    filter[1 + n] = allow;
    filter[2 + n] = statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno as u32);
    let program = libc::sock_fprog { len: 3 + n as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program is read during the call only.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// No process reaches another's memory.
pub fn refuse_attach() -> io::Result<()> {
    refuse(&[libc::SYS_process_vm_readv, libc::SYS_process_vm_writev], libc::EPERM)
}

/// There is no shared memory without a name.
pub fn refuse_memfd() -> io::Result<()> {
    refuse(&[libc::SYS_memfd_create], libc::ENOSYS)
}
