//! The `polyrail` command. Each subcommand is a module that parses its own arguments and says what went wrong, and a page in
//! `docs/`.
//!
//! | module | subcommand |
//! |---|---|
//! | `run` | starts an unchanged MPI program so that its messages travel by Polyrail |
//! | `omp` | runs an unchanged OpenMP program over several processes and hosts |
//! | `info` | what joins this machine to others, which way messages take, and why |
//! | `doctor` | what works on this machine and on the hosts of a job, and what mends the rest |
//! | `bench` | measures messages between two processes |
//! | `trace` | records what any program says on the network, and what TCP does to it |
//! | `report` | makes a recording something to look at |
//! | `top` | what running programs send by which rail, live |
//! | `gateway` | carries connections between two sites |
//! | `wrap` | runs any program so that its connections to another site go through a gateway |
//! | `solve` | solves a problem on peers, and proves how good the answer is |
//! | `manual` | completions for shells; manual pages, for who installs |
//!
//! Invariants:
//! - No unsafe code: `run` and `omp` start processes and watch, the others use the safe API of `rails`.
//! - What a program or a launcher is, the loader or the program itself is asked, not its file's name.
//! - `run` exits with the program's own status, or by one that says that messages went another way (86) or that nothing was
//!   started (125).
#![forbid(unsafe_code)]
// they end the process where nobody reads: `output` has what does not
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod bench;
mod doctor;
mod gateway;
mod info;
mod launch;
mod manual;
mod omp;
mod output;
mod parts;
mod report;
mod run;
mod settings;
mod signals;
mod solve;
mod table;
mod top;
mod trace;
mod units;
mod wrap;

use std::process::ExitCode;

use clap::Parser;

/// One message-passing stack over whatever joins machines.
#[derive(Parser)]
#[command(
    name = "polyrail",
    version,
    after_help = "Examples:\n  \
        polyrail run -n 4 ./app                       an MPI program, unchanged, over all that joins its hosts\n  \
        polyrail run -hosts n1,n2 -n 8 -- ./app       ... on two hosts, by its own MPI's launcher\n  \
        polyrail trace -o seen -- ./app               any program: what it says on the network\n  \
        polyrail report seen                          ... as a page, tables and a time line\n  \
        polyrail omp -n 2 -t 4 ./app                  an OpenMP program over two processes\n  \
        polyrail solve obstacle --n 63 -n 4           an equation on four peers, with a proof of the answer\n  \
        polyrail info                                 what joins this machine to others\n  \
        polyrail doctor                               what works here, and what mends the rest\n\
        polyrail COMMAND --help says more; so do the manual pages, as polyrail-run(1)."
)]
struct Command {
    #[command(subcommand)]
    task: Task,
}

#[derive(clap::Subcommand)]
enum Task {
    Run(run::Args),
    Omp(omp::Args),
    Info(info::Args),
    Doctor(doctor::Args),
    Bench(bench::Args),
    Top(top::Args),
    Trace(trace::Args),
    Report(report::Args),
    Gateway(gateway::Args),
    Wrap(wrap::Args),
    Solve(solve::Args),
    Completions(manual::Completions),
    #[command(hide = true)]
    Manual(manual::Pages),
}

fn main() -> ExitCode {
    if let Some(status) = launch::become_bound().or_else(wrap::agent::become_ssh) {
        return status;
    }
    match Command::parse().task {
        Task::Run(args) => run::main(&args),
        Task::Omp(args) => omp::main(&args),
        Task::Info(args) => info::main(&args),
        Task::Doctor(args) => doctor::main(&args),
        Task::Bench(args) => bench::main(&args),
        Task::Top(args) => top::main(&args),
        Task::Trace(args) => trace::main(&args),
        Task::Report(args) => report::main(&args),
        Task::Gateway(args) => gateway::main(&args),
        Task::Wrap(args) => wrap::main(&args),
        Task::Solve(args) => solve::main(&args),
        Task::Completions(args) => manual::completions(&args),
        Task::Manual(args) => manual::pages(&args),
    }
}
