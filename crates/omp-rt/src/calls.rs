//! System calls that rank 0 carries out: there is one set of descriptors, one working directory, one terminal, and it is rank 0's. On ranks above 0 a filter
//! (seccomp) lets through what is about this process alone (memory, threads, signals, time), and traps all else; what is known is carried out by rank
//! 0's server thread, what is not is refused by its number.

mod constructors;
mod elsewhere;

use core::sync::atomic::{AtomicBool, Ordering};

use polyrail_omp::area::{Kind, SLOT_DATA};

use crate::{agent, input, library, output, pthread, raw, remote, serial, signals, sys};

/// What rank 0's server thread is asked for: an atomic operation.
pub const REMOTE_ATOMIC: u32 = 1;
/// A system call.
const REMOTE_CALL: u32 = 2;
/// What came of serial code's system calls.
pub const REMOTE_RECORDS: u32 = 3;
/// Closing a stream.
pub const REMOTE_CLOSE: u32 = 4;
/// A piece of a stack, when it is folded.
pub const REMOTE_BACK: u32 = 5;
/// Having a function called when the program ends.
pub const REMOTE_EXIT: u32 = 6;
/// A random number.
pub const REMOTE_RANDOM: u32 = 7;
/// What was read of standard input, and what of it comes back.
pub const REMOTE_LEND: u32 = 8;
pub const REMOTE_RETURN: u32 = 9;
/// That what a stream has could not be written.
pub const REMOTE_FAILED: u32 = 10;
/// Whether a rank is about to tell of stores that belong to what it publishes.
pub const REMOTE_TELLS: u32 = 11;
/// Whether a mutex is the team's, and no thread's of the program's own.
pub const REMOTE_MUTEX: u32 = 12;
/// Its answer if that cannot be done now, as the thread waits for nobody: others may be what it would wait for. To be asked again.
pub const NOT_YET: &[u8] = &[0];

/// Before that, the more tries there were the longer; at most so many microseconds.
pub fn pause(tries: u32, most: u32) {
    sys::pause(tries.saturating_mul(10).min(most));
}

/// What a parameter of a system call points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    Value,
    /// A string that ends with zero.
    Text,
    /// The kernel reads as many bytes as another parameter says.
    In(usize),
    /// The kernel writes as many as another says.
    Out(usize),
    /// The kernel writes this many bytes.
    Fixed(usize),
}

use Parameter::{Fixed, In, Out, Text, Value};

const STAT: usize = size_of::<libc::stat>();

/// The calls that rank 0 carries out, with their parameters (man pages, section 2).
pub fn parameters(number: i64, args: &[usize; 6]) -> Option<&'static [Parameter]> {
    Some(match number {
        libc::SYS_read | libc::SYS_getdents64 => &[Value, Out(2), Value],
        libc::SYS_write => &[Value, In(2), Value],
        libc::SYS_pread64 => &[Value, Out(2), Value, Value],
        libc::SYS_pwrite64 => &[Value, In(2), Value, Value],
        libc::SYS_open
        | libc::SYS_creat
        | libc::SYS_access
        | libc::SYS_mkdir
        | libc::SYS_chmod
        | libc::SYS_truncate => &[Text, Value, Value],
        libc::SYS_unlink | libc::SYS_rmdir | libc::SYS_chdir => &[Text],
        libc::SYS_rename | libc::SYS_link | libc::SYS_symlink => &[Text, Text],
        libc::SYS_openat
        | libc::SYS_faccessat
        | libc::SYS_faccessat2
        | libc::SYS_mkdirat
        | libc::SYS_unlinkat
        | libc::SYS_fchmodat => &[Value, Text, Value, Value],
        libc::SYS_renameat | libc::SYS_renameat2 => &[Value, Text, Value, Text, Value],
        libc::SYS_close
        | libc::SYS_fsync
        | libc::SYS_fdatasync
        | libc::SYS_dup
        | libc::SYS_fchdir
        | libc::SYS_umask => &[Value],
        libc::SYS_lseek
        | libc::SYS_dup2
        | libc::SYS_dup3
        | libc::SYS_ftruncate
        | libc::SYS_fchmod
        | libc::SYS_fadvise64 => &[Value, Value, Value, Value],
        libc::SYS_fallocate => &[Value, Value, Value, Value],
        libc::SYS_stat | libc::SYS_lstat => &[Text, Fixed(STAT)],
        libc::SYS_fstat => &[Value, Fixed(STAT)],
        libc::SYS_newfstatat => &[Value, Text, Fixed(STAT), Value],
        libc::SYS_statx => &[Value, Text, Value, Value, Fixed(256)],
        libc::SYS_getcwd => &[Out(1), Value],
        libc::SYS_readlink => &[Text, Out(2), Value],
        libc::SYS_readlinkat => &[Value, Text, Out(3), Value],
        libc::SYS_pipe => &[Fixed(8)],
        libc::SYS_pipe2 => &[Fixed(8), Value],
        libc::SYS_fcntl
            if matches!(
                args[1] as i32,
                libc::F_DUPFD
                    | libc::F_DUPFD_CLOEXEC
                    | libc::F_GETFD
                    | libc::F_SETFD
                    | libc::F_GETFL
                    | libc::F_SETFL
            ) =>
        {
            &[Value, Value, Value]
        }
        libc::SYS_ioctl if args[1] as u64 == libc::TCGETS => &[Value, Value, Fixed(60)],
        libc::SYS_ioctl if args[1] as u64 == libc::TIOCGWINSZ => &[Value, Value, Fixed(8)],
        libc::SYS_ioctl if args[1] as u64 == libc::FIONREAD => &[Value, Value, Fixed(4)],
        _ => return None,
    })
}

