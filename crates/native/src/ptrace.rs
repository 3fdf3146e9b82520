//! Following a running process by `ptrace`: the requests and what threads stop for, without a decision of its own. `nix` has most of
//! it, but neither what a thread that is to stay stopped is told (`PTRACE_LISTEN`) nor signals above 31, which programs use.
//!
//! Whoever [seizes](seize) a thread is its tracer, and is a *thread*: it alone may ask about it and have it go on. When that thread ends,
//! however, the kernel lets go of all that it follows: what runs or waits is not disturbed by that, what stands still goes on.
//!
//! ```text
//!   wait -> Heard::Stopped(thread, Stop) -> call, event ... -> resume, or listen where the process is to stay stopped -> wait
//! ```
//!
//! All unsafe code of following stands in this file.

use std::io;
use std::sync::Once;

mod stop;

pub use stop::{Heard, Stop};

/// A thread's number.
pub type Tid = u32;

/// What a thread that stopped for a system call is about to do, or has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// It begins one of this number, with these arguments.
    Enter(u64, [u64; 6]),
    /// It has ended one: the result, or minus the error's number.
    Exit(i64),
    /// It makes calls of another kind than this program does: of 32 bits.
    Foreign,
}

/// What the kernel calls the system calls of this program.
#[cfg(target_arch = "x86_64")]
pub(crate) const ARCHITECTURE: u32 = 62 | 0xc000_0000;
#[cfg(target_arch = "aarch64")]
pub(crate) const ARCHITECTURE: u32 = 183 | 0xc000_0000;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) const ARCHITECTURE: u32 = 0;

/// A request whose address and data are numbers, by which the kernel writes nothing into this process.
fn request(what: libc::c_uint, tid: Tid, data: usize) -> io::Result<()> {
    const NUMBERS: [libc::c_uint; 5] = [
        libc::PTRACE_SEIZE,
        libc::PTRACE_INTERRUPT,
        libc::PTRACE_SYSCALL,
        libc::PTRACE_LISTEN,
        libc::PTRACE_DETACH,
    ];
    assert!(NUMBERS.contains(&what));
    // SAFETY: one of those requests, which take the data as a number
    let done = unsafe { libc::ptrace(what, tid, std::ptr::null_mut::<libc::c_void>(), data) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A request that fills in `room`; how many bytes the kernel says it has.
fn ask<T: Answer>(what: libc::c_uint, tid: Tid, address: usize) -> io::Result<T> {
    let mut room = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: zeros are a value of every `Answer`, and the kernel writes no more than its size, which it knows or `address` says
    let done = unsafe { libc::ptrace(what, tid, address, room.as_mut_ptr()) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above
    Ok(unsafe { room.assume_init() })
}

/// What the kernel may write: zeros and any bytes are values of it.
trait Answer {}
impl Answer for libc::c_ulong {}
impl Answer for libc::ptrace_syscall_info {}
#[cfg(target_arch = "x86_64")]
impl Answer for libc::user_regs_struct {}

/// Follows a thread, and all that it will start. It is not stopped by this, nor killed if this process is.
///
/// # Errors
/// It may not be followed (`EPERM`), also if somebody else does; there is none (`ESRCH`).
pub fn seize(tid: Tid) -> io::Result<()> {
    let options = libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_TRACEEXIT;
    request(libc::PTRACE_SEIZE, tid, options as usize)
}

/// Has a thread stop, for a moment: only who stands still can be told to stop at its calls.
///
/// # Errors
/// It is gone.
pub fn interrupt(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0)
}

/// Has a thread go on to the beginning or the end of its next system call; it gets `signal` if that is not 0.
///
/// # Errors
/// It is gone.
pub fn resume(tid: Tid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_SYSCALL, tid, signal as usize)
}

/// A thread whose process was stopped by a signal stays so, until somebody has the process go on: that is heard then.
///
/// # Errors
/// It is gone.
pub fn listen(tid: Tid) -> io::Result<()> {
    request(libc::PTRACE_LISTEN, tid, 0)
}

/// A thread goes on and is followed no more; it gets `signal` if that is not 0.
///
/// # Errors
/// It is gone.
pub fn detach(tid: Tid, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, signal as usize)
}

/// The number that belongs to what a thread has stopped for: of the thread or process that it makes, of itself before it executed.
///
/// # Errors
/// It is gone.
pub fn message(tid: Tid) -> io::Result<Tid> {
    ask::<libc::c_ulong>(libc::PTRACE_GETEVENTMSG, tid, 0).map(|number| number as Tid)
}

