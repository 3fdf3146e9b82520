//! Serial code on every rank (`--serial replicated`): effects happen once, what differs between ranks is made equal or told.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::{directory, installed, mpiexec, over_all};

/// Builds a program of this directory.
fn program(name: &str) -> PathBuf {
    let out = directory().join(name).with_extension("serial");
    std::fs::create_dir_all(directory()).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serial").join(name);
    let compiler = if name.ends_with(".c") { "gcc" } else { "gfortran" };
    let built = Command::new(compiler).args(["-O1", "-fopenmp", "-w", "-o"]).args([&out, &source]).status();
    assert!(built.expect(compiler).success());
    out
}

/// Runs it over so many ranks; `words` are the program's, `input` is what it reads.
#[track_caller]
fn run(ranks: usize, name: &str, options: &[&str], words: &[&str], input: &str) -> Option<Output> {
    if !mpiexec(ranks).exists() {
        polyrail_testing::lacking("an MPI in .venv (make setup)");
        return None;
    }
    let mut command = over_all(ranks, &program(name), ranks, options);
    let mut child = command
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    Some(child.wait_with_output().unwrap())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn effects_happen_once_and_input_is_everybodys() {
    let numbers: String = (1..=60).map(|number| format!("{number} ")).collect();
    // by MPICH: Open MPI, which runs three ranks, does not tell a program that its input has ended
    for ranks in [2, 4] {
        let file = directory().join(format!("once-{ranks}"));
        let Some(output) = run(ranks, "input.c", &[], &[file.to_str().unwrap()], &numbers) else { return };
        let errors = text(&output.stderr);
        assert_eq!(text(&output.stdout), "60 numbers, sum 1830, bad 0, no terminal\n", "{errors}");
        assert_eq!(output.status.code(), Some(7), "{errors}");
        assert_eq!(errors.matches("said once").count(), 1, "{errors}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "written once\n");
    }
}

/// Each process's C library reads ahead; what one thread reads, another's must not miss or read again.
#[test]
fn threads_read_standard_input_by_turns() {
    let input: String = (1..=3000).map(|number| format!("{number}\n")).collect();
    let sum = |from: u64, to: u64| (from..=to).sum::<u64>();
    let (lines, numbers, letters) = (sum(2, 300), sum(301, 600), sum(601, 899));
    for ranks in [2, 4] {
        let Some(output) = run(ranks, "turns.c", &["--serial", "master"], &[], &input) else { return };
        let expected =
            format!("first 1\n{lines} {numbers} {letters}\nthen 900\n{}, over 1\n", sum(901, 3000));
        assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
        assert!(output.status.success());
    }
}

#[test]
fn what_differs_is_rank_0s() {
    for ranks in [2, 3] {
        let Some(output) = run(ranks, "differs.c", &[], &[], "") else { return };
        assert_eq!(text(&output.stdout), "alike\n", "{}", text(&output.stderr));
    }
}

#[test]
fn regions_of_few_threads_leave_nothing_in_buffers() {
    let file = directory().join("few");
    let words = [file.to_str().unwrap()];
    let Some(output) = run(4, "few.c", &[], &words, "") else { return };
    let errors = text(&output.stderr);
    let said = "serial\nfew\nall, 1\nfew again\nserial again\nthe last\n";
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), (said, Some(0)), "{errors}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "serial\nfew\nfew again\n");
}

/// Whether rank 0 ends before others find that they are elsewhere is chance.
#[test]
fn who_goes_another_way_to_no_region_is_let_go() {
    for ranks in [2, 4] {
        let Some(output) = run(ranks, "last.c", &[], &[], "") else { return };
        let errors = text(&output.stderr);
        assert_eq!(
            (text(&output.stdout), output.status.code()),
            (format!("{ranks} -60\n"), Some(3)),
            "{errors}"
        );
    }
}

#[test]
fn who_goes_another_way_is_told() {
    for (words, way) in [(&[][..], "differs from rank 0's"), (&["regions"], "another parallel region")] {
        let Some(output) = run(2, "apart.c", &[], words, "") else { return };
        let errors = text(&output.stderr);
        assert!(errors.contains(way) && errors.contains("--serial master"), "{errors}");
        assert_eq!(output.status.code(), Some(1), "{errors}");
        // where both ways are rank 0's, nothing is wrong
        let alone =
            over_all(2, &program("apart.c"), 2, &["--serial", "master"]).args(words).output().unwrap();
        assert!(alone.status.success(), "{}", text(&alone.stderr));
    }
}

#[test]
fn what_serial_code_wrote_does_not_travel() {
    let sent = |mode: &str| {
        let file = directory().join(format!("sent-{mode}"));
        let options = ["--serial", mode, "--json", file.to_str().unwrap()];
        let output = run(2, "arrays.c", &options, &[], "")?;
        assert_eq!(text(&output.stdout), "3.35544e+07\n", "{}", text(&output.stderr));
        let json = std::fs::read_to_string(&file).unwrap();
        let bytes = json.lines().filter_map(|line| line.trim().strip_prefix("\"bytes_out\": "));
        Some(bytes.map(|number| number.trim_end_matches(',').parse::<usize>().unwrap()).sum::<usize>())
    };
    let (Some(master), Some(replicated)) = (sent("master"), sent("replicated")) else { return };
    assert!(master > 8 << 20 && replicated < 1 << 20, "{master} {replicated}");
}

/// As with one process: what a seed is for.
#[test]
fn seeded_threads_draw_the_same_in_each_run() {
    if !installed("gfortran") {
        return polyrail_testing::lacking("gfortran");
    }
    for mode in ["master", "replicated"] {
        let drawn = || {
            let output = run(4, "seeded.f90", &["--serial", mode], &[], "")?;
            assert!(output.status.success(), "{}", text(&output.stderr));
            Some(text(&output.stdout))
        };
        let (Some(first), Some(second)) = (drawn(), drawn()) else { return };
        assert_eq!((first.lines().count(), &first), (4, &second));
    }
}
