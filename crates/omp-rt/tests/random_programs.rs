//! Random programs without races say over several ranks what they say with the compiler's own runtime: C, C++ and Fortran, by each compiler, optimized in several ways.
//!
//! `RANDOM_PROGRAMS=5000 cargo test --release -p polyrail-omp-rt --test random_programs` runs so many, with `RANDOM_FIRST=N` from that one on; `RANDOM_PROGRAM=N` is that one
//! alone. In a lab (`scripts/lab run -- ...`) they run on two hosts, too. What differs is kept beside the test's other files.

mod random_support;
mod ways;

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use random_support::{Random, Source, c, fortran};
use ways::{
    COMPILERS, FORTRAN, NO_END, Said, by_messages, directory, header, launched, mpiexec, over, over_all,
    plain, prepare, run,
};

/// So many, unless RANDOM_PROGRAMS says otherwise.
const PROGRAMS: u64 = 12;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// So many at a time.
const AT_ONCE: usize = 2;

/// How often a program is run again that says something else over several ranks: some of clang's do without, too, such as with copies of objects in untied tasks.
const OFTEN: usize = 12;

/// What is said where ranks have one thread each, as the program orders memory by fences.
const FEWER: &str = "polyrail omp: one thread on each rank";

/// The way of these that needs a lab.
const TWO_HOSTS: &str = "two hosts";

