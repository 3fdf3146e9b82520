//! `polyrail trace`: runs any program, unchanged, and records what it says on the network and what TCP does to it.
//!
//! The recorder is a library that the loader puts into the program and its children (`crates/preload`); what it writes to shared memory
//! is collected here, into files of the run's directory, while the program runs. Processes on other hosts start a collector there by
//! themselves (`--collect`).

mod live;

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use polyrail_core::trace::ring::session;
use polyrail_trace::blocks::{CommandBlock, TotalsBlock};
use polyrail_trace::collect::{Collector, PERIOD, realtime};
use polyrail_trace::options::{Options, Refused};
use polyrail_trace::session::remove_leftovers;
use polyrail_trace::unseen::How;

use crate::output;
use crate::parts::{Missing, Part};
use crate::signals::{self, exit_code};

/// Nothing was started.
const NOT_STARTED: u8 = 125;
/// What recorders read; see `crates/preload`.
const DIRECTORY: &str = "POLYRAIL_TRACE";
const RUN: &str = "POLYRAIL_TRACE_TO";
const PROGRAM: &str = "POLYRAIL_TRACE_BY";
const KERNEL: &str = "POLYRAIL_TRACE_KERNEL";
const OPTIONS: &str = "POLYRAIL_TRACE_OPTIONS";
/// How long a collector that a recorder has started stays when nothing more is recorded.
const LINGER: Duration = Duration::from_secs(5);

/// Records every socket call, MPI call and TCP connection of a program and all that it starts, on all hosts.
#[derive(clap::Args)]
#[command(
    override_usage = "polyrail trace [OPTIONS] -- COMMAND [ARGUMENTS]...\n       polyrail trace [OPTIONS] --pid PID",
    after_help = "Examples:\n  \
                  polyrail trace -o seen -- mpiexec -n 4 ./app\n  \
                  polyrail trace -o seen --for 30s --pid 4711\n  \
                  polyrail trace -o seen --live -- ./client server 7000\n\
                  Exit status: the command's own; 125 if it was not started. Look at the recording by: polyrail report DIRECTORY"
)]
pub struct Args {
    /// Directory for the recording: a new one, or one without a recording
    #[arg(short, long, value_name = "DIRECTORY", default_value = "polyrail-trace")]
    output: PathBuf,
    /// Write a record for each call, also for polls that found nothing (else runs of them are counted in one)
    #[arg(long)]
    every_call: bool,
    /// Lose records where they cannot be collected fast enough, rather than have the program wait: five seconds at most each time
    #[arg(long)]
    drop: bool,
    /// Record for so long alone, such as 30s or 5min; the command goes on to its end
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    time: Option<Duration>,
    /// Record so much on each host at most, such as 500M or 4G
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_size: Option<u64>,
    /// Keep the last seconds alone, in memory (256M at most, or --max-size): written at the end, and to DIRECTORY/1, DIRECTORY/2 and so on
    /// whenever this gets the signal USR1
    #[arg(long, value_name = "TIME", value_parser = time)]
    last: Option<Duration>,
    /// Only these programs, by name
    #[arg(long = "program", value_name = "NAME", value_delimiter = ',')]
    programs: Vec<String>,
    /// Only connections that have one of these ports at one of their ends
    #[arg(long = "port", value_name = "PORT", value_delimiter = ',')]
    ports: Vec<u16>,
    /// Only these functions, such as send, 'recv*', 'MPI_*'
    #[arg(long = "call", value_name = "FUNCTION", value_delimiter = ',')]
    calls: Vec<String>,
    /// Record a process that runs already, in place of a command, until it ends or this is interrupted (as root the kernel records it; else it is followed by ptrace, which makes it slower)
    #[arg(long, value_name = "PID", conflicts_with_all = ["command", "live", "programs", "ports", "calls", "every_call", "drop"])]
    pid: Option<u32>,
    /// Leave MPI calls out
    #[arg(long)]
    no_mpi: bool,
    /// Leave kernel events out (they are recorded where root allows)
    #[arg(long)]
    no_kernel: bool,
    /// Show connections on the terminal while the command runs: by rate, with window and retransmissions. What the command prints goes to
    /// the files stdout and stderr in the directory, and is shown when it has ended
    #[arg(long)]
    live: bool,
    /// Collect for recorders that have found no collector on this host (they start this themselves)
    #[arg(long, value_name = "SESSION", hide = true)]
    collect: Option<PathBuf>,
    /// The command to record, and its arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// A time as people write it.
fn time(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if !time.is_zero() => Ok(time),
        Ok(_) => Err("that is no time at all".into()),
        Err(why) => Err(format!("{why}; times are like 500ms, 30s, 5min, 2h")),
    }
}

