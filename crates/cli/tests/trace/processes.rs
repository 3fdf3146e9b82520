//! Processes and threads, in all the ways in which they begin and end.

use polyrail_trace::model::{Call, Events};

use super::support::{Traced, assert_told, build, program, sends_and_receives, trace};

fn run(words: &[&str]) -> Traced {
    let program = program("processes");
    let mut command = vec![program.to_str().unwrap()];
    command.extend(words);
    let traced = trace(&command);
    assert_eq!(traced.status, Some(0), "{}", traced.stderr);
    traced
}

#[test]
fn forked_children_are_processes_of_their_own() {
    let traced = run(&["fork", "10"]);
    traced.check(11);
    let run = traced.recorded.run();
    assert_eq!(run.processes.len(), 11);
    assert!(run.processes[1..].iter().all(|process| process.parent == Some(0) && process.status == Some(0)));
    traced.check_no_warnings();
}

#[test]
fn programs_are_followed_however_they_are_started() {
    // fork and execve, 2 x vfork, 2 x posix_spawn, 3 x exec with a list, fexecve, execveat, 2 x 2 by a shell
    run(&["again"]).check(1 + 14);
}

#[test]
fn a_process_that_becomes_another_program_stays_one() {
    let traced = run(&["becomes"]);
    assert_eq!(traced.recorded.run().processes.len(), 1);
    let pid = traced.recorded.run().processes[0].pid;
    assert_eq!(traced.counts(pid)["send"], (3 + 4, 3 * 10 + 4 * 50));
    assert!(traced.recorded.run().processes[0].command.ends_with(&["talk".into(), "4".into()]));
}

#[test]
fn a_daemon_is_followed() {
    let traced = run(&["daemon"]);
    traced.check(2);
    assert_eq!(traced.recorded.run().processes.len(), 3);
}

#[test]
fn threads_have_records_of_their_own() {
    let traced = run(&["threads", "40"]);
    traced.check(1);
    assert_eq!(traced.recorded.run().threads.len(), 41);
    run(&["threadsfork"]).check(41);
}

#[test]
fn a_thousand_threads() {
    run(&["threads", "1000"]).check(1);
}

#[test]
fn small_stacks_suffice() {
    run(&["small"]).check(1);
    run(&["smallstack"]).check(1);
    // where frames are larger and registers many
    let program = build("processes", &["-O0", "-fno-omit-frame-pointer"]).unwrap();
    trace(&[program.to_str().unwrap(), "small"]).check(1);
}

#[test]
fn signal_handlers_lose_nothing_untold() {
    let traced = run(&["signals", "200000"]);
    let (pid, truth) = traced.truth().pop_first().unwrap();
    let recorded = traced.counts(pid);
    let nested = traced.nested();
    match traced.lost(|_| true) {
        0 => assert_eq!(
            sends_and_receives(&recorded) + nested,
            sends_and_receives(&truth),
            "{}",
            traced.stderr
        ),
        lost => assert_told(&truth, &recorded, lost),
    }
}

#[test]
fn a_fork_in_a_signal_handler_hurts_neither() {
    run(&["forkhandler"]);
}

#[test]
fn threads_may_be_cancelled_while_they_receive() {
    let traced = run(&["cancelled"]);
    let sent = traced.calls().into_iter().filter(|call| call.call == Call::Send).count();
    assert_eq!(sent, 5);
}

#[test]
fn calls_of_late_destructors_are_recorded() {
    run(&["late"]).check(1);
    run(&["keys"]).check(1);
}

#[test]
fn a_program_that_closes_everything_goes_on() {
    for way in ["0", "1", "2"] {
        run(&["closes", way]).check(1);
    }
}

#[test]
fn a_hundred_thousand_sockets() {
    let traced = run(&["sockets", "100000"]);
    traced.check(1);
    traced.check_no_warnings();
}

#[test]
fn a_thousand_processes_at_once() {
    let traced = run(&["many", "1000"]);
    let run = traced.recorded.run();
    assert_eq!(run.processes.len(), 1001, "{}", traced.warnings());
    assert_eq!(traced.calls().iter().filter(|call| call.call == Call::Send).count(), 4000);
    traced.check_no_warnings();
}

#[test]
fn many_short_processes() {
    let traced = run(&["short", "2000"]);
    assert_eq!(traced.recorded.run().processes.len(), 2001, "{}", traced.warnings());
    traced.check_no_warnings();
}
