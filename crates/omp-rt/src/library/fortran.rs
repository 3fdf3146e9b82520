//! Random numbers of the Fortran library. It gives each thread a row of its own, made of the process's seed and of how many threads have asked before: so on two ranks
//! that have the same seed (`--serial replicated`) threads would get the same row, and on one that serial code has not seeded a row that is another in each run. Threads of ranks
//! above 0 begin theirs with a seed made of serial code's and of their number. `rand` and `irand`, one row for all threads, are drawn on rank 0.

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::ptr::{null, null_mut};
use core::sync::atomic::AtomicUsize;

use polyrail_omp::layout::slot;
use twox_hash::XxHash3_128;

use super::FORTRAN_SEED;
use super::random::{ask, is_elsewhere};
use crate::symbols::real;
use crate::{alloc, run, thread};

/// Words of a seed: of the library's, as its `random_seed(size=)` says, no more than that.
const MOST: usize = 32;

/// Serial code's seed, in memory that ranks share, which begins as zeros.
#[repr(C)]
struct Seed {
    /// 0: serial code has set none.
    words: usize,
    seed: [c_int; MOST],
}

fn told() -> *mut Seed {
    // SAFETY: inside the page
    unsafe { alloc::shared_page().add(FORTRAN_SEED).cast() }
}
const _: () = assert!(FORTRAN_SEED + size_of::<Seed>() <= 64 << 10, "inside the shared page");

thread_local! {
    /// Whether this thread's row has begun.
    static BEGUN: Cell<bool> = const { Cell::new(false) };
}

/// An array of one dimension as libgfortran 5 has it (its `libgfortran.h`, "gfc_array").
#[repr(C)]
struct Array {
    first: *mut c_int,
    offset: isize,
    element: usize,
    version: c_int,
    dimensions: i8,
    kind: i8,
    attribute: i16,
    span: isize,
    stride: isize,
    lower: isize,
    upper: isize,
}

impl Array {
    fn of(words: &mut [c_int]) -> Self {
        const INTEGER: i8 = 1;
        Self {
            first: words.as_mut_ptr(),
            offset: -1,
            element: 4,
            version: 0,
            dimensions: 1,
            kind: INTEGER,
            attribute: 0,
            span: 4,
            stride: 1,
            lower: 1,
            upper: words.len() as isize,
        }
    }
}

type RandomSeed = unsafe extern "C" fn(*mut c_int, *const c_void, *const c_void);

fn library() -> RandomSeed {
    static REAL: AtomicUsize = AtomicUsize::new(0);
    real(c"_gfortran_random_seed_i4", &REAL)
}

/// The calling thread's seed; how many words it has.
fn seed(words: &mut [c_int; MOST]) -> usize {
    let mut count = 0;
    // SAFETY: the library's function, with room for what it says
    unsafe {
        library()(&raw mut count, null(), null());
        let count = (count as usize).min(MOST);
        let array = Array::of(&mut words[..count]);
        library()(null_mut(), null(), (&raw const array).cast());
        count
    }
}

/// Begins the calling thread's row, if that is for this module to do.
fn begin() {
    if BEGUN.get() || !is_elsewhere() {
        return;
    }
    BEGUN.set(true);
    let mut words = [0; MOST];
    // SAFETY: shared memory that regions do not write
    let told = unsafe { &*told() };
    let count = match told.words {
        // the system has given each rank another seed
        0 if !run::is_replicated() => return,
        0 => seed(&mut words),
        count => {
            words = told.seed;
            count.min(MOST)
        }
    };
    let own = slot(run::rank(), thread::current().local.get(), run::size());
    let bytes: Vec<u8> = words[..count].iter().flat_map(|word| word.to_ne_bytes()).collect();
    for (at, word) in words[..count].iter_mut().enumerate() {
        *word = XxHash3_128::oneshot_with_seed((own * MOST + at) as u64, &bytes) as c_int;
    }
    let array = Array::of(&mut words[..count]);
    // SAFETY: the library's function, with as many words as it wants
    unsafe { library()(null_mut(), (&raw const array).cast(), null()) };
}

