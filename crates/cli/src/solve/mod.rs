//! `polyrail solve`: peers that solve a problem together, and what they found, with a proof. `polyrail_solve` has the problem, `polyrail_p2p` the peers.
//!
//! | module | |
//! |---|---|
//! | `job` | the one who starts: processes of this host, others who join, progress, the end |
//! | `picture` | convergence against time, and a cut through the solution |
//! | `simulated` | the same on a simulated network |
//! | `started` | processes of this host, and of others by ssh |
//! | `told` | what is printed |

mod job;
mod picture;
mod simulated;
mod started;
mod timelines;
mod told;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use polyrail_p2p::start::{read_address, write_address};
use polyrail_p2p::view::ADDRESS;
use polyrail_p2p::{Launched, Peers, Scheme, Settings};
use polyrail_solve::certify;
use polyrail_solve::gather;
use polyrail_solve::problem::{Instance, Problem};
use polyrail_solve::run::{self, POINTS};
use polyrail_solve::sweep::Method;

use crate::output::tell;

use simulated::Network;
use started::{Host, Started};

/// Where processes that the command starts find the run's address: it is the key to the run, and a command's words can be read by all.
const JOIN: &str = "POLYRAIL_SOLVE_JOIN";

/// Iterations between two that are judged, where all are in step, at most.
const EVERY: u64 = 16;

/// The same of a task: fewer where a short time step leaves little of an error in each.
fn every(task: &run::Task) -> u64 {
    if task.problem.dt.is_none() {
        return EVERY;
    }
    let left = (6.0 / (6.0 + task.problem.mass())).powi(task.inner as i32);
    ((-0.5 / left.ln()) as u64).clamp(1, EVERY)
}

/// Solves a problem on several processes that exchange what they have of their edges, in step or not.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(clap::Subcommand)]
enum Task {
    Obstacle(Obstacle),
}

/// The obstacle problem in three dimensions: a membrane in a cube over an obstacle.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
        polyrail solve obstacle --n 127 -n 4                         four processes of this host, in step\n  \
        polyrail solve obstacle --n 127 --scheme async -n 2 --wait-for 2   ... and two that join, by the address that is printed\n  \
        polyrail solve obstacle --join ADDRESS                       one of those, on any machine\n  \
        polyrail solve obstacle --n 127 --hosts a:4,b:4              four on each of two hosts, by ssh\n  \
        mpiexec -n 8 polyrail solve obstacle --n 127                 ... or as a launcher starts them: mpiexec, srun\n  \
        polyrail solve obstacle --n 127 -o found                     files: for ParaView, pictures, JSON")]
