//! System calls of serial code: rank 0 carries them out and keeps what came of them, the n-th of another rank gets what came of rank 0's n-th.
//!
//! What is kept is a row of bytes, of which other ranks ask for the piece behind what they have; rank 0's server thread answers. A *section* is the serial code between
//! two regions. Only what a call is, not what it is given to write, must be the same: what rank 0 writes counts.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

use polyrail_omp::area::{RANKS, SLOT_DATA};

use super::{HINT, wait_for_the_end};
use crate::raw::{self, Lock};
use crate::syscalls::{self, Parameter};
use crate::{ask, run, sys};

/// What stands before a call's bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
struct Head {
    number: i64,
    /// Its first parameter, if that is a value.
    first: usize,
    result: isize,
    /// Bytes of the strings that it was given, and of what the kernel wrote, which follow.
    text: u32,
    data: u32,
}
const HEAD: usize = size_of::<Head>();

/// Files are mapped on other ranks by their contents, up to so many bytes.
const MAPPED: usize = 64 << 20;
/// The server looks after others while it waits for rank 0's serial code; so many nanoseconds at a time.
const PATIENCE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 10_000_000 };
/// Rank 0 waits for others that are so many bytes behind, unless they ask for nothing in all the time: then one may have gone another way and wait for rank 0.
const BACKLOG: usize = 1 << 30;
const AT_MOST: libc::timespec = libc::timespec { tv_sec: 30, tv_nsec: 0 };

/// What rank 0 keeps.
struct Log {
    /// Bytes that all have had, which are gone.
    gone: usize,
    bytes: Vec<u8>,
    /// How far each rank has come.
    had: [usize; RANKS],
    /// Sections that are over.
    over: usize,
}

static LOG: Lock<Log> = Lock::new(Log { gone: 0, bytes: Vec::new(), had: [0; RANKS], over: 0 });
/// Changes with the log.
static BELL: AtomicU32 = AtomicU32::new(0);
static AWAITED: AtomicBool = AtomicBool::new(false);
/// Changes when the slowest has asked for more.
static FETCHED: AtomicU32 = AtomicU32::new(0);
static WAITS: AtomicBool = AtomicBool::new(true);

/// What another rank has asked for.
struct Reader {
    /// Bytes that it has done with, all together.
    done: usize,
    bytes: Vec<u8>,
    /// Those of them that are done, too.
    read: usize,
    section: usize,
}
static READER: Lock<Reader> = Lock::new(Reader { done: 0, bytes: Vec::new(), read: 0, section: 0 });

/// A call as it is compared and told.
#[derive(PartialEq, Eq)]
struct Call {
    number: i64,
    first: usize,
    text: Vec<u8>,
}

impl Call {
    fn of(number: i64, args: &[usize; 6]) -> Self {
        let parameters = syscalls::serial_parameters(number, args).unwrap_or_default();
        let first = if parameters.first() == Some(&Parameter::Value) { args[0] } else { 0 };
        let mut text = Vec::new();
        for (at, _) in parameters.iter().enumerate().filter(|(_, parameter)| **parameter == Parameter::Text) {
            if args[at] != 0 {
                // SAFETY: a string that the kernel would read
                let string = unsafe { std::ffi::CStr::from_ptr(args[at] as *const libc::c_char) };
                text.extend(string.to_bytes_with_nul());
            }
        }
        Self { number, first, text }
    }
    fn name(&self) -> String {
        let name =
            syscalls::name(self.number).map_or_else(|| format!("system call {}", self.number), String::from);
        let text = String::from_utf8_lossy(&self.text[..self.text.len().min(200)]);
        match text.split('\0').next().unwrap_or_default() {
            "" => format!("{name}({})", self.first.cast_signed()),
            text => format!("{name}({text:?})"),
        }
    }
}

/// What the kernel wrote for a call with that result: addresses and bytes. Nothing if the call is not known.
fn written(number: i64, args: &[usize; 6], result: isize) -> Option<Vec<(usize, usize)>> {
    if matches!(number, libc::SYS_readv | libc::SYS_preadv) {
        let mut left = result.max(0) as usize;
        let pieces = vectors(args).iter().map(|vector| {
            let bytes = vector.iov_len.min(left);
            left -= bytes;
            (vector.iov_base as usize, bytes)
        });
        return Some(pieces.collect());
    }
    let parameters = syscalls::serial_parameters(number, args)?.iter().enumerate();
    let pieces = parameters.filter(|(at, _)| args[*at] != 0);
    Some(pieces.filter_map(|(at, it)| Some((args[at], syscalls::written(*it, args, result)?))).collect())
}

