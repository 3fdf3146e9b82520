//! `polyrail wrap`: any program, so that its connections to other sites' addresses go through this site's gateway.
//!
//! The kernel stops the program where it connects a socket (`polyrail_native::seccomp`); `supervisor` looks whether the address is another
//! site's, and then connects the program's own socket with the gateway, and asks that to connect the other half. What the program sends and receives
//! afterwards nobody looks at. `ways` knows which addresses those are, `process` what can be seen and done of another process, `doctor` says what
//! will be seen of a program; `agent` has what launchers start on other hosts wrapped there.

pub mod agent;
mod doctor;
mod process;
mod supervisor;
mod ways;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use polyrail_gateway::config::Config;
use polyrail_native::seccomp;
use polyrail_rails::config;
use rustix::io::Errno;
use rustix::process::WaitOptions;

use crate::launch::spawn_bound;
use crate::output::tell;
use crate::{gateway, signals};

/// Where programs call the gateway, where no option says so.
const GATEWAY: &str = "POLYRAIL_GATEWAY";
/// The same as libfabric would call it: what a program starts on other hosts has another gateway.
pub const NAMES: [&str; 2] = [GATEWAY, "FI_POLYRAIL_GATEWAY"];
/// How soon after its end it is known that nobody is left, also on a busy machine.
const SOON: Duration = Duration::from_millis(500);
/// Nothing was started.
const NOT_STARTED: u8 = 125;