/// What a call is called, of those that are likely to be told of.
pub fn name(number: i64) -> Option<&'static str> {
    macro_rules! names {
        ($($name:ident)*) => {
            match number {
                $(libc::$name => Some(&stringify!($name)[4..]),)*
                _ => None,
            }
        };
    }
    names! {
        SYS_read SYS_write SYS_open SYS_close SYS_stat SYS_fstat SYS_lstat SYS_poll SYS_lseek SYS_mmap SYS_ioctl SYS_pread64 SYS_pwrite64 SYS_readv SYS_writev
        SYS_access SYS_pipe SYS_select SYS_dup SYS_dup2 SYS_getpid SYS_sendfile SYS_fcntl SYS_flock SYS_fsync SYS_truncate SYS_ftruncate SYS_getdents64 SYS_getcwd
        SYS_chdir SYS_rename SYS_mkdir SYS_rmdir SYS_creat SYS_unlink SYS_readlink SYS_chmod SYS_umask SYS_gettimeofday SYS_getrusage SYS_times SYS_gettid SYS_time
        SYS_clock_gettime SYS_getrandom SYS_openat SYS_newfstatat SYS_unlinkat SYS_renameat SYS_faccessat SYS_faccessat2 SYS_statx SYS_kill SYS_tgkill
        SYS_exit_group SYS_sched_getaffinity SYS_getcpu SYS_uname SYS_sysinfo SYS_getppid SYS_statfs SYS_fstatfs SYS_utimensat SYS_execve SYS_socket SYS_dup3 SYS_wait4 SYS_waitid SYS_vfork SYS_fork SYS_pidfd_open SYS_connect SYS_accept SYS_accept4 SYS_bind SYS_listen
        SYS_sendto SYS_recvfrom SYS_sendmsg SYS_recvmsg SYS_shutdown SYS_socketpair SYS_setsockopt SYS_getsockopt SYS_getsockname SYS_getpeername SYS_ppoll SYS_pselect6
        SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_wait SYS_eventfd2 SYS_shmget SYS_shmat SYS_shmctl SYS_memfd_create SYS_mq_open SYS_semget SYS_semop SYS_setpgid
        SYS_setsid SYS_chown SYS_fchown SYS_symlink SYS_link SYS_inotify_init1 SYS_timer_create SYS_setitimer SYS_alarm SYS_pause SYS_copy_file_range SYS_splice
    }
}

/// Calls that are about this process alone.
const OWN: [i64; 53] = [
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_exit,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getpgrp,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_getcpu,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_time,
    libc::SYS_times,
    libc::SYS_getrusage,
    libc::SYS_getrandom,
    libc::SYS_arch_prctl,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_getrlimit,
    libc::SYS_membarrier,
    libc::SYS_kill,
    libc::SYS_tgkill,
    libc::SYS_restart_syscall,
    libc::SYS_uname,
];

