//! Tests that need a process of their own: because they count its descriptors, change its limits, filter its system calls, or
//! put it into other namespaces.

use super::BOUND;
use std::ffi::CStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

const VARIABLE: &str = "POLYRAIL_TEST_ALONE";

/// Runs `body`, which is the whole of a test, in a process that runs nothing else. A hang counts as failure.
pub fn alone<F: FnOnce()>(body: F) {
    alone_after::<F>(|| Ok(()), body);
}

/// The same, in a network namespace of its own, which has nothing but a loopback interface that is down.
#[track_caller]
pub fn alone_in_net<F: FnOnce()>(body: F) {
    if let Some(enter) = entering(libc::CLONE_NEWNET, "a network namespace") {
        alone_after::<F>(enter, body);
    }
}

/// The same, in a mount namespace of its own, where [`mount`] does what nobody else sees.
#[track_caller]
pub fn alone_in_mounts<F: FnOnce()>(body: F) {
    if let Some(enter) = entering(libc::CLONE_NEWNS, "a mount namespace") {
        alone_after::<F>(enter, || {
            run("mount --make-rprivate /");
            body();
        });
    }
}

/// How a process gets a namespace of its own: root as it is, others as root of a user namespace, which many kernels let everybody
/// make. None, after saying so, where this one does not.
#[track_caller]
fn entering(what: libc::c_int, name: &str) -> Option<impl Fn() -> io::Result<()> + Send + Sync + 'static> {
    // SAFETY: plain calls without arguments.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let maps = [
        (c"/proc/self/setgroups", "deny".to_owned()),
        (c"/proc/self/uid_map", format!("0 {user} 1")),
        (c"/proc/self/gid_map", format!("0 {group} 1")),
    ];
    let enter = move || {
        if user == 0 {
            return unshare(what);
        }
        unshare(what | libc::CLONE_NEWUSER)?;
        maps.iter().try_for_each(|(path, text)| write_once(path, text))
    };
    let mut probe = Command::new("true");
    let first = enter.clone();
    // SAFETY: only system calls that are safe between fork and exec.
    unsafe { probe.pre_exec(first) };
    match probe.status() {
        Ok(_) => Some(enter),
        Err(error) => {
            polyrail_testing::lacking(format_args!("root, or user namespaces, for {name}: {error}"));
            None
        }
    }
}

/// Writes a file by system calls alone.
fn write_once(path: &CStr, text: &str) -> io::Result<()> {
    // SAFETY: a path that ends in zero, and bytes of the length given.
    let written = unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        libc::write(fd, text.as_ptr().cast(), text.len())
    };
    if written == text.len() as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Runs a command that must succeed.
pub fn run(line: &str) {
    let mut words = line.split_whitespace();
    let status = Command::new(words.next().expect("a command")).args(words).status();
    assert!(status.as_ref().is_ok_and(|status| status.success()), "{line}: {status:?}");
}

pub fn unshare(what: libc::c_int) -> io::Result<()> {
    // SAFETY: a plain call.
    match unsafe { libc::unshare(what) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A child dies with who started it.
pub fn die_with_parent() -> io::Result<()> {
    // SAFETY: a plain call.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    Ok(())
}

/// `Named` is the type of a closure that is written in the test: it is named after it.
fn alone_after<Named>(first: impl Fn() -> io::Result<()> + Send + Sync + 'static, body: impl FnOnce()) {
    let path = std::any::type_name::<Named>();
    let name = path.split_once("::").map_or(path, |(_, rest)| rest).trim_end_matches("::{{closure}}");
    if std::env::var(VARIABLE).is_ok_and(|asked| asked == name) {
        return body();
    }
    let mut command = Command::new("/proc/self/exe");
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(VARIABLE, name);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY: only system calls that are safe between fork and exec.
    unsafe { command.pre_exec(move || die_with_parent().and_then(|()| first())) };
    let child = command.spawn().expect("a test can start itself");
    let pid = child.id() as libc::pid_t;
    let (done, over) = mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        let hung = over.recv_timeout(4 * BOUND) == Err(mpsc::RecvTimeoutError::Timeout);
        if hung {
            // SAFETY: the child is not waited for yet, so the number is still its own.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        hung
    });
    let output = child.wait_with_output().expect("the child can be waited for");
    drop(done);
    let hung = watchdog.join().expect("the watchdog does not panic");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    print!("{out}");
    assert!(!hung, "hung\n{out}\n{err}");
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    assert!(out.contains("1 passed"), "no test is called {name}\n{out}");
}

/// Gives other processes a moment.
pub fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}
