//! What commands print to standard output and standard error, which may be closed or full.

use std::io::{self, ErrorKind, Write};

/// The status of a program that was ended by SIGPIPE, as shells tell it: who read has read enough.
const ENDED_BY_PIPE: i32 = 128 + 13;

/// Prints a text. Where nobody reads any more the process ends without a word; where it cannot be written, with the reason.
pub fn print(text: &str) {
    let mut out = io::stdout().lock();
    let Err(why) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) else { return };
    if why.kind() == ErrorKind::BrokenPipe {
        std::process::exit(ENDED_BY_PIPE);
    }
    // standard error may be just as full: then there is nobody to tell
    let _ = writeln!(io::stderr(), "polyrail: cannot write to standard output: {why}");
    std::process::exit(1);
}

/// The same, as a line.
pub fn print_line(text: &str) {
    print(&format!("{text}\n"));
}

/// A line to standard error. Where that cannot be written there is nobody to tell, and what was begun goes on.
macro_rules! tell {
    ($($text:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}
pub(crate) use tell;
