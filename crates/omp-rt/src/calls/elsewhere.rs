//! Regions' system calls on ranks above 0, which rank 0 carries out.

use core::slice;

use polyrail_omp::area::{Count, Kind, SLOT_DATA};

use crate::syscalls::Parameter::{In, Out, Text};
use crate::syscalls::{parameters, written};
use crate::{agent, ask, input, raw, run, stats, sys, syscalls};

/// Bytes of a question before what parameters point to.
const HEAD: usize = 64;
/// Bytes that are read or written by one question, beside names and structures.
const ROOM: usize = SLOT_DATA - HEAD - 2 * 4096 - 256;

/// Longest pause between two questions, in microseconds: people's input may take its time.
const PAUSE: u32 = 10_000;

/// A system call.
///
/// # Safety
/// That of the call.
pub unsafe fn call(number: i64, args: &[usize; 6]) -> isize {
    if number == libc::SYS_exit_group {
        agent::ask(Kind::Exit, [args[0] as u64, 0, 0, 0, 0, 0], &[]);
        sys::end(args[0] as i32);
    }
    // SAFETY: the caller's
    unsafe {
        match number {
            libc::SYS_read if input::is_standard(number, args) => input::read(args[1] as *mut u8, args[2]),
            libc::SYS_read | libc::SYS_write | libc::SYS_pread64 | libc::SYS_pwrite64 => whole(number, args),
            libc::SYS_readv | libc::SYS_preadv | libc::SYS_writev | libc::SYS_pwritev => {
                gathered(number, args)
            }
            _ => ask(number, args),
        }
    }
}

/// Reads or writes all, as files and pipes do it, by as many questions as that takes. A part that is short is the last.
unsafe fn whole(number: i64, args: &[usize; 6]) -> isize {
    let [file, from, bytes, offset, ..] = *args;
    let mut done = 0;
    loop {
        let part = (bytes - done).min(ROOM);
        // SAFETY: the caller's
        let result = unsafe { ask(number, &[file, from + done, part, offset + done, 0, 0]) };
        if result < 0 {
            return if done > 0 { done as isize } else { result };
        }
        done += result as usize;
        if done == bytes || (result as usize) < part || (number == libc::SYS_read && is_empty(file)) {
            return done as isize;
        }
    }
}

/// Whether there is nothing to read at the time, as far as can be said.
fn is_empty(file: usize) -> bool {
    let mut bytes = 0_i32;
    // SAFETY: a number to be written
    let told =
        unsafe { ask(libc::SYS_ioctl, &[file, libc::FIONREAD as usize, &raw mut bytes as usize, 0, 0, 0]) };
    told == 0 && bytes == 0
}

/// `readv`, `writev` and their like: as one piece, so that what is written at once stays together.
unsafe fn gathered(number: i64, args: &[usize; 6]) -> isize {
    let [file, vectors, count, offset, ..] = *args;
    let single = match number {
        libc::SYS_readv => libc::SYS_read,
        libc::SYS_preadv => libc::SYS_pread64,
        libc::SYS_writev => libc::SYS_write,
        _ => libc::SYS_pwrite64,
    };
    let count = if vectors == 0 { 0 } else { count };
    // SAFETY: what the kernel would read
    let vectors = unsafe { slice::from_raw_parts(vectors as *const libc::iovec, count) };
    let vectors = || vectors.iter().filter(|vector| vector.iov_len > 0);
    let mut piece = vec![0; vectors().map(|vector| vector.iov_len).sum()];
    let args = [file, piece.as_mut_ptr() as usize, piece.len(), offset, 0, 0];
    let copy = |piece: &mut [u8], is_read: bool| {
        let mut rest = piece;
        for vector in vectors() {
            let bytes = vector.iov_len.min(rest.len());
            let part;
            (part, rest) = rest.split_at_mut(bytes);
            let there = vector.iov_base.cast::<u8>();
            // SAFETY: what the kernel would read or write
            unsafe {
                match is_read {
                    true => there.copy_from_nonoverlapping(part.as_ptr(), part.len()),
                    false => part.as_mut_ptr().copy_from_nonoverlapping(there, part.len()),
                }
            }
        }
    };
    let reads = matches!(single, libc::SYS_read | libc::SYS_pread64);
    if !reads {
        copy(&mut piece, false);
    }
    // SAFETY: a piece of our own
    let result = unsafe { whole(single, &args) };
    if reads && result > 0 {
        copy(&mut piece[..result as usize], true);
    }
    result
}