/// Rank 0 goes on from a checkpoint: threads that begin their rows again must not draw again what they have drawn.
pub fn resumed() {
    // SAFETY: in serial code, which alone writes it
    let told = unsafe { &mut *told() };
    let bytes: Vec<u8> = told.seed.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let count = told.words.min(MOST);
    for (at, word) in told.seed[..count].iter_mut().enumerate() {
        *word = XxHash3_128::oneshot_with_seed(at as u64, &bytes) as c_int;
    }
}

/// Serial code has seeded the library.
fn tell() {
    let mut words = [0; MOST];
    let count = seed(&mut words);
    // SAFETY: in serial code, which alone writes it
    unsafe { *told() = Seed { words: count, seed: words } };
}

macro_rules! seeds {
    ($($name:ident = $text:literal;)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C" fn $name(size: *mut c_int, put: *const c_void, get: *const c_void) {
            static REAL: AtomicUsize = AtomicUsize::new(0);
            if get.is_null() && size.is_null() {
                // a thread that seeds itself
                BEGUN.set(true);
            }
            begin();
            // SAFETY: the caller's arguments
            unsafe { real::<RandomSeed>($text, &REAL)(size, put, get) };
            if !put.is_null() && !run::is_inside() && run::size() > 1 {
                tell();
            }
        }
    )*};
}
seeds! {
    _gfortran_random_seed_i4 = c"_gfortran_random_seed_i4";
    _gfortran_random_seed_i8 = c"_gfortran_random_seed_i8";
}

/// What `random_number` is, by kinds: of a number, and of an array.
macro_rules! numbers {
    ($($name:ident = $text:literal;)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C" fn $name(to: *mut c_void) {
            static REAL: AtomicUsize = AtomicUsize::new(0);
            begin();
            // SAFETY: the caller's argument
            unsafe { real::<unsafe extern "C" fn(*mut c_void)>($text, &REAL)(to) };
        }
    )*};
}
numbers! {
    _gfortran_random_r4 = c"_gfortran_random_r4";
    _gfortran_random_r8 = c"_gfortran_random_r8";
    _gfortran_random_r10 = c"_gfortran_random_r10";
    _gfortran_random_r16 = c"_gfortran_random_r16";
    _gfortran_arandom_r4 = c"_gfortran_arandom_r4";
    _gfortran_arandom_r8 = c"_gfortran_arandom_r8";
    _gfortran_arandom_r10 = c"_gfortran_arandom_r10";
    _gfortran_arandom_r16 = c"_gfortran_arandom_r16";
}

/// Numbers of these functions in questions to rank 0.
const IRAND: usize = 8;
const RAND: usize = 9;
const SRAND: usize = 10;

/// Draws or seeds in this process, by the function of that number; what it gives, in bits.
pub fn draw(which: usize, value: c_int) -> Option<u64> {
    static REAL: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];
    let value = &raw const value;
    // SAFETY: the library's functions, by their types
    Some(unsafe {
        match which {
            IRAND => real::<unsafe extern "C" fn(*const c_int) -> c_int>(c"_gfortran_irand", &REAL[0])(value)
                as u64,
            RAND => real::<unsafe extern "C" fn(*const c_int) -> f32>(c"_gfortran_rand", &REAL[1])(value)
                .to_bits()
                .into(),
            SRAND => {
                real::<unsafe extern "C" fn(*const c_int)>(c"_gfortran_srand", &REAL[2])(value);
                0
            }
            _ => return None,
        }
    })
}

/// Where rank 0's row is. No value is the same as 0.
fn of_rank_0(which: usize, value: *const c_int) -> u64 {
    // SAFETY: the caller's, or null
    let value = unsafe { value.as_ref() }.copied().unwrap_or(0);
    if is_elsewhere() { ask(which, value as u32 as usize) } else { draw(which, value).unwrap_or(0) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn _gfortran_irand(value: *const c_int) -> c_int {
    of_rank_0(IRAND, value) as c_int
}
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn _gfortran_rand(value: *const c_int) -> f32 {
    f32::from_bits(of_rank_0(RAND, value) as u32)
}
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn _gfortran_srand(value: *const c_int) {
    of_rank_0(SRAND, value);
}