/// The second and third parameters of `readv` and its like.
fn vectors<'a>(args: &[usize; 6]) -> &'a [libc::iovec] {
    // SAFETY: what the kernel would read
    unsafe {
        core::slice::from_raw_parts(args[1] as *const libc::iovec, if args[1] == 0 { 0 } else { args[2] })
    }
}

/// Bytes that the call is to write, if it does write.
pub fn to_write(number: i64, args: &[usize; 6]) -> Option<usize> {
    match number {
        libc::SYS_write | libc::SYS_pwrite64 => Some(args[2]),
        libc::SYS_writev | libc::SYS_pwritev => Some(vectors(args).iter().map(|vector| vector.iov_len).sum()),
        _ => None,
    }
}

/// A system call of serial code.
pub fn call(number: i64, args: &[usize; 6]) -> isize {
    if run::rank() == 0 { make(number, args) } else { take(number, args) }
}

fn carry_out(number: i64, args: &[usize; 6]) -> isize {
    // SAFETY: the program's own call
    unsafe { raw::call(number, *args) }
}

/// Rank 0: does it, and keeps what came of it.
fn make(number: i64, args: &[usize; 6]) -> isize {
    match number {
        // these may not come back
        libc::SYS_exit_group => keep(number, args, 0, &[]),
        libc::SYS_kill | libc::SYS_tkill | libc::SYS_tgkill => {
            let own = carry_out(libc::SYS_getpid, &[0; 6]) as usize;
            keep(number, args, 0, &[u8::from(args[0] == own)]);
        }
        _ => {
            let result = carry_out(number, args);
            let mut data = Vec::new();
            if number == libc::SYS_mmap {
                data = contents(args, result);
            } else if let Some(bytes) = to_write(number, args) {
                data.extend(bytes.to_ne_bytes());
            }
            for (at, bytes) in written(number, args, result).unwrap_or_default() {
                // SAFETY: the kernel has written so much there
                data.extend(unsafe { core::slice::from_raw_parts(at as *const u8, bytes) });
            }
            keep(number, args, result, &data);
            return result;
        }
    }
    carry_out(number, args)
}

/// What a file has where it was mapped, if others can do with a copy.
fn contents(args: &[usize; 6], result: isize) -> Vec<u8> {
    let shared =
        args[3] as i32 & libc::MAP_TYPE != libc::MAP_PRIVATE && args[2] as i32 & libc::PROT_WRITE != 0;
    if result < 0 || shared || args[1] > MAPPED || args[3] as i32 & libc::MAP_ANONYMOUS != 0 {
        return Vec::new();
    }
    let mut data = vec![0; args[1]];
    let mut done = 0;
    while done < data.len() {
        let place = data[done..].as_mut_ptr() as usize;
        match carry_out(libc::SYS_pread64, &[args[4], place, data.len() - done, args[5] + done, 0, 0]) {
            got if got > 0 => done += got as usize,
            _ => break,
        }
    }
    data.truncate(done);
    data
}

fn keep(number: i64, args: &[usize; 6], result: isize, data: &[u8]) {
    let Call { first, text, .. } = Call::of(number, args);
    let head = Head { number, first, result, text: text.len() as u32, data: data.len() as u32 };
    // SAFETY: a structure without padding, as bytes
    let head = unsafe { core::slice::from_raw_parts((&raw const head).cast::<u8>(), HEAD) };
    wait_for_others();
    without_signals(|| {
        LOG.with(|log| [head, &text, data].into_iter().for_each(|part| log.bytes.extend(part)))
    });
    ring();
}

fn wait_for_others() {
    while WAITS.load(Relaxed) {
        let seen = FETCHED.load(SeqCst);
        if LOG.with(|log| log.bytes.len() < BACKLOG) {
            return;
        }
        if wait(&FETCHED, seen, &AT_MOST) == -libc::ETIMEDOUT as isize {
            WAITS.store(false, Relaxed);
        }
    }
}

fn wait(word: &AtomicU32, value: u32, time: &libc::timespec) -> isize {
    let (word, time) = (word.as_ptr() as usize, core::ptr::from_ref(time) as usize);
    carry_out(libc::SYS_futex, &[word, libc::FUTEX_WAIT as usize, value as usize, time, 0, 0])
}

