//! Hands on to the launcher the signals that this command gets.

use std::io;

use nix::sys::signal::{self, SigSet, Signal};
use nix::sys::signalfd::SignalFd;
use nix::unistd::Pid;

const FORWARDED: [Signal; 6] =
    [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];

/// Signals that are held back until there is a process to hand them to.
pub struct Held(SignalFd);

/// Holds signals back from here on, in this thread and those that it starts; programs that it starts get them again.
///
/// # Errors
/// The system has no descriptor left.
pub fn hold() -> io::Result<Held> {
    let set: SigSet = FORWARDED.into_iter().collect();
    set.thread_block()?;
    Ok(Held(SignalFd::new(&set)?))
}

impl Held {
    /// Hands signals to process `pid` for as long as this process lives.
    pub fn forward_to(self, pid: u32) {
        std::thread::spawn(move || {
            while let Ok(Some(info)) = self.0.read_signal() {
                // What the terminal sends, it sends to the launcher as well; twice means "at once" to some launchers.
                let from_terminal = info.ssi_code == nix::libc::SI_KERNEL;
                if let Ok(signal) = Signal::try_from(info.ssi_signo.cast_signed())
                    && !from_terminal
                {
                    // It may be gone already, and then there is nobody to tell.
                    let _ = signal::kill(Pid::from_raw(pid.cast_signed()), signal);
                }
            }
        });
    }
}
