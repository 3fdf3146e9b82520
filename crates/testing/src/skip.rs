//! How a test says that it is skipped. Rust's test runner knows no test that finds out, while it runs, that it cannot: one that
//! returns early counts as passed, and what it prints is not shown.
//!
//! A skipped test calls [`lacking`] or [`by_chance`] and returns. Its name and the reason appear in the runner's output whatever
//! that captures, and as a line in the file that `POLYRAIL_TEST_SKIPS` names (`scripts/test` lists it at the end). Where
//! `POLYRAIL_NO_SKIP` is set to anything but nothing or 0, [`lacking`] fails the test instead. `scripts/promises` refuses tests
//! that say it in another way.
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::panic::Location;
use std::path::{Path, PathBuf};

/// The running test needs something, named by `what`, that this machine or this user lacks.
///
/// # Panics
/// Where nothing may be skipped.
#[track_caller]
pub fn lacking(what: impl Display) {
    let rules = Rules::of_environment();
    let line = line(&format_args!("lacks {what}"), Location::caller());
    assert!(!rules.refused, "{line} (POLYRAIL_NO_SKIP is set, so that nothing may be skipped)");
    rules.tell(&line);
}

/// What the running test needs did not come about this time, as on a machine that does much else.
#[track_caller]
pub fn by_chance(why: impl Display) {
    Rules::of_environment().tell(&line(&format_args!("was left: {why}"), Location::caller()));
}

/// The test runner names its threads by their tests.
fn line(why: &dyn Display, at: &Location<'_>) -> String {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a thread of a test");
    format!("{}:{}: {test} {why}", at.file(), at.line())
}

/// What is to happen with tests that are skipped.
struct Rules {
    refused: bool,
    list: Option<PathBuf>,
}

impl Rules {
    fn of_environment() -> Self {
        let set = std::env::var_os;
        Self::read(set("POLYRAIL_NO_SKIP").as_deref(), set("POLYRAIL_TEST_SKIPS").as_deref())
    }

    fn read(no_skip: Option<&OsStr>, list: Option<&OsStr>) -> Self {
        let refused = no_skip.is_some_and(|said| !matches!(said.to_str(), Some("" | "0")));
        Self { refused, list: list.filter(|name| !name.is_empty()).map(PathBuf::from) }
    }

    fn tell(&self, line: &str) {
        // by itself, for what `eprintln` says is captured; and whole, for others write, too
        let _ = io::stderr().write_all(format!("SKIPPED {line}\n").as_bytes());
        if let Some(list) = &self.list {
            append(list, line).unwrap_or_else(|why| panic!("POLYRAIL_TEST_SKIPS={}: {why}", list.display()));
        }
    }
}

/// In one write, since tests of several processes share the file.
fn append(list: &Path, line: &str) -> io::Result<()> {
    let mut file = File::options().append(true).create(true).open(list)?;
    file.write_all(format!("{}\n", line.replace('\n', " ")).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Skipped on purpose: [`skips_are_seen_counted_and_refused`] runs it.
    #[test]
    #[ignore = "skips itself"]
    fn skipped() {
        lacking("no\nsuch thing");
    }

    /// Likewise.
    #[test]
    #[ignore = "skips itself"]
    fn skipped_by_chance() {
        by_chance("busy");
    }

    /// A run of the ignored tests with captured output: whether it passed, and all it said.
    fn run(settings: &[(&str, &str)]) -> (bool, String) {
        let output = Command::new(std::env::current_exe().unwrap())
            .arg("--ignored")
            .env_remove("POLYRAIL_NO_SKIP")
            .env_remove("POLYRAIL_TEST_SKIPS")
            .envs(settings.iter().copied())
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }

    #[test]
    fn skips_are_seen_counted_and_refused() {
        let (passed, text) = run(&[("POLYRAIL_NO_SKIP", "0"), ("POLYRAIL_TEST_SKIPS", "")]);
        assert!(passed && text.contains("skip::tests::skipped lacks no\nsuch thing"), "{text}");
        assert!(text.contains("SKIPPED crates/testing/src/skip.rs:"), "{text}");

        let list = std::env::temp_dir().join(format!("polyrail-skips-{}", std::process::id()));
        let name = list.to_str().unwrap();
        let (passed, text) = run(&[("POLYRAIL_TEST_SKIPS", name)]);
        assert!(passed, "{text}");
        let listed = std::fs::read_to_string(&list).unwrap();
        let mut lines: Vec<&str> =
            listed.lines().map(|line| line.splitn(3, ':').last().unwrap().trim()).collect();
        lines.sort_unstable();
        assert_eq!(
            lines,
            ["skip::tests::skipped lacks no such thing", "skip::tests::skipped_by_chance was left: busy"]
        );
        std::fs::remove_file(&list).unwrap();

        let (passed, text) = run(&[("POLYRAIL_NO_SKIP", "1")]);
        assert!(!passed && text.contains("1 passed; 1 failed"), "{text}");
        assert!(text.contains("nothing may be skipped"), "{text}");
    }

    #[test]
    fn a_list_that_cannot_be_written_is_no_secret() {
        let (passed, text) = run(&[("POLYRAIL_TEST_SKIPS", "/none/list")]);
        assert!(!passed && text.contains("POLYRAIL_TEST_SKIPS=/none/list: No such file"), "{text}");
    }
}
