//! Programs in C, compiled as their authors would, against the library as it is built for them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use polyrail_testing::built;
use tempfile::TempDir;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// The library, of this test's profile.
fn library() -> PathBuf {
    built("-p polyrail-p2p-c").join("libpolyrail_p2p.so")
}

/// A directory with the library by the names that the linker and the loader look for.
fn installed() -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["libpolyrail_p2p.so", "libpolyrail_p2p.so.0"] {
        std::os::unix::fs::symlink(library(), directory.path().join(name)).expect("a link");
    }
    directory
}

fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|why| panic!("{command:?}: {why}"));
    let said = [&output.stdout[..], &output.stderr].concat();
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&said));
    output
}

/// Compiles a program, and runs it with each of these arguments; what it printed.
fn run(source: &Path, arguments: &[&str]) -> Vec<String> {
    let at = installed();
    let program = at.path().join("program");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O2", "-I"]).arg(Path::new(CRATE).join("include"));
    cc.args([
        source.as_os_str(),
        OsStr::new("-o"),
        program.as_os_str(),
        OsStr::new("-L"),
        at.path().as_os_str(),
    ]);
    succeeds(cc.args(["-lpolyrail_p2p", "-lm"]));
    let run = |argument: &&str| {
        let output = succeeds(Command::new(&program).arg(argument).env("LD_LIBRARY_PATH", at.path()));
        String::from_utf8(output.stdout).expect("text")
    };
    arguments.iter().map(run).collect()
}

/// The header's functions.
fn declared() -> BTreeSet<String> {
    let header =
        std::fs::read_to_string(Path::new(CRATE).join("include/polyrail/p2p.h")).expect("the header");
    // only declarations of functions begin so in the first column
    let lines =
        header.lines().filter_map(|line| line.strip_prefix("int ").or(line.strip_prefix("const char *")));
    lines.map(|line| line.split('(').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn poisson_in_step_and_out_of_step() {
    let source = Path::new(CRATE).join("../../examples/p2p/poisson.c");
    for said in run(&source, &["sync", "async"]) {
        assert!(said.starts_with("the largest value is 0.07"), "{said}");
    }
}

#[test]
fn what_cannot_be_carried_out_is_refused_in_words() {
    let said = run(&Path::new(CRATE).join("tests/misuse.c"), &[""]);
    assert_eq!(said, [""]);
}

#[test]
fn states_are_kept_and_gone_on_from_when_a_member_is_lost() {
    let said = run(&Path::new(CRATE).join("tests/lost.c"), &[""]);
    assert_eq!(said, ["the others went on, and the sums are right\n"]);
}

#[test]
fn the_header_is_one_of_c_and_of_cpp() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("header.cpp");
    let program = "#include <polyrail/p2p.h>\nP2Pjob job = P2Pjob();\nint main() { return P2Pleave(nullptr, 0) != 0; }\n";
    std::fs::write(&source, program).expect("the source is written");
    let strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "-I"];
    let include = Path::new(CRATE).join("include");
    for standard in ["-std=c++11", "-std=c++20"] {
        succeeds(Command::new("c++").arg(standard).args(strict).arg(&include).arg(&source));
    }
    let header = include.join("polyrail/p2p.h");
    succeeds(Command::new("cc").args(["-std=c11", "-x", "c"]).args(strict).arg(&include).arg(header));
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else() {
    let output = succeeds(Command::new("nm").args(["-D", "--defined-only"]).arg(library()));
    let listed = String::from_utf8(output.stdout).expect("names");
    let exported: BTreeSet<String> =
        listed.lines().filter_map(|line| line.split_whitespace().last()).map(String::from).collect();
    assert!(exported.contains("P2Psend"), "{exported:?}");
    assert_eq!(exported, declared());
    let dynamic = succeeds(Command::new("readelf").arg("-d").arg(library())).stdout;
    let dynamic = String::from_utf8_lossy(&dynamic);
    assert!(dynamic.contains("soname: [libpolyrail_p2p.so.0]"), "{dynamic}");
}
