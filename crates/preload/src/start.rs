//! How recording begins in a process, and how it ends in order.

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

use polyrail_core::trace::note;
use polyrail_core::trace::ring::session;

use crate::next::next;
use crate::recorder;
use crate::sockets;
use crate::sys::{File, Text, is_own_directory, quietly};

/// The session's directory in shared memory.
pub const DIRECTORY: &CStr = c"POLYRAIL_TRACE";
/// Where the collector writes: the run's directory.
pub const RUN: &CStr = c"POLYRAIL_TRACE_TO";
/// The `polyrail` program, which collects on hosts that have no collector yet.
pub const PROGRAM: &CStr = c"POLYRAIL_TRACE_BY";
/// Set where the kernel can record programs that preloading cannot see.
pub const KERNEL: &CStr = c"POLYRAIL_TRACE_KERNEL";

/// What is recorded, and how much of it, for collectors on other hosts.
pub const OPTIONS: &CStr = c"POLYRAIL_TRACE_OPTIONS";

/// What of the environment the recorder hands on to programs that are started with another one.
pub struct Environment {
    directory: Text<300>,
    /// `NAME=value` each, ended by a zero: `LD_PRELOAD` first.
    pub variables: [Text<{ Environment::LONGEST }>; 6],
    kernel: bool,
}

static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();

/// As it was when the process began. Only after recording has begun.
pub fn environment() -> &'static Environment {
    ENVIRONMENT.get_or_init(|| Environment {
        directory: Text::new(),
        variables: [const { Text::new() }; 6],
        kernel: false,
    })
}

impl Environment {
    /// Bytes of a variable with its name: the options may be that long.
    const LONGEST: usize = 2048;

    /// Path of the session's directory.
    pub fn directory(&self) -> &[u8] {
        self.directory.bytes()
    }

    /// Whether the kernel can record what preloading cannot see.
    pub fn kernel(&self) -> bool {
        self.kernel
    }
}

fn variable(name: &CStr) -> &'static [u8] {
    // SAFETY: the loader runs this before the program can change the environment
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return b"";
    }
    // SAFETY: a string of the environment
    unsafe { CStr::from_ptr(value) }.to_bytes()
}

/// The path of this library, as the loader knows it.
fn library() -> &'static [u8] {
    let mut about = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: an address in this library, and a place for the answer
    unsafe {
        if libc::dladdr(begin as *const c_void, about.as_mut_ptr()) == 0
            || (*about.as_ptr()).dli_fname.is_null()
        {
            return b"";
        }
        CStr::from_ptr((*about.as_ptr()).dli_fname).to_bytes()
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    let directory = variable(DIRECTORY);
    if !directory.is_empty() {
        quietly(|| begin_in(directory));
    }
}

fn begin_in(directory: &[u8]) {
    let _ = ENVIRONMENT.set({
        let mut all =
            Environment { directory: Text::new(), variables: [const { Text::new() }; 6], kernel: false };
        all.directory.push(directory);
        all.kernel = !variable(KERNEL).is_empty();
        all.variables[0].push(b"LD_PRELOAD=").push(library());
        for (text, name) in all.variables[1..].iter_mut().zip([DIRECTORY, RUN, PROGRAM, KERNEL, OPTIONS]) {
            text.push(name.to_bytes()).push(b"=").push(variable(name));
        }
        all
    });
    let mut path = Text::<400>::new();
    path.push(directory).push(b"/session");
    let file = match session_file(&path) {
        Ok(file) => file,
        Err(why) => return complain(why),
    };
    match recorder::begin(&file) {
        Some(true) => {}
        // what it starts may be
        Some(false) => return,
        None => {
            return complain(b"this process is not recorded: the session of this host cannot be used");
        }
    }
    // SAFETY: a function of the right type; it is the last to run, as the first registered
    unsafe { on_exit(at_exit, std::ptr::null_mut()) };
}

