//! The one who starts a run, and looks on: it computes nothing.

use std::fs::{self, File};
use std::io::{BufWriter, IsTerminal};
use std::path::Path;
use std::time::{Duration, Instant};

use polyrail_p2p::start::{PATIENCE, write_address};
use polyrail_p2p::{Error as PeersError, Founding, Job, Launched};
use polyrail_solve::certify;
use polyrail_solve::gather::{Solution, gather};
use polyrail_solve::output::write_vti;
use polyrail_solve::problem::Problem;
use polyrail_solve::run::{self, Progress};
use polyrail_solve::sweep::Method;
use serde::Serialize;

use super::started::{Host, Started, hosts_of};
use super::timelines::{Timeline, Timelines};
use super::told::{Told, summary};
use super::{EVERY, Error, Obstacle, Plan, checked, every, picture, planned, settings};
use crate::output::{self, tell};
use crate::signals;

/// Processes that are started where nobody says how many, at most.
const PEERS: usize = 8;
/// Cycles of multigrid between two of which states are kept, at least: a run has some ten.
const CYCLES_KEPT: u64 = 4;
/// What a sweep takes for a point, in seconds, as far as it is known before.
const SWEEP: f64 = 1.5e-9;
/// Sweeps that a cycle of multigrid is as long as.
const CYCLE: f64 = 12.0;
/// Seconds that are computed again at most, nearly, when a process is lost.
const AGAIN: f64 = 2.0;
/// Between two lines of progress.
const LINE: Duration = Duration::from_millis(500);

/// Founds the run, starts its processes, and gathers what they found. Of those that a launcher started this is the first, and has one process compute in its place.
pub fn main(args: &Obstacle, launched: &mut Option<Launched>) -> Result<(), Error> {
    checked(args)?;
    let hosts = hosts(args)?;
    let by_launcher = launched.as_ref().map_or(0, Launched::size);
    if by_launcher > 0 && (args.peers.is_some() || !hosts.is_empty()) {
        return Err(Error::Use(format!(
            "the launcher has started {by_launcher} processes, which are the peers: without -n, --hosts and --hostfile; with an empty POLYRAIL_MEET it is \
             not looked at"
        )));
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let usual = match by_launcher {
        0 if args.wait_for > 0 || !hosts.is_empty() => 0,
        0 => processors.min(PEERS),
        _ => 1,
    };
    let here = args.peers.unwrap_or(usual);
    let elsewhere = hosts.iter().map(|host| host.count).sum::<usize>() + by_launcher.saturating_sub(1);
    let peers = here + elsewhere + args.wait_for;
    if peers == 0 {
        return Err(Error::Use(
            "nobody is to compute: -n says how many processes, --hosts where, --wait-for how many join"
                .into(),
        ));
    }
    let Plan { task, bound, tolerance, parts } = planned(args, peers)?;
    let problem = task.problem;
    // a cycle is much, and few are needed
    let is_multigrid = task.method == Method::Multigrid;
    let (judged, sweeps) = if is_multigrid { (1, CYCLE) } else { (every(&task), 1.0) };
    let usual_keep = || {
        let points = (args.points as f64).powi(3) / peers as f64 * f64::from(task.inner);
        ((AGAIN / (points * SWEEP * sweeps)) as u64).max(if is_multigrid { CYCLES_KEPT } else { EVERY })
    };
    let keep = args.keep.unwrap_or_else(usual_keep);
    let others_join = args.wait_for > 0 || args.open || by_launcher > 1;
    let job = Job { parts, scheme: args.scheme, tolerance, every: judged, keep, task: task.to_bytes() };
    // files that cannot be written are told of before anything is computed
    if let Some(directory) = &args.output {
        fs::create_dir_all(directory)
            .map_err(|error| Error::system(format!("making {}", directory.display()), error))?;
    }

    let own = settings(args.site, 0)?;
    let founding = match launched.take() {
        Some(launched) => launched.found(own)?,
        None => Founding::new(own)?,
    };
    // until here a signal ends it: a launcher may say nothing for long
    let interrupted = signals::flagged().map_err(|error| Error::system("watching for signals", error))?;
    let address = write_address(&founding.address());
    if args.wait_for > 0 {
        tell!("polyrail solve: waiting for {} to join", args.wait_for);
    }
    if args.wait_for > 0 || args.open {
        tell!("polyrail solve: others join by\n  polyrail solve obstacle --join {address}");
    }
    let mut processes = Started::default();
    processes.here(here, args.site, &address)?;
    for host in &hosts {
        processes.on(host, args.ssh.as_os_str(), args.site, &address)?;
    }
    let (begin, mut line) = (Instant::now(), Line::new());
    let mut failed = None;
    let mut watch = |has_begun| {
        if interrupted() {
            failed = Some(Error::Interrupted);
        } else if let Some((who, status)) = processes.look(has_begun, keep > 0, others_join) {
            failed = Some(Error::Ended(who.into(), status));
        }
        if failed.is_some() { Err(PeersError::Use(String::new())) } else { Ok(()) }
    };
    let gathering = Instant::now();
    let gathered = founding.gather(job, peers, |here| {
        if by_launcher > 0 && gathering.elapsed() > PATIENCE {
            let what = format!("{} of the {peers} processes that were started together", peers - here);
            return Err(PeersError::Silent(what, PATIENCE));
        }
        watch(false)
    });
    let gathered = match gathered {
        Ok(mut looks_on) => {
            let (mut history, mut timelines) = (Vec::<(f64, f64)>::new(), Timelines::default());
            let solution = gather(&mut looks_on, |view, far| {
                watch(true).map_err(run::Error::Peers)?;
                let seconds = begin.elapsed().as_secs_f64();
                if let Some(distance) = worst(far) {
                    history.push((seconds, certify::certificate(&problem, distance).bound));
                }
                timelines.add(seconds, view, far);
                line.show(&problem, far, bound, seconds);
                Ok(())
            });
            let seconds = begin.elapsed().as_secs_f64();
            for share in solution.iter().flat_map(|solution| &solution.shares) {
                timelines.end(seconds, share);
            }
            looks_on.leave(Duration::from_secs(1));
            solution.map(|solution| (solution, history, timelines)).map_err(Error::from)
        }
        Err(why) => Err(why.into()),
    };
    line.clear();
    let (solution, mut history, timelines) = gathered.map_err(|why| failed.unwrap_or(why))?;
    let seconds = begin.elapsed().as_secs_f64();
    processes.wait();
    history.push((seconds, solution.certificate.bound));
    let told = Told::new(&solution, args.scheme, peers, parts, bound, seconds);
    if let Some(directory) = &args.output {
        write_files(directory, &solution, &told, (&history, bound), &timelines)?;
    }
    if args.json {
        output::print_line(&serde_json::to_string(&told).expect("numbers and names"));
    } else {
        output::print(&summary(&told, args.output.as_deref()));
    }
    Ok(())
}

/// Hosts that are named.
fn hosts(args: &Obstacle) -> Result<Vec<Host>, Error> {
    let mut hosts = args.hosts.clone();
    if let Some(file) = &args.hostfile {
        hosts.extend(hosts_of(file)?);
    }
    Ok(hosts)
}

/// The largest distance, once all have told of theirs.
fn worst(far: &[Option<Progress>]) -> Option<f64> {
    let known: Vec<f64> = far.iter().flatten().map(|progress| progress.distance).collect();
    // the one who looks on tells of none
    (known.len() + 1 == far.len()).then(|| known.into_iter().fold(0.0, f64::max))
}

/// A summary with what each process did by time.
#[derive(Serialize)]
struct Written<'a> {
    #[serde(flatten)]
    told: &'a Told,
    timelines: &'a [Timeline],
}

