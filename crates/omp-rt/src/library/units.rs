//! Units of the Fortran library, which each process's has for itself: those that serial code opens are rank 0's. Another rank's would take a number for a file of its own, `fort.10`.

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard};

use super::UNITS;
use super::random::is_elsewhere;
use crate::input;
use crate::symbols::real;
use crate::{alloc, run, sys};

/// How compilers describe a statement (libgfortran's `io.h`, "st_parameter_common"); `open` with `newunit=` puts the number there, too.
#[repr(C)]
struct Statement {
    flags: u32,
    unit: c_int,
}

/// In the flags of reading and writing: to a variable.
const INTERNAL: u32 = 1 << 14;
/// Numbers that mean so, too.
const INTERNALS: core::ops::Range<c_int> = -9..0;

const ERRORS: c_int = 0;
const INPUT: c_int = 5;
const OUTPUT: c_int = 6;

/// Units that threads of this rank have opened in regions.
static OPENED: Mutex<BTreeSet<c_int>> = Mutex::new(BTreeSet::new());

fn opened() -> MutexGuard<'static, BTreeSet<c_int>> {
    OPENED.lock().unwrap_or_else(|broken| broken.into_inner())
}

/// Whether serial code has opened or closed a unit that is there from the begin; in the runtime's shared memory.
fn is_changed(unit: c_int) -> &'static AtomicBool {
    // SAFETY: inside the shared page, which begins as zeros
    unsafe { &*alloc::shared_page().add(UNITS + unit as usize).cast() }
}

/// Whether serial code has open what `newunit=` gave it this number; as above. Numbers beyond are not looked after.
fn is_new(unit: c_int) -> Option<&'static AtomicBool> {
    const FIRST: c_int = -10;
    const MOST: usize = 1024;
    let at = usize::try_from(FIRST - unit).ok().filter(|at| *at < MOST)?;
    // SAFETY: inside the shared page, which begins as zeros
    Some(unsafe { &*alloc::shared_page().add(UNITS + 16 + at).cast() })
}

/// Whether a region has opened any on this rank.
pub fn has_any() -> bool {
    !opened().is_empty()
}

fn is_standard(unit: c_int) -> bool {
    matches!(unit, ERRORS | INPUT | OUTPUT)
}

/// Whether a unit is there from the begin, and serial code has left it so.
fn is_as_it_was(unit: c_int) -> bool {
    is_standard(unit) && !is_changed(unit).load(Relaxed)
}

/// Whether a statement is on a unit that each rank's library has for itself, though all run serial code. What that keeps of it, such as formats, is not alike on all ranks, so it must
/// not be in memory that they share.
fn is_each_ranks(statement: &Statement, data: bool) -> bool {
    run::is_replicated() && (is_internal(statement, data) || is_as_it_was(statement.unit))
}

/// Whether a statement is on a variable. `data`: it reads or writes.
fn is_internal(statement: &Statement, data: bool) -> bool {
    data && (statement.flags & INTERNAL != 0 || INTERNALS.contains(&statement.unit))
}

/// A statement on a unit that must be open.
fn check(what: &str, statement: &Statement, data: bool) {
    let unit = statement.unit;
    if !is_elsewhere() || is_internal(statement, data) {
        return;
    }
    if unit == INPUT && what == "read" {
        sys::stop("read of standard input", input::WHY);
    }
    if is_as_it_was(unit) || opened().contains(&unit) {
        return;
    }
    if run::is_replicated() {
        // what one rank's thread reads ahead is not where another's reads on
        if what == "read" {
            sys::fail(format_args!(
                "read of Fortran's unit {unit} in a parallel region on rank {}: that was not opened there, and ranks read ahead of each other. Read in serial code, or open and close units in \
                 the region",
                run::rank()
            ));
        }
        return;
    }
    sys::fail(format_args!(
        "{what} of Fortran's unit {unit} in a parallel region on rank {}: that was not opened there, and what serial code, or another rank, has opened is theirs. Run it with --serial \
         replicated, or open and close units in the region",
        run::rank()
    ));
}

/// Serial code opens or closes a unit.
fn note(unit: c_int, is_open: bool) {
    if run::is_inside() {
        return;
    }
    if is_standard(unit) && !is_changed(unit).load(Relaxed) {
        is_changed(unit).store(true, Relaxed);
    }
    if let Some(new) = is_new(unit) {
        new.store(is_open, Relaxed);
    }
}

unsafe fn call(name: &CStr, known: &AtomicUsize, statement: *mut Statement) {
    // SAFETY: the caller's, to the function of that name
    unsafe { real::<unsafe extern "C" fn(*mut Statement)>(name, known)(statement) }
}

/// Statements on units: `$text`, by the function `$name`.
macro_rules! statements {
    ($($name:ident = $what:literal, $text:literal, $data:literal;)*) => {$(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C" fn $name(statement: *mut Statement) {
            static REAL: AtomicUsize = AtomicUsize::new(0);
            // SAFETY: the compiler's description
            unsafe {
                check($what, &*statement, $data);
                match is_each_ranks(&*statement, $data) {
                    true => alloc::privately(|| call($text, &REAL, statement)),
                    false => call($text, &REAL, statement),
                }
            }
        }
    )*};
}
statements! {
    _gfortran_st_read = "read", c"_gfortran_st_read", true;
    _gfortran_st_write = "write", c"_gfortran_st_write", true;
    _gfortran_st_rewind = "rewind", c"_gfortran_st_rewind", false;
    _gfortran_st_backspace = "backspace", c"_gfortran_st_backspace", false;
    _gfortran_st_endfile = "endfile", c"_gfortran_st_endfile", false;
    _gfortran_st_flush = "flush", c"_gfortran_st_flush", false;
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn _gfortran_st_open(statement: *mut Statement) {
    static REAL: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: the compiler's description
    unsafe {
        call(c"_gfortran_st_open", &REAL, statement);
        let unit = (*statement).unit;
        note(unit, true);
        if !is_elsewhere() {
            return;
        }
        if !run::is_replicated() && is_new(unit).is_some_and(|new| new.load(Relaxed)) {
            sys::stop(
                "open with newunit=",
                "in a parallel region on another rank than 0, which gives the number of a unit that serial code has open: run it with --serial replicated, or give numbers by unit=",
            );
        }
        opened().insert(unit);
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn _gfortran_st_close(statement: *mut Statement) {
    static REAL: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: the compiler's description
    unsafe {
        let unit = (*statement).unit;
        note(unit, false);
        check("close", &*statement, false);
        call(c"_gfortran_st_close", &REAL, statement);
        opened().remove(&unit);
    }
}
