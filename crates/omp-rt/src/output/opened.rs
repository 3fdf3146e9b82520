//! Opening and closing of C streams, whose list each process has for itself: the C library's, which rank 0's alone is right.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::AtomicUsize;

use libc::FILE;

use super::{BUFFER, BUFFER_END, FUNCTIONS, failed, field, functions, streams};
use crate::symbols::find_in;
use crate::{alloc, ask, coherence, heap, run, sys, track};

unsafe extern "C" {
    // the C library's own names of `fopen`, `fdopen`, `fclose`
    fn _IO_fopen(path: *const c_char, mode: *const c_char) -> *mut FILE;
    fn _IO_fdopen(descriptor: c_int, mode: *const c_char) -> *mut FILE;
    fn _IO_fclose(stream: *mut FILE) -> c_int;
    fn _IO_doallocbuf(stream: *mut FILE);
}

/// A stream that a constructor opens is the program's, and its buffer, unlike what else the C library makes by then.
fn opened(open: impl FnOnce() -> *mut FILE) -> *mut FILE {
    alloc::shared_at_start(|is_start| {
        let stream = open();
        if is_start && !stream.is_null() {
            // SAFETY: a new stream, without a buffer
            unsafe { _IO_doallocbuf(stream) };
        }
        stream
    })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's
    opened(|| unsafe { _IO_fopen(path, mode) })
}
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's
    opened(|| unsafe { _IO_fopen(path, mode) })
}
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn fdopen(descriptor: c_int, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's
    opened(|| unsafe { _IO_fdopen(descriptor, mode) })
}

/// Whether this is a region on a rank above 0, and `stream` serial code's: rank 0's C library has it. With `--serial replicated` each rank's has.
fn is_rank_0s(what: &str, stream: *mut FILE) -> bool {
    if !run::is_inside() || !alloc::is_serial(stream as usize) {
        return false;
    }
    if run::is_replicated() {
        sys::stop(
            what,
            "in a parallel region, of a stream that serial code has opened: run it with --serial master",
        );
    }
    run::rank() > 0
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn fclose(stream: *mut FILE) -> c_int {
    if !is_rank_0s("fclose", stream) {
        // SAFETY: the caller's
        return failed::tell(stream, unsafe { _IO_fclose(stream) });
    }
    let at = stream as usize;
    if field(at, FUNCTIONS) != functions() {
        sys::stop(
            "fclose",
            "in a parallel region, of a stream that serial code has opened and that is no file's",
        );
    }
    // what this rank has written comes first; all else that it made of the stream is forgotten, as rank 0 makes an end of it
    let mut streams = streams();
    // SAFETY: the caller's stream, which nobody else uses by now; its block, and its buffer
    unsafe {
        if streams.iter().any(|known| known.at == at) {
            if failed::flush(stream) != 0 {
                failed::note(at, *libc::__errno_location());
            }
            streams.retain(|known| known.at != at);
        }
        let (from, to) = (field(at, BUFFER), field(at, BUFFER_END));
        track::put_back(&[(at, at + heap::usable(at))]);
        if alloc::is_serial(from) {
            track::put_back(&[(from, to)]);
        } else if alloc::is_tracked(from) {
            libc::free(from as *mut libc::c_void);
        }
    }
    let answer = ask::rank_0(ask::CLOSE, &at.to_ne_bytes());
    coherence::changed_rank_0();
    let [result, error] = answer.as_chunks().0 else { return libc::EOF };
    let (result, error) = (c_int::from_ne_bytes(*result), c_int::from_ne_bytes(*error));
    if result != 0 {
        alloc::exports::error(error);
    }
    result
}

/// Rank 0's server thread: closes a stream for another rank; the result, and the error's number.
pub fn serve(question: &[u8]) -> Option<Vec<u8>> {
    let at = usize::from_ne_bytes(*question.first_chunk()?);
    if !alloc::is_serial(at) || field(at, FUNCTIONS) != functions() {
        return None;
    }
    // SAFETY: a stream of this process's
    let (result, error) =
        unsafe { (failed::tell(at as *mut FILE, _IO_fclose(at as *mut FILE)), *libc::__errno_location()) };
    Some([result, error].map(c_int::to_ne_bytes).concat())
}

fn reopen(
    name: &CStr,
    known: &AtomicUsize,
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
) -> *mut FILE {
    let text = name.to_str().unwrap_or_default();
    if is_rank_0s(text, stream) {
        sys::stop(
            text,
            "in a parallel region, of a stream that serial code has opened: close it there, and open another",
        );
    }
    let Some(next) = find_in(libc::RTLD_NEXT, name, known) else { return core::ptr::null_mut() };
    // SAFETY: the C library's function, and the caller's arguments
    unsafe {
        type Reopen = unsafe extern "C" fn(*const c_char, *const c_char, *mut FILE) -> *mut FILE;
        core::mem::transmute::<usize, Reopen>(next)(path, mode, stream)
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    reopen(c"freopen", &NEXT, path, mode, stream)
}
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    reopen(c"freopen64", &NEXT, path, mode, stream)
}