struct Obstacle {
    /// Points between two faces of the cube, in each direction
    #[arg(long = "n", value_name = "POINTS", default_value_t = 63)]
    points: usize,
    /// Which data: a, a ball whose solution is known; b, a floor; c, no obstacle; d, with --steps, what cools down as is known
    #[arg(long, value_parser = instance, default_value = "a")]
    instance: Instance,
    /// Who waits for whom: sync, async, hybrid (in step within a site), or bounded:N (values at most N iterations old)
    #[arg(long, value_parser = scheme, default_value = "sync")]
    scheme: Scheme,
    /// How it changes in time: so many time steps by implicit Euler, each solved before the next begins, and out of step only within one
    #[arg(long, value_name = "STEPS", requires = "dt")]
    steps: Option<u32>,
    /// The time step
    #[arg(long, value_name = "TIME", requires = "steps", allow_negative_numbers = true)]
    dt: Option<f64>,
    /// Processes that are started here [default: as many as processors, at most 8; none with --hosts or --wait-for; 1 with --join]
    #[arg(short = 'n', long = "peers", value_name = "PEERS")]
    peers: Option<usize>,
    /// Hosts on which processes are started by ssh, a comma list: a,b:4 is one on a, four on b
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    hosts: Vec<Host>,
    /// A file of such hosts: one a line, as a, a:4 or a slots=4
    #[arg(long, value_name = "FILE")]
    hostfile: Option<PathBuf>,
    /// What to reach hosts with in place of ssh
    #[arg(long, value_name = "COMMAND", default_value = "ssh")]
    ssh: PathBuf,
    /// Others that are to join before it begins
    #[arg(long, value_name = "PEERS", default_value_t = 0)]
    wait_for: usize,
    /// Prints the run's address, by which others can join while it is under way
    #[arg(long)]
    open: bool,
    /// Takes part in a run that another has begun; its address is that which was printed there, or - to read it from the standard input
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["hosts", "hostfile", "wait_for", "open", "output"])]
    join: Option<String>,
    /// Ends when its standard input does, from which it has read the address
    #[arg(long, hide = true, requires = "join")]
    until_input_ends: bool,
    /// At which site this machine is, as a number, for --scheme hybrid [default: what the setting POLYRAIL_SITE calls it]
    #[arg(long, value_name = "NUMBER")]
    site: Option<u32>,
    /// How a block is brought closer to the solution
    #[arg(long, value_enum, default_value = "richardson")]
    method: Way,
    /// Sweeps of a block between two exchanges
    #[arg(long, value_name = "SWEEPS", default_value_t = 1)]
    inner: u32,
    /// Parts in all, of which each process holds some: more than there are processes, so that others that join get some [default: one for each process]
    #[arg(long)]
    parts: Option<u32>,
    /// Iterations between two of which states are kept at a second process, so that one that is lost does not end the run, and others can join;
    /// 0: never [default: about 2 s of computing]
    #[arg(long, value_name = "ITERATIONS")]
    keep: Option<u64>,
    /// Parts are slabs, and not boxes with as little surface as can be
    #[arg(long)]
    slabs: bool,
    /// All stop when each value is proven to be within so much of the solution of the difference equations [default: h^2 / 25]
    #[arg(long, value_name = "BOUND")]
    bound: Option<f64>,
    /// Writes the solution for ParaView, pictures and a summary as JSON into this directory
    #[arg(short, long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
    /// Computes for a simulated network, and says how long it would take there: infiniband-2013, ethernet-2013, 10g or 100g, and what is different,
    /// as in 10g,sites=2,delay=20ms,rate=125M,loss=1%,slow=1:0.5,jitter=20%
    #[arg(long, value_name = "NETWORK", conflicts_with_all = ["join", "hosts", "hostfile", "wait_for", "open", "output", "keep"])]
    simulate: Option<Network>,
    /// With --simulate: what is computed stands for a cube with so many points in each direction
    #[arg(long = "as", value_name = "POINTS", requires = "simulate")]
    stands_for: Option<usize>,
    /// Prints the summary as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Way {
    /// Projected Richardson (Jacobi): the original's
    Richardson,
    /// Projected over-relaxation; Gauss-Seidel where peers are not in step
    Psor,
    /// Projected multigrid: some ten iterations for any number of points, best 63, 127, 255 ... Of peers in step
    Multigrid,
}

impl From<Way> for Method {
    fn from(way: Way) -> Self {
        match way {
            Way::Richardson => Self::Richardson,
            Way::Psor => Self::Psor,
            Way::Multigrid => Self::Multigrid,
        }
    }
}

fn instance(text: &str) -> Result<Instance, String> {
    match text {
        "a" => Ok(Instance::A),
        "b" => Ok(Instance::B),
        "c" => Ok(Instance::C),
        "d" => Ok(Instance::D),
        _ => Err("there are a, b, c and d".into()),
    }
}

fn scheme(text: &str) -> Result<Scheme, String> {
    match text {
        "sync" => Ok(Scheme::Synchronous),
        "async" => Ok(Scheme::Asynchronous),
        "hybrid" => Ok(Scheme::Hybrid),
        _ => match text.strip_prefix("bounded:").map(str::parse) {
            Some(Ok(0)) => Ok(Scheme::Synchronous),
            Some(Ok(bound)) => Ok(Scheme::Bounded(bound)),
            _ => Err("there are sync, async, hybrid and bounded:N".into()),
        },
    }
}

/// Why a run did not come to its end.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Run(#[from] run::Error),
    #[error("{0}")]
    Use(String),
    #[error("{what}: {error}")]
    System { what: String, error: std::io::Error },
    #[error("{0} ended with {1} before the run did; what was said is above")]
    Ended(String, std::process::ExitStatus),
    #[error("it was interrupted")]
    Interrupted,
}

impl From<polyrail_p2p::Error> for Error {
    fn from(error: polyrail_p2p::Error) -> Self {
        Self::Run(error.into())
    }
}

impl Error {
    fn system(what: impl Into<String>, error: std::io::Error) -> Self {
        Self::System { what: what.into(), error }
    }
}

/// Runs the subcommand; the exit status is the one to end with.
pub fn main(args: &Args) -> ExitCode {
    let Task::Obstacle(args) = &args.task;
    // of a launcher: when this is let go, the others end, and with them, by the launcher, this one, so that the reason is told before
    let mut launched = None;
    match begin(args, &mut launched) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            tell!("polyrail solve: {why}");
            ExitCode::FAILURE
        }
    }
}

