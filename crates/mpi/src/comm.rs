//! What is known of each communicator: how often it has been used, and its team, if it has one.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use polyrail_pmpi::abi;

use crate::library::{Failed, comm_create_keyval, comm_rank, comm_set_attr, comm_size, comm_test_inter};
use crate::team::Team;
use crate::ways::Way;

/// Operations of a communicator that the MPI carries out before it gets a team: many are used once or twice only.
const BEFORE: u32 = 4;

/// A communicator, or the place of one that has ended and whose memory waits for another.
pub struct Comm {
    handle: AtomicUsize,
    /// Somebody is in an operation. MPI has one at a time; a program that does not hold to that is not to break memory.
    busy: AtomicBool,
    /// This process's rank, and how many there are.
    rank: AtomicUsize,
    size: AtomicUsize,
    state: UnsafeCell<State>,
}

enum State {
    /// So many operations, by the MPI.
    New(u32),
    /// All by the MPI.
    Passing,
    /// Carried out here.
    Team(Box<Team>),
}

// SAFETY: `state` is used by who has set `busy` only
unsafe impl Sync for Comm {}
// SAFETY: nothing in it belongs to a thread
unsafe impl Send for Comm {}

const PLACES: usize = 64;
static TABLE: [AtomicPtr<Comm>; PLACES] = [const { AtomicPtr::new(std::ptr::null_mut()) }; PLACES];
/// All communicators, for handles whose place another has; those without a handle are free. Their memory is never given back, so that a look
/// at one that has just ended finds a communicator still.
static ALL: Mutex<Vec<&'static Comm>> = Mutex::new(Vec::new());
static FINALIZING: AtomicBool = AtomicBool::new(false);

fn place(handle: usize) -> &'static AtomicPtr<Comm> {
    &TABLE[(handle as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 58]
}

/// Runs an operation by the communicator's team, if it has one or gets one now; otherwise why it has none, where the call is right. What is wrong as this
/// rank and so many others call it is no operation: it is not counted, as the others may not call it at all.
pub fn with_team<T>(
    handle: usize,
    is_wrong: impl FnOnce(usize, usize) -> bool,
    run: impl FnOnce(&mut Team) -> T,
) -> Result<T, Option<Way>> {
    let comm = find(abi().handle(handle)).ok_or(None)?;
    if is_wrong(comm.rank.load(Ordering::Relaxed), comm.size.load(Ordering::Relaxed)) {
        return Err(None);
    }
    if comm.busy.swap(true, Ordering::Acquire) {
        return Err(None);
    }
    // an operation of the program's own may leave by an exception
    let _busy = Busy(comm);
    // SAFETY: `busy` was not set, and is now
    let state = unsafe { &mut *comm.state.get() };
    if let State::New(used) = state {
        *used += 1;
        if *used > BEFORE {
            *state = match Team::new(comm.handle.load(Ordering::Relaxed)) {
                Ok(Some(team)) => State::Team(Box::new(team)),
                Ok(None) | Err(_) => State::Passing,
            };
        }
    }
    match state {
        State::Team(team) => Ok(run(team)),
        State::New(_) => Err(Some(Way::First)),
        State::Passing => Err(Some(Way::Passing)),
    }
}

struct Busy(&'static Comm);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
    }
}

#[inline]
fn find(handle: usize) -> Option<&'static Comm> {
    let found = place(handle).load(Ordering::Acquire);
    // SAFETY: null, or a communicator, whose memory stays
    match unsafe { found.as_ref() } {
        Some(comm) if comm.handle.load(Ordering::Relaxed) == handle => Some(comm),
        _ => find_or_begin(handle),
    }
}