/// Runs any program so that its connections to other sites go through this site's gateway.
#[derive(Clone, clap::Args)]
pub struct Args {
    /// Where the gateway is called [default: the setting POLYRAIL_GATEWAY, else what ~/.config/polyrail/site.toml says]
    #[arg(long, value_name = "HOST:PORT")]
    gateway: Option<String>,
    /// Say what will be seen of the program, and why; start nothing
    #[arg(long)]
    doctor: bool,
    /// Let programs use io_uring, by which they can connect unseen (else they are told that this kernel has none, and use other ways)
    #[arg(long)]
    io_uring: bool,
    /// Where no gateway is known, or none answers, run the program all the same
    #[arg(long, conflicts_with = "doctor")]
    if_known: bool,
    /// A descriptor to which the program's status is written
    #[arg(long, hide = true, requires = "if_known", value_name = "FD")]
    status_to: Option<RawFd>,
    /// Say each connection that goes through the gateway
    #[arg(short, long)]
    verbose: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Runs the subcommand; the exit status is the program's own.
pub fn main(args: &Args) -> ExitCode {
    let begun = if args.if_known { run_if_known(args) } else { run_wrapped(args) };
    begun.unwrap_or_else(|why| {
        tell!("polyrail wrap: {why}");
        ExitCode::from(NOT_STARTED)
    })
}

fn run_wrapped(args: &Args) -> Result<ExitCode, String> {
    match gateway_address(args.gateway.as_deref())? {
        Some(at) if args.doctor => Ok(doctor::main(&args.program, at)),
        Some(at) => run(args, at, None),
        None => Err(format!(
            "no gateway is known: say --gateway HOST:PORT, or set {GATEWAY}, or run polyrail gateway init on this host"
        )),
    }
}

/// For launchers: who waits for the program waits for no more than that, also where it leaves others running. Whatever keeps it from being wrapped does
/// not keep it from being run.
fn run_if_known(args: &Args) -> Result<ExitCode, String> {
    // what is told by a file of the gateway's own operator is not meant for all hosts that share his home
    let known =
        args.gateway.is_some() || config::Config::from_env().is_ok_and(|settings| settings.gateway.is_some());
    let tells =
        args.status_to.map(seccomp::inherited).transpose().map_err(|why| format!("--status-to: {why}"))?;
    match (known, args.status_to) {
        (false, _) => Err(run_plainly(args)),
        (true, None) => in_another(args),
        (true, Some(_)) => match gateway_address(args.gateway.as_deref()) {
            Ok(Some(at)) => run(args, at, tells),
            Ok(None) => Err(run_plainly(args)),
            Err(why) => {
                tell!("polyrail wrap: no other site is reached: {why}");
                Err(run_plainly(args))
            }
        },
    }
}

/// Has another process wrap the program, which stays for as long as it is needed; this one ends with the program.
fn in_another(args: &Args) -> Result<ExitCode, String> {
    let begun = |why: io::Error| format!("cannot start anything: {why}");
    let held = signals::hold().map_err(begun)?;
    // the one that inherits it is this command again, which keeps it from the program
    let (told, tells) = rustix::pipe::pipe().map_err(|why| begun(why.into()))?;
    rustix::io::fcntl_setfd(&told, rustix::io::FdFlags::CLOEXEC).map_err(|why| begun(why.into()))?;
    let mut other = Command::new(std::env::current_exe().map_err(begun)?);
    other.args(["wrap", "--if-known", "--status-to", &tells.as_raw_fd().to_string()]);
    other
        .args(args.gateway.iter().map(|at| format!("--gateway={at}")))
        .args(args.io_uring.then_some("--io-uring"));
    other.args(args.verbose.then_some("--verbose")).arg("--").args(&args.program);
    let mut other = spawn_bound(&other).map_err(begun)?;
    drop(tells);
    held.forward_to(other.id(), None);
    let mut status = [0];
    match File::from(told).read(&mut status) {
        Ok(1) => Ok(ExitCode::from(status[0])),
        _ => Ok(ExitCode::from(signals::exit_code(other.wait().map_err(begun)?))),
    }
}

/// The program has ended, and who waits for it is told; this goes on by itself, and holds nothing that anybody waits for.
fn stay_behind(status: u8, tells: OwnedFd) {
    let _ = nix::sys::prctl::set_pdeathsig(None);
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
    // who is gone already does not need to know
    let _ = File::from(tells).write_all(&[status]);
}

/// Becomes the program; why it could not.
fn run_plainly(args: &Args) -> String {
    let _ = rustix::process::set_child_subreaper(None);
    let mut program = Command::new(&args.program[0]);
    NAMES.iter().for_each(|name| _ = program.env_remove(name));
    let why = program.args(&args.program[1..]).exec();
    format!("{}: {why}", args.program[0].to_string_lossy())
}

/// Where this host's gateway is called; none: none is known.
///
/// # Errors
/// What is said of it cannot be.
pub fn gateway_address(said: Option<&str>) -> Result<Option<SocketAddr>, String> {
    let set = match said {
        Some(_) => None,
        None => config::Config::from_env().map_err(|why| why.to_string())?.gateway,
    };
    if let Some(text) = said.map(str::to_owned).or(set) {
        let found = text
            .to_socket_addrs()
            .map_err(|why| format!("{text:?}, where the gateway is said to be: {why}"))?;
        return by_either(found).map(Some).ok_or_else(|| format!("{text:?} has no address"));
    }
    let Some(path) = gateway::usual_path().filter(|path| path.exists()) else { return Ok(None) };
    let config = Config::read(&path).map_err(|why| why.to_string())?;
    Ok(by_either(config.file.listen))
}

/// The one that sockets of most families can be connected with: either can with one of IPv4.
fn by_either(all: impl IntoIterator<Item = SocketAddr>) -> Option<SocketAddr> {
    // who listens at all addresses listens at this host's own
    let near = |at: SocketAddr| match at.ip().is_unspecified() {
        true => (Ipv4Addr::LOCALHOST, at.port()).into(),
        false => at,
    };
    all.into_iter().map(near).min_by_key(|at| at.ip().to_canonical().is_ipv6())
}

/// Who waits for the program is told its status by `tells`, if anything that it started is left then.
fn run(args: &Args, at: SocketAddr, tells: Option<OwnedFd>) -> Result<ExitCode, String> {
    let ways = match ways::Ways::find(at) {
        Err(why) if args.if_known => {
            tell!("polyrail wrap: no gateway answers at {at}, and no other site is reached: {why}");
            return Err(run_plainly(args));
        }
        found => found.map_err(|why| format!("no gateway answers at {at}: {why}"))?,
    };
    if ways.is_empty() {
        tell!(
            "polyrail wrap: the gateway at {at} leads nowhere yet; it is asked again while the program runs"
        );
    }
    let mut command = Command::new(&args.program[0]);
    // all that it starts here is wrapped; what it starts elsewhere, as launchers do, has another gateway
    command.args(&args.program[1..]);
    NAMES.iter().for_each(|name| _ = command.env_remove(name));
    // from here on, so that none is lost
    let held = signals::hold().map_err(|why| why.to_string())?;
    let rules = supervisor::rules(args.io_uring);
    // what the program leaves running becomes this process's child, and can still be looked into
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let (child, listener) = seccomp::spawn(&mut command, &rules).map_err(|why| {
        if args.if_known {
            // who answers already may be one of these
            if why.raw_os_error() != Some(nix::libc::EBUSY) {
                tell!("polyrail wrap: no other site is reached, as this kernel does not show what a program calls: {why}");
            }
            return run_plainly(args);
        }
        let name = args.program[0].to_string_lossy();
        match why.raw_os_error() {
            Some(nix::libc::EBUSY) => format!("{name}: who started this process answers its system calls already (a container's runtime, or another polyrail wrap)"),
            Some(nix::libc::ENOSYS | nix::libc::EINVAL) => {
                format!("{name}: this kernel cannot show one process another's system calls, which needs Linux 5.19: {why}")
            }
            _ => format!("{name}: {why}"),
        }
    })?;
    let current = Arc::new(AtomicU32::new(child.id()));
    held.forward_to_current(current.clone());
    let answers = supervisor::begin(listener, ways, args.verbose).map_err(|why| why.to_string())?;
    let status = wait_for(child.id(), &current).map_err(|why| format!("waiting for the program: {why}"))?;
    let ended = Instant::now();
    while !answers.is_finished() && ended.elapsed() < SOON {
        thread::sleep(Duration::from_millis(2));
    }
    if let (Some(tells), false) = (tells, answers.is_finished()) {
        stay_behind(status, tells);
        thread::spawn(reap);
        let _ = answers.join();
    } else if !answers.is_finished() {
        tell!(
            "polyrail wrap: the program has ended, but not all that it started; this goes on for as long, as their connections need it"
        );
        thread::spawn(reap);
        // it says what went wrong, if anything
        let _ = answers.join();
    }
    Ok(ExitCode::from(status))
}

/// Waits for a child, and meanwhile for all others that come to this process. Once it has ended its number is nobody's.
fn wait_for(child: u32, current: &AtomicU32) -> io::Result<u8> {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get().cast_unsigned() == child => {
                current.store(0, Ordering::Release);
                let code = status.exit_status().or(status.terminating_signal().map(|signal| 128 + signal));
                return Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(why) => return Err(why.into()),
        }
    }
}

/// Takes note of the end of whatever comes to this process.
fn reap() {
    while !matches!(rustix::process::wait(WaitOptions::empty()), Err(Errno::CHILD)) {}
}