fn ring() {
    BELL.fetch_add(1, SeqCst);
    if AWAITED.load(SeqCst) {
        sys::wake(&BELL, 1);
    }
}

/// A handler of the program's might make calls, too.
fn without_signals(f: impl FnOnce()) {
    let (all, mut before) = (u64::MAX, 0_u64);
    let mask = |how: i32, new: &u64, old: *mut u64| {
        let args = [how as usize, core::ptr::from_ref(new) as usize, old as usize, 8, 0, 0];
        carry_out(libc::SYS_rt_sigprocmask, &args);
    };
    mask(libc::SIG_SETMASK, &all, &raw mut before);
    f();
    mask(libc::SIG_SETMASK, &before, core::ptr::null_mut());
}

impl Log {
    /// What `rank` has not had, and whether nothing will be added before its section is over.
    fn after(&mut self, rank: usize, had: usize, section: usize) -> (Vec<u8>, bool) {
        let slowest = |had: &[usize]| had[1..run::size()].iter().copied().min().unwrap_or(0);
        let before = slowest(&self.had);
        self.had[rank % RANKS] = had;
        let least = slowest(&self.had);
        let is_awaited = self.bytes.len() >= BACKLOG && least > before;
        let done = least.saturating_sub(self.gone).min(self.bytes.len());
        // each byte is moved at most once on the mean
        if done > SLOT_DATA && done >= self.bytes.len() / 2 {
            self.bytes.drain(..done);
            self.bytes.shrink_to(4 * self.bytes.len() + SLOT_DATA);
            self.gone += done;
        }
        if is_awaited {
            FETCHED.fetch_add(1, SeqCst);
            sys::wake(&FETCHED, 1);
        }
        let rest = had.checked_sub(self.gone).and_then(|from| self.bytes.get(from..)).unwrap_or_default();
        (rest[..rest.len().min(SLOT_DATA - 8)].to_vec(), self.over > section)
    }
}

/// Rank 0's server thread: what another rank has not had yet, as soon as there is anything; nothing if that takes long.
pub fn serve(question: &[u8]) -> Option<Vec<u8>> {
    let words: Vec<usize> = question.as_chunks().0.iter().map(|word| usize::from_ne_bytes(*word)).collect();
    let [rank, had, section] = words[..] else { return None };
    let look = || LOG.with(|log| log.after(rank, had, section));
    AWAITED.store(true, SeqCst);
    let bell = BELL.load(SeqCst);
    let (mut bytes, mut over) = look();
    if bytes.is_empty() && !over {
        wait(&BELL, bell, &PATIENCE);
        (bytes, over) = look();
    }
    AWAITED.store(false, SeqCst);
    Some([&u64::from(over).to_ne_bytes()[..], &bytes].concat())
}

/// The section of serial code is over for this rank: how far it has come.
pub fn close() -> usize {
    if run::rank() == 0 {
        let end = LOG.with(|log| {
            log.over += 1;
            log.gone + log.bytes.len()
        });
        ring();
        return end;
    }
    READER.with(|reader| {
        reader.section += 1;
        reader.done
    })
}

/// Another rank: the next call of rank 0's, its result, what was written. None if rank 0 has come to a region.
fn next() -> Option<(Call, isize, Vec<u8>)> {
    READER.with(|reader| {
        loop {
            if let Some((head, rest)) = reader.bytes[reader.read..].split_at_checked(HEAD) {
                // SAFETY: bytes that were such a structure
                let head = unsafe { head.as_ptr().cast::<Head>().read_unaligned() };
                let (text, all) = (head.text as usize, head.text as usize + head.data as usize);
                if let Some(rest) = rest.get(..all) {
                    let (text, data) = rest.split_at(text);
                    let call = Call { number: head.number, first: head.first, text: text.to_vec() };
                    let next = (call, head.result, data.to_vec());
                    reader.read += HEAD + all;
                    reader.done += HEAD + all;
                    return Some(next);
                }
            }
            reader.bytes.drain(..core::mem::take(&mut reader.read));
            let had = reader.done + reader.bytes.len();
            let question = [run::rank(), had, reader.section].map(usize::to_ne_bytes).concat();
            let (over, bytes) = ask::rank_0(ask::RECORDS, &question).split_first_chunk::<8>()?;
            if bytes.is_empty() && *over != [0; 8] {
                return None;
            }
            reader.bytes.extend(bytes);
        }
    })
}

