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
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
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

use crate::output::tell;
use crate::{gateway, signals};

/// Where programs call the gateway, where no option says so.
const GATEWAY: &str = "POLYRAIL_GATEWAY";
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
    #[arg(long)]
    if_known: bool,
    /// Say each connection that goes through the gateway
    #[arg(short, long)]
    verbose: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Runs the subcommand; the exit status is the program's own.
pub fn main(args: &Args) -> ExitCode {
    let begun = match gateway_address(args.gateway.as_deref()) {
        Ok(Some(at)) if args.doctor => return doctor::main(&args.program, at),
        Ok(Some(at)) => run(args, at),
        Ok(None) if args.if_known => Err(run_plainly(args)),
        Ok(None) => Err(format!(
            "no gateway is known: say --gateway HOST:PORT, or set {GATEWAY}, or run polyrail gateway init on this host"
        )),
        Err(why) => Err(why),
    };
    begun.unwrap_or_else(|why| {
        tell!("polyrail wrap: {why}");
        ExitCode::from(NOT_STARTED)
    })
}

/// Becomes the program; why it could not.
fn run_plainly(args: &Args) -> String {
    let why = Command::new(&args.program[0]).args(&args.program[1..]).exec();
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
        let mut found: Vec<SocketAddr> = found.collect();
        // sockets of either family can be connected with an IPv4 address
        found.sort_by_key(SocketAddr::is_ipv6);
        return found.first().copied().map(Some).ok_or_else(|| format!("{text:?} has no address"));
    }
    let Some(path) = gateway::usual_path().filter(|path| path.exists()) else { return Ok(None) };
    let config = Config::read(&path).map_err(|why| why.to_string())?;
    Ok(config.file.listen.first().copied())
}

fn run(args: &Args, at: SocketAddr) -> Result<ExitCode, String> {
    if at.is_ipv6() && at.ip().to_canonical().is_ipv6() {
        return Err(format!(
            "{at}: sockets of IPv4 could not be connected with the gateway there; let it listen at an address of IPv4, too"
        ));
    }
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
    command.args(&args.program[1..]).env_remove(GATEWAY);
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
    if !answers.is_finished() {
        tell!(
            "polyrail wrap: the program has ended, but not all that it started; this goes on for as long, as their connections need it"
        );
        thread::spawn(reap);
        // it says what went wrong, if anything
        let _ = answers.join();
    }
    Ok(status)
}

/// Waits for a child, and meanwhile for all others that come to this process. Once it has ended its number is nobody's.
fn wait_for(child: u32, current: &AtomicU32) -> io::Result<ExitCode> {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get().cast_unsigned() == child => {
                current.store(0, Ordering::Release);
                let code = status.exit_status().or(status.terminating_signal().map(|signal| 128 + signal));
                return Ok(ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)));
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
