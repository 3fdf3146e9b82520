//! Starting the program so that all its addresses are the same on all ranks, and learning how it ends.
//!
//! No address is randomized; the stack has the same limit, and the same strings above it, since `execve` puts path, words and environment there. The program's
//! descriptors are standard input, output, error and the mapping; on ranks above 0, nothing can be read from standard input.
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};

use polyrail_omp::area::{FD, setting};

use crate::guards;
use crate::launch::Launch;
use crate::mapping::Mapping;

const ADDR_NO_RANDOMIZE: libc::c_ulong = 0x0004_0000;

/// Starts the program.
///
/// # Errors
/// The system says no, and to what.
pub fn start(launch: &Launch, mapping: &Mapping, rank: usize) -> Result<Child, String> {
    crate::stand_ins::provide(&launch.stand_ins, crate::sys::user())
        .map_err(|error| format!("{}: {error}", launch.stand_ins.display()))?;
    for file in [&launch.runtime, &launch.program] {
        file.metadata().map_err(|error| format!("{}: {error}", file.display()))?;
    }
    let mut command = Command::new(&launch.program);
    let (zeroth, words) = launch.words.split_first().ok_or("a program without words")?;
    command.arg0(zeroth).args(words).current_dir(&launch.directory);
    command.env_clear().envs(launch.environment.iter().cloned());
    if rank > 0 {
        command.stdin(Stdio::null());
    }
    let (area, parent, stack) = (mapping.file().as_raw_fd(), std::process::id(), launch.stack);
    let guarded = launch.settings & (setting::REPLICATED | setting::CHECKPOINTS) != 0;
    // SAFETY: system calls only, on values
    unsafe {
        command.pre_exec(move || {
            prepare(area, parent, stack)?;
            if guarded { guards::stop() } else { Ok(()) }
        })
    };
    let program = command.spawn().map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM | libc::EINVAL) => format!(
            "{}: {error} (rank 0's limit of stack, {stack} bytes, or {} open files may be above this host's hard limits, or a container may forbid personality(ADDR_NO_RANDOMIZE))",
            launch.program.display(),
            FD + 1
        ),
        _ => format!("{}: {error}", launch.program.display()),
    })?;
    if guarded {
        guards::set(program.id(), launch.chance).map_err(|error| {
            format!(
                "{}: it cannot be given the numbers by chance that other processes have: {error}",
                launch.program.display()
            )
        })?;
    }
    Ok(program)
}

/// In the child, before it becomes the program.
fn prepare(area: i32, parent: u32, stack: u64) -> io::Result<()> {
    let check = |result: i64| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) };
    // SAFETY: system calls with numbers and pointers to locals
    unsafe {
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL).into())?;
        if libc::getppid().cast_unsigned() != parent {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        // launchers may signal whole groups; what the program is to get, it gets from the agent
        check(libc::setpgid(0, 0).into())?;
        let now = check(libc::personality(0xffff_ffff).into())?;
        check(libc::personality(now as libc::c_ulong | ADDR_NO_RANDOMIZE).into())?;
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        check(libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit).into())?;
        limit.rlim_cur = stack;
        check(libc::setrlimit(libc::RLIMIT_STACK, &raw const limit).into())?;
        // MPI's descriptors are not the program's
        check(libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC))?;
        // descriptors stay when the limit sinks again below their numbers
        check(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit).into())?;
        let soft = limit.rlim_cur;
        limit.rlim_cur = soft.max(FD as u64 + 1);
        check(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit).into())?;
        check(libc::dup2(area, FD).into())?;
        limit.rlim_cur = soft;
        check(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit).into())?;
    }
    Ok(())
}

/// How a shell would tell it: 128 and the signal's number for a program that a signal ended.
pub fn status(ended: ExitStatus) -> u8 {
    let code = ended.code().or_else(|| ended.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// How it ended, in words.
pub fn words(ended: ExitStatus) -> String {
    match ended.signal() {
        Some(signal) => format!("was ended by signal {signal}{}", name(signal)),
        None => format!("ended with status {}", status(ended)),
    }
}

fn name(signal: i32) -> &'static str {
    match signal {
        libc::SIGSEGV => " (segmentation fault)",
        libc::SIGBUS => " (bus error: memory that is not there)",
        libc::SIGKILL => " (killed: by hand, or because memory ran out)",
        libc::SIGABRT => " (it gave up: abort)",
        libc::SIGFPE => " (arithmetic error)",
        libc::SIGILL => " (illegal instruction)",
        libc::SIGTERM => " (terminated)",
        libc::SIGINT => " (interrupted)",
        libc::SIGTRAP => " (breakpoint)",
        libc::SIGSYS => " (bad system call)",
        libc::SIGXCPU => " (processor time limit)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_as_a_shell_would() {
        assert_eq!((status(ExitStatus::from_raw(7 << 8)), status(ExitStatus::from_raw(11))), (7, 139));
        assert_eq!(words(ExitStatus::from_raw(11)), "was ended by signal 11 (segmentation fault)");
        assert_eq!(words(ExitStatus::from_raw(7 << 8)), "ended with status 7");
    }
}
