//! What commands do where their standard output is closed or full.

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
