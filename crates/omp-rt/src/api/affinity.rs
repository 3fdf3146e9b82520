//! Places and affinity: threads are where the system puts them.

use core::ffi::{CStr, c_char, c_int};
use core::fmt::Write;
use core::sync::atomic::{AtomicUsize, Ordering::*};

use super::queries;
use crate::icv;
use crate::sync::Mutex;
use crate::sys::{self, Text};
use crate::team::here;

queries! {
    omp_get_num_places omp_get_num_places_ = 0;
    omp_get_place_num omp_get_place_num_ = -1;
    omp_get_partition_num_places omp_get_partition_num_places_ = 0;
}
macro_rules! of_place {
    ($($name:ident $fortran:ident $fortran_8:ident;)*) => {$(
        /// There are no places.
        #[unsafe(no_mangle)]
        extern "C" fn $name(_: c_int) -> c_int {
            0
        }
        #[unsafe(no_mangle)]
        extern "C" fn $fortran(_: *const c_int) -> c_int {
            0
        }
        #[unsafe(no_mangle)]
        extern "C" fn $fortran_8(_: *const i64) -> c_int {
            0
        }
    )*};
}
of_place! {
    omp_get_place_num_procs omp_get_place_num_procs_ omp_get_place_num_procs_8_;
    omp_get_place_proc_ids omp_get_place_proc_ids_ omp_get_place_proc_ids_8_;
    omp_get_partition_place_nums omp_get_partition_place_nums_ omp_get_partition_place_nums_8_;
}

const LONGEST: usize = 512;
static CHANGES: Mutex = Mutex::new();
/// `omp_set_affinity_format`'s bytes, one each.
static FORMAT: [core::sync::atomic::AtomicU8; LONGEST] =
    [const { core::sync::atomic::AtomicU8::new(0) }; LONGEST];
static FORMAT_LEN: AtomicUsize = AtomicUsize::new(usize::MAX);
const DEFAULT: &[u8] = b"level %L thread %i affinity %A";

fn set_format(format: &[u8]) {
    CHANGES.lock();
    for (at, byte) in FORMAT.iter().zip(format) {
        at.store(*byte, Relaxed);
    }
    FORMAT_LEN.store(format.len().min(LONGEST), Release);
    CHANGES.unlock();
}

fn format(buffer: &mut [u8; LONGEST]) -> &[u8] {
    if FORMAT_LEN.load(Acquire) == usize::MAX {
        set_format(icv::variable(c"OMP_AFFINITY_FORMAT").unwrap_or(DEFAULT));
    }
    CHANGES.lock();
    let len = FORMAT_LEN.load(Acquire);
    for (to, from) in buffer.iter_mut().zip(&FORMAT[..len]) {
        *to = from.load(Relaxed);
    }
    CHANGES.unlock();
    &buffer[..len]
}

/// One field: its letter's value.
fn field(out: &mut Text<LONGEST>, name: u8) {
    let frame = here();
    let parent = super::ancestor(frame.level.get() as c_int - 1).map_or(-1, |found| found.0 as c_int);
    // SAFETY: asks for numbers only.
    let (process, thread) = unsafe { (libc::getpid(), libc::gettid()) };
    let _ = match name {
        b't' => write!(out, "{}", frame.league.get().0),
        b'T' => write!(out, "{}", frame.league.get().1),
        b'L' => write!(out, "{}", frame.level.get()),
        b'n' => write!(out, "{}", frame.tid.get()),
        b'N' => write!(out, "{}", frame.threads.get()),
        b'a' => write!(out, "{parent}"),
        b'P' => write!(out, "{process}"),
        b'i' => write!(out, "{thread}"),
        b'A' => write!(out, "0-{}", icv::processors() - 1),
        b'H' => {
            let mut host = [0u8; 256];
            // SAFETY: fills in the name, and there is room for a zero behind it.
            unsafe { libc::gethostname(host.as_mut_ptr().cast(), 255) };
            let len = host.iter().position(|b| *b == 0).unwrap_or(0);
            write!(out, "{}", core::str::from_utf8(&host[..len]).unwrap_or("?"))
        }
        b'%' => write!(out, "%"),
        other => write!(out, "%{}", other as char),
    };
}

/// `%[[0].width]letter` and `%{name}` of `format`, filled in.
fn fill(format: &[u8]) -> Text<LONGEST> {
    const NAMES: [(&[u8], u8); 10] = [
        (b"team_num", b't'),
        (b"num_teams", b'T'),
        (b"nesting_level", b'L'),
        (b"thread_num", b'n'),
        (b"num_threads", b'N'),
        (b"ancestor_tnum", b'a'),
        (b"host", b'H'),
        (b"process_id", b'P'),
        (b"native_thread_id", b'i'),
        (b"thread_affinity", b'A'),
    ];
    let mut out = Text::new();
    let mut rest = format;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'%' {
            let _ = out.write_char(*byte as char);
            continue;
        }
        let zero = rest.first() == Some(&b'0');
        let right = zero && rest.get(1) == Some(&b'.') || rest.first() == Some(&b'.');
        rest = &rest[usize::from(zero)..];
        rest = &rest[usize::from(rest.first() == Some(&b'.'))..];
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let width = rest[..digits].iter().fold(0usize, |n, d| (n * 10 + usize::from(d - b'0')).min(LONGEST));
        rest = &rest[digits..];
        let Some((mut name, after)) = rest.split_first() else { break };
        rest = after;
        if *name == b'{' {
            let end = rest.iter().position(|b| *b == b'}').unwrap_or(rest.len());
            name = NAMES.iter().find(|(long, _)| *long == &rest[..end]).map_or(&b'?', |(_, short)| short);
            rest = &rest[(end + 1).min(rest.len())..];
        }
        let mut value = Text::<LONGEST>::new();
        field(&mut value, *name);
        let text = core::str::from_utf8(value.bytes()).unwrap_or("?");
        let _ = match (zero && right, right) {
            (true, _) => write!(out, "{text:0>width$}"),
            (false, true) => write!(out, "{text:>width$}"),
            (false, false) => write!(out, "{text:<width$}"),
        };
    }
    out
}

