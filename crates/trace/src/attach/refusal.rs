//! Why a process cannot be recorded, and what to do: one sentence each for the user.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::status::Status;

/// Whether a process has ended, though whoever started it may not have taken notice yet.
pub fn has_ended(pid: u32) -> bool {
    Status::of(pid).is_none_or(|about| about.has_ended() && about.threads <= 1)
}

/// Why this process cannot be recorded by any means; `None`: nothing is known against it.
pub fn of_any(pid: u32) -> Option<String> {
    let Some(about) = Status::of(pid) else { return Some(format!("there is no process {pid}")) };
    let name = &about.name;
    if about.kernel {
        return Some(format!("process {pid} ({name}) is a part of the kernel, and makes no system calls"));
    }
    if about.process != pid {
        let process = about.process;
        return Some(format!("{pid} is a thread of process {process}: polyrail trace --pid {process}"));
    }
    if pid == std::process::id() {
        return Some(format!("process {pid} is this command itself"));
    }
    if has_ended(pid) {
        return Some(format!("process {pid} ({name}) has ended already"));
    }
    let (session, run) = recorded(&fs::read(format!("/proc/{pid}/environ")).unwrap_or_default())?;
    is_at_work(&session).then(|| {
        format!(
            "process {pid} ({name}) is recorded already, by a polyrail trace that writes to {}",
            run.display()
        )
    })
}

/// The session and the run of a program that has the recorder in it.
fn recorded(environment: &[u8]) -> Option<(PathBuf, PathBuf)> {
    use std::os::unix::ffi::OsStrExt;
    let value = |name: &str| {
        let entry =
            |entry: &[u8]| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec);
        let value = environment.split(|byte| *byte == 0).find_map(entry)?;
        Some(PathBuf::from(std::ffi::OsStr::from_bytes(&value)))
    };
    Some((value("POLYRAIL_TRACE")?, value("POLYRAIL_TRACE_TO")?))
}

/// Whoever collects holds a lock on the session's page.
fn is_at_work(session: &Path) -> bool {
    let page = File::options().read(true).write(true).open(session.join("session"));
    page.is_ok_and(|page| matches!(page.try_lock_shared(), Err(fs::TryLockError::WouldBlock)))
}

/// Why this process cannot be followed, before it is tried; `None`: nothing is known against it.
pub fn of_followed(pid: u32) -> Option<String> {
    let about = Status::of(pid)?;
    if about.tracer != 0 {
        let by = Status::of(about.tracer).map_or_else(String::new, |tracer| format!(" ({})", tracer.name));
        return Some(format!(
            "process {pid} ({}) is followed by process {}{by} already, a debugger or strace, and the kernel allows one: end that first",
            about.name, about.tracer
        ));
    }
    let mut above = std::os::unix::process::parent_id();
    // as many as there may be
    for _ in 0..1 << 16 {
        if above == pid {
            return Some(format!(
                "this command was started by process {pid} ({}) and would stop whom it waits for: start it from another terminal",
                about.name
            ));
        }
        above = Status::of(above).map_or(0, |about| about.parent);
        if above <= 1 {
            break;
        }
    }
    None
}

/// What may have been in the way, of all that there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Way {
    /// Who asks, and whom the process belongs to.
    own: u32,
    user: u32,
    /// What Yama allows: 0 all of the same user, 1 only what one has started, 2 only root, 3 nobody.
    yama: u32,
}

/// Why the kernel said no (`EPERM`).
pub fn of_kernel(pid: u32) -> String {
    let yama = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let way = Way {
        own: nix::unistd::geteuid().as_raw(),
        user: Status::of(pid).map_or(0, |about| about.user),
        yama: yama.trim().parse().unwrap_or(0),
    };
    format!("process {pid} may not be followed: {}", way.sentence())
}

impl Way {
    fn sentence(&self) -> String {
        let as_root = "run this as root";
        match self {
            Way { own, user, .. } if *own != 0 && own != user => {
                format!("it belongs to user {user}, and this is user {own}: run this as user {user} or as root")
            }
            Way { yama: 3, .. } => {
                "kernel.yama.ptrace_scope is 3, so that nobody may follow anybody until the machine starts anew with another setting"
                    .into()
            }
            Way { own: 1.., yama: 2, .. } => {
                format!("kernel.yama.ptrace_scope is 2, so that only root may: {as_root}")
            }
            Way { own: 1.., yama: 1, .. } => format!(
                "kernel.yama.ptrace_scope is 1, so that only who has started it may: {as_root}, or let root allow it by sysctl \
                 kernel.yama.ptrace_scope=0, or start the program by polyrail trace -- COMMAND"
            ),
            Way { own: 0, .. } => {
                "in a container, allow it by docker run --cap-add SYS_PTRACE, or run this outside of it".into()
            }
            _ => format!(
                "it has more rights than this, or protects itself (PR_SET_DUMPABLE), or this is in a container that does not allow it: {as_root}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_says_what_to_do() {
        let say = |own, user, yama| Way { own, user, yama }.sentence();
        assert!(say(5, 0, 1).contains("belongs to user 0"));
        assert!(say(5, 5, 1).contains("ptrace_scope=0") && say(5, 5, 1).contains("run this as root"));
        assert!(say(5, 5, 2).contains("only root may: run this as root"));
        assert!(say(5, 5, 3).contains("nobody") && say(0, 0, 3).contains("nobody"));
        assert!(say(5, 5, 0).contains("protects itself"));
        assert!(say(0, 7, 0).contains("SYS_PTRACE") && say(0, 7, 2).contains("SYS_PTRACE"));
    }

    #[test]
    fn what_is_refused_before_anything_is_tried() {
        let own = std::process::id();
        assert!(of_any(own).unwrap().contains("this command itself"));
        assert!(of_any(4_194_999).unwrap().contains("no process"));
        assert!(of_any(std::os::unix::process::parent_id()).is_none());
        assert!(of_followed(std::os::unix::process::parent_id()).unwrap().contains("was started by"));
        let thread = std::thread::spawn(|| {
            let tid = nix::unistd::gettid().as_raw().cast_unsigned();
            of_any(tid).unwrap()
        });
        assert!(
            thread
                .join()
                .unwrap()
                .contains(&format!("is a thread of process {own}: polyrail trace --pid {own}"))
        );
    }

    #[test]
    fn a_program_with_the_recorder_is_recorded_while_somebody_collects() {
        let place = tempfile::tempdir().unwrap();
        let environment =
            format!("A=b\0POLYRAIL_TRACE={}\0POLYRAIL_TRACE_TO=/run/x\0", place.path().display());
        let (session, run) = recorded(environment.as_bytes()).unwrap();
        assert_eq!(run, Path::new("/run/x"));
        assert!(!is_at_work(&session));
        let page = File::create(session.join("session")).unwrap();
        assert!(!is_at_work(&session));
        page.try_lock().unwrap();
        assert!(is_at_work(&session));
        assert_eq!(recorded(b"POLYRAIL_TRACE_TO=/x\0"), None);
    }
}
