//! Scripts that tests write and run.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a file that may be executed at once.
///
/// It is written by a process of its own: what this one has open to write, a child of another thread may have open, too, until it has become another program, and until then the kernel executes
/// no such file (`ETXTBSY`, execve(2)).
///
/// # Panics
/// It cannot be written.
pub fn executable(path: &Path, text: &str) {
    let mut install = Command::new("install");
    let mut install = install
        .args(["-m", "755", "/dev/stdin"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("install is of coreutils");
    let mut input = install.stdin.take().expect("it has a pipe");
    input.write_all(text.as_bytes()).expect("it reads");
    drop(input);
    assert!(install.wait().expect("it is this one's").success(), "writing {}", path.display());
}
