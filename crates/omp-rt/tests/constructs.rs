//! Small programs, one or several for each construct of OpenMP, built by each compiler that is installed, must say with our runtime what they say
//! with the compiler's own.
//!
//! A program's first comments may say:
//! - `env: NAME=value` a variable to run with;
//! - `flags: -Os ...` what it is built with, besides and behind `-O2`;
//! - `only: gcc ...` the compilers that know the constructs;
//! - `ranks: refused`, perhaps `with gcc`: over several ranks it must end with a reason;
//! - `serial: refused`: the same, where all ranks run serial code; `serial: right`: only there it is not refused;
//! - `expect: refused: WORDS`: where it is refused, a line of standard error has `polyrail omp: ` and these words behind it; over several ranks, if no line says
//!   where. Every program that is refused says so;
//! - `elsewhere: one thread`: what it says does not depend on how many there are, and with the compiler's own runtime it has one;
//! - `each: one`, perhaps `with gcc`: over several ranks, each has one thread only.
//!
//! Each is run in a fifth of the ways, another one each time; `CONSTRUCTS=name,name` runs these programs only, and in all ways;
//! `CONSTRUCTS=all` all programs.

mod kept;
mod killed;
mod large;
mod serial;
mod ways;

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use ways::{
    COMPILERS, Compiler, by_messages, directory, header, installed, mpiexec, over, over_all, plain, prepare,
    run, runtime,
};

/// A way of running a program with a team of a given size. The compiler's own runtime is what others are compared with.
struct Way {
    name: &'static str,
    /// Ranks that a team is spread over.
    ranks: usize,
    command: fn(program: &Path, compiler: &Compiler, threads: usize) -> Command,
}

const WAYS: &[Way] = &[
    Way { name: "one rank", ranks: 1, command: preloaded },
    Way { name: "two ranks", ranks: 2, command: |program, _, threads| over(2, program, threads) },
    Way {
        name: "two ranks by messages",
        ranks: 2,
        command: |program, _, threads| by_messages(program, threads),
    },
    Way { name: "three ranks", ranks: 3, command: |program, _, threads| over(3, program, threads) },
    Way { name: "four ranks", ranks: 4, command: |program, _, threads| over(4, program, threads) },
    Way {
        name: "two ranks that all run serial code",
        ranks: 2,
        command: |program, _, threads| over_all(2, program, threads, &[]),
    },
    Way {
        name: "four ranks that all run serial code",
        ranks: 4,
        command: |program, _, threads| over_all(4, program, threads, &[]),
    },
];

/// Our runtime, and an empty library by the name of the compiler's, so that the real one is not loaded.
fn preloaded(program: &Path, compiler: &Compiler, threads: usize) -> Command {
    let mut command = plain(program, threads);
    let stand_in = directory().join("stand-ins").join(compiler.runtime);
    command.env("LD_PRELOAD", format!("{} {}", runtime().display(), stand_in.display()));
    command
}

#[derive(Clone)]
struct Program {
    name: String,
    source: PathBuf,
    env: Vec<(String, String)>,
    flags: Vec<String>,
    only: Option<Vec<String>>,
    ranks: Option<String>,
    serial: bool,
    /// Where all ranks run serial code it is not refused.
    right: bool,
    each: Option<String>,
    /// With the compiler's own runtime it has one thread.
    alone: bool,
    /// The reason that it is refused with.
    reason: Option<String>,
}