/// Which call a thread stands at (Linux 5.3 and later); `None`: at none.
///
/// # Errors
/// It is gone, or the kernel does not tell.
pub fn call(tid: Tid) -> io::Result<Option<Call>> {
    let size = size_of::<libc::ptrace_syscall_info>();
    let info = ask::<libc::ptrace_syscall_info>(libc::PTRACE_GET_SYSCALL_INFO, tid, size)?;
    // the x32 calls of a 64-bit program have this bit, and pointers of another size
    const X32: u64 = 1 << 30;
    Ok(match info.op {
        _ if ARCHITECTURE != 0 && info.arch != ARCHITECTURE => Some(Call::Foreign),
        libc::PTRACE_SYSCALL_INFO_ENTRY => {
            // SAFETY: `op` says that this is the part that was filled in; it is numbers alone
            let entry = unsafe { info.u.entry };
            let foreign = cfg!(target_arch = "x86_64") && entry.nr & X32 != 0;
            Some(if foreign { Call::Foreign } else { Call::Enter(entry.nr, entry.args) })
        }
        libc::PTRACE_SYSCALL_INFO_EXIT => {
            // SAFETY: likewise
            Some(Call::Exit(unsafe { info.u.exit }.sval))
        }
        _ => None,
    })
}

/// A thread that was [interrupted](interrupt) while it waited in one of these calls, and stands still because of that, waits on as if nothing had
/// happened. Without this some calls (`epoll_wait`, those with a timeout of their socket) would end with `EINTR`, which programs do not expect
/// without a signal. A signal that does arrive ends the call as it does for `poll`. A timeout begins anew.
///
/// # Errors
/// It is gone.
#[cfg(target_arch = "x86_64")]
pub fn wait_on(tid: Tid, calls: &[libc::c_long]) -> io::Result<()> {
    /// What the kernel makes of it: again if no handler is to run, else `EINTR`.
    const ERESTARTNOHAND: i64 = 514;
    let mut registers = ask::<libc::user_regs_struct>(libc::PTRACE_GETREGS, tid, 0)?;
    let interrupted = registers.rax as i64 == -i64::from(libc::EINTR);
    if interrupted && calls.iter().any(|call| *call as u64 == registers.orig_rax) {
        registers.rax = -ERESTARTNOHAND as u64;
        // SAFETY: the kernel reads the registers, all of which it gave just now but for that one
        let done = unsafe {
            libc::ptrace(libc::PTRACE_SETREGS, tid, std::ptr::null_mut::<libc::c_void>(), &registers)
        };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// As on x86-64; elsewhere the kernel does not tell the call's first argument, without which it cannot be begun again.
///
/// # Errors
/// None.
#[cfg(not(target_arch = "x86_64"))]
pub fn wait_on(_: Tid, _: &[libc::c_long]) -> io::Result<()> {
    Ok(())
}

/// Waits until a thread that the calling thread follows stops or ends, or until somebody [wakes](Sleeper::wake) it.
pub fn wait() -> Heard {
    let mut status = 0;
    // SAFETY: a place for the answer
    let tid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
    match Tid::try_from(tid) {
        Ok(tid) => stop::heard(tid, status),
        Err(_) if io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => Heard::Nothing,
        Err(_) => Heard::Nobody,
    }
}

/// A thread that may be asleep in [`wait`].
#[derive(Clone, Copy, Debug)]
pub struct Sleeper {
    process: libc::pid_t,
    thread: libc::pid_t,
}

/// Nobody uses it, and who has no handler for it takes no notice.
const WAKE: libc::c_int = libc::SIGURG;

impl Sleeper {
    /// The calling thread. The process has a handler for `SIGURG` from then on, which does nothing.
    pub fn this() -> Sleeper {
        static HANDLED: Once = Once::new();
        extern "C" fn nothing(_: libc::c_int) {}
        HANDLED.call_once(|| {
            // SAFETY: of zeros a value of it is made: no flags, so that `wait` ends, and no signal held back
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
            // SAFETY: the handler does nothing, which it may at any time
            unsafe { libc::sigaction(WAKE, &raw const action, std::ptr::null_mut()) };
        });
        // SAFETY: asks for numbers
        unsafe { Sleeper { process: libc::getpid(), thread: libc::gettid() } }
    }

    /// Its number.
    pub fn tid(&self) -> Tid {
        self.thread.cast_unsigned()
    }

    /// Ends its [`wait`], if it is in it at this moment: to be repeated until it has done what it was to do.
    pub fn wake(&self) {
        // SAFETY: sends a signal to a thread of this process, or to none
        unsafe { libc::syscall(libc::SYS_tgkill, self.process, self.thread, WAKE) };
    }
}
