//! Children that a program forks while it has an endpoint, and that then exit as programs do. What a provider has then is its
//! parent's: threads above all, which the child has not.

use std::ffi::c_int;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use polyrail_fi::ffi::*;

use crate::host::{Host, host};
use crate::node::{Pair, TIME, Want, pair};

/// Set in the process that forks, which is one of its own.
const SETTING: &str = "POLYRAIL_RAILS";
/// What a child says by its exit.
const WELL: c_int = 7;

/// Runs a test again in a process that has this rail only, and has it succeed.
fn in_a_process_of_its_own(test: &str) {
    let mut child = Command::new(std::env::current_exe().expect("the test's path"))
        .args(["--exact", test, "--nocapture"])
        .env(SETTING, "tcp")
        .spawn()
        .expect("a process");
    let start = Instant::now();
    let status = loop {
        match child.try_wait().expect("a child") {
            Some(status) => break Some(status),
            None if start.elapsed() > 5 * TIME => break None,
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let _ = (child.kill(), child.wait());
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
}

/// The names of this process's threads.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("procfs");
    // one that ends meanwhile has no name
    tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok()).collect()
}

/// How a child ends that does this; none if it does not.
fn forked(act: impl FnOnce()) -> Option<ExitStatus> {
    // SAFETY: the child runs `act` and ends.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no process");
    if child == 0 {
        act();
        // SAFETY: ends the child as a program's end does: exit handlers, destructors of libraries.
        unsafe { libc::exit(WELL) };
    }
    let (start, mut status) = (Instant::now(), 0);
    // SAFETY: a child of ours, a place for its status.
    while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
        if start.elapsed() > TIME {
            // SAFETY: a child of ours.
            unsafe { (libc::kill(child, libc::SIGKILL), libc::waitpid(child, &raw mut status, 0)) };
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Some(ExitStatus::from_raw(status))
}

/// Messages from `a` to `b`, several at a time, until this thread is there.
fn until_there_is(thread: &str, p: &Pair<'_>) {
    let start = Instant::now();
    for tag in 0.. {
        let mut got = [[0; 8]; 8];
        got.iter_mut().for_each(|got| p.b.trecv(got, FI_ADDR_UNSPEC, tag, 0, 1));
        (0..8).for_each(|_| p.a.tinject(&[&p.b], &[tag as u8; 8], p.to_b, tag));
        (0..8).for_each(|_| _ = p.b.complete(&[&p.a]));
        assert_eq!(got, [[tag as u8; 8]; 8]);
        if threads().iter().any(|name| name.trim() == thread) {
            return;
        }
        assert!(start.elapsed() < TIME, "no thread {thread:?} among {:?}", threads());
    }
}

/// Forks children that exit while this thread is there; the parent goes on each time.
fn children_exit(host: &Host, want: Want, thread: &str) {
    let p = pair(host, want);
    until_there_is(thread, &p);
    for _ in 0..20 {
        let status = forked(|| ());
        assert_eq!(status.and_then(|status| status.code()), Some(WELL), "{status:?}, where {thread:?} runs");
        until_there_is(thread, &p);
    }
}

#[test]
fn children_exit_where_messages_are_held_back() {
    let Some(host) = host() else { return };
    if std::env::var_os(SETTING).is_none() {
        return in_a_process_of_its_own("fork::children_exit_where_messages_are_held_back");
    }
    children_exit(host, Want::default(), "polyrail-push");
}

#[test]
fn children_exit_where_progress_is_automatic() {
    let Some(host) = host() else { return };
    if std::env::var_os(SETTING).is_none() {
        return in_a_process_of_its_own("fork::children_exit_where_progress_is_automatic");
    }
    // SAFETY: the host's hints have all attributes.
    let automatic = |hints: &mut fi_info| unsafe { (*hints.domain_attr).data_progress = FI_PROGRESS_AUTO };
    children_exit(host, Want { hints: automatic, ..Want::default() }, "polyrail");
}
