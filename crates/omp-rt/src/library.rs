//! What serial code has told the C and C++ libraries, whose data are each process's: other ranks are told when a region begins.
//!
//! The environment is in memory that ranks share, but for where it begins; a locale has a name. Random numbers and the process's own number are rank 0's (`random`, `process`);
//! threads' rows of the Fortran library begin with rank 0's seed (`fortran`), whose units are each rank's (`units`). What the C library gives pointers to is shared memory (`statics`).
//! What serial code runs on every rank, each rank's library knows by itself.

mod fortran;
mod locale;
mod process;
mod random;
mod statics;
mod units;

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

pub use locale::check;
pub use random::serve as random;
pub use units::has_any as has_units;

use crate::symbols::real;
use crate::{alloc, run, symbols, sys, thread, track};

/// In shared memory.
#[repr(C)]
struct Told {
    /// Where it begins; 0 as long as nothing is told.
    environment: usize,
    process: libc::pid_t,
    /// Names, ended by zero; empty if serial code has said nothing.
    locale: [u8; NAME],
    global: [u8; NAME],
}
const NAME: usize = 2048;
/// Serial code has taken away all of the environment.
const NONE: usize = 1;

/// Where what this module and those below keep is in the runtime's shared memory, which begins as zeros.
const PLACE: usize = 40 << 10;
const FORTRAN_SEED: usize = 48 << 10;
const STATICS: usize = 49 << 10;
const UNITS: usize = 50 << 10;

/// As rank 0 has it.
fn told() -> *mut Told {
    const { assert!(PLACE + size_of::<Told>() <= FORTRAN_SEED, "its place") };
    // SAFETY: inside the page
    unsafe { alloc::shared_page().add(PLACE).cast() }
}

/// Whether the caller is one of several ranks' threads in a region.
fn is_spread() -> bool {
    run::is_inside() && thread::current().spread.get()
}

/// Rank 0, before `main`.
pub fn begin() {
    // SAFETY: nobody reads it yet
    unsafe { (*told()).process = sys::process() };
}

/// Rank 0, a region of several ranks begins: says what has changed.
pub fn tell() {
    // SAFETY: rank 0's alone, in serial code
    let told = unsafe { &mut *told() };
    locale::tell(told);
    environment(told);
}

/// What this module knows of rank 0's library that is not in memory that a checkpoint has.
pub fn remembered() -> [u64; 2] {
    locale::remembered().map(u64::from)
}

/// Rank 0, which goes on from a checkpoint: puts it back.
pub fn remember(remembered: [u64; 2]) {
    locale::remember(remembered.map(|word| word != 0));
}

/// Rank 0, which goes on from a checkpoint, when memory is as it was: it is another process than then, and rows of random numbers on other ranks begin anew.
pub fn resumed() {
    begin();
    CHANGED.store(true, Relaxed);
    fortran::resumed();
}

/// Ranks above 0, which take it over.
pub fn agree() {
    if run::rank() == 0 || run::is_replicated() {
        return;
    }
    // SAFETY: nobody changes it in a region
    let told = unsafe { &*told() };
    // SAFETY: the C library's variable; an array in shared memory
    unsafe {
        if let (Some(environ), true) = (environ(), told.environment != 0) {
            *environ = if told.environment == NONE { 0 } else { told.environment };
        }
    }
    locale::agree(told);
}

fn environ() -> Option<*mut usize> {
    static ENVIRON: AtomicUsize = AtomicUsize::new(0);
    symbols::find(c"environ", &ENVIRON).map(|at| at as *mut usize)
}

/// Serial code has changed the environment, as far as it has called functions for that.
static CHANGED: AtomicBool = AtomicBool::new(true);

fn environment(told: &mut Told) {
    let Some(environ) = environ() else { return };
    // SAFETY: the C library's variable
    let first = unsafe { *environ };
    if first == 0 {
        told.environment = NONE;
        return;
    }
    if !CHANGED.swap(false, Relaxed) && first == told.environment {
        return;
    }
    // SAFETY: an array that ends with zero
    let all: Vec<usize> =
        (0..).map(|at| unsafe { *(first as *const usize).add(at) }).take_while(|text| *text != 0).collect();
    told.environment = first;
    if track::is_shared(first) && all.iter().all(|text| track::is_shared(*text)) {
        return;
    }
    // what constructors have set is in this process's own memory
    let shared = |bytes: usize| alloc::exports::zeroed(polyrail_omp::layout::SERIAL_HEAP, 16, bytes);
    let copy = shared((all.len() + 1) * size_of::<usize>());
    for (at, text) in all.into_iter().enumerate() {
        // SAFETY: strings; blocks that have room
        unsafe {
            let bytes = CStr::from_ptr(text as *const c_char).to_bytes_with_nul();
            let there = if track::is_shared(text) { text } else { shared(bytes.len()) };
            if there != text {
                (there as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            }
            *(copy as *mut usize).add(at) = there;
        }
    }
    told.environment = copy;
    // SAFETY: the C library's variable, which programs may set, too
    unsafe { *environ = copy };
}

/// Refuses to change what other ranks would not know before the next region.
fn only_serial(what: &str) {
    if is_spread() {
        sys::stop(
            what,
            "in a parallel region, where other ranks would not know of it: call it before the region, or run with -n 1",
        );
    }
}

macro_rules! environments {
    ($($name:ident($($arg:ident: $t:ty),*) = $text:literal;)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C" fn $name($($arg: $t),*) -> c_int {
            only_serial(stringify!($name));
            CHANGED.store(true, Relaxed);
            static REAL: AtomicUsize = AtomicUsize::new(0);
            // SAFETY: the caller's arguments, to the function of that name
            unsafe { real::<unsafe extern "C" fn($($t),*) -> c_int>($text, &REAL)($($arg),*) }
        }
    )*};
}
environments! {
    setenv(name: *const c_char, value: *const c_char, replace: c_int) = c"setenv";
    unsetenv(name: *const c_char) = c"unsetenv";
    putenv(text: *mut c_char) = c"putenv";
    clearenv() = c"clearenv";
}
