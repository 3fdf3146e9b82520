//! Windows, and epochs of passive targets: locks are taken here, without the target's help, and the MPI is told that nobody else has them
//! (`MPI_MODE_NOCHECK`). MPICH's own locks are messages that the target's calls answer; Open MPI's between hosts are atomic operations like
//! these, and stay.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};

use polyrail_core::ticket::{Kind, Ticket};
use polyrail_pmpi::{Flavour, abi};

use crate::area::LOCKS;
use crate::comm;
use crate::far::Far;
use crate::library::{
    AtHome, Failed, LookIn, comm_rank, info_get, win_call_errhandler, win_free, win_lock, win_lock_all,
    win_unlock, win_unlock_all,
};
use crate::locks::Locks;
use crate::room::room;
use crate::team::{Members, members, tell};

/// Windows between hosts that may have locks of ours: each is a window more, of which MPIs have a limited number.
const MOST_THERE: usize = 64;
/// Windows of this host that this rank has got memory for: it is the communicators' as well.
const MOST_HERE: usize = 8;
static HERE: AtomicUsize = AtomicUsize::new(0);
static THERE: AtomicUsize = AtomicUsize::new(0);

static WINDOWS: RwLock<BTreeMap<usize, Arc<Window>>> = RwLock::new(BTreeMap::new());

/// What is known of all windows, whoever's their locks are.
static KNOWN: RwLock<BTreeMap<usize, Known>> = RwLock::new(BTreeMap::new());

#[derive(Clone, Copy)]
struct Known {
    /// Of this process.
    rank: c_int,
    /// Open MPI's, and its ranks share a host: their locks are its own, in that host's memory.
    near: bool,
}

/// A window of the program's whose locks are ours.
struct Window {
    ranks: usize,
    /// Of this process.
    rank: usize,
    locks: Locks,
    held: Mutex<Held>,
}

/// What this process has.
#[derive(Default)]
struct Held {
    one: BTreeMap<c_int, Ticket>,
    all: Option<Vec<Ticket>>,
}