fn write_files(
    directory: &Path,
    solution: &Solution,
    told: &Told,
    (history, bound): (&[(f64, f64)], f64),
    timelines: &Timelines,
) -> Result<(), Error> {
    let at = |name: &str| directory.join(name);
    let failed = |name: &str| {
        let path = at(name).display().to_string();
        move |error| Error::system(format!("writing {path}"), error)
    };
    let file = File::create(at("solution.vti")).map_err(failed("solution.vti"))?;
    write_vti(solution, BufWriter::new(file)).map_err(failed("solution.vti"))?;
    let whole = Written { told, timelines: timelines.lines() };
    let text = serde_json::to_string_pretty(&whole).expect("numbers and names");
    fs::write(at("summary.json"), text + "\n").map_err(failed("summary.json"))?;
    let drawn = |name: &str, done: Result<(), String>| {
        done.map_err(|why| Error::Use(format!("drawing {}: {why}", at(name).display())))
    };
    drawn("convergence.svg", picture::convergence(&at("convergence.svg"), history, bound))?;
    drawn("timelines.svg", timelines.draw(&at("timelines.svg")))?;
    drawn("solution.svg", picture::cut(&at("solution.svg"), solution))
}

/// The line of progress, at a terminal.
struct Line {
    shown: Option<Instant>,
    terminal: bool,
}

impl Line {
    fn new() -> Self {
        Self { shown: None, terminal: std::io::stderr().is_terminal() }
    }

    fn show(&mut self, problem: &Problem, far: &[Option<Progress>], bound: f64, seconds: f64) {
        if !self.terminal || self.shown.is_some_and(|shown| shown.elapsed() < LINE) {
            return;
        }
        self.shown = Some(Instant::now());
        let Some(distance) = worst(far) else { return };
        let now = certify::certificate(problem, distance).bound;
        let all = || far.iter().flatten();
        let least = all().map(|one| one.iterations).min().unwrap_or_default();
        let most = all().map(|one| one.iterations).max().unwrap_or_default();
        let age = all().map(|one| one.age).fold(0.0, f64::max);
        tell!(
            "\x1b[1A\x1b[2K{seconds:.1} s: within {now:.1e} of {bound:.1e}; {least} to {most} iterations; oldest value {:.1} ms",
            age * 1e3
        );
    }

    fn clear(&mut self) {
        if self.shown.take().is_some() {
            tell!("\x1b[1A\x1b[2K");
        }
    }
}
