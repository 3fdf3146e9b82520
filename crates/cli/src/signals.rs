//! Commands that stand for another: they hand on to it the signals that they get, and end as it does.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use nix::libc;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::Cause;

/// What a user may send to say something of their own.
pub const USR1: i32 = libc::SIGUSR1;
/// Interrupt from the terminal.
pub const INT: i32 = libc::SIGINT;
/// A terminal went; or: read what may have changed.
pub const HUP: i32 = libc::SIGHUP;
/// The polite end.
pub const TERM: i32 = libc::SIGTERM;

const FORWARDED: [i32; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

/// Signals that are kept until there is a process to hand them to.
pub struct Held(SignalsInfo<WithOrigin>);

/// Keeps signals from here on. Programs that are started get them as ever: handlers do not outlive `exec`.
///
/// # Errors
/// The system has no descriptor left.
pub fn hold() -> io::Result<Held> {
    SignalsInfo::new(FORWARDED).map(Held)
}

impl Held {
    /// Hands signals to process `pid` for as long as this process lives, but for one that is `kept`: it sets a flag.
    pub fn forward_to(self, pid: u32, kept: Option<(i32, Arc<AtomicBool>)>) {
        self.hand_on(Arc::new(AtomicU32::new(pid)), kept);
    }

    /// Hands signals to the process whose number stands there. While it is 0, because that process has ended, this one ends by them, as it would by
    /// itself.
    pub fn forward_to_current(self, pid: Arc<AtomicU32>) {
        self.hand_on(pid, None);
    }

    fn hand_on(mut self, pid: Arc<AtomicU32>, kept: Option<(i32, Arc<AtomicBool>)>) {
        std::thread::spawn(move || {
            for origin in self.0.forever() {
                if let Some((signal, flag)) = &kept
                    && *signal == origin.signal
                {
                    flag.store(true, Ordering::Relaxed);
                    continue;
                }
                let now = pid.load(Ordering::Acquire);
                if now == 0 {
                    std::process::exit(128 + origin.signal);
                }
                // What the terminal sends, it sends to the launcher as well; twice means "at once" to some launchers.
                let from_terminal = origin.cause == Cause::Kernel;
                if let Ok(signal) = Signal::try_from(origin.signal)
                    && !from_terminal
                {
                    // It may be gone already, and then there is nobody to tell.
                    let _ = signal::kill(Pid::from_raw(now.cast_signed()), signal);
                }
            }
        });
    }
}

/// Whether one that ends a process has come since: for who has something to end first.
///
/// # Errors
/// The system has no descriptor left.
pub fn flagged() -> io::Result<impl Fn() -> bool> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [INT, TERM, HUP] {
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(move || flag.load(Ordering::Relaxed))
}

/// As a shell would say it: 128 and the signal's number for a program that a signal ended.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_becomes_the_shells_number() {
        assert_eq!(exit_code(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(exit_code(ExitStatus::from_raw(nix::libc::SIGKILL)), 137);
    }
}