/// Whether regions have begun; before, constructors run on every rank (`constructors`).
static REGIONS: AtomicBool = AtomicBool::new(false);

/// Whether the runtime's handlers of signals are set, for good.
static HANDLERS: AtomicBool = AtomicBool::new(false);

/// From now on what is trapped is a region's.
pub fn regions_begin() {
    HANDLERS.store(true, Ordering::Relaxed);
    REGIONS.store(true, Ordering::Relaxed);
}

/// Calls whose results differ between ranks, which serial code that runs on all of them is not to see.
const DIFFER: [i64; 16] = [
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpgrp,
    libc::SYS_sched_getaffinity,
    libc::SYS_getcpu,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_time,
    libc::SYS_times,
    libc::SYS_getrusage,
    libc::SYS_getrandom,
    libc::SYS_kill,
    libc::SYS_tgkill,
    libc::SYS_uname,
];

/// From now on for the calling thread, and those that it starts: on ranks above 0 before there are others, on rank 0 if serial code runs on every rank.
pub fn start() {
    // struct seccomp_data: nr, arch, instruction_pointer (two words), args
    let load = |at: u32| libc::sock_filter {
        code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16,
        jt: 0,
        jf: 0,
        k: at,
    };
    let equal = |value: u32, yes: u8, no: u8| libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt: yes,
        jf: no,
        k: value,
    };
    let answer =
        |what: u32| libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: what };
    let place = sys::raw_place() as u64;
    let mut filter = vec![
        load(8),
        equal(place as u32, 0, 3),
        load(12),
        equal((place >> 32) as u32, 0, 1),
        answer(libc::SECCOMP_RET_ALLOW),
        load(0),
    ];
    // the program's handlers are set but for signals that this runtime lives by
    let handler = [
        equal(libc::SYS_rt_sigaction as u32, 0, 4),
        load(16),
        equal(libc::SIGSYS as u32, 2, 0),
        equal(libc::SIGTRAP as u32, 1, 0),
        answer(libc::SECCOMP_RET_ALLOW),
        load(0),
    ];
    // what is mapped without a file
    let anonymous = libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16,
        jt: 1,
        jf: 0,
        k: libc::MAP_ANONYMOUS as u32,
    };
    let mapping = [equal(libc::SYS_mmap as u32, 0, 2), load(40), anonymous];
    let own = OWN.iter().filter(|number| {
        !matches!(**number, libc::SYS_rt_sigaction | libc::SYS_mmap)
            && (!serial::on() || !DIFFER.contains(number))
    });
    let count = own.clone().count();
    filter.extend(handler);
    for (at, number) in own.enumerate() {
        filter.push(equal(*number as u32, (count - at + mapping.len()) as u8, 0));
    }
    filter.extend(mapping);
    filter.push(answer(libc::SECCOMP_RET_TRAP));
    filter.push(answer(libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: a handler of the right kind, a program that lives as long as the call
    unsafe {
        signals::keep(libc::SIGSYS, trapped, serial::signal_flags());
        sys::raw(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS as usize, 1, 0, 0, 0, 0);
        let set = sys::raw(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER as usize,
            0,
            &raw const program as usize,
            0,
            0,
            0,
        );
        if set != 0 {
            sys::fail(format_args!(
                "system calls cannot be filtered (seccomp, error {}), which ranks above 0 and --serial replicated need",
                -set
            ));
        }
    }
}

unsafe extern "C" fn trapped(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel's context of this signal; errno is the thread's
    unsafe {
        let errno = *libc::__errno_location();
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let number = registers[libc::REG_RAX as usize];
        let names = [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10, libc::REG_R8, libc::REG_R9];
        let args = names.map(|name| registers[name as usize] as usize);
        registers[libc::REG_RAX as usize] =
            if number == libc::SYS_rt_sigaction && HANDLERS.load(Ordering::Relaxed) {
                // the kernel's structure
                (args[2] as *mut u8).write_bytes(0, if args[2] == 0 { 0 } else { 32 });
                0
            } else {
                call(number, &args)
            } as i64;
        *libc::__errno_location() = errno;
    }
}

/// A system call of the program's, by whom it is to be done.
///
/// # Safety
/// That of the call.
pub unsafe fn call(number: i64, args: &[usize; 6]) -> isize {
    // SAFETY: the caller's
    unsafe {
        if serial::here() {
            return serial::call(number, args);
        }
        match REGIONS.load(Ordering::Relaxed) && remote::rank() > 0 {
            true if number == libc::SYS_mmap => elsewhere::map(args),
            true if !OWN.contains(&number) => elsewhere::call(number, args),
            false if !OWN.contains(&number) && remote::rank() > 0 => constructors::call(number, args),
            _ => raw::call(number, *args),
        }
    }
}

/// Bytes that the kernel wrote there.
pub fn written(parameter: Parameter, args: &[usize; 6], result: isize) -> Option<usize> {
    match parameter {
        Out(length) => Some((result.max(0) as usize).min(args[length])),
        Fixed(bytes) => Some(if result < 0 { 0 } else { bytes }),
        _ => None,
    }
}

/// Has rank 0's server thread answer a question of that kind.
pub fn ask_rank_0(kind: u32, question: &[u8]) -> &'static [u8] {
    agent::ask(Kind::Serve, [0; 6], &[&u64::from(kind).to_ne_bytes(), question]).data
}

