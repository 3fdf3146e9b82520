//! The sixteen bytes that the kernel gives each process by chance (`AT_RANDOM`), of which the loader makes stack guards and what pointers in tables and in `jmp_buf`s are
//! disguised by: where serial code runs on every rank, they must be the same, as they stand on the stack; and where a run goes on from a checkpoint, as they were then.
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

const AT_RANDOM: u64 = 25;

/// In the child: stops as soon as it has become the program, for [`set`].
pub fn stop() -> io::Result<()> {
    // SAFETY: a request without pointers
    match unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits for the program to stop at its beginning, gives it these bytes, and lets it go.
///
/// # Errors
/// It cannot be looked into, or has ended.
pub fn set(process: u32, bytes: [u64; 2]) -> io::Result<()> {
    let id = process.cast_signed();
    let mut status = 0;
    loop {
        // SAFETY: a place for the answer
        match unsafe { libc::waitpid(id, &raw mut status, 0) } {
            found if found == id => break,
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return Err(io::Error::last_os_error()),
        }
    }
    if !libc::WIFSTOPPED(status) {
        return Err(io::Error::other("it ended before it began"));
    }
    let words: Vec<u64> = fs::read(format!("/proc/{process}/auxv"))?
        .as_chunks()
        .0
        .iter()
        .map(|word| u64::from_ne_bytes(*word))
        .collect();
    let pairs = words.as_chunks::<2>().0;
    let place = pairs.iter().find(|[kind, _]| *kind == AT_RANDOM).map(|[_, place]| *place);
    let place = place.ok_or_else(|| io::Error::other("the kernel has given it no random bytes"))?;
    let memory = File::options().write(true).open(format!("/proc/{process}/mem"))?;
    memory.write_all_at(&bytes.map(u64::to_ne_bytes).concat(), place)?;
    // SAFETY: the process has stopped
    match unsafe { libc::ptrace(libc::PTRACE_DETACH, id, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