/// Another rank: gets what came of it on rank 0.
fn take(number: i64, args: &[usize; 6]) -> isize {
    let own = Call::of(number, args);
    let (result, data) = match next() {
        Some((theirs, result, data)) if theirs == own => (result, data),
        theirs => leave(theirs.map(|(call, ..)| call), &own),
    };
    match number {
        libc::SYS_exit_group => wait_for_the_end(),
        libc::SYS_kill | libc::SYS_tkill | libc::SYS_tgkill => {
            if data == [1] {
                let signal = if number == libc::SYS_tgkill { args[2] } else { args[1] };
                let own =
                    [libc::SYS_getpid, libc::SYS_gettid].map(|number| carry_out(number, &[0; 6]) as usize);
                carry_out(libc::SYS_tgkill, &[own[0], own[1], signal, 0, 0, 0]);
            }
            result
        }
        libc::SYS_mmap if result >= 0 => map(args, result, &data),
        _ => {
            if let Some(bytes) = to_write(number, args) {
                // what was to be written counts on rank 0, and may be longer or shorter here
                let all = data == (result.max(0) as usize).to_ne_bytes();
                return if all { bytes as isize } else { result.min(bytes as isize) };
            }
            let Some(pieces) = written(number, args, result) else { refuse(&own) };
            let mut data = &data[..];
            for (at, bytes) in pieces {
                let Some((piece, rest)) = data.split_at_checked(bytes) else { break };
                // SAFETY: what the kernel would write
                unsafe { (at as *mut u8).copy_from_nonoverlapping(piece.as_ptr(), bytes) };
                data = rest;
            }
            result
        }
    }
}

/// At the same address as rank 0 has it: new memory; or, there or elsewhere, a copy of what rank 0 has mapped.
fn map(args: &[usize; 6], there: isize, data: &[u8]) -> isize {
    if args[3] as i32 & libc::MAP_ANONYMOUS != 0 {
        let [_, bytes, protection, flags, ..] = *args;
        // SAFETY: nothing that is mapped is replaced
        let at = unsafe {
            raw::mmap(
                there as usize,
                bytes,
                protection as i32,
                flags as i32 | libc::MAP_FIXED_NOREPLACE,
                -1,
                0,
            )
        };
        if at == there {
            return there;
        }
    }
    let Some(bytes) = Some(args[1]).filter(|bytes| !data.is_empty() && data.len() <= *bytes) else {
        refuse(&Call { number: libc::SYS_mmap, first: args[4], text: Vec::new() })
    };
    let fixed = args[3] as i32 & (libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE);
    let (place, flags) = if fixed == 0 { (there as usize, 0) } else { (args[0], fixed) };
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new pages, or those that the program wants replaced
    unsafe {
        let at = raw::mmap(place, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if at > 0 {
            (at as *mut u8).copy_from_nonoverlapping(data.as_ptr(), data.len());
            raw::call(libc::SYS_mprotect, [at as usize, bytes, args[2], 0, 0, 0]);
        }
        at
    }
}

fn refuse(call: &Call) -> ! {
    until_region();
    sys::fail(format_args!("{} in serial code cannot be had on several ranks; {HINT}", call.name()))
}

/// This rank's serial code went another way: it comes to `own` instead of `theirs` (none: a region).
fn leave(theirs: Option<Call>, own: &Call) -> ! {
    let name = theirs.as_ref().map_or("the begin of a parallel region".into(), Call::name);
    if theirs.is_some_and(|call| call.number == libc::SYS_exit_group) {
        wait_for_the_end();
    }
    until_region();
    differs(&own.name(), &name)
}

/// This rank's serial code cannot go on, which matters if rank 0 comes to another region: comes back only then. If it ends without, whether other ranks find that they
/// are elsewhere before it has ended would be chance.
fn until_region() {
    while let Some((call, ..)) = next() {
        if call.number == libc::SYS_exit_group {
            wait_for_the_end();
        }
    }
}

fn differs(own: &str, theirs: &str) -> ! {
    sys::fail(format_args!(
        "serial code of rank {} differs from rank 0's: where that comes to {theirs}, this comes to {own}. It depends on what differs between ranks; {HINT}",
        run::rank()
    ))
}

/// Rank 0 has made other calls than this rank before it came to a region.
pub fn missed() -> ! {
    READER.with(|reader| reader.section -= 1);
    let theirs = next().map_or("another number of system calls".into(), |(call, ..)| call.name());
    differs("the begin of a parallel region", &theirs)
}
