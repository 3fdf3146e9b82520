//! What the program has written and not yet handed to the system: C streams, Fortran units, `std::cout`. `cout` is for the last; that C streams
//! are opened and closed is in `opened`, that what they have cannot be written in `failed`.

mod cout;
mod failed;
mod opened;

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::AtomicUsize;

use std::sync::{Mutex, MutexGuard};

use crate::symbols::find;
use crate::{alloc, heap, input, library, run, sys, syscalls};

/// Gives standard input and output their buffers before anything is read or written, in this process's own memory: serial code that runs on every rank must find them
/// alike, whoever has used them in a region.
pub fn prepare() {
    unsafe extern "C" {
        static stdin: *mut libc::FILE;
        static stdout: *mut libc::FILE;
    }
    // SAFETY: the C library's streams, which nobody has used
    alloc::privately(|| unsafe {
        for (stream, descriptor) in [(stdin, 0), (stdout, 1)] {
            libc::setvbuf(stream, ptr::null_mut(), libc::_IOFBF, 0);
            if libc::isatty(descriptor) == 1 {
                libc::setvbuf(stream, ptr::null_mut(), libc::_IOLBF, 0);
            }
        }
    });
}

/// Hands everything to the system, so that what the program orders is in order; at a barrier, or in serial code: no thread of the program runs.
pub fn flush_all() {
    input::give_back();
    cout::flush();
    flush_streams();
}

/// As [`flush_all`] where other threads of this rank may run: `std::cout`, which nothing locks, only if there are none.
pub fn flush() {
    input::give_back();
    if run::team() <= 1 {
        cout::flush();
    }
    flush_streams();
}

fn flush_streams() {
    static UNITS: AtomicUsize = AtomicUsize::new(0);
    static LOCK: AtomicUsize = AtomicUsize::new(0);
    static UNLOCK: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: the C library's, and those of the Fortran library by their documented names; a null unit means all of them.
    unsafe {
        if let Some(units) = find(c"_gfortran_flush_i4", &UNITS) {
            core::mem::transmute::<usize, extern "C" fn(*const c_int)>(units)(ptr::null());
        }
        match (list(), find(c"_IO_list_lock", &LOCK), find(c"_IO_list_unlock", &UNLOCK)) {
            (Some(list), Some(lock), Some(unlock)) => {
                core::mem::transmute::<usize, extern "C" fn()>(lock)();
                // asked for the one behind, there must be one: none of the list is read behind its end
                let is_one = |at: &usize| *at != 0;
                let all = core::iter::successors(Some(*list).filter(is_one), |at| {
                    Some(field(*at, NEXT)).filter(is_one)
                });
                all.for_each(flush_one);
                core::mem::transmute::<usize, extern "C" fn()>(unlock)();
            }
            _ => {
                failed::flush(ptr::null_mut());
            }
        }
    }
    for stream in streams().iter_mut().filter(|stream| descriptor(stream.at) == stream.descriptor) {
        flush_one(stream.at);
        if !stream.fails && failed::fails(stream.at) {
            stream.fails = true;
            failed::note(stream.at, 0);
        }
    }
}

/// Hands on what a stream has, as `fflush` does, but if another thread has it locked for long: it may wait for what the caller has.
fn flush_one(stream: usize) {
    const OFTEN: u32 = 200;
    let is_wide = || (field(stream, MODE) as i32) > 0;
    let has_any = || {
        let (at, from) = if is_wide() { (field(stream, WIDE), WIDE_WRITE) } else { (stream, WRITE) };
        field(at, from) < field(at, from + 8)
    };
    let file = stream as *mut libc::FILE;
    // SAFETY: a stream in a list of streams, which is not closed meanwhile
    unsafe {
        for round in 0..OFTEN {
            if !has_any() {
                return;
            }
            if ftrylockfile(file) == 0 {
                if has_any() {
                    let result = match is_wide() {
                        true => __woverflow(file, u32::MAX),
                        false => __overflow(file, libc::EOF) as u32,
                    };
                    if result == u32::MAX {
                        failed::note(stream, *libc::__errno_location());
                    }
                }
                return funlockfile(file);
            }
            sys::pause(if round < OFTEN / 2 { 0 } else { 50 });
        }
    }
}

/// A stream of the C library that serial code has opened for writing, and its buffer. It is shared memory; but threads write to a stream without asking each
/// other, since the C library lets them. So in a region each rank has its own, which begins as rank 0's did and is flushed before others are to see anything.
#[derive(Clone, Copy)]
pub struct Stream {
    at: usize,
    /// Its file's; another once it is closed.
    descriptor: usize,
    /// The bytes that are each rank's own.
    pub own: [(usize, usize); 2],
    /// Rank 0 knows that a write has failed.
    fails: bool,
}

/// On ranks above 0, which the C library there knows nothing of.
static STREAMS: Mutex<Vec<Stream>> = Mutex::new(Vec::new());

fn streams() -> MutexGuard<'static, Vec<Stream>> {
    STREAMS.lock().unwrap_or_else(|broken| broken.into_inner())
}

unsafe extern "C" {
    // The C library's: hands on what is to be written; has a stream ready to be written to, if nothing is.
    fn __overflow(stream: *mut libc::FILE, character: c_int) -> c_int;
    fn __woverflow(stream: *mut libc::FILE, character: u32) -> u32;
    fn ftrylockfile(stream: *mut libc::FILE) -> c_int;
    fn funlockfile(stream: *mut libc::FILE);
}

