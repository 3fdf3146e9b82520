//! Looking into a child by `ptrace`, which a parent may.
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use polyrail_omp::layout::PAGE;

/// Where a thread was, and in which state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Its instruction.
    pub at: u64,
    /// Of all that it has at hand.
    pub state: u64,
}

/// How long a running thread may take to stop.
const STOP: Duration = Duration::from_millis(500);

/// Bytes of a program's variables that are worth looking at.
const VARIABLES: u64 = 1 << 30;

/// Stops a thread, looks, and lets it go on. `None`: it was about to get a signal, has ended, or did not stop in time: then this thread must end.
pub fn sample(process: u32, thread: u32) -> Option<Sample> {
    let id = thread.cast_signed();
    let nothing = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: requests that write nothing here
    unsafe {
        if libc::ptrace(libc::PTRACE_SEIZE, id, nothing, nothing) != 0 {
            return None;
        }
        libc::ptrace(libc::PTRACE_INTERRUPT, id, nothing, nothing);
    }
    let status = stopped(process, thread)?;
    let by_us = status >> 8 == libc::PTRACE_EVENT_STOP;
    let sample = if by_us { read(process, id) } else { None };
    // a signal that stopped it is delivered now
    let signal = if by_us { 0 } else { (status & 0xff) as usize };
    // SAFETY: the thread has stopped
    unsafe { libc::ptrace(libc::PTRACE_DETACH, id, nothing, signal as *mut libc::c_void) };
    sample
}

/// The event and the signal that a thread has stopped by.
fn stopped(process: u32, thread: u32) -> Option<i32> {
    let begun = Instant::now();
    // a process that has ended is for its parent to hear of, a thread that has is for nobody but who traced it
    let ends = if thread == process { 0 } else { libc::WEXITED };
    let which = libc::WSTOPPED | libc::WNOHANG | libc::__WALL | ends;
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: a place for the answer, of which zeros are a value
        let (result, info) =
            unsafe { (libc::waitid(libc::P_PID, thread, info.as_mut_ptr(), which), info.assume_init()) };
        // SAFETY: what waitid fills in, or zeros
        match (result, unsafe { info.si_pid() }) {
            (0, 0) if begun.elapsed() < STOP => crate::sys::give_way(),
            (0, found) if found == thread.cast_signed() => {
                let has_stopped = matches!(info.si_code, libc::CLD_TRAPPED | libc::CLD_STOPPED);
                // SAFETY: as above
                return has_stopped.then(|| unsafe { info.si_status() });
            }
            _ => return None,
        }
    }
}

fn read(process: u32, id: i32) -> Option<Sample> {
    let nothing = std::ptr::null_mut::<libc::c_void>();
    let mut general = MaybeUninit::<libc::user_regs_struct>::zeroed();
    let mut vector = MaybeUninit::<libc::user_fpregs_struct>::zeroed();
    // SAFETY: places for the answers, of which zeros are values; the thread has stopped
    let (general, vector) = unsafe {
        if libc::ptrace(libc::PTRACE_GETREGS, id, nothing, general.as_mut_ptr()) != 0
            || libc::ptrace(libc::PTRACE_GETFPREGS, id, nothing, vector.as_mut_ptr()) != 0
        {
            return None;
        }
        (general.assume_init(), vector.assume_init())
    };
    let registers = [
        general.rax,
        general.rbx,
        general.rcx,
        general.rdx,
        general.rsi,
        general.rdi,
        general.rbp,
        general.rsp,
        general.r8,
        general.r9,
        general.r10,
        general.r11,
        general.r12,
        general.r13,
        general.r14,
        general.r15,
    ];
    let mut hash = DefaultHasher::new();
    for word in registers {
        hash.write_u64(word);
    }
    hash.write_u64(general.eflags);
    for word in vector.xmm_space.iter().chain(&vector.st_space) {
        hash.write_u32(*word);
    }
    let memory = File::open(format!("/proc/{process}/mem")).ok()?;
    let mut page = [0; PAGE];
    // below the pointer is the red zone
    if memory.read_exact_at(&mut page, general.rsp.saturating_sub(128)).is_ok() {
        hash.write(&page);
    }
    for register in registers {
        if memory.read_exact_at(&mut page, register & !(PAGE as u64 - 1)).is_ok() {
            hash.write(&page);
        }
    }
    Some(Sample { at: general.rip, state: hash.finish() })
}

/// A number that changes with what is writable of the executable's file and right behind it (`.data`, `.bss`); `None` if that is too much, or cannot be read.
pub fn variables(process: u32) -> Option<u64> {
    let program = fs::read_link(format!("/proc/{process}/exe")).ok()?;
    let program = program.to_str()?;
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
    let memory = File::open(format!("/proc/{process}/mem")).ok()?;
    let mut hash = DefaultHasher::new();
    let (mut end_of_program, mut total) = (0, 0);
    let mut page = vec![0; 16 * PAGE];
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        let writable = words.next()?.contains('w');
        let path = words.nth(3).unwrap_or_default();
        if path == program || path.is_empty() && start == end_of_program {
            end_of_program = end;
            if writable {
                total += end - start;
                if total > VARIABLES {
                    return None;
                }
                let mut at = start;
                while at < end {
                    let bytes = (end - at).min(page.len() as u64) as usize;
                    memory.read_exact_at(&mut page[..bytes], at).ok()?;
                    hash.write(&page[..bytes]);
                    at += bytes as u64;
                }
            }
        }
    }
    Some(hash.finish())
}