/// Bytes as people write them.
fn size(text: &str) -> Result<u64, String> {
    match crate::units::size(text)? {
        size if size >= 1 << 20 => Ok(size),
        _ => Err("a recording takes 1M at least".into()),
    }
}

impl Args {
    /// What recorders and collectors are told.
    fn options(&self) -> Result<Options, Error> {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut options = Options {
            bits: self.bits(),
            no_kernel: self.no_kernel,
            until: self.time.map(|time| realtime().saturating_add(nanoseconds(time))),
            most: self.max_size,
            last: self.last.map(nanoseconds),
            programs: self.programs.clone(),
            ports: self.ports.clone(),
            ..Options::default()
        };
        options.calls(&self.calls)?;
        options.check()?;
        Ok(options)
    }

    fn bits(&self) -> u32 {
        [
            (self.every_call, session::OPTION_EVERY_CALL),
            (self.no_mpi, session::OPTION_NO_MPI),
            (self.drop, session::OPTION_DROP),
        ]
        .iter()
        .filter(|(chosen, _)| *chosen)
        .fold(0, |bits, (_, bit)| bits | bit)
    }
}

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("it cannot be recorded: {0}")]
    Attach(io::Error),
    #[error("no command was given: polyrail trace -o DIRECTORY -- COMMAND")]
    NoCommand,
    #[error(transparent)]
    NoRecorder(#[from] Missing),
    #[error("{} holds a recording already; remove it or choose another directory by -o", .0.display())]
    Recorded(PathBuf),
    #[error(transparent)]
    Options(#[from] Refused),
    #[error("nothing can be recorded: {0}")]
    Begin(io::Error),
    #[error("--live needs a terminal: {0}")]
    Live(io::Error),
    #[error("signals cannot be handed on: {0}")]
    Signals(io::Error),
    #[error("{}: {source}", .command.display())]
    Start { command: OsString, source: io::Error },
}

/// Runs the subcommand; the exit status is the one to end with.
pub fn main(args: &Args) -> ExitCode {
    let outcome = match (&args.collect, args.pid) {
        (Some(session), _) => collect(session, &args.output),
        (None, Some(pid)) => attach(args, pid),
        (None, None) => record(args),
    };
    outcome.map_or_else(
        |error| {
            output::tell!("polyrail trace: {error}");
            ExitCode::from(NOT_STARTED)
        },
        ExitCode::from,
    )
}

/// The recorder: in the directory that the user names, else where this command's parts are.
fn recorder() -> Result<PathBuf, Error> {
    let chosen: Vec<PathBuf> =
        std::env::var_os("POLYRAIL_RECORDER_DIR").map(PathBuf::from).into_iter().collect();
    Ok(Part::Recorder.find(&chosen)?)
}

fn holds_recording(directory: &Path) -> bool {
    let ends = |name: &OsStr| Path::new(name).extension().is_some_and(|end| end == "trace");
    let is_picture = |name: &OsStr| name.to_str().is_some_and(|name| name.parse::<u32>().is_ok());
    std::fs::read_dir(directory).is_ok_and(|entries| {
        entries.flatten().any(|entry| {
            let name = entry.file_name();
            ends(&name) || is_picture(&name) && holds_recording(&entry.path())
        })
    })
}

/// A session's directory that nobody else has.
fn session_directory() -> PathBuf {
    let mut bytes = [0; 8];
    let random = getrandom::fill(&mut bytes).map_or_else(|_| realtime(), |()| u64::from_le_bytes(bytes));
    PathBuf::from(format!("/dev/shm/polyrail-trace-{}-{random:016x}", std::process::id()))
}

/// The directory of a new recording.
fn new_run(args: &Args) -> Result<PathBuf, Error> {
    let run = std::path::absolute(&args.output).map_err(Error::Begin)?;
    if holds_recording(&run) { Err(Error::Recorded(run)) } else { Ok(run) }
}

/// Records a process that runs already.
fn attach(args: &Args, pid: u32) -> Result<u8, Error> {
    let options = args.options()?;
    let run = new_run(args)?;
    let directory = session_directory();
    remove_leftovers(&directory);
    let mut collector = Collector::begin(&directory, &run, options).map_err(Error::Begin)?;
    let [end, asked] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let flags = [(signals::INT, &end), (signals::TERM, &end), (signals::USR1, &asked)];
    for (signal, flag) in flags {
        if let Err(why) = signal_hook::flag::register(signal, Arc::clone(flag)) {
            return Err(abandon(collector, Error::Signals(why)));
        }
    }
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = command.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let words = words.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    let how = match collector.attach(pid) {
        Ok(how) => how,
        Err(why) => return Err(abandon(collector, Error::Attach(why))),
    };
    let mut command = CommandBlock { words, date: realtime(), ..CommandBlock::default() };
    collector.command(&command);
    let how = match how {
        How::Kernel => "by the kernel",
        How::Followed => {
            "by ptrace, which makes each of its system calls slower (as root the kernel may do so at little cost)"
        }
    };
    output::tell!(
        "polyrail trace: recording process {pid} {how}; an interrupt ends that, and not the process"
    );
    while !end.load(Ordering::Relaxed) && !collector.has_ended() && !collector.attached_is_over() {
        collector.round();
        picture(&mut collector, &asked);
        collector.rest();
    }
    (command.status, command.left) = (collector.attached_status(), true);
    collector.command(&command);
    conclude(args, &run, collector);
    Ok(0)
}

fn record(args: &Args) -> Result<u8, Error> {
    let (program, arguments) = args.command.split_first().ok_or(Error::NoCommand)?;
    let options = args.options()?;
    let handed_on_options = options.to_text();
    let recorder = recorder()?;
    let run = new_run(args)?;
    let directory = session_directory();
    remove_leftovers(&directory);
    let mut collector = Collector::begin(&directory, &run, options).map_err(Error::Begin)?;
    let mut words = CommandBlock {
        words: args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        date: realtime(),
        ..CommandBlock::default()
    };
    collector.command(&words);

    let held = match signals::hold() {
        Ok(held) => held,
        Err(why) => return Err(abandon(collector, Error::Signals(why))),
    };
    // a program that preloading cannot see is started by a shell that has the recorder, which then tells of it
    let mut command = Command::new("/bin/sh");
    match polyrail_trace::unseen::is_static(program) {
        true => command.args(["-c", "exec \"$@\"", "sh"]).arg(program),
        false => {
            command = Command::new(program);
            &mut command
        }
    };
    command.args(arguments).env(DIRECTORY, &directory).env(RUN, &run);
    command.env(OPTIONS, handed_on_options);
    if collector.has_kernel() {
        command.env(KERNEL, "1");
    }
    if let Ok(program) = std::env::current_exe() {
        command.env(PROGRAM, program);
    }
    let mut preload = recorder.clone().into_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    command.env("LD_PRELOAD", preload);
    // Open MPI hands on to other hosts only what it is told to
    command.env("OMPI_MCA_mca_base_env_list", handed_on());

    let mut screen = None;
    if args.live {
        match take_terminal(&mut command, &run) {
            Ok(taken) => screen = Some(taken),
            Err(why) => return Err(abandon(collector, Error::Live(why))),
        }
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(source) => {
            drop(screen);
            return Err(abandon(collector, Error::Start { command: program.clone(), source }));
        }
    };
    more_descriptors();
    // asked for a picture of the last seconds
    let asked = Arc::new(AtomicBool::new(false));
    let kept = args.last.map(|_| (signals::USR1, Arc::clone(&asked)));
    held.forward_to(child.id(), kept);
    let status = follow(&mut child, &mut collector, screen.as_mut(), &asked);
    if screen.take().is_some() {
        show_output(&run);
    }
    words.status = Some(i32::from(status));
    collector.command(&words);
    conclude(args, &run, collector);
    Ok(status)
}

/// Ends a recording, and says what became of it.
fn conclude(args: &Args, run: &Path, collector: Collector) {
    let own = collector.path.clone();
    let totals = collector.end();
    let others = wait_for_others(run, &own);
    let (mut records, mut processes, mut lost) = (totals.records, totals.processes, totals.lost);
    for other in &others {
        let told = polyrail_trace::file::last(other, polyrail_trace::blocks::kind::TOTALS);
        let told: TotalsBlock = told.and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or_default();
        records = records.saturating_add(told.records);
        processes = processes.saturating_add(told.processes);
        lost = lost.saturating_add(told.lost);
    }
    // a host may have had several collectors, one after the other
    let host = |path: &PathBuf| path.file_stem()?.to_str()?.rsplit_once('-').map(|(host, _)| host.to_owned());
    let hosts = match others.iter().chain([&own]).filter_map(host).collect::<HashSet<_>>().len() {
        0 | 1 => String::new(),
        hosts => format!(" on {hosts} hosts"),
    };
    for warning in &totals.warnings {
        output::tell!("polyrail trace: {warning}");
    }
    if !totals.any {
        output::tell!(
            "polyrail trace: nothing was recorded: no process of the command loaded the recorder. Static programs, and most Go \
             programs, are recorded only as root"
        );
    }
    let lost = if lost > 0 { format!(", {lost} lost,") } else { String::new() };
    output::tell!(
        "polyrail trace: {records} records of {processes} processes{hosts}{lost} in {}; look at them by: polyrail report {}",
        args.output.display(),
        args.output.display()
    );
}

/// Writes the last seconds, if somebody asked for them.
fn picture(collector: &mut Collector, asked: &AtomicBool) {
    if asked.swap(false, Ordering::Relaxed) {
        match collector.picture() {
            Ok(place) => output::tell!("polyrail trace: the last seconds are in {}", place.display()),
            Err(why) => output::tell!("polyrail trace: the last seconds could not be written: {why}"),
        }
    }
}

/// Leaves nothing behind of a recording that did not begin.
fn abandon(collector: Collector, why: Error) -> Error {
    let path = collector.path.clone();
    collector.end();
    let _ = std::fs::remove_file(&path);
    // only if it was made for this
    let _ = path.parent().map(std::fs::remove_dir);
    why
}

/// Collects until the command ends; its exit status.
fn follow(
    child: &mut Child,
    collector: &mut Collector,
    mut screen: Option<&mut live::Screen>,
    asked: &AtomicBool,
) -> u8 {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                collector.round();
                return exit_code(status);
            }
            Ok(None) => {}
            Err(why) => {
                output::tell!("polyrail trace: the command cannot be waited for: {why}");
                return 1;
            }
        }
        collector.round();
        picture(collector, asked);
        if let Some(screen) = screen.as_mut().filter(|screen| screen.is_due()) {
            collector.flush();
            // a terminal that is gone ends the picture, not the recording
            let _ = screen.draw();
        }
        collector.rest();
    }
}