impl Window {
    /// Locks for a new window. Called by all ranks of its communicator; all get some, or none.
    fn new(info: usize, comm: usize) -> Result<Option<Self>, Failed> {
        let Some(room) = room() else { return Ok(None) };
        let Some(Members { rank, size: ranks, hosts, .. }) = members(comm, room)? else { return Ok(None) };
        let is_one = hosts.iter().all(|host| *host == hosts[0]) && ranks <= LOCKS;
        let is_maker = is_one && rank == 0 && HERE.load(Ordering::Relaxed) < MOST_HERE;
        let own = if is_maker { room.piece(1) } else { None };
        if let Some(area) = own.and_then(|piece| room.area(piece, 0)) {
            (0..ranks).for_each(|rank| area.lock(rank).clear());
        }
        let may = !has_no_locks(info)? && THERE.load(Ordering::Relaxed) < MOST_THERE;
        let told = tell([own.map_or(u64::MAX, u64::from), u64::from(may), 0], ranks, comm)?;
        let piece = u32::try_from(told[0][0]).ok();
        let wanted = told.iter().all(|told| told[1] == 1);
        if let (Some(piece), true, Some(area)) = (piece, wanted, piece.and_then(|piece| room.area(piece, 0)))
        {
            HERE.fetch_add(usize::from(own.is_some()), Ordering::Relaxed);
            return Ok(Some(Self {
                ranks,
                rank,
                locks: Locks::Here { area, piece },
                held: Mutex::default(),
            }));
        }
        if let Some(piece) = own {
            room.give_back(piece, 1);
        }
        if !wanted {
            return Ok(None);
        }
        let Some(far) = Far::new(comm, rank, ranks)? else { return Ok(None) };
        let locks = Locks::There(far);
        THERE.fetch_add(1, Ordering::Relaxed);
        Ok(Some(Self { ranks, rank, locks, held: Mutex::default() }))
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called by all ranks, after their last epoch.
    fn end(&self) -> Result<(), Failed> {
        match &self.locks {
            Locks::Here { piece, .. } => {
                if let (Some(room), 0) = (room(), self.rank) {
                    room.give_back(*piece, 1);
                    HERE.fetch_sub(1, Ordering::Relaxed);
                }
                Ok(())
            }
            Locks::There(far) => {
                THERE.fetch_sub(1, Ordering::Relaxed);
                far.end()
            }
        }
    }

    fn leave_all(&self, tickets: Vec<Ticket>) -> Result<(), Failed> {
        // one that cannot be reached keeps no other from being given back
        let leave = |done: Result<(), Failed>, (ticket, rank)| done.and(self.locks.leave(rank, ticket));
        tickets.into_iter().zip(0..).fold(Ok(()), leave)
    }
}

/// Whether the program promises to lock nothing.
fn has_no_locks(info: usize) -> Result<bool, Failed> {
    let (mut value, mut flag) = ([0 as c_char; 8], 0);
    if abi().handle(info) == abi().info_null {
        return Ok(false);
    }
    // SAFETY: the program's, a string, and room for seven characters and a zero
    unsafe { info_get(info, c"no_locks".as_ptr(), 7, value.as_mut_ptr(), &mut flag)? };
    Ok(flag != 0 && value.starts_with(&b"true\0".map(|byte| byte as c_char)))
}

fn find(win: usize) -> Option<Arc<Window>> {
    let windows = WINDOWS.read().unwrap_or_else(PoisonError::into_inner);
    windows.get(&abi().handle(win)).cloned()
}

fn code(done: Result<(), Failed>, win: usize) -> c_int {
    match done {
        Ok(()) => 0,
        // SAFETY: the program's window, and one of MPI's own error classes
        Err(failed) => comm::raise_by(
            failed,
            || explain(failed),
            |code| unsafe { win_call_errhandler(abi().handle(win), code) },
        ),
    }
}

fn explain(failed: Failed) -> String {
    match failed {
        Failed::Message(code) => format!("a window's lock cannot be reached: MPI's code {code}"),
        _ => "a rank of this host has ended while others wait for its lock of a window".into(),
    }
}

/// After a window was made, where its handle is.
///
/// # Safety
/// `win` is where the MPI has put it.
pub unsafe fn made(code: c_int, info: usize, comm: usize, win: *const usize) -> c_int {
    if code != 0 || comm::is_over() {
        return code;
    }
    // SAFETY: as the caller says
    let win = unsafe { abi().handle_at(win) };
    let comm = abi().handle(comm);
    let is_open = abi().flavour == Flavour::OpenMpi;
    let mut rank = 0;
    // SAFETY: the program's communicator, and a place for the answer
    if unsafe { comm_rank(comm, &mut rank) }.is_ok() {
        let members = room().filter(|_| is_open).map_or(Ok(None), |room| members(comm, room)).unwrap_or(None);
        let near = members.is_some_and(|members| members.hosts.iter().all(|host| *host == members.hosts[0]));
        known_mut().insert(win, Known { rank, near });
    }
    if is_open {
        return 0;
    }
    match Window::new(info, comm) {
        Ok(Some(window)) => {
            WINDOWS.write().unwrap_or_else(PoisonError::into_inner).insert(win, Arc::new(window));
            0
        }
        Ok(None) => 0,
        Err(failed) => self::code(Err(failed), win),
    }
}

/// `MPI_Win_free`.
///
/// # Safety
/// As of the MPI function.
pub unsafe fn free(win: *mut usize) -> c_int {
    // SAFETY: as the caller says
    let handle = unsafe { abi().handle_at(win) };
    let all = || WINDOWS.write().unwrap_or_else(PoisonError::into_inner);
    // before another window can have the handle
    let window = all().remove(&handle);
    let known = known_mut().remove(&handle);
    // SAFETY: the program's own call
    if let Err(failed) = unsafe { win_free(win) } {
        if let Some(window) = window {
            all().insert(handle, window);
        }
        if let Some(known) = known {
            known_mut().insert(handle, known);
        }
        return mpi_code(Err(failed));
    }
    match window.map_or(Ok(()), |window| window.end()) {
        Ok(()) => 0,
        // the window whose handler would be called is no more
        Err(Failed::Mpi(code) | Failed::Message(code)) => code,
        Err(_) => abi().other_error,
    }
}

/// `MPI_Win_lock`.
pub fn lock(kind: c_int, rank: c_int, assert: c_int, win: usize) -> c_int {
    let abi = abi();
    let kinds = [(abi.lock_shared, Kind::Reader), (abi.lock_exclusive, Kind::Writer)];
    let ours = (assert & abi.no_check == 0).then(|| find(win)).flatten();
    let ours = ours.zip(kinds.iter().find(|(number, _)| *number == kind));
    let ours = ours.filter(|(window, _)| usize::try_from(rank).is_ok_and(|rank| rank < window.ranks));
    let Some((window, (_, way))) = ours else {
        // SAFETY: the program's own call
        return by_the_mpi(win, || unsafe { win_lock(kind, rank, assert, win) });
    };
    // what is wrong with the call, the MPI says before anything is waited for
    // SAFETY: the program's own call
    if let Err(failed) = unsafe { win_lock(kind, rank, assert | abi.no_check, win) } {
        return mpi_code(Err(failed));
    }
    match window.locks.take(rank, *way) {
        Ok(ticket) => {
            window.held().one.insert(rank, ticket);
            0
        }
        Err(why) => {
            // SAFETY: the program's window, whose epoch has just begun
            let _ = unsafe { win_unlock(rank, win) };
            code(Err(why), win)
        }
    }
}

/// `MPI_Win_unlock`.
pub fn unlock(rank: c_int, win: usize) -> c_int {
    // SAFETY: the program's own call
    let done = at_home(rank, win, || unsafe { win_unlock(rank, win) });
    let window = find(win);
    let held = window.as_ref().and_then(|window| window.held().one.remove(&rank));
    let left = window.zip(held).map_or(Ok(()), |(window, ticket)| window.locks.leave(rank, ticket));
    if done.is_ok() { code(left, win) } else { mpi_code(done) }
}

/// `MPI_Win_lock_all`.
pub fn lock_all(assert: c_int, win: usize) -> c_int {
    let ours = (assert & abi().no_check == 0).then(|| find(win)).flatten();
    let Some(window) = ours else {
        // SAFETY: the program's own call
        return by_the_mpi(win, || unsafe { win_lock_all(assert, win) });
    };
    // SAFETY: the program's own call
    if let Err(failed) = unsafe { win_lock_all(assert | abi().no_check, win) } {
        return mpi_code(Err(failed));
    }
    match window.locks.take_all(window.ranks) {
        Ok(tickets) => {
            window.held().all = Some(tickets);
            0
        }
        Err(why) => {
            // SAFETY: the program's window, whose epoch has just begun
            let _ = unsafe { win_unlock_all(win) };
            code(Err(why), win)
        }
    }
}

/// `MPI_Win_unlock_all`.
pub fn unlock_all(win: usize) -> c_int {
    // SAFETY: the program's own call
    let done = unsafe { win_unlock_all(win) };
    let window = find(win);
    let held = window.as_ref().and_then(|window| window.held().all.take());
    let left = window.zip(held).map_or(Ok(()), |(window, tickets)| window.leave_all(tickets));
    if done.is_ok() { code(left, win) } else { mpi_code(done) }
}

/// Takes a lock of the MPI's own. Open MPI's, among ranks of a host, waits for a word in their memory, and only looks in at the provider, which would
/// put it to sleep for want of messages: none ends that wait.
fn by_the_mpi(win: usize, take: impl FnOnce() -> Result<(), Failed>) -> c_int {
    let _looking = known(win).is_some_and(|known| known.near).then(LookIn::begin);
    mpi_code(take())
}

/// Completes what this process has begun at this rank. If that is itself, MPICH works off accumulates from itself, chunk by chunk, by memory of its own, and asks the provider
/// for messages in between, which would give the processor away for want of them, each time. (It completes what is under way to others, too: then it does wait.)
pub fn at_home<T>(rank: c_int, win: usize, complete: impl FnOnce() -> T) -> T {
    let is_own = abi().flavour != Flavour::OpenMpi && known(win).is_some_and(|known| known.rank == rank);
    let _at_home = is_own.then(AtHome::begin);
    complete()
}

fn known(win: usize) -> Option<Known> {
    KNOWN.read().unwrap_or_else(PoisonError::into_inner).get(&abi().handle(win)).copied()
}

fn known_mut() -> RwLockWriteGuard<'static, BTreeMap<usize, Known>> {
    KNOWN.write().unwrap_or_else(PoisonError::into_inner)
}

/// The code of what the MPI's own call found, of which its error handler has heard.
fn mpi_code(done: Result<(), Failed>) -> c_int {
    match done {
        Ok(()) => 0,
        Err(Failed::Mpi(code)) => code,
        Err(_) => abi().other_error,
    }
}