#[cold]
fn find_or_begin(handle: usize) -> Option<&'static Comm> {
    let keyval = keyval()?;
    let mut all = ALL.lock().ok()?;
    let found = all.iter().find(|comm| comm.handle.load(Ordering::Relaxed) == handle).copied();
    let comm = match found {
        Some(comm) => comm,
        None => {
            let free = all.iter().find(|comm| comm.handle.load(Ordering::Acquire) == 0).copied();
            let comm = free.unwrap_or_else(|| {
                let new: &'static Comm = Box::leak(Box::new(Comm {
                    handle: AtomicUsize::new(0),
                    busy: AtomicBool::new(false),
                    rank: AtomicUsize::new(0),
                    size: AtomicUsize::new(0),
                    state: UnsafeCell::new(State::New(0)),
                }));
                all.push(new);
                new
            });
            let (mut rank, mut size, mut inter) = (0, 0, 0);
            // SAFETY: a handle from the program, to which the MPI says so if it is none, and places for the answers
            unsafe {
                comm_rank(handle, &mut rank).ok()?;
                comm_size(handle, &mut size).ok()?;
                comm_test_inter(handle, &mut inter).ok()?;
            }
            // what it is called with is as long as the other side's size says; nothing of it is ours
            let size = if inter == 0 { size } else { 0 };
            comm.rank.store(rank as usize, Ordering::Relaxed);
            comm.size.store(size as usize, Ordering::Relaxed);
            comm.handle.store(handle, Ordering::Relaxed);
            drop(all);
            // SAFETY: a handle from the program, to which the MPI says so if it is none; a keyval of ours
            if unsafe { comm_set_attr(handle, keyval, (&raw const *comm).cast_mut().cast()) }.is_err() {
                comm.handle.store(0, Ordering::Relaxed);
                return None;
            }
            comm
        }
    };
    place(handle).store((&raw const *comm).cast_mut(), Ordering::Release);
    Some(comm)
}

/// The key under which communicators tell us that they end.
fn keyval() -> Option<c_int> {
    static KEYVAL: OnceLock<Option<c_int>> = OnceLock::new();
    *KEYVAL.get_or_init(|| {
        let mut keyval = 0;
        let (copy, delete) = (not_copied as *const c_void, ends as *const c_void);
        // SAFETY: functions as MPI calls them, and a place for the answer
        let made = unsafe { comm_create_keyval(copy, delete, &mut keyval, std::ptr::null_mut()) };
        made.is_ok().then_some(keyval)
    })
}

/// A duplicate begins anew.
unsafe extern "C" fn not_copied(
    _comm: usize,
    _keyval: c_int,
    _extra: *mut c_void,
    _value: *mut c_void,
    _new: *mut c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: MPI's place for the answer
    unsafe { *flag = 0 };
    0
}

unsafe extern "C" fn ends(_comm: usize, _keyval: c_int, value: *mut c_void, _extra: *mut c_void) -> c_int {
    // SAFETY: as `find_or_begin` has set it
    if let Some(comm) = unsafe { value.cast::<Comm>().as_ref() } {
        // SAFETY: the communicator ends: nobody is in an operation of it
        let state = unsafe { std::mem::replace(&mut *comm.state.get(), State::New(0)) };
        comm.handle.store(0, Ordering::Release);
        if let State::Team(mut team) = state {
            team.end(FINALIZING.load(Ordering::Relaxed));
        }
    }
    0
}

/// MPI ends: from now on nothing may be asked of it.
pub fn finalizing() {
    FINALIZING.store(true, Ordering::Relaxed);
}

/// Whether MPI ends.
pub fn is_over() -> bool {
    FINALIZING.load(Ordering::Relaxed)
}

/// Tells the communicator's error handler why an operation failed, unless it knows.
pub fn raise(handle: usize, failed: Failed, explain: impl FnOnce() -> String) -> c_int {
    // SAFETY: the program's communicator, and one of MPI's own error classes
    raise_by(failed, explain, |code| unsafe {
        crate::library::comm_call_errhandler(abi().handle(handle), code)
    })
}

/// The same of any error handler.
pub fn raise_by(
    failed: Failed,
    explain: impl FnOnce() -> String,
    call_handler: impl FnOnce(c_int) -> Result<(), Failed>,
) -> c_int {
    if let Failed::Mpi(code) = failed {
        return code;
    }
    let code = if let Failed::Message(code) = failed { code } else { abi().other_error };
    // in one piece: other ranks say something, too
    let line = format!("polyrail: {}\n", explain());
    let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
    match call_handler(code) {
        Err(Failed::Mpi(other)) => other,
        _ => code,
    }
}