/// The terminal becomes the live picture's; what the command prints goes to files.
fn take_terminal(command: &mut Command, run: &Path) -> io::Result<live::Screen> {
    if !io::stdout().is_terminal() {
        return Err(io::Error::other("the standard output is none"));
    }
    command.stdin(Stdio::null());
    command.stdout(new_file(&run.join("stdout"))?).stderr(new_file(&run.join("stderr"))?);
    live::Screen::open(run)
}

/// A file of this user's alone, in the place of whatever had that name.
fn new_file(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
        _ => {}
    }
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

/// What the command has printed meanwhile.
fn show_output(run: &Path) {
    // who reads this may have had enough
    let copy = |name: &str, to: &mut dyn io::Write| {
        File::open(run.join(name)).and_then(|mut file| io::copy(&mut file, to))
    };
    let _ = copy("stdout", &mut io::stdout());
    let _ = copy("stderr", &mut io::stderr());
}

/// Each recorded thread's ring is an open file here. After the command was started, which is to have the limits that it would have.
fn more_descriptors() {
    use nix::sys::resource::{Resource::RLIMIT_NOFILE, getrlimit, setrlimit};
    if let Ok((_, most)) = getrlimit(RLIMIT_NOFILE) {
        let _ = setrlimit(RLIMIT_NOFILE, most, most);
    }
}