/// Rank 0's server thread: answers one question, over it; how long the answer is.
pub fn serve(data: &mut [u8], bytes: usize) -> usize {
    let question = data[..bytes].to_vec();
    let kind = question.first_chunk::<4>().map(|kind| u32::from_ne_bytes(*kind));
    let answer = match kind {
        Some(REMOTE_ATOMIC) => remote::serve_operation(question.get(8..).unwrap_or_default()),
        Some(REMOTE_CALL) => carry_out(&question),
        Some(REMOTE_RECORDS) => serial::serve(question.get(8..).unwrap_or_default()),
        Some(REMOTE_BACK) => remote::back(question.get(8..).unwrap_or_default()),
        Some(REMOTE_EXIT) => pthread::register_exit(question.get(8..).unwrap_or_default()),
        Some(REMOTE_RANDOM) => library::random(question.get(8..).unwrap_or_default()),
        Some(REMOTE_LEND) => input::lend(question.get(8..).unwrap_or_default()),
        Some(REMOTE_RETURN) => input::take_back(question.get(8..).unwrap_or_default()),
        Some(REMOTE_FAILED) => output::fail(question.get(8..).unwrap_or_default()),
        Some(REMOTE_MUTEX) => pthread::serve(question.get(8..).unwrap_or_default()),
        Some(REMOTE_TELLS) => remote::serve_awaits(question.get(8..).unwrap_or_default()),
        Some(REMOTE_CLOSE) => output::close(question.get(8..).unwrap_or_default()),
        _ => None,
    };
    let answer = answer.unwrap_or_default();
    data[..answer.len()].copy_from_slice(&answer);
    answer.len()
}

fn carry_out(question: &[u8]) -> Option<Vec<u8>> {
    let (head, mut rest) = question.split_first_chunk::<64>()?;
    let word = |at: usize| usize::from_ne_bytes(head[at..at + 8].try_into().unwrap_or_default());
    let number = word(8) as i64;
    let mut args = [word(16), word(24), word(32), word(40), word(48), word(56)];
    let parameters = parameters(number, &args)?;
    if number == libc::SYS_read && !is_ready(args[0]) {
        return Some(NOT_YET.to_vec());
    }
    let asked = args;
    let mut room: Vec<Vec<u8>> = Vec::new();
    for (at, parameter) in parameters.iter().enumerate() {
        if args[at] == 0 {
            continue;
        }
        let mut buffer = match *parameter {
            Value => continue,
            Text => {
                let end = rest.iter().position(|byte| *byte == 0)? + 1;
                let (text, left) = rest.split_at(end);
                rest = left;
                text.to_vec()
            }
            In(length) => {
                let (piece, left) = rest.split_at_checked(asked[length])?;
                rest = left;
                piece.to_vec()
            }
            Out(length) => vec![0; asked[length].min(SLOT_DATA)],
            Fixed(bytes) => vec![0; bytes],
        };
        args[at] = buffer.as_mut_ptr() as usize;
        room.push(buffer);
    }
    // SAFETY: pointers were replaced by our own buffers of the right sizes
    let result = unsafe { sys::raw(number, args[0], args[1], args[2], args[3], args[4], args[5]) };
    let mut answer = result.to_ne_bytes().to_vec();
    let mut buffers = room.iter();
    for (at, parameter) in parameters.iter().enumerate() {
        if asked[at] == 0 || *parameter == Value {
            continue;
        }
        let buffer = buffers.next()?;
        if let Some(bytes) = written(*parameter, &asked, result) {
            answer.extend(&buffer[..bytes.min(buffer.len())]);
        }
    }
    Some(answer)
}

