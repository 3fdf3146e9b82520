//! `polyrail run`: starts an unchanged MPI program so that its messages travel by Polyrail.
//!
//! MPI stays what launches and manages the processes. This finds out which MPI the program is linked with ([`detect`]),
//! finds that MPI's own launcher ([`mpiexec`]) or takes Slurm's ([`srun`]), has it reach hosts of other sites ([`sites`]), sets what makes that MPI use the provider ([`environment`]),
//! and counts in the end which ranks really did ([`watch`]).

pub mod detect;
pub mod environment;
pub mod error;
pub mod mpiexec;
pub mod sites;
pub mod srun;
pub mod watch;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};

use detect::Found;
use environment::Provider;
use error::Error;
use mpiexec::{Family, Mpiexec};
use sites::Sites;
use srun::Srun;
use watch::Verdict;

use crate::launch::spawn_bound;
use crate::output;
use crate::parts::Part;
use crate::settings;
use crate::signals::{self, exit_code};

/// The program succeeded, but not every rank used Polyrail.
const NOT_USED: u8 = 86;
/// Nothing was started.
const NOT_STARTED: u8 = 125;

/// Runs an MPI program over Polyrail, by its own MPI's mpiexec.
#[derive(clap::Args)]
#[command(
    disable_help_flag = true,
    override_usage = "polyrail run [OPTIONS] [-n RANKS] PROGRAM [ARGUMENTS]...\n       \
                      polyrail run [OPTIONS] [MPIEXEC'S OWN ARGUMENTS]... -- PROGRAM [ARGUMENTS]...\n       \
                      polyrail run --print-env mpich|openmpi|PROGRAM",
    after_help = "Examples:\n  \
                  polyrail run -n 4 ./app\n  \
                  polyrail run -hosts n1,n2 -ppn 2 -- ./app input.dat\n  \
                  polyrail run -n 4 python3 program.py\n  \
                  polyrail run --mpiexec srun -N 2 -n 4 -- ./app\n\
                  Exit status: the program's own; 86 if it succeeded but not every rank used Polyrail; \
                  125 if nothing was started."
)]
pub struct Args {
    /// Print this help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Print the environment as shell commands, for launching by other means, and run nothing
    #[arg(long)]
    print_env: bool,
    /// Print what was found and what would be run, and run nothing
    #[arg(long)]
    dry_run: bool,
    /// Say what was found, and in the end what every rank used
    #[arg(long)]
    verbose: bool,
    /// Leave collective operations to the MPI
    #[arg(long)]
    no_companion: bool,
    /// Reach no hosts of other sites, though a gateway to them is known
    #[arg(long)]
    no_gateway: bool,
    /// Which MPI to launch with, for programs that do not show it (shell scripts, other languages)
    #[arg(long, value_name = "FAMILY")]
    mpi: Option<Family>,
    /// The mpiexec to launch with, or srun
    #[arg(long, value_name = "FILE")]
    mpiexec: Option<PathBuf>,
    /// The directory with libpolyrail_fi.so
    #[arg(long, value_name = "DIR")]
    provider_dir: Option<PathBuf>,
    /// The program and its arguments, behind mpiexec's own
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    rest: Vec<OsString>,
}

/// The words after `polyrail run`'s own options, told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// mpiexec's own arguments.
    pub launcher: Vec<OsString>,
    /// The program.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

impl Job {
    /// Without `--`, only a number of ranks may stand before the program: what else takes a value, only mpiexec knows.
    pub fn parse(words: &[OsString]) -> Result<Self, Error> {
        let is_option = |word: &OsString| word.as_encoded_bytes().starts_with(b"-");
        let mut first = 0;
        while words.get(first).is_some_and(|word| is_rank_count(word)) {
            match words.get(first + 1) {
                Some(word) if word.to_str().is_none_or(|word| word.parse::<u32>().is_err()) => {
                    return Err(Error::NotANumber { word: word.clone() });
                }
                _ => first += 2,
            }
        }
        let (launcher, program) = if words.get(first).is_some_and(|word| !is_option(word)) {
            (&words[..first], &words[first..])
        } else {
            let end = words.iter().position(|word| word == "--").ok_or_else(|| match words {
                [] => Error::NoProgram,
                words => Error::Ambiguous { word: words[first.min(words.len() - 1)].clone() },
            })?;
            (&words[..end], &words[end + 1..])
        };
        let (program, arguments) = program.split_first().ok_or(Error::NoProgram)?;
        Ok(Self { launcher: launcher.into(), program: program.clone(), arguments: arguments.into() })
    }