/// # Safety
/// A string, or null.
unsafe fn text<'a>(at: *const c_char) -> &'a [u8] {
    // SAFETY: as the caller says.
    if at.is_null() { b"" } else { unsafe { CStr::from_ptr(at) }.to_bytes() }
}

/// Copies what fits, with a zero at its end; gives what would have been needed without it.
///
/// # Safety
/// `room` bytes are at `buffer`.
unsafe fn give(bytes: &[u8], buffer: *mut c_char, room: usize) -> usize {
    if room > 0 {
        let n = bytes.len().min(room - 1);
        // SAFETY: as the caller says.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), n);
            *buffer.add(n) = 0;
        }
    }
    bytes.len()
}

/// As [`give`] for Fortran: blanks behind.
///
/// # Safety
/// `room` bytes are at `buffer`.
unsafe fn give_padded(bytes: &[u8], buffer: *mut c_char, room: usize) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        core::ptr::write_bytes(buffer, b' ', room);
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), bytes.len().min(room));
    }
    bytes.len() as c_int
}

/// # Safety
/// `bytes` bytes of a Fortran string.
unsafe fn fortran<'a>(at: *const c_char, bytes: usize) -> &'a [u8] {
    // SAFETY: as the caller says.
    unsafe { core::slice::from_raw_parts(at.cast::<u8>(), bytes) }.trim_ascii_end()
}

fn filled(wanted: &[u8]) -> Text<LONGEST> {
    let mut buffer = [0; LONGEST];
    fill(if wanted.is_empty() { format(&mut buffer) } else { wanted })
}

fn display(wanted: &[u8]) {
    let mut line = filled(wanted);
    let _ = line.write_char('\n');
    sys::write(1, line.bytes());
}

#[unsafe(no_mangle)]
unsafe extern "C" fn omp_set_affinity_format(format: *const c_char) {
    // SAFETY: the caller's string.
    set_format(unsafe { text(format) });
}
#[unsafe(no_mangle)]
unsafe extern "C" fn omp_set_affinity_format_(format: *const c_char, bytes: usize) {
    // SAFETY: a Fortran string.
    set_format(unsafe { fortran(format, bytes) });
}
#[unsafe(no_mangle)]
unsafe extern "C" fn omp_get_affinity_format(buffer: *mut c_char, room: usize) -> usize {
    let mut now = [0; LONGEST];
    // SAFETY: the caller's buffer.
    unsafe { give(format(&mut now), buffer, room) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn omp_get_affinity_format_(buffer: *mut c_char, room: usize) -> c_int {
    let mut now = [0; LONGEST];
    // SAFETY: the caller's buffer.
    unsafe { give_padded(format(&mut now), buffer, room) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn omp_display_affinity(format: *const c_char) {
    // SAFETY: the caller's string.
    display(unsafe { text(format) });
}
#[unsafe(no_mangle)]
unsafe extern "C" fn omp_display_affinity_(format: *const c_char, bytes: usize) {
    // SAFETY: a Fortran string.
    display(unsafe { fortran(format, bytes) });
}
#[unsafe(no_mangle)]
unsafe extern "C" fn omp_capture_affinity(buffer: *mut c_char, room: usize, format: *const c_char) -> usize {
    // SAFETY: the caller's buffer and string.
    unsafe { give(filled(text(format)).bytes(), buffer, room) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn omp_capture_affinity_(
    buffer: *mut c_char,
    format: *const c_char,
    room: usize,
    bytes: usize,
) -> c_int {
    // SAFETY: Fortran strings.
    unsafe { give_padded(filled(fortran(format, bytes)).bytes(), buffer, room) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn ompc_set_affinity_format(format: *const c_char) {
    // SAFETY: as that.
    unsafe { omp_set_affinity_format(format) };
}
#[unsafe(no_mangle)]
unsafe extern "C" fn ompc_get_affinity_format(buffer: *mut c_char, room: usize) -> usize {
    // SAFETY: as that.
    unsafe { omp_get_affinity_format(buffer, room) }
}
#[unsafe(no_mangle)]
unsafe extern "C" fn ompc_display_affinity(format: *const c_char) {
    // SAFETY: as that.
    unsafe { omp_display_affinity(format) };
}
#[unsafe(no_mangle)]
unsafe extern "C" fn ompc_capture_affinity(buffer: *mut c_char, room: usize, format: *const c_char) -> usize {
    // SAFETY: as that.
    unsafe { omp_capture_affinity(buffer, room, format) }
}
