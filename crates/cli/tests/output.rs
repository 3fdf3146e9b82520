//! What commands do where their standard output and standard error are closed or full.

use std::fs::File;
use std::process::{Command, Output, Stdio};

const POLYRAIL: &str = env!("CARGO_BIN_EXE_polyrail");

fn to(words: &[&str], out: Stdio) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = Command::new(POLYRAIL)
        .args(words)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(Stdio::piped())
        .spawn()
        .and_then(std::process::Child::wait_with_output)
        .expect("polyrail starts");
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

const COMMANDS: [&[&str]; 4] =
    [&["info"], &["info", "--json"], &["info", "--settings"], &["omp", "--check", "/bin/sh"]];

#[test]
fn a_full_output_is_told() {
    for words in COMMANDS {
        let full = File::options().write(true).open("/dev/full").expect("it is there");
        let (status, text) = to(words, full.into());
        assert_eq!(status, Some(1), "{words:?}: {text}");
        assert!(text.contains("cannot write to standard output") && !text.contains("panicked"), "{text}");
    }
}

#[test]
fn who_reads_no_more_ends_it_without_a_word() {
    for words in COMMANDS {
        let (reader, writer) = std::io::pipe().expect("descriptors");
        drop(reader);
        let (status, text) = to(words, writer.into());
        assert_eq!((status, text.contains("panicked")), (Some(141), false), "{words:?}: {text}");
    }
}

/// A descriptor that nobody reads, and one for which there is no room.
fn nowhere() -> [Stdio; 2] {
    let (reader, writer) = std::io::pipe().expect("descriptors");
    drop(reader);
    let full = File::options().write(true).open("/dev/full").expect("it is there");
    [writer.into(), full.into()]
}

/// The status of a command that cannot say anything.
fn silenced(words: &[&str], out: Stdio, error: Stdio) -> Option<i32> {
    let mut command = Command::new(POLYRAIL);
    command.args(words).stdin(Stdio::null()).stdout(out).stderr(error);
    command.status().expect("polyrail starts").code()
}

#[test]
fn errors_that_cannot_be_told_are_errors() {
    let commands: [(&[&str], i32); 3] = [
        (&["run", "/nonexistent/program"], 125),
        (&["trace", "-o", "/proc/nowhere", "--", "true"], 125),
        (&["report", "/nonexistent/run"], 1),
    ];
    for (words, status) in commands {
        for (out, error) in nowhere().into_iter().zip(nowhere()) {
            assert_eq!(silenced(words, out, error), Some(status), "{words:?}");
        }
    }
}