/// Those whose names begin with one of `wanted`, a list with commas; all if there is none, or `all` is wanted.
fn programs(wanted: Option<String>) -> Vec<Program> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")).unwrap() {
        let source = entry.unwrap().path();
        let name = source.file_name().unwrap().to_str().unwrap().to_owned();
        if wanted.as_ref().is_some_and(|list| list != "all" && !list.split(',').any(|w| name.starts_with(w)))
        {
            continue;
        }
        let text = std::fs::read_to_string(&source).unwrap();
        let (env, flags, only, ranks, serial, right, each, alone, reason) =
            (Vec::new(), Vec::new(), None, None, true, false, None, false, None);
        let mut program =
            Program { name, source, env, flags, only, ranks, serial, right, each, alone, reason };
        let comments = text.lines().map_while(|l| l.strip_prefix("//").or_else(|| l.strip_prefix('!')));
        for line in comments {
            match line.trim().split_once(": ") {
                Some(("env", set)) => {
                    let (name, value) = set.split_once('=').unwrap();
                    program.env.push((name.into(), value.into()));
                }
                Some(("flags", list)) => program.flags = list.split(' ').map(str::to_owned).collect(),
                Some(("only", list)) => program.only = Some(list.split(' ').map(str::to_owned).collect()),
                Some(("serial", "right")) => program.right = true,
                Some(("serial", what)) => program.serial = what != "refused",
                Some(("elsewhere", "one thread")) => program.alone = true,
                Some(("each", what)) => program.each = Some(what.into()),
                Some(("ranks", what)) => program.ranks = Some(what.into()),
                Some(("expect", what)) => program.reason = what.strip_prefix("refused: ").map(str::to_owned),
                _ => {}
            }
        }
        if program.reason.is_some() && program.serial {
            program.ranks.get_or_insert("refused".into());
        }
        let refused = program.ranks.is_some() || !program.serial;
        assert_eq!(refused, program.reason.is_some(), "{}: no reason is expected", program.name);
        all.push(program);
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Whether what is said, perhaps `with` some compilers, is said of this one.
fn is_for(said: &Option<String>, compiler: &Compiler) -> bool {
    said.as_ref().is_some_and(|what| {
        what.split_once(" with ").is_none_or(|(_, by)| by.split(' ').any(|name| name == compiler.name))
    })
}

impl Program {
    /// Whether the reason that is expected was told.
    fn is_refused_by(&self, errors: &str) -> bool {
        let Some(reason) = &self.reason else { return false };
        let mut told =
            errors.lines().filter_map(|line| line.split_once("polyrail omp: ").map(|(_, why)| why));
        told.any(|why| why.contains(reason.as_str()))
    }
    fn language(&self) -> usize {
        match self.source.extension().unwrap().to_str().unwrap() {
            "c" => 0,
            "cpp" => 1,
            _ => 2,
        }
    }
    /// Builds it, unless this compiler has not got the language or the constructs.
    fn build(&self, compiler: &Compiler, header: Option<&Path>) -> Option<Result<PathBuf, String>> {
        let command = compiler.commands[self.language()];
        if self.only.as_ref().is_some_and(|only| !only.iter().any(|c| c == compiler.name))
            || !installed(command)
        {
            return None;
        }
        let out = directory().join(format!("{}.{}", self.name, compiler.name));
        compiler.build(self.language(), &self.flags, &self.source, &out, header)
    }
}

/// With the program's environment.
fn with(mut command: Command, program: &Program) -> Command {
    command.envs(program.env.iter().cloned());
    command
}

