//! Programs and libraries of other crates that a test runs. Cargo builds neither for a test: it is asked to, for the profile that the test itself is of.
//!
//! `scripts/test` has built everything before the first test runs, and says so by `POLYRAIL_TESTS_BUILT`, the directory where that is: a build of some packages alone chooses other features of what they
//! share, and so builds all of that once more.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

/// Where what is built is, such as `target/debug`, with what `cargo build WORDS` makes (`-p polyrail-lab`, `-p polyrail-rails --example latency`) as it is now.
///
/// # Panics
/// It cannot be built.
pub fn built(words: &str) -> &'static Path {
    static DONE: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    let place = PLACE.get_or_init(|| {
        // target/PROFILE/deps/this
        let test = std::env::current_exe().expect("a test has a path");
        test.ancestors().nth(2).expect("a test is in a directory of its profile").to_path_buf()
    });
    let mut done = DONE.lock().unwrap_or_else(|broken| broken.into_inner());
    if is_built(place, std::env::var_os("POLYRAIL_TESTS_BUILT").as_deref()) || done.contains(words) {
        return place;
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet"]).args(words.split_whitespace()).arg("--target-dir");
    cargo.arg(place.parent().expect("a profile's directory is in another"));
    if place.ends_with("release") {
        cargo.arg("--release");
    }
    let status = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo starts");
    assert!(status.success(), "cargo build {words} failed");
    done.insert(words.into());
    place
}

fn is_built(place: &Path, told: Option<&OsStr>) -> bool {
    told.is_some_and(|told| Path::new(told) == place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_elsewhere_does_not_count() {
        let place = Path::new("/target/debug");
        assert!(is_built(place, Some(OsStr::new("/target/debug"))));
        assert!(!is_built(place, Some(OsStr::new("/target/release"))) && !is_built(place, None));
    }
}
