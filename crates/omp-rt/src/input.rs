//! Standard input, which each process's C library reads ahead: in regions all ranks read by rank 0's.
//!
//! A rank above 0 that wants more is lent what rank 0's library has read and not used, and gives back what it does not use before anybody may wait for it. Meanwhile
//! rank 0's stream is locked, as it would be if it were being read there, so that what is read stays in order.

use core::ffi::c_int;
use core::slice;
use core::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::Mutex;

use libc::FILE;
use polyrail_omp::area::SLOT_DATA;

use crate::{alloc, ask, raw, run, sys};

unsafe extern "C" {
    static stdin: *mut FILE;
    fn __underflow(stream: *mut FILE) -> c_int;
    fn _IO_doallocbuf(stream: *mut FILE);
    fn ftrylockfile(stream: *mut FILE) -> c_int;
    fn funlockfile(stream: *mut FILE);
}

/// How the C library's header has `struct _IO_FILE` begin.
#[repr(C)]
struct Stream {
    flags: c_int,
    next: *mut u8,
    end: *mut u8,
    base: *mut u8,
    write: [*mut u8; 3],
    buffer: *mut u8,
}

impl Stream {
    /// What has been read and not used.
    ///
    /// # Safety
    /// The caller has the stream locked.
    unsafe fn unused<'a>(&self) -> &'a [u8] {
        if self.next >= self.end {
            return &[];
        }
        // SAFETY: bytes of its buffer
        unsafe { slice::from_raw_parts(self.next, self.end.offset_from(self.next) as usize) }
    }
}

fn stream() -> *mut Stream {
    // SAFETY: the C library's variable
    unsafe { stdin }.cast()
}

/// Longest pause between two questions, in microseconds: people's input may take its time.
const PAUSE: u32 = 10_000;
/// Bytes that are lent at once.
const PART: usize = SLOT_DATA / 2;
/// What an answer begins with: bytes, or an error's number in two of them.
const LENT: u8 = 1;
const ERROR: u8 = 2;

/// Ranks above 0: whether something is lent.
static HAS: AtomicBool = AtomicBool::new(false);

/// Ranks above 0, before regions: the stream's buffer is this process's own.
pub fn prepare() {
    // SAFETY: nobody uses the stream yet
    alloc::privately(|| unsafe {
        if (*stream()).buffer.is_null() {
            _IO_doallocbuf(stdin);
        }
    });
}

/// A region's `read` of descriptor 0 on a rank above 0.
///
/// # Safety
/// There is so much room.
pub unsafe fn read(to: *mut u8, bytes: usize) -> isize {
    // SAFETY: the C library's stream, which the calling thread has locked if it reads for it
    let ahead = unsafe { (*stream()).buffer == to };
    if !ahead && alloc::is_private(to as usize) {
        sys::stop("read of standard input", WHY);
    }
    let question: Vec<u8> =
        [run::rank(), bytes.min(PART), ahead.into()].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut tries = 0;
    loop {
        match ask::rank_0(ask::LEND, &question).split_first() {
            Some((&LENT, lent)) => {
                HAS.store(ahead, Release);
                // SAFETY: the caller's room, of which so much was asked for
                unsafe { to.copy_from_nonoverlapping(lent.as_ptr(), lent.len()) };
                return lent.len() as isize;
            }
            Some((&ERROR, number)) => {
                let number = number.first_chunk().map_or(libc::EIO, |number| c_int::from_ne_bytes(*number));
                return -number as isize;
            }
            _ => ask::pause(tries, PAUSE),
        }
        tries += 1;
    }
}

/// Ranks above 0: what is not used goes back, if no other thread reads just now, which then sees to it.
pub fn give_back() {
    if !HAS.load(Acquire) {
        return;
    }
    // SAFETY: the C library's stream, which this thread has while it is locked
    unsafe {
        if ftrylockfile(stdin) != 0 {
            return;
        }
        if HAS.swap(false, AcqRel) {
            let own = &mut *stream();
            let rest = own.unused();
            ask::rank_0(ask::RETURN, rest);
            (own.next, own.end) = (own.base, own.base);
        }
        funlockfile(stdin);
    }
}

/// Where serial code runs on every rank: what this rank's has read ahead, which is not the region's to use.
static AHEAD: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Ranks above 0, a region begins.
pub fn begin() {
    // SAFETY: nobody uses the stream now; bytes that it has read
    unsafe {
        let own = &mut *stream();
        let rest = own.unused();
        *AHEAD.lock().unwrap_or_else(|broken| broken.into_inner()) = rest.to_vec();
        (own.next, own.end) = (own.base, own.base);
    }
}

