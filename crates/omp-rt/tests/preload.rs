//! Programs that know nothing of the library run with it as they do without: no agent, so one rank.
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use polyrail_testing::built;

fn library() -> PathBuf {
    built("-p polyrail-omp-rt").join("libpolyrail_omp_rt.so")
}
fn outputs(program: &str, args: &[&str]) -> [Output; 2] {
    [None, Some(library())].map(|preload| {
        let mut command = Command::new(program);
        command.args(args);
        preload.map(|library| command.env("LD_PRELOAD", library));
        command.output().expect("is installed")
    })
}
fn same(program: &str, args: &[&str]) {
    let [without, with] = outputs(program, args);
    assert!(without.status.success(), "{program}: {}", String::from_utf8_lossy(&without.stderr));
    assert_eq!(String::from_utf8_lossy(&with.stderr), String::from_utf8_lossy(&without.stderr));
    assert_eq!((with.status, with.stdout), (without.status, without.stdout), "{program} {args:?}");
}
fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

#[test]
fn programs_run_as_without() {
    assert!(library().exists());
    same("ls", &["-l", "/etc"]);
    same("sort", &["--parallel=4", "/proc/self/maps", "-k2", "-o", "/dev/null"]);
    if has("python3") {
        same(
            "python3",
            &[
                "-c",
                "import json, re, threading; d = {i: str(i) * 9 for i in range(50000)}; print(hash(json.dumps(d)) != 0, len(d))",
            ],
        );
        same(
            "python3",
            &[
                "-c",
                "import subprocess, mmap; m = mmap.mmap(-1, 1 << 20); m[5:9] = b'text'; print(m[4:10], subprocess.check_output(['echo', 'x']))",
            ],
        );
    }
}

#[test]
fn a_program_with_threads_runs_as_without() {
    if !has("g++") {
        return polyrail_testing::lacking("g++");
    }
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (place.join("threads.cc"), place.join("threads"));
    std::fs::write(&source, include_str!("threads.cc")).expect("a place to write");
    // The compiler, too, runs with it.
    let compiled = Command::new("g++")
        .env("LD_PRELOAD", library())
        .args(["-O1", "-pthread", "-o"])
        .args([&program, &source])
        .output()
        .expect("is installed");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    same(program.to_str().expect("a path of ours"), &[]);
}