    /// Whether there are several programs: ranks of one may be loaded in another way than those of another.
    fn has_several_programs(&self) -> bool {
        let names_others = ["-configfile", "--configfile", "--app", "-app", "--multi-prog"];
        self.launcher.iter().chain(&self.arguments).any(|word| word == ":")
            || self.launcher.iter().any(|word| names_others.iter().any(|name| word == *name))
    }

    /// How many ranks mpiexec is asked for, if its arguments say so in the usual way.
    pub fn ranks(&self) -> Option<u32> {
        let at = self.launcher.iter().position(|word| is_rank_count(word))?;
        self.launcher.get(at + 1)?.to_str()?.parse().ok()
    }
}

fn is_rank_count(word: &OsStr) -> bool {
    ["-n", "-np", "--n", "--np"].iter().any(|name| word == *name)
}

/// What starts the ranks.
enum Launcher {
    /// The MPI's own.
    Mpiexec(Mpiexec),
    /// Slurm's.
    Srun(Srun),
}

impl Launcher {
    fn path(&self) -> &Path {
        match self {
            Self::Mpiexec(mpiexec) => &mpiexec.path,
            Self::Srun(srun) => &srun.path,
        }
    }

    fn version(&self) -> &str {
        match self {
            Self::Mpiexec(mpiexec) => &mpiexec.version,
            Self::Srun(srun) => &srun.version,
        }
    }
}

/// What is needed to run a job, and how it was found.
struct Plan {
    job: Job,
    found: Option<Found>,
    family: Family,
    launcher: Launcher,
    /// How other sites' hosts are reached, where this one knows of any.
    sites: Option<Sites>,
    provider: Provider,
    /// Why ranks do without the companion.
    no_companion: Option<String>,
}

impl Plan {
    fn make(args: &Args) -> Result<Self, Error> {
        let job = Job::parse(&args.rest)?;
        // ranks would find out each for itself, and only MPI would say so
        polyrail_rails::config::Config::from_env()?;
        let provider = Provider::find(args.provider_dir.as_deref())?;
        let found = match args.mpi {
            Some(_) => None,
            None => Some(detect::detect(&job.program, &job.arguments)?),
        };
        let library = found.as_ref().map(|found| found.library.as_path());
        let known = args.mpi.or_else(|| found.as_ref().and_then(|found| found.abi.family()));
        let explicit = args.mpiexec.as_deref();
        let srun = explicit.and_then(|path| Some((path, Srun::version_of(path)?)));
        let lacks_libfabric = found.as_ref().is_some_and(|found| !found.has_libfabric());
        let usable = |mpiexec: Mpiexec| match lacks_libfabric && !mpiexec.loads_libfabric() {
            true => Err(Error::NoLibfabric { library: library.map(Path::to_owned).unwrap_or_default() }),
            false => Ok(mpiexec),
        };
        let (family, launcher) = match srun {
            None => {
                let mpiexec = usable(mpiexec::find(known, library, explicit)?)?;
                (mpiexec.family, Launcher::Mpiexec(mpiexec))
            }
            Some((path, version)) => {
                let family = match known {
                    Some(family) if !lacks_libfabric => family,
                    // whose an MPI of the standard ABI is, and whether it loads libfabric, what is installed with it says
                    _ => usable(mpiexec::find(known, library, None)?)?.family,
                };
                (family, Launcher::Srun(Srun::prepare(path, version, family, &job)?))
            }
        };
        let sites = match &launcher {
            Launcher::Mpiexec(_) if !args.no_gateway => {
                Sites::find(family, &job).map_err(|source| Error::Sites { source })?
            }
            _ => None,
        };
        let job = sites.iter().fold(job, |job, sites| sites.adjust(job));
        let no_companion = no_companion(args, &job, found.as_ref());
        let provider = if no_companion.is_none() { provider.with_companion() } else { provider };
        Ok(Self { job, found, family, launcher, sites, provider, no_companion })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.launcher.path());
        for (name, value) in environment::variables(self.family, &self.provider) {
            command.env(name, value);
        }
        command.args(match &self.launcher {
            Launcher::Mpiexec(_) => environment::launcher_arguments(self.family, &self.provider, &self.job),
            Launcher::Srun(srun) => srun.arguments(&self.job),
        });
        self.sites.iter().fold(command, |command, sites| sites.wrap(&command, self.family))
    }

    /// What the user has set by which ranks may talk by other means than Polyrail, or not at all: what is wrong with it.
    fn instead(&self) -> Option<String> {
        match &self.launcher {
            Launcher::Srun(Srun { doubtful: Some(chosen), .. }) => Some(format!(
                "with {chosen} each task may be a job of its own, since ranks of {} learn of each other by --mpi={}",
                self.family,
                srun::protocol(self.family)
            )),
            _ => environment::other_way(self.family)
                .map(|set| format!("{set} lets ranks of one host use their MPI's own shared memory")),
        }
    }

    /// The plan in words, a line each.
    fn explain(&self) -> String {
        let how = match &self.found {
            Some(found) => format!("{}, {}", found.abi, found.how),
            None => "named on the command line".into(),
        };
        format!(
            "program   {}\nMPI       {how}\nlauncher  {}, {}\nprovider  {}\ncompanion {}\n",
            self.job.program.display(),
            self.launcher.path().display(),
            self.launcher.version(),
            self.provider.file().display(),
            match (self.provider.companion(), &self.no_companion) {
                (Some(file), _) => file.display().to_string(),
                (None, Some(why)) => format!("none: {why}"),
                (None, None) => format!(
                    "none: there is no {} beside the provider, or its path has a space or a colon",
                    Part::Companion.file()
                ),
            },
        )
    }
}