/// It is over.
pub fn end() {
    let rest = core::mem::take(&mut *AHEAD.lock().unwrap_or_else(|broken| broken.into_inner()));
    // SAFETY: nobody uses the stream now; what was in its buffer before
    unsafe {
        let own = &mut *stream();
        if !rest.is_empty() && !own.base.is_null() {
            own.base.copy_from_nonoverlapping(rest.as_ptr(), rest.len());
            (own.next, own.end) = (own.base, own.base.add(rest.len()));
        }
    }
}

/// Why what reads ahead is refused.
pub const WHY: &str = "in a parallel region on another rank than 0, by the Fortran library, or by std::cin after sync_with_stdio(false), which read ahead for their own rank: \
                   read it in serial code, or in a `master` construct";

/// Rank 0: who is lent something. The stream is locked by the server thread as long as that is somebody.
static LENT_TO: Mutex<Option<usize>> = Mutex::new(None);

/// Rank 0's server thread: lends.
pub fn lend(question: &[u8]) -> Option<Vec<u8>> {
    let [rank, bytes, ahead] = *question.as_chunks().0 else { return None };
    let [rank, bytes, ahead] = [rank, bytes, ahead].map(usize::from_ne_bytes);
    let mut lent_to = LENT_TO.lock().unwrap_or_else(|broken| broken.into_inner());
    // SAFETY: the C library's stream, which this thread has locked while it uses it
    unsafe {
        if lent_to.is_some_and(|other| other != rank) || lent_to.is_none() && ftrylockfile(stdin) != 0 {
            return Some(ask::NOT_YET.to_vec());
        }
        let (answer, keep) = take(bytes, ahead != 0);
        *lent_to = keep.then_some(rank);
        if !keep {
            funlockfile(stdin);
        }
        Some(answer)
    }
}

/// Up to so many bytes; and whether some may come back.
///
/// # Safety
/// The caller has the stream locked.
unsafe fn take(bytes: usize, ahead: bool) -> (Vec<u8>, bool) {
    // SAFETY: the C library's stream, which is the caller's; bytes that it has read
    unsafe {
        let own = &mut *stream();
        let is_used = ahead || !own.base.is_null();
        if is_used && own.next < own.end {
            let unused = own.unused();
            let lent = &unused[..bytes.min(unused.len())];
            own.next = own.next.add(lent.len());
            return ([&[LENT], lent].concat(), ahead);
        }
        if !is_ready(0) {
            return (ask::NOT_YET.to_vec(), false);
        }
        if !is_used {
            let mut room = vec![LENT; 1 + bytes];
            let got = raw::call(libc::SYS_read, [0, room.as_mut_ptr() as usize + 1, bytes, 0, 0, 0]);
            room.truncate(1 + got.max(0) as usize);
            return (if got < 0 { error(-got as c_int) } else { room }, false);
        }
        const IS_OVER: c_int = 0x10;
        if own.flags & IS_OVER != 0 || alloc::privately(|| __underflow(stdin)) != libc::EOF {
            return if own.next < own.end { take(bytes, ahead) } else { (vec![LENT], false) };
        }
        let is_over = own.flags & IS_OVER != 0;
        (if is_over { vec![LENT] } else { error(*libc::__errno_location()) }, false)
    }
}

fn error(number: c_int) -> Vec<u8> {
    [&[ERROR], &number.to_ne_bytes()[..]].concat()
}

/// Rank 0's server thread: takes back.
pub fn take_back(rest: &[u8]) -> Option<Vec<u8>> {
    let mut lent_to = LENT_TO.lock().unwrap_or_else(|broken| broken.into_inner());
    // SAFETY: the C library's stream, which this thread has locked
    unsafe {
        if lent_to.take().is_some() {
            let own = &mut *stream();
            let before = own.next.offset_from(own.base).max(0) as usize;
            if rest.len() <= before && slice::from_raw_parts(own.next.sub(rest.len()), rest.len()) == rest {
                own.next = own.next.sub(rest.len());
            } else {
                for byte in rest.iter().rev() {
                    alloc::privately(|| libc::ungetc((*byte).into(), stdin));
                }
            }
            funlockfile(stdin);
        }
    }
    Some(Vec::new())
}

/// Whether `read` of that descriptor is for this module.
pub fn is_standard(number: i64, args: &[usize; 6]) -> bool {
    number == libc::SYS_read && args[0] == 0 && run::is_inside() && !run::runs_replicated()
}

/// Whether a read does not wait: there is something, or nothing ever will be, or it is not to wait.
pub fn is_ready(descriptor: usize) -> bool {
    let mut what = libc::pollfd { fd: descriptor as i32, events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor to be looked at, if it is one
    unsafe {
        raw::call(libc::SYS_poll, [&raw mut what as usize, 1, 0, 0, 0, 0]) != 0
            || raw::call(libc::SYS_fcntl, [descriptor, libc::F_GETFL as usize, 0, 0, 0, 0])
                & libc::O_NONBLOCK as isize
                != 0
    }
}