/// Whether a read does not wait: there is something, or nothing ever will be, or it is not to wait.
pub fn is_ready(descriptor: usize) -> bool {
    let mut what = libc::pollfd { fd: descriptor as i32, events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor to be looked at, if it is one
    unsafe {
        sys::raw(libc::SYS_poll, &raw mut what as usize, 1, 0, 0, 0, 0) != 0
            || sys::raw(libc::SYS_fcntl, descriptor, libc::F_GETFL as usize, 0, 0, 0, 0)
                & libc::O_NONBLOCK as isize
                != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(number: i64, args: [usize; 6], data: &[u8]) -> (isize, Vec<u8>) {
        let mut question = vec![0; 64];
        question[..4].copy_from_slice(&REMOTE_CALL.to_ne_bytes());
        question[8..16].copy_from_slice(&number.to_ne_bytes());
        for (at, arg) in args.iter().enumerate() {
            question[16 + at * 8..24 + at * 8].copy_from_slice(&arg.to_ne_bytes());
        }
        question.extend(data);
        let bytes = question.len();
        question.resize(SLOT_DATA, 0);
        let answered = serve(&mut question, bytes);
        let (result, data) = question[..answered].split_first_chunk::<8>().unwrap();
        (isize::from_ne_bytes(*result), data.to_vec())
    }

    #[test]
    fn files_are_used_for_others() {
        let place = std::env::temp_dir().join(format!("polyrail-omp-calls-{}", std::process::id()));
        let name = [place.to_str().unwrap().as_bytes(), &[0]].concat();
        let flags = (libc::O_RDWR | libc::O_CREAT) as usize;
        let (file, _) = ask(libc::SYS_open, [1, flags, 0o600, 0, 0, 0], &name);
        assert!(file > 2);
        assert_eq!(ask(libc::SYS_write, [file as usize, 1, 5, 0, 0, 0], b"hello").0, 5);
        assert_eq!(ask(libc::SYS_pread64, [file as usize, 1, 100, 1, 0, 0], b""), (4, b"ello".to_vec()));
        let (result, stat) = ask(libc::SYS_fstat, [file as usize, 1, 0, 0, 0, 0], b"");
        assert_eq!((result, stat.len()), (0, STAT));
        assert_eq!(ask(libc::SYS_unlink, [1, 0, 0, 0, 0, 0], &name).0, 0);
        assert_eq!(ask(libc::SYS_unlink, [1, 0, 0, 0, 0, 0], &name).0, -libc::ENOENT as isize);
    }

    #[test]
    fn nobody_waits_for_input() {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        let mut question = vec![0; SLOT_DATA];
        let mut read = || {
            question[..4].copy_from_slice(&REMOTE_CALL.to_ne_bytes());
            for (at, word) in [libc::SYS_read as usize, ends[0] as usize, 1, 10].into_iter().enumerate() {
                question[8 + at * 8..16 + at * 8].copy_from_slice(&word.to_ne_bytes());
            }
            let answered = serve(&mut question, 64);
            question[..answered].to_vec()
        };
        assert_eq!(read(), NOT_YET);
        // SAFETY: two bytes
        assert_eq!(unsafe { libc::write(ends[1], b"ab".as_ptr().cast(), 2) }, 2);
        assert_eq!(read(), [&2_u64.to_ne_bytes()[..], b"ab"].concat());
        // SAFETY: a descriptor of our own
        unsafe { libc::close(ends[1]) };
        assert_eq!(read(), 0_u64.to_ne_bytes());
    }

    #[test]
    fn broken_questions_have_no_answer() {
        let mut data = vec![0; SLOT_DATA];
        assert_eq!(serve(&mut data, 0), 0);
        data[0] = 2;
        assert_eq!(serve(&mut data, 30), 0);
        // a write of more than was sent
        data[8] = libc::SYS_write as u8;
        data[24] = 1;
        data[32] = 200;
        assert_eq!(serve(&mut data, 100), 0);
    }
}
