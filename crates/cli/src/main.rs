//! The `polyrail` command.
#![forbid(unsafe_code)]

mod bench;
mod info;
mod run;

use std::process::ExitCode;

use clap::Parser;

/// One message-passing stack over whatever joins machines.
#[derive(Parser)]
#[command(name = "polyrail", version)]
struct Command {
    #[command(subcommand)]
    task: Task,
}

#[derive(clap::Subcommand)]
enum Task {
    Run(run::Args),
    Info(info::Args),
    Bench(bench::Args),
}

fn main() -> ExitCode {
    match Command::parse().task {
        Task::Run(args) => run::main(&args),
        Task::Info(args) => info::main(&args),
        Task::Bench(args) => bench::main(&args),
    }
}
