//! What could not be written when the runtime flushed a stream: the program hears of it where it would have flushed it itself.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::Mutex;

use libc::FILE;

use super::field;
use crate::alloc::exports::error;
use crate::symbols::real;
use crate::{alloc, ask, run};

/// Streams and errors' numbers, on rank 0.
static FAILED: Mutex<Vec<(usize, c_int)>> = Mutex::new(Vec::new());
static ANY: AtomicBool = AtomicBool::new(false);

/// The C library's flag, in the stream's first word.
const FLAG: u32 = 0x20;

/// Whether a write to this stream has failed.
pub fn fails(stream: usize) -> bool {
    field(stream, 0) as u32 & FLAG != 0
}

/// A flush of the runtime's failed; 0: one of the program's own, which it has heard of.
pub fn note(stream: usize, number: c_int) {
    if run::rank() == 0 {
        return keep(stream, number);
    }
    let is_rank_0s = alloc::is_serial(stream) || !alloc::is_tracked(stream);
    if run::is_inside() && is_rank_0s {
        let question: Vec<u8> =
            [stream, number as usize].iter().flat_map(|word| word.to_ne_bytes()).collect();
        ask::rank_0(ask::FAILED, &question);
    }
}

/// All that is kept, a stream and an error's number each.
pub fn all() -> Vec<u64> {
    let failed = FAILED.lock().unwrap_or_else(|broken| broken.into_inner());
    failed.iter().flat_map(|(stream, number)| [*stream as u64, *number as u64]).collect()
}

/// Keeps what [`all`] gave.
pub fn again(all: &[u64]) {
    all.as_chunks().0.iter().for_each(|[stream, number]| keep(*stream as usize, *number as c_int));
}

fn keep(stream: usize, number: c_int) {
    let mut failed = FAILED.lock().unwrap_or_else(|broken| broken.into_inner());
    failed.retain(|(known, _)| *known != stream);
    failed.push((stream, number));
    ANY.store(true, Release);
}

/// Rank 0's server thread: another rank's flush of rank 0's stream failed.
pub fn serve(question: &[u8]) -> Option<Vec<u8>> {
    let [stream, number] = *question.as_chunks().0 else { return None };
    let (stream, number) = (usize::from_ne_bytes(stream), usize::from_ne_bytes(number));
    // SAFETY: the C library's stream of this process, which is at the same address on all ranks
    let flags = unsafe { &mut *(stream as *mut u32) };
    *flags |= FLAG;
    if number != 0 {
        keep(stream, number as c_int);
    }
    Some(Vec::new())
}

/// What a flush of `stream` (null: of all), or its end, gives: the runtime's error, if there was one, and the C library has told none.
pub fn tell(stream: *mut FILE, result: c_int) -> c_int {
    if !ANY.load(Acquire) {
        return result;
    }
    let mut failed = FAILED.lock().unwrap_or_else(|broken| broken.into_inner());
    let found = failed.iter().position(|(known, _)| stream.is_null() || *known == stream as usize);
    match found.map(|at| failed.swap_remove(at)) {
        Some((_, number)) if result == 0 => {
            error(number);
            libc::EOF
        }
        _ => result,
    }
}

/// The C library's `fflush`.
///
/// # Safety
/// That of the call.
pub unsafe fn flush(stream: *mut FILE) -> c_int {
    static REAL: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: the caller's
    unsafe { real::<unsafe extern "C" fn(*mut FILE) -> c_int>(c"fflush", &REAL)(stream) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn fflush(stream: *mut FILE) -> c_int {
    // SAFETY: the caller's
    tell(stream, unsafe { flush(stream) })
}

/// `clearerr` forgets it, as the C library does.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn clearerr(stream: *mut FILE) {
    static REAL: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: the caller's
    unsafe { real::<unsafe extern "C" fn(*mut FILE)>(c"clearerr", &REAL)(stream) };
    if !fails(stream as usize) {
        tell(stream, libc::EOF);
    }
}
