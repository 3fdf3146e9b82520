//! What this machine lets processes share, and whether one may reach another one's memory; if not, what forbids it.

use super::cma::{self, CmaError};
use super::doorbell::Doorbell;
use super::segment::Segment;
use crate::discover::{Access, Device, Obstacle};
use crate::rail::connect::Discovered;
use std::fs;

/// Tries what the rail needs, and gives it back. Starts a process for an instant.
pub(super) fn discover() -> Discovered {
    let made = Segment::create().map(drop).map_err(|error| error.to_string());
    let made = made.and_then(|()| Doorbell::new().map(drop).map_err(|error| error.to_string()));
    let remedy = "allow memfd_create and eventfd, or do without: POLYRAIL_RAILS=tcp";
    let obstacle = made.err().map(|why| Obstacle::new(why, remedy));
    let memory = Device { name: "memory".into(), interface: None, stays: true, obstacle };
    Discovered { devices: vec![memory], direct: Some(access()) }
}

const SETTING: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// Has a child read this process's memory. A child, because the kernel's rules are about pairs of processes: between parent and
/// child in this direction they are the same as between any two ranks of a job.
fn access() -> Access {
    let nonce = Box::new(0x706f_6c79_7261_696c_u64);
    let (at, me) = (&raw const *nonce as u64, std::process::id() as i32);
    // SAFETY: the child makes system calls only, which is what a child of a process with threads may do, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let status = match cma::probe(me, at, *nonce) {
            Ok(()) => 0,
            Err(CmaError::Refused) => 1,
            Err(CmaError::Gone | CmaError::Fault | CmaError::Stranger) => 2,
        };
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(status) };
    }
    if child < 0 {
        return Access::Untried(format!("no process could be started: {}", std::io::Error::last_os_error()));
    }
    let mut status = 0;
    // SAFETY: waits for a child of ours, into an integer of ours.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 {
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Access::Untried(format!("the process that tried was lost: {error}"));
        }
    }
    match (libc::WIFEXITED(status), libc::WEXITSTATUS(status)) {
        (true, 0) => Access::Allowed,
        (true, 1) => Access::Refused(explain(fs::read_to_string(SETTING).ok().as_deref())),
        _ => Access::Untried("the process that tried did not find this one's memory".into()),
    }
}

/// What forbids it, given the value of Yama's setting (none: the kernel has no Yama).
fn explain(scope: Option<&str>) -> Obstacle {
    let everyone = "sysctl -w kernel.yama.ptrace_scope=0";
    match scope.map(str::trim) {
        Some("1") => {
            Obstacle::new("Yama lets a process reach its descendants only (ptrace_scope is 1)", everyone)
        }
        Some("2") => {
            Obstacle::new("Yama lets the administrator's processes only (ptrace_scope is 2)", everyone)
        }
        Some("3") => Obstacle::new(
            "Yama forbids it until the next boot (ptrace_scope is 3)",
            "boot with kernel.yama.ptrace_scope=0",
        ),
        _ => Obstacle::new(
            "a seccomp filter forbids it, as those of containers do",
            "allow process_vm_readv: --cap-add SYS_PTRACE or a seccomp profile of your own",
        ),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_was_tried_is_told() {
        // whatever this machine allows, the same call of our own tells whether calls are filtered
        let one = 7u64;
        let own = cma::probe(std::process::id() as i32, &raw const one as u64, 7);
        match access() {
            Access::Allowed => assert_eq!(own, Ok(())),
            Access::Refused(why) => assert!(!why.why.is_empty() && !why.remedy.is_empty()),
            Access::Untried(why) => panic!("{why}"),
        }
    }

    #[test]
    fn each_setting_has_its_reason() {
        for (scope, word) in
            [(Some("1\n"), "descendants"), (Some("2\n"), "administrator"), (Some("3"), "boot")]
        {
            assert!(explain(scope).why.contains(word), "{scope:?}");
        }
        for filtered in [None, Some("0\n")] {
            assert!(explain(filtered).remedy.contains("SYS_PTRACE"));
        }
    }
}