/// For Open MPI's list of variables that all hosts get.
fn handed_on() -> String {
    let mut list: Vec<String> = std::env::var("OMPI_MCA_mca_base_env_list")
        .ok()
        .filter(|list| !list.is_empty())
        .into_iter()
        .collect();
    list.extend(["LD_PRELOAD", DIRECTORY, RUN, PROGRAM, KERNEL, OPTIONS].map(String::from));
    list.join(";")
}

/// Collectors of other hosts end by themselves; their files, which are whole when each ends with an idle block.
fn wait_for_others(run: &Path, own: &Path) -> Vec<PathBuf> {
    let until = Instant::now() + Duration::from_secs(3);
    let others = || -> Vec<PathBuf> {
        let entries = std::fs::read_dir(run).into_iter().flatten().flatten();
        let traces = entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "trace"));
        traces.filter(|path| path != own).collect()
    };
    if others().is_empty() {
        return Vec::new();
    }
    let busy = || others().iter().any(|path| !polyrail_trace::file::is_idle(path));
    // looked at several times: they see new rings only after a moment
    let mut quiet = 0;
    while quiet < 4 && Instant::now() < until {
        quiet = if busy() { 0 } else { quiet + 1 };
        std::thread::sleep(PERIOD);
    }
    others()
}

/// A collector that recorders of this host have started.
fn collect(session: &Path, run: &Path) -> Result<u8, Error> {
    more_descriptors();
    // as the recorder that starts this has got them
    let options = std::env::var(OPTIONS).map_or_else(|_| Options::default(), |text| Options::of_text(&text));
    let mut collector = Collector::begin(session, run, options).map_err(Error::Begin)?;
    let mut idle_since = Instant::now();
    let mut kept = true;
    while idle_since.elapsed() < LINGER {
        collector.round();
        if !collector.is_idle() {
            idle_since = Instant::now();
            kept = false;
        } else if !kept {
            collector.keep();
            kept = true;
        }
        collector.rest();
    }
    collector.leave();
    Ok(0)
}