#[test]
fn constructs_do_what_they_do_elsewhere() {
    prepare();
    let header = header();
    let wanted = std::env::var("CONSTRUCTS").ok();
    // one of how many ways, and which, as the clock has it
    let (share, turn): (usize, usize) = if wanted.is_some() {
        (1, 0)
    } else {
        (8, SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as usize)
    };
    let work: Mutex<Vec<(usize, Program, &Compiler)>> = Mutex::new(
        programs(wanted)
            .into_iter()
            .enumerate()
            .flat_map(|(p, program)| {
                COMPILERS
                    .iter()
                    .enumerate()
                    .map(move |(c, compiler)| (turn + p + c, program.clone(), compiler))
            })
            .rev()
            .collect(),
    );
    let (failures, built) = (Mutex::new(String::new()), Mutex::new(BTreeSet::new()));
    let worker = || {
        loop {
            let Some((mut turn, program, compiler)) = work.lock().unwrap().pop() else { return };
            let label = format!("{} by {}", program.name, compiler.name);
            let path = match program.build(compiler, header.as_deref()) {
                None => continue,
                Some(Ok(path)) => path,
                Some(Err(why)) => {
                    writeln!(failures.lock().unwrap(), "{label} does not build:\n{why}").unwrap();
                    continue;
                }
            };
            built.lock().unwrap().insert(compiler.name);
            for threads in 1..=4usize {
                let natively = |threads| {
                    let threads = if program.alone { 1 } else { threads };
                    run(with(plain(&path, threads), &program))
                };
                let all = OnceCell::new();
                let possible = |way: &&Way| way.ranks == 1 || mpiexec(way.ranks).exists();
                for way in WAYS.iter().filter(|way| threads.is_multiple_of(way.ranks)).filter(possible) {
                    turn += 1;
                    if !turn.is_multiple_of(share) {
                        continue;
                    }
                    let all = all.get_or_init(|| natively(threads));
                    let said = run(with((way.command)(&path, compiler, threads), &program));
                    let fewer = way.ranks > 1 && threads > way.ranks && is_for(&program.each, compiler);
                    let expected = if fewer { natively(way.ranks) } else { all.clone() };
                    let all_serial = way.name.ends_with("serial code");
                    let refused =
                        way.ranks > 1 && is_for(&program.ranks, compiler) && !(program.right && all_serial)
                            || !program.serial && all_serial;
                    let same = if refused {
                        said.status != expected.status && program.is_refused_by(&said.errors)
                    } else {
                        (&said.output, &said.status, said.display)
                            == (&expected.output, &expected.status, expected.display)
                    };
                    if !same {
                        let mut failures = failures.lock().unwrap();
                        writeln!(
                            failures,
                            "--- {label}, {threads} threads, {}: {}, not {}\n{}--- instead of\n{}--- errors\n{}",
                            way.name, said.status, expected.status, said.output, expected.output, said.errors
                        )
                        .unwrap();
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(worker);
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{failures}");
    if !mpiexec(2).exists() || !mpiexec(3).exists() {
        polyrail_testing::lacking("an MPI in .venv (make setup), for runs over several ranks");
    }
    let built = built.into_inner().unwrap();
    for compiler in COMPILERS.iter().filter(|c| !built.contains(c.name)) {
        polyrail_testing::lacking(compiler.name);
    }
}

/// Tasks that each rank has carried out of those that were offered, as the counters say.
fn tasks_taken(program: &Path, asked: &str, rounds: &str) -> u64 {
    let file = directory().join(format!("tasks.{asked}.json"));
    let options = ["--serial", "master", "--json", file.to_str().unwrap()];
    let mut command = over_all(2, program, 2, &options);
    command.arg(rounds).env("POLYRAIL_OMP_TASKS", asked);
    let said = run(command);
    assert_eq!(said.status, "exit status: 0", "{asked}: {}", said.errors);
    let text = std::fs::read_to_string(&file).unwrap();
    let numbers = text.split("\"tasks\":").skip(1).filter_map(|rest| {
        let number: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
        number.parse::<u64>().ok()
    });
    numbers.sum()
}

/// What other tests compare would be the same if each thread carried its tasks out itself.
#[test]
fn tasks_are_carried_out_by_others_unless_the_user_says_no() {
    if !mpiexec(2).exists() {
        return polyrail_testing::lacking("an MPI in .venv (make setup), for runs over several ranks");
    }
    prepare();
    let (source, program) = (directory().join("offered.c"), directory().join("offered"));
    // as many rounds as it takes until thread 1 has had one, but not for ever
    let text = "#include <omp.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
        int main(int n, char **v) { int by[8], others = 0, rounds = atoi(v[n - 1]);\n\
        _Pragma(\"omp parallel\") _Pragma(\"omp single\")\n\
        for (int round = 0; round < rounds && !others; round++) {\n\
        for (int i = 0; i < 8; i++) _Pragma(\"omp task shared(by) firstprivate(i)\") { usleep(1000); by[i] = omp_get_thread_num(); }\n\
        _Pragma(\"omp taskwait\")\n\
        for (int i = 0; i < 8; i++) others += by[i] != 0; } return 0; }\n";
    std::fs::write(&source, text).unwrap();
    let made = Command::new("cc").args(["-O2", "-fopenmp", "-o"]).args([&program, &source]).status();
    assert!(made.unwrap().success());
    assert!(tasks_taken(&program, "on", "4000") > 0);
    assert!(tasks_taken(&program, "always", "4000") > 0);
    assert_eq!(tasks_taken(&program, "off", "3"), 0);
}

fn exported(library: &Path) -> Option<BTreeSet<String>> {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    let names = text.lines().filter_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
        // versions and local symbols are no entry points
        [_, kind, name] if kind != "A" && kind != "d" => Some(name.split('@').next()?.to_owned()),
        _ => None,
    });
    Some(names.collect())
}

/// One name that falls through to another runtime would make a program hang, or be wrong.
#[test]
fn every_entry_point_is_defined() {
    let list = include_str!("../../omp/src/entries.txt");
    let names: Vec<&str> = list.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert!(names.is_sorted(), "entries.txt is not sorted");
    let Some(ours) = exported(&runtime()) else {
        return polyrail_testing::lacking("nm (Debian: binutils)");
    };
    let missing: Vec<&&str> = names.iter().filter(|name| !ours.contains(**name)).collect();
    assert!(missing.is_empty(), "in the list, not in the library: {missing:?}");
    let known: BTreeSet<&str> = names.iter().copied().collect();
    for library in ["libgomp.so.1", "libomp.so.5"] {
        let Some(theirs) = exported(&Path::new("/usr/lib/x86_64-linux-gnu").join(library)) else { continue };
        let unknown: Vec<&String> = theirs.iter().filter(|name| !known.contains(name.as_str())).collect();
        assert!(unknown.is_empty(), "{library} has, the list has not: {unknown:?}");
    }
}

/// A program that calls what cannot be right ends with a reason.
#[test]
fn what_is_refused_says_why() {
    prepare();
    let source = directory().join("refused.c");
    std::fs::write(
        &source,
        "int acc_get_num_devices(int); int main(void) { return acc_get_num_devices(0); }\n",
    )
    .unwrap();
    let out = directory().join("refused");
    let made = Command::new("cc").arg("-o").args([&out, &source, &runtime()]).status();
    assert!(made.unwrap().success());
    let output = preloaded(&out, &COMPILERS[0], 1).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(text, "polyrail omp: acc_get_num_devices: OpenACC is not OpenMP: build without -fopenacc\n");
}

/// Every call of a program to an OpenMP runtime must reach ours, even where the real one is loaded, too.
#[test]
fn all_calls_reach_this_runtime() {
    prepare();
    let header = header();
    let mut program = programs(Some("single.c".into())).pop().expect("the program");
    program.env.clear();
    for compiler in &COMPILERS {
        let Some(Ok(path)) = program.build(compiler, header.as_deref()) else { continue };
        let mut command = plain(&path, 2);
        let output = command
            .env("LD_PRELOAD", runtime())
            .env("LD_DEBUG", "bindings")
            .env("LD_BIND_NOW", "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        let from = format!("binding file {} [0] to ", path.display());
        let calls: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split_once(&from).map(|(_, rest)| rest))
            .filter(|rest| ["`__kmpc_", "`GOMP_", "`omp_"].iter().any(|name| rest.contains(name)))
            .collect();
        assert!(!calls.is_empty(), "{text}");
        for call in calls {
            assert!(call.contains("libpolyrail_omp_rt.so"), "{}: {call}", compiler.name);
        }
    }
}
