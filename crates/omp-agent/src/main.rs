//! One per rank of `polyrail omp`, started by mpiexec: starts the program, owns MPI, exchanges what the ranks changed, serves tokens, loops and gathers. The
//! design, with its reasons, is docs/decisions/0006-openmp-on-distributed-memory.md; what is spoken with the program, [`polyrail_omp::area`].
//!
//! | module | does |
//! |---|---|
//! | `options`, `start`, `launch` | what is to run, and that all ranks run the same |
//! | `launcher` | what started the agent, until the program starts |
//! | `stand_ins`, `child`, `guards` | starting the program at the same addresses everywhere |
//! | `mapping` | the memory shared with the program |
//! | `mpi`, `net` | messages between agents |
//! | `exchange` | all ranks' changes to all ranks |
//! | `message`, `control`; `polyrail_omp::services` | what threads ask of rank 0 |
//! | `agent`, `pace` | the one loop, and when it sleeps |
//! | `stats` | counters |
//! | `checkpoint` | files of checkpoints |
//! | `symbols` | names of addresses |
//! | `watchdog` | finds programs that wait for memory to change |
//! | `sys` | system calls |
//!
//! Invariants:
//! - While the program runs, nothing blocks but sleeps that end by themselves, and looks of half a second at most at a program that may be busy waiting.
//! - Rank 0 decides when and how a run ends. The program dies with its agent, the agents with one another.
//! - What comes from the network or from the program is checked before use.

// they end the process where nobody reads
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod agent;
mod checkpoint;
mod child;
mod control;
mod exchange;
mod guards;
mod launch;
mod launcher;
mod mapping;
mod message;
mod mpi;
mod net;
mod options;
mod pace;
mod stand_ins;
mod start;
mod stats;
mod symbols;
mod sys;
mod watchdog;

use std::process::ExitCode;

use mpi::Mpi;
use net::Net;
use options::{Options, Stop};

/// Nothing was started.
const NOT_STARTED: u8 = 125;
/// Microseconds, the most that may be set.
const NEVER: &str = "60000000";

fn main() -> ExitCode {
    let options = Options::read(std::env::args_os().skip(1), |name| std::env::var_os(name));
    if let Err(Stop::Told(text)) = &options {
        agent::print(text);
        return ExitCode::SUCCESS;
    }
    // A provider that sleeps until a message comes would not let the agent see what its program asks meanwhile; when to sleep is for `pace` to say.
    // SAFETY: there is no other thread yet
    unsafe { std::env::set_var("POLYRAIL_SLEEP_AFTER", NEVER) };
    let open_mpi = ["OMPI_COMM_WORLD_SIZE", "PMIX_RANK"].iter().any(|name| std::env::var_os(name).is_some());
    let library = mpi::find(open_mpi);
    let watch = launcher::Watch::start();
    let mut mpi = match Mpi::start(&library) {
        Ok(mpi) => mpi,
        Err(error) => {
            agent::tell(&format!("{error} (POLYRAIL_OMP_MPI names the MPI library to load)"));
            return NOT_STARTED.into();
        }
    };
    let mut keeper = None;
    let launch = match &options {
        // rank 0's count, but it may be that only others' are wrong, and they wait for it
        Err(_) if mpi.rank() > 0 => start::agree(&mut mpi, &Options::default(), &mut keeper),
        Ok(options) => start::agree(&mut mpi, options, &mut keeper),
        Err(Stop::Told(why) | Stop::Wrong(why)) => start::refuse(&mut mpi, why),
    };
    let launch = match launch {
        Ok(launch) => launch,
        Err(why) => {
            let first = mpi.rank() == 0;
            if let Some(why) = &why {
                agent::tell(why);
                if !first {
                    // rank 0 does not know
                    mpi.abort(NOT_STARTED);
                }
            }
            mpi.finalize();
            return if first { NOT_STARTED.into() } else { ExitCode::SUCCESS };
        }
    };
    let agent = match agent::Agent::new(mpi, &launch, keeper) {
        Ok(agent) => agent,
        Err(why) => {
            agent::tell(&why);
            return NOT_STARTED.into();
        }
    };
    // it looks by itself
    drop(watch);
    let mut ended = agent.run(&launch);
    if let (Ok(options), true) = (&options, ended.is_first) {
        report(options, &launch, &mut ended);
    }
    ended.status.into()
}

/// Tells what was counted, where the user wants to know.
fn report(options: &Options, launch: &launch::Launch, ended: &mut agent::Ended) {
    let report = stats::Report::new(&ended.counted, launch, ended.symbols.as_mut());
    if options.stats {
        agent::print(&report.text());
    }
    if let Some(path) = &options.json
        && let Err(error) = report.write(path)
    {
        agent::tell(&error);
    }
}
