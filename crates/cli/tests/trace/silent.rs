//! Where nobody can be told of it: standard output and standard error that nobody reads, or that are full.

use std::fs::File;
use std::process::{Command, Stdio};

use polyrail_trace::model::Events;

use super::support::{POLYRAIL, open, tracing};

fn nowhere() -> [Stdio; 2] {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    [writer.into(), File::options().write(true).open("/dev/full").unwrap().into()]
}

#[test]
fn a_recording_is_whole_though_nobody_is_told_of_it() {
    let place = tempfile::tempdir().unwrap();
    for (number, ((out, error), status)) in nowhere().into_iter().zip(nowhere()).zip([141, 1]).enumerate() {
        let run = place.path().join(number.to_string());
        let mut command = tracing(&run, &["--no-kernel"]);
        let ended = command.args(["sh", "-c", "exit 7"]).stdout(out).stderr(error).status().unwrap();
        assert_eq!(ended.code(), Some(7), "the command's own");
        assert_eq!(open(&run).run().status, Some(7));
        let mut report = Command::new(POLYRAIL);
        report.arg("report").arg(&run).stdin(Stdio::null()).stderr(Stdio::null());
        let out = nowhere().into_iter().nth(number).unwrap();
        assert_eq!(report.stdout(out).status().unwrap().code(), Some(status));
        assert!(run.join("report.html").is_file(), "it is written before anybody is told");
    }
}
