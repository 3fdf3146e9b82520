//! Commands that end with the one that started them, even when that is killed: the launcher of a job, which would go on alone.
//!
//! The kernel is told by the process itself, so this command starts itself first, tells it, and becomes the launcher.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, parent_id};
use std::process::{Child, Command, ExitCode};

use nix::sys::prctl;
use nix::sys::signal::Signal;

use crate::output;

/// The first word of this command when it is to become another.
const WORD: &str = "--become";
/// Nothing was started.
const NOT_STARTED: u8 = 125;

/// Starts a command that gets SIGTERM when this thread ends, however it ends.
///
/// # Errors
/// The system cannot start a process. That there is no such program, the process itself says, and ends with 125.
pub fn spawn_bound(command: &Command) -> io::Result<Child> {
    bound(command).spawn()
}

/// The command that [`spawn_bound`] starts: its standard input and output can be set.
pub fn bound(command: &Command) -> Command {
    let mut bound = Command::new("/proc/self/exe");
    bound.arg(WORD).arg(std::process::id().to_string()).arg(command.get_program()).args(command.get_args());
    hand_on_environment(command, &mut bound);
    bound
}

/// What one command changes of its environment, another changes, too.
pub fn hand_on_environment(from: &Command, to: &mut Command) {
    for (name, value) in from.get_envs() {
        match value {
            Some(value) => to.env(name, value),
            None => to.env_remove(name),
        };
    }
}

/// Becomes what it is told to, if this process was started by [`spawn_bound`]; none if it was not.
pub fn become_bound() -> Option<ExitCode> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let [_, word, parent, program, arguments @ ..] = &words[..] else { return None };
    if word != WORD {
        return None;
    }
    let parent: u32 = parent.to_str()?.parse().ok()?;
    let bound = prctl::set_pdeathsig(Signal::SIGTERM);
    // it was gone before the kernel could be told
    if bound.is_ok() && parent_id() != parent {
        return Some(ExitCode::from(NOT_STARTED));
    }
    let error = Command::new(program).args(arguments).exec();
    output::tell!("polyrail: cannot start {}: {error}", program.display());
    Some(ExitCode::from(NOT_STARTED))
}
