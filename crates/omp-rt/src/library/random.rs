//! Random numbers of the C library: one row of them, which is rank 0's. A region's threads on other ranks have rank 0 draw for them.

use core::ffi::{CStr, c_char, c_int, c_long, c_uint};
use core::sync::atomic::AtomicUsize;

use super::{fortran, is_spread};
use crate::symbols::real;
use crate::{ask, run, sys};

/// Functions without parameters that give a word, and those that are given a seed: in the order of the numbers that questions bear.
const DRAW: [&CStr; 5] = [c"rand", c"random", c"lrand48", c"mrand48", c"drand48"];
const SEED: [&CStr; 3] = [c"srand", c"srandom", c"srand48"];
static REAL: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];

/// What to do with it.
fn draw(which: usize) -> u64 {
    // SAFETY: functions of the C library's, by their types
    unsafe {
        match which {
            0 => real::<unsafe extern "C" fn() -> c_int>(DRAW[0], &REAL[0])() as u64,
            4 => real::<unsafe extern "C" fn() -> f64>(DRAW[4], &REAL[4])().to_bits(),
            _ => real::<unsafe extern "C" fn() -> c_long>(DRAW[which], &REAL[which])() as u64,
        }
    }
}

fn seed(which: usize, value: usize) {
    // SAFETY: functions of the C library's that take a word
    unsafe { real::<unsafe extern "C" fn(usize)>(SEED[which], &REAL[DRAW.len() + which])(value) }
}

/// Rank 0 draws or seeds.
pub fn ask(which: usize, value: usize) -> u64 {
    let question: Vec<u8> = [which, value].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let answer = ask::rank_0(ask::RANDOM, &question);
    answer
        .first_chunk()
        .map_or_else(|| sys::stop("rand", "rank 0 draws no number"), |word| u64::from_ne_bytes(*word))
}

/// Rank 0's server thread.
pub fn serve(question: &[u8]) -> Option<Vec<u8>> {
    let [which, value] = *question.as_chunks().0 else { return None };
    let (which, value) = (usize::from_ne_bytes(which), usize::from_ne_bytes(value));
    let drawn = match which {
        0..5 => draw(which),
        5..8 => {
            seed(which - 5, value);
            0
        }
        _ => fortran::draw(which, value as c_int)?,
    };
    Some(drawn.to_ne_bytes().to_vec())
}

/// Whether the caller is a region's thread on a rank above 0.
pub fn is_elsewhere() -> bool {
    run::rank() > 0 && is_spread()
}

macro_rules! draws {
    ($($name:ident $which:literal $t:ty = $convert:expr;)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        extern "C" fn $name() -> $t {
            let drawn = if is_elsewhere() { ask($which, 0) } else { draw($which) };
            $convert(drawn)
        }
    )*};
}
draws! {
    rand 0 c_int = |drawn| drawn as c_int;
    random 1 c_long = |drawn| drawn as c_long;
    lrand48 2 c_long = |drawn| drawn as c_long;
    mrand48 3 c_long = |drawn| drawn as c_long;
    drand48 4 f64 = f64::from_bits;
}

macro_rules! seeds {
    ($($name:ident $which:literal $t:ty;)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        extern "C" fn $name(value: $t) {
            if is_elsewhere() {
                ask(DRAW.len() + $which, value as usize);
            } else {
                seed($which, value as usize);
            }
        }
    )*};
}
seeds! {
    srand 0 c_uint;
    srandom 1 c_uint;
    srand48 2 c_long;
}

/// What changes how numbers are made, and where their state is, without drawing any.
macro_rules! settings {
    ($($name:ident($($arg:ident: $t:ty),*) -> $result:ty = $text:literal;)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C" fn $name($($arg: $t),*) -> $result {
            if is_elsewhere() {
                sys::stop(
                    stringify!($name),
                    "in a parallel region on another rank than 0, which draws all numbers: call it before the region",
                );
            }
            static REAL: AtomicUsize = AtomicUsize::new(0);
            // SAFETY: the caller's arguments, to the function of that name
            unsafe { real::<unsafe extern "C" fn($($t),*) -> $result>($text, &REAL)($($arg),*) }
        }
    )*};
}
settings! {
    initstate(seed: c_uint, state: *mut c_char, bytes: usize) -> *mut c_char = c"initstate";
    setstate(state: *mut c_char) -> *mut c_char = c"setstate";
    seed48(seed: *mut u16) -> *mut u16 = c"seed48";
    lcong48(words: *mut u16) -> () = c"lcong48";
}