/// Runs the subcommand; the exit status is the one to end with.
pub fn main(args: &Args) -> ExitCode {
    let outcome = match (args.print_env, family_named_by(&args.rest)) {
        (true, Some(family)) => {
            Provider::find(args.provider_dir.as_deref()).map_err(Error::from).map(|provider| {
                let provider = if args.no_companion { provider } else { provider.with_companion() };
                output::print(&environment::as_shell(family, &provider));
                ExitCode::SUCCESS
            })
        }
        _ => Plan::make(args).and_then(|plan| carry_out(&plan, args)),
    };
    outcome.unwrap_or_else(|error| {
        output::tell!("polyrail run: {error}");
        ExitCode::from(NOT_STARTED)
    })
}

/// Why ranks are to do without the companion, if they are: all have it, or none.
fn no_companion(args: &Args, job: &Job, found: Option<&Found>) -> Option<String> {
    if args.no_companion {
        return Some("--no-companion".into());
    }
    if job.has_several_programs() {
        return Some("the job has several programs, which may load it or not".into());
    }
    let first = found?.first_of_all()?;
    Some(format!("{} has to be loaded before all others", first.display()))
}

fn family_named_by(rest: &[OsString]) -> Option<Family> {
    let [word] = rest else { return None };
    <Family as clap::ValueEnum>::from_str(word.to_str()?, false).ok()
}

fn carry_out(plan: &Plan, args: &Args) -> Result<ExitCode, Error> {
    if args.print_env {
        output::print(&environment::as_shell(plan.family, &plan.provider));
        return Ok(ExitCode::SUCCESS);
    }
    if args.dry_run {
        output::print_line(&format!("{}command   {}", plan.explain(), environment::quoted(&plan.command())));
        return Ok(ExitCode::SUCCESS);
    }
    for doubt in settings::misspelt(&settings::here()) {
        output::tell!("polyrail run: warning: {doubt}");
    }
    if args.verbose {
        output::tell!("{}", plan.explain().trim_end());
    }

    let held = signals::hold().map_err(|source| Error::Signals { source })?;
    let listener = watch::Listener::open().map_err(|source| Error::Listen { source })?;
    let mut command = plan.command();
    command.env(polyrail_rails::report::VARIABLE, listener.target().to_string());
    let status = run_and_forward(&command, held)
        .map_err(|source| Error::Start { launcher: plan.launcher.path().to_owned(), source })?;

    let port = listener.target().addresses[0].port();
    let reports = listener.finish();
    if args.verbose {
        for report in &reports {
            output::tell!("{}", watch::told(report));
        }
    }
    let verdict = Verdict::of(&reports, plan.job.ranks());
    if verdict != Verdict::All {
        let warning = match exit_code(status) {
            code @ 1.. if verdict == Verdict::None => watch::nothing_began(plan.launcher.path(), code),
            _ => watch::warning(&verdict, plan.family, &plan.provider, port),
        };
        output::tell!("{warning}");
    }
    let nothing = verdict == Verdict::All && watch::carried_nothing(&reports);
    let instead = plan.instead();
    if nothing {
        output::tell!("{}", watch::nothing_carried(instead.as_deref()));
    }
    Ok(match exit_code(status) {
        0 if verdict != Verdict::All || nothing && instead.is_some() => NOT_USED,
        code => code,
    }
    .into())
}

