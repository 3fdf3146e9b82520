//! System calls that rank 0 carries out: there is one set of descriptors, one working directory, one terminal, and it is rank 0's. On ranks above 0 a filter
//! (seccomp) lets through what is about this process alone (memory, threads, signals, time), and traps all else; what is known is carried out by rank
//! 0's server thread, what is not is refused by its number.

mod constructors;
mod elsewhere;

use core::sync::atomic::{AtomicBool, Ordering};

use polyrail_omp::area::SLOT_DATA;

use crate::input::is_ready;
use crate::syscalls::Parameter::{Fixed, In, Out, Text, Value};
use crate::syscalls::{DIFFER, OWN, parameters, written};
use crate::{ask, coherence, input, library, output, pthread, raw, run, serial, signals, sys, syscalls};

/// Whether regions have begun; before, constructors run on every rank (`constructors`).
static REGIONS: AtomicBool = AtomicBool::new(false);

/// Whether the runtime's handlers of signals are set, for good.
static HANDLERS: AtomicBool = AtomicBool::new(false);

/// From now on what is trapped is a region's.
pub fn regions_begin() {
    HANDLERS.store(true, Ordering::Relaxed);
    REGIONS.store(true, Ordering::Relaxed);
}

/// From now on for the calling thread, and those that it starts: on ranks above 0 before there are others, on rank 0 if serial code runs on every rank.
pub fn start() {
    syscalls::made_by(call);
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
    let place = raw::place() as u64;
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
            && (!run::is_replicated() || !DIFFER.contains(number))
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
        signals::keep(libc::SIGSYS, trapped, run::signal_flags());
        raw::call(libc::SYS_prctl, [libc::PR_SET_NO_NEW_PRIVS as usize, 1, 0, 0, 0, 0]);
        let set = raw::call(
            libc::SYS_seccomp,
            [libc::SECCOMP_SET_MODE_FILTER as usize, 0, &raw const program as usize, 0, 0, 0],
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
unsafe fn call(number: i64, args: &[usize; 6]) -> isize {
    // SAFETY: the caller's
    unsafe {
        if run::runs_replicated() {
            return serial::call(number, args);
        }
        match REGIONS.load(Ordering::Relaxed) && run::rank() > 0 {
            true if number == libc::SYS_mmap => elsewhere::map(args),
            true if !OWN.contains(&number) => elsewhere::call(number, args),
            false if !OWN.contains(&number) && run::rank() > 0 => constructors::call(number, args),
            _ => raw::call(number, *args),
        }
    }
}

/// Rank 0's server thread: answers one question, over it; how long the answer is.
pub fn serve(data: &mut [u8], bytes: usize) -> usize {
    let question = data[..bytes].to_vec();
    let kind = question.first_chunk::<4>().map(|kind| u32::from_ne_bytes(*kind));
    let answer = match kind {
        Some(ask::ATOMIC) => coherence::serve_operation(question.get(8..).unwrap_or_default()),
        Some(ask::CALL) => carry_out(&question),
        Some(ask::RECORDS) => serial::serve(question.get(8..).unwrap_or_default()),
        Some(ask::BACK) => coherence::back(question.get(8..).unwrap_or_default()),
        Some(ask::EXIT) => pthread::register_exit(question.get(8..).unwrap_or_default()),
        Some(ask::RANDOM) => library::random(question.get(8..).unwrap_or_default()),
        Some(ask::LEND) => input::lend(question.get(8..).unwrap_or_default()),
        Some(ask::RETURN) => input::take_back(question.get(8..).unwrap_or_default()),
        Some(ask::FAILED) => output::fail(question.get(8..).unwrap_or_default()),
        Some(ask::MUTEX) => pthread::serve(question.get(8..).unwrap_or_default()),
        Some(ask::TELLS) => coherence::serve_awaits(question.get(8..).unwrap_or_default()),
        Some(ask::CLOSE) => output::close(question.get(8..).unwrap_or_default()),
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
        return Some(ask::NOT_YET.to_vec());
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
    let result = unsafe { raw::call(number, args) };
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(number: i64, args: [usize; 6], data: &[u8]) -> (isize, Vec<u8>) {
        let mut question = vec![0; 64];
        question[..4].copy_from_slice(&ask::CALL.to_ne_bytes());
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
        assert_eq!((result, stat.len()), (0, syscalls::STAT));
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
            question[..4].copy_from_slice(&ask::CALL.to_ne_bytes());
            for (at, word) in [libc::SYS_read as usize, ends[0] as usize, 1, 10].into_iter().enumerate() {
                question[8 + at * 8..16 + at * 8].copy_from_slice(&word.to_ne_bytes());
            }
            let answered = serve(&mut question, 64);
            question[..answered].to_vec()
        };
        assert_eq!(read(), ask::NOT_YET);
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
