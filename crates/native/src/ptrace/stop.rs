//! What `waitpid` says, in words.

use super::Tid;

/// What is heard of those that are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A thread stands still.
    Stopped(Tid, Stop),
    /// It has ended: with this status, or 128 and the signal that ended it.
    Ended(Tid, i32),
    /// Nothing; the waiting thread was woken.
    Nothing,
    /// Nobody is followed any more.
    Nobody,
}

/// Why a thread stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It begins or ends a system call.
    Call,
    /// It is to get a signal.
    Signal(i32),
    /// Its process was stopped by a signal.
    Group,
    /// It was interrupted, has just begun, or its process goes on after it was stopped.
    Trap,
    /// It has made a thread or a process, whose number is its [message](super::message).
    New,
    /// It has become another program.
    Exec,
    /// It is about to end.
    Exit,
    /// Something that nobody asked to be told of.
    Other,
}

/// What the status of a thread says.
pub fn heard(tid: Tid, status: i32) -> Heard {
    if libc::WIFEXITED(status) {
        return Heard::Ended(tid, libc::WEXITSTATUS(status));
    }
    if libc::WIFSIGNALED(status) {
        return Heard::Ended(tid, 128 + libc::WTERMSIG(status));
    }
    if !libc::WIFSTOPPED(status) {
        return Heard::Nothing;
    }
    let signal = libc::WSTOPSIG(status);
    Heard::Stopped(
        tid,
        match status >> 16 {
            0 if signal == libc::SIGTRAP | 0x80 => Stop::Call,
            0 => Stop::Signal(signal),
            libc::PTRACE_EVENT_STOP if signal == libc::SIGTRAP => Stop::Trap,
            libc::PTRACE_EVENT_STOP => Stop::Group,
            libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK => Stop::New,
            libc::PTRACE_EVENT_EXEC => Stop::Exec,
            libc::PTRACE_EVENT_EXIT => Stop::Exit,
            _ => Stop::Other,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_is_what_the_manual_says() {
        let stopped = |signal: i32, event: i32| event << 16 | signal << 8 | 0x7f;
        for (status, stop) in [
            (stopped(libc::SIGTRAP | 0x80, 0), Stop::Call),
            (stopped(libc::SIGTRAP, 0), Stop::Signal(libc::SIGTRAP)),
            (stopped(libc::SIGSTOP, 0), Stop::Signal(libc::SIGSTOP)),
            (stopped(64, 0), Stop::Signal(64)),
            (stopped(libc::SIGSTOP, libc::PTRACE_EVENT_STOP), Stop::Group),
            (stopped(libc::SIGTTIN, libc::PTRACE_EVENT_STOP), Stop::Group),
            (stopped(libc::SIGTRAP, libc::PTRACE_EVENT_STOP), Stop::Trap),
            (stopped(libc::SIGTRAP, libc::PTRACE_EVENT_VFORK), Stop::New),
            (stopped(libc::SIGTRAP, libc::PTRACE_EVENT_EXEC), Stop::Exec),
            (stopped(libc::SIGTRAP, libc::PTRACE_EVENT_EXIT), Stop::Exit),
            (stopped(libc::SIGTRAP, libc::PTRACE_EVENT_SECCOMP), Stop::Other),
        ] {
            assert_eq!(heard(5, status), Heard::Stopped(5, stop));
        }
        for (status, code) in [(0, 0), (7 << 8, 7), (libc::SIGKILL, 137), (libc::SIGSEGV | 0x80, 139)] {
            assert_eq!(heard(5, status), Heard::Ended(5, code));
        }
        assert_eq!(heard(5, 0xffff), Heard::Nothing);
    }
}