fn begin(args: &Obstacle, launched: &mut Option<Launched>) -> Result<(), Error> {
    if let Some(network) = &args.simulate {
        return simulated::main(args, network);
    }
    if let Some(address) = args.join.clone().or_else(|| std::env::var(JOIN).ok()) {
        let address = read(&address)?;
        if args.until_input_ends {
            std::thread::spawn(|| {
                // nothing more is said there: it ends
                let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
                std::process::exit(1);
            });
        }
        return take_part(args, &address);
    }
    *launched = Launched::find()?;
    match launched.take_if(|launched| launched.rank() > 0) {
        Some(launched) => take_part(args, &launched.address(&settings(args.site, 1)?)?),
        None => job::main(args, launched),
    }
}

/// The address of a run that was printed, or that the standard input has.
fn read(text: &str) -> Result<[u8; ADDRESS], Error> {
    let mut line = String::new();
    if text == "-" {
        std::io::stdin().read_line(&mut line).map_err(|error| Error::system("reading the address", error))?;
    }
    Ok(read_address(if text == "-" { line.trim() } else { text })?)
}

fn settings(site: Option<u32>, weight: u16) -> Result<Settings, Error> {
    let own = Settings::from_env()?;
    Ok(Settings { site: site.unwrap_or(own.site), weight, ..own })
}

/// What processes of a run do, whoever started them.
fn take_part(args: &Obstacle, address: &[u8; ADDRESS]) -> Result<(), Error> {
    let mut more = Started::default();
    if let Some(more_than_this) = args.peers.unwrap_or(1).checked_sub(1) {
        more.here(more_than_this, args.site, &write_address(address))?;
    }
    loop {
        let mut peers = Peers::join(settings(args.site, 1)?, address)?;
        match gather::take_part(&mut peers) {
            // it was stopped for long, or cut off: the others have its parts, and may have some for it
            Err(run::Error::Peers(polyrail_p2p::Error::Out)) => {}
            done => {
                peers.leave(Duration::from_secs(10));
                more.wait();
                return Ok(done?);
            }
        }
    }
}

/// What is to be solved, and until when.
struct Plan {
    task: run::Task,
    bound: f64,
    /// The distance at which the bound holds.
    tolerance: f64,
    parts: u32,
}

/// The plan for so many peers.
fn planned(args: &Obstacle, peers: usize) -> Result<Plan, Error> {
    let problem = Problem { instance: args.instance, n: args.points, dt: args.dt };
    let steps = args.steps.unwrap_or(1);
    let bound = args.bound.unwrap_or_else(|| certify::usual(&problem));
    let tolerance = certify::tolerance(&problem, bound, steps).ok_or_else(|| {
        let least = certify::certificate(&problem, 0.0).bound;
        Error::Use(format!(
            "--bound {bound} is not possible: roundings alone are {least:.1e} on so many points"
        ))
    })?;
    let parts = args.parts.unwrap_or(peers as u32);
    let task = run::Task { problem, method: args.method.into(), slabs: args.slabs, inner: args.inner, steps };
    if (parts as usize) < peers {
        return Err(Error::Use(format!("--parts {parts} is less than the {peers} processes")));
    }
    task.check(args.scheme, &task.divide(parts)?)?;
    Ok(Plan { task, bound, tolerance, parts })
}

fn checked(args: &Obstacle) -> Result<(), Error> {
    if !(1..=POINTS).contains(&args.points) {
        return Err(Error::Use(format!("--n {} is not possible: 1 to {POINTS} points", args.points)));
    }
    if !(1..=run::INNER).contains(&args.inner) {
        let (inner, most) = (args.inner, run::INNER);
        return Err(Error::Use(format!("--inner {inner} is not possible: 1 to {most} sweeps")));
    }
    if let Some(steps) = args.steps.filter(|steps| !(1..=run::STEPS).contains(steps)) {
        let most = run::STEPS;
        return Err(Error::Use(format!("--steps {steps} is not possible: 1 to {most} time steps")));
    }
    // a square of the points' distance that is so much less or more than it is 0, or infinite
    if let Some(dt) = args.dt.filter(|dt| !(1e-12..=1e12).contains(dt)) {
        return Err(Error::Use(format!("--dt {dt} is not possible: 1e-12 to 1e12")));
    }
    Ok(())
}