/// Where the C library's list of streams begins: rank 0's, in serial code, when what it has written is flushed. Those that can only be written to, for want of
/// anything to read, are made ready for it, so that they are known, with their buffers.
pub fn first() -> usize {
    // SAFETY: the C library's variable
    let Some(first) = list().map(|list| unsafe { *list }) else { return 0 };
    let unwritten = |at: &usize| {
        let flags = field(*at, 0) as u32;
        flags & (NO_WRITES | PUTTING) == 0
            && (flags & NO_READS != 0 || field(*at, READ) == field(*at, READ_END) && is_empty_file(*at))
    };
    for at in of_serial_code(first).filter(unwritten) {
        // SAFETY: a stream that nobody uses meanwhile
        unsafe { __overflow(at as *mut libc::FILE, libc::EOF) };
    }
    first
}

fn is_empty_file(stream: usize) -> bool {
    // SAFETY: all zero is one; the call, which goes by rank 0's descriptors on every rank, fills it
    unsafe {
        let mut status: libc::stat = core::mem::zeroed();
        let args = [descriptor(stream), &raw mut status as usize, 0, 0, 0, 0];
        syscalls::call(libc::SYS_fstat, &args) == 0
            && status.st_mode & libc::S_IFMT == libc::S_IFREG
            && status.st_size == 0
    }
}

/// A region ends: serial code may close its streams.
pub fn unshare() {
    streams().clear();
}

/// Ranks above 0, before regions: what constructors opened is rank 0's, and no more in this process.
pub fn forget_all() {
    let Some(list) = list() else { return };
    // SAFETY: the C library's variable and streams, which nobody uses meanwhile; those that were opened last come first
    unsafe {
        while alloc::is_tracked(*list) {
            *list = field(*list, NEXT);
        }
    }
}

/// Why this rank's streams and units cannot be part of a checkpoint: what a region has opened here, only this process's libraries know. Rank 0's are.
pub fn open_in_regions() -> Option<String> {
    if run::rank() == 0 {
        return None;
    }
    if library::has_units() {
        return Some("a unit of Fortran is open that a region has opened".into());
    }
    // SAFETY: the C library's variable
    let first = list().map_or(0, |list| unsafe { *list });
    alloc::is_tracked(first).then(|| "a stream is open that a region has opened".into())
}

/// A region begins.
pub use cout::{agree, objects};
/// For rank 0's server thread.
pub use failed::serve as fail;
/// For checkpoints.
pub use failed::{again as fail_again, all as failures};
/// As well.
pub use opened::serve as close;

/// A region begins: the streams from `first` on that are each rank's own in it.
pub fn share(first: usize, is_rank_0: bool) -> Vec<Stream> {
    let list: Vec<Stream> = written(first).collect();
    if !is_rank_0 {
        streams().clone_from(&list);
    }
    list
}

// `struct _IO_FILE`, which the C library's header tells: flags, and where its fields are; behind it stands the table of functions
const NO_READS: u32 = 4;
const NO_WRITES: u32 = 8;
const PUTTING: u32 = 0x800;
const READ: usize = 8;
const READ_END: usize = 16;
/// Where what is to be written begins; then where it ends.
const WRITE: usize = 32;
const BUFFER: usize = 56;
const BUFFER_END: usize = 64;
const NEXT: usize = 104;
const DESCRIPTOR: usize = 112;
const WIDE: usize = 160;
const MODE: usize = 192;
const FUNCTIONS: usize = 216;
/// As [`WRITE`], of wide characters.
const WIDE_WRITE: usize = 24;

/// Streams of serial code that are being written.
fn written(first: usize) -> impl Iterator<Item = Stream> {
    of_serial_code(first).filter(|at| field(*at, 0) as u32 & PUTTING != 0).map(|at| {
        // SAFETY: the C library's block
        let end = at + unsafe { heap::usable(at) };
        let buffer = (field(at, BUFFER), field(at, BUFFER_END));
        // one without a buffer has a byte of its own for it
        let buffer = if (at..end).contains(&buffer.0) { (end, end) } else { buffer };
        Stream { at, descriptor: descriptor(at), own: [(at, end), buffer], fails: failed::fails(at) }
    })
}

/// Streams of files that serial code opened.
fn of_serial_code(first: usize) -> impl Iterator<Item = usize> {
    let functions = functions();
    let ours = |at: &usize| alloc::is_tracked(*at);
    core::iter::successors(Some(first).filter(ours), move |at| Some(field(*at, NEXT)).filter(ours))
        .take(1 << 16)
        .filter(move |at| alloc::is_serial(*at) && field(*at, FUNCTIONS) == functions)
}

fn descriptor(stream: usize) -> usize {
    field(stream, DESCRIPTOR) as u32 as usize
}

/// Where the C library has its list of streams, the last opened first.
fn list() -> Option<*mut usize> {
    static LIST: AtomicUsize = AtomicUsize::new(0);
    find(c"_IO_list_all", &LIST).map(|list| list as *mut usize)
}

/// The table of functions of streams that are files.
fn functions() -> usize {
    static STDOUT: AtomicUsize = AtomicUsize::new(0);
    find(c"_IO_2_1_stdout_", &STDOUT).map_or(0, |stdout| field(stdout, FUNCTIONS))
}

fn field(stream: usize, at: usize) -> usize {
    // SAFETY: a stream in a list of streams
    unsafe { *((stream + at) as *const usize) }
}