/// `mmap`: memory is this process's own, a file is rank 0's. What is only read, or changed for oneself, is a copy of it.
///
/// # Safety
/// That of the call.
pub unsafe fn map(args: &[usize; 6]) -> isize {
    let [address, bytes, protection, flags, file, offset] = *args;
    let (now, kind) = (flags as i32, flags as i32 & libc::MAP_TYPE);
    if now & libc::MAP_ANONYMOUS != 0 {
        // SAFETY: the caller's
        return unsafe { raw::call(libc::SYS_mmap, *args) };
    }
    if kind != libc::MAP_PRIVATE && protection as i32 & libc::PROT_WRITE != 0 {
        sys::stop(
            "mmap",
            "in a parallel region, of a file to be changed by writing to memory: files are rank 0's; map it in serial code",
        );
    }
    let kept = now & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE | libc::MAP_32BIT | libc::MAP_NORESERVE);
    let flags = kept | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new pages, or those that the program wants replaced
    unsafe {
        let at = raw::mmap(address, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if at < 0 {
            return at;
        }
        let got = whole(libc::SYS_pread64, &[file, at as usize, bytes, offset, 0, 0]);
        if got < 0 {
            raw::call(libc::SYS_munmap, [at as usize, bytes, 0, 0, 0, 0]);
            return got;
        }
        raw::call(libc::SYS_mprotect, [at as usize, bytes, protection, 0, 0, 0]);
        at
    }
}

/// Has rank 0 do it, of what is read or written as much as fits.
unsafe fn ask(number: i64, args: &[usize; 6]) -> isize {
    let Some(parameters) = parameters(number, args) else {
        let name =
            syscalls::name(number).map_or_else(|| number.to_string(), |name| format!("{name} ({number})"));
        sys::fail(format_args!(
            "system call {name} in a parallel region on rank {}: only rank 0 has files, sockets and processes, and this call is none that it can do for others",
            run::rank()
        ));
    };
    let mut args = *args;
    let mut question = vec![0; HEAD];
    for (at, parameter) in parameters.iter().enumerate() {
        match *parameter {
            In(length) | Out(length) => args[length] = args[length].min(ROOM),
            _ => {}
        }
        if args[at] == 0 {
            continue;
        }
        match *parameter {
            In(length) => {
                // SAFETY: what the kernel would read
                question.extend(unsafe { slice::from_raw_parts(args[at] as *const u8, args[length]) })
            }
            Text => {
                // SAFETY: a string that the kernel would read
                let text =
                    unsafe { std::ffi::CStr::from_ptr(args[at] as *const libc::c_char) }.to_bytes_with_nul();
                if text.len() > 4096 {
                    return -libc::ENAMETOOLONG as isize;
                }
                question.extend(text);
            }
            _ => {}
        }
    }
    question[..4].copy_from_slice(&ask::CALL.to_ne_bytes());
    question[8..16].copy_from_slice(&number.to_ne_bytes());
    for (at, arg) in args.iter().enumerate() {
        question[16 + at * 8..24 + at * 8].copy_from_slice(&arg.to_ne_bytes());
    }
    let ask = |tries| {
        let answer = agent::ask(Kind::Serve, [0; 6], &[&question]);
        let done = answer.data != ask::NOT_YET;
        if !done {
            ask::pause(tries, PAUSE);
        }
        done.then_some(answer)
    };
    let Some(answer) = (0..).find_map(ask) else { return -libc::EIO as isize };
    stats::add(Count::Calls, 1);
    let Some((result, mut data)) = answer.data.split_first_chunk::<8>() else { return -libc::EIO as isize };
    let result = isize::from_ne_bytes(*result);
    for (at, parameter) in parameters.iter().enumerate() {
        let Some(room) = written(*parameter, &args, result) else { continue };
        if args[at] != 0 && room <= data.len() {
            let (piece, rest) = data.split_at(room);
            // SAFETY: what the kernel would write
            unsafe { (args[at] as *mut u8).copy_from_nonoverlapping(piece.as_ptr(), room) };
            data = rest;
        }
    }
    result
}