unsafe extern "C" {
    fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// The page of the session. Where this host has none, a collector is started, which makes it.
fn session_file(path: &Text<400>) -> Result<File, &'static [u8]> {
    const NO_COLLECTOR: &[u8] = b"this process is not recorded: no collector could be started on this host";
    const NOT_OURS: &[u8] =
        b"this process is not recorded: the session of this host is another user's, or others may write to it";
    let directory = environment().directory.c();
    // who may write to the directory, or owns the page, could end this program
    let own = |file: File| {
        let own = file.is_own(session::SIZE) && is_own_directory(directory);
        if own { Ok(file) } else { Err(NOT_OURS) }
    };
    let open = || File::open(path.c(), libc::O_RDWR | libc::O_NOFOLLOW | libc::O_NONBLOCK, 0);
    if let Some(file) = open() {
        return own(file);
    }
    if matches!(crate::sys::errno(), libc::EACCES | libc::EPERM) {
        return Err(b"this process is not recorded: it runs as another user than the command, who may not use its session");
    } else if crate::sys::errno() == libc::ELOOP {
        return Err(NOT_OURS);
    } else if crate::sys::errno() != libc::ENOENT {
        return Err(b"this process is not recorded: the session cannot be opened (no descriptors left?)");
    }
    // SAFETY: a C string; who makes the directory starts the collector
    if unsafe { libc::mkdir(directory.as_ptr(), 0o700) } == 0 {
        if !start_collector() {
            // SAFETY: the same string
            unsafe { libc::rmdir(directory.as_ptr()) };
            return Err(NO_COLLECTOR);
        }
    } else if crate::sys::errno() != libc::EEXIST {
        return Err(
            b"this process is not recorded: it cannot reach its session (chroot, or no shared memory)",
        );
    }
    // five seconds at most: a machine that is busy with the start of many processes
    for _ in 0..2500 {
        let pause = libc::timespec { tv_sec: 0, tv_nsec: 2_000_000 };
        // SAFETY: a time, and nowhere to tell what remained of it
        unsafe { libc::nanosleep(&pause, std::ptr::null_mut()) };
        if let Some(file) = open() {
            return own(file);
        }
    }
    Err(NO_COLLECTOR)
}

/// Starts `polyrail trace --collect` as a process of its own that nobody waits for: a grandchild, in its own session, with nothing of
/// this process open.
fn start_collector() -> bool {
    let program = variable(PROGRAM);
    let mut path = Text::<1100>::new();
    path.push(program);
    if program.is_empty() || File::open(path.c(), libc::O_RDONLY, 0).is_none() {
        return false;
    }
    let mut run = Text::<1100>::new();
    run.push(variable(RUN));
    let arguments = [
        path.c().as_ptr(),
        c"trace".as_ptr(),
        c"--collect".as_ptr(),
        environment().directory.c().as_ptr(),
        c"-o".as_ptr(),
        run.c().as_ptr(),
        std::ptr::null(),
    ];
    let mut options = Text::<{ Environment::LONGEST }>::new();
    options.push(OPTIONS.to_bytes()).push(b"=").push(variable(OPTIONS));
    let variables = [
        c"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".as_ptr(),
        options.c().as_ptr(),
        std::ptr::null(),
    ];
    // SAFETY: the process is still in the loader and has one thread; the children only make system calls, the arrays live until
    // after them and are ended by null
    unsafe {
        let child = libc::fork();
        if child < 0 {
            return false;
        }
        if child == 0 {
            libc::setsid();
            if libc::fork() == 0 {
                let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
                for fd in 0..3 {
                    libc::dup2(null, fd);
                }
                libc::syscall(libc::SYS_close_range, 3, u32::MAX as libc::c_long, 0);
                libc::chdir(c"/".as_ptr());
                libc::execve(path.c().as_ptr(), arguments.as_ptr(), variables.as_ptr());
            }
            libc::syscall(libc::SYS_exit_group, 0);
        }
        let mut status = 0;
        while libc::waitpid(child, &mut status, 0) == -1 && crate::sys::errno() == libc::EINTR {}
    }
    true
}

fn complain(what: &[u8]) {
    let mut text = Text::<300>::new();
    text.push(b"polyrail trace: ").push(what).push(b"\n");
    // SAFETY: readable for its length
    unsafe { libc::syscall(libc::SYS_write, 2, text.bytes().as_ptr(), text.bytes().len()) };
}

extern "C" fn at_exit(status: c_int, _: *mut c_void) {
    quietly(|| end(status));
}

fn end(status: c_int) {
    if recorder::on() {
        recorder::follow_fork();
        sockets::last_words();
        recorder::flush();
        let mut payload = [0; 8];
        payload[..4].copy_from_slice(&status.to_le_bytes());
        recorder::tell(note::EXIT, &payload);
    }
}

macro_rules! ending {
    ($($name:ident;)*) => {$(
        /// See _exit(2): the end is recorded first.
        ///
        /// # Safety
        /// As of the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(status: c_int) -> ! {
            if recorder::on() && !recorder::borrowed() {
                end(status);
            }
            // SAFETY: ends the process
            unsafe {
                let next = || -> c_int {
                    let next = next!($name: fn(c_int) -> c_int);
                    next(status)
                };
                next();
                libc::syscall(libc::SYS_exit_group, status);
            }
            unreachable!("the process has ended")
        }
    )*};
}

ending! {
    _exit;
    _Exit;
}