/// A way of running it: a name, ranks, threads of each.
type Way = (&'static str, usize, usize, fn(&Path, usize) -> Command);

const WAYS: [Way; 6] = [
    ("two ranks", 2, 1, |program, threads| over(2, program, threads)),
    ("three ranks", 3, 1, |program, threads| over(3, program, threads)),
    ("two ranks of two threads", 2, 2, |program, threads| over(2, program, threads)),
    ("two ranks by messages", 2, 1, by_messages),
    (TWO_HOSTS, 2, 1, on_two_hosts),
    ("two ranks that all run serial code", 2, 1, |program, threads| over_all(2, program, threads, &[])),
];

/// Each of two ranks on a host of its own, where this runs in a lab (`scripts/lab run -- ...`).
fn on_two_hosts(program: &Path, threads: usize) -> Command {
    let ssh = std::env::var("POLYRAIL_LAB_SSH").expect("a lab");
    let hosts = "-hosts a,b -ppn 1 -iface ctl -launcher ssh -launcher-exec";
    let by: Vec<String> = hosts.split(' ').map(str::to_owned).chain([ssh]).collect();
    let mut command = launched(2, &by, threads, &["--serial", "master", "--"]);
    command.arg(program);
    command
}

/// What a program does otherwise than it should; nothing if no compiler has the language.
fn differences(seed: u64) -> Option<String> {
    let mut random = Random::new(seed);
    let (language, end) = [(0, "c"), (0, "c"), (1, "cpp"), (1, "cpp"), (FORTRAN, "f90")][random.below(5)];
    let compiler = &COMPILERS[random.below(2)];
    let Source { text, flushes } = match language {
        FORTRAN => fortran::program(&mut random),
        _ => c::program(&mut random, language == 1),
    };
    let mut flags = vec![random.pick(&["-O0", "-O1", "-O2", "-O3", "-Os"]).to_owned()];
    if random.one_in(3) {
        flags.push("-march=native".into());
    }
    if random.one_in(4) && language != FORTRAN {
        flags.push("-no-pie".into());
    }
    let place = directory().join("random").join(seed.to_string());
    std::fs::create_dir_all(&place).unwrap();
    let source = place.join(format!("program.{end}"));
    std::fs::write(&source, text).unwrap();
    let label = format!("{}, by {} {}", source.display(), compiler.name, flags.join(" "));
    let program =
        match compiler.build(language, &flags, &source, &place.join("program"), header().as_deref())? {
            Ok(program) => program,
            // the compiler's own fault
            Err(why) if why.contains("command failed due to signal") => return None,
            Err(why) => return Some(format!("{label} does not build:\n{why}")),
        };
    let here = |mut command: Command| {
        command.current_dir(&place);
        run(command)
    };
    let Said { status, .. } = here(plain(&program, 2));
    if status == NO_END || status.starts_with("signal") {
        // as that, at run time: clang has some untied tasks begin again for ever, and ends copies of objects in some twice
        println!("{label} ends so by itself: {status}");
        return None;
    }
    // nor are all that end alike each time
    let is_itself = |threads: usize, expected: &Said| {
        (0..OFTEN).all(|_| {
            let again = here(plain(&program, threads));
            (&again.output, &again.status) == (&expected.output, &expected.status)
        })
    };
    // nor do all do, by any number of threads, what they do without being made faster: clang 14 has vectors of -march=native add to one place twice, and one of the two is lost
    let is_optimized_well = || {
        let built =
            compiler.build(language, &["-O0".into()], &source, &place.join("plain"), header().as_deref());
        let slow = built.expect("it was built").expect("it was built");
        (1..=4).all(|threads| {
            let (slow, fast) = (here(plain(&slow, threads)), here(plain(&program, threads)));
            (slow.output, slow.status) == (fast.output, fast.status)
        })
    };
    let mut wrong = String::new();
    let in_lab = std::env::var_os("POLYRAIL_LAB_SSH").is_some();
    // threads of one rank do not wait for each other's flags
    let fits = |way: &Way| (!flushes || way.2 == 1) && (in_lab || way.0 != TWO_HOSTS);
    for (name, ranks, of_each, command) in WAYS.into_iter().filter(fits) {
        let mut over = command(&program, ranks * of_each);
        // what is met is to be met elsewhere
        over.env("POLYRAIL_OMP_TASKS", "always");
        let said = here(over);
        let threads = if said.errors.contains(FEWER) { ranks } else { ranks * of_each };
        let expected = here(plain(&program, threads));
        if expected.status == NO_END {
            println!("{label} does not end with {threads} threads");
            continue;
        }
        if (&said.output, &said.status) != (&expected.output, &expected.status) {
            if !is_itself(threads, &expected) {
                println!("{label} is unlike itself with {threads} threads");
                continue;
            }
            if !is_optimized_well() {
                println!("{label} is unlike itself at -O0");
                continue;
            }
            writeln!(
                wrong,
                "--- {label}, {name}: {}, not {}\n{}--- instead of\n{}--- errors\n{}",
                said.status, expected.status, said.output, expected.output, said.errors
            )
            .unwrap();
        }
    }
    if wrong.is_empty() {
        std::fs::remove_dir_all(&place).unwrap();
    }
    Some(wrong)
}

#[test]
fn random_programs_do_what_they_do_elsewhere() {
    if !mpiexec(2).exists() || !mpiexec(3).exists() {
        return polyrail_testing::lacking("an MPI in .venv (make setup), for runs over several ranks");
    }
    prepare();
    let seeds = match number("RANDOM_PROGRAM") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("RANDOM_FIRST").unwrap_or(0);
            first..first + number("RANDOM_PROGRAMS").unwrap_or(PROGRAMS)
        }
    };
    // most of a run is waiting for others, so that several at a time are sooner done
    let (left, done) = (Mutex::new(seeds), Mutex::new((0, Vec::new())));
    let work = || {
        loop {
            let next = left.lock().unwrap().next();
            let Some(seed) = next else { break };
            let Some(wrong) = differences(seed) else { continue };
            let mut done = done.lock().unwrap();
            done.0 += 1;
            if !wrong.is_empty() {
                println!("{wrong}");
                done.1.push(seed);
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
    let (ran, failures) = done.into_inner().unwrap();
    println!("{ran} programs, {} of them otherwise", failures.len());
    assert!(failures.is_empty(), "these do not do what they do elsewhere: {failures:?}");
}