/// Starts a command and hands signals on to it until it ends; if this command is killed, it is told to end, too.
pub fn run_and_forward(command: &Command, held: signals::Held) -> io::Result<ExitStatus> {
    let mut child = spawn_bound(command)?;
    held.forward_to(child.id(), None);
    child.wait()
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

    fn parse(line: &str) -> Args {
        Whole::try_parse_from(["run"].into_iter().chain(line.split_whitespace())).unwrap().args
    }

    fn job(line: &str) -> Result<(String, String, String), Error> {
        let join = |words: &[OsString]| words.join(OsStr::new(" ")).into_string().unwrap();
        Job::parse(&parse(line).rest)
            .map(|job| (join(&job.launcher), job.program.into_string().unwrap(), join(&job.arguments)))
    }

    #[track_caller]
    fn splits(line: &str, launcher: &str, program: &str, arguments: &str) {
        assert_eq!(job(line).unwrap(), (launcher.into(), program.into(), arguments.into()), "{line}");
    }

    #[test]
    fn arguments_of_mpiexec_and_program_are_told_apart() {
        splits("./app", "", "./app", "");
        splits("./app -n 4 --help -- x", "", "./app", "-n 4 --help -- x");
        splits("-n 4 ./app -x", "-n 4", "./app", "-x");
        splits("-np 4 ./app -- y", "-np 4", "./app", "-- y");
        splits("-- ./app -x", "", "./app", "-x");
        splits("-n 4 -- ./app -- -x", "-n 4", "./app", "-- -x");
        splits("-hosts a,b -n 4 -ppn 2 -- ./app", "-hosts a,b -n 4 -ppn 2", "./app", "");
        splits("--map-by node -n 2 -- ./app : -n 2 ./other", "--map-by node -n 2", "./app", ": -n 2 ./other");
        splits("--verbose --mpi mpich -n 2 --verbose -- ./app", "-n 2 --verbose", "./app", "");
    }

    #[test]
    fn a_job_of_several_programs_does_without_the_companion() {
        let why = |line: &str| {
            let args = parse(line);
            no_companion(&args, &Job::parse(&args.rest).unwrap(), None)
        };
        assert_eq!(why("-n 2 ./app a:b"), None);
        assert!(why("-n 1 -- ./app : -n 1 ./other").is_some() && why("--multi-prog -- ./app").is_some());
        assert_eq!(why("--no-companion -n 2 ./app").as_deref(), Some("--no-companion"));
    }

    #[test]
    fn what_cannot_be_told_apart_is_refused() {
        assert!(matches!(job(""), Err(Error::NoProgram)));
        assert!(matches!(job("-n 4"), Err(Error::Ambiguous { .. })));
        assert!(matches!(job("-n 4 --"), Err(Error::NoProgram)));
        match job("-n 4 -ppn 2 ./app") {
            Err(Error::Ambiguous { word }) => assert_eq!(word, "-ppn"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn own_options_come_first() {
        let args = parse("--dry-run --mpiexec /opt/mpiexec -n 2 ./app --print-env");
        assert!(args.dry_run && !args.print_env && !args.verbose);
        assert_eq!(args.mpiexec.as_deref(), Some("/opt/mpiexec".as_ref()));
        assert_eq!(family_named_by(&parse("--print-env openmpi").rest), Some(Family::OpenMpi));
        assert_eq!(family_named_by(&parse("--print-env ./openmpi").rest), None);
    }

    #[test]
    fn the_number_of_ranks_is_read_from_mpiexecs_arguments() {
        let ranks = |line: &str| Job::parse(&parse(line).rest).unwrap().ranks();
        assert_eq!(ranks("-n 4 ./app"), Some(4));
        assert_eq!(ranks("-hosts a,b --np 16 -- ./app"), Some(16));
        assert_eq!(ranks("-hosts a,b -- ./app -n 3"), None);
    }
}
