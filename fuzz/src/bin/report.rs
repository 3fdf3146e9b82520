//! The lines by which ranks tell `polyrail run` that they use Polyrail: what is shown of them is one line that can be printed.
#![no_main]
use libfuzzer_sys::fuzz_target;
use polyrail_rails::report::{LINE_MAX, Report};

fuzz_target!(|data: &[u8]| {
    let parsed = Report::parse(data, "t0k");
    if let Some(report) = &parsed {
        assert!(data.len() <= LINE_MAX && data.starts_with(b"polyrail t0k "));
        assert!(!report.host.contains(' ') && !report.what.contains(char::is_control));
        if let Some((rank, size)) = report.rank {
            assert!(rank < size);
        }
        let _ = format!("{report:?}");
    }
    // the rest of a line with the token, whatever it is
    let line = [b"polyrail t0k ", data, b"\n"].concat();
    if let Some(report) = Report::parse(&line, "t0k") {
        assert!(line.len() <= LINE_MAX && report.rank.is_none_or(|(rank, size)| rank < size));
        assert_eq!(Report::parse(&line, "another"), None);
    }
});
